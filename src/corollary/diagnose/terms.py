r"""In which terms answers are scored under a loss of one's own.

A contrastive or triplet loss asks only which rows lie together: no column of its output belongs to a class, and what counts is
whether the nearest rows are of the same class. A pinball loss asks for a quantile, not for the mean: with the loss :math:`L` of
degree :math:`p` in the errors and the best constant answer :math:`c`,

.. math:: 1 - \bigl(L / L_c\bigr)^{2 / p} \tag{1}

is for it what the share of variance explained is for squared errors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from corollary.diagnose.baselines import Baselines
from corollary.diagnose.objectives import Criterion
from corollary.diagnose.samples import main_output

__all__ = ["best_constant", "in_order", "look", "rescored"]

ROWS = 128  # of the answers that a loss is asked about
SURE = 6.0  # a logit
SAME = 0.1  # of the effect of what counts, up to which another change has none
LOPSIDED = 1.2  # times what an error to one side costs, that one to the other side costs
DEGREES = (0.5, 3.0)  # of losses that grow with the error
LEVELS = torch.linspace(0.02, 0.98, 25)  # of the quantiles among which the best constant answer is


def look(criterion: Criterion, out: Any, y: Any) -> None:
    """Note what the user's own loss asks for, where it is neither a score per class nor the number itself."""
    z = main_output(out)
    if not criterion.custom or criterion.name != "custom" or not isinstance(out, Tensor):
        return
    if not isinstance(y, Tensor) or not len(y) or z.ndim < 1 or len(z) != len(y):
        return
    z, y = z.detach().float()[:ROWS], y.detach().to(z.device)[:ROWS]
    try:
        if criterion.task == "classes" and z.ndim == 2 and y.ndim == 1 and not y.is_floating_point():
            found = _relates(criterion, z, y)
            if found is not None:
                criterion.task, criterion.opposed = "embedding", not found
            elif z.shape[1] == int(y.max()) and _steps(criterion, z, y):
                criterion.task = "ordinal"
            elif z.shape[1] != int(y.max()) + 1 and not _per_class(criterion, z, y):
                criterion.task = "embedding"
        elif criterion.task == "regression" and y.is_floating_point() and z.numel() == y.numel():
            criterion.degree = _degree(criterion, z, y)
            criterion.free = _free(criterion, z, y)
    except Exception:  # the loss cannot be asked so
        return


def _relates(criterion: Criterion, z: Tensor, y: Tensor) -> bool | None:
    """Return whether rows of a class are to lie together, None for a loss that asks anything of the single row.

    Columns in another order and classes of other names then change nothing; answers given to other rows do.
    """
    rng = torch.Generator().manual_seed(0)
    k, d = int(y.max()) + 1, z.shape[1]
    if d < 2 or len(torch.unique(y)) < 2:
        return None
    centres = torch.eye(d) if k <= d else F.normalize(torch.randn(k, d, generator=rng), dim=1)
    near = F.normalize(centres.to(z)[y.long()] + 0.1 * torch.randn(z.shape, generator=rng).to(z), dim=1)
    mixed = near[torch.randperm(len(near), generator=rng).to(z.device)]
    asked = ((near, y), (near.roll(1, 1), y), (near, (k - 1 - y).clamp_min(0)), (mixed, y))
    losses = []
    for answer, target in asked:
        torch.manual_seed(0)  # some draw the rows that they compare
        losses.append(float(criterion(answer, target)))
    good, turned, renamed, bad = losses
    effect = abs(bad - good)
    if not math.isfinite(sum(losses)) or effect <= 1e-3 * (abs(good) + abs(bad)):
        return None
    alike = max(abs(turned - good), abs(renamed - good)) < SAME * effect
    return good < bad if alike else None


def _steps(criterion: Criterion, z: Tensor, y: Tensor) -> bool:
    """Whether there is an output less than classes, each of which says whether the class is beyond it."""
    right = SURE * (2.0 * (y[:, None] > torch.arange(z.shape[1], device=y.device)) - 1).to(z.dtype)
    none, good, bad = (float(criterion(v, y)) for v in (torch.zeros_like(right), right, -right))
    return good < SAME * none < bad


def _per_class(criterion: Criterion, z: Tensor, y: Tensor) -> bool:
    """Whether the loss pulls every class along one column, all others alike; beside centres of its own it pulls along many."""
    start = 0.01 * torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    free = start.to(z).requires_grad_(True)
    with torch.enable_grad():
        (g,) = torch.autograd.grad(criterion(free, y), free)
    pulls = torch.stack([-g[y == k].mean(0) for k in torch.unique(y)]).sort(1).values
    one = torch.maximum(pulls[:, -1] - pulls[:, -2], pulls[:, 1] - pulls[:, 0])
    return bool((one > 0.5 * (pulls[:, -1] - pulls[:, 0])).float().mean() > 0.5)


def _free(criterion: Criterion, z: Tensor, y: Tensor) -> str:
    """Return what a loss of numbers leaves free: "level", where only their order counts, "length" of each row, or nothing."""
    t = y.reshape(z.shape).to(z.dtype)
    rng = torch.Generator().manual_seed(0)
    mixed, s = t[torch.randperm(len(t), generator=rng).to(t.device)], float(t.std()) or 1.0
    longer = t * (0.5 + torch.rand((len(t), *[1] * (t.ndim - 1)), generator=rng).to(t))
    good, bad, raised, other = (float(criterion(v, y)) for v in (t, mixed, t + 3 * s, longer))
    effect = bad - good
    if not math.isfinite(effect) or effect < 1e-3 * (abs(good) + abs(bad)):
        return ""
    if abs(raised - good) < 1e-3 * effect and t[0].numel() == 1:
        return "level"
    return "length" if abs(other - good) < 1e-3 * effect and t[0].numel() > 1 else ""


def in_order(z: Tensor, y: Tensor) -> float:
    """Return the share of the targets' order that answers explain: the square of the ranks' correlation, with its sign."""
    r = float(spearmanr(z.detach().reshape(-1).cpu(), y.reshape(-1).cpu())[0])
    return r * abs(r) if math.isfinite(r) else 0.0


def _degree(criterion: Criterion, z: Tensor, y: Tensor) -> float:
    """Return the degree of a loss that is zero for right answers only and dearer to one side; NaN for any other."""
    t = y.reshape(z.shape).to(z.dtype)
    s = float(t.std()) or 1.0
    none, up, down, twice = (float(criterion(t + k * s, y)) for k in (0, 1, -1, 2))
    if not 0 <= none <= 1e-6 * min(up, down) or max(up, down) < LOPSIDED * min(up, down):
        return math.nan
    degree = math.log2(twice / up)
    return degree if DEGREES[0] < degree < DEGREES[1] else math.nan


def best_constant(criterion: Criterion, y: Tensor, about: Tensor | None = None) -> tuple[float, Tensor]:
    """Return the least loss that a constant has, beside answers that are given, and that constant, per column."""
    y = y.float()
    base = torch.zeros_like(y) if about is None else about
    levels = torch.quantile((y - base).reshape(len(y), -1)[:4096], LEVELS.to(y), dim=0)
    shape = y.shape[1:]
    found = [(float(criterion(base + level.reshape(shape), y)), i) for i, level in enumerate(levels)]
    least, at = min(found)
    return least, levels[at].reshape(shape)


def rescored(criterion: Criterion, base: Baselines, y: Tensor) -> None:
    """Score simple models in the terms of a loss of order, or of a lopsided one: at the best distance from their guesses."""
    terms = not math.isnan(criterion.degree) or criterion.free == "level"
    if not terms or y[0].numel() != 1 or base.problem.classes:
        return
    shape = (-1, *y.shape[1:])

    def number(v: np.ndarray) -> Tensor:
        return torch.as_tensor(v, dtype=torch.float32, device=y.device).reshape(shape)

    for guesses, scores, p in (
        (base.guesses, base.held, base.problem),
        (base.valid_guesses, base.valid, base.valid_problem),
    ):
        for name in guesses:
            shift: Any = 0.0
            if not criterion.free:
                _, shift = best_constant(criterion, number(base.problem.y), number(base.guesses[name]))
            scores[name], _ = criterion.score(number(guesses[name]) + shift, number(p.y))
