"""Theory of a given model: kernels, convergence, curvature, Lipschitz constants, generalisation bounds.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "certified_radius": "lipschitz",
    "constants": "convergence",
    "convolution_matrix": "convolution",
    "decay": "rates",
    "density": "hessian",
    "dirichlet_energy": "graphs",
    "empirical_ntk": "ntk",
    "edge_of_stability": "convergence",
    "eigenvalues": "hessian",
    "equivariance": "symmetry",
    "gradient_flow": "recurrence",
    "graph_filter": "graphs",
    "graph_fourier": "graphs",
    "group_average": "symmetry",
    "group_convolution": "symmetry",
    "incidence": "graphs",
    "infinite_kernels": "infinite",
    "invariance": "symmetry",
    "jacobian_norm": "lipschitz",
    "laplacian": "graphs",
    "operator_norm": "lipschitz",
    "output_size": "convolution",
    "oversmoothing": "graphs",
    "oversquashing": "graphs",
    "parameter_count": "convolution",
    "product_bound": "lipschitz",
    "receptive_field": "convolution",
    "trace": "hessian",
    "vanishing_bound": "recurrence",
}

_MODULES = (  # whole modules that are asked for by name
    "approximation",
    "bounds",
    "convergence",
    "counting",
    "hessian",
    "infinite",
    "lipschitz",
    "ntk",
    "rates",
)

__all__ = sorted([*_WHERE, *_MODULES])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.theory.{_WHERE[name]}"), name)
    if name in _MODULES:
        return import_module(f"corollary.theory.{name}")
    raise AttributeError(f"module 'corollary.theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
