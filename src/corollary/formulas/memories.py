"""Associative memories: Hebb, Willshaw and Hopfield."""

from __future__ import annotations

from itertools import product
from math import comb, log, log2

import numpy as np
from scipy.special import erf, gammaln

from corollary.formulas._connectionism_tools import (
    random_signs,
    sparse_patterns,
    symmetric_coupling,
)
from corollary.formulas._library_tools import fitted
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula, within
from corollary.theory.counting import cover


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
    half = cover(round(best * 50), 50) / 2 ** round(best * 50)
    return all_of(
        equal(hebb, limit, tol=1e-3),  # 0.1379 to four digits
        at_least(overlap[0], 0.95, tol=1e-3),
        at_most(overlap[1], 0.75, tol=1e-3),
        equal(half, 0.5, tol=1e-9),
    )
