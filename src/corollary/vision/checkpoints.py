"""From transformers' names, activations and weights to those of the nets here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from corollary.errors import unknown
from corollary.nn.pretrained import fill_pretrained

__all__ = ["activation", "fill", "renamed"]

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
    """Return weights under new names, by regular expressions that are applied one after another."""
    names = {key: key for key in weights}
    for pattern, ours in rules:
        names = {key: re.sub(pattern, ours, name) for key, name in names.items()}
    return {names[key]: tensor for key, tensor in weights.items()}


def fill(net: nn.Module, weights: dict[str, Tensor], owner: str) -> Any:
    """Load renamed weights into a net, all of them, and return it in evaluation mode."""
    wanted = {key: tensor for key, tensor in weights.items() if not key.startswith("unused.")}
    return fill_pretrained(net, wanted, owner)
