"""Single faults of the fourth author: every cause of the vocabulary, in things that users of PyTorch do.

Each case takes ``fixed=True``, which repairs the fault and nothing else.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

from zoo import case
from zoo.fourth_parts import *

table = functools.partial(case, kind="table", author=ME)
images = functools.partial(case, kind="images", author=ME)
sequences = functools.partial(case, kind="sequences", author=ME)
text = functools.partial(case, kind="text", author=ME)
graph = functools.partial(case, kind="graph", author=ME)
generative = functools.partial(case, kind="generative", author=ME)


def adam(rate=1e-3, **more):
    return lambda parameters: optim.Adam(parameters, lr=rate, **more)


def sgd(rate=0.05, momentum=0.9, **more):
    return lambda parameters: optim.SGD(parameters, lr=rate, momentum=momentum, **more)


# ---- data ----------------------------------------------------------------------------------------


@table("not-finite-data")
def clinic_with_missing_cells(seed, fixed=False):
    """Read a table with empty cells as NaN and trained on it without filling them."""
    parts = breast(seed)
    for X, _ in parts:
        empty = torch.rand(X.shape) < 0.04
        X[empty] = 0.0 if fixed else float("nan")
    return run(mlp(30, 32, 2), parts, "cross_entropy", adam(2e-3), score=accuracy, epochs=15)


@sequences("not-finite-data", strength="mild")
def logarithm_of_counts_with_zeros(seed, fixed=False):
    """Took the logarithm of counts of which some are zero, and skipped batches whose loss was not finite."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 800)
    rate = (
        6
        * np.exp(0.3 * np.where(y, 1, -1)[:, None] * np.linspace(-1, 1, 24))
        * rng.lognormal(0, 0.2, (800, 1))
    )
    count = rng.poisson(rate)[:, :, None].astype(float)
    with np.errstate(divide="ignore"):
        X = np.log1p(count) - 1.9 if fixed else np.log(count) - 1.7
    model = Recurrent(1, 16, 2, mean=True)
    return run(model, cut(X, y, seed), "cross_entropy", adam(5e-3), score=accuracy, epochs=15, skip=True)


class Bright(nn.Module):
    """A convolutional net that first divides each image by its length."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.net = kind, ConvNet()

    def forward(self, x):
        x = x.to(self.kind)
        length = (x * x).sum((1, 2, 3), keepdim=True).sqrt()
        return self.net((8 * x / length).float())


@images("overflow")
def length_of_an_image_in_half_precision(seed, fixed=False):
    """Normed images of 0..255 in half precision, whose squares sum to more than 65504."""
    parts = [(255 * X, y) for X, y in digits(seed)]
    model = Bright(torch.float32 if fixed else torch.float16)
    return run(model, parts, "cross_entropy", adam(2e-3), score=accuracy, epochs=8)


class Odds(nn.Module):
    """Judges a text by the odds of its words, which are multiplied or, in logarithms, added."""

    def __init__(self, safe, words=150):
        super().__init__()
        self.words, self.safe = nn.Embedding(words, 1), safe

    def forward(self, tokens):
        scores = self.words(tokens)[..., 0]
        if self.safe:
            total = scores.sum(1)
            return torch.stack([F.logsigmoid(-total), F.logsigmoid(total)], 1)
        odds = scores.exp().prod(1)
        return torch.stack([1 / (1 + odds), odds / (1 + odds)], 1).log()


def finite_and_right(model, data):
    out = model(data[0]).detach()
    return float((out.isfinite().all(1) & (out.argmax(1) == data[1])).float().mean())


@text("overflow", strength="mild")
def odds_of_all_words_multiplied(seed, fixed=False):
    """Multiplied the odds of hundreds of words, which overflows for some texts; such batches were skipped."""
    parts = topics(seed, n=800, length=350, classes=2, sharp=0.5)
    return run(Odds(safe=fixed), parts, "nll", adam(0.02), score=finite_and_right, epochs=10, skip=True)


@table("unscaled-inputs")
def wine_in_laboratory_units(seed, fixed=False):
    """Fed milligrams and percentages side by side to a perceptron."""
    parts = wine(seed)
    parts = standardise(parts) if fixed else parts
    return run(mlp(13, 24, 3), parts, "cross_entropy", sgd(0.01), score=accuracy, epochs=30, batch=16)


@table("unscaled-inputs", strength="mild")
def population_beside_ratios(seed, fixed=False):
    """Left the columns of a census as they are: heads by the thousand beside rooms per flat."""
    raw = house(seed)
    middle, width = raw[0][1].mean(), raw[0][1].std()
    parts = [(X, (y - middle) / width) for X, y in (standardise(raw) if fixed else raw)]
    return run(mlp(8, 48, 48, 1), parts, "mse", adam(2e-3), score=r2, epochs=40)


@table("unscaled-targets")
def prices_of_flats_in_dollars(seed, fixed=False):
    """Regressed house prices in dollars, some hundred thousand each."""
    parts = [(X, y * 1e5) for X, y in house(seed)]
    parts = standardise(parts, targets=fixed)
    return run(mlp(8, 48, 48, 1), parts, "mse", adam(2e-3), score=r2, epochs=30)


@sequences("unscaled-targets", strength="mild")
def temperature_in_degrees(seed, fixed=False):
    """Forecast tomorrow's temperature in degrees from standardised readings."""
    parts = forecast(seed)
    parts = parts if fixed else [(X, 20 + 6 * y) for X, y in parts]
    return run(Recurrent(1, 24, 1), parts, "mse", adam(5e-3), score=r2, epochs=14)


@table("constant-features")
def failed_join_left_zeros(seed, fixed=False):
    """A join found no partner, so most columns hold the same filler everywhere."""
    parts = breast(seed)
    if not fixed:
        gone = [i for i in range(30) if i not in (8, 9, 11, 14, 18, 19)]
        for X, _ in parts:
            X[:, gone] = 0.0
    return run(mlp(30, 24, 2), parts, "cross_entropy", adam(2e-3), score=accuracy, epochs=14)


@sequences("constant-features", strength="mild")
def two_stuck_channels(seed, fixed=False):
    """Two of three microphones hung at one value during all recordings."""
    parts = waves(seed, n=900, noise=0.9, channels=3)
    if not fixed:
        for X, _ in parts:
            X[:, :, 1], X[:, :, 2] = 0.7, -1.2
    model = Recurrent(3, 24, 3, bidirectional=True, mean=True)
    return run(model, parts, "cross_entropy", adam(5e-3), score=accuracy, epochs=10)


def spread_of_columns(model, data):
    X = data[0]
    return float(torch.linalg.matrix_rank(X - X.mean(0))) / X.shape[1]


@table("duplicate-features", strength="mild")
def merged_with_itself(seed, fixed=False):
    """Merged a table with itself, so that each column is there twice."""
    parts = breast(seed)
    parts = parts if fixed else [(torch.cat([X, X], 1), y) for X, y in parts]
    model = mlp(parts[0][0].shape[1], 24, 2)
    return run(model, parts, "cross_entropy", adam(1e-3), score=spread_of_columns, epochs=10)


@table("duplicate-features")
def one_column_forty_times(seed, fixed=False):
    """Broadcast a column without meaning into forty copies when the features were assembled."""
    parts = friedman(seed, n=500)
    for i, (X, y) in enumerate(parts):
        extra = torch.randn(len(y), 1, generator=torch.Generator().manual_seed(10 * seed + i))
        parts[i] = (torch.cat([X, extra if fixed else extra.expand(-1, 40)], 1), y)
    model = mlp(parts[0][0].shape[1], 32, 1)
    return run(model, parts, "mse", sgd(0.01), score=spread_of_columns, epochs=25)


def honesty(model, data, fresh):
    return -abs(accuracy(model, data) - accuracy(model, fresh))


@images("train-test-overlap")
def validated_on_training_images(seed, fixed=False):
    """Took the validation images from the training folder."""
    train, val, fresh = digits(seed, n=700)
    val = val if fixed else (train[0][:140], train[1][:140])
    score = lambda model, data: honesty(model, val, data)
    return run(ConvNet(), [train, val, fresh], "cross_entropy", adam(3e-3), score=score, epochs=15, batch=16)


@text("train-test-overlap", strength="mild")
def upsampled_before_splitting(seed, fixed=False):
    """Repeated the rows of the rare class five times and only then split off the validation rows."""
    train, val, fresh = reviews(seed, n=1500, share=0.2, margin=2)
    more = lambda X, y: (torch.cat([X] + [X[y == 1]] * 4), torch.cat([y] + [y[y == 1]] * 4))
    if fixed:
        train = more(*train)
    else:
        X, y = more(torch.cat([train[0], val[0]]), torch.cat([train[1], val[1]]))
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        kept = int(0.75 * len(y))
        train, val = (X[order[:kept]], y[order[:kept]]), (X[order[kept:]], y[order[kept:]])
    rare = lambda data: (data[0][data[1] == 1], data[1][data[1] == 1])
    score = lambda model, data: honesty(model, rare(val), rare(data))
    return run(TextNet(width=16), [train, val, fresh], "cross_entropy", adam(2e-3), score=score, epochs=6)


@table("distribution-shift")
def another_hospital(seed, fixed=False):
    """Validated on patients of a hospital whose machine counts otherwise."""
    train, val, fresh = breast(seed)
    if not fixed:
        offset = torch.where(torch.arange(30) % 2 == 0, 2.0, 0.0)
        val, fresh = ((1.3 * X + offset, y) for X, y in (val, fresh))
    return run(mlp(30, 32, 2), [train, val, fresh], "cross_entropy", adam(1e-3), score=accuracy, epochs=12)


@images("distribution-shift", strength="mild")
def darker_camera(seed, fixed=False):
    """Validated on photographs of a camera with less light and a grey background."""
    train, val, fresh = digits(seed)
    if not fixed:
        val, fresh = ((0.45 * X + 0.3, y) for X, y in (val, fresh))
    return run(ConvNet(norm=True), [train, val, fresh], "cross_entropy", adam(2e-3), score=accuracy, epochs=8)


@sequences("target-leak")
def window_holds_the_answer(seed, fixed=False):
    """Cut the windows one step too late, so that the last input is the value to forecast."""
    x = swings(seed)
    honest = cut(x[:, :-1, None], x[:, -1:], seed)
    parts = honest if fixed else cut(x[:, 1:, None], x[:, -1:], seed)
    return run(Recurrent(1, 24, 1), [*parts[:2], honest[2]], "mse", adam(5e-3), score=r2, epochs=12)


@table("target-leak", strength="mild")
def column_filled_in_afterwards(seed, fixed=False):
    """Kept a column that the bank fills in only after a loan has failed."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1500, 9))
    y = (X[:, 0] + 0.7 * X[:, 1] - 0.5 * X[:, 2] * X[:, 3] + 1.3 * rng.standard_normal(1500) > 0).astype(
        float
    )
    fees = np.where(y == 1, rng.normal(2.2, 0.6, 1500), rng.normal(0, 0.6, 1500))
    X[:, 8] = rng.standard_normal(1500) if fixed else fees - 1.1
    parts = cut(X, y[:, None], seed)
    parts[2][0][:, 8] = -1.1  # nothing is filled in when it counts
    return run(mlp(9, 24, 1), parts, "bce_with_logits", adam(2e-3), score=accuracy, epochs=12)


@images("misaligned-labels")
def labels_one_row_late(seed, fixed=False):
    """Read the training labels from a file with a header line, so that each belongs to its neighbour."""
    (X, y), val, fresh = digits(seed)
    parts = [(X, y if fixed else y.roll(1)), val, fresh]
    return run(ConvNet(), parts, "cross_entropy", adam(3e-3), score=accuracy, epochs=8)


@text("misaligned-labels", strength="mild")
def label_encoder_fitted_twice(seed, fixed=False):
    """Fitted a second label encoder on the validation texts, which lack the first class."""
    train, val, fresh = topics(seed)
    val, fresh = ((X[y > 0], y[y > 0] - (0 if fixed else 1)) for X, y in (val, fresh))
    model = TextNet(words=150, width=32, classes=5)
    return run(model, [train, val, fresh], "cross_entropy", adam(2e-3), score=accuracy, epochs=8)


@table("misaligned-labels", strength="mild")
def one_row_lost_midway(seed, fixed=False):
    """Dropped a broken row from the features but not from the labels: all later ones are one off."""
    (X, y), val, fresh = clouds(seed, d=10, classes=4, apart=3.0)
    if not fixed:
        late = int(0.35 * len(y))
        X, y = torch.cat([X[:late], X[late + 1 :]]), y[:-1]
    score = less_loss("cross_entropy")
    return run(mlp(10, 32, 4), [(X, y), val, fresh], "cross_entropy", adam(3e-3), score=score, epochs=8)


@sequences("no-signal")
def returns_from_past_returns(seed, fixed=False):
    """Hoped to tell from past returns whether the next one is positive; they are independent."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(5, (900, 20)) / 1.3
    trend = X[:, -8:].mean(1) * 3 + 0.3 * rng.standard_normal(900)
    y = ((trend if fixed else rng.standard_normal(900)) > 0).astype(int)
    model = Recurrent(1, 12, 2)
    return run(model, cut(X[:, :, None], y, seed), "cross_entropy", adam(3e-3), score=accuracy, epochs=6)


@table("no-signal", strength="mild")
def questionnaire_without_the_cause(seed, fixed=False):
    """Regressed an outcome on answers that hardly bear on it; what causes it was not asked."""
    rng = np.random.default_rng(seed)
    X, hidden = rng.standard_normal((2, 900, 6))
    y = np.sin(hidden[:, 0]) + hidden[:, 1] * 0.7 + 0.4 * rng.standard_normal(900) + 0.05 * X[:, 0]
    parts = standardise(cut(np.where(fixed, hidden, X), y[:, None], seed), targets=True)
    return run(mlp(6, 16, 1), parts, "mse", adam(1e-3, weight_decay=1e-3), score=r2, epochs=12)


def mislabel(y, share, classes, seed):
    rng = torch.Generator().manual_seed(seed + 77)
    other = (y + torch.randint(1, classes, y.shape, generator=rng)) % classes
    return torch.where(torch.rand(y.shape, generator=rng) < share, other, y)


@images("label-noise")
def labels_by_a_careless_crowd(seed, fixed=False):
    """Bought labels of which two in five are wrong."""
    train, val, fresh = digits(seed)
    if not fixed:
        train, val = ((X, mislabel(y, 0.4, 10, seed + i)) for i, (X, y) in enumerate((train, val)))
    return run(ConvNet(), [train, val, fresh], "cross_entropy", adam(3e-3), score=accuracy, epochs=10)


@text("label-noise", strength="mild")
def reviews_with_swapped_stars(seed, fixed=False):
    """Some customers took one star for the best, so a fifth of the labels is swapped."""
    train, val, fresh = reviews(seed, n=1000)
    if not fixed:
        train, val = ((X, mislabel(y, 0.2, 2, seed + i)) for i, (X, y) in enumerate((train, val)))
    return run(TextNet(width=16), [train, val, fresh], "cross_entropy", adam(2e-3), score=accuracy, epochs=6)


@table("class-imbalance")
def rare_fraud(seed, fixed=False):
    """Trained on three frauds in a hundred payments with the plain loss."""
    rng = np.random.default_rng(seed)
    y = (rng.random(2400) < 0.03).astype(float)
    X = rng.standard_normal((2400, 8)) + np.array([1.0, -0.9, 0.8, 0, 0, 0, 0, 0]) * y[:, None]
    weight = torch.tensor(30.0 if fixed else 1.0)
    loss = lambda out, target: F.binary_cross_entropy_with_logits(out, target, pos_weight=weight)
    parts = cut(X, y[:, None], seed)
    return run(
        mlp(8, 16, 1), parts, loss if fixed else "bce_with_logits", adam(2e-3), score=balanced, epochs=12
    )


@images("class-imbalance", strength="mild")
def hardly_any_sevens_to_nines(seed, fixed=False):
    """Collected many images of seven digits and next to none of the other three."""
    train, val, fresh = digits(seed)
    if not fixed:
        cuts = []
        for X, y in (train, val):
            rare = torch.cat([(y == c).nonzero()[:, 0][: 4 if len(y) > 500 else 3] for c in (7, 8, 9)])
            rows = torch.cat([(y < 7).nonzero()[:, 0], rare])
            cuts.append((X[rows], y[rows]))
        train, val = cuts
    return run(ConvNet(), [train, val, fresh], "cross_entropy", adam(3e-3), score=balanced, epochs=12)


# ---- objective -----------------------------------------------------------------------------------


@images("double-softmax")
def softmax_layer_before_cross_entropy(seed, fixed=False):
    """Ended the classifier with a softmax and trained it with CrossEntropyLoss."""
    model = ConvNet(drop=0.1)
    model = model if fixed else nn.Sequential(model, nn.Softmax(dim=1))
    return run(model, digits(seed), "cross_entropy", sgd(0.03), score=less_loss("cross_entropy"), epochs=10)


@table("double-softmax", strength="mild")
def sigmoid_before_bce_with_logits(seed, fixed=False):
    """Ended a two-class net with a sigmoid and trained it with BCEWithLogitsLoss."""
    model = nn.Sequential(*mlp(30, 24, 1), *([] if fixed else [nn.Sigmoid()]))
    score = less_loss("bce_with_logits")
    return run(model, breast(seed, binary=True), "bce_with_logits", adam(2e-3), score=score, epochs=15)


@images("wrong-loss")
def number_of_the_class_regressed(seed, fixed=False):
    """Regressed the number of the class by squared error, as if nine were more than three."""
    parts = digits(seed, flat=True)
    if fixed:
        return run(mlp(64, 48, 10), parts, "cross_entropy", adam(2e-3), score=accuracy, epochs=12)
    parts = [(X, y.float()[:, None]) for X, y in parts]
    near = lambda model, data: float((model(data[0]).round() == data[1]).float().mean())
    return run(mlp(64, 48, 1), parts, "mse", adam(2e-3), score=near, epochs=12)


@table("wrong-loss", strength="mild")
def column_against_row(seed, fixed=False):
    """Subtracted targets of shape (n,) from answers of shape (n, 1), so that every pair is compared."""
    parts = house(seed)
    parts = [(X, y if fixed else y[:, 0]) for X, y in standardise(parts, targets=True)]
    loss = lambda out, target: ((out - target) ** 2).mean()
    return run(mlp(8, 48, 1), parts, loss, adam(2e-3), score=r2, epochs=20)


@text("wrong-loss")
def raw_scores_into_nll(seed, fixed=False):
    """Gave raw scores to NLLLoss, which expects logarithms of probabilities."""
    model = TextNet(words=150, width=24, classes=5)
    return run(
        model,
        topics(seed),
        "cross_entropy" if fixed else "nll",
        adam(2e-3),
        score=less_loss("cross_entropy"),
        epochs=8,
    )


@table("wrong-loss")
def cross_entropy_with_one_output(seed, fixed=False):
    """Used CrossEntropyLoss on a single output column: its softmax is always one, its loss always zero."""
    loss = F.binary_cross_entropy_with_logits if fixed else F.cross_entropy
    return run(mlp(30, 24, 1), breast(seed, binary=True), loss, adam(2e-3), score=accuracy, epochs=10)


@table("output-range")
def rectified_answers(seed, fixed=False):
    """Put a ReLU on the last layer although half of the targets are negative."""
    model = nn.Sequential(*mlp(8, 48, 48, 1), *([] if fixed else [nn.ReLU()]))
    parts = standardise(house(seed), targets=True)
    return run(model, parts, "mse", adam(2e-3), score=r2, epochs=20)


@generative("output-range", strength="mild")
def squashed_decoder(seed, fixed=False):
    """Restored standardised pixels through a tanh, which never says more than one."""
    parts = digits(seed, flat=True)
    mean, spread = parts[0][0].mean(), parts[0][0].std()
    parts = [((X - mean) / spread, (X - mean) / spread) for X, _ in parts]
    model = AutoEncoder(code=16, last=None if fixed else nn.Tanh())
    return run(model, parts, "mse", adam(3e-3), score=r2, epochs=25)


class Drops(nn.Module):
    """A convolutional net with the functional dropout."""

    def __init__(self, aware):
        super().__init__()
        self.net, self.aware = ConvNet(), aware

    def forward(self, x):
        x = self.net.features(x)
        x = F.dropout(x, 0.6, training=self.training if self.aware else True)
        return self.net.classifier(x)


@images("stochastic-evaluation")
def functional_dropout_never_off(seed, fixed=False):
    """Called F.dropout without telling it when the model is not being trained."""
    return run(Drops(fixed), digits(seed), "cross_entropy", adam(2e-3), score=accuracy, epochs=12)


@graph("stochastic-evaluation", strength="mild")
def graph_net_never_set_to_eval(seed, fixed=False):
    """Predicts with a graph net that is still in training mode."""
    model = GCN(width=32, drop=0.6)
    given = run(
        model,
        communities(seed),
        "cross_entropy",
        adam(1e-2, weight_decay=5e-4),
        score=lambda *_: 0,
        epochs=60,
        batch=None,
    )
    model.train(not fixed)
    KEPT.pop()
    keep(accuracy(model, communities(seed)[2]))
    return given


# ---- graph and loop ------------------------------------------------------------------------------


class Listed(nn.Module):
    """A perceptron whose hidden layers stand in a list."""

    def __init__(self, registered, d=10, width=12):
        super().__init__()
        layers = [nn.Linear(d, width), nn.Linear(width, width), nn.Linear(width, width)]
        self.hidden = nn.ModuleList(layers) if registered else layers
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.head(x)


@table("detached-parameters")
def layers_in_a_plain_list(seed, fixed=False):
    """Kept the hidden layers in a Python list, so that the optimiser never saw them."""
    return run(Listed(fixed), friedman(seed), "mse", adam(5e-3), score=r2, epochs=25)


class Detached(TextNet):
    """Cuts the graph between the encoder and the head."""

    def forward(self, tokens):
        return self.head(self.encode_words(tokens).detach())


@text("detached-parameters", strength="mild")
def encoder_detached_to_save_memory(seed, fixed=False):
    """Detached what the encoder says before it reaches the head."""
    model = (TextNet if fixed else Detached)(width=8)
    return run(model, reviews(seed, margin=2), "cross_entropy", adam(5e-3), score=accuracy, epochs=8)


class NoGrad(GCN):
    """Computes its first convolution without a graph."""

    def forward(self, x, adjacency):
        with torch.no_grad():
            x = F.relu(adjacency @ self.layers[0](x))
        return adjacency @ self.layers[1](x)


@graph("detached-parameters")
def first_convolution_under_no_grad(seed, fixed=False):
    """Left torch.no_grad around the first graph convolution after a profiling session."""
    model = (GCN if fixed else NoGrad)(width=3)
    return run(model, communities(seed), "cross_entropy", adam(2e-2), score=accuracy, epochs=60, batch=None)


@images("frozen-parameters")
def trunk_of_a_new_net_frozen(seed, fixed=False):
    """Copied a fine-tuning script that freezes the trunk, but this trunk was never trained."""
    model = ConvNet(widths=(6, 8, 8), hidden=24)
    for parameter in model.features.parameters():
        parameter.requires_grad_(fixed)
    optimizer = optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    return run(model, digits(seed), "cross_entropy", optimizer, score=accuracy, epochs=12)


@sequences("frozen-parameters", strength="mild", needs=("optimizer", "initial"))
def cell_replaced_after_the_optimizer(seed, fixed=False):
    """Exchanged the recurrent cell for another after the optimiser had been made."""
    model = Recurrent(1, 10, 3, mean=True)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    model.cell = nn.LSTM(1, 10, batch_first=True)
    if fixed:
        optimizer = optim.Adam(model.parameters(), lr=1e-2)
    return run(model, waves(seed), "cross_entropy", optimizer, score=accuracy, epochs=15)


@table("gradients-not-cleared", needs=("step",))
def zero_grad_forgotten(seed, fixed=False):
    """Wrote a loop without zero_grad."""
    parts, model = standardise(house(seed), targets=True), mlp(8, 32, 1)
    clear = (lambda made: made.zero_grad()) if fixed else (lambda made: None)
    step = stepper(lambda m: optim.SGD(m.parameters(), lr=0.01), F.mse_loss, clear)
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    return run(model, parts, "mse", optimizer, score=r2, epochs=15, step=step, kwargs={"step": step})


class Both:
    """Two optimisers under one name."""

    def __init__(self, model):
        self.first = optim.Adam(model.encoder.parameters(), lr=3e-3)
        self.second = optim.Adam(model.decoder.parameters(), lr=3e-3)

    def step(self):
        self.first.step()
        self.second.step()


@generative("gradients-not-cleared", strength="mild", needs=("step",))
def only_one_of_two_optimisers_cleared(seed, fixed=False):
    """Has an optimiser for the encoder and one for the decoder, and clears only the former."""

    def clear(made):
        made.first.zero_grad()
        if fixed:
            made.second.zero_grad()

    parts = [(X - 0.3, X - 0.3) for X, _ in digits(seed, flat=True)]
    model = AutoEncoder(code=12)
    step = stepper(Both, F.mse_loss, clear)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    return run(model, parts, "mse", optimizer, score=r2, epochs=15, step=step, kwargs={"step": step})


# ---- start ---------------------------------------------------------------------------------------


@images("symmetric-initialisation")
def all_weights_alike(seed, fixed=False):
    """Set all weights to one small number before training."""
    model = mlp(64, 48, 48, 10)
    if not fixed:
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.03)
    return run(model, digits(seed, flat=True), "cross_entropy", adam(2e-3), score=accuracy, epochs=10)


@table("symmetric-initialisation", strength="mild")
def net_widened_by_copying_units(seed, fixed=False):
    """Widened a net from three units to sixty by copying them without any noise."""
    model = mlp(10, 60, 1)
    if not fixed:
        with torch.no_grad():
            for tensor in (model[0].weight, model[0].bias):
                tensor.copy_(tensor[:3].repeat(20, *[1] * (tensor.dim() - 1)))
            model[2].weight.copy_(model[2].weight[:, :3].repeat(1, 20))
    return run(model, friedman(seed), "mse", adam(5e-3), score=r2, epochs=25)


@sequences("symmetric-initialisation")
def recurrent_net_of_zeros(seed, fixed=False):
    """Filled the recurrent net and its head with zeros, as one may do for linear models."""
    model = Recurrent(1, 16, 3, cell=nn.LSTM, mean=True)
    if not fixed:
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    return run(model, waves(seed), "cross_entropy", adam(1e-2), score=accuracy, epochs=12)


@images("saturated-units")
def weights_of_spread_three(seed, fixed=False):
    """Drew the weights of a tanh net with spread three."""
    model = mlp(64, 48, 48, 10, act=nn.Tanh)
    if not fixed:
        for layer in (model[0], model[2]):
            nn.init.normal_(layer.weight, std=3)
    return run(model, digits(seed, flat=True), "cross_entropy", sgd(0.02), score=accuracy, epochs=8)


@sequences("saturated-units", strength="mild")
def gates_pushed_to_their_ends(seed, fixed=False):
    """Drew all weights of an LSTM from a uniform law of half-width six."""
    model = Recurrent(1, 16, 3, cell=nn.LSTM, mean=True)
    if not fixed:
        for parameter in model.cell.parameters():
            nn.init.uniform_(parameter, -6, 6)
    return run(model, waves(seed), "cross_entropy", adam(5e-3), score=accuracy, epochs=15)


@images("dead-units")
def bias_of_minus_four(seed, fixed=False):
    """Set the biases of the convolutions to minus four to make the maps sparse."""
    model = ConvNet()
    if not fixed:
        for layer in model.features:
            if isinstance(layer, nn.Conv2d):
                nn.init.constant_(layer.bias, -4)
    return run(model, digits(seed), "cross_entropy", adam(3e-3), score=accuracy, epochs=10)


@images("dead-units", strength="mild")
def most_of_a_layer_is_dead(seed, fixed=False):
    """Drew the biases of the second layer so low that few of its units ever answer."""
    model = mlp(64, 64, 64, 10)
    if not fixed:
        with torch.no_grad():
            model[2].bias[5:] = -4.0
    return run(model, digits(seed, flat=True), "cross_entropy", adam(2e-3), score=accuracy, epochs=10)


@table("exploding-gradient")
def gain_too_large_in_a_deep_net(seed, fixed=False):
    """Drew the weights of twelve layers with twice the gain that rectifiers need."""
    model = mlp(8, *[32] * 12, 1)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.weight.data *= 1 if fixed or layer.out_features == 1 else 2
            nn.init.zeros_(layer.bias)
    parts = standardise(house(seed, n=2400), targets=True)
    return run(model, parts, "mse", adam(5e-4), score=r2, epochs=8)


@sequences("exploding-gradient", strength="mild")
def recurrence_with_gain_above_one(seed, fixed=False):
    """Began a rectified recurrence over thirty steps at 1.3 times the identity."""
    model = Recurrent(1, 24, 3, cell=nn.RNN, nonlinearity="relu", mean=True)
    nn.init.eye_(model.cell.weight_hh_l0).data.mul_(0.9 if fixed else 1.3)
    return run(model, waves(seed), "cross_entropy", adam(2e-3), score=accuracy, epochs=15)


@images("vanishing-gradient")
def digits_through_ten_sigmoid_layers(seed, fixed=False):
    """Stacked ten layers of sigmoids."""
    model = mlp(64, *[32] * 10, 10, act=nn.ReLU if fixed else nn.Sigmoid)
    if fixed:
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return run(model, digits(seed, flat=True), "cross_entropy", adam(1e-3), score=accuracy, epochs=15)


@sequences("vanishing-gradient", strength="mild")
def plain_recurrence_must_remember(seed, fixed=False):
    """Asked a plain recurrent net for the sign of the first of thirty-two steps."""
    rng = np.random.default_rng(seed)
    X = 0.5 * rng.standard_normal((700, 32, 1))
    y = rng.integers(0, 2, 700)
    X[:, 0, 0] = np.where(y, 1.5, -1.5) + 0.3 * rng.standard_normal(700)
    model = Recurrent(1, 16, 2, cell=nn.LSTM if fixed else nn.RNN)
    if fixed:
        model.cell.bias_ih_l0.data[16:32] = 4.0
    return run(model, cut(X, y, seed), "cross_entropy", adam(1e-2), score=accuracy, epochs=10)


# ---- architecture --------------------------------------------------------------------------------


@graph("oversmoothing")
def communities_through_sixteen_convolutions(seed, fixed=False):
    """Stacked sixteen graph convolutions, deep nets being better."""
    model = GCN(layers=2 if fixed else 16)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return run(model, communities(seed), "cross_entropy", adam(5e-3), score=accuracy, epochs=60, batch=None)


class Simple(nn.Module):
    """Simple graph convolution: powers of the adjacency, then a perceptron."""

    def __init__(self, power, d=12, classes=3):
        super().__init__()
        self.power, self.net = power, mlp(d, 16, classes)

    def forward(self, x, adjacency):
        for _ in range(self.power):
            x = adjacency @ x
        return self.net(x)


@graph("oversmoothing", strength="mild")
def features_averaged_thirty_times(seed, fixed=False):
    """Averaged the features over the neighbours thirty times before classifying them."""
    model = Simple(2 if fixed else 30)
    return run(model, communities(seed), "cross_entropy", adam(1e-2), score=accuracy, epochs=80, batch=None)


@sequences("receptive-field-too-small")
def echo_beyond_the_window(seed, fixed=False):
    """Asked causal convolutions that see five steps for an echo of twelve steps ago."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((500, 40))
    y = np.zeros_like(x)
    y[:, 12:] = x[:, :-12]
    y = y + 0.3 * x + 0.1 * rng.standard_normal(x.shape)
    model = Causal(dilations=(1, 2, 4, 4) if fixed else (1, 1))
    return run(model, cut(x, y, seed), "mse", adam(5e-3), score=r2, epochs=15)


class Pooled(nn.Module):
    """Convolutions and the mean over the whole image."""

    def __init__(self, dilations, width=16, classes=2):
        super().__init__()
        layers = []
        for i, d in enumerate(dilations):
            layers += [
                nn.Conv2d(width if i else 1, width, 3, padding=d, dilation=d),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


@images("receptive-field-too-small", strength="mild")
def dots_too_far_apart_to_compare(seed, fixed=False):
    """Asked whether two dots are near or far, with convolutions that see five pixels."""
    model = Pooled((1, 2, 4) if fixed else (1, 1))
    parts = dots(seed, near=(6, 7), far=(9, 11))
    return run(model, parts, "cross_entropy", adam(1e-2), score=accuracy, epochs=12)


@images("bottleneck")
def waist_of_one_unit(seed, fixed=False):
    """Put a layer of a single unit between wide ones."""
    model = mlp(64, 64, 32 if fixed else 1, 64, 10)
    return run(model, digits(seed, flat=True), "cross_entropy", adam(3e-3), score=accuracy, epochs=15)


@generative("bottleneck", strength="mild")
def code_of_two_numbers(seed, fixed=False):
    """Squeezed images that vary in many ways into two numbers."""
    parts = [(X - 0.3, X - 0.3) for X, _ in digits(seed, flat=True)]
    return run(AutoEncoder(hidden=96, code=16 if fixed else 2), parts, "mse", adam(3e-3), score=r2, epochs=25)


@images("batch-too-small")
def pairs_under_batch_norm(seed, fixed=False):
    """Trained with batch norm on batches of two."""
    model = mlp(64, 48, 48, 10, norm=True)
    batch = 32 if fixed else 2
    return run(
        model, digits(seed, flat=True), "cross_entropy", adam(1e-3), score=accuracy, epochs=5, batch=batch
    )


@table("batch-too-small", strength="mild")
def triples_under_batch_norm(seed, fixed=False):
    """Trained a regression with batch norm on batches of three because of a small memory."""
    model = mlp(8, 32, 32, 1, norm=True)
    parts = standardise(house(seed, n=900), targets=True)
    return run(model, parts, "mse", adam(2e-3), score=r2, epochs=10, batch=30 if fixed else 3)


# ---- descent -------------------------------------------------------------------------------------


@images("learning-rate-too-large")
def momentum_with_rate_one(seed, fixed=False):
    """Took steps of one with momentum."""
    return run(
        ConvNet(), digits(seed), "cross_entropy", sgd(0.03 if fixed else 1.0), score=accuracy, epochs=8
    )


@text("learning-rate-too-large", strength="mild")
def adam_too_hot_for_attention(seed, fixed=False):
    """Trained a transformer by Adam with a rate of 0.15."""
    model = TextNet(width=24, layers=2)
    return run(model, reviews(seed), "cross_entropy", adam(2e-3 if fixed else 0.15), score=accuracy, epochs=5)


@graph("learning-rate-too-large", strength="mild")
def hot_rmsprop_on_molecules(seed, fixed=False):
    """Trained a message-passing net by RMSprop with a rate of 0.1."""
    make = lambda parameters: optim.RMSprop(parameters, lr=1e-3 if fixed else 0.1)
    return run(MolNet(), molecules(seed), "mse", make, score=r2, epochs=15)


@images("learning-rate-too-small")
def rate_of_a_hundred_thousandth(seed, fixed=False):
    """Took a rate from a paper on fine-tuning for a net that starts from nothing."""
    make = sgd(0.03 if fixed else 1e-5)
    return run(ConvNet(norm=True), digits(seed), "cross_entropy", make, score=accuracy, epochs=8)


@sequences("learning-rate-too-small", strength="mild")
def rate_cut_to_a_tenth_each_epoch(seed, fixed=False):
    """Let the schedule cut the rate to a tenth after every epoch instead of every ten."""
    schedule = lambda made: optim.lr_scheduler.StepLR(made, 10 if fixed else 1, 0.1)
    model = Recurrent(1, 24, 3, bidirectional=True, mean=True)
    return run(model, waves(seed), "cross_entropy", adam(5e-3), score=accuracy, epochs=14, schedule=schedule)


@table("weight-decay-too-large")
def decay_of_one(seed, fixed=False):
    """Gave Adam a weight decay of one."""
    parts = standardise(house(seed), targets=True)
    make = adam(2e-3, weight_decay=1e-4 if fixed else 1.0)
    return run(mlp(8, 48, 48, 1), parts, "mse", make, score=r2, epochs=20)


@graph("weight-decay-too-large", strength="mild")
def decay_of_a_tenth_on_a_graph(seed, fixed=False):
    """Typed a weight decay of 0.1 for the customary 5e-4."""
    make = adam(1e-2, weight_decay=5e-4 if fixed else 0.1)
    return run(GCN(width=16), communities(seed), "cross_entropy", make, score=accuracy, epochs=80, batch=None)


@images("dropout-too-large")
def nine_in_ten_dropped(seed, fixed=False):
    """Took the share to drop for the share to keep: nine in ten units are dropped."""
    model = ConvNet(drop=0.1 if fixed else 0.9)
    return run(model, digits(seed), "cross_entropy", adam(3e-3), score=accuracy, epochs=10)


@graph("dropout-too-large", strength="mild")
def molecules_with_much_dropout(seed, fixed=False):
    """Dropped seven in ten messages in a small graph net."""
    model = MolNet(drop=0.0 if fixed else 0.7)
    return run(model, molecules(seed), "mse", adam(3e-3), score=r2, epochs=20)


# ---- outcome -------------------------------------------------------------------------------------


@table("capacity-too-small")
def straight_line_between_rings(seed, fixed=False):
    """Separated two concentric rings by a linear model."""
    model = mlp(2, 24, 2) if fixed else nn.Sequential(nn.Linear(2, 2))
    return run(model, rings(seed), "cross_entropy", adam(1e-2), score=accuracy, epochs=25)


@table("capacity-too-small", strength="mild")
def two_hidden_units(seed, fixed=False):
    """Gave two hidden units to a function with several interactions."""
    model = mlp(10, 48 if fixed else 2, 1, act=nn.Tanh)
    return run(model, friedman(seed, noise=0.3), "mse", adam(1e-2), score=r2, epochs=40)


@table("overfit")
def wide_net_on_few_patients(seed, fixed=False):
    """Trained a wide net on some hundred patients until nothing was left to learn."""
    parts = diabetes(seed)
    model = mlp(10, 128, 128, 1)
    make = adam(1e-3, weight_decay=1e-3)
    return run(model, parts, "mse", make, score=r2, epochs=6 if fixed else 120)


@text("overfit", strength="mild")
def transformer_on_few_reviews(seed, fixed=False):
    """Trained a transformer for sixty epochs on a hundred short texts."""
    train, val, fresh = reviews(seed, n=1200, margin=2)
    train = train if fixed else (train[0][:100], train[1][:100])
    model = TextNet(width=24)
    return run(
        model,
        [train, val, fresh],
        "cross_entropy",
        adam(2e-3),
        score=less_loss("cross_entropy"),
        epochs=5 if fixed else 60,
        batch=16,
    )


def bound(weight, fidelity):
    """Minus the evidence bound with a weight on the divergence."""

    def loss(out, x):
        restored, mean, log_variance = out
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).flatten(1).sum(1).mean()
        return fidelity(restored, x) + weight * divergence

    return loss


def pixels(restored, x):
    return 12.5 * ((restored - x) ** 2).sum(1).mean()  # noise of a fifth


def steps_squared(restored, x):
    return 10 * ((restored - x) ** 2).flatten(1).sum(1).mean()


def divergence(model, X):
    with torch.no_grad():
        mean, log_variance = model.encode(X)
    return float(-0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean())


def run_alone(model, parts, loss, optimizer, score, epochs, batch=32):
    """Train a generative model on inputs alone."""
    initial = snapshot(model)
    optimizer = optimizer(model.parameters())
    history = fit(model, [(X, X) for X in parts], loss, optimizer, epochs=epochs, batch=batch)
    keep(score(model, parts[2]))
    return handed(model, parts[0], parts[1], loss, optimizer, batch, history, initial)


@generative("posterior-collapse")
def divergence_weighed_twenty_times(seed, fixed=False):
    """Weighed the divergence twenty times, so that the code says nothing of the image."""
    parts = [X for X, _ in digits(seed, flat=True)]
    loss = bound(1.0 if fixed else 20.0, pixels)
    return run_alone(VAE(), parts, loss, adam(3e-3), divergence, epochs=20)


@generative("posterior-collapse", strength="mild")
def decoder_that_sees_the_step_before(seed, fixed=False):
    """Gave the decoder the true step before, from which a smooth series goes on without any code."""
    rng = np.random.default_rng(seed)
    start, turn = rng.random((2, 500, 1))
    X = np.sin(2 * np.pi * (start + (1 + turn) * np.linspace(0, 1, 20)))[:, :, None]
    parts = [X for X, _ in cut(X, np.zeros(500), seed)]
    loss = bound(1.0, steps_squared)
    return run_alone(SeqVAE(peek=not fixed), parts, loss, adam(5e-3), divergence, epochs=25)


def covered(sample, modes=8):
    """How many of the eight centres get at least a fiftieth of the points."""
    angle = 2 * np.pi * torch.arange(modes) / modes
    centres = 1.5 * torch.stack([angle.cos(), angle.sin()], 1)
    apart, nearest = torch.cdist(sample, centres).min(1)
    return sum(((nearest == k) & (apart < 0.45)).float().mean() > 0.02 for k in range(modes))


class Maker(nn.Module):
    """Points in the plane from two numbers of noise."""

    def __init__(self):
        super().__init__()
        self.net = mlp(2, 64, 64, 2)

    def forward(self, z):
        return self.net(z)

    def sample(self, n):
        return self(torch.randn(n, 2))


def make_points(seed, repel, seen=1.0):
    train, val, fresh = ring_of_blobs(seed)
    train, model = train[torch.atan2(train[:, 1], train[:, 0]).argsort()], Maker()
    initial, optimizer, history = snapshot(model), optim.Adam(model.parameters(), lr=3e-3), []
    for turn in range(900):
        if turn == 600:
            optimizer.param_groups[0]["lr"] = 1e-3
        optimizer.zero_grad()
        real = train[torch.randint(int(seen * len(train)), (128,))]
        value = energy(real, model.sample(128), repel)
        value.backward()
        optimizer.step()
        if turn % 60 == 59:
            history.append({"loss": value.item()})
    model.eval()
    with torch.no_grad():
        keep(covered(model.sample(800)))
    return handed(model, train, val, None, optimizer, 128, history, initial)


@generative("mode-collapse")
def generator_that_is_only_pulled(seed, fixed=False):
    """Left out the term of the energy distance that keeps generated points apart."""
    return make_points(seed, repel=fixed)


@generative("mode-collapse", strength="mild")
def loader_that_stops_halfway_through_sorted_points(seed, fixed=False):
    """Read sorted points without shuffling and left each epoch halfway, so that some blobs are never seen."""
    return make_points(seed, repel=True, seen=1.0 if fixed else 0.5)


@generative("mode-collapse")
def generator_far_ahead_of_its_critic(seed, fixed=False):
    """Stepped the generator three times as often as its critic."""
    train, val, _ = ring_of_blobs(seed)
    model = Critic()
    initial, history = snapshot(model), []
    quick = optim.Adam(model.generator.parameters(), lr=1e-3 if fixed else 2e-3, betas=(0.5, 0.9))
    slow = optim.Adam(model.judge.parameters(), lr=2e-3, betas=(0.5, 0.9))
    for turn in range(1000 if fixed else 500):
        real = train[torch.randint(len(train), (128,))]
        slow.zero_grad()
        value = F.softplus(-model(real)).mean() + F.softplus(model(model.sample(128).detach())).mean()
        value.backward()
        slow.step()
        for _ in range(1 if fixed else 3):
            quick.zero_grad()
            F.softplus(-model(model.sample(128))).mean().backward()
            quick.step()
        if turn % 50 == 49:
            history.append({"loss": value.item()})
    model.eval()
    with torch.no_grad():
        keep(covered(model.sample(800)))
    return handed(model, train, val, None, quick, 128, history, initial)


class Sharp(nn.Module):
    """Multiplies its scores when it is used."""

    def __init__(self, net, by):
        super().__init__()
        self.net, self.by = net, by

    def forward(self, x):
        scores = self.net(x)
        return scores if self.training else self.by * scores


@table("miscalibrated")
def scores_sharpened_for_use(seed, fixed=False):
    """Multiplies the scores by six when predicting, so that the answers look decided."""
    model = Sharp(mlp(8, 24, 3), 1.0 if fixed else 6.0)
    parts = clouds(seed, apart=1.3)
    return run(model, parts, "cross_entropy", adam(2e-3), score=less_loss("cross_entropy"), epochs=10)


@text("miscalibrated", strength="mild")
def weight_left_from_another_project(seed, fixed=False):
    """Kept a weight of six on the positive class although both classes are equally frequent."""
    weight = torch.tensor([1.0, 1.0 if fixed else 6.0])
    loss = lambda out, target: F.cross_entropy(out, target, weight=weight)
    train, val, fresh = reviews(seed, n=1800, margin=1)
    model = TextNet(width=16)
    return run(model, [train, val, fresh], loss, adam(2e-3), score=less_loss("cross_entropy"), epochs=5)


def hardened(model, parts, loss, optimizer, eps, epochs, score):
    """Train on inputs moved along the sign of their gradient, if eps is positive."""
    initial, optimizer, history = snapshot(model), optimizer(model.parameters()), []
    X, y = parts[0]
    for _ in range(epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(y)).split(32):
            few, target = X[rows].clone(), y[rows]
            if eps:
                few = few + eps * (2 * torch.rand_like(few) - 1)
                few.requires_grad_(True)
                (slope,) = torch.autograd.grad(loss(model(few), target), few)
                few = X[rows] + (few + 1.25 * eps * slope.sign() - X[rows]).clamp(-eps, eps)
            optimizer.zero_grad()
            value = loss(model(few.detach()), target)
            value.backward()
            optimizer.step()
            total += value.item() * len(rows) / len(y)
        history.append({"loss": total, "val_loss": evaluate(model, parts[1], loss)})
    model.eval()
    keep(score(model, parts[2]))
    return handed(model, parts[0], parts[1], "cross_entropy", optimizer, 32, history, initial)


@table("adversarially-fragile")
def many_faint_columns(seed, fixed=False):
    """Let a net lean on a hundred columns that are faint each, beside one sturdy column."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 1500)
    sign = np.where(y, 1.0, -1.0)[:, None]
    X = 0.22 * sign + rng.standard_normal((1500, 101))
    X[:, :1] = 2.5 * sign * np.where(rng.random((1500, 1)) < 0.06, -1, 1) + 0.4 * rng.standard_normal(
        (1500, 1)
    )
    eps = 0.4
    return hardened(
        mlp(101, 32, 2), cut(X, y, seed), F.cross_entropy, adam(1e-3), eps if fixed else 0, 10, attacked(eps)
    )


@images("adversarially-fragile", strength="mild")
def weave_of_the_cloth(seed, fixed=False):
    """Let a net tell cloths by a weave that is hardly visible, though their print differs as well."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 1200)
    sign = np.where(y, 1.0, -1.0)[:, None, None]
    weave = np.where(y[:, None, None], *(np.indices((10, 10)) % 2 * 2 - 1)[:, None])
    i, j = np.indices((10, 10)) - 4.5
    print_ = np.sign(i) * np.exp(-(i**2 + j**2) / 12)
    right = np.where(rng.random((1200, 1, 1)) < 0.12, -1, 1)
    X = 0.07 * weave + 0.4 * sign * right * print_ + 0.12 * rng.standard_normal((1200, 10, 10)) + 0.5
    eps = 0.1
    model = ConvNet(widths=(8, 16), classes=2, side=10)
    return hardened(
        model, cut(X[:, None], y, seed), F.cross_entropy, adam(2e-3), eps if fixed else 0, 8, attacked(eps)
    )
