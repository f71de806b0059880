"""Layers that torch does not have, as plain modules for anyone's PyTorch code.

Names are imported when first used; ``activation`` and ``norm`` make torch's own by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "AbsU": "activations",
    "AffineCoupling": "flows",
    "CausalConv1d": "temporal",
    "Chain": "flows",
    "ChebConv": "cheb",
    "DeepSets": "deep_sets",
    "Dense": "shortcuts",
    "GATConv": "gat",
    "GCNConv": "gcn",
    "GINConv": "gin",
    "Heaviside": "activations",
    "LRU": "lru",
    "MADE": "flows",
    "MLP": "mlp",
    "MPNNConv": "message",
    "MaskedAutoregressive": "flows",
    "Maxout": "activations",
    "MessagePassing": "message",
    "MinPool1d": "pooling",
    "MinPool2d": "pooling",
    "Planar": "flows",
    "QRLinear": "flows",
    "Residual": "shortcuts",
    "Reverse": "flows",
    "SoftmaxPool1d": "pooling",
    "SoftmaxPool2d": "pooling",
    "SpectralConv": "spectral",
    "Squeeze": "flows",
    "TemporalConvNet": "temporal",
    "activation": "activations",
    "norm": "normalisation",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.nn.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.nn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
