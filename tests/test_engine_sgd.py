"""The gradient learner: exact resume, no leaks of randomness, honest losses, several processes."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from corollary import EarlyStopping, MLPClassifier, MLPRegressor, Run, Training, create
from corollary.engine.batches import Batch, TensorBatches, epoch_order
from corollary.engine.objective import Supervised
from corollary.errors import CorollaryWarning, Diverged
from corollary.losses import cross_entropy, half_squared
from corollary.networks.mlp import MLP, Backpropagation, softmax_error, squared_error
from corollary.optim import average

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=(6, 3))).argmax(1)


def weights(model):
    return [p.detach().numpy() for p in model.module_.parameters()]


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(weights(a), weights(b), strict=True))


def model(**training):
    settings = {"epochs": 6, "batch_size": 16, **training}
    return MLPClassifier((8,), dropout=0.3, training=Training(**settings), random_state=3)


VARIANTS = [
    {},
    {"optimizer": "nesterov", "schedule": "cosine", "learning_rate": 0.05},
    {"average": 0.9, "clip_norm": 0.5},
    {"weight_decay": 0.1, "optimizer": "adamw", "warmup": 3},
    {"optimizer": "rmsprop", "learning_rate": 0.01, "average": "polyak"},
    {"early_stopping": True, "patience": 3},
]


class Plug(Exception):
    """Stands in for a power cut."""


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_resume_is_exact(tmp_path, variant):
    whole = model(**variant).fit(X, Y)

    def unplug(event):
        if event.step == 4:
            raise Plug

    with pytest.raises(Plug), Run(tmp_path, checkpoint_every=0, callbacks=[unplug]):
        model(**variant).fit(X, Y)
    with Run(tmp_path, resume=True):
        resumed = model(**variant).fit(X, Y)
    assert same(resumed, whole)
    assert [row["loss"] for row in resumed.history_] == [row["loss"] for row in whole.history_]


def test_resume_in_the_middle_of_an_epoch_is_exact(tmp_path):
    whole = model(epochs=3, batch_size=2).fit(X, Y)
    with pytest.warns(CorollaryWarning, match="time limit"), Run(tmp_path, time_limit=0.02):
        part = model(epochs=3, batch_size=2).fit(X, Y)
    assert part.n_iter_ < 3
    with Run(tmp_path, resume=True):
        resumed = model(epochs=3, batch_size=2).fit(X, Y)
    assert same(resumed, whole)


def test_the_order_of_samples_depends_on_seed_and_epoch_only():
    assert torch.equal(epoch_order(1, 2, 50), epoch_order(1, 2, 50))
    assert not torch.equal(epoch_order(1, 2, 50), epoch_order(1, 3, 50))
    assert not torch.equal(epoch_order(1, 2, 50), epoch_order(2, 2, 50))


def test_batches_cover_every_row_once_and_resume_where_they_were():
    x = torch.arange(23)
    batches = TensorBatches(x)
    order = torch.randperm(23, generator=torch.Generator().manual_seed(0))
    whole = [batch.inputs[0] for batch in batches.epoch(order, 5)]
    assert sorted(torch.cat(whole).tolist()) == list(range(23))
    rest = [batch.inputs[0] for batch in batches.epoch(order, 5, start=3)]
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], rest, strict=True))
    assert batches.count(5) == 5
    assert [batch.size for batch in batches.epoch(None, 5)] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize("copy_limit", [0, 2**30])
def test_large_data_are_gathered_instead_of_copied(monkeypatch, copy_limit):
    monkeypatch.setattr("corollary.engine.batches.COPY_LIMIT", copy_limit)
    reference = [8.0, 1.0, 5.0]
    order = torch.tensor([8, 1, 5])
    ((rows,), *_), *_ = TensorBatches(torch.arange(9.0)).epoch(torch.cat([order, order]), 3)
    assert rows.tolist() == reference


def test_history_losses_are_means_over_samples_in_float64():
    frozen = MLPClassifier(
        (4,), training=Training(epochs=1, learning_rate=1e-12, batch_size=50), random_state=0
    )
    frozen.fit(X, Y)
    logits = frozen.module_(torch.from_numpy(X))
    expected = nn.functional.cross_entropy(logits, torch.from_numpy(Y)).item()
    assert frozen.history_[0]["loss"] == pytest.approx(expected, rel=1e-6)  # float32 batch means


def test_divergence_names_step_and_rate_and_keeps_a_finite_model():
    diverging = MLPRegressor(
        (8,), training=Training(optimizer="sgd", learning_rate=1e8, epochs=20), random_state=0
    )
    with pytest.raises(Diverged, match=r"step \d+ of epoch \d+ \(learning_rate=1e\+08\).*clip_norm"):
        diverging.fit(X, Y.astype(float))
    assert all(np.isfinite(w).all() for w in weights(diverging))


def test_weight_decay_leaves_biases_alone():
    plain = MLPClassifier(
        (8,), training=Training(epochs=1, weight_decay=0.5, learning_rate=1e-9), random_state=0
    )
    learner = plain._fit(X, Y) and plain
    assert learner.n_iter_ == 1
    groups = plain._learner(plain._data(X, Y, None)).optimizer.param_groups
    assert [g["weight_decay"] for g in groups] == [0.5, 0.0]


@pytest.mark.parametrize("name, peer, options", [
    ("adam", "Adam", {}), ("amsgrad", "Adam", {"amsgrad": True}), ("adamw", "AdamW", {}), ("sgd", "SGD", {}),
])  # fmt: skip
def test_weight_decay_is_that_of_the_optimiser_of_this_name(name, peer, options):
    plan = Training(
        epochs=3, optimizer=name, learning_rate=0.05, weight_decay=0.3, batch_size=120, shuffle=False
    )
    model = MLPClassifier((8,), training=plan, random_state=0)
    learner = model._learner(model._data(X, Y, None))
    module = copy.deepcopy(learner.module)
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    others = [p for p in module.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.3}, {"params": others, "weight_decay": 0.0}]
    theirs = getattr(torch.optim, peer)(groups, lr=0.05, **options)
    for _ in range(3):
        learner.step()
        theirs.zero_grad()
        nn.functional.cross_entropy(module(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
        theirs.step()
    for ours, wanted in zip(learner.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-4)


def test_clipping_bounds_the_step():
    tiny = Training(
        optimizer="sgd", learning_rate=1.0, epochs=1, batch_size=120, clip_norm=1e-3, shuffle=False
    )
    start = MLPClassifier(
        (8,), training=Training(epochs=1, learning_rate=1e-12, optimizer="sgd"), random_state=0
    )
    end = MLPClassifier((8,), training=tiny, random_state=0)
    a, b = weights(start.fit(X, Y)), weights(end.fit(X, Y))
    moved = np.sqrt(sum(((p - q) ** 2).sum() for p, q in zip(a, b)))
    assert moved == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "identity"])
@pytest.mark.parametrize("weighted", [False, True])
def test_explicit_backpropagation_equals_autograd(activation, weighted):
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(9, 5, generator=gen, dtype=torch.float64)
    w = torch.rand(9, generator=gen, dtype=torch.float64) if weighted else None
    cases = [
        (cross_entropy, softmax_error, torch.randint(0, 3, (9,), generator=gen)),
        (half_squared, squared_error, torch.randn(9, 3, generator=gen, dtype=torch.float64)),
    ]
    for criterion, error, y in cases:
        net = MLP((5, 7, 6, 3), activation).double()
        loss = Supervised(criterion)(net, Batch((x,), y, w, 9))
        loss.backward()
        expected = [p.grad.clone() for p in net.parameters()]
        for p in net.parameters():
            p.grad.fill_(torch.nan)  # every entry must be overwritten
        explicit = Backpropagation(error)(net, x, y, w)
        assert explicit.item() == pytest.approx(loss.item(), rel=1e-12)
        for p, e in zip(net.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, e, rtol=1e-10, atol=1e-12)


def test_training_fields_are_searchable_and_checked():
    search = MLPClassifier().set_params(training__epochs=7, training__learning_rate=0.1)
    assert search.get_params()["training__epochs"] == 7
    with pytest.raises(ValueError, match="no optimizer named 'adamm'. Closest: 'adam'"):
        MLPClassifier(training=Training(optimizer="adamm")).fit(X, Y)
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1; got 0"):
        MLPClassifier(training=Training(epochs=0)).fit(X, Y)
    with pytest.raises(ValueError, match="learning_rate must be positive; got -1"):
        MLPClassifier(training=Training(learning_rate=-1)).fit(X, Y)
    with pytest.raises(TypeError, match="training must be a Training; got 3"):
        MLPClassifier(training=3).fit(X, Y)


def test_early_stopping_on_the_run_works_for_any_learner():
    with Run(early_stopping=EarlyStopping("loss", patience=1, min_delta=10.0)):
        stopped = model(epochs=50).fit(X, Y)
    assert len(stopped.history_) == 2


def test_early_stopping_needs_enough_samples():
    with pytest.raises(ValueError, match="early_stopping needs at least 11 samples; got 5"):
        model(early_stopping=True).fit(X[:5], [0, 1, 2, 0, 1])


def test_two_processes_give_the_model_of_one():
    one = MLPClassifier((8,), training=Training(epochs=3, batch_size=32), random_state=0).fit(X, Y)
    with Run(processes=2):
        two = MLPClassifier((8,), training=Training(epochs=3, batch_size=32), random_state=0).fit(X, Y)
    for a, b in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # float32 sums in another order
    assert one.history_[-1]["loss"] == pytest.approx(two.history_[-1]["loss"], rel=1e-4)


def test_precision_through_fabric():
    with Run(precision="bf16-mixed"):
        mixed = model().fit(X, Y)
    assert np.isfinite(mixed.predict_proba(X)).all()


def test_create_makes_estimators_with_parameters():
    assert create("mlp", hidden_layer_sizes=(3,)).hidden_layer_sizes == (3,)


def test_a_running_average_forgets_its_start():
    kept = average(torch.nn.Linear(1, 1, bias=False), 0.9)
    wanted, now = None, torch.nn.Linear(1, 1, bias=False)
    for n in range(200):
        with torch.no_grad():
            now.weight.fill_(float(n))
        kept.update_parameters(now)
        decay = min(0.9, (1 + n) / (10 + n))
        wanted = float(n) if wanted is None else decay * wanted + (1 - decay) * n
    assert kept.module.weight.item() == pytest.approx(wanted, rel=1e-6)
    with pytest.raises(ValueError, match='"polyak" or a number from 0 to below 1; got 1.5'):
        average(now, 1.5)
