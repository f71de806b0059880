"""Augmentation against closed forms."""

import numpy as np
import pytest
import torch

from corollary.data import augment as aug


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize("quarter", [-1, 1, 2, 3])
def test_a_quarter_turn_is_rot90(side, quarter):
    images = torch.rand(3, 2, side, side, generator=seeded())
    turned = aug.rotate(images, angles=torch.full((3,), 90.0 * quarter))
    torch.testing.assert_close(turned, torch.rot90(images, quarter, (2, 3)), atol=1e-5, rtol=0)


def test_half_a_turn_of_an_oblong_picture():
    images = torch.rand(2, 1, 5, 9, generator=seeded())
    torch.testing.assert_close(aug.rotate(images, angles=[180, 180]), images.flip(-1, -2), atol=1e-5, rtol=0)


def test_turning_keeps_a_disc_and_turns_back():
    y, x = torch.meshgrid(torch.arange(31) - 15.0, torch.arange(31) - 15.0, indexing="ij")
    disc = torch.exp(-(x**2 + y**2) / 20)[None]
    error = 2 * 0.1 / 8  # of bilinear interpolation: largest second derivative / 8 along both axes
    torch.testing.assert_close(aug.rotate(disc, angles=[37.0]), disc, atol=error, rtol=0)
    blob = torch.exp(-((x - 4) ** 2 + y**2) / 20)[None]
    there = aug.rotate(blob, angles=[30.0])
    assert there[0].argmax() == (15 - 2) * 31 + 15 + 3  # 4 (cos 30, sin 30), anticlockwise: upwards
    torch.testing.assert_close(aug.rotate(there, angles=[-30.0]), blob, atol=2 * error, rtol=0)


def test_angles_are_uniform_and_bounded():
    still = aug.rotate(torch.rand(4, 5, 5, generator=seeded()), 0.0, generator=seeded())
    torch.testing.assert_close(still, torch.rand(4, 5, 5, generator=seeded()), atol=1e-6, rtol=0)


def test_flipping_twice_is_the_identity():
    images = torch.rand(5, 3, 4, 6, generator=seeded())
    for vertical in (False, True):
        once = aug.flip(images, 1.0, vertical=vertical)
        torch.testing.assert_close(once, images.flip(-2 if vertical else -1), atol=0, rtol=0)
        torch.testing.assert_close(aug.flip(once, 1.0, vertical=vertical), images, atol=0, rtol=0)
    torch.testing.assert_close(aug.flip(images, 0.0), images, atol=0, rtol=0)


def test_a_share_p_is_flipped():
    images = torch.tensor([0.0, 1.0]).expand(4000, 1, 1, 2)
    share = aug.flip(images, 0.3, generator=seeded())[:, 0, 0, 0].mean().item()
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 4000) ** 0.5


def test_resizing_a_constant_and_a_mean():
    constant = torch.full((2, 3, 4, 4), 0.3)
    torch.testing.assert_close(aug.resize(constant, 12), torch.full((2, 3, 12, 12), 0.3))
    torch.testing.assert_close(aug.resize(constant, (2, 8)), torch.full((2, 3, 2, 8), 0.3))
    images = torch.rand(2, 1, 8, 8, generator=seeded())
    torch.testing.assert_close(aug.resize(images, 8), images)
    ramp = torch.arange(8.0).expand(1, 8, 8) / 8  # a ramp stays one: antialiasing is symmetric inside
    np.testing.assert_allclose(np.diff(aug.resize(ramp, 4)[0, 0])[1:-1], 0.25, atol=1e-6)


def test_crops_lie_where_the_offsets_say():
    images = torch.arange(2 * 3 * 5 * 6.0).reshape(2, 3, 5, 6)
    found = aug.crop(images, (2, 3), offsets=torch.tensor([[0, 0], [3, 2]]))
    torch.testing.assert_close(found[0], images[0, :, :2, :3])
    torch.testing.assert_close(found[1], images[1, :, 3:5, 2:5])
    padded = aug.crop(images, (5, 6), padding=1, offsets=torch.tensor([[1, 1], [0, 0]]))
    torch.testing.assert_close(padded[0], images[0])
    assert (padded[1, :, 0] == 0).all() and (padded[1, :, :, 0] == 0).all()


def test_every_place_of_a_crop_is_as_likely():
    images = torch.arange(9.0).reshape(1, 3, 3).expand(9000, 3, 3)
    counts = torch.bincount(aug.crop(images, 1, generator=seeded()).flatten().long(), minlength=9)
    assert ((counts - 1000).abs() < 5 * 1000**0.5).all()


def test_the_covariance_of_colour_noise():
    generator = seeded()
    mix = torch.tensor([[0.5, 0.1, 0.0], [0.3, 0.2, 0.1], [0.1, 0.0, 0.3]])
    pictures = torch.einsum("ck,nkhw->nchw", mix, torch.rand(50, 3, 8, 8, generator=generator))
    values, vectors = aug.colour_components(pictures)
    covariance = np.cov(pictures.transpose(0, 1).flatten(1).numpy(), bias=True)
    np.testing.assert_allclose(vectors @ torch.diag(values) @ vectors.T, covariance, atol=1e-6)
    blank = torch.zeros(40000, 3, 1, 1, dtype=torch.float64)
    shifts = aug.colour_noise(blank, 0.1, generator=generator, components=(values, vectors))[:, :, 0, 0]
    expected = 0.01 * covariance @ covariance  # eq. (1): P L^2 P'
    np.testing.assert_allclose(np.cov(shifts.T.numpy()), expected, atol=0.05 * np.abs(expected).max())
    assert (aug.colour_noise(pictures, 0.1, generator=generator) - pictures).flatten(2).std(2).max() < 1e-6


def test_the_scale_of_noise():
    found = aug.noise(torch.zeros(10, 100, 100), 0.2, generator=seeded())
    assert abs(found.std().item() - 0.2) < 0.003 and abs(found.mean().item()) < 0.003


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 9, 9), (4, 3, 9, 9)])
def test_kind_dtype_and_shape_are_kept(shape, dtype):
    images = np.random.default_rng(0).uniform(0, 1 if dtype != np.uint8 else 255, shape).astype(dtype)
    before = images.copy()
    options = {"resize": 10, "rotate": 20.0, "flip": 0.5, "crop": 8, "padding": 1, "noise": 0.1}
    found = aug.augment(images, generator=seeded(), colour=0.1 * (len(shape) == 4), **options)
    assert isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == (*shape[:-2], 8, 8)
    assert found.min() >= 0 and found.max() <= (255 if dtype == np.uint8 else 1)
    np.testing.assert_array_equal(images, before)
    again = aug.augment(
        torch.from_numpy(images), generator=seeded(), colour=0.1 * (len(shape) == 4), **options
    )
    assert isinstance(again, torch.Tensor)
    np.testing.assert_allclose(again.numpy(), found, atol=1e-6)


def test_nothing_asked_for_changes_nothing():
    images = np.random.default_rng(0).random((3, 5, 5))
    np.testing.assert_array_equal(aug.augment(images, generator=seeded()), images)
    assert aug.augment(images, padding=2, generator=seeded()).shape == images.shape


def test_bytes_survive_a_mirror_exactly():
    images = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    np.testing.assert_array_equal(aug.flip(images, 1.0), images[:, :, ::-1])


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    aug.augment(torch.rand(2, 3, 8, 8, generator=seeded()), flip=0.5, rotate=9, noise=0.1, generator=seeded())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda x: aug.crop(x, 9, generator=seeded()),
            ValueError,
            "must fit .* got 9 x 9 for 8 x 8. Raise padding",
        ),
        (
            lambda x: aug.crop(x, 8, offsets=torch.ones(2, 2)),
            ValueError,
            r"offsets must lie in 0 to \(0, 0\)",
        ),
        (lambda x: aug.flip(x, 1.5), ValueError, "p must be a probability; got 1.5"),
        (lambda x: aug.flip(x), TypeError, "flip: generator must be a torch.Generator; got NoneType. Pass"),
        (lambda x: aug.rotate(x, angles=[1.0]), ValueError, r"one angle per image \(2\); got shape \(1,\)"),
        (lambda x: aug.resize(x, 0), ValueError, "size must be positive"),
        (lambda x: aug.noise(x, -1.0, generator=seeded()), ValueError, "scale must not be negative; got -1"),
        (
            lambda x: aug.colour_noise(x, generator=seeded()),
            ValueError,
            r"two channels or more; got shape \(2, 1, 8",
        ),
        (lambda x: aug.flip(x[0]), ValueError, r"flip: images must be .* got torch.Size\(\[8, 8\]\)"),
        (lambda x: aug.flip([[1.0]]), ValueError, "got list"),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.zeros(2, 8, 8))
