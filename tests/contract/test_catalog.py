"""Every estimator in the catalog keeps the contract."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from corollary import catalog, testing
from corollary.base import Estimator, roles
from corollary.testing import checks

ESTIMATORS = {entry.name: entry for entry in reversed(catalog.entries(kind="estimator"))}


def small(name):
    """Return the estimator with small fast settings and a fixed seed."""
    cls = ESTIMATORS[name].load()
    params = dict(cls._test_params()) if hasattr(cls, "_test_params") else {}
    if "random_state" in cls().get_params():
        params.setdefault("random_state", 0)
    return cls(**params)


@pytest.mark.parametrize("entry", catalog.entries(), ids=lambda e: e.id)
def test_entries_are_what_they_say(entry):
    found = entry.load()
    assert entry.title and not entry.title.endswith(".")
    if entry.kind == "estimator":
        assert issubclass(found, Estimator)
        assert found.input == entry.input
        assert set(roles(found)) == set(entry.roles)
        assert found.__doc__ and "Examples" in found.__doc__


def test_ids_are_unique():
    ids = [entry.id for entry in catalog.entries()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")
def test_contract(name, check):
    model = small(name)
    X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
    reason = getattr(model, "_expected_failures", {}).get(check.__name__)
    if reason:
        with pytest.raises(AssertionError):
            check(model, X, y)
    else:
        check(model, X, y)


def sklearn_checks():
    for name, entry in ESTIMATORS.items():
        if entry.input == "table":
            model = small(name)
            for estimator, check in estimator_checks_generator(model):
                label = getattr(check, "func", check).__name__
                yield pytest.param(estimator, check, label, id=f"{name}-{label}")


@pytest.mark.parametrize(("estimator", "check", "label"), [*sklearn_checks()])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, check, label):
    if label == "check_array_api_input":
        pytest.skip("scikit-learn runs it only where SCIPY_ARRAY_API is set")
    reason = getattr(estimator, "_expected_failures", {}).get(label)
    try:
        check(estimator)
    except Exception:
        if reason is None:
            raise
        pytest.xfail(reason)  # listed with its reason; small settings may pass all the same


@pytest.mark.parametrize("name", [n for n, e in ESTIMATORS.items() if e.input == "table"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore")
def test_torch_in_torch_out(name, dtype):
    import torch

    model = small(name)
    X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data("table")
    model.fit(X.astype(dtype), y)
    given = torch.as_tensor(X.astype(dtype))
    for method in ("predict_proba", "transform", "score_samples", "predict", "recall"):
        if hasattr(model, method):
            out = getattr(model, method)(given)
            assert isinstance(out, torch.Tensor), method
            if out.is_floating_point():
                assert out.dtype == given.dtype, method
            reference = np.asarray(getattr(model, method)(X.astype(dtype)))
            np.testing.assert_allclose(out.numpy(), reference, rtol=1e-5, atol=1e-6)


def test_the_checks_can_fail():
    class Forgetful(catalog.resolve("MLPClassifier")):
        def _predict_proba(self, X):
            return np.random.default_rng().random((len(X), 2))

    with pytest.raises(testing.CheckFailed, match="same seed"):
        checks.check_fit_is_repeatable(Forgetful(random_state=0), *testing.sample_data("table"))
