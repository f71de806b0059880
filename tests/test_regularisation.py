"""What regularisers do to quadratics and linear models, where the answer is known in closed form."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from corollary import InputNoise, LabelSmoothing, MLPClassifier, Run, Training, load, monte_carlo_dropout
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import Supervised
from corollary.engine.sgd import GradientLearner
from corollary.losses import half_squared


def least_squares(X, y, module=None, **training):
    """Return the weights that the engine finds for 1/(2n) |y - Xw|^2 from zero."""
    module = module or nn.Linear(X.shape[1], 1, bias=False).double()
    linear = next(part for part in module.modules() if isinstance(part, nn.Linear))
    nn.init.zeros_(linear.weight)
    plan = Training(**{"optimizer": "gd", **training}).resolved()
    batches = TensorBatches(torch.as_tensor(X), torch.as_tensor(y)[:, None])
    learner = GradientLearner(
        module, Supervised(half_squared), batches, plan, Run(device="cpu"), seed=0, owner="Q"
    )
    while not learner.done:
        learner.step()
    found = next(part for part in learner.result().modules() if isinstance(part, nn.Linear))
    return found.weight.detach()[0].numpy()


def problem(seed=0, n=40, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.array([3.0, 1.0, 0.5, 0.2])[:d]
    return X, X @ rng.normal(size=d) + rng.normal(size=n)


def test_gradient_steps_have_the_filter_of_early_stopping():
    """theta_t = Q [I - (I - eta Lambda)^t] Q^T theta*: to rounding after 50 steps."""
    X, y = problem()
    values, Q = np.linalg.eigh(X.T @ X / len(X))
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    found = least_squares(X, y, learning_rate=0.1, epochs=50)
    np.testing.assert_allclose(found, Q @ ((1 - (1 - 0.1 * values) ** 50) * (Q.T @ best)), atol=1e-12)


def test_stopping_early_is_weight_decay():
    """Exactly where all curvatures are one number; to 5 % where they are at most a tenth of the decay."""
    rng = np.random.default_rng(1)
    X = np.linalg.qr(rng.normal(size=(30, 3)))[0] * np.sqrt(30 * 0.4)  # X^T X / n = 0.4 I
    y = rng.normal(size=30)
    left = (1 - 0.1 * 0.4) ** 20
    mu = 0.4 * left / (1 - left)
    stopped = least_squares(X, y, learning_rate=0.1, epochs=20)
    # 400 steps shrink the distance to the decayed minimum by (1 - 0.1 (0.4 + mu))^400 < 1e-10.
    decayed = least_squares(X, y, learning_rate=0.1, epochs=400, weight_decay=mu)
    np.testing.assert_allclose(stopped, decayed, atol=1e-8)
    X = np.linalg.qr(rng.normal(size=(30, 3)))[0] * np.sqrt(30 * np.array([0.1, 0.05, 0.02]))
    stopped = least_squares(X, y, learning_rate=0.01, epochs=100)  # 1 / (eta mu) with mu = 1
    ridge = np.linalg.solve(X.T @ X / 30 + np.eye(3), X.T @ y / 30)
    np.testing.assert_allclose(stopped, ridge, rtol=0.05)


def adaptive(X, y, p):
    """Return the least squares with the penalty of dropout, eq. 3 of corollary.engine.dropout."""
    return np.linalg.solve(X.T @ X + p / (1 - p) * np.diag((X**2).sum(0)), X.T @ y)


def test_dropout_is_an_adaptive_l2_penalty():
    """The masks enumerated give it exactly, the engine's own draws to a few standard errors."""
    X, y = problem(2, 20, 3)
    masks = np.array(list(product((0, 1), repeat=3)))
    rows = (X[:, None] * masks / 0.5).reshape(-1, 3)  # p = 1/2: every mask is as likely
    exact = np.linalg.lstsq(rows, np.repeat(y, 8), rcond=None)[0]
    np.testing.assert_allclose(exact, adaptive(X, y, 0.5), atol=1e-12)
    net = nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 1, bias=False)).double()
    found = least_squares(
        np.tile(X, (500, 1)), np.tile(y, 500), net, learning_rate=0.15, epochs=300, average=0.98
    )
    expected = adaptive(X, y, 0.3)
    # Each update sees 10000 masks and 50 of them are averaged: errors are well below one part in a hundred.
    np.testing.assert_allclose(found, expected, atol=0.03 * np.abs(expected).max())


def test_weight_rescaling_is_the_mean_over_masks_and_monte_carlo_comes_near_it():
    net = nn.Sequential(nn.Dropout(0.25), nn.Linear(4, 3)).eval()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    masks = torch.tensor(list(product((0.0, 1.0), repeat=4)))
    chance = (0.75**masks * 0.25 ** (1 - masks)).prod(1)
    each = net[1](x[:, None] * masks / 0.75)  # (5, 16, 3)
    mean = torch.einsum("m,nmk->nk", chance, each)
    torch.testing.assert_close(net(x), mean)
    std = torch.einsum("m,nmk->nk", chance, (each - mean[:, None]).square()).sqrt()
    state = torch.get_rng_state()
    found = monte_carlo_dropout(net, x, n_samples=2000)
    assert torch.equal(state, torch.get_rng_state()) and not net[0].training
    assert ((found.mean - mean).abs() < 5 * std / 2000**0.5).all()  # five standard errors
    torch.testing.assert_close(found.std, std, rtol=0.15, atol=1e-3)
    log_mean = torch.einsum("m,nmk->nk", chance, each.log_softmax(-1))  # of linear softmax models: exact
    torch.testing.assert_close(net(x).softmax(1), log_mean.softmax(1))
    with pytest.raises(ValueError, match="needs a network with dropout; got one without"):
        monte_carlo_dropout(net[1], x)
    with pytest.raises(ValueError, match="n_samples must be a positive integer; got 0"):
        monte_carlo_dropout(net, x, n_samples=0)


def test_the_optimum_of_label_smoothing():
    """Inputs that name a context: the best probabilities are (1 - e) times its frequencies plus e / K."""
    counts = np.array([[6, 3, 1], [0, 2, 8]])
    X = np.repeat(np.eye(2), 10, axis=0)
    y = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    plan = Training(optimizer="lbfgs", label_smoothing=0.3, epochs=300)
    model = MLPClassifier((), training=plan, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(np.eye(2)), 0.7 * counts / 10 + 0.1, atol=1e-4)


def test_regularisers_given_as_objects_are_saved(tmp_path):
    X, y = problem()
    plan = Training(epochs=2, regularisers=(InputNoise(0.1), LabelSmoothing(0.2)))
    model = MLPClassifier((4,), training=plan, random_state=0).fit(X, y > 0)
    loaded = load(model.save(tmp_path / "m.safetensors"))
    assert repr(loaded.get_params()) == repr(model.get_params())
