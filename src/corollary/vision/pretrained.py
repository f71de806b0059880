"""Pre-trained image classifiers and segmenters: a checkpoint of transformers as an estimator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import unknown, value
from corollary.nn.pretrained import read_json, read_pretrained
from corollary.vision import resnet, segformer, vit

__all__ = ["KINDS", "place_weights", "read_checkpoint", "width_of"]

KINDS: dict[str, Any] = {"resnet": resnet, "segformer": segformer, "vit": vit}


def read_checkpoint(source: Any, owner: str, nets: set[str]) -> dict[str, Any]:
    """Return the content of a checkpoint: the kind of net, its arguments, its weights, classes, sides and standardisation."""
    kind = _kind(source, owner, sorted(KINDS.keys() & nets))
    config, weights = read_pretrained(source, kind, owner, KINDS[kind].DEFAULTS)
    channels = config["num_channels"]
    path = Path(source) / "preprocessor_config.json" if isinstance(source, str | os.PathLike) else None
    prepared = read_json(path, owner) if path is not None and path.is_file() else {}
    mean, scale = _standardisation(prepared, channels, owner)
    size = config.get("image_size") or _side(prepared)
    labels = config.get("id2label") or {}
    return {
        "net": kind,
        "options": KINDS[kind].arguments(config),
        "weights": KINDS[kind].own_names(weights),
        "classes": [label for _, label in sorted((int(i), label) for i, label in labels.items())],
        "shape": (channels, *((size, size) if isinstance(size, int) else size)),
        "mean": mean,
        "scale": scale,
    }


def _kind(source: Any, owner: str, known: list[str]) -> str:
    if hasattr(source, "config"):
        said = source.config.to_dict().get("model_type")
    else:
        path = Path(source) / "config.json" if isinstance(source, str | os.PathLike) else None
        said = read_json(path, owner).get("model_type") if path is not None and path.is_file() else known[-1]
    if said not in known:
        raise unknown(
            owner, "pre-trained net", str(said), known, "Other nets are trained from the start, with fit."
        )
    return str(said)


def _side(said: dict[str, Any]) -> int | tuple[int, int]:
    """Return the sides that preprocessing makes images have; 224 if it does not say."""
    size = said.get("crop_size") or said.get("size") or 224
    if not isinstance(size, dict):
        return int(size)
    return (
        (int(size["height"]), int(size["width"])) if "height" in size else int(size.get("shortest_edge", 224))
    )


def _standardisation(said: dict[str, Any], channels: int, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and scale of the channels that the checkpoint's own preprocessing names, else none."""
    if not said.get("do_normalize", bool(said)):
        return np.zeros(channels), np.ones(channels)
    mean, scale = (
        np.array(said.get(key, [0.5] * channels), dtype=float) for key in ("image_mean", "image_std")
    )
    if mean.shape != (channels,) or scale.shape != (channels,) or not (scale > 0).all():
        must = f"preprocessor_config.json must have a mean and a deviation for each of {channels} channels"
        raise value(owner, must, f"{mean.tolist()} and {scale.tolist()}")
    return mean, scale


def width_of(weights: dict[str, Tensor]) -> int:
    """Return the width of the tokens (of the last stage), or of the last maps, of pre-trained weights."""
    tokens = [weight.shape[0] for name, weight in weights.items() if name.endswith("patches.weight")]
    return int(max(tokens or (weight.shape[0] for weight in weights.values() if weight.ndim == 4)))


def place_weights(net: nn.Module, weights: dict[str, Tensor], owner: str, new_head: bool = True) -> None:
    """Put pre-trained weights into a net, usually with another head; positions are interpolated to other numbers of patches."""
    have = net.state_dict()
    shapes = {name: weight.shape for name, weight in have.items()}
    kept = {
        name: weight
        for name, weight in weights.items()
        if not name.startswith("head.") or (not new_head and shapes.get(name) == weight.shape)
    }
    if "positions" in kept and kept["positions"].shape != have["positions"].shape:
        kept["positions"] = _interpolated(kept["positions"], net)
    wrong = [name for name in kept if name not in have or have[name].shape != kept[name].shape]
    if wrong:
        must = "the images and options must fit the pre-trained weights"
        raise value(
            owner, must, f"{len(wrong)} that do not, such as {wrong[0]}", "Keep net, width and options."
        )
    net.load_state_dict({**have, **kept})


def _interpolated(positions: Tensor, net: Any) -> Tensor:
    """Return positions for another grid of patches, as transformers interpolates them."""
    rows, columns = (-(-n // p) for n, p in zip(net.size, net.patch_size))
    side = int((positions.shape[1] - 1) ** 0.5)
    if side * side != positions.shape[1] - 1:
        do = "Resize the images to the sides that the weights were trained on."
        raise value(
            "ViT", "positions of other images can be interpolated from a square only", positions.shape[1], do
        )
    grid = positions[:, 1:].reshape(1, side, side, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], 1)
