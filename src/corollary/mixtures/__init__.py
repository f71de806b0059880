"""Mixtures and topic models. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "DirichletProcessMixture": "dirichlet_process",
    "GaussianMixture": "gaussian",
    "IndianBuffetProcess": "indian_buffet",
    "LatentDirichletAllocation": "lda",
    "Mixture": "mixture",
    "PLSA": "plsa",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.mixtures.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.mixtures' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
