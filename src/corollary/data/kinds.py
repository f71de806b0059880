"""Input validation: what each kind of data must be, checked once, before a model sees it.

Every check takes all forms that its kind may have (NumPy, torch, lists, frames), returns the
canonical NumPy form, and otherwise says what must hold, what was given and what to do. None of
them imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from os import PathLike
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import as_array
from corollary.data.graphs import check_graph, check_graphs
from corollary.data.images import joined, levels_of, pixels
from corollary.data.ratings import check_ratings

__all__ = [
    "check_graph",
    "check_graphs",
    "check_images",
    "check_ratings",
    "check_sequences",
    "check_sets",
    "check_texts",
]


# ---------------------------------------------------------------------------------------- images


def check_images(
    X: Any,
    owner: str,
    *,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    scale: bool = True,
    bounded: bool = True,
    levels: int | None = None,
) -> np.ndarray:
    """Return images as one array ``(n, c, h, w)``, or say what is wrong with them.

    Parameters
    ----------
    X : array, tensor, list of arrays or list of Pillow images
        Shape ``(n, h, w)`` or ``(n, c, h, w)``; uint8, uint16, boolean, or float in [0, 1]. Channels may come last,
        ``(n, h, w, c)``, if there are 1, 3 or 4 of them and both sides are longer than that.
    owner : str
        Name of the estimator, used at the start of error messages.
    size : (int, int), optional
        Height and width that the images must have.
    channels : int, optional
        Number of channels that they must have.
    scale : bool, default=True
        Whether uint8 and uint16 become float32 in [0, 1]; floats keep their dtype either way.
    bounded : bool, default=True
        Whether floats must lie in [0, 1].
    levels : int, optional
        The value of uint16 that becomes 1, as a fit found it; by default by the range of X (4095 for 12 bits).

    Returns
    -------
    ndarray of shape (n, c, h, w)

    Examples
    --------
    >>> check_images(np.zeros((5, 8, 8), np.uint8), "CNN").shape
    (5, 1, 8, 8)
    """
    images = _stack_images(X, owner, channels)
    images = _pixels(images, owner, bounded)
    images = images[:, None] if images.ndim == 3 else images
    _check_image_shape(images.shape, owner, size, channels)
    if not scale or images.dtype.kind != "u":
        return images
    full = 255 if images.dtype == np.uint8 else levels or levels_of(images)
    return np.minimum(images.astype(np.float32) / np.float32(full), np.float32(1))


def _stack_images(X: Any, owner: str, channels: int | None) -> np.ndarray:
    images = _listed_images(list(X), owner) if isinstance(X, list | tuple) else _one_array(X, owner)
    if images.ndim not in (3, 4):
        do = "Add the missing axes, X[None], for a single image."
        side = isqrt(images.shape[1]) if images.ndim == 2 else 0
        if side > 1 and side**2 == images.shape[1]:
            do = f"If each row is a square image, pass X.reshape(-1, {side}, {side})."
        must = "images must have shape (n, h, w) or (n, c, h, w)"
        raise errors.value(owner, must, f"shape {images.shape}", do)
    if 0 in images.shape:
        must = "there must be at least one image of at least one pixel"
        raise errors.value(owner, must, f"shape {images.shape}")
    return np.moveaxis(images, -1, 1) if _channels_last(images.shape, channels) else images


def _listed_images(X: list[Any], owner: str) -> np.ndarray:
    if X and all(hasattr(image, "getbands") for image in X):  # Pillow's
        return joined([pixels(image) for image in X], [f"image {i}" for i in range(len(X))], owner)
    if any(isinstance(image, str | PathLike) for image in X):
        do = "Read them: corollary.data.load(folder).X, or [PIL.Image.open(path) for path in paths]."
        raise errors.kind(owner, "images must be arrays or Pillow images", "names of files", do)
    parts = [as_array(image) for image in X]
    for i, part in enumerate(parts):
        if part.shape != parts[0].shape:
            got = f"{parts[0].shape} for image 0 and {part.shape} for image {i}"
            raise errors.value(owner, "images must all have one size", got, "Resize or crop them first.")
    return np.stack(parts) if parts else np.empty((0, 1, 1))


def _one_array(X: Any, owner: str) -> np.ndarray:
    if hasattr(X, "getbands"):
        raise errors.kind(owner, "X must be a list of images", "a single one", "Wrap it in a list.")
    return as_array(X)


def _channels_last(shape: tuple[int, ...], channels: int | None) -> bool:
    """Whether (n, a, b, c) must be (n, h, w, c): two sides longer than 4 before 1, 3 or 4 of something."""
    return len(shape) == 4 and shape[3] in (1, 3, 4) and min(shape[1:3]) > 4 and shape[1] != channels


def _pixels(images: np.ndarray, owner: str, bounded: bool) -> np.ndarray:
    if images.dtype in (np.uint8, np.uint16):
        return images
    if images.dtype == bool:
        return images.astype(np.float32)
    if not np.issubdtype(images.dtype, np.floating):
        most = images.max() if images.dtype.kind in "iu" else 255
        do = f"Pass X / {most}." if most > 255 else "Pass X.astype(np.uint8) if the values are 0 to 255."
        raise errors.kind(owner, "pixels must be uint8, uint16 or float in [0, 1]", str(images.dtype), do)
    low, high = float(images.min()), float(images.max())
    if not np.isfinite([low, high]).all():  # a NaN or infinity anywhere reaches the minimum or maximum
        raise errors.value(
            owner,
            "pixels must be finite",
            "NaN or infinity",
            "Leave those images out, or fill in the pixels.",
        )
    if bounded and not (low >= 0 and high <= 1):
        full = 255 if 16 < high <= 255 else high  # a brightest pixel of 200 is still one of 256 levels
        do = (
            f"Divide by {full:g}."
            if low >= 0
            else f"Shift and scale them: (X - ({low:g})) / {high - low or 1:g}."
        )
        raise errors.value(owner, "float images must lie in [0, 1]", f"minimum {low:g}, maximum {high:g}", do)
    return images.astype(np.float32) if images.dtype == np.float16 else images


def _check_image_shape(
    shape: tuple[int, ...], owner: str, size: tuple[int, int] | None, channels: int | None
) -> None:
    if channels is not None and shape[1] != channels:
        do = {
            (3, 1): "Make them grey: X.mean(1).",
            (1, 3): "Repeat the grey: np.repeat(X, 3, axis=1).",
        }.get((shape[1], channels), "Pass the channels that the model was fitted on.")
        must = f"images must have {channels} channel{'s' * (channels > 1)}"
        raise errors.value(owner, must, f"{shape[1]} (shape {shape})", do)
    if size is not None and shape[2:] != tuple(size):
        got = f"{shape[2]} x {shape[3]} (shape {shape})"
        raise errors.value(owner, f"images must be {size[0]} x {size[1]}", got, "Resize or crop them first.")


# ----------------------------------------------------------------------------- sequences and sets


def check_sequences(
    X: Any, owner: str, *, dimension: int | None = None, vocabulary: int | None = None, min_length: int = 1
) -> list[Any]:
    """Return sequences as a list: all ``(t,)`` int64, all ``(t, d)`` float, all strings, or all lists of words.

    Parameters
    ----------
    X : list, array or tensor
        Integer sequences ``(t,)``, vector sequences ``(t, d)`` (``(t,)`` floats count as ``(t, 1)``),
        strings, lists of strings, or one array ``(n, t)`` or ``(n, t, d)`` if all have the same length.
    owner : str
        Name of the estimator, used at the start of error messages.
    dimension : int, optional
        The ``d`` that all must have.
    vocabulary : int, optional
        Integers must be below it.
    min_length : int, default=1
        The shortest length allowed.

    Returns
    -------
    list of ndarray, str or list of str

    Examples
    --------
    >>> check_sequences([[3, 1, 2], [5]], "HMM")
    [array([3, 1, 2]), array([5])]
    """
    items = _listed(X, owner, "sequences")
    if all(isinstance(item, str) for item in items):
        parts: list[Any] = list(items)
    elif all(_of_words(item) for item in items) and any(len(item) for item in items):
        parts = [list(map(str, item)) for item in items]
    else:
        parts = [_sequence(item, i, owner) for i, item in enumerate(items)]
        _check_alike(parts, owner, dimension, vocabulary)
    for i, part in enumerate(parts):
        if len(part) < min_length:
            must = f"every sequence must have length {min_length} or more"
            raise errors.value(owner, must, f"length {len(part)} for sequence {i}", "Leave it out.")
    return parts


def _listed(X: Any, owner: str, what: str) -> list[Any]:
    if isinstance(X, str | bytes | dict) or not isinstance(X, Iterable) or hasattr(X, "columns"):
        raise errors.kind(
            owner, f"X must be a list of {what}", type(X).__name__, "Wrap a single one in a list."
        )
    if getattr(X, "ndim", None) == 0:
        raise errors.kind(owner, f"X must be a list of {what}", "a single number")
    items = list(as_array(X)) if hasattr(X, "shape") else list(X)
    if not items:
        raise errors.value(owner, f"X must hold at least one of the {what}", "an empty list")
    return items


def _of_words(item: Any) -> bool:
    listed = isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim == 1)
    return listed and all(isinstance(word, str) for word in item)


def _sequence(item: Any, i: int, owner: str) -> np.ndarray:
    array = _numbers(item, f"sequence {i}", owner)
    if array.ndim == 1 and array.size and np.issubdtype(array.dtype, np.integer):
        if array.min() < 0:
            must = f"integers of a sequence are codes from 0 (sequence {i})"
            raise errors.value(owner, must, f"minimum {array.min()}", "Pass floats if they are measurements.")
        return array.astype(np.int64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise errors.value(owner, f"sequence {i} must have shape (t,) or (t, d)", f"shape {array.shape}")
    return _floats(array, f"sequence {i}", owner)


def _check_alike(parts: list[np.ndarray], owner: str, dimension: int | None, vocabulary: int | None) -> None:
    filled = [(i, part) for i, part in enumerate(parts) if len(part)]
    if not filled:
        return
    first, model = filled[0]
    width = dimension if dimension is not None else (model.shape[1] if model.ndim == 2 else None)
    for i, part in filled:
        if part.ndim != model.ndim:
            got = f"shape {model.shape} for sequence {first} and {part.shape} for sequence {i}"
            do = "Pass floats, or integers, throughout."
            raise errors.value(owner, "sequences must be all of integers or all of vectors", got, do)
        if part.ndim == 2 and part.shape[1] != width:
            must = f"the vectors of every sequence must have dimension {width}"
            do = "Give every step the same features, in the same order."
            raise errors.value(owner, must, f"{part.shape[1]} in sequence {i}", do)
        if part.ndim == 1 and vocabulary is not None and part.max() >= vocabulary:
            must = f"codes must be below the vocabulary size {vocabulary}"
            do = "Fit on data with that code, or replace it by one that was fitted."
            raise errors.value(owner, must, f"{part.max()} in sequence {i}", do)


def check_sets(X: Any, owner: str, *, dimension: int | None = None, min_size: int = 1) -> list[np.ndarray]:
    """Return sets as a list of ``(m, d)`` float arrays, or say what is wrong with them.

    Parameters
    ----------
    X : list of (m, d) arrays, or one array (n, m, d)
        The sets, Python's own too; ``(m,)`` counts as ``(m, 1)``, and ``[]`` has the width of the others.
    owner : str
        Name of the estimator, used at the start of error messages.
    dimension : int, optional
        The ``d`` that all must have; otherwise that of the first.
    min_size : int, default=1
        The fewest elements allowed.

    Returns
    -------
    list of ndarray
    """
    arrays: list[np.ndarray] = []
    for i, item in enumerate(_listed(X, owner, "sets")):
        array = _numbers(sorted(item) if isinstance(item, set | frozenset) else item, f"set {i}", owner)
        if array.ndim > 2:
            raise errors.value(owner, f"set {i} must have shape (m, d)", f"shape {array.shape}")
        if len(array) < min_size:
            must = f"every set must have {min_size} or more elements"
            raise errors.value(owner, must, f"{len(array)} in set {i}", "Leave it out.")
        arrays.append(array[:, None] if array.ndim == 1 and len(array) else array)
    known = next((a.shape[1] for a in arrays if a.ndim == 2), 1)
    width = known if dimension is None else dimension
    for i, array in enumerate(arrays):
        if array.ndim == 1:  # nothing says how wide the elements would be
            arrays[i] = np.zeros((0, width), np.float32)
            continue
        if array.shape[1] != width:
            must = f"the elements of every set must have dimension {width}"
            do = "Give every element the same features, or pad them with zeros."
            raise errors.value(owner, must, f"{array.shape[1]} in set {i}", do)
        arrays[i] = _floats(array, f"set {i}", owner)
    return arrays


def _numbers(item: Any, what: str, owner: str) -> np.ndarray:
    try:
        array = as_array(item)
    except (TypeError, ValueError) as error:
        raise errors.value(
            owner, f"{what} must be an array of one shape", "rows of different lengths"
        ) from error
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
        raise errors.kind(owner, f"{what} must hold real numbers", str(array.dtype))
    if array.ndim == 0:
        raise errors.value(owner, f"{what} must be an array", "a single number", "Wrap it in a list.")
    return array


def _floats(array: np.ndarray, what: str, owner: str) -> np.ndarray:
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    if not np.isfinite(array).all():
        raise errors.value(owner, f"{what} must be finite", "NaN or infinity", "Impute or cut it first.")
    return array


# ------------------------------------------------------------------------------------------ texts


def check_texts(X: Any, owner: str, *, filled: bool = True) -> list[str]:
    """Return documents as a list of strings, or say what is wrong with them; ``filled``: not all may be empty.

    >>> check_texts(np.array(["one", "two"]), "LDA")
    ['one', 'two']
    """
    texts = _listed(X, owner, "strings")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            got = f"{type(text).__name__} at {i}"
            do = "Decode it first." if isinstance(text, bytes) else "Use str() or leave it out."
            do = "Join its words: ' '.join(words)." if isinstance(text, list | tuple | np.ndarray) else do
            raise errors.kind(owner, "every document must be a string", got, do)
    if filled and not any(text.strip() for text in texts):
        raise errors.value(owner, "some document must have words", f"{len(texts)} empty ones")
    return [str(text) for text in texts]
