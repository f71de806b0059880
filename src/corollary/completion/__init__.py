"""Matrix completion and factorisation. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "ALS": "als",
    "BiasBaseline": "baseline",
    "NMF": "nmf",
    "SingularValueProjection": "svp",
    "SingularValueThresholding": "thresholding",
    "TruncatedSVD": "truncated_svd",
    "degrees_of_freedom": "recovery",
    "incoherence": "recovery",
    "recovery_curve": "recovery",
    "scalar_flow": "scalar",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.completion.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.completion' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
