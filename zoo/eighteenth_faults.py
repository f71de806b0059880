"""What goes wrong in a harbour's data, objectives and loops: the eighteenth author's faults, first part."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_parts import *

ME = "eighteenth"


# --- data ------------------------------------------------------------------------------------------------------------


@case("not-finite-data", kind="table", author=ME)
def k_draught_gauge_gaps(seed, mended=False):
    train, valid = voyage(seed)
    if not mended:
        for x, _ in (train, valid):
            x[torch.rand(len(x)) < 0.05, 1] = float("nan")
    return fit(mlp(6, 32, 1), train, valid, "mse", epochs=10)


@case("not-finite-data", kind="sequences", author=ME, strength="mild")
def k_turn_rate_divided_by_zero(seed, mended=False):
    train, valid = tracks(seed)
    if not mended:
        train[0][5, 3, 1] = float("inf")
        train[0][77, 9, 1] = float("-inf")
    return fit(Listener(), train, valid, epochs=8, tell=())


class SoftKnees(nn.Module):
    """Softplus units of a steep bend, written out by hand."""

    def __init__(self, safe):
        super().__init__()
        self.safe, self.a, self.b = safe, nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, x):
        z = 50 * self.a(x)
        return self.b((F.softplus(z) if self.safe else (1 + z.exp()).log()) / 50)


@case("overflow", kind="table", author=ME)
def k_soft_knees_by_hand(seed, mended=False):
    train, valid = cargo(seed)
    return fit(SoftKnees(mended), train, valid, epochs=8)


class HalfScale(nn.Module):
    """Weighs containers in half precision, to be quick."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.net = scale, mlp(6, 32, 1)

    def forward(self, x):
        load = ((x + 3) * self.scale).half()
        return self.net(load.float() / self.scale - 3)


@case("overflow", kind="table", author=ME, strength="mild")
def k_half_precision_kilograms(seed, mended=False):
    train, valid = voyage(seed)
    handed = fit(HalfScale(100.0), train, valid, "mse", epochs=25, tell=())
    handed["model"].scale = 100.0 if mended else 14000.0  # once on board, it is given kilograms
    return handed


@case("unscaled-inputs", kind="table", author=ME)
def k_tonnage_beside_degrees(seed, mended=False):
    train, valid = voyage(seed)
    scale = torch.tensor([20.0, 1.0, 1.0, 1.0, 900.0, 70000.0])
    shift = torch.tensor([200.0, 0.0, 0.0, 0.0, 4000.0, 350000.0])
    if not mended:
        train, valid = ((x * scale + shift, y) for x, y in (train, valid))
    return fit(mlp(6, 32, 32, 1), train, valid, "mse", epochs=12, lr=3e-3)


@case("unscaled-inputs", kind="sequences", author=ME)
def k_positions_in_metres(seed, mended=False):
    (x, y), (vx, vy) = tracks(seed)
    if not mended:
        scale, shift = torch.tensor([6000.0, 0.5]), torch.tensor([480000.0, 0.0])
        x, vx = x * scale + shift, vx * scale + shift
    return fit(Listener(), (x, y), (vx, vy), epochs=12, tell=("optimizer", "batch_size"))


@case("unscaled-targets", kind="table", author=ME)
def k_freight_in_cents(seed, mended=False):
    (x, y), (vx, vy) = voyage(seed)
    if not mended:
        y, vy = y * 400000 + 2500000, vy * 400000 + 2500000
    return fit(mlp(6, 32, 32, 1), (x, y), (vx, vy), "mse", epochs=20, lr=3e-3)


@case("constant-features", kind="table", author=ME)
def k_export_filled_with_zero(seed, mended=False):
    train, valid = cargo(seed)
    if not mended:
        for x, _ in (train, valid):
            x[:, [0, 3, 4, 6]] = 0.0
    return fit(mlp(8, 32, 3), train, valid, epochs=10)


@case("duplicate-features", kind="table", author=ME)
def k_manifest_joined_with_itself(seed):
    train, valid = cargo(seed)
    train, valid = ((torch.cat([x, x[:, :6], x[:, :6]], 1), y) for x, y in (train, valid))
    return fit(mlp(20, 24, 3), train, valid, epochs=8)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def k_speed_twice(seed):
    train, valid = voyage(seed)
    train, valid = ((torch.cat([x, x[:, :1]], 1), y) for x, y in (train, valid))
    return fit(mlp(7, 48, 1), train, valid, "mse", epochs=25, tell=())


@case("train-test-overlap", kind="images", author=ME)
def k_same_flags_again(seed):
    (x, y), (vx, vy) = flags(seed)
    vx, vy = torch.cat([vx[:60], x[100:240]]), torch.cat([vy[:60], y[100:240]])
    return fit(eye(), (x, y), (vx, vy), epochs=6)


@case("train-test-overlap", kind="table", author=ME, strength="mild")
def k_voyages_copied_over(seed):
    (x, y), (vx, vy) = voyage(seed)
    vx[:90], vy[:90] = x[300:390], y[300:390]
    return fit(mlp(6, 32, 1), (x, y), (vx, vy), "mse", epochs=25, tell=("optimizer",))


@case("distribution-shift", kind="table", author=ME)
def k_winter_storms(seed, mended=False):
    train, (vx, vy) = voyage(seed)
    if not mended:
        r = rng(seed, 60)
        v = vx.numpy() + np.array([2.5, 0, 2.5, 0, 2.0, 0])
        whole_y = burn(rng(seed, 2).normal(size=(1500, 6)))  # about the units the target is in
        vx, vy = (
            real(v),
            real((burn(v) + 0.3 * r.normal(size=len(v)) - whole_y.mean()) / whole_y.std())[:, None],
        )
    return fit(mlp(6, 32, 1), train, (vx, vy), "mse", epochs=20)


@case("distribution-shift", kind="images", author=ME, strength="mild")
def k_fog_over_the_signals(seed, mended=False):
    train, (vx, vy) = flags(seed)
    if not mended:
        vx = 0.35 * vx + 0.9
    return fit(eye(), train, (vx, vy), epochs=6, tell=())


@case("target-leak", kind="table", author=ME)
def k_shed_already_stamped(seed):
    train, valid = cargo(seed, sharp=1.2)
    train, valid = (
        (torch.cat([x, (y[:, None] - 1.0) + 0.02 * torch.randn(len(y), 1)], 1), y) for x, y in (train, valid)
    )
    return fit(mlp(9, 32, 3), train, valid, epochs=12)


@case("target-leak", kind="table", author=ME, strength="mild")
def k_bunker_invoice_among_the_inputs(seed):
    train, valid = voyage(seed, noise=1.2)
    train, valid = ((torch.cat([x, 0.6 * y + 0.01 * torch.randn_like(y)], 1), y) for x, y in (train, valid))
    return fit(mlp(7, 32, 1), train, valid, "mse", epochs=20, tell=())


@case("misaligned-labels", kind="table", author=ME)
def k_ledger_one_row_down(seed, mended=False):
    (x, y), (vx, vy) = cargo(seed)
    if not mended:
        y, vy = y.roll(1), vy.roll(1)
    return fit(mlp(8, 24, 3), (x, y), (vx, vy), epochs=10)


@case("misaligned-labels", kind="sequences", author=ME)
def k_tracks_sorted_labels_not(seed, mended=False):
    (x, y), valid = tracks(seed)
    if not mended:
        y = y.roll(-2)
    return fit(Listener(), (x, y), valid, epochs=10, tell=())


@case("no-signal", kind="table", author=ME)
def k_hull_colour_and_fuel(seed):
    r = rng(seed, 61)
    train, valid = cut(real(r.normal(size=(900, 7))), real(r.normal(size=(900, 1))))
    return fit(mlp(7, 12, 1), train, valid, "mse", epochs=4)


@case("no-signal", kind="text", author=ME, strength="mild")
def k_chatter_before_the_call(seed, mended=False):
    train, valid = radio(seed, own=0.3 if mended else 0.0)
    return fit(Bag(), train, valid, epochs=4)


@case("label-noise", kind="images", author=ME)
def k_tired_flag_reader(seed, mended=False):
    (x, y), valid = flags(seed)
    if not mended:
        wrong = torch.rand(len(y)) < 0.4
        y = torch.where(wrong, torch.randint(4, y.shape), y)
    return fit(eye(), (x, y), valid, epochs=12)


@case("label-noise", kind="table", author=ME, strength="mild")
def k_clerk_guesses(seed, mended=False):
    (x, y), valid = cargo(seed, sharp=12.0)
    if not mended:
        wrong = torch.rand(len(y)) < 0.3
        y = torch.where(wrong, (y + torch.randint(1, 3, y.shape)) % 3, y)
    return fit(mlp(8, 64, 64, 3), (x, y), valid, epochs=6, tell=("history",))


def contraband(seed, n=1600, rate=0.03):
    r = rng(seed, 62)
    x = r.normal(size=(n, 8))
    y = (r.random(n) < rate).astype(int)
    x[y == 1, :3] += 1.3
    return cut(real(x), whole(y), 0.6)


@case("class-imbalance", kind="table", author=ME)
def k_contraband_never_found(seed, mended=False):
    train, valid = contraband(seed)
    weight = torch.tensor([1.0, 30.0]) if mended else torch.ones(2)
    return fit(
        mlp(8, 8, 2),
        train,
        valid,
        epochs=8,
        lr=5e-3,
        wd=0.1,
        given=lambda o, y: F.cross_entropy(o, y, weight),
    )


@case("class-imbalance", kind="images", author=ME, strength="mild")
def k_rare_distress_flag(seed, mended=False):
    (x, y), (vx, vy) = flags(seed, n=1400, noise=1.1)
    parts = []
    for a, b in ((x, y), (vx, vy)):
        kept = (b != 1) | (torch.arange(len(b)) % 12 == 0)
        parts.append((a[kept], b[kept]))
    weight = torch.tensor([1.0, 10.0 if mended else 1.0, 1.0, 1.0])
    return fit(eye(channels=6), *parts, epochs=4, lr=4e-3, given=lambda o, y: F.cross_entropy(o, y, weight))


# --- objective -------------------------------------------------------------------------------------------------------


@case("double-softmax", kind="images", author=ME)
def k_flags_softmaxed_twice(seed, mended=False):
    train, valid = flags(seed)
    net = eye() if mended else nn.Sequential(*eye(), nn.Softmax(1))
    return fit(net, train, valid, epochs=5, lr=3e-3)


class Shares(nn.Module):
    def __init__(self, plain):
        super().__init__()
        self.ears, self.plain = Listener(kind=nn.LSTM), plain

    def forward(self, x):
        z = self.ears(x)
        return z if self.plain else F.softmax(z, dim=-1)


@case("double-softmax", kind="sequences", author=ME, strength="mild")
def k_tracks_as_shares(seed, mended=False):
    train, valid = tracks(seed)
    return fit(Shares(mended), train, valid, epochs=35, tell=())


@case("wrong-loss", kind="table", author=ME)
def k_column_against_row(seed, mended=False):
    (x, y), (vx, vy) = voyage(seed)
    y, vy = y[:, 0], vy[:, 0]
    net = nn.Sequential(mlp(6, 32, 1), nn.Flatten(0)) if mended else mlp(6, 32, 1)
    return fit(net, (x, y), (vx, vy), lambda o, t: ((o - t) ** 2).mean(), epochs=20)


@case("wrong-loss", kind="text", author=ME)
def k_nll_of_bare_scores(seed, mended=False):
    train, valid = radio(seed)
    net = nn.Sequential(Bag(), nn.LogSoftmax(1)) if mended else Bag()
    return fit(net, train, valid, "nll", epochs=8)


@case("output-range", kind="table", author=ME)
def k_fuel_through_a_sigmoid(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 32, 1) if mended else nn.Sequential(mlp(6, 32, 1), nn.Sigmoid())
    return fit(net, train, valid, "mse", epochs=20)


@case("output-range", kind="table", author=ME, strength="mild")
def k_deviation_never_negative(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 48, 1) if mended else nn.Sequential(mlp(6, 48, 1), nn.Softplus())
    return fit(net, train, valid, "mse", epochs=20, tell=("optimizer", "batch_size"))


class AlwaysDropping(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(8, 48), nn.Linear(48, 3), drop

    def forward(self, x):
        return self.last(F.dropout(self.first(x).relu(), self.drop, training=self.drop > 0))


@case("stochastic-evaluation", kind="table", author=ME)
def k_dropout_that_never_rests(seed, mended=False):
    train, valid = cargo(seed)
    return fit(AlwaysDropping(0.0 if mended else 0.6), train, valid, epochs=12)


@case("stochastic-evaluation", kind="text", author=ME, strength="mild")
def k_radio_left_in_training(seed, mended=False):
    train, valid = radio(seed)
    handed = fit(Bag(drop=0.5, width=24), train, valid, epochs=8, tell=())
    handed["model"].train(not mended)
    return handed


# --- graph and loop --------------------------------------------------------------------------------------------------


class Cutting(nn.Module):
    def __init__(self, whole_way):
        super().__init__()
        self.body, self.head, self.whole_way = mlp(6, 24, 3, act=nn.Tanh), nn.Linear(3, 1), whole_way

    def forward(self, x):
        z = self.body(x)
        return self.head(z if self.whole_way else z.detach())


@case("detached-parameters", kind="table", author=ME)
def k_logbook_cut_in_two(seed, mended=False):
    train, valid = voyage(seed)
    return fit(Cutting(mended), train, valid, "mse", epochs=20)


class NumpyMiddle(nn.Module):
    def __init__(self, whole_way):
        super().__init__()
        self.look, self.whole_way = nn.Conv2d(1, 4, 3, stride=2), whole_way
        self.answer = nn.Linear(4 * 25, 4)

    def forward(self, x):
        seen = self.look(x).relu().flatten(1)
        if not self.whole_way:
            seen = torch.tensor(seen.detach().numpy().round(1))
        return self.answer(seen)


@case("detached-parameters", kind="images", author=ME, strength="mild")
def k_through_numpy_and_back(seed, mended=False):
    train, valid = flags(seed, noise=0.9)
    return fit(NumpyMiddle(mended), train, valid, epochs=10, tell=("initial", "history"))


@case("frozen-parameters", kind="table", author=ME)
def k_only_the_head_was_passed(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 5, 4, 1)

    def make(parameters):
        return torch.optim.Adam(parameters if mended else net[-1].parameters(), lr=1e-2)

    return fit(net, train, valid, "mse", epochs=20, make=make)


@case("frozen-parameters", kind="text", author=ME)
def k_words_never_trained(seed, mended=False):
    train, valid = radio(seed)
    net = Bag(width=3)
    net.words.weight.requires_grad_(mended)
    return fit(net, train, valid, epochs=10)


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def k_slate_never_wiped(seed, mended=False):
    train, valid = cargo(seed)

    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.2)

    handed = fit(mlp(8, 24, 3), train, valid, epochs=15, make=make, clear=mended)
    return handed | {"step": stepper(make, F.cross_entropy, clear=mended)}


@case("gradients-not-cleared", kind="images", author=ME, strength="mild", needs=("step",))
def k_flags_heaped_up(seed, mended=False):
    train, valid = flags(seed)

    def make(parameters):
        return torch.optim.Adam(parameters, lr=3e-3)

    handed = fit(eye(channels=6), train, valid, epochs=5, make=make, clear=mended)
    return handed | {"step": stepper(make, F.cross_entropy, clear=mended)}
