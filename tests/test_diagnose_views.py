"""What outputs see and what data need, and parts of ``corollary.diagnose`` that look at words, words' places and steps."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corollary import diagnose
from corollary.diagnose.columns import _constant
from corollary.diagnose.exam import Exam
from corollary.diagnose.positions import field, places
from corollary.diagnose.reading import prepared
from corollary.diagnose.samples import main_output, with_main
from corollary.diagnose.settings import Settings
from corollary.diagnose.widening import views, widened
from corollary.diagnose.windows import windows


def exam_of(model, data, **options):
    known = {"loss": None, "history": None, "initial": None, "step": None, **options}
    return Exam(prepared(model, data, None, settings=Settings(), **known), 30.0)


def causes(report):
    return [f.cause for f in report.findings if f.severity != "info"]


class Causal(nn.Module):
    def __init__(self, *dilations):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(1, 1, 2, dilation=d) for d in dilations)

    def forward(self, x):
        for layer in self.layers:
            x = layer(F.pad(x, (layer.dilation[0], 0)))
        return x


# --- places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dilations", [(1,), (1, 2), (1, 2, 4)])
def test_the_field_of_causal_convolutions_is_the_sum_of_their_dilations(dilations):
    x = torch.randn(20, 1, 32)
    exam = exam_of(Causal(*dilations), (x, x.roll(1, 2)), loss="mse")
    assert field(exam, places(exam).sides) == ((sum(dilations), 0),)


def test_the_field_of_padded_images():
    x, y = torch.randn(12, 2, 9, 11), torch.randint(0, 3, (12, 9, 11))
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, (1, 5), padding=(0, 2)))
    exam = exam_of(net, (x, y), loss="cross_entropy")
    found = places(exam)
    assert found.sides == (9, 11)
    assert field(exam, found.sides) == ((1, 1), (3, 3))


def test_windows_hold_what_lies_around():
    x = torch.arange(30.0).reshape(1, 5, 6, 1).repeat(8, 1, 1, 1)
    found = places(
        exam_of(nn.Conv2d(1, 2, 1), (x.movedim(-1, 1), x[..., 0].long() % 2), loss="cross_entropy")
    )
    table = windows(found, np.array([[0, 2, 3], [0, 0, 0]]), ((1, 0), (1, 1)))
    assert table[0].tolist() == [8, 9, 10, 14, 15, 16, 2, 3]
    assert table[1].tolist() == [0, 0, 0, 0, 0, 1, 0, 0]


def test_tables_have_no_places():
    x = torch.randn(30, 6)
    assert places(exam_of(nn.Linear(6, 1), (x, x[:, :1]), loss="mse")) is None


@pytest.mark.parametrize("lag", [1, 9])
def test_an_echo_beyond_the_field_is_missed(lag):
    torch.manual_seed(0)
    x = torch.randn(60, 1, 40)
    y = F.pad(x, (lag, 0))[:, :, :40]
    net = Causal(1, 1)
    descent = torch.optim.Adam(net.parameters(), 3e-2)
    for _ in range(200):
        descent.zero_grad()
        F.mse_loss(net(x), y).backward()
        descent.step()
    found = causes(diagnose(net, (x, y), loss="mse"))
    assert found[:1] == (["receptive-field-too-small"] if lag > 2 else [])


@pytest.mark.parametrize(
    "kernel, stride, padding", [(2, 1, 0), (3, 1, 1), (5, 2, 0), (4, 3, 1), (3, 1, "same")]
)
def test_wider_windows_keep_the_sizes(kernel, stride, padding):
    net = nn.Sequential(*(nn.Conv1d(3, 3, kernel, stride=stride, padding=padding) for _ in range(2)))
    x = torch.randn(2, 3, 40)
    before = net(x).shape
    assert widened(net) == 2
    assert net(x).shape == before
    assert min(m.kernel_size[0] for m in net) >= 5


# --- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rare", [False, True])
def test_empty_columns_of_counts_are_natural_beside_rare_ones(rare):
    rng = np.random.default_rng(0)
    rates = np.concatenate([np.full(30, 0.2), np.full(40, 2e-3) if rare else np.zeros(10)])
    x = rng.poisson(rates, size=(400, len(rates))).astype(np.float32)
    assert len(_constant(x, True)) == (0 if rare else 10)


def test_a_constant_column_of_the_second_input():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 2)

        def forward(self, a, b):
            return self.layer(torch.cat([a, b], 1))

    a, b = torch.randn(200, 4), torch.randn(200, 4)
    b[:, 2] = 0.7
    report = diagnose(Two(), ((a, b), (a[:, 0] > 0).long()), loss="cross_entropy")
    assert report.findings[0].cause == "constant-features"
    assert report.findings[0].where == "input 1, columns [2]"


# --- outputs and losses --------------------------------------------------------------------------------------


Pair = namedtuple("Pair", ["score", "features"])


def forms(z):
    return {"logits": z, "loss": None}, (z, torch.zeros(1)), [z], Pair(z, torch.zeros(1)), ({"a": z}, 3)


@pytest.mark.parametrize("i", range(5))
def test_the_main_part_of_an_output_can_be_replaced(i):
    z, other = torch.ones(3, 2), torch.zeros(3, 2)
    out = forms(z)[i]
    made = with_main(out, other)
    assert main_output(made) is other
    assert type(made) is type(out)
    assert main_output(out) is z


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        z = self.layer(x)
        return z.softmax(1), z


def test_probabilities_within_a_tuple():
    x = torch.randn(200, 5)
    report = diagnose(Pairs(), (x, x[:, :3].argmax(1)), loss=lambda out, t: F.cross_entropy(out[0], t))
    assert causes(report)[0] == "double-softmax"


@pytest.mark.parametrize("wrong", [True, False])
def test_errors_that_cancel(wrong):
    x = torch.randn(200, 5)
    y = x @ torch.ones(5, 1)
    loss = (lambda out, t: (out - t).mean().abs()) if wrong else (lambda out, t: (out - t).abs().mean())
    assert ("wrong-loss" in causes(diagnose(nn.Linear(5, 1), (x, y), loss=loss))) == wrong


# --- graph -------------------------------------------------------------------------------------------------


class Rounded(nn.Module):
    def __init__(self, passes):
        super().__init__()
        self.passes = passes
        self.first, self.second = (
            nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 8)),
            nn.Linear(8, 2),
        )

    def forward(self, x):
        z = 4 * self.first(x)
        q = z.round()
        return self.second((z + (q - z).detach() if self.passes else q) / 4)


@pytest.mark.parametrize("passes", [True, False])
def test_rounding_cuts_the_graph_unless_gradients_pass_straight(passes):
    torch.manual_seed(0)
    x = torch.randn(200, 5)
    found = causes(diagnose(Rounded(passes), (x, (x[:, 0] > 0).long()), loss="cross_entropy"))
    assert ("detached-parameters" in found) != passes


def test_a_dead_layer_is_no_rounding():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2))
    nn.init.constant_(net[0].bias, -50.0)
    x = torch.randn(200, 5)
    assert "detached-parameters" not in causes(diagnose(net, (x, (x[:, 0] > 0).long()), loss="cross_entropy"))


class Patches(nn.Module):
    """An image cut into patches that look at each other."""

    def __init__(self):
        super().__init__()
        self.cut, self.answer = nn.Conv2d(1, 8, 2, stride=2), nn.Linear(8, 2)

    def forward(self, x):
        h = self.cut(x).flatten(2).mT
        return self.answer(nn.functional.scaled_dot_product_attention(h, h, h).mean(1))


class Slim(nn.Conv2d):
    """A convolution whose constructor is its own."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, 3, padding=1)


def test_a_net_with_attention_sees_everything_and_is_not_widened():
    x, y = torch.randn(80, 1, 8, 8), torch.randint(0, 2, (80,))
    exam = Exam(prepared(Patches(), (x, y), loss="cross_entropy"), 10)
    assert exam.trace.attends
    assert views(exam) is None
    plain = nn.Sequential(Slim(1, 4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))
    exam = Exam(prepared(plain, (x, y), loss="cross_entropy"), 10)
    assert not exam.trace.attends
    assert widened(plain) == 1
    assert plain(x).shape == (80, 2)
