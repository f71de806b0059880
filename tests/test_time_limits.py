"""Time limits by a clock that the tests move: how much is done between two looks, and what is reported of it."""

import builtins
import gc
import importlib
import signal
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pytest

from corollary import BaggingClassifier, MLPClassifier, Run, SelfTraining, SequenceForecaster, Training
from corollary.data.dataset import Dataset
from corollary.embeddings import glove, skipgram
from corollary.embeddings.corpus import Corpus
from corollary.engine import clock as clocks
from corollary.engine import interrupts, loop
from corollary.engine.interrupts import pause_wanted, time_left
from corollary.engine.learner import Iteration
from corollary.engine.loop import drive
from corollary.engine.pieces import Piecewise
from corollary.errors import FitStopped
from corollary.reporting import report


class Clock:
    """A clock that only moves when told."""

    def __init__(self):
        self.now, self.looks = 0.0, 0

    def __call__(self):
        self.looks += 1
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(clocks, "monotonic", made)
    monkeypatch.setattr(clocks, "_thread", clocks._Thread())
    return made


class Slow(Iteration):
    """Takes so many seconds for a step, and cannot pause inside."""

    def __init__(self, clock, seconds, max_iter=100):
        super().__init__(max_iter)
        self.clock, self.seconds = clock, seconds

    def sweep(self):
        self.clock.now += self.seconds
        return {"left": -1.0 if (left := time_left()) is None else left}


class InPieces(Piecewise):
    """Takes a second for each of ten pieces, and adds them up."""

    saved = (*Piecewise.saved, "total")

    def __init__(self, clock=None):
        super().__init__(max_iter=3)
        self.clock, self.total, self.done_pieces = clock, 0.0, []

    def count(self):
        return 10

    def piece(self, i):
        self.total = 0.5 * self.total + i
        self.done_pieces.append((self.n_iter, i))
        if self.clock is not None:
            self.clock.now += 1

    def finish(self):
        return {"total": self.total}

    def unfinished(self):
        return {"total": self.total}


def driven(learner, limit):
    with Run(time_limit=limit, progress=False) as run, warnings.catch_warnings():
        warnings.simplefilter("ignore", FitStopped)
        return drive(learner, run, owner="Slow", since=0.0)


@pytest.mark.parametrize("limit, steps", [(12.0, 2), (13.9, 2), (14.1, 3), (1.0, 1), (0.0, 1), (500.0, 100)])
def test_a_step_that_would_end_late_is_not_begun(clock, limit, steps):
    journal = driven(Slow(clock, 5.0), limit)
    assert journal.step == steps and clock.now == 5.0 * steps
    assert journal.stopped == ("time limit" if steps < 100 else "done")
    assert steps == 1 or clock.now <= limit + loop.GRACE


def test_a_sweep_in_pieces_is_left_between_them_and_goes_on_exactly(clock):
    learner = InPieces(clock)
    journal = driven(learner, 13.5)
    assert learner.done_pieces[-1] == (1, 3) and clock.now == 14.0  # one sweep and four pieces of the next
    assert journal.step == 1 and journal.stopped == "time limit" and not learner.done
    rows = journal.history()
    assert rows[-1] == {"step": 2, "total": learner.total, "seconds": 14.0}
    again = InPieces()
    again.restore(learner.state())
    whole = InPieces()
    while not again.done:
        again.step()
    while not whole.done:
        whole.step()
    assert again.total == whole.total and again.n_iter == 3
    with pytest.raises(ValueError, match="at of InPieces must be an integer"):
        again.restore({**learner.state(), "at": -1})


def test_a_fit_inside_another_ends_with_it(clock):
    class Around(Iteration):
        journals = []

        def sweep(self):
            with Run(progress=False) as run, warnings.catch_warnings():
                warnings.simplefilter("ignore", FitStopped)
                self.journals.append(drive(Slow(clock, 1.0, 50), run, owner="Inner", since=clock.now))
            return {}

    outer = Around(5)
    journal = driven(outer, 20.0)
    assert journal.stopped == "time limit" and len(outer.journals) == 1
    assert outer.journals[0].stopped == "time limit" and 19.0 <= clock.now <= 21.0
    assert outer.journals[0].rows[3]["left"] == 16.0


class First(Slow):
    """Its steps take a second each; the first also compiles, or imports, for a minute."""

    def __init__(self, clock, work):
        super().__init__(clock, 1.0)
        self.work = work

    def sweep(self):
        if not self.clock.now:
            self.work()
        return super().sweep()


@pytest.mark.parametrize("what", ["compilation", "import"])
def test_compiling_and_importing_count_towards_no_limit(clock, tmp_path, monkeypatch, what):
    """The first fit of a process made fewer steps than the second."""
    from numba.core import event

    def compiled():
        with event.trigger_event(clocks.COMPILER), event.trigger_event(clocks.COMPILER):
            clock.now += 60
            assert clocks.stands() and time_left() == 5.0

    def imported():
        (tmp_path / "takes_a_minute.py").write_text("import builtins\nbuiltins.corollary_clock.now += 60")
        importlib.import_module("takes_a_minute")

    monkeypatch.setattr(builtins, "corollary_clock", clock, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "takes_a_minute", raising=False)
    before = importlib._bootstrap._find_and_load
    journal = driven(First(clock, compiled if what == "compilation" else imported), 5.0)
    assert clock.now == 65.0 and journal.step == 5 and journal.rows[0]["seconds"] == 1.0
    assert importlib._bootstrap._find_and_load is before and not clocks.stands()


def test_a_box_of_time_does_not_ring_in_a_compilation():
    done = False
    with pytest.raises(interrupts.OutOfTime), interrupts.time_box(0.02):
        clocks._stop()
        time.sleep(0.1)
        done = True
        clocks._go()
        clocks._go()  # of a compilation that nobody heard begin
        time.sleep(60)
    assert done and not clocks.stands()


def test_what_another_thread_imports_does_not_stop_the_clock(tmp_path, monkeypatch):
    """A module that never ended in a thread left the fits of all others without a limit."""
    (tmp_path / "waits_for_the_test.py").write_text("import builtins\nbuiltins.corollary_waits()")
    ended, begun = threading.Event(), threading.Event()
    waits = lambda: (begun.set(), ended.wait(60))  # noqa: E731
    monkeypatch.setattr(builtins, "corollary_waits", waits, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    other = threading.Thread(target=importlib.import_module, args=("waits_for_the_test",))
    try:
        with clocks.watching():
            other.start()
            assert begun.wait(60) and not clocks.stands()
            before = clocks.now()
            time.sleep(0.01)
            assert clocks.now() >= before + 0.01
    finally:
        ended.set()
        other.join()


def test_a_limit_inside_a_module_that_is_imported_is_kept(clock):
    """An experiment that is a module, imported in a block with a limit, had none itself."""
    with clocks.watching():
        clocks._stop()
        clock.now += 60
        journal = driven(Slow(clock, 5.0), 12.0)
        assert journal.step == 2 and journal.stopped == "time limit" and clocks.stands()
        clocks._go()
    assert not clocks.stands() and clocks.now() == 10.0


def test_a_compilation_whose_end_was_never_told_stops_no_later_fit(clock):
    """Ctrl-C while numba waits for its lock ends no event: the clock stood for the rest of the process."""
    with pytest.raises(KeyboardInterrupt), clocks.watching():
        clocks._stop()
        raise KeyboardInterrupt
    assert not clocks.stands()
    clocks._stop()
    assert driven(Slow(clock, 5.0), 12.0).step == 2


def test_nothing_says_how_long_outside_of_a_fit():
    assert time_left() is None and not pause_wanted()


@pytest.mark.parametrize("model", ["bagging", "self-training"])
def test_members_end_with_the_fit_around_them_and_do_not_count(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    member = MLPClassifier((4,), training=Training(epochs=10**6), random_state=0)
    if model == "bagging":
        model = BaggingClassifier(member, n_estimators=3, random_state=0)
    else:
        model, y = SelfTraining(member, random_state=0), np.where(np.arange(60) < 50, y, -1)
    with Run(time_limit=0.0, progress=False), pytest.warns(FitStopped) as said:
        model.fit(X, y)
    assert len(said) == 1 and model.stopped_ == "time limit" and model.predict(X).shape == (60,)
    assert model.history_[-1]["step"] == 1


def paused_at(monkeypatch, module, learner, look):
    """Step until the clock has been looked at so many times."""
    looks = iter(range(10**6))
    monkeypatch.setattr("corollary.engine.pieces.pause_wanted", lambda: next(looks) == look)
    assert learner.step() is None
    monkeypatch.undo()


@pytest.mark.parametrize("kind", ["skip-gram", "glove"])
def test_long_passes_over_words_look_at_the_clock(monkeypatch, kind):
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 30, size=40) for _ in range(100)]

    def learner():
        if kind == "skip-gram":
            tokens = np.concatenate(texts).astype(np.int32)
            corpus = Corpus(tokens, np.arange(0, len(tokens) + 1, 40))
            return skipgram.NegativeSampling(
                corpus, np.bincount(tokens), skipgram.SkipGram(8, epochs=2), 1, 0
            )
        from scipy import sparse

        counts = sparse.csr_matrix(rng.poisson(3.0, (30, 30)).astype(float))
        return glove.AdaGrad(counts, glove.GloVe(8, epochs=2), 1, 0)

    monkeypatch.setattr(skipgram, "STRETCH", 500)
    monkeypatch.setattr(glove, "STRETCH", 1000)
    rng = np.random.default_rng(1)
    whole = learner()
    assert whole.count() >= 5
    rng = np.random.default_rng(1)
    half = learner()
    rng = np.random.default_rng(1)
    other = learner()
    paused_at(monkeypatch, skipgram, half, 2)
    monkeypatch.setattr(skipgram, "STRETCH", 500)
    monkeypatch.setattr(glove, "STRETCH", 1000)
    other.restore(half.state())
    while not whole.done:
        expected = whole.step()
    while not other.done:
        found = other.step()
    np.testing.assert_array_equal(whole.inputs, other.inputs)
    assert expected == found


def test_a_forecaster_looks_at_the_clock_between_pieces_of_a_long_series():
    x = np.random.default_rng(0).normal(size=30_000)
    model = SequenceForecaster(training=Training(1), random_state=0)
    learner = model._learner(model._data(x, None, None))
    size = learner.training.batch_size
    most = max(
        batch.inputs[0].shape[0] * batch.inputs[0].shape[1] for batch in learner.batches.epoch(None, size, 0)
    )
    assert most <= 32 * 512


def test_what_was_done_of_the_first_epoch_is_reported(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(400, 5)), np.arange(400) % 2
    model = MLPClassifier((4,), training=Training(epochs=3, batch_size=4), random_state=0)
    with Run(time_limit=0.0, progress=False), pytest.warns(FitStopped, match="part of the next"):
        model.fit(X, y)
    (row,) = model.history_
    assert row["step"] == 1 and row["seconds"] > 0 and np.isfinite(row["loss"])
    page = report(model, Dataset(X, y), tmp_path / "r.html", time_limit=0.0).read_text()
    assert "<th>steps</th><td>part of 1</td>" in page and "Left out" in page


def test_a_box_of_time_inside_another_does_not_disarm_it():
    begin, inner = time.monotonic(), 0
    with pytest.raises(interrupts.OutOfTime), interrupts.time_box(0.2):
        with pytest.raises(KeyError), interrupts.time_box(0.01, KeyError):
            time.sleep(60)
        inner += 1
        with interrupts.time_box(600):  # longer than the one around it, which rings first
            pass
        inner += 1
        time.sleep(60)
    assert inner == 2 and time.monotonic() - begin >= 0.2
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("where", ["finaliser", "collector", "weak reference"])
def test_time_that_is_up_where_an_exception_would_be_lost_ends_the_block_later(where, monkeypatch):
    rung = []

    def wait(*_):
        monkeypatch.setattr(clocks, "monotonic", lambda: time.monotonic() + 600)
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 0.01)  # what the box does when its time is up
        while not rung:
            time.sleep(1e-3)

    class Kept:
        def __del__(self):
            wait()

    with pytest.raises(interrupts.OutOfTime), interrupts.time_box(600):
        ring = signal.getsignal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, lambda *given: (rung.append(1), ring(*given)))
        if where == "finaliser":
            Kept()
        elif where == "weak reference":
            circle = type("Circle", (), {})()
            circle.itself, watched = circle, weakref.ref(circle, wait)
            del circle
            gc.collect()
            assert watched() is None
        else:
            gc.callbacks.append(wait)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(wait)
        while True:
            time.sleep(1e-3)
    assert len(rung) > 1
