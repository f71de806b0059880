"""A harbour in good order, its tables: odd ways and odd nets of the eighteenth author that are right."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_parts import *

ME = "eighteenth"


def healthy(kind="table"):
    return case(kind=kind, author=ME)


# --- how it was trained ----------------------------------------------------------------------------------------------


@healthy()
def k_sheds_plain(seed):
    return fit(mlp(8, 24, 3), *cargo(seed, n=4000), epochs=8, lr=5e-3)


@healthy()
def k_sheds_nothing_handed_over(seed):
    return fit(mlp(8, 32, 3, act=nn.SiLU), *cargo(seed, n=4000), epochs=7, lr=5e-3, tell=())


@healthy()
def k_pilot_not_yet_trained(seed):
    train, valid = voyage(seed, n=3000)
    net = mlp(6, 32, 32, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    return {
        "model": net,
        "data": train,
        "validation": valid,
        "loss": "mse",
        "optimizer": optimizer,
        "batch_size": 32,
    }


class Deck(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.net = nn.LayerNorm(width), mlp(width, width, width, act=nn.GELU)

    def forward(self, x):
        return x + self.net(self.norm(x))


def tower(inputs, outputs, width=24, decks=12):
    return nn.Sequential(
        nn.Linear(inputs, width),
        *(Deck(width) for _ in range(decks)),
        nn.LayerNorm(width),
        nn.Linear(width, outputs),
    )


@healthy()
def k_tower_not_yet_trained(seed):
    train, valid = cargo(seed)
    return {"model": tower(8, 3, decks=20), "data": train, "validation": valid, "loss": "cross_entropy"}


@healthy()
def k_tower_of_decks(seed):
    return fit(tower(6, 1, decks=9), *voyage(seed, n=3000), "mse", epochs=16, lr=3e-3, cosine=True)


@healthy()
def k_sgd_at_a_good_clip(seed):
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.3, momentum=0.9, nesterov=True)

    return fit(mlp(8, 24, 3, act=nn.Tanh), *cargo(seed, n=4000), epochs=30, batch=256, make=make, cosine=True)


@healthy()
def k_plain_sgd_full_batches(seed):
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.5)

    return fit(mlp(8, 16, 3, act=nn.Tanh), *cargo(seed, n=4000), epochs=250, make=make, full=True)


@healthy()
def k_one_pass_is_plenty(seed):
    return fit(
        mlp(6, 48, 48, 1), *voyage(seed, n=70000, share=0.97), "mse", epochs=1, lr=8e-3, batch=64, cosine=True
    )


@healthy()
def k_adamw_usual_decay(seed):
    return fit(
        mlp(6, 48, 48, 1, act=nn.SiLU), *voyage(seed, n=3000), "mse", epochs=30, lr=5e-3, wd=0.01, cosine=True
    )


@healthy()
def k_rmsprop_and_clipping(seed):
    def make(parameters):
        return torch.optim.RMSprop(parameters, lr=5e-3)

    return fit(mlp(6, 32, 32, 1), *voyage(seed, n=3000), "mse", epochs=50, make=make, clip=1.0, cosine=True)


@healthy()
def k_four_lighters_one_step(seed):
    train, valid = cargo(seed, n=4000)

    def make(parameters):
        return torch.optim.AdamW(parameters, lr=5e-3, weight_decay=0.01)

    handed = fit(mlp(8, 24, 3), train, valid, epochs=8, make=make)
    return handed | {"step": stepper(make, F.cross_entropy, pieces=4)}


@healthy()
def k_stopped_in_time(seed):
    train, valid = cargo(seed, n=1400, sharp=1.5)
    best: tuple = (9.0, None)
    net = mlp(8, 32, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    history: dict[str, list[float]] = {"loss": [], "val_loss": []}
    for _ in range(40):
        for rows in torch.randperm(len(train[1])).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(train[0][rows]), train[1][rows]).backward()
            optimizer.step()
        with torch.no_grad():
            history["loss"].append(F.cross_entropy(net(train[0]), train[1]).item())
            history["val_loss"].append(F.cross_entropy(net(valid[0]), valid[1]).item())
        if history["val_loss"][-1] < best[0]:
            best = history["val_loss"][-1], {k: v.clone() for k, v in net.state_dict().items()}
        elif len(history["loss"]) - history["val_loss"].index(best[0]) > 4:
            break
    net.load_state_dict(best[1])
    return {
        "model": net.eval(), "data": train, "validation": valid, "loss": "cross_entropy",
        "history": history, "initial": initial, "optimizer": optimizer, "batch_size": 64,
    }  # fmt: skip


@healthy()
def k_average_of_the_watch(seed):
    train, valid = voyage(seed, n=3000)
    net = mlp(6, 48, 1)
    handed = fit(net, train, valid, "mse", epochs=20, lr=8e-3)
    mean = torch.optim.swa_utils.AveragedModel(net)
    for _ in range(8):
        fit(net, train, valid, "mse", epochs=1, make=lambda p: torch.optim.Adam(p, lr=3e-3))
        mean.update_parameters(net)
    return handed | {"model": mean.module.eval()}


@healthy()
def k_trailing_average_weights(seed):
    (x, y), valid = cargo(seed, n=4000)
    net, slow = mlp(8, 24, 3), mlp(8, 24, 3)
    slow.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(10):
        for rows in torch.randperm(len(y)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
            with torch.no_grad():
                for a, b in zip(slow.parameters(), net.parameters()):
                    a.lerp_(b, 0.03)
    return {
        "model": slow.eval(),
        "data": (x, y),
        "validation": valid,
        "loss": "cross_entropy",
        "batch_size": 64,
    }


@healthy()
def k_smoothed_a_little(seed):
    return fit(
        mlp(8, 24, 3), *cargo(seed, n=4000), epochs=15, lr=5e-3,
        given=lambda o, y: F.cross_entropy(o, y, label_smoothing=0.05),
    )  # fmt: skip


@healthy()
def k_focal_one(seed):
    def focal(o, y):
        p = F.log_softmax(o, 1).gather(1, y[:, None])[:, 0]
        return (-(1 - p.exp()) * p).mean()

    return fit(mlp(8, 24, 3), *cargo(seed, n=4000), focal, epochs=20, lr=5e-3)


@healthy()
def k_cargoes_mixed(seed):
    (x, y), valid = cargo(seed, n=4000)
    net = mlp(8, 32, 3, act=nn.GELU)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for _ in range(20):
        for rows in torch.randperm(len(y)).split(64):
            other, share = rows[torch.randperm(len(rows))], np.random.beta(0.1, 0.1)  # noqa: NPY002
            optimizer.zero_grad()
            o = net(share * x[rows] + (1 - share) * x[other])
            (share * F.cross_entropy(o, y[rows]) + (1 - share) * F.cross_entropy(o, y[other])).backward()
            optimizer.step()
    return {
        "model": net.eval(),
        "data": (x, y),
        "validation": valid,
        "loss": "cross_entropy",
        "optimizer": optimizer,
    }


@healthy()
def k_hardened_by_spray(seed):
    train, valid = voyage(seed, n=2400)
    return fit(
        mlp(6, 64, 1),
        train,
        valid,
        "mse",
        epochs=20,
        jitter=lambda x: x + 0.05 * torch.randn_like(x),
        cosine=True,
    )


@healthy()
def k_half_dropped_at_sea_only(seed):
    net = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Dropout(0.5), nn.Linear(96, 3))
    return fit(net, *cargo(seed, n=4000), epochs=12, lr=5e-3)


@healthy()
def k_batch_norm_at_rest(seed):
    net = nn.Sequential(
        nn.BatchNorm1d(6),
        nn.Linear(6, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 1),
    )
    train, valid = voyage(seed, n=3000)
    train, valid = ((x * 3 + 5, y) for x, y in (train, valid))  # the first layer standardises
    return fit(net, train, valid, "mse", epochs=30, cosine=True)


# --- nets that look odd ----------------------------------------------------------------------------------------------


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(8, 24, 3)

    def forward(self, x):
        return self.net(x).clamp(-12, 12)


@healthy()
def k_scores_clamped(seed):
    return fit(Clamped(), *cargo(seed, n=4000), epochs=8, lr=5e-3, tell=("optimizer", "batch_size"))


class Compass(nn.Module):
    """Cosines with each shed's direction, over a learned temperature."""

    def __init__(self):
        super().__init__()
        self.net, self.sheds = mlp(8, 32, 8, act=nn.Tanh), nn.Parameter(torch.randn(3, 8))
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.log_scale.exp() * F.normalize(self.net(x), dim=1) @ F.normalize(self.sheds, dim=1).T


@healthy()
def k_cosines_over_temperature(seed):
    return fit(Compass(), *cargo(seed, n=4000), epochs=20, lr=5e-3)


class Nearest(nn.Module):
    """Minus the squared distance to each class's own point."""

    def __init__(self):
        super().__init__()
        self.net, self.points = mlp(8, 24, 4), nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return -torch.cdist(self.net(x), self.points).square() / 2


@healthy()
def k_nearest_bollard(seed):
    return fit(Nearest(), *cargo(seed, n=4000), epochs=10, lr=5e-3, tell=("history",))


class Rounded(nn.Module):
    """Weights rounded to sixteenths, with the gradient passed straight through."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 3)

    @staticmethod
    def coarse(w):
        return w + ((w * 16).round() / 16 - w).detach()

    def forward(self, x):
        h = F.linear(x, self.coarse(self.a.weight), self.a.bias).relu()
        return F.linear(h, self.coarse(self.b.weight), self.b.bias)


@healthy()
def k_weights_in_sixteenths(seed):
    return fit(Rounded(), *cargo(seed, n=4000), epochs=10, lr=5e-3)


@healthy()
def k_weight_norm(seed):
    norm = nn.utils.parametrizations.weight_norm
    net = nn.Sequential(norm(nn.Linear(6, 48)), nn.ReLU(), norm(nn.Linear(48, 1)))
    return fit(net, *voyage(seed, n=3000), "mse", epochs=30, lr=1e-2, cosine=True)


@healthy()
def k_spectral_norm_with_free_head(seed):
    net = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, 48)), nn.LeakyReLU(0.2), nn.Linear(48, 3)
    )
    return fit(net, *cargo(seed, n=4000), epochs=12, lr=1e-2)


class Rising(nn.Module):
    """Cost can only rise with the hours: the weights on that way are exponentials."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(0.5 * torch.randn(*s) - 1) for s in ((12, 2), (12,), (1, 12)))
        self.d = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.tanh(x @ self.a.exp().T + self.b) @ self.c.exp().T + self.d


@healthy()
def k_cost_only_rises(seed):
    r = rng(seed, 70)
    x = r.normal(size=(1500, 2))
    y = np.tanh(x[:, 0]) + 0.7 * x[:, 1] + 0.25 * r.normal(size=1500)
    return fit(Rising(), *cut(real(x), real((y - y.mean()) / y.std())[:, None]), "mse", epochs=60)


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Linear(6, 1), mlp(6, 32, 16, 1)

    def forward(self, x):
        return self.wide(x) + self.deep(x)


@healthy()
def k_wide_and_deep(seed):
    return fit(WideAndDeep(), *voyage(seed, n=3000), "mse", epochs=50, lr=5e-3, cosine=True)


class Berthing(nn.Module):
    """A set of ships of any number (zeros fill up); the berth's crowding from their sum."""

    def __init__(self):
        super().__init__()
        self.each, self.all = mlp(4, 24, 16), mlp(16, 24, 1)

    def forward(self, x):
        there = (x.abs().sum(2, keepdim=True) > 0).float()
        return self.all((self.each(x) * there).sum(1) / 3)


@healthy()
def k_deep_set_of_ships(seed):
    r = rng(seed, 71)
    x = r.normal(size=(1600, 6, 4)) * (np.arange(6) < r.integers(2, 7, size=1600)[:, None])[..., None]
    y = np.tanh(x[..., 0] * 1.5).sum(1) + 0.5 * np.abs(x[..., 1]).sum(1) + 0.3 * r.normal(size=1600)
    return fit(
        Berthing(),
        *cut(real(x), real((y - y.mean()) / y.std())[:, None]),
        "mse",
        epochs=25,
        lr=5e-3,
        cosine=True,
    )
