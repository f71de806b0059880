r"""A forward pass, operation by operation, and the gradients that flow back through it.

A ``TorchFunctionMode`` sees every call of torch at the level of Python, functional ones too, with tensors that belong to
the graph; hooks on the copy only say in which module a call was made. For an activation :math:`h_\ell` of layer :math:`\ell`
the gradient of the loss is :math:`g_\ell = \partial \mathcal L / \partial h_\ell`; how its size changes with depth says
whether it vanishes or explodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from corollary.diagnose.samples import Samples, main_output
from corollary.diagnose.subject import Subject, quiet

__all__ = ["Call", "Trace", "trace"]

WEIGHTED = {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "embedding", "lstm", "gru",
            "rnn_tanh", "rnn_relu", "multi_head_attention_forward", "embedding_bag", "addmm", "bilinear"}  # fmt: skip
RECTIFIERS = {"relu", "relu_", "relu6", "leaky_relu", "threshold"}
SQUASHERS = {"sigmoid", "sigmoid_", "tanh", "tanh_", "hardtanh", "hardsigmoid", "softsign"}
OTHERS = {"gelu", "silu", "elu", "selu", "celu", "mish", "softplus", "softmax", "log_softmax"}
PRODUCTS = {"matmul", "__matmul__", "mm", "bmm", "spmm", "sparse_mm", "einsum", "rmatmul", "__rmatmul__"}
SCATTERS = {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_reduce",
            "index_reduce_"}  # fmt: skip
NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
RANDOM = {
    "dropout",
    "dropout2d",
    "dropout1d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "feature_dropout",
}
# by which every place sees all others
ATTENTION = {"scaled_dot_product_attention", "multi_head_attention_forward"}
KNOWN = WEIGHTED | RECTIFIERS | SQUASHERS | OTHERS | PRODUCTS | NORMS | RANDOM | SCATTERS


@dataclass
class Call:
    """One call of torch: its name, the module it was made in, what came out, and what went in."""

    name: str
    where: str
    out: Tensor
    entered: Any
    options: dict[str, Any] = field(default_factory=dict)
    gradient: Tensor | None = None
    convolved: bool = False  # whether units lie on axis 1

    @property
    def units(self) -> Tensor:
        """The output as (rows, units)."""
        h = self.out.detach().float()
        if h.ndim <= 1:
            return h.reshape(-1, 1)
        axis = 1 if h.ndim == 2 or h.ndim >= 4 or self.convolved else h.ndim - 1
        return h.movedim(axis, -1).reshape(-1, h.shape[axis])


class _Recorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.stack: list[str] = []
        self.convolved = self.attends = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        self.attends |= name in ATTENTION
        if name in ("clamp", "clamp_min", "clamp_min_", "maximum") and _rectifies(name, args, kwargs):
            name = "relu"
        if name in PRODUCTS and any(isinstance(a, nn.Parameter) for a in args):
            name = "linear"  # by hand
        if name in KNOWN:
            first = main_output(out)
            if isinstance(first, Tensor) and first.is_floating_point():
                if name in WEIGHTED:
                    self.convolved = name.startswith("conv")
                given = [a for a in args if isinstance(a, Tensor)]
                given = [a for a in given if not isinstance(a, nn.Parameter)] or given
                entered = given[0] if given else kwargs.get("input")
                if name in SCATTERS:  # what is summed, and not where it goes
                    entered = next(
                        (kwargs[k] for k in ("src", "source") if k in kwargs), given[-1] if given else None
                    )
                options = {}
                if name in RANDOM:
                    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
                    active = args[2] if len(args) > 2 else kwargs.get("training", True)
                    options = {"p": float(p), "active": bool(active)}
                where = self.stack[-1] if self.stack else ""
                self.calls.append(
                    Call(
                        name.rstrip("_") if name[:2] != "__" else "matmul",
                        where,
                        first,
                        entered,
                        options,
                        None,
                        self.convolved,
                    )
                )
        return out


def _rectifies(name: str, args: Any, kwargs: Any) -> bool:
    low = kwargs.get("min", args[1] if len(args) > 1 else None)
    high = kwargs.get("max", args[2] if len(args) > 2 else None)
    return isinstance(low, (int, float)) and low == 0 and high is None and name != "maximum"


@dataclass
class Trace:
    """The calls of one forward pass, the output, the loss and the gradients of parameters."""

    calls: list[Call]
    output: Any
    loss: float
    gradients: dict[str, Tensor | None]
    unregistered: list[Tensor]  # leaves of the graph that are no parameter of the module
    names: list[str]
    attends: bool = False  # whether places look at each other whatever lies between them

    @property
    def hidden(self) -> list[Call]:
        """The activations, without the last operation on the way out."""
        last = main_output(self.output)
        return [c for c in self.calls if c.out is not last]

    def layers(self) -> list[Call]:
        """The calls with weights, in order."""
        return [c for c in self.calls if c.name in WEIGHTED]

    def table(self) -> list[dict[str, Any]]:
        """Return a row per call: mean, deviation, share of zeros and the size of the gradient."""
        rows = []
        for c in self.calls:
            h = c.out.detach().float()
            rows.append({
                "layer": c.where, "operation": c.name, "shape": list(h.shape), "mean": float(h.mean()),
                "std": float(h.std(unbiased=False)), "zeros": float((h == 0).float().mean()),
                "gradient": float(c.gradient.float().square().mean().sqrt()) if c.gradient is not None else float("nan"),
            })  # fmt: skip
        return rows


def trace(subject: Subject, net: nn.Module, samples: Samples, training: bool = False) -> Trace:
    """Run the net on samples and take the gradients of the mean loss by everything on the way."""
    if isinstance(net, torch.jit.ScriptModule):
        raise NotImplementedError("a scripted module hides its layers; pass the module that it was made from")
    recorder = _Recorder()
    hooks = []
    names = {id(m): n for n, m in net.named_modules()}

    def enter(module: nn.Module, *_: Any) -> None:
        recorder.stack.append(names.get(id(module), ""))

    def leave(*_: Any) -> None:
        recorder.stack.pop()

    for module in net.modules():
        hooks.append(module.register_forward_pre_hook(enter))
        hooks.append(module.register_forward_hook(leave))
    before = {n: p.requires_grad for n, p in net.named_parameters()}
    net.train(training)
    try:
        with quiet(net), torch.enable_grad():
            with recorder:
                output = subject.call(net, samples)
            target = subject.target(samples)
            device, _ = subject.place(net)
            target = target.to(device) if isinstance(target, Tensor) else target
            loss = subject.criterion(output, target)
            names_, params = zip(*net.named_parameters()) if before else ((), ())
            wanted = [p for p in params if p.requires_grad]
            flows = [c for c in recorder.calls if c.out.requires_grad]
            found: list[Any] = [None] * (len(wanted) + len(flows))
            if loss.requires_grad and found:
                found = list(
                    torch.autograd.grad(
                        loss, [*wanted, *(c.out for c in flows)], allow_unused=True, retain_graph=True
                    )
                )
            gradients: dict[str, Tensor | None] = {}
            by_id = {id(p): g for p, g in zip(wanted, found)}
            for name, p in zip(names_, params):
                gradients[name] = by_id.get(id(p))
            for c, g in zip(flows, found[len(wanted) :]):
                c.gradient = g
            known = {id(p) for p in params}
            strangers = [leaf for leaf in _leaves(loss) if id(leaf) not in known]
    finally:
        for hook in hooks:
            hook.remove()
    return Trace(
        recorder.calls, output, float(loss.detach()), gradients, strangers, list(names_), recorder.attends
    )


def _leaves(loss: Tensor) -> list[Tensor]:
    """Return the leaves that a loss depends on."""
    seen, found, todo = set(), [], [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        todo.extend(parent for parent, _ in node.next_functions)
    return found


def sensitivity(
    subject: Subject, net: nn.Module, samples: Samples, seed: int = 0
) -> tuple[Tensor, Tensor] | None:
    """Return the input (or its embedding) and the derivative of the output, in a random direction, by it."""
    recorder = _Recorder()
    net.eval()
    device, dtype = subject.place(net)
    s = samples.to(device, dtype)
    with quiet(net), torch.enable_grad():
        x = s.x
        if isinstance(x, Tensor) and x.is_floating_point():
            x = x.detach().clone().requires_grad_(True)
            s = s.replaced(x)
        with recorder:
            out = main_output(s.call(net))
        if not isinstance(x, Tensor) or not x.is_floating_point():
            x = next((c.out for c in recorder.calls if c.name in ("embedding", "embedding_bag")), None)
        if x is None or out is None or not out.requires_grad or not x.requires_grad:
            return None
        rng = torch.Generator().manual_seed(seed)
        signs = (torch.randint(0, 2, out.shape, generator=rng) * 2 - 1).to(out)
        (g,) = torch.autograd.grad((out * signs).sum(), [x], allow_unused=True)
    return None if g is None else (x.detach(), g.detach())


def rms(t: Tensor | np.ndarray) -> float:
    """Return the root of the mean square."""
    if isinstance(t, np.ndarray):
        return float(np.sqrt(np.mean(np.square(t)))) if t.size else 0.0
    return float(t.detach().float().square().mean().sqrt()) if t.numel() else 0.0
