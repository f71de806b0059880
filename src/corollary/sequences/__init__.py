"""Models of sequences: classification, tagging, forecasting, waveforms, sequence-to-sequence.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "MemoryNetwork": "memory",
    "Seq2Seq": "seq2seq",
    "SequenceClassifier": "classifier",
    "SequenceForecaster": "forecaster",
    "SequenceNetwork": "network",
    "SequenceTagger": "tagger",
    "TextCNN": "textcnn",
    "WaveNet": "wavenet",
    "backtest": "backtesting",
    "bleu": "scoring",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.sequences.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.sequences' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
