"""The same script under torchrun: its world shares the work, and the first process writes the run."""

import subprocess
import sys

import numpy as np
import pytest

from corollary import load

SCRIPT = """
import sys, warnings, numpy as np, corollary
from scipy import sparse
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(size=(100, 3)), rng.normal(size=(101, 3)) + 3]).astype(np.float32)
y = np.arange(201) % 2
R = sparse.random(61, 41, density=0.3, random_state=rng, format="csr")
fits = {
    "mixture": lambda: corollary.GaussianMixture(2, max_iter=5, tol=0.0, random_state=0).fit(X.astype(np.float64)),
    "family": lambda: corollary.Mixture(2, max_iter=5, tol=0.0, random_state=0).fit(X.astype(np.float64)),
    "explicit": lambda: corollary.ALS(3, max_iter=4, tol=0.0, random_state=0).fit(R),
    "implicit": lambda: corollary.ALS(3, feedback="implicit", max_iter=4, tol=0.0, random_state=0).fit(R),
    "nmf": lambda: corollary.NMF(3, max_iter=6, tol=0.0, random_state=0).fit(R),
    "nmf-dense": lambda: corollary.NMF(3, max_iter=6, tol=0.0, random_state=0).fit(rng.random((1301, 830))),
    "nmf-kl": lambda: corollary.NMF(
        3, solver="mu", beta_loss="kullback-leibler", init="random", max_iter=6, tol=0.0, random_state=0
    ).fit(R),
    "network": lambda: corollary.MLPClassifier(
        (4,), training=corollary.Training(epochs=2, batch_size=50), random_state=0
    ).fit(X, y),
}
for name, fit in fits.items():
    with corollary.Run(sys.argv[1] + "/" + name):
        fit()
"""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return a function that loads what one process and what two together have made of a fit."""
    folder = tmp_path_factory.mktemp("worlds")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    python = [sys.executable, "-W", "ignore"]
    two = [*python, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    for launch, where in ((python, "one"), (two, "two")):
        done = subprocess.run([*launch, script, folder / where], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    return lambda name: [load(folder / world / name / "model.safetensors") for world in ("one", "two")]


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("mixture", ["means_", "covariances_"]),
        ("family", ["weights_", "lower_bound_"]),
        ("explicit", ["user_factors_", "item_factors_", "user_bias_", "item_bias_"]),
        ("implicit", ["user_factors_", "item_factors_"]),
        ("nmf", ["components_", "reconstruction_err_"]),
        ("nmf-dense", ["components_", "reconstruction_err_"]),
        ("nmf-kl", ["components_", "reconstruction_err_"]),
    ],
)
def test_two_processes_sum_to_the_model_of_one(fitted, name, attributes):
    one, two = fitted(name)
    for attribute in attributes:
        # double precision, sums in another order
        np.testing.assert_allclose(getattr(two, attribute), getattr(one, attribute), rtol=1e-6, atol=1e-9)
    for a, b in zip(one.history_, two.history_, strict=True):
        for key in a.keys() - {"seconds", "step"}:
            assert b[key] == pytest.approx(a[key], rel=1e-6)


def test_two_processes_train_the_network_of_one(fitted):
    for p, q in zip(*(model.module_.parameters() for model in fitted("network")), strict=True):
        np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)  # float32
