"""More faults of texts, graphs and autoencoders."""

from __future__ import annotations

import torch
from torch import nn

from zoo import case
from zoo.twentysecond_parts import *
from zoo.twentysecond_parts import ME


def fault(*causes, kind="table", strength="strong", needs=()):
    return case(*causes, kind=kind, author=ME, strength=strength, needs=needs)


@fault("learning-rate-too-large", kind="text")
def tw2_fast_attention(seed, mended=False):
    s = split(*sentences(start(seed)), scale=False)
    return run(s, Attend(0, 4, words=40), epochs=15, lr=4e-3 if mended else 0.4, batch=32)


@fault("double-softmax", kind="text", strength="mild")
def tw2_softmax_twice_tags(seed, mended=False):
    s = split(*sentences(start(seed)), scale=False)
    net = TagConv(16, 4, 24, words=40)
    return run(s, net if mended else nn.Sequential(net, nn.Softmax(-1)), tokens, epochs=10, lr=2e-3, batch=32)


@fault("label-noise", kind="text")
def tw2_noise_annotators(seed, mended=False):
    """A third of the tags, of both halves, was set without looking."""
    rng = start(seed)
    ids, tags = sentences(rng, 800)
    if not mended:
        wrong = (rng.random(tags.shape) < 0.4) & (tags >= 0)
        tags[wrong] = rng.integers(0, 4, int(wrong.sum()))
    s = split(ids, tags, scale=False)
    net = Recurrent(12, 4, 16, words=40, every=True, both=True)
    return run(s, net, epochs=10, lr=1e-2, batch=32, best=True)


@fault("misaligned-labels", kind="text")
def tw2_misaligned_start_token(seed, mended=False):
    """A start mark was added to the tags but not to the words: a word has the tag of the one before."""
    ids, tags = sentences(start(seed), 800, words=30)
    if not mended:
        tags[:, 1:] = tags[:, :-1].copy()
        tags[:, 0] = 0
        tags[ids == 0] = -100
    s = split(ids, tags, scale=False)
    net = nn.Sequential(nn.Embedding(40, 16), mlp(16, 48, 4))
    return run(s, net, epochs=15, lr=5e-3, batch=32, best=True)


@fault("overfit", kind="text")
def tw2_overfit_pairs_of_words(seed, mended=False):
    """Three dialects from eighty sentences, eighty times over."""
    x, y = dialects(start(seed), 1600, sharp=0.15)
    s = split(x, y, 0.75 if mended else 0.05, scale=False)
    net = Recurrent(16, 3, 48, words=30, mean=True)
    return run(
        s, net, epochs=15 if mended else 80, lr=5e-3 if mended else 1e-2, batch=32, best=mended, give="most"
    )


@fault("vanishing-gradient", kind="text", strength="mild")
def tw2_vanishing_topic_word(seed, mended=False):
    """The first word tells the topic; a plain recurrent net reads thirty-five more."""
    rng = start(seed)
    y = rng.integers(0, 3, 1000)
    ids = rng.integers(4, 40, (1000, 36))
    ids[:, 0] = y + 1
    s = split(ids, y, scale=False)
    net = Recurrent(12, 3, 20, cell=nn.GRU if mended else nn.RNN, words=40, mean=mended)
    if not mended:
        net.cell.weight_hh_l0.data.mul_(0.5)
    return run(s, net, epochs=14, lr=5e-3)


@fault("overfit", kind="graph")
def tw2_overfit_twelve_guilds(seed, mended=False):
    """Weak features, hardly a graph, twenty labelled nodes and a wide net."""
    s = society(start(seed), 600, weak=0.8, inside=0.02, outside=0.006)
    if not mended:
        mine = (s.y >= 0).nonzero()[:, 0]
        s.y[mine[24:]] = -100
    return run(
        s,
        Neighbours(12, 4, 24 if mended else 128),
        epochs=60 if mended else 300,
        lr=1e-2,
        full=True,
        best=mended,
    )


@fault("label-noise", kind="graph")
def tw2_noise_guilds(seed, mended=False):
    rng = start(seed)
    s = society(rng, 600)
    if not mended:
        for y in (s.y, s.vy):
            wrong = (y >= 0) & torch.as_tensor(rng.random(600) < 0.45)
            y[wrong] = torch.randint(0, 4, (int(wrong.sum()),))
    return run(s, Neighbours(12, 4, 16), epochs=40, lr=1e-2, full=True, best=True)


@fault("weight-decay-too-large", kind="graph")
def tw2_decay_molecules(seed, mended=False):
    s = split(*molecules(start(seed)))
    return run(s, Molecule(), "mse", epochs=20, lr=5e-3, wd=0.0 if mended else 0.5)


@fault("dead-units", kind="graph")
def tw2_dead_atoms(seed, mended=False):
    """The first layer's biases lie so low that no atom is ever heard."""
    s = split(*molecules(start(seed)))
    net = Molecule(depth=2)
    if not mended:
        net.own[0].bias.data.fill_(-9.0)
    return run(s, net, "mse", epochs=20, lr=3e-3)


@fault("distribution-shift", kind="graph")
def tw2_shift_scaffolds(seed, mended=False):
    """The held-out molecules come from a database that writes every bond with its order, here two."""
    s = split(*molecules(start(seed), 1200))
    if not mended:
        s.vx = (s.vx[0], 2 * s.vx[1])
    return run(s, Molecule(wide=16, pool="mean"), "mse", epochs=25, lr=5e-3)


@fault("misaligned-labels", kind="graph")
def tw2_misaligned_molecules(seed, mended=False):
    """The properties were sorted by another key than the molecules: the table is off by three."""
    x, y = molecules(start(seed), 1000)
    s = split(x, y if mended else np.roll(y, 3, 0))
    return run(s, Molecule(), "mse", epochs=8, lr=3e-3, best=True)


@fault("stochastic-evaluation", kind="graph")
def tw2_restless_edges(seed, mended=False):
    """Bonds are dropped at random as a regulariser, when predicting as well."""

    class Dropped(Molecule):
        def forward(self, x, a):
            keep = 1.0 if mended and not self.training else (torch.rand_like(a) > 0.15).float()
            return super().forward(x, a * keep)

    return run(split(*molecules(start(seed), 1000)), Dropped(), "mse", epochs=15, lr=4e-3)


@fault("output-range", kind="generative")
def tw2_range_of_decoder(seed, mended=False):
    """A sigmoid at the end of an autoencoder of standardised spectra."""
    x, _ = spectra(start(seed), 1400)
    s = split(x, x)
    s.y, s.vy = s.x, s.vx
    return run(s, mlp(64, 64, 12, 64, 64, last=None if mended else nn.Sigmoid()), "mse", epochs=30, lr=2e-3)


@fault("learning-rate-too-small", kind="generative")
def tw2_slow_autoencoder(seed, mended=False):
    x, _ = spectra(start(seed), 1400)
    s = split(x, x)
    s.y, s.vy = s.x, s.vx
    return run(s, mlp(64, 64, 12, 64, 64), "mse", epochs=25, lr=2e-3 if mended else 2e-5)


@fault("saturated-units", kind="generative")
def tw2_saturated_code(seed, mended=False):
    """The encoder's tanh units start with weights of four."""
    start(seed)
    x, _ = bundled("digits", seed)
    x = x[:, x.std(0) > 0.5] / 16
    s = split(x, x, scale=False)
    s.y, s.vy = s.x, s.vx
    k = x.shape[1]
    net = mlp(k, 48, 48, 16, k, act=nn.Tanh)
    if not mended:
        with torch.no_grad():
            for layer in net[:5:2]:
                layer.weight.normal_(0, 8.0)
    return run(s, net, "mse", epochs=25, lr=1e-3)


@fault("receptive-field-too-small", kind="graph")
def tw2_field_no_neighbours(seed, mended=False):
    """What counts are bonds, but the adjacency is the identity: an atom hears only itself."""
    x, y = molecules(start(seed), 1000)

    class Deaf(Molecule):
        def forward(self, x, a):
            return super().forward(x, a if mended else torch.eye(a.shape[1]).expand_as(a))

    return run(split(x, y), Deaf(), "mse", epochs=20, lr=4e-3, best=True)
