"""Weights and tokenizers of GPT-2 and BERT in the layout of the package transformers, by our names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corollary.errors import value
from corollary.nn.pretrained import read_json

__all__ = [
    "BERT_DEFAULTS",
    "GPT2_DEFAULTS",
    "bert_weights",
    "dtype_of",
    "end_tokens",
    "gpt2_weights",
    "tokenizer_of",
]

# What a configuration that does not say means.
GPT2_DEFAULTS = {
    "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
    "activation_function": "gelu_new", "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True,
}  # fmt: skip
BERT_DEFAULTS = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "hidden_dropout_prob": 0.1, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "type_vocab_size": 2,
}  # fmt: skip


def tokenizer_of(source: Any, given: Any, kind: Any, names: tuple[str, ...], size: int, owner: str) -> Any:
    """Return the tokenizer at the path ``given``, else that beside the weights, else None; it must fit the model.

    Parameters
    ----------
    source : model, or path
        Where the weights are from.
    given : path or tokenizer, optional
        Where the tokenizer is, or a fast one of transformers.
    kind : class
        What reads it.
    names : tuple of str
        Files of which a directory must have one.
    size : int
        The vocabulary of the model.
    owner : str
        Name of the estimator, used at the start of error messages.
    """
    if given is None and (
        hasattr(source, "state_dict") or not any((Path(source) / n).is_file() for n in names)
    ):
        return None
    if hasattr(given, "backend_tokenizer"):
        tokenizer = kind.wrap(given)
    else:
        tokenizer = kind.read(source if given is None else given)
    if tokenizer.size > size:
        do = "Pass the tokenizer that the model was trained with."
        raise value(
            owner, f"the tokenizer must have at most the {size} tokens of the model", tokenizer.size, do
        )
    return tokenizer


def dtype_of(weights: Mapping[str, Tensor]) -> str:
    """Return the type of the first of the weights, by name."""
    return str(next(iter(weights.values()), torch.empty(0)).dtype).removeprefix("torch.")


def end_tokens(source: Any, config: Mapping[str, Any], size: int) -> list[int]:
    """Return the tokens at which a checkpoint ends its texts: as its generation settings say, else its configuration."""
    said = config.get("eos_token_id")
    if hasattr(source, "state_dict"):
        settings = getattr(source, "generation_config", None)
        said = getattr(settings, "eos_token_id", None) if settings is not None else said
    elif (Path(source) / "generation_config.json").is_file():
        said = read_json(Path(source) / "generation_config.json", "GPT").get("eos_token_id", said)
    listed = said if isinstance(said, list | tuple) else [] if said is None else [said]
    return [int(token) for token in listed if 0 <= int(token) < size]


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
    heads = sorted({name.split(".")[0] for name in theirs} & {"score", "classifier", "qa_outputs"})
    if heads:
        do = "Save the model inside it: model.transformer.save_pretrained(directory)."
        raise value(
            "GPT", "the checkpoint must be a language model", f"a head named {', '.join(heads)!r}", do
        )
    tops = GPT2_TOP if tied else {**GPT2_TOP, "lm_head.weight": "head.weight"}
    out = {ours: theirs[name] for name, ours in tops.items() if name in theirs}
    for name, weight in theirs.items():
        parts = name.split(".", 2)
        if parts[0] != "h" or name.endswith((".attn.bias", ".attn.masked_bias")):  # masks of old files
            continue
        layer, _, end = parts[2].rpartition(".")
        turned = weight.T if end == "weight" and "ln" not in layer else weight
        out[f"blocks.{parts[1]}.{GPT2_LAYER.get(layer, layer)}.{end}"] = turned.contiguous()
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
    "cls.predictions.decoder.bias": "guess_bias",
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
OLD = {"gamma": "weight", "beta": "bias"}  # of a layer norm, in files of 2018


def bert_weights(weights: Mapping[str, Tensor], n_layers: int, owner: str = "BERT") -> dict[str, Tensor]:
    """Return BERT's weights by the names of our encoder; queries, keys and values are one matrix here."""
    theirs = {}
    for name, weight in weights.items():
        start, _, end = name.removeprefix("bert.").rpartition(".")
        theirs[f"{start}.{OLD.get(end, end)}"] = weight
    _check_tied(theirs, owner)
    out = {ours: theirs[name] for name, ours in BERT_TOP.items() if name in theirs}
    for i in range(n_layers):
        start = f"encoder.layer.{i}."
        for end in ("weight", "bias"):
            parts = [theirs.get(f"{start}attention.self.{part}.{end}") for part in ("query", "key", "value")]
            if all(part is not None for part in parts):
                out[f"blocks.{i}.qkv.{end}"] = torch.cat(parts)
            for name, ours in BERT_LAYER.items():
                if f"{start}{name}.{end}" in theirs:
                    out[f"blocks.{i}.{ours}.{end}"] = theirs[f"{start}{name}.{end}"]
    return out


def _check_tied(theirs: Mapping[str, Tensor], owner: str) -> None:
    matrix = theirs.get("cls.predictions.decoder.weight")
    embedding = theirs.get("embeddings.word_embeddings.weight")
    if matrix is not None and embedding is not None and not torch.equal(matrix, embedding):
        raise value(
            owner, "the output matrix must be the embedding, as published", "another one (untied weights)"
        )
