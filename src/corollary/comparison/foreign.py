"""Models of scikit-learn in files of skops, which hold no code: what a file may hold, and loading it.

skops builds only objects of types that it knows to be harmless, or that the caller trusts. To its list are added, by name:

* the trees of scikit-learn's forests and boosting. Compiled code follows their indices without looking where they lead,
  which is why skops leaves them to the caller; here every index is checked after loading, before anything is predicted;
* the trees of its neighbour searches, which are built anew from the points they hold;
* the classes of this library that a board can save beside or around them, which hold arrays and counts only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors

__all__ = ["TRUSTED", "dump", "load"]

_TREES = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)
_NEIGHBOURS = (
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
)
_OURS = {
    "corollary.comparison.baselines": (
        "FirstText",
        "Letters",
        "Middle",
        "NodesAlone",
        "OneGroup",
        "OneTopic",
        "SamePart",
        "SamePixel",
        "Steps",
    ),
    "corollary.comparison.densities": ("DensityOfData", "Gaussians", "Histograms"),
    "corollary.comparison.ranking": ("Popular",),
    "corollary.data.table_encoder": ("TableEncoder",),
    "corollary.sequences.backtesting": ("Naive",),
}
TRUSTED: tuple[str, ...] = (
    *_TREES,
    *_NEIGHBOURS,
    *(f"{module}.{name}" for module, names in _OURS.items() for name in names),
    "collections.Counter",
    "numpy.dtype",
)


def dump(model: Any) -> bytes:
    """Return a model in the format of skops; files of ours never hold pickles."""
    name = type(model).__name__
    skops = _skops(
        "save",
        f"a model of scikit-learn ({name}) is saved with skops",
        ", or save a system of the library: board.fit(NAME).save(DIRECTORY)",
    )
    try:
        return bytes(skops.dumps(model))
    except Exception as error:  # whatever a class of the user's makes of it
        do = "Save it in your own way: board.best.model is the estimator."
        got = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        raise errors.value("save", f"{name} must be of a kind that skops writes", got, do) from error


def load(path: Path, trusted: Sequence[str] = ()) -> Any:
    """Return the model of a file; nothing in it is run, and types beyond :data:`TRUSTED` must be named in ``trusted``."""
    skops = _skops("load", f"{path.name} is read with skops", "")
    try:
        strange = sorted({*skops.get_untrusted_types(file=path)} - {*TRUSTED, *trusted})
    except Exception as error:  # whatever damaged bytes make it raise
        raise _damaged(path, error) from error
    if strange:
        do = "If you made the file yourself, trust them: " + " ".join(f"--trust {name}" for name in strange)
        do += f" (Chosen.load(..., trusted={strange}) in Python)."
        must = f"{path.name} may hold only types that are known to do no harm"
        raise errors.value("load", must, ", ".join(strange), do)
    try:
        model = skops.load(path, trusted=[*TRUSTED, *trusted])
        check_trees(model)
        renew_neighbours(model)
    except errors.Refused:
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    return model


def _skops(owner: str, must: str, otherwise: str) -> Any:
    try:
        import skops.io
    except ImportError as error:
        do = f'Run `pip install "corollary[skops]"`{otherwise}.'
        raise ImportError(errors.wording(owner, must, "no such package", do)) from error
    return skops.io


def _damaged(path: Path, error: Exception) -> ValueError:
    got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160].rstrip(".")
    return errors.value("load", f"{path.name} must be a whole file of skops", got, "Save the model again.")


# --- trees -----------------------------------------------------------------------------------------------


def check_trees(model: Any) -> None:
    """Raise if a node of a tree points outside of the tree, back to itself, or to a feature that is not there."""
    from sklearn.tree._tree import Tree

    for owner in _parts(model, set()):
        found = getattr(owner, "__dict__", {})
        if isinstance(found.get("tree_"), Tree):
            _check_tree(found["tree_"], found.get("n_features_in_"))
        for predictor in (tree for group in found.get("_predictors", ()) for tree in group):
            _check_predictor(predictor, found["n_features_in_"], found["_bin_mapper"].is_categorical_)


def renew_neighbours(model: Any) -> None:
    """Build the trees of neighbour searches anew from their points: what else a file says of them is not believed."""
    from sklearn.neighbors import BallTree, KDTree

    for owner in [*_parts(model, set())]:
        for name, tree in [*getattr(owner, "__dict__", {}).items()]:
            if isinstance(tree, KDTree | BallTree):
                points, weights = np.array(tree.data), getattr(tree, "sample_weight", None)
                weights = None if weights is None else np.array(weights)
                leaf = int(np.clip(tree.__getstate__()[4], 1, len(points)))
                setattr(owner, name, type(tree)(points, leaf_size=leaf, sample_weight=weights))


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a value and all that it holds."""
    if id(value) in seen or isinstance(value, str | bytes | int | float | type(None)):
        return
    seen.add(id(value))
    yield value
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, list | tuple | set) or (isinstance(value, np.ndarray) and value.dtype == object):
        inside = value.ravel() if isinstance(value, np.ndarray) else value
    for part in (*inside, *getattr(value, "__dict__", {}).values()):
        yield from _parts(part, seen)


def _check_tree(tree: Any, features: Any) -> None:
    n = int(tree.node_count)
    if not 0 < n <= tree.capacity or tree.n_features != features:
        raise _wrong(f"{n} nodes in {tree.capacity} places, of {tree.n_features} features")
    left, right = tree.children_left, tree.children_right
    inner = np.flatnonzero(left != -1)
    _check_nodes(inner, left[inner], right[inner], tree.feature[inner], n, int(features))


def _check_predictor(predictor: Any, features: int, categorical: np.ndarray) -> None:
    nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    some = nodes[inner]
    _check_nodes(inner, some["left"], some["right"], some["feature_idx"], len(nodes), features)
    by_set = some[some["is_categorical"] != 0]
    if len(categorical) != features or sets.ndim != 2 or sets.shape[1] != 8:
        raise _wrong(f"sets of categories of shape {sets.shape}")
    if len(by_set) and (
        by_set["bitset_idx"].max() >= len(sets) or not np.all(categorical[by_set["feature_idx"]])
    ):
        raise _wrong("a set of categories that is not there")


def _check_nodes(inner: Any, left: Any, right: Any, feature: Any, n: int, features: int) -> None:
    """Children come after their node, in every tree that scikit-learn grows: following them ends."""
    for child in (left, right):
        child = np.asarray(child, dtype=np.int64)
        if len(child) and (child.max() >= n or np.any(child <= inner)):
            raise _wrong(f"a child outside of its tree of {n} nodes")
    if len(feature) and (feature.min() < 0 or feature.max() >= features):
        raise _wrong(f"feature {int(feature.max())} of {features}")


def _wrong(got: str) -> ValueError:
    return errors.value("load", "the nodes of a tree must lie in it", got, "Save the model again.")
