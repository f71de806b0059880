"""Faults and what only looks like them: gates, several labels, new weights, huge gradients, few steps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.baselines import problem
from corollary.diagnose.bottleneck import _passed_by
from corollary.diagnose.columns import constant_features, duplicate_features
from corollary.diagnose.descent import LARGE, SMALL, abnormal
from corollary.diagnose.exam import Exam
from corollary.diagnose.flow import gradients
from corollary.diagnose.graph import _learned, frozen
from corollary.diagnose.lab import Result
from corollary.diagnose.overlap import overlap
from corollary.diagnose.reading import prepared
from corollary.diagnose.settings import Settings
from corollary.diagnose.tables import Reader
from corollary.diagnose.units import _more_right


def exam_of(model, data, validation=None, loss="cross_entropy", optimizer=None, **more):
    settings = Settings.of(optimizer, 32)
    given = {"history": None, "initial": None, "step": None} | more
    return Exam(prepared(model, data, validation, loss=loss, settings=settings, **given), 30)


def rows(n=400):
    torch.manual_seed(0)
    x = torch.randn(n, 6)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def test_of_several_labels_the_same_stands_for_all_parts():
    torch.manual_seed(0)
    x, y = torch.randn(300, 4), (torch.rand(300, 3) < torch.tensor([0.5, 0.45, 0.1])).float()
    v, w = torch.randn(200, 4), (torch.rand(200, 3) < torch.tensor([0.1, 0.45, 0.5])).float()
    e = exam_of(nn.Linear(4, 3), (x, y), (v, w), "bce_with_logits")
    reader = Reader(e.subject.train, False, e.subject.valid)
    found = [problem(s, "multilabel", reader).y for s in (e.subject.train, e.subject.valid)]
    column = next(j for j in range(3) if np.array_equal(found[0], y[:, j].numpy()))
    assert np.array_equal(found[1], w[:, column].numpy())


class Gated(nn.Module):
    """A state that a narrow layer weighs, or that goes through it."""

    def __init__(self, gate):
        super().__init__()
        self.wide, self.narrow, self.head = (
            nn.Linear(6, 24),
            nn.Linear(24, 1),
            nn.Linear(24 if gate else 1, 3),
        )
        self.gate = gate

    def forward(self, x):
        h = self.wide(x).relu()
        return self.head(h * torch.sigmoid(self.narrow(h)) if self.gate else self.narrow(h))


@pytest.mark.parametrize("gate", [True, False])
def test_answers_pass_a_gate_by(gate):
    torch.manual_seed(0)
    assert _passed_by(exam_of(Gated(gate), rows()), "narrow") == gate


def test_a_rate_is_small_beside_what_momentum_makes_of_it():
    model = nn.Linear(6, 2)
    for momentum, small in ((0.0, True), (0.9, False)):
        descent = torch.optim.SGD(model.parameters(), 1e-3, momentum=momentum)
        assert (abnormal(exam_of(model, rows(), optimizer=descent))[SMALL] > 0.5) == small
        assert abnormal(exam_of(model, rows(), optimizer=descent))[LARGE] < 0


def test_new_weights_that_get_more_rows_right_speak_for_dead_units():
    e = exam_of(nn.Linear(6, 2), rows(), rows(300))
    here = Result(0.43, 0.83, 0.5, valid_loss=0.45, valid_score=0.80)
    assert _more_right(e, here, Result(0.33, 0.89, 1.1, valid_loss=0.37, valid_score=0.86))
    assert not _more_right(e, here, Result(0.41, 0.84, 1.1, valid_loss=0.44, valid_score=0.81))
    assert not _more_right(e, here, Result(0.33, 0.89, 1.1, valid_loss=0.47, valid_score=0.80))


class Grows(nn.Module):
    """A recurrence whose state is many times as large after every step."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.RNN(1, 16, batch_first=True, nonlinearity="relu"), nn.Linear(16, 1)
        with torch.no_grad():
            self.cell.weight_hh_l0.copy_(torch.rand(16, 16) * 1.2)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


def test_parameters_that_overflowing_gradients_hold_were_not_forgotten():
    torch.manual_seed(0)
    x = torch.randn(300, 20, 1)
    y = x.sum(1)
    model = Grows()
    began = {k: v.clone() for k, v in model.state_dict().items()}
    descent = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(20):
        descent.zero_grad()
        F.mse_loss(model(x), y).backward()
        descent.step()
    report = corollary.diagnose(
        model, (x[:200], y[:200]), (x[200:], y[200:]), loss="mse", optimizer=descent, initial=began
    )
    assert report.alarms[0].cause == "exploding-gradient"
    assert "frozen-parameters" not in [f.cause for f in report.alarms]


def test_gradients_vanish_at_any_start_though_training_has_begun_to_mend_them():
    """A chain of sigmoids whose weights have grown a little lets more of the gradient pass than any new one would."""
    torch.manual_seed(0)
    x, y = rows()
    layers = [part for i in range(6) for part in (nn.Linear(6 if i == 0 else 16, 16), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    with torch.no_grad():
        for part in model:
            if isinstance(part, nn.Linear):
                part.weight.mul_(4.0)
    e = exam_of(model, (x, y))
    gradients(e)
    assert 1e-3 < e.facts["gradient ratio"] < 1e-2
    assert e.facts["gradient ratio at the start"] < 1e-3
    assert e.has("vanishing-gradient")


def test_few_epochs_at_a_usual_rate_are_no_fault_of_the_rate():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 50)
    X = rng.standard_normal((3, 4))[y] * 2 + rng.standard_normal((150, 4))
    order = rng.permutation(150)
    X, y = ((X - X.mean(0)) / X.std(0)).astype(np.float32)[order], y[order]
    model = corollary.MLPClassifier(training=corollary.Training(epochs=4), random_state=0).fit(
        X[:100], y[:100]
    )
    report = corollary.diagnose(model, (X[:100], y[:100]), (X[100:], y[100:]))
    assert not report.alarms


@pytest.mark.parametrize("columns", [1, 2])
def test_more_rows_than_combinations_repeat_by_themselves(columns):
    """Every row of a bigram's validation is a row of its training, and nobody has copied any."""
    torch.manual_seed(0)
    x, y = torch.randint(12, (900, columns)), torch.randint(12, (900,))
    for data in ((x, y), (x.float(), y)):
        e = exam_of(nn.Linear(columns, 12), (data[0][:600], y[:600]), (data[0][600:], y[600:]))
        overlap(e)
        assert not e.has("train-test-overlap")


class Words(nn.Module):
    """A mean of word vectors that are held fixed, and an end."""

    def __init__(self, vectors):
        super().__init__()
        self.words, self.end = nn.Embedding.from_pretrained(vectors, freeze=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.end(self.words(x).mean(1))


@pytest.mark.parametrize("learned", [True, False])
def test_vectors_held_fixed_are_asked_what_they_are_worth(learned):
    """Those of another task may look drawn, entry by entry, but newly drawn ones serve worse."""
    torch.manual_seed(0)
    y = torch.randint(2, (600,))
    x = torch.where(
        torch.rand(600, 6) < 0.7, torch.randint(20, (600, 6)) + 20 * y[:, None], torch.randint(40, (600, 6))
    )
    vectors = torch.randn(40, 8)
    if learned:
        vectors[:, :3] = vectors[:, :3].sort(dim=0).values
    model = Words(vectors)
    optimizer = torch.optim.Adam(model.end.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x[:400]), y[:400]).backward()
        optimizer.step()
    e = exam_of(model, (x[:400], y[:400]), (x[400:], y[400:]))
    assert _learned(e, ["words.weight"]) == learned
    report = corollary.diagnose(model, (x[:400], y[:400]), (x[400:], y[400:]))
    assert learned == all(f.cause != "frozen-parameters" or f.severity == "info" for f in report.findings)


@pytest.mark.parametrize("width, told", [(8, False), (16, True)])
def test_few_numbers_do_not_tell_a_draw_from_a_training(width, told):
    x, y = rows()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))
    with torch.no_grad():
        model[2].weight.mul_(10)
    e = exam_of(model, (x, y), history={"loss": [0.7, 0.6]})
    frozen(e)
    assert e.has("frozen-parameters") == told


class Nodes(nn.Module):
    """Reads the features of numbered nodes."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 2)

    def forward(self, which, features):
        return self.net(features)[which]


def test_tables_that_all_rows_share_are_looked_at():
    torch.manual_seed(0)
    features, which = torch.randn(300, 6), torch.randperm(300)[:100]
    y = (features[which, 0] > 0).long()
    features[:, 3], features[:, 5] = 0.5, 2 * features[:, 4]
    e = exam_of(Nodes(), ((which, features), y))
    constant_features(e)
    duplicate_features(e)
    assert e.findings["constant-features"].where == "input 1, columns [3]"
    assert e.findings["duplicate-features"].where == "input 1, columns [[4, 5]]"
