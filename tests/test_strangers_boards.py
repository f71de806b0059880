"""Boards of what people bring: few rows, one class, rare classes, wide tables, graphs without features, short texts."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from corollary import compare, data
from corollary.comparison.tasks import ranks_classes
from corollary.data import Graph, columns


def labelled(*counts):
    """Return rows of one number each, so many of each class."""
    y = np.repeat([f"c{i}" for i in range(len(counts))], counts)
    return data.load(np.arange(len(y), dtype=float)[:, None] % 7, y=y)


def test_a_target_of_one_class_is_refused_at_once():
    with pytest.raises(ValueError, match="compare: the target must have two classes or more; got only c0"):
        compare(labelled(40))


def test_a_table_without_a_target_says_how_to_name_one():
    """Who forgot --target got a board of densities, and no word of it."""
    frame = pd.DataFrame({"age": np.arange(40.0) % 7, "buys it": np.arange(40) % 2})
    options = {"systems": ["pca"], "splits": 1, "rivals": "none"}
    (said,) = [note for note in compare(frame, **options).notes if "target" in note]
    assert said.endswith("To predict a column, name it: --target 'buys it' or target='buys it'.")
    for given in ({"task": "density"}, {"target": "buys it", "systems": ["logistic"]}):
        assert not any("No target" in note for note in compare(frame, **{**options, **given}).notes)


def test_a_class_that_cannot_be_held_out_everywhere_is_not_ranked_by_roc():
    """Of three rows there is no ROC: everyone was said not to have been tried."""
    metric, why = ranks_classes(labelled(2, 1))
    assert metric == "balanced accuracy" and "1 of class c1" in why
    board = compare(labelled(2, 1), systems=["logistic"], splits=2, rivals="baselines")
    assert {row["system"]: row["score"] is not None for row in board.rows}["prior"]
    board = compare(labelled(2, 1), systems=[], splits=2, rivals="baselines", metric="ROC AUC")
    assert board.rows[0]["error"] == "ROC AUC cannot be measured on what is held out"


@pytest.mark.parametrize(
    ("counts", "metric", "why"),
    [
        ((50, 48, 45), "accuracy", "the 3 classes are about even"),
        ((118, 120, 12), "balanced accuracy", "the classes are uneven"),
        ((60, 61, 2), "accuracy", "about even but for some of few members"),
        ((90, 10, 10), "balanced accuracy", "the classes are uneven"),
    ],
)
def test_what_ranks_looks_at_the_rare_classes_too(counts, metric, why):
    found = ranks_classes(labelled(*counts))
    assert found[0] == metric and why in found[1]


@pytest.mark.parametrize("x", [None, "sparse"])
def test_nodes_without_features_or_with_sparse_ones_have_their_baseline(x):
    """The baseline failed, so that a board of nodes had nothing to beat."""
    ring = np.array([[i, (i + 1) % 40] for i in range(40)]).T
    edges = np.concatenate([ring, ring[::-1]], axis=1)
    y = np.repeat([0, 1], 20)
    features = sparse.eye_array(40, format="csr") if x else None
    graph = Graph(features, edges, y, num_nodes=40)
    board = compare(graph, systems=["gcn"], splits=1)
    assert {row["system"] for row in board.rows} == {"prior", "gcn", *(["sk-logistic"] if x else [])}
    assert not any(row["error"] for row in board.rows)
    assert board.baseline["score"] == 0.5


def test_systems_without_sparse_input_get_counts_of_words_as_an_array():
    texts = [f"{'goal match' if i % 2 else 'vote law'} w{i % 5}" for i in range(40)]
    board = compare(
        texts, np.array(["sport", "politics"] * 20)[::-1], systems=["nngp-classifier", "logistic"], splits=1
    )
    assert not any(row["error"] for row in board.rows)


def test_certain_and_right_costs_nothing_and_not_minus_nothing():
    from sklearn.dummy import DummyClassifier

    from corollary.comparison.measures import classes

    held = data.load(np.zeros((3, 1)), y=np.zeros(3, dtype=int))
    loss = classes(DummyClassifier().fit(held.X, held.y), held)["log-loss"]
    assert str(loss) == "0.0"


def test_the_first_who_descends_does_not_pay_for_imports():
    """torch's optimisers import for seconds at first use, which counted as the first system's fit."""
    code = """
import sys, numpy as np
from corollary import compare
from corollary.comparison import trials
fit, seen = trials.fit, []
trials.fit = lambda *given: (seen.append("torch._dynamo" in sys.modules), fit(*given))[1]
X = np.random.default_rng(0).normal(size=(30, 2))
compare(X, X[:, 0] > 0, systems=["mlp"], splits=1, rivals="none", time_limit=1)
assert seen == [True], seen
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_wide_tables_are_read_as_narrow_ones(monkeypatch):
    """Columns of floats are looked at all at once where there are many; what is found is the same."""
    kind_of, asked = columns.kind_of, []
    monkeypatch.setattr(columns, "kind_of", lambda *given: (asked.append(given), kind_of(*given))[1])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 60))
    X[3, 4], X[:, 5], X[:, 6], X[:, 7], X[4, 8] = np.nan, 1.5, np.nan, np.arange(30), np.inf
    frame = pd.DataFrame(X, columns=[f"g{i}" for i in range(60)])
    frame.insert(0, "tissue", rng.choice(["lung", "skin"], 30))
    frame["g9 again"] = frame["g9"]
    wide = data.encoder().fit(frame)
    assert len(asked) < 10
    narrow = {c["name"]: c for part in np.array_split(np.arange(61), 3) for c in _learned(frame, part)}
    told = {c["name"]: c for c in wide.columns_}
    assert told["g9 again"]["kind"] == "duplicate"
    assert all(told[name] == found for name, found in narrow.items())
    given = wide.transform(frame)
    assert np.isfinite(given).all()
    assert np.allclose(given[:, wide.get_feature_names_out().tolist().index("g20")], _scaled(X[:, 20]))


def _learned(frame, part):
    names = [frame.columns[i] for i in part if i]
    return [c for c in columns.learn_columns(frame[["tissue", *names]], None) if c["name"] in names]


def _scaled(values):
    return (values - values.mean()) / values.std()


# --- what an expert would ask ----------------------------------------------------------------------------


def notes_of(frame, target):
    board = compare(frame, target=target, systems=[], rivals="baselines", splits=1)
    return " ".join(board.notes)


def test_a_column_that_tells_the_target_of_every_row_is_named():
    """Of who left, the day on which they did: a board of perfect scores said nothing about it."""
    rng = np.random.default_rng(0)
    left = rng.random(80) < 0.4
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 80), unit="D")
    frame = pd.DataFrame({"usage": rng.normal(size=80), "closed": days.where(left), "left": left.astype(int)})
    assert "'closed' alone tells the target of every row" in notes_of(frame, "left")
    assert "tell" not in notes_of(frame.drop(columns="closed"), "left")
    frame = frame.assign(closed=left * 3.0 + rng.random(80), state=np.where(left, "gone", "here"))
    assert "'closed', 'state' each alone tell the target" in notes_of(frame, "left")
    assert "'copy' alone tells" in notes_of(frame.assign(copy=frame["usage"] ** 3), "usage")
    few = frame.assign(left=[1, 1, *[0] * 78], closed=[5.0, 6.0, *rng.random(78)], state="x")
    assert "tell" not in notes_of(few, "left")  # two rows may stand apart by chance


def test_a_target_that_changes_slowly_with_a_date_is_no_forecast():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"day": pd.date_range("2024-01-01", periods=200), "sales": rng.normal(size=200).cumsum()}
    )
    frame["x"] = rng.normal(size=200)
    mixed = frame.sample(frac=1, random_state=0)
    assert "Targets that follow each other by 'day' are alike" in notes_of(mixed, "sales")
    assert "Targets" not in notes_of(mixed, "x")


def test_what_cannot_be_done_is_said_before_the_work(tmp_path):
    from typer.testing import CliRunner

    from corollary.cli.app import app
    from corollary.cli.comparing import _check_out

    with pytest.raises(ValueError, match="compare: splits must be at least 1; got 0"):
        compare("iris", splits=0)
    done = CliRunner().invoke(app, ["compare", "--data", "iris", "--out", str(tmp_path / "b.pdf")])
    assert "--out: the file must end in .html or .png; got '.pdf'" in str(done.exception)
    with pytest.raises(ValueError, match="--out: it must be a file that can be written"):
        (tmp_path / "b.html").mkdir()
        _check_out(tmp_path / "b.html")


def test_steps_of_a_learning_curve_are_whole():
    from corollary.plot import curves

    figure = curves([{"step": i, "loss": 1 / i, "seconds": 0.0} for i in (1, 2, 3)])
    ticks = figure.axes[0].get_xticks()
    assert np.array_equal(ticks, np.round(ticks))


def test_who_has_no_score_has_no_place_on_the_page():
    board = compare(labelled(2, 1), systems=[], splits=1, rivals="baselines", metric="ROC AUC")
    assert "<tr class=base><td></td><td" in board.to_html()
