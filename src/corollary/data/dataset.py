"""What :func:`corollary.data.load` returns: the data, the target, and where both come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from corollary import errors

__all__ = ["KINDS", "Dataset", "length", "missing_file"]

# Kind -> what X holds.
KINDS = {
    "table": "2-D float array or CSR matrix, or a pandas DataFrame if some column is not a number",
    "image": "array (n, h, w) or (n, c, h, w), uint8 or float in [0, 1]",
    "sequence": "list of (t,) integer arrays, (t, d) float arrays, strings, or lists of words",
    "set": "list of (m, d) float arrays",
    "graph": "one graph with x, edge_index and y",
    "graphs": "list of graphs, one label each",
    "text": "list of strings",
    "ratings": "scipy.sparse CSR matrix, rows are users",
}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Data of one kind with its target and its provenance.

    Parameters
    ----------
    X : array, DataFrame, list, sparse matrix or Graph
        The data, in the form that :data:`KINDS` gives for ``kind``.
    y : array or list, optional
        One label, number or text per example; per node for a graph.
    kind : str
        A key of :data:`KINDS`.
    name : str
        Name of the data set, or of the file.
    feature_names, target_names : sequence of str, optional
        Column names of a table; class names in the order of the codes in ``y``, if ``y`` holds codes.
    licence, source : str
        Terms of the data (not of the package that carries it), and where they were published.
    extra : dict
        All else: ``split`` (train and test rows of a published split), ``validation`` (its validation
        rows), ``users`` and ``items`` (labels of the rows and columns of ratings), ``nodes``, ``rate``.

    Examples
    --------
    >>> from corollary import data
    >>> iris = data.load("iris")
    >>> iris
    Dataset 'iris': table, X (150, 4), y (150,)
    >>> len(iris)
    150
    """

    X: Any
    y: Any = None
    kind: str = "table"
    name: str = ""
    feature_names: Sequence[str] | None = None
    target_names: Sequence[str] | None = None
    licence: str = ""
    source: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise errors.unknown("Dataset", "kind", self.kind, KINDS)

    def __len__(self) -> int:
        return length(self.X)

    def __repr__(self) -> str:
        target = "" if self.y is None else f", y {_size(self.y)}"
        return f"Dataset {self.name!r}: {self.kind}, X {_size(self.X)}{target}"


def length(X: Any) -> int:
    """Return the number of examples: rows, documents, users, or nodes of a graph."""
    if hasattr(X, "edge_index"):
        return int(X.num_nodes)
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def missing_file(owner: str, must: str, got: object, do: str = "") -> FileNotFoundError:
    """Return the error for a file that is not there, in the wording of :mod:`corollary.errors`."""
    return FileNotFoundError(errors.wording(owner, must, got, do))


def _size(values: Any) -> str:
    if hasattr(values, "edge_index"):
        return f"with {values.num_nodes} nodes and {values.edge_index.shape[1]} edges"
    return str(tuple(values.shape)) if hasattr(values, "shape") else f"list of {len(values)}"
