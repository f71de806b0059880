"""The function itself: read what was given, measure family by family, rank, report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose import architecture, data, descent, graph, labels, objective, outcome, start
from corollary.diagnose.exam import Exam
from corollary.diagnose.ranking import ranked
from corollary.diagnose.report import Finding, Report
from corollary.diagnose.subject import OWNER, Samples, Settings, Subject, unwrapped

__all__ = ["diagnose"]

MOST = 20000  # rows read from a loader


def diagnose(
    model: Any,
    data: Any,
    validation: Any = None,
    *,
    loss: Any = None,
    optimizer: Any = None,
    batch_size: int | None = None,
    history: Any = None,
    initial: Mapping[str, Any] | None = None,
    step: Any = None,
    time_limit: float = 30,
) -> Report:
    """Find out what is wrong with a training, and what to change.

    Parameters
    ----------
    model : nn.Module or fitted estimator
        As it is used to predict. It is never changed: modes, gradients, random state and hooks are as before.
    data : (X, y), X, or a DataLoader
        What it was trained on. ``X`` may be a tuple or a dict of the module's inputs: those with a row per target are
        taken in batches, others, such as an adjacency, are passed whole. Labels of -100 are not counted.
    validation : the same, optional
        Data that it was not trained on. Much more can be said with them.
    loss : str or callable, optional
        "cross_entropy", "mse", "bce_with_logits", "nll", or a function of (output, target).
    optimizer : torch optimiser, optional
        The one that trained it.
    batch_size : int, optional
        Rows per update.
    history : list of dict, optional
        A dict per epoch with "loss" and, if known, "val_loss".
    initial : dict, optional
        The state dict before training.
    step : callable, optional
        ``step(model, batch)``, the user's own update, for faults of the loop itself.
    time_limit : float, default=30
        Seconds after which no further measurement is begun.

    Returns
    -------
    Report

    Examples
    --------
    >>> import torch, corollary
    >>> X, y = torch.randn(200, 5), torch.randint(0, 2, (200,))
    >>> X[3, 1] = float("nan")
    >>> report = corollary.diagnose(torch.nn.Linear(5, 2), (X, y), loss="cross_entropy")
    >>> report.findings[0].cause, report.findings[0].where
    ('not-finite-data', 'training X, columns [1]')
    """
    begin = time.perf_counter()
    settings = Settings.of(optimizer, batch_size)
    module = unwrapped(model)
    if not isinstance(module, nn.Module):
        from corollary.diagnose.estimators import subject_of

        subject = subject_of(module, data, validation, loss, settings, history, initial, step)
    else:
        train, valid = read(data), None if validation is None else read(validation)
        subject = Subject(
            module, train, valid, loss=loss, settings=settings, history=history, initial=initial, step=step
        )  # fmt: skip
    threads = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    try:
        exam = Exam(subject, time_limit - (time.perf_counter() - begin))
        examine(exam)
    finally:
        torch.set_rng_state(threads[0])
        np.random.set_state(threads[1])  # noqa: NPY002
    report = Report(ranked(exam), measurements(exam), time.perf_counter() - begin, subject=exam)
    return report


def examine(exam: Exam) -> None:
    """Run every check, upstream first."""
    if exam.subject.error is not None:
        exam.notes.append(Finding("forward", "info", said=forward_said(exam.subject)))
    families = (data, objective, graph, labels, start, architecture, descent, outcome)
    for family in families:
        for check in family.CHECKS:
            exam.try_(check)


def forward_said(subject: Subject) -> str:
    """Return what is needed where the forward pass raised."""
    shapes = [tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for t in subject.train.args]
    named = {k: tuple(v.shape) for k, v in subject.train.kwargs.items() if isinstance(v, Tensor)}
    first = next(((n, tuple(p.shape)) for n, p in subject.given.named_parameters()), ("no parameter", ()))
    got = f"inputs of shape {shapes or named} and first weight {first[0]} {first[1]}"
    return errors.wording(
        OWNER, "the module must take its inputs", f"{got}: {subject.error}", "Only the data were measured."
    )


def read(data: Any) -> Samples:
    """Return samples of (X, y), of X, of a loader or of a data set."""
    if isinstance(data, Samples):
        return data
    if hasattr(data, "X") and hasattr(data, "y") and not isinstance(data, (tuple, list, Tensor)):
        return Samples.of(data.X, data.y)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return checked(Samples.of(*data))
    if isinstance(data, (tuple, list)) and len(data) == 1:
        return checked(Samples.of(data[0]))
    if isinstance(data, (Tensor, np.ndarray, Mapping)) or hasattr(data, "to_numpy"):
        return checked(Samples.of(data))
    if isinstance(data, torch.utils.data.Dataset) and hasattr(data, "__len__"):
        data = torch.utils.data.DataLoader(data, batch_size=256)
    if hasattr(data, "__iter__"):
        return joined(data)
    raise errors.kind(OWNER, "data must be (X, y), X, a loader or a data set", type(data).__name__)


def joined(loader: Any) -> Samples:
    """Return the batches of a loader as one."""
    parts, rows = [], 0
    for batch in loader:
        part = read(batch) if not isinstance(batch, Samples) else batch
        parts.append(part)
        rows += part.n
        if rows >= MOST:
            break
    if not parts:
        raise errors.value(
            OWNER,
            "data must have rows",
            "an iterator that is at its end",
            "Pass the loader, not its iterator.",
        )
    first = parts[0]
    cat = lambda values: torch.cat(values) if isinstance(values[0], Tensor) and values[0].ndim else values[0]  # noqa: E731
    args = [cat([p.args[i] for p in parts]) for i in range(len(first.args))]
    kwargs = {k: cat([p.kwargs[k] for p in parts]) for k in first.kwargs}
    return Samples(args, kwargs, None if first.y is None else cat([p.y for p in parts]), rows)


def checked(samples: Samples) -> Samples:
    """Return samples whose inputs and targets have as many rows, or say so."""
    x, y = samples.x, samples.y
    if not samples.n:
        raise errors.value(OWNER, "data must have rows", "none")
    if isinstance(x, Tensor) and isinstance(y, Tensor) and y.ndim and x.ndim:
        sizes = [
            len(t) for t in [*samples.args, *samples.kwargs.values()] if isinstance(t, Tensor) and t.ndim
        ]
        if len(y) not in sizes:
            got = f"X {tuple(x.shape)} and y {tuple(y.shape)}"
            raise errors.value(
                OWNER, "X and y must have as many rows", got, "Pass (X, y); several inputs go into a tuple X."
            )
    return samples


def measurements(exam: Exam) -> dict[str, Any]:
    """Return what was measured, the plain numbers first."""
    s = exam.subject
    found: dict[str, Any] = {}
    if s.net is not None:
        found["parameters"] = sum(p.numel() for p in s.net.parameters())
        found["trainable"] = sum(p.numel() for p in s.given.parameters() if p.requires_grad)
    found["task"], found["loss"] = s.task, s.criterion.name
    if "performance" in exam.__dict__:
        found.update(exam.performance)
    if exam.__dict__.get("baselines") is not None and exam.baselines.held:
        found["baseline score"], found["baseline"] = exam.baselines.score, exam.baselines.best
        found["baseline valid score"] = exam.baselines.valid_score
    if exam.__dict__.get("trace") is not None:
        found["layers"] = exam.trace.table()
    hidden = {"trials", "scale suspected", "untouched"}
    found["details"] = {k: v for k, v in exam.facts.items() if k not in hidden}
    if exam.lab is not None:
        found["runs"] = {
            k: {"loss": r.loss, "score": r.score, "valid loss": r.valid_loss, "steps": r.steps}
            for k, r in exam.lab.runs.items()
        }
    return found
