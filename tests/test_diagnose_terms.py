"""Losses of one's own: what they ask for is found by asking them, and a sound training under them gets no alarm."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.objectives import criterion_of
from corollary.diagnose.terms import look


def pinball(z, t):
    return torch.maximum(0.95 * (t - z), -0.05 * (t - z)).mean()


def expectile(z, t):
    return ((t - z).square() * torch.where(t > z, 0.9, 0.1)).mean()


def in_pairs(z, t):
    return F.softplus(-(t - t[:, None]).sign() * (z - z[:, None])).mean()


def directions(z, t):
    return 1 - F.cosine_similarity(z, t, dim=1).mean()


def triplet(z, t):
    apart, same = torch.cdist(z, z), t[:, None] == t
    return F.relu((apart * same).amax(1) - (apart + 1e3 * same).amin(1) + 0.5).mean()


def steps(z, t):
    return F.binary_cross_entropy_with_logits(z, (t[:, None] > torch.arange(z.shape[1])).float())


def beside_centres(z, t):
    centres = F.normalize(torch.randn(4, z.shape[1], generator=torch.Generator().manual_seed(1)), dim=1)
    return F.cross_entropy(8 * F.normalize(z, dim=1) @ centres.T, t)


def asked(loss, outputs, y):
    torch.manual_seed(0)
    z = torch.randn(len(y), outputs) if outputs else torch.randn(len(y))
    criterion = criterion_of(loss, z, y, None)
    with torch.no_grad():
        look(criterion, z, y)
    return criterion


NUMBERS = torch.randn(200, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(200) % 4


def test_losses_tell_what_they_ask_for():
    assert asked(pinball, 0, NUMBERS).degree == pytest.approx(1)
    assert asked(expectile, 0, NUMBERS).degree == pytest.approx(2)
    assert asked(in_pairs, 0, NUMBERS).free == "level"
    assert asked(directions, 3, NUMBERS[:150].reshape(50, 3)).free == "length"
    for loss in (triplet, beside_centres):
        assert asked(loss, 6, CLASSES).task == "embedding"
    assert asked(steps, 3, CLASSES).task == "ordinal"


def test_usual_losses_are_left_as_they_are():
    for loss in (lambda z, t: F.huber_loss(z, t), lambda z, t: (z - t).square().mean()):
        plain = asked(loss, 0, NUMBERS)
        assert plain.degree != plain.degree
        assert not plain.free
    for outputs in (4, 6):
        assert asked(lambda z, t: F.cross_entropy(z, t), outputs, CLASSES).task == "classes"
    assert asked(lambda z, t: -F.cross_entropy(z, t), 4, CLASSES).task == "classes"


def trained(outputs, x, y, loss, flat=False):
    torch.manual_seed(0)
    layers = [nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, outputs)]
    model = nn.Sequential(*layers, *([nn.Flatten(0)] if flat else []))
    descent = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(25):
        for rows in torch.randperm(len(y)).split(64):
            descent.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            descent.step()
    return model.eval()


def alarms(model, x, y, loss):
    k = 2 * len(y) // 3
    return [f.cause for f in corollary.diagnose(model, (x[:k], y[:k]), (x[k:], y[k:]), loss=loss).alarms]


@pytest.mark.parametrize("loss", [pinball, in_pairs])
def test_a_quantile_and_an_order_are_no_bad_means(loss):
    torch.manual_seed(1)
    x = torch.randn(1200, 3)
    y = x[:, 0] + torch.sin(2 * x[:, 1]) + 0.4 * torch.randn(1200)
    model = trained(1, x[:800], y[:800], loss, flat=True)
    assert not alarms(model, x, y, loss)


@pytest.mark.parametrize(("loss", "outputs"), [(triplet, 5), (steps, 3), (beside_centres, 6)])
def test_embeddings_and_steps_are_no_bad_scores(loss, outputs):
    torch.manual_seed(1)
    y = torch.arange(1200) % 4
    x = 1.5 * y[:, None] * torch.tensor([1.0, 1, -1, 1, -1, 1]) + torch.randn(
        1200, 6
    )  # no column tells it alone
    x = (x - x.mean(0)) / x.std(0)
    assert not alarms(trained(outputs, x[:800], y[:800], loss), x, y, loss)


def test_a_contrastive_loss_of_the_wrong_sign_is_wrong():
    torch.manual_seed(1)
    x = torch.randn(300, 3) + (torch.arange(300) % 4)[:, None]
    model = nn.Linear(3, 5)
    assert "wrong-loss" in alarms(model, x, torch.arange(300) % 4, lambda z, t: -triplet(z, t))


def test_a_margin_loss_of_signs_does_not_take_them_for_numbers():
    torch.manual_seed(1)
    x = torch.randn(400, 3)
    y = x[:, 0].sign()
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    wrong = [
        "wrong-loss" in alarms(model, x[:, :], y, loss)
        for loss in (lambda z, t: F.relu(1 - z * t).mean(), lambda z, t: (z - t).square().mean())
    ]
    assert wrong == [False, True]
