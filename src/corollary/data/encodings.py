"""What becomes of one column: numbers, dates, categories and texts as columns of numbers, learned and then repeated.

==========  ==============================================================================================
number      as it is; where a model cannot take gaps, they get the median and a column that says so
date        seconds, and the sine and cosine of month, weekday and hour where these differ
category    a column of zeros and ones for each of the :data:`MOST` commonest values (of fewer, where an array of
            all would be large) and one for all others; with a target and more values than that, also the mean
            target of each value; or one column of codes (``codes=True``), for trees that split sets of values
text        tf-idf weights of words, projected onto their first singular vectors
==========  ==============================================================================================

The mean targets of the rows that are fitted come from the other folds (cross-fitting), so that a value that occurs
once does not give its target away. What is learned is a dict of plain values and arrays.

A model that takes sparse matrices gets its zeros and ones without the zeros, if an array of all would be large.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from corollary.data.detect import Reading, dates, numbers, stripped, written

__all__ = [
    "MOST",
    "apply",
    "apply_sparse",
    "headings",
    "learn_category",
    "learn_date",
    "learn_number",
    "learn_text",
    "mean_targets",
    "number_columns",
    "slots",
    "undo",
]

CODES = 254  # values of a category that scikit-learn's boosting takes as codes
MOST = 30  # values of a category that get a column of their own
_WORDS, _TOPICS = 2000, 30  # of a column of text
_CYCLES = {"month": 12, "day_of_week": 7, "hour": 24}


def learn_number(column: Any, how: Reading, scale: bool, fill: bool) -> Reading:
    """Return how to fill and to scale a column of numbers."""
    values = numbers(column, how).to_numpy()
    found: Reading = {"kind": "number", **{k: how[k] for k in ("decimal", "unit") if k in how}}
    if fill:
        found["fill"] = _median(values)
        found |= {"missing": True} if np.isnan(values).any() else {}
    return found | (_scaling(values) if scale else {})


def learn_date(column: Any, how: Reading) -> Reading:
    """Return which parts of the dates of a column differ, and their scale."""
    parsed, how = dates(column, how)
    varying = [part for part in _CYCLES if getattr(parsed.dt, part).nunique() > 1]
    values = _seconds(parsed)
    found = {"kind": "date", **{k: how[k] for k in ("format",) if k in how}, "parts": varying}
    return {**found, "fill": _median(values), **_scaling(values)}


def learn_category(column: Any, codes: bool = False, most: int = MOST) -> Reading:
    """Return the ``most`` commonest values of a category; a gap is one more of them, the last."""
    counts = keys(column).value_counts()
    if codes:
        return {"kind": "category", "values": sorted(map(str, counts.index[:CODES])), "codes": True}
    if len(counts) > most:
        enough = max(2, len(column) // 500)
        common = counts[counts >= enough].index[:most]
    else:
        common = counts.index
    values: list[str | None] = [*sorted(map(str, common))]
    return {
        "kind": "category",
        "values": [*values, None] if column.isna().any() else values,
        **({"other": bool(len(common))} if len(counts) > len(common) else {}),
    }


def learn_text(column: Any) -> Reading:
    """Return the words of a column of text, their weights and the directions they are projected onto."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = column.fillna("").astype(str)
    many = len(texts) >= 100
    reader = TfidfVectorizer(
        max_features=_WORDS, min_df=2 if many else 1, sublinear_tf=True, dtype=np.float32
    )
    try:
        weights = reader.fit_transform(texts)
    except ValueError:  # no word occurs twice
        return {"kind": "text", "words": [], "idf": np.zeros(0), "components": np.zeros((0, 0))}
    width = min(_TOPICS, weights.shape[1] - 1, weights.shape[0] - 1)
    if width < 1:
        components = np.eye(weights.shape[1], dtype=np.float32)
    else:
        components = TruncatedSVD(width, random_state=0).fit(weights).components_
    spread = float(np.sqrt(np.mean(np.asarray(weights @ components.T) ** 2))) or 1.0
    words = reader.get_feature_names_out().tolist()
    return {
        "kind": "text",
        "words": words,
        "idf": reader.idf_.astype(np.float64),
        "components": (components / spread).astype(np.float32),
    }


def mean_targets(frame: Any, columns: list[Reading], y: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """Add the mean target of every value to categories of many values; return those of the fitted rows, cross-fitted.

    ``kind`` is ``"classes"`` or ``"numbers"``. The shrinkage towards the overall mean is scikit-learn's empirical Bayes.
    """
    from sklearn.preprocessing import TargetEncoder

    many = [column for column in columns if column["kind"] == "category" and "other" in column]
    classes = len(np.unique(y)) if kind == "classes" else 0
    if not many or len(y) < 20 or classes > MOST or y.ndim != 1:
        return {}
    target = "continuous" if kind == "numbers" else ("binary" if classes == 2 else "multiclass")
    found = {}
    for column in many:
        values = keys(frame[column["name"]]).fillna("").to_numpy(dtype=object)[:, None]
        encoder = TargetEncoder(target_type=target, random_state=0, cv=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes with fewer members than folds
            found[column["name"]] = encoder.fit_transform(values, y)
        column["levels"] = [str(level) for level in encoder.categories_[0]]
        column["means"] = np.column_stack(encoder.encodings_).astype(np.float64)
        column["mean"] = np.atleast_1d(encoder.target_mean_).astype(np.float64)
        column["scale"] = np.where(spread := found[column["name"]].std(0), spread, 1.0)
    return found


# --- applied ---------------------------------------------------------------------------------------------


def apply(column: Any, how: Reading, fitted: np.ndarray | None = None) -> np.ndarray:
    """Return a column as an array (n, width), read as was learned; ``fitted`` are its cross-fitted mean targets."""
    if how["kind"] == "number":
        return number_columns(numbers(column, how).to_numpy(), how)
    if how["kind"] == "date":
        return _date(dates(column, how)[0], how)
    if how["kind"] == "text":
        return _text(column, how)
    return _category(column, how, fitted)


def headings(how: Reading) -> list[str]:
    """Return the names of the columns of numbers that a column becomes."""
    name, kind = how["name"], how["kind"]
    if kind == "number":
        return [name] + [f"{name} is missing"] * ("missing" in how)
    if kind == "date":
        return [name] + [f"{name} {part} {wave}" for part in how["parts"] for wave in ("sin", "cos")]
    if kind == "text":
        return [f"{name} topic {i}" for i in range(how["components"].shape[0])]
    if "codes" in how:
        return [name]
    shown = [f"{name} is missing" if value is None else f"{name}={value}" for value in how["values"]]
    shown += [f"{name}=other"] * how.get("other", False)
    means = how["means"].shape[1] if "means" in how else 0
    return shown + [f"{name} mean target" + (f" {i}" if means > 1 else "") for i in range(means)]


def undo(block: np.ndarray, how: Reading) -> Any:
    """Return what numbers (n, width) stand for: numbers in their own units, dates, the nearest category; gaps where they say so.

    Words cannot be had back from topics, which are returned as they are, (n, topics).
    """
    if how["kind"] == "text":
        return block
    if how["kind"] == "category":
        return _nearest(block, how)
    values = block[:, 0] * how.get("scale", 1.0) + how.get("mean", 0.0)
    if how["kind"] == "date":
        return values.round().astype("datetime64[s]")
    rounded = np.array([float(f"{value:.12g}") for value in values])  # 37, not 37.000000000000004
    return np.where(block[:, 1] >= 0.5, np.nan, rounded) if "missing" in how else rounded


def _nearest(block: np.ndarray, how: Reading) -> np.ndarray:
    """Return the value whose column is largest; "other" stands for all that have no column."""
    values = np.array([*how["values"], *["other"] * how.get("other", False)], dtype=object)
    if "codes" not in how:
        return values[block[:, : len(values)].argmax(1)]
    known = np.isfinite(block[:, 0])
    codes = np.where(known, block[:, 0], 0).round().astype(int).clip(0, len(values) - 1)
    found: np.ndarray = values[codes]
    found[~known] = None
    return found


def number_columns(values: np.ndarray, how: Reading) -> np.ndarray:
    """Return numbers (n,) as columns (n, width): filled and scaled as was learned, and which were missing."""
    missing = np.isnan(values)
    filled = np.where(missing, how["fill"], values) if "fill" in how else values
    if "mean" in how:
        filled = (filled - how["mean"]) / how["scale"]
    return np.column_stack([filled, missing]) if "missing" in how else filled[:, None]


def _date(parsed: Any, how: Reading) -> np.ndarray:
    values = _seconds(parsed)
    missing = np.isnan(values)
    parts = [(np.where(missing, how["fill"], values) - how["mean"]) / how["scale"]]
    for part in how["parts"]:
        angle = getattr(parsed.dt, part).to_numpy(dtype=float) * (2 * np.pi / _CYCLES[part])
        parts += [np.where(missing, 0.0, wave(angle)) for wave in (np.sin, np.cos)]
    return np.column_stack(parts)


def _category(column: Any, how: Reading, fitted: np.ndarray | None) -> np.ndarray:
    """Return zeros and ones; a value that was not met in the fit is one of the others, or gives zeros."""
    given = keys(column)
    codes, width = _places(given, how)
    if "codes" in how:  # gaps, and values that were not met in the fit, are missing
        return np.where(codes < 0, np.nan, codes)[:, None]
    shown = np.zeros((len(column), width))
    rows = np.flatnonzero(codes >= 0)
    shown[rows, codes[rows]] = 1.0
    return np.column_stack([shown, *_scaled_means(given, how, fitted)])


def slots(how: Reading) -> int:
    """Return how many entries a row of a column has if zeros of a category are left out."""
    if how["kind"] != "category" or "codes" in how:
        return len(headings(how))
    return 1 + (how["means"].shape[1] if "means" in how else 0)


def apply_sparse(
    column: Any, how: Reading, fitted: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return what :func:`apply` does without the zeros of a category: entries (n, slots), and the columns they stand in."""
    if how["kind"] != "category" or "codes" in how:
        values = apply(column, how, fitted)
        return values, np.broadcast_to(np.arange(values.shape[1], dtype=np.int32), values.shape)
    given = keys(column)
    codes, width = _places(given, how)
    means = _scaled_means(given, how, fitted)
    values = np.column_stack([codes >= 0, *means]).astype(float)
    further = np.arange(width, width + values.shape[1] - 1)
    return values, np.column_stack([codes.clip(0), np.broadcast_to(further, (len(codes), len(further)))])


def _places(given: Any, how: Reading) -> tuple[np.ndarray, int]:
    """Return the column of the one in each row (-1: zeros only), and the number of columns."""
    import pandas as pd

    known = [value for value in how["values"] if value is not None]
    codes = pd.Index(known, dtype=object).get_indexer(given.to_numpy(dtype=object))
    if "codes" in how:
        return codes, 1
    codes = np.where(given.isna(), len(known) if None in how["values"] else -1, codes)
    other = how.get("other", False)  # absent: no others; False: others, but no column for them
    width = len(how["values"]) + other
    return np.where((codes < 0) & given.notna() & other, width - 1, codes), width


def _scaled_means(given: Any, how: Reading, fitted: np.ndarray | None) -> list[np.ndarray]:
    """Return the mean targets of a category of many values, in a list that is empty if there are none."""
    if "means" not in how:
        return []
    means = fitted if fitted is not None else _means(given, how)
    return [(means - how["mean"]) / how["scale"]]


def _means(given: Any, how: Reading) -> np.ndarray:
    import pandas as pd

    codes = pd.Index(how["levels"], dtype=object).get_indexer(given.fillna("").to_numpy(dtype=object))
    return np.where((codes >= 0)[:, None], np.asarray(how["means"])[codes], how["mean"])


def _text(column: Any, how: Reading) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not how["words"]:
        return np.zeros((len(column), 0))
    reader = TfidfVectorizer(vocabulary=how["words"], sublinear_tf=True, dtype=np.float32)
    reader.idf_ = np.asarray(how["idf"])
    weights = reader.transform(column.fillna("").astype(str))
    return np.asarray(weights @ np.asarray(how["components"]).T, dtype=np.float64)


def keys(column: Any) -> Any:
    """Return the values of a category as strings, gaps as NaN; 2.0 and 2 are one value."""
    import pandas as pd

    if isinstance(column.dtype, pd.StringDtype):
        return stripped(column)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    return stripped(column.map(written, na_action="ignore").astype("str"))


def _seconds(parsed: Any) -> np.ndarray:
    values = parsed.to_numpy().astype("datetime64[s]")
    return np.where(np.isnat(values), np.nan, values.astype(np.float64))


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def _scaling(values: np.ndarray) -> dict[str, float]:
    filled = np.where(np.isnan(values), _median(values), values)
    return {"mean": float(filled.mean()), "scale": float(filled.std()) or 1.0}
