"""The perceptron as a net: sizes, gradients, types, modes, exports; batches of one row."""

import io
import shutil
import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from torch import nn

from corollary import MLPClassifier, MLPRegressor, Training
from corollary.networks.mlp import MLP
from corollary.nn.normalisation import BatchNorm1d, BatchNorm2d
from corollary.testing import overfitted

VARIANTS = {
    "plain": {},
    "tanh": {"activation": "tanh"},
    "maxout": {"activation": "maxout"},
    "dropout": {"dropout": 0.5},
    "batch": {"norm": "batch"},
    "layer": {"norm": "layer"},
    "weight": {"norm": "weight"},
    "residual": {"residual": True},
}
every = pytest.mark.parametrize("name", VARIANTS)


def net(name, widths=(6, 8, 8, 3)):
    torch.manual_seed(0)
    return MLP(widths, **VARIANTS[name])


def rows(n=16):
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(1))


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts():
    """LeNet-300-100 has 266,610; maxout doubles hidden layers, batch normalisation adds two per unit."""
    widths = (784, 300, 100, 10)
    plain = sum((n + 1) * m for n, m in zip(widths[:-1], widths[1:]))
    assert count(MLP(widths)) == plain == 266_610
    assert count(MLP(widths, norm="batch")) == count(MLP(widths, norm="layer")) == plain + 2 * (300 + 100)
    assert count(MLP(widths, norm="weight")) == plain + 300 + 100
    assert count(MLP(widths, "maxout")) == 785 * 600 + 301 * 200 + 1010
    assert count(MLP((5, 3))) == 18


@every
def test_backward_reaches_every_parameter(name):
    module = net(name)
    module(rows()).square().sum().backward()
    # Batch normalisation takes away whatever the bias before it adds: its gradient is rounding.
    silent = [n for n, p in module.named_parameters() if p.grad is None]
    assert silent == []
    assert all(p.grad.abs().max() > 0 for p in module.parameters() if p.ndim >= 2)


@every
def test_one_batch_can_be_overfitted(name):
    module, x, y = net(name, (6, 32, 32, 3)), rows(12), torch.arange(12) % 3
    assert overfitted(module, lambda: nn.functional.cross_entropy(module(x), y), below=0.05) < 0.05


@every
def test_modes_differ_only_where_they_should(name):
    module, x = net(name), rows()
    same = torch.equal(module.train()(x), module.eval()(x))
    assert same == (name not in ("batch", "dropout"))
    torch.testing.assert_close(module(x)[:1], module(x[:1]))  # no leak between rows


@every
def test_types(name):
    module, x = net(name).eval(), rows()
    with torch.no_grad():
        exact = module.double()(x.double())
        torch.testing.assert_close(module.float()(x).double(), exact, rtol=0, atol=1e-5)
        half = module.bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), exact, rtol=0, atol=0.05 * float(exact.abs().max()))  # 8 bits


@every
def test_torch_export(name):
    module, x = net(name).eval(), rows()
    torch.testing.assert_close(torch.export.export(module, (x,)).module()(x), module(x))


@every
def test_onnx(name):
    ort = pytest.importorskip("onnxruntime")
    module, x, file = net(name).eval(), rows(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), file, dynamo=False)
    session = ort.InferenceSession(file.getvalue())
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(out, module(x).detach(), rtol=1e-4, atol=1e-5)


@every
@pytest.mark.filterwarnings("ignore")
def test_compiled_without_a_break(name):
    """Captured whole, forward and backward; the code for processors is torch's own affair."""
    torch._dynamo.reset()
    module, x = net(name), rows()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled.eval()(x), module(x))
    if name != "dropout":
        expected = torch.autograd.grad(module.train()(x).square().sum(), [*module.parameters()])
        found = torch.autograd.grad(compiled.train()(x).square().sum(), [*module.parameters()])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_compiled():
    module, x = net("batch").eval(), rows()
    torch.testing.assert_close(torch.compile(module)(x), module(x))


# --- one row ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layer", "shape"), [(BatchNorm1d, (3,)), (BatchNorm2d, (3, 1, 1))])
def test_one_value_is_normalised_with_running_statistics(layer, shape):
    ours, x = layer(3), torch.randn(8, *shape)
    theirs = layer.__mro__[2](3)
    for part in (ours, theirs):
        torch.testing.assert_close(part(x), theirs.train()(x))
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x[:1]), theirs.eval()(x[:1]))
    assert ours.num_batches_tracked == theirs.num_batches_tracked  # it left them as they were
    torch.testing.assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("n", [33, 1 + 2 * 32])
@pytest.mark.parametrize("residual", [False, True])
def test_a_last_batch_of_one_row(n, residual):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    plan = Training(epochs=60, batch_size=32, learning_rate=1e-2)
    settings = {"norm": "batch", "residual": residual, "training": plan, "random_state": 0}
    model = MLPClassifier((16,), **settings).fit(X, X[:, 0] > 0)
    assert model.score(X, X[:, 0] > 0) > 0.8
    assert np.isfinite(MLPRegressor((16,), **settings).fit(X, X[:, 0]).predict(X)).all()


def test_batches_of_one_row_only():
    X = np.random.default_rng(0).normal(size=(20, 4))
    plan = Training(epochs=30, batch_size=1, learning_rate=1e-2)
    model = MLPClassifier((16,), norm="batch", training=plan, random_state=0).fit(X, X[:, 0] > 0)
    assert model.score(X, X[:, 0] > 0) > 0.8


def test_weights_start_in_glorot_s_range():
    """Uniform within sqrt(6 / (fan in + fan out)), of which torch's own start would fill about half."""
    plan = Training(epochs=1, learning_rate=1e-12)
    model = MLPClassifier((50,), training=plan, random_state=0).fit(np.eye(100), np.arange(100) % 2)
    for W in model.coefs_:
        bound = np.sqrt(6 / sum(W.shape))
        assert 0.9 * bound < np.abs(W).max() <= bound + 1e-9


def test_many_rows_say_themselves_when_to_stop():
    """Labels that are nearly noise are learned by heart in 100 epochs; the default stops, and its probabilities are truer."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 12))
    y = (rng.random(1200) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    stopped = MLPClassifier(random_state=0).fit(X[:600], y[:600])
    whole = MLPClassifier(training=Training(epochs=100), random_state=0).fit(X[:600], y[:600])
    few = MLPClassifier(random_state=0).fit(X[:499], y[:499])
    assert stopped.n_iter_ < whole.n_iter_ == few.n_iter_ == 100
    assert "validation_loss" in stopped.history_[0]
    assert "validation_loss" not in whole.history_[0]
    nll = [log_loss(y[600:], model.predict_proba(X[600:])) for model in (stopped, whole)]
    assert nll[0] < nll[1] - 0.05
    once = MLPClassifier(random_state=0).partial_fit(X[:600], y[:600], classes=[0, 1])
    assert "validation_loss" not in once.history_[0]
