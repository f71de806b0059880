"""A trunk with several heads: eq. 1, targets of every form, transfer, files."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary import MLPClassifier, MLPRegressor, MultiTaskNet, Training, testing
from corollary.engine.transfer import layers_of
from corollary.regularisation.multitask import Tasks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
WORDS = np.where(X[:, 0] > 0, "high", "low")
NUMBERS = X @ [1.0, -2.0, 0.5, 0.0, 3.0] + 7
THREE = np.digitize(X[:, 1], [-0.5, 0.5])
PLAN = Training(epochs=60, learning_rate=1e-2)


def targets():
    return {"word": WORDS.copy(), "number": NUMBERS.copy(), "three": THREE.copy()}


def small(**options):
    return MultiTaskNet(hidden_layer_sizes=(16,), training=PLAN, random_state=0, **options)


def test_the_loss_is_the_sum_of_means_over_the_samples_that_have_a_target():
    z, y = torch.randn(6, 4), torch.zeros(6, 4)
    y[:, 1] = 1.0
    y[:, 3] = torch.arange(6.0)
    y[:2, :3], y[3:, 3] = torch.nan, torch.nan
    scales = [0.5 * 6 / 4, 2.0 * 6 / 3]
    found = Tasks([3, 1], scales)(z, y).mean()
    classes = F.cross_entropy(z[2:, :3], torch.ones(4, dtype=torch.long))
    numbers = 0.5 * F.mse_loss(z[:3, 3], y[:3, 3])
    torch.testing.assert_close(found, 0.5 * classes + 2.0 * numbers)  # eq. 1


def test_a_missing_target_has_no_gradient():
    z = torch.randn(3, 2, requires_grad=True)
    y = torch.tensor([[0.0, 1.0], [torch.nan, torch.nan], [1.0, 0.0]])
    Tasks([2], [1.0])(z, y).sum().backward()
    assert torch.isfinite(z.grad).all()
    assert (z.grad[1] == 0).all()
    assert (z.grad[0] != 0).all()


def test_one_task_of_classes_is_a_classifier():
    plan = Training(epochs=5, learning_rate=1e-2, optimizer="gd")
    ours = MultiTaskNet(hidden_layer_sizes=(6,), training=plan, random_state=3).fit(X, THREE)
    peer = MLPClassifier((6,), training=plan, random_state=3).fit(X, THREE)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), rtol=1e-9)
    assert ours.classes_[0].tolist() == [0, 1, 2]
    assert ours.score(X, THREE) == peer.score(X, THREE)


def test_one_task_of_numbers_is_a_regressor():
    plan = Training(epochs=5, learning_rate=1e-2, optimizer="gd")
    ours = MultiTaskNet(hidden_layer_sizes=(6,), training=plan, random_state=3).fit(X, NUMBERS)
    peer = MLPRegressor((6,), training=plan, random_state=3).fit(X, NUMBERS)
    np.testing.assert_allclose(ours.predict(X), peer.predict(X), rtol=1e-9)
    with pytest.raises(ValueError, match="predict_proba needs a task with classes; got numbers only"):
        ours.predict_proba(X)


def test_tasks_of_both_kinds_are_learned_together():
    model = small().fit(X, targets())
    assert model.tasks_.tolist() == ["word", "number", "three"]
    assert model.classes_[1] is None
    assert min(model.scores(X, targets()).values()) > 0.85
    assert model.score(X, targets()) == pytest.approx(np.mean([*model.scores(X, targets()).values()]))
    said, sure = model.predict(X), model.predict_proba(X)
    assert set(sure) == {"word", "three"}
    assert (said["word"] == np.array(["high", "low"])[sure["word"].argmax(1)]).all()
    row = model.history_[-1]
    assert row["loss"] == pytest.approx(sum(row[f"loss_{name}"] for name in model.tasks_))
    assert model.features(X).shape == (60, 16)


def test_a_task_with_few_targets_gains_from_one_with_many():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(600, 20))
    direction = rng.normal(size=20)
    many, rare = A @ direction, (A @ direction > 0).astype(int)
    some = np.where(np.arange(600) < 12, rare.astype(float), np.nan)
    plan = Training(epochs=30, learning_rate=5e-3)
    alone = MultiTaskNet(hidden_layer_sizes=(16,), training=plan, random_state=1).fit(A[:12], rare[:12])
    both = MultiTaskNet(hidden_layer_sizes=(16,), training=plan, random_state=1).fit(
        A, {"a": many, "b": some}
    )
    assert (
        both.scores(A[12:], {"a": many[12:], "b": rare[12:].astype(float)})["b"]
        > alone.score(A[12:], rare[12:]) + 0.05
    )


@pytest.mark.parametrize("form", ["array", "frame", "vector"])
def test_answers_come_in_the_form_of_the_targets(form):
    y = {
        "array": np.column_stack([THREE, NUMBERS]),
        "frame": pd.DataFrame({"three": THREE, "number": NUMBERS}),
        "vector": WORDS,
    }[form]
    said = small().fit(X, y).predict(X)
    assert type(said) is type(y)
    assert said.shape == y.shape
    if form == "frame":
        assert said.columns.tolist() == ["three", "number"]
        assert np.mean(said["three"] == THREE) > 0.9


def test_tensors_give_tensors():
    model = small().fit(torch.tensor(X), np.column_stack([THREE, NUMBERS]))
    said = model.predict(torch.tensor(X))
    assert isinstance(said, torch.Tensor)
    assert said.shape == (60, 2)


def test_whole_numbers_can_be_numbers_and_weights_shift_the_balance():
    counts = np.arange(60) % 7
    assert small().fit(X, {"a": counts}).classes_[0] is not None
    assert small(tasks={"a": "regression"}).fit(X, {"a": counts}).classes_[0] is None
    first, second = (
        small(task_weight={"number": weight}).fit(X, targets()).scores(X, targets())["number"]
        for weight in (0.0, 1.0)
    )
    assert first < 0.2 < 0.8 < second  # what weighs nothing is not learned


def test_a_trunk_of_ones_own_and_images():
    images = RNG.normal(size=(30, 1, 6, 6)).astype(np.float32)
    images[:15, :, :3] += 2

    def trunk():
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2))

    y = {"top": np.arange(30) < 15, "mean": images.mean((1, 2, 3))}
    model = MultiTaskNet(trunk, head_layer_sizes=(8,), training=PLAN, random_state=0).fit(images, y)
    assert model.features(images).shape == (30, 16)
    assert model.scores(images, y)["top"] > 0.9


def test_a_file_with_a_trunk_of_ones_own_asks_for_it(tmp_path):
    trunk = nn.Sequential(nn.Linear(5, 7), nn.Tanh())
    model = MultiTaskNet(trunk, training=Training(epochs=2), random_state=0).fit(X, targets())
    path = model.save(tmp_path / "model")
    with pytest.raises(corollary.io.FileError, match=r"load\(path, module=\.\.\.\)"):
        corollary.load(path)
    again = corollary.load(path, module=trunk)
    assert testing.checks.same(again.predict(X), model.predict(X))


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.filterwarnings("ignore")
def test_the_contract_holds_with_several_tasks(check):
    y = {**targets(), "number": np.where(np.arange(60) % 3 > 0, NUMBERS, np.nan)}
    plan = Training(epochs=4, learning_rate=1e-2)
    check(MultiTaskNet(hidden_layer_sizes=(4,), training=plan, random_state=0), X, y)


def test_other_tasks_keep_the_trunk_and_have_new_heads():
    model = small().fit(X, targets())
    assert len(layers_of(model.module_)) == 2  # the trunk's one, and all heads
    before = model.module_.trunk[1].weight.detach().clone()
    tuned = model.fine_tune(X, {"other": THREE}, freeze=-1)
    assert torch.equal(tuned.module_.trunk[1].weight, before)
    assert tuned.tasks_.tolist() == ["other"]
    assert tuned.scores(X, {"other": THREE})["other"] > 0.7
    same = model.fine_tune(X, targets(), training=Training(epochs=1, learning_rate=1e-9))
    np.testing.assert_allclose(same.predict(X)["number"], model.predict(X)["number"], rtol=1e-5)


def test_validation_early_stopping_and_more_data():
    plan = Training(epochs=5, early_stopping=True)
    model = MultiTaskNet(hidden_layer_sizes=(4,), training=plan, random_state=0)
    assert (
        "validation_loss"
        in model.fit(X, targets(), validation=(X[:9], {k: v[:9] for k, v in targets().items()})).history_[0]
    )
    again = MultiTaskNet(hidden_layer_sizes=(4,), random_state=0)
    again.partial_fit(X[:30], {k: v[:30] for k, v in targets().items()})
    assert again.partial_fit(X[30:], {k: v[30:] for k, v in targets().items()}).n_iter_ == 2
    with pytest.raises(ValueError, match="labels of task 'three' must be among its 3 classes; got 9"):
        again.partial_fit(X, {**targets(), "three": np.full(60, 9)})


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({}, None, "requires y to be passed"),
        ({}, {}, "y must have at least one task; got none"),
        ({}, {"a": WORDS[:3]}, r"task 'a' must have one target per sample \(60\); got shape \(3,\)"),
        ({}, {"a": np.full(60, np.nan)}, "task 'a' must have targets; got none. Leave the task out"),
        ({}, {"a": np.ones(60, int)}, "task 'a' must have at least two classes; got one class, 1"),
        ({}, np.zeros((60, 2, 2)), "y must have one target per sample and task"),
        ({}, {"a": np.r_[NUMBERS[:59], np.inf]}, "task 'a' must be finite"),
        ({"tasks": {"b": "regression"}}, {"a": NUMBERS}, "no task .in tasks. named 'b'. Closest: 'a'"),
        ({"tasks": {"a": "ranking"}}, {"a": NUMBERS}, "no kind of task named 'ranking'"),
        ({"tasks": {"a": "regression"}}, {"a": WORDS}, "task 'a' must hold numbers; got '(high|low)'"),
        (
            {"task_weight": {"a": -1}},
            {"a": NUMBERS},
            r"task_weight\['a'\] must be a number of at least 0; got -1",
        ),
    ],
)
def test_bad_input(options, y, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskNet(**options).fit(X, y)


def test_label_smoothing_smooths_the_classes_of_each_task_and_no_numbers():
    z, codes, numbers = torch.randn(8, 4), torch.arange(8) % 3, torch.randn(8, 1)
    tasks = Tasks([3, 1], [1.0, 0.0])
    target = tasks.smoothed(torch.cat([F.one_hot(codes, 3).float(), numbers], 1), 0.2)
    expected = F.cross_entropy(z[:, :3], codes, label_smoothing=0.2)
    torch.testing.assert_close(tasks(z, target).mean(), expected)
    assert torch.equal(target[:, 3:], numbers)
    with pytest.raises(ValueError, match="label_smoothing needs classes; got a model without them"):
        MultiTaskNet(training=Training(label_smoothing=0.1)).fit(X, NUMBERS)


def test_target_noise_exchanges_classes_moves_numbers_and_leaves_gaps():
    tasks, n = Tasks([4, 1], [1.0, 1.0]), 4000
    target = torch.cat(
        [F.one_hot(torch.zeros(n, dtype=torch.long), 4).double(), torch.zeros(n, 1).double()], 1
    )
    target[:10] = torch.nan
    rng = torch.Generator().manual_seed(0)
    noisy = tasks.with_noise(
        target, 0.4, lambda draw, like: draw(like.shape, generator=rng, dtype=like.dtype)
    )
    assert noisy[:10].isnan().all()
    classes, numbers = noisy[10:, :4], noisy[10:, 4]
    assert ((classes == 0) | (classes == 1)).all()
    assert (classes.sum(1) == 1).all()
    assert 1 - classes[:, 0].mean() == pytest.approx(0.4 * 3 / 4, abs=0.03)  # four standard errors
    assert numbers.std() == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize("field", [{"mixup": 0.4}, {"target_noise": 0.1}, {"label_smoothing": 0.1}])
def test_regularisers_of_targets_work_with_several_tasks_and_gaps(field):
    y = targets()
    y["number"][::3] = np.nan
    plan = Training(epochs=120, learning_rate=1e-2, **field)
    model = MultiTaskNet(hidden_layer_sizes=(16,), training=plan, random_state=0).fit(X, y)
    scores = model.scores(X, y)
    assert all(np.isfinite(row["loss"]) for row in model.history_)
    assert scores["word"] > 0.9
    assert scores["number"] > 0.8
    assert scores["three"] > 0.8


def test_targets_of_other_tasks_are_named():
    model = small().fit(X, targets())
    with pytest.raises(
        ValueError, match=r"y must have the tasks \['word', 'number', 'three'\]; got \['word'\]"
    ):
        model.scores(X, {"word": WORDS})


def test_a_label_that_the_fit_has_not_seen_counts_as_missed():
    model = MultiTaskNet(training=Training(epochs=2), random_state=0).fit(X[:60], np.arange(60) % 2)
    said = model.predict(X[:10])
    strange = np.where(np.arange(10) < 5, 7, said)
    assert model.score(X[:10], strange) == 0.5
