"""scikit-learn's own callbacks work on every learner, classical or gradient-trained."""

import numpy as np
import pytest
from sklearn.callback import ProgressBar, ScoringMonitor

from corollary import VAE, MLPClassifier, Training, catalog

X = np.random.default_rng(0).normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(int)


class Recorder:
    """A callback that writes down what it is told, and may stop the fit."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.told, self.models = [], []

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "step":
            self.told.append(context.task_id)
            self.models.append(fitted_estimator)
            return self.stop_after is not None and context.task_id + 1 >= self.stop_after


MODELS = [
    lambda: MLPClassifier((4,), training=Training(epochs=4), random_state=0),
    lambda: VAE(2, hidden_layer_sizes=(4,), training=Training(epochs=4), random_state=0),
    lambda: catalog.create("gaussian-mixture", n_components=2, max_iter=4, tol=0.0, random_state=0),
]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_callbacks_are_told_every_step(make):
    recorder = Recorder()
    model = make().set_callbacks(recorder).fit(X, Y)
    assert recorder.told[0] == "setup"
    assert recorder.told[-1] == "teardown"
    assert recorder.told[1:-1] == list(range(len(model.history_)))


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_callbacks_get_a_model_that_works(make):
    recorder = Recorder()
    model = make().set_callbacks(recorder).fit(X, Y)
    method = "predict" if hasattr(model, "predict") else "transform"
    assert np.array_equal(getattr(recorder.models[-1], method)(X), getattr(model, method)(X))
    first = getattr(recorder.models[0], "predict_proba", getattr(recorder.models[0], "transform", None))(X)
    assert np.isfinite(first).all()


@pytest.mark.filterwarnings("ignore")
def test_a_callback_can_stop_a_fit():
    model = MODELS[0]().set_callbacks(Recorder(stop_after=2)).fit(X, Y)
    assert len(model.history_) == 2


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_progress_bar(make, capsys):
    make().set_callbacks(ProgressBar()).fit(X, Y)
    assert type(make()).__name__ in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_scoring_monitor():
    monitor = ScoringMonitor(scoring="accuracy")
    model = MODELS[0]().set_callbacks(monitor).fit(X, Y)
    scores = monitor.get_logs().data_as_pandas["accuracy"]
    assert len(scores) >= 4
    assert scores.iloc[-1] == model.score(X, Y)
