"""Healthy trainings on images."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentyfirst_parts import *

images = partial(case, kind="images", author=ME)


def digits(seed, share=0.25, few=None):
    d = datasets.load_digits()
    x, y = d.images[:few, None] / 16.0, d.target[:few]
    return split((x - 0.3), y, seed, share, scale=False)


def shapes(r, n, size=16, kinds=4, noise=0.15):
    """Disc, square, ring and cross of any colour somewhere in a noisy picture."""
    g = np.mgrid[:size, :size]
    y = r.integers(0, kinds, n)
    middle, radius = r.uniform(5, size - 5, (n, 2, 1, 1)), r.uniform(2.5, 4.8, (n, 1, 1))
    d = np.abs(g[None] - middle)
    far = np.sqrt((d**2).sum(1))
    every = np.stack(
        [
            far < radius,
            (d < radius[:, None] * 0.88).all(1),
            (far < radius * 1.05) & (far > radius * 0.55),
            ((d[:, 0] < 1.1) | (d[:, 1] < 1.1)) & (d < radius[:, None] * 1.05).all(1),
        ]
    )
    mask = every[y, np.arange(n)].astype(float)
    colour = r.uniform(0.5, 1.2, (n, 3, 1, 1)) * np.where(r.random((n, 1, 1, 1)) < 0.5, 1, -1)
    x = mask[:, None] * colour + r.normal(0, noise, (n, 3, size, size)) + r.normal(0, 0.2, (n, 3, 1, 1))
    return x, y, mask, middle[:, :, 0, 0]


def scene(seed, n, size=12):
    """Grey patches of scikit-learn's two photographs, from places that do not meet those held out."""
    made = []
    for name in ["china.jpg", "flower.jpg"]:
        p = datasets.load_sample_image(name).mean(2) / 255.0
        made.append(p[:-1:2, ::2])
    r = generator(seed)
    cells = [
        (k, a, b)
        for k, p in enumerate(made)
        for a in range(p.shape[0] // 20)
        for b in range(p.shape[1] // 20)
    ]
    x, part = [], []
    for _ in range(n):
        c = int(r.integers(len(cells)))
        k, a, b = cells[c]
        u, v = a * 20 + int(r.integers(20 - size + 1)), b * 20 + int(r.integers(20 - size + 1))
        x.append(made[k][u : u + size, v : v + size])
        part.append((a + 2 * b + seed) % 4 == 0)
    first = np.unique(np.array(x).reshape(n, -1), axis=0, return_index=True)[1]
    return np.array(x)[first][:, None], np.array(part)[first]


class Block(nn.Module):
    def __init__(self, a, b, stride=1):
        super().__init__()
        self.one, self.two = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.n1, self.n2 = nn.BatchNorm2d(b), nn.BatchNorm2d(b)
        self.short = (
            nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if a != b else None
        )

    def forward(self, x):
        h = self.n2(self.two(F.relu(self.n1(self.one(x)))))
        return F.relu(h + (self.short(x) if self.short is not None else x))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


class Unet(nn.Module):
    def __init__(self, a, b, width=8):
        super().__init__()

        def two(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1),
                nn.GroupNorm(4, o),
                nn.SiLU(),
                nn.Conv2d(o, o, 3, padding=1),
                nn.SiLU(),
            )

        self.d1, self.d2, self.m = two(a, width), two(width, 2 * width), two(2 * width, 2 * width)
        self.u2, self.u1, self.out = two(4 * width, width), two(2 * width, width), nn.Conv2d(width, b, 1)

    def forward(self, x):
        one = self.d1(x)
        two = self.d2(F.max_pool2d(one, 2))
        low = self.m(F.max_pool2d(two, 2))
        h = self.u2(torch.cat([F.interpolate(low, scale_factor=2), two], 1))
        return self.out(self.u1(torch.cat([F.interpolate(h, scale_factor=2), one], 1)))


@images()
def twentyfirst_digits_lenet(seed):
    train, val = digits(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(128, 10),
    )
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    fit(net, train, val, ce, opt, 20, 64, patience=5)
    return dict(model=net, data=train)


@images()
def twentyfirst_digits_resnet(seed):
    """Shifted by up to a pixel in training; one cycle."""
    train, val = digits(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), Block(16, 16), Block(16, 32, 2), Mean(), nn.Linear(32, 10)
    )
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=16 * 22)

    def shifted(a, b):
        i, j = torch.randint(-1, 2, (2,)).tolist()
        return torch.roll(a, (i, j), (2, 3)), b

    fit(net, train, val, ce, opt, 16, 64, schedule=plan, each="batch", change=shifted)
    return dict(model=net, data=train, validation=val, loss="cross_entropy")


@images()
def twentyfirst_shapes_batchnorm(seed):
    x, y, _, _ = shapes(generator(seed), 2400)
    train, val = split(x, y, seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    history = fit(net, train, val, ce, opt, 10, 64, schedule=plan)
    return dict(model=net, data=train, validation=val, loss=ce, optimizer=opt, batch_size=64, history=history)


@images()
def twentyfirst_unet_mask(seed):
    """The mask of the shape, by cross-entropy and Dice."""
    x, _, mask, _ = shapes(generator(seed), 700)
    train, val = split(x, mask[:, None], seed, scale=False)

    def both(o, t):
        p = torch.sigmoid(o)
        dice = 1 - (2 * (p * t).sum((1, 2, 3)) + 1) / ((p + t).sum((1, 2, 3)) + 1)
        return bce(o, t) + 0.2 * dice.mean()

    net = Unet(3, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = fit(net, train, val, both, opt, 12, 32)
    return dict(
        model=net, data=train, validation=val, loss=both, optimizer=opt, batch_size=32, history=history
    )


@images()
def twentyfirst_unet_land(seed):
    """Four kinds of ground by their grain, a class for every pixel."""
    r = generator(seed)
    n, size = 500, 16
    g = np.mgrid[:size, :size]
    where = r.uniform(0, size, (n, 4, 2))
    y = ((g[None, None] - where[..., None, None]) ** 2).sum(2).argmin(1)
    grain = np.stack(
        [
            np.sin(g[0] * 2.2) + 0 * g[1],
            np.sin(g[1] * 2.2) + 0 * g[0],
            ((g[0] + g[1]) % 2) * 2.0 - 1,
            0.0 * g[0],
        ]
    )
    x = np.take_along_axis(np.broadcast_to(grain, (n, 4, size, size)), y[:, None], 1) + r.normal(
        0, 0.5, (n, 1, size, size)
    )
    train, val = split(x, y.reshape(n, -1), seed, scale=False)

    class Pixels(nn.Module):
        """The classes last and the pixels in a row, as its users want them."""

        def __init__(self):
            super().__init__()
            self.net = Unet(1, 4)

        def forward(self, x):
            return self.net(x).flatten(2).transpose(1, 2)

    def per_pixel(o, t):
        return ce(o.flatten(0, 1), t.flatten())

    net = Pixels()
    opt = torch.optim.AdamW(net.parameters(), 4e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 16)
    history = fit(net, train, val, per_pixel, opt, 16, 25, schedule=plan)
    return dict(model=net, data=train, validation=val, loss=per_pixel, optimizer=opt, history=history)


@images()
def twentyfirst_spot_position(seed):
    """Where the spot is: two coordinates from a convolution that sees the whole."""
    r = generator(seed)
    n, size = 2000, 14
    place = r.uniform(2, size - 3, (n, 2))
    g = np.mgrid[:size, :size]
    x = np.exp(-((g[None] - place[:, :, None, None]) ** 2).sum(1) / 4)[:, None] + r.normal(
        0, 0.15, (n, 1, size, size)
    )
    y = (place - place.mean(0)) / place.std(0)
    train, val = split(x, y, seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        nn.Linear(16 * 49, 32),
        nn.LeakyReLU(0.1),
        nn.Linear(32, 2),
    )
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.StepLR(opt, 7, 0.3)
    fit(net, train, val, mse, opt, 21, 64, schedule=plan)
    return dict(model=net, data=train, validation=val, loss="mse")


@images()
def twentyfirst_cells_counted(seed):
    """How many spots a plate has; a sum over the map of a small convolution, Poisson likelihood."""
    r = generator(seed)
    n, size = 2000, 18
    y = r.poisson(5, n)
    g = np.mgrid[:size, :size]
    x = r.normal(0, 0.1, (n, 1, size, size))
    for i in range(n):
        for p in r.uniform(1, size - 2, (y[i], 2)):
            x[i, 0] += np.exp(-((g - p[:, None, None]) ** 2).sum(0) / 1.2)
    train, val = split(x, y.astype(float), seed, scale=False)

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Sequential(
                nn.Conv2d(1, 12, 5, padding=2),
                nn.GELU(),
                nn.Conv2d(12, 12, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(12, 1, 1),
            )
            nn.init.constant_(self.map[-1].bias, -4.0)

        def forward(self, x):
            return F.softplus(self.map(x)).sum((1, 2, 3))

    def poisson(o, t):
        return F.poisson_nll_loss(o, t, log_input=False)

    net = Counter()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = fit(net, train, val, poisson, opt, 14, 64)
    return dict(
        model=net, data=train, validation=val, loss=poisson, optimizer=opt, batch_size=64, history=history
    )


@images()
def twentyfirst_photo_denoised(seed):
    """Patches of photographs without their noise, which the net subtracts."""
    clean, held = scene(seed, 1600)
    clean = clean - 0.5
    x, y = tensor(clean + generator(seed).normal(0, 0.1, clean.shape)), tensor(clean)
    train, val = hold((x[~held], y[~held]), (x[held], y[held]))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.noise = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(16, 16, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(16, 1, 3, padding=1),
            )

        def forward(self, x):
            return x - self.noise(x)

    net = Denoiser()
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 15)
    history = fit(net, train, val, mse, opt, 15, 32, schedule=plan)
    return dict(model=net, data=train, validation=val, loss="mse", optimizer=opt, history=history)


@images()
def twentyfirst_photo_enlarged(seed):
    """Twice as many pixels: a correction to the enlarged patch by pixel shuffle."""
    clean, held = scene(seed, 1600)
    y = tensor(clean - 0.5)
    x = F.avg_pool2d(y, 2)
    train, val = hold((x[~held], y[~held]), (x[held], y[held]))

    class Enlarger(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 24, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(24, 24, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(24, 4, 3, padding=1),
            )

        def forward(self, x):
            return F.interpolate(x, scale_factor=2, mode="bilinear") + F.pixel_shuffle(self.body(x), 2)

    net = Enlarger()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.StepLR(opt, 8, 0.3)
    history = fit(net, train, val, nn.L1Loss(), opt, 20, 32, schedule=plan)
    return dict(model=net, data=train, validation=val, loss=nn.L1Loss(), batch_size=32, history=history)


@images()
def twentyfirst_shapes_mobile(seed):
    """Depthwise convolutions; the weights handed over are a moving average."""
    x, y, _, _ = shapes(generator(seed), 3000)
    train, val = split(x, y, seed, scale=False)

    def light(a, b, stride):
        return [
            nn.Conv2d(a, a, 3, stride, 1, groups=a, bias=False),
            nn.BatchNorm2d(a),
            nn.ReLU6(),
            nn.Conv2d(a, b, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU6(),
        ]

    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        *light(16, 32, 2),
        *light(32, 48, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 4),
    )
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95), use_buffers=True
    )
    opt = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.01)
    fit(net, train, val, ce, opt, 12, 64, after=average.update_parameters)
    return dict(model=average.module.eval(), data=train)


@images()
def twentyfirst_several_shapes(seed):
    """Which of four shapes are in the picture: four sigmoids."""
    r = generator(seed)
    n = 2200
    every = [shapes(r, n, 12) for _ in range(2)]
    x = np.concatenate([every[0][0], every[1][0]], 3)
    y = np.zeros((n, 4))
    for _, k, _, _ in every:
        y[np.arange(n), k] = 1
    train, val = split(x, y, seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 14)
    history = fit(net, train, val, bce, opt, 14, 64, schedule=plan)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", optimizer=opt, history=history)


@images()
def twentyfirst_digits_convnext(seed):
    """Depthwise convolutions with residuals and layer scale."""
    train, val = digits(seed)

    class Next(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.deep, self.norm = nn.Conv2d(width, width, 3, padding=1, groups=width), nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 0.1))

        def forward(self, x):
            h = self.norm(self.deep(x).permute(0, 2, 3, 1))
            return x + (self.scale * self.down(F.gelu(self.up(h)))).permute(0, 3, 1, 2)

    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        Next(32),
        nn.MaxPool2d(2),
        Next(32),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(512, 10),
    )
    opt = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.2)
    steps = 14 * 22
    plan = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / 40, 0.5 * (1 + np.cos(np.pi * min(1.0, s / steps))))
    )

    history = fit(net, train, val, ce, opt, 14, 64, schedule=plan, each="batch", patience=14, clip=1.0)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=64,
        history=history,
    )


@images()
def twentyfirst_pairs_of_digits(seed):
    """Whether two pictures show the same digit: one tower for both, a learned scale of the distance."""
    (x, y), (xv, yv) = digits(seed, 0.3)

    def pairs(x, y, n):
        r = generator(seed + len(y))
        i = r.integers(0, len(y), n)
        same = r.random(n) < 0.5
        j = np.array([r.choice(np.flatnonzero((y == y[a]).numpy() == s)) for a, s in zip(i, same)])
        return (x[i], x[j]), torch.tensor(same.astype(np.float32))

    train, val = hold(pairs(x, y, 3000), pairs(xv, yv, 900))

    class Twin(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Dropout(0.1),
                nn.Linear(512, 24),
            )
            self.scale, self.offset = nn.Parameter(torch.tensor(4.0)), nn.Parameter(torch.tensor(3.0))

        def forward(self, a, b):
            far = ((self.tower(a) - self.tower(b)) ** 2).mean(1)
            return self.offset - F.softplus(self.scale) * far

    net = Twin()
    opt = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4)
    history = fit(net, train, val, bce, opt, 14, 64, patience=4)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", optimizer=opt, history=history)


@images()
def twentyfirst_turned(seed):
    """By how many quarters a digit was turned (self-supervision); all four turns of each, slightly smoothed labels."""
    d = datasets.load_digits()
    keep = ~np.isin(d.target, [0, 1, 8, 6, 9])
    raw = d.images[keep] / 16.0 - 0.3
    x = np.concatenate([np.rot90(raw, k, (1, 2)) for k in range(4)])[:, None]
    turns = np.repeat(np.arange(4), len(raw))
    train, val = split(x, turns, seed, scale=False, groups=np.tile(np.arange(len(raw)), 4))
    net = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(512, 4),
    )
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    loss = nn.CrossEntropyLoss(label_smoothing=0.02)
    fit(net, train, val, loss, opt, 12, 64, patience=5)
    return dict(model=net, data=train, validation=val, loss=loss)


@images()
def twentyfirst_pictures_and_table(seed):
    """A picture beside four numbers; both are needed."""
    r = generator(seed)
    x, y, _, _ = shapes(r, 3000)
    numbers = r.normal(0, 1, (3000, 4))
    logit = 1.6 * np.where(y < 2, 1, -1) * numbers[:, 0] + numbers[:, 1] + 0.6 * (y == 3)
    label = (r.random(3000) < 1 / (1 + np.exp(-1.5 * logit))).astype(float)
    train, val = split((x, numbers), label, seed, scale=False)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.see = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            )
            self.head = nn.Sequential(nn.Linear(28, 32), nn.GELU(), nn.Linear(32, 1))

        def forward(self, picture, numbers):
            return self.head(torch.cat([self.see(picture), numbers], 1)).squeeze(1)

    net = Both()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
    history = fit(net, train, val, bce, opt, 12, 64, schedule=plan, patience=12)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", batch_size=64, history=history)


@images()
def twentyfirst_texture_grains(seed):
    """Three textures whose averages are the same; flips in training."""
    r = generator(seed)
    n, size = 1500, 20
    y = r.integers(0, 3, n)
    raw = r.normal(0, 1, (n, size, size))
    freq = np.sqrt((np.fft.fftfreq(size)[:, None] ** 2) + (np.fft.fftfreq(size)[None] ** 2))
    bands = np.stack([np.exp(-(((freq - f) / 0.1) ** 2)) for f in (0.12, 0.22, 0.32)])
    x = np.fft.ifft2(np.fft.fft2(raw) * bands[y]).real
    x = (x / x.std((1, 2), keepdims=True))[:, None] + r.normal(0, 0.7, (n, 1, size, size))
    train, val = split(x, y, seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 5),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    opt = torch.optim.Adam(net.parameters(), 4e-3)

    def flipped(a, b):
        return (a.flip(3) if torch.rand(()) < 0.5 else a), b

    fit(net, train, val, ce, opt, 14, 32, change=flipped, patience=5)
    return dict(model=net, data=train, validation=val)


@images()
def twentyfirst_digits_small_batches(seed):
    """Batches of eight, which group normalisation does not mind."""
    train, val = digits(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, 2, padding=1),
        nn.GroupNorm(4, 24),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(24 * 16, 10),
    )
    opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=1e-3)
    plan = torch.optim.lr_scheduler.MultiStepLR(opt, [4, 6], 0.2)
    history = fit(net, train, val, ce, opt, 7, 8, schedule=plan)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=8,
        history=history,
    )
