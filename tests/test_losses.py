"""Losses per sample against torch's own, scikit-learn's, and their definitions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import hinge_loss, mean_pinball_loss, zero_one_loss

from corollary import losses

GEN = torch.Generator().manual_seed(0)
Z = torch.randn(9, 4, generator=GEN, dtype=torch.float64)
T = torch.randn(9, 4, generator=GEN, dtype=torch.float64)
INDEX = torch.randint(0, 4, (9,), generator=GEN)
SOFT = torch.rand(9, 4, generator=GEN, dtype=torch.float64).softmax(1)
SIGN = torch.where(T[:, 0] > 0, 1.0, -1.0).double()
COUNT = torch.randint(0, 6, (9, 4), generator=GEN).double()

ELEMENTWISE = [
    (losses.squared, F.mse_loss, T),
    (losses.absolute, F.l1_loss, T),
    (losses.huber, F.huber_loss, T),
    (losses.binary_cross_entropy, F.binary_cross_entropy_with_logits, SOFT),
    (losses.logistic, F.soft_margin_loss, T.sign()),
    (losses.poisson, lambda z, t, reduction: F.poisson_nll_loss(z, t, reduction=reduction), COUNT),
]


@pytest.mark.parametrize("ours, theirs, target", ELEMENTWISE, ids=lambda f: getattr(f, "__name__", ""))
def test_equal_to_torch_and_added_over_the_outputs_of_a_sample(ours, theirs, target):
    expected = theirs(Z, target, reduction="none")
    torch.testing.assert_close(ours(Z, target), expected.sum(1))
    torch.testing.assert_close(ours(Z[:, 0], target[:, 0]), expected[:, 0])


def test_classes_equal_torch():
    for target in (INDEX, SOFT):
        expected = F.cross_entropy(Z, target, reduction="none")
        torch.testing.assert_close(losses.cross_entropy(Z, target), expected)
    torch.testing.assert_close(losses.margin(Z, INDEX), F.multi_margin_loss(Z, INDEX, reduction="none"))


def test_classes_of_parts_on_any_axis():
    z = torch.randn(3, 5, 4, generator=GEN)
    index = torch.randint(0, 4, (3, 5), generator=GEN)
    criterion = losses.CrossEntropy(4, axis=-1)
    expected = F.cross_entropy(z.flatten(0, 1), index.flatten(), reduction="none").view(3, 5)
    torch.testing.assert_close(criterion(z, index), expected)
    torch.testing.assert_close(criterion(z, criterion.soften(index, z.dtype)), expected)
    pixels = losses.CrossEntropy(4)
    torch.testing.assert_close(pixels(z.transpose(1, 2), index), expected)
    soft = pixels.soften(index, z.dtype)
    assert soft.shape == (3, 4, 5)
    torch.testing.assert_close(pixels(z.transpose(1, 2), soft), expected)
    assert torch.equal(criterion.accuracy(z, index), pixels.accuracy(z.transpose(1, 2), soft))


def test_signs():
    z = Z[:, 0]
    assert losses.hinge(z, SIGN).mean().item() == pytest.approx(hinge_loss(SIGN, z))
    assert losses.zero_one(z, SIGN).mean().item() == pytest.approx(zero_one_loss(SIGN, z.sign()))
    assert losses.zero_one(Z, INDEX).mean().item() == pytest.approx(zero_one_loss(INDEX, Z.argmax(1)))
    torch.testing.assert_close(losses.logistic(z, SIGN), losses.binary_cross_entropy(z, (SIGN + 1) / 2))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_quantile(level):
    found = losses.quantile(Z[:, 0], T[:, 0], level).mean().item()
    assert found == pytest.approx(mean_pinball_loss(T[:, 0], Z[:, 0], alpha=level))


@pytest.mark.parametrize("family", losses.FAMILIES)
def test_exponential_family_is_the_log_density_up_to_a_constant(family):
    D = torch.distributions
    theta = -torch.rand(6, 1, generator=GEN, dtype=torch.float64) - 0.2  # a natural parameter of all five
    by_name = {
        "bernoulli": (D.Bernoulli(logits=theta), [0.0, 1.0]),
        "exponential": (D.Exponential(-theta), [0.3, 2.0]),
        "gaussian": (D.Normal(theta, 1.0), [-1.0, 2.0]),
        "geometric": (D.Geometric(1 - theta.exp()), [0.0, 3.0]),
        "poisson": (D.Poisson(theta.exp()), [0.0, 4.0]),
    }
    density, points = by_name[family]
    for point in points:
        t = torch.full_like(theta, point)
        found = losses.exponential_family(theta, t, family)
        constant = found + density.log_prob(t)[:, 0]
        torch.testing.assert_close(constant, constant[:1].expand_as(constant))
    t, z = torch.full_like(theta, points[1]), theta.clone().requires_grad_()
    losses.exponential_family(z, t, family).sum().backward()
    torch.testing.assert_close(z.grad, density.mean - t)  # mean minus target


def test_weighted_means():
    values, weight = torch.rand(4, 3, generator=GEN), torch.tensor([1.0, 2.0, 0.0, 1.0])
    repeated = values[[0, 1, 1, 3]].mean()
    torch.testing.assert_close(losses.weighted_mean(values, weight), repeated)
    torch.testing.assert_close(losses.weighted_mean(values[:, 0], weight), values[[0, 1, 1, 3], 0].mean())
    assert (
        losses.weighted_mean(values, torch.zeros(4)) == 0
    )  # nothing counts: no loss, and no division by zero
    assert np.isfinite(losses.weighted_mean(values[:, 0], torch.zeros(4)).item())


def test_unknown_names_say_the_closest():
    with pytest.raises(ValueError, match="no loss named 'hubber'. Closest: 'huber'"):
        losses.regression("hubber")
    with pytest.raises(ValueError, match="no family named 'poison'. Closest: 'poisson'"):
        losses.exponential_family(Z, T, "poison")
