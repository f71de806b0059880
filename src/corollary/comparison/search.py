"""A small search of settings inside each training part, in the time of one fit.

Classifiers, regressors and densities of samples that can be divided are searched by scikit-learn's successive halving over
random draws. For all other tasks, and for other kinds of data, the settings at hand and random draws are fitted to three
quarters of the training part and measured on the rest by the board's own measure. Either way a part of the time is kept for
the last fit: a search that takes too long ends with the best settings so far, or with those at hand.

Spaces go by the names of parameters, so that a new system is searched without an entry of its own; a class may say
more in ``_compare_space()``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint
from sklearn.base import BaseEstimator, clone

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.engine.clock import now
from corollary.engine.loop import OutOfTime, time_box
from corollary.engine.run import Run, current
from corollary.roletable import TASKS

__all__ = ["SPACES", "Search", "check_search", "searched", "space_of"]

# whose models scikit-learn's search can divide and score
HALVED = ("classification", "regression", "density")
KINDS = ("table", "image", "text", "sequence")  # of data that it can divide
# Codes are compared at one length; groups are found without labels; the nodes of a graph cannot be divided again.
FIXED = ("reconstruction", "clustering", "separation", "nodes")
FEWEST = 60  # examples below which settings are not told apart
SHARE = 0.6  # of the time, for the search

SPACES: dict[str, Any] = {
    "C": loguniform(1e-3, 1e3),
    "alpha": loguniform(1e-5, 1e2),
    "l2_regularization": loguniform(1e-3, 1e2),
    "learning_rate": loguniform(2e-2, 3e-1),
    "max_leaf_nodes": randint(7, 64),
    "min_samples_leaf": randint(1, 40),
    "max_features": [None, "sqrt", 0.3, 0.6],
    "hidden_layer_sizes": [(64,), (128,), (256,), (64, 64), (128, 128), (256, 128)],
    "dropout": [0.0, 0.1, 0.3],
    "training__learning_rate": loguniform(3e-4, 1e-2),
    "training__weight_decay": loguniform(1e-6, 1e-1),
    "gamma": loguniform(1e-4, 1e0),
    "covariance_type": ["full", "diag", "tied"],
    "n_components": randint(1, 21),
    "latent": randint(2, 33),
    "rank": randint(1, 21),
    "regularization": loguniform(1e-2, 1e0),
    "damping": loguniform(1e0, 1e2),
}
SCORING = {
    "accuracy": "accuracy",
    "balanced accuracy": "balanced_accuracy",
    "F1": "f1_macro",
    "ROC AUC": "roc_auc_ovr",
    "log-loss": "neg_log_loss",
    "R²": "r2",
    "RMSE": "neg_root_mean_squared_error",
    "mean absolute error": "neg_mean_absolute_error",
}


def space_of(model: Any) -> dict[str, Any]:
    """Return what can be searched of a model, with its steps' names in front for a pipeline or a wrapper."""
    found = {}
    for name, value in model.get_params().items():
        last = name.rsplit("__", 1)[-1]
        if last == "training" and value is None:
            rates = {key: space for key, space in SPACES.items() if key.startswith("training__")}
            found |= {f"{name.removesuffix('training')}{key}": space for key, space in rates.items()}
        elif last in SPACES and not isinstance(value, bool) and _fits(value, SPACES[last]):
            found[name] = SPACES[last]
    own = getattr(type(model), "_compare_space", None)
    return {**found, **(own() if own else {})}


def _fits(value: Any, space: Any) -> bool:
    """Whether a default is of the kind that a space has: a learning rate by name stays as it is."""
    return isinstance(space, list) or isinstance(value, int | float | type(None))


def check_search(task: str, data: Dataset) -> str:
    """Raise if there can be no search, and return a sentence if there will be none."""
    if task in FIXED or data.kind == "graph":
        able = ", ".join(name for name in TASKS if name not in FIXED)
        must = f"search= (--search) is for {able}"
        got = f"{task} on data of kind {data.kind}"
        raise errors.value(
            "compare", must, got, "Leave it out; every system then runs with settings for the data."
        )
    if (size := _size(data)) < FEWEST:
        return f"No settings were searched: {size} examples are fewer than {FEWEST}."
    return ""


def _size(data: Dataset) -> int:
    """Return the number of what is divided: ratings, steps of series, characters of one text, or examples."""
    if data.kind == "ratings":
        return int(data.X.nnz)
    one_by_one = data.kind == "sequence" and data.y is None or (data.kind == "text" and len(data) == 1)
    return sum(map(len, data.X)) if one_by_one else len(data)


def searched(model: Any, task: str, data: Dataset, seed: int, *, n: int, metric: str) -> Any:
    """Return the model with a search around it, or the model itself if there is nothing to search."""
    able = hasattr(model, "get_params") and _size(data) >= FEWEST
    space = space_of(model) if able else {}
    return Search(model, space, task, data, metric, n, seed) if space else model


class Search(BaseEstimator):  # type: ignore[misc]
    """A model whose settings are searched when it is fitted; ``best_estimator_`` is what came of it.

    Parameters
    ----------
    model : estimator
        With the settings that are tried first.
    space : dict
        What is drawn from, by parameter.
    task, metric : str
        What is asked, and what decides.
    data : Dataset
        The training part, as the model takes it.
    n : int
        Settings to try.
    seed : int
        For the draws and the parts.
    """

    def __init__(
        self, model: Any, space: Any, task: str, data: Dataset, metric: str, n: int, seed: int
    ) -> None:
        self.model = model
        self.space = space
        self.task = task
        self.data = data
        self.metric = metric
        self.n = n
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> Search:
        """Search within a part of the time of the surrounding run, then fit the best settings in the rest."""
        limit, begin = current().time_limit, now()
        self.tried_: list[tuple[float, dict[str, Any]]] = []
        spend = None if limit is None else SHARE * limit
        whole = None
        try:
            with time_box(spend, unless=_delicate), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                whole = self._halved(X, y) if self._can_halve() else self._by_parts(spend, y is not None)
        except OutOfTime:
            pass
        if whole is None:
            best = max(self.tried_, key=lambda tried: tried[0], default=(0.0, {}))[1]
            left = None if limit is None else max(0.1 * limit, limit - (now() - begin))
            whole = clone(self.model).set_params(**best)
            with Run(time_limit=left, progress=False):
                whole.fit(X) if y is None else whole.fit(X, y)
        self.best_estimator_ = whole
        return self

    def _can_halve(self) -> bool:
        return self.task in HALVED and self.data.kind in KINDS and len(self.data) >= FEWEST

    def _halved(self, X: Any, y: Any) -> Any:
        """Return the best of scikit-learn's successive halving, fitted to all."""
        from sklearn.experimental import enable_halving_search_cv  # noqa: F401
        from sklearn.model_selection import HalvingRandomSearchCV

        known, data = SCORING.get(self.metric), self.data
        scoring = known if data.y is not None and self.task != "density" else None
        if scoring == "roc_auc_ovr" and len(np.unique(np.asarray(data.y).astype(str))) == 2:
            scoring = "roc_auc"
        found = HalvingRandomSearchCV(
            self.model,
            self.space,
            n_candidates=self.n,
            factor=3,
            min_resources=max(30, len(data) // 9),
            cv=3,
            scoring=scoring,
            random_state=self.seed,
            error_score=np.nan,
        )
        return found.fit(X, y).best_estimator_

    def _by_parts(self, seconds: float | None, taught: bool) -> None:
        """Note how each of the settings does on a quarter of the data, fitted to the others."""
        from sklearn.model_selection import ParameterSampler

        from corollary.comparison.tasks import parts_of

        task = TASKS[self.task]
        sign = 1 if task.directions[self.metric] else -1
        kept, held = next(parts_of(self.data, self.task, 1, 0.25, self.seed))
        share = None if seconds is None else seconds / self.n
        for params in [{}, *ParameterSampler(self.space, self.n - 1, random_state=self.seed)][: self.n]:
            model = clone(self.model).set_params(**params)
            try:
                with Run(time_limit=share, progress=False):
                    model.fit(kept.X, kept.y) if taught else model.fit(kept.X)
                score = task.numbers(model, held)[self.metric]
            except (ValueError, TypeError, ArithmeticError, KeyError, RuntimeError):
                continue  # settings that these data do not allow
            if np.isfinite(score):
                self.tried_.append((sign * float(score), params))


def _delicate(frame: Any) -> bool:
    from corollary.comparison.trials import delicate

    return delicate(frame)
