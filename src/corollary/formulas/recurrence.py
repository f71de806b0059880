"""Recurrent networks: unrolled states, gradients through time, and how they vanish."""

from __future__ import annotations

from functools import reduce

import numpy as np
import torch
from torch.autograd.functional import jacobian

from corollary.formulas._library_tools import tensor
from corollary.formulas._recurrence_tools import library_encoder, logistic, tanh_states
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gradient, orthogonal


class _Run:
    """A random tanh network with its gradients: the error is half the squared distance to random targets."""

    def __init__(self, rng, d, steps=5):
        self.U, self.V, self.W = rng.normal(size=(3, d, d)) / np.sqrt(d)
        self.x, target = rng.normal(size=(2, steps, d))
        self.z0 = rng.normal(size=d)
        self.z = tanh_states(self.U, self.V, self.x, self.z0)
        self.slopes = 1 - self.z[1:] ** 2
        self.output_errors = self.z[1:] @ self.W.T - target

        U, V, x = (torch.tensor(a, requires_grad=True) for a in (self.U, self.V, self.x))
        states = [torch.tensor(self.z0)]
        for t in range(steps):
            states.append(torch.tanh(U @ states[-1] + V @ x[t]))
        y = torch.stack(states[1:]) @ torch.tensor(self.W).T
        error = 0.5 * ((y - torch.tensor(target)) ** 2).sum()
        to_states = torch.autograd.grad(error, states[1:], retain_graph=True)
        self.to_states = torch.stack(to_states).numpy()
        self.to_U, self.to_V, self.to_x = (g.numpy() for g in torch.autograd.grad(error, (U, V, x)))


def _simple(U, V, W, x, z):
    return tanh_states(U, V, x, z)[1:] @ W.T


def _simple_printed(U, V, W, x, z):
    outputs = []
    for _ in x:
        before = z
        for _ in range(40):  # the state on both sides: iterate towards a solution
            z = np.tanh(U @ before + V @ z)
        outputs.append(W @ z)
    return np.array(outputs)


@formula(
    "rnn-simple",
    latex=r"z^t = \phi(U z^{t-1} + V x^t), \qquad y^t = \psi(W z^t)",
    where="001 §13.1; 002, 003 Recurrent networks",
    right=_simple,
    wrong=lambda U, V, W, x, z: _simple(U.T, V, W, x, z),
    errata=(
        Erratum(
            "T13",
            printed=r"$z_t = \phi(U z_{t-1} + V z_t)$",
            correction=r"$z_t = \phi(U z_{t-1} + V x_t)$",
            form=_simple_printed,
            where="001 §13.1",
            kind="typing",
        ),
    ),
    systems=("rnn",),
    functions=("corollary.sequences.network.SequenceEncoder",),
)
def simple(rng, claim):
    """A recurrent network applies one map to its state and each input: a deep net with shared weights."""
    U, V, W = (rng.normal(size=(4, 4)) / 2 for _ in range(3))
    x, z = rng.normal(size=(6, 4)), rng.normal(size=4)
    tensors = [torch.tensor(a) for a in (V, U)]
    reference, _ = torch.rnn_tanh(
        torch.tensor(x[None]), torch.tensor(z[None, None]), tensors, False, 1, 0.0, False, False, True
    )
    states = library_encoder("rnn", [(V, U, np.zeros(4))])(tensor(x[None]))[0]
    return all_of(
        equal(claim(U, V, W, x, z), reference[0] @ torch.tensor(W).T, tol=1e-10),
        equal(claim(U, V, W, x, np.zeros(4)), states @ tensor(W).T, tol=1e-10),
    )


@formula(
    "rnn-state-jacobian",
    latex=r"\frac{\partial z^{k+1}}{\partial z^k} = \mathrm{diag}(\dot\phi(U z^k + V x^{k+1}))\,U, \qquad "
    r"\frac{\partial z^T}{\partial z^0} = \dot\Phi^T U \cdots \dot\Phi^1 U",
    where="002, 003 Recurrent networks",
    right=lambda U, slopes: reduce(lambda J, s: np.diag(s) @ U @ J, slopes, np.eye(len(U))),
    wrong=lambda U, slopes: reduce(lambda J, s: U @ np.diag(s) @ J, slopes, np.eye(len(U))),
    systems=("rnn", "gradient-flow"),
    functions=("corollary.theory.gradient_flow", "corollary.theory.recurrence.state_jacobians"),
)
def state_jacobian(rng, claim):
    """The state's Jacobian over many steps is a product of slopes and recurrent weights, latest first."""
    from corollary.theory.recurrence import gradient_flow, state_jacobians

    run = _Run(rng, 4)
    U, V = torch.tensor(run.U), torch.tensor(run.V)

    def last(z):
        for x_t in torch.tensor(run.x):
            z = torch.tanh(U @ z + V @ x_t)
        return z

    cell = library_encoder("rnn", [(run.V, run.U, np.zeros(4))]).cell
    cell.batch_first = False
    x, slopes = tensor(run.x), 1 - tanh_states(run.U, run.V, run.x, np.zeros(4))[1:] ** 2
    steps = [J.numpy() for J in state_jacobians(cell, x)]
    return all_of(
        equal(claim(run.U, run.slopes), jacobian(last, torch.tensor(run.z0)), tol=1e-10),
        equal(claim(run.U, slopes), np.linalg.multi_dot(steps[::-1]), tol=1e-10),
        equal(np.linalg.norm(claim(run.U, slopes[1:]), 2), gradient_flow(cell, x).measured[-1], tol=1e-10),
    )


def _bptt_states(U, V, W, slopes, errors):
    at_state, later = [], np.zeros(len(U))
    for s, e in zip(slopes[::-1], errors[::-1]):
        later = W.T @ e + later
        at_state.append(later)
        later = U.T @ (s * later)
    at_state = np.array(at_state[::-1])
    return at_state, (slopes * at_state) @ V


def _bptt_states_printed(U, V, W, slopes, errors):
    return _bptt_states(U, V, W, slopes, errors)[0], _bptt_states(U, V, W.T, slopes, errors)[0]


@formula(
    "rnn-bptt-states",
    latex=r"\frac{\partial E}{\partial z^q} = \sum_{s \ge q}\frac{\partial E}{\partial y^s}"
    r"\frac{\partial y^s}{\partial z^s}\prod_{k=q}^{s-1}\frac{\partial z^{k+1}}{\partial z^k}, \qquad "
    r"\nabla_{x^t}E = V^\top\dot\Phi^t\,\nabla_{z^t}E",
    where="002, 003 Recurrent networks",
    right=_bptt_states,
    wrong=lambda U, V, W, slopes, errors: (errors @ W, (slopes * (errors @ W)) @ V),
    errata=(
        Erratum(
            "E71",
            printed=r"$\nabla_{x^t}\mathcal R = [\prod W^\top S]\,J_H\nabla_y\mathcal R$",
            correction=r"with $J_H^\top$ that is $\nabla_{h^t}$; $\nabla_{x^t} = U^\top S(h^t)\nabla_{h^t}$",
            form=_bptt_states_printed,
            where="002 RNN",
            kind="dimensions",
        ),
    ),
    systems=("rnn", "gradient-flow"),
)
def bptt_states(rng, claim):
    """A state's gradient gathers all later errors; the input's follows through its own weights."""
    run = _Run(rng, 4)
    at_state, at_input = claim(run.U, run.V, run.W, run.slopes, run.output_errors)
    return all_of(equal(at_state, run.to_states, tol=1e-10), equal(at_input, run.to_x, tol=1e-10))


def _bptt_weights(slopes, at_state, before, x):
    return (slopes * at_state).T @ before, (slopes * at_state).T @ x


def _bptt_weights_printed(slopes, at_state, before, x):
    return (slopes * before).T @ at_state, (slopes * x).T @ at_state


def _bptt_weights_late(slopes, at_state, before, x):
    return (slopes * at_state).T @ before, (slopes * at_state)[1:].T @ x[:-1]


@formula(
    "rnn-bptt-weights",
    latex=r"\frac{\partial E}{\partial U} = \sum_q(\dot\phi^q \odot \nabla_{z^q}E)(z^{q-1})^\top, \qquad "
    r"\frac{\partial E}{\partial V} = \sum_q(\dot\phi^q \odot \nabla_{z^q}E)(x^q)^\top",
    where="002, 003 Recurrent networks",
    right=_bptt_weights,
    wrong=_bptt_weights_late,  # the local derivative at the input before, as 003 has it too
    errata=(
        Erratum(
            "E72",
            printed=r"$\sum_q(\dot\phi \odot z^{q-1})\,\partial E/\partial z^q$",
            correction=r"the outer product $\sum_q(\dot\phi \odot \nabla_{z^q}E)(z^{q-1})^\top$",
            form=_bptt_weights_printed,
            where="003 RNN",
            kind="dimensions",
        ),
    ),
    systems=("rnn",),
)
def bptt_weights(rng, claim):
    """The recurrent and the input weights gather an outer product of error and input at every step."""
    run = _Run(rng, 4)
    by_U, by_V = claim(run.slopes, run.to_states, run.z[:-1], run.x)
    return all_of(equal(by_U, run.to_U, tol=1e-10), equal(by_V, run.to_V, tol=1e-10))


def _double_sum(errors, jacobians, direct):
    T = len(errors)
    return sum(
        errors[t] * sum(np.prod(jacobians[s + 1 : t + 1]) * direct[s] for s in range(t + 1)) for t in range(T)
    )


def _double_sum_printed(errors, jacobians, direct):
    T = len(errors)
    return sum(errors[t] * sum(np.prod(jacobians[s + 1 :]) * direct[s] for s in range(T)) for t in range(T))


@formula(
    "rnn-bptt-double-sum",
    latex=r"\frac{dL}{d\theta} = \sum_t\frac{\partial L_t}{\partial y_t}\frac{\partial y_t}{\partial h_t}"
    r"\sum_{s \le t}\Big[\prod_{k=s+1}^t\frac{\partial h_k}{\partial h_{k-1}}\Big]"
    r"\frac{\partial^+ h_s}{\partial\theta}",
    where="000 after §14; 001 §13.1; 002, 003 Recurrent networks",
    right=_double_sum,
    errata=(
        Erratum(
            "E70",
            printed=r"inner sum and product run to $T$",
            correction=r"inner sum over $s \le t$, product over $k = s + 1, \dots, t$",
            form=_double_sum_printed,
            where="000, recurrent networks",
            kind="dimensions",
        ),
    ),
    systems=("rnn",),
)
def bptt_double_sum(rng, claim):
    """The gradient of a shared parameter sums over every loss and over every earlier use of the parameter."""
    w, x, targets = rng.uniform(0.6, 1.4), rng.normal(size=6), rng.normal(size=6)

    def run(w):
        h = [0.5]
        for x_t in x:
            h.append(np.tanh(w * h[-1] + x_t))
        return np.array(h)

    h = run(w)
    slopes = 1 - h[1:] ** 2
    truth = gradient(lambda v: ((run(v[0])[1:] - targets) ** 2).sum() / 2, np.array([w]))[0]
    return equal(claim(h[1:] - targets, slopes * w, slopes * h[:-1]), truth, tol=1e-8)


def _growth(U, alpha, T):
    from corollary.theory import vanishing_bound

    return 0.0, vanishing_bound(U, T, alpha)[-1]


def _growth_printed(U, alpha, T):
    largest = (alpha * np.linalg.norm(U, 2)) ** T
    return (1.0 if largest > 1 else 0.0), largest


@formula(
    "rnn-vanishing-bound",
    latex=r"\dot\Phi \preceq \alpha I: \quad \Big\lVert\frac{\partial z^T}{\partial z^0}\Big\rVert_2"
    r" \le (\alpha\,\sigma_1(U))^T, \qquad \alpha = 1\ (\tanh, \text{ReLU}),\ \tfrac14\ (\text{sigmoid})",
    where="001 §13.1; 002, 003 Recurrent networks",
    right=_growth,
    wrong=lambda U, alpha, T: (0.0, (alpha * np.abs(np.linalg.eigvals(U)).max()) ** T),
    errata=(
        Erratum(
            "E73",
            printed=r"gradients explode if $\sigma_{\max}(U) > 1$",
            correction=r"they may: the condition is necessary, not sufficient",
            form=_growth_printed,
            where="001 §13.1",
            kind="claim",
            counterexample=r"$U = \begin{pmatrix} 0 & 5 \\ 0 & 0 \end{pmatrix}$: $\sigma_1 = 5$ and $U^2 = 0$",
        ),
    ),
    systems=("gradient-flow", "rnn"),
    functions=("corollary.theory.vanishing_bound",),
)
def vanishing_bound(rng, claim):
    """Gradients through time shrink if slopes and weights do; large weights alone do not make them grow.

    The claim is a lower and an upper bound for the norm of the Jacobian over T steps.
    """
    T, outcomes = 6, []
    units = {  # slope bound, activation, derivative
        "tanh": (1.0, np.tanh, lambda a: 1 - np.tanh(a) ** 2),
        "relu": (1.0, lambda a: np.maximum(a, 0), lambda a: (a > 0).astype(float)),
        "sigmoid": (0.25, logistic, lambda a: logistic(a) * logistic(-a)),
    }
    for alpha, unit, slope in units.values():
        for scale in (0.5, 2.0):
            U, z, J = scale * rng.normal(size=(4, 4)) / 2, rng.normal(size=4), np.eye(4)
            for x_t in rng.normal(size=(T, 4)):
                a = U @ z + x_t
                z, J = unit(a), slope(a)[:, None] * U @ J
            outcomes.append(at_most(np.linalg.norm(J, 2), claim(U, alpha, T)[1]))
    rotation = 1.3 * orthogonal(rng, 4)  # at rest tanh has slope 1: the bound is attained
    outcomes.append(
        equal(claim(rotation, 1.0, T)[1], np.linalg.norm(np.linalg.matrix_power(rotation, T), 2), tol=1e-10)
    )
    # A sigmoid held at its steepest point, slope 1/4, attains its bound too.
    steep = np.linalg.norm(np.linalg.matrix_power(rotation / 4, T), 2)
    outcomes.append(equal(claim(rotation, 0.25, T)[1] / steep, 1.0, tol=1e-10))
    nilpotent = np.array([[0.0, rng.uniform(2, 5)], [0.0, 0.0]])
    J = np.linalg.norm(np.linalg.matrix_power(nilpotent, T), 2)
    once = np.linalg.norm(nilpotent, 2)
    outcomes += [at_least(J, claim(nilpotent, 1.0, T)[0]), at_most(once, claim(nilpotent, 1.0, 1)[1])]
    return all_of(*outcomes)


def _both_ways(forward, backward, x):
    ahead = tanh_states(*forward, x, np.zeros(len(forward[0])))[1:]
    behind = tanh_states(*backward, x[::-1], np.zeros(len(backward[0])))[1:][::-1]
    return np.hstack([ahead, behind])


def _both_ways_forward_twice(forward, backward, x):
    return np.hstack([tanh_states(U, V, x, np.zeros(len(U)))[1:] for U, V in (forward, backward)])


def _stacked(first, second, x):
    lower = tanh_states(*first, x, np.zeros(len(first[0])))[1:]
    return tanh_states(*second, lower, np.zeros(len(second[0])))[1:]


@formula(
    "rnn-bidirectional-deep",
    latex=r"\tilde z^t = \phi(\tilde U\tilde z^{t+1} + \tilde V x^t),\quad "
    r"y^t = \psi(W z^t + \tilde W\tilde z^t); \qquad "
    r"z^{t,l} = \phi(U^l z^{t-1,l} + V^l z^{t,l-1}),\quad z^{t,0} = x^t",
    where="001 §13.1; 002, 003 Recurrent networks",
    right=lambda a, b, x: (_both_ways(a, b, x), _stacked(a, b, x)),
    wrong=lambda a, b, x: (_both_ways_forward_twice(a, b, x), _stacked(a, b, x)),
    systems=("birnn", "deep-rnn"),
    functions=("corollary.sequences.network.SequenceEncoder",),
)
def bidirectional_deep(rng, claim):
    """A second network reads the sequence backwards, or reads the states of the first."""
    a, b = (tuple(rng.normal(size=(2, 3, 3)) / 2) for _ in range(2))
    x = rng.normal(size=(6, 3))
    layers = [(V, U, np.zeros(3)) for U, V in (a, b)]
    both = library_encoder("rnn", layers, bidirectional=True)(tensor(x[None]))
    deep = library_encoder("rnn", layers, n_layers=2)(tensor(x[None]))
    both_ways, stacked = claim(a, b, x)
    return all_of(equal(both_ways, both[0], tol=1e-10), equal(stacked, deep[0], tol=1e-10))
