"""Learning on graphs: nodes, whole graphs and links.

Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "GraphClassifier": "whole",
    "GraphNetwork": "network",
    "LinkPredictor": "links",
    "NodeClassifier": "nodes",
    "colour_refinement": "wl",
    "split_links": "links",
    "weisfeiler_lehman": "wl",
    "weisfeiler_lehman_kernel": "wl",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"corollary.graphs.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'corollary.graphs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
