"""Run(strategy="fsdp"): the optimiser is divided among the processes, and the network is DDP's."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import corollary
from corollary import MLPClassifier, MLPRegressor, Run, Training, errors

SCRIPT = """
import json, os, sys, warnings, numpy as np, torch, corollary
from corollary import Training
from safetensors.torch import save_file
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(size=(100, 3)), rng.normal(size=(103, 3)) + 1]).astype(np.float32)
y, where, rank = np.arange(203) // 101, sys.argv[1], os.environ["RANK"]

class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(3, 7), torch.nn.BatchNorm1d(7), torch.nn.ReLU(), torch.nn.Linear(7, 3)
        )
        self.unused = torch.nn.Parameter(torch.ones(2))
    def forward(self, x):
        return self.net(x)

def mlp(**training):
    plan = Training(**{"epochs": 4, "batch_size": 50, **training})
    return corollary.MLPClassifier((5,), training=plan, dropout=0.2, random_state=0)

fits = {
    "adam": lambda: mlp().fit(X, y),
    "regularised": lambda: mlp(optimizer="adamw", weight_decay=0.1, l1=1e-3, clip_norm=0.1, weight_noise=0.01).fit(X, y),
    "accumulated": lambda: mlp(optimizer="heavy-ball", accumulate=2, average=0.9).fit(X, y),
    "sharpness": lambda: mlp(optimizer="sam").fit(X, y),
    "stopped": lambda: mlp(epochs=9, early_stopping=True, patience=3, learning_rate="auto").fit(X, y),
    "normed": lambda: corollary.NetClassifier(
        Normed, training=Training(epochs=3, batch_size=68), random_state=0
    ).fit(X, y),
    "game": lambda: corollary.GAN(
        latent=2, width=8, n_layers=1, training=Training(epochs=2, batch_size=50), random_state=0
    ).fit(X),
}

def measure(event):
    slots = [s for p in event.learner.players for s in p.optimizer.state_dict()["state"].values()]
    held = sum(v.numel() for slot in slots for v in slot.values() if isinstance(v, torch.Tensor) and v.ndim)
    with open(f"{where}/held-{strategy}-{name}-{rank}.json", "w") as file:
        json.dump(held, file)

def keep(model, path):
    if rank == "0":
        save_file({k: v.contiguous() for k, v in model.module_.state_dict().items()}, path + ".safetensors")

def broken(event):
    if event.step == 3:
        raise RuntimeError("lost")

for strategy in ("ddp", "fsdp"):
    for name, fit in fits.items():
        with corollary.Run(f"{where}/{strategy}/{name}", strategy=strategy, callbacks=[measure]):
            keep(fit(), f"{where}/{strategy}/{name}")
    for name in ("adam", "regularised", "stopped"):  # broken off, and resumed
        path = f"{where}/{strategy}/{name}-resumed"
        try:
            with corollary.Run(path, strategy=strategy, checkpoint_every=0, callbacks=[broken]):
                fits[name]()
        except RuntimeError:
            pass
        with corollary.Run(path, strategy=strategy, resume=True):
            keep(fits[name](), path)
"""
FITS = ("adam", "regularised", "accumulated", "sharpness", "stopped", "normed", "game")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where two processes have left the models of all fits, by strategy."""
    where = tmp_path_factory.mktemp("strategies")
    script = where / "script.py"
    script.write_text(SCRIPT)
    two = ["-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run([sys.executable, *two, script, where], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    return where


@pytest.mark.parametrize("name", FITS)
def test_a_sharded_optimiser_trains_the_network_of_ddp(folder, name):
    ddp, fsdp = (load_file(folder / strategy / f"{name}.safetensors") for strategy in ("ddp", "fsdp"))
    for key in ddp:
        # float32; sums over processes in another order
        torch.testing.assert_close(fsdp[key], ddp[key], rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", FITS)
def test_each_process_holds_half_of_the_optimiser(folder, name):
    held = {
        (strategy, rank): json.loads((folder / f"held-{strategy}-{name}-{rank}.json").read_text())
        for strategy in ("ddp", "fsdp")
        for rank in (0, 1)
    }
    whole = held["ddp", 0]
    assert whole > 0
    for rank in (0, 1):
        assert whole / 2 <= held["fsdp", rank] <= whole / 2 + 4  # padding: one number per moment and vector


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["adam", "regularised", "stopped"])
def test_a_broken_fit_goes_on_bit_for_bit(folder, strategy, name):
    """The last batch of an epoch has three rows, so the processes draw dropout masks of different lengths."""
    whole, resumed = (load_file(folder / strategy / f"{name}{end}.safetensors") for end in ("", "-resumed"))
    for key in whole:
        assert torch.equal(whole[key], resumed[key]), key


# --- processes that a Run starts -------------------------------------------------------------------------


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int)


class Lost(MLPClassifier):
    """One of whose processes is killed in the fourth epoch of six."""

    def _learner(self, data):
        learner = super()._learner(data)
        update = learner._update

        def deadly(batch):
            if learner.epoch == 3 and os.environ.get("RANK") == "1" and learner.training.epochs == 6:
                os.kill(os.getpid(), signal.SIGKILL)
            update(batch)

        learner._update = deadly
        return learner


def lost(epochs):
    return Lost((5,), training=Training(epochs=epochs, batch_size=40), random_state=0)


def test_after_a_kill_one_process_goes_on_from_the_checkpoint_of_two(tmp_path):
    X, y = table()
    seen = []

    def watch(event):
        seen.append([p.detach().clone() for p in event.learner.module.parameters()])

    with Run(tmp_path, processes=2, strategy="fsdp", checkpoint_every=0, callbacks=[watch]):
        with pytest.raises(errors.RunError, match=r"process 1 of 2 by SIGKILL.*resume=True"):
            lost(6).fit(X, y)
    assert len(seen) == 3  # callbacks see the whole network
    assert not torch.equal(seen[0][0], seen[2][0])
    with Run(tmp_path, resume=True):
        resumed = lost(7).fit(X, y)
    whole = lost(7).fit(X, y)
    assert len(resumed.history_) == 7
    for a, b in zip(whole.module_.parameters(), resumed.module_.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # float32; sums in another order


def test_what_cannot_be_sharded_is_refused_before_processes_start():
    X, y = table()
    with pytest.raises(ValueError, match=r"Run: no strategy named 'fdsp'. Closest: 'fsdp', 'ddp'"):
        Run(strategy="fdsp")
    with pytest.raises(
        ValueError, match=r"strategy='fsdp' takes precision None or 'bf16-mixed'; got '16-mixed'"
    ):
        Run(strategy="fsdp", precision="16-mixed")
    sharded = {"processes": 2, "strategy": "fsdp"}
    with (
        Run(**sharded),
        pytest.raises(ValueError, match=r"GaussianMixture: strategy='fsdp' shards the optimiser"),
    ):
        corollary.GaussianMixture(2).fit(X)
    for optimizer in ("lbfgs", "svrg", "muon", "subgradient"):
        model = MLPRegressor((4,), training=Training(optimizer=optimizer))
        must = rf"MLPRegressor: strategy='fsdp' needs an optimiser .* itself; got '{optimizer}'\. Use 'adam'"
        with Run(**sharded), pytest.raises(ValueError, match=must):
            model.fit(X, X[:, 0])


def test_one_process_has_nothing_to_shard():
    X, y = table()
    plan = Training(epochs=2)
    with Run(strategy="fsdp"):
        model = MLPClassifier((4,), training=plan, random_state=0).fit(X, y)
    alone = MLPClassifier((4,), training=plan, random_state=0).fit(X, y)
    assert all(map(torch.equal, model.module_.parameters(), alone.module_.parameters()))
