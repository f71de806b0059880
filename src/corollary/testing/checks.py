"""Checks that every estimator must pass, for every kind of data; public, for third parties too.

scikit-learn's ``check_estimator`` covers tables. These cover images, sequences, sets, graphs, text and
ratings as well, and what scikit-learn does not ask: exact resume, files, silence about randomness.

>>> from corollary import VAE
>>> from corollary.testing import check_estimator
>>> check_estimator(VAE(**VAE._test_params(), random_state=0))
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from corollary import errors, io
from corollary.base import Estimator
from corollary.engine.run import Run
from corollary.errors import CorollaryWarning
from corollary.roletable import entries_of

__all__ = ["CHECKS", "cases", "check_estimator", "outputs", "overfitted", "sample_data"]


class CheckFailed(AssertionError):
    """An estimator that breaks the contract."""


def require(condition: Any, what: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise CheckFailed(what)


# --- small data of every kind ----------------------------------------------------------------------------


def sample_data(kind: str, seed: int = 0) -> tuple[Any, Any]:
    """Return small X and y of a kind: two classes that can be told apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(40) % 2
    if kind == "table":
        return rng.normal(size=(40, 6)) + 2.0 * y[:, None], y
    if kind == "image":
        images = rng.uniform(0, 0.5, size=(40, 8, 8)).astype(np.float32)
        images[y == 1, :4] += 0.5
        return images, y
    if kind == "sequence":
        return [rng.normal(size=(rng.integers(3, 9), 3)) + 2.0 * label for label in y], y
    if kind == "set":
        return [rng.normal(size=(rng.integers(2, 7), 3)) + 2.0 * label for label in y], y
    if kind == "text":
        words = (["sun", "warm", "sea"], ["snow", "cold", "ice"])
        return [" ".join(rng.choice(words[label], size=8)) for label in y], y
    if kind == "ratings":
        return _ratings(rng), None
    if kind == "graph":
        return _graph(rng)
    raise ValueError(f"sample_data: no kind named {kind!r}.")


def _ratings(rng: np.random.Generator) -> Any:
    from scipy import sparse

    values = np.clip(np.round(3 + rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))), 1, 5)
    return sparse.csr_matrix((values * (rng.random((30, 20)) < 0.5)).astype(np.float32))


def _graph(rng: np.random.Generator) -> tuple[Any, Any]:
    from corollary.data import Graph

    y = np.arange(40) % 2
    pairs = np.array([(i, j) for i in range(40) for j in range(i) if y[i] == y[j] and rng.random() < 0.3]).T
    x = (rng.normal(size=(40, 5)) + y[:, None]).astype(np.float32)
    return Graph(x=x, edge_index=np.concatenate([pairs, pairs[::-1]], axis=1), y=y), None


# --- what a fitted model says ----------------------------------------------------------------------------


def outputs(model: Any, X: Any) -> dict[str, Any]:
    """Return the outputs of all methods of a fitted model's roles for X."""
    return {name: call(model, X) for name, call in _questions(model)}


def _questions(model: Any) -> Iterator[tuple[str, Callable[[Any, Any], Any]]]:
    """Yield the methods that the table of roles names and the model has, each with what calls it."""
    for role in entries_of(type(model)):
        yield from ((name, call) for name, call in role.ask.items() if hasattr(model, name))


def same(a: Any, b: Any) -> bool:
    """Whether two outputs are equal to the last bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if hasattr(a, "tocsr"):
        return same(a.toarray(), b.toarray())
    return bool(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f"))


def _fitted(model: Any, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(X, y)


# --- the checks: each gets an unfitted estimator with a fixed random_state, X and y ----------------------


def check_unfitted(model: Any, X: Any, y: Any) -> None:
    """Before ``fit`` every method raises NotFittedError."""
    for name, call in _questions(model):
        try:
            call(clone(model), X)
        except NotFittedError:
            continue
        raise CheckFailed(f"{name} before fit must raise NotFittedError")


def check_fit_is_repeatable(model: Any, X: Any, y: Any) -> None:
    """The same seed gives the same model; fitting twice is fitting once."""
    first = _fitted(model, X, y)
    expected = outputs(first, X)
    require(same(outputs(_fitted(model, X, y), X), expected), "the same seed must give the same model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        require(first.fit(X, y) is first, "fit must return self")
    require(same(outputs(first, X), expected), "fitting twice must equal fitting once")


def check_parameters_are_kept(model: Any, X: Any, y: Any) -> None:
    """``fit`` changes no parameter, and adds only names that end or begin with an underscore."""
    fresh = clone(model)
    before = {key: repr(value) for key, value in fresh.get_params().items()}
    fitted = _fitted(fresh, X, y)
    after = {key: repr(value) for key, value in fitted.get_params().items()}
    require(before == after, "fit must not change parameters")
    added = set(vars(fitted)) - set(fitted.get_params(deep=False))
    bad = [name for name in added if not (name.endswith("_") or name.startswith("_"))]
    require(not bad, f"fitted names must end in an underscore: {bad}")


def check_global_randomness(model: Any, X: Any, y: Any) -> None:
    """The global generators of NumPy and torch are as before after any call."""
    import torch

    before = np.random.get_state(legacy=False)["state"]["key"].copy(), torch.get_rng_state()
    unseeded = clone(model)
    if "random_state" in unseeded.get_params():
        unseeded.set_params(random_state=None)
    outputs(_fitted(unseeded, X, y), X)
    after = np.random.get_state(legacy=False)["state"]["key"], torch.get_rng_state()
    require(np.array_equal(before[0], after[0]), "NumPy's global random state must not change")
    require(torch.equal(before[1], after[1]), "torch's global random state must not change")


def check_file(model: Any, X: Any, y: Any) -> None:
    """A saved and loaded model says exactly the same; so does a pickled one."""
    fitted = _fitted(model, X, y)
    expected = outputs(fitted, X)
    with tempfile.TemporaryDirectory() as folder:
        path = fitted.save(Path(folder) / "model.safetensors")
        loaded = io.load(path, classes=[type(model)], **model._given_parts())
    require(type(loaded) is type(fitted), "load must return the same class")
    require(repr(loaded.get_params()) == repr(fitted.get_params()), "load must bring the parameters back")
    require(same(outputs(loaded, X), expected), "a loaded model must say the same")
    require(
        same(outputs(pickle.loads(pickle.dumps(fitted)), X), expected), "an unpickled model must say the same"
    )


def check_resume(model: Any, X: Any, y: Any) -> None:
    """A fit cut off after each of its first steps and resumed equals an uninterrupted one."""
    whole = _fitted(model, X, y)
    expected, steps = outputs(whole, X), len(whole.history_)
    for cut in sorted({1, steps // 2, steps - 1} - {0}):
        with tempfile.TemporaryDirectory() as folder:
            _cut_off(model, X, y, folder, cut)
            with Run(folder, resume=True):
                resumed = _fitted(model, X, y)
        require(
            same(outputs(resumed, X), expected), f"resuming after step {cut} of {steps} must change nothing"
        )
        losses = [{k: v for k, v in row.items() if k != "seconds"} for row in resumed.history_]
        wanted = [{k: v for k, v in row.items() if k != "seconds"} for row in whole.history_]
        require(losses == wanted, "a resumed fit must have the same history")


class _PowerCut(Exception):
    pass


def _cut_off(model: Any, X: Any, y: Any, folder: str, step: int) -> None:
    def cut(event: Any) -> None:
        if event.step > step:
            raise _PowerCut

    try:
        with Run(folder, checkpoint_every=0, callbacks=[cut]):
            _fitted(model, X, y)
    except _PowerCut:
        pass


def check_history(model: Any, X: Any, y: Any) -> None:
    """Every fit leaves a history: a row per step, with seconds."""
    rows = _fitted(model, X, y).history_
    require(len(rows) >= 1, "history_ must have a row per step")
    require([row["step"] for row in rows] == list(range(1, len(rows) + 1)), "steps must be counted from 1")
    require(all(row["seconds"] >= 0 for row in rows), "seconds must be there")


def check_failed_fit(model: Any, X: Any, y: Any) -> None:
    """A fit that fails leaves what was fitted before as it was."""
    fitted = _fitted(model, X, y)
    expected = outputs(fitted, X)
    for bad in (None, [], np.zeros((2, 2, 2, 2, 2))):
        try:
            fitted.fit(bad, y)
        except (ValueError, TypeError):
            continue
        raise CheckFailed(f"fit must refuse {bad!r}")
    require(same(outputs(fitted, X), expected), "a failed fit must not harm the fitted model")


def check_time_limit(model: Any, X: Any, y: Any) -> None:
    """A fit that runs out of time is usable."""
    with Run(time_limit=0.0), warnings.catch_warnings():
        warnings.simplefilter("ignore", CorollaryWarning)
        outputs(_fitted(model, X, y), X)


def check_order(model: Any, X: Any, y: Any) -> None:
    """Sets and graphs have no order: with their elements or nodes in another one, a model says the same of each."""
    if model.input not in ("set", "graph"):
        return
    fitted, rng, alone = _fitted(model, X, y), np.random.default_rng(0), hasattr(X, "edge_index")
    parts = [X] if alone else list(X)
    orders = [rng.permutation(part.num_nodes if hasattr(part, "edge_index") else len(part)) for part in parts]
    turned = [_turned(part, order) for part, order in zip(parts, orders)]
    # one result per element, else one for all of them
    each = alone or getattr(model, "role", None) == "tagger"
    before, after = outputs(fitted, X), outputs(fitted, turned[0] if alone else turned)
    for name, values in before.items():
        if alone and len(values) != len(orders[0]):  # of the fitted graph, not of each node of this one
            continue
        pairs = [(values, after[name])] if alone else list(zip(values, after[name]))
        for (a, b), order in zip(pairs, orders):
            expected = np.asarray(a)[order] if each else np.asarray(a)
            if expected.dtype.kind != "f":  # a class may be a draw between two
                continue
            require(np.allclose(expected, b, rtol=1e-4, atol=1e-5), f"{name} must not depend on the order")


def _turned(part: Any, order: np.ndarray) -> Any:
    if not hasattr(part, "edge_index"):
        return np.asarray(part)[order]
    from corollary.data import Graph

    return Graph(part.x[order], np.argsort(order)[part.edge_index], edge_weight=part.edge_weight)


CHECKS: tuple[Callable[[Any, Any, Any], None], ...] = (
    check_unfitted,
    check_fit_is_repeatable,
    check_parameters_are_kept,
    check_global_randomness,
    check_file,
    check_resume,
    check_history,
    check_failed_fit,
    check_time_limit,
    check_order,
)


def cases(model: Any) -> Iterator[tuple[Callable[[Any, Any, Any], None], Any, Any]]:
    """Yield each check with data of the model's kind, or with its own ``_test_data()``."""
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
    for check in CHECKS:
        yield check, X, y


def check_estimator(model: Any) -> None:
    """Run every check on an estimator with a fixed ``random_state``; raise at the first that fails."""
    if isinstance(model, type):
        do = f"Pass {model.__name__}()."
        raise errors.kind(
            "check_estimator", "the estimator must be an instance", f"the class {model.__name__}", do
        )
    if not isinstance(model, Estimator):
        must = "the estimator must inherit from corollary.base.Estimator"
        do = "For others there is sklearn.utils.estimator_checks.check_estimator."
        raise errors.kind("check_estimator", must, type(model).__name__, do)
    for check, X, y in cases(model):
        check(model, X, y)


def overfitted(
    net: Any, loss: Callable[[], Any], *, below: float, steps: int = 600, learning_rate: float = 1e-2
) -> float:
    """Train a torch module, without dropout, until ``loss()`` is below a bound; return the last loss.

    A net that cannot learn one batch by heart has an error in it.

    >>> import torch
    >>> net, x = torch.nn.Linear(1, 1), torch.tensor([[0.0], [1.0]])
    >>> overfitted(net, lambda: (net(x) - 3 * x).square().mean(), below=0.01, learning_rate=0.1) < 0.01
    True
    """
    import torch

    for part in net.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], learning_rate)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        if float(value.detach()) < below:
            break
    return float(value.detach())
