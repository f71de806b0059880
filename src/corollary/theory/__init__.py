"""What can be said of a model before or after it is trained.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "convolution_matrix": "convolution",
    "dirichlet_energy": "graphs",
    "equivariance": "symmetry",
    "gradient_flow": "recurrence",
    "graph_filter": "graphs",
    "graph_fourier": "graphs",
    "group_average": "symmetry",
    "group_convolution": "symmetry",
    "incidence": "graphs",
    "invariance": "symmetry",
    "laplacian": "graphs",
    "output_size": "convolution",
    "oversmoothing": "graphs",
    "oversquashing": "graphs",
    "parameter_count": "convolution",
    "receptive_field": "convolution",
    "vanishing_bound": "recurrence",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.theory.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
