"""Games of several players against their closed forms, rules that look twice against theirs, and exact resume of all."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from corollary import Run, Training
from corollary.base import Data, Estimator, Generator
from corollary.engine.batches import Batch, TensorBatches
from corollary.engine.objective import Supervised
from corollary.engine.player import Player
from corollary.engine.random import seeded
from corollary.engine.rules import RULES
from corollary.engine.sgd import GradientLearner
from corollary.errors import CorollaryWarning
from corollary.gradient import GradientTrained
from corollary.losses import half_squared
from corollary.nn.mlp import MLP
from corollary.testing.checks import check_fit_is_repeatable, check_resume

RATE = 0.1


class Point(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = nn.Parameter(torch.tensor([value], dtype=torch.float64))


class Board(nn.Module):
    """min over x, max over y of a/2 x^2 + b x y - c/2 y^2 + p x + q y."""

    def __init__(self, a=0.0, b=1.0, c=0.0, p=0.0, q=0.0):
        super().__init__()
        self.x, self.y = Point(1.0), Point(1.0)
        self.numbers = (a, b, c, p, q)

    def forward(self):
        a, b, c, p, q = self.numbers
        x, y = self.x.value, self.y.value
        return (a / 2 * x**2 + b * x * y - c / 2 * y**2 + p * x + q * y).sum()


def game(rule, board=None, updates=50, players=None, **training):
    board = board or Board()
    players = players or [Player(lambda m, b: m(), "x"), Player(lambda m, b: -m(), "y")]
    plan = Training(
        **{"epochs": 10, "batch_size": 1, "learning_rate": RATE, "optimizer": "sgd", **training}
    ).resolved()
    data = TensorBatches(torch.zeros(updates // 10, 1))
    return GradientLearner(board, players, data, plan, Run(device="cpu"), seed=0, owner="Game", rule=rule)


def played(learner):
    while not learner.done:
        learner.step()
    return np.array([learner.module.x.value.item(), learner.module.y.value.item()])


def test_alternating_circles_on_a_bilinear_game():
    """One round is the map [[1, -h], [h, 1 - h^2]] of determinant 1, which keeps x^2 - h x y + y^2."""
    end = played(game("alternating", updates=200))
    step = np.array([[1, -RATE], [RATE, 1 - RATE**2]])
    np.testing.assert_allclose(end, np.linalg.matrix_power(step, 200) @ [1.0, 1.0], rtol=1e-10)
    invariant = end @ end - RATE * end[0] * end[1]
    assert invariant == pytest.approx(2 - RATE, rel=1e-10)


def test_simultaneous_steps_diverge_and_extragradient_converges_at_its_rate():
    circling = np.linalg.norm(played(game("simultaneous", updates=200)))
    assert circling == pytest.approx(np.sqrt(2) * (1 + RATE**2) ** 100, rel=1e-10)
    extra = np.linalg.norm(played(game("extragradient", updates=200)))
    assert extra == pytest.approx(np.sqrt(2) * (1 - RATE**2 + RATE**4) ** 100, rel=1e-10)


@pytest.mark.parametrize("rule", ["alternating", "simultaneous", "extragradient"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_quadratic_game_ends_in_its_equilibrium(rule, optimizer):
    a, b, c, p, q = 1.0, 0.7, 0.8, -0.3, 0.4
    equilibrium = np.linalg.solve([[a, b], [b, -c]], [-p, -q])
    schedule = {"schedule": "linear"} if optimizer == "adam" else {}
    end = played(game(rule, Board(a, b, c, p, q), updates=1000, optimizer=optimizer, **schedule))
    np.testing.assert_allclose(end, equilibrium, atol=1e-8 if optimizer == "sgd" else 2e-3)


def test_critic_steps_and_rates_of_their_own():
    seen = []
    players = [
        Player(lambda m, b: (seen.append("y"), -m())[1], "y", steps=3),
        Player(lambda m, b: (seen.append("x"), m())[1], "x", learning_rate=0.5),
    ]
    learner = game("alternating", updates=60, players=players)
    played(learner)
    assert "".join(seen[:8]) == "yyyxyyyx"
    assert learner.players[1].optimizer.param_groups[0]["lr"] == 0.5
    assert learner.players[0].optimizer.param_groups[0]["lr"] == RATE


def test_the_history_names_the_players():
    metrics = game("simultaneous").step()
    assert set(metrics) == {"x_loss", "y_loss"}
    assert metrics["x_loss"] == -metrics["y_loss"]


@pytest.mark.parametrize("rule", ["alternating", "simultaneous", "extragradient"])
def test_the_states_of_all_players_resume_exactly(rule):
    options = {"optimizer": "adam", "average": 0.9}
    whole = game(rule, **options)
    for _ in range(4):
        whole.step()
    kept = copy.deepcopy(whole.state())
    resumed = game(rule, **options)
    resumed.restore(kept)
    assert np.array_equal(played(whole), played(resumed))
    for a, b in zip(whole.result().parameters(), resumed.result().parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(whole.result().x.value, whole.module.x.value)  # the averages are returned


def test_a_penalty_shrinks_a_player_when_it_moves_and_not_when_others_do():
    """Losses without a slope: all that moves the weights is the soft threshold, rate times step at each move."""
    module = nn.ModuleDict({name: nn.Linear(3, 2, bias=False) for name in ("a", "b")}).double()
    for part in module.values():
        nn.init.ones_(part.weight)

    def nothing(part):
        return lambda module, batch: 0.0 * module[part].weight.sum()

    players = [Player(nothing("a"), "a", steps=2), Player(nothing("b"), "b")]
    plan = Training(epochs=1, optimizer="sgd", learning_rate=0.1, l1=1.0, batch_size=1).resolved()
    data = TensorBatches(torch.zeros(4, 1, dtype=torch.float64))
    learner = GradientLearner(module, players, data, plan, Run(device="cpu"), seed=0, owner="Game")
    learner.step()
    torch.testing.assert_close(module["a"].weight.detach(), torch.full((2, 3), 0.6, dtype=torch.float64))
    torch.testing.assert_close(module["b"].weight.detach(), torch.full((2, 3), 0.8, dtype=torch.float64))
    with pytest.raises(ValueError, match="'auto' needs one loss that falls; got a game of 2"):
        auto = plan.overridden(learning_rate="auto")
        GradientLearner(module, players, data, auto, Run(device="cpu"), seed=0, owner="Game")


def test_games_need_a_rule_for_games():
    with pytest.raises(ValueError, match="rule of 2 players must be one of alternating"):
        game("plain")
    with pytest.raises(ValueError, match="no rule named 'alternate'. Closest: 'alternating'"):
        game("alternate")


# --- rules for one player --------------------------------------------------------------------------------

GEN = torch.Generator().manual_seed(0)
A = torch.randn(40, 5, generator=GEN, dtype=torch.float64) * torch.tensor([1.0, 1.5, 0.8, 1.0, 1.2])
B = A @ torch.tensor([1.0, -2.0, 3.0, 0.0, 1.0], dtype=torch.float64)[:, None] + 0.1
B = B + 0.1 * torch.randn(40, 1, generator=GEN, dtype=torch.float64)


def least_squares(**training):
    plan = Training(**training).resolved()
    with seeded(1):
        module = nn.Linear(5, 1).double()
    data = TensorBatches(A, B)
    return GradientLearner(
        module, Supervised(half_squared), data, plan, Run(device="cpu"), seed=0, owner="LeastSquares"
    )


def solved(learner):
    while not learner.done:
        learner.step()
    return torch.cat([learner.module.weight[0], learner.module.bias]).detach()


def solution(decay=0.0):
    """Least squares with an intercept; the decay is on the weights alone."""
    ones = torch.cat([A, torch.ones(40, 1, dtype=A.dtype)], 1)
    penalty = torch.diag(torch.tensor([decay] * 5 + [0.0], dtype=A.dtype))
    return torch.linalg.solve(ones.T @ ones / 40 + penalty, ones.T @ B / 40)[:, 0]


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_newton_solves_a_quadratic_at_once(decay):
    options = {"damping": 0.0, "tol": 1e-14}
    found = solved(least_squares(epochs=1, optimizer="newton", optimizer_options=options, weight_decay=decay))
    torch.testing.assert_close(found, solution(decay), rtol=1e-8, atol=1e-8)


def test_damping_is_the_proximal_step():
    learner = least_squares(epochs=1, optimizer="newton", optimizer_options={"damping": 2.0, "tol": 1e-14})
    start = torch.cat([learner.module.weight[0], learner.module.bias]).detach().clone()
    ones = torch.cat([A, torch.ones(40, 1, dtype=A.dtype)], 1)
    H, g = ones.T @ ones / 40, ones.T @ (ones @ start - B[:, 0]) / 40
    expected = start - torch.linalg.solve(H + 2.0 * torch.eye(6, dtype=A.dtype), g)
    torch.testing.assert_close(solved(learner), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_lbfgs_solves_least_squares(decay):
    found = solved(least_squares(epochs=5, optimizer="lbfgs", weight_decay=decay))
    torch.testing.assert_close(found, solution(decay), rtol=1e-5, atol=1e-5)


def test_gd_sees_all_the_data_and_decays():
    learner = least_squares(epochs=3000, optimizer="gd", learning_rate=0.1, weight_decay=0.5)
    found = solved(learner)
    assert learner.updates == 3000
    torch.testing.assert_close(found, solution(0.5), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="optimizer='gd' sees all the data; got batch_size=8"):
        least_squares(optimizer="gd", batch_size=8)


def test_svrg_converges_where_sgd_keeps_its_noise():
    """With a constant step, batches of one leave SGD in a cloud; corrected by the anchor it closes in linearly."""
    plan = {"epochs": 120, "batch_size": 1, "learning_rate": 0.01}
    exact = solution()
    far = (solved(least_squares(optimizer="sgd", **plan)) - exact).norm()
    near = (solved(least_squares(optimizer="svrg", **plan)) - exact).norm()
    assert near < 1e-4
    assert far > 30 * near


def test_svrg_update_is_its_formula():
    learner = least_squares(epochs=1, optimizer="svrg", batch_size=8, learning_rate=0.05)
    (player,) = learner.players
    with learner.stream.open():
        learner.rule.begin(learner)
        first, second = list(learner.batches.epoch(None, 8))[:2]
        learner._update(first)
        here, anchor = player.copies()[0], player.optimizer.state[player.vectors()[0]]["anchor"]

        def gradient(w, batch):
            x = torch.cat([batch.inputs[0], torch.ones(8, 1, dtype=A.dtype)], 1)
            return x.T @ (x @ w - batch.target[:, 0]) / 8

        whole = Batch((A,), B, None, 40)
        x = torch.cat([A, torch.ones(40, 1, dtype=A.dtype)], 1)
        full = x.T @ (x @ anchor - whole.target[:, 0]) / 40
        learner._update(second)
    expected = here - 0.05 * (gradient(here, second) - gradient(anchor, second) + full)
    torch.testing.assert_close(player.copies()[0], expected, rtol=1e-10, atol=1e-12)


def test_a_sharpness_aware_step_is_its_formula():
    options = {"base": "sgd", "rho": 0.3}
    learner = least_squares(epochs=1, optimizer="sam", batch_size=40, learning_rate=0.05, shuffle=False,
                            optimizer_options=options)  # fmt: skip
    w = learner.players[0].copies()[0]
    ones = torch.cat([A, torch.ones(40, 1, dtype=A.dtype)], 1)

    def gradient(w):
        return ones.T @ (ones @ w - B[:, 0]) / 40

    g = gradient(w)
    expected = w - 0.05 * gradient(w + 0.3 * g / g.norm())
    torch.testing.assert_close(solved(learner), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "optimizer", ["svrg", "sam", "newton", "lbfgs", "gd", "extragradient", "subgradient", "signsgd"]
)
def test_rules_resume_exactly_in_the_middle_of_an_epoch(optimizer, monkeypatch):
    batch = {} if optimizer in ("gd", "lbfgs") else {"batch_size": 8}
    plan = {"epochs": 4, "optimizer": optimizer, "learning_rate": 0.02, **batch}
    whole = solved(least_squares(**plan))
    learner = least_squares(**plan)
    learner.step()
    monkeypatch.setattr("corollary.engine.sgd.pause_wanted", lambda **_: True)
    learner.step()  # one update further, if the epoch has several
    monkeypatch.undo()
    resumed = least_squares(**plan)
    resumed.restore(copy.deepcopy(learner.state()))
    assert torch.equal(solved(resumed), whole)


def test_every_rule_has_a_name_for_training_or_for_games():
    from corollary import optim

    assert set(optim.RULES) | {"plain", "alternating", "simultaneous"} == set(RULES)


class Idle(nn.Module):
    """Two parts with a parameter each that no loss depends on; another has a gradient of exactly zero."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.ModuleDict(), nn.ModuleDict()
        for part in (self.one, self.two):
            part["used"], part["idle"] = nn.Linear(1, 1), nn.Linear(1, 1, bias=False)


def used(part):
    return lambda module, batch: module.get_submodule(part)["used"](batch.inputs[0] * 0).square().mean()


NOT_FLAT = {"optimizer": "projected", "optimizer_options": {"radius": 9.0}}


@pytest.mark.parametrize("plan", [{}, NOT_FLAT, {"optimizer": "sam"}, {"learning_rate": "auto"}])
def test_parameters_without_a_gradient_are_named_once(plan):
    data, plan = TensorBatches(torch.ones(8, 1)), Training(epochs=3, batch_size=2, **plan).resolved()
    learner = GradientLearner(Idle(), used("one"), data, plan, Run(device="cpu"), seed=0, owner="Half")
    with pytest.warns(CorollaryWarning, match=r"Half: 4 parameters get no gradient") as seen:
        learner.step()
    assert len(seen) == 1
    assert all(name in str(seen[0].message) for name in ("one.idle.weight", "two.used.weight"))
    assert "one.used" not in str(seen[0].message)  # a gradient that is zero is one
    learner.step()  # warnings are errors here


def test_every_player_is_asked_for_parameters_without_a_gradient():
    data, plan = TensorBatches(torch.ones(8, 1)), Training(epochs=2, batch_size=2).resolved()
    players = [Player(used("one"), "one", steps=2), Player(used("two"), "two")]
    learner = GradientLearner(Idle(), players, data, plan, Run(device="cpu"), seed=0, owner="Game")
    with pytest.warns(CorollaryWarning, match=r"2 parameters.*: one\.idle\.weight, two\.idle\.weight\."):
        learner.step()


# --- a small generative adversarial network --------------------------------------------------------------


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Linear(1, 1)
        self.critic = MLP((1, 16, 1), "relu")


def critic_loss(module, batch):
    (x,) = batch.inputs
    fake = module.generator(torch.randn_like(x)).detach()
    real, made = module.critic(x), module.critic(fake)
    return nn.functional.softplus(-real).mean() + nn.functional.softplus(made).mean()


def generator_loss(module, batch):
    (x,) = batch.inputs
    return nn.functional.softplus(-module.critic(module.generator(torch.randn_like(x)))).mean()


class TinyGAN(Generator, GradientTrained):
    """Learn to draw numbers."""

    _training_defaults = {
        "epochs": 60,
        "batch_size": 64,
        "learning_rate": 0.02,
        "optimizer_options": {"betas": (0.5, 0.9)},
        "average": 0.99,
    }

    def __init__(self, rule="alternating", training=None, random_state=None):
        self.rule = rule
        self.training = training
        self.random_state = random_state

    def _module(self):
        return Pair()

    def _learner(self, data: Data):
        players = [Player(critic_loss, "critic", steps=2), Player(generator_loss, "generator")]
        return self._descend(players, TensorBatches(torch.as_tensor(data.X)), rule=self.rule)

    def _sample(self, n, rng):
        return self._forward(rng.normal(size=(n, 1)), self.module_.generator)


@pytest.mark.parametrize("rule", ["alternating", "extragradient"])
def test_a_small_gan_is_a_small_class(rule):
    X = np.random.default_rng(0).normal(3.0, 0.5, size=(600, 1)).astype(np.float32)
    model = TinyGAN(rule, random_state=0).fit(X)
    assert isinstance(model, Estimator)
    assert {"critic_loss", "generator_loss"} <= set(model.history_[0])
    assert abs(model.sample(2000).mean() - 3.0) < 0.5  # it began at a distance of about 3


def test_a_gan_cut_off_and_resumed_is_the_same():
    X = np.random.default_rng(0).normal(3.0, 0.5, size=(100, 1)).astype(np.float32)
    model = TinyGAN(training=Training(epochs=4, batch_size=16), random_state=0)
    check_fit_is_repeatable(model, X, None)
    check_resume(model, X, None)
