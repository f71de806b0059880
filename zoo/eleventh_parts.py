"""Data, nets and training loops of the eleventh author."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[Any, Tensor]
Adam = torch.optim.Adam
AdamW = torch.optim.AdamW
SGD = torch.optim.SGD
USUAL = partial(Adam, lr=3e-3)


# ---------------------------------------------------------------------------------------------------------------- loops
def mse(output: Tensor, target: Tensor) -> Tensor:
    """Return the squared error of outputs shaped as the targets."""
    return F.mse_loss(output.reshape(target.shape), target)


def bce(output: Tensor, target: Tensor) -> Tensor:
    """Return the logistic loss of outputs shaped as the targets."""
    return F.binary_cross_entropy_with_logits(output.reshape(target.shape), target)


def tokens_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy of every position; -100 is left out."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": mse,
    "bce_with_logits": bce,
    "nll": F.nll_loss,
}


def call(model: nn.Module, x: Any) -> Any:
    """Return the model's output."""
    return model(*x) if isinstance(x, tuple) else model(x)


def take(x: Any, rows: Tensor, count: int) -> Any:
    """Return some rows of all inputs that have as many rows as the target."""
    if isinstance(x, tuple):
        return tuple(part[rows] if len(part) == count else part for part in x)
    return x[rows]


def fit(
    model: nn.Module,
    train: Any,
    val: Any = None,
    *,
    loss: Any = "cross_entropy",
    opt: Callable[..., torch.optim.Optimizer] = USUAL,
    weights: Any = None,
    epochs: int = 30,
    batch: int = 32,
    give: str = "lobhi",
    skip: bool = False,
    clear: bool = True,
    rows: Callable[[], Tensor] | None = None,
    change: Callable[[nn.Module, Any, Tensor], Any] | None = None,
    patience: int = 0,
    ready: bool = True,
    train_loss: Callable[..., Tensor] | None = None,
) -> dict[str, Any]:
    """Train and return the arguments of diagnose; `give` chooses the optional ones by their first letters."""
    x, y = train if isinstance(train, tuple) else (train, train)
    measure = LOSSES[loss] if isinstance(loss, str) else loss
    inner = train_loss or measure
    initial = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = opt(model.parameters() if weights is None else weights)
    history, best, waited, kept = [], math.inf, 0, None
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        order = torch.randperm(len(y)) if rows is None else rows()
        for chosen in order.split(batch):
            if len(chosen) == 1 < batch:
                continue  # as drop_last does, for batch norm
            bx, by = take(x, chosen, len(y)), y[chosen]
            if change is not None:
                bx = change(model, bx, by)
            if clear:
                optimizer.zero_grad()
            value = inner(call(model, bx), by)
            if skip and not torch.isfinite(value):
                continue
            value.backward()
            if skip and not all(
                torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None
            ):
                continue
            optimizer.step()
            total, seen = total + value.item() * len(chosen), seen + len(chosen)
        record = {"loss": total / max(seen, 1)}
        if val is not None:
            model.eval()
            with torch.no_grad():
                vx, vy = val if isinstance(val, tuple) else (val, val)
                record["val_loss"] = float(measure(call(model, vx), vy))
            if patience and record["val_loss"] < best:
                best, waited, kept = (
                    record["val_loss"],
                    0,
                    {k: v.clone() for k, v in model.state_dict().items()},
                )
            elif patience:
                waited += 1
        history.append(record)
        if patience and waited >= patience:
            break
    if kept is not None:
        model.load_state_dict(kept)
    model.train(not ready)
    given: dict[str, Any] = {"model": model, "data": train, "validation": val}
    options = {
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": batch,
        "history": history,
        "initial": initial,
    }
    return given | {key: value for key, value in options.items() if key[0] in give}


def plain(model: nn.Module, train: Any, val: Any, loss: Any = None) -> dict[str, Any]:
    """Return a model as it stands."""
    return {"model": model.eval(), "data": train, "validation": val} | ({"loss": loss} if loss else {})


def own_step(
    opt: Callable[..., torch.optim.Optimizer], loss: Callable[..., Tensor], clear: bool
) -> Callable[[nn.Module, Any], float]:
    """Return an update such as users write, which keeps an optimiser for each model."""
    made: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()

    def step(model: nn.Module, batch: Any) -> float:
        if model not in made:
            made[model] = opt(model.parameters())
        x, y = batch
        if clear:
            made[model].zero_grad()
        value = loss(call(model, x), y)
        value.backward()
        made[model].step()
        return float(value)

    return step


# ----------------------------------------------------------------------------------------------------------------- data
def halves(x: Any, y: Tensor, share: float = 0.7) -> tuple[Pair, Pair]:
    """Split rows at random."""
    order = torch.randperm(len(y))
    cut = int(share * len(y))
    a, b = order[:cut], order[cut:]
    return (take(x, a, len(y)), y[a]), (take(x, b, len(y)), y[b])


def scale(train: Pair, val: Pair, target: bool = False) -> tuple[Pair, Pair]:
    """Standardise by the training rows."""
    (x, y), (v, w) = train, val
    m, s = x.mean(0), x.std(0).clamp_min(1e-6)
    if target:
        a, b = y.mean(), y.std()
        y, w = (y - a) / b, (w - a) / b
    return ((x - m) / s, y), ((v - m) / s, w)


def real(name: str, seed: int, *, scaled: bool = True, binary: bool = False) -> tuple[Pair, Pair]:
    """Return a table of scikit-learn."""
    torch.manual_seed(seed)
    given = getattr(datasets, f"load_{name}")()
    x = torch.tensor(given.data, dtype=torch.float32)
    if name == "iris":
        kept = np.unique(given.data, axis=0, return_index=True)[1]
        x, given.target = x[kept], given.target[kept]
    regress = name == "diabetes"
    y = torch.tensor(given.target, dtype=torch.float32 if regress or binary else torch.int64)
    pair = halves(x, y)
    return scale(*pair, target=regress) if scaled else pair


def digits(seed: int, image: bool = True, count: int = 1797) -> tuple[Pair, Pair]:
    """Return the 8 x 8 digits between 0 and 1; as a table without the pixels that hardly vary."""
    torch.manual_seed(seed)
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))[:count]
    x, y = torch.tensor(x[order], dtype=torch.float32) / 16, torch.tensor(y[order])
    return halves(x.view(-1, 1, 8, 8) if image else x[:, x.std(0) > 0.1], y)


def teacher(
    seed: int, n: int = 2000, d: int = 10, k: int = 3, margin: float = 0.45, bend: float = 1.0
) -> tuple[Pair, Pair]:
    """Return classes that a small random net gives; rows near a border are left out."""
    torch.manual_seed(seed)
    x = torch.randn(8 * n, d)
    a, b = torch.randn(d, 6) / d**0.5, torch.randn(6, k)
    out = torch.tanh(2 * bend * x @ a) @ b
    out = out - out.mean(0)
    top = out.topk(2, 1).values
    y = torch.where(top[:, 0] - top[:, 1] > margin, out.argmax(1), -1)
    kept = torch.cat([(y == c).nonzero()[: n // k, 0] for c in range(k)])
    return halves(x[kept], y[kept])


def blobs(seed: int, n: int = 1200, d: int = 8, k: int = 3, gap: float = 2.0) -> tuple[Pair, Pair]:
    """Return normal clouds whose centres stand `gap` apart."""
    torch.manual_seed(seed)
    centres = torch.linalg.qr(torch.randn(d, d))[0][:k] * gap / 2**0.5
    y = torch.randint(k, (n,))
    return halves(centres[y] + torch.randn(n, d), y)


def spirals(seed: int, n: int = 1200, turns: float = 1.2, noise: float = 0.05) -> tuple[Pair, Pair]:
    """Return two arms wound about each other."""
    torch.manual_seed(seed)
    y = torch.randint(2, (n,))
    r = torch.rand(n) * 0.8 + 0.2
    angle = r * turns * 2 * math.pi + y * math.pi
    x = torch.stack([r * angle.cos(), r * angle.sin()], 1) * 2 + noise * torch.randn(n, 2)
    return halves(x, y)


def boiler(seed: int, n: int = 1500, d: int = 6, noise: float = 0.1) -> tuple[Pair, Pair]:
    """Return a smooth surface of six measurements, of variance about one."""
    torch.manual_seed(seed)
    x = torch.randn(n, d)
    return halves(x, surface(x) + noise * torch.randn(n))


def surface(x: Tensor) -> Tensor:
    """Return what the boiler does, with about mean zero and variance one."""
    return (
        torch.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * x[:, 3] - 0.3 * x[:, 4].abs() + 0.24
    ) / 1.02


def loans(seed: int, n: int = 2000, rare: float = 0.0, gap: float = 1.0) -> tuple[Pair, Pair]:
    """Return a yes or no of five numbers; with `rare` the share of yes is that small."""
    torch.manual_seed(seed)
    y = (torch.rand(n) < (rare or 0.5)).float()
    x = torch.randn(n, 5)
    x[:, 0] += gap * y
    x[:, 1] += gap * y
    x[:, 2] -= 0.7 * gap * y
    x[:, 3] = x[:, 3] + 0.5 * x[:, 0]
    return scale(*halves(x, y))


def glyphs(seed: int, n: int = 1000, size: int = 12, noise: float = 0.15, k: int = 4) -> tuple[Pair, Pair]:
    """Return small drawings somewhere in a noisy picture."""
    torch.manual_seed(seed)
    shape = torch.zeros(5, 5, 5)
    shape[0, 2], shape[0, :, 2] = 1, 1
    shape[1, 0], shape[1, 4], shape[1, :, 0], shape[1, :, 4] = 1, 1, 1, 1
    shape[2] = torch.eye(5)
    shape[2, 0, 1] = shape[2, 4, 3] = 1
    shape[3, ::2] = 1
    shape[4] = torch.maximum(torch.eye(5), torch.eye(5).flip(0))
    y = torch.randint(k, (n,))
    x = noise * torch.randn(n, 1, size, size)
    where = torch.randint(size - 4, (n, 2))
    for i in range(n):
        a, b = where[i].tolist()
        x[i, 0, a : a + 5, b : b + 5] += shape[y[i]] * (0.8 + 0.4 * torch.rand(1))
    return halves(x, y)


def waves(
    seed: int, n: int = 900, length: int = 32, noise: float = 0.15, flat: bool = False
) -> tuple[Pair, Pair]:
    """Return sine, square and saw-tooth signals of any phase."""
    torch.manual_seed(seed)
    y = torch.randint(3, (n,))
    t = torch.arange(length) / length
    phase = (torch.rand(n, 1) + (2 + torch.rand(n, 1)) * t) % 1
    kinds = torch.stack(
        [torch.sin(2 * math.pi * phase) * 1.3, torch.where(phase < 0.5, 1.0, -1.0), 3 * (phase - 0.5)]
    )
    x = kinds[y, torch.arange(n)] + noise * torch.randn(n, length)
    return halves(x if flat else x.unsqueeze(-1), y)


def recall(seed: int, n: int = 1000, length: int = 20, k: int = 4) -> tuple[Pair, Pair]:
    """Return token rows whose first word is the answer; the others are chatter."""
    torch.manual_seed(seed)
    y = torch.randint(k, (n,))
    x = torch.randint(k, k + 8, (n, length))
    x[:, 0] = y
    return halves(x, y)


def echo(seed: int, n: int = 300, length: int = 40, lag: int = 10, noise: float = 0.1) -> tuple[Pair, Pair]:
    """Return noise whose value `lag` steps ago is to be told at each step."""
    torch.manual_seed(seed)
    x = torch.randn(n, 1, length)
    y = torch.cat([torch.zeros(n, lag), x[:, 0, :-lag]], 1) + noise * torch.randn(n, length)
    return halves(x, y)


def topics(
    seed: int, n: int = 1000, vocab: int = 60, length: int = 15, k: int = 4, sharp: float = 1.0
) -> tuple[Pair, Pair]:
    """Return word numbers that a subject draws."""
    torch.manual_seed(seed)
    p = torch.softmax(sharp * 1.5 * torch.randn(k, vocab), 1)
    y = torch.randint(k, (n,))
    return halves(torch.multinomial(p[y], length, replacement=True), y)


def reviews(seed: int, n: int = 1500, length: int = 8) -> tuple[Pair, Pair]:
    """Return word rows with good (1-5), bad (6-10), `not` (0) and idle words; `not` turns the next one over."""
    torch.manual_seed(seed)
    x = torch.randint(1, 20, (3 * n, length))
    x[torch.rand(3 * n, length) < 0.2] = 0
    mood = (x.ge(1) & x.le(5)).int() - (x.ge(6) & x.le(10)).int()
    turned = torch.cat([torch.zeros(3 * n, 1, dtype=torch.bool), x[:, :-1] == 0], 1)
    total = torch.where(turned, -mood, mood).sum(1)
    kept = (total.abs() >= 2).nonzero()[:n, 0]
    return halves(x[kept], (total[kept] > 0).long())


def tongue(
    seed: int, n: int = 500, vocab: int = 12, length: int = 16, sharp: float = 2.5
) -> tuple[Pair, Pair]:
    """Return sentences of a random chain and the next words."""
    torch.manual_seed(seed)
    p = torch.softmax(sharp * torch.randn(vocab, vocab), 1)
    x = torch.randint(vocab, (n, 1))
    for _ in range(length):
        x = torch.cat([x, torch.multinomial(p[x[:, -1]], 1)], 1)
    return halves(x[:, :-1], x[:, 1:].contiguous())


def town(
    seed: int,
    n: int = 400,
    k: int = 4,
    d: int = 12,
    near: float = 0.06,
    far: float = 0.005,
    clear: float = 0.8,
) -> tuple[Pair, Pair]:
    """Return people of a town with circles of friends: numbers to ask for, all features, the normalised graph."""
    torch.manual_seed(seed)
    y = torch.randint(k, (n,))
    p = torch.where(y[:, None] == y[None], near, far)
    a = (torch.rand(n, n) < p).float().triu(1)
    a = a + a.T + torch.eye(n)
    s = a.sum(1).rsqrt()
    x = torch.randn(n, d) + clear * torch.randn(k, d)[y]
    order = torch.randperm(n)
    cut = n // 2
    whole = (x, s[:, None] * a * s[None])
    return ((order[:cut], *whole), y[order[:cut]]), ((order[cut:], *whole), y[order[cut:]])


def molecules(seed: int, n: int = 800, size: int = 9) -> tuple[Pair, Pair]:
    """Return small graphs of two kinds of atoms; the class is whether unlike atoms are bound more often than like ones."""
    torch.manual_seed(seed)
    m = 3 * n
    kind = torch.randint(2, (m, size))
    a = (torch.rand(m, size, size) < 0.3).float().triu(1)
    a = a + a.transpose(1, 2)
    unlike = (kind[:, :, None] != kind[:, None]).float()
    d = (a * unlike).sum((1, 2)) - (a * (1 - unlike)).sum((1, 2))
    kept = (d.abs() > 3).nonzero()[:n, 0]
    return halves((F.one_hot(kind[kept], 2).float(), a[kept]), (d[kept] > 0).long())


def circle(seed: int, n: int = 1000, modes: int = 8, spread: float = 0.1) -> tuple[Tensor, Tensor]:
    """Return points about the corners of a polygon."""
    torch.manual_seed(seed)
    angle = torch.randint(modes, (n,)) * 2 * math.pi / modes
    x = torch.stack([angle.cos(), angle.sin()], 1) * 2 + spread * torch.randn(n, 2)
    return x[: int(0.7 * n)], x[int(0.7 * n) :]


def bars(seed: int, n: int = 1000, size: int = 8) -> tuple[Tensor, Tensor]:
    """Return grey pictures (flat rows) of one soft bar, upright or lying, of any place and width."""
    torch.manual_seed(seed)
    place, width = torch.rand(n, 1) * (size - 1), 0.7 + torch.rand(n, 1)
    line = torch.exp(-(((torch.arange(size) - place) / width) ** 2))
    x = line[:, None].expand(n, size, size).clone()
    lying = torch.rand(n) < 0.5
    x[lying] = x[lying].transpose(1, 2)
    x = (0.9 * x + 0.05 + 0.03 * torch.randn(n, size, size)).clamp(0, 1).flatten(1)
    return x[: int(0.7 * n)], x[int(0.7 * n) :]


# ----------------------------------------------------------------------------------------------------------------- nets
def mlp(
    *sizes: int, act: Callable[[], nn.Module] = nn.ReLU, drop: float = 0.0, norm: bool = False
) -> nn.Sequential:
    """Return dense layers."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += ([nn.BatchNorm1d(b)] if norm else []) + [act()] + ([nn.Dropout(drop)] if drop else [])
    return nn.Sequential(*layers)


class Flat(nn.Module):
    """A net whose only output is a row of numbers, perhaps bent at the end."""

    def __init__(self, net: nn.Module, end: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.net, self.end = net, end

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(x).squeeze(-1)
        return out if self.end is None else self.end(out)


class Ended(nn.Module):
    """A net with a function at its end."""

    def __init__(self, net: nn.Module, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.end = net, end

    def forward(self, *x: Tensor) -> Tensor:
        return self.end(self.net(*x))


class Conv(nn.Module):
    """Two convolutions, pooled, and a dense end, all called as functions."""

    def __init__(
        self,
        k: int,
        size: int = 8,
        width: int = 12,
        drop: float = 0.0,
        norm: bool = False,
        always: bool = False,
    ) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, padding=1)
        self.n1, self.n2 = (
            (nn.BatchNorm2d(width), nn.BatchNorm2d(2 * width)) if norm else (nn.Identity(), nn.Identity())
        )
        self.out = nn.Linear(2 * width * (size // 4) ** 2, k)
        self.drop, self.always = drop, always

    def features(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.n1(self.c1(x))), 2)
        return F.max_pool2d(F.relu(self.n2(self.c2(x))), 2).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        if self.drop:
            x = F.dropout(x, self.drop, training=self.training or self.always)
        return self.out(x)


class Recurrent(nn.Module):
    """A recurrent reader of signals, or of words if there is a vocabulary; answers from its last (or mean) state."""

    def __init__(
        self, k: int, hidden: int = 24, kind: str = "GRU", inputs: int = 1, vocab: int = 0, mean: bool = False
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, inputs) if vocab else nn.Identity()
        self.rnn = getattr(nn, kind)(inputs, hidden, batch_first=True)
        self.out, self.mean = nn.Linear(hidden, k), mean

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(x))
        return self.out(states.mean(1) if self.mean else states[:, -1])


class Bag(nn.Module):
    """The mean of the words' vectors, then a dense end."""

    def __init__(self, vocab: int, k: int, width: int = 16, hidden: int = 0, drop: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.drop = nn.Dropout(drop)
        self.end = mlp(width, hidden, k) if hidden else nn.Linear(width, k)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.drop(self.words(x).mean(1)))


class Attention(nn.Module):
    """Words with their places, one layer of self-attention, the mean."""

    def __init__(self, vocab: int, k: int, length: int, width: int = 24, drop: float = 0.0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Parameter(0.1 * torch.randn(length, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, drop, batch_first=True)
        self.out = nn.Linear(width, k)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.words(x) + self.places).mean(1))


class Speaker(nn.Module):
    """A recurrent language model, perhaps with the same matrix for reading and saying."""

    def __init__(self, vocab: int, width: int = 24, tied: bool = False) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(vocab, width), nn.GRU(width, width, batch_first=True)
        self.say = nn.Linear(width, vocab)
        nn.init.normal_(self.words.weight, std=0.3)
        if tied:
            self.say.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.say(self.rnn(self.words(x))[0])


class Delay(nn.Module):
    """Causal convolutions with chosen spreads."""

    def __init__(self, width: int, spreads: tuple[int, ...], size: int = 3, out: int = 1) -> None:
        super().__init__()
        sizes = [1] + [width] * len(spreads)
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, size, dilation=s) for a, b, s in zip(sizes, sizes[1:], spreads, strict=False)
        )
        self.pads, self.end = [(size - 1) * s for s in spreads], nn.Conv1d(width, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        for i, (conv, pad) in enumerate(zip(self.convs, self.pads, strict=True)):
            new = F.leaky_relu(conv(F.pad(x, (pad, 0))), 0.2)
            x = new if i == 0 else x + new
        return self.end(x).squeeze(1)


class Friends(nn.Module):
    """A graph convolution net that answers for the nodes asked for."""

    def __init__(self, d: int, k: int, layers: int = 2, width: int = 16, drop: float = 0.0) -> None:
        super().__init__()
        sizes = [d] + [width] * (layers - 1) + [k]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.drop = drop

    def forward(self, who: Tensor, x: Tensor, graph: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = graph @ layer(F.dropout(x, self.drop, self.training))
            if i < len(self.layers) - 1:
                x = F.relu(x)
        return x[who]


class Walk(nn.Module):
    """Features averaged over `hops` steps along the graph, then a dense end."""

    def __init__(self, d: int, k: int, hops: int, hidden: int = 0) -> None:
        super().__init__()
        self.hops, self.end = hops, mlp(d, hidden, k) if hidden else nn.Linear(d, k)

    def forward(self, who: Tensor, x: Tensor, graph: Tensor) -> Tensor:
        for _ in range(self.hops):
            x = graph @ x
        return self.end(x)[who]


class Molecule(nn.Module):
    """Messages along bonds, then the sum or mean of all atoms."""

    def __init__(self, d: int, k: int, rounds: int = 2, width: int = 24, own: bool = True) -> None:
        super().__init__()
        self.start, self.own = nn.Linear(d, width), own
        self.mine = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.others = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.end = mlp(width, width, k)

    def forward(self, x: Tensor, bonds: Tensor) -> Tensor:
        x = self.start(x)
        degree = bonds.sum(2, keepdim=True).clamp_min(1)
        for mine, others in zip(self.mine, self.others, strict=True):
            message = others(bonds @ x / 3 if self.own else (bonds @ x + x) / (degree + 1))
            x = F.relu(mine(x) + message) if self.own else F.relu(message)
        return self.end(x.mean(1))


class Residual(nn.Module):
    """Dense blocks that add to what they are given."""

    def __init__(self, d: int, k: int, blocks: int = 3, width: int = 24) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(d, width), nn.Linear(width, k)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for block in self.blocks:
            x = x + block(x)
        return self.end(x)


class VAE(nn.Module):
    """A variational autoencoder of flat pictures between 0 and 1."""

    def __init__(self, d: int, hidden: int = 64, code: int = 4) -> None:
        super().__init__()
        self.code, self.read, self.mean, self.spread = (
            code,
            nn.Linear(d, hidden),
            nn.Linear(hidden, code),
            nn.Linear(hidden, code),
        )
        self.write = mlp(code, hidden, d)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.read(x))
        return self.mean(h), self.spread(h)

    def sample(self, n: int) -> Tensor:
        return torch.sigmoid(self.write(torch.randn(n, self.code)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = self.encode(x)
        z = mean + torch.randn_like(mean) * (logvar / 2).exp() if self.training else mean
        return self.write(z), mean, logvar


def elbo(output: tuple[Tensor, Tensor, Tensor], x: Tensor, beta: float = 1.0) -> Tensor:
    """Return the negative bound per row."""
    out, mean, logvar = output
    kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()
    return F.binary_cross_entropy_with_logits(out, x, reduction="sum") / len(x) + beta * kl


class Duel(nn.Module):
    """A generator with its critic; called on data it gives the critic's opinion."""

    def __init__(self, d: int, noise: int = 4, hidden: int = 48, critic: nn.Module | None = None) -> None:
        super().__init__()
        self.noise, self.make = noise, mlp(noise, hidden, hidden, d)
        self.judge = critic or mlp(d, hidden, hidden, 1, act=partial(nn.LeakyReLU, 0.2))

    def sample(self, n: int) -> Tensor:
        return self.make(torch.randn(n, self.noise))

    def forward(self, x: Tensor) -> Tensor:
        return self.judge(x).squeeze(-1)


def kernel_distance(a: Tensor, b: Tensor, widths: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)) -> Tensor:
    """Return the squared maximum mean discrepancy."""
    z = torch.cat([a, b])
    d = torch.cdist(z, z).pow(2)
    k = sum(torch.exp(-d / (2 * w**2)) for w in widths)
    n = len(a)
    return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()


def attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    size: float,
    steps: int = 3,
    loss: Callable[..., Tensor] = F.cross_entropy,
) -> Tensor:
    """Return inputs pushed against the model, at most `size` in each coordinate."""
    moved = x + size * (2 * torch.rand_like(x) - 1)
    for _ in range(steps):
        moved = moved.detach().requires_grad_()
        (g,) = torch.autograd.grad(loss(model(moved), y), moved)
        moved = x + (moved + 2 * size / steps * g.sign() - x).clamp(-size, size)
    return moved.detach()
