"""The next best explanations of a model that plainly fails: what lies beyond the usual, though not far enough for an alarm.

A rule fires where its measurement alone is reason enough. Where simple models do far better than the model, something is
wrong, and less is enough to be named; a model that does what simple models can has no suspects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from corollary.diagnose.exam import Exam

__all__ = ["suspects"]

BEHIND = 0.1  # of what is possible: what a failing model gains less than simple models
FAR = 0.2  # the same, of a model in which no rule has found a fault
WORSE = 2.0  # times the loss of a constant answer, which is plain failure whatever simple models do
PLAIN = 0.3  # the same, where the failure alone is reason enough to name what most often is behind it
AGAINST = -0.2  # of the logarithm of the loss: another rate has made it worse
SHOWN = 3
UNSURE = 0.4

LARGE, SMALL, DECAY = "learning-rate-too-large", "learning-rate-too-small", "weight-decay-too-large"
DROPPED, TINY = "dropout-too-large", "batch-too-small"

# Cause, what is looked at, from where on it is suspicious, and how it is said; the plainest first.
TABLE: tuple[tuple[str, Callable[[dict[str, Any]], float], float, str], ...] = (
    (LARGE, lambda f: _setting(f, LARGE), 0.2, "the rate is {:.2g} decades above the usual"),
    (SMALL, lambda f: _setting(f, SMALL), 0.2, "the rate is {:.2g} decades below the usual"),
    (DECAY, lambda f: _setting(f, DECAY), 0.2, "weight decay is {:.2g} decades above the usual"),
    (TINY, lambda f: _setting(f, TINY), 0.2, "batches are a factor of 4 ** {:.2g} below the usual"),
    (DROPPED, lambda f: float(f.get("dropout", 0.0)), 0.55, "a share of {:.2g} of the units is dropped"),
    ("class-imbalance", lambda f: -_rarest(f), -0.3, "the rarest class has {:.0%} of its even share of the rows"),
    ("vanishing-gradient", lambda f: -_decades(f), 2.0, "the gradient shrinks by {:.2g} decades on its way back"),
    ("exploding-gradient", lambda f: _decades(f), 2.0, "the gradient grows by {:.2g} decades on its way back"),
    ("dead-units", lambda f: _dead(f), 0.3, "{:.0%} more units of a layer are dead than usual"),
    ("saturated-units", lambda f: _most(f.get("saturated")), 0.3, "{:.0%} of a layer's activations are at an end"),
    ("overfit", lambda f: f.get("gap", {}).get("score", 0.0), 0.12, "training rows gain {:.2g} more than validation rows"),
    (LARGE, lambda f: _gain(f, LARGE), 0.12, "a lower rate lowers the logarithm of the loss by {:.2g}"),
    (SMALL, lambda f: _gain(f, SMALL), 0.12, "a higher rate lowers the logarithm of the loss by {:.2g}"),
    (DECAY, lambda f: _gain(f, DECAY), 0.12, "no decay lowers the logarithm of the loss by {:.2g}"),
    (DROPPED, lambda f: _gain(f, DROPPED), 0.12, "no dropout lowers the logarithm of the loss by {:.2g}"),
    (TINY, lambda f: _gain(f, TINY), 0.12, "larger batches lower the logarithm of the loss by {:.2g}"),
    (DECAY, lambda f: _weights(f, "decayed", 0.0), 0.25, "the loss pulls the weights from zero (cosine {:.2g})"),
    (LARGE, lambda f: _weights(f, "ratio", 0.0), 1.8, "weights are {:.2g} times as large as drawn"),
    (SMALL, lambda f: -_weights(f, "beyond", 1.0), -0.1, "{:.0%} of the weights have left where they were drawn"),
    ("bottleneck", lambda f: _narrow(f), 4.0, "a layer is {:.2g} times narrower than those around it"),
    ("oversmoothing", lambda f: float(f.get("hops", 0)), 4.0, "nodes are averaged over {:.0f} edges"),
    ("capacity-too-small", lambda f: f["short"], 0.1, "on its own training rows it is {:.2g} behind them"),
    ("overfit", lambda f: f.get("gap", {}).get("score", 0.0), 0.04, "training rows gain {:.2g} more than validation rows"),
    (LARGE, lambda f: _short(f, LARGE), 0.1, "on its own training rows it is {:.2g} behind them"),
    (SMALL, lambda f: _short(f, SMALL), 0.1, "on its own training rows it is {:.2g} behind them"),
)  # fmt: skip


def _setting(facts: dict[str, Any], cause: str) -> float:
    return float(facts.get("odd settings", {}).get(cause, -1.0))


def _gain(facts: dict[str, Any], cause: str) -> float:
    return float(facts.get("gains", {}).get(cause, 0.0))


def _short(facts: dict[str, Any], cause: str) -> float:
    """Return what the model is behind, unless the run with another rate has spoken against the cause."""
    return 0.0 if _gain(facts, cause) < AGAINST else facts["short"]


def _weights(facts: dict[str, Any], name: str, default: float) -> float:
    return float(facts.get("weights", {}).get(name, default))


def _narrow(facts: dict[str, Any]) -> float:
    _, width, before, after = facts.get("narrowest", ("", 1, 0, 0))
    return float(min(before, after) / max(width, 1))


def _rarest(facts: dict[str, Any]) -> float:
    shares = facts.get("class shares", {0: 1.0})
    return float(len(shares) * min(shares.values()))


def _dead(facts: dict[str, Any]) -> float:
    return _most(facts.get("dead")) - float(facts.get("dead at a usual start", 0.3))


def _decades(facts: dict[str, Any]) -> float:
    seen = [facts.get("gradient ratio"), facts.get("gradient ratio at the start")]
    found = [math.log10(r) for r in seen if r and math.isfinite(r)]
    return max(found, key=abs, default=0.0)


def _most(rows: Any) -> float:
    return max((float(r[1]) for r in rows), default=0.0) if rows else 0.0


def suspects(exam: Exam) -> None:
    """Fill the places among the first three that no rule has taken, if the model plainly fails."""
    base = exam.baselines
    if base is None or not base.held or exam.subject.output is None or exam.facts.get("untrained"):
        return
    if "stopped soon" in exam.facts:
        return  # more of the same is all that it needs
    theirs = max(base.gain, base.reached)
    luck = exam.error["valid" if exam.subject.valid is not None else "train"] / max(1e-9, 1 - base.chance)
    behind = theirs - exam.gain - luck
    failing = not exam.fine and behind > (BEHIND if exam.findings else FAR)
    worse = exam.performance.get("train loss", 0.0) > WORSE * exam.constant_loss
    if not failing and not (worse and exam.findings):
        return
    own = (exam.score + exam.aligned["train"] - base.chance) / max(1e-9, 1 - base.chance)
    exam.facts["short"] = theirs - own if exam.findings or behind > PLAIN else 0.0
    for cause, value, said in _beyond(exam.facts):
        if len(exam.findings) >= SHOWN:
            return
        if not exam.has(cause):
            said = f"simple models gain {theirs:.2f}, this model {exam.gain:.2f}; {said}"
            exam.find(cause, value, said, sure=UNSURE, severity="warning")


def _beyond(facts: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Yield the rows of the table that are suspicious."""
    for cause, measure, least, said in TABLE:
        value = measure(facts)
        if value > least:
            yield cause, value, said.format(abs(value))
