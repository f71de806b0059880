r"""Graphs as matrices: incidence, Laplacians, Fourier analysis, and what deep graph networks lose.

With adjacency :math:`A` (symmetric), degrees :math:`D = \mathrm{diag}(A 1)` and the incidence matrix :math:`B`, one
row per edge with :math:`-1` at one end and :math:`+1` at the other,

.. math::
    L = B^\top W B = D - A, \qquad \mathcal L = D^{-1/2} L D^{-1/2}, \qquad
    x^\top L x = \tfrac12 \sum_{uv} a_{uv} (x_u - x_v)^2, \tag{1}

so :math:`L = \frac12 \nabla^2 (x^\top L x)`. Its eigenvectors :math:`L = U \Lambda U^\top` are a Fourier basis:
:math:`\hat x = U^\top x`, and a filter is :math:`h(L) x = U h(\Lambda) U^\top x` (2).

*Oversmoothing.* The powers of :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}` converge, on a connected graph,
to the projection onto :math:`v = \tilde D^{1/2} 1` (3): not to a constant, as is often said, but to multiples of
:math:`\sqrt{d_i + 1}`. *Oversquashing.* The influence :math:`\lVert \partial h_v^{(L)} / \partial x_u \rVert` (4) of a
distant node on another is at most :math:`(\hat A^L)_{vu}` times the layers' Lipschitz constants.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from corollary.data.graphs import Graph, check_graph
from corollary.errors import kind as kind_error
from corollary.errors import unknown, value

__all__ = [
    "Smoothing",
    "adjacency",
    "dirichlet_energy",
    "graph_filter",
    "graph_fourier",
    "incidence",
    "laplacian",
    "oversmoothing",
    "oversquashing",
]

KINDS = ("combinatorial", "normalised", "random-walk")


def _graph(graph: Any, owner: str) -> Graph:
    return check_graph(graph, owner, features=False)


def _signal(x: Any, n: int, owner: str) -> np.ndarray:
    """Return a signal as numbers with one row per node."""
    x = np.asarray(x)
    x = x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)
    if x.ndim not in (1, 2) or len(x) != n:
        raise value(owner, f"x must have one row per node ({n})", f"shape {x.shape}")
    return x


def adjacency(graph: Any) -> sparse.csr_array:
    """Return A (n, n), ``A[i, j]`` the weight of the edge from i to j; edges given several times are summed."""
    g = _graph(graph, "adjacency")
    weight = np.ones(g.num_edges) if g.edge_weight is None else g.edge_weight.astype(np.float64)
    return sparse.csr_array(
        sparse.coo_array((weight, (g.edge_index[0], g.edge_index[1])), shape=(g.num_nodes,) * 2)
    )


def incidence(graph: Any) -> tuple[sparse.csr_array, np.ndarray]:
    """Return B (E, n) with one row per undirected edge, -1 at its lower and +1 at its higher end, and the weights (E,).

    >>> import networkx as nx
    >>> incidence(nx.path_graph(3))[0].toarray()
    array([[-1.,  1.,  0.],
           [ 0., -1.,  1.]])
    """
    upper = sparse.coo_array(sparse.triu(_symmetric(graph, "incidence"), k=1))
    order = np.lexsort((upper.col, upper.row))
    low, high, m = upper.row[order], upper.col[order], upper.nnz
    rows = np.tile(np.arange(m), 2)
    data = np.repeat([-1.0, 1.0], m)
    B = sparse.csr_array(
        sparse.coo_array((data, (rows, np.concatenate([low, high]))), shape=(m, upper.shape[0]))
    )
    return B, upper.data[order]


def _symmetric(graph: Any, owner: str) -> sparse.csr_array:
    A = adjacency(graph)
    if abs(A - A.T).max() > 1e-6 * max(1.0, abs(A).max()):
        do = "List every edge in both directions, or use an undirected networkx graph."
        raise value(owner, "the graph must be undirected", "edges without their reverse", do)
    return A


def laplacian(graph: Any, kind: str = "combinatorial") -> sparse.csr_array:
    """Return the Laplacian of eq. 1.

    Parameters
    ----------
    graph : graph
        An undirected graph; self-loops do not count.
    kind : {"combinatorial", "normalised", "random-walk"}, default="combinatorial"
        D - A, or I - D^-1/2 A D^-1/2, or I - D^-1 A; the row of an isolated node is zero.

    Notes
    -----
    The course notes normalise by D + I in one place; with A (rather than A + I) that is not a Laplacian: its smallest
    eigenvalue is not zero.

    Examples
    --------
    >>> import networkx as nx
    >>> laplacian(nx.path_graph(3)).toarray()
    array([[ 1., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  1.]])
    """
    if kind not in KINDS:
        raise unknown("laplacian", "kind", kind, KINDS)
    A = _symmetric(graph, "laplacian")
    A = A - sparse.diags_array(A.diagonal())
    degree = np.asarray(A.sum(axis=1)).ravel()
    L = sparse.csr_array(sparse.diags_array(degree) - A)
    safe = np.where(degree > 0, degree, 1.0)
    if kind == "normalised":
        scale = sparse.diags_array(1 / np.sqrt(safe))
        return sparse.csr_array(scale @ L @ scale)
    return sparse.csr_array(sparse.diags_array(1 / safe) @ L) if kind == "random-walk" else L


def graph_fourier(graph: Any, kind: str = "normalised") -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies (n,), ascending, and the basis U (n, n) of eq. 2; ``U.T @ x`` is the transform of x."""
    if kind == "random-walk":
        raise value("graph_fourier", "the Laplacian must be symmetric", "'random-walk'", "Use 'normalised'.")
    values, vectors = np.linalg.eigh(laplacian(graph, kind).toarray())
    return np.maximum(values, 0.0), vectors


def graph_filter(graph: Any, x: Any, response: Any, kind: str = "normalised") -> np.ndarray:
    """Return h(L) x, eq. 2.

    Parameters
    ----------
    graph : graph
        An undirected graph of n nodes.
    x : array of shape (n,) or (n, d)
        A signal.
    response : callable
        h, which maps an array of frequencies to one of factors.
    kind : {"combinatorial", "normalised"}, default="normalised"
        Which Laplacian.
    """
    frequency, U = graph_fourier(graph, kind)
    spectrum = U.T @ _signal(x, len(U), "graph_filter")
    factor = np.asarray(response(frequency))
    return U @ (factor.reshape(-1, *[1] * (spectrum.ndim - 1)) * spectrum)


def dirichlet_energy(graph: Any, x: Any, kind: str = "combinatorial") -> float:
    """Return the sum over columns of x^T L x, eq. 1: how much a signal changes along edges.

    >>> import networkx as nx
    >>> dirichlet_energy(nx.path_graph(3), [0.0, 1.0, 3.0])
    5.0
    """
    L = laplacian(graph, kind)
    x = _signal(x, L.shape[0], "dirichlet_energy").astype(np.float64)
    return float((x * (L @ x)).sum())


class Smoothing(NamedTuple):
    """What is left after each layer; entry 0 is the input."""

    energy: np.ndarray  # Dirichlet energy per squared norm, with self-loops counted as the layers do
    distance: np.ndarray  # share of the squared norm outside multiples of sqrt(d + 1)
    rate: float  # what theory says the distance shrinks by per propagation (its square root by this factor)


def oversmoothing(graph: Any, x: Any, layers: int = 16, module: nn.Module | None = None) -> Smoothing:
    """Measure how fast repeated propagation makes nodes indistinguishable.

    Parameters
    ----------
    graph : graph
        An undirected graph of n nodes.
    x : array of shape (n, d)
        Node features.
    layers : int, default=16
        How often they are propagated with the matrix of eq. 3.
    module : torch.nn.Module, optional
        A stack with ``layers`` (such as a fitted estimator's ``module_``), whose outputs are measured instead; called
        with ``x, edge_index``, and ``edge_weight`` where edges have weights.

    Returns
    -------
    Smoothing
        Relative energy and distance per layer, and the second largest absolute eigenvalue of the matrix.

    Notes
    -----
    On a connected graph the distance falls at least as fast as the rate to the power 2 k. Cost O(n^3).

    Examples
    --------
    >>> import networkx as nx
    >>> found = oversmoothing(nx.complete_graph(4), np.eye(4), layers=3)
    >>> found.distance.round(6), round(found.rate, 6)
    (array([0.75, 0.  , 0.  , 0.  ]), 0.0)
    """
    A = _symmetric(graph, "oversmoothing").toarray()
    x = _signal(x, len(A), "oversmoothing")
    x = x[:, None] if x.ndim == 1 else x
    np.fill_diagonal(A, np.where(A.diagonal() == 0, 1.0, A.diagonal()))
    scale = 1 / np.sqrt(A.sum(1))
    P = scale[:, None] * A * scale
    v = 1 / scale / np.linalg.norm(1 / scale)
    states = _propagated(P, x, layers) if module is None else _layer_outputs(graph, x, module)
    energy, distance = [], []
    for h in states:
        norm = max(float((h**2).sum()), np.finfo(np.float64).tiny)
        energy.append(float((h * (h - P @ h)).sum()) / norm)
        distance.append(max(0.0, 1 - float(((v @ h) ** 2).sum()) / norm))
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(P - np.outer(v, v))))
    return Smoothing(np.array(energy), np.array(distance), float(eigenvalues[-1]))


def _propagated(P: np.ndarray, x: np.ndarray, layers: int) -> list[np.ndarray]:
    states = [x.astype(np.float64)]
    for _ in range(layers):
        states.append(P @ states[-1])
    return states


def _inputs(graph: Any, x: np.ndarray, module: nn.Module, owner: str) -> tuple[Tensor, ...]:
    """Return features, edges and, where there are any, weights, for a module."""
    g, like = _graph(graph, owner), next(module.parameters())
    weight = () if g.edge_weight is None else (torch.from_numpy(g.edge_weight).to(like),)
    return (torch.as_tensor(x).to(like), torch.from_numpy(g.edge_index).to(like.device), *weight)


def _layer_outputs(graph: Any, x: np.ndarray, module: nn.Module) -> list[np.ndarray]:
    stack = getattr(module, "network", module)
    if not isinstance(stack, nn.Module) or not hasattr(stack, "layers"):
        do = "Pass the module_ of a fitted graph estimator."
        raise kind_error("oversmoothing", "module must be a stack with layers", type(module).__name__, do)
    found = [x.astype(np.float64)]
    hooks = [
        layer.register_forward_hook(lambda _, __, out: found.append(out.detach().double().cpu().numpy()))
        for layer in stack.layers  # type: ignore[union-attr]
    ]
    training = stack.training
    try:
        with torch.no_grad():
            stack.eval()(*_inputs(graph, x, stack, "oversmoothing"))
    finally:
        stack.train(training)
        for hook in hooks:
            hook.remove()
    return found


def oversquashing(module: nn.Module, graph: Any, x: Any, target: int) -> np.ndarray:
    """Return how much each node's input matters for one node's output, eq. 4.

    Parameters
    ----------
    module : torch.nn.Module
        Called with ``x, edge_index``, and ``edge_weight`` where edges have weights.
    graph : graph
        A graph of n nodes.
    x : array of shape (n, d)
        Node features.
    target : int
        The node whose output is differentiated.

    Returns
    -------
    ndarray of shape (n,)
        Frobenius norms of the Jacobians; zero beyond the reach of the layers.
    """
    g = _graph(graph, "oversquashing")
    if not 0 <= target < g.num_nodes:
        raise value("oversquashing", f"target must be a node from 0 to {g.num_nodes - 1}", target)
    x = _signal(x, g.num_nodes, "oversquashing")
    features, *edges = _inputs(graph, x, module, "oversquashing")
    inputs = features.requires_grad_()
    training = module.training
    outputs = module.eval()(inputs, *edges)[target]
    module.train(training)
    total = torch.zeros(g.num_nodes, dtype=torch.float64)
    for output in outputs:
        (gradient,) = torch.autograd.grad(output, inputs, retain_graph=True)
        total += gradient.double().square().sum(1).cpu()
    return total.sqrt().numpy()
