"""Networks of infinite width: kernels, the regressions with them, and the tangent kernel of any module."""

import copy
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import expm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel
from torch import nn

from corollary import NNGP, NNGPClassifier, NTKClassifier, NTKRegressor, Run
from corollary.errors import CorollaryWarning
from corollary.kernels import solvers
from corollary.testing import check_estimator
from corollary.theory import ntk
from corollary.theory.infinite import ACTIVATIONS, CLOSED, _tiled, dual, infinite_kernels, wide_network

PEER = json.loads((Path(__file__).parent / "fixtures" / "neural_tangents.json").read_text())


def rows(n, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# --- the kernels --------------------------------------------------------------------------------------------


def test_arc_cosine_closed_forms():
    X = rows(6)
    norms = np.linalg.norm(X, axis=1)
    cosine = np.clip(X @ X.T / np.outer(norms, norms), -1, 1)
    angle = np.arccos(cosine)
    J0, J1 = np.pi - angle, np.sin(angle) + (np.pi - angle) * cosine
    K = np.outer(norms, norms) * J1 / (2 * np.pi) / 3
    found = infinite_kernels(X, weight_std=1.0, bias_std=0.0)
    np.testing.assert_allclose(found.nngp, K, atol=1e-14)
    # the angle of a row with itself is known to the root of the precision only, here in the reference
    np.testing.assert_allclose(found.ntk, K + X @ X.T / 3 * J0 / (2 * np.pi), atol=1e-7)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_expectations_by_another_quadrature(name):
    x, w = np.polynomial.hermite_e.hermegauss(150)
    w = w / w.sum()
    K, qa, qb = 0.5, 1.5, 0.8
    c = K / np.sqrt(qa * qb)
    u = np.sqrt(qa) * x[:, None] + 0 * x
    v = np.sqrt(qb) * (c * x[:, None] + np.sqrt(1 - c * c) * x)
    phi = torch.erf if name == "erf" else nn.Identity() if name == "identity" else None
    if phi is None:
        from corollary.nn.activations import activation

        phi = activation(name)
    both = torch.tensor(np.stack([u, v]), requires_grad=True)
    values = phi(both)
    (slopes,) = torch.autograd.grad(values.sum(), both)
    weight = torch.tensor(np.outer(w, w))
    found = dual(name, *(torch.tensor(q, dtype=torch.float64) for q in (K, qa, qb)))
    # Gauss-Hermite rules see a kink only to the distance of their nodes
    tol = 2e-2 if name in ("relu", "leaky", "elu") else 1e-6
    for ours, theirs in zip(found, (values, slopes)):
        assert float(ours) == pytest.approx(float((theirs[0] * theirs[1] * weight).sum().detach()), abs=tol)


@pytest.mark.parametrize("case", [key for key in PEER if "-" in key])
@pytest.mark.parametrize("memory", [1, 2**28])
def test_kernels_are_those_of_neural_tangents(case, memory):
    net, activation = case.split("-")
    X = np.array(PEER["images" if net == "convolutional" else "A"])
    how = {"residual": net == "residual", "kernel_size": 3 if net == "convolutional" else None}
    spreads = {"weight_std": PEER["weight_std"], "bias_std": PEER["bias_std"]}
    depth = 3 if net == "residual" else 2
    found = infinite_kernels(X, n_layers=depth, activation=activation, memory=memory, **how, **spreads)
    for name in ("nngp", "ntk"):  # the peer keeps its constants in single precision
        np.testing.assert_allclose(getattr(found, name), PEER[case][name], rtol=2e-6)
        cross = infinite_kernels(X, X[:1], n_layers=depth, activation=activation, **how, **spreads)
        np.testing.assert_allclose(getattr(cross, name)[1:, 0], np.array(PEER[case][name])[1:, 0], rtol=2e-6)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("residual", [False, True])
def test_the_compiled_loop_is_the_recursion_on_tensors(name, dtype, residual):
    rng = np.random.default_rng(0)
    A, B = (torch.as_tensor(rng.normal(size=(n, 6)), dtype=dtype) for n in (23, 8))
    A[3] = 0  # no variance but the biases'
    net = {
        "n_layers": 3,
        "activation": name,
        "weight_std": 1.2,
        "bias_std": 0.3,
        "residual": residual,
        "kernel_size": None,
    }
    options = {key: net[key] for key in net if key != "activation"}
    for other in (None, B):
        same = other is None
        found = infinite_kernels(A, other, activation=name, **options)
        wanted = _tiled(A.double(), A.double() if same else B.double(), same, net, 2**20)
        rounding = 1e-7 if dtype is torch.float64 else 2e-3  # roots of the precision, where angles are small
        for mine, theirs in zip(found, wanted):
            assert mine.dtype is dtype
            assert float((mine.double() - theirs).abs().max()) <= rounding * float(theirs.abs().max())
        assert not same or torch.equal(found.ntk, found.ntk.T)


def test_wide_networks_come_near_as_the_root_of_the_width():
    X = rows(4)
    limit = infinite_kernels(X, n_layers=2, bias_std=0.5)
    widths, gaps = (32, 512), []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for width in widths:
            nets = [wide_network([3, width, width, 1], bias_std=0.5).double() for _ in range(40)]
            K = torch.stack([ntk.empirical(net, X) for net in nets])
            gaps.append(float((K - limit.ntk).square().mean().sqrt() / limit.ntk.square().mean().sqrt()))
            outputs = torch.stack([net(torch.tensor(X))[:, 0].detach() for net in nets])
    # 40 draws of 10 entries that hang together: each root mean square is known to some 15 %
    assert np.log(gaps[0] / gaps[1]) / np.log(widths[1] / widths[0]) == pytest.approx(0.5, abs=0.2)
    assert gaps[1] < 0.15
    # 40 draws know a variance to 22 %
    assert np.allclose((outputs**2).mean(0), limit.nngp.diagonal(), rtol=0.9)


def test_zero_rows_and_single_precision():
    X = np.zeros((3, 2))
    X[0] = 1
    K = infinite_kernels(X, bias_std=0.0, n_layers=3)
    assert torch.isfinite(K.nngp).all() and torch.isfinite(K.ntk).all()
    single = infinite_kernels(torch.tensor(X, dtype=torch.float32), n_layers=3)
    assert single.ntk.dtype == torch.float32


def test_kernels_refuse():
    with pytest.raises(ValueError, match="infinite_kernels: no activation named 'rulu'. Closest: 'relu'"):
        infinite_kernels(np.eye(2), activation="rulu")
    with pytest.raises(ValueError, match="samples of one shape; got .2,. and .3,."):
        infinite_kernels(np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match=r"needs images \(n, c, h, w\); got shape \(2, 2\)"):
        infinite_kernels(np.eye(2), kernel_size=3)
    with pytest.raises(ValueError, match="kernel_size must be odd; got 2"):
        infinite_kernels(np.zeros((1, 1, 4, 4)), kernel_size=2)


# --- regression ---------------------------------------------------------------------------------------------


class Wide(Kernel):
    """Our kernel as one of scikit-learn's."""

    def __init__(self, n_layers=2):
        self.n_layers = n_layers

    def __call__(self, X, Y=None, eval_gradient=False):
        return infinite_kernels(X, Y, n_layers=self.n_layers).nngp.numpy()

    def diag(self, X):
        return np.diag(self(X))

    def is_stationary(self):
        return False


@pytest.mark.parametrize("normalize", [False, True])
def test_regression_is_scikit_learns(normalize):
    X, y = rows(40), rows(40, 2, seed=1)
    ours = NNGP(alpha=0.05, normalize_y=normalize).fit(X[:30], y[:30])
    theirs = GaussianProcessRegressor(Wide(), alpha=0.05, normalize_y=normalize, optimizer=None)
    theirs.fit(X[:30], y[:30])
    for how in ({"return_std": True}, {"return_cov": True}):
        for a, b in zip(ours.predict(X[30:], **how), theirs.predict(X[30:], **how)):
            np.testing.assert_allclose(a, b, atol=1e-9)
    assert ours.log_marginal_likelihood_ == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-10)
    assert ours.log_marginal_likelihood(X[:30], y[:30]) == pytest.approx(ours.log_marginal_likelihood_)


@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
def test_gradient_of_the_evidence(activation):
    X, y = rows(20), rows(20, 1, seed=1)[:, 0]
    model = NNGP(activation=activation, bias_std=0.3).fit(X, y)
    _, slopes = model.log_marginal_likelihood(X, y, gradient=True)
    for name, slope in slopes.items():
        ends = []
        for step in (1e-5, -1e-5):
            moved = copy.copy(model)
            setattr(moved, f"{name}_", getattr(model, f"{name}_") * np.exp(step))
            ends.append(moved.log_marginal_likelihood(X, y))
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-4)


def test_tuning_climbs_to_the_top():
    X = rows(60)
    y = np.sin(X[:, 0]) + 0.3 * rows(60, 1, seed=2)[:, 0]
    model = NNGP(alpha=2.0, weight_std=3.0, tune=True, tol=1e-10).fit(X, y)
    assert (
        model.log_marginal_likelihood_
        > NNGP(alpha=2.0, weight_std=3.0).fit(X, y).log_marginal_likelihood_ + 1
    )
    _, slopes = model.log_marginal_likelihood(X, y, gradient=True)
    assert max(map(abs, slopes.values())) < 0.05  # nats per factor e
    climbed = [entry["log_marginal_likelihood"] for entry in model.history_]
    assert climbed == sorted(climbed)


@pytest.mark.parametrize("cls", [NNGP, NTKRegressor])
def test_other_solvers_agree(cls):
    X, y = rows(80), rows(80, 1, seed=1)[:, 0]
    exact = cls(alpha=0.3).fit(X[:60], y[:60])
    for solver in ("cg", "nystrom"):
        other = cls(alpha=0.3, solver=solver, tol=1e-12, n_components=60, random_state=0).fit(X[:60], y[:60])
        np.testing.assert_allclose(other.predict(X[60:]), exact.predict(X[60:]), atol=1e-7)
        if cls is NNGP:
            np.testing.assert_allclose(
                other.predict(X[60:], return_std=True)[1],
                exact.predict(X[60:], return_std=True)[1],
                atol=1e-6,
            )
    few = cls(alpha=0.3, solver="cg", n_components=10, random_state=0).fit(X[:60], y[:60])
    np.testing.assert_allclose(few.predict(X[60:]), exact.predict(X[60:]), atol=1e-4)
    assert 1 < few.n_iter_ < 60
    rough = cls(alpha=0.3, solver="nystrom", n_components=30, random_state=0).fit(X[:60], y[:60])
    assert rough.X_fit_.shape == (30, 3)
    assert np.corrcoef(rough.predict(X[60:]), exact.predict(X[60:]))[0, 1] > 0.5


@pytest.mark.parametrize(
    "model",
    [
        NNGP(tune=True, max_iter=5),
        NTKRegressor(solver="cg", n_components=5, random_state=0),
        NTKClassifier(solver="cg", n_components=5, random_state=0),
        NNGPClassifier(solver="nystrom", n_components=5, random_state=0),
    ],
    ids=str,
)
def test_every_solver_keeps_the_contract(model):
    check_estimator(model)


def test_callbacks_see_the_spreads_found_so_far():
    X, y = rows(20), rows(20, 1, seed=1)[:, 0]
    seen = []
    with Run(callbacks=[lambda event: seen.append(event.learner.x.copy())]):
        model = NNGP(tune=True).fit(X, y)
    assert np.exp(seen[-1]) == pytest.approx([model.weight_std_, model.bias_std_, model.alpha_])


def test_products_in_blocks(monkeypatch):
    from corollary.kernels import base

    X, y = rows(40), rows(40, 1, seed=1)[:, 0]
    exact = NTKRegressor().fit(X, y).predict(X)
    monkeypatch.setattr(base, "MEMORY", 2000)
    model = NTKRegressor(solver="cg", n_components=5, tol=1e-10, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact, atol=1e-6)


def test_ensemble_of_trained_networks():
    X, y = rows(5), rows(5, 1, seed=1)[:, 0]
    new = rows(3, seed=2)
    mean, std = NTKRegressor(n_layers=1, alpha=0.0, normalize_y=False).fit(X, y).predict(new, return_std=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = [wide_network([3, 300, 1]).double() for _ in range(60)]
        found = torch.stack([ntk.linearise(net).solve(X, y).predict(new)[:, 0] for net in nets]).numpy()
    # linearised networks of finite width: means within four standard errors, spreads to 40 %
    assert (np.abs(found.mean(0) - mean) < 4 * found.std(0) / np.sqrt(60) + 0.02).all()
    np.testing.assert_allclose(found.std(0), std, rtol=0.4)
    at_samples = NTKRegressor(n_layers=1, alpha=0.0).fit(X, y).predict(X, return_std=True)
    np.testing.assert_allclose(at_samples[0], y, atol=1e-7)
    np.testing.assert_allclose(at_samples[1], 0, atol=1e-5)


def test_jitter_is_said():
    X = np.repeat(rows(4), 2, axis=0)
    with pytest.warns(CorollaryWarning, match=r"not positive definite to rounding; [\d.e-]+ was added"):
        model = NTKRegressor(alpha=0.0).fit(X, np.arange(8) // 2)
    assert 0 < model.jitter_ < 1e-3
    np.testing.assert_allclose(model.predict(X), np.arange(8) // 2, atol=1e-3)
    with pytest.raises(
        ValueError, match="NNGP: the kernel matrix must be positive definite; got the eigenvalue -1"
    ):
        solvers.cholesky(torch.diag(torch.tensor([1.0, -1.0, 3.0])), "NNGP")
    with pytest.raises(ValueError, match="NNGP: the kernel matrix must be finite"):
        solvers.cholesky(torch.full((2, 2), torch.nan), "NNGP")


def test_leaving_one_out_is_leaving_one_out():
    X, y = rows(12), rows(12, 2, seed=1)
    C = infinite_kernels(X).nngp + 0.2 * torch.eye(12, dtype=torch.float64)
    found = solvers.left_out(torch.linalg.cholesky(C), torch.tensor(y)).numpy()
    for i in range(12):
        rest = np.delete(np.arange(12), i)
        model = NNGP(1, alpha=0.2, normalize_y=False).fit(X[rest], y[rest])
        np.testing.assert_allclose(found[i], model.predict(X[i : i + 1])[0], atol=1e-9)


@pytest.mark.parametrize("cls", [NNGPClassifier, NTKClassifier])
def test_convolutional_classifiers_of_images(cls):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    images = rng.uniform(0, 0.6, size=(60, 7, 7))
    for i in np.nonzero(y)[0]:  # a bright pair anywhere
        a, b = rng.integers(0, 6, 2)
        images[i, a, b : b + 2] = 1
    model = cls(kernel_size=3).fit(images[:40], y[:40])
    assert model.sample_shape_ == (1, 7, 7)
    assert model.predict_proba(images[40:]).shape == (20, 2)
    assert model.kernel(images[:3], images[3:5]).shape == (3, 2)
    with pytest.raises(ValueError, match="kernel_size needs images"):
        cls(kernel_size=3).fit(images.reshape(60, -1), y)
    with pytest.raises(ValueError, match="kernel_size must be odd; got 2"):
        cls(kernel_size=2).fit(images, y)
    with pytest.raises(ValueError, match=r"must be images of shape \(1, 7, 7\), as in fit"):
        model.predict(images.reshape(60, -1))
    with pytest.raises(ValueError, match=r"must have the fitted shape \(1, 7, 7\)"):
        model.predict(images[:, :5])


def test_estimators_refuse():
    X, y = rows(10), np.arange(10.0)
    with pytest.raises(ValueError, match="tune needs solver='cholesky'; got 'cg'"):
        NNGP(tune=True, solver="cg").fit(X, y)
    with pytest.raises(ValueError, match="the spread over starts needs solver='cholesky'"):
        NTKRegressor(solver="nystrom", random_state=0).fit(X, y).predict(X, return_std=True)
    with pytest.raises(ValueError, match="a kernel needs finite rows"):
        NNGP().kernel([1.0, 2.0])


# --- the tangent kernel of any module -----------------------------------------------------------------------


class Shared(nn.Module):
    """Weights that are used twice, once without their layer."""

    def __init__(self):
        super().__init__()
        self.twice, self.once = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.twice(torch.tanh(self.twice(x))) + torch.tanh(self.once(x)) @ self.once.weight


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.cell(x)[0][:, -1])


MODULES = {
    "norm": lambda: (
        nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2, bias=False)),
        torch.randn(5, 3),
    ),
    "images": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, stride=2),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 3, padding="same"),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        torch.randn(4, 2, 6, 6),
    ),
    "shared": lambda: (Shared(), torch.randn(5, 4)),
    "words": lambda: (
        nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 6), nn.Tanh(), nn.Flatten(), nn.Linear(24, 2)),
        torch.randint(0, 9, (4, 4)),
    ),
    "recurrent": lambda: (Last(), torch.randn(3, 5, 3)),
    "scaled": lambda: (wide_network([3, 10, 10, 2]), torch.randn(5, 3)),
}


@pytest.mark.parametrize("name", MODULES)
def test_empirical_kernel_is_that_of_per_sample_jacobians(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, X = MODULES[name]()
    module = module.double()
    X = X.double() if X.is_floating_point() else X
    mode = module.training
    module.eval()
    jacobians = []
    for x in X:
        out = module(x[None])[0]
        grads = [torch.autograd.grad(o, list(module.parameters()), retain_graph=True) for o in out]
        jacobians.append(torch.stack([torch.cat([g.reshape(-1) for g in each]) for each in grads]))
    J = torch.stack(jacobians)
    module.train(mode)
    full = torch.einsum("nop,mqp->nmoq", J, J)
    mean = full.diagonal(dim1=2, dim2=3).mean(-1)
    for memory in (2**28, 1):
        torch.testing.assert_close(ntk.empirical(module, X, outputs="full", memory=memory), full)
        torch.testing.assert_close(ntk.empirical(module, X, X[:2], memory=memory), mean[:, :2])
    torch.testing.assert_close(ntk.empirical(module, X, method="jacobian"), mean)
    assert not ntk.empirical(module, X).requires_grad  # nor does it hold the graph of all samples
    assert all(part.training == mode for part in module.modules())
    assert all(p.grad is None for p in module.parameters())


def test_empirical_kernel_is_that_of_neural_tangents():
    net = wide_network([3, 5, 2], weight_std=PEER["weight_std"], bias_std=PEER["bias_std"]).double()
    with torch.no_grad():
        for layer, (W, b) in zip((net[0], net[2]), PEER["empirical"]["parameters"]):
            layer.weight.copy_(torch.tensor(W).T)
            layer.bias.copy_(torch.tensor(b).reshape(-1))
    found = ntk.empirical(net, np.array(PEER["A"]), outputs="full")
    np.testing.assert_allclose(found, PEER["empirical"]["ntk"], rtol=1e-5, atol=1e-7)


def test_frozen_parameters_do_not_count():
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    X = torch.randn(4, 3)
    net[0].requires_grad_(False)
    h = torch.tanh(net[0](X))
    torch.testing.assert_close(ntk.empirical(net, X), (h @ h.T + 1).detach())


def test_empirical_refuses():
    X = np.zeros((3, 2))
    with pytest.raises(TypeError, match="module must be a torch.nn.Module; got function"):
        ntk.empirical(lambda x: x, X)
    with pytest.raises(ValueError, match="parameters that are trained; got none"):
        ntk.empirical(nn.Identity(), X)
    with pytest.raises(ValueError, match="outputs must be 'mean' or 'full'; got 'sum'"):
        ntk.empirical(nn.Linear(2, 1), X, outputs="sum")
    with pytest.raises(ValueError, match="at least one sample"):
        ntk.empirical(nn.Linear(2, 1), X[:0])
    with pytest.raises(TypeError, match="one row per sample; got shape .6,."):
        ntk.empirical(nn.Sequential(nn.Linear(2, 6), Whole()), X)
    with pytest.raises(ValueError, match="depend on its own sample only"):
        ntk.empirical(nn.Sequential(nn.Linear(2, 2), Centre()), rows(4, 2))
    with pytest.raises(ValueError, match=r"samples of shape \(3,\); got RuntimeError: mat1 and mat2 shapes"):
        ntk.empirical(nn.Linear(2, 1), X, np.zeros((2, 3)))
    with pytest.raises(TypeError, match=r"must make one tensor of a batch of .*; got tuple. Wrap it"):
        ntk.empirical(nn.GRU(2, 2, batch_first=True), np.zeros((2, 4, 2)))
    with pytest.raises(
        ValueError, match="K must have no negative eigenvalues, as every kernel does; got -1 beside 3"
    ):
        ntk.spectrum([[1.0, 2.0], [2.0, 1.0]])


def test_data_frames_are_taken_as_arrays_are():
    """pandas gives out memory that must not be written to, of which torch warns: an error here."""
    X, net = rows(8, 3), nn.Linear(3, 1).double()
    frame = pd.DataFrame(X)
    torch.testing.assert_close(ntk.empirical(net, frame), ntk.empirical(net, X), rtol=0, atol=0)
    for model in (NNGP(), NTKRegressor()):
        assert np.array_equal(
            clone(model).fit(frame, X[:, 0]).predict(frame), clone(model).fit(X, X[:, 0]).predict(X)
        )


class Whole(nn.Module):
    def forward(self, x):
        return x.mean(0)


class Centre(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


# --- the linearised network ---------------------------------------------------------------------------------


def test_linearised_network_follows_gradient_flow():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 2)).double()
    X, Y, new = torch.tensor(rows(4)), torch.tensor(rows(4, 2, seed=1)), torch.tensor(rows(3, seed=2))
    K = ntk.empirical(net, X, outputs="full").permute(0, 2, 1, 3).reshape(8, 8).numpy()
    cross = ntk.empirical(net, new, X, outputs="full").permute(0, 2, 1, 3).reshape(6, 8).numpy()
    residual = (Y - net(X)).detach().numpy().ravel()
    for time in (0.0, 0.3, np.inf):
        gain = np.eye(8) if np.isinf(time) else np.eye(8) - expm(-time * K)
        expected = net(new).detach().numpy() + (cross @ np.linalg.solve(K, gain @ residual)).reshape(3, 2)
        found = ntk.linearise(net).solve(X, Y, time=time)
        np.testing.assert_allclose(found.predict(new), expected, atol=1e-8)
    # as any module it is trained by gradients, and ends where the closed form does
    lin = ntk.linearise(net)
    optimizer = torch.optim.LBFGS(
        lin.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-15
    )

    def closure():
        optimizer.zero_grad()
        loss = 0.5 * (lin(X) - Y).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(lin.predict(new), expected, atol=1e-3)
    assert all(p.grad is None for p in net.parameters())
    with pytest.raises(ValueError, match="Linearised: time must not be negative; got -1"):
        lin.solve(X, Y, time=-1)


def test_the_point_of_linearisation_stays():
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    X, y = torch.tensor(rows(3, 2)), torch.tensor(rows(3, 1))
    lin, before = ntk.linearise(net), net(X).detach().clone()
    with torch.no_grad():
        net[0].weight.add_(1.0)
    moved = net(X).detach()
    torch.testing.assert_close(lin.predict(X), before)
    torch.testing.assert_close(lin.solve(X, y).predict(X), y)
    torch.testing.assert_close(net(X).detach(), moved)


def test_spectrum_predicts_descent():
    K, y = rows(6, 8) @ rows(6, 8).T, rows(6, 1, seed=3)[:, 0]
    found = ntk.spectrum(K, y)
    np.testing.assert_allclose(found.time_scales, 1 / np.linalg.eigvalsh(K)[::-1])
    assert found.largest_step == pytest.approx(2 / np.linalg.eigvalsh(K)[-1])
    assert found.condition == pytest.approx(np.linalg.cond(K))
    for time in (0.0, 0.1):
        assert found.loss(time) == pytest.approx(0.5 * np.square(expm(-time * K) @ y).sum())
    with pytest.raises(ValueError, match="K must be a symmetric matrix"):
        ntk.spectrum(rows(3, 3))
    with pytest.raises(ValueError, match=r"one row per sample \(6\); got 2"):
        ntk.spectrum(K, [1, 2])
    with pytest.raises(ValueError, match="a loss needs targets"):
        ntk.spectrum(K).loss(1)


def test_drift_of_modules():
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))
    other = copy.deepcopy(net)
    X = rows(4, 2)
    assert ntk.drift(net, other, X) == 0
    with torch.no_grad():
        other[2].weight.mul_(2)
    K0, K = ntk.empirical(net, X), ntk.empirical(other, X)
    assert ntk.drift(net, other, X) == pytest.approx(float((K - K0).norm() / K0.norm()))
    with pytest.raises(ValueError, match="one shape"):
        ntk.drift(K, K[:2])
