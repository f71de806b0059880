"""A stranger's files at the command line and in Python: what is told, what is missing, and what is said about it."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

import corollary
from corollary import compare, data
from corollary.cli import main
from corollary.errors import CorollaryWarning


def sales(n=80, seed=0):
    """Mixed columns, numbers that are codes, and a target with gaps written in two ways."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"shop": rng.integers(1, 5, n), "kind": rng.choice(["a", "b"], n)})
    frame["size"] = rng.normal(size=n).round(3)
    frame["sold"] = np.where(frame["size"] + (frame["kind"] == "a") > 0.5, "yes", "no")
    frame.loc[[3, 11], "sold"] = ["?", ""]
    return frame


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return what runs a command in a directory of its own, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["corollary", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


# --- rows without a target -------------------------------------------------------------------------------


def test_rows_without_a_target_are_left_out_with_a_word(tmp_path):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    with pytest.warns(
        CorollaryWarning, match="left out 2 of 80 rows of sales without a value of 'sold': 4, 12"
    ):
        found = data.load(tmp_path / "sales.csv", target="sold")
    assert len(found) == len(found.y) == 78 and set(found.y) == {"yes", "no"}
    np.testing.assert_array_equal(found.extra["rows"], np.setdiff1d(np.arange(80), [3, 11]))
    texts = pd.DataFrame({"text": list("abcd"), "y": [1.0, np.nan, 2.5, 3.0]})
    with pytest.warns(CorollaryWarning, match="left out 1 of 4 rows"):
        found = data.load(texts, "text", "y")
    assert found.X == ["a", "c", "d"] and found.y.tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize("y", [[1.5, None, 2.0, 3.0], np.array([1.5, np.nan, 2.0, 3.0]), [1.5, pd.NA, 2, 3]])
def test_a_target_in_memory_may_have_gaps(y):
    with pytest.warns(CorollaryWarning, match="left out 1 of 4 rows of the data without a target: 2"):
        found = data.load([[1.0], [2.0], [3.0], [4.0]], y=y)
    assert found.X.ravel().tolist() == [1.0, 3.0, 4.0] and found.y.dtype == float
    with pytest.raises(ValueError, match="some row of the data must have a target; got none"):
        data.load([[1.0]], y=[None])


@pytest.mark.filterwarnings("always::corollary.errors.CorollaryWarning")
def test_fit_compare_and_predict_of_a_table_with_gaps_in_its_target(tmp_path, run):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    code, _, err = run("fit", "logistic", "--data", "sales.csv", "--target", "sold", "--run", "a")
    assert code == 0 and "left out 2 of 80 rows" in err
    code, _, err = run("predict", "a", "--data", "sales.csv", "--target", "sold", "--out", "p.csv")
    assert code == 0 and len(pd.read_csv(tmp_path / "p.csv")) == 80, err
    words = ("--systems", "logistic", "--splits", "1", "--json", "--column", "shop=category")
    code, out, err = run("compare", "--data", "sales.csv", "--target", "sold", *words)
    assert code == 0 and "left out 2 of 80 rows" in err and json.loads(out)["task"] == "classification"


# --- what is told about columns --------------------------------------------------------------------------


def test_what_is_told_about_a_column_reaches_compare(tmp_path):
    frame = sales().dropna()
    frame = frame[frame["sold"].isin(["yes", "no"])]
    options = {"target": "sold", "systems": ["logistic"], "splits": 1, "rivals": "none"}
    board = compare(frame, columns={"shop": "category", "size": "ignore"}, **options)
    kinds = {c["name"]: c["kind"] for c in board.best.reader.reading["columns"]}
    assert kinds == {"shop": "category", "kind": "category", "size": "ignore"}
    with pytest.raises(ValueError, match="no column named 'shopp'. Closest: 'shop'"):
        compare(frame, columns={"shopp": "category"}, **options)
    with pytest.raises(ValueError, match=r"columns= \(--column\) is for tables; got data of kind image"):
        compare("digits", columns={"x": "number"})
    iris = data.load("iris")
    found = data.load(iris, columns={iris.feature_names[0]: "ignore"})
    model = corollary.LogisticRegression().fit(found)
    assert model.columns_[0]["kind"] == "ignore" and model.coef_.shape[1] == 3


def test_predict_reads_columns_as_the_fit_did_and_says_so(tmp_path, run):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    told = ("--column", "shop=category")
    code, _, err = run("fit", "logistic", "--data", "sales.csv", "--target", "sold", "--run", "a", *told)
    assert code == 0, err
    new = ("predict", "a", "--data", "sales.csv", "--out", "p.csv")
    assert run(*new, *told)[2] == ""
    code, _, err = run(*new, "--column", "shop=number")
    assert (
        code == 0 and "'shop' is read as category, as in the fit; --column shop=number has no effect" in err
    )
    code, _, err = run(*new, "--column", "shopp=number")
    assert code == 2 and "no column of the fit named 'shopp'. Closest: 'shop'" in err


# --- score and partial_fit -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
@pytest.mark.parametrize("name", ["logistic", "perceptron", "mlp", "softmax-regression"])
def test_score_takes_a_data_set(name):
    found = data.load(sales(), target="sold")
    model = corollary.create(name).fit(found)
    assert model.score(found) == model.score(found.X, found.y) == np.mean(model.predict(found.X) == found.y)
    with pytest.raises(ValueError, match="score needs targets; got none"):
        model.score(found.X)


def test_score_of_numbers_takes_a_data_set():
    found = data.load(sales().drop(columns="sold"), target="size")
    model = corollary.Ridge().fit(found)
    assert model.score(found) == model.score(found.X, found.y)


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
@pytest.mark.parametrize("make", [corollary.Perceptron, corollary.MLPClassifier])
def test_partial_fit_reads_later_frames_as_the_first(make):
    found = data.load(sales(), target="sold")
    frame, y = found.X, found.y
    model = make(random_state=0).partial_fit(frame.iloc[:40], y[:40], classes=["no", "yes"])
    columns = model.columns_
    later = frame.iloc[40:][[*frame.columns[::-1]]]  # another order, and a category that is new
    model.partial_fit(later.assign(kind=["c", *later["kind"][1:]]), y[40:])
    assert model.columns_ is columns and model.predict(frame).shape == y.shape
    plain = make(random_state=0).partial_fit(
        _numbers(frame.iloc[:40], columns), y[:40], classes=["no", "yes"]
    )
    plain.partial_fit(_numbers(later.assign(kind=["c", *later["kind"][1:]]), columns), y[40:])
    says = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
    expected = getattr(plain, says)(_numbers(frame, columns))
    np.testing.assert_allclose(getattr(model, says)(frame), expected)


def _numbers(frame, columns):
    from corollary.data.columns import numbers_of

    return numbers_of(frame, columns)


@pytest.mark.parametrize("model", [corollary.PCA(1), corollary.GaussianMixture(1), corollary.BernoulliRBM(2)])
def test_partial_fit_of_what_has_no_target(model):
    frame = sales().drop(columns="sold")
    model.partial_fit(frame[:40])
    columns = model.columns_
    model.partial_fit(frame[40:])
    assert model.columns_ is columns and {c["kind"] for c in columns} == {"number", "category"}
