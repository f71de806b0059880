"""A small search of settings inside each training part: scikit-learn's successive halving over random draws.

Spaces go by the names of parameters, so that a new system is searched without an entry of its own; a class may say
more in ``_compare_space()``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint

from corollary import errors
from corollary.data.dataset import Dataset

__all__ = ["SPACES", "check_search", "searched", "space_of"]

TASKS = ("classification", "regression", "density")  # whose models scikit-learn's search can divide and score
KINDS = ("table", "image", "text", "sequence")
FEWEST = 60  # examples below which settings are not told apart

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
    if task not in TASKS or data.kind not in KINDS:
        must = f"search= (--search) is for {', '.join(TASKS)} on data of kind {', '.join(KINDS)}"
        got = f"{task} on data of kind {data.kind}"
        raise errors.value(
            "compare", must, got, "Leave it out; every system then runs with settings for the data."
        )
    if len(data) < FEWEST:
        return f"No settings were searched: {len(data)} examples are fewer than {FEWEST}."
    return ""


def searched(model: Any, task: str, data: Dataset, seed: int, *, n: int, metric: str) -> Any:
    """Return the model with a search around it, or the model itself if there is nothing to search."""
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingRandomSearchCV

    space = space_of(model) if len(data) >= FEWEST else {}
    if not space:
        return model
    scoring = SCORING.get(metric) if data.y is not None and task != "density" else None
    if scoring == "roc_auc_ovr" and len(np.unique(np.asarray(data.y).astype(str))) == 2:
        scoring = "roc_auc"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return HalvingRandomSearchCV(
            model,
            space,
            n_candidates=n,
            factor=3,
            min_resources=max(30, len(data) // 9),
            cv=3,
            scoring=scoring,
            random_state=seed,
            error_score=np.nan,
        )
