"""What an output sees of sequences and images, and whether what decides lies outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines
from corollary.diagnose.exam import Exam
from corollary.diagnose.graphs import graph_field
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.tables import dense, graph_of, statistics, tokens, vocabulary
from corollary.diagnose.trace import sensitivity

__all__ = ["parts_score", "receptive_field"]


def parts_score(exam: Exam, steps: Iterable[int]) -> float:
    """Return what simple models gain from some positions of a sequence or columns of an image only."""
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
    chosen = torch.as_tensor(list(steps))
    rows = torch.as_tensor(base.problem.rows)
    if x.ndim == 2 and not x.is_floating_point():
        ids = x[rows][:, chosen].cpu().numpy()
        table = tokens(ids, vocabulary(x.cpu().numpy().ravel()))
    elif x.ndim == 3:
        part = x[rows].movedim(1, 2) if exam.steps_last else x[rows]
        steps_ = dense(part[:, chosen])
        table = np.concatenate([steps_.reshape(len(steps_), -1)[:, :400], statistics(steps_)], 1)
    elif x.ndim == 2:
        table = dense(x[rows][:, chosen])
    else:
        return float("nan")
    return baselines(Problem(table, base.problem.y, base.problem.classes, base.problem.rows), None, 30).gain


def receptive_field(exam: Exam) -> None:
    """Outputs that do not see what decides."""
    s = exam.subject
    if s.net is None or exam.trace is None or exam.fine:
        return
    x = s.train.x
    graph = graph_of(s.train)
    if graph is not None:
        graph_field(exam, graph)
        return
    if not isinstance(x, Tensor) or s.train.whole:
        return
    y = s.train.y
    if isinstance(y, Tensor) and y.ndim >= 2:
        numbers = s.task == "regression" and y.shape == x.shape[: y.ndim] and _has_convolution(exam)
        if (s.task == "classes" and not y.is_floating_point()) or numbers:
            _field_of_positions(exam)
            return
    if x.ndim not in (2, 3, 4) or (x.ndim == 2 and x.is_floating_point() and not _has_convolution(exam)):
        return
    rows = s.train if s.train.n <= 128 else s.train.take(np.arange(128))
    found = sensitivity(s, s.net, rows)
    if found is None:
        return
    g = found[1].float().abs()
    if x.ndim <= 3 and g.ndim == 3:
        seen = g.amax((0, 1) if exam.steps_last else (0, 2)).cpu().numpy()
    elif g.ndim == 2:
        seen = g.amax(0).cpu().numpy()
    else:
        seen = None
    if seen is not None and len(seen) >= 4:
        blind = np.flatnonzero(seen <= 1e-9 * seen.max())
        exam.facts["positions seen"] = [int(len(seen) - len(blind)), len(seen)]
        if 0.1 * len(seen) <= len(blind) < len(seen):
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
                return


def _has_convolution(exam: Exam) -> bool:
    return exam.trace is not None and any(c.name.startswith("conv") for c in exam.trace.calls)


def _field_of_positions(exam: Exam) -> None:
    """Where every position has a class: windows as wide as the field, against wider ones."""
    s = exam.subject
    x, y = s.train.x, s.train.y
    rows = s.train.take(np.arange(min(8, s.train.n)))
    if y.ndim == 2 and x.shape[1] == y.shape[1]:
        field = _field_1d(exam, rows)
        if field is None:
            return
        exam.facts["receptive field"] = field
        narrow, wide = (
            _window_score(exam, field),
            _window_score(
                exam,
                (max(field[0], 1) * 4 + 4, max(field[1], 1) * 4 + 4)
                if field[1]
                else (max(field[0], 1) * 4 + 8, 0),
            ),
        )
        exam.facts["window scores"] = [narrow, wide]
        if np.isfinite(wide) and wide > narrow + 0.08 and narrow < 0.85:
            said = (
                f"a position sees {field[0]} steps back and {field[1]} ahead; simple models gain {narrow:.2f} "
                f"from those and {wide:.2f} from more"
            )
            exam.find("receptive-field-too-small", sum(field) + 1, said, where="output", sure=0.9)


def _field_1d(exam: Exam, rows: Any) -> tuple[int, int] | None:
    s = exam.subject
    net = s.twin().eval()
    at = rows.x.shape[1] // 2
    with quiet(net), torch.no_grad():
        base = main_output(s.call(net, rows))
        if base.shape[1] != rows.x.shape[1]:
            base = base.movedim(1, -1)
        if base.ndim < 2 or base.shape[1] != rows.x.shape[1]:
            return None
        seen = []
        steps = rows.x.shape[1]
        for j in range(steps):
            x = rows.x.clone()
            x[:, j] = x[:, j].roll(1, 0) if x.is_floating_point() else x[:, j].roll(1, 0)
            if torch.equal(x, rows.x):
                continue
            out = main_output(s.call(net, rows.replaced(x)))
            out = out if out.shape[1] == steps else out.movedim(1, -1)
            if float((out[:, at] - base[:, at]).abs().max()) > 1e-6 * float(base.abs().max()):
                seen.append(j - at)
    return (-min(seen + [0]), max(seen + [0])) if seen else (0, 0)


def _window_score(exam: Exam, field: tuple[int, int]) -> float:
    """Return what trees gain from windows of inputs around positions."""
    s = exam.subject
    x, y = s.train.x.cpu(), s.train.y.cpu()
    back, ahead = field
    rng = np.random.default_rng(0)
    n, steps = y.shape
    back, ahead = min(back, steps - 1), min(ahead, steps - 1)
    counted = np.argwhere((y != -100).numpy())
    pick = counted[rng.choice(len(counted), min(1500, len(counted)), replace=False)]
    offsets = np.arange(-back, ahead + 1)
    where = pick[:, 1][:, None] + offsets[None]
    inside = (where >= 0) & (where < steps)
    values = x.float().numpy() if x.ndim == 3 else x.float().numpy()[..., None]
    table = np.where(inside[..., None], values[pick[:, 0][:, None], where.clip(0, steps - 1)], -1.0).reshape(
        len(pick), -1
    )
    target = y.numpy()[pick[:, 0], pick[:, 1]]
    return baselines(Problem(table, target, s.task == "classes", pick[:, 0]), None, 40).gain
