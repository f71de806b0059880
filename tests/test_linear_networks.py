"""Linear and deep autoencoders and deep linear networks against PCA, least squares and closed forms."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

import corollary
from corollary.engine.training import Training
from corollary.linear.autoencoder import Autoencoder, LinearAutoencoder
from corollary.linear.deep_linear import (
    DeepLinearNetwork,
    critical_points,
    layer_gradients,
    mode_trajectory,
    product,
)

SHORT = Training(epochs=3)


@parametrize_with_checks(
    [
        LinearAutoencoder(1, training=SHORT),
        Autoencoder(1, hidden_layer_sizes=(4,), training=SHORT),
        DeepLinearNetwork(),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("tied", [False, True])
def test_the_linear_autoencoder_finds_the_principal_subspace(tied):
    X = load_iris().data
    model = LinearAutoencoder(2, tied=tied, random_state=0).fit(X)
    axes = PCA(2).fit(X).components_
    cosines = np.linalg.svd(model.components_ @ axes.T, compute_uv=False)
    assert cosines.min() > 0.999  # batches and Adam leave an angle of a degree or two
    rebuilt = model.inverse_transform(model.transform(X))
    best = PCA(2).fit(X).inverse_transform(PCA(2).fit_transform(X))
    assert np.mean((X - rebuilt) ** 2) < 1.05 * np.mean((X - best) ** 2)


def test_the_autoencoder_beats_pca_on_held_out_digits():
    train, test = train_test_split(load_digits().data.astype(np.float32), random_state=0)
    plan = Training(epochs=40)
    model = Autoencoder(6, hidden_layer_sizes=(128,), training=plan, random_state=0).fit(train)
    pca = PCA(6).fit(train)
    error = lambda m: np.mean((test - m.inverse_transform(m.transform(test))) ** 2)
    assert error(model) < 0.8 * error(pca)


def test_a_denoising_autoencoder_removes_noise():
    X = load_iris().data
    noisy = X + np.random.default_rng(0).normal(0, 0.3, X.shape)
    plan = Training(epochs=200, batch_size=32)
    model = Autoencoder(2, noise=0.2, hidden_layer_sizes=(32,), training=plan, random_state=0).fit(noisy)
    assert np.mean((model.inverse_transform(model.transform(noisy)) - X) ** 2) < np.mean((noisy - X) ** 2)
    np.testing.assert_array_equal(model.transform(X), model.transform(X))  # no noise outside training


def test_autoencoder_errors_and_files(tmp_path):
    X = load_iris().data
    with pytest.raises(ValueError, match="latent must be at most n_features = 4; got 5"):
        Autoencoder(5).fit(X)
    model = Autoencoder(2, training=SHORT, random_state=0).fit(X)
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


# --- deep linear networks --------------------------------------------------------------------------------


def task(seed=0):
    rng = np.random.default_rng(seed)
    U, V = np.linalg.qr(rng.standard_normal((4, 4)))[0], np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = np.linalg.qr(rng.standard_normal((300, 6)) - 0.0)[0] * np.sqrt(300)
    X -= X.mean(axis=0)
    X = X @ np.linalg.inv(np.linalg.cholesky(X.T @ X / 300)).T  # white
    return X, X @ V[:, :4] @ np.diag([3.0, 2.0, 1.0, 0.5]) @ U.T


@pytest.mark.parametrize("depth, tol", [(1, 2e-3), (2, 2e-3), (3, 4e-3)])
def test_modes_follow_the_closed_form(depth, tol):
    X, Y = task()
    model = DeepLinearNetwork(
        depth, init="aligned", scale=0.2, learning_rate=0.002, max_iter=6000, tol=0
    ).fit(X, Y)
    for i, s in enumerate(model.singular_values_):
        exact = mode_trajectory(s, 0.2**depth, model.times_, depth)
        # Descent with steps of 0.002 follows the flow to first order in the step.
        assert np.abs(model.modes_[:, i] - exact).max() < tol * model.singular_values_[0]


def test_large_modes_are_learned_first():
    X, Y = task()
    model = DeepLinearNetwork(2, init="aligned", scale=1e-2, learning_rate=0.05, max_iter=3000).fit(X, Y)
    half = [np.argmax(model.modes_[:, i] > s / 2) for i, s in enumerate(model.singular_values_)]
    assert half == sorted(half) and half[0] > 0


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_end_is_least_squares(depth):
    X, y = load_diabetes(return_X_y=True)
    Y = np.column_stack([y, X[:, 2] * 1000])
    model = DeepLinearNetwork(
        depth, width=8, scale=1.0, learning_rate=0.3, max_iter=6000, tol=1e-7, random_state=0
    ).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), LinearRegression().fit(X, Y).predict(X), atol=1e-2)


def test_gradients_match_finite_differences():
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal(shape) for shape in ((3, 5), (2, 3), (4, 2))]
    gamma = rng.standard_normal((4, 5))
    loss = lambda: 0.5 * np.sum((product(layers) - gamma) ** 2)
    for layer, gradient in zip(layers, layer_gradients(layers, gamma)):
        layer[0, 1] += 1e-6
        up = loss()
        layer[0, 1] -= 2e-6
        slope = (up - loss()) / 2e-6
        layer[0, 1] += 1e-6
        assert gradient[0, 1] == pytest.approx(slope, rel=1e-5)


def test_critical_points_are_critical_and_all_but_one_are_saddles():
    gamma = np.random.default_rng(0).standard_normal((4, 3))
    points = critical_points(gamma, 2)
    assert len(points) == 3 and [p.minimum for p in points] == [True, False, False]
    for point in points:
        U, s, Vt = np.linalg.svd(point.W)
        layers = [np.sqrt(s[:2])[:, None] * Vt[:2], U[:, :2] * np.sqrt(s[:2])]
        for gradient in layer_gradients(layers, gamma):
            np.testing.assert_allclose(gradient, 0, atol=1e-10)
        assert point.loss == pytest.approx(0.5 * np.sum((point.W - gamma) ** 2))
        rng, lowest = np.random.default_rng(1), np.inf
        missing = np.linalg.svd(gamma)[2][0]  # the largest mode, which a saddle may lack
        for _ in range(200):
            moved = [layer + 0.05 * rng.standard_normal(layer.shape) for layer in layers]
            lowest = min(lowest, 0.5 * np.sum((product(moved) - gamma) ** 2))
        for size in (0.1, -0.1):
            turned = [layers[0] + size * np.outer([0, 1], missing), layers[1].copy()]
            turned[1][:, 1] += size * np.linalg.svd(gamma)[0][:, 0]
            lowest = min(lowest, 0.5 * np.sum((product(turned) - gamma) ** 2))
        assert (lowest >= point.loss - 1e-12) == point.minimum


def test_rank_is_bounded_by_the_width():
    X, Y = task()
    model = DeepLinearNetwork(2, width=2, scale=0.5, learning_rate=0.2, random_state=0).fit(X, Y)
    assert np.linalg.matrix_rank(model.coef_, tol=1e-8) == 2
    assert model.history_[-1]["loss"] == pytest.approx(
        critical_points(Y.T @ X / 300 / np.abs(Y).max(), 2)[0].loss, rel=1e-6
    )
