"""What all checks share: the subject, what was measured so far, what was found, and the time that is left."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from corollary.diagnose.baselines import Baselines, baselines, problem
from corollary.diagnose.lab import Lab
from corollary.diagnose.objectives import labels_of, quality
from corollary.diagnose.report import Finding
from corollary.diagnose.rules import RULES
from corollary.diagnose.subject import Subject, main_output, quiet
from corollary.diagnose.tables import Reader
from corollary.diagnose.trace import Trace, trace

__all__ = ["Exam"]

TRACED = 256  # rows of a trace


class Exam:
    """One examination in progress."""

    def __init__(self, subject: Subject, time_limit: float) -> None:
        self.subject = subject
        self.begin = time.perf_counter()
        self.deadline = self.begin + time_limit
        self.findings: dict[str, Finding] = {}
        self.sure: dict[str, float] = {}  # how sure each finding is, 0 to 1
        self.facts: dict[str, Any] = {}
        self.notes: list[Finding] = []
        self.lab = Lab(subject, self.deadline - 0.05 * time_limit) if subject.net is not None else None

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.perf_counter()

    def find(
        self, cause: str, value: float, said: str, *, where: str = "", sure: float = 1.0, severity: str | None = None,
        evidence: dict[str, Any] | None = None, repair: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Note a cause; the surer of two findings of one cause stays."""
        if self.sure.get(cause, -1.0) >= sure:
            return
        self.sure[cause] = sure
        self.findings[cause] = Finding(
            cause,
            severity or RULES[cause].severity,
            float(value),
            where,
            said,
            evidence or {},
            [],
            repair or {},
        )

    def drop(self, cause: str) -> None:
        """Take a finding back that another one explains wholly."""
        self.findings.pop(cause, None)
        self.sure.pop(cause, None)

    def has(self, *causes: str) -> bool:
        """Whether one of these was found."""
        return any(c in self.findings for c in causes)

    def try_(self, check: Callable[[Exam], None]) -> None:
        """Run one check; one that raises leaves a note."""
        if self.left <= 0:
            self.notes.append(Finding(check.__name__, "info", said="left out: the time limit was reached"))
            return
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                check(self)
        except Exception as error:
            said = f"could not be measured: {type(error).__name__}: {str(error)[:200]}"
            self.notes.append(Finding(check.__name__, "info", said=said))
        self.facts.setdefault("seconds", {})[check.__name__] = time.perf_counter() - begin

    # --- measured once, when first asked for -------------------------------------------------------------

    @cached_property
    def baselines(self) -> Baselines | None:
        """Simple models on the data."""
        s = self.subject
        train = problem(s.train, s.task, self.reader)
        if train is None:
            return None
        valid = None if s.valid is None else problem(s.valid, s.task, self.reader, 1)
        return baselines(train, valid)

    @cached_property
    def trace(self) -> Trace | None:
        """A forward and backward pass in evaluation mode."""
        return self.traced(self.subject.net) if self.subject.net is not None else None

    def traced(self, net: Any, training: bool = False) -> Trace:
        """Return a trace of a net on some training rows."""
        s = self.subject
        samples = s.train
        if not samples.whole and samples.n > TRACED:
            rows = np.random.default_rng(3).choice(samples.n, TRACED, replace=False)
            samples = samples.take(np.sort(rows))
        return trace(s, net, samples, training)

    @cached_property
    def reader(self) -> Reader:
        """What turns the inputs into a table."""
        return Reader(self.subject.train, self.steps_last, self.subject.valid)

    @cached_property
    def steps_last(self) -> bool:
        """Whether sequences come as (rows, channels, steps): by the number of channels that the first weights take."""
        x = self.subject.train.x
        if self.subject.error is not None or not isinstance(x, torch.Tensor) or x.ndim != 3:
            return False
        calls = self.trace.layers() if self.trace is not None else []
        first = next((c for c in calls if isinstance(c.entered, torch.Tensor) and c.entered.ndim == 3), None)
        if first is None:
            return x.shape[1] < x.shape[2]
        convolved = first.name.startswith("conv")
        channels = first.entered.shape[1 if convolved else 2]
        if x.shape[1] == x.shape[2]:
            return convolved
        return channels == x.shape[1]

    @cached_property
    def performance(self) -> dict[str, float]:
        """Loss and score of the model on training and validation rows, and the score of a constant answer."""
        s, found = self.subject, {}
        for name, samples in (("train", s.train), ("valid", s.valid)):
            if samples is None or s.net is None:
                continue
            with torch.no_grad(), quiet(s.net):
                out = s.output if name == "train" else s.call(s.net.eval(), samples)
                target = s.target(samples)
                keep = samples.counted
                if samples.whole and not bool(keep.all()):
                    from corollary.diagnose.subject import _kept

                    out, target = _kept(out, keep), target[keep]
                found[f"{name} score"], found[f"{name} chance"] = quality(
                    s.criterion.answers(main_output(out)), target, s.task
                )
                found[f"{name} loss"] = float(s.criterion(out, target))
        return found

    @cached_property
    def balanced(self) -> float:
        """The model's mean recall over classes, on validation rows if there are any."""
        s = self.subject
        samples = s.valid if s.valid is not None else s.train
        with torch.no_grad(), quiet(s.net):
            z = main_output(s.call(s.net.eval(), samples))
        keep = samples.counted
        z, y = (z[keep], samples.y[keep]) if samples.whole else (z, samples.y)
        said, true, _ = labels_of(z, y, s.task)
        return float(np.mean([(said[true == k] == k).mean() for k in np.unique(true)]))

    @property
    def score(self) -> float:
        """The model's score on training rows."""
        return self.performance.get("train score", float("nan"))

    @property
    def valid_score(self) -> float:
        """The model's score on validation rows."""
        return self.performance.get("valid score", float("nan"))
