"""Connectionism: threshold units, Turing's machines, the perceptron, and associative memories.

The checks enumerate truth tables and labellings where that is possible and simulate the
memories where it is not.
"""

from __future__ import annotations

from itertools import product
from math import comb, log, log2

import numpy as np
from scipy.special import erf, gammaln

from corollary.formulas._connectionism_tools import (
    binary_inputs,
    perceptron_run,
    random_signs,
    separable_data,
    sparse_patterns,
    symmetric_coupling,
)
from corollary.formulas._counting_tools import count_dichotomies, hard_margin
from corollary.formulas._library_tools import fitted
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula, within


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
    model = _perceptron(
        X, y, epochs=12
    )  # the library counts them too, and bounds them by the margin it found
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


def _cover(s, n):
    return 2 * sum(comb(s - 1, i) for i in range(n))


@formula(
    "cover-count",
    latex=r"C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}",
    where="002 Perceptron",
    right=_cover,
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


def _hopfield(X, **options):
    """The library's network after storing the rows."""
    from corollary.connectionism import HopfieldNetwork

    return fitted(HopfieldNetwork(random_state=0, **options), X)


@formula(
    "hebb-rule",
    latex=r"\Delta\theta_{ij} \propto x_i x_j, \qquad \Theta = \sum_t x^t (x^t)^\top",
    where="000 §4; 002 Willshaw",
    right=lambda X: X.T @ X,
    wrong=lambda X: X @ X.T,
    systems=("willshaw", "hopfield"),
    functions=("corollary.connectionism.HopfieldNetwork",),
)
def hebb_rule(rng, claim):
    """A synapse grows with the product of the two activities it joins, added up over the patterns."""
    X = random_signs(rng, 6, 6).astype(float)
    X[0] = 1.0
    X[1] = [1, 1, 1, -1, -1, -1]
    synapses = np.zeros((6, 6))
    for pattern in X:
        for i, j in product(range(6), repeat=2):
            synapses[i, j] += pattern[i] * pattern[j]
    between = ~np.eye(6, dtype=bool)  # the library's network has no self-couplings, and the mean over units
    return all_of(
        equal(claim(X), synapses, tol=0),
        equal(claim(X)[between], 6 * _hopfield(X).weights_[between], tol=1e-12),
    )


def _willshaw(X, Y, admissible):
    return np.minimum(1, Y[admissible].T @ X[admissible]), admissible


@formula(
    "willshaw-store",
    latex=r"\Theta = \min\Bigl(1, \sum_t y^t (x^t)^\top\Bigr) \in \{0,1\}^{n \times n}, \qquad "
    r"\sum_i x_i^t = r",
    where="002 Willshaw",
    right=lambda X, Y, r: _willshaw(X, Y, X.sum(axis=1) == r),
    wrong=lambda X, Y, r: (Y[X.sum(axis=1) == r].T @ X[X.sum(axis=1) == r], X.sum(axis=1) == r),
    errata=(
        Erratum(
            "E24",
            printed=r"patterns with $\sum_i x_i \le r$, threshold $r$",
            correction=r"exactly $r$ ones: a sparser pattern cannot reach the threshold",
            form=lambda X, Y, r: _willshaw(X, Y, X.sum(axis=1) <= r),
            where="002 Willshaw",
            kind="claim",
            counterexample=r"a stored pattern with $r - 1$ ones never reaches the threshold $r$",
        ),
    ),
    systems=("willshaw",),
    functions=("corollary.connectionism.WillshawMemory",),
)
def willshaw_store(rng, claim):
    """Binary memory of pairs with a fixed number of ones: a synapse is on once any pair has used it.

    The claim says which of the patterns may be stored; each of these must come back whole.
    """
    from corollary.connectionism import WillshawMemory

    n, r = 40, 4
    X = np.concatenate([sparse_patterns(rng, 20, n, ones) for ones in (r - 1, r, r, r + 1)])
    Y = sparse_patterns(rng, len(X), n, r)
    theta, stored = claim(X, Y, r)
    synapses = np.zeros((n, n), bool)
    for x, y in zip(X[stored], Y[stored]):
        synapses[np.ix_(y == 1, x == 1)] = True
    recalled = X[stored] @ theta.T >= r
    own, kept = claim(X, X, r)  # a pattern with itself, as the library stores them
    memory = fitted(WillshawMemory(), X[kept])
    return all_of(
        equal(memory.recall(X[kept]), X[kept] @ own.T >= r, tol=0),
        equal(theta, synapses, tol=0),
        equal((Y[stored] > recalled).sum(), 0, tol=0),
    )


@formula(
    "willshaw-recall",
    latex=r"z = \Theta x, \quad y_j = \mathbf{1}[z_j \ge r]; \qquad x = x^t \Rightarrow y \ge y^t",
    where="002 Willshaw",
    right=lambda theta, x, r: theta @ x >= r,
    wrong=lambda theta, x, r: theta @ x > r,
    systems=("willshaw",),
    functions=("corollary.connectionism.WillshawMemory",),
)
def willshaw_recall(rng, claim):
    """A unit answers if all r active inputs reach it; the stored answer is there, perhaps with extra ones."""
    from corollary.connectionism import WillshawMemory

    n, r, s = 64, 5, 120
    X, Y = sparse_patterns(rng, s, n, r), sparse_patterns(rng, s, n, r)
    theta = np.zeros((n, n))
    for x, y in zip(X, Y):
        theta[np.ix_(y == 1, x == 1)] = 1
    answers = np.array([claim(theta, x, r) for x in X])
    reached = np.array([theta[:, x == 1].all(axis=1) for x in X])
    own = np.minimum(1, X.T @ X)
    return all_of(
        equal((Y > answers).sum(), 0, tol=0),
        equal(answers, reached, tol=0),
        equal([claim(own, x, r) for x in X], fitted(WillshawMemory(), X).recall(X), tol=0),
    )


@formula(
    "willshaw-information-bound",
    latex=r"s \log_2 \binom{n}{r} \le n^2, \qquad s \lesssim \frac{n^2}{r \log_2 n}",
    where="002 Willshaw",
    right=lambda n, r: n**2 / log2(comb(n, r)),
    wrong=lambda n, r: n**2 / (r * log2(n)),
    systems=("willshaw",),
)
def willshaw_information_bound(rng, claim):
    """A memory of n squared bits cannot tell apart more lists of sparse patterns than it has states.

    The bound is exact in whole numbers; replacing the binomial by a power of n is only a rough form.
    """
    sizes = [(n, int(rng.integers(3, 7))) for n in (16, 24, 40)]
    most = []
    for n, r in sizes:
        s, states, lists = 0, 2 ** (n * n), comb(n, r)
        while lists <= states:
            s, lists = s + 1, lists * comb(n, r)
        most.append(s)
    return equal([np.floor(claim(n, r)) for n, r in sizes], most, tol=0)


@formula(
    "willshaw-capacity",
    latex=r"r = \log_2 n,\quad s = \frac{\ln 2\; n^2}{r^2}: \qquad \Pr[\theta_{ij} = 1] = \tfrac{1}{2},\quad "
    r"s \log_2 \tbinom{n}{r} \to \ln 2 \cdot n^2 \text{ bits}",
    where="002 Willshaw",
    right=lambda bits: (bits, log(2) / bits**2),
    wrong=lambda bits: (bits, 1 / bits**2),
    errata=(
        Erratum(
            "E24",
            printed=r"$r = \log n$ with the natural logarithm of the other formulas",
            correction=r"$r = \log_2 n$; with $r = \ln n$ the spurious ones grow like $n^{0.31}$",
            form=lambda bits: (bits * log(2), log(2) / (bits * log(2)) ** 2),
            where="002 Willshaw",
            kind="claim",
            counterexample=r"$n = 2^{20}$: $n 2^{-r}$ spurious ones are 1 with $r = \log_2 n$, and 70 with "
            r"$r = \ln n$",
        ),
    ),
    systems=("willshaw",),
    functions=("corollary.connectionism.WillshawMemory",),
)
def willshaw_capacity(rng, claim):
    """With about log2(n) ones a pattern and a half-full matrix, Willshaw's memory holds ln 2 bits a synapse.

    About one spurious unit then joins each answer, whatever the size. The claim gives the ones a
    pattern has and the number of patterns per n squared, for n a power of two.
    """
    from corollary.connectionism import WillshawMemory

    bits = 9
    n = 2**bits
    ones, load = claim(bits)
    r, s = round(ones), min(round(load * n * n), n * n // 16)  # a wrong load may ask for too many to draw
    X, Y = sparse_patterns(rng, s, n, r), sparse_patterns(rng, s, n, r)
    theta = np.minimum(1, Y.T @ X)
    report = fitted(WillshawMemory(), X).capacity()
    probes = slice(0, 400)
    spurious = ((X[probes] @ theta.T >= r) > Y[probes]).sum(axis=1).mean()
    # The limit: n so large that the binomial is n^r / r! and the loss of r log r bits is small.
    many = 4000
    ones, load = claim(many)
    information = load * (ones * many - gammaln(ones + 1) / log(2))
    return all_of(
        within(theta.mean(), 0.47, 0.53),
        equal(s / report.best_patterns, 1, tol=0.15),  # (r - 1) / r: pairs of a pattern with itself
        within(spurious, 1.0, 2.0),  # 1 in the limit; uneven rows add 40 % at this size
        equal(information, log(2), tol=0.005),
    )


@formula(
    "hopfield-store",
    latex=r"\Theta = \sum_t \bigl(x^t (x^t)^\top - I\bigr), \quad x^t \in \{\pm1\}^n",
    where="000 §4; 002 Hopfield",
    right=lambda X: X.shape[1] * _hopfield(X).weights_,
    wrong=lambda X: X.T @ X - np.eye(X.shape[1]),
    systems=("hopfield",),
    functions=("corollary.connectionism.HopfieldNetwork",),
)
def hopfield_store(rng, claim):
    """Hebbian weights of sign patterns, symmetric and without self-coupling."""
    X = random_signs(rng, 5, 8)
    theta = claim(X)
    pairs = [[sum(x[i] * x[j] for x in X) if i != j else 0 for j in range(8)] for i in range(8)]
    return all_of(equal(theta, pairs, tol=0), equal(theta, theta.T, tol=0), equal(np.diag(theta), 0, tol=0))


def _sweep(theta, bias, x):
    x = x.copy()
    for i in range(len(x)):
        x[i] = 1 if theta[i] @ x + bias[i] >= 0 else -1
    return x


@formula(
    "hopfield-update",
    latex=r"\hat x_i \leftarrow \mathrm{sign}\Bigl(\sum_{j \ne i} \theta_{ij} \hat x_j + \theta_{i0}\Bigr)"
    r"\quad \text{one unit at a time}",
    where="002 Hopfield",
    right=_sweep,
    wrong=lambda theta, bias, x: np.where(theta @ x + bias >= 0, 1, -1),
    systems=("hopfield",),
    functions=("corollary.connectionism.HopfieldNetwork",),
)
def hopfield_update(rng, claim):
    """Units that take the sign of their field one after another settle; all at once they may cycle.

    The claim is one sweep. Two excited units of opposite sign swap for ever when updated together.
    """
    pair = claim(np.array([[0, 1], [1, 0]]), np.zeros(2), np.array([1, -1]))
    outcomes = [equal(claim(np.array([[0, 1], [1, 0]]), np.zeros(2), pair), pair, tol=0)]
    for _ in range(3):
        theta, bias = symmetric_coupling(rng, 12)
        x = random_signs(rng, 12)
        for _ in range(100):
            x = claim(theta, bias, x)
        # A resting state is one no single flip of which lowers the energy.
        flips = x * (1 - 2 * np.eye(12))
        energy = [-z @ theta @ z / 2 - bias @ z for z in (x, *flips)]
        outcomes.append(at_most(energy[0], min(energy[1:])))
        outcomes.append(equal(claim(theta, bias, x), x, tol=0))
    # A sweep gives each unit in turn the value of lower energy.
    for x in random_signs(rng, 20, 12):
        after = x.copy()
        for i in range(12):
            choices = np.tile(after, (2, 1))
            choices[:, i] = 1, -1
            energy = [-z @ theta @ z / 2 - bias @ z for z in choices]
            after[i] = 1 if energy[0] <= energy[1] else -1
        outcomes.append(equal(claim(theta, bias, x), after, tol=0))
    bias = 0.1 * rng.normal(size=12)
    memory, x = _hopfield(random_signs(rng, 3, 12), bias=bias), random_signs(rng, 12)
    for _ in range(100):
        x = claim(memory.weights_, bias, x)
    return all_of(*outcomes, equal(memory.recall(x[None])[0], x, tol=0))  # the library rests there too


def _energy(theta, bias, x):
    from corollary.connectionism.hopfield import energy

    return energy(theta, x[None], bias)[0]


@formula(
    "hopfield-energy",
    latex=r"E(x) = -\tfrac{1}{2} \sum_{i \ne j} \theta_{ij} x_i x_j - \sum_i \theta_{i0} x_i",
    where="000 §4; 002 Hopfield",
    right=_energy,
    errata=(
        Erratum(
            "E25",
            printed=r"$-\sum_{ij}\theta_{ij}x_ix_j - \sum_i\theta_{i0}x_i$ never rises",
            correction=r"the pairs need the factor $\frac{1}{2}$, "
            r"else the energy can rise when there are biases",
            form=lambda theta, bias, x: -x @ theta @ x - bias @ x,
            where="002 Hopfield",
            kind="formula",
        ),
    ),
    systems=("hopfield",),
    functions=("corollary.connectionism.hopfield.energy",),
)
def hopfield_energy(rng, claim):
    """No asynchronous update raises this energy: a flip lowers it by twice the size of the unit's field."""
    rises, gaps = [0.0], []
    for _ in range(20):
        theta, bias = symmetric_coupling(rng, 6)
        x = random_signs(rng, 6).astype(float)
        for i in rng.integers(0, 6, size=30):
            field = theta[i] @ x + bias[i]
            new = x.copy()
            new[i] = np.sign(field)
            drop = claim(theta, bias, x) - claim(theta, bias, new)
            rises.append(-drop)
            gaps.append(drop - (2 * abs(field) if new[i] != x[i] else 0))
            x = new
    return all_of(at_most(max(rises), 0, tol=1e-10), equal(gaps, 0, tol=1e-10))


@formula(
    "hopfield-attractors",
    latex=r"d_H(\hat x, x) = k: \qquad x \cdot \hat x - 1 = n - 2k - 1",
    where="002 Hopfield",
    right=lambda n, k: n - 2 * k - 1,
    wrong=lambda n, k: n - k - 1,
    systems=("hopfield",),
    functions=("corollary.connectionism.HopfieldNetwork",),
)
def hopfield_attractors(rng, claim):
    """With one stored pattern, the field of a right unit points home with strength n - 2k - 1.

    So a probe wrong in fewer than (n - 1)/2 places is drawn to the pattern, and its mirror image to
    the negative.
    """
    n = 20
    x = random_signs(rng, n)
    memory = _hopfield(x[None])
    theta = np.round(n * memory.weights_)
    fields, homes, expected = [], [], []
    for k in range(n):
        probe = x.copy()
        probe[rng.permutation(n)[:k]] *= -1
        fields.append((x * (theta @ probe))[probe == x].min())
        if k not in (n // 2 - 1, n // 2, n // 2 + 1):
            homes.append(memory.recall(probe[None])[0] @ x)
            expected.append(n if claim(n, k) > 0 else -n)
    return all_of(equal([claim(n, k) for k in range(n)], fields, tol=0), equal(homes, expected, tol=0))


@formula(
    "hopfield-capacity",
    latex=r"\frac{s}{n} \le \alpha^* \approx 0.138 \ \text{(Hebb)}, "
    r"\qquad \alpha^* = 2 \ \text{(best weights)}",
    where="002 Hopfield",
    right=lambda n: (0.138, 2.0),
    wrong=lambda n: (1 / (2 * log(n)), 1.0),
    systems=("hopfield",),
    functions=("corollary.connectionism.HopfieldNetwork",),
)
def hopfield_capacity(rng, claim):
    """Hebbian storage breaks down at 0.138 patterns a unit; the best weights reach two.

    The first number is where the mean-field equation of recall loses its solution, and a simulation
    shows recall on either side of it; the second where half of all labellings are separable.
    """
    n = 600
    hebb, best = claim(n)
    # A retrieval state solves sqrt(2 alpha) = erf(y)/y - 2 exp(-y^2)/sqrt(pi) (Amit, Gutfreund, Sompolinsky).
    y = np.linspace(0.5, 4, 20001)
    limit = ((erf(y) / y - 2 * np.exp(-(y**2)) / np.sqrt(np.pi)) ** 2 / 2).max()
    overlap = []
    for load in (0.8 * hebb, 1.8 * hebb):
        X = random_signs(rng, round(load * n), n).astype(np.float32)
        memory = _hopfield(X, update="synchronous", max_sweeps=20)
        overlap.append((memory.recall(X[:40]) * X[:40]).mean())
    half = _cover(round(best * 50), 50) / 2 ** round(best * 50)
    return all_of(
        equal(hebb, limit, tol=1e-3),  # 0.1379 to four digits
        at_least(overlap[0], 0.95, tol=1e-3),
        at_most(overlap[1], 0.75, tol=1e-3),
        equal(half, 0.5, tol=1e-9),
    )
