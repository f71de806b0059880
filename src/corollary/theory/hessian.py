r"""The Hessian of a model's loss without forming it: extreme eigenvalues, spectral density, trace.

With :math:`f(w) = \frac1n \sum_i \ell_i(w)` the mean loss over the data, a product costs about two gradients,

.. math:: H v = \nabla_w \bigl( \nabla f(w)^\top v \bigr). \tag{1}

*Lanczos' iteration* builds an orthonormal basis :math:`Q_m` of :math:`v, Hv, \dots, H^{m-1}v` in which :math:`H` is tridiagonal,

.. math:: H Q_m = Q_m T_m + \beta_m q_{m+1} e_m^\top, \tag{2}

and the eigenvalues :math:`\theta_i` of :math:`T_m`, with eigenvectors :math:`s_i`, approach those of :math:`H`, the extreme
ones first: some eigenvalue lies within :math:`r_i = \beta_m |s_{mi}|` of :math:`\theta_i`, and within :math:`r_i^2 / g_i` where
:math:`g_i` is the distance to all the other eigenvalues (3). That distance is taken from the other :math:`\theta_j`, less their
:math:`r_j`, but as at most a fiftieth of the largest of them: eigenvalues that lie closer together look like one for the first
iterations, and no :math:`\theta_j` stands between them yet. Rounding destroys the orthogonality, and
with it (3), so each new vector is made orthogonal to all before it, twice. For random :math:`v` of length one the same
numbers are a quadrature rule for the *spectral density*, the share of eigenvalues near :math:`t`,

.. math:: \phi(t) \approx \operatorname{mean}_v \sum_i s_{1i}^2\, \mathcal N(t; \theta_i, \sigma^2), \tag{4}

and for :math:`v` of random signs *Hutchinson's* estimate of the trace is

.. math:: \operatorname{tr} H = \mathbb E\, v^\top H v. \tag{5}
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor, nn

from corollary import errors, losses
from corollary.gradient import known_codes
from corollary.optim.directions import flat_gradient, hessian_product, put
from corollary.validation import as_tensor, to_numpy

__all__ = [
    "Density",
    "Estimate",
    "Extremes",
    "Surface",
    "Tridiagonal",
    "density",
    "eigenvalues",
    "lanczos",
    "sample_loss",
    "sample_smoothness",
    "trace",
]

CHUNK = 4096  # rows whose graph is kept at a time
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "absolute": losses.absolute,
    "binary_cross_entropy": losses.binary_cross_entropy,
    "cross_entropy": losses.cross_entropy,
    "half_squared": losses.half_squared,
    "hinge": losses.hinge,
    "huber": losses.huber,
    "logistic": losses.logistic,
    "poisson": losses.poisson,
    "squared": losses.squared,
}
MATRIX_LIMIT = 5000  # parameters of which the whole Hessian is formed
PROBES, STEPS = 8, 60  # defaults of the density
SEEN = 0.02  # of the largest eigenvalue: the most that is believed of a gap
FEW = 25  # steps of Lanczos after each of which it is asked whether they are enough; beyond, every fifth

Product = Callable[[Tensor], Tensor]


# --- the loss as a function of one vector ----------------------------------------------------------------


class Surface:
    """The mean loss of a model over data as a function of its parameters, taken as one vector.

    Parameters
    ----------
    model : nn.Module or fitted estimator
        Its trainable parameters are the vector. Of an estimator it is ``module_``, with data as that takes them. It is called
        in evaluation mode, so dropout and batch statistics stand still.
    data : (X, y), data set, or iterable of pairs
        Inputs and targets, arrays or tensors; or batches of them, as a DataLoader gives.
    loss : str or callable, optional
        One of ``LOSSES``, or ``loss(output, target)``, one number or one per sample. By default the cross-entropy
        for whole-number targets and the squared error for others.
    weight_decay : float, default=0
        Half of this times the squared length of the parameters is added.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> surface = Surface(model, (torch.eye(2), torch.ones(2, 1)), "half_squared")
    >>> surface.matrix()
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """

    def __init__(self, model: Any, data: Any, loss: Any = None, *, weight_decay: float = 0.0) -> None:
        module = model if isinstance(model, nn.Module) else getattr(model, "module_", None)
        if module is None:
            do = "Fit it first, or pass the module."
            raise errors.kind(
                "Surface", "model must be a torch module, or an estimator with one", repr(model), do
            )
        self.module: nn.Module = module
        self.params = [p for p in module.parameters() if p.requires_grad]
        if not self.params:
            raise errors.value("Surface", "the model must have parameters to train", "none")
        self.size = sum(p.numel() for p in self.params)
        self.dtype, self.device = self.params[0].dtype, self.params[0].device
        self.batches = self._read(data, model)
        self.rows = sum(len(x) for x, _ in self.batches)
        if not self.rows:
            raise errors.value("Surface", "data must have rows", "none")
        self.loss = self._criterion(loss)
        self.weight_decay = weight_decay

    def _read(self, data: Any, model: Any) -> list[tuple[Tensor, Tensor]]:
        if hasattr(data, "X") and hasattr(data, "y"):
            data = (data.X, data.y)
        if isinstance(data, tuple) and len(data) == 2:
            x, y = self._tensor(data[0]), self._target(data[1], model)
            if len(x) != len(y):
                raise errors.value("Surface", "X and y must have as many rows", f"{len(x)} and {len(y)}")
            return list(zip(x.split(CHUNK), y.split(CHUNK)))
        try:
            return [(self._tensor(x), self._target(y, model)) for x, y in data]
        except (TypeError, ValueError) as error:
            do = "Pass (X, y), or an iterable of such pairs."
            raise errors.kind(
                "Surface", "data must be inputs and targets", type(data).__name__, do
            ) from error

    def _target(self, y: Any, model: Any) -> Tensor:
        """Return targets; labels of a fitted classifier as the numbers of its classes."""
        if hasattr(model, "classes_") and np.ndim(y := to_numpy(y)) == 1:
            return self._tensor(known_codes(model, np.asarray(y)))
        return self._tensor(y)

    def _numbers(self, values: Any) -> np.ndarray:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            do = "Pass class numbers, or a fitted classifier with the labels that it knows."
            raise errors.kind("Surface", "inputs and targets must be numbers", f"dtype {array.dtype}", do)
        return array

    def _tensor(self, values: Any) -> Tensor:
        found = values if isinstance(values, Tensor) else as_tensor(self._numbers(values))
        if found.is_floating_point():
            return found.to(self.device, self.dtype)
        return found.to(self.device, torch.int64 if found.dtype is not torch.bool else self.dtype)

    def _criterion(self, loss: Any) -> Callable[[Tensor, Tensor], Tensor]:
        if callable(loss):
            return loss  # type: ignore[no-any-return]
        whole = not self.batches[0][1].is_floating_point()
        name = loss or ("cross_entropy" if whole else "squared")
        if name not in LOSSES:
            raise errors.unknown("Surface", "loss", name, LOSSES)
        if whole and name != "cross_entropy":  # targets that are numbers, or signs, of whole kind
            self.batches = [(x, y.to(self.dtype)) for x, y in self.batches]
        return LOSSES[name]

    def on_batch(self, x: Tensor, y: Tensor, params: dict[str, Tensor] | None = None) -> Tensor:
        """Return the mean loss over some rows; ``params`` take the place of the model's own, by name."""
        try:
            loss = self._compared(x, y, params)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            must = f"the model must take inputs of shape {tuple(x.shape[1:])}, and the loss its outputs and the targets"
            got = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise errors.value("Surface", must, got.rstrip(".")) from error
        if self.weight_decay:
            own = self.params if params is None else params.values()
            loss = loss + 0.5 * self.weight_decay * sum(p.square().sum() for p in own)
        return loss

    def _compared(self, x: Tensor, y: Tensor, params: dict[str, Tensor] | None) -> Tensor:
        output = self.module(x) if params is None else torch.func.functional_call(self.module, params, (x,))
        if not isinstance(output, Tensor):
            if self.loss in LOSSES.values():
                kind = type(output).__name__
                raise TypeError(f"outputs that are a {kind}, which only a loss of your own can take")
        elif y.is_floating_point() and output.ndim == y.ndim + 1 and output.shape[-1] == 1:
            output = output.squeeze(-1)  # a column against a vector would be compared all with all
        return self.loss(output, y).mean()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Evaluate without noise, and with attention that can be differentiated twice."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        modes = [(m, m.training) for m in self.module.modules()]
        self.module.eval()
        try:
            with sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            for m, training in modes:
                m.training = training

    # --- values ------------------------------------------------------------------------------------------

    def get(self) -> Tensor:
        """Return the parameters as one vector."""
        return torch.cat([p.detach().reshape(-1) for p in self.params])

    def put(self, w: Tensor) -> None:
        """Set the parameters."""
        put(
            self.params,
            [part.view_as(p) for part, p in zip(w.split([p.numel() for p in self.params]), self.params)],
        )

    @torch.no_grad()
    def value(self) -> float:
        """Return the mean loss."""
        with self.quiet():
            return sum(float(self.on_batch(x, y)) * len(x) for x, y in self.batches) / self.rows

    def slope(self) -> tuple[float, Tensor]:
        """Return the mean loss and its gradient."""
        total, value = torch.zeros(self.size, dtype=self.dtype, device=self.device), 0.0
        with self.quiet(), torch.enable_grad():
            for x, y in self.batches:
                loss = self.on_batch(x, y)
                parts = torch.autograd.grad(loss, self.params, allow_unused=True)
                flat = [
                    torch.zeros(p.numel()).to(p) if g is None else g.reshape(-1)
                    for g, p in zip(parts, self.params)
                ]
                total += torch.cat(flat) * (len(x) / self.rows)
                value += float(loss.detach()) * len(x) / self.rows
        return value, total

    def curvature(self) -> Product:
        """Return the map from v to H v, eq. 1, at the present parameters; the graph is kept if it is of one chunk."""
        if len(self.batches) == 1:
            return self._linearised(*self.batches[0])

        def product(v: Tensor) -> Tensor:
            return sum(self._linearised(x, y)(v) * (len(x) / self.rows) for x, y in self.batches)  # type: ignore[return-value]

        return product

    def _linearised(self, x: Tensor, y: Tensor) -> Product:
        with self.quiet(), torch.enable_grad():
            return hessian_product(flat_gradient(self.on_batch(x, y), self.params), self.params)

    def matrix(self) -> Tensor:
        """Return the whole Hessian, for small models."""
        if self.size > MATRIX_LIMIT:
            do = "Use eigenvalues, density or trace."
            raise errors.value(
                "Surface", f"a whole Hessian needs at most {MATRIX_LIMIT} parameters", self.size, do
            )
        product = self.curvature()
        return torch.stack([product(e) for e in torch.eye(self.size, dtype=self.dtype, device=self.device)])

    def copy(self, dtype: torch.dtype | None = None) -> Surface:
        """Return the same over a copy of the model, of another type if asked for."""
        module = copy.deepcopy(self.module).to(dtype or self.dtype)
        other = object.__new__(Surface)
        other.__dict__.update(self.__dict__)
        other.module, other.dtype = module, dtype or self.dtype
        other.params = [p for p in module.parameters() if p.requires_grad]
        other.batches = [
            tuple(t.to(other.dtype) if t.is_floating_point() else t for t in pair)  # type: ignore[misc]
            for pair in self.batches
        ]
        return other


def surface_of(model: Any, data: Any, loss: Any) -> Surface:
    """Return a surface as it is, or that of a model and data."""
    return model if isinstance(model, Surface) else Surface(model, data, loss)


# --- Lanczos, equations 2 and 3 --------------------------------------------------------------------------


class Tridiagonal(NamedTuple):
    """What Lanczos' iteration leaves: the diagonal and off-diagonal of T, the basis (m, n), and the last beta."""

    diagonal: np.ndarray
    off: np.ndarray
    basis: Tensor
    rest: float

    def ritz(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvalues, ascending, and eigenvectors of T."""
        return eigh_tridiagonal(self.diagonal, self.off)  # type: ignore[no-any-return]

    def errors(self, values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the bounds of eq. 3 for ascending eigenvalues."""
        r = self.rest * np.abs(vectors[-1])
        if len(values) < 2:
            return r
        between = np.diff(values)
        below, above = np.r_[np.inf, between - r[:-1]], np.r_[between - r[1:], np.inf]
        gap = np.maximum(np.minimum(np.minimum(below, above), SEEN * np.abs(values).max()), r)
        return np.asarray(r * (r / np.maximum(gap, np.finfo(float).tiny)))


def lanczos(
    product: Product, start: Tensor, steps: int, enough: Callable[[Tridiagonal], bool] | None = None
) -> Tridiagonal:
    """Run Lanczos' iteration, eq. 2, with full reorthogonalisation.

    Parameters
    ----------
    product : callable
        The symmetric matrix times a vector.
    start : Tensor of shape (n,)
        The first vector, of any length but zero.
    steps : int
        Most products; at most n are made, and fewer if the space closes or it is ``enough``.
    enough : callable, optional
        Looks at what there is every few steps, and says whether to stop.

    Examples
    --------
    >>> found = lanczos(lambda v: torch.tensor([1.0, 2.0, 5.0]) * v, torch.ones(3), 3)
    >>> found.ritz()[0].round(4)
    array([1., 2., 5.])
    """
    m = min(steps, len(start))
    Q = torch.empty(m, len(start), dtype=start.dtype, device=start.device)
    alphas, betas, scale = [], [], 0.0
    q = start / torch.linalg.vector_norm(start)
    for j in range(m):
        Q[j] = q
        r = product(q)
        alphas.append(float(r @ q))
        for _ in range(2):
            r = r - Q[: j + 1].T @ (Q[: j + 1] @ r)
        beta = float(torch.linalg.vector_norm(r))
        scale = max(scale, abs(alphas[-1]), beta)
        closed = (
            beta <= 10 * torch.finfo(start.dtype).eps * max(scale, torch.finfo(start.dtype).tiny) * m**0.5
        )
        found = Tridiagonal(np.array(alphas), np.array(betas), Q[: j + 1], 0.0 if closed else beta)
        if closed or j == m - 1 or (enough is not None and (3 <= j < FEW or j % 5 == 4) and enough(found)):
            return found
        betas.append(beta)
        q = r / beta
    raise AssertionError("unreachable: the last step returns")


def _random(surface: Surface, random_state: int, signs: bool = False) -> Iterator[Tensor]:
    """Yield random vectors of the surface's kind, the same for the same seed on every device."""
    rng = torch.Generator().manual_seed(random_state)
    while True:
        v = torch.randn(surface.size, generator=rng, dtype=torch.float64)
        yield (v.sign() if signs else v).to(surface.device, surface.dtype)


class Extremes(NamedTuple):
    """The largest and the smallest eigenvalues, their error bounds (eq. 3), and the number of products taken."""

    top: np.ndarray  # descending
    bottom: np.ndarray  # ascending
    top_errors: np.ndarray
    bottom_errors: np.ndarray
    products: int


def eigenvalues(
    model: Any,
    data: Any = None,
    *,
    loss: Any = None,
    k: int = 1,
    ends: str = "both",
    tol: float = 1e-5,
    max_iter: int = 200,
    random_state: int = 0,
) -> Extremes:
    """Return the ``k`` largest and ``k`` smallest eigenvalues of the Hessian of a model's loss.

    Parameters
    ----------
    model, data, loss
        As in :class:`Surface`, or a surface as ``model``.
    k : int, default=1
        How many at each end. An eigenvalue with several eigenvectors counts once.
    ends : {"both", "top", "bottom"}, default="both"
        Which ends must reach ``tol``; one alone may take far fewer products, and the other is as exact as its errors say.
    tol : float, default=1e-5
        Error bound, relative to the largest absolute eigenvalue, at which the iteration stops.
    max_iter : int, default=200
        Most products. Each vector of the basis is kept: ``max_iter`` times the parameters in memory.
    random_state : int, default=0
        Of the first vector.

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> found = eigenvalues(torch.nn.Linear(2, 1, bias=False), (X, X[:, :1]), loss="half_squared")
    >>> found.top.round(4), found.bottom.round(4)
    (array([4.5]), array([0.5]))
    """
    surface = surface_of(model, data, loss)
    if not 1 <= k <= max_iter:
        raise errors.value("eigenvalues", f"k must lie between 1 and max_iter={max_iter}", k)
    if ends not in ("both", "top", "bottom"):
        raise errors.unknown("eigenvalues", "ends", ends, ("both", "top", "bottom"))

    def enough(found: Tridiagonal) -> bool:
        values, vectors = found.ritz()
        bounds = found.errors(values, vectors)
        asked = {"top": bounds[-k:], "bottom": bounds[:k]}
        chosen = np.concatenate([part for name, part in asked.items() if ends in ("both", name)])
        return len(values) >= 2 * k and bool((chosen <= tol * np.abs(values).max()).all())

    found = lanczos(surface.curvature(), next(_random(surface, random_state)), max_iter, enough)
    values, vectors = found.ritz()
    bounds = found.errors(values, vectors)
    return Extremes(values[::-1][:k].copy(), values[:k], bounds[::-1][:k].copy(), bounds[:k], len(values))


# --- density and trace, equations 4 and 5 ----------------------------------------------------------------


class Density(NamedTuple):
    """The spectral density on a grid, and the quadrature rule behind it: shares of the eigenvalues at nodes."""

    grid: np.ndarray
    density: np.ndarray
    nodes: np.ndarray
    shares: np.ndarray

    def moment(self, power: int) -> float:
        """Return the mean of the eigenvalues' powers, tr(H^p) / n."""
        return float(self.shares @ self.nodes**power)


def density(
    model: Any,
    data: Any = None,
    *,
    loss: Any = None,
    probes: int = PROBES,
    steps: int = STEPS,
    bandwidth: float | None = None,
    points: int = 1001,
    random_state: int = 0,
) -> Density:
    """Return the spectral density of the Hessian of a model's loss, eq. 4.

    Parameters
    ----------
    model, data, loss
        As in :class:`Surface`, or a surface as ``model``.
    probes : int, default=8
        Random vectors to average over; more make the shares more exact.
    steps : int, default=60
        Products for each; more resolve the bulk finer.
    bandwidth : float, optional
        The deviation of the bell curves; by default 1 % of the range of eigenvalues.
    points : int, default=1001
        Of the grid.
    random_state : int, default=0
        Of the vectors.
    """
    surface = surface_of(model, data, loss)
    if probes < 1 or steps < 1:
        raise errors.value("density", "probes and steps must be at least 1", f"{probes} and {steps}")
    product, vectors = surface.curvature(), _random(surface, random_state)
    nodes, shares = [], []
    for _ in range(probes):
        values, S = lanczos(product, next(vectors), steps).ritz()
        nodes.append(values)
        shares.append(S[0] ** 2 / probes)
    at, share = np.concatenate(nodes), np.concatenate(shares)
    span = float(np.ptp(at)) or abs(float(at[0])) or 1.0
    sigma = bandwidth or 0.01 * span
    grid = np.linspace(at.min() - 5 * sigma, at.max() + 5 * sigma, points)
    bells = np.exp(-0.5 * ((grid[:, None] - at) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    return Density(grid, bells @ share, at, share)


class Estimate(NamedTuple):
    """A mean over random vectors, and its standard error."""

    value: float
    error: float


def trace(
    model: Any, data: Any = None, *, loss: Any = None, probes: int = 32, random_state: int = 0
) -> Estimate:
    """Return Hutchinson's estimate of the trace of the Hessian, eq. 5.

    Parameters
    ----------
    model, data, loss
        As in :class:`Surface`, or a surface as ``model``.
    probes : int, default=32
        Random vectors, one product each; the error falls with the root of their number.
    random_state : int, default=0
        Of the vectors.
    """
    surface = surface_of(model, data, loss)
    if probes < 2:
        raise errors.value("trace", "probes must be at least 2, for an error", probes)
    product, vectors = surface.curvature(), _random(surface, random_state, signs=True)
    found = np.array([float(v @ product(v)) for v, _ in zip(vectors, range(probes))])
    return Estimate(float(found.mean()), float(found.std(ddof=1) / np.sqrt(probes)))


# --- every sample's own loss -----------------------------------------------------------------------------


def sample_loss(surface: Surface) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the loss of one sample (x, y) at parameters w, as a function to differentiate and to map over samples."""
    names = [name for name, p in surface.module.named_parameters() if p.requires_grad]
    sizes, shapes = [p.numel() for p in surface.params], [p.shape for p in surface.params]

    def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = {name: part.view(shape) for name, part, shape in zip(names, w.split(sizes), shapes)}
        return surface.on_batch(x[None], y[None], parts)

    return loss


def sample_smoothness(surface: Surface, iterations: int = 20, random_state: int = 0) -> np.ndarray:
    """Return the largest absolute curvature of each sample's loss, by power iteration on all samples at once."""
    from torch.func import grad, vmap

    here, loss, found = surface.get(), sample_loss(surface), []

    def product(v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return grad(lambda w: grad(loss)(w, x, y) @ v)(here)

    start = next(_random(surface, random_state))
    rows = max(1, 2**24 // surface.size)
    with surface.quiet():
        for x, y in ((a, b) for xs, ys in surface.batches for a, b in zip(xs.split(rows), ys.split(rows))):
            V = (start / start.norm()).expand(len(x), -1)
            for _ in range(iterations):
                HV = vmap(product)(V, x, y)
                size = HV.norm(dim=1, keepdim=True)
                V = torch.where(size > 0, HV / size.clamp_min(torch.finfo(HV.dtype).tiny), V)
            found.append(size[:, 0])
    return torch.cat(found).double().cpu().numpy()
