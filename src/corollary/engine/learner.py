"""The learner protocol: ``step``, ``state``, ``restore``, ``done``; and base classes for iterative and closed-form fits.

EM, alternating least squares, Gibbs sampling and gradient descent are all loops over a state that can be saved. An object with
these four members gets a progress bar, a history, early stopping, a time limit, checkpoints and exact resume from
:mod:`corollary.engine.loop`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from corollary import shapes
from corollary.engine.draws import Draws, Mark

__all__ = ["Iteration", "Learner", "Metrics", "Once", "State", "gathered"]

State = dict[str, Any]  # tensors, arrays, plain numbers and strings, nested in dicts and lists
Metrics = Mapping[str, float]


@runtime_checkable
class Learner(Protocol):
    """The protocol of everything that learns step by step."""

    def step(self) -> Metrics | None:
        """Make one unit of progress: a sweep, an epoch, a block of draws.

        ``None`` means the unit was left half-way because the engine asked for a pause
        (:func:`corollary.engine.interrupts.pause_wanted`); the next call goes on from there.
        """

    def state(self) -> State:
        """Return a snapshot of all that is needed to go on exactly."""

    def restore(self, state: State) -> None:
        """Go back to a snapshot."""

    @property
    def done(self) -> bool:
        """Whether it has converged or its own budget is spent."""

    # A learner may also have
    #   shares: bool            whether several processes can divide its work
    #   pauses: bool            whether a long step looks at the clock itself (returns None when its time is up)
    #   can_diverge: bool       whether a step may end in NaN or infinity
    #   unfinished() -> Metrics what the part of a step says that was left half-way
    #   gathered(state) -> State  a snapshot with what the other processes hold, in the first of them


def gathered(learner: Learner, state: State) -> State:
    """Return a snapshot that any number of processes can restore; all processes must ask, and the first gets it."""
    return learner.gathered(state) if hasattr(learner, "gathered") else state


class Iteration(ABC):
    """Base of iterative learners: the state is a few attributes, an iteration is :meth:`sweep`.

    A subclass names the attributes in ``saved`` and writes :meth:`sweep`, which sets ``converged`` to stop. Attributes may be
    arrays, tensors, numbers, random generators, lists and dicts of those, and :class:`~corollary.engine.draws.Draws`, which
    only grow and are never copied. A restored attribute must have the type and shape that it has at the start; one that
    changes them, or has a range, is declared in ``varying`` (:mod:`corollary.shapes`).
    """

    saved: ClassVar[tuple[str, ...]] = ()
    varying: ClassVar[Mapping[str, Any]] = {}
    # Whether several processes can divide the work, by `run.sum` and `run.shard`; if not, they are refused.
    shares: ClassVar[bool] = False
    # Whether a step may end in NaN or infinity; if not, the engine keeps no copy of a large state before it.
    can_diverge: ClassVar[bool] = True

    def __init__(self, max_iter: int, n_iter: int = 0) -> None:
        self.max_iter = max_iter
        self.n_iter = n_iter
        self.converged = False

    @abstractmethod
    def sweep(self) -> Metrics:
        """Do one sweep over the unknowns."""

    def step(self) -> Metrics | None:
        """Count and do one sweep."""
        self.n_iter += 1
        return self.sweep()

    def state(self) -> State:
        """Return copies of the saved attributes."""
        names = ("n_iter", "converged", *self.saved)
        return {name: freeze(getattr(self, name)) for name in names}

    def restore(self, state: State) -> None:
        """Set the saved attributes to copies of those in the snapshot, after their types and shapes are checked."""
        varying = shapes.declared(type(self), "varying")
        table = {name: varying.get(name) or _like(getattr(self, name)) for name in self.saved}
        table |= {"n_iter": shapes.Count(), "converged": shapes.Flag()}
        shapes.check(table, state, type(self).__name__, self)
        for name, kept in state.items():
            setattr(self, name, thaw(getattr(self, name, None), kept))

    @property
    def done(self) -> bool:
        """Whether the sweeps have converged or reached ``max_iter``."""
        return self.converged or self.n_iter >= self.max_iter


class _Drawn:
    """What a snapshot of draws must be: a mark, or the draws themselves. They check shape and type on taking over."""

    def check(self, value: Any, what: str, scope: Any) -> None:
        """Raise unless the value is a mark or an array."""
        if not isinstance(value, Mark | np.ndarray):
            raise shapes.Mismatch(f"{what} must be draws; got {type(value).__name__}")


def _like(value: Any) -> Any:
    """Return what a snapshot of an attribute must look like."""
    return _Drawn() if isinstance(value, Draws) else shapes.Like(freeze(value))


class Once(Iteration):
    """A learner for closed-form solutions: one step computes everything.

    ``solve()`` returns a dict, which is kept as ``results``.
    """

    saved = ("results",)
    varying = {"results": shapes.Record(shapes.Anything())}

    def __init__(self, solve: Callable[[], State], shares: bool = False) -> None:
        super().__init__(max_iter=1)
        self.solve = solve
        self.shares = shares  # type: ignore[misc]
        self.results: State = {}

    def sweep(self) -> Metrics:
        """Solve."""
        self.results = self.solve()
        return {}


def freeze(value: Any) -> Any:
    """Return a deep copy for a snapshot; a random generator becomes its state, draws become a mark."""
    if value is None or isinstance(value, int | float | str):  # most attributes: numbers, once a step
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Draws):
        return value.mark()
    if isinstance(value, np.random.Generator):
        return freeze(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return freeze(value.get_state(legacy=False))
    if isinstance(value, Mapping):
        return {key: freeze(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [freeze(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if hasattr(value, "get_state") and hasattr(value, "initial_seed"):  # torch.Generator
        return value.get_state()
    if hasattr(value, "clone"):  # torch.Tensor
        return value.detach().clone()
    return value.copy() if hasattr(value, "copy") else value


def thaw(current: Any, kept: Any) -> Any:
    """Return the value of a snapshot as a copy; a random generator and draws are set in place."""
    if isinstance(current, Draws):
        current.restore(kept)
        return current
    if isinstance(current, np.random.Generator | np.random.RandomState):
        _set_generator(current, kept)
        return current
    if hasattr(current, "set_state") and hasattr(current, "initial_seed"):
        current.set_state(kept)
        return current
    return freeze(kept)


def _set_generator(generator: np.random.Generator | np.random.RandomState, kept: Any) -> None:
    """Set a random generator to a checked state: NumPy would read beyond the end of a state with a false position."""
    if "pos" in kept["state"]:  # the Mersenne twister
        shapes.Count(0, 625).check(
            kept["state"]["pos"], "the position of the generator", shapes.Scope({}, None)
        )
        # nothing but zeros would follow, and rejection samplers would wait for ever
        if not np.any(kept["state"]["key"]):
            raise shapes.Mismatch("the state of the generator must not be all zeros.")
    try:
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = kept
        else:
            generator.set_state(kept)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise shapes.Mismatch(f"the state of the generator cannot be set ({error}).") from error
