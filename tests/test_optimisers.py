"""Optimisers that torch does not have: their formulas, references, rates, states and bad input."""

import copy
from itertools import product

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from corollary import MLPClassifier, Training, optim
from corollary.optim import SVRG, ExtraGradient, Newton, Projected, SignSGD, Subgradient
from corollary.optim.descent import descend
from corollary.optim.first_order import BLOCK
from corollary.optim.projection import onto_l1_ball, onto_rank, onto_simplex, onto_spectral_ball

RNG = np.random.default_rng(0)
A = torch.tensor(RNG.standard_normal((30, 4)))
B = torch.tensor(RNG.standard_normal(30))
SIGNS = torch.tensor(np.sign(RNG.standard_normal(30)))


def parameter(values=(0.0,) * 4):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def squares(w, rows=slice(None)):
    return 0.5 * (A[rows] @ w - B[rows]).square().mean()


def logistic(w):
    return nn.functional.softplus(-SIGNS * (A @ w)).mean() + 0.05 * w.square().sum()


def differentiated(optimizer, function):
    def closure():
        optimizer.zero_grad()
        loss = function()
        loss.backward()
        return loss

    return closure


# --- torch, step by step ---------------------------------------------------------------------------------


def path(make, momentum, decay, steps=5):
    """Return the iterates on least squares; every direction is the plain gradient where the batch is all data."""
    w = parameter((1.0, -1.0, 2.0, 0.5))
    optimizer = make([w], lr=0.1, momentum=momentum, weight_decay=decay)
    found = []
    for _ in range(steps):
        closure = differentiated(optimizer, lambda: squares(w))
        if isinstance(optimizer, SVRG):
            optimizer.anchor(closure)
        optimizer.step(closure)
        found.append(w.detach().clone())
    return torch.stack(found)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.3), (0.9, 0.3)])
def test_svrg_on_all_data_is_torchs_sgd(momentum, decay):
    """Anchored anew before each step, eq. 1 is the gradient itself; torch's first buffer is the gradient, as is ours."""
    torch.testing.assert_close(
        path(SVRG, momentum, decay), path(torch.optim.SGD, momentum, decay), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("size", [7, BLOCK + 5])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_signs_are_torchs_sgd_on_signs(size, decay):
    start, slopes = torch.randn(2, size, generator=torch.Generator().manual_seed(0))
    slopes[::3] = 0.0
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    ours.grad, theirs.grad = slopes.clone(), (slopes + decay * start).sign()
    SignSGD([ours], lr=0.01, weight_decay=decay).step()
    torch.optim.SGD([theirs], lr=0.01).step()
    assert torch.equal(ours, theirs)


def test_signs_with_momentum_are_those_of_the_running_mean():
    w, mean = parameter(), torch.zeros(4, dtype=torch.float64)
    optimizer = SignSGD([w], lr=0.1, momentum=0.8)
    for g in RNG.standard_normal((6, 4)):
        w.grad, before = torch.tensor(g), w.detach().clone()
        mean = 0.8 * mean + 0.2 * w.grad
        optimizer.step()
        torch.testing.assert_close(w.detach(), before - 0.1 * mean.sign(), rtol=0, atol=1e-15)


def test_extragradient_is_its_formula():
    w = parameter((1.0, -1.0, 2.0, 0.5))
    start = w.detach().clone()
    optimizer = ExtraGradient([w], lr=0.2)
    optimizer.step(differentiated(optimizer, lambda: squares(w)))

    def gradient(w):
        return A.T @ (A @ w - B) / len(A)

    torch.testing.assert_close(
        w.detach(), start - 0.2 * gradient(start - 0.2 * gradient(start)), rtol=1e-12, atol=0
    )


# --- references and rates --------------------------------------------------------------------------------


def test_newton_and_lbfgs_find_scipys_minimum():
    found = {}
    for name, options in (("newton", {"damping": 0.0, "tol": 1e-12}), ("lbfgs", {"max_iter": 100})):
        w = parameter()
        optimizer = optim.create(name, [w], **options)
        look = (
            (lambda w=w: logistic(w))
            if name == "newton"
            else differentiated(optimizer, lambda w=w: logistic(w))
        )
        for _ in range(8):
            optimizer.step(look)
        found[name] = w.detach().numpy()

    def function(x):
        w = torch.tensor(x, requires_grad=True)
        loss = logistic(w)
        return loss.item(), torch.autograd.grad(loss, w)[0].numpy()

    def hessian(x):
        return torch.autograd.functional.hessian(logistic, torch.tensor(x)).numpy()

    theirs = scipy.optimize.minimize(
        function, np.zeros(4), jac=True, hess=hessian, method="Newton-CG", tol=1e-12
    )
    np.testing.assert_allclose(found["newton"], theirs.x, atol=1e-7)  # where Newton-CG stops
    quasi = scipy.optimize.minimize(
        function, np.zeros(4), jac=True, method="L-BFGS-B", options={"ftol": 1e-15}
    )
    np.testing.assert_allclose(
        found["lbfgs"], quasi.x, atol=1e-5
    )  # where L-BFGS-B stops: its gradient is below 1e-5


def test_newtons_step_solves_its_equation():
    w = parameter((0.3, -0.2, 0.1, 0.4))
    start = w.detach().clone()
    H, g = torch.autograd.functional.hessian(logistic, start), torch.func.grad(logistic)(start)
    Newton([w], damping=0.1, tol=1e-14).step(lambda: logistic(w))
    expected = start - torch.linalg.solve(H + 0.1 * torch.eye(4, dtype=H.dtype), g)
    torch.testing.assert_close(w.detach(), expected, rtol=1e-9, atol=1e-12)


def test_newton_converges_quadratically():
    """With M the Lipschitz constant of the Hessian, the gradient falls as |g'| <= M / (2 mu^2) |g|^2."""
    w = parameter((0.5, 0.5, -0.5, 0.5))
    optimizer, norms = Newton([w], damping=0.0, tol=1e-15), []
    for _ in range(5):
        norms.append(torch.func.grad(logistic)(w.detach()).norm().item())
        optimizer.step(lambda: logistic(w))
    bend = 1 / (6 * 3**0.5)  # the largest second derivative of the sigmoid
    third = bend * float((A.norm(dim=1) ** 3).mean())
    for before, after in zip(norms, norms[1:]):
        assert after <= third / (2 * 0.1**2) * before**2 + 1e-14  # 0.1 is the curvature of the penalty
    assert norms[-1] < 1e-9


def test_newton_descends_where_the_curvature_is_negative():
    w = nn.Parameter(torch.tensor([0.1, 0.7], dtype=torch.float64))

    def double_well():
        return (w**4 / 4 - w**2 / 2).sum()

    optimizer, losses = Newton([w], damping=0.0), [double_well().item()]
    for _ in range(12):
        optimizer.step(double_well)
        losses.append(double_well().item())
    assert all(b <= a for a, b in zip(losses, losses[1:]))
    torch.testing.assert_close(w.detach().abs(), torch.ones(2, dtype=torch.float64), rtol=1e-6, atol=0)


def test_svrg_converges_linearly_with_single_samples():
    w, exact = parameter(), torch.linalg.lstsq(A, B).solution
    optimizer, order = SVRG([w], lr=0.05), np.random.default_rng(1)
    gaps = []
    for _ in range(30):
        optimizer.anchor(differentiated(optimizer, lambda: squares(w)))
        for i in order.integers(0, 30, 30):
            optimizer.step(differentiated(optimizer, lambda i=i: squares(w, slice(i, i + 1))))
        gaps.append((w.detach() - exact).norm().item())
    assert gaps[-1] < 1e-4 * gaps[0]
    assert gaps[14] < 2e-2 * gaps[0]


def test_extragradient_contracts_a_bilinear_game_by_its_factor():
    """Each step multiplies the distance by sqrt(1 - eta^2 + eta^4) on x y."""
    x, y = nn.Parameter(torch.tensor(1.0).double()), nn.Parameter(torch.tensor(0.5).double())
    optimizer = ExtraGradient([x, y], lr=0.3)

    def closure():
        optimizer.zero_grad()
        (x * y).backward()
        y.grad.neg_()

    start = torch.hypot(x, y).item()
    for _ in range(20):
        optimizer.step(closure)
    assert torch.hypot(x, y).item() == pytest.approx(start * (1 - 0.09 + 0.0081) ** 10, rel=1e-12)


def kinks(w):
    return (A @ w - B).abs().mean()


def least_absolute():
    """Return the least mean absolute error, by linear programming."""
    n, d = A.shape
    cost = np.r_[np.zeros(d), np.ones(n) / n]
    rows = np.block([[A.numpy(), -np.eye(n)], [-A.numpy(), -np.eye(n)]])
    bounds = [(None, None)] * d + [(0, None)] * n
    return scipy.optimize.linprog(cost, rows, np.r_[B.numpy(), -B.numpy()], bounds=bounds).fun


def test_subgradients_reach_the_linear_programs_value_at_their_rates():
    least = least_absolute()
    w = parameter((2.0, -2.0, 2.0, -2.0))
    polyak = Subgradient([w], lr=1.0, least=least, average=False)
    for _ in range(300):
        polyak.step(differentiated(polyak, lambda: kinks(w)))
    assert kinks(w).item() - least < 1e-3
    w = parameter((2.0, -2.0, 2.0, -2.0))
    radius, slope = (
        5.0,
        A.norm(dim=1).mean().item(),
    )  # beyond the distance to the minimum; the longest subgradient
    plain = Subgradient([w], lr=radius / slope)
    for _ in range(400):
        plain.step(differentiated(plain, lambda: kinks(w)))
    here = w.detach().clone()
    with plain.averaged():
        gap = kinks(w).item() - least
    assert torch.equal(w.detach(), here)
    # 1/sqrt(t) steps: the mean of the first t iterates is within R G (2 + ln t) / sqrt t.
    assert 0 <= gap <= radius * slope * (2 + np.log(400)) / 20


def test_polyaks_step_comes_closer_to_the_minimiser_every_time():
    exact, w = torch.linalg.lstsq(A, B).solution, parameter((2.0, -2.0, 2.0, -2.0))
    optimizer = Subgradient([w], lr=1.0, least=squares(exact).item(), average=False)
    far = [(w.detach() - exact).norm().item()]
    for _ in range(50):
        optimizer.step(differentiated(optimizer, lambda: squares(w)))
        far.append((w.detach() - exact).norm().item())
    assert all(b <= a for a, b in zip(far, far[1:]) if a > 1e-5)  # nearer, the gap of the losses is rounding
    assert min(far) < 1e-4


def test_the_mean_is_that_of_the_iterates():
    w = parameter((1.0, 1.0, 1.0, 1.0))
    optimizer, seen = Subgradient([w], lr=0.3, schedule="1/t"), []
    for t in range(1, 8):
        before = w.detach().clone()
        optimizer.step(differentiated(optimizer, lambda: kinks(w)))
        torch.testing.assert_close(w.detach(), before - 0.3 / t * w.grad)
        seen.append(w.detach().clone())
    torch.testing.assert_close(optimizer.state[w]["mean"], torch.stack(seen).mean(0), rtol=1e-12, atol=1e-14)


# --- projections -----------------------------------------------------------------------------------------


def nearest(u, constraints, bounds=None):
    """Return SciPy's nearest point of a set."""
    found = scipy.optimize.minimize(lambda v: ((v - u) ** 2).sum(), np.full(len(u), 1 / len(u)), jac=lambda v: 2 * (v - u),
                                    constraints=constraints, bounds=bounds, method="SLSQP",
                                    options={"ftol": 1e-14, "maxiter": 300})  # fmt: skip
    return found.x


@pytest.mark.parametrize("seed", range(3))
def test_simplex_and_l1_ball_are_the_nearest_points(seed):
    u = 2 * np.random.default_rng(seed).standard_normal(5)
    total = {"type": "eq", "fun": lambda v: v.sum() - 1.5}
    ours = onto_simplex(torch.tensor(u), 1.5).numpy()
    np.testing.assert_allclose(ours, nearest(u, [total], [(0, None)] * 5), atol=1e-6)  # SLSQP's accuracy
    corners = [  # the ball is the intersection of the half-spaces of its 2^5 facets
        {"type": "ineq", "fun": lambda v, s=s: 1.5 - np.dot(s, v)} for s in product((-1, 1), repeat=5)
    ]
    np.testing.assert_allclose(onto_l1_ball(torch.tensor(u), 1.5).numpy(), nearest(u, corners), atol=1e-6)


def test_simplex_rows_by_enumeration_of_supports():
    """The projection is the best over all supports of the affine projection that is feasible."""
    U = torch.tensor(RNG.standard_normal((6, 4)))
    for u, found in zip(U.numpy(), onto_simplex(U).numpy()):
        best = None
        for support in product((False, True), repeat=4):
            if any(support):
                v, on = np.zeros(4), np.array(support)
                v[on] = u[on] - (u[on].sum() - 1) / on.sum()
                if (v >= 0).all() and (best is None or ((v - u) ** 2).sum() < ((best - u) ** 2).sum()):
                    best = v
        np.testing.assert_allclose(found, best, atol=1e-12)


def test_matrices_are_no_farther_than_any_other_member_of_the_set():
    W = torch.tensor(RNG.standard_normal((5, 3)))
    s = torch.linalg.svdvals(W)
    ball, low = onto_spectral_ball(W, 1.0), onto_rank(W, 2)
    assert torch.linalg.matrix_norm(ball, 2) <= 1 + 1e-12
    assert (W - ball).norm().item() == pytest.approx((s - 1).clamp_min(0).norm().item())
    assert (W - low).norm().item() == pytest.approx(s[2].item())  # Eckart and Young
    assert torch.linalg.matrix_rank(low) == 2
    for _ in range(200):  # variational inequality: <W - P(W), V - P(W)> <= 0 for every V of a convex set
        V = torch.tensor(RNG.standard_normal((5, 3)))
        V = V / torch.linalg.matrix_norm(V, 2)
        assert ((W - ball) * (V - ball)).sum() <= 1e-12


@pytest.mark.parametrize(
    "sets",
    [{"radius": 0.3}, {"l1": 0.3}, {"simplex": 1.0}, {"box": (-0.1, 0.2)}],
    ids=lambda sets: next(iter(sets)),
)
def test_projected_descent_solves_the_constrained_problem(sets):
    w = parameter()
    optimizer = Projected(torch.optim.SGD([w], lr=0.2), **sets)
    for _ in range(600):
        optimizer.zero_grad()
        squares(w).backward()
        optimizer.step()
    name, size = next(iter(sets.items()))
    bounds = {"box": [size] * 4, "simplex": [(0, None)] * 4}.get(name)
    constraints = {
        "radius": [{"type": "ineq", "fun": lambda v: size**2 - v @ v}],
        "l1": [
            {"type": "ineq", "fun": lambda v, s=s: size - np.dot(s, v)} for s in product((-1, 1), repeat=4)
        ],
        "simplex": [{"type": "eq", "fun": lambda v: v.sum() - 1}],
    }.get(name, [])
    theirs = scipy.optimize.minimize(lambda v: squares(torch.tensor(v)).item(), np.full(4, 0.05), bounds=bounds,
                                     constraints=constraints, method="SLSQP", options={"ftol": 1e-13})  # fmt: skip
    np.testing.assert_allclose(w.detach().numpy(), theirs.x, atol=1e-5)  # finite differences in SLSQP


@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-25], ids=["plain", "squares overflow", "squares vanish"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_ball_holds_all_parameters_together(scale, dtype):
    rng = np.random.default_rng(0)
    shapes = [(3,), (0,), (100, 90), (7, 11), ()]  # one of them large enough for a call of its own
    start = [torch.tensor(scale * rng.standard_normal(shape), dtype=dtype) for shape in shapes]
    start[2] = start[2].t().contiguous().t()  # stored by columns
    whole = np.concatenate([p.double().numpy().ravel() for p in start])
    length = np.linalg.norm(whole)
    digits = 4 * torch.finfo(dtype).eps  # the length, the factor and the product are each rounded
    for share, factor in ((0.5, 0.5), (1.01 if dtype != torch.bfloat16 else 1.2, 1.0)):
        params = [torch.nn.Parameter(p.clone()) for p in start]
        Projected(torch.optim.SGD(params, lr=0.1), radius=share * length)
        found = np.concatenate([p.detach().double().numpy().ravel() for p in params])
        np.testing.assert_allclose(found, factor * whole, rtol=digits, atol=0)


def test_projected_wraps_any_optimiser_with_schedules_and_copies():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    optimizer = Projected(torch.optim.Adam(net.parameters(), lr=0.05), spectral=0.8)
    plan = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (net(A)[:, 0] - B).square().mean().backward()
        optimizer.step()
        plan.step()
    assert all(torch.linalg.matrix_norm(p, 2) <= 0.8 + 1e-9 for p in net.parameters() if p.ndim == 2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 / 8)
    assert optimizer.optimizer.param_groups[0]["lr"] == pytest.approx(0.05 / 8)
    assert copy.deepcopy(optimizer).size == (0.8,)


def tensors(dtype=torch.float32, scale=1.0):
    """Return parameters of all forms with gradients: more entries than one sum of the compiled step takes."""
    rng = np.random.default_rng(1)
    made = [
        nn.Parameter(torch.tensor(scale * rng.standard_normal(n), dtype=dtype)) for n in (5, (90, 100), (), 0)
    ]
    for p in made:
        p.grad = torch.tensor(scale * rng.standard_normal(p.shape), dtype=dtype)
    return made


def squared(params):
    return sum(p.detach().double().square().sum().item() for p in params)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_compiled_step_is_torchs_and_knows_its_length(dtype, fused):
    ours, theirs = tensors(dtype), tensors(dtype)
    before = [p._version for p in ours]
    found = descend(torch.optim.SGD(ours, lr=0.1))
    torch.optim.SGD(theirs, lr=0.1, fused=fused).step()
    for p, q in zip(
        ours, theirs
    ):  # whether product and difference are rounded at once is up to the processor
        np.testing.assert_array_almost_equal_nulp(p.detach().numpy(), q.detach().numpy(), 1)
    assert found == pytest.approx(squared(theirs), rel=1e-6)
    assert all(p._version > old for p, old in zip(ours, before))  # autograd sees that they have changed


@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-25], ids=["plain", "squares overflow", "squares vanish"])
@pytest.mark.parametrize("share", [0.5, 1 - 1e-6, 1 + 1e-6, 2.0])
def test_a_projected_step_is_a_step_and_a_projection(share, scale):
    ours, theirs = tensors(scale=scale), tensors(scale=scale)
    torch.optim.SGD(theirs, lr=0.1).step()
    radius = share * np.sqrt(squared(theirs))
    optimizer = Projected(torch.optim.SGD(ours, lr=0.1), radius=1e300)
    optimizer.size = (radius,)  # the start lies outside, and stays where it is
    optimizer.step()
    Projected(torch.optim.SGD(theirs, lr=0.1), radius=radius)
    for p, q in zip(ours, theirs):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=0)


def hooked(hooks):
    def make(params):
        optimizer = torch.optim.SGD(params, lr=0.1)
        getattr(optimizer, f"register_step_{hooks}_hook")(lambda *_: None)
        return optimizer

    return make


def scheduled(params):
    optimizer = torch.optim.SGD(params, lr=0.1)
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    return optimizer


def scaled(params):
    optimizer = torch.optim.SGD(params, lr=0.1)
    optimizer.grad_scale = torch.tensor(2.0)
    return optimizer


class OwnSGD(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


NOT_PLAIN = {
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "decay": lambda params: torch.optim.SGD(params, lr=0.1, weight_decay=0.1),
    "ascent": lambda params: torch.optim.SGD(params, lr=0.1, maximize=True),
    "rate in a tensor": lambda params: torch.optim.SGD(params, lr=torch.tensor(0.1)),
    "another optimiser": lambda params: torch.optim.Adam(params, lr=0.1),
    "subclass": lambda params: OwnSGD(params, lr=0.1),
    "two groups": lambda params: torch.optim.SGD([{"params": params[:1]}, {"params": params[1:]}], lr=0.1),
    "hook before": hooked("pre"),
    "hook after": hooked("post"),
    "schedule": scheduled,
    "scaler": scaled,
}


@pytest.mark.parametrize("make", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_only_plain_steps_are_compiled(make):
    params = tensors()
    before = [p.detach().clone() for p in params]
    assert descend(make(params)) is None
    assert all(torch.equal(p, old) for p, old in zip(params, before))


CHANGED = {
    "no gradient": lambda p: setattr(p, "grad", None),
    "sparse": lambda p: setattr(p, "grad", p.grad.to_sparse()),
    "by columns": lambda p: setattr(p, "grad", p.grad.t().contiguous().t()),
    "half": lambda p: (setattr(p, "grad", None), setattr(p, "data", p.data.bfloat16())),
    "lazily negated": lambda p: setattr(p, "grad", torch._neg_view(p.grad)),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_only_plain_tensors_are_moved_by_the_compiled_step(change):
    params = tensors()
    change(params[1])
    before = [p.detach().clone() for p in params]
    assert descend(torch.optim.SGD(params, lr=0.1)) is None
    assert all(torch.equal(p, old) for p, old in zip(params, before))


def test_hooks_for_all_optimisers_and_profilers_see_the_step():
    seen, optimizer = [], Projected(torch.optim.SGD(tensors(), lr=0.1), radius=1e9)
    for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
        handle = register(lambda *_: seen.append(1))
        optimizer.step()
        handle.remove()
    assert len(seen) == 2
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        optimizer.step()
    assert "Optimizer.step#SGD.step" in {event.key for event in profiler.key_averages()}


# --- states, names, the engine ---------------------------------------------------------------------------

MAKERS = {
    "extragradient": {"lr": 0.1, "momentum": 0.5},
    "newton": {"damping": 0.5},
    "projected": {"lr": 0.1, "radius": 0.4, "base": "adam"},
    "signsgd": {"lr": 0.02, "momentum": 0.9},
    "subgradient": {"lr": 0.3},
    "svrg": {"lr": 0.1, "momentum": 0.5},
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_loaded_state_goes_on_exactly(name):
    def steps(optimizer, w, count):
        for _ in range(count):
            closure = differentiated(optimizer, lambda: squares(w))
            optimizer.step((lambda: squares(w)) if name == "newton" else closure)

    w = parameter((1.0, -1.0, 2.0, 0.5))
    optimizer = optim.create(name, [w], **MAKERS[name])
    if name == "svrg":
        optimizer.anchor(differentiated(optimizer, lambda: squares(w)))
    steps(optimizer, w, 3)
    kept, there = copy.deepcopy(optimizer.state_dict()), w.detach().clone()
    steps(optimizer, w, 3)
    again = nn.Parameter(there)
    other = optim.create(name, [again], **MAKERS[name])
    other.load_state_dict(kept)
    steps(other, again, 3)
    assert torch.equal(again, w)


X = RNG.standard_normal((60, 4))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("signsgd", {}),
        ("subgradient", {"schedule": "constant"}),
        ("subgradient", {"least": 0.0}),
        ("extragradient", {}),
        ("svrg", {"momentum": 0.5}),
        ("newton", {"damping": 0.1}),
        ("projected", {"rank": 2, "base": "adam"}),
        ("projected", {"radius": 3.0}),
    ],
)
def test_training_takes_every_name(name, options):
    rates = {"newton": 1.0, "signsgd": 0.01, "subgradient": 0.3}
    plan = Training(
        40, optimizer=name, learning_rate=rates.get(name, 0.05), batch_size=20, optimizer_options=options
    )
    model = MLPClassifier((8,), random_state=0, training=plan).fit(X, Y)
    assert model.history_[-1]["loss"] < 0.8 * model.history_[0]["loss"]
    matrices = [p for p in model.module_.parameters() if p.ndim == 2]
    if "rank" in options:
        assert all(torch.linalg.matrix_rank(p, rtol=1e-4) <= 2 for p in matrices)
    if "radius" in options:
        assert sum(p.square().sum() for p in model.module_.parameters()) <= 9.0 + 1e-4


# --- bad input -------------------------------------------------------------------------------------------


def sgd(shape=(3,)):
    return torch.optim.SGD([nn.Parameter(torch.zeros(shape))], lr=0.1)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"radius": -1.0}, "the set must not be empty: radius >= 0; got radius=-1.0"),
        ({"box": (1.0, 0.0)}, r"the set must not be empty: low <= high; got box=\(1.0, 0.0\)"),
        ({"simplex": -0.5}, "the set must not be empty: simplex >= 0"),
        ({"rank": 1.5}, "rank must be a whole number; got 1.5"),
        ({"rank": 1}, r"rank needs a parameter with two axes or more; got \(3,\)"),
        ({}, "exactly one of radius, l1, simplex, box, spectral, rank must be given; got none"),
        ({"radius": 1.0, "rank": 1}, "must be given; got radius, rank"),
    ],
)
def test_sets_that_cannot_be(sets, message):
    with pytest.raises(ValueError, match=message):
        Projected(sgd(), **sets)


def test_sets_of_the_wrong_kind():
    with pytest.raises(TypeError, match="radius must be a number; got nan"):
        Projected(sgd(), radius=float("nan"))
    with pytest.raises(TypeError, match=r"box must be two numbers \(low, high\); got 1.0"):
        Projected(sgd(), box=1.0)
    with pytest.raises(TypeError, match="optimizer must be a torch optimiser; got"):
        Projected([torch.zeros(2)], radius=1.0)


def test_newton_takes_a_closure_that_calls_backward():
    """The closure of torch's own optimisers gives the steps of one that only returns the loss."""
    a, b = (parameter((3.0, -1.0, 2.0, 1.0)) for _ in range(2))
    plain, usual = Newton([a]), Newton([b])
    for _ in range(3):
        losses = plain.step(lambda: logistic(a)), usual.step(differentiated(usual, lambda: logistic(b)))
        assert losses[0] == losses[1] and torch.equal(a, b)


@pytest.mark.parametrize("make", [SVRG, Newton, ExtraGradient])
def test_a_missing_closure_is_named(make):
    with pytest.raises(TypeError, match=f"{make.__name__}: step needs a closure"):
        make([parameter()]).step()


def test_closures_that_do_not_fit():
    w = parameter((1.0, 1.0, 1.0, 1.0))
    newton, svrg = Newton([w]), SVRG([w], lr=0.1)
    with pytest.raises(
        ValueError, match="an anchor must be set before the first step; got none. Call anchor"
    ):
        svrg.step(differentiated(svrg, lambda: squares(w)))

    def used_up():
        loss = logistic(w)
        torch.autograd.backward(loss)
        return loss

    with pytest.raises(
        ValueError, match=r"leave the graph of the loss; got one that is freed. Return .*loss.backward\(\)"
    ):
        newton.step(used_up)
    with pytest.raises(ValueError, match="must return the loss, one number that depends on params; got None"):
        newton.step(lambda: None)
    with pytest.raises(TypeError, match="Polyak's step needs the loss; got no closure"):
        Subgradient([w], least=0.0).step()
    with pytest.raises(ValueError, match="there must be a mean; got none"), Subgradient([w]).averaged():
        pass


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (SignSGD, {"lr": -1.0}, "SignSGD: lr must be at least 0; got -1.0"),
        (SignSGD, {"momentum": 1.0}, r"momentum must lie in \[0, 1\); got 1.0"),
        (SVRG, {"momentum": -0.1}, "SVRG: momentum must be at least 0; got -0.1"),
        (Newton, {"damping": -1.0}, "Newton: damping must be at least 0; got -1.0"),
        (Newton, {"max_iter": 0}, "max_iter must be at least 1; got 0"),
        (Subgradient, {"lr": 0.0}, "Subgradient: lr must be positive; got 0.0"),
        (Subgradient, {"schedule": "cosine"}, "no schedule without an end named 'cosine'"),
    ],
)
def test_options_out_of_range(make, options, message):
    with pytest.raises(ValueError, match=message):
        make([parameter()], **options)


def test_names_of_options():
    with pytest.raises(ValueError, match="optimizer 'svrg': no option named 'damping'"):
        optim.create("svrg", damping=1.0)
    with pytest.raises(ValueError, match="optimizer 'projected': no base named 'lbfgs'"):
        optim.create("projected", base="lbfgs", radius=1.0)
