"""Files as strangers have them: totals, two rows of names, facts above the table, money, bounds, mixed dates."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor

import corollary
from corollary import compare, data
from corollary.data.columns import learn_columns
from corollary.data.detect import dates, typed
from corollary.data.tables import read_table
from corollary.errors import CorollaryWarning


def one_column(values):
    """Return a column as it is read, and how."""
    frame, read = typed(pd.DataFrame({"c": pd.Series(values, dtype="str")}))
    return frame["c"], read.get("c", {})


# --- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    ["₹ {0},{1:02d},{2:03d}", "EUR {0}{1:02d}{2:03d}", "CHF {0}{1:02d}'{2:03d}.00", "US$ {0}{1:02d},{2:03d}"],
)
def test_money_of_other_countries(write):
    parts = [(i % 9 + 1, 7 * i % 100, 31 * i % 1000) for i in range(30)]
    column, how = one_column([write.format(*part) for part in parts])
    assert how["kind"] == "number"
    assert column.tolist() == [a * 100_000 + b * 1000 + c for a, b, c in parts]


def test_a_few_bounds_are_numbers_and_many_are_classes():
    column, how = one_column(["<0.5", ">= 9"] + [f"{i / 7:.2f}" for i in range(30)])
    assert how["kind"] == "number" and column.tolist()[:2] == [0.5, 9.0]
    column, how = one_column(["<50", "≥50"] * 20)
    assert not how and set(column) == {"<50", "≥50"}


# --- dates -----------------------------------------------------------------------------------------------


def test_dates_in_two_formats():
    days = pd.date_range("2023-01-01", periods=60, freq="11D")
    texts = [day.strftime("%Y-%m-%d" if i % 3 else "%d/%m/%Y") for i, day in enumerate(days)]
    column, how = one_column(texts)
    assert how == {"kind": "date", "format": "ISO8601|%d/%m/%Y"}
    assert column.tolist() == days.tolist()
    again, _ = dates(pd.Series(["31/12/2024", "2024-12-31", "soon"]), how)
    assert again.tolist()[:2] == [pd.Timestamp("2024-12-31")] * 2 and again.isna().tolist()[2]


def test_days_and_months_in_either_order_are_no_dates():
    column, how = one_column([f"{i % 28 + 1:02d}/{i % 12 + 1:02d}/2023" for i in range(40)]
                             + [f"{i % 12 + 1:02d}/{i % 28 + 1:02d}/2023" for i in range(40)])  # fmt: skip
    assert how.get("kind") != "date"


def test_dates_of_east_asia():
    column, how = one_column([f"2023年{i % 12 + 1:02d}月{i % 28 + 1:02d}日" for i in range(30)])
    assert how["kind"] == "date" and column.iloc[13] == pd.Timestamp("2023-02-14")


# --- rows that are none ----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["Total", "SUMME:", "Grand total"])
def test_a_last_row_of_sums_is_left_out(tmp_path, word):
    path = tmp_path / "t.csv"
    path.write_text("day,units\n" + "".join(f"{i},{i * i}\n" for i in range(1, 31)) + f"{word},9455\n")
    with pytest.warns(CorollaryWarning, match="left out the last row of t.csv, the sums that begin with"):
        found = data.load(path)
    assert found.X.shape == (30, 2) and found.X[-1].tolist() == [30, 900]
    assert (
        len(read_table(path, learned=learn_columns(found.X, found.feature_names))) == 31
    )  # predict keeps all


def test_a_class_called_total_stays(tmp_path):
    (tmp_path / "t.csv").write_text("loss,units\n" + "total,1\npart,2\n" * 10 + "total,3\n")
    assert len(data.load(tmp_path / "t.csv")) == 21


def test_facts_above_the_table(tmp_path):
    body = "".join(
        f"K{i % 4};{i}.100,50;{i % 28 + 1:02d}.03.2024;{'ja' if i % 2 else 'nein'}\n" for i in range(40)
    )
    text = f"Bericht: Umsatz\nErstellt am;01.03.2024\n\nKunde;Umsatz;Datum;Gebucht\n{body}"
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    found = data.load(tmp_path / "t.csv")
    assert found.feature_names == ["Kunde", "Umsatz", "Datum", "Gebucht"]
    assert found.X["Umsatz"].iloc[1] == 1100.5 and found.X["Datum"].iloc[1] == pd.Timestamp("2024-03-02")


def test_two_rows_of_names(tmp_path):
    body = "".join(f"{'ABC'[i % 3]},{130 + i},{i / 10},{20 + i},{i}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f",Blood,,Urine,\nname,Na,K,Na,K\n{body}")
    found = data.load(tmp_path / "t.csv")
    assert found.feature_names == ["name", "Blood Na", "Blood K", "Urine Na", "Urine K"]
    np.testing.assert_array_equal(found.X["Blood Na"], np.arange(130, 150))
    (tmp_path / "u.csv").write_text("name,a,b\nNA,NA,NA\n" + body.replace(",0.", ",1.")[:0] + "x,1,2\n" * 20)
    assert data.load(tmp_path / "u.csv").feature_names == ["name", "a", "b"]  # a row of gaps holds no names


# --- classes ---------------------------------------------------------------------------------------------


def test_classes_that_differ_in_capitals_alone_are_one(tmp_path):
    words = ["Yes", "yes", "Yes ", "no", "No", "NO "] * 8 + ["Yes", "no"]
    (tmp_path / "t.csv").write_text("age,member\n" + "".join(f"{i},{w}\n" for i, w in enumerate(words)))
    with pytest.warns(
        CorollaryWarning, match="classes of 'member' that differ in capitals alone count as one"
    ):
        found = data.load(tmp_path / "t.csv", target="member")
    assert set(found.y) == {"Yes", "no"}
    genes = pd.DataFrame({"x": range(6), "g": ["AA", "Aa", "aa"] * 2})
    assert set(data.load(genes, target="g").y) == {"AA", "Aa", "aa"}


# --- what is not there -----------------------------------------------------------------------------------


def test_a_file_that_is_not_there_names_its_neighbours(tmp_path, monkeypatch):
    (tmp_path / "small.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="got 'smal.csv'. In .* there is 'small.csv'"):
        data.load("smal.csv")
    with pytest.raises(FileNotFoundError, match="There is no folder 'nowhere' either"):
        data.load("nowhere/small.csv")
    with pytest.raises(FileNotFoundError, match="Data sets with a name like it: 'iris'"):
        data.load("iriss")


def test_the_current_folder_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("some words")
    monkeypatch.chdir(tmp_path)
    assert data.load(".").name == tmp_path.name
    with pytest.raises(ValueError, match=f"{tmp_path.name} has no columns to take a target from"):
        data.load(".", target="y")


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    pytest.importorskip("sqlalchemy")
    with pytest.raises(FileNotFoundError, match="the database must be a file that exists; got '.*no.db'"):
        data.load(f"sqlite:///{tmp_path / 'no.db'}#people")
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(ValueError, match="empty.db must hold a table; got none"):
        data.load(f"sqlite:///{tmp_path / 'empty.db'}")


# --- boards ----------------------------------------------------------------------------------------------


class Slow(DummyRegressor):
    """A mean that takes its time."""

    def fit(self, X, y, sample_weight=None):
        self.clock.now += 0.7
        return super().fit(X, y)


def test_a_total_that_sufficed_is_not_said_to_be_used_up(monkeypatch):
    monkeypatch.setattr(Slow, "clock", SimpleNamespace(now=0.0), raising=False)
    monkeypatch.setattr("corollary.comparison.contest.now", lambda: Slow.clock.now)
    monkeypatch.setattr("corollary.comparison.trials.within", nullcontext)
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) / 7
    options = {"systems": [Slow()], "rivals": "none", "total_time": 1.0}
    assert compare(X, y, splits=1, **options).notes == []
    assert compare(X, y, splits=2, **options).notes == [
        "The total of 1 s was used up before all splits were done."
    ]


def test_a_board_says_what_is_left_out_and_shows_its_plot(tmp_path):
    n = 60
    frame = pd.DataFrame({"order_id": range(100, 100 + n), "shop": "Rome", "size": np.arange(n) % 7})
    frame["paid"] = np.where(frame["size"] > 3, "yes", "no")
    frame["kind"] = np.where(np.arange(n) % 2, "a", "b")
    board = compare(frame, target="paid", systems=["logistic"], splits=2, rivals="baselines")
    said = "compare: left out 'order_id' (id: 60 different values), 'shop' (constant: always Rome)"
    assert board.notes[0].startswith(said)
    board.to_html(tmp_path / "b.html")
    assert "data:image/png" in (tmp_path / "b.html").read_text()
    assert board.baseline["widths"]["accuracy"] == 0.0 or board.baseline["widths"]["accuracy"] > 1e-9


def test_a_board_says_who_was_stopped(monkeypatch):
    monkeypatch.setattr("corollary.comparison.trials.GRACE", 1000)  # on a busy machine too
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)), rng.integers(0, 2, 400)
    slow = corollary.MLPClassifier(training=corollary.Training(epochs=100_000, patience=None), random_state=0)
    board = compare(X, y, systems=[slow], splits=1, rivals="none", time_limit=0.5)
    assert board.notes == ["Stopped by the time limit and measured as they stood then: MLPClassifier."]


def test_dates_are_not_broken_into_lines():
    from corollary.reporting.pages import table_html

    page = table_html(("day", "x"), [("2024-01-31", -0.5)])
    assert "<td class=short>2024-01-31</td><td>-0.5</td>" in page


def test_importances_of_a_class_that_is_never_predicted():
    """Of rare classes all are predicted as the other one: only a measure of order sees what the model has learned."""
    from corollary.reporting.predictions import importances

    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3))
    y = np.where(rng.random(800) < 0.12 / (1 + np.exp(-1.5 * X[:, 0])), "yes", "no")
    model = corollary.LogisticRegression().fit(X, y)
    assert set(model.predict(X)) == {"no"}
    ((_, text, figure),) = importances(model, data.load(X, y=y))
    assert text.startswith("How much ROC AUC falls")
    top = max(bar.get_width() for bar in figure.axes[0].patches)
    assert top > 0.05  # balanced accuracy stays at exactly 0.5 whatever is shuffled


# --- notes, headers, names -------------------------------------------------------------------------------


def test_notes_below_the_table_are_left_out(tmp_path):
    body = "".join(f"Land{i},{i},{i * i}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"country,a,b\n{body}\nSource: World Bank\nLast updated: 2024\n")
    with pytest.warns(
        CorollaryWarning, match="left out 2 lines below the table of t.csv: 'Source: World Bank'"
    ):
        found = data.load(tmp_path / "t.csv")
    assert len(found) == 20 and found.X["b"].iloc[-1] == 361
    (tmp_path / "u.csv").write_text(f"country,a,b\n{body}torn\n{body}")
    with pytest.raises(ValueError, match="must have 3 fields, as the first; got 1 in line 22"):
        data.load(tmp_path / "u.csv")


def test_headers_of_files_that_were_joined_are_left_out(tmp_path):
    part = "a,b\n" + "".join(f"{i},{i / 4}\n" for i in range(12))
    (tmp_path / "t.csv").write_text(part * 3)
    assert data.load(tmp_path / "t.csv").X.shape == (36, 2)
    words = pd.DataFrame({"a": ["x", "a", "y"] * 4, "b": ["u", "v", "b"] * 4})
    words.to_csv(tmp_path / "u.csv", index=False)
    assert len(data.load(tmp_path / "u.csv")) == 12  # no row repeats both names


def test_names_over_several_lines_and_the_yen_of_japanese_files(tmp_path):
    (tmp_path / "t.csv").write_text('"unit\nprice", qty \n' + "1.5,2\n2.5,3\n" * 9)
    assert data.load(tmp_path / "t.csv").feature_names == ["unit price", "qty"]
    rows = "".join(f"{'東京' if i % 2 else '大阪'},\\{i * 100}\n" for i in range(1, 40))
    (tmp_path / "u.csv").write_bytes(f"都市,価格\n{rows}".encode("shift_jis"))
    assert data.load(tmp_path / "u.csv").X["価格"].tolist() == [i * 100.0 for i in range(1, 40)]
