"""Faults of a descent whose settings are not known: the weights tell of them, and what a good descent gains."""

from __future__ import annotations

import math

import torch

from corollary.diagnose.calibration import temperature
from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.samples import main_output, with_main
from corollary.diagnose.subject import quiet
from corollary.diagnose.trials import GOOD, Room, Trials, dropout_rate, say
from corollary.diagnose.weights import State

__all__ = ["without_settings"]

TINY = 4.0  # rows of a batch, by its statistics
SMALL = 8  # rows of a batch from which they are many enough
LEFT = 0.05  # of the loss of a constant answer: below it there is nothing to gain
SOFT = 0.5  # temperature that a training has not ended at
BETTER = 0.03  # of the score, from which answers have got better


def without_settings(exam: Exam, trials: Trials, room: Room, state: State) -> None:
    """Infer the settings from the weights, the dropout that is there, and what a good descent gains."""
    good = trials.lab.runs["good"]
    fine = room.well(exam)
    if _too_much_dropout(exam, trials, room, good, fine):
        return
    run, stuck = good, False
    if not room.matters(good, 0.3) and not fine and room.loss > LEFT * room.scale:
        run, stuck = _that_helps(trials, room)
    helped = run is not None and (stuck or room.matters(run, 0.3))
    exam.facts["helped"] = helped
    if run is None or not helped or _too_sure_only(exam, room, run):
        return
    votes = _votes(exam, room, state, stuck)
    if exam.facts.get("too soft") and run.score <= room.score + BETTER:
        votes["learning-rate-too-large"] = 0.0  # large steps end with large logits, not with too small ones
    votes["batch-too-small"] += _batch_vote(exam, trials)
    exam.facts["votes"] = votes
    best = max(votes, key=lambda c: votes[c])
    little = not room.loss - run.loss > 0.15 * room.scale  # is left beside what was learned
    plain = best in ("weight-decay-too-large", "batch-too-small") and votes[best] >= 1
    if votes[best] < 0.5 or (fine and little and not plain):
        return
    say(exam, best, votes[best], room, run, None, sure=0.75)
    if best == "weight-decay-too-large" and state.decayed > 0.6 and "vanishing-gradient" in exam.sure:
        exam.sure["vanishing-gradient"] = 0.5  # the loss pulls against a decay that has shrunk the weights


def _too_sure_only(exam: Exam, room: Room, run: Result) -> bool:
    """Whether a better descent mends confidence: one temperature does as much, or nearly so where no answer gets better."""
    s = exam.subject
    logits = s.criterion.name in ("cross_entropy", "bce_with_logits")
    if not logits or s.task == "multilabel" or s.train.whole:
        return False
    z, y = main_output(s.output).detach(), s.train.y
    T = temperature(z, y, s.task)
    with torch.no_grad():
        fall = float(s.criterion(s.output, y)) - float(s.criterion(with_main(s.output, z / T), y))
    exam.facts["fall of the loss by a temperature"] = fall
    exam.facts["too soft"] = T < SOFT and fall > room.loss - run.loss
    share = 1.0 if run.score > room.score + BETTER else 0.6
    return T > 1.2 and (fall > share * (room.loss - run.loss) or _mends_new_rows(exam, room, run, T))


def _mends_new_rows(exam: Exam, room: Room, run: Result, T: float) -> bool:
    """Whether no validation answer gets better by the run, and their loss falls far more by the temperature."""
    s = exam.subject
    if s.valid is None or not math.isfinite(run.valid_loss) or run.valid_score > room.valid_score + BETTER:
        return False
    with torch.no_grad(), quiet(s.net):
        out = s.call(s.net.eval(), s.valid)
        cooler = float(s.criterion(with_main(out, main_output(out) / T), s.target(s.valid)))
    return room.valid_loss - cooler > 2 * max(0.0, room.valid_loss - run.valid_loss)


def _batch_vote(exam: Exam, trials: Trials) -> float:
    """Return what speaks for batches that are known to be small: their own number of rows beside a usual one, all else good."""
    size = exam.subject.settings.batch_size
    if size is None or size > SMALL:
        return 0.0
    with_it = trials.good("good, own batches", batch_size=size)
    return 2.0 if trials.lab.runs["good"].loss < 0.8 * with_it.loss else 0.0


def _too_much_dropout(exam: Exam, trials: Trials, room: Room, good: Result, fine: bool) -> bool:
    p = dropout_rate(exam)
    if p < 0.6 or fine:
        return False
    with_it = trials.good("good, dropout kept", dropout=None) if p < 0.9 else None
    if with_it is not None and not good.loss < 0.8 * with_it.loss:
        return False
    say(exam, "dropout-too-large", 1.0, room, good, with_it)
    return True


def _that_helps(trials: Trials, room: Room) -> tuple[Result | None, bool]:
    """Return a run that gains where a short one from here does not, and whether only new weights do: it is stuck."""
    long = {"rate": 3 * GOOD, "steps": 3 * trials.steps}
    for name, start, options in (
        ("new", "new", {"steps": int(1.5 * trials.steps)}),
        ("long", "present", long),
        ("new long", "new", long),
    ):
        run = trials.good(name, start, **options)
        if room.matters(run, 0.25 if start == "new" else 0.3):
            return run, start == "new"
    return None, False


def _votes(exam: Exam, room: Room, state: State, stuck: bool) -> dict[str, float]:
    """Return what the weights say for each setting: near where they are drawn, shrunk, or far away."""
    ratio, beyond = state.ratio, state.beyond
    small = large = decay = batch = 0.0
    if ratio < 0.7 and beyond < 0.02:
        decay += 1.0 + (0.7 - ratio)
    elif ratio < 0.85 and beyond < 0.02 and state.decayed > 0.4:  # the loss wants them longer
        decay += 1.0
    if beyond < 0.03 and 0.8 < ratio < 1.15:
        small += 1.0
    elif beyond < 0.1 and 0.8 < ratio < 1.3:
        small += 0.4 if room.loss < 0.9 * room.scale else 0.8  # of a net that has learned nothing yet
    if ratio > 2.0 or state.largest > 4:  # up to five as in many sound nets, which have learned more
        large += 1.0 if ratio > 5.0 or room.loss > 0.3 * room.scale else 0.4
    elif beyond > 0.2:
        large += 0.4
    if state.decayed > 0.6:
        decay += 0.6
    if stuck:
        large += 0.5
    if room.loss > 1.05 * room.scale:
        large += 0.5
    if max(exam.facts.get("rows of a batch by batch norm", [math.inf])) < TINY:
        batch += 2.0
    return {
        "learning-rate-too-small": small, "learning-rate-too-large": large, "weight-decay-too-large": decay,
        "batch-too-small": batch,
    }  # fmt: skip
