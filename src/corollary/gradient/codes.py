"""Labels as indices into the classes of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors

__all__ = ["known_codes"]


def known_codes(model: Any, labels: np.ndarray) -> np.ndarray:
    """Return labels as indices into ``classes_``; raise if one is not among them."""
    classes = model.classes_
    codes = np.searchsorted(classes, labels).clip(0, len(classes) - 1)
    strange = classes[codes] != labels
    if np.any(strange):
        must = f"labels must be among those of the first fit ({len(classes)} classes)"
        raise errors.value(type(model).__name__, must, repr(np.asarray(labels)[strange].tolist()[0]))
    return codes
