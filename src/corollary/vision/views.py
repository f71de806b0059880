r"""Choice of the augmentation that the data allow: which flips and shifts keep the label of an image.

Small shifts keep nearly every label. Mirroring keeps those of animals and clothes, and not those of digits or of arrows, so
the labels are asked: ridge regression on features of small random filters, fitted to one half of the images, classifies the
other half as they are and mirrored. With :math:`b` images right only as they are and :math:`c` right only mirrored (McNemar's
counts), and accuracy :math:`a` on :math:`n` images against the share :math:`p` of the commonest class, mirroring is allowed if

.. math:: b - c \le 2 \sqrt{b + c} \quad\text{and}\quad a - p > 3 \sqrt{p (1 - p) / n}: \tag{1}

mirrored images are no harder, and the features say something of the labels at all. A mask is mirrored with its image. Classes
that keep to one side forbid that: with the mean place :math:`m_k` of class :math:`k`, from -1 at one edge to 1 at the other, and
:math:`s_k` its deviation from image to image over :math:`n_k` images, mirroring is allowed if for every class

.. math:: |\bar m_k| \le \max\bigl(0.1,\; 4 s_k / \sqrt{n_k}\bigr); \tag{2}

and so do classes that look otherwise when mirrored, as digits do: ridge regression on the filters' answers around a pixel
classifies some pixels of each class, and with :math:`d_i` the share that is right in image :math:`i` less the share in its
mirror image,

.. math:: \bar d \le 2 s_d / \sqrt n. \tag{3}
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["flips_of_labels", "flips_of_masks", "shift_of"]

FLIPS = {"flip": -1, "vertical_flip": -2}  # and the axis that each turns
MOST, MOST_MASKS = 600, 120  # images that are asked, with labels and with masks
PIXELS = 8  # of each class in a mask
FILTERS, SIDE, CELLS = 64, 32, 3  # random filters, the largest side they see, and cells along it
CHUNK = 64  # images that are filtered at a time
RIDGE = 0.1


def shift_of(h: int, w: int) -> int:
    """Return how many pixels an image may be moved by: a twelfth of its shorter side.

    >>> shift_of(48, 64), shift_of(8, 8), shift_of(4, 4)
    (4, 1, 0)
    """
    return round(min(h, w) / 12)


def flips_of_labels(images: np.ndarray, codes: np.ndarray) -> dict[str, float]:
    """Return the probabilities of the flips that keep the labels of images (n, c, h, w), eq. 1."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(images))[:MOST]
    x, y = _small(images[rows]), codes[rows]
    classes, y = np.unique(y, return_inverse=True)
    if len(rows) < 20 or len(classes) < 2:
        return {}
    filters = _patches(x, rng)
    seen = [_features(x, filters), *(_features(x.flip(axis), filters) for axis in FLIPS.values())]
    plain, *flipped = _right(seen, torch.from_numpy(y), len(classes))
    share = float(np.bincount(y).max() / len(y))
    if plain.mean() - share <= 3 * (share * (1 - share) / len(y)) ** 0.5:
        return {}
    return {name: 0.5 for name, other in zip(FLIPS, flipped) if _no_harder(plain, other)}


def _no_harder(plain: np.ndarray, other: np.ndarray) -> bool:
    b, c = int((plain & ~other).sum()), int((other & ~plain).sum())
    return bool(b - c <= 2 * (b + c) ** 0.5)


def _small(images: np.ndarray) -> Tensor:
    """Return standardised images whose shorter side has at most :data:`SIDE` pixels."""
    x = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))
    factor = -(-min(x.shape[2:]) // SIDE)
    x = F.avg_pool2d(x, factor) if factor > 1 else x
    mean, deviation = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return (x - mean) / deviation.clamp(min=1e-6)


def _patches(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Return filters that are centred patches of the images, of length one."""
    n, _, h, w = x.shape
    side = min(5, h, w)
    places = zip(*(rng.integers(0, high, FILTERS) for high in (n, h - side + 1, w - side + 1)))
    found = torch.stack([x[i, :, r : r + side, c : c + side] for i, r, c in places])
    found = found - found.mean((1, 2, 3), keepdim=True)
    return F.normalize(found.flatten(1), dim=1).reshape(found.shape)


def _features(x: Tensor, filters: Tensor) -> Tensor:
    """Return how often each filter answers, either way, in each of a few cells."""
    found = []
    for part in x.split(CHUNK):
        z = F.conv2d(part, filters, stride=2 if min(x.shape[2:]) >= 16 else 1)
        cells = [F.adaptive_avg_pool2d(F.relu(sign * z - 0.5), CELLS) for sign in (1, -1)]
        found.append(torch.cat(cells, 1).flatten(1))
    return torch.cat(found)


def _right(seen: list[Tensor], y: Tensor, n_classes: int, even: Tensor | None = None) -> list[np.ndarray]:
    """Return which rows ridge regression on the other half's features classifies rightly, for each view."""
    right = np.zeros((len(seen), len(y)), bool)
    even = torch.arange(len(y)) % 2 == 0 if even is None else even
    target = F.one_hot(y, n_classes).float()
    for fitted in (even, ~even):
        own = seen[0][fitted]
        mean, scale = own.mean(0), own.std(0).clamp(min=1e-6)
        a, base = (own - mean) / scale, target[fitted].mean(0)
        weights = _ridge(a, target[fitted] - base)
        for found, view in zip(right, seen):
            guess = ((view[~fitted] - mean) / scale @ weights + base).argmax(1)
            found[(~fitted).numpy()] = (guess == y[~fitted]).numpy()
    return [*right]


def _ridge(a: Tensor, b: Tensor) -> Tensor:
    """Return the weights of ridge regression, by the smaller of its two systems."""
    n, d = a.shape
    if n <= d:
        return a.T @ torch.linalg.solve(a @ a.T / d + RIDGE * torch.eye(n), b) / d
    return torch.linalg.solve(a.T @ a / d + RIDGE * torch.eye(d), a.T @ b) / d


def flips_of_masks(images: np.ndarray, codes: np.ndarray, n_classes: int) -> dict[str, float]:
    """Return the probabilities of the flips that images (n, c, h, w) and masks (n, h, w) of class codes allow, eqs. 2 and 3."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(codes))[:MOST]
    allowed = {name: axis for name, axis in FLIPS.items() if not _one_sided(codes[rows], axis, n_classes)}
    rows = rows[:MOST_MASKS]
    if len(rows) < 20 or not allowed:
        return dict.fromkeys(allowed, 0.5)
    small = _small(images[rows])
    factor = -(-min(images.shape[2:]) // SIDE)
    masks = codes[rows][:, ::factor, ::factor][:, : small.shape[2], : small.shape[3]]
    image, place, y = _pixels(masks, rng)
    filters = _patches(small, rng)
    seen = [_around(small, filters, axis, image, place) for axis in (None, *allowed.values())]
    plain, *flipped = _right(seen, torch.from_numpy(y), n_classes, torch.from_numpy(image) % 2 == 0)
    worse = (
        [plain[image == i].mean() - other[image == i].mean() for i in np.unique(image)] for other in flipped
    )
    kept = [np.mean(d) <= 2 * np.std(d) / len(d) ** 0.5 for d in worse]
    return {name: 0.5 for name, keep in zip(allowed, kept) if keep}


def _pixels(masks: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return some pixels of every class in every mask (n, h, w): their images, places in it, and classes."""
    chosen = []
    for i, mask in enumerate(masks.reshape(len(masks), -1)):
        for k in np.unique(mask):
            places = rng.permutation(np.flatnonzero(mask == k))[:PIXELS]
            chosen += [(i, place, k) for place in places]
    image, place, y = np.array(chosen).T
    return image, place, y


def _around(x: Tensor, filters: Tensor, flipped: int | None, image: np.ndarray, place: np.ndarray) -> Tensor:
    """Return how often each filter answers, either way, around some pixels (pixels, features); of images seen mirrored."""
    turned = (lambda t: t) if flipped is None else (lambda t: t.flip(flipped))
    found = []
    for first, part in zip(range(0, len(x), CHUNK), x.split(CHUNK)):
        z = F.conv2d(turned(part), filters, padding="same")
        cells = torch.cat([F.avg_pool2d(F.relu(sign * z - 0.5), 7, 1, 3) for sign in (1, -1)], 1)
        here = (image >= first) & (image < first + CHUNK)
        found.append(turned(cells).flatten(2)[image[here] - first, :, place[here]])
    return torch.cat(found)


def _one_sided(codes: np.ndarray, axis: int, n_classes: int) -> bool:
    places = np.linspace(-1, 1, codes.shape[axis])
    places = places if axis == -1 else places[:, None]
    for k in range(n_classes):
        here = codes == k
        count = here.sum((1, 2))
        mean = (here * places).sum((1, 2))[count > 0] / count[count > 0]
        if len(mean) and abs(mean.mean()) > max(0.1, 4 * mean.std() / len(mean) ** 0.5):
            return True
    return False


def some_of(X: Any, y: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return some of the images that count, from everywhere in the data, with their classes."""
    rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST])
    codes = y[rows] if y.ndim == 1 else y[rows].argmax(1)
    return X[rows], codes
