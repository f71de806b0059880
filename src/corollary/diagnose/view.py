"""What an output sees of sequences and images, and whether what decides lies outside."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines
from corollary.diagnose.exam import Exam
from corollary.diagnose.graphs import graph_field
from corollary.diagnose.positions import places, view_of_places
from corollary.diagnose.tables import (
    DIRECTIONS,
    WIDE,
    dense,
    graph_of,
    main_directions,
    statistics,
    tokens,
    vocabulary,
)
from corollary.diagnose.trace import sensitivity

__all__ = ["parts_score", "receptive_field"]

RECURRENT = ("rnn_tanh", "rnn_relu", "lstm", "gru")
HALF = 0.5  # of what is possible: of places, of which simple models may see too little, less than that is not fine


def parts_score(exam: Exam, steps: Iterable[int]) -> float:
    """Return what simple models gain from some positions of a sequence or pixels of an image only."""
    s = exam.subject
    x, y = s.train.x, s.train.y
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.ndim < 2:
        return float("nan")
    base = exam.baselines
    if (
        base is None
        or not len(base.problem.rows)
        or len(np.unique(base.problem.rows)) < len(base.problem.rows)
    ):
        return float("nan")
    table = _part(x[torch.as_tensor(base.problem.rows)], torch.as_tensor(list(steps)), exam.steps_last)
    if table is None:
        return float("nan")
    return baselines(Problem(table, base.problem.y, base.problem.classes, base.problem.rows), None, 30).gain


def _part(x: Tensor, chosen: Tensor, steps_last: bool) -> np.ndarray | None:
    """Return some positions as a table."""
    if x.ndim == 2 and not x.is_floating_point():
        return tokens(x[:, chosen].cpu().numpy(), vocabulary(x.cpu().numpy().ravel()))
    if x.ndim == 2:
        return dense(x[:, chosen])
    if x.ndim == 3:
        steps = dense((x.movedim(1, 2) if steps_last else x)[:, chosen])
        return np.concatenate([steps.reshape(len(steps), -1)[:, :400], statistics(steps)], 1)
    if x.ndim == 4:
        pixels = dense(x.flatten(2)[:, :, chosen])
        flat = pixels.reshape(len(pixels), -1)
        if flat.shape[1] > WIDE:
            mean, Q = main_directions(flat, DIRECTIONS)
            flat = (flat - mean) @ Q
        return np.concatenate([flat, pixels.mean(2), pixels.std(2), pixels.max(2)], 1)
    return None


def receptive_field(exam: Exam) -> None:
    """Outputs that do not see what decides."""
    s = exam.subject
    if s.net is None or exam.trace is None or (exam.fine and exam.gain > HALF):
        return
    x, y = s.train.x, s.train.y
    graph = graph_of(s.train)
    if graph is not None:
        if not exam.fine:
            graph_field(exam, graph)
        return
    if not isinstance(x, Tensor) or s.train.whole or x.ndim not in (2, 3, 4):
        return
    if x.ndim == 2 and x.is_floating_point() and not _has_convolution(exam):
        return  # the columns of a table
    found = places(exam)
    if found is not None:
        view_of_places(exam, found)
    elif not exam.fine and not (isinstance(y, Tensor) and y.ndim >= 2 and not y.is_floating_point()):
        if not any(c.name in RECURRENT for c in exam.trace.calls):  # what these forget they have seen
            _blind(exam)


def _blind(exam: Exam) -> None:
    """Positions without any effect on the answer that say more about it than the others."""
    seen = _effects(exam)
    if seen is None or len(seen) < 4:
        return
    blind = np.flatnonzero(seen <= 1e-9 * seen.max())
    exam.facts["positions seen"] = [int(len(seen) - len(blind)), len(seen)]
    if not 0.1 * len(seen) <= len(blind) < len(seen):
        return
    hidden = parts_score(exam, blind)
    visible = parts_score(exam, np.setdiff1d(np.arange(len(seen)), blind))
    exam.facts["blind and seen"] = [hidden, visible]
    if np.isfinite(hidden) and hidden > 0.15 and hidden > visible + 0.05:
        said = (
            f"{len(blind)} of {len(seen)} positions have no effect on the output, and say more about the target "
            f"({hidden:.2f}) than those that do ({visible:.2f})"
        )
        where = f"positions {blind[:10].tolist()}"
        exam.find("receptive-field-too-small", len(seen) - len(blind), said, where=where, sure=0.95)


def _effects(exam: Exam) -> np.ndarray | None:
    """Return the size of the derivative of the output by every position: a step, a word or a pixel."""
    s = exam.subject
    found = sensitivity(s, s.net, s.train.first(128))
    if found is None:
        return None
    g = found[1].float().abs()
    if g.ndim == 2:
        return g.amax(0).cpu().numpy()
    if g.ndim == 3:
        return g.amax((0, 1) if exam.steps_last and s.train.x.ndim == 3 else (0, 2)).cpu().numpy()
    return g.amax((0, 1)).flatten().cpu().numpy() if g.ndim == 4 else None


def _has_convolution(exam: Exam) -> bool:
    return exam.trace is not None and any(c.name.startswith("conv") for c in exam.trace.calls)
