"""Networks with a posterior: closed forms for linear ones, any module, files, batches, calibration."""

import numpy as np
import pytest
import torch
from torch import nn

import corollary
from corollary import BayesianClassifier, BayesianRegressor, bayes
from corollary.bayes.network import Network
from corollary.nn.mlp import MLP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0]
Y = X @ [1.0, -0.5, 2.0] + 0.3 * RNG.normal(size=60)
CLASSES = np.array(["no", "yes"])[(Y > Y.mean()).astype(int)]


def test_a_linear_network_has_the_posterior_of_ridge_regression():
    """The weights of a linear layer are Gaussian: mean and standard deviation of predictions are known."""
    noise, prior, new = 0.5, 0.7, np.array([[0.0, 0.0, 0.0], [3.0, 1.0, -1.0]])
    model = BayesianRegressor(
        nn.Sequential(nn.Linear(3, 1)),
        noise=noise,
        prior=prior,
        sampler=bayes.HMC(60, 40, 60),
        random_state=0,
    ).fit(X, Y)
    mean, std = model.predict(new, return_std=True)
    shift, scale = X.mean(0), X.std(0)
    A, B = (np.column_stack([(x - shift) / scale, np.ones(len(x))]) for x in (X, new))
    y, s = (Y - Y.mean()) / Y.std(), noise / Y.std()
    S = np.linalg.inv(A.T @ A / s**2 + np.eye(4) / prior**2)
    wanted = B @ S @ A.T @ y / s**2 * Y.std() + Y.mean()
    spread = np.sqrt(np.einsum("ni,ij,nj->n", B, S, B)) * Y.std()
    # 2400 draws, of which at least 600 count: means within 5 / sqrt(600) of a standard deviation
    np.testing.assert_allclose(mean, wanted, atol=0.2 * spread.max())
    np.testing.assert_allclose(std, np.hypot(spread, noise), rtol=0.05)
    np.testing.assert_allclose(model.predictive(new).std(0), spread, rtol=0.15)
    np.testing.assert_allclose(model.predictive(new).mean(0), mean, rtol=1e-6)


@pytest.mark.parametrize("module", [MLP((3, 5, 4, 2), "tanh"), nn.Sequential(nn.Linear(3, 2, bias=False))])
def test_many_weights_at_once_are_each_alone(module):
    """The layers that are computed in one batch, any module by vmap, and torch's own call agree."""
    network = Network(module.double())
    rows = torch.as_tensor(X)
    w = torch.randn(4, len(network), generator=torch.Generator().manual_seed(0)).double()
    quick = network(w, rows)
    assert network.plain
    network.plain = False
    torch.testing.assert_close(network(w, rows), quick, rtol=1e-12, atol=1e-12)
    for vector, out in zip(w, quick):
        nn.utils.vector_to_parameters(vector, module.parameters())
        torch.testing.assert_close(module(rows), out, rtol=1e-12, atol=1e-12)


class Bilinear(nn.Module):
    """A module that is no sequence of layers."""

    def __init__(self, n_inputs, n_classes):
        super().__init__()
        self.a, self.b = nn.Linear(n_inputs, 4), nn.Linear(n_inputs, 4)
        self.out = nn.Linear(4, n_classes)

    def forward(self, x):
        return self.out(self.a(x) * self.b(x).tanh())


@pytest.mark.parametrize(
    "sampler",
    [
        bayes.SGLD(4, 20, 60, thin=5, step_size=2e-3, batch_size=20),
        bayes.SGHMC(4, 20, 60, thin=5, step_size=2e-2, batch_size=20),
    ],
    ids=lambda s: type(s).__name__,
)
def test_any_module_with_batches_and_its_file(sampler, tmp_path):
    model = BayesianClassifier(Bilinear, sampler=sampler, random_state=0).fit(X, CLASSES)
    assert model.score(X, CLASSES) > 0.85
    path = model.save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"load\(path, net="):
        corollary.load(path)
    loaded = corollary.load(path, net=Bilinear)
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert repr(loaded.sampler) == repr(sampler)


def test_probabilities_average_over_draws_and_are_measured():
    model = BayesianClassifier((3,), sampler=bayes.HMC(4, 20, 40, max_steps=8), random_state=0).fit(
        X, CLASSES
    )
    chances = model.predict_proba(X)
    np.testing.assert_allclose(model.predictive(X).mean(0), chances, rtol=1e-6)
    found = model.calibration(X, CLASSES)
    code = (CLASSES == "yes").astype(int)
    assert found["nll"] == pytest.approx(-np.log(chances[np.arange(60), code]).mean())
    assert found["brier"] == pytest.approx(2 * ((chances[:, 1] - code) ** 2).mean())
    assert found["accuracy"] == pytest.approx(model.score(X, CLASSES))
    assert 0 <= found["ece"] <= 1
    far = model.predictive(X[:1] + 50).std(0).max()
    assert model.draws_.shape[:2] == (4, 20) and far > 0


@pytest.mark.filterwarnings(
    "ignore::corollary.errors.CorollaryWarning"
)  # chains start far from so tight a prior
def test_a_prior_of_ones_own():
    """A prior that is all but a point decides the weights: every probability is one half."""
    tight = lambda w: -0.5 * w.square().sum(1) * 1e6
    model = BayesianClassifier(2, prior=tight, sampler=bayes.HMC(2, 10, 30, max_steps=5), random_state=0)
    np.testing.assert_allclose(model.fit(X, CLASSES).predict_proba(X), 0.5, atol=0.02)
    wide, narrow = (
        BayesianRegressor(
            2, prior=s, noise=0.3, sampler=bayes.HMC(2, 10, 30, max_steps=5), random_state=0
        ).fit(X, Y)
        for s in (1.0, 1e-3)
    )
    assert np.ptp(narrow.predict(X)) < 0.1 * np.ptp(wide.predict(X))


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"net": (0,)}, "net must be positive widths of hidden layers, or a module; got"),
        ({"net": nn.Linear(3, 5)}, r"net must return 2 outputs for each row; got shape \(2, 5\)"),
        ({"net": nn.Linear(7, 2)}, "net must take a batch of rows with 3 features"),
        ({"sampler": "hmc"}, "The 'sampler' parameter of BayesianClassifier"),
        ({"sampler": bayes.HMC(0)}, "The 'n_chains' parameter of HMC"),
        ({"prior": lambda w: w}, "Posterior: log_prior must return one value per chain"),
    ],
)
def test_bad_parameters(params, match):
    with pytest.raises(ValueError, match=match):
        BayesianClassifier(**params).fit(X, CLASSES)


def test_bad_measurements():
    model = BayesianClassifier((2,), sampler=bayes.HMC(2, 4, 4, max_steps=2), random_state=0).fit(X, CLASSES)
    with pytest.raises(ValueError, match="one of 2 known labels for each of 60 rows"):
        model.calibration(X, np.full(60, "maybe"))
    model = BayesianRegressor((2,), sampler=bayes.HMC(2, 4, 4, max_steps=2), random_state=0)
    with pytest.raises(ValueError, match=r"y must have shape \(60,\); got shape \(3,\)"):
        model.fit(X, Y).calibration(X, Y[:3])


@pytest.mark.parametrize("warmup", [30, 80])
def test_a_short_warm_up_ends_with_a_step_that_is_accepted(warmup):
    """A single step is accepted where a path is not: after its last window the step size needs time to be found again."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    sampler = bayes.HMC(4, 15, warmup, max_steps=15)
    model = BayesianClassifier((8,), sampler=sampler, random_state=0).fit(X[::3], y[::3])
    assert model.statistics_["acceptance"].mean() > 0.4
