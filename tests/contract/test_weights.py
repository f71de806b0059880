"""Every classifier, tagger and regressor that is trained by gradients takes weights, through the same code."""

import numpy as np
import pytest
import torch

from corollary import catalog, testing
from corollary.engine.sgd import typed
from corollary.gradient import GradientClassifier, GradientRegressor, GradientTagger, GradientTrained

SUPERVISED = {
    entry.name: entry.load()
    for entry in reversed(catalog.entries(kind="estimator"))
    if issubclass(entry.load(), GradientTrained)
    and {"classifier", "regressor", "tagger", "segmenter"} & set(entry.roles)
}


def case(name, **params):
    cls = SUPERVISED[name]
    if name == "BERTTagger":  # long enough that every text is one row
        params = {"max_length": 64, **params}
    if name in (
        "TextCNN",
        "BERTClassifier",
    ):  # the linear part, which learns from the weights too, has tests of its own
        params = {"ngrams": 0, **params}
    model = cls(**{**cls._test_params(), "random_state": 0, **params})
    X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
    return model, X, y


def learner(model, X, y, weight=None):
    return model._learner(model._data(X, y, weight))


def mean_loss(found, batches):
    """Return the loss over all samples at the initial weights, in evaluation mode."""
    (batch,) = batches.epoch(None, 10**6)
    module = found.module.eval()
    with torch.no_grad():
        out = found.players[0].objective(module, typed(module, batch))
    return float(out[0] if isinstance(out, tuple) else out)


def test_the_catalog_has_them():
    assert len(SUPERVISED) >= 15
    classes = (GradientClassifier, GradientRegressor, GradientTagger)
    assert all(issubclass(cls, classes) or cls.__name__ == "Segmenter" for cls in SUPERVISED.values())


@pytest.mark.parametrize("name", SUPERVISED)
@pytest.mark.filterwarnings("ignore")
def test_weights_are_repeated_rows(name):
    model, X, y = case(name)
    n = X.num_nodes if hasattr(X, "num_nodes") else len(X)
    counts = np.random.default_rng(0).integers(0, 4, size=n)
    weighted = learner(model, X, y, counts.astype(float))
    plain = learner(case(name)[0], X, y)
    if isinstance(model, GradientRegressor):  # targets are standardised by weight
        plain.batches.target = weighted.batches.target
    rows = torch.from_numpy(np.repeat(np.arange(n), counts))
    expected = mean_loss(plain, plain.batches.take(rows))
    found = mean_loss(weighted, weighted.batches)
    assert found == pytest.approx(expected, rel=1e-4)  # float32 sums in another order
    assert found != pytest.approx(mean_loss(plain, plain.batches), rel=1e-7)  # and the weights matter


@pytest.mark.parametrize("name", [n for n, c in SUPERVISED.items() if not issubclass(c, GradientRegressor)])
@pytest.mark.filterwarnings("ignore")
def test_class_weights_are_the_weights_of_their_samples(name):
    model, X, y = case(name)
    plain = learner(model, X, y)
    first, second = model.classes_.tolist()[:2]
    weights = {label: 1.0 for label in model.classes_.tolist()} | {first: 3.0, second: 0.5}
    found = learner(case(name, class_weight=weights)[0], X, y)
    weight, target = found.batches.weight, plain.batches.target
    if hasattr(weight, "flat"):  # one per part
        weight, target = weight.flat[weight.flat > 0], target.flat[plain.batches.weight.flat > 0]
    by_code = torch.tensor([weights[label] for label in model.classes_.tolist()])
    torch.testing.assert_close(weight.float(), by_code[target])


@pytest.mark.parametrize("name", [n for n, c in SUPERVISED.items() if not issubclass(c, GradientRegressor)])
@pytest.mark.filterwarnings("ignore")
def test_labels_can_be_smoothed(name):
    model, X, y = case(name)
    model.set_params(training__label_smoothing=0.2, training__epochs=1)
    assert np.isfinite(model.fit(X, y).history_[-1]["loss"])


@pytest.mark.parametrize(
    "name", [n for n, c in SUPERVISED.items() if issubclass(c, GradientClassifier) and n != "NodeClassifier"]
)
@pytest.mark.filterwarnings("ignore")
def test_soft_targets_of_one_class_are_that_class(name):
    model, X, y = case(name)
    hard = learner(model, X, y)
    soft = learner(case(name)[0], X, np.eye(len(model.classes_))[model._check_y(hard_X(model, X), y)])
    assert mean_loss(soft, soft.batches) == pytest.approx(mean_loss(hard, hard.batches), rel=1e-5)


def hard_X(model, X):
    return model._check(X, reset=True)


@pytest.mark.parametrize("name", [n for n, c in SUPERVISED.items() if issubclass(c, GradientRegressor)])
@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "quantile", "poisson"])
@pytest.mark.filterwarnings("ignore")
def test_regressors_take_every_loss(name, loss):
    model, X, y = case(name, loss=loss)
    model.set_params(training__epochs=1)
    fitted = model.fit(X, np.abs(y))
    assert np.isfinite(fitted.predict(X)).all()
    if loss == "poisson":
        assert (fitted.predict(X) > 0).all()
        with pytest.raises(ValueError, match="loss='poisson' needs targets that are not negative"):
            model.fit(X, np.asarray(y) - 5.0)
