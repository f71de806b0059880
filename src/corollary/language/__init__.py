"""Language models: transformer, ELMo, BERT and its fine-tuned heads, GPT.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "BERT": "bert",
    "BERTAnswerer": "bert_answerer",
    "BERTClassifier": "bert_classifier",
    "BERTRegressor": "bert_classifier",
    "BERTTagger": "bert_tagger",
    "BytePairTokenizer": "tokens",
    "CharacterTokenizer": "tokens",
    "ELMo": "elmo",
    "GPT": "gpt",
    "Transformer": "transformer",
    "WordPieces": "subwords",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.language.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.language' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
