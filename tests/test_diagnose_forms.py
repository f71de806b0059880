"""The same fault in another form: losses of the user's own, several inputs, graphs and dicts, other optimisers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corollary import diagnose
from corollary.diagnose.exam import Exam
from corollary.diagnose.imbalance import _auc
from corollary.diagnose.lab import Lab, _optimizer
from corollary.diagnose.objectives import Criterion
from corollary.diagnose.reading import began, prepared, read
from corollary.diagnose.rewards import takes_logits
from corollary.diagnose.settings import Settings
from corollary.diagnose.shift import _other_spread
from corollary.diagnose.trials import Trials, dropout_rate

N = 240
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] > 0).long()


def net(out=2, inputs=6):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, out))


def causes(*args, **options):
    return [f.cause for f in diagnose(*args, **options).alarms]


class Then(nn.Module):
    """A net, and what follows it."""

    def __init__(self, body, last):
        super().__init__()
        self.body, self.last = body, last

    def forward(self, *x):
        return self.last(self.body(*x))


# --- losses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "logits"),
    [
        (lambda z, y: F.cross_entropy(z, y, weight=torch.tensor([1.0, 3.0])), True),
        (lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1), True),
        (lambda z, y: ((1 - z.softmax(1).gather(1, y[:, None])) ** 2 * F.cross_entropy(z, y, reduction="none")).mean(), True),
        (lambda p, y: F.nll_loss((p + 1e-9).log(), y), False),
        (lambda p, y: (p - F.one_hot(y, 2)).square().mean(), False),
    ],
)  # fmt: skip
def test_a_loss_tells_whether_it_takes_logits_or_probabilities(loss, logits):
    p = net()(X).softmax(1).detach()
    assert takes_logits(Criterion("custom", "classes", loss, True), p, p, Y) is logits


def test_probabilities_per_step_under_a_weighted_loss_are_a_second_softmax():
    steps = torch.randn(N, 5, 6, generator=torch.Generator().manual_seed(5))
    labels = steps[..., :3].argmax(2)

    def loss(z, y):
        return F.cross_entropy(z.movedim(-1, 1), y, weight=torch.tensor([1.0, 2.0, 3.0]))

    assert causes(Then(net(3), lambda z: z.softmax(-1)), (steps, labels), loss=loss)[0] == "double-softmax"
    assert "double-softmax" not in causes(net(3), (steps, labels), loss=loss)


def test_a_softmax_over_the_rows_is_a_wrong_loss():
    over = lambda axis: lambda z, y: F.nll_loss(F.log_softmax(z, axis), y)  # noqa: E731
    assert causes(net(), (X, Y), loss=over(0))[0] == "wrong-loss"
    assert "wrong-loss" not in causes(net(), (X, Y), loss=over(1))


def test_several_labels_at_once_are_no_softmax():
    labels = (X[:, :3] > 0).float()
    assert causes(net(3), (X, labels), loss="cross_entropy")[0] == "wrong-loss"
    assert "wrong-loss" not in causes(net(3), (X, labels), loss="bce_with_logits")


def test_probabilities_for_targets_beyond_one_are_a_wrong_loss():
    coder = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 6))
    assert causes(coder, (X, X), loss="bce_with_logits")[0] == "wrong-loss"
    inside = X.sigmoid()
    assert "wrong-loss" not in causes(coder, (inside, inside), loss="bce_with_logits")


# --- inputs --------------------------------------------------------------------------------------------------


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(2, 9)

    def forward(self, a, b):
        return self.body(torch.cat([a, b], 1))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda b: b * 500, "unscaled-inputs"),
        (lambda b: torch.cat([b[:, :2], b[:, :1]], 1), "duplicate-features"),
    ],
)
def test_further_inputs_are_looked_at_too(change, cause):
    b = torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
    assert cause in causes(Joined(), ((X, change(b)), Y))
    assert cause not in causes(Joined(), ((X, b), Y))


def test_batches_of_triples_and_of_dicts_are_read_by_the_forward():
    b = torch.randn(N, 3)
    triples = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, b, Y), 32)
    for data in (triples, (X, b, Y)):
        samples = read(data, Joined())
        assert [t.shape[1] for t in samples.args] == [6, 3]
        assert torch.equal(samples.y, Y)
    indexed = read((X, Y, torch.arange(N)), net())
    assert torch.equal(indexed.args[0], X)
    assert torch.equal(indexed.y, Y)
    named = torch.utils.data.DataLoader([{"image": x, "label": y, "label_name": 0} for x, y in zip(X, Y)], 32)
    samples = read(({"image": X}, Y), net())
    assert torch.equal(samples.args[0], X)
    samples = read(named, Joined())
    assert torch.equal(samples.y, Y)
    mixed = {"a": X, "b": b, "index": torch.arange(N), "target": Y}
    samples = read(mixed, Joined())
    assert set(samples.kwargs) == {"a", "b"}
    assert torch.equal(samples.y, Y)


class Neighbours(nn.Module):
    def __init__(self, as_one):
        super().__init__()
        self.as_one, self.layer = as_one, nn.Linear(6, 2)

    def forward(self, data, edge_index=None):
        x, edges = (data.x, data.edge_index) if self.as_one else (data, edge_index)
        return self.layer(x.index_add(0, edges[1], x[edges[0]]))


@pytest.mark.parametrize("as_one", [False, True])
def test_an_object_that_holds_a_graph_is_read_with_its_masks(as_one):
    edges = torch.randint(0, N, (2, 600), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(N) % 2 == 0
    graph = SimpleNamespace(x=X, edge_index=edges, y=Y, train_mask=mask, val_mask=~mask)
    model = Neighbours(as_one)
    if as_one:
        model.forward = lambda data: Neighbours.forward(model, data)
    subject = prepared(model, graph)
    assert subject.error is None
    assert int(subject.train.counted.sum()) == int(mask.sum())
    assert int(subject.valid.counted.sum()) == int((~mask).sum())


def test_the_start_is_known_by_the_names_that_wrappers_give():
    module = net()
    state = module.state_dict()
    assert set(began(module, {f"module.{k}": v for k, v in state.items()})) == set(state)
    assert began(module, {"other": 1}) is None
    assert began(module, None) is None


def test_columns_of_training_and_validation_are_compared():
    with pytest.raises(
        ValueError,
        match=r"columns of the training data; got training X \(240, 6\) and validation X \(240, 4\)",
    ):
        diagnose(net(), (X, Y), (X[:, :4], Y))


# --- optimisers and runs -----------------------------------------------------------------------------------------


def test_runs_descend_as_the_user_does():
    weights = [torch.zeros(3, requires_grad=True)]
    made = _optimizer(weights, "adam", False, lr=0.1, betas=(0.5, 0.6), momentum=0.9)
    assert type(made) is torch.optim.Adam
    assert made.defaults["betas"] == (0.5, 0.6)
    assert type(_optimizer(weights, "adadelta", False, lr=1.0)) is torch.optim.Adadelta
    assert type(_optimizer(weights, "lbfgs", False, lr=1.0)) is torch.optim.Adam  # which takes no closure
    assert type(_optimizer(weights, "lion", True, lr=1.0)) is torch.optim.AdamW


def test_a_run_that_is_cut_short_tells_nothing():
    subject = prepared(net(), (X, Y))
    lab = Lab(subject, deadline=0.0)
    with pytest.raises(TimeoutError, match="step 0 of 5 of the run 'cut'"):
        lab.run("cut", subject.twin(), steps=5, rate=1e-3)
    exam = Exam(subject, 30.0)
    exam.lab = lab

    def cut(exam):
        exam.lab.run("cut", exam.subject.twin(), steps=5, rate=1e-3)

    exam.try_(cut)
    assert "left out" in exam.notes[-1].said


class Noisy(nn.Module):
    """Drops inputs by hand while training."""

    def __init__(self, rate):
        super().__init__()
        self.rate, self.body = rate, net()

    def forward(self, x):
        return self.body(x * (torch.rand_like(x) > self.rate) / (1 - self.rate) if self.training else x)


def test_noise_of_training_by_hand_is_seen_and_can_be_left_out():
    exam = Exam(prepared(Noisy(0.9), (X, Y)), 30.0)
    assert dropout_rate(exam) > 0.5
    still = Trials(exam).run("no dropout", dropout=0.0, steps=60, rate=1e-2)
    moved = Trials(exam).run("control", steps=60, rate=1e-2)
    assert still.loss < 0.7 * moved.loss
    assert dropout_rate(Exam(prepared(Noisy(0.0), (X, Y)), 30.0)) == 0.0


def test_an_optimiser_of_another_copy_trains_nothing():
    model, other = net(), net()
    descent = torch.optim.Adam(other.parameters(), 1e-2)
    for _ in range(20):
        descent.zero_grad()
        F.cross_entropy(other(X), Y).backward()
        descent.step()
    assert causes(model, (X, Y), optimizer=descent)[0] == "frozen-parameters"
    assert "frozen-parameters" not in causes(other, (X, Y), optimizer=descent)


# --- data ----------------------------------------------------------------------------------------------------------


def test_targets_of_validation_that_were_mixed_up_are_named():
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    V = torch.randn(N, 6, generator=torch.Generator().manual_seed(4))
    own = (V[:, 0] + V[:, 1] > 0).long()
    report = diagnose(net(), (X, Y), (V, own[order]))
    assert report.alarms[0].cause == "misaligned-labels"
    assert report.alarms[0].where == "validation targets"
    assert "misaligned-labels" not in causes(net(), (X, Y), (V, own))


def test_a_column_with_another_spread_is_told_from_chance():
    rng = np.random.default_rng(0)
    draws = (lambda n: rng.normal(size=(n, 8)), lambda n: rng.normal(size=(n, 8)) ** 3)
    found = [_other_spread(draw(500), draw(250), 500, 250) for _ in range(50) for draw in draws]
    assert not any(f is not None for f in found)
    B = rng.normal(size=(250, 8))
    B[:, 3] *= 2
    assert _other_spread(rng.normal(size=(500, 8)), B, 500, 250) == 3


def test_the_share_of_pairs_in_order_is_that_of_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    mask = rng.random(200) < 0.3
    values = np.round(rng.normal(size=200) + mask, 1)  # with ties
    assert _auc(values, mask) == pytest.approx(roc_auc_score(mask, values))


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(100, 2)

    def forward(self, x):
        return self.head(x.flatten(1))


def test_a_mark_in_a_corner_is_a_leak():
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(2, size=300))
    x = torch.from_numpy(rng.normal(size=(300, 1, 10, 10))).float()
    x[y == 1, 0, 2:5, 2:9] += 0.35  # what the picture shows
    marked = x.clone()
    marked[:, 0, 9, 0] = 6.0 * y - 3

    def fitted(x):
        torch.manual_seed(0)
        model = Pixels()
        descent = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(300):
            descent.zero_grad()
            weights = model.head.weight
            (F.cross_entropy(model(x), y) + 1e-2 * weights.square().sum()).backward()
            descent.step()
        return model.eval()

    report = diagnose(fitted(marked), (marked, y))
    assert report.alarms[0].cause == "target-leak"
    assert report.alarms[0].where == "pixels [90]"
    assert "target-leak" not in causes(fitted(x), (x, y))


def test_settings_of_a_cycle_are_those_of_its_top():
    descent = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=1.0)
    torch.optim.lr_scheduler.OneCycleLR(descent, max_lr=0.5, total_steps=10)
    assert Settings.of(descent, None).learning_rate == 0.5


def test_a_pair_of_moves_without_clearing_is_told_from_gradients_added_on_purpose():
    from corollary.diagnose.loop import _heaped

    def loop(clears, moves):
        made = {}

        def step(model, batch):
            if "descent" not in made:
                made.update(descent=torch.optim.SGD(model.parameters(), 0.05), count=0)
            if made["count"] % clears == 0:
                made["descent"].zero_grad()
            F.cross_entropy(model(batch[0]), batch[1]).backward()
            made["count"] += 1
            if made["count"] % moves == 0:
                made["descent"].step()

        return step

    assert not _heaped(loop(1, 1), net(), (X, Y))[1]
    assert not _heaped(loop(2, 2), net(), (X, Y))[1]
    assert not _heaped(loop(5, 5), net(), (X, Y))[1]
    assert _heaped(loop(11, 1), net(), (X, Y))[0] > 0.9
    assert _heaped(loop(10**9, 1), net(), (X, Y))[0] > 0.9


@pytest.mark.parametrize(
    ("loss", "best"), [("plain", 0.8), ("smoothed", 0.8 * 0.8 + 0.2 / 3), ("focal", None)]
)
def test_the_confidence_that_a_loss_wants(loss, best):
    from corollary.diagnose.rewards import wanted

    def focal(z, y):
        p = z.log_softmax(1).gather(1, y[:, None])
        return (-((1 - p.exp()) ** 5) * p).mean()

    functions = {
        "plain": F.cross_entropy,
        "smoothed": lambda z, y: F.cross_entropy(z, y, label_smoothing=0.2),
        "focal": focal,
    }
    found = wanted(Criterion("custom", "classes", functions[loss], True), 3)
    if best is None:
        assert found < 0.7  # below what eight right answers in ten deserve
    else:
        assert found == pytest.approx(best, abs=0.01)  # the grid of sizes


def test_classes_as_quantities_are_a_wrong_loss_unless_they_have_an_order():
    def numbers(z, y):
        return ((z.softmax(1) * torch.arange(6)).sum(1) - y).square().mean()

    g = torch.Generator().manual_seed(6)
    y = torch.randint(0, 6, (400,), generator=g)
    apart = 2 * F.one_hot(y, 6).float() + 0.3 * torch.randn(400, 6, generator=g)
    line = torch.stack([y.float(), torch.zeros(400)], 1) + 0.3 * torch.randn(400, 2, generator=g)
    assert causes(net(6), (apart, y), loss=numbers)[0] == "wrong-loss"
    assert "wrong-loss" not in causes(net(6, 2), (line, y), loss=numbers)


class Inside(nn.Module):
    """A graph that the module holds itself; the inputs are nodes."""

    def __init__(self, x, A, rounds):
        super().__init__()
        self.register_buffer("x", x)
        self.register_buffer("A", A)
        self.rounds, self.head = rounds, nn.Linear(x.shape[1], 2)

    def forward(self, nodes):
        h = self.x
        for _ in range(self.rounds):
            h = self.A @ h
        return self.head(h)[nodes]


def test_a_graph_inside_the_module_is_looked_at():
    y = torch.arange(80) % 2
    g = torch.Generator().manual_seed(7)
    same = y[:, None] == y[None]
    A = (torch.rand(80, 80, generator=g) < torch.where(same, 0.25, 0.1)).float() + torch.eye(80)
    A = ((A + A.T) > 0).float()
    A = A / A.sum(1, keepdim=True)
    x = torch.randn(80, 6, generator=g)
    x[:, 0] += 1.5 * y
    rows = torch.randperm(80, generator=g)
    deep = Inside(x, A, 30)
    descent = torch.optim.Adam(deep.parameters(), 1e-2)
    for _ in range(50):
        descent.zero_grad()
        F.cross_entropy(deep(rows), y[rows]).backward()
        descent.step()
    report = diagnose(deep, (rows[:50], y[rows[:50]]), (rows[50:], y[rows[50:]]), optimizer=descent)
    assert report.alarms[0].cause == "oversmoothing"
