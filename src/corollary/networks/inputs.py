"""Several inputs of one module: arrays that share their first axis, as one array of records.

A module that is called with more than one tensor is given a tuple of arrays, in the order of its arguments, or a dict of
arrays by their names. :func:`together` makes one array of records of them (NumPy's structured type): rows of it can be taken
like those of any array, so what shuffles, holds out, hashes and searches need not know that there are several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.validation import to_numpy

__all__ = ["call", "is_records", "together", "zeros"]


def is_records(X: Any) -> bool:
    """Whether X is an array of records as ``together`` makes them; records of plain columns are a table."""
    fields = getattr(getattr(X, "dtype", None), "fields", None)
    if not isinstance(X, np.ndarray) or not fields:
        return False
    return all(name.isdigit() for name in fields) or any(kind.shape for kind, *_ in fields.values())


def together(X: Any, owner: str = "together") -> np.ndarray | None:
    """Return several inputs as one array of records; None if X is one input.

    Parameters
    ----------
    X : tuple of arrays, dict of arrays, or array of records
        The inputs, of shape (n, ...) each. A dict whose arrays all have one axis is a table of columns.
    owner : str
        Name of the estimator, used at the start of error messages.

    Examples
    --------
    >>> X = together({"left": np.zeros((3, 4)), "right": np.ones((3, 2), np.int64)})
    >>> X.shape, X[:2]["right"].shape
    ((3,), (2, 2))
    """
    if is_records(X):
        return X  # type: ignore[no-any-return]
    named = isinstance(X, Mapping)
    parts = dict(X) if named else dict(enumerate(X)) if isinstance(X, tuple) and len(X) > 1 else {}
    if not parts or not all(hasattr(part, "shape") and len(part.shape) for part in parts.values()):
        return None
    if named and all(len(part.shape) == 1 for part in parts.values()):
        return None
    arrays = {str(name): np.asarray(to_numpy(part)) for name, part in parts.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        sizes = ", ".join(f"{len(array)} of {name!r}" for name, array in arrays.items())
        raise errors.value(owner, "the inputs must have as many samples each", sizes)
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise errors.kind(owner, f"input {name!r} must be of numbers", str(array.dtype))
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise errors.value(
                owner, f"input {name!r} must be finite", "NaN or infinity", "Fill or drop them."
            )
    kinds = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
    made = np.empty(len(next(iter(arrays.values()))), np.dtype(kinds))
    for name, array in arrays.items():
        made[name] = array
    return made


def call(module: nn.Module, inputs: tuple[Tensor, ...], names: list[str] | None) -> Any:
    """Call a module with its inputs: by the names of its arguments if they have any, else by their places."""
    if names is None or names[0].isdigit():
        return module(*inputs)
    return module(**dict(zip(names, inputs)))


def zeros(n: int, shapes: list[Any], kinds: str, real: torch.dtype) -> tuple[Tensor, ...]:
    """Return n samples of zeros for each input; ``kinds`` are NumPy's letters: b for Booleans, i for whole numbers."""
    types = {"b": torch.bool, "i": torch.int64, "u": torch.int64}
    return tuple(torch.zeros(n, *shape, dtype=types.get(kind, real)) for shape, kind in zip(shapes, kinds))
