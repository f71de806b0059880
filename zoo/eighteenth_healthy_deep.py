"""A harbour in good order, its pictures, pairs and tracks: healthy set-ups of the eighteenth author."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_parts import *

ME = "eighteenth"


def healthy(kind):
    return case(kind=kind, author=ME)


# --- images ----------------------------------------------------------------------------------------------------------


@healthy("images")
def k_flags_plain(seed):
    return fit(eye(), *flags(seed, n=1400, noise=0.5), epochs=8, lr=5e-3)


@healthy("images")
def k_flags_batch_norm(seed):
    return fit(
        eye(norm=True), *flags(seed, n=900), epochs=6, lr=5e-3, batch=32, tell=("optimizer", "batch_size")
    )


class Skip(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.m, self.n = nn.GroupNorm(2, channels), nn.GroupNorm(2, channels)

    def forward(self, x):
        return F.relu(x + self.n(self.b(F.relu(self.m(self.a(x))))))


@healthy("images")
def k_flags_residual(seed):
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        Skip(8),
        Skip(8),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(72, 4),
    )
    return fit(net, *flags(seed, n=900), epochs=8, lr=5e-3)


@healthy("images")
def k_flags_depthwise(seed):
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.AvgPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 24, 1), nn.SiLU(),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(24 * 36, 4),
    )  # fmt: skip
    return fit(net, *flags(seed, n=900), epochs=8, lr=4e-3)


class Patches(nn.Module):
    """Nine patches that attend to each other, with learned places."""

    def __init__(self):
        super().__init__()
        self.look, self.places = nn.Conv2d(1, 24, 4, stride=4), nn.Parameter(0.02 * torch.randn(9, 24))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm, self.answer = nn.LayerNorm(24), nn.Linear(24, 4)

    def forward(self, x):
        h = self.look(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            h = block(h)
        return self.answer(self.norm(h).mean(1))


@healthy("images")
def k_flags_in_patches(seed):
    return fit(Patches(), *flags(seed, n=1200), epochs=10, lr=3e-3, cosine=True)


@healthy("images")
def k_container_numbers(seed):
    x, y = load_digits(return_X_y=True)
    order = rng(seed, 100).permutation(len(y))
    x = (x[order].reshape(-1, 1, 8, 8) - 4.9) / 6.0
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
    )  # fmt: skip
    return fit(net, *cut(real(x), whole(y[order])), epochs=10, lr=4e-3)


@healthy("images")
def k_black_borders(seed):
    """Pictures always padded with black: those pixels never change, as in any scanned form."""
    parts = [(F.pad(x, (2, 2, 2, 2)), y) for x, y in flags(seed, n=900)]
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(12 * 64, 4),
    )  # fmt: skip
    return fit(net, *parts, epochs=7, lr=4e-3)


@healthy("images")
def k_trunk_kept_from_other_flags(seed):
    """A trunk trained on many flags of another port, then frozen; only the head is trained here."""
    trunk = fit(eye(), *flags(seed + 1000, n=1200, noise=0.5), epochs=5, lr=5e-3)["model"][:-1]
    for p in trunk.parameters():
        p.requires_grad_(False)
    net = nn.Sequential(trunk, nn.Linear(12 * 36, 4))

    def make(_):
        return torch.optim.Adam(net[1].parameters(), lr=4e-3)

    return fit(net, *flags(seed, n=900, noise=0.5), epochs=25, make=make)


@healthy("images")
def k_turned_and_shifted(seed):
    (x, y), valid = flags(seed, n=900)

    def jitter(b):
        b = b.flip(3) if torch.rand(()) < 0.5 else b
        return b.roll(int(torch.randint(-1, 2, ())), 2) + 0.1 * torch.randn_like(b)

    return fit(eye(), (x, y), valid, epochs=10, lr=4e-3, jitter=jitter, cosine=True)


class Where(nn.Module):
    """Looks for the spot, and answers with the mean place of what it sees."""

    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
        self.register_buffer("place", (torch.arange(12) - 5.5) / 2)

    def forward(self, x):
        seen = self.look(x).flatten(1).softmax(1).view(-1, 12, 12)
        return torch.stack([seen.sum(2) @ self.place, seen.sum(1) @ self.place], 1)


@healthy("images")
def k_how_far_is_the_buoy(seed):
    """A number from a picture: where the bright spot lies, left to right and top to bottom."""
    r = rng(seed, 101)
    at = r.uniform(2, 9, size=(1000, 2))
    i = np.arange(12)
    x = np.exp(-((i[:, None] - at[:, 0, None, None]) ** 2 + (i - at[:, 1, None, None]) ** 2) / 2)
    x = x * 3 + 0.6 * r.normal(size=x.shape)
    return fit(Where(), *cut(real(x[:, None]), real((at - 5.5) / 2)), "mse", epochs=15, lr=8e-3, cosine=True)


# --- pairs and triples -----------------------------------------------------------------------------------------------


class Twins(nn.Module):
    """Whether two looks are of the same ship, from the distance of what one net makes of both."""

    def __init__(self):
        super().__init__()
        self.net, self.slope, self.at = (
            mlp(8, 32, 6),
            nn.Parameter(torch.ones(1)),
            nn.Parameter(torch.ones(1)),
        )

    def forward(self, a, b):
        return self.slope * (self.at - (self.net(a) - self.net(b)).square().sum(1).add(1e-6).sqrt())


def looks(seed, n, ways):
    r = rng(seed, 102)
    a = rng(seed, 103).normal(size=(4, 8))
    ship = r.normal(size=(n, 4))
    other = r.normal(size=(n, 4))
    shown = [ship, ship + 0.25 * r.normal(size=ship.shape), other][:ways]
    return r, [real(np.tanh(s @ a / 2) + 0.15 * r.normal(size=(n, 8))) for s in shown]


@healthy("table")
def k_same_ship_or_another(seed):
    r, (a, b, c) = looks(seed, 3000, 3)
    same = real(r.integers(2, size=3000))
    b = torch.where(same[:, None] > 0, b, c)
    return fit(Twins(), *cut((a, b), same), "bce_with_logits", epochs=12, lr=5e-3, wd=0.01)


class Triple(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(8, 32, 4)

    def forward(self, anchor, same, other):
        a, s, o = (F.normalize(self.net(x), dim=1) for x in (anchor, same, other))
        return (a - o).square().sum(1) - (a - s).square().sum(1)


@healthy("table")
def k_nearer_to_itself(seed):
    """Triples; the target (always one) only says on which side the margin lies."""
    _, (a, b, c) = looks(seed, 2000, 3)
    return fit(
        Triple(), *cut((a, b, c), torch.ones(2000)), lambda o, t: (0.3 - o * t).relu().mean(), epochs=8, lr=5e-3,
        tell=("optimizer", "batch_size"),
    )  # fmt: skip


# --- sequences -------------------------------------------------------------------------------------------------------


@healthy("sequences")
def k_tracks_both_ways(seed):
    return fit(
        Listener(both=True, width=12), *tracks(seed, n=900, noise=0.5), epochs=25, lr=1e-2, cosine=True
    )


@healthy("sequences")
def k_tracks_lstm_clipped(seed):
    return fit(
        Listener(kind=nn.LSTM, width=20), *tracks(seed, n=900), epochs=40, lr=1e-2, cosine=True, clip=1.0
    )


class Causal(nn.Module):
    """Dilated convolutions that look back only; a forecast at every step."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(a, 16, 2, dilation=d) for a, d in ((1, 1), (16, 2), (16, 4)))
        self.answer = nn.Conv1d(16, 1, 1)

    def forward(self, x):
        h = x.transpose(1, 2)
        for layer in self.layers:
            h = F.gelu(layer(F.pad(h, (layer.dilation[0], 0))))
        return self.answer(h).transpose(1, 2)


@healthy("sequences")
def k_swell_one_step_ahead(seed):
    r = rng(seed, 104)
    e = 0.5 * r.normal(size=(700, 40))
    s = np.zeros_like(e)
    for t in range(2, 40):
        s[:, t] = 1.3 * s[:, t - 1] - 0.7 * s[:, t - 2] + e[:, t]
    s = real(s[:, 8:, None])
    return fit(Causal(), *cut(s[:, :-1], s[:, 1:]), "mse", epochs=25, lr=5e-3, cosine=True)


class Tagger(nn.Module):
    """A tag for every step of logs of different lengths, packed on their way through the net."""

    def __init__(self):
        super().__init__()
        self.cell, self.answer = nn.GRU(3, 16, batch_first=True, bidirectional=True), nn.Linear(32, 3)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(
            self.cell(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return self.answer(h)


@healthy("sequences")
def k_logs_of_all_lengths(seed):
    r = rng(seed, 105)
    x = r.normal(size=(900, 12, 3))
    lengths = r.integers(5, 13, size=900)
    out = np.arange(12) >= lengths[:, None]
    x[out] = 0.0
    trend = (
        x[..., 0] + np.pad(x[..., 0], ((0, 0), (1, 1)))[:, :-2] + np.pad(x[..., 0], ((0, 0), (1, 1)))[:, 2:]
    )
    y = np.where(out, -100, np.digitize(trend / 3 + 0.3 * r.normal(size=out.shape), [-0.3, 0.3]))
    return fit(Tagger(), *cut((real(x), whole(lengths)), whole(y)), epochs=22, lr=1e-2, cosine=True)


class Places(nn.Module):
    """A transformer with learned places that reads the whole track."""

    def __init__(self):
        super().__init__()
        self.inward, self.places = nn.Linear(2, 24), nn.Parameter(0.1 * torch.randn(24, 24))
        self.block = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.1, batch_first=True, norm_first=True)
        self.answer = nn.Linear(24, 3)

    def forward(self, x):
        return self.answer(self.block(self.inward(x) + self.places).mean(1))


@healthy("sequences")
def k_tracks_by_attention(seed):
    return fit(Places(), *tracks(seed, n=900), epochs=12, lr=5e-3, cosine=True)


@healthy("sequences")
def k_track_statistics_by_convolution(seed):
    net = nn.Sequential(
        nn.Conv1d(2, 16, 7, padding=3), nn.ReLU(), nn.Conv1d(16, 16, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    parts = [(x.transpose(1, 2).contiguous(), y) for x, y in tracks(seed, n=900)]
    return fit(net, *parts, epochs=10, lr=5e-3, tell=())
