"""Columns of strings that are numbers or dates: recognised, parsed, and parsed alike in new data.

A column is one of numbers if nearly all of its strings are, up to a sign or code of currency, per cent, one unit (``70 kg``),
separators of thousands, and :data:`~corollary.data.delimited.GAPS`; ``(5)`` and ``5-`` are negative, and a few bounds such as
``<0.5`` count as the bound. ``1,234`` counts as a thousand unless other values of the column, or the file, have a decimal
comma. A column is one of dates if one format of :data:`FORMATS` fits, or two of them (``ISO8601|%d/%m/%Y``); months may have
German, French, Spanish, Italian, Dutch or Portuguese names. Durations are numbers of seconds. What was found is kept as plain
values (``{"kind": "date", "format": "%d.%m.%Y"}``) and applied to new data as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.delimited import GAPS

__all__ = ["KINDS_OF_COLUMN", "Reading", "dates", "numbers", "stripped", "told_kinds", "typed", "written"]

# What a column can be told to be, and what becomes of it.
KINDS_OF_COLUMN = {
    "number": "a number",
    "category": "one of several values",
    "date": "a date or a time",
    "text": "words",
    "id": "names the row; left out",
    "ignore": "left out",
}
_POINT = r"[+-]?(\d+|\d{1,3}([,'  ]\d{3})+|\d{1,2}(,\d{2})+,\d{3})?(\.\d*)?([eE][+-]?\d+)?"
_COMMA = r"[+-]?(\d+|\d{1,3}([.'  ]\d{3})+)?(,\d*)?([eE][+-]?\d+)?"
_SIGNS = r"[€$£¥￥₹₩₽₺₪₫₴฿%\\\s\u00a0\u202f]+"
_MONEY = r"^(AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|MXN|NOK|PLN|Rs\.?|R\$|SEK|USD|US\$|ZAR)\s*"
_BOUND = r"^[<>≤≥~≈]=?\s*"
# Groups of digits that are no thousands: a telephone number.
_GROUPS = r"\d[\s/-]\d{1,2}(?:[^\d.,]|$)|\d[\s/-]\d{4,}|^\+\d+[\s/-]\d"
_BOUNDS = 0.3  # share of bounds above which they are classes: below 50, 50 or more
_UNIT = r"^[^A-Za-zµ°]*\d[^A-Za-zµ°]*([A-Za-zµ°][A-Za-zµ°/²³]{0,5}\.?)$"
_SCALED = r"[^A-Za-z]*\d\s*([kKmM]|[bB][nN]?)?"
MAGNITUDES = "K, M or B"  # the unit of a column of 950, 1.2K and 3M
_SAMPLE = 500  # distinct values that tell what a column may be
_ENOUGH = 0.95  # share of the values that must fit
_MARKED = 0.7  # share of numbers beside words such as unknown, if there are many different numbers
_RARER = 0.1  # share of dates that a second format must fit
_DAYS: tuple[str, ...] = (
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d.%m.%y",
    "%d/%m/%y",
)
_DAYS += (
    "%m/%d/%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d %B %Y",
    "%d. %B %Y",
    "%d. %b %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %d %Y",
)
_DAYS += (
    "%B %d %Y",
    "%a %b %d %Y",
    "%a, %d %b %Y",
    "%Y-%b-%d",
    "%Y年%m月%d日",
    "%m/%Y",
    "%b %Y",
    "%B %Y",
    "%b-%y",
    "%Y %b",
)
_HOURS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I:%M:%S %p %z", "%H:%M:%S %z")
_ZONE = re.compile(r"\s*(?:GMT|UTC)(?:([+-]\d{1,2})(?::?(\d{2}))?)?$")  # of Google's forms and BigQuery
FORMATS = ("ISO8601", "quarter", *_DAYS, *_HOURS)
_TWINS = {"%m/%d/%Y": "%d/%m/%Y", "%m-%d-%Y": "%d-%m-%Y", "%m/%d/%y": "%d/%m/%y"}
_ENGLISH = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
# As they are written in German, French, Spanish, Italian, Dutch and Portuguese, where that differs from English.
_ABROAD = (
    "januar jänner janvier enero gennaio januari janeiro", "februar février fevrier febrero febbraio februari fevereiro",
    "märz maerz mars marzo maart março", "avril abril aprile", "mai mayo maggio mei maio", "juni juin junio giugno junho",
    "juli juillet julio luglio julho", "août aout agosto augustus", "septembre septiembre settembre setembro",
    "oktober octobre octubre ottobre outubro", "novembre noviembre novembro",
    "dezember décembre decembre diciembre dicembre dezembro",
)  # fmt: skip
_SHORT = (
    "jän janv ene gen", "févr fév fevr febr", "mär mrz", "avr abr", "", "giu", "juil lug", "aoû ago", "set",
    "okt ott out", "", "dez déc dic",
)  # fmt: skip
_FULL = {
    name: i for i, names in enumerate(zip(_ENGLISH, _ABROAD)) for name in " ".join(names).lower().split()
}
_MONTHS = _FULL | {name: i for i, names in enumerate(_SHORT) for name in names.split()}
_MONTHS |= {name[:3].lower(): i for i, name in enumerate(_ENGLISH)}
_FOREIGN = re.compile(rf"(?i)\b({'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?")
_CALENDAR = (19000101, 21001231)  # days as integers
# pandas' words for columns of objects
_NUMERIC = ("integer", "floating", "decimal", "mixed-integer-float", "boolean")
_QUARTER = re.compile(r"(\d{4})[- ]?[Qq]([1-4])")
Reading = dict[str, Any]


def told_kinds(told: Mapping[str, str] | None, names: Any) -> dict[str, Reading]:
    """Return what the user says about columns as readings, or raise for a column or a kind that does not exist."""
    found = {}
    for name, kind in (told or {}).items():
        if str(name) not in {str(n) for n in names}:
            raise errors.unknown("load", "column", str(name), map(str, names))
        if kind not in KINDS_OF_COLUMN:
            do = f"A column is one of {', '.join(KINDS_OF_COLUMN)}."
            raise errors.unknown("load", "kind of column", str(kind), KINDS_OF_COLUMN, do)
        found[str(name)] = {"kind": kind, "told": True}
    return found


def typed(
    frame: Any, told: Mapping[str, Reading] | None = None, decimal: str = "."
) -> tuple[Any, dict[str, Reading]]:
    """Return a frame whose strings became numbers and dates where they are some, and how each was read."""
    told = told or {}
    readings: dict[str, Reading] = {}
    columns = {}
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, np.dtype) and dtype.kind == "f" and str(name) not in told:
            continue  # floats are what they are
        given = frame[name]
        column, how = _typed(given, told.get(str(name), {}), decimal)
        if how:
            readings[str(name)] = how
        if column is not given:
            columns[name] = column
    return (_replaced(frame, columns) if columns else frame), readings


def _replaced(frame: Any, columns: dict[Any, Any]) -> Any:
    import pandas as pd

    if 2 * len(columns) < frame.shape[1]:  # of a wide table most stay where they are
        made = frame.copy(deep=False)
        for name, column in columns.items():
            made[name] = column
        return made
    parts = [columns.get(name, frame[name]).rename(name) for name in frame.columns]
    return pd.concat(parts, axis=1)


def _typed(column: Any, told: Reading, decimal: str) -> tuple[Any, Reading]:
    from pandas.api import types

    kind = told.get("kind")
    if kind in ("category", "text", "id", "ignore"):
        return column, told
    if kind == "date" or (kind is None and _is_calendar(column)):
        return dates(column, told) if not told.get("format") else _with(dates(column, told)[0], told)
    if types.is_numeric_dtype(column.dtype) or types.is_datetime64_any_dtype(column.dtype):
        return column, told
    if str(column.dtype).startswith("timedelta"):
        return numbers(column, told), {**told, "kind": "number"}
    if str(column.dtype) == "category" or str(column.dtype).startswith("period"):
        return column, told
    column = _plain(column)
    if types.is_numeric_dtype(column.dtype) or types.is_datetime64_any_dtype(column.dtype):
        return column, told
    values = stripped(column)
    for parse in (_as_numbers, _as_dates):
        found = parse(values, decimal, bool(kind))
        if found is not None:
            return found[0], {**told, **found[1]}
    if kind == "number":
        return numbers(column, told), told
    return values, told


def _with(column: Any, how: Reading) -> tuple[Any, Reading]:
    return column, how


def _plain(column: Any) -> Any:
    """Return a column of Python objects as numbers or dates if they all are, otherwise as strings."""
    import pandas as pd

    if column.dtype != object:
        return column
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in _NUMERIC:
        return pd.to_numeric(column.astype("float64"))
    if inferred in ("datetime", "datetime64", "date"):
        return pd.to_datetime(column)
    texts = column.map(written, na_action="ignore")
    return texts.astype("str")


def written(value: Any) -> str:
    """Return a value as a string; 2.0 and 2 are one category.

    >>> written(2.0), written(np.int64(2)), written("2.0")
    ('2', '2', '2.0')
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def stripped(column: Any) -> Any:
    """Return strings without blanks around them, NaN where they stand for a gap."""
    values = column.str.strip()
    return values.mask(values.isin([*GAPS, ""]))


def _some(values: Any) -> Any:
    """Return at most :data:`_SAMPLE` distinct values, from everywhere in the column."""
    distinct = values.iloc[:: max(1, len(values) // (20 * _SAMPLE))].dropna().drop_duplicates()
    return distinct.iloc[:: max(1, len(distinct) // _SAMPLE)]


# --- numbers ---------------------------------------------------------------------------------------------


def _as_numbers(values: Any, decimal: str, told: bool) -> tuple[Any, Reading] | None:
    some = _some(values)
    unit = ""
    if not told and (some.str.contains(_BOUND).mean() > _BOUNDS or some.str.contains(_GROUPS).mean() > 0.5):
        return None
    if not len(some) or _fit(some, decimal)[0].mean() < _ENOUGH - 0.05:
        unit = _unit(some)
        if not unit or _fit(_without(some, unit), decimal)[0].mean() < _ENOUGH - 0.05:
            return None
    known = _without(values.dropna(), unit)
    if known.str.fullmatch(r"\d+").all() and known.str.fullmatch(r"0\d{2,}|\d{16,}").any():
        return None  # codes: 01234, or numbers of cards and accounts
    fits, sign = _fit(known, decimal)
    odd = known[~fits].unique()
    if not len(known) or (len(odd) and not told and not _are_markers(odd, known[fits], fits.mean())):
        return None
    how: Reading = {"kind": "number"} | ({"decimal": sign} if sign == "," else {})
    how |= {"unit": unit} if unit else {}
    how |= {"gaps": sorted(map(str, odd))} if len(odd) else {}
    return numbers(values, how), how


def _are_markers(odd: Any, rest: Any, share: float) -> bool:
    """Whether the strings that are no numbers stand for gaps (``unknown``): at most three, rare or among many numbers."""
    distinct = rest.nunique()
    return len(odd) <= 3 and (distinct >= 10 and share >= _ENOUGH or distinct >= 20 and share >= _MARKED)


def _fit(values: Any, decimal: str) -> tuple[Any, str]:
    """Return which strings are numbers, and the decimal sign that makes most of them so."""
    bare = _bare(values)
    filled = bare.str.contains(r"\d", regex=True)
    point, comma = (bare.str.fullmatch(form) & filled for form in (_POINT, _COMMA))
    many, other = (point.sum(), comma.sum()) if decimal == "." else (comma.sum(), point.sum())
    sign = decimal if many >= other else {".": ",", ",": "."}[decimal]
    return (point if sign == "." else comma), sign


def _bare(values: Any) -> Any:
    """Return strings without bounds, signs of currency and per cent, with the minus of (5), 5- and −5 in front."""
    bare = values.str.replace(_BOUND, "", regex=True).str.replace(_MONEY, "", regex=True)
    bare = bare.str.replace(_SIGNS, "", regex=True).str.replace("−", "-", regex=False)
    return bare.str.replace(r"^\(([^()-]+)\)$|^([^-]+)-$", r"-\1\2", regex=True)


def _unit(some: Any) -> str:
    """Return the unit that nearly all strings end in, after different numbers, or nothing; thousands and millions are one."""
    if len(some) < 5:
        return ""
    units = some.str.extract(_UNIT)[0].value_counts()
    if len(units) and units.iloc[0] >= _ENOUGH * len(some):
        return str(units.index[0])
    scaled = some.str.fullmatch(_SCALED).mean() >= _ENOUGH
    return MAGNITUDES if scaled and some.str.contains("[kKbB]").any() else ""  # M alone may be metres


def _without(values: Any, unit: str) -> Any:
    """Return strings without a unit; ``1.2K`` and ``3M`` as ``1.2e3`` and ``3e6``."""
    if unit != MAGNITUDES:
        return values.str.removesuffix(unit) if unit else values
    for letters, power in (("kK", "3"), ("mM", "6"), ("bB", "9")):
        values = values.str.replace(rf"\s*[{letters}][nN]?$", f"e{power}", regex=True)
    return values


def numbers(column: Any, how: Reading) -> Any:
    """Return a column as floats, read as was learned; what is no number is a gap."""
    import pandas as pd

    if column.dtype == np.float64:
        return _finite(column)
    if str(column.dtype).startswith("timedelta"):
        return column.dt.total_seconds()
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) in _NUMERIC:
        return _finite(column.astype("float64"))
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        plain = str(column.dtype) != "category"
        return _finite(column.astype("float64") if plain else pd.to_numeric(column, errors="coerce"))
    sign = how.get("decimal", ".")
    texts = column.map(str, na_action="ignore").astype("str").str.strip()
    texts = _bare(_without(texts, how.get("unit", "")))
    texts = texts.str.replace("[ '" + ("," if sign == "." else ".") + "]", "", regex=True)
    if sign == ",":
        texts = texts.str.replace(",", ".", regex=False)
    return _finite(pd.to_numeric(texts, errors="coerce").astype("float64"))


def _finite(column: Any) -> Any:
    """Return numbers with a gap where a file says that one is infinite."""
    endless = np.isinf(column.to_numpy(dtype=float))
    return column.mask(endless) if endless.any() else column


# --- dates -----------------------------------------------------------------------------------------------


def _is_calendar(column: Any) -> bool:
    """Whether integers are days such as 20240131: all of them, and several, unless the name of their column says so."""
    from pandas.api import types

    if not types.is_integer_dtype(column.dtype) or not column.iloc[:20].between(*_CALENDAR).all():
        return False
    if not column.between(*_CALENDAR).all():
        return False
    named = re.search("date|day", str(column.name).lower())  # of other numbers one in thirty is a day
    return bool((named or column.nunique() >= 10) and _parse(column.astype(str), "%Y%m%d").notna().all())


def _as_dates(values: Any, decimal: str, told: bool) -> tuple[Any, Reading] | None:
    found = _format(_some(values), decimal)
    if found is None:
        return None
    values = _in_english(values, "%B" in found) if "%b" in found.lower() else values
    parsed = _parse(values, found)
    twin = _other(found)
    if twin is not None and parsed.isna().sum() > values.isna().sum():  # the rest of the column decides
        other = _parse(values, twin)
        parsed, found = (other, twin) if other.notna().sum() > parsed.notna().sum() else (parsed, found)
    if parsed.notna().sum() < _ENOUGH * values.notna().sum():
        return None
    return parsed, {"kind": "date", "format": found}


def _format(some: Any, decimal: str) -> str | None:
    if not len(some) or not some.str.contains(r"\d").mean() > _ENOUGH or some.str.len().max() > 40:
        return None
    if some.str.fullmatch(r"[+-]?\d+([.,]\d+)?").any() or some.str.contains(r"[^\w\s.:,/+-]").mean() > 0.05:
        return None
    if some.str.contains(r"[^\W\d_]{3}").mean() > 0.5:
        some = _in_english(some, _in_full(some))
    few = some.iloc[:: max(1, len(some) // 20)]
    best, share = None, _ENOUGH
    for form in _formats(str(some.iloc[0])):
        if _parse(few, form).notna().mean() < 0.5:  # most formats end here
            continue
        fits = _parse(some, form).notna().mean()
        if fits > share or (fits == share == 1 and best is not None and _first(form, best, decimal)):
            best, share = form, fits
    return best or _two_formats(some, decimal)


def _two_formats(some: Any, decimal: str) -> str | None:
    """Return two formats of which nearly every date has one, as ``first|second``, or None."""
    few = some.sample(min(len(some), 40), random_state=0)  # two formats may take turns
    able = (form for form in _formats(str(some.iloc[0])) if _parse(few, form).notna().any())
    fits = {form: fit for form in able if (fit := _parse(some, form).notna()).mean() >= _RARER}
    pairs = [(a, b) for a, b in combinations(fits, 2) if b != _other(a)]
    share = {pair: (fits[pair[0]] | fits[pair[1]]).mean() for pair in pairs}
    best = max(
        pairs,
        key=lambda pair: (share[pair], decimal == "." and not _TWINS.keys().isdisjoint(pair)),
        default=None,
    )
    return "|".join(best) if best is not None and share[best] > _ENOUGH else None


def _other(form: str) -> str | None:
    """Return the format with days and months the other way round, or None."""
    return _TWINS.get(form) or next((a for a, b in _TWINS.items() if b == form), None)


def _formats(example: str) -> Iterator[str]:
    """Yield the formats to try, with a time of day if the example has one."""
    yield from ("ISO8601", "quarter")
    clock = re.search(r"\d:\d", example)
    if not clock:
        yield from _DAYS
        return
    yield from _HOURS
    yield from (f"{day} {hour}" for day in _DAYS for hour in _HOURS)


def _first(form: str, best: str, decimal: str) -> bool:
    """Whether a format that fits as well comes first: days before months where commas are decimal."""
    return decimal == "." and _TWINS.get(form.split(" ")[0]) == best.split(" ")[0]


def _parse(values: Any, form: str) -> Any:
    import pandas as pd

    if "|" in form:
        first, second = (_parse(values, part) for part in form.split("|"))
        return first.fillna(second)
    if form == "quarter":
        months = values.str.extract(_QUARTER)
        values = (
            months[0]
            + "-"
            + ((months[1].astype(float) - 1) * 3 + 1).astype("Int64").astype("str").str.zfill(2)
        )
        form = "%Y-%m"
    if (form == "ISO8601" or "%z" in form) and values.str.contains("GMT|UTC").any():
        values = values.str.replace(_ZONE, _offset, regex=True)
    parsed = pd.to_datetime(values, format=form, errors="coerce", utc=True)
    return parsed.dt.tz_localize(None)


def _offset(found: re.Match[str]) -> str:
    """Return a time zone as the hours and minutes that it is ahead: `` +01:00`` for GMT+1."""
    return f" {int(found[1] or 0):+03d}:{found[2] or '00'}"


def dates(column: Any, how: Reading) -> tuple[Any, Reading]:
    """Return a column as dates, in the format that was learned or the one that fits; gaps where there is none."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return (column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column), how
    if str(column.dtype).startswith("period"):
        return column.dt.to_timestamp(), how
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) in ("datetime", "date"):
        return pd.to_datetime(column), how
    texts = column.map(written, na_action="ignore").astype("str").str.strip()
    form = how.get("format") or _calendar_format(texts) or _format(_some(texts), ".")
    if form is None:
        must = f"column {str(column.name)!r} must hold dates"
        raise errors.value("load", must, repr(next(iter(texts.dropna()), "")), "Write them as 2024-01-31.")
    texts = _in_english(texts, "%B" in form) if "%b" in form.lower() else texts
    return _parse(texts, form), {**how, "kind": "date", "format": form}


def _in_english(values: Any, full: bool) -> Any:
    """Return dates with English names of months, in full or of three letters, which are the ones that pandas knows."""

    def named(found: re.Match[str]) -> str:
        name = _ENGLISH[_MONTHS[found[1].lower()]]
        return name if full else name[:3]

    plain = values.str.replace(r"(?<=\d)er\b|(?<= )de ", "", regex=True)
    return plain.str.replace(_FOREIGN, named, regex=True)


def _in_full(some: Any) -> bool:
    """Whether all months are written out."""
    words = some.str.extract(_FOREIGN)[0].str.lower().dropna()
    return bool(len(words)) and bool(words.isin([*_FULL]).all())


def _calendar_format(texts: Any) -> str | None:
    """Return the format of days written as 20240131 or of years, or None."""
    known = texts.dropna()
    for digits, form in ((8, "%Y%m%d"), (4, "%Y")):
        if len(known) and known.str.fullmatch(rf"\d{{{digits}}}").all():
            return form
    return None
