"""Sabotaged and healthy trainings: what ``corollary.diagnose`` is measured by.

A case is a function of a seed that returns the arguments of ``diagnose``: a model that was really trained (or deliberately
not), its data, and whatever a user would hand over. Its decorator names the true causes, in the vocabulary of
``corollary.diagnose``; a healthy case names none. Cases are written by people who did not write the rules. :func:`score`
counts how often the rules name them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

WITHHELD = ("optimizer", "batch_size", "history", "initial", "step")  # what many users cannot hand over
ALARMS = ("warning", "error")


@dataclass(frozen=True)
class Case:
    """One set-up: its true causes (none if healthy), the kind of its data, how plain the fault is, and who wrote it."""

    name: str
    make: Callable[[int], dict[str, Any]]
    causes: tuple[str, ...]
    kind: str  # "table", "images", "sequences", "text", "graph" or "generative"
    strength: str  # "strong" or "mild"
    author: str
    needs: tuple[str, ...] = ()  # arguments without which the cause cannot be seen at all


CASES: dict[str, Case] = {}


def case(
    *causes: str, kind: str, author: str, strength: str = "strong", needs: tuple[str, ...] = ()
) -> Callable[[Callable[[int], dict[str, Any]]], Callable[[int], dict[str, Any]]]:
    """Register a set-up under its function's name."""

    def register(make: Callable[[int], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
        name = make.__name__
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        CASES[name] = Case(name, make, causes, kind, strength, author, needs)
        return make

    return register


@dataclass
class Outcome:
    """What ``diagnose`` said of one case."""

    case: Case
    seed: int
    found: list[str]  # the causes of its alarms, first first
    seconds: float

    @property
    def first(self) -> bool:
        """Whether the first alarm is a true cause (for a healthy case: no alarm)."""
        return (
            self.found[0] in self.case.causes
            if self.found and self.case.causes
            else not (self.found or self.case.causes)
        )

    @property
    def among_three(self) -> bool:
        """Whether all true causes are among the first three alarms."""
        return set(self.case.causes) <= set(self.found[:3])


def examine(item: Case, seed: int = 0, *, withheld: bool = False) -> Outcome:
    """Build a case and diagnose it."""
    import corollary

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  some users' loops draw from it
    given = item.make(seed)
    if withheld:
        given = {key: value for key, value in given.items() if key not in WITHHELD or key in item.needs}
    model, data = given.pop("model"), given.pop("data")
    begin = time.perf_counter()
    report = corollary.diagnose(model, data, given.pop("validation", None), **given)
    seconds = time.perf_counter() - begin
    return Outcome(item, seed, [f.cause for f in report.findings if f.severity in ALARMS], seconds)


def score(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return the shares that the zoo is judged by."""
    rows = list(outcomes)
    single = [o for o in rows if len(o.case.causes) == 1]
    double = [o for o in rows if len(o.case.causes) > 1]
    healthy = [o for o in rows if not o.case.causes]
    seconds = [o.seconds for o in rows]

    def share(values: Iterable[bool]) -> float:
        listed = list(values)
        return float(np.mean(listed)) if listed else float("nan")

    return {
        "faults": len(single),
        "first right": share(o.first for o in single),
        "among three": share(o.among_three for o in single),
        "doubles": len(double),
        "both among three": share(o.among_three for o in double),
        "healthy": len(healthy),
        "false alarms": share(bool(o.found) for o in healthy),
        "median seconds": float(np.median(seconds)),
        "worst seconds": max(seconds),
    }
