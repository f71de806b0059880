"""Weights as transformers keeps them: a model object, or a directory that ``save_pretrained`` wrote.

A directory holds ``config.json`` and the weights, in one file or in several that an index lists, as safetensors or, from
earlier versions, as ``pytorch_model.bin``, which is read without running any code. transformers itself is not needed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.engine.building import sized
from corollary.errors import kind, unknown, value
from corollary.shapes import Mismatch

__all__ = ["ACTIVATIONS", "Activation", "fill_pretrained", "known_activation", "read_json", "read_pretrained"]

NAMES = ("model.safetensors", "pytorch_model.bin")  # the first that is there counts


def _gelu_tanh(z: Tensor) -> Tensor:
    return F.gelu(z, approximate="tanh")


# The activations by the names that configurations give them; those with weights of their own are left out.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_10": lambda z: F.gelu(z).clamp(-10, 10),
    "gelu_python": F.gelu,
    **dict.fromkeys(
        ("gelu_accurate", "gelu_fast", "gelu_new", "gelu_python_tanh", "gelu_pytorch_tanh", "gelu_tanh"),
        _gelu_tanh,
    ),
    "hardswish": F.hardswish,
    "laplace": lambda z: 0.5 * (1 + torch.erf((z - 0.707107) / (0.282095 * math.sqrt(2)))),
    "leaky_relu": F.leaky_relu,
    "linear": lambda z: z,
    "mish": F.mish,
    "quick_gelu": lambda z: z * torch.sigmoid(1.702 * z),
    "relu": F.relu,
    "relu2": lambda z: F.relu(z).square(),
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sqrtsoftplus": lambda z: F.softplus(z).sqrt(),
    "swish": F.silu,
    "tanh": torch.tanh,
}


def known_activation(name: Any, owner: str) -> str:
    """Return the name of an activation, if it is one."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise unknown(owner, "activation", name, ACTIVATIONS)
    return name


class Activation(nn.Module):
    """An activation as a layer, by the name that a configuration gives it."""

    def __init__(self, name: str, owner: str = "Activation") -> None:
        super().__init__()
        self.name = known_activation(name, owner)

    def forward(self, z: Tensor) -> Tensor:
        """Return the activation of every entry."""
        return ACTIVATIONS[self.name](z)

    def extra_repr(self) -> str:
        """Return the name."""
        return self.name


def read_pretrained(
    source: Any, model_type: str, owner: str, defaults: Mapping[str, Any] | None = None, **must: Any
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the weights, by their own names.

    Parameters
    ----------
    source : model or path
        A transformers model, or a directory as above.
    model_type : str
        What the configuration must say, if it says anything: the first files did not.
    owner : str
        Name of the estimator, used at the start of error messages.
    defaults : mapping, optional
        What a configuration file may leave out.
    **must : object
        What else it must say, if it says anything.
    """
    if hasattr(source, "config") and hasattr(source, "state_dict"):
        config = {**source.config.to_dict(), "architectures": [type(source).__name__]}
        weights = source.state_dict()
    elif isinstance(source, str | os.PathLike):
        config, weights = _directory(Path(source), owner)
    else:
        raise kind(owner, "source must be a transformers model or a directory", type(source).__name__)
    if config.get("model_type", model_type) != model_type:
        raise value(owner, f"the model must be of type {model_type!r}", repr(config["model_type"]))
    for name, wanted in must.items():
        if config.get(name, wanted) != wanted:
            raise value(owner, f"{name} of the configuration must be {wanted!r}", repr(config[name]))
    return {**(defaults or {}), **config}, {name: weight.detach() for name, weight in weights.items()}


def fill_pretrained(
    make: Callable[[], nn.Module] | nn.Module,
    weights: Mapping[str, Tensor],
    owner: str,
    optional: tuple[str, ...] = (),
) -> Any:
    """Load weights into a module, all of them, and return it for evaluation; names that begin so may be missing.

    What ``make`` would build is compared with the size of the weights before any memory is taken: a configuration of a
    few bytes can ask for a billion units.
    """
    if isinstance(make, nn.Module):
        module = make
    else:
        try:
            sized(make, weights, owner)
        except Mismatch as error:
            raise value(
                owner, "the weights must be those of the configuration", str(error).rstrip(".")
            ) from error
        module = make()
    have = module.state_dict()
    missing = sorted(name for name in have.keys() - weights.keys() if not name.startswith(optional))
    extra = sorted(weights.keys() - have.keys())
    other = [
        f"{name} of shape {tuple(weights[name].shape)} instead of {tuple(have[name].shape)}"
        for name in sorted(have.keys() & weights.keys())
        if have[name].shape != weights[name].shape
    ]
    if missing or extra or other:
        got = f"{missing[:3]} missing, {extra[:3]} unknown and {other[:3]}"
        raise value(owner, "the weights must be those of the configuration", got)
    module.load_state_dict({**have, **weights})
    return module.eval()


def _directory(path: Path, owner: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    found = sorted(p.name for p in path.iterdir()) if path.is_dir() else []
    present = [name for name in NAMES if {name, f"{name}.index.json"} & set(found)]
    if "config.json" not in found or not present:
        got = ", ".join(found[:8]) or ("nothing" if path.is_dir() else "no such directory")
        do = "Write one with model.save_pretrained(directory); nothing is downloaded."
        raise value(owner, f"{str(path)!r} must hold config.json and {NAMES[0]} (or {NAMES[1]})", got, do)
    weights: dict[str, Tensor] = {}
    for name in _files(path, present[0], owner):
        if name not in found:
            must = f"{str(path)!r} must hold {name}, which its index lists"
            raise value(owner, must, ", ".join(found[:8]), "Copy the missing file beside the others.")
        weights.update(_load(path / name, owner))
    return read_json(path / "config.json", owner), weights


def _files(path: Path, name: str, owner: str) -> list[str]:
    index = path / f"{name}.index.json"
    if not index.is_file():
        return [name]
    return sorted(set(read_json(index, owner).get("weight_map", {}).values()))


def read_json(path: Path, owner: str) -> dict[str, Any]:
    """Return the object that a file holds."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise value(owner, f"{str(path)!r} must hold an object as JSON", error, "Copy it again.") from error


def _load(path: Path, owner: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the bytes make either of them raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        do = "Copy it again, whole; a few lines of text in its place are a pointer of Git LFS."
        raise value(owner, f"{str(path)!r} must be a file of weights and nothing else", got, do) from error
