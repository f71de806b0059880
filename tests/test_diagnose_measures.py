"""The measurements alone: Hessian, sharpness, gradient noise, loss surface, calibration, memorisation."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from torch import nn
from torch.nn import functional as F

from corollary.diagnose import calibration, gradient_noise, hessian, loss_surface, memorisation, sharpness
from corollary.diagnose.calibration import expected_error, temperature
from corollary.diagnose.surface import direction

RNG = torch.Generator().manual_seed(0)
X = torch.randn(200, 4, generator=RNG)
Y = (X[:, 0] + 0.5 * torch.randn(200, generator=RNG) > 0).long()


def net(*sizes, act=nn.Tanh):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        parts = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), act())]
        return nn.Sequential(*parts[:-1])


def full_hessian(model, loss):
    params = list(model.parameters())
    names = [name for name, _ in model.named_parameters()]
    sizes = [p.numel() for p in params]
    w = torch.cat([p.detach().reshape(-1) for p in params])

    def value(w):
        parts = {n: v.view_as(p) for n, v, p in zip(names, w.split(sizes), params)}
        return loss(torch.func.functional_call(model, parts, (X.to(w),)))

    return torch.autograd.functional.hessian(value, w)


# --- curvature ---------------------------------------------------------------------------------------------


def test_hessian_agrees_with_the_full_one():
    """In float64, to 1e-4 of the largest eigenvalue, as the tolerance of Lanczos' iteration is 1e-5."""
    model = net(4, 6, 2).double()
    H = full_hessian(model, lambda z: F.cross_entropy(z, Y))
    values = torch.linalg.eigvalsh(H).numpy()
    found = hessian(model, (X, Y), loss="cross_entropy", k=3, probes=30, steps=44)
    # the copy that is measured is in float32, so the full one of the same weights is compared at 1e-4
    assert np.allclose(found.top, values[::-1][:3], atol=1e-4 * values.max())
    assert np.allclose(found.bottom, values[:3], atol=1e-4 * values.max())
    assert abs(found.trace - values.sum()) < 4 * found.trace_error + 1e-3
    assert found.safe_step == pytest.approx(2 / values.max(), rel=1e-4)
    # the density: its first two moments are those of the eigenvalues
    assert found.density.moment(1) == pytest.approx(values.mean(), abs=0.15 * values.std())
    assert found.density.moment(2) == pytest.approx((values**2).mean(), rel=0.3)


def test_hessian_agrees_with_pyhessian():
    pyhessian = pytest.importorskip("pyhessian")
    model = net(4, 6, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it keeps a graph in the gradients
        peer = pyhessian.hessian(model.eval(), nn.CrossEntropyLoss(), data=(X, Y), cuda=False)
    values, _ = peer.eigenvalues(maxIter=300, tol=1e-7, top_n=1)
    found = hessian(model, (X, Y), loss="cross_entropy")
    assert found.top[0] == pytest.approx(values[0], rel=1e-3)  # power iteration stops at its own tolerance


def test_hessian_takes_several_inputs_and_leaves_the_model_alone():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 2)

        def forward(self, a, b):
            return {"logits": self.body(torch.cat([a, b], 1))}

    model = Two().train()
    before = [p.clone() for p in model.parameters()]
    found = hessian(model, ((X, X), Y), loss="cross_entropy", probes=2, steps=5)
    single = nn.Linear(8, 2)
    single.load_state_dict(model.body.state_dict())
    assert found.top[0] == pytest.approx(
        hessian(single, (torch.cat([X, X], 1), Y), probes=2).top[0], rel=1e-4
    )
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert model.training
    assert len(found.plot().axes) == 1


def test_sharpness_of_a_quadratic_is_half_the_square_of_the_radius_times_the_curvature():
    model = nn.Linear(4, 1, bias=False)
    target = model(X).detach()
    top = float(torch.linalg.eigvalsh(2 * X.T @ X / len(X)).max())
    found = sharpness(model, (X, target), loss="mse", rho=0.2, steps=60)
    assert found.rise == pytest.approx(0.5 * 0.2**2 * top, rel=1e-3)  # the power iteration's, after 60 steps
    assert found.loss == pytest.approx(0, abs=1e-10)
    with pytest.raises(ValueError, match="rho must be positive"):
        sharpness(model, (X, target), rho=0)


# --- noise -------------------------------------------------------------------------------------------------


def test_gradient_noise_is_that_of_single_rows():
    model = nn.Linear(4, 1)
    t = X @ torch.tensor([1.0, -1.0, 0.5, 0.0])[:, None] + 1
    each = []
    for i in range(len(X)):
        model.zero_grad()
        F.mse_loss(model(X[i : i + 1]), t[i : i + 1]).backward()
        each.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters()]))
    G = torch.stack(each).double()
    trace = float(G.var(0).sum())
    signal = float(G.mean(0).square().sum()) - trace / len(G)
    found = gradient_noise(model, (X, t), loss="mse", batch_size=1, batches=200)
    assert found.trace == pytest.approx(trace, rel=1e-4)
    assert found.signal == pytest.approx(signal, rel=1e-4)
    assert found.scale == pytest.approx(trace / signal, rel=1e-3)
    assert found.ratio == pytest.approx(signal / trace, rel=1e-3)
    assert set(found.layers) == {"weight", "bias"}
    larger = gradient_noise(model, (X, t), loss="mse", batch_size=8)
    assert larger.trace == pytest.approx(
        trace, rel=0.5
    )  # from 25 batches: a chi-square of some dozens of degrees
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        gradient_noise(model, (X, t), batch_size=0)


# --- surface -----------------------------------------------------------------------------------------------


def test_loss_surface_is_the_loss_along_filter_normalised_directions():
    model = nn.Linear(4, 2, bias=False)
    found = loss_surface(model, (X, Y), loss="cross_entropy", points=5, span=0.5)
    rng = torch.Generator().manual_seed(0)
    d, e = direction(list(model.parameters()), rng), direction(list(model.parameters()), rng)
    assert torch.allclose(d[0].norm(dim=1), model.weight.norm(dim=1), rtol=1e-5)
    with torch.no_grad():
        W = model.weight - 0.5 * d[0] + 0.25 * e[0]
        corner = F.cross_entropy(X @ W.T, Y)
    assert found.losses[0, 3] == pytest.approx(float(corner), rel=1e-5)
    assert found.losses[2, 2] == pytest.approx(found.loss, rel=1e-6)
    assert len(found.plot().axes) == 2
    with pytest.raises(ValueError, match="points at least 3"):
        loss_surface(model, (X, Y), points=2)


# --- calibration -------------------------------------------------------------------------------------------


def test_calibration_error_agrees_with_scikit_learns_curve():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 1000)
    right = rng.random(1000) < p**2
    error, noise, c, a, n = expected_error(p, right, 10)
    share, mean = calibration_curve(right, p, n_bins=10, strategy="quantile")
    assert np.allclose(a, share)
    assert np.allclose(c, mean)
    assert error == pytest.approx(np.mean(np.abs(share - mean)))
    perfect = np.mean([expected_error(p, rng.random(1000) < p)[0] for _ in range(200)])
    assert noise == pytest.approx(perfect, rel=0.1)


def test_the_temperature_undoes_a_scale_of_the_logits():
    rng = torch.Generator().manual_seed(1)
    z = 2 * torch.randn(6000, 3, generator=rng)
    y = torch.multinomial(z.softmax(1), 1, generator=rng)[:, 0]
    assert temperature(4 * z, y, "classes") == pytest.approx(
        4, rel=0.08
    )  # the maximum likelihood's own error
    found = calibration(nn.Identity(), (4 * z, y))
    assert found.overconfidence > 0.1
    assert found.error_after < 3 * found.noise < found.error
    assert len(found.plot().axes) == 1


def test_calibration_of_estimators_and_what_is_no_classifier():
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(X, Y)
    assert calibration(model, (X.numpy(), Y.numpy())).error < 0.12
    with pytest.raises(ValueError, match="must be a classifier"):
        calibration(nn.Linear(4, 1), (X, X[:, 0]))
    with pytest.raises(TypeError, match="must give probabilities"):
        calibration(object(), (X, Y))


# --- memorisation ------------------------------------------------------------------------------------------


def test_wrong_labels_are_what_is_memorised():
    rng = torch.Generator().manual_seed(2)
    y = torch.arange(120) % 2
    X = torch.randn(120, 20, generator=rng) + 0.8 * (2 * y[:, None] - 1)
    wrong = [3, 40, 77]
    y[wrong] = 1 - y[wrong]
    found = memorisation(net(20, 64, 2, act=nn.ReLU), (X, y), models=6, steps=80, learning_rate=1e-2)
    assert set(found.rows[:3].tolist()) == set(wrong)
    assert found.scores[2] > found.scores[3] + 0.2
    assert (found.inside >= 0).all()
    chosen = memorisation(net(20, 8, 2), (X, y), models=4, steps=5, rows=[1, 2])
    assert sorted(chosen.rows.tolist()) == [1, 2]
    with pytest.raises(ValueError, match="models must be at least 4"):
        memorisation(net(20, 8, 2), (X, y), models=2)
