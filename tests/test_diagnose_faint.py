"""What is few, faint or hardly sure: small parts, cues too faint to be seen, losses that want doubt, mostly wrong labels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.exam import Exam
from corollary.diagnose.label_noise import _own_errors
from corollary.diagnose.reading import prepared
from corollary.diagnose.shift import _told_apart


def alarms(*args, **options):
    return [f.cause for f in corollary.diagnose(*args, **options).alarms]


def linear(weights):
    """Return a linear model of two classes, the second where the weighted sum is above zero."""
    model = nn.Linear(len(weights), 2)
    model.weight.data = torch.stack([-torch.as_tensor(weights), torch.as_tensor(weights)]).float()
    model.bias.data.zero_()
    return model


def halves(x, y, n):
    return (x[:n], y[:n]), (x[n:], y[n:])


@pytest.mark.parametrize(("n", "m", "columns"), [(50, 700, 40), (700, 50, 40), (700, 60, 5), (60, 60, 100)])
def test_parts_of_any_size_are_not_told_apart_by_chance(n, m, columns):
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        found.append(_told_apart(rng.standard_normal((n, columns)), rng.standard_normal((m, columns))))
    assert abs(np.mean(found) - 0.5) < 0.1


@pytest.mark.parametrize(("n", "m"), [(50, 600), (600, 50)])
def test_a_shift_is_seen_in_few_rows(n, m):
    rng = np.random.default_rng(0)
    assert _told_apart(rng.standard_normal((n, 10)), rng.standard_normal((m, 10)) + 0.8) > 0.8


def test_few_rows_known_by_heart_are_an_overfit():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(700, 30, generator=rng)
    y = (x[:, :6].sum(1) > 0).long()
    known = x[:60]
    solved = torch.linalg.lstsq(
        known[:28], 2.0 * y[:28] - 1
    ).solution  # fewer rows than columns: all of them are met
    model = linear(8 * solved)
    assert alarms(model, (known[:28], y[:28]), (x[60:], y[60:]), loss="cross_entropy")[0] == "overfit"


def test_targets_that_lag_are_found_in_data_too_large_to_be_looked_at_whole():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5000, 4, generator=rng)
    y = (x[:, :1] - 0.5 * x[:, 1:2]).roll(3, 0)
    report = corollary.diagnose(nn.Linear(4, 1), (x[:4000], y[:4000]), (x[4000:], y[4000:]), loss="mse")
    assert report.alarms[0].cause == "misaligned-labels"
    assert report.alarms[0].repair == {"roll_targets": 3}


@pytest.mark.parametrize("form", ["logits", "probabilities"])
def test_a_loss_that_wants_hardly_any_confidence_rewards_being_right(form):
    rng = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (800,), generator=rng)
    x = 3 * F.one_hot(y, 4).float() + 0.3 * torch.randn(800, 4, generator=rng)
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].weight.data, model[0].bias.data = 0.4 * torch.eye(4), torch.zeros(4)
    if form == "probabilities":
        model.append(nn.Softmax(1))

    def smoothed(z, t):
        logs = z.clamp_min(1e-9).log() if form == "probabilities" else z.log_softmax(1)
        return -(0.3 * logs.gather(1, t[:, None])[:, 0] + 0.7 * logs.mean(1)).mean()

    found = alarms(model, *halves(x, y, 500), loss=smoothed)
    assert "wrong-loss" not in found
    assert found[0] == "miscalibrated"


@pytest.mark.parametrize("kind", ["table", "sequences"])
@pytest.mark.parametrize("faint", [True, False])
def test_an_answer_that_hangs_on_what_hardly_varies_is_fragile(kind, faint):
    """Slow waves hide a tiny alternation that tells the class; of a large one the same net lives soundly."""
    rng = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (1200,), generator=rng)
    slow = F.interpolate(torch.randn(1200, 1, 10, generator=rng), size=40, mode="linear")[:, 0]
    sign = (-1.0) ** torch.arange(40)
    size = 0.05 if faint else 1.0
    x = slow + size * (2 * y.float() - 1)[:, None] * sign + 0.4 * size * torch.randn(1200, 40, generator=rng)
    pairs = sign * torch.tensor(
        [0.5, *[1.0] * 38, 0.5]
    )  # the alternation, blind to waves that are nearly straight
    model = linear(pairs * 3 / size / 40)
    if kind == "sequences":
        x, model = x[:, None], nn.Sequential(nn.Flatten(), model)
    found = alarms(model, *halves(x, y, 800), loss="cross_entropy")
    assert ("adversarially-fragile" in found) == faint


def test_columns_of_other_units_have_deviations_of_their_own():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 8, generator=rng)
    y = (x[:, :4].sum(1) > 0).long()
    units = 10.0 ** torch.linspace(-3, 3, 8)
    model = nn.Sequential(nn.BatchNorm1d(8), linear([2.0] * 4 + [0.0] * 4))
    model[0].running_var.data = units**2
    report = corollary.diagnose(model, *halves(x * units, y, 600), loss="cross_entropy")
    assert report.measurements["details"]["radius share"] > 0.2


@pytest.mark.parametrize("wrong", [0.4, 0.0])
def test_a_model_bears_witness_to_labels_that_are_mostly_noise(wrong):
    """Two in five labels are drawn wrongly; classes that overlap as much err near the border."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 6, generator=rng)
    score = 3 * x[:, 0]
    chance = torch.full((4000,), wrong) if wrong else torch.sigmoid(-0.45 * score.abs() / 3)
    y = torch.where(torch.rand(4000, generator=rng) < chance, 1 - (score > 0).long(), (score > 0).long())
    model = linear([0.3, 0, 0, 0, 0, 0])
    exam = Exam(prepared(model, *halves(x, y, 2000), loss="cross_entropy"), 30)
    assert _own_errors(exam) == bool(wrong)


def test_pairs_of_few_pictures_are_no_shift():
    """Every picture is in several pairs: trees would know it again, which tells of no other distribution."""

    class Near(nn.Module):
        def forward(self, a, b):
            return 1 - (a - b).square().mean(1)

    def pairs(seed, pictures, n):
        rng = torch.Generator().manual_seed(seed)
        x = torch.randn(pictures, 6, generator=rng).repeat_interleave(4, 1)
        a, b = torch.randint(0, pictures, (2, n), generator=rng)
        return (x[a], x[b]), ((x[a] - x[b]).square().mean(1) < 1).float()

    assert "distribution-shift" not in alarms(
        Near(), pairs(0, 500, 700), pairs(1, 150, 500), loss="bce_with_logits"
    )
