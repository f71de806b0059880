"""Weights as transformers keeps them: a model object, or a directory that ``save_pretrained`` wrote.

A directory holds ``config.json`` and the weights, in one file or in several that an index lists, as safetensors or, from
earlier versions, as ``pytorch_model.bin``, which is read without running any code. transformers itself is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from corollary.errors import kind, value

__all__ = ["read_pretrained"]

NAMES = ("model.safetensors", "pytorch_model.bin")  # the first that is there counts


def read_pretrained(
    source: Any, model_type: str, owner: str, defaults: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the weights, by their own names.

    Parameters
    ----------
    source : model or path
        A transformers model, or a directory as above.
    model_type : str
        What the configuration must say.
    owner : str
        Who asks; errors begin with it.
    defaults : mapping, optional
        What a configuration file may leave out.
    """
    if hasattr(source, "config") and hasattr(source, "state_dict"):
        config, weights = source.config.to_dict(), source.state_dict()
    elif isinstance(source, str | Path):
        config, weights = _directory(Path(source), owner)
    else:
        raise kind(owner, "source must be a transformers model or a directory", type(source).__name__)
    if config.get("model_type") != model_type:
        raise value(owner, f"the model must be of type {model_type!r}", repr(config.get("model_type")))
    return {**(defaults or {}), **config}, {name: weight.detach() for name, weight in weights.items()}


def _directory(path: Path, owner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    found = sorted(p.name for p in path.iterdir()) if path.is_dir() else []
    present = [name for name in NAMES if {name, f"{name}.index.json"} & set(found)]
    if "config.json" not in found or not present:
        got = ", ".join(found[:8]) or ("nothing" if path.is_dir() else "no such directory")
        do = "Write one with model.save_pretrained(directory)."
        raise value(owner, f"{str(path)!r} must hold config.json and {NAMES[0]} (or {NAMES[1]})", got, do)
    weights: dict[str, Tensor] = {}
    for name in _files(path, present[0]):
        if name not in found:
            must = f"{str(path)!r} must hold {name}, which its index lists"
            raise value(owner, must, ", ".join(found[:8]), "Copy the missing file beside the others.")
        weights.update(_load(path / name, owner))
    return json.loads((path / "config.json").read_text(encoding="utf-8")), weights


def _files(path: Path, name: str) -> list[str]:
    index = path / f"{name}.index.json"
    if not index.is_file():
        return [name]
    return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))


def _load(path: Path, owner: str) -> dict[str, Tensor]:
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the bytes make either of them raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        raise value(owner, f"{str(path)!r} must be a file of weights and nothing else", got) from error
