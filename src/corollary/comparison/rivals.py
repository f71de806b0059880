"""Who takes part: systems of the catalog, scikit-learn's usual ones, the user's own, and baselines.

Every rival is read the same way: what its columns mean is learned from the training part of a split and applied to
the held-out part. Columns of numbers are standardised for the systems of the catalog, as for scikit-learn's linear models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from corollary import catalog, errors
from corollary.data.columns import (
    LARGE,
    LEFT_OUT,
    as_columns,
    fit_targets,
    frame_of,
    is_numeric,
    learn_columns,
)
from corollary.data.convert import as_input, inputs
from corollary.data.dataset import Dataset
from corollary.data.detect import typed
from corollary.data.encodings import headings

__all__ = ["Reader", "Rival", "from_catalog", "given", "scikit"]

GROUPS = ("corollary", "scikit-learn", "yours", "baseline")


@dataclass(frozen=True)
class Rival:
    """One line of a board.

    Parameters
    ----------
    id : str
        Its name on the board.
    name : str
        What it is.
    group : {"corollary", "scikit-learn", "yours", "baseline"}
        Where it comes from.
    input : str or None
        Kind of data it takes; None takes them as they were given.
    make : callable
        ``make(training part, seed)`` returns an unfitted estimator.
    standardise : bool, default=False
        Whether columns of numbers shall have mean 0 and variance 1.
    codes : bool, default=False
        Whether a category shall be one column of codes, and gaps stay: for trees that split sets of values.
    sparse : bool, default=False
        Whether a large table of categories may be a sparse matrix.
    """

    id: str
    name: str
    group: str
    input: str | None
    make: Callable[[Dataset, int], Any]
    standardise: bool = False
    codes: bool = False
    sparse: bool = False


@dataclass
class Reader:
    """How a rival reads data: learned from a training part, then applied to any other part."""

    rival: Rival
    reading: dict[str, Any] = field(default_factory=dict)
    sparse: bool = False

    def learn(self, kept: Dataset, target: str | None = None) -> Dataset:
        """Return the training part as the rival takes it.

        With ``target`` ("classes" or "numbers"), categories of many values get their mean targets, cross-fitted.
        """
        if self.rival.input is None:
            self.reading = _types(kept)
            return kept
        kept = _named(kept)
        if kept.kind == self.rival.input == "table" and not hasattr(kept.X, "tocsr"):
            return self._learn_columns(kept, target)
        found = as_input(kept, self.rival.input, self.rival.name)
        self.reading = dict(found.extra.get("reading", {}))
        return self._dense(found)

    def _learn_columns(self, kept: Dataset, target: str | None) -> Dataset:
        told, codes = kept.extra.get("columns"), self.rival.codes
        self.sparse = self.rival.sparse and target is not None
        columns = learn_columns(kept.X, kept.feature_names, told, gaps=codes, codes=codes, sparse=self.sparse)
        frame = frame_of(kept.X)
        fitted = fit_targets(frame, columns, kept.y, target) if frame is not None else {}
        self.reading = {"columns": columns}
        found = as_columns(kept, columns, self.rival.name, fitted, self.sparse)
        if self.rival.standardise and _scale(self.reading, found):
            found = as_columns(kept, self.reading["columns"], self.rival.name, fitted)
        return replace(found, extra={**found.extra, "reading": self.reading})

    def __call__(self, dataset: Dataset) -> Dataset:
        """Return other data as the rival takes them."""
        if self.rival.input is None:
            return _as_typed(dataset, self.reading.get("types", {}))
        found = as_input(_named(dataset), self.rival.input, self.rival.name, self.reading, sparse=self.sparse)
        return found if self.sparse else self._dense(found)

    def _dense(self, found: Dataset) -> Dataset:
        """Return a table of counts as an array, for what takes no other; a large one as it is."""
        thin = found.kind == "table" and hasattr(found.X, "tocsr") and not self.rival.sparse
        if not thin or 8 * np.prod(found.X.shape) > LARGE:
            return found
        return replace(found, X=found.X.toarray())


def _types(dataset: Dataset) -> dict[str, Any]:
    """Return how the columns of a frame are written, for what takes frames as they are: a pipeline of the user's."""
    if dataset.kind != "table" or not hasattr(dataset.X, "iloc"):
        return {}
    known, kinds = dataset.extra.get("columns", {}), {}
    for name, dtype in dataset.X.dtypes.items():
        kind = "number" if is_numeric(dtype) else "date" if str(dtype).startswith("datetime") else "category"
        how = {
            key: known.get(str(name), {})[key]
            for key in ("format", "decimal", "unit")
            if key in known.get(str(name), {})
        }
        kinds[str(name)] = {"kind": kind, **how}
    return {"types": kinds}


def _as_typed(dataset: Dataset, types: dict[str, Any]) -> Dataset:
    """Return a frame with the columns of the fit, of the types that they had there."""
    frame = frame_of(dataset.X)
    if not types or frame is None:
        return dataset
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    missing = [name for name in types if name not in frame.columns]
    if missing:
        must = f"the data must have the columns of the fit; {missing[0]!r} is missing"
        raise errors.value("load", must, ", ".join(frame.columns), "Name the columns as in the fit.")
    return replace(dataset, X=typed(frame[[*types]], types)[0], feature_names=[*types])


def _named(dataset: Dataset) -> Dataset:
    """Return a table of numbers with names for its columns: what is learned about a column is kept by name."""
    if dataset.kind != "table" or dataset.feature_names is not None or hasattr(dataset.X, "iloc"):
        return dataset
    return replace(dataset, feature_names=[f"x{i}" for i in range(dataset.X.shape[1])])


def _scale(reading: dict[str, Any], found: Dataset) -> bool:
    """Add mean and scale to columns of plain numbers of a dense table; return whether there were any."""
    columns = reading.get("columns")
    if not columns or hasattr(found.X, "tocsr") or "image_shape" in found.extra:
        return False
    place = {str(name): j for j, name in enumerate(found.feature_names or ())}
    X = np.asarray(found.X)
    scaled = []
    for column in columns:
        plain = column.get("kind", "number") == "number" and "values" not in column and "mean" not in column
        if plain and column["name"] in place:
            values = X[:, place[column["name"]]]
            known = values[~np.isnan(values)]
            mean, scale = (float(known.mean()), float(known.std())) if len(known) else (0.0, 1.0)
            fill = float(np.median(known)) if len(known) else 0.0
            column = {"fill": fill, **column, "mean": mean, "scale": scale or 1.0}
        scaled.append(column)
    reading["columns"] = scaled
    return scaled != columns


# --- the catalog -----------------------------------------------------------------------------------------


def from_catalog(
    entry: catalog.Entry,
    settings: Callable[[Any, Dataset], dict[str, Any]] | None = None,
    kind: str | None = None,
) -> Rival:
    """Return a system of the catalog with settings that fit the data, which it sees as of this kind if it can.

    A class may have its own: ``_compare_params(dataset)`` returns parameters for a training part.
    """

    def make(data: Dataset, seed: int) -> Any:
        model = entry.create()
        known = model.get_params()
        own = type(model)._compare_params(data) if hasattr(type(model), "_compare_params") else {}
        params = {**(settings(model, data) if settings else {}), **own}
        if "random_state" in known:
            params["random_state"] = seed
        return model.set_params(**params)

    group = "baseline" if entry.id in BASELINES else "corollary"
    if kind in entry.also:
        return Rival(entry.id, entry.name, group, kind, make)
    scaled, sparse = _by_scale(entry), entry.input == "table" and _takes_sparse(entry.create())
    return Rival(entry.id, entry.name, group, entry.input, make, standardise=scaled, sparse=sparse)


def _takes_sparse(estimator: Any) -> bool:
    """Whether an estimator says that it takes sparse matrices."""
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.sparse)
    except (AttributeError, TypeError, ValueError):  # of another library, without scikit-learn's tags
        return False


def _by_scale(entry: catalog.Entry) -> bool:
    """Whether the columns of a table shall be standardised: not for what needs positive numbers or patterns of bits."""
    from sklearn.utils import get_tags

    if entry.input != "table" or {"topic-model", "memory"} & set(entry.roles):
        return False
    return not get_tags(entry.create()).input_tags.positive_only


BASELINES = {"baseline"}  # ids of the catalog that are there to be beaten
WHOLE = {"density", "generation"}  # tasks in which images are seen as images by all who can


def find(names: Sequence[Any] | None, role: str, dataset: Dataset, task: str, settings: Any) -> list[Rival]:
    """Return the rivals with these names, or all of the catalog that play the role on such data."""
    kind = dataset.kind if task in WHOLE else None
    if names is not None:
        return [
            from_catalog(catalog.find(name), settings, kind) if isinstance(name, str) else given(name)
            for name in names
        ]
    kinds = inputs(dataset.kind)
    found = [entry for entry in catalog.entries(role=role, kind="estimator") if entry.input in kinds]
    if task == "reconstruction":
        found = [entry for entry in found if hasattr(entry.load(), "inverse_transform")]
    found = [entry for entry in found if _can(entry, dataset)]
    if task == "multilabel":
        found = [entry for entry in found if getattr(entry.load(), "_several_labels", False)]
    if not found:
        must = f"some system must do {task} on data of kind {dataset.kind}"
        from corollary.roletable import TASKS

        raise errors.value("compare", must, "none in the catalog", f"Tasks: {', '.join(TASKS)}.")
    return [from_catalog(entry, settings, kind) for entry in found]


def _can(entry: catalog.Entry, dataset: Dataset) -> bool:
    """Whether a system takes as many classes, and graphs of the kind, as the data have."""
    from sklearn.utils import get_tags

    if dataset.kind in ("graph", "graphs"):
        return entry.module.endswith("whole") == (dataset.kind == "graphs")
    if (
        "classifier" not in entry.roles
        or dataset.y is None
        or isinstance(dataset.y, list)
        or np.ndim(dataset.y) != 1
    ):
        return True
    tags = get_tags(entry.create()).classifier_tags
    return tags is None or tags.multi_class or len(np.unique(np.asarray(dataset.y).astype(str))) <= 2


# --- scikit-learn ----------------------------------------------------------------------------------------


def scikit(
    id: str,
    name: str,
    input: str | None,
    make: Callable[[Dataset, int], Any],
    scaled: bool = False,
    codes: bool = False,
    sparse: bool = False,
) -> Rival:
    """Return an estimator of scikit-learn as a rival."""
    return Rival(id, name, "scikit-learn", input, make, scaled, codes, sparse)


def given(estimator: Any) -> Rival:
    """Return the user's own estimator or pipeline as a rival.

    Pipelines get the data as they are; other estimators get a table of numbers where the data are a table.
    """
    from sklearn.base import clone
    from sklearn.pipeline import Pipeline

    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        do = "Pass names such as 'mlp', or estimators with fit and get_params."
        raise errors.kind("compare", "systems must be names or estimators", type(estimator).__name__, do)
    name = type(estimator).__name__ if not isinstance(estimator, Pipeline) else _steps(estimator)
    input = None if isinstance(estimator, Pipeline) else getattr(estimator, "input", "table")
    shown = " ".join(repr(estimator).split())
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    sparse = input == "table" and _takes_sparse(estimator)
    return Rival(name, shown, "yours", input, lambda data, seed: clone(estimator), sparse=sparse)


def _steps(pipeline: Any) -> str:
    return " + ".join(type(step).__name__ for _, step in pipeline.steps)


def classifiers(dataset: Dataset) -> list[Rival]:
    """Return scikit-learn's usual classifiers for data of this kind."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    def linear(data: Dataset, seed: int) -> Any:
        return LogisticRegression(max_iter=1000)

    def forest(data: Dataset, seed: int) -> Any:
        return RandomForestClassifier(300, random_state=seed)

    logistic = scikit("sk-logistic", "LogisticRegression", "table", linear, True, sparse=True)
    forests = scikit("sk-forest", "RandomForestClassifier", "table", forest, sparse=True)
    if dataset.kind == "text":

        def tfidf(data: Dataset, seed: int) -> Any:
            words = TfidfVectorizer(
                sublinear_tf=True, ngram_range=(1, 2), min_df=2 if len(data) >= 200 else 1
            )
            return make_pipeline(words, LogisticRegression(C=10, max_iter=1000))

        return [scikit("sk-tfidf", "tf-idf + LogisticRegression", "text", tfidf)]
    if dataset.kind == "image":
        return [
            logistic,
            forests,
            scikit("sk-svm", "SVC", "table", lambda data, seed: SVC(random_state=seed), True),
        ]
    if dataset.kind == "graph":
        from corollary.comparison.baselines import NodesAlone

        alone = scikit(
            "sk-logistic", "LogisticRegression, no edges", None, lambda d, s: NodesAlone(linear(d, s))
        )
        return [alone] if dataset.X.x is not None else []
    if dataset.kind != "table":
        return []
    boosting = scikit(
        "sk-boosting",
        "HistGradientBoostingClassifier",
        "table",
        lambda data, seed: HistGradientBoostingClassifier(**_boosting(data, seed)),
        codes=True,
    )
    return [boosting, forests, logistic]


class OnePerLabel:
    """A classifier of scikit-learn for each label, of lists of labels or a table of zeros and ones."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any, y: Any) -> OnePerLabel:
        """Fit one for each label."""
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import Pipeline

        from corollary.data.multilabel import label_sets

        found = label_sets(y)
        self.classes_, table = found if found is not None else (np.arange(np.shape(y)[1]), np.asarray(y))
        self.before_ = self.model[:-1] if isinstance(self.model, Pipeline) else None
        last = self.model[-1] if isinstance(self.model, Pipeline) else self.model
        X = X if self.before_ is None else self.before_.fit_transform(X)
        self.model_ = OneVsRestClassifier(last).fit(X, table.astype(int))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return which labels each sample has."""
        return np.asarray(self.model_.predict(X if self.before_ is None else self.before_.transform(X)))


def labellers(dataset: Dataset) -> list[Rival]:
    """Return logistic regression for each label, on tf-idf where the data are texts."""
    wanted = {"text": "sk-tfidf", "table": "sk-logistic"}.get(dataset.kind)
    found = [rival for rival in classifiers(dataset) if rival.id == wanted]

    def around(rival: Rival) -> Rival:
        return replace(
            rival,
            make=lambda data, seed: OnePerLabel(rival.make(data, seed)),
            name=f"{rival.name}, per label",
        )

    return [around(rival) for rival in found]


def regressors(dataset: Dataset) -> list[Rival]:
    """Return scikit-learn's usual regressors for data of this kind."""
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    def ridge(data: Dataset, seed: int) -> Any:
        return RidgeCV(np.logspace(-3, 4, 15))

    if dataset.kind == "text":
        make = lambda data, seed: make_pipeline(TfidfVectorizer(sublinear_tf=True), ridge(data, seed))
        return [scikit("sk-tfidf", "tf-idf + RidgeCV", "text", make)]
    if dataset.kind not in ("table", "image"):
        return []

    def boosting(data: Dataset, seed: int) -> Any:
        return HistGradientBoostingRegressor(**_boosting(data, seed))

    def forest(data: Dataset, seed: int) -> Any:
        return RandomForestRegressor(300, random_state=seed)

    return [
        scikit("sk-boosting", "HistGradientBoostingRegressor", "table", boosting, codes=True),
        scikit("sk-forest", "RandomForestRegressor", "table", forest, sparse=True),
        scikit("sk-ridge", "RidgeCV", "table", ridge, True),
    ]


def _boosting(data: Dataset, seed: int) -> dict[str, Any]:
    """Return settings for gradient boosting; which columns are codes of categories is told to it."""
    columns = data.extra.get("reading", {}).get("columns", ())
    kept = [column for column in columns if column["kind"] not in LEFT_OUT]
    coded = [headings(column)[0] for column in kept if "codes" in column]
    places = [j for j, name in enumerate(data.feature_names or ()) if name in coded]
    return {
        "categorical_features": places or None,
        "early_stopping": "auto" if len(data) > 10000 else False,
        "random_state": seed,
    }


def densities(dataset: Dataset) -> list[Rival]:
    """Return a kernel density estimate."""
    from sklearn.neighbors import KernelDensity

    if dataset.kind not in ("table", "image"):
        return []
    kernel = lambda data, seed: KernelDensity(bandwidth="scott")
    return [scikit("sk-kernel", "KernelDensity", "table", kernel)]


def clusterers(dataset: Dataset) -> list[Rival]:
    """Return k-means."""
    from sklearn.cluster import KMeans

    n = len(np.unique(dataset.y)) if dataset.y is not None else 8
    return [scikit("sk-kmeans", "KMeans", "table", lambda data, seed: KMeans(n, random_state=seed), True)]


def encoders(dataset: Dataset) -> list[Rival]:
    """Return principal components."""
    from sklearn.decomposition import PCA

    from corollary.comparison.tasks import code_size

    make = lambda data, seed: PCA(code_size(data), random_state=seed)
    return [scikit("sk-pca", "PCA", "table", make, True)]
