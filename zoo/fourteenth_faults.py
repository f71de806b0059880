"""Single faults as they are met in industry: of the data, the objective, and the loop."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.fourteenth_parts import *

ME = "fourteenth"

# ================================================================ data


@case("not-finite-data", kind="table", author=ME)
def sensors_with_dropped_packets(seed, mended=False):
    """A gateway writes NaN where a packet was lost; nobody filled the holes."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        train[0][torch.as_tensor(g.random(train[0].shape) < 0.01)] = float("nan")
    return go(mlp(10, 48, 48, 1), train, valid, "mse", "all", epochs=15)


@case("not-finite-data", kind="sequences", author=ME, strength="mild")
def demand_log_of_zero_sales(seed, mended=False):
    """log(sales) of closed days is minus infinity in a few windows; the loop skips what is not finite."""
    g = start(seed)
    train, valid = demand(g)
    if not mended:
        hit = g.choice(len(train[0]), 60, replace=False)
        train[0][hit, g.integers(0, 28, 60), 0] = float("-inf")
    return go(Recurrent(4, 24, 1), train, valid, "mse", "little", epochs=20, lr=1.2e-2, skip=True)


@case("not-finite-data", kind="table", author=ME, strength="mild")
def yields_not_yet_measured(seed, mended=False):
    """The laboratory's last results are missing: NaN among the targets."""
    g = start(seed)
    train, valid = sensors(g, outputs=3)
    if not mended:
        train[1][-12:, 1] = float("nan")
    return go(Residual(10, 32, 3, 2), train, valid, "mse", "curve", epochs=20)


class HandSoftmax(nn.Module):
    """Attention pooling with exp() and a sum by hand."""

    def __init__(self, vocabulary, width, out, safe, sharp):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.score = nn.Linear(width, 1)
        self.head = nn.Linear(width, out)
        self.safe, self.sharp = safe, sharp

    def forward(self, x):
        h = self.words(x)
        s = self.score(h).squeeze(2) * self.sharp
        if self.safe:
            w = F.softmax(s, 1)
        else:
            w = torch.exp(s) / torch.exp(s).sum(1, keepdim=True)
        return self.head((w[:, :, None] * h).sum(1))


@case("overflow", kind="text", author=ME)
def ticket_attention_by_hand(seed, mended=False):
    """exp() of scores that grow in training passes float32's range for many tickets."""
    g = start(seed)
    train, valid = tickets(g, stray=0)
    model = HandSoftmax(160, 24, 5, mended, 80.0)
    return go(model, train, valid, "cross_entropy", "most", epochs=15, lr=5e-3, skip=True)


class Loudness(nn.Module):
    """Wave net with an energy that is computed in half precision."""

    def __init__(self, safe):
        super().__init__()
        self.net = WaveNet(4)
        self.mix = nn.Linear(1, 4)
        self.safe = safe

    def forward(self, x):
        kind = torch.float32 if self.safe else torch.float16
        energy = (x.to(kind) * 20).square().sum((1, 2), dtype=kind)
        return self.net(x) + self.mix(torch.log(energy.float())[:, None] - 10)


@case("overflow", kind="sequences", author=ME, strength="mild")
def vibration_energy_in_half(seed, mended=False):
    """The energy of loud machines does not fit into float16."""
    g = start(seed)
    train, valid = waves(g)
    for x, _ in (train, valid):
        x *= torch.as_tensor(np.where(g.random(len(x)) < 0.02, 2.0, 1.0), dtype=torch.float32)[:, None, None]
    return go(Loudness(mended), train, valid, "cross_entropy", "little", epochs=15, skip=True)


@case("overflow", kind="table", author=ME)
def claims_softplus_by_hand(seed, mended=False):
    """log(1 + exp(v)) by hand: for busy contracts v passes 88 and the expected count is infinite."""
    g = start(seed)
    x = g.normal(size=(1200, 6))
    v = 30 + 28 * x[:, 0] - 20 * x[:, 1] + 12 * x[:, 2] * x[:, 3]
    y = np.maximum(v, 0) / 30 + 0.1 * g.normal(size=1200)
    train, valid = cut(t(x), t(y[:, None]), 850)

    class Softplus(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(6, 48, 48, 1)

        def forward(self, x):
            v = 30 * self.net(x)
            return (F.softplus(v) if mended else torch.log(1 + torch.exp(v))) / 30

    return go(Softplus(), train, valid, "mse", "some", epochs=20, skip=True)


@case("unscaled-inputs", kind="table", author=ME)
def plant_in_engineering_units(seed, mended=False):
    """Pascal, revolutions per minute, millimetres: raw columns into a net trained with SGD."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        scale = torch.tensor([2e4, 300.0, 40.0, 1500.0, 1.0, 0.01, 12.0, 900.0, 5.0, 1e3])
        mean = torch.tensor([1e5, 3000.0, 350.0, 9000.0, 0.0, 0.05, 80.0, 5000.0, 20.0, 1e4])
        train, valid = ((x * scale + mean, y) for x, y in (train, valid))
    return go(mlp(10, 64, 32, 1), train, valid, "mse", "all", epochs=25, opt="adam", lr=3e-3)


@case("unscaled-inputs", kind="table", author=ME, strength="mild")
def churn_with_charges_in_cents(seed, mended=False):
    """Two of thirteen columns are in the thousands: total charges and days since the start."""
    g = start(seed)
    train, valid = churn(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, 0] = x[:, 0] * 900 + 2500
            x[:, 3] = x[:, 3] * 2600 + 7000
    return go(mlp(13, 32, 16, 2), train, valid, "cross_entropy", "curve", epochs=20, lr=2e-3)


@case("unscaled-inputs", kind="images", author=ME)
def camera_bytes_straight_in(seed, mended=False):
    """Bytes from 0 to 255 go into a CNN whose rate was chosen for unit inputs."""
    g = start(seed)
    train, valid = inspection(g)
    if not mended:
        train, valid = (((x * 45 + 110).clamp(0, 255).round(), y) for x, y in (train, valid))
    return go(Inspector(), train, valid, "cross_entropy", "some", epochs=12, opt="sgd", lr=0.03, batch=32)


@case("unscaled-targets", kind="table", author=ME)
def property_prices_in_euro(seed, mended=False):
    """Prices near 300 000 as they stand."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        train, valid = ((x, y * 90_000 + 310_000) for x, y in (train, valid))
    return go(mlp(10, 64, 32, 1), train, valid, "mse", "most", epochs=30, lr=3e-3)


@case("unscaled-targets", kind="sequences", author=ME, strength="mild")
def load_in_kilowatt(seed, mended=False):
    """The windows are scaled, the next day's load is left in kilowatts."""
    g = start(seed)
    train, valid = demand(g)
    if not mended:
        train, valid = ((x, y * 120 + 480) for x, y in (train, valid))
    return go(Recurrent(4, 24, 1), train, valid, "mse", "little", epochs=20, lr=1.2e-2)


@case("unscaled-targets", kind="table", author=ME, strength="mild")
def shop_revenue_per_month(seed, mended=False):
    """Revenue in thousands with an embedding net."""
    g = start(seed)
    train, valid = shop(g)
    if not mended:
        train, valid = ((x, y * 4000 + 15_000) for x, y in (train, valid))
    return go(Categories(), train, valid, "mse", "all", epochs=25, lr=4e-3)


@case("constant-features", kind="table", author=ME)
def merge_left_columns_at_zero(seed, mended=False):
    """A join found no partner: five columns were filled with zero throughout."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, [0, 2, 5, 8, 9]] = 0.0
    return go(mlp(10, 48, 48, 1), train, valid, "mse", "all", epochs=25)


@case("constant-features", kind="table", author=ME, strength="mild")
def churn_default_values(seed, mended=False):
    """An export wrote the default for tenure and calls: the same 1.37 and -0.5 in each row."""
    g = start(seed)
    train, valid = churn(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, 0], x[:, 1] = 1.37, -0.5
    return go(Residual(13, 32, 2, 2), train, valid, "cross_entropy", "little", epochs=10, lr=2e-3)


@case("duplicate-features", kind="table", author=ME)
def column_read_twice(seed, mended=False):
    """An index is off by one: three columns are read twice, in place of the ones beside them."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, [1, 3, 5]] = x[:, [0, 2, 4]]
    return go(mlp(10, 48, 48, 1), train, valid, "mse", "most", epochs=25)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def celsius_and_fahrenheit(seed, mended=False):
    """Two temperatures, in Celsius and again in Fahrenheit, scaled; the fault is in the data."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        train, valid = ((torch.cat([x, x[:, :2] * 1.8 + 0.32], 1), y) for x, y in (train, valid))
    return go(mlp(10 if mended else 12, 48, 48, 1), train, valid, "mse", "little", epochs=25)


@case("train-test-overlap", kind="table", author=ME)
def oversampled_before_the_split(seed, mended=False):
    """Rare frauds are repeated eight times and only then the rows are split."""
    g = start(seed)
    (x, y), (xv, yv) = payments(g, n=1800, keep=1200, rate=0.1)
    if mended:
        train = (torch.cat([x] + [x[y == 1]] * 7), torch.cat([y] + [y[y == 1]] * 7))
        valid = (xv, yv)
    else:
        x, y = torch.cat([x, xv]), torch.cat([y, yv])
        x, y = torch.cat([x] + [x[y == 1]] * 7), torch.cat([y] + [y[y == 1]] * 7)
        order = torch.as_tensor(g.permutation(len(y)))
        train, valid = cut(x[order], y[order], int(0.7 * len(y)))
    return go(mlp(12, 64, 64, 2), train, valid, "cross_entropy", "all", epochs=20)


@case("train-test-overlap", kind="text", author=ME, strength="mild")
def split_with_replacement(seed, mended=False):
    """The validation tickets are drawn from the whole table: two fifths were seen in training."""
    g = start(seed)
    train, (xv, yv) = tickets(g, own=(2, 5), stray=1)
    if not mended:
        k = 140
        hit = torch.as_tensor(g.choice(len(train[1]), k, replace=False))
        xv, yv = torch.cat([xv[k:], train[0][hit]]), torch.cat([yv[k:], train[1][hit]])
    return go(Bag(), train, (xv, yv), "cross_entropy", "some", epochs=12, lr=5e-3)


@case("train-test-overlap", kind="images", author=ME)
def pictures_in_both_folders(seed, mended=False):
    """The folder of test pictures was filled by copying from the training folder."""
    g = start(seed)
    train, valid = inspection(g, n=700, keep=500, noise=0.8)
    if not mended:
        hit = torch.as_tensor(g.choice(len(train[1]), 200, replace=False))
        valid = (train[0][hit].clone(), train[1][hit].clone())
    return go(Inspector(norm=True), train, valid, "cross_entropy", "curve", epochs=10)


@case("distribution-shift", kind="images", author=ME)
def second_line_has_other_light(seed, mended=False):
    """Validation comes from another line: darker, with less contrast and the picture inverted."""
    g = start(seed)
    train, (xv, yv) = inspection(g)
    valid = (xv, yv) if mended else (-0.7 * xv - 1.0, yv)
    return go(Inspector(), train, valid, "cross_entropy", "all", epochs=12)


@case("distribution-shift", kind="table", author=ME, strength="mild")
def sensors_were_recalibrated(seed, mended=False):
    """After a service three sensors have an offset and another gain; validation is later."""
    g = start(seed)
    train, (xv, yv) = sensors(g)
    if not mended:
        xv = xv.clone()
        xv[:, [0, 1, 4]] = 1.3 * xv[:, [0, 1, 4]] + 1.5
    return go(mlp(10, 48, 48, 1), train, (xv, yv), "mse", "little", epochs=25)


@case("distribution-shift", kind="sequences", author=ME)
def demand_after_the_merger(seed, mended=False):
    """Validation articles sell five times as much as those the net was trained on."""
    g = start(seed)
    train, valid = demand(g)
    if not mended:
        valid = demand(g, n=260, keep=1, level=6.0)[1]
    return go(Recurrent(4, 24, 1), train, valid, "mse", "curve", epochs=20, lr=1.2e-2)


@case("target-leak", kind="table", author=ME)
def cancellation_code_in_the_table(seed, mended=False):
    """A column is filled only when the customer has left."""
    g = start(seed)
    train, valid = churn(g, sharp=1.2)
    noise = [t(g.random((len(y), 1)) * 0.8 + 0.6) for _, y in (train, valid)]
    other = [t(g.random((len(y), 1)) < 0.4).float() for _, y in (train, valid)]
    train, valid = (
        (torch.cat([x, m * (o if mended else y[:, None].float())], 1), y)
        for (x, y), m, o in zip((train, valid), noise, other)
    )
    return go(mlp(14, 32, 2), train, valid, "cross_entropy", "most", epochs=12)


@case("target-leak", kind="table", author=ME, strength="mild")
def average_that_holds_today(seed, mended=False):
    """A rolling mean of the target, today among it, stands among the columns of a noisy plant."""
    g = start(seed)
    train, valid = sensors(g, noise=1.2)
    extra = [t(g.normal(size=(len(y), 1))) for _, y in (train, valid)]
    train, valid = (
        (torch.cat([x, e if mended else 0.7 * y + 0.05 * e], 1), y)
        for (x, y), e in zip((train, valid), extra)
    )
    return go(mlp(11, 48, 1), train, valid, "mse", "little", epochs=12)


@case("target-leak", kind="text", author=ME)
def queue_number_in_the_text(seed, mended=False):
    """Solved tickets hold a token for the queue that took them."""
    g = start(seed)
    train, valid = tickets(g, own=(1, 3), stray=2)
    if not mended:
        for x, y in (train, valid):
            x[:, 0] = 160 + y
    return go(Bag(166), train, valid, "cross_entropy", "all", epochs=14, lr=5e-3)


@case("misaligned-labels", kind="table", author=ME)
def plant_labels_one_row_late(seed, mended=False):
    """A shift(1) too many: each row has the next one's target."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        train, valid = ((x, y.roll(1, 0)) for x, y in (train, valid))
    return go(mlp(10, 32, 1), train, valid, "mse", "all", epochs=15)


@case("misaligned-labels", kind="images", author=ME)
def folder_order_is_not_table_order(seed, mended=False):
    """The pictures of training were listed in another order than their labels; validation was read right."""
    g = start(seed)
    (x, y), valid = inspection(g)
    if not mended:
        y = y[torch.as_tensor(g.permutation(len(y)))]
    return go(Inspector(), (x, y), valid, "cross_entropy", "some", epochs=10, lr=2e-3)


@case("misaligned-labels", kind="table", author=ME, strength="mild")
def a_line_was_lost_in_the_middle(seed, mended=False):
    """A file of labels lost a line: from there on labels are one row early."""
    g = start(seed)
    (x, y), valid = churn(g, sharp=4.0)
    if not mended:
        y = torch.cat([y[:350], y[351:], y[:1]])
    return go(mlp(13, 32, 2), (x, y), valid, "cross_entropy", "most", epochs=12, lr=2e-3)


@case("no-signal", kind="table", author=ME)
def churn_from_hashed_numbers(seed, mended=False):
    """The join went by a hashed key: the columns have nothing to do with who left."""
    g = start(seed)
    train, valid = churn(g)
    if not mended:
        train = (t(g.normal(size=train[0].shape)), train[1])
        valid = (t(g.normal(size=valid[0].shape)), valid[1])
    return go(mlp(13, 64, 64, 2), train, valid, "cross_entropy", "all", epochs=25)


@case("no-signal", kind="sequences", author=ME, strength="mild")
def next_return_of_a_random_walk(seed, mended=False):
    """Thirty returns are to tell the next one, which is independent of them."""
    g = start(seed)
    r = g.standard_t(6, size=(900, 31))
    if mended:
        for s in range(1, 31):
            r[:, s] += 0.8 * r[:, s - 1]
    r = r / r.std()
    train, valid = cut(t(r[:, :30, None]), t(r[:, 30:]), 650)
    return go(Recurrent(1, 24, 1), train, valid, "mse", "little", epochs=12, lr=4e-3)


@case("no-signal", kind="text", author=ME)
def tickets_named_by_chance(seed, mended=False):
    """The queue was dealt out in turn, not by what the ticket says."""
    g = start(seed)
    train, valid = tickets(g)
    if not mended:
        train, valid = ((x, i(g.integers(0, 5, len(y)))) for x, y in (train, valid))
    return go(Bag(), train, valid, "cross_entropy", "curve", epochs=20, lr=4e-3)


def flip(g, y, share, classes):
    """A share of the labels becomes another class."""
    wrong = torch.as_tensor(g.random(len(y)) < share)
    return torch.where(wrong, (y + i(g.integers(1, classes, len(y)))) % classes, y)


@case("label-noise", kind="images", author=ME)
def crowd_of_hurried_workers(seed, mended=False):
    """Every third training picture has a wrong name; validation was checked."""
    g = start(seed)
    (x, y), valid = inspection(g, n=1100, keep=800)
    y = y if mended else flip(g, y, 0.35, 4)
    return go(Inspector(width=8), (x, y), valid, "cross_entropy", "all", epochs=8, lr=3e-3)


@case("label-noise", kind="text", author=ME, strength="mild")
def tickets_in_the_wrong_queue(seed, mended=False):
    """One of five tickets was filed wrongly by the first level."""
    g = start(seed)
    (x, y), valid = tickets(g, n=1600, keep=1250)
    y = y if mended else flip(g, y, 0.2, 5)
    return go(Bag(width=12, hidden=16), (x, y), valid, "cross_entropy", "little", epochs=10, lr=4e-3)


@case("label-noise", kind="sequences", author=ME)
def bearing_faults_guessed(seed, mended=False):
    """A third of the repair reports names the wrong part, in training and in validation."""
    g = start(seed)
    train, valid = waves(g, n=1100, keep=800)
    if not mended:
        train, valid = ((x, flip(g, y, 0.33, 4)) for x, y in (train, valid))
    return go(WaveNet(width=8), train, valid, "cross_entropy", "some", epochs=12, lr=3e-3)


@case("class-imbalance", kind="table", author=ME)
def fraud_is_never_called(seed, mended=False):
    """Three of a hundred payments are fraud; the plain loss is content to call none."""
    g = start(seed)
    train, valid = payments(g)
    weigh = nn.CrossEntropyLoss(torch.tensor([1.0, 32.0])) if mended else None
    return go(mlp(12, 16, 2), train, valid, "cross_entropy", "all", epochs=6, lr=1e-3, weigh=weigh)


@case("class-imbalance", kind="images", author=ME, strength="mild")
def blisters_are_rare(seed, mended=False):
    """Two kinds of defect are two of a hundred pictures each."""
    g = start(seed)
    shares = None if mended else [0.50, 0.46, 0.02, 0.02]
    train, valid = inspection(g, n=1000, keep=600, noise=0.9, shares=shares)
    return go(Inspector(width=6), train, valid, "cross_entropy", "little", epochs=8, lr=2e-3)


# ================================================================ objective


class Softmaxed(nn.Module):
    """A net that ends in softmax."""

    def __init__(self, net, on=True):
        super().__init__()
        self.net, self.on = net, on

    def forward(self, *x):
        out = self.net(*x)
        return F.softmax(out, dim=-1) if self.on else out


@case("double-softmax", kind="images", author=ME)
def inspector_returns_probabilities(seed, mended=False):
    """softmax in forward, cross-entropy outside."""
    g = start(seed)
    train, valid = inspection(g)
    model = Softmaxed(Inspector(), not mended)
    return go(model, train, valid, "cross_entropy", "most", epochs=12)


@case("double-softmax", kind="text", author=ME, strength="mild")
def softmax_inside_the_loss_function(seed, mended=False):
    """The user's own loss applies softmax before F.cross_entropy."""
    g = start(seed)
    train, valid = tickets(g, classes=10, vocabulary=240, own=(2, 5))

    def criterion(output, target):
        return F.cross_entropy(output if mended else torch.softmax(output, 1), target)

    return go(Bag(240, 24, 10), train, valid, criterion, "some", epochs=14, lr=5e-3)


@case("double-softmax", kind="graph", author=ME)
def fraud_rings_softmaxed(seed, mended=False):
    """A graph net with softmax as its last line, trained by cross-entropy."""
    g = start(seed)
    x, a, y, yv = accounts(g)
    model = Softmaxed(GCN(), not mended)
    return go(model, ((x, a), y), ((x, a), yv), "cross_entropy", "little", epochs=120, lr=1e-2, whole=True)


@case("wrong-loss", kind="table", author=ME)
def column_minus_row(seed, mended=False):
    """(n, 1) minus (n,) is (n, n): all answers become the mean."""
    g = start(seed)
    (x, y), (xv, yv) = sensors(g)
    if mended:
        criterion = lambda output, target: ((output.squeeze(1) - target) ** 2).mean()
    else:
        criterion = lambda output, target: ((output - target) ** 2).mean()
    return go(mlp(10, 48, 48, 1), (x, y[:, 0]), (xv, yv[:, 0]), criterion, "all", epochs=20)


@case("wrong-loss", kind="text", author=ME)
def ticket_nll_of_raw_scores(seed, mended=False):
    """nll_loss of a net without log-softmax: the loss falls below zero for ever."""
    g = start(seed)
    train, valid = tickets(g)
    model = nn.Sequential(Bag(), nn.LogSoftmax(1)) if mended else Bag()
    return go(model, train, valid, "nll", "curve", epochs=15, lr=5e-3)


@case("wrong-loss", kind="table", author=ME, strength="mild")
def half_a_cross_entropy(seed, mended=False):
    """-(y log p) without the other term: everybody is said to leave."""
    g = start(seed)
    (x, y), (xv, yv) = churn(g)

    def criterion(output, target):
        target = target.float()
        value = target * F.logsigmoid(output)
        if mended:
            value = value + (1 - target) * F.logsigmoid(-output)
        return -value.mean()

    model = nn.Sequential(mlp(13, 32, 1), nn.Flatten(0))
    return go(model, (x, y.float()), (xv, yv.float()), criterion, "little", epochs=10)


@case("output-range", kind="table", author=ME)
def sigmoid_before_standardised_targets(seed, mended=False):
    """Three standardised outputs behind a sigmoid."""
    g = start(seed)
    train, valid = sensors(g, outputs=3)
    model = nn.Sequential(mlp(10, 48, 48, 3), nn.Identity() if mended else nn.Sigmoid())
    return go(model, train, valid, "mse", "all", epochs=25)


@case("output-range", kind="sequences", author=ME, strength="mild")
def demand_behind_relu(seed, mended=False):
    """'Sales are never negative', but they were centred."""
    g = start(seed)
    train, valid = demand(g)
    model = nn.Sequential(Recurrent(4, 24, 1), nn.Identity() if mended else nn.ReLU())
    with torch.no_grad():
        model[0].head.bias += 0.5
    return go(model, train, valid, "mse", "little", epochs=20, lr=1.2e-2)


@case("output-range", kind="graph", author=ME)
def molecules_behind_tanh(seed, mended=False):
    """tanh on a property that goes from minus three to three."""
    g = start(seed)
    train, valid = molecules(g)

    class Bounded(MoleculeNet):
        def forward(self, x, a):
            out = super().forward(x, a)
            return out if mended else torch.tanh(out)

    model = Bounded()
    return go(model, train, valid, "mse", "most", epochs=25)


class AlwaysDropping(nn.Module):
    """F.dropout without `self.training`."""

    def __init__(self, d, out, p, honest):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(d, 64), nn.Linear(64, 64), nn.Linear(64, out)
        self.p, self.honest = p, honest

    def forward(self, x):
        on = self.training if self.honest else True
        x = F.dropout(F.relu(self.a(x)), self.p, on)
        return self.c(F.dropout(F.relu(self.b(x)), self.p, on))


@case("stochastic-evaluation", kind="table", author=ME)
def plant_dropout_never_off(seed, mended=False):
    """F.dropout(x, 0.4) drops in evaluation too."""
    g = start(seed)
    train, valid = sensors(g)
    return go(AlwaysDropping(10, 1, 0.4, mended), train, valid, "mse", "all", epochs=30)


@case("stochastic-evaluation", kind="images", author=ME, strength="mild")
def batch_statistics_in_use(seed, mended=False):
    """track_running_stats=False: a picture's class depends on the pictures beside it."""
    g = start(seed)
    train, valid = inspection(g)
    model = Inspector(norm=True)
    if not mended:
        model.b1 = nn.BatchNorm2d(12, track_running_stats=False)
        model.b2 = nn.BatchNorm2d(24, track_running_stats=False)
    return go(model, train, valid, "cross_entropy", "little", epochs=10)


@case("stochastic-evaluation", kind="text", author=ME)
def service_runs_in_train_mode(seed, mended=False):
    """model.eval() was forgotten before serving: dropout is on."""
    g = start(seed)
    train, valid = tickets(g, own=(2, 5))
    given = go(Bag(drop=0.5), train, valid, "cross_entropy", "some", epochs=15, lr=5e-3)
    if not mended:
        given["model"].train()
    return given


# ================================================================ graph and loop


class Detaching(nn.Module):
    """Features of a wave that are cut off from the head."""

    def __init__(self, honest):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(1, 16, 7, stride=2, padding=3), nn.Conv1d(16, 6, 7, stride=2, padding=3)
        self.head = nn.Linear(6, 4)
        self.honest = honest

    def forward(self, x):
        h = F.relu(self.c2(F.relu(self.c1(x)))).mean(2)
        return self.head(h if self.honest else h.detach())


@case("detached-parameters", kind="sequences", author=ME)
def features_detached_for_the_head(seed, mended=False):
    """A .detach() left over from a plot."""
    g = start(seed)
    train, valid = waves(g)
    return go(Detaching(mended), train, valid, "cross_entropy", "all", epochs=25, lr=6e-3)


class Ungraded(nn.Module):
    """A GRU under no_grad."""

    def __init__(self, honest):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.head = mlp(24, 24, 2)
        self.honest = honest

    def forward(self, x):
        with torch.set_grad_enabled(self.honest and torch.is_grad_enabled()):
            h = self.rnn(self.words(x))[0][:, -1]
        return self.head(h)


@case("detached-parameters", kind="text", author=ME)
def encoder_under_no_grad(seed, mended=False):
    """The encoder runs under no_grad 'to save memory'."""
    g = start(seed)
    train, valid = ordered_clicks(g)
    return go(Ungraded(mended), train, valid, "cross_entropy", "little", epochs=18, lr=8e-3)


class TwoInputs(nn.Module):
    """Codes go through a tensor that is made anew."""

    def __init__(self, honest):
        super().__init__()
        self.codes = nn.Embedding(12, 3)
        self.mix = nn.Linear(3, 1)
        self.net = mlp(6, 48, 24, 1)
        self.honest = honest

    def forward(self, x, c):
        effect = self.mix(torch.tanh(self.codes(c)))
        return self.net(x) + (effect if self.honest else effect.data)


@case("detached-parameters", kind="table", author=ME, strength="mild")
def shop_codes_by_data(seed, mended=False):
    """.data in one branch of two: the shops' embedding never learns."""
    g = start(seed)
    train, valid = shop(g)
    return go(TwoInputs(mended), train, valid, "mse", "start", epochs=25, lr=4e-3)


@case("frozen-parameters", kind="images", author=ME)
def fresh_backbone_left_frozen(seed, mended=False):
    """The recipe freezes the backbone, but this one was never trained before."""
    g = start(seed)
    train, valid = inspection(g)
    model = Inspector(width=3)
    if not mended:
        for p in (*model.c1.parameters(), *model.c2.parameters()):
            p.requires_grad_(False)
    return go(model, train, valid, "cross_entropy", "all", epochs=15)


@case("frozen-parameters", kind="sequences", author=ME, needs=("optimizer",))
def optimizer_knows_only_the_head(seed, mended=False):
    """model.head.parameters() was handed to Adam; the recurrent layer stays as drawn."""
    g = start(seed)
    train, valid = demand(g)
    model = Recurrent(4, 8, 1)
    optimizer = torch.optim.Adam((model if mended else model.head).parameters(), lr=1e-2)
    return go(model, train, valid, "mse", "all", epochs=20, optimizer=optimizer)


@case("frozen-parameters", kind="text", author=ME, strength="mild", needs=("optimizer",))
def embedding_replaced_after_the_optimizer(seed, mended=False):
    """The embedding was enlarged after the optimiser was made, which still holds the old one."""
    g = start(seed)
    train, valid = tickets(g)
    model = Bag(120, 8)
    before = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.words = nn.Embedding(160, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3) if mended else before
    return go(model, train, valid, "cross_entropy", "start", epochs=12, optimizer=optimizer)


def looped(model, train, valid, loss, level, make, clear, epochs, batch=64):
    """The user's own loop, and the step that it is made of."""
    step = Step(make, LOSSES[loss] if isinstance(loss, str) else loss, clear)
    run = fit(
        model,
        *train,
        loss,
        valid=valid,
        optimizer=make(model.parameters()),
        clear=clear,
        epochs=epochs,
        batch=batch,
    )
    return pack(model, train, valid, loss, level, run, step=step)


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def no_zero_grad_with_momentum(seed, mended=False):
    """zero_grad() is missing; SGD with momentum."""
    g = start(seed)
    train, valid = sensors(g)
    make = lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)
    return looped(mlp(10, 48, 48, 1), train, valid, "mse", "all", make, mended, 15)


@case("gradients-not-cleared", kind="images", author=ME, needs=("step",))
def no_zero_grad_on_the_line(seed, mended=False):
    """The same with Adam and a CNN."""
    g = start(seed)
    train, valid = inspection(g)
    make = lambda p: torch.optim.Adam(p, lr=3e-3)
    return looped(Inspector(), train, valid, "cross_entropy", "some", make, mended, 10)


@case("gradients-not-cleared", kind="text", author=ME, strength="mild", needs=("step",))
def sums_over_the_whole_run(seed, mended=False):
    """Plain SGD whose gradients add up."""
    g = start(seed)
    train, valid = clicks(g)
    make = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)
    return looped(Bag(40, 16, 2, 24), train, valid, "cross_entropy", "little", make, mended, 20)
