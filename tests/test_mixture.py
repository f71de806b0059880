"""EM for any component: closed forms, monotone likelihood, repeated rows, recovery."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import corollary
from corollary.mixtures.gaussian import GaussianMixture
from corollary.mixtures.mixture import COMPONENTS, Mixture

KINDS = sorted(COMPONENTS)


def one_component(model):
    """Return what a mixture of one component, which has no start to draw, cannot pass."""
    return {"check_clustering": model._expected_failures["check_clustering"]}


@parametrize_with_checks([Mixture()], expected_failed_checks=one_component, xfail_strict=True)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def data(kind, n=600, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    level = np.array([[0.9, 0.1, 0.8, 0.2], [0.1, 0.9, 0.2, 0.8]])[z]
    draw = {
        "bernoulli": lambda: (rng.random(level.shape) < level).astype(float),
        "categorical": lambda: rng.binomial(3, level).astype(float),
        "exponential": lambda: rng.exponential(10 * level),
        "gaussian": lambda: rng.normal(5 * level, 0.5 + level),
        "poisson": lambda: rng.poisson(10 * level).astype(float),
    }
    return draw[kind](), z


@pytest.mark.parametrize("kind", KINDS)
def test_recovers_two_groups_and_never_falls(kind):
    X, z = data(kind)
    model = Mixture(2, component=kind, random_state=0, smoothing=0.0, tol=1e-8).fit(X)
    assert adjusted_rand_score(z, model.labels_) > 0.7
    rises = np.diff([row["log_likelihood"] for row in model.history_])
    assert (rises > -1e-10).all()
    assert model.score(X) == pytest.approx(model.lower_bound_, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_one_component_is_the_closed_form(kind):
    X, _ = data(kind)
    model = Mixture(component=kind, smoothing=0.0).fit(X)
    theta, mean = model.parameters_, X.mean(axis=0)
    density = {
        "bernoulli": lambda: stats.bernoulli.logpmf(X, mean),
        "categorical": lambda: np.log(np.stack([np.bincount(c.astype(int)) / len(c) for c in X.T]))[
            np.arange(4), X.astype(int)
        ],
        "exponential": lambda: stats.expon.logpdf(X, scale=mean),
        "gaussian": lambda: stats.norm.logpdf(X, mean, X.std(axis=0)),
        "poisson": lambda: stats.poisson.logpmf(X, mean),
    }[kind]()
    np.testing.assert_allclose(model.score_samples(X), density.sum(axis=1), rtol=1e-9)
    assert all(len(value) == 1 for value in theta.values())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_repeated_rows(kind):
    X, _ = data(kind, 200)
    counts = np.random.default_rng(1).integers(0, 3, len(X))
    counts[X.argmax(axis=0)] = 1  # every symbol stays
    weighted = Mixture(component=kind).fit(X, sample_weight=counts)
    repeated = Mixture(component=kind).fit(np.repeat(X, counts, axis=0))
    for name, value in weighted.parameters_.items():
        np.testing.assert_allclose(value, repeated.parameters_[name], rtol=1e-9)


def test_gaussian_component_is_the_diagonal_mixture():
    X, _ = data("gaussian")
    ours = Mixture(2, smoothing=0.0, tol=1e-12, max_iter=2000, random_state=0).fit(X)
    other = GaussianMixture(
        2, covariance_type="diag", reg_covar=0, tol=1e-12, max_iter=2000, random_state=0
    ).fit(X)
    assert ours.lower_bound_ == pytest.approx(other.lower_bound_, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_means(kind):
    X, _ = data(kind, 2000)
    model = Mixture(2, component=kind, random_state=0).fit(X)
    drawn = model.sample(20000)
    np.testing.assert_allclose(drawn.mean(axis=0), X.mean(axis=0), atol=0.25)
    model.score_samples(drawn)  # what is drawn can be scored


@pytest.mark.parametrize("kind", KINDS)
def test_resume_and_files(kind, tmp_path):
    X, _ = data(kind, 150)
    make = Mixture(3, component=kind, n_init=2, max_iter=15, random_state=0)
    whole = clone(make).fit(X)
    with corollary.Run(
        tmp_path, callbacks=[lambda event: event.step == 4], checkpoint_every=0, progress=False
    ):
        clone(make).fit(X)
    for file in tmp_path.glob("checkpoints/*/checkpoint.safetensors"):
        state = corollary.io.read(file, "checkpoint")
        state["journal"]["stopped"] = ""
        corollary.io.write(file, state, "checkpoint")
    with corollary.Run(tmp_path, resume=True, progress=False):
        resumed = clone(make).fit(X)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    again = corollary.load(whole.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.score_samples(X), whole.score_samples(X))


def test_errors():
    X = data("poisson")[0]
    with pytest.raises(ValueError, match="bernoulli data must be 0 or 1; got"):
        Mixture(2, component="bernoulli").fit(X)
    with pytest.raises(ValueError, match="poisson data must be counts; got 0.5"):
        Mixture(2, component="poisson").fit(X + 0.5 * (X == X[0, 0]) - X * (X == X[0, 0]))
    with pytest.raises(ValueError, match="exponential data must not be negative; got minimum -1"):
        Mixture(2, component="exponential").fit(X - 1 - X.min())
    with pytest.raises(ValueError, match="categorical data must be whole numbers from 0; got -1"):
        Mixture(2, component="categorical").fit(X - 1 - X.min())
    model = Mixture(2, component="categorical").fit(X)
    with pytest.raises(ValueError, match="feature 0 must stay below"):
        model.predict(X + [100, 0, 0, 0])
    with pytest.raises(ValueError, match="n_samples must be at least n_components=9; got n_samples = 3"):
        Mixture(9).fit(X[:3])


def test_variances_far_from_zero_keep_their_digits():
    X, _ = data("gaussian")
    near = Mixture(2, random_state=0).fit(X)
    far = Mixture(2, random_state=0).fit(X + 1e7)
    # the data themselves lose 1e7 * 2e-16 of every number; squares of them would have lost everything
    np.testing.assert_allclose(far.parameters_["variance"], near.parameters_["variance"], rtol=1e-5)
    np.testing.assert_allclose(far.parameters_["mean"] - 1e7, near.parameters_["mean"], atol=1e-6)
