"""The variational autoencoder against probabilistic PCA, exact likelihoods and its own bound."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from corollary import VAE, Training, load
from corollary.generative.vae import elbo, gaussian_kl, importance_log_prob, log_normal

RNG = np.random.default_rng(0)


def planted(n=600, d=5, k=2, noise=0.5):
    W = RNG.normal(size=(d, k)) * 1.5
    return RNG.normal(size=(n, k)) @ W.T + noise * RNG.normal(size=(n, d))


def exact_log_prob(model, X):
    """Return the log-density of a linear VAE: it decodes z to Wz + b, with Gaussian noise."""
    b = model.inverse_transform(np.zeros((1, 2)))[0]
    W = (model.inverse_transform(np.eye(2)) - b).T
    variance = float(model.module_.log_noise.detach().exp())
    return multivariate_normal(b, W @ W.T + variance * np.eye(len(b))).logpdf(X)


@pytest.fixture(scope="module")
def linear():
    X = planted()
    training = Training(epochs=300, learning_rate=0.01, batch_size=100, schedule="cosine")
    return VAE(2, hidden_layer_sizes=(), likelihood="gaussian", training=training, random_state=0).fit(X), X


def test_a_linear_vae_is_probabilistic_pca(linear):
    model, X = linear
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    variance = values[:3].mean()
    W = vectors[:, 3:] * np.sqrt(values[3:] - variance)
    best = multivariate_normal(X.mean(0), W @ W.T + variance * np.eye(5)).logpdf(X).mean()
    # Descent stops near the optimum of the likelihood, which is the maximum over all such models.
    assert exact_log_prob(model, X).mean() == pytest.approx(best, abs=0.02)
    assert float(model.module_.log_noise.detach().exp()) == pytest.approx(variance, rel=0.1)
    span = np.linalg.qr(model.module_.decoder[0].weight.detach().numpy())[0]
    assert np.linalg.svd(span.T @ vectors[:, 3:])[1].min() > 0.99  # cosines of the principal angles


def test_the_unit_of_the_data_changes_nothing_but_the_density_of_a_unit():
    X, plan = planted(), Training(epochs=3)
    raw = VAE(2, training=plan, random_state=0).fit(X)
    shift, unit = 2.0**20 * np.arange(5), 2.0**14  # incomes: exact in float64
    large = VAE(2, training=plan, random_state=0).fit(unit * X + shift)
    assert large.unit_ == unit * raw.unit_
    np.testing.assert_allclose(large.transform(unit * X + shift), raw.transform(X), atol=1e-6)
    np.testing.assert_allclose(
        large.score_samples(unit * X + shift), raw.score_samples(X) - 5 * np.log(unit), atol=1e-4
    )
    np.testing.assert_allclose(large.sample(4), unit * raw.sample(4) + shift, rtol=1e-6)


def test_standardised_columns_stay_as_they_are():
    X = planted()
    model = VAE(2, training=Training(epochs=1)).fit((X - X.mean(0)) / X.std(0))
    assert model.unit_ == 1
    assert not model.centre_.any()


def test_the_bound_lies_below_and_importance_weighting_closes_it(linear):
    model, X = linear
    x = torch.from_numpy(X[:50])
    with torch.no_grad():
        gen = torch.Generator().manual_seed(0)
        bounds = torch.stack([importance_log_prob(model.module_, x, torch.randn(K, 50, 2, generator=gen, dtype=x.dtype)).mean()
                              for K in (1, 10, 500)])  # fmt: skip
        torch.manual_seed(0)
        one = torch.stack([elbo(model.module_, x).mean() for _ in range(200)]).mean()
    exact = exact_log_prob(model, X[:50]).mean()
    assert float(one) < exact + 1e-3
    assert float(bounds[2]) == pytest.approx(exact, abs=0.02)
    # score_samples uses the same estimate with the model's own draws
    assert model.score(X[:50]) == pytest.approx(exact, abs=0.05)


def test_divergence_is_the_closed_form_of_the_integral():
    gen = torch.Generator().manual_seed(0)
    mean, log_var = torch.randn(1, 3, generator=gen).double(), torch.randn(1, 3, generator=gen).double()
    z = mean + (0.5 * log_var).exp() * torch.randn(200_000, 3, generator=gen).double()
    sampled = (log_normal(z, mean, log_var) - log_normal(z, torch.zeros_like(z), torch.zeros_like(z))).mean()
    assert float(gaussian_kl(mean, log_var)) == pytest.approx(float(sampled), abs=0.02)  # 4 standard errors


def test_beta_trades_reconstruction_for_divergence():
    X = planted()
    plan = Training(epochs=60, learning_rate=0.01)
    rows = [VAE(2, beta=beta, training=plan, random_state=0).fit(X).history_[-1] for beta in (0.1, 10.0)]
    assert rows[0]["divergence"] > rows[1]["divergence"]
    assert rows[0]["reconstruction"] < rows[1]["reconstruction"]


def test_samples_have_the_moments_of_the_model(linear):
    model, X = linear
    drawn = model.sample(20_000)
    np.testing.assert_allclose(drawn.mean(0), X.mean(0), atol=0.15)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(X.T), atol=0.6)  # 4 standard errors of entries near 5


def test_images_are_bernoulli_and_reconstructed():
    X = (RNG.random((200, 12)) < np.tile([0.9, 0.1], 6)).astype(np.float32)
    X[::2] = 1 - X[::2]
    model = VAE(
        2, hidden_layer_sizes=(16,), training=Training(epochs=80, learning_rate=0.01), random_state=0
    ).fit(X)
    assert model.likelihood_ == "bernoulli"
    again = model.reconstruct(X)
    assert again.min() >= 0 and again.max() <= 1
    assert np.mean((again > 0.5) == (X > 0.5)) > 0.85
    assert model.score(X) <= 0


def test_noise_can_be_fixed():
    model = VAE(2, likelihood="gaussian", noise=0.3, training=Training(epochs=2)).fit(planted())
    assert float(model.module_.log_noise.exp()) == pytest.approx(0.09)


def test_bad_input():
    with pytest.raises(
        ValueError, match=r"VAE: likelihood='bernoulli' needs data in \[0, 1\]; got minimum -"
    ):
        VAE(likelihood="bernoulli").fit(planted())
    model = VAE(2, training=Training(epochs=1)).fit(planted())
    with pytest.raises(ValueError, match=r"codes must have shape \(n, 2\); got shape \(4, 3\)"):
        model.inverse_transform(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1; got 0"):
        model.sample(0)


# --- images -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["auto", "bernoulli", "gaussian"])
def test_images_of_any_size(likelihood, tmp_path):
    X = RNG.integers(0, 17, (20, 3, 9, 7)) / 16
    plan = Training(epochs=1)
    model = VAE(3, width=4, likelihood=likelihood, importance_samples=3, training=plan, random_state=0).fit(X)
    assert model.likelihood_ == {"auto": "logistic"}.get(likelihood, likelihood)
    assert model.transform(X).shape == (20, 3)
    assert model.reconstruct(X).shape == model.sample(20).shape == (20, 3, 9, 7)
    assert model.interpolate(X[0], X[1], 5).shape == model.traverse(X[0], 2, 5).shape == (5, 3, 9, 7)
    np.testing.assert_allclose(model.interpolate(X[0], X[1], 5)[[0, -1]], model.reconstruct(X[:2]), atol=1e-5)
    again = load(model.save(tmp_path / "vae.safetensors"))
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_probabilities_of_grey_levels_sum_to_at_most_one():
    """All images of two pixels with three levels: the bound, with one set of draws for all, is a mixture's mass or less."""
    every = np.array([[a, b] for a in range(3) for b in range(3)]).reshape(-1, 1, 2) / 2
    model = VAE(1, width=4, importance_samples=2000, training=Training(epochs=3), random_state=0)
    model.fit(every[RNG.integers(9, size=60)])
    assert model.levels_ == 3
    assert np.exp(model.score_samples(every).astype(float)).sum() == pytest.approx(1, abs=0.05)


def test_warm_up_keeps_codes_alive_and_says_how_many():
    from sklearn.datasets import load_digits

    X = load_digits().data[:600] / 16
    plan = Training(epochs=12, learning_rate=3e-3, batch_size=32)
    found = {}
    for warmup in (0, 4):
        model = VAE(16, hidden_layer_sizes=(64,), warmup=warmup, training=plan, random_state=0).fit(X)
        found[warmup] = model.active_units(X).sum()
        assert 0 <= model.history_[-1]["active"] <= 16
    assert found[4] >= found[0] and found[4] >= 4


def test_bad_units_are_named():
    model = VAE(2, training=Training(epochs=1)).fit(planted())
    with pytest.raises(ValueError, match="unit must lie between 0 and 1; got 5"):
        model.traverse(planted()[0], 5)
    with pytest.raises(ValueError, match="likelihood='logistic' needs data"):
        VAE(likelihood="logistic").fit(planted())


def test_codes_and_widths_that_cannot_be():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(
        ValueError, match="each of hidden_layer_sizes must be an integer of at least 1; got -3"
    ):
        VAE(hidden_layer_sizes=(-3,)).fit(X)
    model = VAE(2, training=Training(epochs=1)).fit(X)
    with pytest.raises(ValueError, match="codes must be finite; got 1 of 2"):
        model.inverse_transform([[np.nan, 0.0]])
