"""Every gradient model trains and answers on a device whose memory is not the processor's."""

import numpy as np
import pytest
import torch
from torch import nn

import corollary
from corollary import MLPClassifier, Run, Training, catalog, testing
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import Supervised
from corollary.engine.run import current
from corollary.engine.sgd import GradientLearner
from corollary.gradient import GradientTrained
from corollary.losses import half_squared
from corollary.theory import bounds
from second_device import DEVICE, Fabric, WrongDevice, second_device

ESTIMATORS = {entry.name: entry.load() for entry in catalog.entries(kind="estimator")}
DESCENDING = [name for name, cls in ESTIMATORS.items() if issubclass(cls, GradientTrained)]
OTHERS = [  # parameters that lead elsewhere than the defaults
    ("SequenceClassifier", {"cell": "lru"}),
    ("SequenceClassifier", {"cell": "tcn"}),
    ("SequenceClassifier", {"bidirectional": True, "pooling": "last"}),
    ("SequenceTagger", {"cell": "lstm", "bidirectional": False, "truncation": 2}),
    ("NodeClassifier", {"layer": "gat"}),
    ("NodeClassifier", {"layer": "gin"}),
    ("NodeClassifier", {"layer": "cheb"}),
    ("NodeClassifier", {"layer": "mpnn"}),
    ("NodeClassifier", {"layer": "spectral"}),
    ("NodeClassifier", {"n_neighbors": (2, 2)}),
    ("GraphClassifier", {"layer": "gat", "pooling": "max"}),
    ("LinkPredictor", {"layer": "gin"}),
    ("ImageClassifier", {"net": "vit"}),
    ("Flow", {"kind": "planar"}),
    ("Flow", {"kind": "autoregressive"}),
    ("Flow", {"kind": "linear"}),
    ("GAN", {"loss": "wasserstein-gp"}),
    ("GAN", {"rule": "extragradient"}),
    ("ScoreModel", {"matching": "implicit"}),
    ("ScoreModel", {"matching": "sliced", "sde": "vp"}),
    ("PixelCNN", {"output": "logistic-mixture"}),
    ("DDPM", {"prediction": "v", "schedule": "linear"}),
    ("VAE", {"likelihood": "gaussian"}),
    ("Seq2Seq", {"cell": "lstm"}),
]
PLANS = [  # ways to descend that leave the plain update
    {"optimizer": "sgd", "l1": 0.01, "norm_ball": 1.0, "clip_norm": 1.0},
    {"input_noise": 0.1, "weight_noise": 0.1, "mixup": 0.2, "average": 0.9},
    {"target_noise": 0.1},
    {"label_smoothing": 0.1, "average": "polyak", "early_stopping": True},
    {"curriculum": "loss"},
    {"curriculum": "self-paced"},
    {"spectral": 0.1},
    {"adversary": 0.1},
    {"learning_rate": "auto"},
    *(
        {"optimizer": name}
        for name in ("gd", "lbfgs", "newton", "sam", "svrg", "extragradient", "subgradient")
    ),
]


def test_the_device_refuses_what_cuda_refuses(monkeypatch):
    with second_device(monkeypatch):
        here, there = torch.ones(3), torch.ones(3, device=DEVICE)
        assert there.device == DEVICE
        assert (there[:2] * 2).device == DEVICE
        assert there.cpu().device.type == "cpu"
        assert there[torch.tensor([0, 2])].tolist() == [1.0, 1.0]
        assert (there + torch.tensor(1.0)).sum().item() == 6.0
        for wrong in (
            lambda: here + there,
            lambda: torch.cat([here, there]),
            lambda: here[there.long()],
            lambda: torch.nn.functional.linear(here, torch.ones(2, 3, device=DEVICE)),
            lambda: torch.rand(2, generator=torch.Generator(), device=DEVICE),
            lambda: there.numpy(),
            lambda: np.asarray(there),
        ):
            with pytest.raises(WrongDevice):
                wrong()


def agree(found, said):
    """Assert that numbers are equal up to the order in which single precision sums them."""
    if isinstance(said, np.ndarray) and said.dtype.kind == "f":
        np.testing.assert_allclose(found, said, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in DESCENDING), *OTHERS],
    ids=lambda part: part if isinstance(part, str) else "-".join(map(str, part.values())),
)
@pytest.mark.filterwarnings("ignore", "error:.*get no gradient")
def test_trains_and_answers_there(name, options, monkeypatch):
    cls = ESTIMATORS[name]
    model = cls(**{**cls._test_params(), "random_state": 0, **options}).set_params(training__epochs=1)
    X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
    with second_device(monkeypatch) as watch:
        model.fit(X, y)
        assert watch.calls
        assert {p.device for p in model.module_.parameters()} == {DEVICE}
        found = testing.outputs(model, X)
    model.module_.cpu()
    for key, said in testing.outputs(model, X).items():
        agree(found[key], said)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(map(str, [*plan, *plan.values()])))
@pytest.mark.filterwarnings("ignore")
def test_every_way_to_descend_stays_there(plan, monkeypatch, tmp_path):
    X, y = testing.sample_data("table")
    net = {"hidden_layer_sizes": (4,), "dropout": 0.1} if plan.get("optimizer") != "newton" else {}
    model = MLPClassifier(**net, training=Training(epochs=2, **plan), random_state=0)
    with second_device(monkeypatch) as watch:
        model.fit(X, y)
        assert watch.calls
        found = model.predict_proba(X)
        model.save(tmp_path / "model.safetensors")
    agree(found, corollary.load(tmp_path / "model.safetensors").predict_proba(X))


def test_noise_of_the_device_goes_on_from_a_snapshot(monkeypatch):
    data = TensorBatches(torch.ones(64, 3), torch.ones(64, 1))
    plan = Training(epochs=3, batch_size=16, input_noise=0.5).resolved()

    def learner():
        module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1))
        there = data.to(DEVICE)
        return GradientLearner(
            module, Supervised(half_squared), there, plan, current(), seed=0, owner="Noisy"
        )

    with second_device(monkeypatch):
        first, other = learner(), learner()
        first.step()
        kept = first.state()
        first.step()
        noise = [states[str(DEVICE)] for states in (kept["rng"], first.stream.now())]
        assert not torch.equal(*noise)  # no epoch repeats another's
        torch.rand(5, device=DEVICE)  # what others draw changes nothing
        other.restore(kept)
        other.step()
        for a, b in zip(first.module.parameters(), other.module.parameters(), strict=True):
            assert torch.equal(a, b)


def test_a_certificate_of_a_network_that_is_there(monkeypatch):
    X, y = testing.sample_data("table")
    with second_device(monkeypatch):
        net = bounds.StochasticNetwork(nn.Linear(X.shape[1], 3).to(DEVICE)).fit(X, y, epochs=1)
        assert 0 < bounds.certificate(net, X, y, draws=2).bound <= 1


def test_which_gpu_a_run_takes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    asked = []
    monkeypatch.setattr("lightning_fabric.Fabric", lambda **how: asked.append(how) or Fabric())
    assert Run().device == "cuda"
    for run in (Run(), Run(device="cuda:1")):
        assert run.fabric is not None
    for name, value in {
        "TORCHELASTIC_RUN_ID": "x",
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 2,
        "LOCAL_RANK": 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    shared = Run()
    assert shared.device == "cuda:1"
    assert shared.fabric is not None
    assert [(how["accelerator"], how["devices"]) for how in asked] == [
        ("cuda", 1),
        ("cuda", [1]),
        ("cuda", 2),
    ]
