"""A fitted estimator of the library as a subject: it supplies its module, its reading of the data, its loss and its history."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from corollary import errors
from corollary.diagnose.samples import Samples
from corollary.diagnose.settings import OWNER, Settings
from corollary.diagnose.subject import Subject

__all__ = ["subject_of"]


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
    module = getattr(model, "module_", None)
    if (
        module is None
        and hasattr(model, "module")
        and isinstance(getattr(model, "module", None), torch.nn.Module)
    ):
        module = model.module
    if module is None and not hasattr(model, "get_params"):
        raise _no_model(model)
    if isinstance(model, type):
        raise _no_model(model)
    history = history if history is not None else getattr(model, "history_", None)
    train, criterion = _samples(model, data)
    if hasattr(model, "criterion_") and hasattr(model, "optimizer_"):  # skorch
        criterion, settings, history = _of_skorch(model, settings, history)
    valid = None if validation is None else _samples(model, validation)[0]
    if hasattr(model, "_plan") and settings.learning_rate is None:
        plan = model._plan()
        rate = plan.learning_rate if isinstance(plan.learning_rate, (int, float)) else None
        settings = Settings(
            str(plan.optimizer), rate, float(plan.weight_decay or 0.0),
            float((plan.optimizer_options or {}).get("momentum", 0.0)),
            str(plan.optimizer) in ("adamw", "muon"), settings.batch_size or min(int(plan.batch_size), 4096),
        )  # fmt: skip
    return Subject(
        module, train, valid, loss=loss if loss is not None else criterion, settings=settings, history=history,
        initial=initial, step=step, owner=model,
    )  # fmt: skip


def _no_model(model: Any) -> Exception:
    got, do = type(model).__name__, ""
    if isinstance(model, type):
        got, do = f"the class {model.__name__}", f"Make one, {model.__name__}(…), and fit it."
    return errors.kind(OWNER, "model must be a torch module or a fitted estimator", got, do)


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


def _samples(model: Any, data: Any) -> tuple[Samples, Any]:
    """Return samples as the estimator's module sees them, with its criterion."""
    from corollary.diagnose.reading import read

    if not hasattr(model, "_batches") or not hasattr(model, "_further"):
        return read(data), None
    X, y = (
        (data.X, data.y)
        if hasattr(data, "X") and hasattr(data, "y")
        else data
        if isinstance(data, tuple)
        else (data, None)
    )
    check_is_fitted(model)
    given = model._further(X, y)
    batches = model._batches(given)
    batch = next(iter(batches.epoch(None, len(batches))))
    try:
        criterion = getattr(model._aim(), "criterion", None)
    except AttributeError:  # several players, each with an objective of its own
        criterion = None
    name = None
    if criterion is not None:
        kind = type(criterion).__name__
        name = (
            "cross_entropy"
            if kind == "CrossEntropy" and criterion.axis == 1
            else lambda out, target: criterion(out, target).mean()
        )
    target = batch.target
    args = [t for t in batch.inputs]
    n = len(target) if isinstance(target, Tensor) and target.ndim else batch.size
    return Samples(args, {}, target, n), name
