"""Weights of the package transformers, from a model in memory or a directory on disk; nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corollary.errors import kind, value

__all__ = ["bert_weights", "gpt2_weights", "read_checkpoint", "tokenizer_path"]


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


def tokenizer_path(source: Any, *names: str) -> Path | None:
    """Return the directory that a model came from, if it holds a tokenizer's file by one of the names."""
    if not isinstance(source, str | Path):
        return None
    return Path(source) if any((Path(source) / name).is_file() for name in names) else None


# --- names of GPT-2 ----------------------------------------------------------------------------------------

GPT2_TOP = {
    "wte.weight": "tokens.weight",
    "wpe.weight": "places.weight",
    "ln_f.weight": "norm.weight",
    "ln_f.bias": "norm.bias",
}
GPT2_LAYER = {
    "ln_1": "norm1",
    "attn.c_attn": "qkv",
    "attn.c_proj": "mix",
    "ln_2": "norm2",
    "mlp.c_fc": "expand",
    "mlp.c_proj": "contract",
}


def gpt2_weights(weights: Mapping[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """Return GPT-2's weights by the names of our decoder; its linear maps are stored the other way round."""
    theirs = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    out = {ours: theirs[name] for name, ours in GPT2_TOP.items()}
    if not tied:
        out["head.weight"] = theirs["lm_head.weight"]
    for name, weight in theirs.items():
        parts = name.split(".", 2)
        if parts[0] != "h" or name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        layer, _, end = parts[2].rpartition(".")
        turned = weight.T if end == "weight" and "ln" not in layer else weight
        out[f"blocks.{parts[1]}.{GPT2_LAYER[layer]}.{end}"] = turned.contiguous()
    return out


# --- names of BERT -----------------------------------------------------------------------------------------

BERT_TOP = {
    "embeddings.word_embeddings.weight": "tokens.weight",
    "embeddings.position_embeddings.weight": "places.weight",
    "embeddings.token_type_embeddings.weight": "types.weight",
    "embeddings.LayerNorm.weight": "norm.weight",
    "embeddings.LayerNorm.bias": "norm.bias",
    "pooler.dense.weight": "pooler.weight",
    "pooler.dense.bias": "pooler.bias",
    "cls.predictions.transform.dense.weight": "guess.weight",
    "cls.predictions.transform.dense.bias": "guess.bias",
    "cls.predictions.transform.LayerNorm.weight": "guess_norm.weight",
    "cls.predictions.transform.LayerNorm.bias": "guess_norm.bias",
    "cls.predictions.bias": "guess_bias",
    "cls.seq_relationship.weight": "follows.weight",
    "cls.seq_relationship.bias": "follows.bias",
}
BERT_LAYER = {
    "attention.output.dense": "mix",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "expand",
    "output.dense": "contract",
    "output.LayerNorm": "norm2",
}


def bert_weights(weights: Mapping[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Return BERT's weights by the names of our encoder; queries, keys and values are one matrix here."""
    theirs = {name.removeprefix("bert."): weight for name, weight in weights.items()}
    out = {ours: theirs[name] for name, ours in BERT_TOP.items() if name in theirs}
    for i in range(n_layers):
        start = f"encoder.layer.{i}."
        for end in ("weight", "bias"):
            parts = [theirs[f"{start}attention.self.{part}.{end}"] for part in ("query", "key", "value")]
            out[f"blocks.{i}.qkv.{end}"] = torch.cat(parts)
            for name, ours in BERT_LAYER.items():
                out[f"blocks.{i}.{ours}.{end}"] = theirs[f"{start}{name}.{end}"]
    return out
