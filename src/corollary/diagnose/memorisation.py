r"""Which rows a model knows only because it saw them.

The memorisation of row :math:`i` is what leaving it out costs on itself,

.. math:: m_i = \mathbb E_{S \ni i}\, q_S(i) - \mathbb E_{S \not\ni i}\, q_S(i), \tag{1}

with :math:`q_S(i)` the quality of a model trained on :math:`S` for row :math:`i`: the probability of its label, or for numbers
:math:`\exp(-r^2 / 2)` of the error :math:`r` in deviations of the target. The expectations are means over models trained afresh
on random parts of the rows, half of them each: every row is inside and outside as often. Wrong labels and rare rows come first.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.diagnose.calling import alone
from corollary.diagnose.lab import Lab
from corollary.diagnose.reading import prepared
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import Subject, quiet
from corollary.diagnose.telling import told

__all__ = ["Memorisation", "memorisation"]


@told
class Memorisation(NamedTuple):
    """The memorisation of some rows, most memorised first."""

    rows: np.ndarray
    scores: np.ndarray  # eq. 1
    errors: np.ndarray  # their standard errors
    inside: np.ndarray  # quality where the row was trained on
    outside: np.ndarray  # where it was not
    models: int

    def plot(self) -> Any:
        """Return a histogram of the scores."""
        from matplotlib.figure import Figure

        from corollary.plot.pictures import ACCENT

        figure = Figure(figsize=(4.6, 3), layout="constrained")
        axes = figure.subplots()
        axes.hist(self.scores, 40, color=ACCENT)
        axes.set(xlabel="memorisation", ylabel="rows")
        return figure


@alone
def memorisation(
    model: Any,
    data: Any,
    *,
    loss: Any = None,
    models: int = 16,
    steps: int = 200,
    learning_rate: float = 3e-3,
    rows: Any = None,
    time_limit: float = 30,
    random_state: int = 0,
) -> Memorisation:
    """Return how much a model of this kind knows of single rows only from having seen them.

    Parameters
    ----------
    model, data, loss
        As :func:`corollary.diagnose` takes them. Copies are trained from new weights; the model is not changed.
    models : int, default=16
        Copies; the standard error falls with the root of their number.
    steps : int, default=200
        Updates of each, by Adam with batches of 32 rows.
    learning_rate : float, default=3e-3
        Its rate.
    rows : array of int, optional
        Which rows to judge; by default all, of large data 2048 by chance.
    time_limit : float, default=30
        Seconds after which no further copy is begun (four are made at least).
    random_state : int, default=0
        Of the parts.

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import memorisation
    >>> noise = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
    >>> X = noise + 3 * (torch.arange(80) >= 40).float()[:, None].mul(2).sub(1)
    >>> y = (torch.arange(80) >= 40).long()
    >>> X[5] = torch.tensor([-9.0, -9.0])  # far out,
    >>> y[5] = 1  # and of the other class: only who has seen it knows
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    >>> int(memorisation(net, (X, y), models=8).rows[0])
    5
    """
    if models < 4 or steps < 1:
        raise errors.value("memorisation", "models must be at least 4 and steps at least 1", (models, steps))
    subject = prepared(model, data, loss=loss)
    if subject.net is None or subject.error is not None:
        raise errors.value("memorisation", "the module must take its inputs", subject.error or "no module")
    if subject.train.whole or subject.task not in ("classes", "binary", "regression"):
        must = "data must be rows with a class or a number each"
        raise errors.value("memorisation", must, f"the task {subject.task}")
    begin, lab = time.perf_counter(), Lab(subject, float("inf"))
    pool = lab.pool
    rng = np.random.default_rng(random_state)
    quality = np.full((models, subject.train.n), np.nan)
    member = np.zeros((models, subject.train.n), bool)
    half, done = pool, 0
    for i in range(models):
        if i >= 4 and time.perf_counter() - begin > time_limit:
            break
        half = (
            rng.permutation(pool)[: len(pool) // 2]
            if i % 2 == 0
            else np.setdiff1d(pool, half, assume_unique=True)
        )
        with quiet(subject.net):
            torch.manual_seed(random_state + i)
            net = subject.twin("new")
        lab.run(f"part {i}", net, steps=steps, rate=learning_rate, rows=half)
        quality[i], member[i] = _quality(subject, net), False
        member[i, half] = True
        done += 1
    return _scored(subject, quality[:done], member[:done], rows)


def _scored(subject: Subject, quality: np.ndarray, member: np.ndarray, rows: Any) -> Memorisation:
    inside, outside = (np.nanmean(np.where(mask, quality, np.nan), axis=0) for mask in (member, ~member))
    spread = [np.nanvar(np.where(mask, quality, np.nan), axis=0) for mask in (member, ~member)]
    half = max(1, len(quality) // 2)
    error = np.sqrt((spread[0] + spread[1]) / half)
    score = inside - outside
    at = {int(row): i for i, row in enumerate(subject.rows)}
    chosen = (
        np.arange(len(score))
        if rows is None
        else np.array([at[int(r)] for r in np.ravel(rows) if int(r) in at], int)
    )
    chosen = chosen[np.isfinite(score[chosen])]
    order = chosen[np.argsort(-score[chosen], kind="stable")]
    return Memorisation(
        np.asarray(subject.rows)[order],
        score[order],
        error[order],
        inside[order],
        outside[order],
        len(quality),
    )


def _quality(subject: Subject, net: Any) -> np.ndarray:
    """Return the quality of a net for every row."""
    with torch.no_grad(), quiet(net):
        z = main_output(subject.call(net.eval(), subject.train)).detach().float().cpu()
    y = subject.train.y.detach().cpu()
    n = len(y)
    if subject.task == "classes" and z.ndim == 2 and not y.is_floating_point():
        chance = _unit(z).gather(1, y.reshape(-1, 1).long().clamp_min(0))[:, 0]
        return chance.numpy()
    if subject.task == "binary":
        p = z.reshape(-1).sigmoid()
        return torch.where(y.reshape(-1) > 0.5, p, 1 - p).numpy()
    off = (z.reshape(n, -1) - y.reshape(n, -1).float()) / y.reshape(n, -1).float().std(0).clamp_min(1e-12)
    return torch.exp(-0.5 * off.square().mean(1)).numpy()


def _unit(z: Tensor) -> Tensor:
    unit = bool((z >= 0).all()) and bool(((z.sum(1) - 1).abs() < 1e-3).all())
    return z if unit else z.softmax(1)
