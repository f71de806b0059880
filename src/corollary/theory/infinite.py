r"""Networks of infinite width as kernels: the covariance of their outputs (NNGP) and their tangent kernel (NTK).

Weights are drawn from :math:`\mathcal N(0, \sigma_w^2 / n_{in})` and biases from :math:`\mathcal N(0, \sigma_b^2)`. As all
hidden layers become wide, the outputs of the random network become a Gaussian process with the covariance

.. math::
    K^0(x, x') = \sigma_b^2 + \sigma_w^2 \frac{\langle x, x' \rangle}{d}, \qquad
    K^l(x, x') = \sigma_b^2 + \sigma_w^2\, \mathbb E[\phi(u) \phi(v)], \tag{1}

where :math:`(u, v)` is Gaussian with the covariance :math:`K^{l-1}` of :math:`x, x'`. Gradient descent on weights
:math:`W = \sigma_w \omega / \sqrt{n_{in}}` and biases :math:`b = \sigma_b \beta` with standard normal
:math:`\omega, \beta` then moves the outputs by the tangent kernel

.. math:: \Theta^0 = K^0, \qquad \Theta^l = K^l + \sigma_w^2\, \Theta^{l-1}\, \mathbb E[\phi'(u) \phi'(v)]. \tag{2}

A residual layer adds (1) and (2) to what went in. In a convolution with ``kernel_size`` :math:`k` both are kept for each
pixel, and what multiplies :math:`\sigma_w^2` is averaged over the :math:`k \times k` neighbours (zeros beyond the edge); the
readout averages over all pixels.

With :math:`q = K(x, x)`, :math:`q' = K(x', x')`, :math:`c = K(x, x') / \sqrt{q q'}` and :math:`\theta = \arccos c`, the
expectations are for ReLU

.. math::
    \mathbb E[\phi \phi] = \tfrac{1}{2\pi} \sqrt{q q'}\, (\sin\theta + (\pi - \theta) \cos\theta), \qquad
    \mathbb E[\phi' \phi'] = \tfrac{1}{2\pi} (\pi - \theta), \tag{3}

for leaky units with slope :math:`a`: :math:`a` times those of the identity plus :math:`(1 - a)^2` times (3), and for the
error function

.. math::
    \mathbb E[\phi \phi] = \tfrac2\pi \arcsin \frac{2 K}{\sqrt{(1 + 2q)(1 + 2q')}}, \qquad
    \mathbb E[\phi' \phi'] = \tfrac4\pi \bigl((1 + 2q)(1 + 2q') - 4 K^2\bigr)^{-1/2}. \tag{4}

Any smooth activation goes by Gauss-Hermite quadrature and Mehler's series: with the coefficients
:math:`a_k(q) = \mathbb E[\phi(\sqrt q z) h_k(z)]` in normalised Hermite polynomials,

.. math:: \mathbb E[\phi \phi] = \sum_k a_k(q)\, a_k(q')\, c^k. \tag{5}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from corollary.errors import unknown, value
from corollary.nn.activations import ALIASES, activation
from corollary.validation import as_tensor

__all__ = ["ACTIVATIONS", "Kernels", "ScaledLinear", "dual", "infinite_kernels", "wide_network"]

ROOT_TWO = math.sqrt(2)  # the spread of weights with which ReLU layers keep the size of their input
NODES = 96  # of the quadrature, and as many terms of eq. 5
LEAK = 0.01  # the slope of torch's leaky units
CLOSED = ("relu", "leaky", "erf", "identity")  # in the order that the compiled loop knows
SMOOTH = ("gelu", "silu", "tanh", "sigmoid", "softplus", "elu")
ACTIVATIONS = (*CLOSED, *SMOOTH)
MEMORY = 2**28  # bytes of one block of a kernel
NEAR_ONE = 1e-7  # of the squared sine
CACHE = 2**22  # bytes that stay in the cache while a block goes through all layers


class Kernels(NamedTuple):
    """The two kernels of an infinitely wide network, each of shape (n, m)."""

    nngp: Tensor
    ntk: Tensor


class _Erf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


def _function(name: str) -> nn.Module:
    return _Erf() if name == "erf" else activation(name)


# --- expectations over a pair of Gaussians: equations 3 to 5 ------------------------------------------------


class _ArcCosine(torch.autograd.Function):
    """sin + (pi - angle) cos as a function of the cosine, and pi - angle, its derivative; both have one at 1, unlike autograd's.

    The second derivative, 1 / sin, has none there: it is cut off where single precision ends.
    """

    @staticmethod
    def forward(ctx: Any, c: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        left, sine = torch.arccos(c).neg_().add_(math.pi), (1 - c * c).clamp_(min=0).sqrt_()
        ctx.save_for_backward(left, c)
        ctx.set_materialize_grads(False)
        return sine.addcmul_(left, c), left

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, slope: Tensor | None) -> Tensor | None:  # type: ignore[override]
        left, c = ctx.saved_tensors
        total = None if grad is None else grad * left
        if slope is not None:
            bent = slope * (1 - c * c).clamp(min=NEAR_ONE).rsqrt()
            total = bent if total is None else total + bent
        return total


class _Mehler(torch.autograd.Function):
    """Eq. 5 by Horner's rule; autograd would keep every partial sum."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(c, a, b)
        total = torch.zeros_like(c)
        for k in range(len(a) - 1, -1, -1):
            total.mul_(c).addcmul_(a[k], b[k])
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        c, a, b = ctx.saved_tensors
        slope, power = torch.zeros_like(c), grad.clone()  # power: the gradient times c^k
        for k in range(len(a) - 1, 0, -1):
            slope.mul_(c).addcmul_(a[k], k * b[k])
        to_a, to_b = torch.empty_like(a), torch.empty_like(b)
        for k in range(len(a)):
            to_a[k], to_b[k] = (power * b[k]).sum_to_size(a[k].shape), (power * a[k]).sum_to_size(b[k].shape)
            power.mul_(c)
        return grad * slope, to_a, to_b


@cache
def _hermite() -> tuple[Tensor, Tensor]:
    """Return nodes (NODES,) of the standard normal, and weight times normalised Hermite polynomials (NODES, NODES)."""
    x, w = np.polynomial.hermite_e.hermegauss(NODES)
    rows = [np.ones_like(x), x]
    for k in range(1, NODES - 1):
        rows.append((x * rows[k] - math.sqrt(k) * rows[k - 1]) / math.sqrt(k + 1))
    return torch.from_numpy(x), torch.from_numpy(np.stack(rows) * (w / w.sum()))


def coefficients(phi: Callable[[Tensor], Tensor], q: Tensor) -> Tensor:
    """Return a_k(q) of eq. 5, shape (NODES, *q.shape)."""
    x, h = (part.to(q) for part in _hermite())
    return torch.tensordot(h, phi(x[:, None] * q.reshape(1, -1).sqrt()), 1).reshape(-1, *q.shape)


def _slope(phi: nn.Module) -> Callable[[Tensor], Tensor]:
    def derivative(x: Tensor) -> Tensor:
        with torch.enable_grad():
            at = x if x.requires_grad else x.detach().requires_grad_(True)
            return torch.autograd.grad(phi(at).sum(), at, create_graph=x.requires_grad)[0]

    return derivative


def _relu(K: Tensor, qa: Tensor, qb: Tensor) -> tuple[Tensor, Tensor]:
    norm = qa.sqrt() * qb.sqrt()
    value_, left = _ArcCosine.apply((K / norm).clamp(-1, 1))
    return value_ * (norm / (2 * math.pi)), left / (2 * math.pi)


def dual(name: str, K: Tensor, qa: Tensor, qb: Tensor) -> tuple[Tensor, Tensor]:
    """Return E[phi(u) phi(v)] and E[phi'(u) phi'(v)] for Gaussian pairs of covariance K and variances qa and qb.

    Parameters
    ----------
    name : str
        One of ``ACTIVATIONS``: equation 3 or 4 where there is one, else equation 5.
    K, qa, qb : Tensor
        Covariances and variances, of one shape or broadcast.

    Examples
    --------
    >>> one, half = torch.tensor(1.0), torch.tensor(0.5)
    >>> [round(float(part), 4) for part in dual("relu", half, one, one)]
    [0.3045, 0.3333]
    """
    name = ALIASES.get(name, name)
    tiny = torch.finfo(K.dtype).tiny ** 0.5
    qa, qb = qa.clamp(min=tiny), qb.clamp(min=tiny)
    if name == "identity":
        return K, torch.ones_like(K)
    if name in ("relu", "leaky"):
        a = LEAK if name == "leaky" else 0.0
        value_, slope = _relu(K, qa, qb)
        return a * K + (1 - a) ** 2 * value_, a + (1 - a) ** 2 * slope
    if name == "erf":
        scale = (1 + 2 * qa) * (1 + 2 * qb)
        return (
            (2 / math.pi) * torch.arcsin(2 * K / scale.sqrt()),
            (4 / math.pi) * (scale - 4 * K * K).rsqrt(),
        )
    if name not in SMOOTH:
        raise unknown("dual", "activation", name, ACTIVATIONS)
    c, phi = (K / (qa * qb).sqrt()).clamp(-1, 1), activation(name)
    slope = _Mehler.apply(c, *(coefficients(_slope(phi), q) for q in (qa, qb)))
    return _Mehler.apply(c, coefficients(phi, qa), coefficients(phi, qb)), slope


# --- the recursion: equations 1 and 2 -----------------------------------------------------------------------


class _State(NamedTuple):
    """Covariance and tangent kernel (n, m) or (n, m, h, w), and the variances of either side, broadcast against them."""

    K: Tensor
    T: Tensor
    qa: Tensor
    qb: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> _State:
        return _State(*map(change, self))


def _patches(x: Tensor, size: int) -> Tensor:
    """Return the mean over size x size neighbours, zeros beyond the edge."""
    flat = x.reshape(-1, 1, *x.shape[-2:])
    return F.avg_pool2d(F.pad(flat, [size // 2] * 4), size, 1).reshape(x.shape)


def _start(A: Tensor, B: Tensor, gather: Callable[[Tensor], Tensor], w: Any, b: Any) -> _State:
    if A.ndim == 2:
        parts = A @ B.T, A.square().sum(1)[:, None], B.square().sum(1)[None]
    else:
        parts = (
            torch.einsum("ncij,mcij->nmij", A, B),
            A.square().sum(1)[:, None],
            B.square().sum(1)[None],
        )
    K, qa, qb = (w**2 * gather(part / A.shape[1]) + b**2 for part in parts)
    return _State(K, K, qa, qb)


def _layer(now: _State, name: str, gather: Callable[[Tensor], Tensor], w: Any, b: Any, same: bool) -> _State:
    """Return the kernels after an activation and the next linear layer."""
    K, slope = dual(name, now.K, now.qa, now.qb)
    qa, own = dual(name, now.qa, now.qa, now.qa)
    qb = dual(name, now.qb, now.qb, now.qb)[0]
    if same:  # where the angle is zero, rounding would move it by the root of the precision
        slope = slope.clone() if slope.requires_grad else slope
        slope.diagonal(dim1=0, dim2=1).copy_(own[:, 0].movedim(0, -1))
    K, qa, qb = (w**2 * gather(part) + b**2 for part in (K, qa, qb))
    return _State(K, K + w**2 * gather(now.T * slope), qa, qb)


def _block(A: Tensor, B: Tensor, same: bool, net: dict[str, Any]) -> Kernels:
    name, w, b, size = net["activation"], net["weight_std"], net["bias_std"], net["kernel_size"]

    def gather(x: Tensor) -> Tensor:
        return x if size is None else _patches(x, size)

    now = _start(A, B, gather, w, b)
    for _ in range(net["n_layers"] - 1):
        after = _layer(now, name, gather, w, b, same)
        now = _State(*(x + y for x, y in zip(now, after))) if net["residual"] else after
    if size is not None:  # the readout sees all pixels
        gather = lambda x: x.mean((-2, -1))  # noqa: E731
    last = _layer(now, name, gather, w, b, same)
    return Kernels(last.K, last.T)


def infinite_kernels(
    A: Any,
    B: Any = None,
    *,
    n_layers: int = 1,
    activation: str = "relu",
    weight_std: Any = ROOT_TWO,
    bias_std: Any = 0.1,
    residual: bool = False,
    kernel_size: int | None = None,
    memory: int = MEMORY,
) -> Kernels:
    """Return the NNGP and the tangent kernel of an infinitely wide network, equations 1 and 2.

    Parameters
    ----------
    A, B : array or Tensor of shape (n, d), or of images (n, c, h, w)
        The inputs; B is A by default.
    n_layers : int, default=1
        Hidden layers.
    activation : str, default="relu"
        One of ``ACTIVATIONS``.
    weight_std, bias_std : float or Tensor
        Spread of the weights times the root of the fan-in, and of the biases. The NNGP kernel can be differentiated by them.
    residual : bool, default=False
        Whether each hidden layer after the first adds to its input.
    kernel_size : int, optional
        Side of the kernels, odd; the hidden layers are then convolutions over images.
    memory : int, default=2**28
        Bytes that one block of rows may take, beside the kernels themselves.

    Returns
    -------
    Kernels
        ``nngp`` and ``ntk``, of shape (n, m) and the type of A (float64 unless it is a float32 tensor).

    Notes
    -----
    O(n m (d + n_layers)) in closed form; the quadrature costs some 100 times as much per layer, a convolution as often
    as there are pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.theory.infinite import infinite_kernels
    >>> infinite_kernels(np.eye(2), weight_std=1.0, bias_std=0.0).ntk
    tensor([[0.5000, 0.0796],
            [0.0796, 0.5000]], dtype=torch.float64)
    """
    name = ALIASES.get(activation, activation)
    if name not in ACTIVATIONS:
        raise unknown("infinite_kernels", "activation", activation, ACTIVATIONS)
    if n_layers < 1:
        raise value("infinite_kernels", "n_layers must be at least 1", n_layers)
    net = {
        "n_layers": n_layers,
        "activation": name,
        "weight_std": weight_std,
        "bias_std": bias_std,
        "residual": residual,
        "kernel_size": kernel_size,
    }
    A, same = _as_input(A, kernel_size), B is None
    B = A if same else _as_input(B, kernel_size)
    if A.shape[1:] != B.shape[1:]:
        raise value(
            "infinite_kernels",
            "both inputs must have samples of one shape",
            f"{tuple(A.shape[1:])} and {tuple(B.shape[1:])}",
        )
    if torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) for x in (A, B, weight_std, bias_std)
    ):
        return _block(A, B, same, net)  # every block would be kept for the gradient
    if name in CLOSED and A.ndim == 2 and A.device.type == "cpu":
        return _looped(A, B, same, net)
    return _tiled(A, B, same, net, memory)


@torch.no_grad()
def _looped(A: Tensor, B: Tensor, same: bool, net: dict[str, Any]) -> Kernels:
    """Return the kernels by the compiled loop over pairs."""
    from corollary.theory.infinite_loops import pairs

    name, w, b = net["activation"], float(net["weight_std"]), float(net["bias_std"])
    K = (A @ B.T).mul_(w**2 / A.shape[1]).add_(b**2)
    T = torch.empty_like(K)
    qa = _variances(A, net)
    qb = qa if same else _variances(B, net)
    leak = LEAK if name == "leaky" else 0.0
    parts = (part.numpy() for part in (K, T, qa, qb))
    pairs(*parts, CLOSED.index(name), leak, w, b, bool(net["residual"]), same)
    return Kernels(K, T)


def _variances(A: Tensor, net: dict[str, Any]) -> Tensor:
    """Return the variances before every activation, (n_layers, n), in double precision."""
    w, b = float(net["weight_std"]), float(net["bias_std"])
    q = w**2 * A.double().square().mean(1) + b**2
    tiny, found = torch.finfo(torch.float64).tiny ** 0.5, [q]
    for _ in range(net["n_layers"] - 1):
        after = w**2 * dual(net["activation"], q, q, q)[0] + b**2
        q = q + after if net["residual"] else after
        found.append(q)
    return torch.stack(found).clamp_(min=tiny)


@torch.no_grad()
def _tiled(A: Tensor, B: Tensor, same: bool, net: dict[str, Any], memory: int) -> Kernels:
    """Return the kernels by blocks of rows that stay in the cache; of one set of samples, half of them and their mirror."""
    found = Kernels(*(A.new_empty(len(A), len(B)) for _ in range(2)))
    rows = max(1, min(memory, CACHE) // (8 * A.element_size() * math.prod(A.shape[2:]) * max(1, len(B))))
    for begin in range(0, len(A), rows):
        here, after = slice(begin, begin + rows), slice(begin + rows, None)
        if not same:
            parts = [(slice(None), _block(A[here], B, False, net))]
        else:  # the block on the diagonal is exact there
            parts = [(here, _block(A[here], A[here], True, net))]
            if len(A[after]):
                parts.append((after, _block(A[here], A[after], False, net)))
        for columns, block in parts:
            for kernel, part in zip(found, block):
                kernel[here, columns] = part
                if columns == after:
                    kernel[after, here] = part.T
    return found


def _as_input(X: Any, kernel_size: int | None) -> Tensor:
    X = X if isinstance(X, Tensor) else as_tensor(np.asarray(X, np.float64))
    X = X if X.dtype == torch.float32 else X.double()
    if kernel_size is not None:
        if X.ndim != 4:
            raise value(
                "infinite_kernels", "a convolutional net needs images (n, c, h, w)", f"shape {tuple(X.shape)}"
            )
        if kernel_size % 2 == 0 or kernel_size < 1:
            raise value("infinite_kernels", "kernel_size must be odd", kernel_size)
        return X
    if X.ndim < 2:
        raise value("infinite_kernels", "inputs must have shape (n, d)", f"shape {tuple(X.shape)}")
    return X.flatten(1)


# --- the same network at finite width -----------------------------------------------------------------------


class ScaledLinear(nn.Module):
    """A linear layer whose parameters are standard normal: weights count weight_std / sqrt(fan-in), biases bias_std."""

    def __init__(self, n_in: int, n_out: int, weight_std: float = 1.0, bias_std: float = 0.0) -> None:
        super().__init__()
        self.weight_scale, self.bias_scale = weight_std / math.sqrt(n_in), float(bias_std)
        self.weight = nn.Parameter(torch.randn(n_out, n_in))
        self.bias = nn.Parameter(torch.randn(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled linear function of x (..., n_in)."""
        return F.linear(x, self.weight_scale * self.weight, self.bias_scale * self.bias)


def wide_network(
    widths: list[int] | tuple[int, ...],
    activation: str = "relu",
    *,
    weight_std: float = ROOT_TWO,
    bias_std: float = 0.1,
) -> nn.Sequential:
    """Return a random network of finite width whose kernels tend to those of :func:`infinite_kernels`.

    Examples
    --------
    >>> wide_network([3, 512, 512, 1])(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """
    layers: list[nn.Module] = []
    for n_in, n_out in zip(widths, widths[1:]):
        layers += [ScaledLinear(n_in, n_out, weight_std, bias_std), _function(activation)]
    return nn.Sequential(*layers[:-1])
