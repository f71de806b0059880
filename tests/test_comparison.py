"""Leaderboards: the right systems, one split, honest failures."""

import numpy as np
import pytest
from scipy import sparse

from corollary import catalog, compare
from corollary.comparison import TASKS, task_of
from corollary.data import Dataset, Graph


def test_a_ratings_file_gets_a_leaderboard(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["user,item,rating"]
    lines += [f"u{u},i{i},{rng.integers(1, 6)}" for u in range(30) for i in range(30) if rng.random() < 0.5]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(lines))
    board = compare(path)
    assert board.task == "completion"
    assert {row["system"] for row in board.rows} == {e.id for e in catalog.entries(role="completer")}
    scores = [row["score"] for row in board.rows if row["score"] is not None]
    assert scores == sorted(scores)  # the smallest error comes first
    assert 0.5 < scores[0] < 3


def test_scores_are_what_the_model_says():
    from corollary import MLPClassifier, data

    board = compare("iris", systems=["mlp"], seed=3)
    kept, held = data.split(data.load("iris"), 0.2, 3)
    model = MLPClassifier(random_state=3).fit(kept.X, kept.y)
    assert board.rows[0]["score"] == model.score(held.X, held.y)


def test_densities_of_integers_are_dequantised():
    X = np.random.default_rng(0).integers(0, 3, size=(200, 4)).astype(float)
    board = compare(X, task="density", systems=["gaussian-mixture", "pca"])
    assert all(
        row["score"] < 0 for row in board.rows
    )  # a density of integers could be made arbitrarily large


def test_topic_models_are_measured_alike():
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(3, 0.1), 200) @ rng.dirichlet(np.full(40, 0.1), 3)
    counts = Dataset(sparse.csr_matrix(rng.poisson(40 * rates).astype(float)), name="counts")
    board = compare(counts, task="topics", systems=["plsa", "lda"])
    scores = {row["system"]: row["score"] for row in board.rows}
    # chance among 40 words is 40; of ten topics for three the prior of LDA makes the better use
    assert scores["lda"] < 1.05 * scores["plsa"] and max(scores.values()) < 32


def test_a_failure_is_a_row_with_its_reason():
    board = compare("iris", systems=["als", "mlp"])
    assert [row["system"] for row in board.rows] == ["mlp", "als"]
    assert board.rows[1]["score"] is None
    assert "must be of kind ratings" in board.rows[1]["error"]
    assert "must be of kind ratings" in repr(board)


@pytest.mark.parametrize(
    ("dataset", "task"),
    [
        (Dataset(sparse.eye(3, format="csr"), kind="ratings"), "completion"),
        (Dataset(Graph(x=np.eye(3), edge_index=np.zeros((2, 0), int)), kind="graph"), "nodes"),
        (Dataset(["a b"], kind="text"), "language"),
        (Dataset(np.eye(3)), "density"),
        (Dataset(np.eye(3), np.array(["a", "b", "a"])), "classification"),
        (Dataset(np.eye(3), np.array([0.1, 2.5, 3.7])), "regression"),
        (Dataset(np.eye(3), np.array([0.0, 1.0, 1.0])), "classification"),
    ],
)
def test_the_task_follows_from_the_data(dataset, task):
    assert task_of(dataset) == task


def test_unknown_tasks_and_systems():
    with pytest.raises(ValueError, match="no task named 'densty'. Closest: 'density'"):
        compare("iris", task="densty")
    with pytest.raises(ValueError, match="no system named 'foo'"):
        compare("iris", systems=["foo"])
    with pytest.raises(ValueError, match="some system must do completion on data of kind table"):
        compare("iris", task="completion")


def test_every_role_of_a_task_is_played_by_someone():
    known = {role for entry in catalog.entries() for role in entry.roles}
    assert {task.role for task in TASKS.values()} <= known
