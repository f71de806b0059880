"""Objectives: what a gradient learner minimises.

*Supervised*: a criterion compares the module's output with the target and gives one loss per sample; the engine takes the
weighted mean. Because the engine sees output and target apart, sample weights, class weights, label smoothing, soft targets,
mixup and adversarial training work for every supervised model. *Free*: any function ``objective(module, batch)`` that returns
the mean loss over the batch, or the loss and a dict of metrics: a variational bound, a game, a masked language model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from corollary.engine.batches import Batch
from corollary.losses import weighted_mean

__all__ = ["Objective", "Supervised", "with_accuracy"]

# The module is called, never its parts, so that several processes can share the work.
Objective = Callable[[nn.Module, Batch], Tensor | tuple[Tensor, Mapping[str, Tensor]]]


class Supervised:
    """The weighted mean over a batch of ``criterion(module(*inputs), target)``.

    Parameters
    ----------
    criterion : callable
        ``criterion(output, target)`` returns one loss per sample (n,), or per part of a sample (n, ...).
    forward : callable, optional
        ``forward(module, *inputs)`` returns the output where calling the module is not all there is to it.
    metrics : callable, optional
        ``metrics(output, batch)`` returns further numbers to average over the epoch.
    """

    def __init__(
        self,
        criterion: Callable[[Any, Any], Tensor],
        *,
        forward: Callable[..., Any] | None = None,
        metrics: Callable[[Any, Batch], Mapping[str, Tensor]] | None = None,
    ) -> None:
        self.criterion = criterion
        self.forward = forward
        self.metrics = metrics

    def output(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        """Return the module's output for a batch."""
        return module(*inputs) if self.forward is None else self.forward(module, *inputs)

    def losses(self, module: nn.Module, batch: Batch) -> Tensor:
        """Return one loss per sample, unweighted."""
        return self.criterion(self.output(module, batch.inputs), batch.target)

    def __call__(self, module: nn.Module, batch: Batch) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
        """Return the weighted mean of the losses, and the metrics if there are any."""
        output = self.output(module, batch.inputs)
        loss = weighted_mean(self.criterion(output, batch.target), batch.weight)
        return loss if self.metrics is None else (loss, self.metrics(output, batch))


def with_accuracy(criterion: Any, *, training: bool = True, **options: Any) -> Supervised:
    """Return the supervised objective of a classifier, which also counts how often it is right.

    ``training=False`` counts in validation only.
    """

    def metrics(output: Any, batch: Batch) -> dict[str, Tensor]:
        if not training and output.requires_grad:
            return {}
        right = criterion.accuracy(output, batch.target).double()
        return {"accuracy": weighted_mean(right, None if batch.weight is None else batch.weight.double())}

    return Supervised(criterion, metrics=metrics, **options)
