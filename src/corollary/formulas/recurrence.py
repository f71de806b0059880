"""Recurrent networks: unrolled states, gradients through time, gates, linear recurrences and decoding."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import torch
from torch.autograd.functional import jacobian

from corollary.formulas._library_tools import built, seeded, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gradient, orthogonal


def _sigmoid(a):
    return 1 / (1 + np.exp(-a))


def _states(U, V, x, z):
    """States z^0, ..., z^T of a tanh network."""
    states = [z]
    for x_t in x:
        states.append(np.tanh(U @ states[-1] + V @ x_t))
    return np.array(states)


class _Run:
    """A random tanh network with its gradients: the error is half the squared distance to random targets."""

    def __init__(self, rng, d, steps=5):
        self.U, self.V, self.W = rng.normal(size=(3, d, d)) / np.sqrt(d)
        self.x, target = rng.normal(size=(2, steps, d))
        self.z0 = rng.normal(size=d)
        self.z = _states(self.U, self.V, self.x, self.z0)
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


def _encoder(cell, layers, **options):
    """The library's encoder, from the weights on input and state, and the bias, of each of its layers."""
    from corollary.sequences.network import SequenceEncoder

    parts, width = {}, layers[0][1].shape[1]
    for i, (V, U, b) in enumerate(layers):
        place = "l0_reverse" if i and options.get("bidirectional") else f"l{i}"
        values = {"weight_ih": V, "weight_hh": U, "bias_ih": b, "bias_hh": np.zeros_like(b)}
        parts |= {f"cell__{name}_{place}": value for name, value in values.items()}
    return built(lambda: SequenceEncoder(layers[0][0].shape[1], width, cell, **options), **parts)


def _simple(U, V, W, x, z):
    return _states(U, V, x, z)[1:] @ W.T


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
    states = _encoder("rnn", [(V, U, np.zeros(4))])(tensor(x[None]))[0]
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

    cell = _encoder("rnn", [(run.V, run.U, np.zeros(4))]).cell
    cell.batch_first = False
    x, slopes = tensor(run.x), 1 - _states(run.U, run.V, run.x, np.zeros(4))[1:] ** 2
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
        "sigmoid": (0.25, _sigmoid, lambda a: _sigmoid(a) * _sigmoid(-a)),
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
    ahead = _states(*forward, x, np.zeros(len(forward[0])))[1:]
    behind = _states(*backward, x[::-1], np.zeros(len(backward[0])))[1:][::-1]
    return np.hstack([ahead, behind])


def _both_ways_forward_twice(forward, backward, x):
    return np.hstack([_states(U, V, x, np.zeros(len(U)))[1:] for U, V in (forward, backward)])


def _stacked(first, second, x):
    lower = _states(*first, x, np.zeros(len(first[0])))[1:]
    return _states(*second, lower, np.zeros(len(second[0])))[1:]


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
    both = _encoder("rnn", layers, bidirectional=True)(tensor(x[None]))
    deep = _encoder("rnn", layers, n_layers=2)(tensor(x[None]))
    both_ways, stacked = claim(a, b, x)
    return all_of(equal(both_ways, both[0], tol=1e-10), equal(stacked, deep[0], tol=1e-10))


@formula(
    "rnn-gating",
    latex=r"z_{\mathrm{gated}} = \sigma(G\zeta) \odot z",
    where="001 §13.1.2; 003 Recurrent networks",
    right=lambda G, zeta, z: _sigmoid(G @ zeta) * z,
    wrong=lambda G, zeta, z: np.tanh(G @ zeta) * z,
    systems=("lstm", "gru", "wavenet"),
    functions=("corollary.sequences.wavenet.WaveNetwork",),
)
def gating(rng, claim):
    """A gate multiplies each coordinate by a number between 0 and 1 that depends on the context."""
    from corollary.sequences.wavenet import WaveNetwork

    G, zeta, z = rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=5)
    reference = torch.nn.functional.glu(torch.tensor(np.concatenate([z, G @ zeta])), dim=0)
    share = claim(G, zeta, z) / z
    # one layer of WaveNet: what the filter says, gated by what the gate sees of the same two steps
    with seeded(int(rng.integers(2**31))):
        layer = WaveNetwork(4, channels=5, skip_channels=3, n_layers=1).double().layers[0]
    W, b = layer.gates.weight.detach().numpy(), layer.gates.bias.detach().numpy()
    seen = rng.normal(size=(5, 2))
    signal = np.einsum("ick,ck->i", W, seen) + b
    gates = np.append(W.reshape(10, 10)[5:], b[5:, None], axis=1)
    gated = claim(gates, np.append(seen.ravel(), 1), np.tanh(signal[:5]))
    sent = layer.out.weight.detach().numpy()[:, :, 0] @ gated + layer.out.bias.detach().numpy()
    with torch.no_grad():
        skip = layer(tensor(seen[None]))[1][0, :, 1]
    return all_of(
        equal(share * z, reference, tol=1e-12),
        at_least(share, 0.0),
        at_most(share, 1.0),
        equal(sent[:3], skip, tol=1e-12),
    )


def _lstm(gates, h, C, x):
    joined = np.concatenate([h, x])
    f, i, o = (_sigmoid(W @ joined + b) for W, b in (gates["f"], gates["i"], gates["o"]))
    W, b = gates["C"]
    C = f * C + i * np.tanh(W @ joined + b)
    return o * np.tanh(C), C


def _lstm_bare_output(gates, h, C, x):
    _, C = _lstm(gates, h, C, x)
    W, b = gates["o"]
    return _sigmoid(W @ np.concatenate([h, x]) + b) * C, C


@formula(
    "lstm",
    latex=r"f, i, o = \sigma(W_\cdot[h_{t-1}, x_t] + b_\cdot),\quad "
    r"C_t = f \odot C_{t-1} + i \odot \tanh(W_C[h_{t-1}, x_t] + b_C),\quad h_t = o \odot \tanh C_t",
    where="001 §13.1.2; 002, 003 Recurrent networks",
    right=_lstm,
    wrong=_lstm_bare_output,
    systems=("lstm",),
    functions=("corollary.sequences.network.SequenceEncoder",),
)
def lstm(rng, claim):
    """A memory cell forgets through one gate, takes in through another, and shows itself through a third."""
    d, n = 4, 3
    gates = {name: (rng.normal(size=(d, d + n)), rng.normal(size=d)) for name in "fioC"}
    h, C = rng.normal(size=d), 2 * rng.normal(size=d)
    state = (torch.tensor(h[None]), torch.tensor(C[None]))
    stacked = np.vstack([gates[name][0] for name in "ifCo"])
    weights = [torch.tensor(a) for a in (stacked[:, d:].copy(), stacked[:, :d].copy())]
    bias = torch.tensor(np.concatenate([gates[name][1] for name in "ifCo"]))
    outcomes = []
    for x in rng.normal(size=(3, n)):
        h, C = claim(gates, h, C, x)
        state = torch.lstm_cell(torch.tensor(x[None]), state, *weights, bias, torch.zeros_like(bias))
        outcomes += [equal(h, state[0][0], tol=1e-10), equal(C, state[1][0], tol=1e-10)]
    inputs, h, C = rng.normal(size=(4, n)), np.zeros(d), np.zeros(d)
    for x, theirs in zip(inputs, _encoder("lstm", [(*weights, bias)])(tensor(inputs[None]))[0]):
        h, C = claim(gates, h, C, x)
        outcomes.append(equal(h, theirs, tol=1e-10))
    return all_of(*outcomes)


def _gru(W_u, W_r, W, b_u, b_r, z, x):
    update = _sigmoid(W_u @ np.concatenate([z, x]) + b_u)
    reset = _sigmoid(W_r @ np.concatenate([z, x]) + b_r)
    candidate = np.tanh(W @ np.concatenate([reset * z, x]))
    return (1 - update) * z + update * candidate


def _gru_swapped(W_u, W_r, W, b_u, b_r, z, x):
    return _gru(-W_u, W_r, W, -b_u, b_r, z, x)


@formula(
    "gru",
    latex=r"\Gamma_u, \Gamma_r = \sigma(\cdot),\quad \tilde z^t = \tanh(W[\Gamma_r \odot z^{t-1}, x^t]),"
    r"\quad z^t = (1 - \Gamma_u) \odot z^{t-1} + \Gamma_u \odot \tilde z^t",
    where="001 §13.1.2; 002, 003 Recurrent networks",
    right=_gru,
    wrong=_gru_swapped,
    systems=("gru",),
    functions=("corollary.sequences.network.SequenceEncoder",),
)
def gru(rng, claim):
    """One gate mixes the old state with a candidate, another says how much of it the candidate sees."""
    d, n = 4, 3
    W_u, W_r, W = rng.normal(size=(3, d, d + n))
    b_u, b_r, z, x = *rng.normal(size=(2, d)), rng.normal(size=d), rng.normal(size=n)
    # torch resets after the product and names the update gate the other way round: with a diagonal
    # recurrent block the order does not matter, and negated weights give the complement
    W_d = np.hstack([np.diag(np.diag(W[:, :d])), W[:, d:]])
    stacked = np.vstack([W_r, -W_u, W_d])
    bias = torch.tensor(np.concatenate([b_r, -b_u, np.zeros(d)]))
    reference = torch.gru_cell(
        torch.tensor(x[None]),
        torch.tensor(z[None]),
        torch.tensor(stacked[:, d:].copy()),
        torch.tensor(stacked[:, :d].copy()),
        bias,
        torch.zeros_like(bias),
    )[0]
    # gates held open or shut by their biases: only the first two coordinates are seen, and all are replaced
    seen = 1e3 * np.array([1, 1, -1, -1])
    shut = np.tanh(W[:, :2] @ z[:2] + W[:, d:] @ x)
    inputs, state, path = rng.normal(size=(4, n)), np.zeros(d), []
    for x_t in inputs:
        state = claim(W_u, W_r, W_d, b_u, b_r, state, x_t)
        path.append(state)
    states = _encoder("gru", [(stacked[:, d:], stacked[:, :d], bias)])(tensor(inputs[None]))[0]
    return all_of(
        equal(claim(W_u, W_r, W_d, b_u, b_r, z, x), reference, tol=1e-10),
        equal(path, states, tol=1e-10),
        equal(claim(W_u, W_r, W, np.full(d, 1e3), seen, z, x), shut, tol=1e-10),
    )


def _lru(values, P, B, x, z):
    zeta, inputs, path = np.linalg.solve(P, z), np.linalg.solve(P, B), []
    for x_t in x:
        zeta = values * zeta + inputs @ x_t
        path.append((P @ zeta).real)
    return np.array(path), np.abs(values).max() <= 1


def _lru_printed(values, P, B, x, z):
    inputs, path = np.linalg.solve(P, B), []
    for x_t in x:
        z = values * np.linalg.solve(P, z) + inputs @ x_t
        path.append(z.real)
    return np.array(path), np.abs(values).max() <= 1


def _lru_by_norm(values, P, B, x, z):
    return _lru(values, P, B, x, z)[0], np.linalg.norm((P * values) @ np.linalg.inv(P), 2) <= 1


@formula(
    "lru",
    latex=r"z^{t+1} = Az^t + Bx^t,\quad A = P\Lambda P^{-1},\quad \zeta = P^{-1}z:\qquad "
    r"\zeta^{t+1} = \Lambda\zeta^t + P^{-1}Bx^t, \quad \text{stable iff } \max_i|\lambda_i| \le 1",
    where="001 §13.1.3; 003 Recurrent networks",
    right=_lru,
    wrong=_lru_by_norm,
    errata=(
        Erratum(
            "T13",
            printed=r"$z^{t+1} = \Lambda\xi^t + P^{-1}Bx^t$",
            correction=r"$\xi^{t+1} = \Lambda\xi^t + P^{-1}Bx^t$",
            form=_lru_printed,
            where="001 §13.1.3",
            kind="typing",
        ),
    ),
    systems=("lru",),
    functions=("corollary.nn.LRU", "corollary.nn.lru.scan_parallel"),
)
def lru(rng, claim):
    """In the eigenbasis a linear recurrence is one complex number per coordinate, and can run in parallel."""
    from corollary.nn.lru import LRU, scan_parallel

    Q = orthogonal(rng, 4)
    turn, skew = rng.uniform(0.3, 1.2), rng.uniform(1, 2)
    block = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    A = np.zeros((4, 4))
    A[:2, :2], A[2, 2], A[3, 3] = block, 0.5, -0.3
    A[:2, 2:] = skew * rng.uniform(0.5, 1, size=(2, 2))  # not normal: the norm says little about stability
    B, x, start = rng.normal(size=(4, 2)), rng.normal(size=(10, 2)), rng.normal(size=4)
    outcomes = []
    for radius in (0.95, 1.05):
        M = radius * Q @ A @ Q.T
        values, P = np.linalg.eig(M)
        path, stable = claim(values, P, B, x, start)
        direct, z = [], start
        for x_t in x:
            z = M @ z + B @ x_t
            direct.append(z)
        entering = x @ np.linalg.solve(P, B).T + 0j
        entering[0] += values * np.linalg.solve(P, start)
        states = scan_parallel(torch.tensor(entering[None]), torch.tensor(values + 0j))[0].numpy()
        scanned = (states @ P.T).real
        bounded = np.linalg.norm(np.linalg.matrix_power(M, 400)) < 1
        outcomes += [
            equal(path, direct, tol=1e-9),
            equal(path, scanned, tol=1e-9),
            equal(stable, bounded, tol=0.1),
        ]
    with seeded(int(rng.integers(2**31))), torch.no_grad():
        layer = LRU(4).double()
        u = rng.normal(size=(10, 4))
        theirs = (layer(tensor(u[None]))[0] - layer.D * tensor(u)).numpy()
        values = torch.complex(*layer.eigenvalues()).numpy()
        C, B = (torch.complex(*part.chunk(2, axis)).numpy() for part, axis in ((layer.C, 1), (layer.B, 0)))
    inputs = C @ (np.sqrt(1 - np.abs(values) ** 2)[:, None] * B)
    path, stable = claim(values, C, inputs, u, np.zeros(4))
    return all_of(*outcomes, equal(path, theirs, tol=1e-9), equal(stable, True, tol=0.1))


def _factorised(conditional, x, y):
    return np.prod([conditional(y[t], x[: t + 1], y[:t]) for t in range(len(y))])


def _factorised_without_feedback(conditional, x, y):
    return np.prod([conditional(y[t], x[: t + 1], (0,) * t) for t in range(len(y))])


@formula(
    "seq-factorisation",
    latex=r"p(y^{1:T} \mid x^{1:T}) \approx \prod_t p(y^t \mid x^{1:t}, y^{1:t-1})",
    where="002, 003 Recurrent networks",
    right=_factorised,
    wrong=_factorised_without_feedback,
    systems=("seq2seq",),
    functions=("corollary.sequences.seq2seq.Seq2SeqNetwork",),
)
def factorisation(rng, claim):
    """A causal sequence model multiplies the chances of each output given the past of both sequences."""
    from corollary.sequences import words
    from corollary.sequences.seq2seq import Seq2SeqNetwork

    x = tuple(int(v) for v in rng.permutation([0, 1, 2]))
    table = {}

    def conditional(y, past_x, past_y):
        one = table.setdefault((past_x, past_y), rng.uniform(0.1, 0.9))
        return one if y else 1 - one

    joint = np.array([claim(conditional, x, y) for y in product((0, 1), repeat=3)]).reshape(2, 2, 2)
    outcomes = [equal(joint.sum(), 1.0, tol=1e-12)]
    for past in [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]:  # the joint's conditionals are the factors
        chance = joint[(*past, 1)].sum() / joint[past].sum()
        outcomes.append(equal(chance, conditional(1, x[: len(past) + 1], past), tol=1e-12))
    # the library's network, which has read all of x: a whole answer at once, and symbol by symbol
    with seeded(int(rng.integers(2**31))), torch.no_grad():
        net = Seq2SeqNetwork(6, 6, hidden_size=4, embedding_size=3).double().eval()
        source, y = torch.tensor([[3, 5, 4]]), (4, 3, 5)

        def law(symbols):
            return net(source, None, torch.tensor([[words.BEGIN, *symbols]]))[0].softmax(-1)

        whole = law(y[:-1])[torch.arange(3), list(y)].prod()
        stepwise = claim(lambda symbol, _, past: float(law(past)[-1, symbol]), x, y)
    return all_of(*outcomes, equal(stepwise, whole, tol=1e-12))


def _decode(step, start, feed):
    """Outputs of a decoder that is fed ``feed(t, own)`` at time t, ``own`` its last output."""
    state, own, outputs = np.zeros_like(start), start, []
    for t in range(6):
        state, own = step(state, feed(t, own))
        outputs.append(own)
    return np.array(outputs)


def _forcing(method, step, start, truth, coins):
    before = [start, *truth[:-1]]
    teacher = _decode(step, start, lambda t, own: before[t])
    free = _decode(step, start, lambda t, own: own)
    mixed = _decode(step, start, lambda t, own: before[t] if coins[t] else own)
    return {
        "teacher forcing": [teacher],
        "free running": [free],
        "scheduled sampling": [mixed],
        "professor forcing": [teacher, free],  # an adversary compares the two
    }[method]


def _forcing_printed(method, step, start, truth, coins):
    if method == "professor forcing":
        return 2 * _forcing("scheduled sampling", step, start, truth, coins)
    return _forcing(method, step, start, truth, coins)


def _forcing_unshifted(method, step, start, truth, coins):
    return _forcing(method, step, start, np.vstack([truth[1:], truth[:1]]), coins)


@formula(
    "seq-teacher-forcing",
    latex=r"\text{training: } z^t = F(z^{t-1}, y^{t-1}_{\mathrm{true}}), \qquad "
    r"\text{prediction: } z^t = F(z^{t-1}, \hat y^{t-1}), \qquad \text{a random mix: scheduled sampling}",
    where="001 §13.1; 002, 003 Recurrent networks",
    right=_forcing,
    wrong=_forcing_unshifted,
    errata=(
        Erratum(
            "E74",
            printed=r"professor forcing feeds back true or predicted outputs at random",
            correction=r"that is scheduled sampling; professor forcing matches two pure runs adversarially",
            form=_forcing_printed,
            where="003 RNN",
            kind="claim",
            counterexample=r"professor forcing runs once on true and once on own outputs; neither run is mixed",
        ),
    ),
    systems=("seq2seq",),
)
def teacher_forcing(rng, claim):
    """A decoder learns from true feedback and predicts from its own; while it is right the two agree.

    The claim is the run, or runs, whose states each way of training looks at.
    """
    U, V, W = rng.normal(size=(3, 4, 4))
    start, truth, coins = rng.normal(size=4), rng.normal(size=(6, 4)), np.array([1, 0, 1, 0, 0, 1])

    def step(state, fed):
        state = np.tanh(U @ state + V @ fed)
        return state, W @ state

    taught = _states(U, V, np.vstack([start, truth[:-1]]), np.zeros(4))[1:] @ W.T
    own, state, free = start, np.zeros(4), []
    for _ in range(6):
        state = np.tanh(U @ state + V @ own)
        own = W @ state
        free.append(own)
    pure = np.array([taught, free])
    state, own, mixed = np.zeros(4), start, []
    for coin, true in zip(coins, [start, *truth[:-1]]):
        state = np.tanh(U @ state + V @ (coin * true + (1 - coin) * own))
        own = W @ state
        mixed.append(own)
    right = [claim(m, step, start, np.array(free), coins) for m in ("teacher forcing", "scheduled sampling")]
    return all_of(
        equal(claim("teacher forcing", step, start, truth, coins), pure[:1], tol=1e-10),
        equal(claim("free running", step, start, truth, coins), pure[1:], tol=1e-10),
        equal(claim("professor forcing", step, start, truth, coins), pure, tol=1e-10),
        equal(claim("scheduled sampling", step, start, truth, coins), [mixed], tol=1e-10),
        equal(right, [[free], [free]], tol=1e-10),
    )


def _encode_decode(encoder, decoder, x, steps, feedback=1.0):
    (U, V), (S, E, C) = encoder, decoder
    z = np.zeros(len(U))
    for x_t in x:
        z = U @ z + V * x_t
    outputs, y = [], 0.0
    for _ in range(steps):
        z = S @ z + feedback * E * y
        y = C @ z
        outputs.append(y)
    return np.array(outputs)


@formula(
    "seq-encoder-decoder",
    latex=r"h^t = F(h^{t-1}, x^t),\quad z^0 = h^T; \qquad z^t = G(z^{t-1}, y^{t-1}),\quad y^t = H(z^t)",
    where="001 §13.1; 002, 003 Recurrent networks",
    right=_encode_decode,
    wrong=lambda encoder, decoder, x, steps: _encode_decode(encoder, decoder, x, steps, feedback=0.0),
    systems=("seq2seq",),
)
def encoder_decoder(rng, claim):
    """The encoder's last state starts the decoder, which is fed its own outputs.

    With shift registers as weights the pair must return the running sums of any sequence it reads.
    """
    T = 6
    x, n = rng.normal(size=T), T + 2  # coordinates: last output, current input, then the inputs still to come
    U = np.zeros((n, n))
    U[2:, 2:] = np.eye(T, k=1)
    V, E = np.eye(n)[-1], np.eye(n)[0]
    S = U.copy()
    S[1, 2] = 1
    C = np.eye(n)[0] + np.eye(n)[1]
    shared = orthogonal(rng, n)  # any basis does
    encoder = shared @ U @ shared.T, shared @ V
    decoder = shared @ S @ shared.T, shared @ E, shared @ C
    return equal(claim(encoder, decoder, x, T), np.cumsum(x), tol=1e-10)
