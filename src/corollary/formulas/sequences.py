"""Gated and linear recurrent networks, and models from sequences to sequences."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from corollary.formulas._library_tools import seeded, tensor
from corollary.formulas._recurrence_tools import library_encoder, logistic, tanh_states
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import orthogonal


@formula(
    "rnn-gating",
    latex=r"z_{\mathrm{gated}} = \sigma(G\zeta) \odot z",
    where="001 §13.1.2; 003 Recurrent networks",
    right=lambda G, zeta, z: logistic(G @ zeta) * z,
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
        layer = WaveNetwork(4, width=5, skip_width=3, n_layers=1).double().layers[0]
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
    f, i, o = (logistic(W @ joined + b) for W, b in (gates["f"], gates["i"], gates["o"]))
    W, b = gates["C"]
    C = f * C + i * np.tanh(W @ joined + b)
    return o * np.tanh(C), C


def _lstm_bare_output(gates, h, C, x):
    _, C = _lstm(gates, h, C, x)
    W, b = gates["o"]
    return logistic(W @ np.concatenate([h, x]) + b) * C, C


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
    for x, theirs in zip(inputs, library_encoder("lstm", [(*weights, bias)])(tensor(inputs[None]))[0]):
        h, C = claim(gates, h, C, x)
        outcomes.append(equal(h, theirs, tol=1e-10))
    return all_of(*outcomes)


def _gru(W_u, W_r, W, b_u, b_r, z, x):
    update = logistic(W_u @ np.concatenate([z, x]) + b_u)
    reset = logistic(W_r @ np.concatenate([z, x]) + b_r)
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
    states = library_encoder("gru", [(stacked[:, d:], stacked[:, :d], bias)])(tensor(inputs[None]))[0]
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
        net = Seq2SeqNetwork(6, 6, width=4, embedding_dimension=3).double().eval()
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

    taught = tanh_states(U, V, np.vstack([start, truth[:-1]]), np.zeros(4))[1:] @ W.T
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
