"""Anybody's modules as estimators."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator as sklearn_checks
from torch import nn

import corollary
from corollary import Net, NetClassifier, NetRegressor, Run, Training, testing
from corollary.errors import CorollaryWarning

X, Y = load_iris(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
PLAN = Training(epochs=20, learning_rate=0.02)


class Small(nn.Module):
    """A module that is told its sizes, and has one of its own."""

    def __init__(self, n_inputs, n_classes=3, width=8):
        super().__init__()
        self.inner, self.outer = nn.Linear(n_inputs, width), nn.Linear(width, n_classes)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


def instance(out=3):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, out))


@pytest.mark.parametrize("cls", [NetClassifier, NetRegressor, Net])
def test_the_contract(cls):
    testing.check_estimator(cls(**cls._test_params(), random_state=0))


EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "repeated rows make other batches than weighted ones",
    "check_sample_weight_equivalence_on_sparse_data": "repeated rows make other batches than weighted ones",
    "check_transformer_preserve_dtypes": "the module's own type decides",
}


@pytest.mark.parametrize("cls", [NetClassifier, NetRegressor, Net])
def test_scikit_learns_checks(cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(**cls._test_params(), random_state=0)
        found = sklearn_checks(model, expected_failed_checks=EXPECTED, on_fail=None)
    assert [r["check_name"] for r in found if r["status"] == "failed"] == []


@pytest.mark.parametrize(
    "module", [instance(), Small, lambda n_inputs, n_outputs: nn.Linear(n_inputs, n_outputs)]
)
def test_an_instance_a_class_or_a_function(module):
    model = NetClassifier(module, training=PLAN, random_state=0).fit(X, Y)
    assert model.score(X, Y) > 0.8
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    again = clone(model).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_an_instance_is_left_as_it_was():
    module = instance()
    before = module[0].weight.detach().clone()
    NetClassifier(module, training=PLAN).fit(X, Y)
    assert torch.equal(module[0].weight, before)


def test_the_plain_loop_in_torch_gives_the_same_weights():
    # One batch of all data in order: the engine must do exactly what people write by hand.
    module = instance()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
    plan = Training(epochs=5, optimizer="sgd", learning_rate=0.1, batch_size=len(X), shuffle=False)
    model = NetClassifier(instance(), loss=nn.CrossEntropyLoss, training=plan).fit(X, Y)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    for ours, theirs in zip(model.module_.parameters(), module.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)  # sums in another order


@pytest.mark.parametrize(
    ("loss", "last"),
    [
        ("nll", nn.LogSoftmax(1)),
        (nn.NLLLoss(), nn.LogSoftmax(1)),
        ("margin", nn.Identity()),
        (nn.CrossEntropyLoss, nn.Identity()),
    ],
)
def test_losses_of_classes(loss, last):
    module = nn.Sequential(instance(), last)
    model = NetClassifier(module, loss=loss, training=PLAN, random_state=0).fit(X, Y)
    assert model.score(X, Y) > 0.85
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(("loss", "last"), [("binary", nn.Identity()), (nn.BCELoss, nn.Sigmoid())])
def test_two_classes_from_one_output(loss, last):
    y = np.array(["no", "yes"])[(Y > 0).astype(int)]
    module = nn.Sequential(instance(1), last)
    model = NetClassifier(module, loss=loss, training=PLAN, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95 and model.predict_proba(X).shape == (150, 2)
    with pytest.raises(ValueError, match="takes two classes; got 3"):
        NetClassifier(module, loss="binary").fit(X, Y)


def test_regression_with_weights_and_losses():
    y = X @ [1.0, -2.0, 0.5, 0.0]
    plan = Training(epochs=60, learning_rate=0.05)
    for loss in ("squared", "huber", nn.L1Loss, nn.functional.mse_loss):
        model = NetRegressor(nn.Linear(4, 1), loss=loss, training=plan, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.95 and model.predict(X).shape == (150,)
    both = NetRegressor(nn.Linear(4, 2), training=plan).fit(X, np.stack([y, -y], 1))
    assert both.predict(X).shape == (150, 2)
    heavy = np.where(Y == 0, 1.0, 1e-6)
    weighted = NetRegressor(nn.Linear(4, 1), training=plan, random_state=0).fit(
        X, np.where(Y == 0, y, 100.0), heavy
    )
    assert np.corrcoef(weighted.predict(X)[Y == 0], y[Y == 0])[0, 1] > 0.95


def test_images_and_tokens():
    digits = load_digits()
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    images = digits.images[:300, None] / 16
    model = NetClassifier(net, training=PLAN, random_state=0).fit(images, digits.target[:300])
    assert model.score(images, digits.target[:300]) > 0.9
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    tokens = rng.integers(0, 5, (100, 7)) + 5 * y[:, None]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bag = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 2))
    assert NetClassifier(bag, training=PLAN, random_state=0).fit(tokens, y).score(tokens, y) == 1.0


def test_grid_search_over_module_and_training():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), NetClassifier(Small, training=Training(epochs=5), random_state=0)),
        {"netclassifier__module__width": [2, 16], "netclassifier__training__learning_rate": [0.001, 0.05]},
        cv=2,
    ).fit(X, Y)
    best = search.best_estimator_[-1]
    assert search.best_params_["netclassifier__training__learning_rate"] == 0.05
    assert best.module_.inner.out_features == best.get_params()["module__width"]


def test_a_file_holds_weights_and_names_and_is_given_the_module(tmp_path):
    model = NetClassifier(Small, options={"width": 5}, training=PLAN, random_state=0).fit(X, Y)
    path = model.save(tmp_path / "m.safetensors")
    with pytest.raises(corollary.io.FileError, match=r"module=test_net\.Small.*load\(path, module=\.\.\.\)"):
        corollary.load(path)
    again = corollary.load(path, module=Small)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="module= must be as it was in the fit"):
        corollary.load(path, module=lambda width: nn.Linear(4, 3))
    NetClassifier(instance(), loss=nn.CrossEntropyLoss(), training=PLAN).fit(X, Y).save(path)
    again = corollary.load(path, module=instance(), loss=nn.CrossEntropyLoss())
    assert again.score(X, Y) > 0.8


def test_a_tuned_model_that_was_loaded_is_tuned_further(tmp_path):
    base = NetClassifier(Small, training=PLAN, random_state=0).fit(X, Y)
    path = base.fine_tune(X[:60], Y[:60] + 1, training=Training(epochs=1)).save(tmp_path / "m")
    again = corollary.load(path, module=Small)
    before = again.module_.state_dict()
    tuned = again.set_params(training__learning_rate=1e-9).fit(X[:60], Y[:60] + 1)
    for name, weight in tuned.module_.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=1e-6)


def test_an_objective_of_ones_own():
    def contrast(module, batch):
        z = module(*batch.inputs)
        return (z.mean(0) - 1).square().sum(), {"size": z.norm()}

    model = Net(nn.Linear(4, 2), contrast, training=PLAN).fit(X)
    assert model.transform(X).shape == (150, 2) and "size" in model.history_[0]
    with pytest.raises(TypeError, match="objective must be a function; got None"):
        Net(nn.Linear(4, 2)).fit(X)


def test_partial_fit_goes_on_with_weights_and_moments():
    model = NetClassifier(instance(), training=Training(learning_rate=0.02, shuffle=False), random_state=0)
    for _ in range(4):
        model.partial_fit(X, Y)
    whole = clone(model).set_params(training__epochs=4).fit(X, Y)
    assert model.history_frame().index.tolist() == [1, 2, 3, 4]  # one history over all calls
    assert model.history_frame()["seconds"].is_monotonic_increasing
    np.testing.assert_allclose(model.history_frame()["loss"], whole.history_frame()["loss"], rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-5, atol=1e-6)
    first = NetClassifier(instance(), training=PLAN).partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 2])
    assert first.partial_fit(X, Y).predict_proba(X).shape == (150, 3)
    warm = NetClassifier(instance(), training=Training(epochs=3, warm_start=True), random_state=0).fit(X, Y)
    assert warm.fit(X, Y).history_[0]["loss"] < clone(warm).fit(X, Y).history_[0]["loss"]


def test_validation_data():
    model = NetClassifier(Small, training=PLAN, random_state=0).fit(
        X[::2], Y[::2], validation=(X[1::2], Y[1::2])
    )
    assert model.history_[-1]["validation_loss"] < model.history_[0]["validation_loss"]


def test_callbacks_see_module_and_optimizer(tmp_path):
    seen = []
    with Run(tmp_path, callbacks=[lambda event: seen.append((event.module_, event.optimizer))]):
        NetClassifier(instance(), training=PLAN).fit(X, Y)
    assert isinstance(seen[0][0], nn.Sequential) and hasattr(seen[0][1], "param_groups")
    assert (tmp_path / "model.safetensors").exists()


class Spare(Small):
    """One part is used by no loss, another one in some batches only."""

    def __init__(self, n_inputs):
        super().__init__(n_inputs)
        self.idle, self.rare, self.calls = nn.Linear(2, 2), nn.Linear(n_inputs, 3), 0

    def forward(self, x):
        self.calls += self.training
        return super().forward(x) + (self.rare(x) if self.training and self.calls % 2 else 0)


@pytest.mark.filterwarnings("ignore:.*2 parameters get no gradient")
def test_two_processes():
    model = NetClassifier(Spare, training=Training(epochs=2, batch_size=50), random_state=0)
    with Run(processes=2):
        shared = clone(model).fit(X, Y)
    np.testing.assert_allclose(
        shared.predict_proba(X), model.fit(X, Y).predict_proba(X), rtol=1e-3, atol=1e-4
    )


# --- what can be wrong -----------------------------------------------------------------------------------


def test_what_cannot_be_trained_is_said_before_training():
    with pytest.raises(
        ValueError, match=r"fit loss='squared' and targets of shape \(8, 2\); got an output of shape \(8, 3\)"
    ):
        NetRegressor(nn.Linear(4, 3)).fit(X, X[:, :2])
    with pytest.raises(ValueError, match=r"targets of shape \(8,\); got an output of shape \(8, 2\)"):
        NetClassifier(nn.Linear(4, 2)).fit(X[::-1], Y[::-1])
    with pytest.raises(ValueError, match=r"targets of shape \(8,\); got an output of shape \(8, 1\)"):
        NetClassifier(nn.Linear(4, 1)).fit(X, Y)
    must = (
        r"NetClassifier: the module must take a batch of inputs of shape \(8, 4\) .*; got RuntimeError: mat1"
    )
    with pytest.raises(ValueError, match=must):
        NetClassifier(nn.Linear(5, 3)).fit(X, Y)
    with pytest.raises(ValueError, match="no backend of torch.compile named 'inductr'. Closest: 'inductor'"):
        NetClassifier(instance(), training=Training(compile="inductr")).fit(X, Y)
    with pytest.raises(ValueError, match="module must be given; got None"):
        NetClassifier().fit(X, Y)
    with pytest.raises(TypeError, match="module must be a torch.nn.Module, or make one; got 3"):
        NetClassifier(3).fit(X, Y)
    with pytest.raises(TypeError, match="module must return a torch.nn.Module; got int"):
        NetClassifier(lambda: 3).fit(X, Y)
    with pytest.raises(ValueError, match="options are arguments of a module's class; got a module"):
        NetClassifier(instance(), options={"width": 3}).fit(X, Y)
    with pytest.raises(ValueError, match="no loss named 'cross_entropy'. Closest: 'cross-entropy'"):
        NetClassifier(instance(), loss="cross_entropy").fit(X, Y)
    with pytest.raises(ValueError, match="must depend on parameters of the module"):
        Net(instance(), lambda module, batch: batch.inputs[0].mean()).fit(X)
    with pytest.raises(ValueError, match=r"loss of a batch must be one number; got shape \(8,\)"):
        Net(instance(), lambda module, batch: module(*batch.inputs).sum(1)).fit(X)


def test_nan_at_the_first_batch():
    bad = instance()
    with torch.no_grad():
        bad[0].weight[0, 0] = float("nan")
    model = NetClassifier(instance(), training=PLAN, random_state=0).fit(X, Y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="finite before the first update; got nan on the first 8 samples"):
        model.set_params(module=bad).fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_parameters_without_a_gradient_are_named():
    class Idle(Small):
        def __init__(self, n_inputs):
            super().__init__(n_inputs)
            self.idle = nn.Linear(2, 2)

    with pytest.warns(CorollaryWarning, match=r"2 parameters get no gradient.*: idle\.weight, idle\.bias\."):
        NetClassifier(Idle, training=Training(epochs=1)).fit(X, Y)


# --- modules as people write them -------------------------------------------------------------------------


def lazy(n_outputs):
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(n_outputs))


def test_lazy_layers_learn_their_widths_from_the_data(tmp_path):
    model = NetClassifier(lazy, training=PLAN, random_state=0).fit(X, Y)
    again = clone(model).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.save(tmp_path / "lazy.safetensors")
    loaded = corollary.load(tmp_path / "lazy.safetensors", module=lazy)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert model.module_[0].in_features == 4


def test_batch_normalisation_takes_a_last_batch_of_one_sample():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model = NetClassifier(net, training=Training(epochs=2, batch_size=149), random_state=0).fit(X, Y)
    assert isinstance(model.module_[1], nn.BatchNorm1d) and type(net[1]) is nn.BatchNorm1d
    assert len(model.history_) == 2


class Answers(nn.Module):
    """A module that says more than its logits, as a dict or a tuple."""

    def __init__(self, n_inputs, n_outputs, form="dict"):
        super().__init__()
        self.last, self.form = nn.Linear(n_inputs, n_outputs), form

    def forward(self, x):
        out = self.last(x)
        return {"logits": out, "inputs": x} if self.form == "dict" else (out, x)


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_the_logits_of_a_dict_or_tuple_are_the_output(form):
    plain = nn.Linear(4, 3)
    told = Answers(4, 3, form)
    told.last.load_state_dict(plain.state_dict())
    expected = NetClassifier(plain, training=PLAN, random_state=0).fit(X, Y).predict_proba(X)
    found = NetClassifier(told, training=PLAN, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(found.predict_proba(X), expected)
    number = NetRegressor(Answers, options={"form": form}, training=PLAN, random_state=0).fit(X, X[:, 0])
    assert number.score(X, X[:, 0]) > 0.3


def test_a_dict_without_logits_is_named():
    class Other(nn.Linear):
        def forward(self, x):
            return {"scores": super().forward(x)}

    with pytest.raises(
        ValueError, match=r"a dict must have 'logits'; got \['scores'\]. Pass loss= and link="
    ):
        NetClassifier(Other(4, 3), training=PLAN).fit(X, Y)


@pytest.mark.parametrize("loss", ["squared", "absolute", nn.HuberLoss(), nn.L1Loss])
def test_outputs_are_not_spread_over_targets_of_another_width(loss):
    for y in (X[:, 0], X[:, :1]):
        with pytest.raises(
            ValueError, match=r"must fit loss=.* got an output of shape \(8, 2\) \(it has another shape\)"
        ):
            NetRegressor(nn.Linear(4, 2), loss=loss, training=PLAN).fit(X, y)
    own = NetRegressor(nn.Linear(4, 2), loss=lambda z, t: (z - t).abs().mean(1), training=PLAN).fit(
        X, X[:, :1]
    )
    assert own.predict(X).shape == (150, 2)


@pytest.mark.parametrize("loss", ["nll", nn.NLLLoss, nn.NLLLoss(weight=torch.ones(3))])
def test_log_probabilities_take_soft_targets(loss):
    net, plan = nn.Linear(4, 3), Training(epochs=3, mixup=0.2, label_smoothing=0.1)
    expected = NetClassifier(net, training=plan, random_state=0).fit(X, Y).predict_proba(X)
    logs = nn.Sequential(net, nn.LogSoftmax(1))
    found = NetClassifier(logs, loss=loss, training=plan, random_state=0).fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_another_module_in_place_of_the_fitted_one_is_no_altered_file(tmp_path):
    NetClassifier(Small, training=PLAN, random_state=0).fit(X, Y).save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="^load: module= must be as it was in the fit; got ") as caught:
        corollary.load(tmp_path / "m.safetensors", module=nn.Linear(4, 3))
    assert "altered" not in str(caught.value)


ONE_LOGIT = [
    ("binary", lambda: nn.Linear(4, 1)),
    (nn.BCELoss, lambda: nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())),
]


@pytest.mark.parametrize("loss, make", ONE_LOGIT)
def test_one_output_for_two_classes_is_attacked_as_two_logits(loss, make):
    binary = X[:100], Y[:100]
    model = NetClassifier(make(), loss=loss, training=PLAN, random_state=0).fit(*binary)
    scores, _ = model._differentiable()
    logits = scores(torch.from_numpy(binary[0]).float()).detach()
    np.testing.assert_allclose(logits.softmax(1), model.predict_proba(binary[0]), atol=1e-6)
    worse = corollary.pgd(model, *binary, eps=1.0, bounds=(-9, 9), steps=5).adversarial
    assert model.score(worse, binary[1]) < model.score(*binary)


def graph_of(model, tmp_path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    model.to_onnx(tmp_path / "m.onnx")
    return onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"X": x})


CASES = [
    ("cross-entropy", lambda: nn.Linear(4, 2)),
    ("nll", lambda: nn.Sequential(nn.Linear(4, 2), nn.LogSoftmax(1))),
    *ONE_LOGIT,
]


@pytest.mark.parametrize("loss, make", CASES)
def test_a_graph_says_what_the_classifier_says(loss, make, tmp_path):
    model = NetClassifier(make(), loss=loss, training=PLAN, random_state=0).fit(X[:100], Y[:100])
    x = X[45:56].astype(np.float32)
    probabilities, label = graph_of(model, tmp_path, x)
    np.testing.assert_allclose(probabilities, model.predict_proba(x), atol=1e-6)
    np.testing.assert_array_equal(model.classes_[label], model.predict(x))


def test_graphs_of_regressors_images_tokens_and_objectives(tmp_path):
    x = X[:7].astype(np.float32)
    for y in (X[:, 0], X[:, :2]):
        made = NetRegressor(Small, options={"n_classes": y[0].size}, training=PLAN, random_state=0).fit(X, y)
        np.testing.assert_allclose(graph_of(made, tmp_path, x)[0], made.predict(x), atol=1e-5)
    images = np.random.default_rng(0).normal(size=(60, 1, 5, 5)).astype(np.float32)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LazyLinear(3))
    seen = NetClassifier(net, training=PLAN, random_state=0).fit(images, Y[45:105])
    np.testing.assert_allclose(
        graph_of(seen, tmp_path, images[:7])[0], seen.predict_proba(images[:7]), atol=1e-5
    )
    tokens = np.random.default_rng(0).integers(0, 9, (60, 5))
    read = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    reader = NetClassifier(read, training=PLAN, random_state=0).fit(tokens, Y[45:105])
    np.testing.assert_allclose(
        graph_of(reader, tmp_path, tokens[:7])[0], reader.predict_proba(tokens[:7]), atol=1e-5
    )
    own = Net(**Net._test_params(), random_state=0).fit(X)
    np.testing.assert_allclose(graph_of(own, tmp_path, x)[0], own.transform(x), atol=1e-5)


@pytest.mark.parametrize("loss", ["poisson", nn.PoissonNLLLoss])
def test_rates_of_counts_are_predicted_not_their_logarithms(loss, tmp_path):
    counts = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    plan = Training(epochs=100, learning_rate=0.05)
    model = NetRegressor(nn.Linear(4, 1), loss=loss, training=plan, random_state=0).fit(X, counts)
    assert model.predict(X).mean() == pytest.approx(counts.mean(), rel=0.1)
    x = X[:7].astype(np.float32)
    np.testing.assert_allclose(graph_of(model, tmp_path, x)[0], model.predict(x), rtol=1e-5)


class Normal(nn.Module):
    """Mean and variance of a normal distribution."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        mean, spread = self.last(x).split(1, 1)
        return mean, nn.functional.softplus(spread)


def test_a_link_reads_the_whole_output_as_the_loss_does():
    def loss(output, target):
        return nn.functional.gaussian_nll_loss(output[0], target, output[1] + 1e-3)

    plain = NetRegressor(Normal, loss=loss, training=PLAN, random_state=0).fit(X, X[:, :1])
    spread = NetRegressor(Normal, loss=loss, link=lambda out: out[1], training=PLAN, random_state=0).fit(
        X, X[:, :1]
    )
    assert (
        plain.predict(X).shape == (150, 1) and (spread.predict(X) > 0).all() and (plain.predict(X) < 0).any()
    )
    classes = NetClassifier(
        Answers, options={"form": "tuple"}, loss=lambda out, t: nn.functional.cross_entropy(out[0], t),
        link=lambda out: out[0].softmax(1), training=PLAN, random_state=0,
    ).fit(X, Y)  # fmt: skip
    np.testing.assert_allclose(classes.predict_proba(X).sum(1), 1, atol=1e-6)


# --- optimisers that have no name -------------------------------------------------------------------------


class Signs(torch.optim.Optimizer):
    """An optimiser of one's own, without weight decay."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad.sign(), alpha=-group["lr"])


@pytest.mark.parametrize("optimizer", [torch.optim.RAdam, torch.optim.Adafactor, Signs])
def test_an_optimiser_may_be_a_class(optimizer, tmp_path):
    def model(epochs):
        plan = Training(epochs=epochs, optimizer=optimizer, learning_rate=0.01, weight_decay=0.1)
        return NetClassifier(instance(), training=plan, random_state=0)

    whole = model(6).fit(X, Y)
    with Run(tmp_path / "run", checkpoint_every=0):
        model(3).fit(X, Y)
    with warnings.catch_warnings(), Run(tmp_path / "run", resume=True):
        warnings.simplefilter("error")
        resumed = model(6).fit(X, Y)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    whole.save(tmp_path / "m.safetensors")
    assert corollary.load(tmp_path / "m.safetensors", module=instance()).score(X, Y) == whole.score(X, Y)


def test_a_class_of_a_known_name_is_that_optimiser_and_decay_is_never_dropped():
    def fitted(optimizer, **options):
        plan = Training(epochs=5, optimizer=optimizer, **options)
        return NetClassifier(instance(), training=plan, random_state=0).fit(X, Y).predict_proba(X)

    np.testing.assert_array_equal(fitted(torch.optim.Adam), fitted("adam"))
    np.testing.assert_allclose(
        fitted(Signs, weight_decay=0.5), fitted("signsgd", weight_decay=0.5), atol=1e-6
    )
    assert not np.allclose(fitted(Signs, weight_decay=0.5), fitted(Signs))


@pytest.mark.parametrize("optimizer, options, words", [
    (torch.optim.LBFGS, {}, "step needs no closure; got LBFGS. Or use a name: .*lbfgs"),
    (nn.Linear, {}, "must be one of torch's kind.*; got Linear"),
    (torch.optim.RAdam, {"beta": 1}, "optimizer RAdam: no option named 'beta'. Closest: 'betas'"),
])  # fmt: skip
def test_classes_that_are_no_optimiser_of_this_kind(optimizer, options, words):
    with pytest.raises(ValueError, match=words):
        NetClassifier(instance(), training=Training(optimizer=optimizer, optimizer_options=options)).fit(X, Y)


# --- several inputs ---------------------------------------------------------------------------------------


class Two(nn.Module):
    """A module of two inputs, one of them integers that it looks up."""

    def __init__(self, n_inputs, n_outputs=3, width=8):
        super().__init__()
        assert n_inputs in ([3, 2], {"numbers": 3, "codes": 2})
        self.a, self.b = nn.Linear(3, width), nn.Embedding(4, width)
        self.last = nn.Linear(width, n_outputs)

    def forward(self, numbers, codes):
        return self.last(torch.relu(self.a(numbers) + self.b(codes).sum(1)))


NUMBERS, CODES = X[:, :3].astype(np.float32), (X[:, 2:] > 0).astype(np.int64)
NAMED = {"codes": CODES, "numbers": NUMBERS}


def two(**options):
    return NetClassifier(Two, training=Training(epochs=4, learning_rate=0.02), random_state=0, **options)


def test_several_inputs_by_place_or_by_name():
    placed = two().fit((NUMBERS, CODES), Y)
    named = two().fit(NAMED | {}, Y)
    tensors = two().fit((torch.from_numpy(NUMBERS), torch.from_numpy(CODES)), Y)
    expected = placed.predict_proba((NUMBERS, CODES))
    again = {"numbers": NUMBERS, "codes": CODES}  # in another order than in the fit
    np.testing.assert_array_equal(named.predict_proba(again), named.predict_proba(NAMED))
    np.testing.assert_array_equal(tensors.predict_proba((NUMBERS, CODES)), expected)
    assert placed.score((NUMBERS, CODES), Y) > 0.7 and named.score(NAMED, Y) > 0.7


def test_several_inputs_are_trained_as_a_loop_in_torch_trains_them():
    plan = Training(epochs=3, learning_rate=0.1, optimizer="sgd", batch_size=200, shuffle=False)
    net = Two([3, 2])
    model = NetClassifier(net, training=plan).fit(NAMED, Y)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        out = net(torch.from_numpy(NUMBERS), torch.from_numpy(CODES))
        nn.functional.cross_entropy(out, torch.from_numpy(Y)).backward()
        optimizer.step()
    for p, q in zip(model.module_.parameters(), net.parameters()):
        torch.testing.assert_close(p, q)


def test_several_inputs_are_saved_resumed_validated_searched_and_exported(tmp_path):
    from corollary.networks import together

    whole = two().fit(NAMED, Y)
    whole.save(tmp_path / "two.safetensors")
    loaded = corollary.load(tmp_path / "two.safetensors", module=Two)
    np.testing.assert_array_equal(loaded.predict_proba(NAMED), whole.predict_proba(NAMED))
    with Run(tmp_path / "run", checkpoint_every=0):
        two().set_params(training__epochs=2).fit(NAMED, Y)
    with Run(tmp_path / "run", resume=True):
        resumed = two().fit(NAMED, Y)
    np.testing.assert_array_equal(resumed.predict_proba(NAMED), whole.predict_proba(NAMED))
    with pytest.raises(ValueError, match="a resumed fit must have data="), Run(tmp_path / "run", resume=True):
        two().fit(NAMED | {"numbers": NUMBERS + 1}, Y)
    seen = two().fit(NAMED, Y, np.ones(150), validation=(NAMED, Y)).partial_fit(NAMED, Y)
    assert "validation_loss" in seen.history_[0]
    search = GridSearchCV(two(), {"module__width": [2, 8]}, cv=2).fit(together(NAMED), Y)
    assert search.predict(together(NAMED)).shape == (150,)
    onnxruntime = pytest.importorskip("onnxruntime")
    whole.to_onnx(tmp_path / "two.onnx")
    first = {name: part[:7] for name, part in NAMED.items()}
    (found, _) = onnxruntime.InferenceSession(tmp_path / "two.onnx").run(None, first)
    np.testing.assert_allclose(found, whole.predict_proba(first), atol=1e-6)


def test_pairs_of_codes_are_two_inputs_of_one_axis():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(5, 3), nn.Embedding(7, 3)

        def forward(self, user, item):
            return (self.users(user) * self.items(item)).sum(1)

    user, item = np.arange(60) % 5, np.arange(60) % 7
    model = NetRegressor(Product, training=Training(epochs=2), random_state=0).fit((user, item), user + item)
    assert model.predict((user, item)).shape == (60,)


@pytest.mark.parametrize("given, words", [
    ((NUMBERS, CODES[:9]), "the inputs must have as many samples each; got 150 of '0', 9 of '1'"),
    ((NUMBERS * np.nan, CODES), "input '0' must be finite; got NaN"),
    ((NUMBERS, CODES.astype(str)), "input '1' must be of numbers; got <U"),
])  # fmt: skip
def test_bad_inputs_are_named(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        two().fit(given, Y)


@pytest.mark.parametrize("given", [NUMBERS, (NUMBERS, CODES, CODES), {"numbers": NUMBERS}, (CODES, NUMBERS)])
def test_other_inputs_than_those_of_the_fit_are_named(given):
    model = two().fit((NUMBERS, CODES), Y)
    with pytest.raises(ValueError, match="X must hold the inputs of the fit, {'0': .*; got "):
        model.predict(given)


def test_several_inputs_where_one_is_taken():
    with pytest.raises(ValueError, match="only a module of one input has a gradient to follow; got 2 inputs"):
        corollary.pgd(two().fit(NAMED, Y), NUMBERS, Y, eps=0.1, bounds=None, steps=1)
    plain = NetClassifier(Small, training=PLAN).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"X must hold the inputs of the fit, \(4,\); got {'0': \(3,\), '1': \(2,\)}"
    ):
        plain.predict((NUMBERS, CODES))

    class Dicts(torch.utils.data.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, i):
            return {"numbers": NUMBERS[i], "codes": CODES[i]}, 0

    with pytest.raises(
        TypeError, match="a sample of a data set must be one array; got a dict. Pass several inputs"
    ):
        two().fit(Dicts())
