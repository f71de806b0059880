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
from torch.func import functional_call, jacrev, jvp, vmap
from torch.nn import functional as F

from corollary.errors import kind, value
from corollary.theory.infinite import MEMORY, ScaledLinear

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

SAME = 1e-3  # relative deviation of gradients that is more than rounding


# --- the factors of a block: what equations 1 and 2 multiply ------------------------------------------------


class _Product(NamedTuple):
    """A linear layer that saw every sample once: eq. 2."""

    h: Tensor  # (n, d), scaled as the weights are, with a column for the bias
    delta: Tensor  # (outputs, n, width)

    def mean(self, other: _Product) -> Tensor:
        a, b = (part.delta.transpose(0, 1).flatten(1) for part in (self, other))
        return (self.h @ other.h.T) * (a @ b.T) / len(self.delta)

    def full(self, other: _Product) -> Tensor:
        inner = torch.einsum("onw,pmw->nmop", self.delta, other.delta)
        return (self.h @ other.h.T)[:, :, None, None] * inner

    def total(self) -> tuple[Tensor, ...]:
        """Return the gradient of the sum of all outputs by the weights, and the bias, that multiply h."""
        return (self.delta.sum(0).T @ self.h,)


class _Gradient(NamedTuple):
    """Gradients of every output by some parameters: eq. 1."""

    g: Tensor  # (n, outputs, parameters)

    def mean(self, other: _Gradient) -> Tensor:
        return (self.g.flatten(1) @ other.g.flatten(1).T) / self.g.shape[1]

    def full(self, other: _Gradient) -> Tensor:
        return torch.einsum("nop,mqp->nmoq", self.g, other.g)


Factors = list[_Product | _Gradient]


class _Call(NamedTuple):
    """One call of a layer: what went in and what came out."""

    h: Tensor
    z: Tensor


@contextmanager
def _recorded(layers: dict[str, nn.Module]) -> Iterator[dict[str, list[_Call]]]:
    """Record the calls of these layers inside the block."""
    calls: dict[str, list[_Call]] = {name: [] for name in layers}

    def hook(name: str) -> Callable[..., Tensor]:
        def record(_: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
            calls[name].append(_Call(inputs[0], z))
            return z.clone()  # what comes next may work in place

        return record

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _scales(layer: nn.Module) -> tuple[float, float]:
    """Return what the weights and the bias of a layer are multiplied by."""
    if isinstance(layer, ScaledLinear):
        return layer.weight_scale, layer.bias_scale
    return 1.0, 1.0


def _with_bias(layer: nn.Module, h: Tensor) -> Tensor:
    """Return the inputs (..., d) of a linear layer as its parameters see them, with a last column for the bias."""
    w, b = _scales(layer)
    h = h.detach() * w
    return h if layer.bias is None else torch.cat([h, torch.full_like(h[..., :1], b)], -1)


def _unfolded(layer: nn.Conv2d, h: Tensor) -> Tensor:
    """Return the patches (n, places, c k k) that a convolution multiplies, with a last column for the bias."""
    how = {"padding": layer.padding, "stride": layer.stride, "dilation": layer.dilation}
    return _with_bias(layer, F.unfold(h, layer.kernel_size, **how).transpose(1, 2))  # type: ignore[arg-type]


def _layer_factors(layer: nn.Module, calls: list[_Call], deltas: list[Tensor]) -> _Product | _Gradient:
    """Return the factors of a layer from its calls and the derivatives (outputs, n, ...) by what came out."""
    if isinstance(layer, nn.Conv2d):
        inputs = [_unfolded(layer, call.h) for call in calls]
        deltas = [delta.flatten(3).transpose(2, 3) for delta in deltas]
    else:
        inputs = [_with_bias(layer, call.h) for call in calls]
    if len(calls) == 1 and inputs[0].ndim == 2:
        return _Product(inputs[0], deltas[0])
    n, outputs = len(inputs[0]), len(deltas[0])
    total: Any = 0
    for h, delta in zip(inputs, deltas):
        h, delta = h.reshape(n, -1, h.shape[-1]), delta.reshape(outputs, n, -1, delta.shape[-1])
        total = total + torch.einsum("onsw,nsd->nowd", delta, h)
    return _Gradient(total.flatten(2))


def _derivatives(f: Tensor, ends: list[Tensor]) -> list[Tensor]:
    """Return the derivatives (outputs, *end.shape) of each column of f by each end."""
    if not ends:
        return []
    columns = [
        torch.autograd.grad(f[:, o].sum(), ends, retain_graph=True, allow_unused=True)
        for o in range(f.shape[1])
    ]
    return [
        torch.stack([torch.zeros_like(z) if d is None else d for d in each])
        for z, each in zip(ends, zip(*columns))
    ]


class _Tangent:
    """Factors of a module: its plain layers by their calls, all other parameters by Jacobians."""

    def __init__(self, module: nn.Module, method: str) -> None:
        self.module = module
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.layers: dict[str, nn.Module] = {} if method == "jacobian" else dict(self._plain())
        self.checked = not self.layers

    def _plain(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the layers that equation 2 covers: all of their parameters are trained, and theirs alone."""
        owners: dict[int, int] = {}
        for part in self.module.modules():
            for p in part.parameters(recurse=False):
                owners[id(p)] = owners.get(id(p), 0) + 1
        for name, layer in self.module.named_modules():
            conv = type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros"
            if conv and isinstance(layer.padding, str):
                conv = False
            own = list(layer.parameters(recurse=False))
            if (conv or type(layer) in (nn.Linear, ScaledLinear)) and all(
                p.requires_grad and owners[id(p)] == 1 for p in own
            ):
                yield name, layer

    def _rest(self) -> dict[str, Tensor]:
        taken = {id(p) for layer in self.layers.values() for p in layer.parameters(recurse=False)}
        return {name: p.detach() for name, p in self.parameters.items() if id(p) not in taken}

    def __call__(self, x: Tensor) -> Factors:
        """Return the factors of a block of samples."""
        factors = self._by_layers(x) if self.layers else {}
        rest = self._rest()
        return [*factors.values(), *([_Gradient(self._jacobian(x, rest))] if rest else [])]

    def _by_layers(self, x: Tensor) -> dict[str, Any]:
        with torch.enable_grad(), _recorded(self.layers) as calls:
            f = self._outputs(x)
            used = {name: made for name, made in calls.items() if made}
            ends = [call.z for made in used.values() for call in made]
            deltas = iter(_derivatives(f, ends))
            factors = {
                name: _layer_factors(self.layers[name], made, [next(deltas) for _ in made])
                for name, made in used.items()
            }
            if not self.checked:
                self.checked = True
                if self._forget_strange(f, factors):
                    return self._by_layers(x) if self.layers else {}
        return factors

    def _forget_strange(self, f: Tensor, factors: dict[str, Any]) -> bool:
        """Take out layers whose weights are also used elsewhere: there equation 2 is not the whole gradient."""
        strange = []
        for name, layer in self.layers.items():
            (true,) = torch.autograd.grad(f.sum(), layer.weight, retain_graph=True, allow_unused=True)
            if name not in factors:  # never called
                if true is not None:
                    strange.append(name)
                continue
            factor = factors[name]
            ours = factor.total()[0] if isinstance(factor, _Product) else factor.g.sum((0, 1))
            ours = ours.reshape(len(layer.weight), -1)[:, : layer.weight[0].numel()].reshape(
                layer.weight.shape
            )
            scale = max(float(ours.abs().max()), 1e-30)
            if true is None or float((ours - true).abs().max()) > SAME * scale:
                strange.append(name)
        for name in strange:
            del self.layers[name]
        return bool(strange)

    def _outputs(self, x: Tensor) -> Tensor:
        f = self.module(x)
        if not isinstance(f, Tensor) or len(f) != len(x):
            got = f"shape {tuple(f.shape)}" if isinstance(f, Tensor) else type(f).__name__
            raise kind("empirical", "module must return a tensor with one row per sample", got)
        return f.reshape(len(x), -1)

    def _jacobian(self, x: Tensor, rest: dict[str, Tensor]) -> Tensor:
        """Return the gradients (n, outputs, parameters) of what no layer covers, sample by sample at once."""

        def of(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
            return functional_call(self.module, parameters, (one[None],)).reshape(-1)

        try:
            found = vmap(jacrev(of), (None, 0))(rest, x)
        except (RuntimeError, ValueError):  # a module that vmap cannot see through
            each = [jacrev(of)(rest, one) for one in x]
            found = {name: torch.stack([one[name] for one in each]) for name in rest}
        return torch.cat([found[name].flatten(2) for name in rest], 2)

    def bytes_of(self, x: Tensor) -> int:
        """Return about how many bytes the factors of one sample take."""
        with torch.no_grad(), _recorded(self.layers) as calls:
            f = self._outputs(x[:1])
        rows = sum(p.numel() for p in self._rest().values()) * f.shape[1]
        for name, made in calls.items():
            layer, seen = self.layers[name], sum(call.z.numel() for call in made)
            weights = sum(p.numel() for p in layer.parameters(recurse=False))
            plain = len(made) == 1 and made[0].h.ndim == 2
            rows += f.shape[1] * (seen + (0 if plain else weights)) + sum(call.h.numel() for call in made)
        return max(1, rows * f.element_size())


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
    X = torch.as_tensor(X, device=like.device)
    X = X.to(like.dtype) if X.is_floating_point() else X
    if X.ndim < 1 or len(X) == 0:
        raise value("empirical", "there must be at least one sample", f"shape {tuple(X.shape)}")
    return X


def _check_independent(module: nn.Module, x: Tensor) -> None:
    """Raise if what a sample gives depends on the samples beside it."""
    if len(x) > 1:
        with torch.no_grad():
            alone, among = module(x[:1])[0], module(x[:2])[0]
        if float((alone - among).abs().max()) > SAME * max(float(alone.abs().max()), 1e-3):
            do = "Normalise with running statistics, or per sample."
            raise value(
                "empirical", "each output must depend on its own sample only", "one that does not", do
            )


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
        _check_independent(module, x)
        tangent = _Tangent(module, method)
        rows = max(1, memory // (2 * tangent.bytes_of(x)))
        return _assembled(tangent, x, None if B is None else y, rows, outputs)


empirical_ntk = empirical  # the name outside this module


def _assembled(tangent: _Tangent, x: Tensor, y: Tensor | None, rows: int, outputs: str) -> Tensor:
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
    if y is None:
        return Spectrum(values, vectors, None)
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    if len(y) != len(K):
        raise value("spectrum", f"y must have one row per sample ({len(K)})", len(y))
    return Spectrum(values, vectors, vectors.T @ y)
