"""Trackers, notebooks, and the history as a frame."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from corollary import GaussianMixture, MLPClassifier, Run, Training, callbacks

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
MODEL = MLPClassifier((4,), training=Training(epochs=3), random_state=0)


def test_history_as_a_frame():
    frame = MODEL.fit(X, Y).history_frame()
    assert frame.index.tolist() == [1, 2, 3] and frame.index.name == "step"
    assert frame["loss"].tolist() == [row["loss"] for row in MODEL.history_]


def test_tensorboard_gets_every_metric(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = callbacks.TensorBoard(tmp_path)
    with Run(callbacks=[board]):
        model = MLPClassifier((4,), training=Training(epochs=3), random_state=0).fit(X, Y)
        GaussianMixture(2, random_state=0).fit(X)
    board.close()
    events = reader.EventAccumulator(str(tmp_path / "MLPClassifier"))
    events.Reload()
    written = [(scalar.step, scalar.value) for scalar in events.Scalars("loss")]
    assert written == [(row["step"], pytest.approx(row["loss"], rel=1e-6)) for row in model.history_]
    assert (tmp_path / "GaussianMixture").is_dir()


def test_each_fit_has_its_own_curves(tmp_path):
    """Folds of a cross-validation used to be drawn as one curve that goes back and forth."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = callbacks.TensorBoard(tmp_path)
    with Run(callbacks=[board]):
        cross_val_score(MODEL, X, Y, cv=3)
    board.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"MLPClassifier{end}" for end in ("", "-2", "-3")
    ]
    for folder in tmp_path.iterdir():
        events = reader.EventAccumulator(str(folder))
        events.Reload()
        assert [scalar.step for scalar in events.Scalars("loss")] == [1, 2, 3]


class Tracker(SimpleNamespace):
    """Stands for mlflow and wandb, with the calls that they have."""

    def __init__(self):
        super().__init__(told=[], run=None, started=[])

    def log_metrics(self, metrics, step):
        self.told.append((step, metrics))

    def init(self, **options):
        self.started.append(options)
        self.run = SimpleNamespace(log=lambda metrics: self.told.append((metrics["step"], metrics)))
        return self.run


def test_mlflow_and_wandb_are_told(monkeypatch):
    mlflow, wandb = Tracker(), Tracker()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with Run(callbacks=[callbacks.MLflow("train/"), callbacks.WandB(project="digits")]):
        MODEL.fit(X, Y)
    assert [step for step, _ in mlflow.told] == [1, 2, 3]
    assert mlflow.told[0][1]["train/loss"] == MODEL.history_[0]["loss"] == wandb.told[0][1]["loss"]
    assert wandb.started == [{"project": "digits"}]


def test_a_tracker_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        ImportError, match="WandB needs the package 'wandb'; got none installed. pip install wandb"
    ):
        with Run(callbacks=[callbacks.WandB()]):
            MODEL.fit(X, Y)


def test_a_live_plot_outside_of_a_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ImportError, match="LivePlot needs the package 'ipython'; got none installed"):
        with Run(callbacks=[callbacks.LivePlot()]):
            MODEL.fit(X, Y)


@pytest.fixture
def notebook(monkeypatch):
    """A kernel that writes down what it shows."""
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content)

    def display(content, raw, display_id):
        shown.append(content)
        return Handle()

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(version_info=(9, 0)))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return shown


def test_the_progress_bar_works_in_a_notebook(notebook):
    with Run(progress=True):
        MODEL.fit(X, Y)
    lines = [content["text/plain"] for content in notebook]
    assert len(lines) == 3 and lines[-1].startswith("MLPClassifier [####") and "3/3" in lines[-1]
    notebook.clear()
    with Run(progress=False):
        MODEL.fit(X, Y)
    MODEL.fit(X, Y)  # short fits stay silent
    assert notebook == []


def test_learning_curves_are_drawn_while_the_fit_goes_on(notebook):
    with Run(callbacks=[callbacks.LivePlot(every=0.0)], progress=False):
        MODEL.fit(X, Y)
    assert len(notebook) == 3 and notebook[-1]["image/png"].startswith(b"\x89PNG")
