"""Boards: the right rivals, honest splits and metrics, ties said, limits that hold, models to take away."""

import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import corollary
from corollary import catalog, compare, data
from corollary.cli.using import predict_with
from corollary.comparison import TASKS, Chosen, foreign, task_of, trials
from corollary.comparison.board import on_the_same_parts
from corollary.comparison.measures import calibration_error, drawn_images, draws, in_unit
from corollary.comparison.statistics import differ, interval
from corollary.comparison.trials import Trial
from corollary.data import Dataset, Graph


def churn(n=400, share=0.075, seed=0):
    """Return rows of which few are "yes", and no column that tells them apart."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=[*"abcd"])
    frame["churn"] = np.where(rng.permutation(n) < share * n, "yes", "no")
    return frame


def ids(board):
    return [row["system"] for row in board.rows]


def test_means_are_over_the_same_parts():
    """An easy part that only some had time for makes nobody first, and who fails in a part has no mean."""
    trials = [Trial(name, 0, {"R²": score}) for name, score in (("a", 0.6), ("b", 0.5), ("c", 0.4))]
    trials += [
        Trial("a", 1, {"R²": 0.2}),
        Trial("b", 1, {"R²": 0.1}),
        Trial("c", 1, error="no result within 1 s"),
    ]
    trials += [Trial("a", 2, {"R²": 0.1}), Trial("b", 2, {"R²": 0.9})]  # c failed before
    trials += [Trial("b", 3, {"R²": 1.0})]  # then the time was up
    kept = on_the_same_parts(trials, "R²")
    assert {t.part for t in kept if t.rival == "b"} == {t.part for t in kept if t.rival == "a"} == {0, 1, 2}
    (left,) = [t for t in kept if t.rival == "c"]
    assert left.error == "no result within 1 s in part 2, after 1 with a score"
    assert on_the_same_parts(trials[:1], "R²") == trials[:1]


# --- rivals ----------------------------------------------------------------------------------------------


def test_every_board_of_a_table_has_its_baseline_and_the_usual_tools():
    board = compare("iris", systems=["softmax-regression"], splits=1)
    groups = {row["system"]: row["group"] for row in board.rows}
    assert groups["prior"] == "baseline"
    names = {row["name"] for row in board.rows if row["group"] == "scikit-learn"}
    assert {"HistGradientBoostingClassifier", "RandomForestClassifier", "LogisticRegression"} <= names
    assert groups["softmax-regression"] == "corollary"


def test_by_default_all_systems_of_the_role_take_part():
    rng = np.random.default_rng(0)
    R = sparse.csr_matrix(np.where(rng.random((30, 30)) < 0.5, rng.integers(1, 6, (30, 30)), 0).astype(float))
    board = compare(R, splits=1, time_limit=None)
    assert board.task == "completion" and board.metric == "RMSE"
    assert {e.id for e in catalog.entries(role="completer")} | {"popular"} == set(ids(board))
    assert {row["system"] for row in board.rows if row["group"] == "baseline"} == {"popular", "baseline"}
    scores = [row["score"] for row in board.rows if row["score"] is not None]
    assert scores == sorted(scores)  # the smallest error comes first
    assert {"precision@10", "NDCG@10", "mean absolute error"} <= set(board.rows[0]["scores"])


def test_ones_own_estimators_and_pipelines_take_part():
    own = [HistGradientBoostingClassifier(max_iter=5), make_pipeline(StandardScaler(), DummyClassifier())]
    board = compare("iris", systems=own, splits=2, rivals="none")
    assert set(ids(board)) == {"HistGradientBoostingClassifier", "StandardScaler + DummyClassifier"}
    assert {row["group"] for row in board.rows} == {"yours"}
    assert all(row["score"] is not None for row in board.rows)
    with pytest.raises(TypeError, match="systems must be names or estimators; got int"):
        compare("iris", systems=[3])


def test_a_failure_is_a_row_with_its_reason():
    board = compare("iris", systems=["als", "softmax-regression"], splits=2, rivals="none")
    assert ids(board) == ["softmax-regression", "als"]
    assert board.rows[1]["score"] is None
    assert "must be of kind ratings" in board.rows[1]["error"]
    assert "must be of kind ratings" in repr(board)


# --- honesty ---------------------------------------------------------------------------------------------


def test_nobody_is_crowned_for_what_the_most_frequent_class_gets():
    board = compare(churn(), target="churn", systems=["logistic"], rivals="baselines")
    assert board.metric == "ROC AUC" and "not 0.925" in board.why
    baseline = next(row for row in board.rows if row["system"] == "prior")
    assert baseline["score"] == 0.5 and baseline["scores"]["accuracy"] == pytest.approx(0.925)
    assert board.winner is None and baseline["tied"]
    assert board.verdict.startswith("No system is told apart from the baseline")


def test_a_real_lead_is_a_lead():
    board = compare("iris", systems=["softmax-regression"], rivals="baselines")
    assert board.winner is not None and not next(r for r in board.rows if r["system"] == "prior")["tied"]
    assert "of the best baseline (always the most frequent class)" in board.verdict


def test_scores_are_what_the_model_says_on_each_split():
    from corollary import SoftmaxRegression

    board = compare("iris", systems=["softmax-regression"], seed=3, splits=5, rivals="none")
    for part, (kept, held) in enumerate(data.splits(data.load("iris"), 5, 0.2, 3, stratify=True)):
        mean, scale = kept.X.mean(0), kept.X.std(0)
        model = SoftmaxRegression().fit((kept.X - mean) / scale, kept.y)
        expected = model.score((held.X - mean) / scale, held.y)
        assert board.rows[0]["splits"]["accuracy"][part] == pytest.approx(expected)


def test_scales_come_from_the_training_part():
    class Witness(ClassifierMixin, BaseEstimator):
        seen = []

        def fit(self, X, y):
            Witness.seen.append(np.asarray(X))
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            Witness.seen.append(np.asarray(X))
            return np.full(len(X), self.classes_[0])

    from corollary.comparison.rivals import Reader, Rival

    rng = np.random.default_rng(0)
    kept, held = Dataset(rng.normal(3, 2, (50, 2))), Dataset(rng.normal(9, 1, (20, 2)))
    reader = Reader(Rival("r", "r", "corollary", "table", lambda d, s: Witness(), standardise=True))
    np.testing.assert_allclose(reader.learn(kept).X, (kept.X - kept.X.mean(0)) / kept.X.std(0))
    np.testing.assert_allclose(reader(held).X, (held.X - kept.X.mean(0)) / kept.X.std(0))


def test_rows_of_one_id_stay_together():
    frame = churn(200)
    frame["patient_id"] = np.repeat(np.arange(40), 5)
    board = compare(frame, target="churn", systems=[DummyClassifier()], splits=2, rivals="none")
    assert "same 'patient_id' stay on one side" in board.notes[0]
    labels = frame["patient_id"].to_numpy()
    for kept, held in data.splits(data.load(frame, target="churn"), 5, groups=labels):
        assert not set(
            labels[np.isin(frame["a"], kept.X["a"] if hasattr(kept.X, "columns") else kept.X[:, 0])]
        ) & set(labels[np.isin(frame["a"], held.X["a"] if hasattr(held.X, "columns") else held.X[:, 0])])


def test_the_interval_counts_the_overlap_of_training_parts():
    scores = np.array([0.8, 0.9, 0.85, 0.95, 0.9])
    width, deviation = interval(scores, 0.25)
    from scipy import stats

    assert deviation == pytest.approx(scores.std(ddof=1))
    # of independent splits (ratio 0) it would be Student's; the overlap makes it wider by sqrt(1 + J n2 / n1)
    plain = stats.t.interval(0.95, 4, scores.mean(), stats.sem(scores))
    assert interval(scores, 0)[0] == pytest.approx(plain[1] - scores.mean())
    assert width == pytest.approx((plain[1] - scores.mean()) * 1.5)
    assert np.isnan(interval([0.5], 0.25)[0]) and not differ([0.5], [0.9], 0.25)
    assert differ(scores, scores - 0.3, 0.25) and not differ(scores, scores[::-1], 0.25)


def test_a_wild_spread_is_no_tie():
    from corollary.comparison.board import board_of
    from corollary.comparison.rivals import Rival
    from corollary.comparison.trials import Trial

    scores = {"good": [0.9, 0.91, 0.9], "guess": [0.5, 0.5, 0.5], "wild": [0.4, -1e8, 0.3]}
    rivals = [Rival(i, i, "baseline" if i == "guess" else "corollary", None, None) for i in scores]
    trials = [Trial(i, j, {"accuracy": v}) for i, values in scores.items() for j, v in enumerate(values)]
    board = board_of(
        trials, rivals, Dataset(np.eye(2)), "classification", ("accuracy", ""), {"accuracy": True}, 0.25, []
    )
    assert {row["system"]: row["tied"] for row in board.rows} == {"good": True, "guess": False, "wild": False}


def test_calibration_error_by_hand():
    chances = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    # bin 0.9: confidence 0.9, right 1 of 2; bin 0.8: right; bin 0.6: wrong
    assert calibration_error(chances, np.array([0, 1, 1, 0])) == pytest.approx((0.8 + 0.2 + 0.6) / 4)


# --- time ------------------------------------------------------------------------------------------------


class Sleeper(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        for _ in range(10000):
            time.sleep(0.01)

    def predict(self, X):
        return np.zeros(len(X))


def test_what_does_not_stop_by_itself_is_stopped():
    board = compare("iris", systems=[Sleeper()], splits=5, rivals="none", time_limit=0.3)
    assert board.rows[0]["error"] == "no result within 0.3 s"
    assert (
        board.rows[0]["seconds"] < 60
    )  # of the 100 s that it would take; one split, for who fails is not tried again


class Quick(DummyClassifier):
    clock = SimpleNamespace(now=0.0)

    def fit(self, X, y, sample_weight=None):
        self.clock.now += 0.01
        return super().fit(X, y)


class Endless(Quick):
    def fit(self, X, y, sample_weight=None):
        self.clock.now += 1.5
        raise trials.OutOfTime


def test_the_whole_board_has_a_limit_and_all_get_a_turn(monkeypatch):
    monkeypatch.setattr("corollary.comparison.contest.now", lambda: Quick.clock.now)
    monkeypatch.setattr(trials, "within", nullcontext)
    board = compare("iris", systems=[Endless(), Quick()], splits=1000, rivals="none", total_time=3.0)
    rows = {row["system"]: row for row in board.rows}
    assert rows["Quick"]["score"] is not None
    assert 1 <= rows["Quick"]["n"] < 1000
    assert "no result within" in rows["Endless"]["error"]
    assert any("total of 3 s" in note for note in board.notes)


# --- categories of many values ---------------------------------------------------------------------------


def test_boards_use_categories_of_many_values():
    """The mean target of 60 shops is known to every rival, from other rows; boosting splits sets of shops."""
    rng = np.random.default_rng(0)
    shop = rng.integers(0, 60, 900)
    y = rng.normal(size=60)[shop] + 0.1 * rng.normal(size=900)
    frame = pd.DataFrame({"shop": [f"shop {i}" for i in shop], "noise": rng.normal(size=900), "y": y})
    board = compare(frame, target="y", systems=["ridge"], splits=1, metric="R²")
    scores = {row["system"]: row["score"] for row in board.ranked}
    assert scores["ridge"] > 0.9 and scores["sk-boosting"] > 0.7
    assert board.rivals["sk-boosting"].codes
    shops = board.fit("sk-boosting").reader.reading["columns"][0]
    assert shops["codes"] and len(shops["values"]) == 60


# --- what comes out --------------------------------------------------------------------------------------


def test_frame_page_and_picture(tmp_path):
    board = compare("iris", systems=["softmax-regression", "als"], splits=3, rivals="baselines")
    frame = board.frame
    assert frame["place"].iloc[0] == 1 and np.isnan(frame["place"].iloc[-1])
    assert {"accuracy", "accuracy ±", "log-loss", "group", "tied", "error"} <= set(frame.columns)
    text = board.to_html(tmp_path / "board.html")
    assert board.verdict.split(" with ")[0] in text and "must be of kind ratings" in text
    assert (tmp_path / "board.html").read_text().startswith("<!doctype html>")
    axes = board.plot().axes[0]
    means = [row["score"] for row in board.rows if row["score"] is not None]
    low, high = axes.get_xlim()
    assert low <= min(means) and max(means) <= high
    assert any(line.get_linestyle() == "--" for line in axes.lines)  # the best baseline


def test_a_row_far_below_the_baseline_does_not_hide_the_others():
    from corollary.plot import leaderboard

    rows = [{"system": "a", "group": "corollary", "score": -1.0, "width": 0.1}]
    rows += [{"system": "b", "group": "baseline", "score": -2.0, "width": 0.1}]
    rows += [{"system": "c", "group": "corollary", "score": -1e12, "width": 1e12}]
    low, high = leaderboard(rows, "log-likelihood").axes[0].get_xlim()
    assert low > -4 and high < 0  # c is an arrow at the edge


def test_the_best_model_takes_data_as_they_were_given_and_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(50, 20, 120), "colour": rng.choice(["red", "blue"], 120)})
    frame["kind"] = np.where((frame["size"] > 50) ^ (frame["colour"] == "red"), "big", "small")
    board = compare(frame, target="kind", systems=["logistic"], splits=2, rivals="none")
    new = frame.drop(columns="kind").iloc[::-1]
    said = board.best.predict(new)
    assert set(said) <= {"big", "small"}
    new.to_csv(tmp_path / "new.csv", index=False)
    predict_with(
        board.best.save(tmp_path / "run"), str(tmp_path / "new.csv"), tmp_path / "out.csv", None, None
    )
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].tolist() == said.tolist()


@pytest.mark.parametrize(
    "model",
    [
        HistGradientBoostingClassifier(max_iter=5),
        RandomForestClassifier(5, max_depth=3, random_state=0),
        make_pipeline(data.encoder(), LogisticRegression()),
    ],
)
def test_a_saved_scikit_learn_model_says_the_same(tmp_path, run, model):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(50, 20, 120), "colour": rng.choice(["red", "blue"], 120)})
    frame["day"] = (pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(120), unit="D")).strftime(
        "%d.%m.%Y"
    )
    frame["kind"] = np.where((frame["size"] > 50) ^ (frame["colour"] == "red"), "big", "small")
    frame.to_csv(tmp_path / "t.csv", index=False)
    best = compare(tmp_path / "t.csv", target="kind", systems=[model], splits=1, rivals="none").best
    best.save(tmp_path / "run")
    frame.iloc[::-7].assign(other=1).to_csv(tmp_path / "new.csv", index=False)
    said = best.predict_proba(tmp_path / "new.csv")
    again = Chosen.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(tmp_path / "new.csv"), said)
    code, out, err = run("predict", "run", "--data", "new.csv", "--out", "out.csv")
    assert code == 0 and "18 rows of prediction, p(big), p(small) in out.csv" in out, err
    found = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(found[["p(big)", "p(small)"]], said)
    code, _, err = run("attack", "run", "--data", "new.csv")
    assert (
        code == 2 and "this command takes a model of the library; got" in err and "corollary predict" in err
    )


def test_what_a_file_of_skops_may_hold(tmp_path, run):
    board = compare("iris", systems=[FunctionOfMine()], splits=1, rivals="none")
    board.best.save(tmp_path / "run")
    code, _, err = run("predict", "run", "--data", "iris", "--out", "out.csv")
    kind = "test_comparison.FunctionOfMine"
    assert code == 2 and f"only types that are known to do no harm; got {kind}" in err.replace("tests.", "")
    name = f"{FunctionOfMine.__module__}.FunctionOfMine"
    assert f"--trust {name}" in err
    assert run("predict", "run", "--data", "iris", "--out", "out.csv", "--trust", name)[0] == 0
    (tmp_path / "run" / "model.skops").write_bytes(b"no zip")
    code, _, err = run("predict", "run", "--data", "iris", "--out", "out.csv")
    assert code == 2 and "model.skops must be a whole file of skops" in err


class FunctionOfMine(DummyClassifier):
    """A class that skops does not know."""


@pytest.mark.parametrize("field, value", [("left", 10**6), ("left", 0), ("feature_idx", 99)])
def test_trees_of_a_file_do_not_lead_astray(field, value):
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    model = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5).fit(X, y)
    foreign.check_trees([model])
    nodes = model._predictors[1][0].nodes
    nodes[field][0] = value
    with pytest.raises(ValueError, match="the nodes of a tree must lie in it"):
        foreign.check_trees({"a": (model,)})


def test_forests_of_a_file_do_not_lead_astray():
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    forest = RandomForestClassifier(3, random_state=0).fit(X, y)
    foreign.check_trees(forest)
    forest.estimators_[2].tree_.children_right[0] = 10**6
    with pytest.raises(ValueError, match="a child outside of its tree"):
        foreign.check_trees(forest)
    forest.estimators_[0].n_features_in_ = 2
    with pytest.raises(ValueError, match="of 3 features"):
        foreign.check_trees(forest)


def test_a_density_of_a_board_is_used_from_its_directory(tmp_path, run):
    board = compare("iris", task="density", systems=["gaussian-mixture"], splits=1)
    best = board.fit("gaussian-mixture").save(tmp_path / "mixture")
    board.fit("histograms").save(tmp_path / "histograms")
    board.fit("sk-kernel").save(tmp_path / "kernel")
    for name in ("mixture", "histograms", "kernel"):
        code, out, err = run("predict", name, "--data", "iris", "--out", "p.csv")
        assert code == 0 and "150 rows of log_prob" in out, err
    code, out, err = run("sample", str(best), "--out", "s.csv", "-n", "5", "--seed", "3")
    assert code == 0 and pd.read_csv(tmp_path / "s.csv").shape == (5, 4), err


def test_no_file_holds_a_pickle(tmp_path, monkeypatch):
    board = compare("iris", systems=[DummyClassifier()], splits=1, rivals="none")
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(
        ImportError, match=r"DummyClassifier\) is saved with skops.*corollary\[skops\].*board.fit"
    ):
        board.best.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Interrupted(DummyClassifier):
    """Ctrl-C comes while it is fitted."""

    def fit(self, X, y, sample_weight=None):
        raise KeyboardInterrupt


def test_an_interrupted_board_shows_what_was_done():
    board = compare("iris", systems=[DummyClassifier(), Interrupted()], splits=2, rivals="none")
    assert board.interrupted and board.rows[0]["score"] > 0.3 and board.rows[1]["error"] == "not tried"
    assert board.notes == ["Interrupted: the board shows what was done by then."]
    with pytest.raises(KeyboardInterrupt):
        compare("iris", systems=[Interrupted()], splits=1, rivals="none")


def test_search_says_where_it_can_be():
    with pytest.raises(ValueError, match="is for completion, classification.*got clustering on data"):
        compare("iris", task="clustering", search=5)
    few = compare("iris", systems=[DummyClassifier()], splits=1, rivals="none", search=2, test=0.5)
    assert not any("searched" in note for note in few.notes)
    small = data.load(np.random.default_rng(0).normal(size=(40, 2)), y=["a", "b"] * 20)
    board = compare(small, systems=[DummyClassifier()], splits=1, rivals="none", search=2)
    assert "No settings were searched: 40 examples are fewer than 60." in board.notes


def test_arrays_with_targets_and_several_processes():
    iris = data.load("iris")
    one, two = (
        compare(
            iris.X,
            iris.y,
            systems=[HistGradientBoostingClassifier(max_iter=3)],
            splits=2,
            n_jobs=n,
            rivals="baselines",
        )
        for n in (1, 2)
    )
    assert {r["system"]: r["splits"] for r in one.rows} == {r["system"]: r["splits"] for r in two.rows}


def test_search_beats_a_bad_default():
    bad = HistGradientBoostingClassifier(max_iter=10, learning_rate=1e-6, early_stopping=False)
    iris = data.load("iris")
    plain, searched = (
        compare(iris, systems=[bad], splits=1, rivals="none", search=n, metric="log-loss") for n in (0, 6)
    )
    assert searched.rows[0]["score"] < plain.rows[0]["score"] - 0.1
    assert isinstance(searched.best.model, HistGradientBoostingClassifier)


def test_search_of_ratings_and_series():
    rng = np.random.default_rng(0)
    R = 3 + np.outer(rng.normal(size=40), rng.normal(size=30))
    ratings = sparse.csr_matrix(np.where(rng.random(R.shape) < 0.5, R, 0))
    plain, searched = (
        compare(ratings, systems=[corollary.ALS(1, regularization=1e4)], splits=1, rivals="none", search=n)
        for n in (0, 6)
    )
    assert searched.rows[0]["score"] < plain.rows[0]["score"] - 0.2
    assert searched.best.model.regularization < 2
    t = np.arange(80.0)
    series = data.load([np.sin(t / 3) + i for i in range(3)], kind="sequence")
    small = corollary.SequenceForecaster(width=4, training=corollary.Training(epochs=2), random_state=0)
    board = compare(series, task="forecasting", systems=[small], splits=1, search=3)
    assert not [row["error"] for row in board.rows if row["error"]]


def test_a_search_ends_in_the_time_of_one_fit(monkeypatch):
    """Fits that take all the time there is: the search gives up, and what was there is fitted."""
    monkeypatch.setattr(trials, "GRACE", 100)  # on a busy machine too
    rng = np.random.default_rng(0)
    table = data.load(rng.normal(size=(200, 3)), y=rng.integers(0, 2, 200))
    slow = corollary.MLPClassifier((64,), training=corollary.Training(epochs=10**6), random_state=0)
    board = compare(table, systems=[slow], splits=1, rivals="none", search=30, time_limit=1.0)
    assert board.rows[0]["score"] is not None, board.rows[0]["error"]


# --- tasks -----------------------------------------------------------------------------------------------


def test_topic_models_are_measured_alike():
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(3, 0.1), 200) @ rng.dirichlet(np.full(40, 0.1), 3)
    counts = Dataset(sparse.csr_matrix(rng.poisson(40 * rates).astype(float)), name="counts")
    board = compare(counts, task="topics", systems=["plsa", "lda"], splits=1, rivals="baselines")
    scores = {row["system"]: row["score"] for row in board.rows}
    # chance among 40 words is 40; with seven topics for three, only LDA's prior keeps it ahead of the frequencies
    assert scores["lda"] < min(scores["plsa"], scores["unigram"]) and scores["unigram"] < 40
    assert "coherence" in board.rows[0]["scores"]


def test_forecasts_are_of_the_future():
    waves = [np.sin(2 * np.pi * np.arange(60) / 12 + p) for p in range(3)]
    from corollary.comparison.tasks import parts_of

    dataset = data.load([w[:, None] for w in waves], kind="sequence")
    cuts = []
    for kept, held in parts_of(dataset, "forecasting", 3, 0.3, 0):
        for before, after in zip(kept.X, held.X):
            np.testing.assert_array_equal(after[: len(before)], before)
            assert len(after) > len(before)
        cuts.append(len(kept.X[0]))
    assert cuts == sorted(set(cuts))
    from corollary.comparison.forecasts import Naive, ahead

    season = Naive("season", held.extra["horizon"]).fit(kept.X)
    assert season.season_ == 12 and ahead(season, held)["RMSE"] < 1e-9


def test_nodes_are_compared_with_what_their_features_alone_say():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = (y[:, None] + rng.normal(0, 0.3, (60, 3))).astype(np.float32)
    graph = Graph(x=x, edge_index=rng.integers(60, size=(2, 100)), y=y)
    board = compare(graph, systems=["gcn"], splits=2, time_limit=None)
    rows = {row["system"]: row for row in board.rows}
    assert board.task == "nodes" and rows["prior"]["group"] == "baseline"
    assert rows["sk-logistic"]["score"] > 0.9


@pytest.mark.parametrize(
    ("dataset", "task"),
    [
        (Dataset(sparse.eye(3, format="csr"), kind="ratings"), "completion"),
        (Dataset(Graph(x=np.eye(3), edge_index=np.zeros((2, 0), int)), kind="graph"), "links"),
        (Dataset(Graph(np.eye(3), np.zeros((2, 0), int), np.arange(3)), kind="graph"), "nodes"),
        (Dataset(np.eye(3), np.array([[1, 1], [0, 1], [0, 0]])), "multilabel"),
        (Dataset(["a b"], kind="text"), "language"),
        (Dataset(np.eye(3)), "density"),
        (Dataset(np.eye(3), np.array(["a", "b", "a"])), "classification"),
        (Dataset(np.eye(3), np.array([0.1, 2.5, 3.7])), "regression"),
        (Dataset(np.eye(3), np.array([0.0, 1.0, 1.0])), "classification"),
    ],
)
def test_the_task_follows_from_the_data(dataset, task):
    assert task_of(dataset) == task


def test_unknown_tasks_systems_and_metrics():
    with pytest.raises(ValueError, match="no task named 'densty'. Closest: 'density'"):
        compare("iris", task="densty")
    with pytest.raises(ValueError, match="no system named 'foo'"):
        compare("iris", systems=["foo"])
    with pytest.raises(ValueError, match="some system must do completion on data of kind table"):
        compare("iris", task="completion")
    with pytest.raises(ValueError, match="no metric named 'acuracy'. Closest: 'accuracy'"):
        compare("iris", metric="acuracy")


def test_every_role_of_a_task_is_played_by_someone():
    known = {role for entry in catalog.entries() for role in entry.roles}
    assert {task.role for task in TASKS.values()} <= known


def test_every_task_has_a_baseline():
    for name, task in TASKS.items():
        assert task.rivals is not None, f"{name} has nothing to beat"


def test_generators_are_ranked_by_what_they_draw_and_show_it():
    from sklearn.datasets import load_digits

    from corollary import Training
    from corollary.generative import PixelCNN

    digits = load_digits()
    data = Dataset(digits.images[:240] / 16, kind="image", name="digits")
    quick = PixelCNN(width=4, n_layers=1, training=Training(epochs=1), random_state=0)
    board = compare(data, task="generation", systems=["ppca", quick], splits=2)
    assert set(board.directions) == {"Fréchet distance", "precision", "recall", "told from data"}
    assert "random convolutional features" in board.why
    scores = {row["system"]: row["scores"] for row in board.ranked}
    assert {"ppca", "histograms"} <= set(scores)
    assert all(0 <= found["precision"] <= 1 and 0 <= found["recall"] <= 1 for found in scores.values())
    assert len(board.samples) == len(board.ranked)
    assert all(np.shape(strip)[-2:] == (8, 8) for strip in board.samples.values())
    assert board.to_html().count("<img") >= len(board.ranked)


@pytest.mark.parametrize("bits", [8, 16])
def test_draws_of_pictures_are_compared_in_the_unit_of_the_pictures(bits):
    """Whole numbers up to 255 or 65535, of which models of images draw between 0 and 1: a copy of the data is near them."""
    from corollary import PixelCNN

    class Copy(PixelCNN):
        def sample(self, n_samples=1, label=None):
            return self.seen[np.arange(n_samples) % len(self.seen)]

    high, shades = 2**bits - 1, np.random.default_rng(0).random((40, 6, 6)).round(2)
    X = np.rint(shades * 0.8 * high).astype(f"uint{bits}")
    data = Dataset(X, kind="image", name="shades")
    model = Copy().set_params(random_state=0)
    model.sample_shape_, model.seen = (1, 6, 6), X[:, None] / high
    found = draws(model, data)
    assert found["Fréchet distance"] < 1e-6 and found["precision"] == found["recall"] == 1
    np.testing.assert_allclose(drawn_images(model, data, 10), X[:10, None] / high)
    model.seen = model.seen * 10 - 5  # beyond black and white there is nothing to see
    shown = drawn_images(model, data, 10)
    assert shown.min() == 0 and shown.max() == 1
    rows = Dataset(X.reshape(40, -1) / high, kind="table", name="rows", extra={"image_shape": (6, 6)})
    np.testing.assert_allclose(in_unit(rows), in_unit(data), atol=1e-6)  # one unit for those who see rows


def test_densities_of_images_are_in_bits_of_a_pixel_whoever_sees_what(monkeypatch):
    """What sees images (a convolutional flow) and what sees rows (PCA) are measured in one unit: bits of a grey level."""
    from sklearn.datasets import load_digits

    from corollary import Flow

    monkeypatch.setitem(Flow._training_defaults, "epochs", 2)
    data = Dataset(load_digits().images[:240] / 16, kind="image", name="digits")
    board = compare(data, task="density", systems=["ppca", "flows"], splits=2, rivals="baselines")
    scores = {row["system"]: row["score"] for row in board.ranked}
    assert 1.5 < scores["histograms"] < 3 < np.log2(17)
    assert all(1.5 < score < 6 for score in scores.values())


def test_real_images_are_better_draws_than_noise():
    from types import SimpleNamespace

    from sklearn.datasets import load_digits

    from corollary.comparison.measures import draws

    images = load_digits().images / 16
    held = Dataset(images[:300], kind="image", name="digits")
    real = draws(SimpleNamespace(sample=lambda n: images[300 : 300 + n]), held)
    noise = draws(SimpleNamespace(sample=lambda n: np.random.default_rng(0).random((n, 1, 8, 8))), held)
    assert real["Fréchet distance"] < 0.3 * noise["Fréchet distance"]
    assert real["told from data"] < noise["told from data"] - 0.1
    assert real["precision"] > noise["precision"] + 0.3 and real["recall"] > noise["recall"] + 0.3
