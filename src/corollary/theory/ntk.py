r"""The neural tangent kernel of any module: empirical kernel, linearised network, drift and time scales.

.. math:: \Theta_{op}(x, x') = \langle \nabla_\theta f_o(x), \nabla_\theta f_p(x') \rangle. \tag{1}

A linear layer :math:`z = W h + b` contributes without any gradient of :math:`W` being formed: with
:math:`\delta_o = \partial f_o / \partial z`

.. math:: (\langle h, h' \rangle + 1)\, \langle \delta_o, \delta'_p \rangle. \tag{2}

The network linearised at :math:`\theta_0` is
:math:`h(\vartheta)(x) = f_{\theta_0}(x) + \langle \nabla f_{\theta_0}(x), \vartheta \rangle` (3). Gradient flow on
half the summed squared error takes it from :math:`\vartheta = 0`, in time :math:`t`, to

.. math::
    \vartheta_t = J^\top \Theta^\dagger (I - e^{-t \Theta}) (y - f_{\theta_0}), \qquad J = \nabla f_{\theta_0}(X), \tag{4}

so that along an eigenvector of :math:`\Theta` the residual falls as :math:`e^{-\lambda t}`: its time scale is :math:`1/\lambda`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from corollary.errors import kind, value
from corollary.theory.infinite import MEMORY
from corollary.theory.tangents import SAME, Tangent
from corollary.validation import as_tensor

__all__ = [
    "KernelDrift",
    "Linearised",
    "Spectrum",
    "drift",
    "empirical",
    "empirical_ntk",
    "linearise",
    "spectrum",
]

ROUNDED = 1e-4  # share of the largest eigenvalue that rounding, in single precision, may leave below zero

# --- the empirical kernel -----------------------------------------------------------------------------------


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Put every part into evaluation mode inside the block, and back as it was."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _as_samples(module: nn.Module, X: Any) -> Tensor:
    if not isinstance(module, nn.Module):
        raise kind("empirical", "module must be a torch.nn.Module", type(module).__name__)
    like = next((p for p in module.parameters() if p.requires_grad), None)
    if like is None:
        raise value("empirical", "the module must have parameters that are trained", "none")
    X = (as_tensor(X) if hasattr(X, "__array__") else torch.as_tensor(X)).to(like.device)
    X = X.to(like.dtype) if X.is_floating_point() else X
    if X.ndim < 1 or len(X) == 0:
        raise value("empirical", "there must be at least one sample", f"shape {tuple(X.shape)}")
    return X


def _check_outputs(module: nn.Module, *samples: Tensor) -> None:
    """Raise if the module does not make one tensor of the samples, or if a row of it depends on other samples."""
    for x in samples:
        must = f"the module must make one tensor of a batch of samples of shape {tuple(x.shape[1:])}"
        try:
            with torch.no_grad():
                alone, among = module(x[:1]), module(x[:2])
        except (IndexError, RuntimeError, TypeError) as error:
            got = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise value("empirical", must, got.rstrip(".")) from error
        if not isinstance(alone, Tensor):
            raise kind(
                "empirical", must, type(alone).__name__, "Wrap it in a module that returns one output."
            )
        if float((alone[0] - among[0]).abs().max()) > SAME * max(float(alone.abs().max()), 1e-3):
            do = "Normalise with running statistics, or per sample."
            must = "each output must depend on its own sample only"
            raise value("empirical", must, "one that does not", do)


def empirical(
    module: nn.Module,
    A: Any,
    B: Any = None,
    *,
    outputs: str = "mean",
    method: str = "auto",
    memory: int = MEMORY,
) -> Tensor:
    """Return the neural tangent kernel of a module at its present weights, equation 1.

    Parameters
    ----------
    module : torch.nn.Module
        Any module that takes a batch; it is asked in evaluation mode, and only parameters that require a gradient count.
    A, B : array or Tensor of shape (n, ...) and (m, ...)
        The samples; B is A by default.
    outputs : {"mean", "full"}, default="mean"
        For several outputs, the mean of the kernels of each (the trace over their number), or all pairs of them.
    method : {"auto", "jacobian"}, default="auto"
        "auto" takes linear layers by equation 2, convolutions by their patches, and the gradients of whatever else there
        is sample by sample; "jacobian" takes all of them so.
    memory : int, default=2**28
        Bytes that the factors of one block of samples may take; smaller blocks are computed more often.

    Returns
    -------
    Tensor of shape (n, m), or (n, m, outputs, outputs) if "full"

    Notes
    -----
    For a network of linear layers O(n m k w) for k outputs and w units in all, where Jacobians take O(n m k p) for p
    parameters.

    References
    ----------
    .. [1] A. Jacot, F. Gabriel, C. Hongler (2018). Neural tangent kernel: convergence and generalization in neural
       networks. NeurIPS.
    .. [2] R. Novak, J. Sohl-Dickstein, S. Schoenholz (2022). Fast finite width neural tangent kernel. ICML.

    Examples
    --------
    >>> import torch
    >>> from corollary.theory import ntk
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    >>> K = ntk.empirical(net, torch.randn(5, 3))
    >>> K.shape, bool(torch.linalg.eigvalsh(K)[0] > -1e-4)
    (torch.Size([5, 5]), True)
    """
    if outputs not in ("mean", "full"):
        raise value("empirical", "outputs must be 'mean' or 'full'", repr(outputs))
    if method not in ("auto", "jacobian"):
        raise value("empirical", "method must be 'auto' or 'jacobian'", repr(method))
    x = _as_samples(module, A)
    y = x if B is None else _as_samples(module, B)
    with _evaluating(module):
        _check_outputs(module, *((x,) if B is None else (x, y)))
        tangent = Tangent(module, method)
        rows = max(1, memory // (2 * tangent.bytes_of(x)))
        return _assembled(tangent, x, None if B is None else y, rows, outputs)


empirical_ntk = empirical  # the name outside this module


def _assembled(tangent: Tangent, x: Tensor, y: Tensor | None, rows: int, outputs: str) -> Tensor:
    """Return the kernel block by block; of a symmetric one only the blocks above the diagonal are computed."""
    others = (x if y is None else y).split(rows)
    table: list[list[Any]] = []
    for i, part in enumerate(x.split(rows)):
        own, line = tangent(part), []
        for j, other in enumerate(others):
            if y is None and j < i:
                line.append(table[j][i].transpose(0, 1))  # and of the outputs, if there are pairs of them
                line[-1] = line[-1].transpose(-1, -2) if outputs == "full" else line[-1]
                continue
            factors = own if y is None and j == i else tangent(other)
            line.append(sum(getattr(a, outputs)(b) for a, b in zip(own, factors)))
        table.append(line)
    return torch.cat([torch.cat(line, 1) for line in table])


# --- the linearised network ---------------------------------------------------------------------------------


class Linearised(nn.Module):
    """A network linearised at its present weights, eq. 3: a module whose parameters are the displacements, zero at first.

    Train it as any module, or in closed form with :meth:`solve`.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._base = [module]  # in a list, so that its weights are not parameters of this one
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]
        points = dict(module.named_parameters())
        self.point = {name: points[name].detach().clone() for name in self.names}
        self.shift = nn.ParameterList(torch.zeros_like(self.point[name]) for name in self.names)

    def _f(self, x: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
        return lambda weights: functional_call(self._base[0], weights, (x,))

    def forward(self, x: Tensor) -> Tensor:
        """Return eq. 3."""
        with _evaluating(self._base[0]), warnings.catch_warnings():
            # torch compiles its rules for jvp with a function that it calls deprecated
            warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
            here, slope = jvp(self._f(x), (self.point,), (dict(zip(self.names, self.shift)),))
        return here + slope

    def solve(self, X: Any, y: Any, *, time: float = math.inf) -> Linearised:
        """Train by gradient flow on half the summed squared error, in closed form, eq. 4.

        Parameters
        ----------
        X, y : arrays or Tensors of shape (n, ...) and (n,) or (n, outputs)
            What to learn.
        time : float, default=inf
            How long: 0 changes nothing, infinity fits y as closely as any displacement can.
        """
        if not time >= 0:
            raise value("Linearised", "time must not be negative", time)
        module = self._base[0]
        x = _as_samples(module, X)
        with _evaluating(module), torch.no_grad():
            base = functional_call(module, self.point, (x,))
        y = torch.as_tensor(y, dtype=base.dtype, device=base.device).reshape(base.shape)
        with self._at_point():
            K = empirical(module, x, outputs="full")
        n, m, k, _ = K.shape
        values, vectors = torch.linalg.eigh(K.permute(0, 2, 1, 3).reshape(n * k, m * k).double())
        gain = _relaxed(values, time)
        dual = vectors @ (gain * (vectors.T @ (y - base).reshape(-1).double()))
        with _evaluating(module):
            pull = torch.func.vjp(self._f(x), self.point)[1](dual.to(base.dtype).reshape(base.shape))[0]
        with torch.no_grad():
            for name, shift in zip(self.names, self.shift):
                shift.copy_(pull[name])
        return self

    @contextmanager
    def _at_point(self) -> Iterator[None]:
        """Put the weights of the linearisation into the module inside the block."""
        weights = {name: p for name, p in self._base[0].named_parameters() if name in self.point}
        kept = {name: p.detach().clone() for name, p in weights.items()}
        with torch.no_grad():
            for name, p in weights.items():
                p.copy_(self.point[name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, p in weights.items():
                    p.copy_(kept[name])

    @torch.no_grad()
    def predict(self, X: Any) -> Tensor:
        """Return the outputs for an array or a tensor."""
        return self(_as_samples(self._base[0], X))


def _relaxed(values: Tensor, time: float) -> Tensor:
    """Return (1 - exp(-t lambda)) / lambda; 1 / lambda at infinity, where what is zero stays so."""
    small = values.abs().max() * len(values) * torch.finfo(values.dtype).eps
    safe = values.clamp(min=float(small) or 1.0)
    if math.isinf(time):
        return torch.where(values > small, 1 / safe, 0.0)
    return torch.where(values > small, -torch.expm1(-time * safe) / safe, torch.full_like(values, time))


def linearise(module: nn.Module) -> Linearised:
    """Return the network linearised at its present weights, equation 3.

    Examples
    --------
    >>> import torch
    >>> from corollary.theory import ntk
    >>> net = torch.nn.Sequential(torch.nn.Linear(1, 50), torch.nn.Tanh(), torch.nn.Linear(50, 1)).double()
    >>> X, y = torch.linspace(-2, 2, 5)[:, None], torch.tensor([0.0, 1, 0, 1, 0])
    >>> bool((ntk.linearise(net).solve(X, y).predict(X)[:, 0] - y).abs().max() < 1e-3)
    True
    """
    _as_samples(module, [0.0])
    return Linearised(module)


# --- drift, spectrum, time scales ---------------------------------------------------------------------------


def drift(before: Any, after: Any, A: Any = None) -> float:
    """Return how far a tangent kernel moved, relative to where it was: ||K - K0||_F / ||K0||_F.

    Parameters
    ----------
    before, after : Tensor or torch.nn.Module
        Two kernels, or the module before (a copy) and after training.
    A : array or Tensor
        The samples, where modules are given.

    Examples
    --------
    >>> import torch
    >>> from corollary.theory import ntk
    >>> ntk.drift(torch.eye(3), 1.5 * torch.eye(3))
    0.5
    """
    K0, K = (
        empirical(part, A) if isinstance(part, nn.Module) else torch.as_tensor(part)
        for part in (before, after)
    )
    if K0.shape != K.shape:
        raise value("drift", "both kernels must have one shape", f"{tuple(K0.shape)} and {tuple(K.shape)}")
    return float(torch.linalg.vector_norm(K - K0) / torch.linalg.vector_norm(K0))


class KernelDrift:
    """A callback that measures the drift of the tangent kernel after every step of a fit.

    >>> import numpy as np, corollary
    >>> from corollary.theory.ntk import KernelDrift
    >>> X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    >>> watch = KernelDrift(X[:5].astype("float32"))
    >>> model = corollary.MLPClassifier((8,), training=corollary.Training(epochs=3), random_state=0)
    >>> with corollary.Run(callbacks=[watch]):
    ...     _ = model.fit(X, y)
    >>> [entry["step"] for entry in watch.history], watch.history[0]["drift"]
    ([1, 2, 3], 0.0)
    """

    def __init__(self, A: Any, every: int = 1) -> None:
        self.A, self.every = A, every
        self.first: Tensor | None = None
        self.history: list[dict[str, float]] = []

    def __call__(self, event: Any) -> None:
        """Measure; the kernel after the first step is what later ones are compared with."""
        if event.module_ is None:
            raise value("KernelDrift", "the fit must train a torch module", event.owner)
        if (event.step - 1) % self.every == 0:
            K = empirical(event.module_, self.A)
            self.first = K if self.first is None else self.first
            self.history.append({"step": event.step, "drift": drift(self.first, K)})


class Spectrum(NamedTuple):
    """Eigenvalues (largest first), eigenvectors (columns), and what they say of training by gradient flow."""

    values: np.ndarray
    vectors: np.ndarray
    residual: np.ndarray | None  # of the targets along each eigenvector

    @property
    def time_scales(self) -> np.ndarray:
        """1 / eigenvalue: the time in which the residual along an eigenvector falls by a factor e."""
        return 1 / np.maximum(self.values, np.finfo(np.float64).tiny)

    @property
    def condition(self) -> float:
        """The largest over the smallest eigenvalue; infinite if that is not positive."""
        return float(self.values[0] / self.values[-1]) if self.values[-1] > 0 else math.inf

    @property
    def largest_step(self) -> float:
        """The step size of gradient descent on half the summed squares beyond which it diverges, 2 / lambda."""
        return float(2 / self.values[0])

    def loss(self, time: Any) -> np.ndarray:
        """Return half the summed squared residual predicted at these times."""
        if self.residual is None:
            raise value("Spectrum", "a loss needs targets", "none", "Pass y to spectrum.")
        decay = np.exp(-np.multiply.outer(np.asarray(time, np.float64), np.maximum(self.values, 0)))
        return 0.5 * np.square(decay[..., None] * self.residual).sum((-2, -1))


def spectrum(K: Any, y: Any = None) -> Spectrum:
    """Return the eigenvalues of a kernel, the time scales they predict, and with targets the loss over time.

    Parameters
    ----------
    K : array or Tensor of shape (n, n)
        A symmetric kernel matrix.
    y : array of shape (n,) or (n, k), optional
        Targets less the outputs at the start.

    Examples
    --------
    >>> found = spectrum([[2.0, 0.0], [0.0, 1.0]], y=[1.0, 1.0])
    >>> found.time_scales, found.loss([0.0, 1.0]).round(4)
    (array([0.5, 1. ]), array([1.    , 0.0768]))
    """
    K = np.asarray(K.detach().cpu() if isinstance(K, Tensor) else K, np.float64)
    if K.ndim != 2 or len(K) != K.shape[1] or not np.allclose(K, K.T, rtol=1e-4, atol=1e-6 * np.abs(K).max()):
        raise value("spectrum", "K must be a symmetric matrix", f"shape {K.shape}")
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    values, vectors = values[::-1].copy(), vectors[:, ::-1].copy()
    if values[-1] < -ROUNDED * abs(values[0]):
        must = "K must have no negative eigenvalues, as every kernel does"
        got = f"{values[-1]:.3g} beside {values[0]:.3g}"
        raise value("spectrum", must, got, "Pass a kernel of the samples with themselves.")
    if y is None:
        return Spectrum(values, vectors, None)
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    if len(y) != len(K):
        raise value("spectrum", f"y must have one row per sample ({len(K)})", len(y))
    return Spectrum(values, vectors, vectors.T @ y)
