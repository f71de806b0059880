r"""Turing's unorganised machines: random networks of NAND units.

Every unit of an A-type machine has two sources, and all of them switch at once:

.. math:: s_i(t + 1) = 1 - s_{a_i}(t)\, s_{b_i}(t). \tag{1}

In a B-type machine each connection goes through a modifier with a switch: on, it passes the signal (twice
inverted); off, it gives 1, so that the input drops out of the NAND, :math:`1 - 1 \cdot x = 1 - x`:

.. math:: s_i(t + 1) = 1 - \big(s_{a_i} \vee \bar w_{i1}\big) \big(s_{b_i} \vee \bar w_{i2}\big). \tag{2}

Input units are held at the data. The answer is read off one unit after a fixed time, which is long enough for a
signal to cross the machine. Training is the search that Turing called genetical: a few switches are turned, or ends of
connections moved to other sources, and the change is kept if no more answers are wrong than before (3). Changes that
make no difference are kept too; without them the search would stick. A machine that has not learned the answers after
many changes gives way to a new one; the best one met is what stays. For all rows at once a unit's signal
is a few 64-bit words, so that a change is tried in about a microsecond.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from corollary.base import Data
from corollary.compiled import njit
from corollary.connectionism.threshold import BaseBinary
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array, Count, Index, Record

__all__ = ["NandMachine", "simulate"]

ON = 0.9  # share of switches that a new machine has on
TRIES = 20_000  # changes per sweep
PATIENCE = 20  # sweeps after which a machine gives way to a new one
MORE = 2.0  # mean number of changes beyond the first that are tried together
TURN = 0.3  # share of changes that turn a switch, where connections may move


def simulate(sources: np.ndarray, switches: np.ndarray, inputs: np.ndarray, steps: int) -> np.ndarray:
    """Run a machine on m inputs at once by eq. 2 and return its state after every step.

    Parameters
    ----------
    sources : ndarray of int, shape (n_units, 2)
        Where each unit's two inputs come from: 0 to n_inputs - 1 are the inputs, then the units.
    switches : ndarray of bool, shape (n_units, 2)
        Which connections are on; all of them in an A-type machine.
    inputs : ndarray of bool, shape (m, n_inputs)
        What the input units are held at.
    steps : int
        How long to run; all units start at 0.

    Returns
    -------
    ndarray of bool, shape (steps + 1, n_units, m)

    Examples
    --------
    >>> nand = simulate(np.array([[0, 1]]), np.ones((1, 2), bool), np.array([[0, 1], [1, 1]], bool), 1)
    >>> nand[1, 0].tolist()
    [True, False]
    """
    held = np.asarray(inputs, bool).T
    states = [np.zeros((len(sources), held.shape[1]), bool)]
    off = ~np.asarray(switches, bool)
    for _ in range(steps):
        signals = np.concatenate([held, states[-1]])
        states.append(
            ~((signals[sources[:, 0]] | off[:, :1]) & (signals[sources[:, 1]] | off[:, 1:])),
        )
    return np.array(states)


@njit(cache=True)
def _ones(x):  # pragma: no cover - compiled
    """Count the bits of a word that are set."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(cache=True)
def read(sources, off, held, target, known, steps):  # pragma: no cover - compiled
    """Run a machine on packed rows, eq. 2; return the unit that answers best and how many answers are wrong.

    ``off`` (n_units, 2) has all bits set where a switch is off; ``held`` (n_inputs, words), ``target`` and ``known``
    (words,) are packed rows, the last of the bits that stand for any.
    """
    n, words = held.shape
    s = np.zeros((n + len(sources), words), np.uint64)
    s[:n] = held
    t = s.copy()
    for _ in range(steps):
        for i in range(len(sources)):
            a, b = s[sources[i, 0]], s[sources[i, 1]]
            for w in range(words):
                t[n + i, w] = ~((a[w] | off[i, 0]) & (b[w] | off[i, 1]))
        s, t = t, s
    best, fewest = 0, 64 * words + 1
    for i in range(len(sources)):
        wrong = 0
        for w in range(words):
            wrong += _ones((s[n + i, w] ^ target[w]) & known[w])
        if wrong < fewest:
            best, fewest = i, wrong
    return best, fewest


@njit(cache=True)
def evolve(sources, off, held, target, known, steps, place, to, size):  # pragma: no cover - compiled
    """Try changes in groups of the given sizes and keep those that do no harm, eq. 3, until all answers are right.

    Change e is at connection ``place[e]``: its source becomes ``to[e]``, or if that is -1 its switch is turned.
    """
    output, current = read(sources, off, held, target, known, steps)
    kept_sources, kept_off = sources.copy(), off.copy()
    begin, group = 0, 0
    while begin < len(place) and current > 0:
        end = min(len(place), begin + size[group])
        for e in range(begin, end):
            i, j = place[e] // 2, place[e] % 2
            if to[e] < 0:
                off[i, j] = ~off[i, j]
            else:
                sources[i, j] = to[e]
        unit, wrong = read(sources, off, held, target, known, steps)
        keep = wrong <= current
        if keep:
            output, current = unit, wrong
        for e in range(begin, end):
            i, j = place[e] // 2, place[e] % 2
            if keep:
                kept_sources[i, j], kept_off[i, j] = sources[i, j], off[i, j]
            else:
                sources[i, j], off[i, j] = kept_sources[i, j], kept_off[i, j]
        begin, group = end, group + 1
    return output, current


def packed(rows: np.ndarray) -> np.ndarray:
    """Return columns of booleans (m, n) as rows of 64-bit words (n, ceil(m / 64))."""
    m, n = rows.shape
    bits = np.zeros((n, -(-m // 64) * 64), bool)
    bits[:, :m] = rows.T
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def _signals(learner: Any) -> int:
    return int(learner.n + learner.model.n_units)  # inputs, then units


class _Switching(Iteration):
    """A sweep tries many changes of one machine; the best machine met is kept."""

    saved = ("sources", "off", "age", "best", "rng")
    varying = {
        "sources": Index("units", 2, below=_signals),
        "age": Count(),
        "best": Record(
            {
                "sources": Index("units", 2, below=_signals),
                "switches": Array("units", 2, kind="b"),
                "output": Count(below="units"),
                "wrong": Count(),
            }
        ),
    }

    def __init__(self, model: NandMachine, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> None:
        super().__init__(model.max_iter)
        self.model, self.rng, self.trained = model, rng, model.kind == "B"
        self.n, every = x.shape[1], np.ones((len(x), 1), bool)
        self.data = packed(x), packed(y.astype(bool)[:, None])[0], packed(every)[0]
        self.sources, self.off = self.wired(1.0)
        output, wrong = read(self.sources, self.off, *self.data, model.n_steps)
        self.age, self.best = 0, {}
        self.keep(output, wrong)

    def wired(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Return a new machine's sources, and its switches, of which a share is on."""
        off = self.rng.random((self.model.n_units, 2)) >= share
        return self.drawn(off.shape), np.where(off, ~np.uint64(0), np.uint64(0))

    def drawn(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return sources at random: an input as often as a unit, however many there are of each."""
        rng, n = self.rng, self.n
        units = rng.integers(n, n + self.model.n_units, shape)
        return np.where(rng.random(shape) < 0.5, rng.integers(0, n, shape), units)

    def keep(self, output: int, wrong: int) -> None:
        """Remember the machine if it is the best so far."""
        if not self.best or wrong < self.best["wrong"]:
            machine = {"sources": self.sources.copy(), "switches": self.off == 0}
            self.best = {**machine, "output": int(output), "wrong": int(wrong)}

    def sweep(self) -> Metrics:
        if self.trained and self.best["wrong"]:
            if self.age % PATIENCE == 0:
                self.sources, self.off = self.wired(ON)
            self.age += 1
            place, to = self.rng.integers(0, self.off.size, TRIES), self.drawn((TRIES,))
            turned = self.rng.random(TRIES) < (TURN if self.model.rewire else 1.0)
            size = 1 + self.rng.poisson(MORE, TRIES)
            change = (place, np.where(turned, -1, to), size)
            self.keep(*evolve(self.sources, self.off, *self.data, self.model.n_steps, *change))
        self.converged = self.best["wrong"] == 0 or not self.trained
        return {"errors": self.best["wrong"]}


class NandMachine(BaseBinary):
    """Classify binary inputs with one of Turing's unorganised machines: a random network of NAND units, trained by search.

    Parameters
    ----------
    n_units : int, default=30
        NAND units, wired at random to inputs and units alike. More can compute more, and take longer to train.
    kind : {"B", "A"}, default="B"
        With switches that are trained, or without: then only the unit to read is chosen.
    rewire : bool, default=True
        B-type only: whether training may also move connections to other sources. Without, only switches are turned, and
        a formula that the random wiring does not hold is not found.
    n_steps : int, default=8
        How long the machine runs before its answer is read; longer reaches deeper formulas.
    cut : float, default=0.5
        An entry of X counts as 1 above it.
    max_iter : int, default=100
        Most sweeps of 20,000 changes; more find harder formulas.
    random_state : int or RandomState, optional
        Seed for wiring and changes.

    Attributes
    ----------
    sources_ : ndarray of shape (n_units, 2)
        Where each unit listens: inputs first, then units.
    switches_ : ndarray of bool, shape (n_units, 2)
        Which connections are on.
    output_ : int
        The unit that is read.
    n_errors_ : int
        Training rows that it gets wrong.
    n_iter_ : int
        Sweeps done.
    classes_ : ndarray of shape (2,)
        The labels of 0 and 1.
    history_ : list of dict
        Step, errors and seconds.

    Notes
    -----
    Minimises the number of wrong answers of eq. (2) by the search (3) of the module's page. A change costs
    O(n_units n_steps) per 64 rows. Exclusive or takes some hundred changes, the parity of three inputs some
    ten thousand, of four some hundred thousand.

    References
    ----------
    .. [1] A. M. Turing (1948). Intelligent machinery. National Physical Laboratory report.

    Examples
    --------
    >>> from corollary import NandMachine
    >>> X = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> NandMachine(random_state=0).fit(X, [0, 1, 1, 0]).predict(X)
    array([0, 1, 1, 0])
    """

    _parameter_constraints = {
        "n_units": [Interval(Integral, 1, None, closed="left")],
        "kind": [StrOptions({"A", "B"})],
        "rewire": ["boolean"],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "cut": [Interval(Real, None, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "sources_": Index("n_units", 2, below=lambda model: model.n_features_in_ + model.n_units),
        "switches_": Array("n_units", 2, kind="b"),
        "output_": Count(below="n_units"),
        "n_errors_": Count(),
    }

    def __init__(
        self, n_units=30, *, kind="B", rewire=True, n_steps=8, cut=0.5, max_iter=100, random_state=None
    ):
        self.n_units = n_units
        self.kind = kind
        self.rewire = rewire
        self.n_steps = n_steps
        self.cut = cut
        self.max_iter = max_iter
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_units": 8, "n_steps": 4, "max_iter": 2}

    def _learner(self, data: Data) -> _Switching:
        return _Switching(self, data.X > self.cut, data.y, self._rng())

    def _adopt(self, learner: _Switching) -> None:
        best = learner.best
        self.sources_, self.switches_, self.output_ = best["sources"], best["switches"], best["output"]
        self.n_errors_, self.n_iter_ = best["wrong"], learner.n_iter

    def _fires(self, X: np.ndarray) -> np.ndarray:
        return simulate(self.sources_, self.switches_, X > self.cut, self.n_steps)[-1, self.output_]
