r"""Convolution and its arithmetic: the operator in four forms, sizes, fields and counts.

For :math:`f` of length :math:`n` and a kernel :math:`h` of length :math:`k`, convolution and cross-correlation
are

.. math::
    (f * h)[u] = \sum_t f[t]\, h[u - t], \qquad
    (h \star f)[u] = \sum_t h[t]\, f[u + t] = (\tilde h * f)[u], \quad \tilde h[t] = h[-t]. \tag{1}

Convolution is a product with a banded Toeplitz matrix, and becomes a product of numbers under the Fourier
transform :math:`\mathcal F`, once both are padded with zeros to :math:`n + k - 1`:

.. math::
    f * h = T f, \quad T_{ut} = h[u - t] \quad (2), \qquad
    f * h = \mathcal F^{-1}(\mathcal F f \cdot \mathcal F h). \tag{3}

What deep learning calls convolution is the correlation of (1), with stride :math:`s`, padding :math:`p`,
dilation :math:`d` and sums over input channels; its matrix (4) has :math:`w[r, c, t]` in row :math:`(r, u)` and
column :math:`(c, su + dt - p)`. Its output has size

.. math:: o = \left\lfloor \frac{i + 2p - d(k - 1) - 1}{s} \right\rfloor + 1. \tag{5}

A pooling may round up instead, as long as its last window begins inside the input or the padding before it.

In a stack of layers :math:`l = 1, \dots, L`, one output unit sees

.. math:: r_l = r_{l-1} + d_l (k_l - 1) j_{l-1}, \qquad j_l = s_l j_{l-1}, \qquad r_0 = j_0 = 1 \tag{6}

input positions, :math:`j_L` apart for neighbouring units, the first unit beginning at
:math:`a_l = a_{l-1} - p_l j_{l-1}`. With :math:`K` kernels of :math:`k` weights on :math:`c` channels there are

.. math:: K (k c + 1), \qquad o K (k c + 1), \qquad o K (i c + 1) \tag{7}

parameters if the kernel is shared, if every output position has its own, and if everything is connected.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import kind, unknown, value

__all__ = [
    "Field",
    "Layer",
    "convolution_matrix",
    "convolve",
    "correlate",
    "fft_convolve",
    "footprint",
    "layers_of",
    "output_size",
    "parameter_count",
    "receptive_field",
    "toeplitz",
    "transposed_size",
]

MODES = ("full", "same", "valid")
Size = int | Sequence[int]


# --- the operator, equations 1 to 3 ----------------------------------------------------------------------


def convolve(f: Any, h: Any, mode: str = "full") -> Any:
    """Return the convolution ``f * h`` by its definition, the sum of eq. 1, over all axes of ``h``.

    Parameters
    ----------
    f : array or tensor of shape (..., *n)
        Signals or images; axes before the last ``h.ndim`` are a batch.
    h : array or tensor of shape k
        The kernel, of one or two axes.
    mode : {"full", "same", "valid"}, default="full"
        Every overlap (size n + k - 1), the middle n of them, or the complete overlaps only (n - k + 1).

    Returns
    -------
    array or tensor, as ``f`` came

    Examples
    --------
    >>> convolve([1.0, 2.0, 3.0], [1.0, -1.0])
    array([ 1.,  1.,  1., -3.])
    """
    x, kernel, back = _operands(f, h, mode, "convolve")
    return back(_trim(_slide(x, kernel.flip(tuple(range(kernel.ndim)))), x, kernel, mode))


def correlate(f: Any, h: Any, mode: str = "full") -> Any:
    """Return the cross-correlation that slides ``h`` over ``f``, eq. 1; the flipped kernel's convolution.

    >>> correlate([1.0, 2.0, 3.0], [1.0, -1.0], "valid")
    array([-1., -1.])
    """
    x, kernel, back = _operands(f, h, mode, "correlate")
    return back(_trim(_slide(x, kernel), x, kernel, mode))


def fft_convolve(f: Any, h: Any, mode: str = "full") -> Any:
    """Return ``f * h`` by the Fourier transform, eq. 3, in O(n log n) instead of O(n k).

    >>> fft_convolve([1.0, 2.0, 3.0], [1.0, -1.0]).round(6)
    array([ 1.,  1.,  1., -3.])
    """
    x, kernel, back = _operands(f, h, mode, "fft_convolve")
    axes = tuple(range(-kernel.ndim, 0))
    full = [n + k - 1 for n, k in zip(_spatial(x, kernel), kernel.shape)]
    spectrum = torch.fft.rfftn(x, full, axes) * torch.fft.rfftn(kernel, full, axes)
    return back(_trim(torch.fft.irfftn(spectrum, full, axes), x, kernel, mode))


def toeplitz(h: Any, n: int, mode: str = "full") -> Any:
    """Return the banded Toeplitz matrix of convolution with ``h`` on signals of length ``n``, eq. 2.

    >>> toeplitz([1.0, -1.0], 3)
    array([[ 1.,  0.,  0.],
           [-1.,  1.,  0.],
           [ 0., -1.,  1.],
           [ 0.,  0., -1.]])
    """
    kernel, back = _tensor(h)
    if kernel.ndim != 1:
        do = "Use convolution_matrix for two axes."
        raise value("toeplitz", "the kernel must have one axis", f"shape {tuple(kernel.shape)}", do)
    offset = torch.arange(n + len(kernel) - 1)[:, None] - torch.arange(n)  # u - t
    inside = (offset >= 0) & (offset < len(kernel))
    T = torch.where(inside, kernel[offset.clamp(0, len(kernel) - 1)], torch.zeros((), dtype=kernel.dtype))
    signals = torch.empty(n)
    return back(_trim(T.T, signals, kernel, _mode(mode, "toeplitz")).T)


def _tensor(a: Any) -> tuple[Tensor, Any]:
    if isinstance(a, Tensor):
        return a, lambda t: t
    array = np.asarray(a)
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    return torch.from_numpy(array.copy()), lambda t: t.numpy()


def _mode(mode: str, owner: str) -> str:
    if mode not in MODES:
        raise unknown(owner, "mode", mode, MODES)
    return mode


def _operands(f: Any, h: Any, mode: str, owner: str) -> tuple[Tensor, Tensor, Any]:
    _mode(mode, owner)
    x, back = _tensor(f)
    kernel = _tensor(h)[0].to(x)
    if kernel.ndim not in (1, 2) or x.ndim < kernel.ndim:
        got = f"shapes {tuple(x.shape)} and {tuple(kernel.shape)}"
        raise value(owner, "the kernel must have one or two axes, and the signal at least as many", got)
    if mode == "valid" and any(k > n for k, n in zip(kernel.shape, _spatial(x, kernel))):
        got = f"kernel {tuple(kernel.shape)} on {tuple(_spatial(x, kernel))}"
        raise value(owner, "mode='valid' needs a kernel no larger than the signal", got, "Use mode='full'.")
    return x, kernel, back


def _spatial(x: Tensor, kernel: Tensor) -> torch.Size:
    return x.shape[x.ndim - kernel.ndim :]


def _slide(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the full correlation: padded by k - 1 on every side."""
    call = F.conv1d if kernel.ndim == 1 else F.conv2d
    rows = x.reshape(-1, 1, *_spatial(x, kernel))
    out = call(rows, kernel[None, None], padding=tuple(k - 1 for k in kernel.shape))
    return out.reshape(*x.shape[: x.ndim - kernel.ndim], *out.shape[2:])


def _trim(full: Tensor, x: Tensor, kernel: Tensor, mode: str) -> Tensor:
    for axis, (n, k) in enumerate(zip(_spatial(x, kernel), kernel.shape), start=-kernel.ndim):
        if mode == "same":
            full = full.narrow(axis, (k - 1) // 2, n)
        elif mode == "valid":
            full = full.narrow(axis, k - 1, n - k + 1)
    return full


# --- the layer's matrix, equation 4 ----------------------------------------------------------------------


def convolution_matrix(
    weight: Tensor,
    size: Size,
    *,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return the matrix of a convolutional layer, eq. 4: ``matrix @ x.flatten() == layer(x).flatten()``.

    Its transpose is the matrix of the transposed convolution with the same weights.

    Parameters
    ----------
    weight : tensor of shape (c_out, c_in / groups, *k)
        The layer's kernels, of any number of axes.
    size : int or sequence of int
        Sizes of the input's axes.
    stride, padding, dilation : int or sequence of int
        As in torch's layers.
    groups : int, default=1
        Parts into which the channels are cut, each connected to its own only.

    Returns
    -------
    tensor of shape (c_out * prod(output size), c_in * prod(size))

    Examples
    --------
    >>> convolution_matrix(torch.tensor([[[1.0, -1.0]]]), 4, stride=2)
    tensor([[ 1., -1.,  0.,  0.],
            [ 0.,  0.,  1., -1.]])
    """
    weight = _ungrouped(weight, groups)
    c_out, c_in, *k = weight.shape
    n = _spread(size, len(k), "size")
    s, p, d = (_spread(v, len(k), "layer") for v in (stride, padding, dilation))
    o = [_out(*arguments) for arguments in zip(n, k, s, p, d)]
    matrix = weight.new_zeros(c_out, prod(o), c_in, prod(n))
    for u, t in product(product(*map(range, o)), product(*map(range, k))):
        place = [si * ui + di * ti - pi for si, ui, di, ti, pi in zip(s, u, d, t, p)]
        if all(0 <= a < b for a, b in zip(place, n)):
            matrix[:, np.ravel_multi_index(u, o), :, np.ravel_multi_index(place, n)] = weight[:, :, *t]
    return matrix.reshape(c_out * prod(o), c_in * prod(n))


def _ungrouped(weight: Tensor, groups: int) -> Tensor:
    """Return kernels over all channels, with zeros between the groups."""
    _divides(groups, {"output channels": len(weight)}, "convolution_matrix")
    rows, columns = len(weight) // groups, weight.shape[1]
    full = weight.new_zeros(len(weight), columns * groups, *weight.shape[2:])
    for g in range(groups):
        own = slice(g * rows, (g + 1) * rows)
        full[own, g * columns : (g + 1) * columns] = weight[own]
    return full


def _divides(groups: int, channels: dict[str, int], owner: str) -> None:
    for name, number in channels.items():
        if groups < 1 or number % groups:
            raise value(owner, f"groups must divide the {name} ({number})", groups)


# --- sizes, equation 5 -----------------------------------------------------------------------------------


def output_size(
    size: Size,
    kernel: Size,
    *,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> Any:
    """Return the size of a convolution's or pooling's output, eq. 5; integers or one per axis.

    ``padding`` may be "valid" (none), "half" (floor(d (k - 1) / 2), which keeps the size for odd kernels), "same"
    (one more behind than in front for even kernels, which keeps it for all) or "full" (d (k - 1)); ``ceil_mode`` is
    that of torch's poolings.

    >>> output_size(224, 7, stride=2, padding=3)
    112
    >>> output_size((28, 20), 3, padding="full")
    (30, 22)
    """
    axes = max(len(v) if isinstance(v, Sequence) and not isinstance(v, str) else 1 for v in (size, kernel))
    n, k, s, d = (_spread(v, axes, "output_size") for v in (size, kernel, stride, dilation))
    p = _padding(padding, k, d)
    if padding == "same":  # the odd one goes behind, as if the input were longer
        n = tuple(ni + di * (ki - 1) % 2 for ni, ki, di in zip(n, k, d))
    out = tuple(_out(*arguments, ceil_mode) for arguments in zip(n, k, s, p, d))
    return out[0] if isinstance(size, int) and isinstance(kernel, int) else out


def transposed_size(
    size: Size, kernel: Size, *, stride: Size = 1, padding: Size = 0, dilation: Size = 1, extra: Size = 0
) -> Any:
    """Return the size of a transposed convolution's output; ``extra`` is torch's ``output_padding``.

    It undoes eq. 5: of the sizes that a convolution maps to ``size``, the smallest for ``extra=0``.

    >>> transposed_size(14, 2, stride=2)
    28
    """
    axes = max(len(v) if isinstance(v, Sequence) else 1 for v in (size, kernel))
    each = (_spread(v, axes, "transposed_size") for v in (size, kernel, stride, padding, dilation, extra))
    out = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in zip(*each))
    return out[0] if isinstance(size, int) and isinstance(kernel, int) else out


def _out(i: int, k: int, s: int, p: int, d: int, ceil_mode: bool = False) -> int:
    if min(i, k, s, d) < 1 or p < 0:
        got = f"size {i}, kernel {k}, stride {s}, padding {p}, dilation {d}"
        raise value("output_size", "size, kernel, stride and dilation must be at least 1, padding 0", got)
    reach = d * (k - 1) + 1
    if i + 2 * p < reach:
        got = f"{i} + 2 * {p} and {reach}"
        do = f"Pad by {-(-(reach - i) // 2)}, or use a smaller kernel."
        raise value("output_size", "the padded input must be at least as large as the kernel", got, do)
    if not ceil_mode:
        return (i + 2 * p - reach) // s + 1
    o = -(-(i + 2 * p - reach) // s) + 1
    return o - 1 if (o - 1) * s >= i + p else o  # a window that begins in the padding behind does not count


def _padding(padding: Any, k: Sequence[int], d: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(padding, str):
        return _spread(padding, len(k), "output_size")
    share = {"valid": lambda r: 0, "half": lambda r: r // 2, "same": lambda r: r // 2, "full": lambda r: r}
    if padding not in share:
        raise unknown("output_size", "padding", padding, share)
    return tuple(share[padding](b * (a - 1)) for a, b in zip(k, d))


def _spread(v: Any, axes: int, owner: str) -> tuple[int, ...]:
    out = tuple(int(part) for part in v) if isinstance(v, Iterable) else (int(v),) * axes
    if len(out) != axes:
        raise value(owner, f"there must be one number, or one per axis ({axes})", out)
    return out


# --- stacks of layers, equation 6 ------------------------------------------------------------------------


class Layer(NamedTuple):
    """One convolution or pooling along one axis."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1


class Field(NamedTuple):
    """What one unit of the last layer sees of the input, along one axis."""

    size: int  # positions from the first to the last that it sees
    stride: int  # how far apart the fields of neighbouring units are
    start: int  # where the first unit's field begins; negative inside the padding

    def of(self, unit: int) -> range:
        """Return the input positions of a unit's field, those in the padding included."""
        begin = self.start + unit * self.stride
        return range(begin, begin + self.size)


def receptive_field(layers: Any, axis: int = 0) -> Field:
    """Return the receptive field of a stack of layers, eq. 6.

    Parameters
    ----------
    layers : sequence of Layer or of tuples, or nn.Module
        Kernel, stride, padding and dilation of each; of a module, its convolutions and poolings in order.
    axis : int, default=0
        Which axis of a module's images.

    Examples
    --------
    >>> receptive_field([(3, 1), (3, 1), (3, 1)]).size  # as one layer with a kernel of 7
    7
    """
    stack = layers_of(layers, axis) if isinstance(layers, nn.Module) else [Layer(*part) for part in layers]
    size, jump, start = 1, 1, 0
    for k, s, p, d in stack:
        start -= p * jump
        size += d * (k - 1) * jump
        jump *= s
    return Field(size, jump, start)


def layers_of(module: nn.Module, axis: int = 0) -> list[Layer]:
    """Return the convolutions and poolings of a chain of modules, in order; a branching net has no chain."""
    found = []
    for part in module.modules():
        name = type(part).__name__
        if "Adaptive" in name or "Transpose" in name:
            do = "Use footprint, which measures it."
            raise kind("receptive_field", "layers must have fixed kernels and shrink the image", name, do)
        if hasattr(part, "kernel_size") and hasattr(part, "stride"):
            k, s, p, d = (
                getattr(part, field, default)
                for field, default in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
            )
            pick = lambda v: v[axis] if isinstance(v, tuple) else v  # noqa: E731
            k, d = pick(k), pick(d)
            p = _padding(p, (k,), (d,))[0] if isinstance(p, str) else pick(p)
            found.append(Layer(k, pick(s), p, d))
    return found


def footprint(module: nn.Module, shape: Sequence[int]) -> tuple[range, ...]:
    """Return, per axis, the input positions that the middle output unit depends on, by differentiation.

    It takes any module, with branches and shortcuts; normalisation by batch statistics is switched off.

    Parameters
    ----------
    module : nn.Module
        Maps images (1, c, *n) to maps (1, c', *o).
    shape : sequence of int
        (c, *n).

    Examples
    --------
    >>> footprint(nn.Sequential(nn.Conv1d(1, 1, 3), nn.Conv1d(1, 1, 3)), (1, 9))
    (range(2, 7),)
    """
    net = _averaging(copy.deepcopy(nn.Sequential(module))).double().eval()
    x = torch.rand(1, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    with torch.no_grad():  # all weights positive, so that no two paths cancel and no rectifier shuts
        for p in net.parameters():
            p.copy_(p.abs() + 1e-3 if p.ndim > 1 else p.abs())
    out = net(x)
    middle = tuple(n // 2 for n in out.shape[2:])
    (gradient,) = torch.autograd.grad(out[0, :, *middle].sum(), x)
    seen = gradient[0].abs().sum(0) > 0
    spans = []
    for axis in range(seen.ndim):
        others = tuple(i for i in range(seen.ndim) if i != axis)
        hit = torch.nonzero(seen.any(others) if others else seen).flatten()
        spans.append(range(int(hit.min()), int(hit.max()) + 1))
    return tuple(spans)


def _averaging(module: nn.Module) -> nn.Module:
    """Put averages in place of maxima, whose derivative shows one position of each window only."""
    for name, part in module.named_children():
        if isinstance(part, nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d):
            average = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[int(type(part).__name__[-2]) - 1]
            setattr(module, name, average(part.kernel_size, part.stride, part.padding, part.ceil_mode))
        else:
            _averaging(part)
    return module


# --- counts, equation 7 ----------------------------------------------------------------------------------


def parameter_count(
    size: Size,
    kernel: Size,
    *,
    channels: int = 1,
    kernels: int = 1,
    groups: int = 1,
    sharing: str = "shared",
    bias: bool = True,
    **options: Any,
) -> int:
    """Return the number of parameters of a layer, eq. 7.

    Parameters
    ----------
    size, kernel : int or sequence of int
        Sizes of the input's and the kernel's axes.
    channels, kernels : int, default=1
        Input and output channels.
    groups : int, default=1
        Parts into which the channels are cut, each connected to its own only.
    sharing : {"shared", "local", "dense"}, default="shared"
        One kernel for all positions (convolution), one for each, or all inputs connected to all outputs.
    bias : bool, default=True
        Whether each kernel has a bias.
    **options
        Stride, padding and dilation, as :func:`output_size` takes them.

    Notes
    -----
    The notes print ``(n - q + 1 + 1)`` for one side of the output and leave out the biases of the dense and
    local layers; (7) counts what torch's layers have.

    Examples
    --------
    >>> parameter_count((32, 32), (5, 5), channels=3, kernels=6)
    456
    """
    _divides(groups, {"input channels": channels, "output channels": kernels}, "parameter_count")
    axes = len(size) if isinstance(size, Sequence) else 1
    out = prod(np.atleast_1d(output_size(size, kernel, **options)).tolist())
    taps = prod(_spread(kernel, axes, "parameter_count")) * channels // groups
    everything = prod(_spread(size, axes, "parameter_count")) * channels // groups
    counts = {
        "shared": kernels * (taps + bias),
        "local": out * kernels * (taps + bias),
        "dense": out * kernels * (everything + bias),
    }
    if sharing not in counts:
        raise unknown("parameter_count", "sharing", sharing, counts)
    return int(counts[sharing])
