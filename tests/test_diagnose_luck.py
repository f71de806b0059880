"""What is luck of few rows is no fault: standard errors of scores, rare classes in small parts, settings that are of use."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from corollary import diagnose
from corollary.diagnose.baselines import Problem, baselines
from corollary.diagnose.descent import ARGUMENTS, DECAY, DROPOUT, Evidence
from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.reading import prepared
from corollary.diagnose.settings import Settings
from corollary.diagnose.trials import Room
from corollary.diagnose.weights import State


def exam(net, X, y, validation=None, loss="cross_entropy"):
    data = [None if d is None else tuple(map(torch.as_tensor, d)) for d in ((X, y), validation)]
    subject = prepared(
        net, *data, loss=loss, settings=Settings.of(None, None), history=None, initial=None, step=None
    )
    return Exam(subject, 60.0)


class Given(nn.Module):
    """Answers what stands in the row itself."""

    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.one


def test_the_error_of_a_share_of_right_answers_is_that_of_a_share():
    rng = np.random.default_rng(0)
    right = rng.random(2000) < 0.8
    y = rng.integers(0, 2, 2000)
    said = np.where(right, y, 1 - y)
    X = np.stack([1.0 - said, said], 1).astype(np.float32)
    p = right.mean()
    # a jackknife of 20 groups knows a standard error to 1 / sqrt(2 * 19) = 16 %; three of those
    assert exam(Given(), X, y).error["train"] == pytest.approx(math.sqrt(p * (1 - p) / 2000), rel=0.5)


def test_the_error_of_a_share_of_variance_grows_with_the_tails():
    rng = np.random.default_rng(1)
    y = rng.normal(size=(1500, 1)).astype(np.float32)
    light = y + 0.5 * rng.normal(size=y.shape).astype(np.float32)
    heavy = y + 0.3 * rng.standard_t(2.1, size=y.shape).astype(np.float32)
    errors = [exam(Given(), X, y, loss="mse").error["train"] for X in (light, heavy)]
    # of normal errors: the variance of (e^2 - (1 - R^2) y^2) / var y, with e and y independent
    expected = math.sqrt(2 * 2 * 0.25**2 / 1500)
    assert errors[0] == pytest.approx(expected, rel=0.5)
    assert errors[1] > 3 * errors[0]


def test_a_constant_answer_scores_in_validation_what_it_scores_there():
    X = np.random.default_rng(2).normal(size=(400, 3))
    train = Problem(X, (np.arange(400) % 20 == 0).astype(int), True, np.arange(400))
    valid = Problem(X[:100], (np.arange(100) % 10 == 0).astype(int), True, np.arange(100))
    base = baselines(train, valid)
    assert base.chance == pytest.approx(0.95)
    assert base.valid_chance == pytest.approx(0.90)
    assert base.reached == pytest.approx((base.valid_score - 0.90) / 0.10)


def evidence(cause, valid_loss):
    """Without its setting a model learns more by heart; new rows are answered with this loss, and with 0.4 as it is."""
    control, run = Result(0.3, 0.9, 0.3, valid_loss=0.4), Result(0.05, 1.0, 0.3, valid_loss=valid_loss)
    room = Room(0.3, 0.9, 0.4, 0.85, 0.69)
    runs = {cause: run}
    return Evidence(room, State(), {cause: 1.0}, control, runs, {cause: 1.7}, 0.0, 1.0, False, 1.0, 500.0)


@pytest.mark.parametrize("cause", [DECAY, DROPOUT])
@pytest.mark.parametrize(("valid_loss", "blamed"), [(0.2, True), (0.6, False)])
def test_what_keeps_a_model_from_learning_by_heart_is_not_blamed(cause, valid_loss, blamed):
    e, vote = evidence(cause, valid_loss), 1.7
    for name, when, then in ARGUMENTS:
        if name == cause and when(e, vote):
            vote = then(e, vote)
    assert (vote > 0) is blamed


def test_answers_to_few_questions_differ_by_chance():
    """A survey: rows that are alike in every column have both classes, since more was not asked. No label is wrong."""
    rng = np.random.default_rng(5)
    sizes = (2, 3, 2, 3, 2)
    a = rng.integers(0, sizes, (900, 5))
    x = np.concatenate([np.eye(k)[a[:, i]] for i, k in enumerate(sizes)], 1).astype(np.float32) - 0.4
    log_odds = 2.5 * (a[:, 0] - 0.5) + 1.5 * (a[:, 1] - 1) * (a[:, 3] - 1)
    X, y = torch.from_numpy(x), torch.from_numpy((rng.random(900) < 1 / (1 + np.exp(-log_odds))).astype(int))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(200):
        rows = torch.randint(630, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
        optimizer.step()
    report = diagnose(net, (X[:630], y[:630]), (X[630:], y[630:]), loss="cross_entropy")
    assert "label-noise" not in [f.cause for f in report.findings]
