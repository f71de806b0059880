"""A fit killed at any moment and resumed gives, bit for bit, the model of an uninterrupted one."""

import os
import random
import signal
import subprocess
import sys

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
import os, signal, threading, time
steps, delay = 0, float(sys.argv[2])  # a negative delay: nobody kills

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def stepped(event):
    global steps
    steps += 1
    print("step", flush=True)
    if delay >= 0 and steps == 2:  # what step 1 left is on the disk: now at any moment, and for certain soon
        threading.Timer(delay, die).start()
    if delay >= 0:
        time.sleep(0.02) if steps < 8 else die()

with corollary.Run(sys.argv[1], resume=True, checkpoint_every=0, callbacks=[stepped]):
    model.fit(X)
"""


def start(script, directory, delay=-1.0):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPTS[script] + FIT, str(directory), str(delay)]
    threads = {**os.environ, "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=threads)


@pytest.mark.parametrize("script", SCRIPTS)
def test_kill_and_resume(tmp_path, script):
    whole = start(script, tmp_path / "whole")
    out, err = whole.communicate()
    assert whole.returncode == 0, err
    total = out.count("step")
    rng = random.Random(0)
    for _ in range(2):
        process = start(script, tmp_path / "cut", rng.uniform(0.0, 0.15))
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    last = start(script, tmp_path / "cut")
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
    press = FIT.replace("SIGKILL", "SIGINT").replace("if steps < 8 else die()", "")
    code = hear + SCRIPTS["gradient"] + press + "\nprint(model.transform(X).shape)\n"
    command = [sys.executable, "-c", code, str(tmp_path), "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(400, 2)" in done.stdout
    assert "resume=True" in done.stderr
    assert len(load(tmp_path / "model.safetensors").history_) < 40
