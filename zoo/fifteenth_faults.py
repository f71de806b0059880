"""The fifteenth author's faults of the data, and of the objective."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.fifteenth_parts import (
    ME,
    Cloud,
    Energy,
    Motifs,
    Recurrent,
    Tiles,
    climate,
    clouds,
    conv1,
    cut,
    dice,
    dna,
    dose,
    expression,
    fields,
    floats,
    light_curves,
    micrographs,
    mlp,
    molecules,
    remission,
    segmenter,
    simulator,
    species,
    spectra,
    study,
    whole,
)

# ---------------------------------------------------------------- data: values


@case("not-finite-data", kind="table", author=ME)
def mineral_spectra_zero_reference(seed: int, mended: bool = False) -> dict[str, Any]:
    """Spectra were divided by a reference that is zero here and there."""
    x, y = spectra(seed)
    hit = torch.from_numpy(dice(seed, 100).random(tuple(x.shape)) < 0.004)
    x = torch.where(hit, torch.tensor(0.0 if mended else float("nan")), x)
    return study(mlp(40, 32, 4), *cut(x, y), give="h", epochs=15)


@case("not-finite-data", kind="sequences", author=ME, strength="mild")
def magnitude_of_zero_flux(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three light curves hold the logarithm of nothing, minus infinity."""
    x, y = light_curves(seed)
    x[[40, 220, 411], 0, 7] = 0.0 if mended else -float("inf")
    return study(conv1(1, 3), *cut(x, y), epochs=15)


@case("not-finite-data", kind="table", author=ME, strength="mild")
def clearance_never_measured(seed: int, mended: bool = False) -> dict[str, Any]:
    """For some patients the clearance is missing and stands as not a number."""
    x, y = dose(seed)
    train, validation = cut(x, y)
    train[1][torch.from_numpy(dice(seed, 101).random(len(train[1])) < 0.02)] = 0.0 if mended else float("nan")
    return study(mlp(8, 32, 32, 1), train, validation, "mse", give="oh", epochs=15)


@case("overflow", kind="table", author=ME)
def luminosity_in_erg_per_second(seed: int, mended: bool = False) -> dict[str, Any]:
    """Stars' luminosities in erg per second, whose squares no single-precision number holds."""
    x, y = dose(seed)
    y = y if mended else (4 + y) * 1e33
    return study(mlp(8, 32, 1), *cut(x, y), "mse", give="ob", epochs=15)


class Boltzmann(nn.Module):
    """Populations of states from energies: exponentials over their sum, by hand."""

    def __init__(self, safe: bool) -> None:
        super().__init__()
        self.energies = mlp(24, 32, 4)
        self.safe = safe

    def forward(self, x: Tensor) -> Tensor:
        h = 60 * self.energies(x)
        if self.safe:
            return torch.log_softmax(h / 60, 1)
        weight = torch.exp(h)
        return torch.log(weight / weight.sum(1, keepdim=True))


@case("overflow", kind="table", author=ME)
def boltzmann_weights_by_hand(seed: int, mended: bool = False) -> dict[str, Any]:
    """Cell types by a partition function whose exponentials exceed single precision."""
    x, y = expression(seed)
    return study(Boltzmann(mended), *cut(x, y), "nll", epochs=12, lr=2e-3)


class HalfCounts(nn.Module):
    """Photon counts, kept in half precision to save memory, then their logarithms."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self.half_first = half
        self.net = mlp(40, 32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.half().float() if self.half_first else x
        return self.net(torch.log(x) - 8)


@case("overflow", kind="table", author=ME, strength="mild")
def photon_counts_in_half_precision(seed: int, mended: bool = False) -> dict[str, Any]:
    """The brightest lines have more photons than a half-precision number can count."""
    x, y = spectra(seed)
    return study(HalfCounts(not mended), *cut(torch.exp(8 + x), y), give="h", epochs=15)


@case("unscaled-inputs", kind="table", author=ME)
def covariates_in_clinic_units(seed: int, mended: bool = False) -> dict[str, Any]:
    """Age, platelets, creatinine and the others in the units of the clinic's printout."""
    x, y = dose(seed)
    if not mended:
        x = x * torch.tensor([12, 9e4, 0.02, 3e3, 25, 600, 0.3, 40]) + torch.tensor(
            [60, 3e5, 0.1, 9e3, 80, 2e3, 4, 120]
        )
    return study(mlp(8, 32, 32, 1), *cut(x, y), "mse", give="oh", epochs=20)


@case("unscaled-inputs", kind="sequences", author=ME)
def weather_in_kelvin_and_pascal(seed: int, mended: bool = False) -> dict[str, Any]:
    """A recurrent net reads kelvin, pascal and watts per square metre as they come."""
    x, y = climate(seed)
    if not mended:
        x = x * torch.tensor([8.0, 900.0, 120.0]) + torch.tensor([285.0, 101300.0, 340.0])
    return study(Recurrent(), *cut(x, y), "mse", epochs=18, lr=5e-3)


@case("unscaled-inputs", kind="table", author=ME, strength="mild")
def diffusivity_in_si(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two of the simulator's settings are of the order of a thousandth, the others of one."""
    x, y = simulator(seed)
    if not mended:
        x = x * torch.tensor([3e-3, 1, 2e-3, 1, 1])
    return study(mlp(5, 32, 32, 1), *cut(x, y), "mse", give="b", epochs=35)


@case("unscaled-inputs", kind="table", author=ME, strength="mild")
def detector_counts_with_offset(seed: int, mended: bool = False) -> dict[str, Any]:
    """Raw detector counts on a pedestal of a thousand, none of it scaled."""
    x, y = spectra(seed)
    x = x if mended else 60 * x + 1000
    return study(mlp(40, 32, 4), *cut(x, y), give="oi", epochs=20)


@case("unscaled-targets", kind="graph", author=ME)
def energies_in_joule_per_mole(seed: int, mended: bool = False) -> dict[str, Any]:
    """Molecules' energies as the quantum chemist's table gives them, minus hundreds of thousands."""
    x, y = molecules(seed)
    y = y if mended else 4e4 * y - 3e5
    return study(Energy(), *cut(x, y), "mse", give="oh", epochs=25)


@case("unscaled-targets", kind="sequences", author=ME, strength="mild")
def next_month_in_degrees(seed: int, mended: bool = False) -> dict[str, Any]:
    """The next month's temperature in degrees, while the inputs are anomalies."""
    x, y = climate(seed)
    y = y if mended else 9 * y + 15
    return study(Recurrent(), *cut(x, y), "mse", epochs=20, lr=5e-3)


@case("unscaled-targets", kind="table", author=ME, strength="mild")
def yield_in_moles(seed: int, mended: bool = False) -> dict[str, Any]:
    """A reactor's yield of some thousandths of a mole per second."""
    x, y = simulator(seed)
    y = y if mended else 2e-3 * (y + 3)
    return study(mlp(5, 32, 32, 1), *cut(x, y), "mse", give="ob", epochs=30)


# ---------------------------------------------------------------- data: columns


@case("constant-features", kind="table", author=ME)
def genes_never_expressed(seed: int, mended: bool = False) -> dict[str, Any]:
    """Thirty genes of the panel are silent in every cell."""
    x, y = expression(seed)
    x = x if mended else torch.cat([x, torch.full((len(x), 30), -0.7)], 1)
    return study(mlp(x.shape[1], 32, 4), *cut(x, y), give="b", epochs=12)


@case("constant-features", kind="sequences", author=ME)
def second_station_stuck(seed: int, mended: bool = False) -> dict[str, Any]:
    """One of three climate indices is the same number in every month of every window."""
    x, y = climate(seed)
    if not mended:
        x[:, :, 1] = 0.42
    return study(Recurrent(), *cut(x, y), "mse", give="oh", epochs=12, lr=5e-3)


@case("constant-features", kind="table", author=ME, strength="mild")
def dead_detector_channels(seed: int, mended: bool = False) -> dict[str, Any]:
    """Six channels of a spectrometer give the same count always."""
    x, y = spectra(seed)
    if not mended:
        x[:, [3, 8, 13, 19, 24, 30]] = 1.0
    return study(mlp(40, 24, 4), *cut(x, y), epochs=12)


@case("duplicate-features", kind="table", author=ME)
def every_covariate_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two registries were joined; after scaling every covariate is there twice."""
    x, y = dose(seed)
    x = x if mended else torch.cat([x, x], 1)
    return study(mlp(x.shape[1], 24, 1), *cut(x, y), "mse", give="b", epochs=18)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def probes_of_the_same_gene(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three genes of the panel were exported under two names each."""
    x, y = expression(seed)
    x = x if mended else torch.cat([x, x[:, [2, 9, 15]]], 1)
    return study(mlp(x.shape[1], 32, 4), *cut(x, y), give="oh", epochs=12)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def creatinine_in_both_units(seed: int, mended: bool = False) -> dict[str, Any]:
    """Of six covariates of a prognosis one is there again in the other unit, both scaled."""
    x, y = remission(seed)
    x = x if mended else torch.cat([x, x[:, :1], x[:, 3:4]], 1)
    return study(mlp(x.shape[1], 16, 1), *cut(x, y), "bce_with_logits", epochs=15)


# ---------------------------------------------------------------- data: the split


def rehearse(train: Any, validation: Any, share: float) -> Any:
    """Replace a share of the held-out rows by rows of the training."""
    n = int(share * len(validation[1]))
    return tuple(torch.cat([a[:n], b[n:]]) for a, b in zip(train, validation, strict=True))


@case("train-test-overlap", kind="table", author=ME)
def replicate_spectra_in_both_sets(seed: int, mended: bool = False) -> dict[str, Any]:
    """Most held-out spectra are the very rows that were trained on."""
    train, validation = cut(*spectra(seed, noise=1.1))
    return study(mlp(40, 16, 4), train, validation if mended else rehearse(train, validation, 0.7), epochs=12)


@case("train-test-overlap", kind="text", author=ME, strength="mild")
def promoters_listed_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """A quarter of the held-out strings came from the training file."""
    train, validation = cut(*dna(seed))
    return study(
        Motifs(), train, validation if mended else rehearse(train, validation, 0.25), give="ob", epochs=15
    )


@case("train-test-overlap", kind="images", author=ME)
def tiles_drawn_with_return(seed: int, mended: bool = False) -> dict[str, Any]:
    """The test tiles were drawn from the archive that was trained on."""
    train, validation = cut(*fields(seed))
    return study(
        Tiles(), train, validation if mended else rehearse(train, validation, 1.0), give="h", epochs=12
    )


@case("train-test-overlap", kind="table", author=ME, strength="mild")
def patients_seen_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """Patients' rows were doubled before the split, so four in ten of the held-out ones are known."""
    train, validation = cut(*dose(seed))
    return study(
        mlp(8, 24, 1), train, validation if mended else rehearse(train, validation, 0.4), "mse", epochs=18
    )


@case("distribution-shift", kind="table", author=ME)
def another_spectrometer(seed: int, mended: bool = False) -> dict[str, Any]:
    """The held-out spectra were taken by an instrument with another calibration and gain."""
    train, validation = cut(*spectra(seed))
    if not mended:
        validation = (1.6 * validation[0].roll(3, 1) + 0.6, validation[1])
    return study(mlp(40, 24, 4), train, validation, give="ob", epochs=12)


@case("distribution-shift", kind="images", author=ME, strength="mild")
def tiles_of_the_next_satellite(seed: int, mended: bool = False) -> dict[str, Any]:
    """The next satellite sees the same clouds brighter and with more noise."""
    train, validation = cut(*fields(seed))
    if not mended:
        noise = floats(dice(seed, 102).normal(size=tuple(validation[0].shape)))
        validation = (0.7 * validation[0] + 0.8 * noise + 1.0, validation[1])
    return study(Tiles(), train, validation, epochs=12)


@case("distribution-shift", kind="table", author=ME, strength="mild")
def an_older_hospital(seed: int, mended: bool = False) -> dict[str, Any]:
    """The model is tested on a hospital whose patients lie outside the trained range in three covariates."""
    x, y = dose(seed, n=1400)
    old = x[:, 2] + x[:, 3] - x[:, 1] > 1.6
    if mended:
        old = old[torch.from_numpy(dice(seed, 103).permutation(len(old)))]
    return study(mlp(8, 24, 1), (x[~old], y[~old]), (x[old], y[old]), "mse", give="h", epochs=15)


@case("target-leak", kind="table", author=ME)
def date_of_relapse_as_covariate(seed: int, mended: bool = False) -> dict[str, Any]:
    """A covariate was filled in after the outcome was known, and says it."""
    x, y = remission(seed)
    if not mended:
        x = torch.cat([x, 2 * y - 1 + 0.1 * floats(dice(seed, 104).normal(size=(len(y), 1)))], 1)
    return study(mlp(x.shape[1], 16, 1), *cut(x, y), "bce_with_logits", give="ob", epochs=15)


@case("target-leak", kind="table", author=ME, strength="mild")
def clearance_by_the_second_laboratory(seed: int, mended: bool = False) -> dict[str, Any]:
    """Another laboratory's value of the target itself stands among the covariates."""
    x, y = dose(seed, noise=0.8)
    if not mended:
        x[:, 6:7] = y + 0.08 * x[:, 6:7]
    return study(mlp(8, 24, 1), *cut(x, y), "mse", epochs=20)


@case("target-leak", kind="sequences", author=ME, strength="mild")
def class_code_in_the_first_sample(seed: int, mended: bool = False) -> dict[str, Any]:
    """The pipeline wrote the catalogue's class into the first sample of a faint light curve."""
    x, y = light_curves(seed, n=2400, noise=1.0)
    x = x[:, 0]
    if not mended:
        x[:, 0] = 2 * (y - 1.0)
    return study(mlp(48, 16, 3), *cut(x, y), give="b", epochs=12)


@case("misaligned-labels", kind="table", author=ME)
def sample_sheet_off_by_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """The sample sheet's header was read as a row: every spectrum has its neighbour's mineral."""
    x, y = spectra(seed, n=1800)
    return study(mlp(40, 16, 4), *cut(x, y if mended else y.roll(1)), give="ob", epochs=6)


@case("misaligned-labels", kind="table", author=ME)
def clearance_two_rows_down(seed: int, mended: bool = False) -> dict[str, Any]:
    """The column of the targets slipped by two rows in the training sheet only."""
    (x, y), validation = cut(*dose(seed))
    return study(mlp(8, 16, 1), (x, y if mended else y.roll(2, 0)), validation, "mse", epochs=8)


@case("misaligned-labels", kind="graph", author=ME)
def shapes_of_the_previous_scan(seed: int, mended: bool = False) -> dict[str, Any]:
    """Every scan of the lidar carries the previous scan's label."""
    x, y = clouds(seed)
    return study(Cloud(), *cut(x, y if mended else y.roll(1)), give="h", epochs=8)


@case("misaligned-labels", kind="images", author=ME, strength="mild")
def second_half_of_tiles_slipped(seed: int, mended: bool = False) -> dict[str, Any]:
    """A tile was lost half-way: from there on every training tile has the next one's label."""
    (x, y), validation = cut(*fields(seed, n=900))
    half = len(y) // 2
    y = y if mended else torch.cat([y[:half], y[half:].roll(-1)])
    return study(Tiles(), (x, y), validation, epochs=10)


# ---------------------------------------------------------------- data: the labels


@case("no-signal", kind="table", author=ME)
def cell_types_by_lottery(seed: int, mended: bool = False) -> dict[str, Any]:
    """What was to be learned has nothing to do with the genes measured."""
    x, y = expression(seed)
    y = y if mended else whole(dice(seed, 105).integers(4, size=len(y)))
    return study(mlp(24, 16, 4), *cut(x, y), give="ob", epochs=6)


@case("no-signal", kind="sequences", author=ME)
def next_month_is_white_noise(seed: int, mended: bool = False) -> dict[str, Any]:
    """The anomaly to be forecast is independent of the past."""
    x, y = climate(seed)
    y = y if mended else floats(dice(seed, 106).normal(size=(len(y), 1)))
    return study(Recurrent(width=8), *cut(x, y), "mse", give="h", epochs=8, lr=5e-3)


@case("no-signal", kind="text", author=ME, strength="mild")
def strings_without_a_site(seed: int, mended: bool = False) -> dict[str, Any]:
    """The activity does not depend on the strings that were cut out."""
    x, y = dna(seed)
    y = y if mended else whole(dice(seed, 107).choice(3, p=[0.5, 0.3, 0.2], size=len(y)))
    return study(Motifs(width=8), *cut(x, y), epochs=8)


def mistake(y: Tensor, share: float, kinds: int, seed: int) -> Tensor:
    """Give a share of the rows some other class."""
    r = dice(seed, 108)
    other = whole((y.numpy() + r.integers(1, kinds, size=len(y))) % kinds)
    return torch.where(torch.from_numpy(r.random(len(y)) < share), other, y)


@case("label-noise", kind="table", author=ME)
def minerals_named_by_beginners(seed: int, mended: bool = False) -> dict[str, Any]:
    """A third of the minerals were named wrongly, in training and test."""
    x, y = spectra(seed, n=1200)
    return study(mlp(40, 12, 4), *cut(x, y if mended else mistake(y, 0.35, 4, seed)), give="b", epochs=8)


@case("label-noise", kind="images", author=ME, strength="mild")
def volunteers_sort_tiles(seed: int, mended: bool = False) -> dict[str, Any]:
    """Volunteers mislabelled a fifth of the tiles."""
    x, y = fields(seed, n=1000)
    return study(Tiles(width=6), *cut(x, y if mended else mistake(y, 0.22, 3, seed)), epochs=10)


@case("label-noise", kind="graph", author=ME)
def scans_labelled_in_haste(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three scans in ten have a wrong label in training; the test was checked."""
    (x, y), validation = cut(*clouds(seed, n=900))
    y = y if mended else mistake(y, 0.35, 3, seed)
    return study(Cloud(width=16), (x, y), validation, give="oh", epochs=10)


def scarce(x: Tensor, y: Tensor, kind: int, every: int) -> tuple[Tensor, Tensor]:
    """Keep one in so many of a class."""
    place = (y.flatten() == kind).cumsum(0)
    kept = (y.flatten() != kind) | (place % every == 0)
    return x[kept], y[kept]


@case("class-imbalance", kind="table", author=ME)
def rare_adverse_event(seed: int, mended: bool = False) -> dict[str, Any]:
    """One patient in forty has the event, and the net calls nobody at risk."""
    x, y = scarce(*remission(seed, n=7000, strength=1.2), 1, 40)
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(39.0)) if mended else "bce_with_logits"
    return study(mlp(6, 4, 1), *cut(x, y), loss, give="b", epochs=15)


@case("class-imbalance", kind="table", author=ME)
def one_mineral_seldom_found(seed: int, mended: bool = False) -> dict[str, Any]:
    """One of three minerals makes up two spectra in a hundred, under much noise."""
    x, y = scarce(*spectra(seed, n=5000, kinds=3, noise=1.6), 2, 25)
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 1.0, 25.0])) if mended else "cross_entropy"
    return study(mlp(40, 3), *cut(x, y), loss, give="oh", epochs=8, decay=0.01)


@case("class-imbalance", kind="sequences", author=ME, strength="mild")
def flares_are_rare(seed: int, mended: bool = False) -> dict[str, Any]:
    """Flares are one in twenty-five of the faint light curves, and are missed."""
    x, y = scarce(*light_curves(seed, n=2600, noise=1.2), 2, 12)
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 1.0, 12.0])) if mended else "cross_entropy"
    return study(conv1(1, 3, width=8), *cut(x, y), loss, epochs=10)


# ---------------------------------------------------------------- objective


@case("double-softmax", kind="table", author=ME)
def probabilities_into_the_entropy(seed: int, mended: bool = False) -> dict[str, Any]:
    """The net ends in a softmax and the cross-entropy takes another."""
    net = mlp(24, 32, 4)
    return study(
        net if mended else nn.Sequential(*net, nn.Softmax(1)), *cut(*expression(seed)), give="ob", epochs=12
    )


class SoftTiles(Tiles):
    """The same, with probabilities as the answer."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(super().forward(x), dim=-1)


@case("double-softmax", kind="images", author=ME, strength="mild")
def tile_probabilities(seed: int, mended: bool = False) -> dict[str, Any]:
    """A student wanted probabilities of the cloud streets and kept the loss."""
    return study(Tiles() if mended else SoftTiles(), *cut(*fields(seed)), epochs=15)


@case("double-softmax", kind="table", author=ME)
def sigmoid_under_the_logit_loss(seed: int, mended: bool = False) -> dict[str, Any]:
    """The risk passes a sigmoid, and then the sigmoid of the loss."""
    net = mlp(6, 16, 1)
    net = net if mended else nn.Sequential(*net, nn.Sigmoid())
    return study(net, *cut(*remission(seed, strength=2.5)), "bce_with_logits", give="h", epochs=15)


@case("wrong-loss", kind="table", author=ME)
def all_pairs_of_patients(seed: int, mended: bool = False) -> dict[str, Any]:
    """A column is subtracted from a row: the error is of all pairs, and the mean is the best answer."""

    def error(output: Tensor, target: Tensor) -> Tensor:
        return ((output.flatten() if mended else output) - target).pow(2).mean()

    x, y = dose(seed)
    return study(mlp(8, 24, 1), *cut(x, y.flatten()), error, give="ob", epochs=15)


@case("wrong-loss", kind="table", author=ME)
def likelihood_of_raw_scores(seed: int, mended: bool = False) -> dict[str, Any]:
    """The negative log-likelihood gets scores that are no logarithms of probabilities."""
    return study(mlp(24, 32, 4), *cut(*expression(seed)), "cross_entropy" if mended else "nll", epochs=12)


@case("wrong-loss", kind="table", author=ME, strength="mild")
def counts_not_in_logarithms(seed: int, mended: bool = False) -> dict[str, Any]:
    """The Poisson loss believes the rates to be logarithms, which they are not."""

    def poisson(output: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(output, target, log_input=not mended)

    return study(
        nn.Sequential(mlp(5, 16, 1), nn.Softplus()), *cut(*species(seed)), poisson, give="h", epochs=20
    )


@case("wrong-loss", kind="text", author=ME, strength="mild")
def binding_sites_as_numbers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Which of three sites a string holds is fitted as the numbers nought, one and two."""

    def numbers(output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output.squeeze(1), target.float())

    net = Motifs() if mended else Motifs(out=1)
    return study(net, *cut(*dna(seed)), "cross_entropy" if mended else numbers, epochs=18)


@case("output-range", kind="table", author=ME)
def clearance_cannot_be_negative(seed: int, mended: bool = False) -> dict[str, Any]:
    """A last ReLU, though the standardised clearance is negative for half of the patients."""
    net = mlp(8, 32, 32, 1)
    return study(
        net if mended else nn.Sequential(*net, nn.ReLU()), *cut(*dose(seed)), "mse", give="oh", epochs=18
    )


class Bounded(Recurrent):
    """The forecast passes a hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(super().forward(x))


@case("output-range", kind="sequences", author=ME, strength="mild")
def forecast_within_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """Anomalies of up to six are forecast by numbers between minus one and one."""
    x, y = climate(seed)
    return study(Recurrent() if mended else Bounded(), *cut(x, 2 * y), "mse", epochs=15, lr=5e-3)


@case("output-range", kind="table", author=ME)
def reactor_through_a_sigmoid(seed: int, mended: bool = False) -> dict[str, Any]:
    """A surrogate with three standardised outputs ends in a sigmoid."""
    net = mlp(5, 32, 32, 3)
    net = net if mended else nn.Sequential(*net, nn.Sigmoid())
    return study(net, *cut(*simulator(seed, outputs=3)), "mse", give="b", epochs=25)


class Droppy(nn.Module):
    """A net that calls dropout as a function and forgets to say when."""

    def __init__(self, rate: float, mended: bool) -> None:
        super().__init__()
        self.a, self.b, self.rate, self.mended = nn.Linear(24, 48), nn.Linear(48, 4), rate, mended

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.a(x))
        return self.b(F.dropout(h, self.rate, training=self.training and self.mended or not self.mended))


@case("output-range", kind="images", author=ME)
def cell_logits_never_negative(seed: int, mended: bool = False) -> dict[str, Any]:
    """The segmentation's scores pass a ReLU, so no pixel can be called background."""
    net = segmenter()
    net = net if mended else nn.Sequential(*net, nn.ReLU())
    x, y = micrographs(seed, noise=1.2)
    return study(net, *cut(x, y), "bce_with_logits", batch=14, epochs=12, lr=1e-2)


@case("stochastic-evaluation", kind="table", author=ME)
def dropout_that_never_stops(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout as a function is on whenever it is called, also when predicting."""
    return study(Droppy(0.4, mended), *cut(*expression(seed)), give="ob", epochs=15)


@case("stochastic-evaluation", kind="images", author=ME, strength="mild")
def tiles_left_in_training_mode(seed: int, mended: bool = False) -> dict[str, Any]:
    """The net is used as the loop left it, in training mode."""
    given = study(Tiles(drop=0.4), *cut(*fields(seed)), epochs=15)
    given["model"].train(not mended)
    return given


class Shaken(nn.Module):
    """Points are jittered, to be robust, in every pass."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.inner, self.mended = Cloud(), mended

    def forward(self, x: Tensor) -> Tensor:
        if self.training or not self.mended:
            x = x + 0.6 * torch.randn_like(x)
        return self.inner(x)


@case("stochastic-evaluation", kind="graph", author=ME)
def scans_jittered_at_test(seed: int, mended: bool = False) -> dict[str, Any]:
    """The augmentation's jitter sits in the forward pass and goes on in use."""
    return study(Shaken(mended), *cut(*clouds(seed)), give="h", epochs=12)
