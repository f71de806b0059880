"""The Gaussian mixture against scikit-learn, repeated rows and closed forms."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import mixture
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import corollary
from corollary.mixtures.gaussian import EM, GaussianMixture, Parameters, log_joint
from corollary.mixtures.gaussian_moments import coefficients

TYPES = ["full", "tied", "diag", "spherical"]


def one_component(model):
    """Return what a mixture of one component, which has no start to draw, cannot pass."""
    return {"check_clustering": model._expected_failures["check_clustering"]}


@parametrize_with_checks([GaussianMixture()], expected_failed_checks=one_component, xfail_strict=True)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(m, s, (150, 3)) for m, s in ((0, 1), (4, 0.5), (-3, 2))])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dtype, rtol", [(np.float64, 1e-7), (np.float32, 1e-3)])
def test_agrees_with_scikit_learn(blobs, kind, dtype, rtol):
    # Same start, same sweeps: only rounding differs.
    X = blobs.astype(dtype)
    ours = GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    theirs = mixture.GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    assert ours.n_iter_ == theirs.n_iter_
    for name in (
        "weights_",
        "means_",
        "covariances_",
        "precisions_",
        "precisions_cholesky_",
        "lower_bounds_",
    ):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=rtol, atol=rtol, err_msg=name
        )
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=10 * rtol)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=10 * rtol)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=rtol)
    assert ours.means_.dtype == dtype


@pytest.mark.parametrize("kind", [*TYPES, "unit"])
def test_both_ways_to_sweep_agree(blobs, kind):
    model = GaussianMixture(3, covariance_type=kind, random_state=0)
    weight = np.random.default_rng(0).random(len(blobs))
    learner = EM(model, corollary.base.Data(blobs, None, weight), None, -np.inf)
    p = learner.initial()
    assert learner.products_are_safe(p)
    (fast, a), (careful, b) = learner.fast(p), learner.careful(p)
    assert fast == pytest.approx(careful, rel=1e-12)
    for left, right in zip(a, b):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)


def test_sharp_components_and_wide_data_take_the_careful_way():
    rng = np.random.default_rng(0)
    sharp = np.vstack([rng.normal(m, 1e-5, (50, 2)) for m in (0, 1)])
    model = GaussianMixture(2, random_state=0, reg_covar=0, tol=1e-9).fit(sharp)
    theirs = mixture.GaussianMixture(2, random_state=0, reg_covar=0, tol=1e-9).fit(sharp)
    np.testing.assert_allclose(model.covariances_, theirs.covariances_, rtol=1e-6)
    wide = rng.normal(size=(300, 70))
    ours = GaussianMixture(2, random_state=0).fit(wide)
    np.testing.assert_allclose(
        ours.lower_bound_, mixture.GaussianMixture(2, random_state=0).fit(wide).lower_bound_, rtol=1e-9
    )


@pytest.mark.parametrize("kind", [*TYPES, "unit"])
def test_weights_equal_repeated_rows(kind):
    X = load_iris().data
    counts = np.random.default_rng(0).integers(0, 4, len(X))
    start = {"means_init": X[[0, 75, 149]], "weights_init": np.full(3, 1 / 3), "covariance_type": kind}
    shape = {"full": np.stack([np.eye(4)] * 3), "tied": np.eye(4), "diag": np.ones((3, 4))}.get(
        kind, np.ones(3)
    )
    make = lambda: GaussianMixture(3, precisions_init=shape, tol=1e-8, max_iter=500, **start)
    weighted = make().fit(X, sample_weight=counts)
    repeated = make().fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-6)
    np.testing.assert_allclose(weighted.covariances_, repeated.covariances_, rtol=1e-5, atol=1e-9)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, abs=1e-8)


def test_unit_covariances_are_the_mixture_of_the_notes():
    X = load_iris().data
    model = GaussianMixture(3, covariance_type="unit", random_state=0, tol=1e-10, max_iter=1000).fit(X)
    q = model.weights_ * np.exp(-0.5 * ((X[:, None] - model.means_) ** 2).sum(-1))
    q /= q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(q.T @ X / q.sum(axis=0)[:, None], model.means_, atol=1e-4)
    assert (model.covariances_ == 1).all() and model._n_parameters() == 3 * 4 + 2


@pytest.mark.parametrize("kind", [*TYPES, "unit"])
def test_likelihood_never_falls_and_density_is_torch_s(blobs, kind):
    model = GaussianMixture(3, covariance_type=kind, reg_covar=0, random_state=1, tol=1e-6).fit(blobs)
    assert (np.diff(model.lower_bounds_) > -1e-10).all()
    covariances = {
        "full": lambda c: c, "tied": lambda c: np.stack([c] * 3), "diag": lambda c: np.stack([*map(np.diag, c)]),
    }.get(kind, lambda c: c[:, None, None] * np.eye(3))(model.covariances_)  # fmt: skip
    D = torch.distributions
    parts = D.MultivariateNormal(torch.from_numpy(model.means_), torch.from_numpy(covariances))
    exact = D.MixtureSameFamily(D.Categorical(torch.from_numpy(model.weights_)), parts)
    np.testing.assert_allclose(model.score_samples(blobs), exact.log_prob(torch.from_numpy(blobs)), rtol=1e-8)


def test_coefficients_are_the_log_density():
    rng = np.random.default_rng(0)
    X, centre = rng.normal(size=(5, 3)), rng.normal(size=3)
    L = np.tril(rng.normal(size=(2, 3, 3))) + 3 * np.eye(3)
    p = Parameters(np.array([0.3, 0.7]), rng.normal(size=(2, 3)), np.linalg.inv(L @ L.transpose(0, 2, 1)), L)
    W, c = coefficients(p, "full", centre)
    i, j = np.triu_indices(3)
    Y = X - centre
    phi = np.hstack([Y, Y[:, i] * Y[:, j]])
    np.testing.assert_allclose(phi @ W.T + c, log_joint(X, p, "full"), rtol=1e-10)


# --- batches, samples, engine ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*TYPES, "unit"])
def test_partial_fit_comes_near_the_batch_fit(kind):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (4000, 2)), rng.normal(5, 1, (2000, 2))])
    rng.shuffle(X)
    model = GaussianMixture(2, covariance_type=kind, random_state=0)
    for begin in range(0, len(X), 300):
        model.partial_fit(X[begin : begin + 300])
    batch = GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)
    assert model.score(X) > batch.score(X) - 0.02  # stepwise EM forgets at rate 20^-0.6
    assert model._batches == 20


def test_a_first_batch_alone_is_one_step_of_em():
    X = load_iris().data
    stepped = GaussianMixture(2, random_state=0).partial_fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        swept = GaussianMixture(2, random_state=0, max_iter=1).fit(X)
    np.testing.assert_allclose(stepped.means_, swept.means_, rtol=1e-8)
    np.testing.assert_allclose(stepped.covariances_, swept.covariances_, atol=1e-8)


@pytest.mark.parametrize("kind", [*TYPES, "unit"])
def test_samples_have_the_moments(blobs, kind):
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(blobs)
    X, z = model.sample(20000, return_components=True)
    np.testing.assert_allclose(np.bincount(z) / 20000, model.weights_, atol=0.01)
    np.testing.assert_allclose(X[z == 1].mean(axis=0), model.means_[1], atol=0.1)
    np.testing.assert_array_equal(X, model.sample(20000))


def test_a_resumed_fit_equals_an_uninterrupted_one(blobs, tmp_path):
    make = lambda: GaussianMixture(4, n_init=3, random_state=0, init_params="random", tol=1e-2)
    whole = make().fit(blobs)
    for stop in (2, len(whole.history_) // 2 + 2):
        with corollary.Run(tmp_path / str(stop), time_limit=None, checkpoint_every=0, progress=False) as run:
            run.callbacks = (lambda event, stop=stop: event.step == stop,)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                make().fit(blobs)
        for file in (tmp_path / str(stop)).glob("checkpoints/*/checkpoint.safetensors"):
            state = corollary.io.read(file, "checkpoint")
            state["journal"]["stopped"] = ""
            corollary.io.write(file, state, "checkpoint")
        with corollary.Run(tmp_path / str(stop), resume=True, progress=False):
            resumed = make().fit(blobs)
        np.testing.assert_array_equal(resumed.means_, whole.means_)
        np.testing.assert_array_equal(resumed.precisions_cholesky_, whole.precisions_cholesky_)
        assert resumed.lower_bounds_ == whole.lower_bounds_


def test_two_processes_give_the_model_of_one(blobs):
    one = GaussianMixture(3, random_state=0).fit(blobs[:301])
    with corollary.Run(processes=2, progress=False):
        two = GaussianMixture(3, random_state=0).fit(blobs[:301])
    np.testing.assert_allclose(two.means_, one.means_, rtol=1e-9)
    np.testing.assert_allclose(two.covariances_, one.covariances_, atol=1e-9)


def test_threads_do_not_change_a_bit(blobs):
    before = torch.get_num_threads()
    try:
        fits = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            fits.append(GaussianMixture(3, random_state=0).fit(blobs).means_)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*fits)


def test_save_and_load(tmp_path):
    X = load_iris().data
    model = GaussianMixture(3, random_state=0).fit(X)
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_errors():
    X = load_iris().data
    with pytest.raises(ValueError, match="at least one non-zero number"):
        GaussianMixture(2).fit(X, sample_weight=np.zeros(150))
    with pytest.raises(ValueError, match="Expected n_samples >= n_components"):
        GaussianMixture(200).fit(X)
    with pytest.raises(ValueError, match="Expected n_samples >= n_components"):
        GaussianMixture(5).partial_fit(X[:3])
    with pytest.raises(ValueError, match="ill-defined empirical covariance"):
        GaussianMixture(3, reg_covar=0).fit(np.repeat(X[:3], 4, axis=0))
    with pytest.raises(ValueError, match="Invalid value for 'n_samples': 0"):
        GaussianMixture(2).fit(X).sample(0)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        GaussianMixture(3, max_iter=1, random_state=0).fit(X)


def test_the_compiled_exponential_is_numpys_to_the_last_bit_or_two():
    from corollary.mixtures.gaussian_kernels import _exp

    rng = np.random.default_rng(0)
    shift = rng.uniform(-5, 5, 4096)
    u = np.concatenate(
        [rng.uniform(-80, 0, 4090), [0.0, -80.0, -1e-300, -0.5 * np.log(2), -np.log(2), -1e-9]]
    )
    x, power = u + shift, np.empty(4096)
    expected = np.exp(x - shift)
    _exp(x, shift, power, power.view(np.int64))
    np.testing.assert_allclose(x, expected, rtol=4 * np.finfo(float).eps)
