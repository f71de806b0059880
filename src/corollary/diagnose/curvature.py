r"""Curvature of a model's loss: the Hessian's spectrum, and how sharp the minimum is.

The spectrum is that of ``corollary.theory.hessian`` (Lanczos, Hutchinson) for anything that ``diagnose`` takes. With
:math:`L = \lambda_{\max}` gradient descent is stable up to the step :math:`2 / L` (1). *Sharpness* is the largest rise of
the loss within a ball,

.. math:: \max_{\lVert e \rVert \le \rho} f(w + e) - f(w), \tag{2}

approached by :math:`e \leftarrow \rho\, \nabla f(w + e) / \lVert \nabla f(w + e) \rVert`, which for a quadratic loss is power
iteration and ends at :math:`\frac12 \rho^2 \lambda_{\max}`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.diagnose.calling import alone
from corollary.diagnose.reading import prepared
from corollary.diagnose.samples import Samples
from corollary.diagnose.subject import Subject, quiet
from corollary.diagnose.telling import told
from corollary.theory.hessian import CHUNK, Density, Surface, density, eigenvalues, trace

__all__ = ["Curvature", "Sharpness", "hessian", "sharpness", "surface_of"]


class _Given(Surface):
    """The loss of a subject as a function of its parameters: inputs of any form, the user's own loss."""

    def __init__(self, subject: Subject, samples: Samples) -> None:
        self.subject = subject
        self.module = subject.twin().eval()
        self.params = [p for p in self.module.parameters() if p.requires_grad]
        if not self.params:
            raise errors.value("hessian", "the model must have parameters to train", "none")
        self.size = sum(p.numel() for p in self.params)
        self.dtype, self.device = self.params[0].dtype, self.params[0].device
        chunks = (
            [samples]
            if samples.whole
            else [samples.take(slice(i, i + CHUNK)) for i in range(0, samples.n, CHUNK)]
        )
        self.batches: list[Any] = [(part, None) for part in chunks]
        self.rows = samples.n
        self.weight_decay = 0.0

    def on_batch(self, x: Any, y: Any, params: dict[str, Tensor] | None = None) -> Tensor:
        """Return the mean loss over some samples, at the module's own parameters."""
        return self.subject.loss(self.module, x)


def surface_of(owner: str, model: Any, data: Any, loss: Any) -> _Given:
    """Return the loss over all rows as a function of the parameters, or say why there is none."""
    subject = prepared(model, data, loss=loss)
    if subject.net is None:
        raise errors.kind(
            owner, "model must be a torch module, or an estimator with one", type(model).__name__
        )
    if subject.error is not None:
        raise errors.value(owner, "the module must take its inputs", subject.error)
    surface = _Given(subject, subject.all_train)
    with quiet(surface.module):
        here = surface.value()
    if not math.isfinite(here):
        raise errors.value(
            owner, "the loss must be finite", here, "See corollary.diagnose(model, data) for its cause."
        )
    return surface


@told
class Curvature(NamedTuple):
    """What is known of the Hessian of the mean loss."""

    top: np.ndarray  # largest eigenvalues, descending
    bottom: np.ndarray  # smallest, ascending
    trace: float
    trace_error: float  # its standard error
    density: Density  # share of the eigenvalues by their size
    safe_step: float  # 2 / L, eq. 1
    loss: float
    gradient: float  # length of the gradient

    def plot(self) -> Any:
        """Return a figure of the spectral density, on a logarithmic scale."""
        from matplotlib.figure import Figure

        from corollary.plot.pictures import ACCENT

        figure = Figure(figsize=(5, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.semilogy(self.density.grid, np.maximum(self.density.density, 1e-8), color=ACCENT)
        axes.set(xlabel="eigenvalue of the Hessian", ylabel="density", ylim=(1e-6, None))
        return figure


@alone
def hessian(
    model: Any,
    data: Any,
    *,
    loss: Any = None,
    k: int = 1,
    probes: int = 8,
    steps: int = 60,
    tol: float = 1e-5,
    random_state: int = 0,
) -> Curvature:
    """Return extreme eigenvalues, trace and spectral density of the Hessian of a model's loss.

    Parameters
    ----------
    model, data, loss
        As :func:`corollary.diagnose` takes them; all rows count. The model is asked in evaluation mode and not changed.
    k : int, default=1
        Eigenvalues at each end.
    probes : int, default=8
        Random vectors of the trace and the density; the error falls with the root of their number.
    steps : int, default=60
        Products of the density for each of them; more resolve it finer.
    tol : float, default=1e-5
        Error of the eigenvalues, relative to the largest.
    random_state : int, default=0
        Of the random vectors.

    Returns
    -------
    Curvature

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import hessian
    >>> X = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> found = hessian(torch.nn.Linear(2, 1, bias=False), (X, torch.ones(2)), loss="mse")
    >>> found.top.round(3), found.bottom.round(3), round(found.safe_step, 3)
    (array([9.]), array([1.]), 0.222)
    """
    surface = surface_of("hessian", model, data, loss)
    with quiet(surface.module):
        value, slope = surface.slope()
        ends = eigenvalues(surface, k=k, tol=tol, random_state=random_state)
        total = trace(surface, probes=max(2, probes), random_state=random_state)
        shares = density(surface, probes=probes, steps=steps, random_state=random_state)
    top = float(ends.top[0])
    step = 2 / top if top > 0 else float("inf")
    return Curvature(
        ends.top, ends.bottom, total.value, total.error, shares, step, value, float(slope.norm())
    )


@told
class Sharpness(NamedTuple):
    """The rise of the loss within a ball around the weights, eq. 2."""

    rise: float
    relative: float  # to the loss itself
    loss: float
    rho: float


@alone
def sharpness(
    model: Any, data: Any, *, loss: Any = None, rho: float = 0.05, steps: int = 20, random_state: int = 0
) -> Sharpness:
    """Return how far the loss rises within a distance ``rho`` of the weights.

    Parameters
    ----------
    model, data, loss
        As :func:`corollary.diagnose` takes them. The model is asked in evaluation mode and not changed.
    rho : float, default=0.05
        Radius of the ball, in the units of the weights.
    steps : int, default=20
        Gradients on the way to the worst place.
    random_state : int, default=0
        Of the first direction.

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import sharpness
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> found = sharpness(model, (torch.ones(4, 1), model(torch.ones(4, 1)).detach()), loss="mse", rho=0.1)
    >>> round(found.rise, 4)
    0.01
    """
    if rho <= 0:
        raise errors.value("sharpness", "rho must be positive", rho)
    surface = surface_of("sharpness", model, data, loss)
    here = surface.get()
    rng = torch.Generator().manual_seed(random_state)
    v = torch.randn(surface.size, generator=rng).to(here)
    start, best = surface.value(), -float("inf")
    with quiet(surface.module):
        for _ in range(steps):
            surface.put(here + rho * v / v.norm())
            value, slope = surface.slope()
            best = max(best, value)
            if not bool(torch.isfinite(slope).all()) or float(slope.norm()) == 0:
                break
            v = slope
        surface.put(here + rho * v / v.norm())
        best = max(best, surface.value())
    rise = best - start
    return Sharpness(rise, rise / max(abs(start), 1e-12), start, rho)
