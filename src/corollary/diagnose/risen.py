"""A loss that the descent itself has raised, so far that no run from there tells anything any more."""

from __future__ import annotations

from corollary.diagnose.descent import abnormal
from corollary.diagnose.exam import Exam
from corollary.diagnose.flow import far_away

__all__ = ["risen"]

WORSE = 10.0  # times the loss of a constant answer: errors three times as large, which no start on scaled data makes
UPSTREAM = (
    "unscaled-inputs",
    "unscaled-targets",
    "wrong-loss",
    "exploding-gradient",
    "overflow",
    "not-finite-data",
)


def risen(exam: Exam) -> None:
    r"""A loss far above that of a constant answer, at weights that a rate above the usual has driven far away.

    Steps of gradient descent raise the loss along every direction whose curvature is above :math:`2 / \eta`. From where
    that has led, a constant answer is all that a few steps reach at any rate, so that runs with less do not differ.
    """
    s, loss = exam.subject, exam.performance.get("train loss", 0.0)
    if s.settings.learning_rate is None or exam.has(*UPSTREAM) or not loss > WORSE * exam.constant_loss:
        return
    if far_away(exam):
        rate = s.settings.learning_rate
        said = (
            f"the training loss is {loss:.3g}, {loss / exam.constant_loss:.1e} times that of a constant answer, and the "
            f"rate {rate:g} is {abnormal(exam)['learning-rate-too-large']:.2g} decades above the usual"
        )
        exam.find(
            "learning-rate-too-large",
            rate,
            said,
            where="optimiser",
            sure=0.8,
            repair={"learning_rate": rate / 10},
        )
