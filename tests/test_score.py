"""Score models against the exact scores and densities of a Gaussian mixture, and their equations against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from corollary import ScoreModel, Training, load
from corollary.engine.random import seeded
from corollary.generative import score
from corollary.generative.score import ScoreNetwork, divergence, score_loss
from corollary.generative.sde import VE, VP, integrate, reverse

MEANS = np.array([[-3.0, 10.0], [3.0, 10.5], [0.0, 14.0]])
DEVIATIONS = np.array([[0.8, 0.3], [0.5, 0.5], [1.0, 0.4]])
WEIGHTS = np.array([0.5, 0.3, 0.2])


def mixture(n, seed=0):
    rng = np.random.default_rng(seed)
    k = rng.choice(3, size=n, p=WEIGHTS)
    return (MEANS[k] + DEVIATIONS[k] * rng.standard_normal((n, 2))).astype(np.float32)


def exact(x, noise, scale):
    """Return log-density and score of the mixture with noise in units of ``scale`` added."""
    variance = DEVIATIONS**2 + (noise * scale) ** 2
    gap = x[:, None] - MEANS
    parts = np.log(WEIGHTS) - 0.5 * (gap**2 / variance + np.log(2 * np.pi * variance)).sum(2)
    total = logsumexp(parts, axis=1)
    share = np.exp(parts - total[:, None])
    return total, -(share[:, :, None] * gap / variance).sum(1)


@pytest.fixture(scope="module")
def fitted():
    plan = Training(epochs=50, learning_rate=4e-3, schedule="cosine", batch_size=256, average=0.98)
    return ScoreModel(width=64, n_layers=2, sampling_steps=40, training=plan, random_state=0).fit(
        mixture(3000)
    )


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0, 5.0])
def test_the_score_is_the_mixtures_at_every_noise(fitted, noise):
    scale = np.asarray(fitted.scaling_["scale"])
    rng = np.random.default_rng(1)
    x = mixture(1000, 5) + noise * scale * rng.standard_normal((1000, 2))
    found = fitted.score_field(x.astype(np.float32), noise=noise)
    assert cosine(found * scale, exact(x, noise, scale)[1] * scale) >= 0.98


@pytest.mark.parametrize("sde", ["ve", "vp"])
def test_the_likelihood_is_the_mixtures(fitted, sde):
    x = mixture(300, 7)
    model = fitted.set_params(sde=sde)
    expected = exact(x, model.min_noise, np.asarray(model.scaling_["scale"]))[0]
    found = model.score_samples(x)
    assert np.mean(found) == pytest.approx(expected.mean(), abs=0.1)  # what 600 updates leave
    assert np.median(np.abs(found - expected)) < 0.25
    fitted.set_params(sde="ve")


@pytest.mark.parametrize(
    "method, sde", [("sde", "ve"), ("sde", "vp"), ("ode", "ve"), ("ode", "vp"), ("langevin", "ve")]
)
def test_samples_have_the_mixtures_moments(fitted, method, sde):
    model = fitted.set_params(sde=sde)
    drawn, real = model.sample(600, method=method), mixture(4000, 9)
    fitted.set_params(sde="ve")
    np.testing.assert_allclose(
        drawn.mean(0), real.mean(0), atol=0.4
    )  # deviations 2.5 and 1.7 over the root of 600
    np.testing.assert_allclose(drawn.std(0), real.std(0), rtol=0.15)
    near = np.min(np.linalg.norm((drawn[:, None] - MEANS) / DEVIATIONS, axis=2), axis=1) < 3.5
    assert near.mean() > 0.9


@pytest.mark.parametrize("kind", [VE, VP])
def test_the_equations_are_solved_by_their_scales(kind):
    """da/dt = f a and d(s^2)/dt = 2 f s^2 + g^2, by differences; time and sigma are inverse."""
    sde = kind(0.02, 20.0)
    for t in (0.1, 0.5, 0.9):
        h = 1e-5
        a, s2 = (lambda u: sde.scale(u)), (lambda u: (sde.scale(u) * sde.sigma(u)) ** 2)
        assert (a(t + h) - a(t - h)) / (2 * h) == pytest.approx(sde.drift(t) * a(t), rel=1e-5, abs=1e-9)
        expected = 2 * sde.drift(t) * s2(t) + sde.diffusion(t)
        assert (s2(t + h) - s2(t - h)) / (2 * h) == pytest.approx(expected, rel=1e-5)
        assert sde.time(sde.sigma(t)) == pytest.approx(t)


@pytest.mark.parametrize("kind", [VE, VP])
def test_gaussian_data_come_back_exactly(kind):
    """With the exact score of N(0, 0.25) data both reverse equations end with deviation 0.5."""
    sde = kind(0.02, 20.0)
    times = sde.times(400)
    variance = lambda t: sde.scale(t) ** 2 * (0.25 + sde.sigma(t) ** 2)  # noqa: E731
    generator = torch.Generator().manual_seed(0)
    x = math.sqrt(variance(times[-1])) * torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    flow = lambda x, t: (sde.drift(t) * x + 0.5 * sde.diffusion(t) * x / variance(t),)  # noqa: E731
    (end,) = integrate(flow, (x,), times[::-1])
    assert float(end.std()) == pytest.approx(
        float(x.std()) * math.sqrt(variance(times[0]) / variance(times[-1])), rel=1e-4
    )
    noise = lambda: torch.randn(x.shape, generator=generator, dtype=torch.float64)  # noqa: E731
    drawn = reverse(sde, lambda x, t: -x / variance(t), x, times, noise)
    assert float(drawn.std()) == pytest.approx(0.5, rel=0.03)


def test_all_three_losses_have_the_same_gradient_on_average():
    """They differ by constants: their gradients in the weights agree, up to the noise of 60,000 draws."""
    with seeded(0):
        net = torch.nn.Linear(3, 3, bias=False).double()
        wrapped = ScoreNetwork(_Timeless(net), 0.5, 2.0).double()
    generator = torch.Generator().manual_seed(1)
    x0 = torch.randn(60_000, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.5, 2.0])
    sigma = torch.full((60_000,), 0.8, dtype=torch.float64)
    found = {}
    for matching in ("implicit", "sliced", "denoising"):
        with seeded(3):
            loss = score_loss(wrapped, x0, sigma, None, matching).mean()
        weight = 1 / (1 + 0.8**2) if matching == "denoising" else 1.0
        found[matching] = weight * torch.autograd.grad(loss, net.weight)[0]
    size = float(found["implicit"].norm())
    for matching in ("sliced", "denoising"):
        assert float((found[matching] - found["implicit"]).norm()) < 0.05 * size


class _Timeless(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, t, label):
        return self.net(x)


def test_the_divergence_is_the_trace():
    A = torch.randn(4, 4, dtype=torch.float64)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    s = torch.tanh(x @ A.T)
    expected = ((1 - s**2) * torch.diag(A)).sum(1)
    torch.testing.assert_close(divergence(s, x), expected)


@pytest.mark.parametrize("matching", ["implicit", "sliced"])
def test_other_matchings_learn_images_and_labels(matching, tmp_path):
    X = np.random.default_rng(0).integers(0, 9, (8, 4, 3)) / 8
    y = np.array(["a", "b"] * 4)
    model = ScoreModel(
        matching,
        width=8,
        n_layers=1,
        sampling_steps=3,
        conditional=True,
        training=Training(epochs=1),
        random_state=0,
    ).fit(X, y)
    assert model.sample(3, "a").shape == (3, 1, 4, 3)
    assert model.score_field(X, 0.5, y).shape == X.shape
    again = load(model.save(tmp_path / "score.safetensors"))
    np.testing.assert_array_equal(again.score_samples(X[:2], y[:2]), model.score_samples(X[:2], y[:2]))


@pytest.mark.filterwarnings("ignore:.*samples must differ")
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ScoreModel(min_noise=1.0, max_noise=0.5).fit(mixture(20)), "min_noise must be below"),
        (lambda: ScoreModel("implicit").fit(np.zeros((20, 65))), "at most 64 features; got 65"),
        (lambda: _quick().score_field(mixture(5), noise=100.0), "noise must be 0 or lie between"),
        (lambda: _quick().sample(1, method="euler"), "no method named 'euler'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _quick():
    return ScoreModel(**ScoreModel._test_params()).fit(mixture(20))


@pytest.mark.parametrize("shape", [(70,), (1, 9, 9)])
@pytest.mark.parametrize("conditional", [False, True])
def test_likelihoods_of_many_features(shape, conditional):
    """A network that says nothing is right about normal data, and its trace is the same along all directions."""
    rng = np.random.default_rng(0)
    X, y = rng.random((60, *shape)), np.arange(60) % 2
    plan = Training(epochs=1, learning_rate=1e-12)
    model = ScoreModel(
        sampling_steps=100, width=8, n_layers=1, conditional=conditional, training=plan, random_state=0
    )
    model.fit(X, y)
    for p in model.module_.parameters():
        p.data.zero_()
    found = model.score_samples(X[:5], *((y[:5],) if conditional else ()))
    z, log_det = model._scaling.forward(torch.from_numpy(X[:5].reshape(-1, *shape)))
    spread = 1 + model.min_noise**2
    normal = -0.5 * (z.square() / spread + np.log(2 * np.pi * spread)).flatten(1).sum(1)
    # 81 pixels in single precision, 25 steps of the equation
    np.testing.assert_allclose(found, normal + log_det, atol=0.02)


def test_normal_data_have_their_density_in_any_number_of_steps():
    """Where F is zero, paths of eq. 6 do not bend at all, and the density is that of N(0, 1 + min_noise^2)."""
    X = np.random.default_rng(0).standard_normal((50, 3))
    plan = Training(epochs=1)
    model = ScoreModel(width=8, n_layers=1, min_noise=0.1, sampling_steps=8, training=plan).fit(X)
    with torch.no_grad():
        for weight in model.module_.parameters():
            weight.zero_()
    spread = np.sqrt(1.01) * np.asarray(model.scaling_["scale"])
    expected = norm.logpdf(X, X.mean(0), spread).sum(1)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-9)


def test_the_likelihood_of_many_features_takes_few_gradients(monkeypatch):
    """Two directions in every pass, others each time, stand for the exact trace of 40 features."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((400, 40)) @ rng.standard_normal((40, 40)) / 6).astype(np.float32)
    plan = Training(epochs=20, learning_rate=4e-3)
    model = ScoreModel(width=32, n_layers=1, training=plan, random_state=0).fit(X)
    asked = []

    def counted(s, x, directions=None, learns=True):
        asked.append(directions)
        return divergence(s, x, directions, learns)

    monkeypatch.setattr(score, "divergence", counted)
    found = model.score_samples(X[:100])
    assert len(asked) <= model.sampling_steps // 2
    assert all(len(directions) == 2 for directions in asked)
    assert len({tuple(directions.flatten().tolist()) for directions in asked}) == len(asked)
    monkeypatch.setattr(score, "FEW", 40)
    exactly = model.score_samples(X[:100])
    assert np.mean(np.abs(found - exactly)) / 40 / math.log(2) < 0.02  # bits per feature
