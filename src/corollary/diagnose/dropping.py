"""Dropout that a model bears, but that keeps it far from as sure as its answers deserve."""

from __future__ import annotations

import math

from corollary.diagnose.exam import Exam
from corollary.diagnose.trials import Room, dropout_rate, say

__all__ = ["dropped"]

MOST = 0.6  # of the units; more are hardly ever meant to be dropped
HALF = 0.5  # of the loss: what dropout costs beside the same run with it, once it is most of the loss


def dropped(exam: Exam) -> None:
    """Most units are dropped, and without that the loss falls far more than with it, on held-out rows too.

    The mean over what dropout leaves of a layer has a variance of :math:`p / (1 - p)` times that of its units over their
    number. Where that is more than what tells the answers apart, small weights are the best there are.
    """
    s, trials = exam.subject, exam.facts.get("trials")
    good = None if trials is None else trials.lab.runs.get("good")
    if good is None or s.settings.learning_rate is not None or exam.has("dropout-too-large"):
        return
    loss, score, held_loss, held_score = exam.facts["now"]
    room = Room(loss, score, held_loss, held_score, exam.constant_loss)
    if dropout_rate(exam) < MOST or not room.matters(good, HALF):
        return
    kept = trials.good("good, dropout kept", dropout=None)
    held = not math.isfinite(good.valid_loss) or good.valid_loss < HALF * kept.valid_loss
    if good.loss < HALF * kept.loss and held:
        say(exam, "dropout-too-large", 1.0, room, good, kept)
