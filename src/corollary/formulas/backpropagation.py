"""Backpropagation and automatic differentiation: products of Jacobians, and the errors sent back."""

from __future__ import annotations

from functools import reduce

import numpy as np
import torch
from torch.autograd.functional import jacobian as autograd_jacobian

from corollary.formulas._library_tools import built, tensor
from corollary.formulas.record import Erratum, all_of, equal, formula
from corollary.formulas.tools import jacobian


def _sigmoid(a):
    return 1 / (1 + np.exp(-a))


def _tanh_network(rng, *sizes):
    """Weights of a random tanh network with these layer sizes, and a random input."""
    weights = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    return weights, rng.normal(size=sizes[0])


def _forward(weights, x):
    """All activations z_0, ..., z_L of the tanh network."""
    states = [x]
    for W in weights:
        states.append(np.tanh(W @ states[-1]))
    return states


def _autograd_states(weights, x, target):
    """Gradients of half the squared error by torch: to every activation, and to every weight matrix."""
    matrices = [torch.tensor(W, requires_grad=True) for W in weights]
    states = [torch.tensor(x, requires_grad=True)]
    for W in matrices:
        states.append(torch.tanh(W @ states[-1]))
    loss = 0.5 * ((states[-1] - torch.tensor(target)) ** 2).sum()
    gradients = torch.autograd.grad(loss, states + matrices)
    return [g.numpy() for g in gradients[: len(states)]], [g.numpy() for g in gradients[len(states) :]]


def _library_gradients(weights, activation, x, target):
    """Gradients of half the squared error of a network without biases, by the library's own backward pass."""
    from corollary.networks.mlp import MLP, Backpropagation, squared_error

    widths = [weights[0].shape[1], *(len(W) for W in weights)]
    parts = {f"{2 * i}__weight": W for i, W in enumerate(weights)}
    parts |= {f"{2 * i}__bias": np.zeros(len(W)) for i, W in enumerate(weights)}
    net = built(lambda: MLP(widths, activation), **parts)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    Backpropagation(squared_error)(net, tensor(x[None]), tensor(target[None]), None)
    return [net[2 * i].weight.grad.numpy() for i in range(len(weights))]


@formula(
    "bp-composition",
    latex=r"\partial(F_L \circ \dots \circ F_1)(x) = \partial F_L(z_{L-1}) \cdots \partial F_1(x),"
    r"\qquad z_l = F_l(z_{l-1})",
    where="002, 003 Backpropagation; 004 §4",
    right=lambda jacobians: reduce(lambda product, J: J @ product, jacobians),
    wrong=lambda jacobians: reduce(lambda product, J: product @ J, jacobians),
    systems=("mlp",),
)
def composition(rng, claim):
    """The Jacobian of a composition is the product of the layers' Jacobians, last layer leftmost."""
    weights, x = _tanh_network(rng, 4, 4, 4, 4)
    states = _forward(weights, x)
    layers = [jacobian(lambda z, W=W: np.tanh(W @ z), z) for W, z in zip(weights, states)]

    def network(z):
        for W in weights:
            z = torch.tanh(torch.tensor(W) @ z)
        return z

    return equal(claim(layers), autograd_jacobian(network, torch.tensor(x)), tol=1e-8)


def _errors(jacobians, start):
    deltas = [start]
    for J in reversed(jacobians):
        deltas.append(J.T @ deltas[-1])
    return np.array(deltas[::-1])


def _errors_untransposed(jacobians, start):
    return _errors([J.T for J in jacobians], start)


@formula(
    "bp-error-recursion",
    latex=r"\delta_L = \nabla\ell(z_L), \qquad \delta_k = J_{k+1}^\top \delta_{k+1},"
    r"\qquad J_k = \partial F_k(z_{k-1})",
    where="002, 003 Backpropagation; 004 §4.1",
    right=_errors,
    wrong=_errors_untransposed,
    systems=("mlp",),
)
def error_recursion(rng, claim):
    """The loss gradient at each activation is the next one's, sent through the transposed Jacobian."""
    weights, x = _tanh_network(rng, 4, 4, 4, 4)
    target = rng.normal(size=4)
    states = _forward(weights, x)
    jacobians = [(1 - z**2)[:, None] * W for W, z in zip(weights, states[1:])]
    truth, _ = _autograd_states(weights, x, target)
    return equal(claim(jacobians, states[-1] - target), np.array(truth), tol=1e-12)


@formula(
    "bp-weight-gradient",
    latex=r"\frac{\partial\ell}{\partial [W_k]_{ij}} = [\delta_k]_i\,\phi'([W_k z_{k-1}]_i)\,[z_{k-1}]_j",
    where="002, 003 Backpropagation; 004 §4.1",
    right=lambda delta, slope, z: np.outer(delta * slope, z),
    wrong=lambda delta, slope, z: np.outer(delta, z),
    systems=("mlp", "mlp-regressor"),
    functions=("corollary.networks.mlp.Backpropagation",),
)
def weight_gradient(rng, claim):
    """A weight's gradient is the error of its unit, times the unit's slope, times the activation it reads."""
    weights, x = _tanh_network(rng, 3, 5, 4, 2)
    states = _forward(weights, x)
    target = rng.normal(size=2)
    deltas, truth = _autograd_states(weights, x, target)
    z = _forward(weights[:-1], x)  # the library's network, whose last layer is linear
    delta, slope, own = weights[-1] @ z[-1] - target, np.ones(2), []
    for W, a in zip(reversed(weights), reversed(z)):
        own.insert(0, claim(delta, slope, a))
        delta, slope = W.T @ (delta * slope), 1 - a**2
    library = _library_gradients(weights, "tanh", x, target)
    return all_of(
        *(equal(mine, theirs, tol=1e-12) for mine, theirs in zip(own, library)),
        *(
            equal(claim(delta, 1 - np.tanh(W @ z) ** 2, z), gradient, tol=1e-12)
            for W, z, delta, gradient in zip(weights, states, deltas[1:], truth)
        ),
    )


_SLOPES = {
    "linear": lambda a: np.ones_like(a),
    "relu": lambda a: (a > 0).astype(float),
    "sigmoid": lambda a: _sigmoid(a) * _sigmoid(-a),
}


@formula(
    "bp-layer-jacobians",
    latex=r"\partial(Wz) = W, \qquad \partial(Wz)_+ = \mathrm{diag}(1[Wz > 0])\,W,"
    r"\qquad \partial\sigma(Wz) = \mathrm{diag}(\sigma'(Wz))\,W",
    where="004 §4.1; 002 Backpropagation",
    right=lambda kind, W, z: np.diag(_SLOPES[kind](W @ z)) @ W,
    wrong=lambda kind, W, z: W @ np.diag(_SLOPES[kind](W @ z)),
    systems=("mlp", "activations"),
    functions=("corollary.nn.activation",),
)
def layer_jacobians(rng, claim):
    """A layer's Jacobian is its weight matrix with each row scaled by the slope of that row's unit."""
    from corollary.nn import activation

    W, z = rng.normal(size=(5, 5)), rng.normal(size=5)
    layers = {name: activation(name) for name in _SLOPES}
    return all_of(
        *(
            equal(
                claim(kind, W, z),
                autograd_jacobian(lambda v, unit=unit: unit(torch.tensor(W) @ v), torch.tensor(z)),
                tol=1e-12,
            )
            for kind, unit in layers.items()
        )
    )


def _relu_derivatives(W, x):
    active = (W @ x > 0).astype(float)
    return np.einsum("i,j,ik->kij", active, x, np.eye(len(W))), active[:, None] * W


def _relu_derivatives_always_on(W, x):
    return np.einsum("j,ik->kij", x, np.eye(len(W))), W


@formula(
    "bp-relu-derivatives",
    latex=r"\frac{\partial (Wx)_{+,k}}{\partial W_{ij}} = 1[w_i^\top x > 0]\,x_j\,\delta_{ik}, \qquad "
    r"\frac{\partial (Wx)_{+,i}}{\partial x_j} = 1[w_i^\top x > 0]\,W_{ij}",
    where="002 Derivatives, Rectified units",
    right=_relu_derivatives,
    wrong=_relu_derivatives_always_on,
    systems=("activations", "mlp"),
    functions=("corollary.nn.activation",),
)
def relu_derivatives(rng, claim):
    """A rectified unit passes gradients to its weights and inputs while it is active, and none otherwise."""
    from corollary.nn import activation

    W, x = rng.normal(size=(5, 4)), rng.normal(size=4)
    W[0] *= -np.sign(W[0] @ x)  # at least one unit is off
    W[1] *= np.sign(W[1] @ x)  # and one is on
    to_weights, to_input = autograd_jacobian(
        lambda A, v: activation("relu")(A @ v), (torch.tensor(W), torch.tensor(x))
    )
    by_weights, by_input = claim(W, x)
    return all_of(equal(by_weights, to_weights, tol=1e-12), equal(by_input, to_input, tol=1e-12))


def _mlp_gradients(W, beta, x, y):
    a = W @ x
    residual = beta @ _sigmoid(a) - y
    return residual * _sigmoid(a), np.outer(residual * beta * _sigmoid(a) * _sigmoid(-a), x)


def _mlp_gradients_linear(W, beta, x, y):
    residual = beta @ W @ x - y
    return residual * (W @ x), np.outer(residual * beta, x)


def _mlp_gradients_slope(W, beta, x, y):
    a = W @ x
    residual = beta @ _sigmoid(a) - y
    return residual * _sigmoid(a), np.outer(residual * beta * _sigmoid(a), x)


@formula(
    "bp-one-hidden-mlp",
    latex=r"\psi = \beta^\top\sigma(Wx):\quad "
    r"\frac{\partial\ell}{\partial\beta_j} = (\psi - y)\,\sigma(w_j^\top x),\quad "
    r"\frac{\partial\ell}{\partial w_{ji}} = (\psi - y)\,\beta_j"
    r"\,\sigma(w_j^\top x)\,\sigma(-w_j^\top x)\,x_i",
    where="004 §4",
    right=_mlp_gradients,
    wrong=_mlp_gradients_slope,
    errata=(
        Erratum(
            "E48",
            printed=r"hidden layer $H(x; W) = Wx$ (the network is then linear)",
            correction=r"$H(x; W) = \sigma(Wx)$",
            form=_mlp_gradients_linear,
            where="004 §4",
            kind="formula",
        ),
    ),
    systems=("mlp", "mlp-regressor"),
    functions=("corollary.networks.mlp.Backpropagation",),
)
def one_hidden_mlp(rng, claim):
    """Gradients of half the squared error of a network with one sigmoid layer and a linear output."""
    outcomes = []
    for _ in range(3):
        W, beta, x, y = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3), rng.normal()
        A, b = torch.tensor(W, requires_grad=True), torch.tensor(beta, requires_grad=True)
        loss = 0.5 * (b @ torch.sigmoid(A @ torch.tensor(x)) - y) ** 2
        to_beta, to_weights = torch.autograd.grad(loss, (b, A))
        by_beta, by_weights = claim(W, beta, x, y)
        outcomes += [equal(by_beta, to_beta, tol=1e-12), equal(by_weights, to_weights, tol=1e-12)]
        inner, outer = _library_gradients([W, beta[None]], "sigmoid", x, np.array([y]))
        outcomes += [equal(by_beta, outer[0], tol=1e-12), equal(by_weights, inner, tol=1e-12)]
    return all_of(*outcomes)


@formula(
    "bp-steepest-descent",
    latex=r"\lim_{\eta\to 0}\,\arg\min_{\lVert\vartheta\rVert = 1} f(\theta + \eta\vartheta)"
    r" = -\frac{\nabla f(\theta)}{\lVert\nabla f(\theta)\rVert}",
    where="002, 003 Backpropagation",
    right=lambda g, H: -g / np.linalg.norm(g),
    wrong=lambda g, H: -np.linalg.solve(H, g) / np.linalg.norm(np.linalg.solve(H, g)),
    systems=("gd",),
)
def steepest_descent(rng, claim):
    """For ever smaller steps the best direction of unit length is the normalised negative gradient."""
    angles = np.linspace(0, 2 * np.pi, 20_001)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    claimed, best = [], []
    for _ in range(4):
        A, b = np.diag([1.0, rng.uniform(4, 6)]), rng.normal(size=2)
        theta = rng.uniform(0.5, 1.0, size=2) * rng.choice([-1, 1], size=2)
        moved = theta[:, None] + 1e-5 * circle
        values = 0.5 * (moved * (A @ moved)).sum(0) + 0.1 * np.sin(b @ moved)
        gradient = A @ theta + 0.1 * np.cos(b @ theta) * b
        hessian = A - 0.1 * np.sin(b @ theta) * np.outer(b, b)
        claimed.append(claim(gradient, hessian))
        best.append(circle[:, values.argmin()])
    # grid 3e-4, curvature over gradient times step 1e-5; one degree is 1.7e-2
    return equal(claimed, best, tol=2e-3)


def _sweep(parents, partials, seeds, order):
    """Carry seeds along the graph, one multiplication per edge; return the values and the work done."""
    values, work = dict(seeds), 0
    for node in order:
        total = values.get(node, 0.0)
        work += 1
        for other in parents[node]:
            total += partials[node, other] * values.get(other, 0.0)
            work += 1
        values[node] = total
    return values, work


@formula(
    "bp-mode-cost",
    latex=r"f:\mathbb R^N \to \mathbb R^M:\qquad \mathrm{forward}: N\,(V + E),"
    r"\qquad \mathrm{reverse}: M\,(V + E)",
    where="002, 003 Backpropagation",
    right=lambda N, M, V, E: (N * (V + E), M * (V + E)),
    wrong=lambda N, M, V, E: (M * (V + E), N * (V + E)),
)
def mode_cost(rng, claim):
    """A Jacobian takes one forward sweep of the graph per input, or one reverse sweep per output.

    A sweep visits each of the V nodes and E edges once; both modes give the same matrix.
    """
    N, M, V = 6, 2, 30
    parents = {v: sorted(rng.choice(v, size=min(v, 2), replace=False)) if v >= N else [] for v in range(V)}
    children = {v: [c for c in range(V) if v in parents[c]] for v in range(V)}
    down = {(c, v): rng.normal() for c in range(V) for v in parents[c]}
    up = {(v, c): weight for (c, v), weight in down.items()}
    outputs = range(V - M, V)

    forward, forward_work = np.zeros((M, N)), 0
    for n in range(N):
        tangents, work = _sweep(parents, down, {n: 1.0}, range(V))
        forward[:, n], forward_work = [tangents[v] for v in outputs], forward_work + work
    reverse, reverse_work = np.zeros((M, N)), 0
    for m, v in enumerate(outputs):
        adjoints, work = _sweep(children, up, {v: 1.0}, reversed(range(V)))
        reverse[m], reverse_work = [adjoints[n] for n in range(N)], reverse_work + work

    counted = (forward_work, reverse_work)
    return all_of(equal(claim(N, M, V, len(down)), counted, tol=0.5), equal(forward, reverse, tol=1e-10))
