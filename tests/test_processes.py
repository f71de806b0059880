"""The same script under torchrun: its world shares the work, and the first process writes the run."""

import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import corollary
from corollary import errors, load
from corollary.base import fitting
from corollary.gradient import GradientTrained
from corollary.testing import sample_data

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
    "noisy": lambda: corollary.MLPClassifier(
        (4,), random_state=0, training=corollary.Training(
            epochs=2, batch_size=50, input_noise=0.1, target_noise=0.1, weight_noise=0.01, gradient_noise=0.01
        )
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


@pytest.mark.parametrize("name", ["network", "noisy"])
def test_two_processes_train_the_network_of_one(fitted, name):
    for p, q in zip(*(model.module_.parameters() for model in fitted(name)), strict=True):
        np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)  # float32


# --- processes that a Run starts -------------------------------------------------------------------------


def rows():
    return np.random.default_rng(0).normal(size=(120, 3)).cumsum(axis=1)


def mixture(**params):
    return corollary.GaussianMixture(2, **{"max_iter": 6, "tol": 0.0, "random_state": 0, **params})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callbacks_see_what_the_workers_do_and_can_stop_them(tmp_path):
    """They are called here, so what they write down is here; the k-th fit has the k-th folder."""
    seen = []

    def watch(event):
        seen.append((event.step, event.metrics["log_likelihood"], event.learner.inner, event.owner))
        return event.step == 3

    with corollary.Run(tmp_path, processes=2, callbacks=[watch]):
        model = mixture().fit(rows())
    assert [step for step, *_ in seen] == [1, 2, 3]
    assert [inner for *_, inner, _ in seen] == [1, 2, 3]
    assert {owner for *_, owner in seen} == {"GaussianMixture"}
    assert [loss for _, loss, *_ in seen] == [row["log_likelihood"] for row in model.history_]
    assert model.stopped_ == "callback"


def test_a_callback_sees_module_and_optimizer_of_the_workers_and_nothing_is_printed(capfd):
    seen = []
    plan = corollary.Training(epochs=2)
    with corollary.Run(
        processes=2, callbacks=[lambda e: seen.append((e.module_, e.optimizer))], progress=False
    ):
        model = corollary.MLPClassifier((4,), training=plan, random_state=0).fit(rows(), np.arange(120) % 2)
    assert len(seen) == 2 and hasattr(seen[0][1], "param_groups")
    for p, q in zip(seen[-1][0].parameters(), model.module_.parameters(), strict=True):
        np.testing.assert_array_equal(p.detach(), q.detach())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_go_on_with_partial_fit(strategy):
    """They used to begin anew in every call, and to run all epochs."""
    X, y = rows(), np.arange(120) % 2

    def fitted():
        plan = corollary.Training(batch_size=40, shuffle=False, learning_rate=0.01)
        model = corollary.MLPClassifier((4,), training=plan, random_state=0)
        return model.partial_fit(X, y).partial_fit(X, y)

    with corollary.Run(processes=2, strategy=strategy):
        shared = fitted()
    alone = fitted()
    assert shared.n_iter_ == alone.n_iter_ == len(shared.history_) == 2
    np.testing.assert_allclose(
        shared.predict_proba(X), alone.predict_proba(X), rtol=1e-4, atol=1e-5
    )  # float32


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_processes_train_a_compiled_network(strategy):
    X, y = rows(), np.arange(120) % 2

    def fitted(**options):
        plan = corollary.Training(epochs=2, batch_size=40, **options)
        return corollary.MLPClassifier((4,), training=plan, random_state=0).fit(X, y).predict_proba(X)

    with corollary.Run(processes=2, strategy=strategy):
        compiled = fitted(compile="aot_eager")
    np.testing.assert_allclose(compiled, fitted(), rtol=1e-4, atol=1e-5)  # float32; sums in another order


class Lost(corollary.GaussianMixture):
    """One of whose processes is killed in the middle of the fit."""

    def _learner(self, data):
        learner = super()._learner(data)
        sweep = learner.sweep

        def deadly():
            if learner.n_iter == 3 and os.environ.get("RANK") == "1" and self.max_iter == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            return sweep()

        learner.sweep = deadly
        return learner


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_lost_worker_is_said_and_the_fit_goes_on_from_its_checkpoint(tmp_path):
    params = {"tol": 0.0, "random_state": 0}
    with corollary.Run(tmp_path, processes=2, checkpoint_every=0):
        with pytest.raises(
            errors.RunError, match=r"Lost: every process must live.*process 1 of 2 by SIGKILL.*resume=True"
        ):
            Lost(2, max_iter=6, **params).fit(rows())
    with corollary.Run(tmp_path, processes=2, resume=True):
        resumed = Lost(2, max_iter=7, **params).fit(rows())  # how long to go on may differ
    whole = corollary.GaussianMixture(2, max_iter=7, **params).fit(rows())
    np.testing.assert_allclose(resumed.means_, whole.means_, rtol=1e-6)
    assert len(resumed.history_) == 7


def test_an_error_in_a_worker_is_raised_as_itself_and_divergence_keeps_its_state(tmp_path):
    X = rows().astype(np.float32)
    with corollary.Run(processes=2), pytest.raises(errors.Diverged, match="learning_rate"):
        model = corollary.MLPRegressor(
            (4,), training=corollary.Training(epochs=30, learning_rate=1e30, optimizer="sgd")
        )
        model.fit(X, X[:, 0] * 1e6)
    assert np.isfinite(model.predict(X)).all()


def normal(theta):
    return -0.5 * (theta**2).sum(-1)


def test_processes_of_a_fit_without_a_seed_draw_the_same_numbers(monkeypatch):
    """Otherwise each would start elsewhere, hold other rows out, and sum what does not belong together."""
    seeds = []

    def caught(work, *rest):
        copies = [pickle.loads(pickle.dumps(work.args[0])) for _ in range(2)]
        seeds.append({copy._seed() for copy in copies})
        raise InterruptedError

    monkeypatch.setattr("corollary.engine.processes.launch", caught)
    model = corollary.GaussianMixture(2)
    for _ in range(2):
        with corollary.Run(processes=2), pytest.raises(InterruptedError):
            model.fit(rows())
    assert [len(found) for found in seeds] == [1, 1]
    assert seeds[0] != seeds[1]  # of every fit its own
    assert "_agreed_seed" not in vars(model)


def test_nobody_can_take_the_port_at_which_processes_meet(monkeypatch):
    """It was looked for, closed, and opened again seconds later by a worker: taken by then on a busy machine."""

    def caught(worker, settings, **_):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", settings[1]))
        raise InterruptedError

    importlib.import_module("torch.multiprocessing.spawn")
    monkeypatch.setattr(sys.modules["torch.multiprocessing.spawn"], "spawn", caught)
    with corollary.Run(processes=2), pytest.raises(InterruptedError):
        mixture().fit(rows())


def test_chains_of_two_processes_need_no_seed():
    """Different proposals in each would break the exchange of their values, and end the processes."""
    with corollary.Run(processes=2):
        sampler = corollary.bayes.HMC(2, 3, 3, max_steps=2).fit(normal, np.zeros(2))
    assert np.isfinite(sampler.draws_).all()


@pytest.mark.parametrize("name", ["skipgram-negative", "glove", "dirichlet-process", "indian-buffet", "rbm"])
def test_work_that_cannot_be_divided_is_refused(name):
    cls = type(corollary.create(name))
    model = cls(**cls._test_params())
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
    with (
        corollary.Run(processes=2),
        pytest.raises(ValueError, match=r"cannot be divided among processes; got 2 of them"),
    ):
        model.fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_what_says_that_it_shares_does(monkeypatch):
    """Every learner of the catalog sums over the processes exactly if it declares that it shares."""
    sums, learners = [], []
    original, drive = corollary.Run.sum, fitting.drive
    monkeypatch.setattr(corollary.Run, "sum", lambda self, x: sums.append(1) or original(self, x))
    monkeypatch.setattr(
        fitting, "drive", lambda learner, *a, **k: learners.append(learner) or drive(learner, *a, **k)
    )
    seen = 0
    for entry in corollary.catalog.entries(kind="estimator"):
        cls = entry.load()
        if issubclass(cls, GradientTrained):
            continue  # batches are divided by the gradient learner
        if entry.load().__module__.startswith("corollary.bayes"):
            continue  # chains are divided, and gathered only where there are several processes
        model = cls(**(cls._test_params() if hasattr(cls, "_test_params") else {}))
        X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
        sums.clear()
        learners.clear()
        model.fit(X, y)
        if learners and hasattr(learners[-1], "shares"):
            assert bool(sums) == learners[-1].shares, entry.id
            seen += 1
    assert seen > 20
