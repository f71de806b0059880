"""What likelihoods of diffusions are sums and means of: the terms of a bound, and the noise that a sample is seen through.

A term is a mean over noise. What is told of a sample must not depend on what else is asked about, and an error that all
samples share would not vanish in their mean; so the numbers of every sample tell its own noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["draws", "even_noise", "fingerprints", "log_cell", "own_signs", "scrambled", "strata"]

GROWTH = 1.25  # ratio of the levels that one term of the bound stands for


def log_cell(
    x0: Tensor, mean: Tensor, deviation: Tensor, begin: Tensor, end: Tensor, width: Tensor
) -> Tensor:
    """Return log-densities of numbers that are normal, but even within cells of a width (eq. 8 of ``ddpm``), or simply normal."""
    deviation = deviation.double()
    a, b = ((edge - mean).double() / deviation for edge in (begin, end))
    a, b = torch.where(a > 0, -b, a), torch.where(a > 0, -a, b)  # the tail where nothing cancels
    lower, upper = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
    inside = upper + torch.log(-torch.expm1(lower - upper)) - width.double().log()  # NaN without a width
    point = -0.5 * ((x0 - mean).double() / deviation).square() - torch.log(deviation * math.sqrt(2 * math.pi))
    return torch.where(width > 0, inside, point).to(x0.dtype)


def draws(d: int) -> int:
    """Return how many noises, an even number, the bound of a sample of d numbers is a mean over."""
    return 2 * max(1, min(8, 64 // d))


def strata(n: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of levels, [begin, end): single ones at first, then longer and longer."""
    begin = 0
    while begin < n:
        end = min(n, max(begin + 1, int(begin * GROWTH)))
        yield begin, end
        begin = end


def even_noise(count: int, x0: Tensor, term: int) -> Tensor:
    """Return normal noise (count, n, ...) for one term of the bound of samples (n, ...), with the opposite of each.

    Sizes are spread evenly over the numbers of a sample's draws: over those of each number alone, two of them would be -1 and 1,
    noise without tails, which a grid forgives.
    """
    shape = (count // 2, *x0.shape[1:])
    places = torch.arange(math.prod(shape), device=x0.device)
    rows = scrambled(fingerprints(x0) + term)[:, None]
    order = scrambled(places + term).argsort() / len(places)
    turned = ((rows >> 11 & _ones(53)).double() / 2**53 + order) % 1  # as far as each sample says: uniform
    sizes = math.sqrt(2) * torch.erfinv(turned.clamp_max(1 - 1e-12))  # quantiles of |z|
    signs = 1 - 2 * (scrambled(rows + places) & 1)
    normal = (signs * sizes).reshape(len(x0), *shape).movedim(1, 0)
    return torch.cat([normal, -normal]).to(x0)


def own_signs(count: int, rows: Tensor, like: Tensor, term: int) -> Tensor:
    """Return random signs (count, n, ...), others for every term and for each of the samples with such fingerprints."""
    places = torch.arange(count * like[0].numel(), device=like.device)
    signs = 1 - 2 * (scrambled(scrambled(rows + term)[:, None] + places) & 1)
    return signs.reshape(len(rows), count, *like.shape[1:]).movedim(1, 0).to(like)


def fingerprints(x0: Tensor) -> Tensor:
    """Return an integer that the numbers of a sample tell, for each (n,)."""
    bits = (x0.flatten(1).float() + 0.0).contiguous().view(torch.int32).long()
    places = scrambled(torch.arange(bits.shape[1], device=x0.device))
    return scrambled(bits + places).sum(1)


def scrambled(k: Tensor) -> Tensor:
    """Return integers of 64 bits that look random: the function of SplitMix64."""
    for shift, factor in ((64, 0x9E3779B97F4A7C15), (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        k = k ^ (k >> shift & _ones(64 - shift)) if shift < 64 else k
        k = k * (factor - 2**64)  # as a signed integer
    return k ^ (k >> 31 & _ones(33))


def _ones(bits: int) -> int:
    return 2**bits - 1
