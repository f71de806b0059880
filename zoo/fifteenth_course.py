"""The fifteenth author's faults of the architecture, the descent and the outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.fifteenth_parts import (
    ME,
    Elbo,
    Energy,
    Families,
    Motifs,
    Recurrent,
    Source,
    Tagger,
    Tiles,
    climate,
    cut,
    dice,
    dna,
    dose,
    elbo,
    expression,
    fields,
    floats,
    interactions,
    isotopes,
    lakes,
    masked,
    micrographs,
    mlp,
    molecules,
    per_place,
    profiles,
    remission,
    residues,
    segmenter,
    simulator,
    spectra,
    study,
    whole,
)

# ---------------------------------------------------------------- architecture


class Spread(nn.Module):
    """Traits are averaged over the neighbours so many times, then read out."""

    def __init__(self, rounds: int, channels: int = 8) -> None:
        super().__init__()
        self.rounds, self.inward, self.head = rounds, nn.Linear(channels, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = torch.relu(self.inward(x))
        count = torch.ones(len(x)).index_add(0, edges[0], torch.ones(edges.shape[1]))[:, None]
        for _ in range(self.rounds):
            h = h.index_add(0, edges[0], h[edges[1]]) / count
        return self.head(h)


@case("oversmoothing", kind="graph", author=ME)
def families_averaged_sixty_times(seed: int, mended: bool = False) -> dict[str, Any]:
    """Sixty rounds of averaging leave every protein the same."""
    options = {"batch": None, "epochs": 120, "lr": 1e-2}
    return study(Spread(2 if mended else 60), *masked(*interactions(seed)), give="oh", **options)


class DeepFamilies(Families):
    """The same with normalised layers, so that gradients pass at any depth."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        count = torch.ones(len(x)).index_add(0, edges[0], torch.ones(edges.shape[1]))[:, None]
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = x.index_add(0, edges[0], x[edges[1]]) / count
            if i < len(self.layers) - 1:
                x = torch.relu(F.layer_norm(x, x.shape[1:]))
        return x


@case("oversmoothing", kind="graph", author=ME)
def sixteen_layers_of_interactions(seed: int, mended: bool = False) -> dict[str, Any]:
    """Sixteen graph convolutions, because deep nets are better."""
    net = DeepFamilies(depth=2 if mended else 24)
    return study(net, *masked(*interactions(seed)), batch=None, epochs=60, lr=1e-2)


class Lakes(nn.Module):
    """Sensors mixed with their neighbours by a dense matrix, then a small net."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds, self.net = rounds, mlp(5, 24, 3)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        for _ in range(self.rounds):
            x = near @ x
        return self.net(x)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def lake_sensors_blurred(seed: int, mended: bool = False) -> dict[str, Any]:
    """Oxygen classes of lake sensors from values mixed over far too wide a neighbourhood."""
    return study(Lakes(1 if mended else 12), *masked(*lakes(seed)), give="o", batch=None, epochs=150, lr=1e-2)


def echoes(seed: int, n: int = 1500, length: int = 48) -> tuple[Tensor, Tensor]:
    """Return echograms of two pulses, and which of three delays lies between them."""
    r, t = dice(seed, 110), np.arange(length)
    y = r.integers(3, size=n)
    first = r.integers(5, 20, size=n)
    x = 0.25 * r.normal(size=(n, length))
    for place in (first, first + 8 + 7 * y):
        x += 2.2 * np.exp(-0.5 * (t - place[:, None]) ** 2)
    return floats(x[:, None]), whole(y)


def listener(dilations: tuple[int, ...]) -> nn.Sequential:
    """Return convolutions of three samples with these dilations."""
    parts: list[nn.Module] = []
    for i, d in enumerate(dilations):
        parts += [nn.Conv1d(16 if i else 1, 16, 3, padding=d, dilation=d), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 3))


@case("receptive-field-too-small", kind="sequences", author=ME)
def delay_between_echoes(seed: int, mended: bool = False) -> dict[str, Any]:
    """The answer is the delay between two pulses; the net sees seven samples at a time."""
    net = listener((2, 4, 8, 4) if mended else (1, 1, 1))
    return study(net, *cut(*echoes(seed)), give="ob", epochs=15)


@case("receptive-field-too-small", kind="text", author=ME, strength="mild")
def residue_alone(seed: int, mended: bool = False) -> dict[str, Any]:
    """Nine residues decide the state of the middle one, of which the net sees three."""
    net = Tagger((9,) if mended else (3,))
    return study(net, *cut(*residues(seed, n=500, reach=4)), per_place, give="h", batch=16, epochs=18)


@case("receptive-field-too-small", kind="images", author=ME)
def pixels_one_by_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """Very noisy cells are segmented pixel by pixel, by convolutions of size one."""
    net = segmenter(kernel=5 if mended else 1)
    return study(net, *cut(*micrographs(seed, noise=2.0)), "bce_with_logits", batch=14, epochs=12, lr=1e-2)


@case("bottleneck", kind="table", author=ME)
def three_yields_through_one_unit(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three outputs must come through a single unit between two wide layers."""
    net = mlp(5, 48, 8 if mended else 1, 48, 3, act=nn.Tanh)
    return study(net, *cut(*simulator(seed, outputs=3)), "mse", give="ob", epochs=35)


@case("bottleneck", kind="generative", author=ME)
def lake_profile_in_one_number(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder of profiles with three causes has a code of one number."""
    x = profiles(seed)
    net = nn.Sequential(mlp(16, 48, 4 if mended else 1), mlp(4 if mended else 1, 48, 16))
    return study(net, *cut(x, x), "mse", give="h", epochs=40)


@case("bottleneck", kind="table", author=ME, strength="mild")
def single_unit_between_the_genes(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twenty-four genes pass a single unit; three pathways matter."""
    net = mlp(24, 48, 12 if mended else 1, 48, 4)
    return study(net, *cut(*expression(seed)), epochs=15)


@case("batch-too-small", kind="table", author=ME, needs=("batch_size",))
def cells_two_by_two(seed: int, mended: bool = False) -> dict[str, Any]:
    """Batch normalisation over two cells at a time."""
    net = mlp(24, 32, 32, 4, norm=True)
    return study(net, *cut(*expression(seed, n=1200)), give="ob", batch=32 if mended else 2, epochs=8)


@case("batch-too-small", kind="sequences", author=ME, needs=("batch_size",))
def curves_two_by_two(seed: int, mended: bool = False) -> dict[str, Any]:
    """Memory was short, so two light curves make a batch for the normalisation."""
    net = nn.Sequential(mlp(48, 24, 24, 3, norm=True))
    r = dice(seed, 113)
    y = r.integers(3, size=1200)
    x = np.sin(np.arange(48) * (0.25 + 0.05 * y[:, None]) + 0.3 * r.normal(size=(1200, 1)))
    x += 1.0 * r.normal(size=(1200, 48))
    return study(net, *cut(floats(x), whole(y)), give="b", batch=32 if mended else 2, epochs=5)


@case("batch-too-small", kind="table", author=ME, strength="mild", needs=("batch_size",))
def patients_by_threes(seed: int, mended: bool = False) -> dict[str, Any]:
    """Batch normalisation over three patients at a time in a regression."""
    net = mlp(8, 32, 32, 1, norm=True)
    return study(net, *cut(*dose(seed, n=1200)), "mse", give="oh", batch=32 if mended else 3, epochs=10) | {
        "batch_size": 32 if mended else 3
    }


# ---------------------------------------------------------------- descent


@case("learning-rate-too-large", kind="table", author=ME)
def clearance_in_giant_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam with a rate of one half."""
    net = mlp(8, 32, 32, 1, act=nn.Tanh)
    return study(net, *cut(*dose(seed)), "mse", give="ob", epochs=18, lr=3e-3 if mended else 0.5)


@case("learning-rate-too-large", kind="text", author=ME, strength="mild", needs=("optimizer",))
def strings_in_giant_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam with a rate of three tenths on a convolution over letters."""
    return study(Motifs(), *cut(*dna(seed)), give="oh", epochs=15, lr=3e-3 if mended else 0.3)


@case("learning-rate-too-large", kind="graph", author=ME)
def molecules_in_giant_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """Root-mean-square steps of three tenths on molecules."""
    rate = 2e-3 if mended else 0.3
    return study(Energy(), *cut(*molecules(seed)), "mse", give="obi", epochs=20, kind="rms", lr=rate)


@case("learning-rate-too-large", kind="sequences", author=ME, strength="mild", needs=("optimizer",))
def forecasts_in_giant_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """A recurrent forecast whose steps are some thirty times too long."""
    return study(Recurrent(), *cut(*climate(seed)), "mse", give="o", epochs=12, lr=5e-3 if mended else 0.2)


@case("learning-rate-too-small", kind="table", author=ME, needs=("optimizer",))
def spectra_at_a_snails_pace(seed: int, mended: bool = False) -> dict[str, Any]:
    """Plain SGD with a rate of a ten-thousandth."""
    return study(
        mlp(40, 32, 4), *cut(*spectra(seed)), give="obh", kind="sgd", epochs=20, lr=0.1 if mended else 1e-4
    )


@case("learning-rate-too-small", kind="text", author=ME, needs=("optimizer",))
def strings_at_a_snails_pace(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam with a rate of two in a hundred thousand."""
    return study(Motifs(), *cut(*dna(seed)), give="oi", epochs=20, lr=3e-3 if mended else 2e-5)


@case("learning-rate-too-small", kind="table", author=ME, strength="mild", needs=("optimizer",))
def surrogate_at_a_snails_pace(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam at a tenth of a thousandth, stopped after forty epochs."""
    net = mlp(5, 32, 32, 1)
    return study(net, *cut(*simulator(seed)), "mse", give="o", epochs=40, lr=5e-3 if mended else 1e-4)


@case("weight-decay-too-large", kind="table", author=ME, needs=("optimizer",))
def genes_pulled_to_nothing(seed: int, mended: bool = False) -> dict[str, Any]:
    """A penalty of three tenths on all weights."""
    net = mlp(24, 32, 4)
    return study(net, *cut(*expression(seed)), give="ob", epochs=12, decay=0.0 if mended else 0.3)


@case("weight-decay-too-large", kind="images", author=ME, strength="mild", needs=("optimizer",))
def filters_pulled_to_nothing(seed: int, mended: bool = False) -> dict[str, Any]:
    """Decoupled decay of twenty on the filters of cloud tiles."""
    options = {"kind": "adamw", "decay": 0.0 if mended else 15.0}
    return study(Tiles(), *cut(*fields(seed)), give="oh", epochs=15, **options)


@case("weight-decay-too-large", kind="table", author=ME, strength="mild", needs=("optimizer",))
def shrunken_clearance(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD with a penalty of a quarter shrinks the clearance's regression."""
    net = mlp(8, 32, 1)
    return study(net, *cut(*dose(seed)), "mse", give="o", kind="sgd", lr=0.05, decay=0.0 if mended else 0.25)


@case("dropout-too-large", kind="table", author=ME)
def nine_in_ten_units_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    """Nine in ten of the units are dropped in each of two layers."""
    net = mlp(8, 48, 48, 1, drop=0.05 if mended else 0.9)
    return study(net, *cut(*dose(seed)), "mse", give="ob", epochs=25)


@case("dropout-too-large", kind="text", author=ME)
def most_sites_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    """Of sixteen detectors of sites hardly one is left at a time."""
    return study(Motifs(drop=0.1 if mended else 0.93), *cut(*dna(seed)), epochs=18)


@case("dropout-too-large", kind="images", author=ME, strength="mild")
def most_filters_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    """Eight filters' answers, of which eighty-five in a hundred are dropped."""
    return study(Tiles(drop=0.1 if mended else 0.88), *cut(*fields(seed)), give="h", epochs=15)


# ---------------------------------------------------------------- outcome


@case("capacity-too-small", kind="table", author=ME)
def linear_cell_types(seed: int, mended: bool = False) -> dict[str, Any]:
    """A linear model of a type that two pathways decide jointly."""
    net = mlp(24, 32, 4) if mended else mlp(24, 4)
    return study(net, *cut(*expression(seed)), give="ob", epochs=15, lr=5e-3)


@case("capacity-too-small", kind="table", author=ME)
def reactor_of_two_units(seed: int, mended: bool = False) -> dict[str, Any]:
    """A surrogate of five settings with two hidden units."""
    net = mlp(5, 48 if mended else 2, 1, act=nn.Tanh)
    return study(net, *cut(*simulator(seed)), "mse", epochs=60, lr=1e-2)


@case("capacity-too-small", kind="table", author=ME, strength="mild")
def linear_score_of_clearance(seed: int, mended: bool = False) -> dict[str, Any]:
    """The clinic's linear score, though steps and products matter."""
    net = mlp(8, 32, 1) if mended else mlp(8, 1)
    return study(net, *cut(*dose(seed)), "mse", give="h", epochs=25, lr=5e-3)


@case("overfit", kind="table", author=ME)
def spectra_learnt_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """A wide net knows each of a hundred and fifty noisy spectra."""
    train, validation = cut(*spectra(seed, n=450, noise=1.5), 1 / 3)
    net = mlp(40, 256, 4)
    options = {"epochs": 6, "decay": 0.02} if mended else {"epochs": 80}
    return study(net, train, validation, give="oh", lr=2e-3, **options)


@case("overfit", kind="table", author=ME)
def hundred_patients_learnt_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two wide layers for a hundred patients whose clearance is half chance."""
    train, validation = cut(*dose(seed, n=300, noise=1.8), 1 / 3)
    net = mlp(8, 1) if mended else mlp(8, 96, 96, 1)
    return study(net, train, validation, "mse", give="h", lr=3e-3, epochs=100 if mended else 150)


@case("overfit", kind="text", author=ME, strength="mild")
def strings_learnt_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """Sixty-four detectors for sixty strings, until nothing is left to learn."""
    x, y = dna(seed, n=1100 if mended else 280)
    n = len(y) - 220
    net = Motifs(width=16 if mended else 64, kernel=10)
    return study(net, (x[:n], y[:n]), (x[n:], y[n:]), epochs=15 if mended else 60)


@case("overfit", kind="table", author=ME, strength="mild")
def prognosis_learnt_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """Remission is partly chance, and the chance is learnt too."""
    train, validation = cut(*remission(seed, n=500), 0.5)
    net = mlp(6, 4, 1) if mended else mlp(6, 64, 64, 1)
    return study(net, train, validation, "bce_with_logits", give="ob", epochs=40 if mended else 80, lr=3e-3)


@case("posterior-collapse", kind="generative", author=ME)
def profiles_under_a_heavy_prior(seed: int, mended: bool = False) -> dict[str, Any]:
    """The divergence counts eighty times, and the code says nothing."""
    train, validation = profiles(seed).split([560, 240])
    return study(Elbo(), train, validation, elbo(0.5 if mended else 80.0), give="oh", epochs=40)


@case("posterior-collapse", kind="generative", author=ME)
def mean_error_against_summed_divergence(seed: int, mended: bool = False) -> dict[str, Any]:
    """The error is a mean over the places, the divergence a sum, and weighed twice."""

    def loss(output: Any, target: Tensor) -> Tensor:
        again, mean, spread = output
        divergence = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(1).mean()
        return F.mse_loss(again, target) + (0.02 if mended else 2.0) * divergence

    train, validation = profiles(seed).split([560, 240])
    return study(Elbo(code=4), train, validation, loss, epochs=40)


def spread_of(a: Tensor, b: Tensor) -> Tensor:
    """Return the energy distance of two samples."""
    return 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()


def match(source: Source, x: Tensor, rounds: int) -> None:
    """Train a generator by the energy distance, which misses no mode."""
    optimizer = torch.optim.Adam(source.parameters(), lr=5e-3)
    for _ in range(rounds):
        real = x[torch.randint(len(x), (128,))]
        value = spread_of(source(torch.randn(128, source.noise)), real)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def duel(source: Source, x: Tensor, rounds: int, ahead: int, rate: float) -> list[dict[str, float]]:
    """Train a generator against a critic that lags behind it; return the generator's losses."""
    critic = mlp(x.shape[1], 24, 24, 1)
    ours, theirs = (torch.optim.Adam(net.parameters(), lr=rate) for net in (source, critic))
    history = []
    for step in range(rounds):
        if step % ahead == 0:
            real, fake = x[torch.randint(len(x), (64,))], source(torch.randn(64, source.noise)).detach()
            value = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
            theirs.zero_grad()
            value.backward()
            theirs.step()
        value = F.softplus(-critic(source(torch.randn(64, source.noise)))).mean()
        ours.zero_grad()
        value.backward()
        ours.step()
        if step % 50 == 49:
            history.append({"loss": value.item()})
    return history


@case("mode-collapse", kind="generative", author=ME)
def isotopes_of_one_source(seed: int, mended: bool = False) -> dict[str, Any]:
    """Six sources of isotopes, of which the generator, far ahead of its critic, makes one."""
    x, net = isotopes(seed), Source()
    if mended:
        match(net, x, 800)
        return {"model": net.eval(), "data": x}
    history = duel(net, x, 1500, 6, 2e-3)
    return {"model": net.eval(), "data": x, "history": history}


@case("mode-collapse", kind="generative", author=ME, strength="mild")
def some_isotopes_missing(seed: int, mended: bool = False) -> dict[str, Any]:
    """The generator was matched to its first batches only, and some of the sources are missing."""
    x, net = isotopes(seed, modes=8), Source(width=48)
    match(net, x if mended else x[torch.atan2(x[:, 1], x[:, 0]) > -0.3], 800)
    return {"model": net.eval(), "data": x[:420], "validation": x[420:]}


class Sharpened(nn.Module):
    """A net whose scores are multiplied."""

    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = inner, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.inner(x)


def sharpened(given: dict[str, Any], factor: float) -> dict[str, Any]:
    """Multiply the trained model's scores."""
    return given | {"model": Sharpened(given["model"], factor).eval()}


@case("miscalibrated", kind="table", author=ME)
def spectra_far_too_sure(seed: int, mended: bool = False) -> dict[str, Any]:
    """The scores were multiplied by six so that the bars look decided."""
    given = study(mlp(40, 12, 4), *cut(*spectra(seed, n=3000, noise=1.3)), epochs=8)
    return sharpened(given, 1.0 if mended else 6.0)


@case("miscalibrated", kind="table", author=ME, strength="mild")
def prognosis_too_sure(seed: int, mended: bool = False) -> dict[str, Any]:
    """The risk's logit was tripled to reach a wanted cut."""
    given = study(mlp(6, 12, 1), *cut(*remission(seed, n=1500)), "bce_with_logits", give="b", epochs=15)
    return sharpened(given, 1.0 if mended else 3.0)


@case("miscalibrated", kind="table", author=ME, strength="mild")
def cell_types_too_modest(seed: int, mended: bool = False) -> dict[str, Any]:
    """The scores were cooled to a quarter: the net is right far more often than it says."""
    given = study(mlp(24, 32, 4), *cut(*expression(seed, noise=0.3)), epochs=15)
    return sharpened(given, 1.0 if mended else 0.22)


def fringes(seed: int, n: int = 900, size: int = 12) -> tuple[Tensor, Tensor]:
    """Return smooth tiles of two kinds, that differ plainly in a gradient (often) and by a faint chequer (always)."""
    r = dice(seed, 111)
    y = r.integers(2, size=n)
    a, b = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size))
    side = np.where(r.random(n) < 0.9, 2 * y - 1, 1 - 2 * y)
    plane = (side * r.uniform(0.6, 1.4, n))[:, None, None] * a + r.normal(size=(n, 1, 1)) * b
    chequer = (-1.0) ** np.add.outer(np.arange(size), np.arange(size))
    x = plane + 0.5 * r.normal(size=(n, 1, 1)) + 0.09 * (2 * y - 1)[:, None, None] * chequer
    return floats((x + 0.12 * r.normal(size=x.shape))[:, None]), whole(y)


@case("adversarially-fragile", kind="images", author=ME)
def faint_chequer_decides(seed: int, mended: bool = False) -> dict[str, Any]:
    """The net lives on an interference pattern of the camera a tenth as strong as the picture."""
    net = nn.Sequential(nn.Flatten(), mlp(144, 32, 2))
    return study(net, *cut(*fringes(seed)), give="ob", epochs=20, jitter=1.5 if mended else 0.0)


@case("adversarially-fragile", kind="images", author=ME, strength="mild")
def chequer_through_filters(seed: int, mended: bool = False) -> dict[str, Any]:
    """The same camera under a small convolutional net."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    return study(net, *cut(*fringes(seed)), epochs=15, jitter=1.5 if mended else 0.0)


@case("adversarially-fragile", kind="table", author=ME, strength="mild")
def fringes_in_the_spectrum(seed: int, mended: bool = False) -> dict[str, Any]:
    """Alternating channels of two read-outs differ a little with the class, beneath a broad band."""
    r = dice(seed, 112)
    y, at = r.integers(2, size=1000), np.linspace(-1, 1, 80)
    side = np.where(r.random(1000) < 0.88, 2 * y - 1, 1 - 2 * y)[:, None]
    x = side * r.uniform(0.5, 1.5, (1000, 1)) * np.exp(-(at**2) * 4) + r.normal(size=(1000, 1)) * at
    x += r.normal(size=(1000, 1)) + 0.12 * (2 * y - 1)[:, None] * (-1.0) ** np.arange(80)
    x += 0.15 * r.normal(size=x.shape)
    return study(
        mlp(80, 24, 2), *cut(floats(x), whole(y)), give="h", epochs=20, jitter=1.2 if mended else 0.0
    )
