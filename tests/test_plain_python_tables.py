"""Tables in plain Python, given to estimators and boards: dicts of columns, lists of dicts, rows with words."""

from collections import namedtuple
from datetime import date

import numpy as np
import pandas as pd
import pytest

import corollary
from corollary import compare, data
from corollary.data.frames import as_frame

N = 40
SIZES = [float(i % 7) + 0.1 * (i % 3) for i in range(N)]
COLOURS = ["red" if i % 2 else "blue" for i in range(N)]
LABELS = ["big" if s + (c == "red") > 3.5 else "small" for s, c in zip(SIZES, COLOURS)]
FRAME = pd.DataFrame({"size": SIZES, "colour": COLOURS})
ROWS = [[s, c] for s, c in zip(SIZES, COLOURS)]
Row = namedtuple("Row", ["size", "colour"])

NAMED = {
    "columns": {"size": SIZES, "colour": COLOURS},
    "arrays": {"size": np.array(SIZES), "colour": np.array(COLOURS)},
    "series": {
        "size": FRAME["size"].set_axis(range(N, 2 * N)),
        "colour": FRAME["colour"].set_axis(range(5, N + 5)),
    },
    "records": [{"size": s, "colour": c} for s, c in ROWS],
    "named tuples": [Row(*row) for row in ROWS],
    "structured": np.array([tuple(row) for row in ROWS], dtype=[("size", float), ("colour", "U5")]),
}
UNNAMED = {"rows": ROWS, "objects": np.array(ROWS, dtype=object), "strings": np.array(ROWS)}


@pytest.mark.parametrize("make", [corollary.LogisticRegression, corollary.MLPClassifier, corollary.PCA])
@pytest.mark.parametrize("form", [*NAMED, *UNNAMED])
def test_every_form_is_read_as_the_frame(make, form):
    given = {**NAMED, **UNNAMED}[form]
    frame = FRAME if form in NAMED else FRAME.set_axis(["x0", "x1"], axis=1)
    settings = {"training": corollary.Training(epochs=2)} if make is corollary.MLPClassifier else {}
    model, plain = (make(random_state=0, **settings).fit(X, LABELS) for X in (given, frame))
    ask = "predict_proba" if hasattr(model, "predict_proba") else "transform"
    np.testing.assert_array_equal(getattr(model, ask)(given), getattr(plain, ask)(frame))
    assert [c["name"] for c in model.columns_] == [*frame.columns]


def test_numbers_by_name_keep_their_names_and_new_rows_their_order():
    X = {"a": [1.0, 2.0, 3.0, 5.0], "b": [0.0, 1.0, 1.0, 4.0]}
    model = corollary.Ridge().fit(X, [1.0, 2.0, 2.5, 6.0])
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict({"a": 2.0, "b": 1.0}).shape == (1,)
    mixed = corollary.LogisticRegression().fit(NAMED["columns"], LABELS)
    both = mixed.predict([{"colour": "red", "size": 6.0}, {"size": 0.0}])  # another order, and a gap
    assert both.tolist() == ["big", "small"]


def test_gaps_in_rows_are_those_of_a_frame():
    rows = [[1.0, None], [2.0, 3.0], [3.0, 1.0], [4.0, 2.0]]
    model = corollary.Ridge().fit(rows, [1.0, 2.0, 3.0, 4.0])
    assert model.columns_[1]["missing"] and np.isfinite(model.predict(rows)).all()
    assert data.load(rows).X.shape == (4, 2)


def test_what_is_no_table_is_said_so():
    model = corollary.LogisticRegression()
    with pytest.raises(
        ValueError, match="LogisticRegression: columns must have one length; got 1 in 'b' and 3"
    ):
        model.fit({"a": [1, 2, 3], "b": [1]}, [0, 1, 1])
    with pytest.raises(TypeError, match=r"X must be .* a dict of columns; got a dict whose 'a' is no column"):
        model.fit({"a": [[1, 2], [3]]}, [0, 1])
    with pytest.raises(ValueError, match="rows of a table must have one length; got rows of 1 and of 2"):
        model.fit([[1, "a"], [2]], [0, 1])


def test_sequences_of_words_are_no_table_unless_told():
    words = [["a", "b"], ["c", "d"]]
    assert data.load(words).kind == "sequence"
    assert data.load(words, kind="table").feature_names == ["x0", "x1"]
    assert as_frame([[1.0, 2.0], [3.0, 4.0]]) is None and as_frame([["a"], ["b", "c"]], words=False) is None


def test_boards_of_plain_tables():
    options = {"systems": ["logistic"], "splits": 1, "rivals": "baselines"}
    by_name = compare({**NAMED["columns"], "label": LABELS}, target="label", **options)
    rows = compare(ROWS, LABELS, **options)
    assert by_name.rows[0]["score"] == rows.rows[0]["score"] > 0.9
    assert by_name.best.predict(NAMED["records"][:3]).shape == (3,)
    assert rows.best.predict(ROWS[:3]).shape == (3,)


def test_the_encoder_takes_them_too():
    reader = data.encoder().fit(NAMED["records"])
    np.testing.assert_array_equal(reader.transform(NAMED["columns"]), reader.transform(FRAME))


def test_a_row_of_a_frame_and_rows_with_dates():
    model = corollary.LogisticRegression().fit(FRAME, LABELS)
    assert model.predict(FRAME.iloc[6]).tolist() == model.predict(FRAME.iloc[[6]]).tolist()
    days = [[date(2024, 1, 1 + i), float(i % 6)] for i in range(20)]
    assert corollary.Ridge().fit(days, range(20)).columns_[0]["kind"] == "date"


def test_targets_that_are_none():
    model = corollary.LogisticRegression()
    with pytest.raises(ValueError, match="y must have a label for each of 40; got 1 missing, the first at 0"):
        model.fit(FRAME, [None, *LABELS[1:]])
    with pytest.raises(ValueError, match="got 1 missing, the first at 0"):
        model.fit(FRAME, pd.Series([None, *LABELS[1:]]))
    with pytest.raises(ValueError, match=r"got the string 'colour'. For a column of a frame: fit\(data.load"):
        model.fit(FRAME, "colour")
    with pytest.raises(ValueError, match="got the string 'colour'. A column is named by target='colour'"):
        compare(FRAME, "colour")
    with pytest.raises(
        TypeError, match=r"got the string 'a.csv'. Read the file first: fit\(data.load\('a.csv'"
    ):
        model.fit("a.csv", LABELS)
    with pytest.raises(TypeError, match="got an empty dict"):
        model.fit({}, [])
