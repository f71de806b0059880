"""A fitted estimator of the library as a subject: it supplies its module, its reading of the data, its loss and its history.

The estimator itself is asked how it trains: a copy of it makes its learner anew, whose objective and batches are those of
its fit. What has no network is asked for its predictions (``predictions``).
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose.asking import Aim, Plain, Through
from corollary.diagnose.samples import IGNORED, Samples
from corollary.diagnose.settings import OWNER, Settings
from corollary.diagnose.subject import Subject

__all__ = ["subject_of"]

LEARNS_TARGETS = {"classifier", "regressor", "tagger", "segmenter", "multi-task", "translator"}


def subject_of(
    model: Any,
    data: Any,
    validation: Any,
    loss: Any,
    settings: Settings,
    history: Any,
    initial: Any,
    step: Any,
) -> Subject:
    """Return the subject of an estimator."""
    from corollary.diagnose.predictions import answered, unpacked

    model, data, validation = unpacked(model, data, validation)
    module = _network(model)
    if isinstance(model, type) or (module is None and not hasattr(model, "get_params")):
        raise _no_model(model)
    history = history if history is not None else getattr(model, "history_", None)
    if module is None:
        return answered(model, data, validation, loss, history)
    notes: list[tuple[str, str]] = []
    if _is_ours(model):
        train, own = _parts(model, data)
        valid = own.validation if validation is None else _parts(model, validation)[0]
        module, criterion, notes = own.module, own.criterion, own.notes
        settings = settings if settings.learning_rate is not None else _settings(model, settings)
    else:
        from corollary.diagnose.reading import read

        train, valid, criterion = read(data), None if validation is None else read(validation), None
    if hasattr(model, "criterion_") and hasattr(model, "optimizer_"):  # skorch
        criterion, settings, history = _of_skorch(model, settings, history)
    return Subject(
        module, train, valid, loss=loss if loss is not None else criterion, settings=settings, history=history,
        initial=initial, step=step, owner=model, notes=notes,
    )  # fmt: skip


def _network(model: Any) -> nn.Module | None:
    """Return the network of an estimator, if it has one."""
    found = (getattr(model, name, None) for name in ("module_", "module"))
    return next((m for m in found if isinstance(m, nn.Module)), None)


def _is_ours(model: Any) -> bool:
    return hasattr(model, "_batches") and hasattr(model, "_further")


def _no_model(model: Any) -> Exception:
    got, do = type(model).__name__, ""
    if isinstance(model, type):
        got, do = f"the class {model.__name__}", f"Make one, {model.__name__}(…), and fit it."
    return errors.kind(OWNER, "model must be a torch module or a fitted estimator", got, do)


def _settings(model: Any, settings: Settings) -> Settings:
    """Return how an estimator of the library was trained."""
    plan = model._plan()
    rate = plan.learning_rate if isinstance(plan.learning_rate, (int, float)) else None
    return Settings(
        str(plan.optimizer), rate, float(plan.weight_decay or 0.0),
        float((plan.optimizer_options or {}).get("momentum", 0.0)),
        str(plan.optimizer) in ("adamw", "muon"), settings.batch_size or min(int(plan.batch_size), 4096),
    )  # fmt: skip


def _of_skorch(model: Any, settings: Settings, history: Any) -> tuple[Any, Settings, Any]:
    """Return loss, settings and history of a fitted net of skorch."""
    loss = model.criterion_
    if isinstance(loss, torch.nn.NLLLoss):
        own = loss
        loss = lambda out, target: own(torch.log(out + 1e-12), target)  # noqa: E731  skorch takes probabilities there
    if settings.learning_rate is None:
        size = getattr(model, "batch_size", None)
        settings = Settings.of(model.optimizer_, settings.batch_size or (size if size and size > 0 else None))
    rows = [{k: v for k, v in row.items() if isinstance(v, float)} for row in getattr(model, "history", [])]
    return loss, settings, history if history is not None else rows


# --- estimators of the library that are trained by gradients ------------------------------------------------


class OwnInputs(Samples):
    """What an estimator has made of the user's data; of its inputs the first alone is theirs."""

    @property
    def named(self) -> list[tuple[str, Tensor]]:
        """The tensors among the inputs that are the user's, by name."""
        return [("X", a) for a in self.args[:1] if isinstance(a, Tensor)]


class OwnRows(OwnInputs):
    """The same of rows that are none of the user's: windows of texts or of series."""

    @property
    def named(self) -> list[tuple[str, Tensor]]:
        """None of the inputs."""
        return []

    @property
    def x(self) -> Any:
        """Nothing on which the user's data could be judged."""
        return None


class _Own(NamedTuple):
    """The module as its estimator calls it, the loss, what is held out inside the data, and notes."""

    module: nn.Module
    criterion: Any
    validation: Samples | None = None
    notes: list[tuple[str, str]] = []


def _given(data: Any) -> tuple[Any, Any]:
    """Return X and y."""
    if hasattr(data, "X") and hasattr(data, "y"):
        return data.X, data.y
    return data if isinstance(data, tuple) and len(data) == 2 else (data, None)


def _parts(model: Any, data: Any) -> tuple[Samples, _Own]:
    """Return samples as the estimator's module sees them, and what its objective makes of it."""
    check_is_fitted(model)
    given = model._further(*_given(data))
    if hasattr(given.X, "edge_index") and given.y is not None:
        return _of_graph(model, given)
    aim, batches = _objective(model, given)
    batch = next(iter(batches.epoch(None, len(batches))))
    inputs, target = list(batch.inputs), batch.target
    if hasattr(aim, "criterion") and (set(_roles(model)) & LEARNS_TARGETS or _restores(inputs[0], target)):
        samples = OwnInputs(inputs, {}, _counted(target, batch.weight), _rows(target, batch))
        call, draw = aim.forward, _sampler(model)
        module = model.module_ if call is None and draw is None else Through(model.module_, _call(call), draw)
        return samples, _Own(module, _loss(aim.criterion))
    further = [t for t in (target, batch.weight) if t is not None]
    kind = OwnInputs if _as_given(given.X, inputs[0]) else OwnRows
    samples = kind([*inputs, *further], {}, None, batch.size or len(inputs[0]))
    if callable(aim):
        ask = _asked(aim, len(inputs), target is not None)
        return samples, _Own(Aim(model.module_, ask, _sampler(model)), lambda out, _: out)
    said = f"{len(aim)} players train {type(model).__name__}, each with a loss of its own: data and samples were looked at"
    return samples, _Own(Plain(model.module_, _sampler(model)), None, None, [("module", said)])


def _objective(model: Any, given: Any) -> tuple[Any, Any]:
    """Return objective and batches, as a copy of the estimator would hand them to its learner."""
    twin = copy.copy(model)
    twin._going_on = {"first": False, "classes": None}
    plan = twin._plan
    twin._plan = lambda *args: plan(*args).overridden(early_stopping=False)
    twin._descend = lambda aim, batches, **_: SimpleNamespace(aim=aim, batches=batches)
    learner = twin._learner(given)
    return learner.aim, learner.batches


def _call(forward: Any) -> Any:
    return (lambda module, *inputs: module(*inputs)) if forward is None else forward


def _restores(x: Any, target: Any) -> bool:
    """Whether the targets are the inputs."""
    both = isinstance(x, Tensor) and isinstance(target, Tensor) and x.is_floating_point()
    return both and x.shape == target.shape and torch.equal(x, target)


def _as_given(X: Any, x: Tensor) -> bool:
    """Whether an input has the user's rows and columns."""
    return isinstance(X, np.ndarray) and X.dtype != object and len(X) == len(x) and X[0].size == x[0].numel()


def _asked(aim: Any, n: int, labelled: bool) -> Any:
    """Return an objective as a function of a module and of n inputs, the labels and the weights, as far as there are any."""
    from corollary.engine.batches import Batch

    def ask(module: nn.Module, given: tuple[Any, ...]) -> Any:
        label = given[n] if labelled else None
        weight = given[-1] if len(given) > n + labelled else None
        return aim(module, Batch(given[:n], label, weight, len(given[0])))

    return ask


def _sampler(model: Any) -> Any:
    """Return what draws samples by a module's weights, of a model that generates numbers."""
    if "generator" not in _roles(model) or not hasattr(model, "sample"):
        return None

    def draw(module: nn.Module, n: int) -> Any:
        twin = copy.copy(model)
        twin.module_ = module
        return twin.sample(n)

    return draw


def _roles(model: Any) -> tuple[str, ...]:
    from corollary.roles import roles

    return roles(type(model))


def _rows(target: Any, batch: Any) -> int:
    return len(target) if isinstance(target, Tensor) and target.ndim else batch.size


def _counted(target: Any, weight: Any) -> Any:
    """Return targets of which those beyond the end of a sequence do not count."""
    steps = isinstance(weight, Tensor) and isinstance(target, Tensor) and target.ndim > 1
    if not steps or weight.shape != target.shape or target.is_floating_point():
        return target
    return target.masked_fill(weight == 0, IGNORED)


def _loss(criterion: Any) -> Any:
    """Return a criterion of the library as a loss of output and target."""
    if type(criterion).__name__ != "CrossEntropy":
        return lambda out, target: criterion(out, target).mean()
    if criterion.axis == 1:
        return "cross_entropy"

    def per_step(out: Tensor, target: Tensor) -> Tensor:
        if target.is_floating_point():
            return criterion(out, target).mean()  # type: ignore[no-any-return]
        return F.cross_entropy(out.movedim(criterion.axis, 1), target)

    return per_step


def _of_graph(model: Any, given: Any) -> tuple[Samples, _Own]:
    """Return the nodes of a graph with their labels; those held out by a mask are validation."""
    graph = given.X
    x = graph.x.toarray() if hasattr(graph.x, "toarray") else graph.x
    dtype = getattr(torch, getattr(model, "dtype_", "float32"))
    args = [torch.as_tensor(x).to(dtype), torch.as_tensor(graph.edge_index)]
    if graph.edge_weight is not None:
        args.append(torch.as_tensor(graph.edge_weight).to(dtype))
    y = torch.as_tensor(given.y).long()
    y = y.masked_fill(y < 0, IGNORED)
    parts = []
    for mask in (graph.train_mask, graph.val_mask):
        kept = y if mask is None else y.masked_fill(~torch.as_tensor(mask), IGNORED)
        parts.append(Samples(args, {}, kept, len(y)))
    held = parts[1] if graph.val_mask is not None else None
    return parts[0], _Own(model.module_, "cross_entropy", held)
