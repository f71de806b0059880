"""Optimisers by name take the notes' steps; schedules have their closed forms."""

import numpy as np
import pytest
import torch

from corollary import create, optim
from corollary.optim.schedule import robbins_monro, schedule

H = np.diag([1.0, 4.0])
START = np.array([1.0, -2.0])


def trajectory(name, steps=6, **options):
    x = torch.nn.Parameter(torch.tensor(START))
    optimiser = optim.create(name, [x], **options)
    for _ in range(steps):
        optimiser.zero_grad()
        (0.5 * x @ torch.tensor(H) @ x).backward()
        optimiser.step()
    return x.detach().numpy()


def descend(x, lr):
    return x - lr * H @ x


def heavy_ball(steps, lr, beta):
    x, v = START, np.zeros(2)
    for _ in range(steps):
        v = beta * v + H @ x
        x = x - lr * v
    return x


def nesterov(steps, lr, beta):
    """Momentum of Sutskever's form, as torch has it: the step looks ahead along the new velocity."""
    x, v = START, np.zeros(2)
    for _ in range(steps):
        g = H @ x
        v = beta * v + g
        x = x - lr * (g + beta * v)
    return x


def adam(steps, lr, b1=0.9, b2=0.999, eps=1e-8, ams=False):
    x, m, v, top = START, np.zeros(2), np.zeros(2), np.zeros(2)
    for t in range(1, steps + 1):
        g = H @ x
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        top = np.maximum(top, v) if ams else v
        x = x - lr * (m / (1 - b1**t)) / (np.sqrt(top / (1 - b2**t)) + eps)
    return x


def adagrad(steps, lr, eps=1e-10):
    x, total = START, np.zeros(2)
    for _ in range(steps):
        g = H @ x
        total = total + g * g
        x = x - lr * g / (np.sqrt(total) + eps)
    return x


def rmsprop(steps, lr, decay=0.99, eps=1e-8):
    x, mean = START, np.zeros(2)
    for _ in range(steps):
        g = H @ x
        mean = decay * mean + (1 - decay) * g * g
        x = x - lr * g / (np.sqrt(mean) + eps)
    return x


def test_plain_descent_by_three_names():
    x = START
    for _ in range(6):
        x = descend(x, 0.1)
    for name in ("gd", "sgd", "minibatch"):
        np.testing.assert_allclose(trajectory(name, lr=0.1), x, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("heavy-ball", heavy_ball(6, 0.1, 0.9)),
        ("nesterov", nesterov(6, 0.1, 0.9)),
        ("adam", adam(6, 0.1)),
        ("amsgrad", adam(6, 0.1, ams=True)),
        ("adagrad", adagrad(6, 0.1)),
        ("rmsprop", rmsprop(6, 0.1)),
    ],
)
def test_steps_are_those_of_the_notes(name, expected):
    np.testing.assert_allclose(trajectory(name, lr=0.1), expected, rtol=1e-9)


def test_muon_takes_orthogonal_steps():
    W = torch.nn.Parameter(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    before = W.detach().clone()
    optimiser = create("muon")([W], lr=0.1, weight_decay=0.0)
    (W * torch.arange(24.0).reshape(6, 4)).sum().backward()
    optimiser.step()
    values = torch.linalg.svdvals((before - W.detach()) / 0.1)
    assert (
        values[0] / values[1] < 20
    )  # the gradient's own ratio is above 50; the iteration pulls them together


def test_muon_moves_matrices_as_torch_does_and_the_rest_by_adamw():
    def net():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))

    ours, theirs = net(), net()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    one = optim.create("muon", ours.parameters(), lr=0.01)
    weights, biases = ([p for p in theirs.parameters() if p.ndim == k] for k in (2, 1))
    both = torch.optim.Muon(weights, lr=0.01), torch.optim.AdamW(biases, lr=0.01, weight_decay=0.1)
    for step in range(6):
        for model, optimizers in ((ours, [one]), (theirs, both)):
            model.zero_grad()
            model(x).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
        if step == 2:  # a copy that has loaded the state goes on alike
            kept = one.state_dict()
            one = optim.create("muon", ours.parameters(), lr=0.5)
            one.load_state_dict(kept)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(one.param_groups) == 2
    assert all(p in one.state for p in ours.parameters())
    with pytest.raises(ValueError, match=r"Muon: some parameters must be matrices; got \(4,\). Use AdamW"):
        optim.create("muon", [torch.nn.Parameter(torch.zeros(4))])
    with pytest.raises(ValueError, match="parameters are given at the start"):
        one.add_param_group({"params": []})


def test_unknown_names():
    with pytest.raises(ValueError, match="no optimiser named 'nesterow'. Closest: 'nesterov'"):
        optim.create("nesterow")
    with pytest.raises(ValueError, match="no schedule named 'cosin'. Closest: 'cosine'"):
        schedule("cosin", 0, 10)


@pytest.mark.parametrize(
    ("name", "t", "value"),
    [
        ("constant", 7, 1.0),
        ("step", 3, 1.0),
        ("step", 4, 0.1),
        ("step", 7, 0.01),
        ("1/t", 4, 0.2),
        ("1/sqrt", 3, 0.5),
        ("cosine", 5, 0.5),
        ("cosine", 10, 0.0),
        ("linear", 2, 0.8),
    ],
)
def test_schedules_have_their_closed_forms(name, t, value):
    assert schedule(name, t, 10) == pytest.approx(value)


def test_warm_up_rises_to_the_schedule():
    assert [schedule("linear", t, 14, warmup=4) for t in range(5)] == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, 1.0]
    )


def test_robbins_monro():
    assert robbins_monro("1/t")
    assert not any(robbins_monro(name) for name in ("constant", "1/sqrt", "cosine", "step", "linear"))


@pytest.mark.parametrize(
    ("power", "holds"), [(0.3, False), (0.5, False), (0.55, True), (1.0, True), (1.05, False)]
)
def test_robbins_monro_of_ones_own_schedule(power, holds):
    """By the integral test, the sum of t^-p is finite for p > 1 only."""
    assert robbins_monro(lambda t: 3.0 / (100 + t) ** power) is holds
    assert robbins_monro(lambda t: 0.9**t) is False


def test_sharpness_aware_steps_are_not_plain_adam():
    with pytest.raises(ValueError, match="'sam' is a rule of two gradients .* Use Training"):
        optim.create("sam", [torch.nn.Parameter(torch.zeros(2))], lr=0.1)
