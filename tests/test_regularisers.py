"""Regularisers against closed forms, alone and together, with exact resume; weights, threads and devices."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from corollary import (
    GAN,
    VAE,
    ImageClassifier,
    MLPClassifier,
    MLPRegressor,
    Run,
    SequenceClassifier,
    Training,
    load,
)
from corollary.engine import random
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import Supervised
from corollary.engine.regularisers import Curriculum, LabelSmoothing, Mixup, NormBall
from corollary.engine.sgd import GradientLearner, find_rate
from corollary.errors import CorollaryWarning
from corollary.losses import CrossEntropy, LabelwiseCrossEntropy, half_squared
from corollary.testing.checks import check_resume

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=(6, 3))).argmax(1)
IMAGES = RNG.uniform(size=(24, 8, 8)).astype(np.float32)


def quadratic(target, repeats=1, **training):
    """Return the learner of 1/2 |w - target|^2 for a weight matrix w of one row that begins at zero."""
    module = nn.Linear(len(target), 1, bias=False).double()
    nn.init.zeros_(module.weight)
    d = len(target)
    inputs = torch.eye(d, dtype=torch.float64) * d**0.5  # the mean over rows is then the sum over entries
    y = torch.tensor(target, dtype=torch.float64)[:, None] * d**0.5
    inputs, y = inputs.repeat(repeats, 1), y.repeat(repeats, 1)
    plan = Training(**{"optimizer": "gd", "learning_rate": 0.3, "epochs": 200, **training}).resolved()
    return GradientLearner(
        module, Supervised(half_squared), TensorBatches(inputs, y), plan, Run(device="cpu"), seed=0, owner="Q"
    )


def minimum(target, **training):
    learner = quadratic(target, **training)
    while not learner.done:
        learner.step()
    return learner.module.weight.detach()[0].numpy()


def test_l1_is_the_soft_threshold_with_exact_zeros():
    found = minimum([2.0, -0.5, 0.05, -3.0], l1=0.7)
    np.testing.assert_allclose(found, [1.3, 0.0, 0.0, -2.3], atol=1e-12)
    assert found[1] == found[2] == 0.0


def test_weight_decay_shrinks_by_its_factor():
    np.testing.assert_allclose(
        minimum([2.0, -1.0], weight_decay=0.5), np.array([2.0, -1.0]) / 1.5, atol=1e-12
    )


@pytest.mark.parametrize("ball", [1.0, NormBall(1.0), NormBall(1.0, per="layer"), NormBall(1.0, per="unit")])
def test_norm_ball_is_the_projection(ball):
    """The nearest point of a ball to the minimum of a round bowl is the minimum's projection."""
    np.testing.assert_allclose(minimum([3.0, -4.0], norm_ball=ball), [0.6, -0.8], atol=1e-12)
    np.testing.assert_allclose(minimum([0.3, -0.4], norm_ball=ball), [0.3, -0.4], atol=1e-12)


def test_norm_balls_per_layer_and_unit_of_a_network():
    def fitted(per):
        plan = Training(epochs=5, norm_ball=NormBall(0.5, per=per), learning_rate=0.05)
        return MLPClassifier((8,), training=plan, random_state=0).fit(X, Y)

    whole = np.sqrt(sum((w**2).sum() for w in fitted("model").coefs_))
    assert whole == pytest.approx(0.5, rel=1e-5)
    assert [np.linalg.norm(w) for w in fitted("layer").coefs_] == pytest.approx([0.5, 0.5], rel=1e-5)
    rows = np.concatenate([np.linalg.norm(w, axis=0) for w in fitted("unit").coefs_])
    assert rows.max() <= 0.5 * (1 + 1e-5)


def test_spectral_penalty_shrinks_the_largest_singular_value():
    """1/2 |w - t|^2 + a/2 sigma^2 for one row, whose singular value is its length: ridge regression."""
    found = minimum([3.0, -4.0], spectral=0.5)
    np.testing.assert_allclose(found, np.array([3.0, -4.0]) / 1.5, atol=1e-8)


def test_input_noise_is_ridge_regression_on_average():
    """E |w (x + e) - y|^2 = |w x - y|^2 + s^2 |w|^2."""
    found = minimum([2.0, -1.0], repeats=5000, input_noise=0.5, learning_rate=0.1, epochs=100)
    # 10000 noisy rows in every update: the standard error of the minimum is about 1 %, a sixth of the bound.
    np.testing.assert_allclose(found, np.array([2.0, -1.0]) / 1.25, atol=0.06)


@pytest.mark.parametrize("rule", [{}, {"accumulate": 3}, {"optimizer": "sam"}, {"optimizer": "svrg"}])
def test_weights_are_noisy_only_while_a_gradient_is_taken(rule):
    """With steps of next to nothing they stay where they began, whatever the rule does in between."""
    plan = {"optimizer": "sgd", "batch_size": 1, "learning_rate": 1e-12, "epochs": 2, **rule}
    learner = quadratic([2.0, -1.0], weight_noise=1.0, **plan)
    while not learner.done:
        learner.step()
    assert learner.module.weight.abs().max() < 1e-9


def test_a_line_search_sees_the_same_noise_at_every_point():
    """L-BFGS and Newton find the minimum of f(w + e) for the noise e of their update: w + e is the target."""
    for optimizer in ("lbfgs", "newton"):
        options = {"damping": 0.0} if optimizer == "newton" else {}
        plan = {"optimizer": optimizer, "learning_rate": 1.0, "epochs": 1, "optimizer_options": options}
        learner = quadratic([2.0, -1.0], weight_noise=1.0, **plan)
        learner.step()
        (((noise,),),) = ([part._noise for part in learner.regularisers],)
        found = learner.module.weight.detach() + noise[0].reshape(1, 2)
        np.testing.assert_allclose(found[0], [2.0, -1.0], atol=1e-6)


def test_the_critic_of_a_game_moves_alone_and_noise_leaves_no_trace():
    plan = Training(1, batch_size=8, weight_noise=1.0, learning_rate=1e-12, average=None, optimizer="sgd",
                    optimizer_options={"momentum": 0.0})  # fmt: skip
    make = {"latent": 2, "width": 4, "n_layers": 1, "critic_steps": 5, "random_state": 0}
    still = GAN(**make, training=plan).fit(X).module_
    start = GAN(**make, training=clone(plan).set_params(weight_noise=None)).fit(X).module_
    for p, q in zip(still.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=0)


def test_label_smoothing_and_mixing_are_their_formulas():
    class Host:
        owner, module = "Host", nn.Linear(2, 3)
        players = (type("P", (), {"objective": Supervised(CrossEntropy(3))}),)

    rng = torch.Generator().manual_seed(0)
    inputs, target = torch.randn(5, 2, generator=rng), torch.tensor([0, 1, 2, 1, 0])
    batch = next(TensorBatches(inputs, target).epoch(None, 5))
    smooth = LabelSmoothing(0.3)
    smooth.attach(Host)
    soft = smooth.on_batch(batch, None, rng).target
    torch.testing.assert_close(soft, 0.7 * nn.functional.one_hot(target, 3).float() + 0.1)
    expected = nn.functional.cross_entropy(inputs @ torch.ones(2, 3), target, label_smoothing=0.3)
    found = nn.functional.cross_entropy(inputs @ torch.ones(2, 3), soft)
    torch.testing.assert_close(found, expected)
    mix = Mixup(0.5)
    mix.attach(Host)
    mixed = mix.on_batch(batch, None, rng)
    torch.testing.assert_close(mixed.target.sum(1), torch.ones(5))
    torch.testing.assert_close(mixed.inputs[0].mean(0), inputs.mean(0))  # pairs are exchanged, none is lost


def test_a_curriculum_begins_with_the_easy_samples():
    seen = []

    class Watch:
        def on_batch(self, batch, module, rng):
            seen.append(batch.inputs[0][:, 0].clone())
            return batch

    rows = np.arange(40, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32)
    plan = Training(
        epochs=8, batch_size=10, curriculum=Curriculum(np.arange(40), start=0.25), regularisers=(Watch(),)
    )
    MLPRegressor((4,), training=plan, random_state=0).fit(rows, rows[:, 0])
    assert sorted(seen[0].tolist()) == list(
        range(10)
    )  # the first epoch has one batch, of the easiest quarter
    assert max(max(s.tolist()) for s in seen[-4:]) == 39
    with pytest.raises(
        ValueError, match=r"curriculum must have one difficulty per sample learned from \(120\)"
    ):
        MLPClassifier(training=Training(curriculum=np.arange(3))).fit(X, Y)
    with pytest.raises(ValueError, match="no curriculum named 'losses'. Closest: 'loss'"):
        MLPClassifier(training=Training(curriculum="losses")).fit(X, Y)


EVERYTHING = {
    "l1": 1e-3, "norm_ball": 5.0, "label_smoothing": 0.1, "input_noise": 0.05, "target_noise": 0.05,
    "weight_noise": 0.01, "gradient_noise": 0.01, "mixup": 0.2, "spectral": 1e-3, "clip_norm": 1.0,
    "average": 0.9, "curriculum": "loss", "weight_decay": 1e-3,
}  # fmt: skip


@pytest.mark.parametrize("field", [*EVERYTHING, "all"])
def test_each_alone_and_all_together_resume_exactly(field):
    fields = EVERYTHING if field == "all" else {field: EVERYTHING[field]}
    plan = Training(epochs=4, batch_size=32, **fields)
    check_resume(MLPClassifier((6,), dropout=0.2, training=plan, random_state=0), X, Y)


def test_self_paced_and_loss_curricula_resume_inside_an_epoch(tmp_path):
    def model():
        plan = Training(epochs=3, batch_size=4, curriculum="loss")
        return MLPClassifier((6,), training=plan, random_state=0)

    whole = model().fit(X, Y)
    with pytest.warns(CorollaryWarning, match="time limit"), Run(tmp_path, time_limit=0.01):
        model().fit(X, Y)
    with Run(tmp_path, resume=True):
        resumed = model().fit(X, Y)
    assert all(np.array_equal(a, b) for a, b in zip(whole.coefs_, resumed.coefs_))


def test_augmented_images_are_other_ones_every_epoch():
    seen = []

    def turned(images, *, generator):
        seen.append(torch.rand((), generator=generator, device=generator.device).item())
        return images.flip(-1)

    plan = Training(epochs=2, batch_size=24, augment=turned)
    ImageClassifier("lenet", training=plan, random_state=0).fit(IMAGES, np.arange(24) % 2)
    assert len(seen) == 2 and seen[0] != seen[1]
    plan = Training(epochs=1, augment={"flip": 0.5, "padding": 1})
    ImageClassifier("lenet", training=plan, random_state=0).fit(IMAGES, np.arange(24) % 2)
    with pytest.raises(ValueError, match=r"augment needs images; got inputs of shape \(32, 6\)"):
        MLPClassifier(training=plan).fit(X, Y)


def test_what_cannot_work_says_why():
    with pytest.raises(
        ValueError, match="label_smoothing needs a model whose loss compares .* VAE, which has"
    ):
        VAE(training=Training(label_smoothing=0.1)).fit(X)
    with pytest.raises(ValueError, match="label_smoothing needs classes"):
        MLPRegressor(training=Training(label_smoothing=0.1)).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="input_noise needs inputs of real numbers; got codes"):
        SequenceClassifier(training=Training(input_noise=0.1)).fit(["ab", "ba"] * 4, [0, 1] * 4)
    with pytest.raises(ValueError, match="mixup needs samples of one size"):
        SequenceClassifier(training=Training(mixup=0.1)).fit([X[:3], X[:2]] * 4, [0, 1] * 4)
    with pytest.raises(ValueError, match="no field named 'label_smooting'. Closest: 'label_smoothing'"):
        Training(label_smooting=0.1)
    with pytest.raises(ValueError, match="no option named 'momentun'. Closest: 'momentum'"):
        MLPClassifier(training=Training(optimizer="sgd", optimizer_options={"momentun": 0.9})).fit(X, Y)
    with pytest.raises(TypeError, match="regularisers must have one of on_batch.*got 3"):
        MLPClassifier(training=Training(regularisers=(3,))).fit(X, Y)
    with pytest.raises(ValueError, match=r"label_smoothing must be a number in \[0, 1\); got 2"):
        MLPClassifier(training=Training(label_smoothing=2)).fit(X, Y)
    for field in ("input_noise", "target_noise", "weight_noise", "gradient_noise", "l1", "weight_decay"):
        for wrong in (-1.0, "much"):
            with pytest.raises(ValueError, match=f"{field} must be a number at least 0; got {wrong!r}"):
                MLPClassifier(training=Training(**{field: wrong})).fit(X, Y)
    for field in ("clip_norm", "mixup"):
        with pytest.raises(ValueError, match=f"{field} must be a number above 0; got -1"):
            MLPClassifier(training=Training(**{field: -1})).fit(X, Y)


def test_options_reach_the_optimiser_and_models_with_regularisers_are_saved(tmp_path):
    class Mine:
        def on_loss(self, loss, module, batch):
            return loss

    plan = Training(
        epochs=1, optimizer="sgd", optimizer_options={"momentum": 0.5}, norm_ball=NormBall(2.0, per="layer"),
        regularisers=(Mine(),),
    )  # fmt: skip
    model = MLPClassifier((4,), training=plan, random_state=0)
    assert model._learner(model._data(X, Y, None)).optimizer.param_groups[0]["momentum"] == 0.5
    loaded = load(model.fit(X, Y).save(tmp_path / "model.safetensors"))
    assert loaded.training.norm_ball.per == "layer"
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert clone(model).training.norm_ball.radius == 2.0


def test_what_is_not_asked_for_costs_nothing():
    model = MLPClassifier((4,), random_state=0)
    learner = model._learner(model._data(X, Y, None))
    assert learner.players[0].gradient is not None  # the explicit backward pass
    assert not any(learner.hooks.values())
    smooth = MLPClassifier((4,), training=Training(label_smoothing=0.1), random_state=0)
    assert smooth._learner(smooth._data(X, Y, None)).players[0].gradient is None


# --- validation, warm starts, dropout --------------------------------------------------------------------


def test_validation_data_are_measured_and_not_learned_from():
    plan = Training(epochs=5, average=0.9)
    model = MLPClassifier((4,), training=plan, random_state=0).fit(X, Y, validation=(X[:30], Y[:30]))
    alone = MLPClassifier((4,), training=plan, random_state=0).fit(X, Y)
    assert all(np.array_equal(a, b) for a, b in zip(model.coefs_, alone.coefs_))
    from sklearn.metrics import log_loss

    expected = log_loss(Y[:30], model.predict_proba(X[:30]), labels=[0, 1, 2])  # of the averaged weights
    assert model.history_[-1]["validation_loss"] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="labels must be among those of the first fit .3 classes.; got 7"):
        model.fit(X, Y, validation=(X[:2], [0, 7]))


def test_early_stopping_keeps_the_best_averaged_weights():
    plan = Training(epochs=30, average=0.8, early_stopping=True, patience=3, learning_rate=0.05)
    model = MLPRegressor((8,), training=plan, random_state=0)
    y = X[:, 0] + RNG.normal(size=120)
    model.fit(X, y, validation=(X[:40], y[:40]))
    best = min(row["validation_loss"] for row in model.history_)
    scaled = (model.predict(X[:40]) - y[:40]) / model.target_scale_
    assert 0.5 * np.mean(scaled**2) == pytest.approx(best, rel=1e-4)


def test_partial_fit_goes_on_where_it_was():
    plan = Training(epochs=3, shuffle=False)
    whole = MLPClassifier((4,), training=plan, random_state=0).fit(X, Y)
    parts = MLPClassifier((4,), training=Training(epochs=9, shuffle=False), random_state=0)
    for _ in range(3):
        parts.partial_fit(X, Y)
    assert parts.n_iter_ == 3
    assert all(np.array_equal(a, b) for a, b in zip(whole.coefs_, parts.coefs_))
    late = MLPClassifier((4,), random_state=0).partial_fit(X[:9], np.zeros(9, int), classes=[0, 1, 2])
    assert late.partial_fit(X, Y).predict_proba(X).shape == (120, 3)
    with pytest.raises(ValueError, match="labels must be among"):
        late.partial_fit(X, Y + 5)


def test_warm_start_begins_with_the_last_weights():
    plan = Training(epochs=30, warm_start=True)
    model = MLPClassifier((4,), training=plan, random_state=0)
    first = model.fit(X, Y).history_[0]["loss"]
    assert model.fit(X, Y).history_[0]["loss"] < 0.9 * first
    model.set_params(hidden_layer_sizes=(5,)).fit(X, Y)  # other shapes begin anew


def test_monte_carlo_dropout():
    model = MLPClassifier((16,), dropout=0.5, random_state=0, training=Training(epochs=5)).fit(X, Y)
    few, again = (model.predict_proba(X, dropout_samples=3) for _ in range(2))
    assert np.array_equal(few, again)  # the same seed, the same masks
    assert not np.array_equal(few, model.predict_proba(X))
    many = model.predict_proba(X, dropout_samples=400)
    # One hidden layer: mean logits over masks are those of the rescaled weights; probabilities are close to them.
    assert np.abs(many - model.predict_proba(X)).max() < 0.25
    regressor = MLPRegressor((16,), dropout=0.5, random_state=0, training=Training(epochs=5)).fit(X, X[:, 0])
    mean, std = regressor.predict(X, dropout_samples=400, return_std=True)
    # Linear in the masks: the mean is the rescaled prediction, up to std / sqrt(400) times a few.
    assert (np.abs(mean - regressor.predict(X)) < 5 * std / 20 + 1e-6).all()
    with pytest.raises(ValueError, match="dropout_samples needs a network with dropout"):
        MLPClassifier(random_state=0).fit(X, Y).predict_proba(X, dropout_samples=2)


# --- randomness ------------------------------------------------------------------------------------------


def jobs():
    plan = Training(epochs=4)
    noisy = Training(epochs=3, input_noise=0.1, mixup=0.3)
    for seed in range(4):
        yield (
            lambda s=seed: (
                MLPClassifier((8,), dropout=0.5, training=plan, random_state=s).fit(X, Y).predict_proba(X)
            )
        )
        yield lambda s=seed: VAE(2, training=plan, random_state=s).fit(X).transform(X)
        yield lambda s=seed: MLPRegressor((8,), training=noisy, random_state=s).fit(X, X[:, 0]).predict(X)


def test_fits_in_threads_give_what_each_gives_alone():
    alone = [job() for job in jobs()]
    before = torch.get_rng_state()
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda job: job(), jobs()))
    assert sum(not np.array_equal(a, b) for a, b in zip(alone, together)) == 0
    assert torch.equal(before, torch.get_rng_state())


class OtherDevice:
    """Stands in for the random state of an accelerator."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def get_rng_state(self, device):
        return self.generator.get_state()

    def set_rng_state(self, state, device):
        self.generator.set_state(state)

    def manual_seed(self, seed):
        self.generator.manual_seed(seed)


def test_the_random_state_of_the_device_is_part_of_the_stream(monkeypatch):
    device = OtherDevice()
    monkeypatch.setattr(torch, "get_device_module", lambda kind: device)
    untouched = device.generator.get_state()
    stream = random.Stream(3, "cuda:0")

    def draw():
        with stream.open(), stream:
            return torch.rand(2, generator=device.generator)

    first, kept = draw(), stream.now()
    second = draw()
    assert not torch.equal(first, second)  # noise goes on from epoch to epoch
    stream.go(kept)
    assert torch.equal(draw(), second)  # and is resumed
    assert set(kept) == {"cpu", "cuda:0"}
    assert torch.equal(device.generator.get_state(), untouched)


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_noise_differs_between_epochs_on_every_device(device):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))
            self.seen = []

        def forward(self, x):
            self.seen.append(torch.nn.functional.dropout(torch.ones(64, device=x.device)).cpu())
            return self.w * x

    module = Twice()
    plan = Training(epochs=2, batch_size=4).resolved()
    data = TensorBatches(torch.ones(4, 1), torch.ones(4, 1)).to(device)
    learner = GradientLearner(
        module, Supervised(half_squared), data, plan, Run(device=device), seed=0, owner="T"
    )
    learner.step(), learner.step()
    assert not torch.equal(*module.seen)


def test_callbacks_reach_module_and_optimiser():
    seen = []
    with Run(callbacks=[lambda event: seen.append((event.learner.module, event.learner.optimizer)) and None]):
        MLPClassifier((4,), training=Training(epochs=1), random_state=0).fit(X, Y)
    assert isinstance(seen[0][0], nn.Module) and isinstance(seen[0][1], torch.optim.Optimizer)


def test_a_rate_is_found_and_resumed():
    plan = Training(epochs=4, learning_rate="auto")
    model = MLPClassifier((8,), training=plan, random_state=0)
    learner = model._learner(model._data(X, Y, None))
    begin = {name: w.clone() for name, w in learner.module.state_dict().items()}
    rate = find_rate(learner)
    assert 1e-6 < rate < 1 and learner.updates == 0
    assert all(torch.equal(w, begin[name]) for name, w in learner.module.state_dict().items())
    assert learner.step() and learner.training.learning_rate == rate  # the same rate, found again
    assert learner.optimizer.param_groups[0]["lr"] == rate
    other = model._learner(model._data(X, Y, None))
    other.restore(learner.state())
    assert other.training.learning_rate == rate and not other.seeks_rate  # a resumed fit does not search
    check_resume(model, X, Y)


@pytest.mark.parametrize(
    "plan", [{"schedule": "cosine", "warmup": 2}, {"optimizer": "sgd", "weight_decay": 0.1}, {"average": 0.9}]
)
def test_accumulated_gradients_are_those_of_a_larger_batch(plan):
    weight = np.random.default_rng(0).uniform(0.5, 2, len(Y))
    large, small = (
        MLPClassifier((8,), training=Training(epochs=3, batch_size=b, accumulate=k, **plan), random_state=0)
        for b, k in ((24, None), (8, 3))
    )
    X64 = X.astype(np.float64)
    for given in (None, weight):
        large.fit(X64, Y, given), small.fit(X64, Y, given)
        for a, b in zip(large.coefs_, small.coefs_):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)  # sums in another order, in float64
    check_resume(small, X, Y)


def test_accumulation_is_refused_where_batches_are_looked_at_twice():
    with pytest.raises(
        ValueError,
        match="accumulate takes an optimiser that looks at each batch once, and one player; got the rule 'sam'",
    ):
        MLPClassifier((4,), training=Training(1, accumulate=2, optimizer="sam")).fit(X, Y)
    with pytest.raises(ValueError, match="accumulate must be an integer of at least 1; got 0"):
        MLPClassifier((4,), training=Training(1, accumulate=0)).fit(X, Y)


def test_compiled_modules_give_the_same():
    plain, compiled = (
        MLPClassifier((4,), dropout=0.1, training=Training(epochs=2, compile=c), random_state=0).fit(X, Y)
        for c in (False, "eager")
    )
    assert all(np.array_equal(a, b) for a, b in zip(plain.coefs_, compiled.coefs_))


def test_labels_that_stand_side_by_side_are_smoothed_and_exchanged_each_by_itself():
    """Any number of labels per sample: each has two classes, yes and no."""
    criterion = LabelwiseCrossEntropy(3)
    target = torch.tensor([[0.0, 1.0, 1.0]])
    torch.testing.assert_close(criterion.smoothed(target, 0.2), torch.tensor([[0.1, 0.9, 0.9]]))
    rng = torch.Generator().manual_seed(0)
    many = target.repeat(5000, 1)
    noisy = criterion.with_noise(many, 0.2, lambda draw, like: draw(like.shape, generator=rng))
    assert ((noisy == 0) | (noisy == 1)).all()
    assert float((noisy != many).float().mean()) == pytest.approx(
        0.1, abs=0.01
    )  # half of the tosses change nothing


def test_noise_on_probabilities_exchanges_whole_rows():
    """It used to add normal numbers to them."""
    soft = np.eye(3)[Y]
    seen = []

    class Watching:
        def on_batch(self, batch, module, rng):
            seen.append(batch.target)
            return batch

    plan = Training(epochs=2, target_noise=0.5, regularisers=(Watching(),))
    MLPClassifier((4,), training=plan, random_state=0).fit(X, soft)
    found = torch.cat(seen)
    assert ((found == 0) | (found == 1)).all()
    assert (found.sum(1) == 1).all()
