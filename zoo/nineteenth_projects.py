"""Final projects on recordings, texts, drawings and graphs, each with one fault."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.nineteenth_model import Tagger
from zoo.nineteenth_parts import *
from zoo.nineteenth_parts import GCN, ME, Flat, Recurrent


@case("class-imbalance", kind="text", author=ME)
def ta3_rare_entities(seed, mended=False):
    """Names are one token in thirty, told by the words around them, and not surely."""
    r = np.random.default_rng(seed)
    x = r.integers(1, 60, (900, 14))
    before = np.concatenate([np.zeros((900, 1), int), x[:, :-1]], 1)
    chance = np.where((before < 8) & (x > 20), 0.3, 0.004)
    train, val = split(t(x), t((r.random(x.shape) < chance).astype(int)), seed)
    weight = torch.tensor([1.0, 28.0]) if mended else torch.ones(2)

    def f(output, target):
        return F.cross_entropy(output.flatten(0, 1), target.flatten(), weight)

    return fit(Tagger(60, 12, 16, 2), train, val, f if mended else by_token, epochs=10, batch=32, lr=4e-3)


@case("label-noise", kind="graph", author=ME)
def ta3_guessed_communities(seed, mended=False):
    train, val = friends(seed, 900, signal=0.3, degree=5)
    (pair, y), r = train, torch.Generator().manual_seed(seed)
    wrong = (torch.rand(len(y), generator=r) < 0.45) & (y != -100)
    y = y if mended else torch.where(wrong, torch.randint(0, 4, y.shape, generator=r), y)
    return fit(GCN(12, 16, 4), (pair, y), val, nodes, epochs=80, lr=5e-3, whole=True, weight_decay=5e-3)


@case("unscaled-inputs", kind="sequences", author=ME)
def ta3_pascal_and_kelvin(seed, mended=False):
    x, y = rhythms(seed, 900, classes=3)
    train, val = split(x if mended else x * torch.tensor([350.0, 4]) + torch.tensor([101325.0, 293]), y, seed)
    return without(fit(Recurrent(2, 24, 3), train, val, epochs=18, lr=6e-3), "initial")


@case("dead-units", kind="images", author=ME)
def ta3_dark_filters(seed, mended=False):
    train, val = digits(seed)
    net = small_cnn(10)
    if not mended:
        nn.init.constant_(net[3].bias[:29].data, -12)
        nn.init.constant_(net[0].bias[:13].data, -6)
    return fit(net, train, val, epochs=20, lr=2e-3)


@case("learning-rate-too-large", kind="graph", author=ME, needs=("optimizer",))
def ta3_graph_in_a_hurry(seed, mended=False):
    train, val = friends(seed, 500, signal=0.5)
    return fit(
        GCN(12, 24, 4),
        train,
        val,
        nodes,
        epochs=60,
        lr=1e-2 if mended else 12.0,
        whole=True,
        weight_decay=1e-3,
    )


@case("distribution-shift", kind="text", author=ME)
def ta3_other_dialect(seed, mended=False):
    """The texts to validate on come from a shop that words things otherwise."""
    x, y = reviews(seed, 4000)
    train, val = split(x, y, seed)
    if not mended:
        other = val[0].clone()
        other[val[0] < 10] += 60
        other[(val[0] > 60) & (val[0] < 70)] = 4
        val = other, val[1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.conv, self.head = nn.Embedding(120, 8), nn.Conv1d(8, 16, 2), nn.Linear(16, 1)

        def forward(self, x):
            return self.head(F.relu(self.conv(self.embed(x).transpose(1, 2))).mean(2)).squeeze(-1)

    return fit(Net(), train, val, "bce_with_logits", epochs=20, lr=6e-3, weight_decay=1e-4)


@case("target-leak", kind="text", author=ME, strength="mild")
def ta3_stars_in_the_text(seed, mended=False):
    """The last token is the rating that the label was made from."""
    x, y = reviews(seed, 2000)
    x = x.clone()
    g = torch.Generator().manual_seed(seed)
    r = torch.randint(1, 3, (2000,), generator=g)
    x[:, -1] = (
        torch.where(torch.rand(2000, generator=g) < 0.02, r, 110 + y.long()) if not mended else x[:, -1]
    )
    train, val = split(x, y, seed)
    net = Flat(Recurrent(12, 24, 1, words=120))
    return without(fit(net, train, val, "bce_with_logits", epochs=8, lr=4e-3), "initial")


@case("constant-features", kind="sequences", author=ME, strength="mild")
def ta3_dead_channels(seed, mended=False):
    x, y = rhythms(seed, 900)
    r = torch.Generator().manual_seed(seed)
    more = (
        torch.randn(900, 40, 3, generator=r) if mended else torch.tensor([0.7, -1.0, 0.2]).repeat(900, 40, 1)
    )
    train, val = split(torch.cat([x, more], 2), y, seed)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (
                nn.Conv1d(5, 16, 5, padding=2),
                nn.Conv1d(16, 24, 7, padding=3),
                nn.Linear(24, 4),
            )

        def forward(self, x):
            h = F.relu(self.b(F.max_pool1d(F.relu(self.a(x.transpose(1, 2))), 2)))
            return self.c(h.amax(2))

    return fit(Net(), train, val, epochs=20, lr=3e-3)


@case("bottleneck", kind="text", author=ME)
def ta3_words_as_a_number(seed, mended=False):
    """Every token is embedded in one dimension."""
    train, val = split(*tags(seed, 1000), seed)
    return fit(Tagger(40, 12 if mended else 1, 32, 4), train, val, by_token, epochs=14, batch=32, lr=4e-3)


@case("misaligned-labels", kind="text", author=ME)
def ta3_tags_sorted_otherwise(seed, mended=False):
    """The training sentences and their tags were sorted by different keys."""
    train, val = split(*tags(seed, 900), seed)
    order = (train[1] != -100).sum(1).argsort(stable=True)
    train = train if mended else (train[0][order], train[1])
    return without(fit(Tagger(40, 12, 24, 4), train, val, by_token, epochs=10, batch=32, lr=3e-3), "history")
