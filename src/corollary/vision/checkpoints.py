"""Weights of image models of transformers, renamed to our modules."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import Tensor, nn

from corollary.nn.pretrained import Activation, known_activation

__all__ = ["activation", "renamed"]


def activation(name: str) -> nn.Module:
    """Return the activation that transformers calls by this name, as torch's own layer where it has one."""
    known_activation(name, "from_transformers")
    return OWN[name]() if name in OWN else Activation(name)


OWN = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


def renamed(weights: dict[str, Tensor], rules: Iterable[tuple[str, str]]) -> dict[str, Tensor]:
    """Return weights under new names, by regular expressions one after another; those named "unused" are left out."""
    names = {key: key for key in weights}
    for pattern, ours in rules:
        names = {key: re.sub(pattern, ours, name) for key, name in names.items()}
    return {name: weights[key] for key, name in names.items() if name != "unused"}
