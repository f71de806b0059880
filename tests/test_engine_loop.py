"""The loop gives every learner history, stopping, limits, checkpoints and exact resume."""

import math
import os
import signal
import threading

import numpy as np
import pytest

import corollary
from corollary.engine.interrupts import pause_wanted
from corollary.engine.learner import Iteration, Learner, Once, freeze, thaw
from corollary.engine.loop import EarlyStopping, drive
from corollary.engine.run import Checkpoints, Run, current
from corollary.errors import CorollaryWarning, Diverged
from corollary.shapes import Mismatch


class Walk(Iteration):
    """A random walk: its state is a position and a generator."""

    saved = ("position", "rng")

    def __init__(self, max_iter=20, seed=0):
        super().__init__(max_iter)
        self.position = np.zeros(3)
        self.rng = np.random.default_rng(seed)

    def sweep(self):
        self.position = self.position + self.rng.normal(size=3)
        return {"loss": float(np.abs(self.position).sum())}


class Fall(Iteration):
    """Metrics given in advance."""

    saved = ("at",)

    def __init__(self, values):
        super().__init__(len(values))
        self.values, self.at = values, 0

    def sweep(self):
        self.at += 1
        return {"loss": self.values[self.at - 1]}


def test_iteration_is_a_learner():
    assert isinstance(Walk(), Learner)


def test_history_has_a_row_per_step_with_metrics_and_seconds():
    journal = drive(Walk(5), Run(), owner="Walk")
    assert [row["step"] for row in journal.rows] == [1, 2, 3, 4, 5]
    seconds = [row["seconds"] for row in journal.rows]
    assert seconds == sorted(seconds)
    assert all(set(row) == {"step", "loss", "seconds"} for row in journal.rows)


@pytest.mark.parametrize("stop_at", [2, 7, 19])
def test_a_resumed_fit_equals_an_uninterrupted_one(tmp_path, stop_at):
    whole = Walk()
    drive(whole, Run(), owner="Walk")
    first = Walk()
    run = Run(tmp_path, checkpoint_every=0, callbacks=[lambda event: event.step == stop_at])
    with pytest.MonkeyPatch.context() as patch:  # stop as a kill would: no callback verdict is kept
        patch.setattr("corollary.engine.run.Checkpoints.write", _forgetful())
        drive(first, run, owner="Walk")
    second = Walk(seed=99)
    journal = drive(second, Run(tmp_path, resume=True), owner="Walk")
    assert np.array_equal(second.position, whole.position)
    assert [row["step"] for row in journal.rows] == list(range(1, 21))


def _forgetful():
    original = Checkpoints.write

    def write(self, state):
        if not state["journal"]["stopped"]:
            original(self, state)

    return write


def test_a_finished_fit_is_not_run_again(tmp_path):
    drive(Walk(), Run(tmp_path), owner="Walk")
    again = Walk()
    again.sweep = lambda: pytest.fail("a finished learner was stepped")
    journal = drive(again, Run(tmp_path, resume=True), owner="Walk")
    assert journal.step == 20


def test_resume_with_a_larger_budget_goes_on(tmp_path):
    drive(Walk(5), Run(tmp_path), owner="Walk")
    longer = Walk(20)
    drive(longer, Run(tmp_path, resume=True), owner="Walk")
    whole = Walk(20)
    drive(whole, Run(), owner="Walk")
    assert np.array_equal(longer.position, whole.position)


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(tmp_path):
    drive(Walk(), Run(tmp_path, checkpoint_every=0), owner="Walk")
    path = next(tmp_path.rglob("checkpoint.safetensors"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    resumed = Walk()
    with pytest.warns(CorollaryWarning, match="before it"):
        drive(resumed, Run(tmp_path, resume=True), owner="Walk")
    whole = Walk()
    drive(whole, Run(), owner="Walk")
    assert np.array_equal(resumed.position, whole.position)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    drive(Walk(), Run(tmp_path), owner="Walk", fingerprint={"rank": "3"})
    with pytest.raises(ValueError, match=r"rank='3'.*got rank='4'.*another directory"):
        drive(Walk(), Run(tmp_path, resume=True), owner="Walk", fingerprint={"rank": "4"})


def test_early_stopping_restores_the_best_state():
    learner = Fall([5.0, 3.0, 1.0, 2.0, 2.5, 0.1])
    journal = drive(learner, Run(early_stopping=EarlyStopping("loss", patience=2)), owner="Fall")
    assert journal.stopped == "early stopping"
    assert journal.step == 5
    assert learner.at == 3


@pytest.mark.parametrize(
    ("metric", "sign"), [("validation_accuracy", 1), ("log_likelihood", 1), ("loss", -1)]
)
def test_early_stopping_knows_which_way_is_better(metric, sign):
    assert EarlyStopping(metric).sign() == sign
    assert EarlyStopping(metric, mode="max").sign() == 1


def test_early_stopping_on_a_metric_that_is_not_there():
    with pytest.raises(ValueError, match="no metric named 'accuracy'.*it has loss"):
        drive(Walk(), Run(early_stopping=EarlyStopping("accuracy")), owner="Walk")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_divergence_keeps_the_last_finite_state(bad):
    learner = Fall([3.0, 2.0, bad, 1.0])
    with pytest.raises(Diverged, match=r"Fall: loss must stay finite; got (nan|inf) at step 3"):
        drive(learner, Run(), owner="Fall")
    assert learner.at == 2


def test_time_limit_stops_usable_and_resumable(tmp_path):
    learner = Walk(10**9)
    with pytest.warns(CorollaryWarning, match=r"time limit.*usable.*resume=True"):
        journal = drive(learner, Run(tmp_path, time_limit=0.05), owner="Walk")
    assert 0 < journal.step < 10**9
    assert journal.stopped == "time limit"


@pytest.fixture
def listening():
    """Let Ctrl-C be heard: a process started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path, listening):
    run = Run(tmp_path, callbacks=[lambda event: event.step == 3 and os.kill(os.getpid(), signal.SIGINT)])
    learner = Walk()
    with pytest.warns(CorollaryWarning, match=r"Ctrl-C after 3 steps.*resume=True"):
        drive(learner, run, owner="Walk")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed, whole = Walk(), Walk()
    drive(resumed, Run(tmp_path, resume=True), owner="Walk")
    drive(whole, Run(), owner="Walk")
    assert np.array_equal(resumed.position, whole.position)


def test_callbacks_see_every_step_and_can_stop():
    seen = []
    journal = drive(
        Walk(), Run(callbacks=[lambda e: seen.append(e.step), lambda e: e.step == 4]), owner="Walk"
    )
    assert seen == [1, 2, 3, 4]
    assert journal.stopped == "callback"


def test_pause_is_not_wanted_outside_a_loop():
    assert not pause_wanted()


def test_runs_nest_and_threads_do_not_see_them(tmp_path):
    seen = []
    with Run(tmp_path / "outer") as outer:
        with Run(tmp_path / "inner") as inner:
            assert current() is inner
            thread = threading.Thread(target=lambda: seen.append(current().directory))
            thread.start()
            thread.join()
        assert current() is outer
    assert current().directory is None
    assert seen == [None]


def test_run_checks_its_arguments():
    with pytest.raises(ValueError, match="resume=True needs a directory"):
        Run(resume=True)
    with pytest.raises(ValueError, match="processes must be at least 1; got 0"):
        Run(processes=0)


def test_progress_bar_is_shown_on_demand(capsys):
    drive(Walk(3), Run(progress=True), owner="Walk", total=3)
    assert "Walk" in capsys.readouterr().err
    drive(Walk(3), Run(progress=False), owner="Walk", total=3)
    assert capsys.readouterr().err == ""


def test_a_verbose_estimator_shows_its_progress(capsys):
    X = np.random.default_rng(0).normal(size=(30, 2))
    corollary.GaussianMixture(2, verbose=1, random_state=0).fit(X)
    assert "GaussianMixture" in capsys.readouterr().err
    with Run(progress=False):  # the run's wish comes first
        corollary.GaussianMixture(2, verbose=1, random_state=0).fit(X)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("make", [lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)])
def test_generators_are_frozen_and_thawed(make):
    rng, other = make(), make()
    rng.normal(size=5)
    thaw(other, freeze(rng))
    assert np.array_equal(other.normal(size=4), rng.normal(size=4))


def test_once_is_one_step():
    learner = Once(lambda: {"answer": np.arange(3)})
    journal = drive(learner, Run(), owner="Once")
    assert journal.step == 1
    assert learner.results["answer"].tolist() == [0, 1, 2]


def test_public_names_resolve():
    assert corollary.Run is Run
    with pytest.raises(AttributeError, match="Closest: 'PCA'"):
        corollary.PCAA  # noqa: B018


def test_a_signal_after_the_last_step_ends_nothing(tmp_path):
    """It came too late: the fit is done, and says so when it is resumed."""

    def last(event):
        if event.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    for _ in range(2):
        run = Run(tmp_path, resume=True, callbacks=[last])
        assert drive(Walk(4), run, owner="Walk").stopped == "done"


def test_a_generator_of_zeros_is_refused():
    """Nothing but zeros would follow, and samplers that reject wait for another number for ever."""
    generator = np.random.RandomState(0)
    state = freeze(generator)
    state["state"]["key"][:] = 0
    with pytest.raises(Mismatch, match="the state of the generator must not be all zeros"):
        thaw(generator, state)


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [([list], r"Write list\(\)"), (print, "Write callbacks="), ([3], "functions of an event")],
)
def test_what_cannot_be_called_with_an_event_is_named(callbacks, message):
    with pytest.raises(TypeError, match=message):
        Run(callbacks=callbacks)
