"""Faults of a descent whose settings are known: one is changed at a time, and the weights and the history speak too."""

from __future__ import annotations

import math

import numpy as np

from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.trials import GOOD, Room, Trials, dropout_rate, say
from corollary.diagnose.weights import State

__all__ = ["GOOD", "Trials", "abnormal", "with_settings"]

ODD = 0.5  # decades (or their like) beyond the usual from which a setting is a suspect by itself


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


def oscillation(losses: np.ndarray) -> tuple[float, float]:
    """Return how much a loss goes up on its way, over its level, and its end over its least value."""
    losses = losses[np.isfinite(losses)]
    if len(losses) < 4:
        return 0.0, 1.0
    half = losses[len(losses) // 2 :]
    ups = np.clip(np.diff(half), 0, None).mean() / max(1e-12, np.abs(half).mean())
    return float(ups), float(losses[-1] / max(1e-12, losses.min()))


def with_settings(exam: Exam, trials: Trials, room: Room, state: State) -> None:
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
        strange = odd.get(cause, -1.0)
        helped = room.matters(runs[cause], 0.25)
        if cause == large and strange <= 0:  # a usual rate is to blame for more than a little only
            helped = helped and room.loss - runs[cause].loss > 0.15 * room.scale
        vote = gain + 0.8 * max(strange, -0.5)
        votes[cause] = vote if (helped and gain > 0.12) or (strange > 0.9 and gain > 0.05) else -1.0
    _shape_votes(exam, votes, gains, state, room, ups, rise, odd, fine, control, runs)
    exam.facts["votes"] = votes
    best = max(votes, key=lambda c: votes[c])
    if votes[best] > 0.25:
        say(exam, best, votes[best], gains.get(best, 0.0), room, runs.get(best), control)
        if room.matters(runs[best], 0.25) and _closes(room, runs[best], trials) > 0.6:
            _demote(exam)
            if best in ("dropout-too-large", "weight-decay-too-large") and "vanishing-gradient" in exam.sure:
                exam.sure["vanishing-gradient"] = 0.5  # the gradient suffices as soon as that is gone
        if best == "weight-decay-too-large" and odd.get("dropout-too-large", -1.0) > ODD:
            _dropout_too(exam, trials, room)
        second = sorted(votes, key=lambda c: -votes[c])[1:2]
        for c in second:
            if votes[c] > 0.8 and odd.get(c, -1) > 0.5:
                say(exam, c, votes[c], gains.get(c, 0.0), room, runs.get(c), control, sure=0.6)


def _dropout_too(exam: Exam, trials: Trials, room: Room) -> None:
    """Whether dropout hinders as well: from weights that decay has shrunk no run tells, so both begin anew without it."""
    start = "initial" if exam.subject.initial is not None else "new"
    kept = trials.run("anew without decay", start, weight_decay=0.0)
    none = trials.run("anew without decay and dropout", start, weight_decay=0.0, dropout=0.0)
    if math.isfinite(kept.loss) and none.loss < 0.7 * kept.loss:
        say(exam, "dropout-too-large", 1.0, 0.0, room, none, kept)


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
                if not gained > 0.2 * constant:  # what is left is little beside what was learned
                    votes[c] = -1.0
        if odd.get("dropout-too-large", 1.0) < 0.1:  # a usual share, in a model that does what it should
            votes["dropout-too-large"] = -1.0


def _demote(exam: Exam) -> None:
    """Doubt faults of units that learn from where they are as soon as one setting is changed: they are its consequence."""
    for cause, began in (("dead-units", "dead at the start"), ("saturated-units", "saturated at the start")):
        if cause in exam.sure and not (exam.facts.get(began) or 0.0) > 0.3:
            exam.sure[cause] = min(exam.sure[cause], 0.5)
