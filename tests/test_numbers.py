"""Numbers too large for the arithmetic: a message that says what to do, never NaN and never a bare error."""

import warnings

import numpy as np
import pytest

from corollary import catalog
from corollary.networks import MLPRegressor
from corollary.testing import outputs, sample_data
from corollary.validation import finite

TABLES = list(dict.fromkeys(e.name for e in catalog.entries(kind="estimator", input="table")))
MEMBERS = {
    name: ("SoftmaxRegression", "LogisticRegression", "MLPClassifier", "Ridge", "LinearRegression")
    for name in ("Bagging", "BaggingClassifier", "BaggingRegressor", "Distiller", "SelfTraining")
}


def finite_outputs(found):
    if isinstance(found, dict | list | tuple):
        return all(map(finite_outputs, found.values() if isinstance(found, dict) else found))
    array = np.asarray(found)
    return array.dtype.kind != "f" or not np.any(np.isnan(array) | (array == np.inf))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("size", [1e160, 1e300])
def test_huge_data_give_a_message_or_finite_numbers(name, size):
    cls = catalog.resolve(name)
    model = cls(**(cls._test_params() if hasattr(cls, "_test_params") else {}))
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data("table")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = outputs(model.fit(np.asarray(X) * size, y), np.asarray(X) * size)
        except (ValueError, FloatingPointError) as error:
            owner = str(error).split(":")[
                0
            ]  # the model's own words or its member's, not those of a routine below
            assert owner == name or owner in MEMBERS.get(name, ()), error
        else:
            assert finite_outputs(found)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_huge_targets_are_refused():
    X, y = sample_data("table")
    with pytest.raises(ValueError, match="MLPRegressor: target_scale_ must be finite .* StandardScaler"):
        MLPRegressor((4,), random_state=0).fit(X, 1e300 * (y + 1.0))


def test_what_a_model_returns_is_finite():
    with pytest.raises(
        ValueError, match="Net: what the model returns must be finite; got 1 of 2 that are not. Bring"
    ):
        finite("Net", np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="got 1 of 1"):
        finite("Net", np.array([-np.inf]))
    kept = np.array([-np.inf, 0.0])
    assert finite("Net", kept, log=True) is kept  # the logarithm of zero
    assert finite("Net", np.array([1e308, 1e308]))[0] == 1e308  # their sum is not, they are
