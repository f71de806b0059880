"""Samplers killed by SIGKILL at any moment and resumed give, bit for bit, the draws of an uninterrupted fit.

All runs are forks of one process, which imports once and never computes.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, random, signal, sys, threading, time, warnings
from pathlib import Path
import numpy as np, torch
import corollary
from corollary import bayes

warnings.simplefilter("ignore")
torch.set_num_threads(1)
ROWS = torch.as_tensor(np.random.default_rng(1).normal(size=(20, 2)))
POSTERIOR = bayes.Posterior(
    lambda t: -0.5 * t.square().sum(1), lambda t, x: -0.5 * (x - t[:, None]).square().sum(2), ROWS
)
SAMPLERS = [
    bayes.Metropolis(3, 15, 10, thin=2), bayes.HMC(3, 15, 10, covariance="dense"), bayes.NUTS(3, 15, 10),
    bayes.MALA(3, 15, 10), bayes.ULA(3, 15, 10), bayes.SGLD(3, 15, 10, batch_size=4), bayes.SGHMC(3, 15, 10, batch_size=4),
]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fit(sampler, folder, delay):
    steps = []

    def stepped(event):
        steps.append(event.step)
        if delay is not None:
            if len(steps) == 2:
                threading.Timer(delay, die).start()
            # so that the blow falls somewhere inside, or between two steps; and for certain before the end
            time.sleep(0.01) if len(steps) < 20 else die()

    with corollary.Run(folder, resume=True, checkpoint_every=0, callbacks=[stepped]):
        sampler.set_params(random_state=0).fit(POSTERIOR, np.zeros(2))
    Path(folder, "steps").write_text(str(len(steps)))


def forked(*arguments):
    child = os.fork()
    if not child:
        try:
            fit(*arguments)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


rng, found = random.Random(0), {}
for sampler in SAMPLERS:
    name = type(sampler).__name__
    whole, cut = Path(sys.argv[1], name, "whole"), Path(sys.argv[1], name, "cut")
    codes = [forked(sampler, whole, None)]
    codes += [forked(sampler, cut, rng.uniform(0, 0.15))] + [forked(sampler, cut, None)]
    one, other = (corollary.load(folder / "model.safetensors") for folder in (whole, cut))
    found[name] = {
        "codes": codes,
        "same": bool(np.array_equal(one.draws_, other.draws_)),
        "statistics": bool(corollary.testing.same(one.statistics_, other.statistics_)),
        "shape": one.draws_.shape,
        "steps": [int((folder / "steps").read_text()) for folder in (whole, cut)],
    }
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_samplers_resume_bit_for_bit(tmp_path):
    threads = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, env=threads
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 7
    for name, run in found.items():
        assert run["codes"] == [0, -signal.SIGKILL, 0], (name, run, done.stderr)
        assert run["same"] and run["statistics"], (name, run)
        assert run["shape"] == [3, 15, 2]
        assert run["steps"][0] == 25 and run["steps"][1] < 25, (
            name,
            run,
        )  # it went on, it did not begin again
