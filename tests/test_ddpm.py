"""Diffusion against diffusers' schedulers, closed forms for Gaussian data, and its own identities."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm
from sklearn.datasets import load_digits

from corollary import DDPM, Training, load
from corollary.generative import ddpm
from corollary.generative.bound import even_noise, fingerprints, log_cell, own_signs, scrambled, strata
from corollary.generative.ddpm import Levels, betas, noisy
from corollary.generative.denoisers import UNetDenoiser, denoiser, time_features
from corollary.generative.scaling import Scaling

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from diffusers import DDIMScheduler, DDPMScheduler

SCHEDULES = {"linear": "linear", "cosine": "squaredcos_cap_v2"}
N = 40


# --- schedules and steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ours, theirs", SCHEDULES.items())
@pytest.mark.parametrize("n", [10, 1000])
def test_betas_are_those_of_diffusers(ours, theirs, n):
    expected = DDPMScheduler(num_train_timesteps=n, beta_schedule=theirs).betas
    np.testing.assert_allclose(betas(ours, n), expected, rtol=1e-5, atol=1e-7)  # theirs are float32


def in_double(scheduler, schedule):
    """Give a scheduler of diffusers, which computes in float32, the same levels in float64; return ours."""
    levels = Levels.of(schedule, N)
    scheduler.betas, scheduler.alphas, scheduler.alphas_cumprod = levels.beta, 1 - levels.beta, levels.kept
    scheduler.one = torch.tensor(1.0, dtype=torch.float64)
    scheduler.final_alpha_cumprod = scheduler.one
    return levels


@pytest.mark.parametrize("prediction", ["epsilon", "x0", "v"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ancestral_steps_are_those_of_diffusers(schedule, prediction):
    kind = {"epsilon": "epsilon", "x0": "sample", "v": "v_prediction"}[prediction]
    theirs = DDPMScheduler(
        N,
        beta_schedule=SCHEDULES[schedule],
        prediction_type=kind,
        clip_sample=False,
        variance_type="fixed_small",
    )
    theirs.set_timesteps(N)
    levels, g = in_double(theirs, schedule), torch.Generator().manual_seed(0)
    for t in range(N - 1, -1, -1):
        x, out = torch.randn(2, 2, 3, 5, generator=g, dtype=torch.float64)
        expected = theirs.step(out, t, x, generator=torch.Generator().manual_seed(t)).prev_sample
        mean, variance = levels.posterior(levels.both(out, x, t, prediction)[0], x, t)
        z = torch.randn(x.shape, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        ours = mean + math.sqrt(variance) * z if t > 0 else mean
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_jumps_are_those_of_diffusers(schedule, eta):
    theirs = DDIMScheduler(N, beta_schedule=SCHEDULES[schedule], clip_sample=False, set_alpha_to_one=True)
    theirs.set_timesteps(10)
    levels, g = in_double(theirs, schedule), torch.Generator().manual_seed(0)
    for t in theirs.timesteps.tolist():
        x, out, z = torch.randn(3, 2, 5, generator=g, dtype=torch.float64)
        expected = theirs.step(out, t, x, eta=eta, variance_noise=z if eta else None).prev_sample
        x0, epsilon = levels.both(out, x, t, "epsilon")
        ours = levels.jump(x0, epsilon, t, t - N // 10, eta, z)
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("prediction", ["epsilon", "x0", "v"])
def test_the_right_prediction_gives_back_x0_and_epsilon(prediction):
    levels, t = Levels.of("cosine", N), 17
    x0, epsilon = torch.randn(2, 4, 3, dtype=torch.float64)
    kept = levels.kept[t].expand(4)
    model = DDPM(N, prediction=prediction)
    found = levels.both(model._target(x0, epsilon, kept), noisy(x0, epsilon, kept), t, prediction)
    for a, b in zip(found, (x0, epsilon)):
        np.testing.assert_allclose(a, b, atol=1e-9)


# --- Gaussian data: everything is known ---------------------------------------------------------------------


class Optimal(torch.nn.Module):
    """The best prediction of the noise for data N(0, s²): linear in x."""

    def __init__(self, levels, s):
        super().__init__()
        self.levels, self.s = levels, s
        self.unused = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x, t, label=None):
        kept = self.levels.kept[t][:, None]
        return (1 - kept).sqrt() / (kept * self.s**2 + 1 - kept) * x


def gaussian(s, n_steps=200):
    """Return a fitted model whose network is the best one for one standard deviation of s, and no scaling."""
    X = np.random.default_rng(0).standard_normal((50, 1))
    settings = {
        "width": 8,
        "n_layers": 1,
        "sampling_steps": 2,
        "training": Training(epochs=1),
        "random_state": 0,
    }
    model = DDPM(n_steps, prediction="epsilon", **settings).fit(X)
    model.largest_ = np.inf
    model.module_ = Optimal(model._levels, s)
    model.scaling_ = {**model.scaling_, "shift": np.zeros(1), "scale": np.ones(1), "step": np.zeros(1)}
    kept = model._levels.kept[[(begin + end - 1) // 2 for begin, end in strata(n_steps)]].numpy()
    variance = s**2 * (1 - kept) / (kept * s**2 + 1 - kept)  # of x0 given x_t
    model.errors_ = np.stack([variance, variance], 1)[..., None]
    return model


@pytest.mark.parametrize("s", [0.3, 1.0, 2.0])
def test_with_the_best_network_gaussian_data_come_back(s):
    model = gaussian(s)
    for how in ({"steps": 200}, {"steps": 200, "eta": 1.0}, {"ancestral": True}):
        x = model.sample(4000, **how)
        # 4,000 draws: 1.1 % error of the standard deviation; 200 levels: a bias of a few per cent
        assert x.std() == pytest.approx(s, rel=0.08)


@pytest.mark.parametrize("s", [0.5, 1.0])
def test_the_bound_is_below_the_likelihood_and_close_for_the_best_network(s):
    model = gaussian(s, 1000)
    rng = np.random.default_rng(1)
    x = s * rng.standard_normal((3000, 1))
    exact = float(np.mean(-0.5 * (x / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)))
    bound = model.score(x)
    # The best step back of Gaussian data is Gaussian, with the variance of eq. 7: the bound is the likelihood, but for the
    # error of the sum over strata of levels.
    assert bound == pytest.approx(exact, abs=0.02) and bound < exact + 0.01
    model.errors_ = 1e-12 + 0 * model.errors_  # as little noise in a step back as there is with x0 known
    assert model.score(x) < bound - 0.5


def test_errors_are_measured_on_training_data_after_the_fit():
    X, _ = ring(400)
    model = DDPM(100, width=32, n_layers=1, training=Training(epochs=30), random_state=0).fit(X)
    with torch.inference_mode():
        z = model._scaling.forward(torch.from_numpy(X))[0]
        squares = np.array([[(z - g).square().numpy() for g in guesses] for *_, guesses in model._guesses(z)])
    found = squares.mean((1, 2))  # of both columns
    expected = (400 * found + found.mean(1, keepdims=True)) / 401
    for kept in model.errors_[:, 0], model.errors_[:, 1]:  # a table has no grid
        np.testing.assert_allclose(kept, expected, rtol=1e-6)
    assert (np.diff(expected.mean(1)) > 0).mean() > 0.8  # more noise, less known
    worse = model.score(X)
    for factor in (0.5, 2.0):  # the measured ones are best
        model.errors_ = model.errors_ * factor
        assert model.score(X) < worse
        model.errors_ = model.errors_ / factor


def test_probabilities_of_levels_sum_to_one_and_far_ones_stay_finite():
    """Images of 5 levels, scaled to [-1, 1]: the last step's cells cover the line, whatever the prediction."""
    X = np.random.default_rng(0).integers(0, 5, (50, 1, 1, 5)) / 4
    scaling = Scaling.learn(X, "signed")
    z = scaling.forward(torch.arange(5.0).double().reshape(1, 1, 1, 5) / 4)[0]
    cells = scaling.cells(z)
    for mean, deviation in ((0.1, 0.3), (-0.9, 0.01), (5.0, 0.01)):
        logs = log_cell(z, torch.full_like(z, mean), torch.full_like(z, deviation), *cells)
        assert logs.isfinite().all()
        assert float((logs.exp() * cells[2]).sum()) == pytest.approx(1, abs=1e-12)
    smooth = Scaling.learn(np.random.default_rng(0).random((9, 1, 2, 2)), "signed")
    z = torch.full((1, 1, 2, 2), 0.25, dtype=torch.float64)
    begin, end, width = smooth.cells(z)
    found = log_cell(z, torch.zeros_like(z), torch.full_like(z, 0.5), begin, end, width)
    assert float(width.max()) == 0
    np.testing.assert_allclose(found, norm.logpdf(0.25, 0, 0.5))


def test_bits_of_all_images_bound_a_probability(monkeypatch):
    """Four binary pixels: two to the minus the bits of all 16 images sum to at most one, and are close where one is likely.

    The bits of one image are estimated with a deviation of .3; the mean over 30 noises with one of .06.
    """
    every = np.array(list(product((0.0, 1.0), repeat=4))).reshape(-1, 2, 2)
    X = every[np.random.default_rng(0).choice([3, 12], 200)]
    plan = Training(epochs=60, batch_size=32, learning_rate=3e-3, average=0.98)
    model = DDPM(100, sampling_steps=10, width=16, n_layers=1, training=plan, random_state=0).fit(X)
    found = []
    for shift in range(0, 30_000, 1000):
        monkeypatch.setattr(
            ddpm, "even_noise", lambda count, x, term, more=shift: even_noise(count, x, term + more)
        )
        found.append(4 * model.bits_per_dimension(every))
    bits = np.mean(found, 0)
    assert (
        np.sum(2.0**-bits) < 1.02 and bits[[3, 12]].mean() < 1.5
    )  # one bit is what they hold, four would be chance


# --- the estimator ------------------------------------------------------------------------------------------


def ring(n=600, seed=0):
    rng = np.random.default_rng(seed)
    angle = rng.integers(0, 8, n)
    centres = 3 * np.stack([np.cos(angle * np.pi / 4), np.sin(angle * np.pi / 4)], 1)
    return centres + 0.15 * rng.standard_normal((n, 2)) + [20.0, -5.0], angle


def test_a_ring_of_eight_is_learned_and_labels_are_obeyed():
    X, y = ring()
    plan = Training(epochs=120, learning_rate=3e-3, batch_size=64)
    model = DDPM(100, width=64, n_layers=2, conditional=True, training=plan, random_state=0).fit(X, y)
    centres = np.array([X[y == k].mean(0) for k in range(8)])
    wanted = np.arange(400) % 8
    drawn = model.sample(400, wanted)
    nearest = np.linalg.norm(drawn[:, None] - centres, axis=2).argmin(1)
    assert np.mean(nearest == wanted) > 0.85
    assert len(np.unique(np.linalg.norm(model.sample(200)[:, None] - centres, axis=2).argmin(1))) >= 7


def test_completion_keeps_what_is_known_and_fits_the_rest():
    X, _ = ring()
    plan = Training(epochs=250, learning_rate=2e-3, batch_size=64)
    model = DDPM(100, width=64, n_layers=2, training=plan, random_state=0).fit(X)
    asked = np.column_stack(
        [np.full(100, X[:, 0].max()), np.zeros(100)]
    )  # the rightmost group: y is about -5
    found = model.complete(asked, [True, False], steps=50)
    np.testing.assert_array_equal(found[:, 0], asked[:, 0])
    assert np.median(np.abs(found[:, 1] + 5)) < 1.5  # the ring's radius is 3


def test_images_of_odd_sides_and_colours_are_drawn_saved_and_loaded(tmp_path):
    X = np.random.default_rng(0).integers(0, 256, (12, 3, 9, 7)).astype(np.uint8)
    model = DDPM(10, width=8, sampling_steps=3, training=Training(epochs=1), random_state=0).fit(X)
    drawn = model.sample(2)
    assert drawn.shape == (2, 3, 9, 7) and drawn.min() >= 0 and drawn.max() <= 1
    again = load(model.save(tmp_path / "ddpm.safetensors"))
    np.testing.assert_array_equal(again.sample(2), drawn)
    assert np.isfinite(model.bits_per_dimension(X)).all()
    half, some = np.arange(9)[:, None] < np.full((3, 9, 7), 4), X[:2] / 255
    found = model.complete(np.where(half, some, np.nan), half)  # gaps may be marked, or hold anything
    np.testing.assert_array_equal(found, model.complete(some, half))
    np.testing.assert_array_equal(found[:, half], some[:, half])


def test_guidance_pushes_towards_the_label():
    X, y = ring()
    model = DDPM(
        50,
        prediction="epsilon",
        width=32,
        n_layers=1,
        conditional=True,
        training=Training(epochs=5),
        random_state=0,
    ).fit(X, y)
    x, label = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([3])
    with torch.no_grad():
        at = torch.tensor([25])
        given, none = model.module_(x, at, label), model.module_(x, at, None)
        model.set_params(guidance=2.0)
        _, epsilon = model._predict_noise(x, 25, label)
    np.testing.assert_allclose(epsilon, 3 * given - 2 * none, atol=1e-9)


def test_the_full_u_net_is_diffusers_with_its_weights():
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    theirs = UNet2DModel(
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16, 32),
        down_block_types=("DownBlock2D",) * 3,
        up_block_types=("UpBlock2D",) * 3,
        norm_num_groups=8,
        add_attention=False,
        time_embedding_dim=16,
        flip_sin_to_cos=False,
    )
    x, t = torch.randn(2, 3, 8, 8), torch.tensor([3, 500])
    with torch.no_grad():
        found, expected = UNetDenoiser.from_diffusers(theirs)(x, t), theirs(x, t).sample
    np.testing.assert_allclose(found, expected, atol=1e-5)  # float32


def test_denoisers_are_sized_from_the_data():
    assert isinstance(denoiser((1, 28, 28), None, None, 0), UNetDenoiser)
    for shape in ((3,), (1, 8, 8), (3, 33, 47)):
        net = denoiser(shape, 16, 1, 2)
        x = torch.randn(2, *shape)
        assert net(x, torch.tensor([0, 5]), torch.tensor([0, 1])).shape == x.shape
    assert time_features(torch.tensor([0.0]), 4).tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: DDPM(10, sampling_steps=20).fit(ring()[0]), r"at most n_steps \(10\); got 20"),
        (lambda: DDPM(10).fit(ring()[0]), "Lower it, or raise n_steps"),
        (lambda: gaussian(1.0).sample(1, steps=500), r"n_steps \(200\); got 500"),
        (lambda: gaussian(1.0).sample(1, steps=2.5), "steps must be an integer of at least 1; got 2.5"),
        (lambda: gaussian(1.0).sample(1, eta=1.5), r"eta must lie in \[0, 1\]; got 1.5"),
        (lambda: gaussian(1.0).complete(np.zeros((2, 1)), np.ones((3, 3), bool)), "mask must have the shape"),
        (lambda: betas("sine", 10), "cosine"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_guesses_near_a_grid_are_moved_to_the_levels_they_stand_for():
    scaling = Scaling("signed", *(np.full((1, 1, 1), a) for a in (1 / 16, 0.0, 0.53125, 0.53125)))
    levels = scaling.forward(torch.arange(17).reshape(17, 1, 1, 1) / 16, 0.5)[0].flatten().double()
    z = torch.linspace(-1.1, 1.1, 111, dtype=torch.float64)
    for variance in (
        1e-4,
        1e-3,
        3e-3,
    ):  # up to half a step of standard deviation: three steps are all that count
        weights = torch.softmax(-(z[:, None] - levels).square() / (2 * variance), 1)
        found = scaling.nearby(z.reshape(-1, 1, 1, 1), variance).flatten()
        torch.testing.assert_close(found, weights @ levels, atol=1e-6, rtol=0)


def test_noise_below_a_step_of_the_grid_costs_nothing():
    X = load_digits().images[:300] / 16
    model = DDPM(training=Training(epochs=20), random_state=0).fit(X)
    bits = model.bits_per_dimension(X).mean()
    model.errors_[:, 1] = np.inf  # eq. 9 is not used
    assert bits < model.bits_per_dimension(X).mean() - 1


def test_pixels_that_never_change_cost_next_to_nothing():
    """Half of the pixels are black: with one variance for all they would cost as much as the noise beside them."""
    X = np.random.default_rng(0).integers(0, 17, (200, 8, 8)) / 16
    X[:, :, :4] = 0
    model = DDPM(training=Training(epochs=20), random_state=0).fit(X)
    bits = model.bits_per_dimension(X).mean()
    model.errors_ = np.repeat(model.errors_.mean(2, keepdims=True), 64, 2)
    assert bits < model.bits_per_dimension(X).mean() - 0.15


def test_the_errors_of_the_bound_are_measured_on_few_numbers(monkeypatch):
    """Some 20,000 numbers at each level, all noises counted: measuring must not take longer than learning."""
    seen = []

    def counted(self, x, t, label, guided=True):
        seen.append(x.numel())
        return x, x

    monkeypatch.setattr(DDPM, "_predict_noise", counted)
    X = np.random.default_rng(0).standard_normal((5000, 8)).astype(np.float32)
    model = DDPM(width=8, n_layers=1, training=Training(epochs=1), random_state=0).fit(X)
    assert sum(seen) <= 20_000 * len(model.errors_)


@pytest.mark.parametrize("d, count", [(1, 8), (64, 2)])
def test_the_noise_of_the_bound_has_tails(d, count):
    """Noise of plus and minus one, which two draws of every number once were, makes a grid look free."""
    x = torch.randn(2000, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = even_noise(count, x, 3)
    assert noise.shape == (count, 2000, d)
    torch.testing.assert_close(noise.mean(0), torch.zeros(2000, d, dtype=torch.float64))
    assert kstest(noise[: count // 2].flatten(), "norm").pvalue > 1e-3  # one test, of fixed draws
    spread = (
        noise[: count // 2].movedim(1, 0).flatten(1).abs().sort(1).values
    )  # sizes of a sample: evenly spread quantiles
    assert float(spread[:, -1].min()) > float(torch.special.ndtri(torch.tensor(1 - 1 / (count * d))))


def test_each_sample_has_noise_of_its_own_whatever_stands_beside_it():
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    noise = even_noise(8, x, 5)
    torch.testing.assert_close(even_noise(8, x[[7, 3]], 5), noise[:, [7, 3]], rtol=0, atol=0)
    assert not torch.equal(even_noise(8, x, 6), noise)
    shared = (
        noise.mean(1).abs().max()
    )  # normal, with a deviation of 1 / sqrt(500), but for what all rows share
    assert float(shared) < 4.5 / np.sqrt(500)
    signs = np.sign(noise[0].numpy())
    assert abs(np.mean(signs[:, 0] * signs[:, 1])) < 4 / np.sqrt(500)


def test_each_sample_has_signs_of_its_own():
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    signs = own_signs(2, fingerprints(x), x, 1)
    assert signs.shape == (2, 400, 3)
    torch.testing.assert_close(own_signs(2, fingerprints(x[[5]]), x[[5]], 1), signs[:, [5]], rtol=0, atol=0)
    assert float(signs.mean(1).abs().max()) < 4.5 / 20  # of 400 signs the mean has a deviation of 1 / 20
    assert abs(float((signs[0] * signs[1]).mean())) < 4.5 / np.sqrt(1200)
    assert abs(float((signs * own_signs(2, fingerprints(x), x, 2)).mean())) < 4.5 / np.sqrt(2400)


def test_scrambled_integers_are_those_of_split_mix():
    """The first numbers of SplitMix64 from seed 0, as published with its reference implementation."""
    found = [int(k) % 2**64 for k in scrambled(torch.arange(1, 4))]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_bound_of_two_columns_is_a_density_of_at_most_one_and_below_the_truth():
    """Noise that rows shared, and that the errors of eq. 7 were measured with too, gave 1.2, and more than the true density."""
    rng = np.random.default_rng(0)
    model = DDPM(100, width=32, n_layers=2, training=Training(epochs=30), random_state=0)
    model.fit(rng.standard_normal((1000, 2)))
    side = np.linspace(-5, 5, 81)
    at = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    assert np.exp(model.score_samples(at)).sum() * (side[1] - side[0]) ** 2 < 1.02
    new = rng.standard_normal((2000, 2))
    gap = model.score_samples(new) - norm.logpdf(new).sum(1)
    assert gap.mean() < 3 * gap.std() / np.sqrt(len(gap))
