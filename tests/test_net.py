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
