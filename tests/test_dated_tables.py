"""Tables with dates as series: which columns they are, even steps, gaps, names, and forecasts with dates."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from corollary import compare, data
from corollary.cli.app import app
from corollary.data.convert import as_input
from corollary.data.series import following
from corollary.errors import CorollaryWarning

pd = pytest.importorskip("pandas")


def written(path, dates, *columns, names=("date", "sales"), drop=()):
    """Write a CSV of dates and columns, some rows left out."""
    frame = pd.DataFrame(dict(zip(names, (dates, *columns))))
    frame.drop(index=list(drop)).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    "dates, step, after",
    [
        (pd.date_range("2020-01-01", periods=30, freq="MS"), {"unit": "month", "count": 1}, "2022-07-01"),
        (pd.date_range("2020-01-31", periods=30, freq="ME"), {"unit": "month", "count": 1}, "2022-07-31"),
        (
            pd.date_range("2020-01-01", periods=30, freq="D"),
            {"unit": "second", "count": 86400.0},
            "2020-01-31",
        ),
        (pd.bdate_range("2020-01-01", periods=30), {"unit": "weekday", "count": 1}, "2020-02-12"),
        (
            pd.date_range("2020-01-05", periods=30, freq="W"),
            {"unit": "second", "count": 604800.0},
            "2020-08-02",
        ),
        (pd.date_range("2015-01-01", periods=12, freq="QS"), {"unit": "quarter", "count": 1}, "2018-01-01"),
        (
            pd.date_range("2020-01-01", periods=30, freq="h"),
            {"unit": "second", "count": 3600.0},
            "2020-01-02T06:00:00",
        ),
    ],
)
def test_steps_of_the_calendar_are_found_and_go_on(tmp_path, dates, step, after):
    values = np.arange(len(dates)) + 0.5
    found = data.load(written(tmp_path / "a.csv", dates, values), "sequence")
    assert found.kind == "sequence" and found.extra["frequency"] == step and found.feature_names == ["sales"]
    np.testing.assert_array_equal(found.X[0][:, 0], values)
    assert str(following(found.extra["dates"][0][-1], step, 1)[0]) == after


def test_missing_steps_and_gaps_are_filled_with_a_word(tmp_path):
    dates, values = pd.date_range("2020-01-01", periods=20, freq="MS"), np.arange(20.0) ** 2
    values[3] = np.nan
    path = written(tmp_path / "a.csv", dates, values, drop=(7, 8))
    with pytest.warns(CorollaryWarning, match="3 missing values of 'a' are filled in along straight lines"):
        found = data.load(path, "sequence")
    x = found.X[0][:, 0]
    assert len(x) == 20 and x[3] == (4 + 16) / 2 and x[7] == pytest.approx(36 + (81 - 36) / 3)
    assert str(found.extra["dates"][0][7])[:10] == "2020-08-01"


def test_rows_in_any_order_and_several_series_by_name(tmp_path):
    dates = pd.date_range("2020-01-01", periods=12, freq="MS")
    frame = pd.DataFrame({"when": [*dates, *dates], "shop": ["b"] * 12 + ["a"] * 12, "sold": np.arange(24.0)})
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "s.csv", index=False)
    found = data.load(tmp_path / "s.csv", "sequence")
    by_name = dict(zip(found.extra["names"], found.X))
    np.testing.assert_array_equal(by_name["b"][:, 0], np.arange(12.0))
    np.testing.assert_array_equal(by_name["a"][:, 0], np.arange(12.0, 24.0))
    frame["shop"] = "one"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="each series must have a date once; got 2020-01-01"):
        data.load(tmp_path / "t.csv", "sequence")


def test_years_count_time_and_strings_stay_strings(tmp_path):
    found = data.load(
        written(tmp_path / "y.csv", np.arange(1950, 1980), np.arange(30.0), names=("year", "lynx")),
        "sequence",
    )
    assert found.X[0].shape == (30, 1) and found.extra["frequency"] == {"unit": "number", "count": 1.0}
    assert following(found.extra["dates"][0][-1], found.extra["frequency"], 2).tolist() == [1980.0, 1981.0]
    (tmp_path / "w.csv").write_text("text\nabc\nabd\n")
    assert data.load(tmp_path / "w.csv", "sequence").X == ["abc", "abd"]
    plain = data.load(written(tmp_path / "p.csv", np.arange(9.0) ** 2, np.arange(9.0), names=("a", "b")))
    with pytest.raises(ValueError, match="data must be of kind sequence"):
        as_input(plain, "sequence", "SequenceForecaster")


def test_from_a_file_to_dated_forecasts_on_the_command_line(tmp_path):
    t = np.arange(96)
    values = np.exp(3 + 0.01 * t) * (1 + 0.3 * np.sin(2 * np.pi * t / 12))
    path = written(tmp_path / "a.csv", pd.date_range("2010-01-01", periods=96, freq="MS"), values)
    line = [
        "fit",
        "sequence-forecaster",
        "--data",
        str(path),
        "--run",
        str(tmp_path / "run"),
        "--set",
        "horizon=6",
    ]
    result = CliRunner().invoke(app, [*line, "--set", "training.epochs=2", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["held-out MASE"] < 1
    assert "Backtest" in (tmp_path / "run" / "report.html").read_text()
    out = tmp_path / "next.csv"
    result = CliRunner().invoke(
        app, ["predict", str(tmp_path / "run"), "--data", str(path), "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(out)
    assert frame["date"].tolist()[:2] == ["2018-01-01", "2018-02-01"] and len(frame) == 6
    assert (frame["sales low 90%"] <= frame["sales"]).all() and (
        frame["sales"] <= frame["sales high 90%"]
    ).all()


def test_boards_forecast_dated_tables(tmp_path):
    t = np.arange(60)
    path = written(
        tmp_path / "a.csv", pd.date_range("2010-01-01", periods=60, freq="MS"), 5 + np.sin(np.pi * t / 6)
    )
    board = compare(
        path, task="forecasting", systems=["sequence-forecaster"], rivals="baselines", splits=2, time_limit=1
    )
    ranks = [row["system"] for row in board.rows]
    assert board.metric == "MASE" and ranks.index("seasonal-naive") < ranks.index("naive")
