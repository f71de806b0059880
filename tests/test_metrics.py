"""Measures of samples against SciPy, POT, scikit-learn, closed forms and enumerations."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from corollary import metrics
from corollary.errors import CorollaryWarning


def rows(n, d, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + shift


# --- Fréchet ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n, d", [(200, 1), (200, 6), (400, 30)])
def test_fid_is_the_formula_with_the_root_of_a_matrix(n, d):
    a, b = rows(n, d), rows(n + 7, d, 1, 0.5)
    A, B = np.atleast_2d(np.cov(a.T)), np.atleast_2d(np.cov(b.T))
    gap = a.mean(0) - b.mean(0)
    expected = gap @ gap + np.trace(A + B) - 2 * np.trace(sqrtm(A @ B)).real
    assert metrics.fid(a, b) == pytest.approx(expected, rel=1e-8)  # sqrtm keeps about ten digits


def test_fid_of_fewer_samples_than_features_has_a_closed_form():
    """The covariances are singular, and scaling a sample by c moves it by (c - 1)² tr A + |(c - 1) mean|²."""
    a = rows(20, 50)
    expected = 0.25 * (np.trace(np.cov(a.T)) + a.mean(0) @ a.mean(0))
    assert metrics.fid(a, 1.5 * a) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("f", [255, 256, 600])
def test_moments_of_many_features_are_compared_column_block_by_block(f):
    rng = np.random.default_rng(f)
    mu, nu = rng.standard_normal((2, f))
    A, B = (np.cov((rng.standard_normal((2 * f, f)) * scale).T) for scale in (1.0, np.linspace(0.5, 2, f)))
    expected = (mu - nu) @ (mu - nu) + np.trace(A + B) - 2 * np.trace(sqrtm(A @ B)).real
    assert metrics.gaussian_distance(mu, A, nu, B) == pytest.approx(expected, rel=1e-8)  # as above


def test_fid_reads_blocks_once_and_does_not_cancel_far_from_zero():
    a, b = rows(300, 5), rows(300, 5, 1)
    near, far = (
        metrics.fid(a, b),
        metrics.fid(iter(np.array_split(a + 1e6, 7)), iter(np.array_split(b + 1e6, 3))),
    )
    assert far == pytest.approx(near, rel=1e-6)


def test_features_may_be_a_module_a_function_or_an_estimator():
    a, b = rows(100, 4), rows(100, 4, 1)
    linear = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.9)).train()
    W, c = (p.detach().double().numpy() for p in linear[0].parameters())
    by_module = metrics.fid(a, b, linear)
    assert linear.training  # dropout was off, and the mode is as before
    # the module computes in float32
    assert by_module == pytest.approx(metrics.fid(a @ W.T + c, b @ W.T + c), rel=1e-4)
    pca = PCA(2).fit(a)
    assert metrics.fid(a, b, pca) == pytest.approx(metrics.fid(pca.transform(a), pca.transform(b)))


def test_images_without_features_are_compared_by_random_ones_with_a_word():
    rng = np.random.default_rng(0)
    smooth, rough = rng.random((40, 1, 1)) * np.ones((40, 12, 12)), rng.random((40, 12, 12))
    with pytest.warns(CorollaryWarning, match="random convolutional features"):
        apart = metrics.fid(smooth, rough)
    with pytest.warns(CorollaryWarning):
        alike = metrics.fid(rough[:20], rough[20:])
    assert apart > 3 * alike


# --- neighbours -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
def test_precision_recall_density_and_coverage_by_definition(k):
    x, y = rows(60, 3), rows(80, 3, 1, 0.3)
    radius = NearestNeighbors(n_neighbors=k + 1).fit(x).kneighbors(x)[0][:, -1]
    other = NearestNeighbors(n_neighbors=k + 1).fit(y).kneighbors(y)[0][:, -1]
    near = np.array([[np.linalg.norm(a - b) <= r for b in y] for a, r in zip(x, radius)])
    far = np.array([[np.linalg.norm(a - b) <= r for a in x] for b, r in zip(y, other)])
    assert metrics.precision_recall(x, y, k) == pytest.approx((near.any(0).mean(), far.any(0).mean()))
    assert metrics.density_coverage(x, y, k) == pytest.approx((near.sum() / (k * 80), near.any(1).mean()))


def test_mode_collapse_keeps_precision_and_loses_recall():
    x = np.concatenate([rows(100, 2), rows(100, 2, shift=100.0)])
    precision, recall = metrics.precision_recall(x, rows(200, 2, 2) * 0.5)
    assert precision > 0.5 and recall <= 0.5


# --- divergences ------------------------------------------------------------------------------------------


def test_jensen_shannon_is_the_square_of_scipys_distance():
    rng = np.random.default_rng(0)
    p, q = rng.random(7), rng.random(7)
    assert metrics.jensen_shannon(p, q) == pytest.approx(jensenshannon(p, q) ** 2, rel=1e-9)
    a, b = rng.normal(size=500), rng.normal(5, size=400)
    assert metrics.jensen_shannon(a, a, bins=20) == 0
    assert 0.6 < metrics.jensen_shannon(a, b, bins=20) <= np.log(2)


@pytest.mark.parametrize("n, m", [(50, 50), (50, 70), (3, 100)])
def test_wasserstein_on_a_line(n, m):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=n), rng.gamma(2, size=m)
    assert metrics.wasserstein(a, b) == pytest.approx(wasserstein_distance(a, b), rel=1e-9)
    expected = np.sqrt(ot.wasserstein_1d(a, b, p=2))
    assert metrics.wasserstein(a, b, order=2) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n, m", [(25, 25), (20, 30)])
@pytest.mark.parametrize("order", [1, 2])
def test_exact_wasserstein_in_the_plane_is_that_of_pot(n, m, order):
    a, b = rows(n, 2), rows(m, 2, 1)
    expected = ot.emd2([], [], ot.dist(a, b, "euclidean") ** order) ** (1 / order)
    assert metrics.wasserstein(a, b, order=order) == pytest.approx(expected, rel=1e-7)


def test_sliced_wasserstein_of_a_shift_is_the_mean_projection():
    """Moving a sample by v costs E |<v, u>| over directions u: 2 |v| / pi in the plane."""
    a = rows(300, 2)
    found = metrics.wasserstein(a, a + [3.0, 4.0], method="sliced", n_projections=4000)
    assert found == pytest.approx(10 / np.pi, rel=0.05)  # 4,000 directions: error about 0.5 %


def test_mmd_is_its_definition_and_unbiased():
    a, b = rows(12, 2), rows(9, 2, 1)
    k = lambda x, y: np.exp(-np.sum((x - y) ** 2) / (2 * 0.7**2))
    own = lambda z: np.mean([k(z[i], z[j]) for i in range(len(z)) for j in range(len(z)) if i != j])
    expected = own(a) + own(b) - 2 * np.mean([k(x, y) for x in a for y in b])
    assert metrics.mmd(a, b, bandwidth=0.7) == pytest.approx(expected)
    rng = np.random.default_rng(0)
    null = [metrics.mmd(*rng.standard_normal((2, 30, 2)), bandwidth=1.0) for _ in range(200)]
    assert abs(np.mean(null)) < 4 * np.std(null) / np.sqrt(200)  # zero within four standard errors


def test_inception_score_and_perplexity():
    p = np.random.default_rng(0).dirichlet(np.ones(5), 50)
    marginal = p.mean(0)
    expected = np.exp(np.mean([np.sum(r * np.log(r / marginal)) for r in p]))
    assert metrics.inception_score(p) == pytest.approx(expected)
    assert metrics.inception_score(np.full((4, 3), 1 / 3)) == pytest.approx(1.0)
    assert metrics.perplexity([-2.0, -4.0], [2, 1]) == pytest.approx(np.exp(2.0))


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: metrics.fid(rows(5, 2), rows(5, 3)), "same number of features; got 2 and 3"),
        (lambda: metrics.fid(rows(1, 2), rows(5, 2)), "real must have at least two samples"),
        (lambda: metrics.fid(np.zeros(3), np.zeros(3)), r"Pass x\[:, None\]"),
        (lambda: metrics.fid([[np.nan, 1.0]] * 2, rows(5, 2)), "features must be finite"),
        (lambda: metrics.fid(rows(5, 2), rows(5, 2), features=lambda x: np.zeros(3)), "one row per sample"),
        (lambda: metrics.gaussian_distance([0.0], np.eye(2), [0.0], np.eye(2)), r"covariances \(f, f\)"),
        (
            lambda: metrics.precision_recall(rows(5, 2), rows(5, 2), n_neighbors=5),
            "n_neighbors must lie between 1",
        ),
        (lambda: metrics.jensen_shannon([1, 2], [1, 2, 3]), "Pass bins="),
        (lambda: metrics.jensen_shannon([0, 0], [1, 2]), "nor all zero"),
        (lambda: metrics.wasserstein(rows(5, 2), rows(5, 3)), "as many columns"),
        (lambda: metrics.wasserstein([1.0], [1.0], method="slice"), "sliced"),
        (
            lambda: metrics.wasserstein([1.0, np.nan], [1.0, 2.0]),
            "wasserstein: both samples must be finite; got NaN",
        ),
        (
            lambda: metrics.wasserstein(rows(5, 2) * np.inf, rows(5, 2)),
            "wasserstein: both samples must be finite",
        ),
        (lambda: metrics.wasserstein([], [1.0]), r"must have rows .* got shapes \(0, 0\) and \(1, 1\)"),
        (lambda: metrics.mmd(rows(5, 2), rows(5, 2) * np.nan), "mmd: both samples must be finite; got NaN"),
        (lambda: metrics.wasserstein([1.0], [1.0], order=0.5), "order must be at least 1"),
        (lambda: metrics.mmd(np.zeros((3, 2)), np.zeros((3, 2))), "bandwidth must be positive"),
        (lambda: metrics.inception_score(rows(5, 2)), "rows that sum to 1"),
        (lambda: metrics.perplexity([]), "at least one token"),
        (lambda: metrics.perplexity([np.nan, -1.0]), "log-probabilities must be numbers; got NaN"),
        (lambda: metrics.jensen_shannon([np.nan, 1], [1, 2]), "p and q must be finite; got NaN"),
        (lambda: metrics.calibration_error([[0.5, np.nan]], [0]), "chances must be probabilities"),
        (
            lambda: metrics.calibration_error([[0.5, 0.5]], ["a"]),
            "code must number a column .* got <U1 of shape",
        ),
        (lambda: metrics.calibration_error([[0.5, 0.5]], [2]), "code must number a column"),
        (lambda: metrics.calibration_error([[0.5, 0.5]], [0, 1]), "for each of 1 samples"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_features_are_refused():
    with pytest.raises(TypeError, match="features must be a function"):
        metrics.fid(rows(5, 2), rows(5, 2), features="inception")
