"""Samples whose places, steps or pixels or words, have a target each, and what lies around a place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from corollary.diagnose.words import Words

__all__ = ["Places", "Reach", "answers_last", "places_of", "windows", "words_around"]

Reach = tuple[tuple[int, int], ...]  # how far back and ahead, along each side


class Places(NamedTuple):
    """Inputs (n, *sides, features) and targets (n, *sides) of places, whether these are classes, and the former words."""

    x: Tensor
    y: Tensor
    classes: bool
    words: bool = False

    @property
    def sides(self) -> tuple[int, ...]:
        """How many places there are along each side."""
        return tuple(self.y.shape[1:])


def _are_words(x: Tensor) -> bool:
    """Whether inputs are numbers of words, one per step."""
    return x.ndim == 2 and not x.is_floating_point() and int(x.max()) > 1


def _features_last(x: Tensor, steps_last: bool) -> Tensor:
    """Return inputs as (n, *sides, features)."""
    if x.ndim == 2:
        return x[..., None]
    return x.movedim(1, -1) if x.ndim == 4 or steps_last else x


def places_of(x: Tensor, y: Tensor, task: str, steps_last: bool) -> Places | None:
    """Return the places of inputs, where each has a target of its own; None otherwise."""
    if x.ndim not in (2, 3, 4):
        return None
    words, x = _are_words(x), _features_last(x, steps_last)
    target = _per_place(y, tuple(x.shape[1:-1]), task)
    return None if target is None else Places(x.float(), target, task != "regression", words)


def _per_place(y: Tensor, sides: tuple[int, ...], task: str) -> Tensor | None:
    """Return one target per place: of several numbers the one that varies most, of indicators the class."""
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


def answers_last(z: Tensor, sides: tuple[int, ...]) -> Tensor | None:
    """Return outputs as (n, *sides, answers); None where they have none per place."""
    if tuple(z.shape[1:]) == sides:
        return z[..., None]
    z = z.movedim(1, -1) if tuple(z.shape[2:]) == sides else z
    return z if tuple(z.shape[1:-1]) == sides else None


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


def words_around(found: Places, at: np.ndarray, reach: Reach) -> Words | None:
    """Return the words around places, of texts."""
    if not (found.words and found.classes):
        return None
    y = found.y.round().long().numpy()
    back, ahead = reach[0]
    return Words(found.x[..., 0].long().numpy(), y, at, range(-back, ahead + 1))
