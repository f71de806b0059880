r"""Lipschitz constants of networks: a bound that holds everywhere, the slope at an input, and radii that follow.

A function with :math:`\lVert f(x) - f(x') \rVert_2 \le L \lVert x - x' \rVert_2` has the Lipschitz constant :math:`L`.
Constants multiply along a chain of layers, add up over branches that are added, and over branches that are put side by side
their squares do; a linear layer has its largest singular value, an activation its largest slope:

.. math:: L \le \prod_\ell \sigma(W^\ell)\, \sup |\phi_\ell'|. \tag{1}

At one input the slope in the worst direction is :math:`\sigma(J_f(x)) \le L` (2), found by the power method.

If class :math:`y` leads by :math:`m_k = f_y(x) - f_k(x)`, and :math:`f_y - f_k` has the constant :math:`L_{yk}`, no change
shorter than

.. math:: r(x) = \min_{k \ne y} \frac{m_k}{L_{yk}} \tag{3}

makes :math:`k` overtake :math:`y`. A last linear layer with rows :math:`w_k` after layers of constant :math:`L'` has
:math:`L_{yk} = L' \lVert w_y - w_k \rVert_2`; in general :math:`L_{yk} \le \sqrt2 L`. Whatever an attack finds lies at
:math:`r(x)` or beyond.

References
----------
.. [1] C. Szegedy et al. (2014). Intriguing properties of neural networks. ICLR, section 4.3.
.. [2] Y. Tsuzuku, I. Sato, M. Sugiyama (2018). Lipschitz-margin training. NeurIPS.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from corollary import errors
from corollary.engine.operators import Jacobian, power_iteration, unit
from corollary.validation import as_tensor, to_numpy

__all__ = ["LipschitzBound", "certified_radius", "jacobian_norm", "operator_norm", "product_bound"]

DENSE = 256  # entries of an input up to which the matrix of a layer is written out
# where slopes of activations are looked for: their steepest places lie near zero
GRID = (
    -30.0,
    30.0,
    600_001,
)
AFFINE = 1e-9  # relative deviation from additivity, in double precision
ACTIVATIONS = (
    nn.CELU, nn.ELU, nn.GELU, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.ReLU,
    nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Tanh, nn.Tanhshrink,
)  # fmt: skip
SLOPED = {
    F.celu, F.elu, F.gelu, F.hardsigmoid, F.hardswish, F.hardtanh, F.leaky_relu, F.logsigmoid, F.mish, F.relu, F.relu6, F.selu,
    F.silu, F.sigmoid, F.softplus, F.softsign, F.tanh, F.tanhshrink, torch.relu, torch.sigmoid, torch.tanh, "relu", "sigmoid",
    "tanh",
}  # fmt: skip
RESHAPED = {
    torch.flatten, torch.permute, torch.reshape, torch.squeeze, torch.transpose, torch.unsqueeze, "contiguous", "flatten",
    "permute", "reshape", "squeeze", "transpose", "unsqueeze", "view",
}  # fmt: skip
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


class LipschitzBound(NamedTuple):
    """A bound on the Lipschitz constant, and what each part of the network contributes."""

    constant: float
    layers: dict[str, float]
    before_last: float | None = None  # the bound up to a last linear layer, where there is one
    last: Any = None  # its weights


# --- single layers ---------------------------------------------------------------------------------------


def operator_norm(layer: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """Return the largest singular value of an affine map on inputs of one shape, to rounding.

    Parameters
    ----------
    layer : torch.nn.Module or callable
        The map; a convolution is taken as the operator that it is on images of this size. A module is copied in double
        precision; any other callable is given float64.
    shape : tuple of int
        Shape of one sample.

    Notes
    -----
    Small maps are written out as matrices. For larger ones Lanczos' method finds the largest eigenvalue of the map's
    square, from products with the map and its adjoint.

    Examples
    --------
    >>> round(operator_norm(torch.nn.AvgPool2d(2), (1, 4, 4)), 6)
    0.5
    """
    if isinstance(layer, nn.Module):
        layer = copy.deepcopy(layer).double().cpu().eval()
    if isinstance(layer, nn.Linear):
        return float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    d = math.prod(shape)
    with torch.no_grad():
        zero = layer(torch.zeros(1, *shape, dtype=torch.float64))
    if d <= DENSE:
        with torch.no_grad():
            matrix = layer(torch.eye(d, dtype=torch.float64).view(d, *shape)) - zero
        return float(torch.linalg.matrix_norm(matrix.reshape(d, -1), 2))
    from scipy.sparse.linalg import LinearOperator, eigsh

    def square(v: np.ndarray) -> np.ndarray:
        """Return A^T A v."""
        x = torch.from_numpy(np.array(v, dtype=np.float64)).view(1, *shape).requires_grad_()
        with torch.enable_grad():
            out = layer(x)
            return torch.autograd.grad(out, x, (out - zero).detach())[0].numpy().ravel()

    start = np.random.default_rng(0).normal(size=d)
    largest = eigsh(LinearOperator((d, d), square, dtype=np.float64), 1, v0=start, return_eigenvectors=False)
    return float(np.sqrt(max(0.0, largest[0])))


def slope(activation: Callable[[Tensor], Tensor]) -> float:
    """Return the largest absolute derivative of an elementwise activation, over a fine grid.

    >>> slope(torch.sigmoid), round(slope(torch.nn.GELU()), 4)
    (0.25, 1.1289)
    """
    t = torch.linspace(*GRID[:2], GRID[2], dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        (found,) = torch.autograd.grad(activation(t).sum(), t)
    return float(found.abs().max())


def _overlap(pool: Any) -> float:
    """Return the constant of max-pooling: the root of the number of windows that one entry lies in."""
    axes = {nn.MaxPool1d: 1, nn.MaxPool2d: 2, nn.MaxPool3d: 3}[type(pool)]

    def each(value: Any) -> tuple[int, ...]:
        return (value,) * axes if isinstance(value, int) else tuple(value)

    sizes, strides, gaps = each(pool.kernel_size), each(pool.stride), each(pool.dilation)
    shared = [k if gap > 1 else -(-k // s) for k, s, gap in zip(sizes, strides, gaps)]
    return math.sqrt(math.prod(shared))


# --- networks --------------------------------------------------------------------------------------------


class _Tracer(fx.Tracer):
    """Trace a network down to torch's own layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is taken as a whole."""
        return _is_layer(m)


def _is_layer(m: nn.Module) -> bool:
    """Whether a module is a layer of torch, or of a class made from one, that holds no other modules."""
    made = {cls.__module__.startswith("torch.nn.modules.") for cls in type(m).__mro__ if cls is not nn.Module}
    return True in made and not any(True for _ in m.children())


class _Shapes(fx.Interpreter):
    """Run a traced network, and remember what every node gives."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Return the node's value."""
        self.values[n] = super().run_node(n)
        return self.values[n]


def product_bound(model: Any, X: Any) -> LipschitzBound:
    """Return a bound on the Lipschitz constant of a network, from its inputs to its outputs, in the l2 norm.

    Parameters
    ----------
    model : torch.nn.Module or fitted classifier of tables or images
        A network of affine layers (any that are), activations, max-pooling, sums and concatenations of branches.
        It is looked at in evaluation mode.
    X : array or tensor of shape (n, ...)
        Inputs; one says which shapes the layers see.

    Returns
    -------
    LipschitzBound
        ``constant``, and the constants of the ``layers``.

    Notes
    -----
    Exact for one layer, and loose for many: the worst directions of the layers need not meet. See :func:`jacobian_norm` for
    the slope at an input. Normalisation over features and attention have no useful constant, and are refused.

    Examples
    --------
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Sigmoid())
    >>> _ = net[0].weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    >>> round(product_bound(net, torch.zeros(1, 2)).constant, 6)
    0.75
    """
    network, x = _network(model, X, "product_bound")
    network = copy.deepcopy(network).double().cpu().eval()
    network = nn.Sequential(network) if _is_layer(network) else network
    try:
        graph = fx.GraphModule(network, _Tracer().trace(network))
    except Exception as error:  # whatever a forward of someone's own does when it is traced
        do = "Write forward without branches on values."
        raise errors.value(
            "product_bound", "the network must be one that torch.fx can trace", error, do
        ) from error
    shapes = _Shapes(graph)
    with torch.no_grad():
        shapes.run(x[:1].double().cpu())
    return _propagated(graph, shapes.values)


def _propagated(graph: fx.GraphModule, values: dict[fx.Node, Any]) -> LipschitzBound:
    """Return eq. 1 along the graph: the constant of every node as a function of the input."""
    constants: dict[fx.Node, float] = {}
    layers: dict[str, float] = {}
    *nodes, output = graph.graph.nodes
    for node in nodes:
        used = [arg for arg in node.all_input_nodes if arg in constants]
        if node.op == "placeholder":
            constants[node] = 1.0
        elif used and isinstance(values[node], Tensor) and values[node].is_floating_point():
            each = [constants[arg] for arg in used]
            factor = _factor(graph, node, used, values)
            if callable(factor):
                constants[node] = factor(*each)
            else:
                constants[node] = factor * each[0]
                layers[str(node.target) if node.op == "call_module" else node.name] = factor
    (final, *_) = output.args[0] if isinstance(output.args[0], tuple) else (output.args[0],)
    said = values[final] if isinstance(final, fx.Node) else final
    if not isinstance(said, Tensor):
        must, do = "the module must return a tensor", "Wrap it in a module that returns one of them."
        raise errors.kind(
            "product_bound", must, "a dict" if isinstance(said, dict) else type(said).__name__, do
        )
    part = graph.get_submodule(final.target) if final.op == "call_module" else None
    if isinstance(part, nn.Linear):
        return LipschitzBound(constants[final], layers, constants[final.args[0]], part.weight.detach())
    return LipschitzBound(constants.get(final, 0.0), layers)


def _factor(graph: fx.GraphModule, node: fx.Node, used: list[fx.Node], values: dict[fx.Node, Any]) -> Any:
    """Return the constant of one node by its only input, or a function of the constants of several."""
    part = graph.get_submodule(node.target) if node.op == "call_module" else None  # type: ignore[arg-type]
    if len(used) > 1:
        if node.target in (
            operator.add,
            operator.sub,
            operator.iadd,
            torch.add,
            torch.sub,
            "add",
            "sub",
            "add_",
        ):
            return lambda *each: sum(each)
        if node.target in (torch.cat, torch.concat, torch.stack, torch.hstack, torch.vstack):
            return lambda *each: math.hypot(*each)
        raise _refused(node, part)
    if isinstance(part, ACTIVATIONS):
        return slope(part)
    if isinstance(part, POOLS):
        return _overlap(part)
    if isinstance(part, nn.Identity | nn.Flatten | nn.modules.dropout._DropoutNd):
        return 1.0
    if node.target in RESHAPED:
        return 1.0
    (source,) = used
    shape = tuple(values[source].shape[1:])
    if node.target in SLOPED:
        return slope(lambda t: _called(node, source, t, values))
    if isinstance(part, nn.Linear):
        return float(torch.linalg.matrix_norm(part.weight.detach(), 2))
    call = part if part is not None else lambda v: _called(node, source, v, values)
    if not _affine(call, shape):
        raise _refused(node, part)
    return operator_norm(call, shape)


def _called(node: fx.Node, source: fx.Node, v: Tensor, values: dict[fx.Node, Any]) -> Any:
    """Return what a node makes of another value in the place of its input."""
    found = {**values, source: v}
    args, kwargs = (fx.node.map_arg(each, lambda n: found[n]) for each in (node.args, node.kwargs))
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _affine(call: Any, shape: tuple[int, ...]) -> bool:
    rng = torch.Generator().manual_seed(0)
    a, b = (3 * torch.randn(1, *shape, generator=rng, dtype=torch.float64) for _ in range(2))
    try:
        with torch.no_grad():
            zero, one, two, both = (call(v) for v in (torch.zeros_like(a), a, b, a + b))
        gap, scale = (both + zero - one - two).norm(), (one - zero).norm() + (two - zero).norm()
    except (RuntimeError, TypeError, AttributeError):
        return False
    return bool(gap <= AFFINE * scale)


def _refused(node: fx.Node, part: Any) -> ValueError:
    what = type(part).__name__ if part is not None else getattr(node.target, "__name__", str(node.target))
    must = "every part must be affine, an activation, max-pooling, a sum or a concatenation"
    return errors.value(
        "product_bound", must, f"{what} ({node.name})", "Use jacobian_norm for slopes at inputs."
    )


# --- at inputs -------------------------------------------------------------------------------------------


def jacobian_norm(
    model: Any, X: Any, *, max_iter: int = 1000, tol: float = 1e-8, batch_size: int = 256
) -> np.ndarray:
    """Return the slope of a network in the worst direction at each input, eq. 2: the operator norm of its Jacobian.

    Parameters
    ----------
    model : torch.nn.Module or fitted classifier of tables or images
        A network that treats samples one by one; it is looked at in evaluation mode.
    X : array or tensor of shape (n, ...)
        Inputs.
    max_iter : int, default=1000
        Most power iterations.
    tol : float, default=1e-8
        Relative change of the norm at which they stop.
    batch_size : int, default=256
        Samples at a time.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> jacobian_norm(torch.nn.Linear(2, 2, bias=False).requires_grad_(False), torch.zeros(3, 2)).shape
    (3,)
    """
    network, X = _network(model, X, "jacobian_norm")
    training, found = [part for part in network.modules() if part.training], []
    network.eval()
    try:
        for x in X.split(batch_size):
            found.append(_slopes(network, x, max_iter, tol))
    finally:
        for part in training:
            part.training = True
    return np.concatenate(found)


def _slopes(network: nn.Module, x: Tensor, max_iter: int, tol: float) -> np.ndarray:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        z = network(x)
        J = Jacobian(z[0] if isinstance(z, tuple) else z, x)
        v = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype).to(x.device)
        v, old = unit(v), torch.full((len(x),), torch.inf, dtype=x.dtype, device=x.device)
        for _ in range(max_iter):
            _, v = power_iteration(J, v, 1)
            sigma = torch.linalg.vector_norm(J(v).flatten(1), dim=1)
            if bool(((sigma - old).abs() <= tol * sigma).all()):
                break
            old = sigma
    return sigma.detach().cpu().numpy()


def certified_radius(model: Any, X: Any, y: Any = None) -> np.ndarray:
    """Return for each input a radius, in the l2 norm, within which the model's class cannot change, eq. 3.

    Parameters
    ----------
    model : torch.nn.Module or fitted classifier of tables or images
        A network that :func:`product_bound` takes, with logits as outputs.
    X : array or tensor of shape (n, ...)
        Inputs.
    y : array of shape (n,), optional
        Labels (class numbers of a module); where the model is wrong the radius is 0. By default its own answers.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> net = torch.nn.Linear(2, 2, bias=False)
    >>> _ = net.weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> certified_radius(net, torch.tensor([[0.5, 3.0]])).round(6)
    array([0.5])
    """
    network, x = _network(model, X, "certified_radius")
    bound = product_bound(model, X)
    network = copy.deepcopy(network).double().cpu().eval()
    with torch.no_grad():
        z = torch.cat([network(rows.double().cpu()) for rows in x.split(256)])
    if z.ndim == 1 or z.shape[1] == 1:  # the logit of the second of two classes
        z = z.reshape(len(z))
        apart, z = torch.full((2, 2), bound.constant), torch.stack([torch.zeros_like(z), z], 1)
    elif bound.last is not None:
        apart = (bound.before_last or 0.0) * torch.cdist(bound.last, bound.last)
    else:
        apart = torch.full((z.shape[1], z.shape[1]), math.sqrt(2) * bound.constant)
    best = z.argmax(1)
    lead = z.gather(1, best[:, None]) - z
    radius = (lead / apart.double()[best].clamp_min(torch.finfo(torch.float64).tiny)).scatter(
        1, best[:, None], torch.inf
    )
    found = radius.amin(1).numpy()
    if y is None:
        return found
    classes = np.asarray(getattr(model, "classes_", np.arange(z.shape[1])))
    named, given = classes[best.numpy()], np.asarray(to_numpy(y))
    if given.shape != named.shape:
        raise errors.value(
            "certified_radius", f"y must have one label per sample ({len(named)})", f"shape {given.shape}"
        )
    if len(strange := np.setdiff1d(given, classes)):
        must = f"labels must be among the model's {len(classes)} classes, {classes[0]} to {classes[-1]}"
        raise errors.value("certified_radius", must, repr(strange.tolist()[0]))
    return np.where(named == given, found, 0.0)


def _network(model: Any, X: Any, owner: str) -> tuple[nn.Module, Tensor]:
    """Return the network of a model, and inputs in its type."""
    if isinstance(model, nn.Module):
        like = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), None)
        x = X if isinstance(X, Tensor) else as_tensor(np.asarray(X))
        network: Any = model
    elif hasattr(model, "_differentiable"):
        network, like = model._differentiable()
        x = as_tensor(model._query(X))
    else:
        network = None
    if not isinstance(network, nn.Module):
        raise errors.kind(owner, "model must be a torch.nn.Module, or a fitted network", type(model).__name__)
    x = x.detach().to(device=like.device, dtype=like.dtype) if like is not None else x.detach()
    if not len(x) or not torch.isfinite(x).all():
        raise errors.value(owner, "X must hold finite samples, at least one", f"shape {tuple(x.shape)}")
    return network, x
