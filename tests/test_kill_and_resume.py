"""A fit killed at any moment and resumed gives, bit for bit, the model of an uninterrupted one."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from corollary import load
from corollary.testing import same

SCRIPTS = {
    "classical": """
import sys, numpy as np, corollary
X = np.random.default_rng(0).normal(size=(400, 8)).cumsum(1)
model = corollary.GaussianMixture(6, max_iter=60, tol=0.0, random_state=0)
""",
    "gradient": """
import sys, numpy as np, corollary
X = np.random.default_rng(0).uniform(size=(400, 8)).astype(np.float32)
model = corollary.VAE(2, hidden_layer_sizes=(16,), training=corollary.Training(epochs=40), random_state=0)
""",
}
FIT = """
import time
slow = float(sys.argv[2])
started = lambda event: sys.stdout.write("step\\n") and sys.stdout.flush() or time.sleep(slow)
with corollary.Run(sys.argv[1], resume=True, checkpoint_every=0, callbacks=[started]):
    model.fit(X)
"""


def start(script, directory, slow):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPTS[script] + FIT, str(directory), str(slow)]
    threads = {**os.environ, "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=threads)


@pytest.mark.parametrize("script", SCRIPTS)
def test_kill_and_resume(tmp_path, script):
    whole = start(script, tmp_path / "whole", 0.0)
    out, err = whole.communicate()
    assert whole.returncode == 0, err
    total = out.count("step")
    rng = random.Random(0)
    killed = 0
    while killed < 3:
        process = start(script, tmp_path / "cut", 0.02)
        assert process.stdout.readline() == "step\n"
        time.sleep(rng.uniform(0.0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
    last = start(script, tmp_path / "cut", 0.0)
    out, err = last.communicate()
    assert last.returncode == 0, err
    assert out.count("step") < total  # it went on, it did not begin again
    one, other = (load(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert len(one.history_) == len(other.history_) == total
    assert same(_fitted(one), _fitted(other))


def _fitted(model):
    parts = model._saved_attributes()
    parts["history_"] = [{k: v for k, v in row.items() if k != "seconds"} for row in parts["history_"]]
    module = parts.pop("module_", None)
    if module is not None:
        parts["weights"] = [p.detach().numpy() for p in module.parameters()]
    return {key: str(value) if isinstance(value, str) else value for key, value in parts.items()}


def test_ctrl_c_leaves_a_usable_model_and_says_how_to_go_on(tmp_path):
    hear = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
    code = hear + SCRIPTS["gradient"] + FIT + "\nprint(model.transform(X).shape)\n"
    command = [sys.executable, "-c", code, str(tmp_path), "0.05"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "step\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "(400, 2)" in out
    assert "resume=True" in err
    assert len(load(tmp_path / "model.safetensors").history_) < 40
