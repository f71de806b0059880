"""What the empirical tangent kernel multiplies: for a block of samples, the factors of every parameter's gradient.

The equations are those of :mod:`corollary.theory.ntk`. A layer that equation 2 covers gives its inputs and the derivatives of
the outputs by its own; all other parameters give their Jacobians, as in equation 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn import functional as F

from corollary.errors import kind
from corollary.theory.infinite import ScaledLinear

__all__ = ["SAME", "Factors", "Tangent"]

SAME = 1e-3  # relative deviation of gradients that is more than rounding


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


class Tangent:
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
        # Detached, so that the kernel does not hold the graph of all samples by the weights of the layers.
        others = {name: p.detach() for name, p in self.module.named_parameters()}

        def of(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
            return functional_call(self.module, {**others, **parameters}, (one[None],)).reshape(-1)

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
