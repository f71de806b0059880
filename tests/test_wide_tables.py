"""Tables of many categories: numbers without their zeros where a model takes that, few columns where it does not."""

import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB

import corollary
from corollary import compare, data
from corollary.data import columns as rules
from corollary.data.columns import fit_columns, learn_columns, numbers_of


def shops(n=300, wide=4, values=60, seed=0):
    """Categories of many values, a date, a number with gaps, and a target that depends on one of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"c{j}": rng.choice([f"v{i}" for i in range(values)], n) for j in range(wide)})
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D")
    frame["size"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    y = np.where(frame["c0"].str[1:].astype(int) + rng.normal(0, 5, n) > values / 2, "yes", "no")
    return frame, y


def test_sparse_numbers_are_the_dense_ones(monkeypatch):
    frame, y = shops()
    columns, dense = fit_columns(frame, None, y, "classes")
    monkeypatch.setattr(rules, "LARGE", 0)
    monkeypatch.setattr(rules, "CELL", 10**6)
    again, thin = fit_columns(frame, None, y, "classes", sparse=True)
    assert sparse.issparse(thin) and thin.format == "csr" and thin.nnz < thin.size * 2
    assert [c["name"] for c in again] == [c["name"] for c in columns]
    np.testing.assert_allclose(thin.toarray(), dense, atol=1e-12)
    new = shops(seed=1)[0]
    np.testing.assert_array_equal(numbers_of(new, columns, sparse=True).toarray(), numbers_of(new, columns))
    kept = learn_columns(frame, None, gaps=True, sparse=True)  # gaps that stay need an array
    assert isinstance(numbers_of(frame, kept, sparse=True), np.ndarray)


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
def test_a_fit_to_sparse_numbers_is_the_fit_to_all(monkeypatch):
    frame, y = shops()
    dense = corollary.LogisticRegression().fit(frame, y)
    monkeypatch.setattr(rules, "LARGE", 0)
    thin = corollary.LogisticRegression().fit(frame, y)
    # both stop at a gradient of 1e-6, by sums in another order
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-4)
    new = shops(seed=1)[0]
    np.testing.assert_allclose(thin.predict_proba(new), dense.predict_proba(new), atol=1e-4)


def test_an_array_of_a_large_table_has_fewer_columns(monkeypatch):
    frame, y = shops()
    monkeypatch.setattr(rules, "LARGE", 0)
    columns, X = fit_columns(frame, None, y, "classes")
    shown = {c["name"]: len(c["values"]) for c in columns if c["kind"] == "category"}
    assert X.nbytes < rules.CELL * frame.size + 8 * len(frame) * len(shown)  # and a mean target each
    assert set(shown) == {"c0", "c1", "c2", "c3"} and all(2 <= n < 10 for n in shown.values())
    assert all(c["other"] and len(c["levels"]) > 40 for c in columns if c["kind"] == "category")
    commonest = frame["c0"].value_counts().index[: shown["c0"]]
    assert sorted(commonest) == columns[0]["values"]


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
def test_boards_give_sparse_numbers_to_who_takes_them(monkeypatch):
    frame, y = shops(400)
    monkeypatch.setattr(rules, "LARGE", 0)
    systems = ["logistic", ExtraTreesClassifier(5), GaussianNB()]
    board = compare(frame.assign(y=y), target="y", systems=systems, splits=1, rivals="none")
    assert not [row["error"] for row in board.rows if row["error"]]
    thin = {row["system"]: board.fit(row["system"]).reader.sparse for row in board.rows}
    assert thin == {"logistic": True, "ExtraTreesClassifier": True, "GaussianNB": False}


def test_wide_categories_cost_little_memory(tmp_path):
    """Peak memory of reading 50,000 x 30 with an id and 28 wide categories is below 10 times the file, for any model.

    In a process of its own; the sparse matrix comes first, so that its peak is not hidden by the array's.
    """
    rng = np.random.default_rng(0)
    n = 50_000
    words = np.array([f"district {i:04d}" for i in range(500)])
    frame = pd.DataFrame({f"c{j}": words[rng.integers(0, 500, n)] for j in range(28)})
    frame.insert(0, "customer_id", [f"customer {i:07d}" for i in range(n)])
    frame["churn"] = rng.choice(["yes", "no"], n)
    frame.to_csv(tmp_path / "t.csv", index=False)
    code = textwrap.dedent(
        """
        import resource, sys, pandas, sklearn.preprocessing, scipy.sparse
        from corollary import data
        from corollary.data.columns import fit_columns
        small = data.load(pandas.DataFrame({"a": list("abcde") * 20, "y": ["x", "z"] * 50}), target="y")
        fit_columns(small.X, None, small.y, "classes")
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        before = peak()
        found = data.load(sys.argv[1], target="churn")
        for sparse in (True, False):
            shape = fit_columns(found.X, None, found.y, "classes", sparse=sparse)[1].shape
            print(peak() - before, *shape)
        """
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.csv")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for line, widest in zip(said, (28 * 32, 28 * 7), strict=True):
        grown, rows, width = map(int, line.split())
        assert rows == n and widest / 2 < width <= widest
        assert grown < 10 * (tmp_path / "t.csv").stat().st_size, line


def test_reports_and_predictions_of_wide_tables(tmp_path, run, monkeypatch):
    frame, y = shops(400)
    frame.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(rules, "LARGE", 0)
    code, out, err = run("fit", "logistic", "--data", "t.csv", "--target", "y", "--run", "r")
    assert code == 0, err
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Importances" in page and "<th>c0</th>" in page  # columns of the file, not of numbers
    assert run("predict", "r", "--data", "t.csv", "--out", "p.csv")[0] == 0
    said = pd.read_csv(tmp_path / "p.csv")["prediction"]
    model = corollary.load(tmp_path / "r" / "model.safetensors")
    assert said.tolist() == model.predict(data.load(tmp_path / "t.csv").X.drop(columns="y")).tolist()
