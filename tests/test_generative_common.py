"""What generative models share: grids, scalings with their Jacobians, labels, tables and images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from corollary import GAN
from corollary.base import as_tensor
from corollary.engine.batches import TensorBatches
from corollary.engine.training import Training
from corollary.errors import CorollaryWarning
from corollary.generative.common import ExactDensity, GenerativeModel
from corollary.generative.margins import Margins
from corollary.generative.scaling import Scaling, grid_step

RNG = np.random.default_rng(0)
TABLE = np.column_stack(
    [RNG.normal(5, 3, 300), RNG.integers(0, 7, 300), np.full(300, 2.0), RNG.integers(0, 40, 300) / 4]
)
IMAGES = RNG.integers(0, 17, (60, 1, 4, 4)) / 16


class Gaussian(nn.Module):
    """Independent normal distributions with learned means, one for each class."""

    def __init__(self, d: int, classes: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(max(classes, 1), d, dtype=torch.float64))

    def forward(self, z, label):
        mean = self.mean[0] if label is None else self.mean[label]
        gap = z.flatten(1) - mean
        return -0.5 * (gap.square() + np.log(2 * np.pi)).sum(1)


class Toy(ExactDensity, GenerativeModel):
    """The smallest model that uses everything which the base offers."""

    _training_defaults = {"epochs": 60, "learning_rate": 0.05}

    def __init__(self, *, conditional=False, kind="standard", training=None, random_state=None):
        self.conditional, self.kind = conditional, kind
        self.training, self.random_state = training, random_state

    def _module(self):
        return Gaussian(self.n_features_in_, self.n_classes_)

    def _learner(self, data):
        x = self._scale(data.X.astype(np.float64), self.kind)
        label = None if data.y is None else as_tensor(data.y)
        return self._descend(self._objective, TensorBatches(x, label))

    def _objective(self, module, batch):
        z, _ = self._scaling.forward(batch.inputs[0], torch.rand_like(batch.inputs[0]))
        return -module(z, batch.target).mean(), {}

    def _log_density(self, z, label):
        return self.module_(z, label)

    def _draw(self, n, labels, rng, **how):
        mean = self.module_.mean[0] if labels is None else self.module_.mean[labels]
        return mean + self._noise((n, self.n_features_in_), rng)


def test_steps_of_grids():
    assert grid_step(TABLE[:, 0]) == 0
    assert grid_step(TABLE[:, 1]) == 1
    assert grid_step(TABLE[:, 3]) == 0.25
    assert grid_step(np.full(5, 3.3)) == 1
    assert grid_step(IMAGES.astype(np.float32)) == pytest.approx(1 / 16)
    assert grid_step(np.round(RNG.normal(size=1000), 2)) == pytest.approx(0.01)
    assert grid_step(np.array([1.0, 2.0, 3.5])) == 0  # nothing repeats: three numbers are no grid


@pytest.mark.parametrize(
    "X, kind",
    [(X, kind) for X in (TABLE, IMAGES) for kind in ("standard", "signed", "logit")]
    + [(TABLE, "white"), (IMAGES, "shaped")],
)
def test_scaling_and_back_with_the_jacobian_of_autograd(X, kind):
    scaling = Scaling.learn(X, kind)
    x = torch.from_numpy(X[:5])
    u = torch.rand(x.shape, dtype=torch.float64)
    z, log_det = scaling.forward(x, u)
    np.testing.assert_allclose(scaling.backward(z).numpy(), X[:5], atol=1e-9)
    for i in range(5):
        J = torch.autograd.functional.jacobian(
            lambda v, i=i: scaling.forward(v[None], u[i])[0][0].flatten(), x[i]
        )
        J = J.reshape(x[i].numel(), -1)
        assert float(log_det[i]) == pytest.approx(float(torch.linalg.slogdet(J).logabsdet), rel=1e-9)
    if kind == "standard" and X is TABLE:
        noisy = scaling.forward(torch.from_numpy(X), torch.rand(X.shape, dtype=torch.float64))[0].numpy()
        np.testing.assert_allclose(noisy.mean(0), 0, atol=0.2)
        np.testing.assert_allclose(noisy.std(0), 1, atol=0.15)  # 300 rows


def test_white_features_are_uncorrelated():
    X = RNG.normal(size=(4000, 3)) @ [[1.0, 2, 0], [0, 1, 1], [0, 0, 5]]
    z = Scaling.learn(X, "white").forward(torch.from_numpy(X))[0].numpy()
    np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=0.02)  # the shrinkage is of the order of d / n
    twice = np.column_stack([X[:, 0], X[:, 0]])  # one direction has no variance at all
    assert np.isfinite(Scaling.learn(twice, "white").root).all()


def test_margins_are_a_density_of_every_column():
    """Of a column on a grid the density integrates to one over the grid and far beyond it, and draws are inverted."""
    X = np.column_stack([RNG.integers(0, 5, 200) ** 2, RNG.normal(size=200)]).astype(float)
    scaling = Scaling.learn(X, "white")
    margins = scaling._margins(torch.zeros(1))
    assert margins.shaped.tolist() == [True, False]
    x = torch.linspace(-60, 80, 560_001, dtype=torch.float64)
    z, slopes = margins.forward(torch.stack([x, x], 1))
    density = (slopes - 0.5 * (z.square() + np.log(2 * np.pi)))[:, 0].exp()
    assert float(torch.trapezoid(density, x)) == pytest.approx(
        1, abs=1e-4
    )  # it jumps: the rule is of first order
    assert (z[1:, 0] > z[:-1, 0]).all()
    some = torch.linspace(-5, 5, 50, dtype=torch.float64)[:, None].expand(-1, 2)
    back = margins.backward(some)
    np.testing.assert_allclose(margins.forward(back)[0][:, 0], some[:, 0], atol=1e-9)


def test_shares_of_levels_sum_to_one_and_leave_something_to_what_was_not_seen():
    """Eq. 3 by hand: levels 0 and 3 of 4, three and one time; one block, so that q is even."""
    X = np.array([[0.0], [0], [0], [3]])
    below = Margins.count(X, np.ones(1), np.zeros(1), X.max(0))[:, 0]
    np.testing.assert_allclose(np.diff(below), np.array([3.5, 0.5, 0.5, 1.5]) / 6)
    constant = Margins.count(np.zeros((1000, 1)), np.ones(1), np.zeros(1), np.full(1, 255.0))[:, 0]
    shares = np.diff(constant)
    assert constant[-1] == pytest.approx(1) and shares[0] > 0.998  # a pixel that is always dark
    assert shares.min() > 1e-6  # and a bright one costs 20 bits, not a thousand


def test_images_on_no_grid_pass_a_logit_and_others_begin_at_their_pixels_histograms():
    smooth = RNG.random((20, 1, 4, 4))
    assert Scaling.learn(smooth, "shaped").kind == "logit"
    scaling = Scaling.learn(IMAGES, "shaped")
    x = torch.from_numpy(IMAGES)
    z, log_det = scaling.forward(x, torch.rand(x.shape, dtype=torch.float64))
    found = scaling.bits((log_det - 0.5 * (z.square() + np.log(2 * np.pi)).flatten(1).sum(1)).numpy(), 16)
    codes = np.rint(IMAGES * 16).astype(int).reshape(len(IMAGES), -1)
    shares = np.diff(scaling.below, axis=0)
    expected = -np.log2(np.take_along_axis(shares, codes, 0)).mean()
    assert found.mean() == pytest.approx(expected, abs=0.05)  # the Gaussian is worth one of 60 images


def test_densities_are_of_the_data_as_given():
    """A continuous feature: the density integrates to one in the user's units, whatever they are."""
    x = np.random.default_rng(1).normal(7, 0.01, (500, 1))
    model = Toy(random_state=0).fit(x)
    grid = np.linspace(6.9, 7.1, 4001)[:, None]
    assert np.trapezoid(np.exp(model.score_samples(grid)), grid[:, 0]) == pytest.approx(1, abs=1e-6)


def test_bits_of_grid_data_bound_a_discrete_probability():
    """Two coins: no density can promise less than their two bits, however sharp, since noise of one step is added."""
    coins = np.random.default_rng(1).integers(0, 2, (4000, 2)).astype(float)
    model = Toy(random_state=0).fit(coins)
    every = np.array([[a, b] for a in (0.0, 1.0) for b in (0.0, 1.0)])
    bits = 2 * model.bits_per_dimension(every, n_draws=50)
    assert np.sum(2.0**-bits) <= 1  # eq. 1: a bound for every outcome, so the total is at most one
    assert model.bits_per_dimension(coins, n_draws=50).mean() >= 1


def test_labels_decide_what_is_drawn():
    y = np.array(["low", "high"] * 150)
    X = RNG.normal(np.where(y == "low", -5, 5)[:, None], 1, (300, 2))
    model = Toy(conditional=True, random_state=0, training=Training(epochs=200)).fit(X, y)
    assert model.sample(200, "low").mean() < -3 < 3 < model.sample(200, "high").mean()
    mixed = model.sample(400, ["low", "high"] * 200)
    assert mixed[::2].mean() < -3 < 3 < mixed[1::2].mean()
    assert model.score(X, y) > model.score(X, np.where(y == "low", "high", "low")) + 1
    assert model.sample(5).shape == (5, 2)


def test_images_come_back_as_images_on_their_grid():
    model = Toy(random_state=0).fit(IMAGES[:, 0])
    drawn = model.sample(7)
    assert drawn.shape == (7, 1, 4, 4) and drawn.min() >= 0 and drawn.max() <= 1
    np.testing.assert_allclose(drawn * 16, np.round(drawn * 16), atol=1e-6)
    assert model.score_samples(IMAGES).shape == (60,)


@pytest.mark.parametrize("greys", [(50, 200), (200,), (255,), (0, 90), (100, 130, 250)])
@pytest.mark.parametrize("kind", ["standard", "signed", "shaped"])
def test_images_of_few_greys_are_drawn_in_these_greys(greys, kind):
    """A grid of greys need not begin at black: two greys came back as black, a third one and white."""
    X = RNG.choice(greys, (60, 1, 4, 4)).astype(np.uint8)
    scaling = Scaling.learn(X / 255, kind)
    drawn = scaling.backward(3 * torch.from_numpy(RNG.standard_normal((500, 1, 4, 4)))).numpy() * 255
    steps = np.gcd.reduce(np.diff(greys)) if len(greys) > 1 else 255
    whole = range(int(greys[0] % steps), 256, int(steps))
    assert set(greys) <= set(drawn.round(3).ravel()) <= set(whole)
    given = scaling.backward(scaling.forward(torch.from_numpy(X / 255))[0]).numpy()
    np.testing.assert_allclose(given * 255, X, atol=1e-6)
    begin, end, _ = scaling.cells(scaling.forward(torch.from_numpy(X / 255))[0])
    assert (begin < end).all()


def test_a_grid_is_looked_for_in_all_of_the_data():
    """Images sorted by kind may begin with black and white ones; their greys are no less greys."""
    X = np.concatenate([RNG.integers(0, 2, (3000, 1, 4, 4)), RNG.integers(0, 5, (3000, 1, 4, 4)) / 4])
    assert Scaling.learn(X, "signed").step.item() == 0.25
    counts, halves = RNG.integers(0, 9, (25_000, 1)), RNG.integers(0, 9, (5_000, 1)) / 2
    assert Scaling.learn(np.concatenate([counts, halves])).step.item() == 0.5


@pytest.mark.filterwarnings("ignore:.*samples must differ")
def test_a_mask_of_a_picture_is_for_all_of_its_channels():
    model = Toy(random_state=0).fit(RNG.integers(0, 17, (20, 2, 4, 4)) / 16)
    X, half = np.full((3, 2, 4, 4), 0.5), np.arange(16).reshape(4, 4) < 8
    for mask in half, np.tile(half, (3, 1, 1)), half.astype(int), torch.from_numpy(half):
        known = model._known(X, mask)[1]
        np.testing.assert_array_equal(known, np.broadcast_to(half, (3, 2, 4, 4)))
    apart = np.stack([half, ~half])
    two = Toy(random_state=0).fit(X)._known(X[:2], apart)[1]  # as many images as channels: of one sample
    np.testing.assert_array_equal(two, np.broadcast_to(apart, (2, 2, 4, 4)))


def test_frames_whose_memory_is_read_only_are_no_reason_to_warn(recwarn):
    table = TABLE.copy()
    table.flags.writeable = False
    Scaling.learn(table, "white")
    assert not recwarn


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Toy(conditional=True).fit(TABLE), "conditional=True needs labels"),
        (lambda: Toy().fit(TABLE).sample(2, label="a"), "Fit with conditional=True"),
        (
            lambda: Toy(conditional=True).fit(TABLE, np.arange(300) % 3).sample(2, label=7),
            "no label named '7'",
        ),
        (
            lambda: Toy(conditional=True).fit(TABLE, np.arange(300) % 3).sample(2, label=[1]),
            "labels must be one or 2",
        ),
        (lambda: Toy(conditional=True).fit(TABLE, np.arange(300) % 3).score_samples(TABLE), "needs y"),
        (lambda: Toy().fit(IMAGES).score_samples(TABLE[:, :1].repeat(16, 1)), r"images of shape \(1, 4, 4\)"),
        (
            lambda: Toy(conditional=True).fit(TABLE, np.arange(300) % 3).sample(2, label="1"),
            "labels must be of their type in fit, int64; got 1 as str",
        ),
        (
            lambda: Toy().fit(IMAGES)._known(IMAGES, np.full((4, 4), 255)),
            "True .known. and False only; got '255'",
        ),
        (
            lambda: Toy().fit(IMAGES)._known(IMAGES, np.full((4, 4), "x")),
            "True .known. and False only; got 'x'",
        ),
        (lambda: Toy().fit(IMAGES)._known(IMAGES, np.full((4, 4), np.nan)), "False only; got 'nan'"),
        (
            lambda: Toy().fit(IMAGES)._known(IMAGES, np.ones((3, 3))),
            r"or of one sample \(1, 4, 4\); got \(3, 3\)",
        ),
        (lambda: Toy().fit(IMAGES).score_samples(np.zeros((2, 1, 5, 5))), r"fitted shape \(1, 4, 4\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.full((20, 6, 6), 0.5), None, "samples must differ to be learned from; got 20 that are all alike"),
        (np.full((9, 2), 3.0), None, "got 9 that are all alike"),
        (IMAGES, ["a"] * len(IMAGES), "needs labels that differ; got a in all of them"),
    ],
)
def test_what_nothing_can_be_learned_of_is_said(X, y, message):
    with pytest.warns(CorollaryWarning, match=message):
        GAN(latent=2, width=8, conditional=y is not None, training=Training(epochs=1), random_state=0).fit(
            X, y
        )


def test_draws_of_counts_are_counts():
    """Counts, and rounded temperatures on both sides of it: only the former end at 0."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.poisson(1.0, 400), rng.normal(0.0, 3.0, 400).round(1), 2.0 + rng.poisson(0.5, 400)]
    )
    scaling = Scaling.learn(X)
    far = scaling.backward(torch.full((1, 3), -9.0, dtype=torch.float64))[0]
    assert float(far[0]) == 0 and float(far[1]) < X[:, 1].min() and float(far[2]) == 0
    back = scaling.backward(scaling.forward(torch.tensor(X), 0.5)[0])
    np.testing.assert_allclose(back, X, atol=1e-9)
