r"""Turing's unorganised machines.

Every unit of an A-type machine has two sources, and all of them switch at once:

.. math:: s_i(t + 1) = 1 - s_{a_i}(t)\, s_{b_i}(t). \tag{1}

In a B-type machine each connection goes through a modifier with a switch: on, it passes the signal (twice
inverted); off, it gives 1, so that the input drops out of the NAND, :math:`1 - 1 \cdot x = 1 - x`:

.. math:: s_i(t + 1) = 1 - \big(s_{a_i} \vee \bar w_{i1}\big) \big(s_{b_i} \vee \bar w_{i2}\big). \tag{2}

Input units are held at the data. The answer is read off one unit after a fixed time, which is long enough for a
signal to cross the machine. Training sets the switches: one at a time is turned, and kept turned if no more
answers are wrong than before. Every sweep over the switches starts from a new random setting; the best one met is
what stays.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from corollary.base import Classifier, Data, Estimator
from corollary.engine.learner import Iteration, Metrics

__all__ = ["NandMachine", "simulate"]

DENSITIES = (0.5, 0.75, 0.9)  # shares of switches that a sweep starts with on


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


class _Switching(Iteration):
    """Turn one switch after the other; a sweep visits all of them once."""

    saved = ("switches", "output", "wrong", "rng")

    def __init__(
        self, model: NandMachine, x: np.ndarray, y: np.ndarray, sources: np.ndarray, rng: Any
    ) -> None:
        super().__init__(model.max_iter)
        self.x, self.y, self.sources, self.rng, self.trained = (
            x,
            y.astype(bool),
            sources,
            rng,
            model.kind == "B",
        )
        self.steps = model.n_steps
        self.switches = np.ones(sources.shape, bool)
        self.output, self.wrong = self.read(self.switches)

    def read(self, switches: np.ndarray) -> tuple[int, int]:
        """Return the unit that answers best, and how many of its answers are wrong."""
        wrong = (simulate(self.sources, switches, self.x, self.steps)[-1] != self.y).sum(axis=1)
        return int(wrong.argmin()), int(wrong.min())

    def sweep(self) -> Metrics:
        now = self.rng.random(self.switches.shape) < self.rng.choice(DENSITIES)
        current = len(self.y)
        for place in self.rng.permutation(now.size) if self.trained else ():
            turned = now.copy()
            turned.flat[place] ^= True
            output, wrong = self.read(turned)
            if wrong <= current:
                now, current = turned, wrong
            if wrong < self.wrong:
                self.switches, self.output, self.wrong = turned, output, wrong
            if wrong == 0:
                break
        self.converged = self.wrong == 0 or not self.trained
        return {"errors": self.wrong}


class NandMachine(Classifier, Estimator):
    """Classify binary inputs with one of Turing's unorganised machines.

    Parameters
    ----------
    n_units : int, default=30
        NAND units, wired at random to inputs and units alike. More can compute more, and take longer to train.
    kind : {"B", "A"}, default="B"
        With switches that are trained, or without: then only the unit to read is chosen.
    n_steps : int, default=8
        How long the machine runs before its answer is read; longer reaches deeper formulas.
    cut : float, default=0.5
        An entry of X counts as 1 above it.
    max_iter : int, default=100
        Most sweeps over the switches; more find harder formulas.
    random_state : int or RandomState, optional
        Seed for wiring and order of the switches.

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
    Eq. (1) and (2) of the module's page. A sweep costs O(n_units^2 n_steps) per row. Every sweep
    is a greedy search from a new start; a random wiring need not
    hold the formula that is sought, and another ``random_state`` gives another wiring.

    References
    ----------
    .. [1] A. M. Turing (1948). Intelligent machinery. National Physical Laboratory report.

    Examples
    --------
    >>> from corollary import NandMachine
    >>> X = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> NandMachine(random_state=2).fit(X, [0, 1, 1, 0]).predict(X)
    array([0, 1, 1, 0])
    """

    _parameter_constraints = {
        "n_units": [Interval(Integral, 1, None, closed="left")],
        "kind": [StrOptions({"A", "B"})],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "cut": [Interval(Real, None, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_units=30, *, kind="B", n_steps=8, cut=0.5, max_iter=100, random_state=None):
        self.n_units = n_units
        self.kind = kind
        self.n_steps = n_steps
        self.cut = cut
        self.max_iter = max_iter
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_units": 8, "n_steps": 4, "max_iter": 2}

    def _check_y(self, X: Any, y: Any) -> Any:
        codes = super()._check_y(X, y)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"NandMachine: y must have two classes; got {len(self.classes_)}."
            )
        return codes

    def _learner(self, data: Data) -> _Switching:
        rng = self._rng()
        n, places = data.X.shape[1], (self.n_units, 2)
        # a connection comes from an input as often as from a unit, however many there are of each
        sources = np.where(
            rng.random(places) < 0.5, rng.integers(0, n, places), rng.integers(n, n + self.n_units, places)
        )
        self.sources_ = sources
        return _Switching(self, data.X > self.cut, data.y, sources, rng)

    def _adopt(self, learner: _Switching) -> None:
        self.switches_, self.output_ = learner.switches, learner.output
        self.n_errors_, self.n_iter_ = learner.wrong, learner.n_iter

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        fires = simulate(self.sources_, self.switches_, X > self.cut, self.n_steps)[-1, self.output_]
        return np.column_stack([~fires, fires]).astype(X.dtype)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that two classes are all there is, and that one bit per input is little."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags
