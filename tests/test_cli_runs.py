"""What the command line makes of stopped, broken and crowded runs: a message, never a traceback."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from corollary import load, reporting
from corollary.cli import main
from corollary.engine import interrupts
from corollary.engine.directory import Lock


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """A function that runs the command line in this process and returns its code, its output and its errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["corollary", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return stop.value.code or 0, out, err

    return run


FIT = ("fit", "gaussian-mixture", "--data", "iris", "--set", "max_iter=4", "--json")


def states(call):
    return {row["run"]: row["state"] for row in json.loads(call("runs", "--json")[1])}


def test_a_stopped_fit_says_how_to_go_on_and_is_listed_as_stopped(call):
    code, out, err = call(*FIT, "--run", "runs/cut", "--time-limit", "0", "--checkpoint-every", "0")
    assert code == 0
    assert json.loads(out)["stopped"] == "time limit"
    assert "--run runs/cut --resume" in err
    assert "corollary.Run" not in err
    assert states(call) == {"runs/cut": "stopped by time limit"}
    assert call(*FIT, "--run", "runs/cut", "--resume")[0] == 0
    assert states(call) == {"runs/cut": "whole"}


def test_an_existing_run_is_not_overwritten(call):
    assert call(*FIT, "--run", "r")[0] == 0
    code, _, err = call(*FIT, "--run", "r", "--seed", "1")
    assert code == 2
    assert "must not hold a fit already" in err
    assert "--resume" in err
    code, _, err = call("fit", "pca", "--data", "iris", "--run", "r", "--resume")
    assert code == 2
    assert "must fit GaussianMixture" in err


def test_a_directory_in_use_is_said(call, tmp_path):
    lock = Lock(tmp_path / "r")
    code, _, err = call(*FIT, "--run", "r")
    lock.release()
    assert code == 1
    assert "nothing else may work in 'r'" in err


def test_one_damaged_run_does_not_hide_the_others(call, tmp_path):
    call(*FIT, "--run", "runs/good")
    for name, config in (
        ("torn", '{"model": '),
        ("list", "[1]"),
        ("alone", '{"model": "PCA", "stopped": "done"}'),
    ):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "config.json").write_text(config)
    (tmp_path / "runs/alone/history.csv").write_bytes(b"step,loss\n1,abc\n\x00")
    (tmp_path / "runs/begun/checkpoints/001-PCA").mkdir(parents=True)
    expected = {
        "good": "whole",
        "torn": "damaged",
        "list": "damaged",
        "alone": "no report",
        "begun": "unfinished",
    }
    assert states(call) == {f"runs/{name}": state for name, state in expected.items()}


def test_predict_on_an_unfinished_run_says_how_to_finish_it(call, tmp_path):
    (tmp_path / "runs/begun/checkpoints/001-PCA").mkdir(parents=True)
    code, _, err = call("predict", "runs/begun", "--data", "iris", "--out", "x.csv")
    assert code == 2
    assert "unfinished fit" in err
    assert "--resume" in err
    (tmp_path / "runs/empty").mkdir()
    _, _, err = call("predict", "runs/empty", "--data", "iris", "--out", "x.csv")
    assert "Closest: 'runs/begun'" in err  # not the name that was just refused


def test_unwritable_places_and_full_disks(call, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    code, _, err = call(*FIT, "--run", "file")
    assert code == 1
    assert "Error: Run: 'file' must be a directory to write in" in err

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = call(*FIT, "--run", "full")
    assert code == 1
    assert "No space left on device" in err


def test_a_disk_full_at_the_report_leaves_the_model(call, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("corollary.reporting.report", full)
    code, out, err = call(*FIT, "--run", "full")
    assert code == 0
    assert "No report could be written (No space left on device). The model is whole, in full." in err
    assert "report" not in json.loads(out)
    assert load(tmp_path / "full/model.safetensors").n_iter_ <= 4


def test_divergence_is_a_message(call):
    options = ["--set", "training.learning_rate=1e30", "--set", "training.optimizer=sgd"]
    code, _, err = call("fit", "mlp-regressor", "--data", "diabetes", *options, "--run", "r")
    assert code == 1
    assert "Lower learning_rate" in err


def test_a_missing_device_and_a_wrong_flag(call):
    import torch

    if not torch.cuda.is_available():
        code, _, err = call(*FIT, "--device", "cuda")
        assert code == 2
        assert "device must be there" in err
    code, _, err = call(*FIT, "--no-such-flag")
    assert code == 2
    assert "No such option" in err


def test_an_early_ctrl_c_and_a_late_sigterm(tmp_path):
    """Ctrl-C while data are read, and SIGTERM in the middle of a fit."""
    words = [
        "fit",
        "nmf",
        "--data",
        "wide.npy",
        "--set",
        "max_iter=1000000",
        "--set",
        "tol=0.0",
        "--run",
        "r",
    ]
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).random((300, 200)))
    slow = (
        "import sys, time, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import corollary.data, corollary.cli\n"
        "def load(*a, **k):\n    print('reading', flush=True); time.sleep(600)\n"
        "corollary.data.load = load\nsys.argv = ['corollary', *sys.argv[1:]]\ncorollary.cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "Interrupted" in err
    assert "Traceback" not in err
    process = subprocess.Popen(
        [sys.executable, "-m", "corollary", *words, "--checkpoint-every", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not list(tmp_path.glob("r/checkpoints/*/checkpoint.safetensors")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 143, err
    assert "Stopped by SIGTERM. The same command with --run r --resume goes on." in err


# --- what is computed after a fit ------------------------------------------------------------------------


def test_pictures_that_take_too_long_are_left_out(tmp_path, monkeypatch):
    from corollary import PCA, data

    def slow(model, dataset):
        yield "First", "This one is quick.", None
        time.sleep(600)

    monkeypatch.setattr(reporting, "sections", slow)
    monkeypatch.setattr(reporting, "lead", lambda *parts: "")
    dataset = data.load("iris")
    page = reporting.report(PCA(2).fit(dataset.X), dataset, tmp_path / "r.html", time_limit=2.0).read_text()
    assert "This one is quick" in page
    assert "Left out" in page


def test_a_box_of_time_is_closed_again():
    with pytest.raises(interrupts.OutOfTime), interrupts.time_box(0.01):
        time.sleep(600)
    with interrupts.time_box(None), interrupts.time_box(60):
        pass
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    seen = []
    thread = threading.Thread(
        target=lambda: [seen.append(1) for _ in [0] if not interrupts.time_box(0.0).__enter__()]
    )
    thread.start()
    thread.join()
    assert seen == [1]
