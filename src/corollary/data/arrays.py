"""Arrays: the one conversion to NumPy, and the readers of ``.npy`` and ``.npz`` files (never pickled)."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.limits import allow

__all__ = ["as_array", "concatenated", "read_npy", "read_npz", "sparse_from"]

# as scipy.sparse.save_npz writes CSR, CSC
_SPARSE = {"data", "indices", "indptr", "format", "shape"}
_MAPPED = 2**30  # a .npy file with more bytes stays on disk and is read as needed


def as_array(values: Any) -> np.ndarray:
    """Return an array, a torch tensor, a frame or a nested list as a NumPy array."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        values = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def read_npy(path: Path) -> np.ndarray:
    """Return the array of a ``.npy`` file; one of Python objects is refused, since reading it runs code."""
    mapped = path.stat().st_size > _MAPPED
    try:
        with path.open("rb") as handle:
            _claimed(handle, path.stat().st_size)
        return np.asanyarray(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
    except Exception as error:  # whatever the bytes make NumPy raise
        raise _unreadable(path.name, error) from error


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a ``.npz`` file by name."""
    arrays, key = {}, ""
    with path.open("rb") as handle:
        try:
            allow(path.name, _unpacked(handle), of=path.stat().st_size)
            with np.load(handle, allow_pickle=False) as archive:
                for key in archive.files:
                    arrays[key] = archive[key]
        except errors.Refused:
            raise
        except Exception as error:  # whatever the bytes make NumPy or zipfile raise
            raise _unreadable(f"{path.name}[{key!r}]" if key else path.name, error) from error
    return arrays


def _unpacked(handle: Any) -> int:
    """Return the bytes that the arrays of a ``.npz`` file unpack to; none may claim more than its part holds."""
    if not zipfile.is_zipfile(handle):
        handle.seek(0)
        return 0  # NumPy says what is wrong with it
    with zipfile.ZipFile(handle) as archive:
        for part in archive.infolist():
            if part.filename.endswith(".npy"):
                with archive.open(part) as member:
                    _claimed(member, part.file_size)
        total = sum(part.file_size for part in archive.infolist())
    handle.seek(0)
    return total


def _claimed(handle: Any, size: int) -> None:
    """Raise if the header of a ``.npy`` file claims more entries than a file of this size can hold."""
    version = np.lib.format.read_magic(handle)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(handle)
    needed = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and needed > size:
        raise ValueError(f"an array of shape {shape} needs {needed} bytes, and there are {size}")


def sparse_from(arrays: dict[str, np.ndarray]) -> Any:
    """Return the matrix that ``scipy.sparse.save_npz`` wrote, or None if these arrays are not one."""
    if not {"data", "format", "shape"} <= set(arrays) or arrays["format"].dtype.kind not in "SU":
        return None
    if not set(arrays) >= _SPARSE:
        form = arrays["format"].astype(str).item()
        raise ValueError(f"the format {form}, and only CSR and CSC are read: save matrix.tocsr()")
    from scipy import sparse

    rows, columns = (int(side) for side in arrays["shape"])
    allow("the sparse matrix", 8 * (rows + columns), of=sum(array.nbytes for array in arrays.values()))
    made = sparse.csc_matrix if arrays["format"].item() in (b"csc", "csc") else sparse.csr_matrix
    matrix = made((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(rows, columns))
    matrix.check_format(full_check=True)
    return matrix.tocsr()


def concatenated(X: np.ndarray, lengths: np.ndarray, owner: str) -> list[np.ndarray]:
    """Cut rows that were laid end to end into one array per example.

    >>> [len(part) for part in concatenated(np.zeros((5, 2)), np.array([2, 3]), "load")]
    [2, 3]
    """
    if lengths.ndim != 1 or not np.issubdtype(lengths.dtype, np.integer) or (lengths < 0).any():
        raise errors.value(owner, "lengths must be a list of integers", f"{lengths.dtype} {lengths.shape}")
    if X.ndim == 0 or lengths.sum() != len(X):
        got = f"{lengths.sum()} and X of shape {X.shape}"
        raise errors.value(owner, "lengths must add up to the number of rows of X", got)
    return np.split(X, np.cumsum(lengths)[:-1]) if lengths.size else []


def _unreadable(name: str, error: Exception) -> ValueError:
    if "Object arrays" in str(error):
        must = f"{name} must be an array of numbers or strings"
        do = "Save it with a numeric dtype; one array per key for examples of different lengths."
        return errors.value("load", must, "an array of Python objects, which only pickle can read", do)
    got = "other bytes" if "pickle" in str(error) else f"{type(error).__name__}: {error}"[:200]
    return errors.value("load", f"{name} must be a NumPy file", got)
