"""What is said while a training runs: each sign at its step, and silence on healthy trainings."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from corollary import MLPClassifier, Run, Training
from corollary.diagnose import Watch
from corollary.errors import CorollaryWarning

X, Y = load_digits(return_X_y=True)
X = torch.tensor(X[:512] / 16, dtype=torch.float32)
Y = torch.tensor(Y[:512])


def trained(net, optimizer, steps=40, batch=64, watch=None, X=X, target=Y, loss=nn.functional.cross_entropy):
    """Train in a plain loop; return what the watch found, looking at every step."""
    watch = watch or Watch(share=1.0, say=lambda text: None)
    rng = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(0, len(X), (batch,), generator=rng)
        optimizer.zero_grad()
        value = loss(net(X[rows]), target[rows])
        value.backward()
        optimizer.step()
        watch.after_step(net, value)
    return watch


def stack(depth, activation, width=32):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(64, width), activation()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), activation()]
        return nn.Sequential(*layers, nn.Linear(width, 10))


def convolutional():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        return nn.Sequential(*first, nn.Flatten(), nn.Linear(288, 10))


def adam(net, rate=1e-3):
    return torch.optim.Adam(net.parameters(), lr=rate)


def causes(watch):
    return [finding.cause for finding in watch.findings]


@pytest.mark.parametrize(
    "make",
    [
        lambda: (net := stack(1, nn.ReLU), adam(net, 3e-3)),
        lambda: (net := stack(3, nn.Tanh), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)),
        lambda: (net := convolutional(), adam(net, 1e-2)),
    ],
)
@pytest.mark.parametrize("batch", [4, 64])
def test_silence_on_healthy_trainings(make, batch):
    net, optimizer = make()
    assert causes(trained(net, optimizer, 80, batch)) == []


def test_vanishing_gradients_are_named_with_their_layers():
    net = stack(10, nn.Sigmoid)
    watch = trained(net, adam(net), 12)
    (finding,) = [f for f in watch.findings if f.cause == "vanishing-gradient"]
    assert finding.where.endswith("to 0.weight")
    assert finding.value < 1e-4
    assert finding.evidence["step"] <= 8


def test_exploding_gradients():
    net = stack(10, nn.Identity)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(6)
    watch = trained(net, adam(net, 1e-5), 12)
    assert "exploding-gradient" in causes(watch)
    spike = Watch(share=1.0, say=lambda text: None)
    net = stack(1, nn.ReLU)
    trained(net, adam(net), 20, watch=spike)
    assert causes(spike) == []
    trained(net, adam(net), 2, watch=spike, loss=lambda z, y: 1e4 * nn.functional.cross_entropy(z, y))
    assert "exploding-gradient" in causes(spike)


def test_dead_units_are_named():
    net = stack(1, nn.ReLU)
    with torch.no_grad():
        net[2].bias.fill_(-20.0)
        net[2].bias[:10] = 0.1
    watch = trained(net, adam(net, 1e-4), 20)
    (finding,) = watch.findings
    assert (finding.cause, finding.where) == ("dead-units", "2.weight")
    assert 22 / 32 <= finding.value < 1
    with torch.no_grad():
        net[2].bias.fill_(-20.0)
        net[4].bias.zero_()
    net[4].bias.requires_grad_(False)
    watch = trained(net, adam(net, 1e-4), 20)
    assert (watch.findings[0].cause, watch.findings[0].value) == ("dead-units", 1.0)


@pytest.mark.parametrize("rate", [30.0, 1e6])
def test_a_rate_that_is_too_high(rate):
    net = stack(1, nn.ReLU)
    watch = trained(net, torch.optim.SGD(net.parameters(), lr=rate), 40)
    assert "learning-rate-too-large" in causes(watch)
    regression = nn.Linear(64, 1)
    watch = trained(
        regression, torch.optim.SGD(regression.parameters(), lr=0.2), 60, target=Y[:, None].float(), loss=nn.functional.mse_loss
    )  # fmt: skip
    assert causes(watch)[0] == "learning-rate-too-large"


def test_a_loss_that_is_no_number_is_said_at_its_step():
    heard = []
    watch = Watch(say=heard.append)
    net = nn.Linear(2, 1)
    watch.after_step(net, 1.0)
    watch.after_step(net, torch.tensor(float("nan")))
    assert heard == [
        "learning-rate-too-large at step 2: the loss is nan. Divide the learning rate by ten, or warm it up."
    ]
    assert math.isnan(watch.findings[0].value)


def test_validation_turns_once_and_only_while_training_goes_on():
    watch = Watch(say=lambda text: None)
    for i, value in enumerate([1.0, 0.6, 0.5, 0.52, 0.58, 0.6, 0.62, 0.7]):
        watch.validated(value, 1.0 / (i + 1))
    (finding,) = watch.findings
    assert finding.cause == "overfit"
    assert "best (0.5)" in finding.said
    noisy = Watch(say=lambda text: None)
    for i, value in enumerate([1.0, 0.6, 0.5, 0.52, 0.51, 0.53, 0.49, 0.52]):
        noisy.validated(value, 1.0 / (i + 1))
    assert noisy.findings == []
    worse = Watch(say=lambda text: None)  # the training loss rises too: that is no overfitting
    for i, value in enumerate([1.0, 0.6, 0.5, 0.8, 0.9, 1.2]):
        worse.validated(value, i)
    assert worse.findings == []


def test_as_a_callback_of_a_run():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 20)), rng.integers(0, 2, 60)
    watch = Watch(share=1.0, say=lambda text: None)
    with Run(callbacks=[watch], progress=False):
        model = MLPClassifier((64,), training=Training(epochs=30, learning_rate=0.01), random_state=0)
        model.fit(X, y, validation=(rng.standard_normal((60, 20)), rng.integers(0, 2, 60)))
    assert watch.step > 30 and watch.looks > 5
    assert causes(watch) == ["overfit"]
    assert watch.findings[0].where.startswith("epoch ")


def test_fits_are_the_same_with_it():
    settings = {"training": Training(epochs=3), "random_state": 0}
    plain = MLPClassifier((8,), **settings).fit(X.numpy(), Y.numpy())
    with Run(callbacks=[Watch(share=1.0)], progress=False):
        watched = MLPClassifier((8,), **settings).fit(X.numpy(), Y.numpy())
    for a, b in zip(plain.module_.parameters(), watched.module_.parameters()):
        assert torch.equal(a, b)


def test_it_warns_by_default_and_once():
    watch = Watch()
    with pytest.warns(CorollaryWarning, match=r"learning-rate-too-large at step 1: the loss is inf"):
        watch.after_step(nn.Linear(1, 1), float("inf"))
    watch.after_step(nn.Linear(1, 1), float("inf"))


def test_it_looks_only_as_often_as_its_share_allows(monkeypatch):
    monkeypatch.setattr("corollary.diagnose.watch.FREE", 0)
    net = stack(1, nn.ReLU)
    watch = Watch(share=1e-6)
    trained(net, adam(net), 30, watch=watch)
    assert watch.step == 30
    assert watch.looks == 1


def test_a_training_of_a_fraction_of_a_second_is_looked_at_too():
    said = []
    net = stack(10, nn.Sigmoid)
    trained(net, torch.optim.SGD(net.parameters(), 0.1), 50, watch=Watch(say=said.append))
    assert said[0].startswith("vanishing-gradient at step ")
    said, net = [], stack(2, nn.ReLU)
    nn.init.constant_(net[0].bias, -50)
    trained(net, torch.optim.SGD(net.parameters(), 1e-3), 50, watch=Watch(say=said.append))
    assert "dead-units" in said[0] and " in 0.weight: 100%" in said[0]
    said, net = [], stack(2, nn.ReLU)
    trained(net, adam(net), 50, watch=Watch(say=said.append))
    assert not said


@pytest.mark.parametrize("reading", [0, 5, 100])
def test_looking_takes_what_reading_the_losses_leaves_of_the_share_and_half_of_it_at_least(
    reading, monkeypatch
):
    clock = {"now": 0.0}
    watch, net = Watch(share=0.02), nn.Linear(1, 1)

    def takes(seconds):
        return lambda *_: clock.update(now=clock["now"] + seconds)

    monkeypatch.setattr("corollary.diagnose.watch.perf_counter", lambda: clock["now"])
    monkeypatch.setattr(watch, "_look", takes(100))
    monkeypatch.setattr(watch, "_judge_loss", takes(reading))
    for _ in range(1000):
        watch.after_step(net, 1.0)
        takes(1000)()
    # a look of 100 comes late by one step at most, and the first at once: 1 % of what is allowed
    whole, half = (watch.spent + watch.read) / clock["now"], watch.spent / clock["now"]
    assert (
        (half == pytest.approx(0.01, rel=0.03))
        if reading == 100
        else (whole == pytest.approx(0.02, rel=0.03))
    )


def test_messages():
    with pytest.raises(ValueError, match=r"Watch: share must lie in \(0, 1\]; got 2"):
        Watch(share=2)
    watch = Watch(share=1.0)
    net = nn.Linear(2, 2)
    with pytest.warns(CorollaryWarning, match=r"Watch: gradients must be there.*before zero_grad"):
        for _ in range(4):
            watch.after_step(net)
