r"""Where every place of a sequence or an image has a target of its own: what the output there sees, and what it should.

The field of an output is measured, not derived: one line of places after the other is exchanged among rows, and those that
change the output in the middle are inside. With :math:`x_{p + o}` the input at offset :math:`o` from place :math:`p`, simple
models are fitted to windows as large as the field, :math:`F_0`, and to larger ones,

.. math:: y_p \approx f(x_{p + o} : o \in F_i), \qquad F_0 \subset F_1 \subset \dots \tag{1}

and scored at places of other samples, of validation where there is one. What larger windows gain, the net cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import IGNORED, Samples, main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.windows import (
    Places,
    Reach,
    answers_last,
    places_of,
    windows,
    words_around,
)

__all__ = ["field", "places", "view_of_places"]

MORE = 0.08  # of what is possible, that larger windows gain
ENOUGH = 0.85  # of what is possible, from which the field holds what decides
LOOKED_AT = 128  # lines of places along a side
FITTED, HELD = 2000, 1200  # places that simple models are fitted to and scored at
NUMBERS = 800  # of a window
LEAST = 6  # samples, so that some can be held out

Drawn = tuple[Places, np.ndarray]  # places of samples, and those of them that are looked at


def places(exam: Exam, samples: Samples | None = None) -> Places | None:
    """Return the places of samples, of training if not told, where each has a target of its own; None otherwise."""
    s, samples = exam.subject, samples or exam.subject.train
    x, y = samples.x, samples.y
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or samples.whole:
        return None
    if s.task not in ("classes", "binary", "multilabel", "regression"):
        return None
    found = places_of(x.detach().cpu(), y.detach().cpu(), s.task, exam.steps_last)
    return None if found is None or max(found.sides) < 5 or len(x) < LEAST else found


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
    z = answers_last(main_output(out).float(), sides)
    for side in sides if z is not None else ():
        z = z.select(1, side // 2)
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
    drawn = _drawn(found, None if exam.subject.valid is None else places(exam, exam.subject.valid))
    narrow = _score(drawn, reach)
    mine = exam.gain if math.isfinite(exam.gain) else 0.0
    exam.facts["window scores"] = scores = [narrow]
    for wider in larger:
        scores.append(_score(drawn, wider))
        if narrow < ENOUGH and scores[-1] > max(narrow, mine) + max(MORE, 2 * _error(drawn[1])):
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


def _drawn(found: Places, other: Places | None) -> tuple[Drawn, Drawn]:
    """Return places to fit and places to score at: those of validation, or else of samples held out."""
    rng = np.random.default_rng(0)
    if other is None:
        held = np.isin(
            np.arange(len(found.y)), rng.permutation(len(found.y))[: max(1, len(found.y) * 3 // 10)]
        )
        found, other = _part(found, ~held), _part(found, held)
    return _some(found, FITTED, rng), _some(other, HELD, rng)


def _part(found: Places, rows: np.ndarray) -> Places:
    return found._replace(x=found.x[torch.from_numpy(rows)], y=found.y[torch.from_numpy(rows)])


def _some(found: Places, most: int, rng: np.random.Generator) -> Drawn:
    counted = np.argwhere((found.y != IGNORED).numpy())
    return found, counted[rng.permutation(len(counted))[:most]]


def _score(drawn: tuple[Drawn, Drawn], reach: Reach) -> float:
    """Return what simple models gain from windows, eq. 1."""
    fitted, held = (_problem(found, at, reach) for found, at in drawn)
    return baselines(fitted, held, 40).reached


def _problem(found: Places, at: np.ndarray, reach: Reach) -> Problem:
    y = found.y.numpy()[tuple(at.T)]
    words = words_around(found, at, reach)
    return Problem(windows(found, at, reach), y, found.classes, at[:, 0], at[:, 1:], words)


def _error(drawn: Drawn) -> float:
    """Return the standard error of a gain."""
    found, at = drawn
    y = found.y.numpy()[tuple(at.T)]
    if not found.classes:
        return math.sqrt(1 / len(y))
    chance = float(np.unique(y, return_counts=True)[1].max() / len(y))
    return math.sqrt(chance / max(1e-9, (1 - chance) * len(y)))
