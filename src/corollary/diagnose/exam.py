"""What all checks share: the subject, what was measured so far, what was found, and the time that is left."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from corollary.diagnose.baselines import Baselines, baselines, foretells, problem
from corollary.diagnose.lab import Lab
from corollary.diagnose.objectives import labels_of
from corollary.diagnose.report import Finding
from corollary.diagnose.rules import RULES
from corollary.diagnose.samples import kept, main_output, with_main
from corollary.diagnose.scores import lead, standard_error
from corollary.diagnose.subject import Subject, quiet
from corollary.diagnose.tables import Reader
from corollary.diagnose.terms import best_constant, rescored
from corollary.diagnose.trace import Trace, trace

__all__ = ["Exam"]

TRACED = 256  # rows of a trace
LABELS = 6  # of several per row that simple models are asked about
RARE = 0.7  # share of the commonest class from which accuracy says little


class Exam:
    """One examination in progress."""

    def __init__(self, subject: Subject, time_limit: float) -> None:
        self.subject = subject
        self.begin = time.perf_counter()
        self.deadline = self.begin + time_limit
        self.findings: dict[str, Finding] = {}
        self.sure: dict[str, float] = {}  # how sure each finding is, 0 to 1
        self.facts: dict[str, Any] = {}
        self.notes: list[Finding] = [Finding(what, "info", said=said) for what, said in subject.notes]
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

    def judge_by_loss(self) -> None:
        """Forget scores and simple models: outputs are no answers on the scale of the targets."""
        self.__dict__["baselines"] = None
        self.performance.update({f"{part} score": float("nan") for part in ("train", "valid")})

    def try_(self, check: Callable[[Exam], None]) -> None:
        """Run one check; why one could not be made is kept."""
        if self.left <= 0:
            self._gap(check, "left out: the time limit was reached")
            return
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                check(self)
        except TimeoutError as error:  # a run that was cut short tells nothing
            self._gap(check, f"left out: {error}")
        except Exception as error:
            self._gap(check, self.subject.obstacle or f"could not be measured: {_first_line(error)}")
        self.facts.setdefault("seconds", {})[check.__name__] = time.perf_counter() - begin

    def _gap(self, check: Callable[[Exam], None], why: str) -> None:
        """Note what was not measured; what has the same reason shares a note."""
        name = check.__name__.replace("_", " ")
        for note in self.notes:
            if note.cause == "unmeasured" and note.said == why:
                note.where += f", {name}"
                return
        self.notes.append(Finding("unmeasured", "info", where=name, said=why))

    # --- measured once, when first asked for -------------------------------------------------------------

    @cached_property
    def baselines(self) -> Baselines | None:
        """Simple models on the data."""
        s = self.subject
        if s.task == "regression" and foretells(s.train.x, s.train.y):
            return None  # whole rows hold the answers, which the net sees only up to each step
        train = problem(s.train, s.task, self.reader)
        if train is None:
            return None
        valid = None if s.valid is None else problem(s.valid, s.task, self.reader, 1)
        found = baselines(train, valid)
        rescored(s.criterion, found, s.target(s.train))
        if s.task == "multilabel" and len(np.unique(train.rows)) == len(train.rows):
            self._averaged(found)
        return found

    def _averaged(self, found: Baselines) -> None:
        """Score simple models by the mean over some labels, as the model is; their guesses stay those of one."""
        s, parts = self.subject, [found]
        own = self.reader.one_column(s.train.y.reshape(s.train.n, -1))
        labels = [k for k in range(s.train.y[0].numel()) if k != own][: LABELS - 1]
        for k in labels:
            asked = [
                self._of_label(p, t, k) for p, t in ((found.problem, s.train), (found.valid_problem, s.valid))
            ]
            parts.append(baselines(*asked))
        held = [part for part in parts if part.held]
        found.chance = float(np.mean([part.chance for part in held]))
        found.valid_chance = float(np.mean([part.valid_chance for part in held]))
        for scores in ("held", "valid"):
            for name in getattr(found, scores):
                getattr(found, scores)[name] = float(np.mean([getattr(part, scores)[name] for part in held]))

    @staticmethod
    def _of_label(p: Any, samples: Any, k: int) -> Any:
        """Return a problem with another one of several labels as its target."""
        if p is None:
            return None
        return replace(p, y=samples.y.reshape(samples.n, -1)[p.rows, k].cpu().numpy().round().astype(int))

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
                    out, target = kept(out, keep), target[keep]
                found[f"{name} score"], found[f"{name} chance"] = s.criterion.score(main_output(out), target)
                found[f"{name} loss"] = float(s.criterion(out, target))
        return found

    def answers(self, part: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the main outputs for "train" or "valid" rows, and their targets; of the nodes of a graph those that count."""
        s = self.subject
        samples = s.train if part == "train" else s.valid
        with torch.no_grad(), quiet(s.net):
            z = main_output(s.output if part == "train" else s.call(s.net.eval(), samples)).detach().cpu()
        y = s.target(samples).detach().cpu()
        return (z[samples.counted], y[samples.counted]) if samples.whole else (z, y)

    @cached_property
    def error(self) -> dict[str, float]:
        """The standard errors of the scores on training and validation rows."""
        return {part: standard_error(self, part) for part in ("train", "valid")}

    @cached_property
    def aligned(self) -> dict[str, float]:
        """What the scores are more on the terms of simple models, which are asked for one direction of several targets."""
        return {part: lead(self, part) for part in ("train", "valid")}

    @cached_property
    def balanced(self) -> float:
        """The model's mean recall over classes, on validation rows if there are any."""
        s = self.subject
        said, true, _ = labels_of(*self.answers("train" if s.valid is None else "valid"), s.task)
        return float(np.mean([(said[true == k] == k).mean() for k in np.unique(true)]))

    @property
    def fine(self) -> bool:
        """Whether the model does what simple models can, where it was not trained."""
        base = self.baselines
        score = self.valid_score if np.isfinite(self.valid_score) else self.score
        if not np.isfinite(score):
            return False
        if base is None or not base.held:
            return score > 0.9
        rare = base.chance > RARE and base.labels is not None and self.subject.task in ("classes", "binary")
        if rare and self.balanced > max(0.6, base.balanced - 0.02):
            return True  # it finds the rare classes, which a plain accuracy does not count
        new = np.isfinite(self.valid_score) and np.isfinite(base.valid_score)
        theirs = max(base.gain, base.reached) if new else base.gain
        room = max(1e-9, 1 - (base.valid_chance if new else base.chance))
        part = "valid" if np.isfinite(self.valid_score) else "train"
        score += self.aligned[part]
        return (1 - score - self.error[part]) / room < 1.1 * (1 - theirs) + 0.03

    @cached_property
    def constant_loss(self) -> float:
        """The loss of a constant answer, NaN where there is no such thing: entropy of the classes, variance of numbers."""
        s = self.subject
        y = s.target(s.train)
        if s.task == "classes" and s.criterion.name in ("cross_entropy", "nll", "custom"):
            labels = y.argmax(1).reshape(-1) if y.is_floating_point() else y.reshape(-1)
            p = torch.bincount(labels[labels >= 0].long().cpu()).float()
            p = p[p > 0] / p.sum()
            return float(-(p * p.log()).sum())
        if s.task in ("binary", "multilabel"):
            m = float(y.float().mean())
            return -(m * math.log(max(m, 1e-9)) + (1 - m) * math.log(max(1 - m, 1e-9)))
        if math.isfinite(s.criterion.degree):
            return best_constant(s.criterion, y)[0]
        if s.task in ("regression", "reconstruction") and s.criterion.name in ("mse", "custom"):
            return self._loss_of_mean(y.float())
        return float("nan")

    def _loss_of_mean(self, y: torch.Tensor) -> float:
        """Return the loss of the mean target, or of its logarithm if that is less; the variance where it cannot be asked."""
        s, mean = self.subject, y.mean(0, keepdim=True).expand_as(y)
        variance = float((y - mean).square().mean())
        z = main_output(s.output)
        if not s.criterion.custom or z is None or z.shape != y.shape:
            return variance
        asked = [mean, mean.log()] if bool((mean > 0).all()) else [mean]
        try:
            with torch.no_grad():
                found = [float(s.criterion(with_main(s.output, m.to(z)), s.target(s.train))) for m in asked]
        except (RuntimeError, ValueError, TypeError, IndexError):
            return variance
        return min((v for v in found if math.isfinite(v)), default=variance)

    @property
    def last_call(self) -> str:
        """The operation that made the output, where it is one of the known ones."""
        if self.trace is None:
            return ""
        z = main_output(self.trace.output).detach()
        for c in reversed(self.trace.calls):
            same = c.out.numel() == z.numel() and torch.equal(c.out.detach().reshape(-1), z.reshape(-1))
            if c.out is z or same:
                return c.name
        return ""

    @property
    def score(self) -> float:
        """The model's score on training rows."""
        return self.performance.get("train score", float("nan"))

    @property
    def gain(self) -> float:
        """The model's score above chance, as a share of what is possible, on validation rows if there are any."""
        part = "valid" if np.isfinite(self.valid_score) else "train"
        score, chance = (self.performance.get(f"{part} {k}", float("nan")) for k in ("score", "chance"))
        return (score + self.aligned[part] - chance) / max(1e-9, 1 - chance)

    @property
    def valid_score(self) -> float:
        """The model's score on validation rows."""
        return self.performance.get("valid score", float("nan"))


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
