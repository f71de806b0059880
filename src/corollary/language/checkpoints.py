"""Weights of the package transformers, from a model in memory or a directory on disk; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from corollary.errors import kind, value

__all__ = ["read_checkpoint"]


def read_checkpoint(source: Any, owner: str, model_type: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the weights, by their own names.

    Parameters
    ----------
    source : model, or path
        A transformers model, or a directory with ``config.json`` and ``model.safetensors``.
    owner : str
        Who asks; errors begin with it.
    model_type : str
        What the configuration must say.
    """
    if hasattr(source, "state_dict") and hasattr(source, "config"):
        config, weights = source.config.to_dict(), source.state_dict()
    elif isinstance(source, str | Path):
        config, weights = _directory(Path(source), owner)
    else:
        must = "source must be a transformers model or the path of a directory"
        raise kind(owner, must, type(source).__name__)
    if config.get("model_type") != model_type:
        raise value(owner, f"the model must be of type {model_type!r}", repr(config.get("model_type")))
    return config, {name: weight.detach() for name, weight in weights.items()}


def _directory(path: Path, owner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors.torch import load_file

    files = sorted(path.glob("*.safetensors"))
    if not (path / "config.json").is_file() or not files:
        got = ", ".join(sorted(p.name for p in path.iterdir())[:6]) if path.is_dir() else "no such directory"
        do = "Write one with model.save_pretrained(path); pickled weights (.bin) are not read."
        raise value(owner, f"{str(path)!r} must hold config.json and model.safetensors", got, do)
    weights: dict[str, Tensor] = {}
    for file in files:
        weights.update(load_file(file))
    return json.loads((path / "config.json").read_text()), weights
