r"""Faults of the descent, found by intervention: copies are trained on with one setting changed, and one with none.

With :math:`L_0` the loss after some steps as the user trains and :math:`L_c` after the same steps with the change :math:`c`,
the gain of a change is :math:`\log (L_0 / L_c)`. Where settings are unknown, the weights tell of them: hardly moved from where
torch draws them, collapsed, or far away.
"""

from __future__ import annotations

import math

import numpy as np

from corollary.diagnose.descent import abnormal, with_settings
from corollary.diagnose.exam import Exam
from corollary.diagnose.inferred import without_settings
from corollary.diagnose.trials import Room, Trials
from corollary.diagnose.weights import weights_state

__all__ = ["interventions"]


ENDED = 1e-2  # of the rate, below which a schedule has ended the descent


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
    room = Room(now, now_score, now_valid, now_valid_score, exam.constant_loss)
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
    if s.settings.learning_rate is not None:
        with_settings(exam, trials, room, state)
    else:
        without_settings(exam, trials, room, state)


def _ended_early(exam: Exam, trials: Trials, room: Room) -> bool:
    """Whether a schedule has ended the descent far above what the rate that it began with still reaches."""
    constant = room.scale
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
