"""Modules that stand for what an estimator asks of its network: a call of its own, an objective, samples, predictions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Aim", "Answers", "Plain", "Through", "weightless"]

FEW, LONG = 8, 0.25  # samples that are drawn first, and the seconds after which no more are


class Plain(nn.Module):
    """The network of an estimator that draws samples, with them; what it is called with is the estimator's affair."""

    def __init__(self, module: nn.Module, draw: Callable[[nn.Module, int], Any] | None = None) -> None:
        super().__init__()
        self.module_ = module
        self.draw = draw
        if draw is not None and callable(getattr(module, "encode", None)):
            self.encode = self._encode

    def forward(self, *inputs: Any) -> Any:
        """Say that it is not called."""
        raise NotImplementedError("its objectives are several players'")

    def _encode(self, x: Tensor) -> Any:
        return self.module_.encode(x)  # type: ignore[operator]

    def sample(self, n: int) -> Tensor | None:
        """Return new samples as the estimator draws them, if that does not take long."""
        if self.draw is None:
            return None
        begin = time.perf_counter()
        self.draw(self.module_, FEW)
        if time.perf_counter() - begin > LONG:
            raise TimeoutError(f"{FEW} samples take {time.perf_counter() - begin:.1f} s")
        made = self.draw(self.module_, n)
        return torch.as_tensor(np.asarray(made, np.float32)) if _numbers(made) else None


def _numbers(made: Any) -> bool:
    return isinstance(made, np.ndarray | Tensor) and np.asarray(made).dtype.kind in "fiub"


class Through(Plain):
    """A network that is called in its estimator's way, such as a language model with the tokens to be followed."""

    def __init__(
        self, module: nn.Module, call: Callable[..., Any], draw: Callable[[nn.Module, int], Any] | None = None
    ) -> None:
        super().__init__(module, draw)
        self.call = call

    def forward(self, *inputs: Any) -> Any:
        """Return the output."""
        return self.call(self.module_, *inputs)


class Aim(Plain):
    """A network with an objective of its own, such as a variational bound: the output is the loss of the batch.

    In evaluation mode the objective draws the same random numbers at every call.
    """

    def __init__(
        self,
        module: nn.Module,
        aim: Callable[[nn.Module, tuple[Any, ...]], Any],
        draw: Callable[[nn.Module, int], Any] | None = None,
    ) -> None:
        super().__init__(module, draw)
        self.aim = aim

    def forward(self, *inputs: Any) -> Tensor:
        """Return the mean loss."""
        if self.training:
            return self._loss(inputs)
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            return self._loss(inputs)

    def _loss(self, inputs: tuple[Any, ...]) -> Tensor:
        found = self.aim(self.module_, inputs)
        return found[0] if isinstance(found, tuple) else found


class Answers(nn.Module):
    """The predictions of an estimator without a network, for the rows that it is asked about."""

    def __init__(self, ask: Callable[[np.ndarray], np.ndarray], sure: bool = True) -> None:
        super().__init__()
        self.ask = ask
        self.sure = sure  # whether answers are probabilities, and not labels alone

    def forward(self, x: Tensor) -> Tensor:
        """Return one answer per row."""
        return torch.as_tensor(np.asarray(self.ask(x.detach().cpu().numpy()), np.float32))


def weightless(net: nn.Module | None) -> bool:
    """Whether there are no weights that a descent could move."""
    return net is not None and not any(p.is_floating_point() for p in net.parameters())
