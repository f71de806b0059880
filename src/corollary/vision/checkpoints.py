"""Weights as transformers keeps them: a model object, or a directory that ``save_pretrained`` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from corollary.errors import kind, unknown, value

__all__ = ["activation", "fill", "read"]

ACTIVATIONS = {
    "gelu": nn.GELU,
    "gelu_new": lambda: nn.GELU("tanh"),
    "gelu_pytorch_tanh": lambda: nn.GELU("tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "tanh": nn.Tanh,
}


def read(source: Any, model_type: str, owner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return configuration and weights; transformers itself is not needed for a directory."""
    if hasattr(source, "config") and hasattr(source, "state_dict"):
        config, weights = source.config.to_dict(), dict(source.state_dict())
    elif isinstance(source, str | Path):
        config, weights = _directory(Path(source), owner)
    else:
        raise kind(owner, "source must be a transformers model or a directory", type(source).__name__)
    if config.get("model_type") != model_type:
        raise value(owner, f"the model must be of type {model_type!r}", repr(config.get("model_type")))
    return config, weights


def _directory(path: Path, owner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors.torch import load_file

    index = path / "model.safetensors.index.json"
    files = {"model.safetensors"}
    if index.is_file():
        files = set(json.loads(index.read_text())["weight_map"].values())
    for name in ("config.json", *sorted(files)):
        if not (path / name).is_file():
            found = sorted(p.name for p in path.iterdir())[:8] if path.is_dir() else "no such directory"
            do = "Write one with model.save_pretrained(directory)."
            raise value(owner, f"{str(path)!r} must hold {name}", found, do)
    weights: dict[str, Tensor] = {}
    for name in files:
        weights.update(load_file(path / name))
    return json.loads((path / "config.json").read_text()), weights


def activation(name: str) -> nn.Module:
    """Return the activation that transformers calls by this name."""
    if name not in ACTIVATIONS:
        raise unknown("from_transformers", "activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]()


def fill(net: nn.Module, weights: dict[str, Tensor], owner: str) -> Any:
    """Load renamed weights into a net, all of them, and return it in evaluation mode."""
    wanted = {key: tensor for key, tensor in weights.items() if not key.startswith("unused.")}
    missing, unexpected = net.load_state_dict(wanted, strict=False)
    if missing or unexpected:
        got = f"{[*missing][:3]} missing and {[*unexpected][:3]} unknown"
        raise value(owner, "the weights must be those of the configuration", got)
    return net.eval()
