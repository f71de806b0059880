"""The same script under torchrun: its world shares the work, and the first process writes the run."""

import subprocess
import sys

import numpy as np

from corollary import load

SCRIPT = """
import sys, numpy as np, corollary
rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(size=(100, 3)), rng.normal(size=(101, 3)) + 3]).astype(np.float32)
y = np.arange(201) % 2
with corollary.Run(sys.argv[1] + "/mixture"):
    corollary.GaussianMixture(2, max_iter=5, tol=0.0, random_state=0).fit(X.astype(np.float64))
with corollary.Run(sys.argv[1] + "/network"):
    plan = corollary.Training(epochs=2, batch_size=50)
    corollary.MLPClassifier((4,), training=plan, random_state=0).fit(X, y)
"""


def test_torchrun_gives_the_models_of_one_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    launch = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--standalone",
    ]
    done = subprocess.run([*launch, script, tmp_path / "two"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    one = subprocess.run(
        [sys.executable, "-W", "ignore", script, tmp_path / "one"], capture_output=True, text=True
    )
    assert one.returncode == 0, one.stderr[-2000:]
    a, b = (load(tmp_path / world / "mixture" / "model.safetensors") for world in ("one", "two"))
    np.testing.assert_allclose(a.means_, b.means_, rtol=1e-8)  # sums in another order
    np.testing.assert_allclose(a.covariances_, b.covariances_, rtol=1e-7)
    a, b = (load(tmp_path / world / "network" / "model.safetensors") for world in ("one", "two"))
    for p, q in zip(a.module_.parameters(), b.module_.parameters(), strict=True):
        np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)  # float32
