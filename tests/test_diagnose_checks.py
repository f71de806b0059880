"""Single checks of ``corollary.diagnose``, on set-ups in which the right answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corollary import diagnose
from corollary.diagnose.batches import batch_norm_noise
from corollary.diagnose.exam import Exam
from corollary.diagnose.label_noise import errors_of_an_overlap
from corollary.diagnose.reading import prepared
from corollary.diagnose.samples import Samples
from corollary.diagnose.settings import Settings
from corollary.diagnose.tables import Reader


def exam_of(model, data, validation=None, **options):
    known = {"loss": None, "history": None, "initial": None, "step": None, **options}
    return Exam(prepared(model, data, validation, settings=Settings(), **known), 30.0)


def points(n=400, d=6, seed=0):
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return X, (X[:, 0] + X[:, 1] > 0).long()


def fitted(model, X, y, steps=150, rate=1e-2):
    descent = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        descent.zero_grad()
        F.cross_entropy(model(X), y).backward()
        descent.step()
    return model.eval()


# --- inputs ------------------------------------------------------------------------------------------------


class OneDict(nn.Module):
    """Takes all inputs as one dict, and cuts the graph at one of them."""

    def __init__(self, cut):
        super().__init__()
        self.cut, self.first, self.second = cut, nn.Linear(4, 8), nn.Linear(12, 2)

    def forward(self, batch):
        h = self.first(batch["a"]).relu()
        h = torch.tensor(h.detach().numpy()) if self.cut else h
        return self.second(torch.cat([h, batch["b"]], 1))


class OneTuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, pair):
        return self.layer(torch.cat(pair, 1))


def test_a_module_may_take_its_inputs_as_one_dict():
    torch.manual_seed(0)
    X, y = torch.randn(200, 8), torch.randint(0, 2, (200,))
    report = diagnose(OneDict(True), ({"a": X[:, :4], "b": X[:, 4:]}, y), loss="cross_entropy")
    assert not any(f.cause == "forward" for f in report.findings)
    assert "detached-parameters" in [f.cause for f in report.alarms]


def test_a_module_may_take_its_inputs_as_one_tuple():
    X, y = points()
    samples = Samples.of((X[:, :2], X[:, 2:]), y).fitted(OneTuple())
    assert samples.packed
    assert samples.take(np.arange(5)).call(OneTuple()).shape == (5, 2)
    assert not Samples.of(X, y).fitted(nn.Linear(6, 2)).packed


def test_the_place_of_a_column_of_the_table():
    words = torch.randint(0, 20, (50, 7), generator=torch.Generator().manual_seed(0))
    words[0, 0] = 19
    samples = Samples.of(words, torch.zeros(50))
    reader = Reader(samples)
    assert reader.place_of(samples, 20 + 3) == 3  # after the counts of twenty words
    assert reader.place_of(samples, 4) is None
    assert reader.without_place(samples, np.arange(50), 23).shape == (50, 20 + 6)
    steps = Samples.of(torch.randn(30, 9, 2), torch.zeros(30))
    assert Reader(steps).place_of(steps, 5) == 2
    assert Reader(steps).place_of(steps, 18 + 5 * 2) == 8  # the last step, among the statistics


# --- the objective and the loop ----------------------------------------------------------------------------


def test_smoothed_labels_are_no_wrong_loss():
    X, y = points()
    y = y + (X[:, 2] > 0).long()
    torch.manual_seed(0)
    model = fitted(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), X, y)
    report = diagnose(model, (X, y), loss=lambda z, t: F.cross_entropy(z, t, label_smoothing=0.4))
    assert "wrong-loss" not in [f.cause for f in report.findings]
    report = diagnose(model, (X, y), loss=lambda z, t: -F.cross_entropy(z, t))
    assert report.findings[0].cause == "wrong-loss"


def test_a_loop_is_seen_where_it_began_if_its_end_has_no_gradient():
    X, y = points()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    initial = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        model[0].bias.fill_(-100.0)  # dead

    def step(net, batch):
        loss = F.cross_entropy(net(batch[0]), batch[1])
        loss.backward()
        torch.optim.SGD(net.parameters(), 0.1).step()

    report = diagnose(model, (X, y), loss="cross_entropy", initial=initial, step=step)
    assert report.findings[0].cause == "gradients-not-cleared"


# --- noise and statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", [0.3, 0.5, 0.7])
def test_errors_among_confident_rows_of_an_overlap(gain):
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    half, sign = norm.ppf((1 + gain) / 2), rng.choice([-1, 1], 200_000)
    x = half * sign + rng.standard_normal(200_000)
    top = np.argsort(-np.abs(x))[:40_000]
    share = (np.sign(x[top]) != sign[top]).mean()
    assert errors_of_an_overlap(gain, 0.2) == pytest.approx(share, abs=0.005)  # three standard errors


@pytest.mark.parametrize("wrong", [0.0, 0.45])
def test_labels_drawn_anew_are_told_from_classes_that_overlap(wrong):
    X, _ = points(1500, seed=1)
    g = torch.Generator().manual_seed(2)
    score = X[:, 0] + X[:, 1] + (0.0 if wrong else 1.0) * torch.randn(1500, generator=g)
    y = (score > 0).long()
    hit = torch.rand(1500, generator=g) < wrong
    y = torch.where(hit, torch.randint(0, 2, (1500,), generator=g), y)
    torch.manual_seed(0)
    model = fitted(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), X[:1000], y[:1000], 60)
    report = diagnose(model, (X[:1000], y[:1000]), (X[1000:], y[1000:]), loss="cross_entropy")
    assert ("label-noise" in [f.cause for f in report.alarms]) == bool(wrong)


@pytest.mark.parametrize("rows", [2, 32])
def test_running_means_tell_the_rows_of_a_batch(rows):
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 2))
    X = torch.randn(512, 64)
    for _ in range(200):
        model(X[torch.randint(512, (rows,))])
    exam = exam_of(model.eval(), (X, torch.randint(0, 2, (512,))), loss="cross_entropy")
    batch_norm_noise(exam)
    (found,) = exam.facts["rows of a batch by batch norm"]
    assert rows / 2 < found < 2 * rows  # the median of 64 squared normals is within a third of its value


# --- suspects ----------------------------------------------------------------------------------------------


def test_only_a_model_that_fails_has_suspects():
    from corollary.diagnose.suspects import suspects

    X, y = points(600)
    torch.manual_seed(0)
    good = fitted(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), X[:400], y[:400])
    bad = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).eval()
    for model, fails in ((good, False), (bad, True)):
        exam = exam_of(model, (X[:400], y[:400]), (X[400:], y[400:]), loss="cross_entropy")
        exam.facts["odd settings"] = {"weight-decay-too-large": 0.4}
        suspects(exam)
        assert exam.has("weight-decay-too-large") == fails
