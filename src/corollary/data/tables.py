"""Tables: files and frames of mixed columns as data sets.

``.csv`` and its relatives are read by :mod:`corollary.data.delimited`; strings that are numbers or dates are found by
:mod:`corollary.data.detect`; what becomes of the columns is learned by :mod:`corollary.data.columns`.
"""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.columns import LEFT_OUT, frame_of, is_numeric, learn_columns, numbers_of
from corollary.data.compressed import opened, plain_suffix
from corollary.data.dataset import Dataset, missing_file
from corollary.data.delimited import read_delimited
from corollary.data.detect import Reading, told_kinds, typed
from corollary.data.limits import allow, check_columns, current
from corollary.data.workbooks import extent, sheet

__all__ = [
    "READERS",
    "as_table",
    "encoder",
    "guess_target",
    "numeric",
    "read_database",
    "read_frame",
    "read_table",
    "with_target_only",
]

# what stands beside a value of JSON, and bytes of memory that each of these takes at least
_MARKS, _OBJECT = (b",:{[\n", 24)
_CELL = 8  # bytes of a number, or of a pointer to what is none
_FEWEST = 5  # rows of which the last can be one of sums
_WIDE = 1000  # columns above which a frame is copied into one block for each type: rows and columns are taken from it at once
_TOTALS = (
    "total", "totals", "grand total", "sum", "summe", "gesamt", "gesamtsumme", "insgesamt", "somme", "total général",
    "totale", "suma", "totaal", "итого", "всего", "合计", "合計", "总计",
)  # fmt: skip
_ANSWERS = ("yes", "no", "ja", "si", "sí", "da", "ok")  # short words, whatever their capitals


def as_table(
    frame: Any,
    name: str,
    target: Any = None,
    source: str = "",
    columns: Mapping[str, str] | None = None,
    decimal: str = ".",
) -> Dataset:
    """Return a frame as a data set: an array if every column is a number, else the frame with its types found."""
    told = told_kinds(columns, frame.columns)
    frame, read = typed(frame, told, decimal)
    rows = None
    if target is not None:
        target = _column(frame, target)
        _tell_of_namesakes(frame, target)
        known = frame[target].notna().to_numpy() & ~_endless(frame[target])
        rows = None if known.all() else with_target_only(known, name, f"a value of {str(target)!r}")
        frame = frame if rows is None else frame.iloc[rows]
    return _as_dataset(frame, name, target, source, read, rows)


def _tell_of_namesakes(frame: Any, target: Any) -> None:
    """Warn of inputs that the file calls as it calls the target: pandas has numbered all but the first."""
    others = [str(c) for c in frame.columns if re.fullmatch(rf"{re.escape(str(target))}\.\d+", str(c))]
    if others:
        leave = " ".join(f"--column {shlex.quote(c)}=ignore" for c in others)
        text = (
            f"load: several columns are called {str(target)!r}; the first is the target, and {', '.join(others)} "
            f"stay among the inputs. If they tell the same, leave them out: {leave}."
        )
        warnings.warn(text, errors.CorollaryWarning, stacklevel=5)


def _endless(column: Any) -> np.ndarray:
    """Return which numbers are infinite: no value to learn from."""
    plain = isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"
    return np.isinf(column.to_numpy()) if plain else np.zeros(len(column), dtype=bool)


def with_target_only(known: np.ndarray, name: str, what: str) -> np.ndarray:
    """Return which rows have a target, with a word about the others; raise if there are none."""
    rows, without = np.flatnonzero(known), np.flatnonzero(~known) + 1
    if not len(rows):
        raise errors.value("load", f"some row of {name or 'the data'} must have {what}", "none")
    shown = ", ".join(map(str, without[:5])) + (" and others" if len(without) > 5 else "")
    text = (
        f"load: left out {len(without)} of {len(known)} rows of {name or 'the data'} without {what}: {shown}."
    )
    warnings.warn(text, errors.CorollaryWarning, stacklevel=4)
    return rows


def _as_dataset(
    frame: Any, name: str, target: Any, source: str, read: Mapping[str, Reading], rows: Any = None
) -> Dataset:
    y = None
    if target is not None:
        target = _column(frame, target)
        y = _target_values(frame[target], str(target))
        frame = frame.drop(columns=[target])
    if frame.shape[1] == 0 or frame.shape[0] == 0:
        must = f"{name or 'the table'} must have at least one row and one column besides the target"
        raise errors.value("load", must, f"shape {frame.shape}")
    plain = all(map(is_numeric, frame.dtypes)) and not any(how.get("told") for how in read.values())
    extra: dict[str, Any] = {"columns": {**read}} if read else {}
    extra |= {"rows": rows} if rows is not None else {}
    names = [str(c) for c in frame.columns]
    X = _numbers(frame) if plain else frame.copy() if len(names) > _WIDE else frame
    return Dataset(X, y, "table", name, names, source=source, extra=extra)


def _column(frame: Any, target: Any) -> Any:
    by_text = {str(column): column for column in frame.columns}
    if str(target) not in by_text:
        raise errors.unknown("load", "column", str(target), by_text, "Pass one of them as target.")
    return by_text[str(target)]


def _target_values(column: Any, name: str) -> np.ndarray | None:
    if column.isna().any():  # of data to predict, whose rows all stay
        return None
    if is_numeric(column.dtype):
        values = np.asarray(column)
        return values if values.dtype != object else values.astype(float)
    return np.asarray(_spelled_alike(column.astype(str), name), dtype=object).astype(str)


def _spelled_alike(column: Any, name: str) -> Any:
    """Return classes whose names differ in capitals alone (``yes``, ``Yes``) under their commonest name, and say so.

    Names of one or two letters may be symbols (genotypes ``Aa`` and ``aa``): only words of :data:`_ANSWERS` are joined then.
    """
    counts = column.value_counts()
    common: dict[str, str] = {}
    for spelling in counts.index:
        common.setdefault(spelling.lower(), spelling)
    able = {low for low in common if len(low) > 2 or low in _ANSWERS}
    others = {one: common[low] for one in counts.index if (low := one.lower()) in able and common[low] != one}
    if not others:
        return column
    shown = ", ".join(f"{one!r} as {usual!r}" for one, usual in [*others.items()][:5])
    text = f"load: classes of {name!r} that differ in capitals alone count as one: {shown}."
    warnings.warn(text, errors.CorollaryWarning, stacklevel=5)
    return column.replace(others)


def _numbers(frame: Any) -> np.ndarray:
    dtype = np.float32 if all(str(d).lower() == "float32" for d in frame.dtypes) else np.float64
    # NaN is the only gap there is: no second look at all
    if all(isinstance(d, np.dtype) for d in frame.dtypes):
        return np.asarray(frame.to_numpy(dtype=dtype))
    return np.asarray(frame.to_numpy(dtype=dtype, na_value=np.nan))


def guess_target(dataset: Dataset) -> str | None:
    """Return the column that is most likely meant to be predicted: by its name, or else the last."""
    names = [str(name) for name in dataset.feature_names or ()]
    for word in (
        "target",
        "label",
        "class",
        "y",
        "outcome",
        "response",
        "churn",
        "survived",
        "price",
        "diagnosis",
    ):
        if (found := [name for name in names if name.lower() == word]) and len(names) > 1:
            return found[0]
    columns = learn_columns(dataset.X, names, dataset.extra.get("columns"), gaps=True)
    able = [c["name"] for c in columns if c["kind"] in ("number", "category")]
    return able[-1] if len(able) > 1 else None


# --- the files -------------------------------------------------------------------------------------------


def read_table(
    path: Path,
    target: str | None = None,
    columns: Mapping[str, str] | None = None,
    learned: Sequence[Reading] | None = None,
) -> Dataset:
    """Read a file as a table; with ``learned`` columns, as those of the fit: what was text there stays text."""
    if learned is None:
        as_text = [name for name, kind in (columns or {}).items() if kind in ("category", "text", "id")]
        frame, decimal = read_frame(path, as_text=as_text)
        frame = _without_total(_without_headers(frame), path.name)
        return as_table(frame, plain_stem(path), target, str(path), columns, decimal)
    as_text = [c["name"] for c in learned if c["kind"] != "number" or c.get("decimal") == ","]
    frame, _ = read_frame(path, as_text=as_text)
    return _as_dataset(frame, plain_stem(path), target, str(path), {})


def _without_headers(frame: Any) -> Any:
    """Return a frame without rows that repeat the names of all columns, as files that were joined end to end have them."""
    if frame.shape[1] < 2 or any(map(is_numeric, frame.dtypes)):  # such a row leaves no column of numbers
        return frame
    first = frame.iloc[:, 0] == str(frame.columns[0])
    again = first & (frame == [*map(str, frame.columns)]).all(axis=1) if first.any() else first
    return frame[~again].reset_index(drop=True) if again.any() else frame


def _without_total(frame: Any, name: str) -> Any:
    """Return a frame without a last row of sums, which begins with a word such as Total that no other row has; say so."""
    last: Any = (
        frame.iloc[-1].dropna() if len(frame) > _FEWEST and not all(map(is_numeric, frame.dtypes)) else ()
    )
    word = last.iloc[0].strip() if len(last) and isinstance(last.iloc[0], str) else ""
    if word.rstrip(" :").lower() not in _TOTALS or (frame[last.index[0]] == last.iloc[0]).sum() > 1:
        return frame
    text = f"load: left out the last row of {name}, the sums that begin with {word!r}."
    warnings.warn(text, errors.CorollaryWarning, stacklevel=5)
    return frame.iloc[:-1]


def plain_stem(path: Path) -> str:
    """Return the name of a file without its suffixes: ``sales`` for ``sales.csv.gz``."""
    return path.name[: -len(path.suffix)].removesuffix(plain_suffix(path)) or path.stem


def read_frame(path: Path, separators: Sequence[str] | None = None, as_text: Any = ()) -> tuple[Any, str]:
    """Read a file as a pandas frame; return it with its decimal sign."""
    reader = READERS.get(plain_suffix(path))
    if reader is None:
        options = {"separators": separators} if separators else {}
        frame, dialect = read_delimited(path, as_text=as_text, **options)
        return frame, dialect.decimal
    frame = reader(path)
    if frame.empty:
        raise errors.value("load", f"{path.name} must have at least one row", f"shape {frame.shape}")
    return frame, "."


def _read_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise errors.missing("load", "pyarrow", "parquet") from error
    import pandas as pd

    facts = _guarded(lambda: pyarrow.parquet.read_metadata(path), path, "a Parquet file")
    unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
    check_columns(path.name, facts.num_columns)
    allow(path.name, unpacked + 8 * facts.num_rows * facts.num_columns, of=path.stat().st_size)
    if (repeated := _guarded(lambda: _repeated(path, facts), path, "a Parquet file")) is not None:
        allow(path.name, repeated, of=0)
    return _unnested(_guarded(lambda: pd.read_parquet(path), path, "a Parquet file"), path)


def _unnested(frame: Any, path: Path) -> Any:
    """Return a frame with columns ``a.b`` for the fields of records, and ``a.0``, ``a.1`` for lists of equally many numbers."""
    import pandas as pd

    parts, nested = [], False
    for name in frame.columns:
        inner = _inner(frame[name])
        nested = nested or inner is not None
        parts.append(frame[name] if inner is None else inner.add_prefix(f"{name}."))
    if not nested:
        return frame
    _check_size(path, len(frame), sum(part.shape[1] if part.ndim == 2 else 1 for part in parts))
    return pd.concat(parts, axis=1)


def _inner(column: Any) -> Any:
    """Return the frame that a column of records or of lists of numbers is, or None."""
    import pandas as pd

    known = column.dropna() if column.dtype == object else column[:0]
    if not len(known):
        return None
    if all(isinstance(value, dict) for value in known):
        records = [value if isinstance(value, dict) else {} for value in column]
        return pd.json_normalize(records).set_axis(column.index)
    if not all(isinstance(value, np.ndarray | list) for value in known):
        return None
    rows = (
        [np.asarray(value) for value in known] if len({*map(len, known)}) == 1 and len(known.iloc[0]) else []
    )
    if not rows or any(row.ndim != 1 or row.dtype.kind not in "iuf" for row in rows):
        return None
    return pd.DataFrame(np.stack(rows), index=known.index).reindex(column.index)


def _repeated(path: Path, facts: Any) -> int | None:
    """Return the bytes of a file's strings, each of which it may hold once for many rows; None if they cannot be many."""
    import pyarrow.compute as pc
    import pyarrow.parquet

    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    parts = [group.column(j) for group in groups for j in range(group.num_columns)]
    text = [part for part in parts if part.physical_type == "BYTE_ARRAY"]
    if sum(part.num_values * part.total_uncompressed_size for part in text) < current().bytes:
        return None  # though every row were as long as all of them
    names = sorted({part.path_in_schema for part in text if "." not in part.path_in_schema})
    table = pyarrow.parquet.read_table(path, columns=names, read_dictionary=names)
    chunks = [chunk for column in table.columns for chunk in column.chunks if hasattr(chunk, "indices")]
    lengths = (pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() for chunk in chunks)
    return sum(length or 0 for length in lengths)


def _read_excel(path: Path) -> Any:
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise errors.missing("load", "openpyxl", "excel") from error
    import zipfile

    with _guarded(lambda: zipfile.ZipFile(path), path, "an Excel workbook") as archive:
        allow(path.name, 8 * sum(part.file_size for part in archive.infolist()), of=path.stat().st_size)
        rows, columns = _guarded(lambda: extent(archive), path, "an Excel workbook")
    _check_size(path, rows, columns)
    return _guarded(lambda: sheet(path), path, "an Excel workbook")


def _read_json_lines(path: Path) -> Any:
    with opened(path, _MARKS, _OBJECT) as file:
        return _records(lambda: [json.loads(line) for line in file if line.strip()], path)


def _read_json(path: Path) -> Any:
    def records() -> Any:
        with opened(path, _MARKS, _OBJECT) as file:
            return json.load(file)

    return _records(records, path)


def _records(read: Callable[[], Any], path: Path) -> Any:
    """Return records (a list of objects, or an object of lists) as a frame; objects in objects become columns ``a.b``."""
    import pandas as pd

    found = _guarded(read, path, "JSON: one object per line, or a list of objects")
    if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
        _check_size(path, len(found), len(set().union(*map(_names, found))))
        return _unnested(pd.json_normalize(found), path)
    if (
        isinstance(found, dict)
        and found
        and all(isinstance(column, list | dict) for column in found.values())
    ):
        named = [column for column in found.values() if isinstance(column, dict)]
        _check_size(path, len(set().union(*named)), len(found))
        return _guarded(lambda: pd.DataFrame(found), path, "JSON with columns of one length")
    do = 'Write one object per line, such as {"width": 1.5, "kind": "small"}.'
    raise errors.value("load", f"{path.name} must hold records", type(found).__name__, do)


def _names(record: Mapping[str, Any], above: str = "") -> set[str]:
    """Return the columns that a record fills, those of objects in it included."""
    found: set[str] = set()
    for key, value in record.items():
        found |= _names(value, f"{above}{key}.") if isinstance(value, dict) and value else {f"{above}{key}"}
    return found


def _check_size(path: Path, rows: int, columns: int) -> None:
    """Raise if the cells of a table, which a file may leave out, are more than the bounds allow."""
    check_columns(path.name, columns)
    allow(path.name, _CELL * rows * columns, of=path.stat().st_size)


def _guarded(read: Callable[[], Any], path: Path, what: str) -> Any:
    try:
        return read()
    except errors.Refused:
        raise
    except Exception as error:  # whatever the bytes make the reader raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160].rstrip(".")
        raise errors.value("load", f"{path.name} must be {what}", got) from error


READERS: dict[str, Callable[[Path], Any]] = {
    ".json": _read_json,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".xlsm": _read_excel,
    ".xlsx": _read_excel,
}


def read_database(url: str, target: str | None, columns: Mapping[str, str] | None) -> Dataset:
    """Read a table of a database, ``sqlite:///shop.db#customers``, or what a query after the # selects."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise errors.missing("load", "sqlalchemy", "database") from error
    import pandas as pd

    address, _, what = url.partition("#")
    file = Path(
        address.removeprefix("sqlite:///").partition("?")[0] if address.startswith("sqlite:///") else ""
    )
    if not file.exists():  # SQLite would make one
        raise missing_file("load", "the database must be a file that exists", repr(str(file)))
    try:
        engine = sqlalchemy.create_engine(address)
        tables = sqlalchemy.inspect(engine).get_table_names()
    except Exception as error:  # whatever the address or the server makes the driver raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        raise errors.value(
            "load", "the address must open a database", got, "As in sqlite:///shop.db#customers."
        ) from error
    if not tables:
        raise errors.value("load", f"{address} must hold a table", "none")
    if not what and len(tables) == 1:
        what = tables[0]
    if what not in tables and " " not in what.strip():
        do = f"Write it after the address: {address}#{tables[0]}."
        raise errors.unknown("load", "table", what, tables, do)
    try:
        frame = pd.read_sql(what if what in tables else sqlalchemy.text(what), engine)
    except Exception as error:
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        raise errors.value("load", "the query must select rows", got) from error
    finally:
        engine.dispose()
    return as_table(frame, what if what in tables else "query", target, address, columns)


# --- mixed columns as numbers ----------------------------------------------------------------------------


def encoder(*, columns: dict[str, str] | None = None, gaps: bool = False) -> Any:
    """Return an unfitted scikit-learn transformer that makes mixed columns numbers, as every estimator here does.

    ``columns`` says what some of them are, ``gaps`` whether NaN may stay; see
    :class:`corollary.data.table_encoder.TableEncoder`.
    """
    from corollary.data.table_encoder import TableEncoder

    return TableEncoder(columns, gaps)


def numeric(frame: Any) -> np.ndarray:
    """Return a frame of mixed columns as a 2-D array of numbers; see :mod:`corollary.data.encodings`.

    >>> import pandas as pd
    >>> numeric(pd.DataFrame({"height": [1.0, 3.0], "colour": ["red", "blue"]}))
    array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]])
    """
    frame = frame_of(frame)
    columns = learn_columns(frame, None)
    return numbers_of(frame, [c for c in columns if c["kind"] not in LEFT_OUT] or columns)
