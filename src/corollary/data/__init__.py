"""The user's own files by kind, named data sets, and image augmentation.

>>> from corollary import data
>>> wine = data.load("wine")
>>> train, test = data.split(wine, test=0.25, seed=0)
>>> len(train), len(test)
(133, 45)

``load`` reads files and names, ``names`` and ``describe`` say what there is, ``split`` and ``splits`` hold some of
any kind of data out, ``numeric`` makes a table of mixed columns one of numbers, ``table_of`` makes numbers that a model of such a
table drew one of its columns. ``corollary.data.kinds``
validates the inputs of every model, ``corollary.data.augment`` the image augmentation,
``corollary.data.sources`` what is read batch by batch: memory maps, Parquet, image folders, torch data sets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corollary.data import augment
    from corollary.data.columns import table_of
    from corollary.data.dataset import Dataset
    from corollary.data.graphs import Graph
    from corollary.data.limits import Limits
    from corollary.data.loading import load
    from corollary.data.registry import describe, names
    from corollary.data.sources import ImageFolder, ParquetTable, Source
    from corollary.data.splitting import split, splits
    from corollary.data.tables import encoder, numeric

_WHERE = {
    "Dataset": "dataset",
    "Graph": "graphs",
    "ImageFolder": "sources",
    "Limits": "limits",
    "describe": "registry",
    "encoder": "tables",
    "load": "loading",
    "ParquetTable": "sources",
    "Source": "sources",
    "names": "registry",
    "numeric": "tables",
    "split": "splitting",
    "splits": "splitting",
    "table_of": "columns",
}

__all__ = [
    "Dataset",
    "Graph",
    "ImageFolder",
    "Limits",
    "ParquetTable",
    "Source",
    "augment",
    "describe",
    "encoder",
    "load",
    "names",
    "numeric",
    "split",
    "splits",
    "table_of",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.data.{_WHERE[name]}"), name)
    if name == "augment":  # a module, and the only one that needs torch
        return import_module("corollary.data.augment")
    raise AttributeError(f"module 'corollary.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
