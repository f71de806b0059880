r"""Where every place of a sequence or an image has a target of its own: what the output there sees, and what it should.

The field of an output is measured, not derived: one line of places after the other is exchanged among rows, and those that
change the output in the middle are inside. With :math:`x_{p + o}` the input at offset :math:`o` from place :math:`p`, simple
models are fitted to windows as large as the field, :math:`F_0`, and to larger ones,

.. math:: y_p \approx f(x_{p + o} : o \in F_i), \qquad F_0 \subset F_1 \subset \dots \tag{1}

and scored at places of other samples. What larger windows gain, the net cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import IGNORED, Samples, main_output
from corollary.diagnose.subject import quiet

__all__ = ["Places", "places", "view_of_places"]

MORE = 0.08  # of what is possible, that larger windows gain
ENOUGH = 0.85  # of what is possible, from which the field holds what decides
LOOKED_AT = 128  # lines of places along a side
FITTED, HELD = 2000, 1200  # places that simple models are fitted to and scored at
NUMBERS = 800  # of a window
LEAST = 6  # samples, so that some can be held out

Reach = tuple[tuple[int, int], ...]  # how far back and ahead, along each side


class Places(NamedTuple):
    """Inputs (n, *sides, features) and targets (n, *sides) of places, and whether the targets are classes."""

    x: Tensor
    y: Tensor
    classes: bool

    @property
    def sides(self) -> tuple[int, ...]:
        """How many places there are along each side."""
        return tuple(self.y.shape[1:])


def places(exam: Exam) -> Places | None:
    """Return the places of the training samples, where each has a target of its own; None otherwise."""
    s = exam.subject
    x, y = s.train.x, s.train.y
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or s.train.whole or x.ndim not in (2, 3, 4):
        return None
    x = _features_last(x, exam.steps_last)
    target = _per_place(y, tuple(x.shape[1:-1]), s.task)
    if target is None or max(target.shape[1:]) < 5 or len(x) < LEAST:
        return None
    return Places(x.detach().float().cpu(), target.detach().cpu(), s.task != "regression")


def _features_last(x: Tensor, steps_last: bool) -> Tensor:
    if x.ndim == 2:
        return x[..., None]
    return x.movedim(1, -1) if x.ndim == 4 or steps_last else x


def _per_place(y: Tensor, sides: tuple[int, ...], task: str) -> Tensor | None:
    """Return one target per place: of several numbers the one that varies most, of indicators the class."""
    if task not in ("classes", "binary", "multilabel", "regression"):
        return None
    if tuple(y.shape[1:]) == sides:
        return y
    if not y.is_floating_point() or y.ndim != len(sides) + 2:
        return None
    if tuple(y.shape[2:]) == sides:
        y = y.movedim(1, -1)
    if tuple(y.shape[1:-1]) != sides:
        return None
    if task == "classes":
        return y.argmax(-1)
    return y[..., int(y.reshape(-1, y.shape[-1]).std(0).argmax())]


# --- what an output sees ---------------------------------------------------------------------------------


def field(exam: Exam, sides: tuple[int, ...]) -> Reach | None:
    """Return how far back and ahead the output in the middle sees along each side; None where it has no such places."""
    s = exam.subject
    net, rows = s.twin().eval(), s.train.first(8)
    first = rows.x.ndim - len(sides) if rows.x.ndim == 4 or exam.steps_last else 1  # where the sides begin
    with torch.no_grad(), quiet(net):
        base = _middle(s.call(net, rows), sides)
        if base is None:
            return None
        slack = 1e-6 * float(base.abs().max())
        found = []
        for axis, side in enumerate(sides):
            seen = [0]
            for j in range(0, side, math.ceil(side / LOOKED_AT)):
                out = _middle(s.call(net, _exchanged(rows, first + axis, j)), sides)
                if out is not None and float((out - base).abs().max()) > slack:
                    seen.append(j - side // 2)
            found.append((-min(seen), max(seen)))
    return tuple(found)


def _exchanged(rows: Samples, dim: int, j: int) -> Samples:
    """Return samples of which one line of places comes from other rows."""
    x = rows.x.clone()
    x.select(dim, j).copy_(rows.x.select(dim, j).roll(1, 0))
    return rows.replaced(x)


def _middle(out: Any, sides: tuple[int, ...]) -> Tensor | None:
    """Return the output at the place in the middle."""
    z = main_output(out).float()
    first = 2 if tuple(z.shape[2:]) == sides else 1
    if tuple(z.shape[first : first + len(sides)]) != sides:
        return None
    for side in sides:
        z = z.select(first, side // 2)
    return z


# --- what the data need ----------------------------------------------------------------------------------


def view_of_places(exam: Exam, found: Places) -> None:
    """Compare windows as large as the field with larger ones."""
    reach = field(exam, found.sides)
    if reach is None:
        return
    exam.facts["receptive field"] = reach
    one_way = any((back == 0) != (ahead == 0) for back, ahead in reach)
    if (len(reach) == 2 and one_way) or _sees_all(reach, found.sides):
        return  # of an image drawn pixel by pixel a window would hold what is not to be seen
    larger = list(_wider(reach, found))
    if not larger:
        return
    drawn = _drawn(found)
    narrow = _score(found, reach, drawn)
    mine = exam.gain if math.isfinite(exam.gain) else 0.0
    exam.facts["window scores"] = scores = [narrow]
    for wider in larger:
        scores.append(_score(found, wider, drawn))
        if narrow < ENOUGH and scores[-1] > max(narrow, mine) + max(MORE, 2 * _error(found, drawn)):
            _say(exam, reach, scores)
            return


def _sees_all(reach: Reach, sides: tuple[int, ...]) -> bool:
    """Whether the output in the middle sees nearly everything, or everything on its side."""
    return all(max(pair) >= 0.9 * (side - 1) // 2 for pair, side in zip(reach, sides))


def _say(exam: Exam, reach: Reach, scores: list[float]) -> None:
    told = " and ".join(f"{back} back and {ahead} ahead" for back, ahead in reach)
    said = f"a place sees {told}; simple models gain {scores[0]:.2f} from that and {scores[-1]:.2f} from larger windows"
    size = min(back + ahead + 1 for back, ahead in reach)
    exam.find("receptive-field-too-small", size, said, where="output", sure=0.9)
    if "class-imbalance" in exam.sure:
        exam.sure["class-imbalance"] = 0.5  # what finds the rare class saw more than the net


def _wider(reach: Reach, found: Places) -> Iterator[Reach]:
    """Yield ever larger reaches; who looks one way only is made to."""
    most = found.sides
    if len(most) == 2:
        room = int((math.sqrt(NUMBERS / found.x.shape[-1]) - 1) / 2)
        most = tuple(min(side, room) for side in most)
    before = reach
    for factor, more in ((2, 3), (4, 8), (16, 32)):
        wider = tuple(
            tuple(
                max(own, min(limit, factor * own + more)) if own or not other else 0
                for own, other in (pair, pair[::-1])
            )
            for pair, limit in zip(reach, most)
        )
        if wider != before:
            yield wider  # type: ignore[misc]
        before = wider  # type: ignore[assignment]


def _drawn(found: Places) -> tuple[np.ndarray, np.ndarray]:
    """Return places to fit and places to score at, of different samples, as rows of indices."""
    rng = np.random.default_rng(0)
    counted = np.argwhere((found.y != IGNORED).numpy())
    held = np.isin(counted[:, 0], rng.permutation(len(found.y))[: max(1, len(found.y) * 3 // 10)])
    parts = (counted[~held], FITTED), (counted[held], HELD)
    return tuple(part[rng.permutation(len(part))[:most]] for part, most in parts)  # type: ignore[return-value]


def _score(found: Places, reach: Reach, drawn: tuple[np.ndarray, np.ndarray]) -> float:
    """Return what simple models gain from windows, eq. 1."""
    fitted, held = (
        Problem(windows(found, at, reach), found.y.numpy()[tuple(at.T)], found.classes, at[:, 0])
        for at in drawn
    )
    made = baselines(fitted, held, 40)
    return (made.valid_score - made.chance) / max(1e-9, 1 - made.chance)


def _error(found: Places, drawn: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the standard error of a gain."""
    y = found.y.numpy()[tuple(drawn[1].T)]
    if not found.classes:
        return math.sqrt(1 / len(y))
    chance = float(np.unique(y, return_counts=True)[1].max() / len(y))
    return math.sqrt(chance / max(1e-9, (1 - chance) * len(y)))


def windows(found: Places, at: np.ndarray, reach: Reach) -> np.ndarray:
    """Return the inputs around places and where these are; what lies outside of a sample is zero."""
    pads = [n for pair in reversed(reach) for n in pair]
    x = F.pad(found.x, (0, 0, *pads)).numpy()
    d = len(reach)
    index = [at[:, 0].reshape(-1, *[1] * d)]
    for axis, (back, ahead) in enumerate(reach):
        offsets = np.arange(back + ahead + 1).reshape(*[-1 if i == axis else 1 for i in range(d)])
        index.append(at[:, 1 + axis].reshape(-1, *[1] * d) + offsets)
    return np.concatenate([x[tuple(index)].reshape(len(at), -1), at[:, 1:]], 1)
