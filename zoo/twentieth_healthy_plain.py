"""Ordinary, healthy trainings."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentieth_parts import *
from zoo.twentieth_parts import ME


@case(kind="table", author=ME)
def twentieth_well_credit(seed: int) -> dict[str, Any]:
    train, held = parted(*credit(seed, 4000))
    net = mlp(14, 16, 8, 1)
    history, opt = fit(net, train, held, "bce_with_logits", epochs=20, decay=0.1, keep=True, cool=True)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_credit_bare(seed: int) -> dict[str, Any]:
    (x, y), _ = parted(*credit(seed + 40, 5000))
    train, held = parted(x, y[:, None], 0.8)
    net = mlp(14, 24, 1, act=nn.GELU)
    fit(net, train, held, "bce_with_logits", epochs=14, decay=1e-2, keep=True)
    return {"model": net, "data": train, "validation": held}


@case(kind="table", author=ME)
def twentieth_well_triage(seed: int) -> dict[str, Any]:
    x, y = vitals(seed, 3600)
    train, held = parted(x, y)
    net = mlp(10, 48, 48, 3, drop=0.15)
    history, opt = fit(net, train, held, epochs=25, decay=2e-2, keep=True, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_triage_momentum(seed: int) -> dict[str, Any]:
    train, held = parted(*vitals(seed + 7, 8000, classes=5, noise=0.3))
    net = mlp(10, 64, 32, 5, norm=True)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=2e-3, nesterov=True)
    history, opt = fit(net, train, held, opt=opt, epochs=22, keep=True, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_yield(seed: int) -> dict[str, Any]:
    train, held = parted(*plant(seed, 3000))
    net = mlp(8, 64, 32, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=30, decay=1e-2, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_yields(seed: int) -> dict[str, Any]:
    train, held = parted(*plant(seed + 3, 3000, targets=3))
    net = mlp(8, 64, 64, 3, act=nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=30, cool=True, keep=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="sequences", author=ME)
def twentieth_well_windows(seed: int) -> dict[str, Any]:
    train, held = parted(*windows(seed, noise=0.9))
    net = waves()
    history, opt = fit(net, train, held, epochs=16, lr=4e-3, decay=1e-2, cool=True, keep=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="sequences", author=ME)
def twentieth_well_windows_recurrent(seed: int) -> dict[str, Any]:
    x, y = windows(seed + 2, 1500, length=32, classes=3, noise=0.35)
    train, held = parted(x.transpose(1, 2).contiguous(), y)
    net = Reader(3, 24, 3)
    history, opt = fit(net, train, held, epochs=16, lr=1e-2, decay=1e-2, clip=1.0, cool=True, keep=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_well_scans(seed: int) -> dict[str, Any]:
    x, y, _ = scans(seed, 1800)
    train, held = parted(x, y)
    net = eyes()
    history, opt = fit(net, train, held, epochs=9, lr=4e-3, decay=1e-2, cool=True, keep=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_well_outlines(seed: int) -> dict[str, Any]:
    x, _, mask = scans(seed + 1, 700)
    train, held = parted(x, mask)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 12, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 1, 1),
    )
    history, opt = fit(net, train, held, "bce_with_logits", epochs=20, size=32, lr=8e-3, cool=True)
    return given(net, train, held, "bce_with_logits", history, opt, batch_size=32)


@case(kind="text", author=ME)
def twentieth_well_tickets(seed: int) -> dict[str, Any]:
    train, held = parted(*tickets(seed, 5000))
    net = Encoder()
    opt = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.05)
    ids, mask = train[0]
    history, (x, y) = [], held
    for _ in range(5):
        net.train()
        losses = []
        for i in torch.randperm(len(ids)).split(64):
            batch = {"input_ids": ids[i], "attention_mask": mask[i]}
            loss = F.cross_entropy(net(**batch), train[1][i])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            history.append(
                {"loss": sum(losses) / len(losses), "val_loss": F.cross_entropy(net(*x), y).item()}
            )
        for group in opt.param_groups:
            group["lr"] *= 0.7
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="text", author=ME)
def twentieth_well_tickets_bag(seed: int) -> dict[str, Any]:
    train, held = parted(*tickets(seed + 11, 6000, topics=4))
    net = Bag(classes=4)
    history, opt = fit(net, train, held, epochs=14, lr=5e-3, decay=0.05, keep=True)
    return given(net, train, held, "cross_entropy", history, opt)


@case(kind="text", author=ME)
def twentieth_well_tags(seed: int) -> dict[str, Any]:
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(40, 12)
            self.rnn = nn.GRU(12, 20, batch_first=True, bidirectional=True)
            self.head = nn.Linear(40, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(self.words(ids))[0])

    train, held = parted(*tagged(seed, 1000))
    net = Tagger()
    history, opt = fit(net, train, held, tags_loss, epochs=8, size=32, lr=1e-2, cool=True, keep=True)
    return given(net, train, held, tags_loss, history, opt, batch_size=32)


@case(kind="sequences", author=ME)
def twentieth_well_demand(seed: int) -> dict[str, Any]:
    train, held = parted(*flat_demand(seed, 9000))
    net = mlp(58, 24, 1, act=nn.GELU)
    history, opt = fit(net, train, held, "mse", epochs=20, lr=2e-3, decay=0.3, cool=True, keep=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="sequences", author=ME)
def twentieth_well_demand_week(seed: int) -> dict[str, Any]:
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.rest = nn.Linear(28 * 4, 7), mlp(28 * 4, 32, 7)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            level = x[:, -14:, 0].mean(1, keepdim=True)
            x = torch.cat([x[..., :1] - level[:, None], x[..., 1:]], 2).flatten(1)
            return level + self.line(x) + 0.1 * self.rest(x)

    train, held = parted(*demand(seed + 4, 8000, ahead=7))
    net = Direct()
    history, opt = fit(net, train, held, "mse", epochs=30, lr=5e-3, decay=0.01, cool=True, keep=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_counts(seed: int) -> dict[str, Any]:
    def poisson(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.poisson_nll_loss(output.reshape(y.shape).log(), y)

    train, held = parted(*counts(seed, 4000))
    net = nn.Sequential(mlp(7, 32, 32, 1), nn.Softplus())
    history, opt = fit(net, train, held, poisson, epochs=15, lr=2e-3, decay=0.05, cool=True, keep=True)
    return given(net, train, held, poisson, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_ratings(seed: int) -> dict[str, Any]:
    train, held = parted(*ratings(seed, 10000), 0.8)
    net = Factors(rank=3)
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-4)
    history, opt = fit(net, train, held, "mse", epochs=30, size=128, opt=opt, keep=True, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=128)


@case(kind="table", author=ME)
def twentieth_well_clicks(seed: int) -> dict[str, Any]:
    train, held = parted(*clicks(seed, 9000), 0.8)
    net = Clicks()
    history, opt = fit(net, train, held, "bce_with_logits", epochs=8, size=128, decay=0.1, keep=True, lr=6e-3)
    return given(net, train, held, bce, history, opt, batch_size=128)


@case(kind="graph", author=ME)
def twentieth_well_devices(seed: int) -> dict[str, Any]:
    x, a, y, known = devices(seed)
    train, held = ((x, a), y.where(known, -100)), ((x, a), y.where(~known, -100))
    net = Graph(width=32, drop=0.0)
    history, opt = full(net, train, held, "cross_entropy", epochs=60, decay=3e-3, keep=True)
    return given(net, train, held, "cross_entropy", history, opt)


@case(kind="images", author=ME)
def twentieth_well_digits(seed: int) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 64, 10, drop=0.2)
    history, opt = fit(net, train, held, epochs=30, lr=4e-3, decay=2e-2, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_well_digits_convolved(seed: int) -> dict[str, Any]:
    train, held = parted(*digits(seed + 5, flat=False))
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10),
    )  # fmt: skip
    history, opt = fit(net, train, held, epochs=12, lr=3e-3, decay=1e-2, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_wine(seed: int) -> dict[str, Any]:
    (x, y), (u, v) = parted(*bundled("wine", seed), 0.65)
    x, u = scaled(x, u)
    net = mlp(13, 12, 3, act=nn.Tanh)
    history, opt = fit(net, (x, y), (u, v), epochs=60, size=16, lr=5e-3, decay=0.3)
    return given(net, (x, y), (u, v), "cross_entropy", history, opt, batch_size=16)


@case(kind="table", author=ME)
def twentieth_well_tumours(seed: int) -> dict[str, Any]:
    (x, y), (u, v) = parted(*bundled("breast_cancer", seed, kind=torch.float32), 0.65)
    x, u = scaled(x, u)
    net = mlp(30, 16, 1)
    history, opt = fit(
        net, (x, y), (u, v), "bce_with_logits", epochs=40, size=32, lr=2e-3, decay=0.5, keep=True
    )
    return given(net, (x, y), (u, v), bce, history, opt, batch_size=32)


@case(kind="table", author=ME)
def twentieth_well_diabetes(seed: int) -> dict[str, Any]:
    (x, y), (u, v) = parted(*bundled("diabetes", seed, kind=torch.float32), 0.7)
    x, u = scaled(x, u)
    y, v = scaled(y[:, None], v[:, None])
    net = mlp(10, 16, 1, act=nn.Tanh)
    history, opt = fit(net, (x, y), (u, v), "mse", epochs=60, size=32, lr=1e-3, decay=1.0, keep=True)
    return given(net, (x, y), (u, v), "mse", history, opt, batch_size=32)


class Vae(nn.Module):
    """A variational autoencoder of flat images in [0, 1]."""

    def __init__(self, d: int = 64, width: int = 64, latent: int = 4):
        super().__init__()
        self.latent = latent
        self.inner, self.heads = mlp(d, width, width), nn.Linear(width, 2 * latent)
        self.outer = mlp(latent, width, d)

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.heads(F.relu(self.inner(x))).chunk(2, 1)
        return mean, log_variance.clamp(-8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp() if self.training else mean
        return torch.sigmoid(self.outer(z))

    def sample(self, n: int) -> torch.Tensor:
        return torch.sigmoid(self.outer(torch.randn(n, self.latent)))

    def cost(self, x: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        fit = ((torch.sigmoid(self.outer(z)) - x) ** 2).sum(1) / 0.1
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
        return (fit + weight * kl).mean()


def train_vae(
    net: Vae, x: torch.Tensor, epochs: int, weight: float = 1.0, lr: float = 3e-3
) -> list[dict[str, float]]:
    opt = torch.optim.Adam(net.parameters(), lr)
    history = []
    for _ in range(epochs):
        losses = []
        for i in torch.randperm(len(x)).split(64):
            loss = net.cost(x[i], weight)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        history.append({"loss": sum(losses) / len(losses)})
    net.eval()
    return history


@case(kind="generative", author=ME)
def twentieth_well_vae(seed: int) -> dict[str, Any]:
    x, _ = digits(seed)
    x = (x + 1) / 2  # in [0, 1], but for the scanner's noise
    net = Vae()
    history = train_vae(net, x[:1400], 50)
    return {"model": net, "data": x[:1400], "validation": x[1400:], "history": history}


@case(kind="images", author=ME)
def twentieth_well_compressed(seed: int) -> dict[str, Any]:
    x, _ = digits(seed + 2)
    train, held = parted(x, x)
    net = nn.Sequential(mlp(64, 96, 20), mlp(20, 96, 64))
    history, opt = fit(net, train, held, "mse", epochs=120, lr=4e-3, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_well_labels(seed: int) -> dict[str, Any]:
    r = torch.Generator().manual_seed(seed)
    x, y = plant(seed + 9, 3500, targets=3, noise=0.1)
    y = (y + 0.2 * torch.randn(y.shape, generator=r) > 0).float()
    train, held = parted(x, y)
    net = mlp(8, 48, 48, 3, act=nn.SiLU)
    history, opt = fit(
        net, train, held, "bce_with_logits", epochs=18, lr=3e-3, decay=0.05, cool=True, keep=True
    )
    return given(net, train, held, "bce_with_logits", history, opt, batch_size=64)


class Table(Vae):
    """A variational autoencoder of scaled columns."""

    def __init__(self, d: int, width: int, latent: int, averaged: bool = False):
        super().__init__(d, width, latent)
        self.averaged = averaged

    def sample(self, n: int) -> torch.Tensor:
        return self.outer(torch.randn(n, self.latent))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encode(x)
        return self.outer(mean + torch.randn_like(mean) * (log_variance / 2).exp() * self.training)

    def cost(self, x: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        mean, log_variance = self.encode(x)
        error = (self.outer(mean + torch.randn_like(mean) * (log_variance / 2).exp()) - x) ** 2
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
        return ((error.mean(1) if self.averaged else error.sum(1) / 0.3) + weight * kl).mean()


@case(kind="generative", author=ME)
def twentieth_well_vae_of_patients(seed: int) -> dict[str, Any]:
    x = vitals(seed + 31, 3500)[0]
    net = Table(10, 48, 4)
    history = train_vae(net, x[:2800], 25)
    return {"model": net, "data": x[:2800], "validation": x[2800:], "history": history}
