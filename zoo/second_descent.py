"""Faults of the graph, the loop, the start, the architecture and the descent, by the second author."""

from __future__ import annotations

import weakref

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.second_parts import *  # noqa: F403

ME = "second"


def squeezed(out, y):
    return F.mse_loss(out.squeeze(-1), y)


class PlainList(nn.Module):
    """Hidden layers kept in a Python list, which registers nothing."""

    def __init__(self, d, width, out, depth, register):
        super().__init__()
        self.layers = [nn.Linear(d if i == 0 else width, width) for i in range(depth)]
        self.out = nn.Linear(width, out)
        if register:
            self.layers = nn.ModuleList(self.layers)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


@case("detached-parameters", kind="table", author=ME)
def b_layers_in_a_python_list(seed, fixed=False):
    """self.layers = [Linear, ...] hides the hidden layers from parameters(): only the last trains; ModuleList repairs."""
    train, val, test = friedman(seed, 900)
    model = PlainList(8, 12, 1, 3, fixed)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, squeezed, opt, epochs=25, val=val)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=squeezed,
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


class CutCNN(SmallCNN):
    def forward(self, x):
        return self.head(self.features(x).detach())


class NoGradEmbedding(BagText):
    cut = True

    def forward(self, ids):
        mask = (ids > 0).unsqueeze(-1).float()
        with torch.set_grad_enabled(not self.cut and torch.is_grad_enabled()):
            mean = (self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.head(mean)


@case("detached-parameters", kind="text", author=ME, strength="mild")
def b_no_grad_around_the_embedding(seed, fixed=False):
    """The embedding is looked up under torch.no_grad() and stays random; trained, new texts score far better."""
    train, val, test = texts(seed, 600, share=0.25, vocabulary=300)
    model = NoGradEmbedding(300, 12)
    model.cut = not fixed
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=10)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=nn.CrossEntropyLoss(),
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("frozen-parameters", kind="text", author=ME, strength="mild")
def b_from_pretrained_freezes_by_default(seed, fixed=False):
    """Embedding.from_pretrained(random table) freezes by default: words stay random; freeze=False gains clearly."""
    train, val, test = texts(seed, 600, share=0.25, vocabulary=300)
    model = BagText(300, 12)
    model.embed = nn.Embedding.from_pretrained(torch.randn(300, 12), freeze=not fixed, padding_idx=0)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 5e-3)
    fit(model, *train, F.cross_entropy, opt, epochs=10)
    held(acc(model, *test))
    return dict(model=model, data=train, validation=val, loss="cross_entropy", optimizer=opt, batch_size=32)


def forgetful(make, loss, clear):
    """A user's step that never (or only now and then) calls zero_grad; clear(t) says when it does."""
    kept = weakref.WeakKeyDictionary()

    def step(model, batch):
        if model not in kept:
            kept[model] = [make(model), 0]
        opt, t = kept[model]
        x, y = batch
        model.train()
        if clear(t):
            opt.zero_grad()
        value = loss(model(x), y)
        value.backward()
        opt.step()
        kept[model][1] = t + 1
        return value.item()

    return step


def fit_steps(model, X, y, step, epochs=10, batch=32):
    history = []
    for _ in range(epochs):
        order, losses = torch.randperm(len(y)), []
        for i in range(0, len(y), batch):
            losses.append(step(model, (X[order[i : i + batch]], y[order[i : i + batch]])))
        history.append({"loss": float(np.mean(losses))})
    model.eval()
    return history


@case("gradients-not-cleared", kind="table", author=ME, needs=("step", "initial"))
def b_zero_grad_forgotten(seed, fixed=False):
    """No zero_grad anywhere: old gradients pile up and the loss swings; with it, R2 about 0.8."""
    train, val, test = friedman(seed)
    model = mlp(8, 48, 1)
    start = start_of(model)
    step = forgetful(lambda m: torch.optim.SGD(m.parameters(), 0.03), squeezed, lambda t: fixed)
    history = fit_steps(model, *train, step, 25)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=squeezed,
        batch_size=32,
        history=history,
        initial=start,
        step=step,
    )


@case("gradients-not-cleared", kind="sequences", author=ME, needs=("step",))
def b_zero_grad_on_the_wrong_object(seed, fixed=False):
    """zero_grad() is called on the loss criterion, not on model or optimiser; on the optimiser, the GRU learns."""
    train, val, test = signals(seed, 400, 32, 4, 0.4)
    model = Recurrent(1, 20, 4)
    start = start_of(model)
    criterion = nn.CrossEntropyLoss()
    kept = weakref.WeakKeyDictionary()

    def step(model, batch):
        opt = kept.setdefault(model, torch.optim.Adam(model.parameters(), 0.01))
        model.train()
        (opt if fixed else criterion).zero_grad()
        value = criterion(model(batch[0]), batch[1])
        value.backward()
        opt.step()
        return value.item()

    history = fit_steps(model, *train, step, 12)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=criterion,
        batch_size=32,
        history=history,
        initial=start,
        step=step,
    )


def constants(model, value, names=("",), bias=0.0):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if any(name.startswith(n) for n in names):
                p.fill_(bias if name.endswith("bias") else value)


@case("symmetric-initialisation", kind="images", author=ME)
def b_all_filters_alike(seed, fixed=False):
    """Convolutions filled with 0.05: every filter sees the same and stays the same; random filters reach 95 %."""
    train, val, test = digits(seed, 700)
    model = SmallCNN(width=8, norm=False)
    if not fixed:
        constants(model, 0.05, ("c1", "c2"))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=8)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


def widen(model, std, kinds=(nn.Linear,), last=False):
    layers = [m for m in model.modules() if isinstance(m, kinds)]
    with torch.no_grad():
        for m in layers if last else layers[:-1]:
            m.weight.normal_(0, std)


@case("saturated-units", kind="table", author=ME)
def b_tanh_with_normal_weights_of_three(seed, fixed=False):
    """normal_(0, 3) before tanh: all units sit at +-1 and learn nothing; Xavier gives the smooth function back."""
    train, val, test = friedman(seed)
    model = mlp(8, 48, 48, 1, act=nn.Tanh)
    if not fixed:
        widen(model, 3.0)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, squeezed, opt, epochs=25, val=val)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=squeezed,
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("saturated-units", kind="sequences", author=ME)
def b_recurrent_weights_of_four(seed, fixed=False):
    """A tanh RNN with normal_(0, 4) weights flips between -1 and 1 chaotically; orthogonal weights learn the waves."""
    train, val, test = signals(seed, 450, 24, 3, 0.3)
    model = Recurrent(1, 24, 3, nn.RNN)
    if fixed:
        nn.init.orthogonal_(model.rnn.weight_hh_l0)
    else:
        nn.init.normal_(model.rnn.weight_hh_l0, 0, 4)
        nn.init.normal_(model.rnn.weight_ih_l0, 0, 4)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=15)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("dead-units", kind="images", author=ME, strength="mild")
def b_most_filters_never_fire(seed, fixed=False):
    """The second convolution starts with bias -1.5: nearly all its filters are silent for good; at 0, 95 %."""
    train, val, test = digits(seed, 700)
    model = SmallCNN(width=8, norm=False)
    if not fixed:
        with torch.no_grad():
            model.c2.bias.fill_(-1.2)
            model.c2.bias[:2] = 0.0
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("exploding-gradient", kind="sequences", author=ME)
def b_relu_rnn_over_sixty_steps(seed, fixed=False):
    """A ReLU RNN whose recurrent matrix stretches by 1.9 in each of sixty steps; a start near the identity learns."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 3, 400)
    train, val, test = three(
        (0.6 * (y - 1.0)[:, None, None] + 0.8 * g.normal(size=(400, 1, 60))).astype("float32"), y, seed
    )
    model = Recurrent(1, 20, 3, nn.RNN, nonlinearity="relu")
    if fixed:
        nn.init.eye_(model.rnn.weight_hh_l0).data.mul_(0.97)
    else:
        nn.init.orthogonal_(model.rnn.weight_hh_l0, 1.9)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=8)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("vanishing-gradient", kind="sequences", author=ME, strength="mild")
def b_plain_rnn_must_remember_the_start(seed, fixed=False):
    """The class is shown in the first steps of 70, a default tanh RNN forgets it; an LSTM with open forget gates keeps it."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 3, 450)
    X = 0.3 * g.normal(size=(450, 1, 70)).astype("float32")
    X[:, 0, :4] += (y[:, None] - 1.0) * 1.5
    train, val, test = three(X, y, seed)
    model = Recurrent(1, 16, 3, nn.LSTM if fixed else nn.RNN)
    if fixed:
        model.rnn.bias_ih_l0.data[16:32] = 4.0
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3 if not fixed else 0.01)
    history = fit(model, *train, F.cross_entropy, opt, epochs=10)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("oversmoothing", kind="graph", author=ME)
def b_twenty_graph_convolutions(seed, fixed=False):
    """Twenty graph convolutions without skips: all nodes look alike; two layers tell the blocks apart."""
    X, A, (train, val, test) = sbm(seed, 200, q=0.02)
    model = GCN(12, 24, 3, 2 if fixed else 20)
    for lin in model.lin:
        nn.init.kaiming_normal_(lin.weight)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit_graph(model, X, A, train, opt, 60, val)
    held(acc(model, (X, A), test))
    return dict(
        model=model,
        data=((X, A), train),
        validation=((X, A), val),
        loss="cross_entropy",
        optimizer=opt,
        history=history,
        initial=start,
    )


class SGC(nn.Module):
    """Simple graph convolution: average over the neighbours many times, then one linear map."""

    def __init__(self, d, classes, hops):
        super().__init__()
        self.lin, self.hops = nn.Linear(d, classes), hops

    def forward(self, x, adjacency):
        for _ in range(self.hops):
            x = adjacency @ x
        return self.lin(x)


class Causal(nn.Module):
    """A causal convolutional forecaster; dilation doubles per layer or not."""

    def __init__(self, width, layers, dilate):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv1d(1 if i == 0 else width, width, 3, dilation=2**i if dilate else 1)
                for i in range(layers)
            ]
        )
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(F.pad(x, (2 * conv.dilation[0], 0))))
        return self.out(x)[:, :, -1]


def _echo(seed, n=700, length=32, lag=12):
    """The next value repeats what was twelve steps before its end; otherwise noise."""
    g = np.random.default_rng(seed)
    X = g.normal(size=(n, 1, length)).astype("float32")
    y = (X[:, 0, length - 1 - lag] + 0.3 * X[:, 0, -1] + 0.2 * g.normal(size=n)).astype("float32")[:, None]
    return three(X, y, seed)


@case("receptive-field-too-small", kind="sequences", author=ME)
def b_undilated_causal_convolutions(seed, fixed=False):
    """Three causal convolutions of width 3 see 7 steps, the echo lies 12 back; dilated 1, 2, 4 they see 15."""
    train, val, test = _echo(seed, 600)
    model = Causal(16, 3, fixed)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, F.mse_loss, opt, epochs=14)
    held(r2(model, *test))
    return dict(
        model=model, data=train, validation=val, loss="mse", optimizer=opt, batch_size=32, history=history
    )


class Dense2d(nn.Module):
    """A fully convolutional network: a label per pixel."""

    def __init__(self, kernels, width=12, classes=3):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(1 if i == 0 else width, width, k, padding=k // 2) for i, k in enumerate(kernels)]
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.head(x)


def _bars(seed, n=120, side=16):
    """A pixel's class: 0 off; on a long bar 1, on a short bar 2 (bars of 13 and of 6 pixels)."""
    g = np.random.default_rng(seed)
    X, y = np.zeros((n, 1, side, side), "float32"), np.zeros((n, side, side), int)
    for i in range(n):
        for row in range(1, side, 3):
            long = g.random() < 0.5
            size = 13 if long else 6
            at = g.integers(0, side - size + 1)
            X[i, 0, row, at : at + size] = 1
            y[i, row, at : at + size] = 1 if long else 2
    return three(X + 0.1 * g.normal(size=X.shape).astype("float32"), y, seed, (0.5, 0.25))


@case("bottleneck", kind="images", author=ME)
def b_one_unit_in_the_middle(seed, fixed=False):
    """128 - 1 - 128 units for ten digits: the single unit cannot carry the class; with 32, above 90 %."""
    train, val, test = digits(seed, 700)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 32 if fixed else 1),
        nn.Tanh(),
        nn.Linear(32 if fixed else 1, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=20)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("batch-too-small", kind="images", author=ME, needs=("batch_size",))
def b_batch_norm_with_two_images(seed, fixed=False):
    """Batch normalisation over two images: its statistics are noise and eval differs from train; with 32 it is right."""
    train, val, test = digits(seed, 400)
    model = nn.Sequential(nn.Flatten(), mlp(64, 48, 48, 10, norm=nn.BatchNorm1d))
    opt = torch.optim.SGD(model.parameters(), 0.02)
    batch = 32 if fixed else 2
    history = fit(
        model, *train, F.cross_entropy, opt, epochs=20 if fixed else 4, batch=batch, val=val, drop_last=True
    )
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=batch,
        history=history,
    )


@case("learning-rate-too-large", kind="table", author=ME)
def b_adam_at_one_half(seed, fixed=False):
    """Adam at 0.5 throws the weights about; at 0.003 the same net is right."""
    train, val, test = clusters(seed, 700, 12, 3, 1.5)
    model = mlp(12, 32, 16, 3)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3 if fixed else 0.5)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("learning-rate-too-large", kind="text", author=ME, strength="mild")
def b_transformer_at_the_rate_of_an_mlp(seed, fixed=False):
    """A small transformer with Adam at 0.15: its loss hovers near log 3; at 0.002 it learns the topics."""
    train, val, test = texts(seed, 400, share=0.3)
    model = TinyTransformer()
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 2e-3 if fixed else 0.15)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("learning-rate-too-small", kind="images", author=ME, needs=("optimizer", "history"))
def b_sgd_at_a_ten_thousandth(seed, fixed=False):
    """SGD at 0.0001 has hardly left the start after twelve epochs; at 0.05, above 90 %."""
    train, val, test = digits(seed, 700)
    model = SmallCNN(norm=False, width=8)
    start = start_of(model)
    opt = torch.optim.SGD(model.parameters(), 0.05 if fixed else 1e-4, momentum=0.9)
    history = fit(model, *train, F.cross_entropy, opt, epochs=10, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("learning-rate-too-small", kind="sequences", author=ME, strength="mild", needs=("optimizer", "history"))
def b_convolutions_creep(seed, fixed=False):
    """Adam at 0.0001 on a small convolutional net: the loss still falls steadily when training stops; at 0.005 it is done."""
    train, val, test = signals(seed, 450, 32, 4, 0.4)
    model = nn.Sequential(
        nn.Conv1d(1, 16, 7, padding=3),
        nn.ReLU(),
        nn.Conv1d(16, 16, 5),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3 if fixed else 1e-4)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("weight-decay-too-large", kind="text", author=ME, strength="mild")
def b_adam_with_l2_of_a_twentieth(seed, fixed=False):
    """Adam(weight_decay=0.05) is L2 in the gradient and drowns rare words; without it new texts score higher."""
    train, val, test = texts(seed, 500, share=0.3, classes=4)
    model = BagText(classes=4)
    opt = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=0.0 if fixed else 0.03)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("dropout-too-large", kind="images", author=ME)
def b_dropout_of_ninety_five_percent(seed, fixed=False):
    """Dropout(0.95), meant as keep probability, after both hidden layers: nothing gets through; at 0.05 it learns."""
    train, val, test = digits(seed, 600)
    model = nn.Sequential(nn.Flatten(), mlp(64, 48, 48, 10, drop=0.05 if fixed else 0.95))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=15, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("dropout-too-large", kind="graph", author=ME)
def b_graph_net_with_dropout_of_nine_tenths(seed, fixed=False):
    """A GCN of three layers with dropout 0.93: few nodes keep any feature in training; at 0.2 it classifies."""
    X, A, (train, val, test) = sbm(seed, classes=4, signal=0.45)
    model = GCN(12, 16, 4, 3, drop=0.2 if fixed else 0.93)
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit_graph(model, X, A, train, opt, 80)
    held(acc(model, (X, A), test))
    return dict(
        model=model,
        data=((X, A), train),
        validation=((X, A), val),
        loss="cross_entropy",
        optimizer=opt,
        history=history,
    )
