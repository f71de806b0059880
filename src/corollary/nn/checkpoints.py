"""Weights of the package transformers, from a model in memory or a directory as people have it.

A directory holds ``config.json`` and, the first that is there, ``model.safetensors``, the shards that
``model.safetensors.index.json`` lists, or the same of the older ``pytorch_model.bin``, of which nothing but tensors is
unpickled. Nothing is downloaded, and transformers itself is not needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import kind, value

__all__ = ["fill", "read"]

FILES = ("model.safetensors", "pytorch_model.bin")
WRITE = "Write one with model.save_pretrained(path); nothing is downloaded."


def read(
    source: Any, owner: str, model_type: str, **settings: Any
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the weights, by their own names.

    Parameters
    ----------
    source : model, or path
        A transformers model, or a directory.
    owner : str
        Who asks; errors begin with it.
    model_type : str
        What the configuration must say; old files say nothing.
    **settings : object
        What else it must say, if it says anything.
    """
    if hasattr(source, "state_dict") and hasattr(source, "config"):
        config = {**source.config.to_dict(), "architectures": [type(source).__name__]}
        weights = source.state_dict()
    elif isinstance(source, str | os.PathLike):
        config, weights = _directory(Path(source), owner)
    else:
        raise kind(
            owner, "source must be a transformers model or the path of a directory", type(source).__name__
        )
    found = config.get("model_type", model_type)
    if found != model_type:
        raise value(owner, f"the model must be of type {model_type!r}", repr(found))
    for name, must in settings.items():
        if config.get(name, must) != must:
            raise value(owner, f"{name} of the configuration must be {must!r}", repr(config[name]))
    return config, {name: weight.detach() for name, weight in weights.items()}


def fill(module: nn.Module, weights: Mapping[str, Tensor], owner: str, optional: tuple[str, ...] = ()) -> Any:
    """Load weights into a module and return it, for evaluation; what begins with ``optional`` may be missing."""
    own = module.state_dict()
    lacking = [name for name in own if name not in weights and not name.startswith(optional)]
    strange = [name for name in weights if name not in own]
    must = "the weights must be those of the configuration"
    if lacking or strange:
        raise value(owner, must, f"{lacking[:3]} missing and {strange[:3]} unknown")
    for name, weight in weights.items():
        if weight.shape != own[name].shape:
            got = f"{name} of shape {tuple(weight.shape)} in place of {tuple(own[name].shape)}"
            raise value(owner, must, got)
    module.load_state_dict({**own, **weights})
    return module.eval()


def _directory(path: Path, owner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    files = _files(path, owner)
    config = _json(path / "config.json", owner)
    weights: dict[str, Tensor] = {}
    for file in files:
        weights.update(_tensors(file, owner))
    return config, weights


def _files(path: Path, owner: str) -> list[Path]:
    """Return the files that hold the weights."""
    for name in FILES if (path / "config.json").is_file() else ():
        if (path / name).is_file():
            return [path / name]
        index = path / f"{name}.index.json"
        if index.is_file():
            shards = sorted(set(_json(index, owner).get("weight_map", {}).values()))
            absent = [shard for shard in shards if not (path / shard).is_file()]
            if absent or not shards:
                must = f"{str(path)!r} must hold all {len(shards)} files that {index.name} lists"
                raise value(owner, must, f"no {', '.join(absent[:3])}", "Copy them there too.")
            return [path / shard for shard in shards]
    listed = sorted(p.name for p in path.iterdir())[:6] if path.is_dir() else None
    got = (
        ", ".join(listed) or "nothing"
        if listed is not None
        else "a file"
        if path.exists()
        else "no such directory"
    )
    raise value(owner, f"{str(path)!r} must hold config.json and model.safetensors", got, WRITE)


def _json(file: Path, owner: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise value(owner, f"{file.name} must be JSON", str(error), "Copy it again.") from error
    if not isinstance(found, dict):
        raise value(owner, f"{file.name} must hold an object", type(found).__name__, "Copy it again.")
    return found


def _tensors(file: Path, owner: str) -> dict[str, Tensor]:
    from pickle import UnpicklingError

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return dict(load_file(file))
        return dict(torch.load(file, map_location="cpu", weights_only=True))
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        got = str(error).partition("\n")[0][:120]
        raise value(
            owner, f"{file.name} must be whole and hold tensors alone", got, "Copy it again."
        ) from error
