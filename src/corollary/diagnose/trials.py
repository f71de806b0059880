"""Runs of the lab with one setting changed, and what is left to gain from where the model is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.subject import quiet

__all__ = ["GOOD", "Room", "Trials", "dropout_rate", "say"]

SECONDS = 0.35  # of one run
GOOD = 1e-3  # Adam's rate that suits most


class Trials:
    """The runs of one exam, with the same steps and batches."""

    def __init__(self, exam: Exam) -> None:
        self.exam, self.lab = exam, exam.lab
        s = exam.subject.settings
        self.batch = s.batch_size or 32
        self.batch = min(self.batch, 256)
        self.steps = self.lab.steps_for(SECONDS, 25, 250)
        if self.batch > 64:
            self.steps = max(25, self.steps // 2)
        self.usual: dict[str, Any] = {
            "optimizer": s.optimizer or "adam", "rate": s.learning_rate or GOOD, "weight_decay": s.weight_decay or 0.0,
            "momentum": s.momentum, "decoupled": s.decoupled, "batch_size": self.batch, "options": s.options,
            "shares": {n: s.shares[id(p)] for n, p in exam.subject.given.named_parameters() if id(p) in s.shares},
        }  # fmt: skip

    def run(
        self,
        name: str,
        start: str = "present",
        *,
        dropout: float | None = None,
        frozen: tuple[str, ...] = (),
        kept: tuple[str, ...] = (),
        **changes: Any,
    ) -> Result:
        """Run once; the same run is not made twice. Of a new start, the parameters ``kept`` stay as they are."""
        if name in self.lab.runs:
            return self.lab.runs[name]
        with quiet(self.exam.subject.given):
            torch.manual_seed(0)
            net = self.exam.subject.twin(start)
        present = dict(self.exam.subject.given.named_parameters())
        for key, p in net.named_parameters() if kept else ():
            if key in kept:
                p.data.copy_(present[key].detach())
        for m in net.modules() if dropout is not None else ():
            if isinstance(m, (nn.RNNBase, nn.MultiheadAttention)):
                m.dropout = dropout
        steps = changes.pop("steps", self.steps)
        options = {**self.usual, **changes}
        options["still"] = dropout == 0 and "noise of training" in self.exam.facts
        for key, p in net.named_parameters():
            p.requires_grad_(p.is_floating_point() and key not in frozen)
        return self.lab.run(name, net, steps=steps, dropout=dropout, **options)

    def good(self, name: str, start: str = "present", rate: float = GOOD, **changes: Any) -> Result:
        """Run with settings that suit most: Adam, annealed, no decay, no dropout."""
        options = {
            "optimizer": "adam",
            "rate": rate,
            "weight_decay": 0.0,
            "batch_size": 32,
            "anneal": True,
            "dropout": 0.0,
            "options": {},
            "shares": {},
        }
        return self.run(name, start, **{**options, **changes})


@dataclass
class Room:
    """What is left to gain from where the model is."""

    loss: float
    score: float
    valid_loss: float
    valid_score: float
    constant: float

    @property
    def scale(self) -> float:
        """The loss of a constant answer, or the present one where there is no such thing."""
        return self.constant if math.isfinite(self.constant) else abs(self.loss)

    def well(self, exam: Exam) -> bool:
        """Whether the model does what simple models can, with a loss below that of a constant answer."""
        return exam.fine and not self.loss > 1.2 * self.constant

    def train(self, r: Result) -> float:
        """Return the fall of the training loss, relative."""
        return (self.loss - r.loss) / max(abs(self.loss), 1e-9) if math.isfinite(r.loss) else -1.0

    def valid(self, r: Result) -> float:
        """Return the fall of the validation loss, relative."""
        if not math.isfinite(self.valid_loss) or not math.isfinite(r.valid_loss):
            return float("nan")
        return (self.valid_loss - r.valid_loss) / max(abs(self.valid_loss), 1e-9)

    def matters(self, r: Result, least: float = 0.3) -> bool:
        """Whether a run makes a difference that counts: of the loss and, where known, on held-out rows too."""
        fall = self.train(r)
        if fall < least or (self.loss - r.loss) < 0.04 * self.scale:
            return False
        v = self.valid(r)
        if math.isfinite(v):
            return v > 0.5 * least and (self.valid_loss - r.valid_loss) > 0.03 * self.scale
        return True


def dropout_rate(exam: Exam) -> float:
    """Return the largest rate of dropout that is active in training."""
    if "dropout" in exam.facts:
        return float(exam.facts["dropout"])
    s = exam.subject
    modules = [m.p for m in s.net.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    modules += [float(m.dropout) for m in s.net.modules() if isinstance(m, nn.RNNBase) and m.num_layers > 1]
    try:
        calls = exam.traced(s.twin(), training=True).calls
        modules += [c.options["p"] for c in calls if c.options.get("active")]
    except Exception:
        pass
    exam.facts["dropout"] = max(modules, default=0.0) or _noise_of_training(exam)
    return float(exam.facts["dropout"])


def _noise_of_training(exam: Exam) -> float:
    r"""Return the rate of dropout that would make outputs as random as they are in training mode by other means.

    Dropout at rate :math:`p` adds noise of variance :math:`p / (1 - p)` to a unit of size one. A code that is drawn is
    meant so.
    """
    s = exam.subject
    if not isinstance(s.output, Tensor) or any(hasattr(s.net, n) for n in ("encode", "sample")):
        return 0.0
    rows, outs = s.train.first(256), []
    for seed in (1, 2):
        net = s.twin().train()
        with torch.no_grad(), quiet(net):
            torch.manual_seed(seed)
            outs.append(s.call(net, rows).float())
    noise = float((outs[0] - outs[1]).square().mean()) / 2
    if noise <= 1e-6 * float(s.output.float().var()):
        return 0.0
    exam.facts["noise of training"] = share = noise / (noise + float(s.output.float().var()))
    return share


RATES = ("learning-rate-too-large", "learning-rate-too-small")
TOLD = {
    "weight-decay-too-large": "no weight decay",
    "dropout-too-large": "no dropout",
    "batch-too-small": "larger batches",
}


def _told(cause: str, run: Result, own: float | None) -> str:
    """Return how a run was trained: with one setting changed, or with usual ones where the user's are not known."""
    if own is None and cause != "dropout-too-large":
        return f"usual settings (Adam at {run.rate:g}, no decay, no dropout)"
    return f"a rate of {run.rate:.3g}" if cause in RATES else TOLD[cause]


def say(
    exam: Exam, cause: str, vote: float, room: Room, run: Result | None, control: Result | None, sure: float = 0.8
) -> None:  # fmt: skip
    """Note a cause that a run with one setting changed has shown."""
    s = exam.subject.settings
    known = {"learning-rate-too-large": s.learning_rate, "learning-rate-too-small": s.learning_rate,
             "weight-decay-too-large": s.weight_decay, "batch-too-small": s.batch_size,
             "dropout-too-large": exam.facts.get("dropout")}[cause]  # fmt: skip
    after = ""
    if run is not None:
        told = _told(cause, run, s.learning_rate)
        after = f"; with {told} it is {run.loss:.3g} after {run.steps} steps"
    if control is not None:
        after += f", as it is {control.loss:.3g}"
    said = f"the training loss is {room.loss:.3g}{after}" + (f" (now {known:g})" if known else "")
    tried = run.rate if run is not None and math.isfinite(run.rate) else GOOD
    rate = s.learning_rate
    usual = {"optimizer": "adam", "learning_rate": tried}
    repairs: dict[str, dict[str, Any]] = {
        "learning-rate-too-large": {"learning_rate": rate / 10} if rate else usual,
        "learning-rate-too-small": {"learning_rate": tried} if rate else usual,
        "weight-decay-too-large": {"weight_decay": s.weight_decay / 100 if s.weight_decay else 0.0},
        "dropout-too-large": {"dropout": 0.2},
        "batch-too-small": {"batch_size": 64},
    }
    where = {"dropout-too-large": "dropout", "batch-too-small": "batches"}.get(cause, "optimiser")
    evidence = {
        "losses": None if run is None else run.losses,
        "control": None if control is None else control.losses,
    }
    exam.find(
        cause,
        known if known else vote,
        said,
        where=where,
        sure=min(1.0, sure + 0.05 * vote),
        evidence=evidence,
        repair=repairs[cause],
    )
