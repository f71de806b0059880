"""PixelCNN: probabilities of all images, causality by gradients, drawing by parts and as a whole."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from corollary import PixelCNN, Training, load
from corollary.generative.pixelcnn import levels_in, logistic_mixture
from corollary.nn.pixels import PixelNetwork
from corollary.testing.checks import check_resume

SMALL = {"width": 4, "n_layers": 2, "training": Training(epochs=2), "random_state": 0}
RNG = np.random.default_rng(0)


def network(channels=1, n_out=2, n_classes=0, sides=(5, 4)):
    """Return a network whose weights are large enough for every path to matter."""
    torch.manual_seed(0)
    module = PixelNetwork(channels, n_out, sides, 4, 3, n_classes)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0, 0.5)
    return module


def test_probabilities_of_all_binary_images_sum_to_one():
    every = np.array(list(product((0.0, 1.0), repeat=9))).reshape(-1, 3, 3)
    model = PixelCNN(2, **SMALL).fit(every[RNG.integers(512, size=64)])
    model.module_ = network(sides=(3, 3))
    assert np.exp(model.score_samples(every).astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("output", ["categorical", "logistic-mixture"])
def test_probabilities_of_all_colour_pixels_sum_to_one(output):
    """Two pixels of three channels with three levels: 3^6 images."""
    every = np.array(list(product((0.0, 0.5, 1.0), repeat=6))).reshape(-1, 3, 1, 2)
    model = PixelCNN(3, output=output, n_components=2, **SMALL).fit(every[RNG.integers(729, size=64)])
    model.module_ = network(3, 3 if output == "categorical" else 6, sides=(1, 2))
    assert np.exp(model.score_samples(every).astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_output_depends_on_what_comes_before_it_and_on_nothing_else(channels):
    module, (h, w) = network(channels), (5, 4)
    x = torch.randn(1, channels, h, w)
    J = torch.autograd.functional.jacobian(lambda v: module(v).sum(2)[0], x)[:, :, :, 0]
    # (output channel, row, column, input channel, row, column) in the order of reading: pixel by pixel, then channel
    J = J.permute(1, 2, 0, 4, 5, 3).reshape(h * w * channels, -1)
    assert (J.triu() == 0).all()
    near = J.tril(-1)[channels:, :].abs().sum(1)
    assert (near > 0).all()
    assert (J[-1, :-1] != 0).all()  # no blind spot: the last output sees all before it


def test_a_pixel_is_known_by_its_place_alone():
    """Grey noise but for one dark row and one dark column in the middle: no neighbour tells where they are."""
    X = np.random.default_rng(0).integers(0, 2, (200, 12, 12)).astype(float)
    X[:, 6], X[:, :, 6] = 0, 0
    plan = Training(epochs=12, learning_rate=0.02, early_stopping=False)
    model = PixelCNN(2, width=4, n_layers=1, training=plan, random_state=0).fit(X)
    assert model.bits_per_dimension(X).mean() == pytest.approx(
        (11 / 12) ** 2, abs=0.03
    )  # a bit for each other pixel


@pytest.mark.parametrize(
    "channels, output", [(1, "categorical"), (3, "categorical"), (3, "logistic-mixture")]
)
def test_drawing_with_kept_rows_equals_a_full_pass_for_every_pixel(channels, output):
    X = RNG.integers(0, 5, (24, channels, 5, 4)) / 4
    y = np.arange(24) % 2
    model = PixelCNN(5, output=output, n_components=2, conditional=True, **SMALL).fit(X, y)
    model.module_ = network(channels, 5 if output == "categorical" else 6, 2).double()
    n, label = 6, torch.tensor([0, 1, 0, 1, 1, 0])
    u = torch.from_numpy(np.random.default_rng(3).random((n, channels, 5, 4)))
    choose = model._chooser(u, None)
    naive = torch.zeros_like(u)
    with torch.no_grad():
        for i, j, k in product(range(5), range(4), range(channels)):
            naive[:, k, i, j] = choose(model.module_(naive, label)[:, k, :, i, j], i, j, k)
        kept = model.module_.draw(u, choose, label)
    torch.testing.assert_close(kept, naive, rtol=0, atol=1e-12)
    assert naive.std() > 0.1


def test_discretised_logistics_are_a_probability_and_stable():
    out = torch.randn(7, 9, dtype=torch.float64)
    out[0, 6:] = -50.0  # needle-sharp
    out[1, 3:6] = 30.0  # far outside
    mass = torch.stack([logistic_mixture(out, torch.full((7,), c), 256) for c in range(256)])
    np.testing.assert_allclose(mass.exp().sum(0), 1, atol=1e-9)
    out = out.requires_grad_()
    logistic_mixture(out, torch.full((7,), 128), 256).sum().backward()
    assert out.grad.isfinite().all()


def test_levels_are_those_of_the_images():
    assert levels_in(RNG.integers(0, 256, 5000) / 255) == 256
    assert levels_in(RNG.integers(0, 17, 500) / 16) == 17
    assert levels_in(np.array([0, 128, 255, 255]) / 255) == 256  # no even grid of three levels
    assert levels_in(np.zeros(5)) == 2


def test_learning_completing_and_files(tmp_path):
    """Stripes: every row repeats the one above, so a completed image repeats its last known row."""
    X = np.repeat((RNG.random((400, 1, 6)) < 0.5).astype(float), 5, axis=1)
    plan = Training(epochs=6, learning_rate=1e-2)
    model = PixelCNN(width=8, n_layers=2, training=plan, random_state=0).fit(X)
    assert model.levels_ == 2
    assert model.bits_per_dimension(X).mean() < 0.3  # 6 bits in 30 pixels are 0.2
    mask = np.zeros((5, 6), bool)
    mask[:2] = True
    done = model.complete(X[:40], mask)
    np.testing.assert_array_equal(done[:, :2], X[:40, :2])
    assert np.abs(done - X[:40]).mean() < 0.1
    again = load(model.save(tmp_path / "pixels.safetensors"))
    np.testing.assert_array_equal(again.sample(5), model.sample(5))


def test_resumed_exactly():
    model = PixelCNN(4, **{**SMALL, "training": Training(epochs=3, batch_size=8)})
    check_resume(model, RNG.random((24, 5, 5)), None)


@pytest.mark.filterwarnings("ignore:.*samples must differ")
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PixelCNN(**SMALL).fit(np.full((8, 4, 4), 3.0)), r"\[0, 1\]"),
        (lambda: PixelCNN(**SMALL).fit(np.zeros((8, 4))), "PixelCNN"),
        (lambda: PixelCNN(conditional=True, **SMALL).fit(np.zeros((8, 4, 4))), "needs labels"),
        (
            lambda: PixelCNN(**SMALL).fit(np.zeros((8, 4, 4))).score_samples(np.zeros((2, 3, 4, 4))),
            r"fitted shape \(1, 4, 4\)",
        ),
        (
            lambda: PixelCNN(**SMALL).fit(np.zeros((8, 4, 4))).complete(np.zeros((2, 4, 4)), np.ones(3)),
            "mask must have the shape",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
