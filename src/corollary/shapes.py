"""What a fitted attribute may be: its type, its shape and its range, said once and checked wherever a file is read.

An estimator says it in a table, ``_fitted``, and a learner in ``saved``; the tables of base classes are joined to it:

>>> _fitted = {
...     "weights_": Array("n_features_in_", "n_features_in_"),
...     "order_": Index("n_features_in_", below="n_features_in_"),
... }

A size is a number, a name, ``None`` (any), or a function of the model. A name that is a parameter or another attribute
stands for its value if that is an integer, for ``name.0`` the first of its sizes, and for its length otherwise; any other
name is a symbol: wherever it occurs, it must be the same. So a file cannot hold an index that points nowhere, a length
that is longer than its array, or a shape that compiled code does not expect.

>>> check({"order_": Index("d", below="d")}, {"order_": np.array([0, 7])}, "Net")
Traceback (most recent call last):
    ...
corollary.shapes.Mismatch: order_ of Net must be integers from 0 to 1; got 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

__all__ = [
    "Anything",
    "Array",
    "Choice",
    "Columns",
    "Count",
    "Dtype",
    "Either",
    "Flag",
    "Index",
    "Labels",
    "Like",
    "List",
    "Maybe",
    "Mismatch",
    "Model",
    "Module",
    "Number",
    "Plain",
    "Record",
    "Seed",
    "Sparse",
    "Text",
    "check",
    "declared",
    "like",
    "not_finite",
]

Size = int | str | None | Callable[[Any], int]
LARGEST = 2**62  # an integer beyond it is no count of anything


class Mismatch(ValueError):
    """A value that is not what its model declares."""


class Scope:
    """The values of a table, the attributes of their owner, and the symbols met so far."""

    def __init__(self, values: Mapping[str, Any], owner: Any) -> None:
        self._values, self._owner, self._symbols = values, owner, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        return self._values[name] if name in self._values else getattr(self._owner, name)

    def size(self, size: Size, found: int) -> int | None:
        """Return what a size must be; a new symbol takes what was found."""
        if size is None or isinstance(size, int):
            return size
        if callable(size):
            return int(size(self))
        name, _, axis = size.partition(".")
        if size in self._symbols:
            return self._symbols[size]
        known = self._values.get(name, getattr(self._owner, name, None))
        number = _sides(known)[int(axis)] if axis and known is not None else _length(known)
        return self._symbols.setdefault(size, found) if number is None else number


def _sides(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", value))


def _length(value: Any) -> int | None:
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, list | tuple) or (getattr(value, "ndim", 0) and not isinstance(value, np.generic)):
        return int(value.shape[0]) if hasattr(value, "shape") else len(value)
    return None


def _fail(what: str, must: str, got: object) -> Mismatch:
    return Mismatch(f"{what} must be {must}; got {got}.")


# --- numbers and words -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A real number in [low, high]; infinite or NaN only if ``finite`` is False."""

    low: float = -np.inf
    high: float = np.inf
    finite: bool = True

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is such a number."""
        if hasattr(value, "ndim") and value.ndim == 0:
            value = value.item()
        if not isinstance(value, Real) or isinstance(value, bool):
            raise _fail(what, "a number", _named(value))
        if self.finite and not abs(value) < np.inf:
            raise _fail(what, "finite", value)
        if value < self.low or value > self.high:
            raise _fail(what, f"from {self.low} to {self.high}", value)


@dataclass(frozen=True)
class Count:
    """An integer of at least ``low`` and, where that is given, below ``below``."""

    low: int = 0
    below: Size = LARGEST

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is such an integer."""
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise _fail(what, "an integer", _named(value))
        end = scope.size(self.below, LARGEST)
        if value < self.low or value >= (LARGEST if end is None else end):
            raise _fail(what, f"an integer from {self.low} to below {end}", value)


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is one of them."""
        if not isinstance(value, bool | np.bool_):
            raise _fail(what, "True or False", _named(value))


@dataclass(frozen=True)
class Text:
    """A string, one of ``choices`` if there are any."""

    choices: tuple[str, ...] = ()

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is such a string."""
        if not isinstance(value, str):
            raise _fail(what, "a string", _named(value))
        if self.choices and value not in self.choices:
            raise _fail(what, f"one of {', '.join(self.choices)}", repr(value[:40]))


def Dtype() -> Text:
    """Return the specification of the name of a floating type."""
    return Text(("float16", "bfloat16", "float32", "float64"))


@dataclass(frozen=True)
class Plain:
    """Numbers and strings, in lists, tuples and dicts: what can be written as JSON."""

    kinds: tuple[type, ...] = (dict, list, tuple, str, int, float, bool, type(None))

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is plain throughout."""
        if not isinstance(value, self.kinds):
            raise _fail(what, "numbers and strings", _named(value))
        if isinstance(value, dict | list | tuple):
            for part in [*value, *value.values()] if isinstance(value, dict) else value:
                Plain().check(part, what, scope)


@dataclass(frozen=True)
class Columns:
    """How the columns of a table are read (``corollary.data.encodings``): a record each, whose arrays fit its lists."""

    kinds: tuple[type, ...] = (list,)

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is a list of such records."""
        for column in value if isinstance(value, list) else [value]:
            if not isinstance(column, dict) or not {"name", "kind"} <= set(column):
                raise _fail(what, "a list of columns with a name and a kind", _named(column))
            arrays = {key: part for key, part in column.items() if isinstance(part, np.ndarray)}
            Plain().check({key: part for key, part in column.items() if key not in arrays}, what, scope)
            self._check_arrays(column, arrays, what)

    def _check_arrays(self, column: dict[str, Any], arrays: dict[str, np.ndarray], what: str) -> None:
        levels, words = (len(column.get(key, ())) for key in ("levels", "words"))
        targets = arrays["means"].shape[-1] if "means" in arrays and arrays["means"].ndim else 0
        topics = arrays["components"].shape[0] if "components" in arrays and arrays["components"].ndim else 0
        shapes = {"means": (levels, targets), "mean": (targets,), "scale": (targets,)}
        shapes |= {"idf": (words,), "components": (topics, words)}
        for key, array in arrays.items():
            if array.shape != shapes.get(key) or array.dtype.kind != "f" or not np.isfinite(array).all():
                raise _fail(what, f"{key} of shape {shapes.get(key)}", _named(array))


# --- arrays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class Array:
    """An array or tensor of this shape, of floats unless ``kind`` (NumPy's letters) says otherwise, in [low, high]."""

    shape: tuple[Size, ...]
    kind: str
    low: float
    high: float
    finite: bool

    def __init__(
        self,
        *shape: Size,
        kind: str = "f",
        low: float = -np.inf,
        high: float = np.inf,
        finite: bool = True,
    ) -> None:
        for name, value in zip(("shape", "kind", "low", "high", "finite"), (shape, kind, low, high, finite)):
            object.__setattr__(self, name, value)

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is such an array."""
        array = _checked(value, what, self.shape, self.kind, scope)
        if not array.size:
            return
        if self.finite and array.dtype.kind in "fc" and not _all_finite(array):
            raise _fail(what, "finite", "NaN or infinity")
        if self.low > -np.inf or self.high < np.inf:
            low, high = array.min(), array.max()
            if not (low >= self.low and high <= self.high):
                raise _fail(what, f"from {self.low} to {self.high}", f"{low} to {high}")


@dataclass(frozen=True, init=False)
class Index:
    """Integers from ``low`` to below ``below``: what compiled code may use to look something up."""

    shape: tuple[Size, ...]
    below: Size
    low: int

    def __init__(self, *shape: Size, below: Size, low: int = 0) -> None:
        for name, value in zip(("shape", "below", "low"), (shape, below, low)):
            object.__setattr__(self, name, value)

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is an array of such integers."""
        array = _checked(value, what, self.shape, "iu", scope)
        end = scope.size(self.below, LARGEST)
        if array.size and end is not None:
            low, high = int(array.min()), int(array.max())
            if low < self.low or high >= end:
                got = low if low < self.low else high
                raise _fail(what, f"integers from {self.low} to {end - 1}", got)


def _checked(value: Any, what: str, shape: tuple[Size, ...], kind: str, scope: Scope) -> np.ndarray:
    array = _as_array(value)
    if array is None or array.dtype.kind not in kind:
        raise _fail(what, f"an array of {_KINDS.get(kind, kind)}", _named(value))
    _check_shape(array.shape, what, shape, scope)
    return array


def _check_shape(found: tuple[int, ...], what: str, shape: tuple[Size, ...], scope: Scope) -> None:
    if len(found) != len(shape):
        raise _fail(what, f"of shape {_shown(shape)}", f"shape {found}")
    for size, side in zip(shape, found):
        wanted = scope.size(size, side)
        if wanted is not None and wanted != side:
            raise _fail(
                what, f"of shape {_shown(shape)} with {_shown((size,))[1:-1]} = {wanted}", f"shape {found}"
            )


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.startswith("torch") and hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    return None


def _all_finite(array: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # a finite sum has finite terms; only otherwise is every term looked at
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


_KINDS = {"f": "floats", "iu": "integers", "b": "booleans", "u": "unsigned integers"}


def _shown(shape: Iterable[Size]) -> str:
    return "(" + ", ".join("…" if callable(s) or s is None else str(s) for s in shape) + ")"


def _named(value: Any) -> str:
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"{type(value).__name__}{f' of {value.dtype}' if hasattr(value, 'dtype') else ''}{shape}"


@dataclass(frozen=True)
class Labels:
    """One label per entry, of any type that can be compared."""

    n: Size = None

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is a one-dimensional array of ``n`` labels."""
        _checked(value, what, (self.n,), "biufUSO", scope)


@dataclass(frozen=True)
class Sparse:
    """A SciPy matrix of this shape, whose indices are within it."""

    rows: Size = None
    columns: Size = None

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is such a matrix."""
        if not hasattr(value, "tocsr") or value.ndim != 2:
            raise _fail(what, "a sparse matrix", _named(value))
        _check_shape(value.shape, what, (self.rows, self.columns), scope)
        if hasattr(value, "check_format"):
            try:
                value.check_format(full_check=True)
            except (ValueError, IndexError, TypeError) as error:
                raise _fail(what, "a consistent sparse matrix", error) from error


@dataclass(frozen=True)
class Anything:
    """Numbers, strings, arrays and tensors, in lists, tuples and dicts; for what is checked where it is used."""

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise if there is anything else in it."""
        if isinstance(value, Mapping):
            for key, part in value.items():
                self.check(part, f"{what}[{key!r}]", scope)
        elif isinstance(value, list | tuple):
            for i, part in enumerate(value):
                self.check(part, f"{what}[{i}]", scope)
        elif _as_array(value) is None and not isinstance(value, Plain().kinds + (np.generic,)):
            raise _fail(what, "numbers, strings or arrays", _named(value))


@dataclass(frozen=True)
class Like:
    """An array, number, or nest of those, of the same types and shapes as an example."""

    example: Any

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is like the example."""
        like(self.example, value, what)


def like(example: Any, value: Any, what: str) -> None:
    """Raise unless a value has the types and shapes of an example, nests included."""
    array = _as_array(example)
    if array is not None:
        other = _as_array(value)
        same = isinstance(value, np.ndarray) == isinstance(example, np.ndarray)
        if other is None or not same or (other.dtype, other.shape) != (array.dtype, array.shape):
            raise _fail(what, f"like {_named(example)}", _named(value))
    elif isinstance(example, Mapping):
        if not isinstance(value, Mapping) or value.keys() != example.keys():
            raise _fail(what, f"a dict of {sorted(map(str, example))}", _named(value))
        for key in example:
            like(example[key], value[key], f"{what}[{key!r}]")
    elif isinstance(example, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(example):
            raise _fail(what, f"{len(example)} values", _named(value))
        for i, (a, b) in enumerate(zip(example, value)):
            like(a, b, f"{what}[{i}]")
    else:
        _like_scalar(example, value, what)


def _like_scalar(example: Any, value: Any, what: str) -> None:
    if example is None or isinstance(example, bool | np.bool_ | str):
        kind: Any = type(None) if example is None else str if isinstance(example, str) else (bool, np.bool_)
        if not isinstance(value, kind):
            raise _fail(what, f"like {example!r}"[:60], _named(value))
    elif isinstance(example, Real):
        if not isinstance(value, Real) or isinstance(value, bool):
            raise _fail(what, "a number", _named(value))
        if isinstance(example, int | np.integer) and not isinstance(value, int | np.integer):
            raise _fail(what, "an integer", _named(value))


# --- nests -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class List:
    """A list or tuple of ``n`` values, each as ``each`` says, or as its own entry of a list of specifications."""

    each: Any
    n: Size = None

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless every value is such."""
        if not isinstance(value, list | tuple):
            raise _fail(what, "a list", _named(value))
        several = isinstance(self.each, list | tuple)
        wanted = len(self.each) if several else scope.size(self.n, len(value))
        if wanted is not None and len(value) != wanted:
            raise _fail(what, f"a list of {wanted}", len(value))
        for i, part in enumerate(value):
            (self.each[i] if several else self.each).check(part, f"{what}[{i}]", scope)


@dataclass(frozen=True)
class Record:
    """A dict with these keys, each as its specification says; or, given one specification, any keys."""

    fields: Any

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is such a dict."""
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise _fail(what, "a dict", _named(value))
        fields = self.fields if isinstance(self.fields, Mapping) else dict.fromkeys(value, self.fields)
        needed = {key for key, spec in fields.items() if not isinstance(spec, Maybe)}
        if not needed <= value.keys() <= fields.keys():
            raise _fail(what, f"a dict of {sorted(fields)}", sorted(value))
        for key, part in value.items():
            fields[key].check(part, f"{what}[{key!r}]", scope)


@dataclass(frozen=True)
class Maybe:
    """What may be absent or None."""

    each: Any

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is None or as specified."""
        if value is not None:
            self.each.check(value, what, scope)


@dataclass(frozen=True, init=False)
class Either:
    """One of several specifications; the first that fits counts."""

    choices: tuple[Any, ...]

    def __init__(self, *choices: Any) -> None:
        object.__setattr__(self, "choices", choices)

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value fits one of them."""
        for choice in self.choices[:-1]:
            before = dict(scope._symbols)
            try:
                return choice.check(value, what, scope)  # type: ignore[no-any-return]
            except Mismatch:
                scope._symbols = before
        return self.choices[-1].check(value, what, scope)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Choice:
    """One of several specifications, chosen by the value of a parameter or another attribute."""

    name: str
    choices: Mapping[str, Any]

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value fits the specification that counts."""
        chosen = getattr(scope, self.name)
        if chosen not in self.choices:
            raise _fail(f"{self.name} beside {what}", f"one of {', '.join(self.choices)}", repr(chosen)[:40])
        self.choices[chosen].check(value, what, scope)


@dataclass(frozen=True)
class Module:
    """A torch module, or its weights by name; sizes are compared with those of a new module when it is built."""

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is a module or a dict of arrays or tensors."""
        if hasattr(value, "state_dict"):
            value = value.state_dict()
        if not isinstance(value, dict):
            raise _fail(what, "weights by name", _named(value))
        for name, weight in value.items():
            array = _as_array(weight)
            if not isinstance(name, str) or array is None or array.dtype.kind not in "fciub":
                raise _fail(f"{what}[{name!r}]", "a tensor", _named(weight))
            if array.dtype.kind == "f" and not _all_finite(array):
                raise _fail(f"{what}[{name!r}]", "finite", "NaN or infinity")


@dataclass(frozen=True)
class Model:
    """A fitted estimator; a file holds one of the catalog, which checks its own attributes."""

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is an estimator that can be asked."""
        if isinstance(value, type) or not hasattr(value, "get_params") or not hasattr(value, "predict"):
            raise _fail(what, "a fitted estimator", _named(value))


@dataclass(frozen=True)
class Seed:
    """A random generator; only in memory, a file holds None."""

    def check(self, value: Any, what: str, scope: Scope) -> None:
        """Raise unless the value is a generator or None."""
        if value is not None and not isinstance(value, np.random.RandomState | np.random.Generator):
            raise _fail(what, "a random generator or None", _named(value))


# --- tables ----------------------------------------------------------------------------------------------


def declared(cls: type, table: str) -> dict[str, Any]:
    """Return the table of a class, joined to those of its bases."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found.update(base.__dict__.get(table, {}))
    return found


def check(
    table: Mapping[str, Any], values: Mapping[str, Any], name: str, owner: Any = None, others: bool = False
) -> None:
    """Raise :class:`Mismatch` unless the values are those of the table: all that it needs, and, unless allowed, no others."""
    strange = sorted(values.keys() - table.keys())
    if strange and not others:
        raise Mismatch(f"{strange[0]!r} is not a fitted attribute of {name}.")
    missing = [key for key, spec in table.items() if key not in values and not isinstance(spec, Maybe)]
    if missing:
        raise Mismatch(f"{missing[0]} of {name} is missing.")
    scope = Scope(values, owner)
    for key in table:
        if key in values:
            table[key].check(values[key], f"{key} of {name}", scope)


def not_finite(table: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    """Return the first attribute that must be finite and is not."""
    for key, spec in table.items():
        value = values.get(key)
        spec = spec.each if isinstance(spec, Maybe) else spec
        bounded = isinstance(spec, Module) or getattr(
            spec, "finite", isinstance(spec, Record | List | Either | Choice)
        )
        if bounded and value is not None and not _finite_within(value):
            return key
    return None


def _finite_within(value: Any) -> bool:
    if hasattr(value, "state_dict"):
        value = value.state_dict()
    if isinstance(value, Mapping):
        return all(map(_finite_within, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_finite_within, value))
    array = _as_array(value)
    if array is not None:
        return array.dtype.kind not in "fc" or not array.size or _all_finite(array)
    return not isinstance(value, float | np.floating) or bool(np.isfinite(value))
