"""The function itself: read what was given, measure family by family, rank, report."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from corollary import errors
from corollary.diagnose.arithmetic import not_finite, overflow
from corollary.diagnose.asking import Aim, Answers, Plain, weightless
from corollary.diagnose.batches import batch_norm_noise
from corollary.diagnose.bottleneck import bottleneck
from corollary.diagnose.calling import alone
from corollary.diagnose.columns import constant_features, duplicate_features
from corollary.diagnose.dropping import dropped
from corollary.diagnose.exam import Exam
from corollary.diagnose.flow import gradients
from corollary.diagnose.generative import mode_collapse, posterior_collapse
from corollary.diagnose.graph import detached, frozen
from corollary.diagnose.graphs import oversmoothing
from corollary.diagnose.imbalance import imbalance
from corollary.diagnose.interventions import interventions
from corollary.diagnose.leak import target_leak
from corollary.diagnose.loop import loop
from corollary.diagnose.objective import double_softmax, wrong_loss
from corollary.diagnose.outcome import capacity, miscalibrated, overfit, too_simple
from corollary.diagnose.outputs import output_range, stochastic_evaluation
from corollary.diagnose.overlap import overlap
from corollary.diagnose.ranking import ranked
from corollary.diagnose.reading import prepared
from corollary.diagnose.relation import relation
from corollary.diagnose.report import Finding, Report
from corollary.diagnose.risen import risen
from corollary.diagnose.robustness import fragile
from corollary.diagnose.scales import scaled_inputs, unscaled_inputs, unscaled_targets
from corollary.diagnose.settings import OWNER, Settings
from corollary.diagnose.shift import shift
from corollary.diagnose.subject import Subject
from corollary.diagnose.suspects import suspects
from corollary.diagnose.symmetry import symmetric
from corollary.diagnose.units import dead_units, doubtful_units, saturated
from corollary.diagnose.view import receptive_field
from corollary.diagnose.widening import wider_view

__all__ = ["diagnose"]

# The checks by family, upstream first: what comes first is known to those that come later.
CHECKS = {
    "data": (
        not_finite, overflow, unscaled_inputs, unscaled_targets, constant_features, duplicate_features, overlap, shift,
    ),
    "objective": (stochastic_evaluation, double_softmax, wrong_loss, output_range),
    "graph": (detached, frozen, loop),
    "labels": (target_leak, relation, imbalance),
    "start": (symmetric, dead_units, saturated, gradients),
    "architecture": (oversmoothing, receptive_field, bottleneck, batch_norm_noise),
    "descent": (scaled_inputs, risen, doubtful_units, interventions, dropped),
    "outcome": (
        posterior_collapse, mode_collapse, wider_view, overfit, miscalibrated, fragile, capacity, too_simple, suspects,
    ),
}  # fmt: skip


OF_WEIGHTS = ("graph", "start", "architecture", "descent")  # families that need some
# other checks that do
OF_DESCENT = (unscaled_inputs, unscaled_targets, wider_view, fragile, capacity, suspects)
# that codes and couplings, narrow on purpose, would mislead
OF_LAYERS = (receptive_field, bottleneck, wider_view)


@alone
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
    prove: bool = False,
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
    prove : bool, default=False
        Whether to train the model for some seconds as it is and with the repair of the first alarm, and show the gain
        as ``report.proof``.

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
    if not isinstance(time_limit, Real) or not time_limit > 0:
        raise errors.value(OWNER, "time_limit must be a positive number of seconds", repr(time_limit))
    # the first traced call does it, in seconds that are not the diagnosis's
    importlib.import_module("torch._dynamo")

    begin = time.perf_counter()
    settings = Settings.of(optimizer, batch_size)
    subject = prepared(
        model, data, validation, loss=loss, settings=settings, history=history, initial=initial, step=step
    )
    exam = Exam(subject, time_limit - (time.perf_counter() - begin))
    examine(exam)
    report = Report(ranked(exam), measurements(exam), time.perf_counter() - begin, subject=exam)
    if prove and report.alarms:
        from corollary.diagnose.proof import proved

        report.proof = proved(exam, report.alarms[0].repair)
        report.seconds = time.perf_counter() - begin
    return report


def examine(exam: Exam) -> None:
    """Run every check, upstream first."""
    s = exam.subject
    if s.error is not None and s.owner is None:
        exam.notes.append(Finding("forward", "info", said=forward_said(s)))
    elif s.error is not None and type(s.given) is not Plain:
        said = f"{type(s.owner).__name__} could not be asked, only its data were looked at: {s.error}"
        exam.notes.append(Finding("module", "info", said=said))
    for family, checks in CHECKS.items():
        if weightless(s.net) and family in OF_WEIGHTS:
            continue
        for check in checks:
            if not _idle(s, check):
                exam.try_(check)


def _idle(s: Subject, check: Any) -> bool:
    """Whether a check has nothing to look at in such a model or such data."""
    if isinstance(s.net, Aim) and check in OF_LAYERS or weightless(s.net) and check in OF_DESCENT:
        return True
    # what is suspicious lies in its layers
    if check is suspects and isinstance(s.net, torch.jit.ScriptModule):
        return True
    return check is fragile and s.train.graphs is not None  # rows of which are nodes


def forward_said(subject: Subject) -> str:
    """Return what is needed where the forward pass raised."""
    shapes = [_form(t) for t in subject.train.args]
    named = {k: _form(v) for k, v in subject.train.kwargs.items()}
    first = next(((n, tuple(p.shape)) for n, p in subject.given.named_parameters()), ("no parameter", ()))
    got = f"inputs of shape {shapes or named} and first weight {first[0]} {first[1]}"
    do = f"{_missing(subject)}Only the data were measured."
    return errors.wording(OWNER, "the module must take its inputs", f"{got}: {subject.error}", do)


def _form(value: Any) -> Any:
    """Return the shape of an input, with its type where that is not what a layer's weights are."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return tuple(value.shape) if value.is_floating_point() else (*value.shape, str(value.dtype)[6:])


def _missing(subject: Subject) -> str:
    """Return how the arguments that nobody gave are handed over."""
    try:
        known = inspect.signature(subject.given.forward).parameters.values()
    except (TypeError, ValueError):
        return ""
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in known if p.default is p.empty and p.kind not in fixed]
    given = len(subject.train.args) + len(subject.train.kwargs)
    if len(needed) <= given or subject.train.packed:
        return ""
    if any(p.kind is p.KEYWORD_ONLY for p in needed):
        form = "{" + ", ".join(f"{p.name!r}: …" for p in needed) + "}"
    else:
        form = "(" + ", ".join(p.name for p in needed) + ")"
    return f"It takes {len(needed)} inputs: pass X as {form}. "


def measurements(exam: Exam) -> dict[str, Any]:
    """Return what was measured, the plain numbers first."""
    s = exam.subject
    found: dict[str, Any] = {}
    if s.net is not None and not isinstance(s.net, Answers):
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
    hidden = {"trials", "scale suspected", "untouched", "shared rows"}
    found["details"] = {k: v for k, v in exam.facts.items() if k not in hidden}
    if exam.lab is not None:
        found["runs"] = {
            k: {"loss": r.loss, "score": r.score, "valid loss": r.valid_loss, "steps": r.steps}
            for k, r in exam.lab.runs.items()
        }
    return found
