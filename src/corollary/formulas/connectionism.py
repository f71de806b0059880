"""Connectionism: threshold units, Turing's machines and the perceptron.

The checks enumerate truth tables and labellings where that is possible.
"""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np

from corollary.formulas._connectionism_tools import (
    binary_inputs,
    perceptron_run,
    random_signs,
    separable_data,
)
from corollary.formulas._library_tools import fitted
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula
from corollary.theory.counting import count_dichotomies, cover, hard_margin


def _threshold_unit(sigma, theta):
    """The library's unit, from the input sets that reach the threshold."""
    from corollary.connectionism import ThresholdUnit

    members = [member for member in binary_inputs(len(sigma)) if sigma[member == 1].sum() >= theta]
    return ThresholdUnit.from_dnf(np.reshape(members, (-1, len(sigma))).astype(int))


@formula(
    "mp-neuron",
    latex=r"f(x; \sigma, \theta) = \mathbf{1}\Bigl[\sum_i \sigma_i x_i \ge \theta\Bigr],"
    r"\quad x \in \{0,1\}^n,\ \sigma \in \{\pm 1\}^n,\ \theta \in \mathbb Z",
    where="002 Connectionism",
    right=lambda x, sigma, theta: _threshold_unit(sigma, theta).predict(x),
    wrong=lambda x, sigma, theta: x @ sigma > theta,
    systems=("threshold-unit",),
    functions=("corollary.connectionism.ThresholdUnit",),
)
def mp_neuron(rng, claim):
    """A McCulloch-Pitts unit fires when its excitations less its inhibitions reach the threshold.

    So AND needs the threshold n, OR the threshold 1, and NOT one inhibition with threshold 0.
    """
    n = int(rng.integers(2, 6))
    x, plus, k = binary_inputs(n), np.ones(n, int), int(rng.integers(1, n))
    veto = plus.copy()
    veto[-1] = -1  # the last input vetoes the AND of the others
    return all_of(
        equal(claim(x, plus, n), x.all(axis=1), tol=0),
        equal(claim(x, plus, 1), x.any(axis=1), tol=0),
        equal(claim(x, plus, k), [sorted(row)[-k] == 1 for row in x], tol=0),
        equal(claim(x, veto, n - 1), x[:, :-1].all(axis=1) & (x[:, -1] == 0), tol=0),
        equal(claim(binary_inputs(1), np.array([-1]), 0), [True, False], tol=0),
    )


def _dnf(x, sigma, theta):
    clauses = _threshold_unit(sigma, theta).to_dnf()
    return np.array([any((row == member).all() for member in clauses) for row in x])


def _dnf_without_negations(x, sigma, theta):
    clauses = [member for member in binary_inputs(len(sigma)) if sigma[member == 1].sum() >= theta]
    return np.array([any((row >= member).all() for member in clauses) for row in x])


@formula(
    "mp-dnf",
    latex=r"f = \bigvee_{I \in \mathcal I} \Bigl(\bigwedge_{i \in I} x_i \wedge \bigwedge_{i \notin I}"
    r"\bar x_i\Bigr), \qquad \mathcal I = \Bigl\{I : \sum_{i \in I} \sigma_i \ge \theta\Bigr\}",
    where="002 Connectionism",
    right=_dnf,
    wrong=_dnf_without_negations,
    systems=("threshold-unit",),
    functions=("corollary.connectionism.ThresholdUnit",),
)
def mp_dnf(rng, claim):
    """The unit is the OR, over the input sets that reach the threshold, of 'exactly this set is on'."""
    outcomes = []
    for n in (2, 3, 5):
        x = binary_inputs(n)
        sigma = rng.permutation(np.append(random_signs(rng, n - 2), [1, -1]))
        for theta in (1, int(rng.integers(-n, n + 1))):  # with threshold 1 the inhibition always matters
            net = (x * sigma).sum(axis=1)
            outcomes.append(equal(claim(x, sigma, theta), net >= theta, tol=0))
    return all_of(*outcomes)


def _shannon(unit, table, x):
    """A truth table as a tree of multiplexers, each of four NAND units."""
    if not x:
        return table[0]
    half = len(table) // 2
    low, high = _shannon(unit, table[:half], x[1:]), _shannon(unit, table[half:], x[1:])
    return unit(unit(x[0], high), unit(unit(x[0], x[0]), low))


def _machine(modes, inputs):
    """One unit of the library's machine, its two connections switched like this, after one step."""
    from corollary.connectionism.nand import simulate

    on, held = np.array([modes], dtype=bool), np.array([inputs], dtype=bool)
    return int(simulate(np.array([[0, 1]]), on, held, 1)[1, 0, 0])


@formula(
    "turing-type-a",
    latex=r"y(t+1) = 1 - x_1(t)\, x_2(t)",
    where="002 Connectionism",
    right=lambda x1, x2: _machine((1, 1), (x1, x2)),
    wrong=lambda x1, x2: x1 * x2,
    systems=("nand-machine",),
    functions=("corollary.connectionism.nand.simulate",),
)
def turing_type_a(rng, claim):
    """Every unit of an A-type machine is a NAND of two others, one time step late; that is universal.

    Four units settle to the exclusive or after three steps, and a tree of them gives any truth table.
    """
    xor = []
    for a, b in product((0, 1), repeat=2):
        state = {"a": a, "b": b, **dict.fromkeys("pqrs", int(rng.integers(2)))}
        wires = {"p": "ab", "q": "ap", "r": "bp", "s": "qr"}
        for _ in range(3):  # all units step together on the old state
            state |= {unit: claim(state[left], state[right]) for unit, (left, right) in wires.items()}
        xor.append(state["s"])
    table = rng.integers(0, 2, size=8)
    table[:2] = (0, 1)
    tree = [_shannon(claim, table, tuple(x)) for x in binary_inputs(3)]
    return all_of(equal(xor, [0, 1, 1, 0], tol=0), equal(tree, table, tol=0))


@formula(
    "turing-type-b",
    latex=r"A(1, \mathrm{NAND}(x, x)) = x,\quad A(0, \cdot) = 1,\quad "
    r"\mathrm{NAND}(1, x_2, \dots, x_n) = \mathrm{NAND}(x_2, \dots, x_n)",
    where="002 Connectionism",
    right=lambda mode, signal: 1 - mode * signal,
    wrong=lambda mode, signal: mode * (1 - signal),
    systems=("nand-machine",),
    functions=("corollary.connectionism.nand.simulate",),
)
def turing_type_b(rng, claim):
    """A switched connection hands on its (twice negated) signal or the constant 1.

    A 1 is neutral for NAND, so switching a connection off removes that input from the unit.
    """
    got, expected = [], []
    for n in (1, 2, 3):
        for modes, x in product(product((0, 1), repeat=n), product((0, 1), repeat=n)):
            signals = [claim(mode, 1 - value * value) for mode, value in zip(modes, x)]
            got.append(1 - np.prod(signals))
            expected.append(not all(value for mode, value in zip(modes, x) if mode))
            if n == 2:
                got.append(got[-1])
                expected.append(_machine(modes, x))
    return equal(got, expected, tol=0)


def _perceptron(X, y, epochs=100):
    """The library's perceptron without bias, on the samples in their order."""
    from corollary.connectionism import Perceptron

    options = {"fit_intercept": False, "shuffle": False, "tol": None, "max_iter": epochs}
    return fitted(Perceptron(**options), X, y)


@formula(
    "perceptron-update",
    latex=r"y\, x \cdot \theta \le 0 \;\Rightarrow\; \theta \leftarrow \theta + y x, \qquad "
    r"y\, x \cdot \theta > 0 \;\Rightarrow\; \theta \text{ stays}",
    where="002, 003 Perceptron",
    right=lambda theta, x, y: theta + y * x if y * (x @ theta) <= 0 else theta,
    wrong=lambda theta, x, y: theta - y * x if y * (x @ theta) <= 0 else theta,
    errata=(
        Erratum(
            "E23",
            printed=r"no change when $y\,x\cdot\theta \ge 0$, starting at $\theta^0 = 0$",
            correction=r"change when $y\,x\cdot\theta \le 0$; otherwise zero is never left",
            form=lambda theta, x, y: theta if y * (x @ theta) >= 0 else theta + y * x,
            where="002, 003 Perceptron",
            kind="formula",
        ),
    ),
    systems=("perceptron",),
    functions=("corollary.connectionism.Perceptron",),
)
def perceptron_update(rng, claim):
    """The perceptron changes its weights only on a mistake, ties included, by adding y x.

    On separable data it then stops with every point on its right side.
    """
    X, y = separable_data(rng, 36, 3, 0.2)
    theta = np.zeros(3)
    for _ in range(100):  # at most 25 mistakes by Novikov's bound, so at most 26 epochs
        before = theta
        for x, label in zip(X, y):
            theta = claim(theta, x, label)
        if np.array_equal(theta, before):
            break
    return all_of(
        equal(np.mean(np.sign(X @ theta) != y), 0, tol=1e-3),
        equal(theta, _perceptron(X, y).coef_[0], tol=1e-10),
    )


@formula(
    "perceptron-loss",
    latex=r"\ell(\theta; x, y) = \max\{0, -y\, x \cdot \theta\}, \qquad \Delta\theta = -\nabla_\theta \ell",
    where="002, 003 Perceptron",
    right=lambda theta, x, y: max(0.0, -y * (x @ theta)),
    wrong=lambda theta, x, y: max(0.0, 1 - y * (x @ theta)),
    systems=("perceptron",),
)
def perceptron_loss(rng, claim):
    """The perceptron's rule is stochastic gradient descent with step one on this loss.

    The slope is -y x on a mistake and zero on a point that is right.
    """
    X, y, theta = rng.normal(size=(40, 3)), random_signs(rng, 40), 0.5 * rng.normal(size=3)
    kink = np.abs(X @ theta) < 1e-3  # the subgradient is a set there
    X, y = X[~kink], y[~kink]
    steps = np.eye(3) * 1e-6
    slope = [[(claim(theta + d, x, t) - claim(theta - d, x, t)) / 2e-6 for d in steps] for x, t in zip(X, y)]
    update = np.where((y * (X @ theta) < 0)[:, None], y[:, None] * X, 0.0)
    return equal(-np.array(slope), update, tol=1e-6)


@formula(
    "perceptron-zigzag",
    latex=r"\Delta\theta \cdot \theta = y\, x \cdot \theta < 0 \quad\text{on a strict mistake}",
    where="002, 003 Perceptron",
    right=lambda theta, x, y: y * (x @ theta),
    wrong=lambda theta, x, y: y * (x @ theta) + x @ x,
    systems=("perceptron",),
)
def perceptron_zigzag(rng, claim):
    """Each change makes an obtuse angle with the weights it changes, so the path zigzags."""
    X, y = separable_data(rng, 60, 4, 0.05)
    theta, mistakes = perceptron_run(X, y)
    path = [before for before, _, _ in mistakes] + [theta]
    measured = [(after - before) @ before for before, after in zip(path, path[1:])]
    claimed = [claim(before, x, label) for before, x, label in mistakes]
    strict = [value for value, (before, _, _) in zip(measured, mistakes) if before.any()]
    return all_of(equal(claimed, measured, tol=1e-10), at_most(strict, 0))


@formula(
    "perceptron-norm-growth",
    latex=r"\lVert \theta^s \rVert^2 \le \sum_{t \le s} \lVert x^t \rVert^2, \qquad "
    r"\lVert x \rVert \le 1 \Rightarrow \lVert \theta^s \rVert \le \sqrt{s}",
    where="002, 003 Perceptron",
    right=lambda lengths: np.sqrt((lengths**2).sum()),
    wrong=lambda lengths: lengths.sum(),
    systems=("perceptron",),
)
def perceptron_norm_growth(rng, claim):
    """Squared lengths of the mistakes bound the squared length of the weights; orthogonal ones attain it."""
    X, y = separable_data(rng, 60, 4, 0.05)
    X = X * rng.uniform(0.5, 1, size=(len(X), 1))
    theta, mistakes = perceptron_run(X, y)
    lengths = np.array([np.linalg.norm(x) for _, x, _ in mistakes])
    path = [before for before, _, _ in mistakes[1:]] + [theta]
    bounds = [claim(lengths[: s + 1]) for s in range(len(path))]
    # Orthogonal inputs are all mistakes, each with x . theta = 0, and add up as in Pythagoras.
    scales = rng.uniform(0.2, 1, size=5)
    final, _ = perceptron_run(np.diag(scales), random_signs(rng, 5))
    return all_of(
        at_most(np.linalg.norm(path, axis=1), bounds),
        equal(claim(scales), np.linalg.norm(final), tol=1e-10),
        at_most(np.linalg.norm(path, axis=1), np.sqrt(1 + np.arange(len(path)))),
    )


@formula(
    "perceptron-margin",
    latex=r"\exists\, \lVert \theta^* \rVert = 1:\quad y\, x \cdot \theta^* \ge \gamma > 0"
    r"\quad \text{for all } (x, y)",
    where="002, 003 Perceptron",
    right=lambda theta, X, y: (y * (X @ theta)).min() / np.linalg.norm(theta),
    wrong=lambda theta, X, y: (y * (X @ theta)).min(),
    systems=("perceptron",),
    functions=("corollary.connectionism.Perceptron",),
)
def perceptron_margin(rng, claim):
    """The margin of a separator is the least signed distance of a point, for weights of length one."""
    n, gamma = 4, rng.uniform(0.1, 0.4)
    normal, *others = np.linalg.qr(rng.normal(size=(n, n)))[0].T
    # For either label mirror pairs at distance gamma: no other direction can do better than the normal.
    sides = np.concatenate([others, np.negative(others)])
    y = np.repeat([1, -1], len(sides))
    near, far = rng.uniform(0.3, 0.5), rng.uniform(0.6, 0.9)
    X = np.concatenate([gamma * normal + near * sides, -gamma * normal + far * sides])
    best = hard_margin(y[:, None] * X)
    rivals = [claim(theta / np.linalg.norm(theta), X, y) for theta in rng.normal(size=(200, n))]
    model = _perceptron(X, y)
    return all_of(
        equal(claim(best, X, y), gamma, tol=1e-8),
        at_most(rivals, gamma),
        equal(claim(model.coef_[0], X, y), model.margin_[0], tol=1e-10),
    )


@formula(
    "perceptron-novikov",
    latex=r"s \gamma \le \langle \theta^*, \theta^s \rangle \le \lVert\theta^s\rVert \le \sqrt{s}"
    r"\;\Longrightarrow\; s \le \gamma^{-2}",
    where="002, 003 Perceptron",
    right=lambda gamma: gamma**-2,
    wrong=lambda gamma: 1 / gamma,
    systems=("perceptron",),
    functions=("corollary.connectionism.Perceptron",),
)
def perceptron_novikov(rng, claim):
    """From zero weights and on unit-ball inputs, mistakes never outnumber one over the margin squared.

    On orthonormal inputs they are exactly that many.
    """
    counts, bounds = [], []
    for _ in range(6):
        X, y = separable_data(rng, 40, 3, rng.uniform(0.02, 0.3))
        gamma = 1 / np.linalg.norm(hard_margin(y[:, None] * X))  # every point has length one
        counts.append(len(perceptron_run(X, y)[1]))
        bounds.append(claim(gamma))
    X, y = separable_data(rng, 40, 3, 0.3)  # at most eleven mistakes, so twelve epochs
    # the library counts them too, and bounds them by the margin it found
    model = _perceptron(X, y, epochs=12)
    reported = [len(perceptron_run(X, y)[1]), claim(model.margin_[0])]
    n = int(rng.integers(3, 12))
    y = random_signs(rng, n)
    gamma = 1 / np.linalg.norm(hard_margin(np.diag(y).astype(float)))
    tight = len(perceptron_run(np.eye(n), y)[1])
    return all_of(
        at_most(counts, bounds, tol=1e-6),
        equal(claim(gamma), tight, tol=1e-6),
        equal(reported, [model.mistakes_[0], model.novikov_bound_[0]], tol=1e-6),
    )


@formula(
    "cover-count",
    latex=r"C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}",
    where="002 Perceptron",
    right=cover,
    wrong=lambda s, n: 2 * sum(comb(s - 1, i) for i in range(n + 1)),
    errata=(
        Erratum(
            "E22",
            printed=r"$2\sum_{i=1}^{n-1}\binom{s-1}{i}$",
            correction=r"the sum starts at $i = 0$",
            form=lambda s, n: 2 * sum(comb(s - 1, i) for i in range(1, n)),
            where="002 Perceptron",
            kind="formula",
        ),
    ),
    systems=("counting",),
    functions=("corollary.theory.counting.count_dichotomies", "corollary.theory.counting.cover"),
)
def cover_count(rng, claim):
    """So many labellings of s points in general position does a hyperplane through the origin realise."""
    sizes = [(3, 1), (3, 2), (5, 2), (4, 3), (6, 3)]
    counted = [count_dichotomies(rng.normal(size=size)) for size in sizes]
    return equal([claim(s, n) for s, n in sizes], counted, tol=0)


@formula(
    "cover-recurrence",
    latex=r"C(s+1, n) = C(s, n) + C(s, n-1)",
    where="002 Perceptron",
    right=lambda count, s, n: count(s, n) + count(s, n - 1),
    wrong=lambda count, s, n: count(s, n) + count(s - 1, n - 1),
    systems=("counting",),
    functions=("corollary.theory.counting.count_dichotomies",),
)
def cover_recurrence(rng, claim):
    """A new point splits just those labellings whose separator can be turned to pass through it.

    There are as many of these as labellings of the old points in one dimension less.
    """
    counts = {}

    def count(s, n):
        if (s, n) not in counts:
            counts[s, n] = count_dichotomies(rng.normal(size=(s, n)))
        return counts[s, n]

    pairs = [(3, 3), (4, 2), (4, 3), (5, 2), (5, 3)]
    return equal([claim(count, s, n) for s, n in pairs], [count(s + 1, n) for s, n in pairs], tol=0)


@formula(
    "cover-vc",
    latex=r"C(n, n) = 2^n, \quad C(n+1, n) < 2^{n+1} \;\Longrightarrow\;"
    r"\mathrm{VC}\{x \mapsto \mathrm{sgn}(x \cdot \theta)\} = n",
    where="002 Perceptron",
    right=lambda n: n,
    wrong=lambda n: n + 1,
    systems=("counting",),
    functions=("corollary.theory.counting.count_dichotomies",),
)
def cover_vc(rng, claim):
    """Hyperplanes through the origin shatter n points in general position of n-space, and never n + 1."""
    found = []
    for n in (1, 2, 3, 4):
        s = 1
        while count_dichotomies(rng.normal(size=(s + 1, n))) == 2 ** (s + 1):
            s += 1
        found.append(s)
    return equal([claim(n) for n in (1, 2, 3, 4)], found, tol=0)
