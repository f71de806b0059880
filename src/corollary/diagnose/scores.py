r"""What scores may differ by, and on what they are compared.

Without each of :math:`G` groups of rows a model has the scores :math:`s_{-g}`; their spread is the standard error of its score
(the jackknife),

.. math:: \sqrt{(1 - 1/G) \sum_g (s_{-g} - \bar s)^2}, \tag{1}

be it a share of rows, of places that share a row, or of a variance in which a few errors weigh much.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.linear_model import Ridge

from corollary.diagnose.baselines import scaled, score_of
from corollary.diagnose.samples import IGNORED

if TYPE_CHECKING:
    from corollary.diagnose.exam import Exam

__all__ = ["lead", "standard_error"]

AHEAD = 0.05  # of the variance of all targets, by which a line knows more of them than the model
GROUPS = 20  # of rows, that a standard error is known from


def standard_error(exam: Exam, part: str) -> float:
    """Return eq. 1 for "train" or "valid" rows; zero where it cannot be known."""
    if exam.subject.task == "embedding" or not math.isfinite(exam.performance.get(f"{part} score", math.nan)):
        return 0.0  # rows are compared with each other, or there is no score
    z, y = exam.answers(part)
    group = torch.from_numpy(np.random.default_rng(4).permutation(len(z)) % GROUPS)
    left = [torch.nonzero(group != g)[:, 0] for g in range(GROUPS)]
    scores = np.array([exam.subject.criterion.score(z[rows], y[rows])[0] for rows in left])
    error = math.sqrt((1 - 1 / GROUPS) * float(np.square(scores - scores.mean()).sum()))
    return error if math.isfinite(error) else 0.0


def lead(exam: Exam, part: str) -> float:
    """Return what a model scores more along the one direction of several targets that simple models are asked for."""
    s = exam.subject
    if s.task != "regression" or s.criterion.custom or s.train.whole:
        return 0.0
    if exam.baselines is None or exam.reader.target is None:
        return 0.0
    score = exam.performance.get(f"{part} score", math.nan)
    if not math.isfinite(score):
        return 0.0
    said, true = (t.float().reshape(len(t), -1).numpy() for t in exam.answers(part))
    if said.shape != true.shape:
        return 0.0
    said, true = said[(true != IGNORED).all(1)], true[(true != IGNORED).all(1)]
    if _line_of_all(exam) > score + AHEAD:
        return 0.0  # what is behind in the other directions is no matter of the comparison
    return score_of(exam.reader.one_target(said), exam.reader.one_target(true), None) - score


def _line_of_all(exam: Exam) -> float:
    """Return the share of the variance of all targets together that a line explains, of new rows if there are any."""
    p, v = exam.baselines.problem, exam.baselines.valid_problem
    X, Y = scaled(p.X), exam.answers("train")[1].float().reshape(exam.subject.train.n, -1).numpy()[p.rows]
    if v is not None and v.X.shape[1] == p.X.shape[1]:
        U, W = (
            scaled(v.X, p.X),
            exam.answers("valid")[1].float().reshape(exam.subject.valid.n, -1).numpy()[v.rows],
        )
    else:
        fold = np.random.default_rng(0).permutation(len(X)) % 4 == 0
        X, U, Y, W = X[~fold], X[fold], Y[~fold], Y[fold]
    guess = Ridge(1e-2 * len(X)).fit(X, Y).predict(U).reshape(W.shape)
    return 1 - float(np.square(guess - W).mean() / np.square(W - W.mean(0)).mean())
