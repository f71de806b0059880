r"""Faults of the descent, found by intervention: copies are trained on with one setting changed, and one with none.

With :math:`L_0` the loss after some steps as the user trains and :math:`L_c` after the same steps with the change :math:`c`,
the gain of a change is :math:`\log (L_0 / L_c)`. Where settings are unknown, the weights tell of them: hardly moved from where
torch draws them, collapsed, or far away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.graph import _fine
from corollary.diagnose.lab import Result
from corollary.diagnose.subject import Samples, quiet
from corollary.diagnose.trace import rms

__all__ = ["CHECKS"]

SECONDS = 0.35  # of one run
ODD = 0.5  # decades (or their like) beyond the usual from which a setting is a suspect by itself
ENDED = 1e-2  # of the rate, below which a schedule has ended the descent
GOOD = 1e-3  # Adam's rate that suits most


@dataclass
class State:
    """Where the weights are, relative to a default start."""

    ratio: float = float("nan")  # size of the weights over that of a default start, median over layers
    smallest: float = float("nan")
    largest: float = float("nan")
    beyond: float = float("nan")  # share of weights outside of what is drawn
    moved: float = float("nan")  # distance from the initial weights, relative to their size
    decayed: float = float("nan")  # cosine of the gradient with minus the weights


def weights_state(exam: Exam) -> State:
    """Return where the weights are."""
    s = exam.subject
    net = s.net
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)
    ratios, beyond, total = [], 0, 0
    for m in net.modules():
        if not isinstance(m, kinds):
            continue
        for p in m.parameters(recurse=False):
            if p.ndim < 2:
                continue
            fan = m.hidden_size if isinstance(m, nn.RNNBase) else max(1, p[0].numel())
            bound = 1 / math.sqrt(fan)
            ratios.append(rms(p) / (bound / math.sqrt(3)))
            beyond += int((p.detach().abs() > bound * (1 + 1e-4)).sum())
            total += p.numel()
    state = State()
    if ratios:
        state.ratio, state.smallest, state.largest = float(np.median(ratios)), min(ratios), max(ratios)
        state.beyond = beyond / max(1, total)
    if s.initial is not None:
        a = b = 0.0
        for n, p in net.named_parameters():
            if n in s.initial and s.initial[n].shape == p.shape:
                a += float((p.detach().float().cpu() - s.initial[n].detach().float().cpu()).square().sum())
                b += float(s.initial[n].detach().float().square().sum())
        state.moved = math.sqrt(a / b) if b else float("nan")
        began, now = [], []
        for n, p in net.named_parameters():
            if p.ndim >= 2 and n in s.initial and s.initial[n].shape == p.shape:
                began.append(rms(s.initial[n]))
                now.append(rms(p))
        if began and min(began) > 0:
            shrunk = [a / b for a, b in zip(now, began)]
            exam.facts["weights over initial"] = [float(np.median(shrunk)), max(shrunk)]
    t = exam.trace
    if t is not None:
        dot = g2 = w2 = 0.0
        for n, p in net.named_parameters():
            g = t.gradients.get(n)
            if g is not None and p.ndim >= 2:
                dot -= float((g.float() * p.detach().float()).sum())
                g2 += float(g.float().square().sum())
                w2 += float(p.detach().float().square().sum())
        if g2 and w2:
            state.decayed = dot / math.sqrt(g2 * w2)
            exam.facts["decay estimate"] = dot / w2
    return state


# --- what is known -----------------------------------------------------------------------------------------


def abnormal(exam: Exam) -> dict[str, float]:
    """Return how many decades a setting lies beyond the usual, where it is known."""
    s = exam.subject.settings
    found: dict[str, float] = {}
    if s.learning_rate:
        adaptive = s.optimizer is not None and not s.optimizer.startswith("sgd")
        high, low = (1e-2, 1e-4) if adaptive else (0.5 * (1 - s.momentum) ** 0.7, 1e-3)
        found["learning-rate-too-large"] = math.log10(s.learning_rate / high)
        found["learning-rate-too-small"] = math.log10(low / s.learning_rate)
    if s.weight_decay:
        usual = 0.3 if s.decoupled else 1e-2
        found["weight-decay-too-large"] = math.log10(s.weight_decay / usual)
    if s.batch_size:
        found["batch-too-small"] = math.log2(8 / s.batch_size) / 2
    p = dropout_rate(exam)
    if p:
        found["dropout-too-large"] = (p - 0.5) * 4
    return found


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
    exam.facts["dropout"] = max(modules, default=0.0)
    return float(exam.facts["dropout"])


def oscillation(losses: np.ndarray) -> tuple[float, float]:
    """Return how much a loss goes up on its way, over its level, and its end over its least value."""
    losses = losses[np.isfinite(losses)]
    if len(losses) < 4:
        return 0.0, 1.0
    half = losses[len(losses) // 2 :]
    ups = np.clip(np.diff(half), 0, None).mean() / max(1e-12, np.abs(half).mean())
    return float(ups), float(losses[-1] / max(1e-12, losses.min()))


# --- the runs --------------------------------------------------------------------------------------------


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
        self.usual = {
            "optimizer": s.optimizer or "adam", "rate": s.learning_rate or GOOD, "weight_decay": s.weight_decay or 0.0,
            "momentum": s.momentum, "decoupled": s.decoupled, "batch_size": self.batch,
        }  # fmt: skip

    def run(
        self,
        name: str,
        start: str = "present",
        *,
        dropout: float | None = None,
        frozen: tuple[str, ...] = (),
        **changes: Any,
    ) -> Result:
        """Run once; the same run is not made twice."""
        if name in self.lab.runs:
            return self.lab.runs[name]
        with quiet(self.exam.subject.given):
            torch.manual_seed(0)
            net = self.exam.subject.twin(start)
        for m in net.modules() if dropout is not None else ():
            if isinstance(m, (nn.RNNBase, nn.MultiheadAttention)):
                m.dropout = dropout
        steps = changes.pop("steps", self.steps)
        options = {**self.usual, **changes}
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
        }
        return self.run(name, start, **{**options, **changes})


def level(exam: Exam) -> float:
    """Return the loss of a constant answer, or that of the start where there is no such thing."""
    if "constant loss" in exam.facts:
        return float(exam.facts["constant loss"])
    s = exam.subject
    task, y = s.task, s.target(s.train)
    value = float("nan")
    if task == "classes" and s.criterion.name in ("cross_entropy", "nll", "custom"):
        labels = y.reshape(-1)
        labels = labels[labels >= 0] if not y.is_floating_point() else y.argmax(1).reshape(-1)
        p = torch.bincount(labels.long().cpu()).float()
        p = p[p > 0] / p.sum()
        value = float(-(p * p.log()).sum())
    elif task in ("binary", "multilabel"):
        m = float(y.float().mean())
        value = -(m * math.log(max(m, 1e-9)) + (1 - m) * math.log(max(1 - m, 1e-9)))
    elif task in ("regression", "reconstruction") and s.criterion.name in ("mse", "custom"):
        value = (
            float(y.float().var(unbiased=False))
            if y.ndim == 1
            else float((y.float() - y.float().mean(0)).square().mean())
        )
    exam.facts["constant loss"] = value
    return value


def interventions(exam: Exam) -> None:
    """Train copies on and see which change helps."""
    s, lab = exam.subject, exam.lab
    if lab is None or s.output is None or exam.facts.get("weights broken") or exam.facts.get("untrained"):
        return
    if exam.has(
        "not-finite-data", "overflow", "detached-parameters", "symmetric-initialisation", "wrong-loss"
    ):
        return
    generates = s.criterion.task == "density" or hasattr(s.net, "sample")
    if generates and s.train.y is None and not s.criterion.was_given:
        return  # by what loss it was trained is not known
    trials = exam.facts.setdefault("trials", Trials(exam))
    state = weights_state(exam)
    exam.facts["weights"] = vars(state)
    now, now_score = lab.measure(s.twin(), lab.watched)
    now_valid, now_valid_score = lab.measure(s.twin(), lab.held)
    exam.facts["now"] = [now, now_score, now_valid, now_valid_score]
    if not math.isfinite(now):
        return
    good = trials.good("good")
    room = Room(now, now_score, now_valid, now_valid_score, level(exam))
    exam.facts["room"] = {
        "train": room.train(good),
        "valid": room.valid(good),
        "score": good.score - now_score,
    }
    odd = max(abnormal(exam).values(), default=0.0)
    if room.well(exam) and not room.matters(good, 0.2) and odd < 0.9:
        return  # nothing is left that a better descent would gain
    if s.settings.cut < ENDED and _ended_early(exam, trials, room):
        return
    if s.settings.learning_rate is not None or s.settings.batch_size is not None:
        _with_settings(exam, trials, room, state)
    else:
        _without_settings(exam, trials, room, state)


def _ended_early(exam: Exam, trials: Trials, room: Room) -> bool:
    """Whether a schedule has ended the descent far above what the rate that it began with still reaches."""
    constant = room.constant if math.isfinite(room.constant) else abs(room.loss)
    losses = exam.subject.history.get("loss", np.zeros(0))
    losses = losses[np.isfinite(losses)]
    half = losses[len(losses) // 2 :]
    falls = len(half) >= 2 and half[0] - half[-1] > 0.05 * constant  # then it was not over by then
    if falls or room.well(exam) or room.loss < 0.5 * constant:
        return False
    control = trials.run("control, rate of the beginning", steps=3 * trials.steps)
    if not room.matters(control, 0.25):
        return False
    s = exam.subject.settings
    said = (
        f"the schedule has cut the rate to {s.cut:.1e} of its {s.learning_rate:g}, and the loss stands at {room.loss:.3g}; "
        f"at the rate of the beginning it is {control.loss:.3g} after {control.steps} steps"
    )
    exam.find("learning-rate-too-small", s.cut * s.learning_rate, said, where="schedule", sure=0.9,
              repair={"learning_rate": s.learning_rate})  # fmt: skip
    return True


@dataclass
class Room:
    """What is left to gain from where the model is."""

    loss: float
    score: float
    valid_loss: float
    valid_score: float
    constant: float

    def well(self, exam: Exam) -> bool:
        """Whether the model does what simple models can, with a loss below that of a constant answer."""
        return _fine(exam) and not self.loss > 1.2 * self.constant

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
        scale = self.constant if math.isfinite(self.constant) else abs(self.loss)
        if fall < least or (self.loss - r.loss) < 0.04 * scale:
            return False
        v = self.valid(r)
        if math.isfinite(v):
            return v > 0.5 * least and (self.valid_loss - r.valid_loss) > 0.03 * scale
        return True


def _with_settings(exam: Exam, trials: Trials, room: Room, state: State) -> None:
    """Change one setting at a time and compare with the control."""
    s = exam.subject
    odd = abnormal(exam)
    rate = s.settings.learning_rate or GOOD
    control = trials.run("control")
    runs: dict[str, Result] = {}
    usual = trials.usual
    least = min(r.loss for r in trials.lab.runs.values() if math.isfinite(r.loss))
    runs["learning-rate-too-large"] = _scan(trials, "/", rate, least)
    runs["learning-rate-too-small"] = _scan(trials, "*", rate, least)
    if s.settings.weight_decay:
        runs["weight-decay-too-large"] = trials.run("no decay", weight_decay=0.0)
    if dropout_rate(exam) > 0:
        runs["dropout-too-large"] = trials.run("no dropout", dropout=0.0)
    if s.settings.batch_size is not None and s.settings.batch_size <= 8:
        runs["batch-too-small"] = trials.run("batch * 16", batch_size=min(16 * usual["batch_size"], 64))
    gains = {}
    constant = room.constant if math.isfinite(room.constant) else 0.0
    floor = max(1e-3 * abs(room.loss), 1e-2 * constant, 1e-12)  # losses below it are as good as each other
    for cause, r in runs.items():
        a = (
            control.loss
            if math.isfinite(control.loss)
            else 10 * max(room.loss, room.constant if math.isfinite(room.constant) else 0)
        )
        b = r.loss if math.isfinite(r.loss) else 10 * a
        gains[cause] = (
            math.log((max(a, 0) + floor) / (max(b, 0) + floor))
            if a > 0 and b > 0
            else (a - b) / (abs(a) + floor)
        )
    ups, rise = oscillation(s.history.get("loss", np.zeros(0)))
    exam.facts["history"] = [ups, rise]
    fine = room.well(exam)
    large = "learning-rate-too-large"
    if (odd.get(large, -1) > 0 or ups > 0.08 or rise > 1.5) and not fine and gains[large] < 0.1:
        gains[large] = max(gains[large], _gain_from_start(exam, trials, rate, runs))
    exam.facts["gains"], exam.facts["odd settings"] = gains, odd
    votes = {}
    for cause, gain in gains.items():
        helped = room.matters(runs[cause], 0.25)
        strange = odd.get(cause, -1.0)
        vote = gain + 0.8 * max(strange, -0.5)
        votes[cause] = vote if (helped and gain > 0.12) or (strange > 0.9 and gain > 0.05) else -1.0
    _shape_votes(exam, votes, gains, state, room, ups, rise, odd, fine, control, runs)
    exam.facts["votes"] = votes
    best = max(votes, key=lambda c: votes[c])
    if votes[best] > 0.25:
        _say(exam, best, votes[best], gains.get(best, 0.0), room, runs.get(best), control)
        if room.matters(runs[best], 0.25) and _closes(room, runs[best], trials) > 0.6:
            _demote(exam)
            if best in ("dropout-too-large", "weight-decay-too-large") and "vanishing-gradient" in exam.sure:
                exam.sure["vanishing-gradient"] = 0.5  # the gradient suffices as soon as that is gone
        if best == "weight-decay-too-large" and odd.get("dropout-too-large", -1.0) > ODD:
            _dropout_too(exam, trials, room)
        second = sorted(votes, key=lambda c: -votes[c])[1:2]
        for c in second:
            if votes[c] > 0.8 and odd.get(c, -1) > 0.5:
                _say(exam, c, votes[c], gains.get(c, 0.0), room, runs.get(c), control, sure=0.6)


def _dropout_too(exam: Exam, trials: Trials, room: Room) -> None:
    """Whether dropout hinders as well: from weights that decay has shrunk no run tells, so both begin anew without it."""
    start = "initial" if exam.subject.initial is not None else "new"
    kept = trials.run("anew without decay", start, weight_decay=0.0)
    none = trials.run("anew without decay and dropout", start, weight_decay=0.0, dropout=0.0)
    if math.isfinite(kept.loss) and none.loss < 0.7 * kept.loss:
        _say(exam, "dropout-too-large", 1.0, 0.0, room, none, kept)


def _scan(trials: Trials, way: str, rate: float, least: float) -> Result:
    """Return the best of runs at a tenth (or ten times) the rate and further on, as long as that helps and more is possible."""
    best = trials.run("control")
    for power in (10, 100, 1000, 10000):
        r = trials.run(f"rate {way} {power}", rate=rate / power if way == "/" else rate * power)
        better = math.isfinite(r.loss) and not r.loss >= best.loss
        if power == 10 or better:
            best = r if better or power == 10 else best
        if not better or best.loss < least + 0.3 * abs(trials.lab.runs["control"].loss - least):
            break
    return best


def _gain_from_start(exam: Exam, trials: Trials, rate: float, runs: dict[str, Result]) -> float:
    """Return what a tenth of the rate gains from where training began: a rate may have led to where none helps any more."""
    start = "initial" if exam.subject.initial is not None else "new"
    control = trials.run("control from the start", start)
    less = trials.run("rate / 10 from the start", start, rate=rate / 10)
    if not math.isfinite(less.loss) or less.loss <= 0:
        return 0.0
    a = control.loss if math.isfinite(control.loss) else 10 * less.loss
    gain = math.log(max(a, 1e-12) / less.loss)
    if gain > 0.1:
        runs["learning-rate-too-large"] = less
    return gain


def _closes(room: Room, run: Result | None, trials: Trials) -> float:
    """Return which share of what can be gained, as far as is known, one changed setting gains."""
    control = trials.lab.runs.get("control")
    if run is None or control is None or not math.isfinite(run.loss):
        return 0.0
    least = min(r.loss for r in trials.lab.runs.values() if math.isfinite(r.loss))
    begin = control.loss if math.isfinite(control.loss) else room.loss
    return (begin - run.loss) / max(begin - least, 1e-12)


def _shape_votes(
    exam: Exam, votes: dict[str, float], gains: dict[str, float], state: State, room: Room, ups: float, rise: float,
    odd: dict[str, float], fine: bool, control: Result, runs: dict[str, Result],
) -> None:  # fmt: skip
    """Let history and weights speak for or against what the runs say."""
    small, large, decay = "learning-rate-too-small", "learning-rate-too-large", "weight-decay-too-large"
    constant = room.constant if math.isfinite(room.constant) else abs(room.loss)
    stuck = room.loss > 0.5 * constant
    if state.moved == state.moved:
        if state.moved > 0.5:
            votes[small] = min(votes.get(small, -1), 0.0) if odd.get(small, 0) < 0.5 else votes.get(small, -1)
        elif state.moved < 0.1 and stuck and gains.get(small, 0) > 0.05:
            votes[small] = max(votes.get(small, -1), 1.0)
        if (
            state.moved < 0.01 and stuck and odd.get(small, 0) > 0.9
        ):  # a hundredth of the weights, at a rate far too low
            votes[small] = max(votes.get(small, -1), 1.0)
    least = min(r.loss for r in runs.values() if math.isfinite(r.loss))
    if room.loss - control.loss > 0.5 * (room.loss - least):  # as it is it gets there as soon as it goes on
        for c in (small, "dropout-too-large", "batch-too-small"):
            if c in votes and odd.get(c, 0) < ODD:
                votes[c] = min(votes[c], 0.0)
    wild = rise > 1.5 or ups > 0.08
    if large in votes:
        if wild and not fine and odd.get(large, 0) > -1.0 and gains[large] > 0.05:
            votes[large] = max(votes[large], 0.3) + 0.5
        if odd.get(large, -1) > 0.3 and not fine and gains[large] > 0.05:
            votes[large] = max(votes[large], 0.2 + odd[large])
        if not wild and odd.get(large, 0) < -1.0:
            votes[large] -= 0.5
    if decay in votes and votes[decay] > 0 and exam.facts.get("weights over initial", [1.0])[0] < 0.7:
        votes[decay] += 0.5
    if (
        decay in votes
        and odd.get(decay, -1) > 0.3
        and not fine
        and (gains[decay] > 0.05 or state.ratio < 0.3)
    ):
        votes[decay] = max(votes[decay], 0.5 + odd[decay])
    if fine:
        for c in votes:
            if c in (small, large) and odd.get(c, 0) < 0.5:
                votes[c] -= 0.6
                gained = room.loss - runs[c].loss if c in runs else 0.0
                if not gained > 0.15 * constant:  # what is left is little beside what was learned
                    votes[c] = -1.0


def _without_settings(exam: Exam, trials: Trials, room: Room, state: State) -> None:
    """Infer the settings from the weights, the dropout that is there, and what a good descent gains."""
    good = trials.lab.runs["good"]
    fine = room.well(exam)
    constant = room.constant if math.isfinite(room.constant) else abs(room.loss)
    helped = room.matters(good, 0.3)
    p = dropout_rate(exam)
    exam.facts["helped"] = helped
    if p >= 0.6 and not fine:
        with_it = trials.good("good, dropout kept", dropout=None) if p < 0.9 else None
        if with_it is None or good.loss < 0.8 * with_it.loss:
            _say(exam, "dropout-too-large", 1.0, 0.0, room, good, with_it)
            return
    new = None
    if not helped and not fine:
        new = trials.good("new", "new", steps=int(1.5 * trials.steps))
        exam.facts["new"] = [new.loss, new.score, new.valid_loss, new.valid_score]
    better_new = new is not None and room.matters(new, 0.25)
    if not helped and not better_new:
        return
    ratio, beyond = state.ratio, state.beyond
    votes = {"learning-rate-too-small": 0.0, "learning-rate-too-large": 0.0, "weight-decay-too-large": 0.0}
    if ratio == ratio:
        if ratio < 0.7 and beyond < 0.02:
            votes["weight-decay-too-large"] += 1.0 + (0.7 - ratio)
        if beyond < 0.03 and 0.8 < ratio < 1.15:
            votes["learning-rate-too-small"] += 1.0
        elif beyond < 0.1 and 0.8 < ratio < 1.3:
            votes["learning-rate-too-small"] += 0.4
        if ratio > 2.0 or state.largest > 4:
            votes["learning-rate-too-large"] += 1.0
        elif beyond > 0.2:
            votes["learning-rate-too-large"] += 0.4
    if state.decayed == state.decayed and state.decayed > 0.6:
        votes["weight-decay-too-large"] += 0.6
    if better_new and not helped:
        votes["learning-rate-too-large"] += 0.5
    if room.loss > 1.05 * constant:
        votes["learning-rate-too-large"] += 0.5
    exam.facts["votes"] = votes
    best = max(votes, key=lambda c: votes[c])
    run = good if helped else new
    little = run is None or not room.loss - run.loss > 0.15 * constant  # is left beside what was learned
    if votes[best] >= 0.5 and not (fine and (not helped or little)):
        _say(exam, best, votes[best], 0.0, room, run, None, sure=0.75)
        if best == "weight-decay-too-large" and state.decayed > 0.6 and "vanishing-gradient" in exam.sure:
            exam.sure["vanishing-gradient"] = (
                0.5  # the loss pulls against a decay that has shrunk the weights
            )


def _demote(exam: Exam) -> None:
    """Doubt faults of units that learn from where they are as soon as one setting is changed: they are its consequence."""
    for cause, began in (("dead-units", "dead at the start"), ("saturated-units", "saturated at the start")):
        if cause in exam.sure and not (exam.facts.get(began) or 0.0) > 0.3:
            exam.sure[cause] = min(exam.sure[cause], 0.5)


TOLD = {
    "learning-rate-too-large": "a tenth of the rate",
    "learning-rate-too-small": "ten times the rate",
    "weight-decay-too-large": "no weight decay",
    "dropout-too-large": "no dropout",
    "batch-too-small": "larger batches",
}


def _say(
    exam: Exam, cause: str, vote: float, gain: float, room: Room, run: Result | None, control: Result | None, sure: float = 0.8
) -> None:  # fmt: skip
    s = exam.subject.settings
    known = {"learning-rate-too-large": s.learning_rate, "learning-rate-too-small": s.learning_rate,
             "weight-decay-too-large": s.weight_decay, "batch-too-small": s.batch_size,
             "dropout-too-large": exam.facts.get("dropout")}[cause]  # fmt: skip
    after = "" if run is None else f"; with {TOLD[cause]} it is {run.loss:.3g} after {run.steps} steps"
    if control is not None:
        after += f", as it is {control.loss:.3g}"
    said = f"the training loss is {room.loss:.3g}{after}" + (f" (now {known:g})" if known else "")
    rate = s.learning_rate
    repair: dict[str, Any] = {
        "learning-rate-too-large": {"learning_rate": rate / 10 if rate else GOOD},
        "learning-rate-too-small": {"learning_rate": rate * 10 if rate else GOOD},
        "weight-decay-too-large": {"weight_decay": s.weight_decay / 100 if s.weight_decay else 0.0},
        "dropout-too-large": {"dropout": 0.2},
        "batch-too-small": {"batch_size": 64},
    }[cause]
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
        repair=repair,
    )


def scaled_inputs(exam: Exam) -> None:
    """Whether inputs of unusual size slow the descent down: the same start with them standardised."""
    suspected = exam.facts.get("scale suspected")
    s = exam.subject
    if suspected is None or exam.lab is None or exam.has("unscaled-inputs"):
        return
    size, said, where, evidence, repair = suspected
    trials = exam.facts.get("trials") or Trials(exam)
    raw = trials.good("new, raw", "new")
    x = s.train.x.float()
    steps = 2 if exam.steps_last else 1
    dims = (0,) if x.ndim == 2 else (0, steps) if x.ndim == 3 else (0, *range(2, x.ndim))
    mean, std = x.mean(dims, keepdim=True), x.std(dims, keepdim=True).clamp_min(1e-8)

    def change(samples: Samples) -> Samples:
        return samples.replaced((samples.x - mean.to(samples.x)) / std.to(samples.x))

    even = trials.good("new, scaled", "new", change=change)
    exam.facts["scaled run"] = [raw.loss, even.loss]
    if even.loss < 0.7 * raw.loss or not math.isfinite(raw.loss):
        exam.find("unscaled-inputs", size, f"{said}; standardised the loss is {even.loss:.3g} instead of {raw.loss:.3g}",
                  where=where, evidence=evidence, repair=repair, sure=0.9)  # fmt: skip


def doubtful_units(exam: Exam) -> None:
    """Whether dead units hold the model back: they do if the same net learns more from new weights than from these."""
    if not exam.has("dead-units") or (exam.facts.get("dead at the start") or 0.0) > 0.3:
        return
    if exam.lab is None or exam.subject.output is None or exam.sure["dead-units"] < 0.6:
        return
    trials = exam.facts.setdefault("trials", Trials(exam))
    long = {"rate": 3e-3, "steps": 3 * trials.steps}
    here, new = trials.good("long", **long), trials.good("new long", "new", **long)
    exam.facts["from here and anew"] = [here.loss, new.loss]
    scale = level(exam)
    slack = 0.05 * scale if math.isfinite(scale) else 0.0
    if here.loss <= 1.15 * new.loss + slack:
        exam.drop("dead-units")


CHECKS = (scaled_inputs, doubtful_units, interventions)
