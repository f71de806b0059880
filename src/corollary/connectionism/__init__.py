"""Connectionism: threshold units, perceptrons and memories. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "Adaline": "adaline",
    "BernoulliRBM": "rbm",
    "CapacityCurve": "hopfield",
    "HopfieldNetwork": "hopfield",
    "NandMachine": "nand",
    "Perceptron": "perceptron",
    "ThresholdUnit": "threshold",
    "WillshawMemory": "willshaw",
    "capacity_curve": "hopfield",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.connectionism.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.connectionism' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
