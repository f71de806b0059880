"""Base of meta-estimators: members by name, their kind of data, their seeds, their runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from corollary import catalog, errors
from corollary.attack.base import scores_of, two_columns
from corollary.base import Data, Estimator
from corollary.engine.learner import State
from corollary.engine.loop import STOPS
from corollary.engine.run import Run, current
from corollary.errors import FitStopped

__all__ = ["Around", "aligned", "apart", "member_of", "mixture", "rows_of", "with_seed"]

UNKNOWN = -80.0  # the logarithm of the probability of a class that a member has not seen
KINDS = ("image", "sequence", "set", "table", "text")  # whose samples can be taken one by one


def member_of(given: Any, default: str, owner: str, name: str = "estimator") -> Any:
    """Return a new unfitted estimator from one, from its id in the catalog, or from the default id."""
    if given is None or isinstance(given, str):
        return catalog.create(given or default)
    if isinstance(given, type) or not hasattr(given, "fit") or not hasattr(given, "get_params"):
        do = 'Pass one, such as MLPClassifier(), or its id, such as "mlp".'
        raise errors.kind(owner, f"{name} must be an estimator", repr(given), do)
    return clone(given)


def with_seed(model: Any, seed: Any) -> Any:
    """Set every ``random_state`` of a model from a seed, in scikit-learn's order; return the model."""
    rng = check_random_state(seed)
    names = [
        key
        for key in sorted(model.get_params(deep=True))
        if key == "random_state" or key.endswith("__random_state")
    ]
    model.set_params(**{key: rng.randint(np.iinfo(np.int32).max) for key in names})
    return model


def rows_of(X: Any, rows: Any) -> Any:
    """Return some samples of checked data of any kind."""
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]


def aligned(member: Any, X: Any, n_classes: int) -> np.ndarray:
    """Return a member's probabilities of all classes, which it knows by number; its votes where it has none."""
    if not hasattr(member, "predict_proba"):
        return np.asarray(np.eye(n_classes)[np.asarray(member.predict(X))])
    found = member.predict_proba(X)
    found = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found, dtype=np.float64)
    full = np.zeros((len(found), n_classes))
    full[:, member.classes_] = found
    return full


def mixture(members: Sequence[tuple[Any, Any]], n_classes: int, owner: str) -> tuple[Any, Any]:
    """Return the map from rows to the logarithm of the members' mean probabilities, which attacks follow.

    ``members`` are fitted classifiers, each with the features that it sees (None for all); beside the map comes a tensor of
    the type it takes.
    """
    for member, _ in members:
        if not hasattr(member, "predict_proba"):
            raise errors.value(owner, "members must have probabilities", type(member).__name__)
    each = [(*scores_of(member, owner), member.classes_, seen) for member, seen in members]

    def scores(x: Tensor) -> Tensor:
        found = []
        for call, like, classes, seen in each:
            z = two_columns(call)((x if seen is None else x[:, seen]).to(like)).log_softmax(1)
            full = z.new_full((len(z), n_classes), UNKNOWN)
            found.append(full.index_copy(1, torch.as_tensor(classes), z).to(x))
        return torch.stack(found).logsumexp(0)

    return scores, each[0][1]


@contextmanager
def apart(settings: dict[str, Any]) -> Iterator[None]:
    """Fit members on the surrounding run's device, within its time, but without its directory, bar and callbacks."""
    with Run(progress=False, **settings), warnings.catch_warnings():
        warnings.simplefilter("ignore", FitStopped)  # the surrounding fit says so
        yield


def was_stopped(member: Any) -> bool:
    """Whether a member's fit ended before its time, with that of the fit around it."""
    return getattr(member, "stopped_", "") in STOPS


class _OfMember:
    """An attribute of the member; of the class alone, a default."""

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default = name, default

    def __get__(self, model: Any, cls: type) -> Any:
        return self.default if model is None else getattr(model._prototype(), self.name, self.default)


class Around(Estimator):
    """An estimator that is made of others; ``_around`` names the parameter that decides which data it takes."""

    input: ClassVar[Any] = _OfMember("input", "table")
    also: ClassVar[Any] = _OfMember("also", ())
    _checks: ClassVar[Any] = _OfMember("_checks", {})
    _around: ClassVar[Sequence[str]] = ("estimator",)
    _default: ClassVar[str] = "mlp"

    def _prototype(self) -> Any:
        """Return a new unfitted member."""
        name = self._around[0]
        return member_of(getattr(self, name), self._default, type(self).__name__, name)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of a member that is given by its id, as ``estimator__width=8``, make it an estimator."""
        for name in self._around:
            nested = any(key.startswith(f"{name}__") for key in params)
            given = params.get(name, getattr(self, name))
            if nested and (given is None or isinstance(given, str)):
                params[name] = member_of(given, self._default, type(self).__name__, name)
        super().set_params(**params)
        return self

    def _fingerprint(self, data: Data) -> State:
        """Return what must be equal for a checkpoint to be resumed: of members the class too."""
        names = {name: type(getattr(self, name)).__name__ for name in self._around}
        kept = {name: f"{kind} {getattr(self, name)}" for name, kind in names.items() if kind == "str"}
        return {**super()._fingerprint(data), **names, **kept}

    def _check(self, X: Any, reset: bool) -> Any:
        """Return X as members take it: tables here; of other kinds new samples are checked by the members themselves."""
        if self.input == "table":
            return super()._check(X, reset)
        if self.input not in KINDS:
            must = f"{self._around[0]} must take samples one by one ({', '.join(KINDS)})"
            raise errors.value(type(self).__name__, must, f"a model of a {self.input}")
        return self._prototype()._check(X, True) if reset else X

    def _settings(self) -> dict[str, Any]:
        """Return where members run; raise if the run would have to write what no file can hold."""
        run = current()
        for name in self._around:
            member = member_of(getattr(self, name), self._default, type(self).__name__, name)
            if run.directory is not None and not hasattr(member, "_saved_attributes"):
                must = f"with a run directory {name} must be an estimator of the library"
                got = f"a {type(member).__module__.split('.')[0]} {type(member).__name__}"
                raise errors.kind(type(self).__name__, must, got, "Fit without one: no file can hold it.")
        return {"device": run.requested_device, "precision": run.precision}
