"""Validation and conversion of inputs and outputs: arrays and tensors, targets, counts, hashes of data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from corollary import errors
from corollary.data.sources import Source, mapping

__all__ = [
    "SCALE",
    "as_given",
    "as_tensor",
    "broke_down",
    "check_complete",
    "check_count",
    "check_sizes",
    "check_target",
    "digest",
    "finite",
    "quick_sum",
    "to_numpy",
]

HASH_BLOCK = 2**22  # bytes hashed at a time
SIDE_BY_SIDE = 1024  # sums of which a sum over a table is made
HASH_THREADED = 2**25  # bytes from which several threads hash


def check_count(owner: Any, name: str, value: Any, low: int = 1) -> None:
    """Raise unless ``value`` is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise errors.value(type(owner).__name__, f"{name} must be an integer of at least {low}", repr(value))


def check_sizes(owner: Any, sizes: tuple[Any, ...], least: int = 0) -> None:
    """Raise if hidden widths are not positive integers, or fewer than ``least``."""
    if len(sizes) < least:
        raise errors.value(type(owner).__name__, "hidden_layer_sizes must name at least one layer", "none")
    for size in sizes:
        check_count(owner, "each of hidden_layer_sizes", size)


def as_tensor(array: Any) -> Any:
    """Return a tensor over an array's memory, which nobody must write to; read-only memory is copied unless it is mapped."""
    import torch

    if isinstance(array, torch.Tensor):
        return array
    array = np.ascontiguousarray(array)
    if not array.flags.writeable:
        array = array.copy() if mapping(array) is None else np.asarray(_Shown(array))
    return torch.from_numpy(array)


class _Shown:
    """A read-only array that says it may be written to: torch has no tensors that may not."""

    def __init__(self, array: np.ndarray) -> None:
        address, _ = array.__array_interface__["data"]
        self.array = array  # stays alive with what is made of it
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def digest(value: Any) -> str:
    """Return a 128-bit hash of all of the data: every entry of every array, every character of every text.

    Arrays are hashed where they lie, block by block and in several threads, so a large memory map is read
    once and never copied. The layout in memory does not matter; the type and the shape do.

    >>> digest(np.arange(6.0)) == digest(np.arange(0.0, 12.0)[::2] / 2)
    True
    >>> digest(["ab", "c"]) == digest(["a", "bc"])
    False
    """
    total = hashlib.blake2b(digest_size=16)
    _feed(value, total, ())
    return total.hexdigest()


def _feed(value: Any, total: Any, inside: tuple[int, ...]) -> None:
    """Add a value to a hash; kind and size come first, so that no two different values read the same."""
    if id(value) in inside:  # an object that holds itself
        return
    name, inside = type(value).__name__, (*inside, id(value))
    if isinstance(value, Source):
        total.update(f"source {value.digest()};".encode())
    elif isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        total.update(f"{name} {len(content)};".encode() + content)
    elif isinstance(value, Mapping):
        _feed([part for pair in value.items() for part in pair], total, inside)
    elif isinstance(value, list | tuple):
        total.update(f"{len(value)} parts;".encode())
        for part in value:
            _feed(part, total, inside)
    elif hasattr(value, "indptr"):
        _feed((value.format, value.shape, value.data, value.indices, value.indptr), total, inside)
    elif hasattr(value, "columns") and hasattr(value, "to_numpy"):
        _feed([(str(key), value[key].to_numpy()) for key in value.columns], total, inside)
    elif name == "Tensor" or hasattr(value, "detach"):
        _feed_tensor(value, total)
    elif isinstance(value, np.ndarray):
        _feed_array(value, total)
    elif isinstance(value, np.generic) or not hasattr(value, "__dict__"):
        total.update(f"{name} {value!r};".encode())
    else:  # a graph, or any other holder of arrays
        _feed([name, getattr(value, "__qualname__", ""), vars(value)], total, inside)


def _feed_tensor(value: Any, total: Any) -> None:
    import torch

    value = value.detach().cpu()
    value = value if value.layout == torch.strided else value.to_dense()
    if value.dtype == torch.bfloat16:  # NumPy has no such type
        total.update(b"bfloat16;")
        value = value.contiguous().view(torch.int16)
    _feed_array(value.numpy(), total)


def _feed_array(array: np.ndarray, total: Any) -> None:
    total.update(f"array {array.dtype.str} {array.shape};".encode())
    if array.dtype.kind == "O":
        _feed(array.ravel().tolist(), total, ())
        return
    array = np.atleast_1d(array)
    rows = max(1, HASH_BLOCK // max(1, array[:1].nbytes))

    def part(begin: int) -> bytes:
        block = np.ascontiguousarray(array[begin : begin + rows])
        return hashlib.blake2b(block.reshape(-1).view(np.uint8).data, digest_size=16).digest()

    begins = range(0, len(array), rows) if array.size else range(0)
    if array.nbytes < HASH_THREADED:
        total.update(b"".join(map(part, begins)))
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        total.update(b"".join(pool.map(part, begins)))


def check_target(estimator: Any, X: Any, y: Any, multi_output: bool = False) -> np.ndarray:
    """Return y as an array with one finite entry (or row) per sample of X."""
    name = type(estimator).__name__
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    if isinstance(y, str):
        do = f"For a column of a frame: fit(data.load(frame, target={y!r}))."
        raise errors.value(name, "y must have one entry per sample", f"the string {y!r}", do)
    try:
        y = np.asarray(to_numpy(y))
    except ValueError as error:
        must, got = "y must have one entry per sample", "lists of different lengths"
        raise errors.value(name, must, got) from error
    y = y if multi_output and y.ndim == 2 else column_or_1d(y, warn=True)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(y) != rows:
        do = "Leave out the samples without one." if len(y) < rows else "Drop what belongs to no sample."
        raise errors.value(name, f"y must have one entry per sample ({rows})", len(y), do)
    check_complete(name, y)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise errors.value(name, "y must be finite", "NaN or infinity in Input y", "Leave those rows out.")
    return np.asarray(y)


def check_complete(owner: str, y: np.ndarray) -> None:
    """Raise if labels of mixed type have a None or a NaN among them."""
    if y.dtype == object:
        absent = [i for i, label in enumerate(y.ravel()) if label is None or label is np.nan]
        if absent:
            got = f"{len(absent)} missing, the first at {absent[0]}"
            must = f"y must have a label for each of {y.size}"
            raise errors.value(owner, must, got, "Leave those out.")


def to_numpy(X: Any) -> Any:
    """Return torch tensors as arrays; everything else unchanged."""
    return X.detach().cpu().numpy() if type(X).__module__ == "torch" else X


def quick_sum(X: np.ndarray) -> float:
    """Return the sum of all entries, finite only if they are: many sums side by side, at twice the speed of one."""
    with np.errstate(all="ignore"):
        if X.size < SIDE_BY_SIDE or not (X.flags.c_contiguous or X.flags.f_contiguous):
            return float(X.sum())
        flat = X.ravel(order="K")
        rest = X.size % SIDE_BY_SIDE
        return float(
            flat[: X.size - rest].reshape(-1, SIDE_BY_SIDE).sum(0).sum() + flat[X.size - rest :].sum()
        )


SCALE = (
    "Bring the data (and targets) to about unit size before fit, for instance with sklearn's StandardScaler."
)


def finite(owner: Any, result: Any, log: bool = False) -> Any:
    """Return a result of a model; NaN and infinity in it are an error, except the logarithm of zero in a ``log``."""
    array = result if isinstance(result, np.ndarray) else to_numpy(result)
    if getattr(getattr(array, "dtype", None), "kind", "O") != "f" or not array.size:
        return result
    with np.errstate(all="ignore"):
        good = np.isfinite(array.sum()) or not np.any(
            np.isnan(array) | (array == np.inf) | (np.isinf(array) & (not log))
        )
    if not good:
        name = owner if isinstance(owner, str) else type(owner).__name__
        bad = int(array.size - np.isfinite(array).sum())
        raise errors.value(
            name, "what the model returns must be finite", f"{bad} of {array.size} that are not", SCALE
        )
    return result


def broke_down(error: BaseException) -> bool:
    """Whether an error says that numbers became too large or too small for the arithmetic of a fit."""
    if isinstance(error, errors.Diverged):
        return False
    if isinstance(error, OverflowError | FloatingPointError | ZeroDivisionError):
        return True
    if type(error).__name__ in ("LinAlgError", "_LinAlgError", "ArpackNoConvergence", "ArpackError"):
        return True
    said = str(error)
    # the check of what the caller gave says that itself
    return (
        isinstance(error, ValueError | RuntimeError)
        and any(
            phrase in said
            for phrase in ("infs or NaNs", "not positive definite", "contains NaN", "contains infinity")
        )
        and "Input " not in said
    )


def as_given(X: Any, result: Any) -> Any:
    """Return the result as X came: torch for torch, on its device and in its floating type."""
    X = X.edge_index if hasattr(X, "edge_index") else X  # a graph of tensors gets tensors
    result = result if hasattr(result, "dtype") else np.asarray(result)
    if getattr(result.dtype, "kind", "f") in "OUS":  # labels that torch has no type for
        return result
    if type(X).__module__ != "torch":
        return result if isinstance(result, np.ndarray) else np.asarray(result)
    import torch

    out = torch.as_tensor(np.asarray(result), device=X.device)
    return out.to(X.dtype) if out.is_floating_point() and X.is_floating_point() else out
