"""Normalisation layers by name: torch's own."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from corollary.errors import unknown

__all__ = ["NORMS", "norm"]

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
    "none": lambda width: nn.Identity(),
}


def norm(name: str | None, width: int) -> nn.Module:
    """Return the normalisation of this name over ``width`` features.

    >>> norm("layer", 8)
    LayerNorm((8,), eps=1e-05, elementwise_affine=True)
    """
    name = name or "none"
    if name not in NORMS:
        raise unknown("nn.norm", "normalisation", name, NORMS)
    return NORMS[name](width)
