"""Races and paths: equal budgets, closed forms, pictures."""

import numpy as np
import pytest
import torch
from torch import nn

from corollary import optim, plot, theory
from corollary.theory.hessian import Surface
from corollary.theory.race import RACERS, _Runner

RNG = np.random.default_rng(0)
X = torch.tensor(RNG.standard_normal((24, 3)))
Y = X @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + torch.tensor(RNG.standard_normal(24))


def linear(bias=True):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 1, bias=bias).double()


@pytest.mark.parametrize("name", RACERS)
def test_everyone_pays_for_every_look(name):
    """Counted at the module: each pass over rows with gradients, and each look of a line search."""
    rows = 0

    class Counting(nn.Linear):
        def forward(self, x):
            nonlocal rows
            rows += len(x)
            return super().forward(x)

    model = Counting(3, 1).double()
    surface = Surface(model, (X, Y), "squared")
    runner = _Runner(surface, surface.get(), name, 1.0 if name in ("lbfgs", "newton") else 0.01, 8, 0)
    products = []
    if name == "newton":
        step = runner.optimizer.step
        runner.optimizer.step = lambda closure: (step(closure), products.append(runner.optimizer.products))
    runner._loss = lambda: 1.0  # what is recorded is not paid for
    at, _ = runner.run(5.0, 4)
    assert runner.paid == pytest.approx(rows / 24 + 2 * sum(products))
    assert runner.paid >= 5.0
    np.testing.assert_allclose(at, [0, 1.25, 2.5, 3.75, 5.0])


def test_a_race_ranks_and_leaves_the_model_alone():
    model = linear()
    before = [p.detach().clone() for p in model.parameters()]
    found = optim.race(model, (X, Y), optimizers=["sgd", "adam", "newton"], passes=24, batch_size=8, seeds=2)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert found.results[0].optimizer == "newton"  # exact on a quadratic, damping aside
    assert [r.final for r in found.results] == sorted(r.final for r in found.results)
    start = Surface(model, (X, Y)).value()
    assert all(r.losses[:, 0] == pytest.approx(start) for r in found.results)
    sgd = next(r for r in found.results if r.optimizer == "sgd")
    assert sgd.losses.shape == (2, 21)
    assert sgd.spread[0] <= sgd.final <= sgd.spread[1]
    assert str(found).splitlines()[1].startswith("newton")
    assert len(plot.race(found).axes[0].lines) == 3


def test_a_step_that_costs_more_than_the_budget_does_not_count():
    found = optim.race(linear(), (X, Y), optimizers=["newton"], passes=2.0)
    (result,) = found.results  # one step takes a gradient and several products, two gradients each
    assert (result.losses == result.losses[0, 0]).all()


def test_one_that_diverges_is_last():
    found = optim.race(
        linear(), (X, Y), optimizers=["sgd", "adam"], passes=40, batch_size=8, seeds=1, learning_rates=[50.0]
    )
    assert found.results[-1].optimizer == "sgd"
    assert found.results[-1].final == np.inf
    assert len(plot.race(found).axes[0].lines) == 2


def test_rates_go_on_beyond_the_grid():
    found = optim.race(linear(bias=False), (1e-2 * X, Y), optimizers=["gd"], passes=10)
    assert found.results[0].learning_rate > max(RACERS["gd"])


def bowl(p):
    return 0.5 * (p[0] ** 2 + 4 * p[1] ** 2)


def test_paths_are_closed_forms():
    path = optim.trajectory(bowl, "gd", (1.0, 1.0), 10, lr=0.2)
    t = np.arange(11)
    np.testing.assert_allclose(path.points, np.stack([0.8**t, 0.2**t], 1), rtol=1e-12)
    np.testing.assert_allclose(path.values, 0.5 * (0.8 ** (2 * t) + 4 * 0.2 ** (2 * t)), rtol=1e-12)
    assert path.gradients.tolist() == t.tolist()
    newton = optim.trajectory(bowl, "newton", (1.0, 1.0), 1, damping=0.0)
    np.testing.assert_allclose(newton.points[-1], 0, atol=1e-10)
    assert newton.gradients[-1] == 1 + 2 * 2  # a gradient, and a product for each of two eigenvalues
    wild = optim.trajectory(bowl, "gd", (1.0, 1.0), 2000, lr=5.0)
    assert len(wild.points) < 2001 and np.isfinite(wild.values).all()


@pytest.mark.parametrize("name", sorted({*optim.NAMES, *optim.RULES} - {"sam"}))
def test_every_optimiser_has_a_path(name):
    options = {"radius": 3.0} if name == "projected" else {}
    path = optim.trajectory(bowl, name, (1.0, 1.0), 5, lr=0.02, **options)
    assert path.values[-1] < path.values[0]


def test_pictures():
    figure = plot.trajectory(
        bowl, {"gd": {"lr": 0.1}, "mine": lambda p: torch.optim.Adam(p, lr=0.1)}, (1.0, 1.0), 5
    )
    assert [line.get_label() for line in figure.axes[1].lines] == ["gd", "mine"]
    assert len(plot.trajectory(bowl, "gd", (1.0, 1.0), 5, lr=0.1, best=(0, 0)).axes) == 2
    found = theory.density(linear(), (X, Y), probes=2, steps=4)
    assert plot.spectrum(found).axes[0].get_yscale() == "log"
    one = theory.decay(linear(), (X, Y), "gd", steps=5)
    assert len(plot.decay(one, one).axes) == 2
    edge = theory.edge_of_stability(linear(), (X, Y), learning_rate=0.1, steps=4, every=2)
    assert plot.sharpness(edge).axes[0].lines[1].get_ydata()[0] == 20


def test_bad_input():
    with pytest.raises(ValueError, match="race: no optimiser named 'adma'. Closest: 'adam'"):
        optim.race(linear(), (X, Y), optimizers=["adma"])
    with pytest.raises(ValueError, match="race: passes must be positive; got 0"):
        optim.race(linear(), (X, Y), passes=0)
    with pytest.raises(ValueError, match="trajectory: steps must be at least 1; got 0"):
        optim.trajectory(bowl, "gd", (1.0, 1.0), 0)
    with pytest.raises(ValueError, match="a surface has two parameters; got a start with 3"):
        plot.trajectory(bowl, "gd", (1.0, 1.0, 1.0))
