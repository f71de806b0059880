"""From transformers' names of weights and activations to those here."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import Tensor, nn

from corollary.errors import unknown

__all__ = ["activation", "renamed"]

ACTIVATIONS = {
    "gelu": nn.GELU,
    "gelu_new": lambda: nn.GELU("tanh"),
    "gelu_pytorch_tanh": lambda: nn.GELU("tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "tanh": nn.Tanh,
}


def activation(name: str) -> nn.Module:
    """Return the activation that transformers calls by this name."""
    if name not in ACTIVATIONS:
        raise unknown("from_transformers", "activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


def renamed(weights: dict[str, Tensor], rules: Iterable[tuple[str, str]]) -> dict[str, Tensor]:
    """Return weights under new names, by regular expressions one after another; those named "unused" are left out."""
    names = {key: key for key in weights}
    for pattern, ours in rules:
        names = {key: re.sub(pattern, ours, name) for key, name in names.items()}
    return {name: weights[key] for key, name in names.items() if name != "unused"}
