"""What diagnose says of signals and gradients on their way: sums over edges, recurrences, ends of units, views, dropout."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.dropping import dropped
from corollary.diagnose.flow import _profile_as_large
from corollary.diagnose.graphs import _say, limits_of, messages, variation
from corollary.diagnose.risen import risen
from corollary.diagnose.trace import Call
from corollary.diagnose.units import _came_late, _driven
from corollary.diagnose.weights import can_stand_out
from corollary.diagnose.widening import widened


def alarms(*args, **options):
    return [f.cause for f in corollary.diagnose(*args, time_limit=300, **options).alarms]


def trained(model, inputs, y, steps=150, rate=1e-2, batch=None):
    """Train on all rows, or on batches of the only input, and return the model as it is used."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        rows = slice(None) if batch is None else torch.randint(0, len(y), (batch,))
        out = model.train()(*inputs) if batch is None else model.train()(inputs[0][rows])
        optimizer.zero_grad()
        F.cross_entropy(out, y[rows]).backward()
        optimizer.step()
    return model.eval()


# --- graphs ----------------------------------------------------------------------------------------------------------


class Spread(nn.Module):
    """Means over neighbours by sums over edges, and a layer on both sides."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds, self.inward, self.head = rounds, nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, x, edges):
        h = torch.relu(self.inward(x))
        count = torch.ones(len(x)).index_add(0, edges[0], torch.ones(edges.shape[1]))[:, None]
        for _ in range(self.rounds):
            h = h.index_add(0, edges[0], h[edges[1]]) / (1 + count)
        return self.head(h)


class Blurred(nn.Module):
    """Means over neighbours by a dense matrix, then a small net."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds, self.net = rounds, nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, near):
        for _ in range(self.rounds):
            x = near @ x
        return self.net(x)


@pytest.mark.parametrize("rounds", [2, 40])
def test_averages_by_sums_over_edges_are_seen(rounds):
    rng = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (200,), generator=rng)
    same = y[:, None] == y[None]
    A = (torch.rand(200, 200, generator=rng) < torch.where(same, 0.06, 0.008)).triu(1)
    edges = (A | A.T).nonzero().T
    x = (2 * y[:, None] - 1) * 0.5 + torch.randn(200, 4, generator=rng)
    torch.manual_seed(0)
    model = trained(Spread(rounds), (x, edges), y)
    assert ("oversmoothing" in alarms(model, ((x, edges), y), loss="cross_entropy")) == (rounds > 2)


def test_what_one_average_tells_is_lost_in_twelve():
    rng = torch.Generator().manual_seed(0)
    places = torch.rand(300, 2, generator=rng)
    near = (torch.cdist(places, places) < 0.1).float()
    near = near / near.sum(1, keepdim=True)
    x = torch.randn(300, 4, generator=rng)
    y = ((near @ x)[:, 0] > 0).long()
    torch.manual_seed(0)
    model = trained(Blurred(12), (x, near), y)
    assert alarms(model, ((x, near), y), loss="cross_entropy")[0] == "oversmoothing"


def test_weights_of_attention_and_counts_of_edges_are_no_messages():
    def summed(width, constant=False):
        return Call(
            "index_add", "", torch.rand(5, width), torch.ones(9, width) if constant else torch.rand(9, width)
        )

    layer = Call("linear", "", torch.rand(5, 8), torch.rand(5, 8))
    assert len(messages([summed(8), summed(8), summed(8)], 5)) == 3
    assert len(messages([layer, summed(2), summed(2), summed(8), layer, summed(1), summed(3)], 5)) == 2
    assert len(messages([summed(1, constant=True), layer, summed(8)], 5)) == 1
    assert not messages([summed(8)], 4)


def test_sums_of_equal_states_are_what_averages_converge_to():
    A = (torch.rand(60, 60, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    A = ((A + A.T) > 0).float()
    assert variation(A.sum(1, keepdim=True), limits_of(SimpleNamespace(A=A.numpy()))) < 1e-4


def test_gradients_of_nodes_that_are_alike_are_doubted():
    exam = SimpleNamespace(sure={"vanishing-gradient": 0.9, "overfit": 0.8}, find=lambda *_, **__: None)
    _say(exam, 0.0, "", "", [])
    assert exam.sure == {"vanishing-gradient": 0.5, "overfit": 0.8}


# --- recurrences -----------------------------------------------------------------------------------------------------


class Last(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.rnn, self.head = nn.RNN(1, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 2)
        nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=gain)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize(("gain", "head", "grows"), [(1.8, 1.0, True), (1.0, 1.0, False), (1.8, 20.0, None)])
def test_recurrent_weights_that_still_are_a_draw_tell_how_it_began(gain, head, grows):
    torch.manual_seed(0)
    X = torch.randn(100, 50, 1)
    y = (X.mean((1, 2)) > 0).long()
    model = Last(gain)
    model.head.weight.data *= head
    exam = corollary.diagnose(model, (X, y), loss="cross_entropy").subject
    found = _profile_as_large(exam, exam.subject.train)
    assert (found is None) if grows is None else (found[1] > 100) == grows


# --- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "can"), [((48, 16), True), ((48, 1), False), ((3, 2), False), ((8, 1, 5, 5), True)]
)
def test_matrices_too_narrow_to_stand_out_tell_nothing(shape, can):
    assert can_stand_out(torch.randn(*shape)) == can


def examined(net, X):
    """Return what the checks of units ask of an exam."""
    calls, h = [], X
    for name, m in net.named_children():
        out = m(h)
        calls.append(Call("linear" if isinstance(m, nn.Linear) else "sigmoid", name, out, h))
        h = out
    settings = SimpleNamespace(learning_rate=None, weight_decay=None, batch_size=None)
    subject = SimpleNamespace(net=net, settings=settings, initial=None)
    trace = SimpleNamespace(calls=calls, gradients={})
    return SimpleNamespace(trace=trace, subject=subject, facts={"dropout": 0.0})


@pytest.mark.parametrize("one_sided", [True, False])
def test_biases_at_one_end_are_a_start_whatever_the_weights_have_become(one_sided):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 2))
    net[0].weight.data += 3 * torch.randn(16, 1) @ torch.randn(1, 16)  # as gradients make them
    net[0].bias.data = 9 + torch.randn(16)
    if not one_sided:
        net[0].bias.data[::2] *= -1
    exam = examined(net, torch.randn(40, 16))
    assert _driven(exam, "1")
    assert _came_late(exam, "1", None) != one_sided


@pytest.mark.parametrize(("began", "late"), [(0.02, True), (0.6, False)])
def test_units_that_did_not_begin_at_an_end_came_there_on_the_way(began, late):
    assert _came_late(SimpleNamespace(), "1", began) == late


@pytest.mark.parametrize(("rate", "found"), [(0.3, True), (1e-3, False)])
def test_a_loss_far_above_a_constant_answers_was_raised_by_the_rate(rate, found):
    torch.manual_seed(0)
    X = torch.randn(200, 5)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    for p in model.parameters():
        p.data *= 20
    optimizer = torch.optim.RMSprop(model.parameters(), rate)
    exam = corollary.diagnose(model, (X, X[:, :1] * X[:, 1:2]), loss="mse", optimizer=optimizer).subject
    exam.findings.clear()
    exam.sure.clear()
    risen(exam)
    assert exam.has("learning-rate-too-large") == found


# --- views and dropout -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
def test_windows_are_widened_however_they_are_padded(mode):
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode=mode), nn.ReLU())
    assert widened(net) == 1
    assert net[0].padding_mode == mode
    assert net[0].kernel_size[0] > 3
    assert net(torch.randn(2, 1, 12, 12)).shape == (2, 4, 12, 12)


@pytest.mark.parametrize("p", [0.1, 0.93])
def test_dropout_that_leaves_a_good_model_unsure_is_named(p):
    torch.manual_seed(0)
    X = torch.randn(600, 8)
    y = X[:, :4].argmax(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 4))
    trained(model, (X[:400],), y[:400], steps=400, batch=32)
    data = (X[:400], y[:400]), (X[400:], y[400:])
    exam = corollary.diagnose(model, *data, loss="cross_entropy", time_limit=300).subject
    exam.findings.clear()
    exam.sure.clear()
    dropped(exam)
    assert exam.has("dropout-too-large") == (p > 0.5)


@pytest.mark.parametrize(("rate", "late"), [(1e-3, False), (0.5, True), (None, True)])
def test_at_a_usual_rate_it_is_the_start_that_drives_weights_away(rate, late):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    net[0].weight.data += 5 * torch.randn(16, 1) @ torch.randn(1, 16)
    exam = examined(net, torch.randn(40, 16))
    exam.subject.settings = SimpleNamespace(
        learning_rate=rate,
        weight_decay=None,
        batch_size=None,
        optimizer="adam",
        momentum=0.0,
        decoupled=False,
    )
    assert _came_late(exam, "1", None) == late
