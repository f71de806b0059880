"""How the columns of a table became numbers: learned once, kept as plain values, repeated on new data.

A model fitted to the columns *width, colour=blue, colour=red* must meet the same columns in new data, whatever their
order in the file, whatever else is there, and whichever categories happen to occur. What is learned is a list with one
dict per column: its ``name``, its ``kind`` (number, date, category or text) with what
:mod:`corollary.data.encodings` needs, or why it is left out:

=============  ===========================================================================================
``id``         names the rows: a different value in each, and no measurement
``constant``   one value, or none
``duplicate``  tells the rows apart exactly as an earlier column does
``ignore``     the user said so
=============  ===========================================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corollary import errors, shapes
from corollary.data.dataset import Dataset
from corollary.data.detect import Reading, typed
from corollary.data.encodings import (
    MOST,
    apply,
    apply_sparse,
    headings,
    keys,
    learn_category,
    learn_date,
    learn_number,
    learn_text,
    mean_targets,
    number_columns,
    slots,
    undo,
)
from corollary.data.stopwords import language_of, stop_words

__all__ = [
    "LEFT_OUT",
    "as_columns",
    "as_counts",
    "fit_columns",
    "fit_targets",
    "frame_of",
    "is_mixed",
    "is_numeric",
    "kind_of",
    "learn_columns",
    "left_out",
    "numbers_of",
    "plain_columns",
    "table_of",
    "unused_columns",
]

LEFT_OUT = ("id", "constant", "duplicate", "ignore")
LARGE = 50_000_000  # bytes of a table of numbers up to which nothing is spared
CELL = 32  # bytes of numbers that a cell of a larger table may become
_MANY = 50  # columns of numbers that are worth looking at all at once
_FEWEST = 10  # rows below which nothing is said about ids, constants and duplicates
_ID = re.compile(
    r"(^|[^a-z])(id|ids|uid|uuid|guid|key|index|rownames?|row|nr|no|number|code)$|^(id|unnamed)([^a-z]|$)"
)
_CAMEL = re.compile(r"[a-z](ID|Id)$")
# numbers that measure nothing
_CODED = re.compile(r"(^|[^a-z])(id|zip|zipcode|zip.?code|postcode|postal.?code|plz)$")
_TIME = re.compile(r"time|date|year|month|week|day|hour|minute|second|quarter|period|step|age|^t$")


def is_numeric(dtype: Any) -> bool:
    """Whether a pandas type holds real numbers."""
    from pandas.api import types

    return bool(types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype))


def frame_of(X: Any) -> Any:
    """Return a data frame (of pandas, or of polars) as one of pandas, and anything else as None."""
    if not hasattr(X, "columns"):
        return None
    if not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
        X = X.to_pandas()
    return _told_apart(X) if hasattr(X, "iloc") else None


def _told_apart(frame: Any) -> Any:
    """Return a frame whose columns have different names: ``a`` and ``a.1``, ``a b`` for levels."""
    if frame.columns.is_unique and frame.columns.nlevels == 1:
        return frame
    seen: Counter[str] = Counter()
    names = []
    for name in frame.columns:
        text = " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        names.append(text if not seen[text] else f"{text}.{seen[text]}")
        seen[text] += 1
    return frame.set_axis(names, axis=1)


def is_mixed(frame: Any, gaps: bool) -> bool:
    """Whether a frame holds anything but numbers, or gaps if a model cannot take those (``gaps=False``)."""
    return not all(map(is_numeric, frame.dtypes)) or (not gaps and bool(frame.isna().to_numpy().any()))


# --- what a column is ------------------------------------------------------------------------------------


def kind_of(column: Any, how: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a typed column is, and why it is left out if it is."""
    if how.get("told"):
        return how["kind"], "as told" if how["kind"] in LEFT_OUT else ""
    n, known = len(column), int(column.notna().sum())
    distinct = int(column.nunique()) if known else 0
    if distinct == 0:
        return "constant", "no values"
    if distinct == 1 and known == n >= _FEWEST:
        return "constant", f"always {column.iloc[0]}"
    if is_numeric(column.dtype):
        if _numbers_rows(column, distinct):
            return "id", _of_rows(distinct)
        coded = _CODED.search(str(column.name).lower()) or _CAMEL.search(str(column.name))
        return ("category", "") if coded and n >= _FEWEST and _whole(column) else ("number", "")
    if str(column.dtype).startswith(("datetime", "period")):
        return "date", ""
    return _kind_of_strings(keys(column), distinct, known, str(column.name))


def _kind_of_strings(column: Any, distinct: int, known: int, name: str) -> tuple[str, str]:
    some = column.dropna().iloc[:: max(1, known // 2000)]
    words, letters = some.str.count(r"\s+").mean() + 1, some.str.len().mean()
    if distinct == known >= _FEWEST and _is_id(name):
        return "id", _of_rows(distinct)
    written = some.str.contains("[a-zA-Z]|[^\x00-\x7f]").mean() > 0.5  # a telephone number is none
    if (
        written
        and (words >= 3 or letters >= 60)
        and words >= 1.5
        and distinct >= 0.5 * known >= 0.5 * _FEWEST
    ):
        return "text", ""
    if distinct >= 0.98 * known and known >= 20:
        return "id", _of_rows(distinct)
    return "category", ""


def _numbers_rows(column: Any, distinct: int) -> bool:
    """Whether integers number the rows: all different, and by their name or in their order nothing else."""
    n, name = len(column), str(column.name)
    if distinct < n or n < _FEWEST or column.dtype.kind not in "iuf":
        return False
    if not _whole(column):
        return False
    values = column.to_numpy(dtype=float)
    in_order = values[0] in (0, 1) and np.array_equal(np.diff(values), np.ones(n - 1))
    return _is_id(name) or (in_order and not _TIME.search(name.lower()))


def _whole(column: Any) -> bool:
    values = column.dropna().to_numpy(dtype=float)
    return bool(np.array_equal(values, np.round(values)))


def _is_id(name: str) -> bool:
    return bool(_ID.search(name.lower().strip())) or bool(_CAMEL.search(name))


def _of_rows(distinct: int) -> str:
    return f"{distinct} different values"


def _copies(frame: Any, kinds: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return which columns tell the rows apart exactly as an earlier one of their kind."""
    import pandas as pd

    if len(frame) < _FEWEST:
        return {}
    seen: dict[tuple[str, int], str] = {}
    copies = {}
    for name in frame.columns:
        kind = kinds[str(name)][0]
        if kind in LEFT_OUT or kind == "text":
            continue
        values = (
            pd.factorize(frame[name])[0]
            if kind == "category"
            else frame[name].to_numpy(dtype=object if kind == "date" else float)
        )
        total = int(pd.util.hash_array(np.asarray(values)).view(np.int64).dot(np.arange(1, len(frame) + 1)))
        first = seen.setdefault((kind, total), str(name))
        if first != str(name):
            copies[str(name)] = first
    return copies


# --- learned ---------------------------------------------------------------------------------------------


def learn_columns(
    X: Any,
    names: Sequence[str] | None,
    read: Mapping[str, Reading] | None = None,
    gaps: bool = False,
    codes: bool = False,
    sparse: bool = False,
) -> list[Reading]:
    """Return how to read the columns of a frame, or of an array whose columns have names.

    Parameters
    ----------
    X : DataFrame, array or sparse matrix
        The table.
    names : sequence of str, optional
        Names of the columns of an array.
    read : mapping of str to dict, optional
        What is known of columns: what the user said, the formats of dates.
    gaps : bool, default=False
        Whether NaN may stay.
    codes : bool, default=False
        Whether a category becomes one column of codes.
    sparse : bool, default=False
        Whether the numbers may be a sparse matrix. Otherwise categories of a large table get fewer columns.
    """
    frame = frame_of(X)
    if frame is None:
        if not names or hasattr(X, "tocsr"):
            return [{"name": str(name), "kind": "number"} for name in names or ()]
        frame = _as_frame(X, names)
    frame, found = typed(frame, {**(read or {})})
    read = {**(read or {}), **found}
    kinds = _kinds(frame, read)
    mixed = any(kind in ("date", "category", "text") for kind, _ in kinds.values())
    columns = [
        _learned(frame[c], str(c), kinds[str(c)], read.get(str(c), {}), mixed, gaps, codes)
        for c in frame.columns
    ]
    return columns if sparse or codes else _narrowed(frame, columns)


def unused_columns(frame: Any, read: Mapping[str, Reading] | None = None) -> list[Reading]:
    """Return the columns of a frame that are left out, and why."""
    frame, found = typed(frame, {**(read or {})})
    kinds = _kinds(frame, {**(read or {}), **found})
    return [
        {"name": name, "kind": kind, "why": why} for name, (kind, why) in kinds.items() if kind in LEFT_OUT
    ]


def _kinds(frame: Any, read: Mapping[str, Reading]) -> dict[str, tuple[str, str]]:
    """Return what each column of a typed frame is, and why it is left out if it is."""
    measured = _measured(frame)
    kinds = {
        str(c): ("number", "")
        if c in measured and not read.get(str(c))
        else kind_of(frame[c], read.get(str(c), {}))
        for c in frame.columns
    }
    for name, first in _copies(frame, kinds).items():
        if not read.get(name, {}).get("told"):
            kinds[name] = ("duplicate", f"the same as {first}")
    return kinds


def _measured(frame: Any) -> set[Any]:
    """Return the columns that can be nothing but numbers, found all at once: floats that differ, some of them no integers."""
    floats = [i for i, dtype in enumerate(frame.dtypes) if dtype == np.float64]
    if len(floats) < _MANY or not len(frame):
        return set()
    values = frame.iloc[:, floats].to_numpy()
    with np.errstate(invalid="ignore"):
        differ = np.fmax.reduce(values, 0) > np.fmin.reduce(values, 0)
        parts = ((values != np.round(values)) & ~np.isnan(values)).any(0)
    return {frame.columns[i] for i, one in zip(floats, differ & parts) if one}


def _narrowed(frame: Any, columns: list[Reading]) -> list[Reading]:
    """Return the columns with fewer values of each category, if an array of all of them would be large."""
    wide = {c["name"]: len(headings(c)) for c in columns if c["kind"] == "category"}
    rest = sum(len(headings(c)) for c in columns if c["kind"] not in ("category", *LEFT_OUT))
    spare = max(LARGE, CELL * len(frame) * frame.shape[1]) // (8 * max(1, len(frame))) - rest
    if sum(wide.values()) <= spare:
        return columns
    fits = (most for most in range(MOST, 1, -1) if sum(min(w, most + 2) for w in wide.values()) <= spare)
    most = next(fits, 1)  # and one column each for gaps and for others
    by_name = {str(c): c for c in frame.columns}
    return [
        {"name": c["name"], **learn_category(frame[by_name[c["name"]]], most=most)}
        if wide.get(c["name"], 0) > most + 2
        else c
        for c in columns
    ]


def _learned(
    column: Any, name: str, kind: tuple[str, str], how: Reading, mixed: bool, gaps: bool, codes: bool
) -> Reading:
    if kind[0] in LEFT_OUT:
        return {"name": name, "kind": kind[0], "why": kind[1]}
    if kind[0] == "number":
        return {"name": name, **learn_number(column, how, scale=mixed, fill=not gaps)}
    if kind[0] == "category":
        return {"name": name, **learn_category(column, codes)}
    return {"name": name, **(learn_date(column, how) if kind[0] == "date" else learn_text(column))}


def fit_columns(
    X: Any,
    names: Any,
    y: Any = None,
    target: str | None = None,
    read: Any = None,
    gaps: bool = False,
    sparse: bool = False,
) -> tuple[list[Reading], Any]:
    """Return how the columns are read, and the table as numbers to fit a model to.

    With ``target`` ("classes" or "numbers"), categories of many values get their mean targets; those of the fitted
    rows are cross-fitted. With ``sparse`` a large table of categories is a CSR matrix.
    """
    columns = learn_columns(X, names, read, gaps, sparse=sparse)
    frame = frame_of(X) if frame_of(X) is not None else _as_frame(X, names)
    fitted = fit_targets(frame, columns, y, target)
    return columns, numbers_of(frame, columns, "fit", fitted, sparse)


def fit_targets(frame: Any, columns: list[Reading], y: Any, target: str | None) -> dict[str, np.ndarray]:
    """Add mean targets to categories of many values, and return those of the rows of the fit, cross-fitted."""
    if target is None or y is None or len(y) != len(frame):
        return {}
    by_name = frame.set_axis([str(c) for c in frame.columns], axis=1)
    return mean_targets(by_name, columns, np.asarray(y), target)


def left_out(columns: list[Reading], owner: str) -> str:
    """Return a sentence about the columns that are left out, or nothing."""
    parts = [
        f"{c['name']!r} ({c['kind']}: {c['why']})"
        for c in columns
        if c["kind"] in LEFT_OUT and c["why"] != "as told"
    ]
    if not parts:
        return ""
    shown = ", ".join(parts[:5]) + (f" and {len(parts) - 5} more" if len(parts) > 5 else "")
    return f"{owner}: left out {shown}. To keep a column, say what it is: --column NAME=number or load(..., columns=)."


def plain_columns(columns: Any) -> list[Reading]:
    """Return what was learned, read from JSON, with its arrays; raise unless it is of that form."""
    arrays = ("means", "mean", "scale", "idf", "components")
    if isinstance(columns, list) and all(isinstance(column, dict) for column in columns):
        columns = [
            {k: np.array(v, dtype=float) if k in arrays and isinstance(v, list) else v for k, v in c.items()}
            for c in columns
        ]
        for column in columns:
            if "components" in column:
                column["components"] = column["components"].reshape(-1, len(column["words"]))
    shapes.check({"columns": shapes.Columns()}, {"columns": columns}, "the reading")
    return list(columns)


# --- repeated --------------------------------------------------------------------------------------------


def numbers_of(
    frame: Any,
    columns: list[Reading],
    owner: str = "load",
    fitted: Mapping[str, np.ndarray] | None = None,
    sparse: bool = False,
) -> Any:
    """Return the columns of a frame as a 2-D array of numbers, read as was learned.

    With ``sparse`` it is a CSR matrix where an array would be large and mostly zeros.
    """
    by_name = {str(name): i for i, name in enumerate(frame.columns)}
    kept = [column for column in columns if column["kind"] not in LEFT_OUT]
    if not kept:
        first = columns[0]
        got = f"{len(columns)} that are left out ({first['name']!r}: {first['kind']}, {first['why']})"
        do = "Say what a column is: --column NAME=category, or load(..., columns=)."
        raise errors.value(owner, "some column must be of use", got, do)
    missing = [column["name"] for column in kept if column["name"] not in by_name]
    if missing:
        must = f"the data must have the columns of the fit; {missing[0]!r} is missing"
        raise errors.value(owner, must, ", ".join(by_name), "Name the columns as in the fit.")
    widths = [len(headings(column)) for column in kept]
    if sparse and _mostly_zeros(len(frame), kept, widths):
        parts = (
            (frame.iloc[:, by_name[how["name"]]], how, owner, (fitted or {}).get(how["name"])) for how in kept
        )
        return _thin(len(frame), parts, [slots(how) for how in kept], widths)
    out = np.empty((len(frame), sum(widths)))
    floats = _floats(frame, kept, by_name)
    for i, (width, end) in enumerate(zip(widths, np.cumsum(widths))):
        how = kept[i]
        name = how["name"]
        if name in floats:
            out[:, end - width : end] = number_columns(floats[name], how)
        else:
            column = frame.iloc[:, by_name[name]]
            out[:, end - width : end] = _read(column, how, owner, (fitted or {}).get(name))
    return out


def _floats(frame: Any, kept: list[Reading], by_name: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the columns of numbers that are floats already, taken from the frame at once."""
    dtypes = [*frame.dtypes]
    names = [c["name"] for c in kept if c["kind"] == "number" and dtypes[by_name[c["name"]]] == np.float64]
    if len(names) < _MANY:
        return {}
    values = frame.iloc[:, [by_name[name] for name in names]].to_numpy()
    values = np.where(np.isinf(values), np.nan, values)
    return dict(zip(names, np.ascontiguousarray(values.T)))


def table_of(numbers: Any, columns: list[Reading]) -> Any:
    """Return numbers, such as what a generator draws, as a data frame with the columns of the table that was learned from.

    Categories get the value whose number is largest, dates and numbers their units; columns that were left out stay out.

    Examples
    --------
    >>> import pandas as pd
    >>> from corollary.data import encoder, table_of
    >>> frame = pd.DataFrame({"height": [1.0, 3.0], "colour": ["red", "blue"]})
    >>> made = encoder().fit(frame)
    >>> table_of(made.transform(frame), made.columns_).equals(frame)
    True
    """
    import pandas as pd

    kept = [column for column in columns if column["kind"] not in LEFT_OUT]
    widths, numbers = [len(headings(column)) for column in kept], np.asarray(numbers, dtype=float)
    if numbers.ndim != 2 or numbers.shape[1] != sum(widths):
        raise errors.value(
            "table_of", f"numbers must have shape (n, {sum(widths)})", f"shape {numbers.shape}"
        )
    found: dict[str, Any] = {}
    for how, block in zip(kept, np.split(numbers, np.cumsum(widths)[:-1], axis=1)):
        made = undo(block, how)
        found |= dict(zip(headings(how), made.T)) if how["kind"] == "text" else {how["name"]: made}
    return pd.DataFrame(found)


def _mostly_zeros(n: int, kept: list[Reading], widths: list[int]) -> bool:
    """Whether an array of the columns would be large and two thirds zeros; gaps that stay need an array."""
    if 8 * n * sum(widths) <= LARGE or any(how["kind"] == "number" and "fill" not in how for how in kept):
        return False
    return 3 * sum(map(slots, kept)) <= sum(widths)


def _thin(n: int, parts: Iterable[Any], counts: list[int], widths: list[int]) -> Any:
    """Return the columns as a CSR matrix, written row by row into its own arrays."""
    from scipy.sparse import csr_matrix

    values, places = np.empty((n, sum(counts))), np.empty((n, sum(counts)), dtype=np.int32)
    for part, count, end, before in zip(parts, counts, np.cumsum(counts), np.cumsum([0, *widths])):
        column, how, owner, fitted = part
        values[:, end - count : end], inside = _read(column, how, owner, fitted, apply_sparse)
        places[:, end - count : end] = inside + before
    starts = np.arange(0, values.size + 1, sum(counts))
    made = csr_matrix((values.ravel(), places.ravel(), starts), shape=(n, sum(widths)))
    made.eliminate_zeros()
    return made


def _read(column: Any, how: Reading, owner: str, fitted: np.ndarray | None, make: Any = apply) -> Any:
    values = make(column, how, fitted)
    if how["kind"] in ("number", "date") and not is_numeric(column.dtype):
        given = keys(column)
        if given.notna().any() and np.isnan(_parsed(column, how)).all():
            must = f"column {how['name']!r} must hold {how['kind']}s, as in the fit"
            raise errors.value(owner, must, repr(given.dropna().iloc[0]))
    return values


def _parsed(column: Any, how: Reading) -> np.ndarray:
    plain = {k: v for k, v in how.items() if k in ("name", "kind", "decimal", "unit", "format")}
    if how["kind"] == "number":
        return apply(column, plain)[:, 0]
    return apply(column, {**plain, "parts": [], "fill": np.nan, "mean": 0.0, "scale": 1.0})[:, 0]


def as_columns(
    dataset: Dataset,
    columns: list[Reading],
    owner: str,
    fitted: Mapping[str, np.ndarray] | None = None,
    sparse: bool = False,
) -> Dataset:
    """Return a table with the columns that were learned, found by their names where the data have names.

    ``fitted`` are the cross-fitted mean targets of the rows of a fit; ``sparse`` is as in :func:`numbers_of`.
    """
    X, names = dataset.X, [str(name) for name in dataset.feature_names or ()]
    kept = [column for column in columns if column["kind"] not in LEFT_OUT]
    wanted = [column["name"] for column in kept]
    plain = all(
        column["kind"] == "number" and "mean" not in column and "missing" not in column for column in kept
    )
    if not names and not hasattr(X, "iloc"):
        if not (plain and X.shape[1] == len(kept)):
            must = f"the data must have the columns of the fit; {wanted[0]!r} is missing"
            raise errors.value(owner, must, "columns without names", "Name the columns as in the fit.")
    elif hasattr(X, "tocsr") or (plain and not hasattr(X, "iloc") and not np.isnan(X).any()):
        missing = [name for name in wanted if name not in names]
        if missing:
            must = f"the data must have the columns of the fit; {missing[0]!r} is missing"
            raise errors.value(owner, must, ", ".join(names), "Name the columns as in the fit.")
        X = X if names == wanted else X[:, [names.index(name) for name in wanted]]
    else:
        frame = frame_of(X)
        X = numbers_of(_as_frame(X, names) if frame is None else frame, columns, owner, fitted, sparse)
    shown = [heading for column in kept for heading in headings(column)]
    return replace(dataset, X=X, feature_names=shown or dataset.feature_names)


def _as_frame(X: Any, names: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(np.asarray(X), columns=[str(name) for name in names], copy=False)


# --- texts -----------------------------------------------------------------------------------------------


def as_counts(dataset: Dataset, words: list[str] | None) -> Dataset:
    """Return texts as a sparse matrix of word counts: of these words, or of all but rare and very common ones.

    Function words of the texts' language are left out too, as long as others are left.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    if words is not None:
        reader = CountVectorizer(vocabulary=words)
        counts = reader.fit_transform(dataset.X)
    else:
        many, language = len(dataset.X) >= 100, language_of(dataset.X)
        common = [None] if language is None else [sorted(stop_words(language)), None]
        for left_out in common:
            reader = CountVectorizer(
                min_df=2 if many else 1, max_df=0.5 if many else 1.0, stop_words=left_out
            )
            try:
                counts = reader.fit_transform(dataset.X)
                break
            except ValueError:  # nothing is left
                if left_out is None:
                    must = "texts must have words of two letters or more, not all in every second text"
                    raise errors.value("load", must, f"{dataset.name!r} without any") from None
    names = reader.get_feature_names_out().tolist()
    return replace(dataset, X=counts.astype("float64"), kind="table", feature_names=names)
