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

from corollary.diagnose.baselines import score_of
from corollary.diagnose.samples import IGNORED

if TYPE_CHECKING:
    from corollary.diagnose.exam import Exam

__all__ = ["lead", "standard_error"]

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
    if s.task != "regression" or exam.baselines is None or exam.reader.target is None or s.criterion.custom:
        return 0.0
    score = exam.performance.get(f"{part} score", math.nan)
    if not math.isfinite(score):
        return 0.0
    said, true = (t.float().reshape(len(t), -1).numpy() for t in exam.answers(part))
    if said.shape != true.shape:
        return 0.0
    said, true = said[(true != IGNORED).all(1)], true[(true != IGNORED).all(1)]
    return score_of(exam.reader.one_target(said), exam.reader.one_target(true), None) - score
