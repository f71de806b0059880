"""A run's directory: one fit at a time, nothing overwritten in silence, every fault survived."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import corollary
from corollary import io
from corollary.engine.directory import Lock, busy
from corollary.engine.draws import Draws
from corollary.engine.learner import Iteration
from corollary.engine.loop import drive
from corollary.engine.run import Run
from corollary.errors import CorollaryWarning, Diverged, FitStopped, OtherFit, RunError
from test_engine_loop import Walk

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """Nothing here is about power cuts, so nothing waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def mixture(**params):
    return corollary.GaussianMixture(3, **{"max_iter": 8, "tol": 0.0, "random_state": 0, **params})


def whole():
    learner = Walk()
    drive(learner, Run(), owner="Walk")
    return learner.position


# --- one fit at a time -----------------------------------------------------------------------------------


def test_a_directory_in_use_is_refused_in_threads_and_processes(tmp_path):
    inside, go = threading.Event(), threading.Event()

    def fit():
        callbacks = [lambda event: inside.set() or go.wait(60) and None]
        drive(Walk(), Run(tmp_path, callbacks=callbacks), owner="Walk")

    thread = threading.Thread(target=fit)
    thread.start()
    try:
        assert inside.wait(60)
        assert busy(tmp_path)
        with pytest.raises(
            RunError, match=f"nothing else may work in.*process {os.getpid()}.*another directory"
        ):
            drive(Walk(), Run(tmp_path, resume=True), owner="Walk")
        code = f"from corollary.engine.directory import Lock; from pathlib import Path; Lock(Path({str(tmp_path)!r}))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "RunError" in other.stderr
    finally:
        go.set()
        thread.join()
    assert not busy(tmp_path)
    again = Walk()
    drive(again, Run(tmp_path, resume=True), owner="Walk")
    assert np.array_equal(again.position, whole())


def test_the_lock_dies_with_its_owner(tmp_path):
    code = (
        "import sys, time; from corollary.engine.directory import Lock; from pathlib import Path\n"
        f"lock = Lock(Path({str(tmp_path)!r})); print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    assert busy(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not busy(tmp_path)
    Lock(tmp_path).release()


def test_a_run_holds_its_directory_until_its_end_and_may_fit_again_and_again(tmp_path):
    with Run(tmp_path) as run:
        drive(Walk(), run, owner="Walk")
        drive(Walk(), run, owner="Walk")
        with pytest.raises(RunError, match="nothing else"):
            Lock(tmp_path)
    Lock(tmp_path).release()
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"001-Walk", "002-Walk"}


# --- nothing is overwritten ------------------------------------------------------------------------------


def files(directory):
    return {p: p.read_bytes() for p in directory.rglob("*") if p.is_file() and p.name != ".lock"}


def test_a_fit_without_resume_leaves_an_existing_run_alone(tmp_path):
    with Run(tmp_path):
        mixture().fit(X)
    before = files(tmp_path)
    with Run(tmp_path), pytest.raises(OtherFit, match=r"must not hold a fit.*GaussianMixture.*resume=True"):
        mixture(random_state=1).fit(X)
    for path in (tmp_path / "checkpoints").rglob("*.safetensors"):
        path.unlink()
        before.pop(path)
    with Run(tmp_path), pytest.raises(OtherFit, match="must not hold a fit"):  # the model alone is work too
        mixture(random_state=1).fit(X)
    assert files(tmp_path) == before


def test_resume_with_another_system_is_refused(tmp_path):
    with Run(tmp_path):
        mixture().fit(X)
    before = files(tmp_path)
    with Run(tmp_path, resume=True), pytest.raises(OtherFit, match=r"must fit GaussianMixture.*got PCA"):
        corollary.PCA(2).fit(X)
    assert files(tmp_path) == before


def test_resume_on_other_data_is_refused(tmp_path):
    data = np.random.default_rng(0).normal(size=(70_000, 2))
    with Run(tmp_path):
        corollary.PCA(1).fit(data)
    data[12_345, 1] += 1e-9
    with Run(tmp_path, resume=True), pytest.raises(OtherFit, match="a resumed fit must have data="):
        corollary.PCA(1).fit(data)


def test_a_checkpoint_of_a_newer_version_is_not_replaced(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(io, "SCHEMA", io.SCHEMA + 1)
        drive(Walk(5), Run(tmp_path), owner="Walk")
    before = files(tmp_path)
    with pytest.raises(io.NewerFile, match=f"schema {io.SCHEMA + 1}"):
        drive(Walk(), Run(tmp_path, resume=True), owner="Walk")
    assert files(tmp_path) == before


# --- damage ----------------------------------------------------------------------------------------------


def as_directory(path):
    path.unlink()
    path.mkdir()


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_link(path):
    path.unlink()
    path.symlink_to("nowhere")


def with_other_shapes(path):
    document = io.read(path, "checkpoint")
    document["learner"]["position"] = np.zeros((2, 2))
    document["learner"]["rng"] = {"bit_generator": "PCG64"}
    io.write(path, document, "checkpoint")


def with_names_left_out(path):
    document = io.read(path, "checkpoint")
    document["learner"].pop("position")
    io.write(path, document, "checkpoint")


DAMAGES = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "a directory": as_directory,
    "a pipe": as_pipe,
    "a dangling link": as_link,
    "other shapes": with_other_shapes,
    "names left out": with_names_left_out,
    "no journal": lambda path: io.write(path, {"fingerprint": {}, "parts": {}}, "checkpoint"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_previous_checkpoint_is_tried_after_any_damage(tmp_path, damage):
    drive(Walk(9), Run(tmp_path, checkpoint_every=0), owner="Walk")
    folder = tmp_path / "checkpoints/001-Walk"
    DAMAGES[damage](folder / "checkpoint.safetensors")
    learner = Walk()
    with pytest.warns(CorollaryWarning, match="cannot be used.*kept as kept-1-checkpoint.*one before it"):
        journal = drive(learner, Run(tmp_path, resume=True), owner="Walk")
    assert np.array_equal(learner.position, whole())
    assert [row["step"] for row in journal.rows] == list(range(1, 21))
    assert os.path.lexists(folder / "kept-1-checkpoint.safetensors")


def test_if_no_checkpoint_is_usable_the_fit_says_that_it_starts_anew(tmp_path):
    drive(Walk(9), Run(tmp_path, checkpoint_every=0), owner="Walk")
    folder = tmp_path / "checkpoints/001-Walk"
    as_pipe(folder / "previous.safetensors")
    with_other_shapes(folder / "checkpoint.safetensors")
    learner = Walk()
    with pytest.warns(CorollaryWarning) as caught:
        drive(learner, Run(tmp_path, resume=True), owner="Walk")
    assert "one before it" in str(caught[0].message)
    assert "starts anew" in str(caught[1].message)
    assert np.array_equal(learner.position, whole())
    assert {"kept-1-checkpoint.safetensors", "kept-1-previous.safetensors"} <= set(os.listdir(folder))


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    drive(Walk(5), Run(tmp_path), owner="Walk")
    folder = tmp_path / "checkpoints/001-Walk"
    left = [
        tmp_path / ".model.safetensors.1.2.tmp",
        folder / ".fresh.safetensors.1.2.tmp",
        folder / "fresh.safetensors",
    ]
    for path in left:
        path.write_bytes(b"half")
    drive(Walk(), Run(tmp_path, resume=True), owner="Walk")
    assert not any(path.exists() for path in left)


# --- full disks ------------------------------------------------------------------------------------------


class FullDisk:
    """Writing fails while it is full."""

    def __init__(self, monkeypatch):
        self.full, self.tried = False, 0
        original = os.fsync

        def fsync(handle):
            self.tried += self.full
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            original(handle)

        monkeypatch.setattr(os, "fsync", fsync)


def test_a_full_disk_costs_a_checkpoint_not_the_fit(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)

    def fill(event):
        disk.full = 3 <= event.step < 15

    learner = Walk()
    with pytest.warns(CorollaryWarning, match="No space left.*goes on and tries again") as caught:
        drive(learner, Run(tmp_path, checkpoint_every=0, callbacks=[fill]), owner="Walk")
    assert len(caught) == 1  # said once, tried every time
    assert disk.tried == 12
    assert np.array_equal(learner.position, whole())
    again = Walk()
    drive(again, Run(tmp_path, resume=True), owner="Walk")  # it was written once there was room
    assert np.array_equal(again.position, whole())


def test_a_disk_full_at_the_end_still_gives_the_model(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)

    def fill(event):
        disk.full = True

    with pytest.warns(CorollaryWarning) as caught, Run(tmp_path, callbacks=[fill]):
        model = mixture().fit(X)
    assert np.array_equal(model.means_, mixture().fit(X).means_)
    assert any("whole in memory" in str(w.message) for w in caught)
    assert not (tmp_path / "model.safetensors").exists()
    disk.full = False
    with Run(tmp_path, resume=True):
        assert np.array_equal(mixture().fit(X).means_, model.means_)
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="must be a directory to write in"), Run(tmp_path / "run"):
        mixture().fit(X)


def test_a_file_in_the_place_of_the_directory_is_refused_before_the_work(tmp_path):
    (tmp_path / "run").write_text("")
    model = mixture()
    with pytest.raises(OSError, match=r"Run: .* must be a directory to write in"), Run(tmp_path / "run"):
        model.fit(X)
    assert not hasattr(model, "means_")


# --- stopping --------------------------------------------------------------------------------------------


def test_sigterm_does_what_ctrl_c_does(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    stop = lambda event: event.step == 3 and os.kill(os.getpid(), signal.SIGTERM)
    learner = Walk()
    with pytest.warns(FitStopped, match=r"SIGTERM after 3 steps.*resume=True"):
        journal = drive(learner, Run(tmp_path, callbacks=[stop]), owner="Walk")
    assert journal.stopped == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before
    drive(learner, Run(tmp_path, resume=True), owner="Walk")
    assert np.array_equal(learner.position, whole())


def test_the_second_sigterm_ends_at_once():
    def stop(event):
        os.kill(os.getpid(), signal.SIGTERM)

    class Twice(Walk):
        def sweep(self):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            return super().sweep()

    with pytest.raises(SystemExit) as end:
        drive(Twice(), Run(), owner="Walk")
    assert end.value.code == 143


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({}, "done"),
        ({"callbacks": [lambda event: event.step == 2]}, "callback"),
        ({"time_limit": 0.0}, "time limit"),
        (
            {"early_stopping": corollary.EarlyStopping("log_likelihood", patience=1, min_delta=1e9)},
            "early stopping",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::corollary.errors.FitStopped")
def test_why_a_fit_ended_is_a_field_of_the_model_and_of_its_files(tmp_path, run, reason):
    with Run(tmp_path, **run):
        model = mixture().fit(X)
    assert model.stopped_ == reason
    assert json.loads((tmp_path / "config.json").read_text())["stopped"] == reason
    assert corollary.load(tmp_path / "model.safetensors").stopped_ == reason


def test_an_unfinished_run_is_told_by_its_directory(tmp_path):
    class PowerCut(Exception):
        pass

    def cut(event):
        raise PowerCut

    with pytest.raises(PowerCut), Run(tmp_path, callbacks=[cut]):
        mixture().fit(X)
    assert json.loads((tmp_path / "config.json").read_text())["stopped"] is None


@pytest.mark.filterwarnings("ignore::corollary.errors.FitStopped")
def test_an_epoch_left_half_way_has_a_row(tmp_path):
    data = np.random.default_rng(0).normal(size=(4000, 4)).astype(np.float32)
    model = corollary.MLPRegressor((4,), training=corollary.Training(epochs=2, batch_size=8), random_state=0)
    with Run(tmp_path, time_limit=0.0):
        model.fit(data, data[:, 0])
    assert len(model.history_) == 1
    assert model.history_[0]["step"] == 1
    assert math.isfinite(model.history_[0]["loss"])
    assert model.history_[0]["seconds"] > 0
    with Run(tmp_path, resume=True):
        model.fit(data, data[:, 0])
    assert [row["step"] for row in model.history_] == [1, 2]
    losses = [row["loss"] for row in model.history_]
    assert losses == [row["loss"] for row in model.fit(data, data[:, 0]).history_]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused_when_the_run_is_made():
    with pytest.raises(
        ValueError, match=r"Run: device must be there; got 'cuda', and this machine has none.*auto"
    ):
        Run(device="cuda")
    with pytest.raises(ValueError, match="got 'gpu'"):
        Run(device="gpu")
    assert Run(device="cpu").device == "cpu"


# --- draws that only grow --------------------------------------------------------------------------------


class Metropolis(Iteration):
    """A random-walk Metropolis sampler of a normal density that keeps every draw."""

    saved = ("x", "rng", "draws")

    def __init__(self, max_iter, seed=0):
        super().__init__(max_iter)
        self.x, self.rng = np.zeros(2), np.random.default_rng(seed)
        self.draws = Draws("x", shape=(2,))

    def sweep(self):
        proposal = self.x + self.rng.normal(size=2)
        if math.log(self.rng.random()) < 0.5 * (self.x @ self.x - proposal @ proposal):
            self.x = proposal
        self.draws.append(self.x)
        return {"energy": float(self.x @ self.x) / 2}


def test_draws_are_resumed_exactly(tmp_path):
    expected = Metropolis(700)
    history = drive(expected, Run(), owner="Metropolis").rows
    for stop in (100, 300, 301, 650):
        run = Run(tmp_path, resume=True, checkpoint_every=0, callbacks=[lambda e, n=stop: _cut(e, n)])
        with pytest.raises(InterruptedError):
            drive(Metropolis(700, seed=stop - 100), run, owner="Metropolis")  # the first one's seed counts
    learner = Metropolis(700, seed=9)
    journal = drive(learner, Run(tmp_path, resume=True, checkpoint_every=0), owner="Metropolis")
    assert np.array_equal(learner.draws.array(), expected.draws.array())
    assert [row["energy"] for row in journal.rows] == [row["energy"] for row in history]
    assert len(learner.draws) == len(journal.rows) == 700


def _cut(event, step):
    if event.step >= step:
        raise InterruptedError


def test_the_cost_of_draws_is_linear(tmp_path, monkeypatch):
    """What is written and copied per draw does not depend on how many there are."""
    copied = []
    array = Draws.array
    monkeypatch.setattr(Draws, "array", lambda self, *a: copied.append(len(out := array(self, *a))) or out)
    sizes = {}
    for n in (300, 900):
        directory = tmp_path / str(n)
        copied.clear()
        drive(Metropolis(n), Run(directory, checkpoint_every=0), owner="Metropolis")
        assert sum(copied) == n  # every draw once
        folder = directory / "checkpoints/001-Metropolis"
        sizes[n] = (folder / "checkpoint.safetensors").stat().st_size
        assert (folder / "draws_x.part").stat().st_size < 48 * n
    assert sizes[900] < sizes[300] + 256 * 120  # at most one block of the history more


@pytest.mark.parametrize("name", ["draws_x", "history"])
def test_a_damaged_part_is_noticed(tmp_path, name):
    drive(Metropolis(600), Run(tmp_path, checkpoint_every=0), owner="Metropolis")
    path = tmp_path / f"checkpoints/001-Metropolis/{name}.part"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    learner, expected = Metropolis(700), Metropolis(700)
    with pytest.warns(CorollaryWarning, match=r"was changed or cut short"):
        drive(learner, Run(tmp_path, resume=True), owner="Metropolis")
    drive(expected, Run(), owner="Metropolis")
    assert np.array_equal(learner.draws.array(), expected.draws.array())


def test_a_torn_end_of_a_part_is_cut_off(tmp_path):
    drive(Metropolis(600), Run(tmp_path), owner="Metropolis")
    path = tmp_path / "checkpoints/001-Metropolis/draws_x.part"
    path.write_bytes(path.read_bytes() + b"half a block")
    learner, expected = Metropolis(700), Metropolis(700)
    drive(learner, Run(tmp_path, resume=True), owner="Metropolis")
    drive(expected, Run(), owner="Metropolis")
    assert np.array_equal(learner.draws.array(), expected.draws.array())
    again = Metropolis(700)
    drive(again, Run(tmp_path, resume=True), owner="Metropolis")
    assert np.array_equal(again.draws.array(), expected.draws.array())


def test_draws_of_any_shape():
    draws = Draws("scalar", dtype=np.int32)
    for i in range(5):
        draws.append(i)
    mark = draws.mark()
    draws.append(7)
    assert draws[-1] == 7
    assert mark.array(2).tolist() == [2, 3, 4]
    with pytest.raises(IndexError):
        draws[6]
    with pytest.raises(ValueError, match=r"scalar must be \(\) of int32; got \(2,\) of float64"):
        draws.restore(np.zeros((3, 2)))


# --- the last finite state -------------------------------------------------------------------------------


class Burst(Iteration):
    """Weights that overflow one step before the metric shows it."""

    saved = ("w",)

    def __init__(self, size):
        super().__init__(100)
        self.w = np.full(size, 1.0)
        self.copies = 0

    def state(self):
        self.copies += 1
        return super().state()

    def sweep(self):
        loss = float(self.w.sum())
        with np.errstate(over="ignore"):
            self.w = self.w * 1e100
        return {"loss": loss}


@pytest.mark.parametrize("size", [3, 2**20])
def test_the_state_that_returns_is_finite(size):
    learner = Burst(size)
    with pytest.raises(Diverged):
        drive(learner, Run(), owner="Burst")
    assert np.isfinite(learner.w).all()


def test_a_large_state_is_copied_on_a_schedule():
    class Large(Burst):
        def sweep(self):
            return {"loss": 1.0}

    small, large = Large(3), Large(2**22)
    for learner in (small, large):
        drive(learner, Run(), owner="Burst")
    assert small.copies == 100
    assert large.copies < 20
