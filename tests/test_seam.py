"""Models with objectives of their own take validation data, further batches and warm starts as all others do."""

import numpy as np
import pytest

from corollary import catalog
from corollary.testing.checks import sample_data

NAMES = ["WaveNet", "BERT", "ELMo", "Flow", "DDPM", "ScoreModel", "PixelCNN", "GraphClassifier"]


def made(name, **training):
    model = catalog.resolve(name)
    model = model(**model._test_params()).set_params(random_state=0)
    return model.set_params(**{f"training__{key}": value for key, value in training.items()})


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


@pytest.mark.parametrize("name", NAMES)
def test_the_seam_of_all_gradient_models(name):
    model = made(name, epochs=2, early_stopping=False)
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
    given = (X,) if y is None else (X, y)
    model.fit(*given, validation=given)
    assert all(np.isfinite(row["validation_loss"]) for row in model.history_)
    again = made(name, epochs=1, early_stopping=False, warm_start=True)
    first = weights(again.partial_fit(*given))
    assert again.n_iter_ == 1
    second = weights(again.partial_fit(*given))
    assert again.n_iter_ == 2 and not np.array_equal(first, second)
    moved = abs(weights(again.fit(*given)) - second).mean()
    other = made(name, epochs=1, early_stopping=False).set_params(random_state=1)
    assert 0 < moved < abs(weights(other.fit(*given)) - second).mean()  # it went on from where it was
