"""Tables: the readers of CSV, TSV and Parquet, and the way from mixed columns to numbers.

A first line in which every field is a number is data, and the columns are called ``x0, x1, ...``;
otherwise it is the header. A first column without a name is the index that pandas writes, and is left
out. Empty fields, ``NA``, ``NaN`` and ``null`` are missing values.
"""

from __future__ import annotations

import csv
import io
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.columns import dates_numbers_others, is_numeric, learn_columns, numbers_of, seconds
from corollary.data.dataset import Dataset
from corollary.data.limits import allow, check_columns, current, field_error
from corollary.data.texts import decode

__all__ = ["as_table", "encoder", "numeric", "read_frame"]

_log = logging.getLogger(__name__)


def as_table(frame: Any, name: str, target: Any = None, source: str = "") -> Dataset:
    """Return a frame as a data set: an array if every column is a number, else the frame."""
    y = None
    if target is not None:
        target = _column(frame, target)
        y = _target_values(frame[target], target)
        frame = frame.drop(columns=[target])
    if frame.shape[1] == 0 or frame.shape[0] == 0:
        must = f"{name or 'the table'} must have at least one row and one column besides the target"
        raise errors.value("load", must, f"shape {frame.shape}")
    X = _numbers(frame) if all(map(is_numeric, frame.dtypes)) else frame
    return Dataset(X, y, "table", name, feature_names=[str(c) for c in frame.columns], source=source)


def _column(frame: Any, target: Any) -> Any:
    by_text = {str(column): column for column in frame.columns}
    if str(target) not in by_text:
        raise errors.unknown("load", "column", str(target), by_text, "Pass one of them as target.")
    return by_text[str(target)]


def _target_values(column: Any, target: Any) -> np.ndarray:
    missing = int(column.isna().sum())
    if missing:
        must = f"target column {str(target)!r} must have no missing values"
        raise errors.value("load", must, f"{missing} of {len(column)}", "Leave those rows out.")
    if is_numeric(column.dtype):
        values = np.asarray(column)
        return values if values.dtype != object else values.astype(float)
    return np.asarray(column.astype(str), dtype=object).astype(str)


def _numbers(frame: Any) -> np.ndarray:
    dtype = np.float32 if all(str(d).lower() == "float32" for d in frame.dtypes) else np.float64
    return np.asarray(frame.to_numpy(dtype=dtype, na_value=np.nan))


# ------------------------------------------------------------------------------------- the files


def read_frame(path: Path, separators: Sequence[str] = (",", ";", "\t")) -> Any:
    """Read a file as a pandas frame; the separator is the first of these in its first line."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    text = decode(path)
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    if not first:
        raise errors.value("load", f"{path.name} must have at least one row", "an empty file")
    separator = "\t" if path.suffix.lower() in (".tsv", ".tab") else _separator(first, separators)
    if separator == "::":
        text, separator = text.replace("::", "\t"), "\t"
    elif separator == " ":
        text, separator = "\n".join("\t".join(line.split()) for line in text.splitlines()), "\t"
    return _parse(text, separator, path.name)


def _separator(line: str, separators: Sequence[str]) -> str:
    return next((s for s in separators if s in line.strip()), ",")


def _read_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise errors.missing("load", "pyarrow", "parquet") from error
    import pandas as pd

    try:
        facts = pyarrow.parquet.read_metadata(path)
    except Exception as error:  # whatever the bytes make pyarrow raise
        raise errors.value("load", f"{path.name} must be a Parquet file", _short(error)) from error
    unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
    allow(path.name, unpacked + 8 * facts.num_rows * facts.num_columns, of=path.stat().st_size)
    try:
        frame = pd.read_parquet(path)
    except Exception as error:  # whatever the bytes make pyarrow raise
        raise errors.value("load", f"{path.name} must be a Parquet file", _short(error)) from error
    if frame.empty:
        raise errors.value("load", f"{path.name} must have at least one row", f"shape {frame.shape}")
    return frame


def _parse(text: str, separator: str, name: str) -> Any:
    import pandas as pd

    first = _check_widths(text, separator, name)
    header = None if _is_data(first) else 0
    names = [f"x{i}" for i in range(len(first))] if header is None else None
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=header,
            names=names,
            index_col=False,
            low_memory=False,
        )
    except (ValueError, OverflowError) as error:  # ParserError is a ValueError
        raise errors.value("load", f"{name} must be a table of one row per line", _short(error)) from error
    if header == 0 and not first[0].strip() and len(first) > 1:
        _log.info("load: the first column of %s has no name and is left out as an index.", name)
        frame = frame.iloc[:, 1:]
    if frame.empty:
        raise errors.value("load", f"{name} must have at least one row", "only a header")
    return frame


def _check_widths(text: str, separator: str, name: str) -> list[str]:
    """Return the first row; pandas would fill short rows and drop what long ones have too much."""
    limit = csv.field_size_limit(current().field)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        first: list[str] = []
        for row in filter(None, reader):
            if not first:
                first = row
                check_columns(name, len(first))
            if len(row) != len(first):
                must = f"every line of {name} must have {len(first)} fields, as the first"
                raise errors.value("load", must, f"{len(row)} in line {reader.line_num}")
    except csv.Error as error:
        raise field_error(name, reader.line_num) from error
    finally:
        csv.field_size_limit(limit)
    repeated = sorted(field for field, n in Counter(first).items() if n > 1)
    if repeated and not _is_data(first):
        raise errors.value(
            "load", f"the columns of {name} must have different names", f"{repeated[0]!r} twice"
        )
    return first


def _is_data(row: Sequence[str]) -> bool:
    """Whether a first line holds values: only numbers, and empty fields beside them."""
    fields = [field.strip() for field in row if field.strip()]
    try:
        return bool([float(field) for field in fields])
    except ValueError:
        return False


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160].rstrip(".")


# ----------------------------------------------------------------------------- mixed columns


def encoder(frame: Any) -> Any:
    """Return an unfitted scikit-learn transformer that makes this frame's columns numbers.

    Numbers and dates are imputed by the median and standardised; everything else becomes one column
    per category, with unknown ones all zero.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    dates, numbers, others = dates_numbers_others(frame)
    scaled = [SimpleImputer(strategy="median"), StandardScaler()]
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(FunctionTransformer(_numbers), *scaled), numbers),
            ("dates", make_pipeline(FunctionTransformer(seconds), *scaled), dates),
            ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), others),
        ]
    )


def numeric(frame: Any) -> np.ndarray:
    """Return a frame of mixed columns as a 2-D array of numbers; see :func:`encoder`.

    >>> import pandas as pd
    >>> numeric(pd.DataFrame({"height": [1.0, 3.0], "colour": ["red", "blue"]}))
    array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]])
    """
    return numbers_of(frame, learn_columns(frame, None))
