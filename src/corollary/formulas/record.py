r"""What a formula of the formulary is: a claim, and a check that can tell it from a wrong one.

A formula is written as one decorated function, the *check*. The decorator carries the
statement of the formula; its ``right`` argument is the formula itself, a small function
of plain arrays, and ``wrong`` a plausible slip (or, through :class:`Erratum`, what the
notes print). The check draws random instances, hands them to the ``claim`` it is given,
and compares with an independent computation:

>>> import numpy as np
>>> from corollary.formulas.record import equal, formula
>>> @formula(
...     "doc-variance-affine",
...     latex=r"\mathrm{Var}[aX + b] = a^2 \mathrm{Var}[X]",
...     where="001 §1",
...     right=lambda a, variance: a**2 * variance,
...     wrong=lambda a, variance: a * variance,
... )
... def variance_affine(rng, claim):
...     "A shift leaves the variance alone and a scale enters squared."
...     x, a, b = rng.normal(size=100), rng.normal(), rng.normal()
...     return equal(claim(a, x.var()), (a * x + b).var(), tol=1e-12)
>>> variance_affine.check(seed=0).holds
True
>>> [outcome.holds for outcome in variance_affine.check_wrong(seed=0)]
[False]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np

__all__ = [
    "Erratum",
    "Formula",
    "Instance",
    "Outcome",
    "all_of",
    "at_least",
    "at_most",
    "equal",
    "exponent",
    "formula",
    "within",
]

Claim = Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """How far a claim is from the truth, and how far it may be, in the comparison that judged it."""

    deviation: float
    tolerance: float
    seconds: float = 0.0
    # relation, left, right
    sides: tuple[str, Any, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def holds(self) -> bool:
        """Whether the claim holds; a deviation that is not a number never does."""
        return bool(self.deviation <= self.tolerance)


@dataclass(frozen=True)
class Instance:
    """One run of a check: what the claim was asked first, what it answered, and how it was judged."""

    inputs: dict[str, Any]
    result: Any
    outcome: Outcome


@dataclass(frozen=True)
class Erratum:
    """A place where the notes are wrong: what they print, and that form as a claim."""

    number: str  # "E17" or "T3", as in the inventory
    printed: str  # LaTeX or words, our own
    correction: str
    form: Claim
    where: str  # the note and section that is wrong
    kind: Literal["formula", "dimensions", "definition", "claim", "typing"]
    counterexample: str = ""  # of a claim that is false
    loose: bool = False  # a bound that is valid as printed, but further from the truth than it need be


@dataclass(frozen=True)
class Formula:
    """One formula of the notes with its check. Made by :func:`formula`."""

    id: str
    topic: str
    statement: str
    latex: str
    where: str
    right: Claim
    slip: Claim | None
    errata: tuple[Erratum, ...]
    systems: tuple[str, ...]  # catalog ids of the systems it stands behind
    functions: tuple[str, ...]  # public functions of the library that implement it
    run: Callable[[np.random.Generator, Claim], Outcome] = field(repr=False)

    @property
    def wrong(self) -> tuple[Claim, ...]:
        """The claims that must fail: what the notes misprint, and the slip."""
        return tuple(e.form for e in self.errata) + ((self.slip,) if self.slip else ())

    def check(self, seed: int = 0, claim: Claim | None = None) -> Outcome:
        """Run the check on the right form, or on another claim."""
        start = perf_counter()
        with np.errstate(all="ignore"):
            outcome = self.run(np.random.default_rng(seed), claim or self.right)
        return replace(outcome, seconds=perf_counter() - start)

    def instance(self, seed: int = 0, claim: Claim | None = None) -> Instance:
        """Run the check on the right form, or on another claim, and keep the first question and its answer."""
        asked, parameters = claim or self.right, inspect.signature(self.right)
        kept: list[tuple[dict[str, Any], Any]] = []

        def listener(*args: Any, **options: Any) -> Any:
            result = asked(*args, **options)
            if not kept:
                kept.append((dict(parameters.bind(*args, **options).arguments), result))
            return result

        outcome = self.check(seed, listener)
        return Instance(*kept[0], outcome)

    def check_wrong(self, seed: int = 0) -> list[Outcome]:
        """Run the same check on every wrong form; all must fail."""
        return [self.check(seed, claim) for claim in self.wrong]


REGISTRY: dict[str, Formula] = {}


def formula(
    id: str,
    *,
    latex: str,
    where: str,
    right: Claim,
    wrong: Claim | None = None,
    errata: Sequence[Erratum] = (),
    systems: Sequence[str] = (),
    functions: Sequence[str] = (),
) -> Callable[[Callable[[np.random.Generator, Claim], Outcome]], Formula]:
    """Register the decorated check as the formula ``id``; its docstring is the statement."""
    if wrong is None and not errata:
        raise ValueError(f"formula {id!r}: give a wrong form or an erratum, so the check can fail.")

    def register(check: Callable[[np.random.Generator, Claim], Outcome]) -> Formula:
        record = Formula(
            id=id,
            topic=check.__module__.rsplit(".", 1)[-1],
            statement=" ".join((check.__doc__ or "").split()),
            latex=latex,
            where=where,
            right=right,
            slip=wrong,
            errata=tuple(errata),
            systems=tuple(systems),
            functions=tuple(functions),
            run=check,
        )
        known = REGISTRY.get(id)
        if known is not None and known.run.__module__ != check.__module__:
            raise ValueError(f"formula {id!r} is defined in {known.topic} and {record.topic}.")
        REGISTRY[id] = record
        return record

    return register


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    values = np.asarray(values)
    return values if np.iscomplexobj(values) else values.astype(float)


def _worst(values: np.ndarray) -> float:
    """Largest entry; not-a-number counts as infinitely bad."""
    if values.size == 0:
        return 0.0
    return float("inf") if np.isnan(values).any() else float(values.max())


def equal(left: Any, right: Any, *, tol: float, relative: bool = False) -> Outcome:
    """Both sides agree; with ``relative`` the deviation is a share of the right side's size."""
    left, right = _array(left), _array(right)
    sides = ("=", left, right)
    if left.shape != right.shape and left.size != 1 and right.size != 1:
        return Outcome(float("inf"), tol, sides=sides)
    gap = np.abs(left - right)
    if relative:
        gap = gap / max(float(np.abs(right).max(initial=0.0)), np.finfo(float).tiny)
    return Outcome(_worst(gap), tol, sides=sides)


def at_most(quantity: Any, bound: Any, *, tol: float = 1e-12) -> Outcome:
    """Nowhere does the quantity exceed its bound by more than ``tol``."""
    quantity, bound = _array(quantity), _array(bound)
    return Outcome(max(0.0, _worst(quantity - bound)), tol, sides=("<=", quantity, bound))


def at_least(quantity: Any, bound: Any, *, tol: float = 1e-12) -> Outcome:
    """Nowhere does the quantity fall short of its bound by more than ``tol``."""
    return at_most(bound, quantity, tol=tol)


def within(value: Any, low: float, high: float) -> Outcome:
    """Every value lies in [low, high]; the deviation is the distance from the middle."""
    middle, half = (low + high) / 2, (high - low) / 2
    value = _array(value)
    return Outcome(_worst(np.abs(value - middle)), half, sides=("in", value, np.array([low, high])))


def exponent(sizes: Any, values: Any, expected: float, *, tol: float) -> Outcome:
    """``values`` grow like ``sizes ** expected``: the log-log slope agrees."""
    slope = np.polyfit(np.log(_array(sizes)), np.log(_array(values)), 1)[0]
    return equal(slope, expected, tol=tol)


def all_of(*outcomes: Outcome) -> Outcome:
    """Every outcome holds: the one with the largest share of its tolerance is returned."""
    tiny = np.finfo(float).tiny
    return max(
        outcomes,
        key=lambda o: float("inf") if np.isnan(o.deviation) else o.deviation / max(o.tolerance, tiny),
    )
