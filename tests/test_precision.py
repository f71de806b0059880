"""Half precision is the run's affair: every gradient model takes float64 data and stays what it is."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from corollary import MLPClassifier, Run, SequenceClassifier, Training, catalog, testing
from corollary.gradient import GradientTrained

DESCENDING = {
    entry.name: entry.load()
    for entry in catalog.entries(kind="estimator")
    if issubclass(entry.load(), GradientTrained)
}


def in_double(data):
    """Return the data with every number in float64, NumPy's default."""
    if isinstance(data, list):
        return [in_double(part) for part in data]
    if isinstance(data, np.ndarray) and data.dtype.kind == "f":
        return data.astype(np.float64)
    return data


@pytest.mark.parametrize("name", DESCENDING)
@pytest.mark.filterwarnings("ignore")
def test_mixed_precision_on_float64(name):
    cls = DESCENDING[name]
    model = cls(**{**cls._test_params(), "random_state": 0}).set_params(training__epochs=1)
    X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
    X = in_double(X)
    with Run(precision="bf16-mixed"):
        fitted = clone(model).fit(X, y)
    own = clone(model).fit(X, y)
    types = [[p.dtype for p in m.module_.parameters()] for m in (fitted, own)]
    assert types[0] == types[1]
    for said in testing.outputs(fitted, X).values():
        if isinstance(said, np.ndarray) and said.dtype.kind == "f":
            assert np.isfinite(said).all()


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_learns_nearly_the_same(precision):
    X, y = testing.sample_data("table")
    model = MLPClassifier((8,), training=Training(epochs=30, learning_rate=0.01), random_state=0)
    with Run(precision=precision):
        half = clone(model).fit(X, y)
    own = clone(model).fit(X, y)
    assert half.module_[0].weight.dtype == torch.float64
    # bfloat16 keeps 8 bits: steps below 2**-9 of a weight are lost, hence the rate; probabilities stay near.
    np.testing.assert_allclose(half.predict_proba(X), own.predict_proba(X), atol=0.2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lstm_of_equal_lengths(dtype):
    X = (
        np.random.default_rng(0).normal(size=(6, 5, 3)).astype(dtype)
    )  # oneDNN has no LSTM in bfloat16 on most CPUs
    with Run(precision="bf16-mixed"):
        model = SequenceClassifier(cell="lstm", width=4, training=Training(epochs=1)).fit(X, [0, 1] * 3)
    assert np.isfinite(model.predict_proba(X)).all()
    assert torch.backends.mkldnn.enabled or not torch.backends.mkldnn.is_available()
