"""Curvature of any model's loss, and the rates that follow from it: whole Hessians, closed forms, theorems."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from corollary import MLPClassifier, Training, theory
from corollary.theory.convergence import constants, edge_of_stability
from corollary.theory.hessian import Surface, density, eigenvalues, lanczos, sample_smoothness, trace
from corollary.theory.rates import THEOREMS, decay

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 5))
LABELS = RNG.integers(0, 3, 50)
Y = X @ np.arange(1.0, 6.0) + 0.3 * RNG.standard_normal(50)


def made(*layers):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*(layer() for layer in layers)).double()


def network():
    return made(lambda: nn.Linear(5, 7), nn.Tanh, nn.Dropout, lambda: nn.Linear(7, 3))


def linear():
    return made(lambda: nn.Linear(5, 1, bias=False))


def whole_hessian(net):
    """Return torch's own Hessian of the cross-entropy over all parameters."""
    params = dict(net.named_parameters())
    sizes = [p.numel() for p in params.values()]

    def loss(w):
        parts = {k: v.view(p.shape) for (k, p), v in zip(params.items(), w.split(sizes))}
        out = torch.func.functional_call(net.eval(), parts, (torch.from_numpy(X),))
        return nn.functional.cross_entropy(out, torch.from_numpy(LABELS))

    w = torch.cat([p.detach().reshape(-1) for p in params.values()])
    return torch.autograd.functional.hessian(loss, w), torch.func.grad(loss)(w), loss(w)


# --- the Hessian -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
def test_products_are_torchs_whole_hessian(chunked):
    net = network().train()
    data = (X, LABELS)
    if chunked:  # batches of different sizes count by their rows
        rows = TensorDataset(torch.from_numpy(X), torch.from_numpy(LABELS))
        data = DataLoader(rows, batch_size=17)
    surface = Surface(net, data)
    value, slope = surface.slope()
    matrix = surface.matrix()
    assert net[2].training  # the mode is given back
    H, g, loss = whole_hessian(net)
    torch.testing.assert_close(matrix, H, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(slope, g, rtol=1e-9, atol=1e-12)
    assert value == pytest.approx(loss.item()) == surface.value()


def test_extreme_eigenvalues_of_a_network():
    found, values = (
        eigenvalues(network(), (X, LABELS), k=3),
        torch.linalg.eigvalsh(whole_hessian(network())[0]).numpy(),
    )
    np.testing.assert_allclose(found.top, values[::-1][:3], rtol=1e-4)
    np.testing.assert_allclose(found.bottom, values[:3], rtol=1e-4)
    assert found.products < len(values)
    nearest = np.abs(values[:, None] - found.top).min(0)
    assert (nearest <= found.top_errors + 1e-12).all()  # eq. 3


def test_single_precision_is_enough_for_four_digits():
    found = eigenvalues(network().float(), (X.astype(np.float32), LABELS))
    values = torch.linalg.eigvalsh(whole_hessian(network())[0])
    assert found.top[0] == pytest.approx(values[-1].item(), rel=1e-4)
    assert found.bottom[0] == pytest.approx(values[0].item(), rel=1e-3)


def test_one_end_alone_takes_fewer_products_and_is_as_exact():
    values = torch.linalg.eigvalsh(whole_hessian(network())[0]).numpy()
    both, top, bottom = (
        eigenvalues(network(), (X, LABELS), ends=ends, tol=1e-4) for ends in ("both", "top", "bottom")
    )
    assert top.products <= both.products >= bottom.products
    assert top.products < both.products or bottom.products < both.products
    assert abs(top.top[0] - values[-1]) <= 1e-4 * values[-1]
    assert abs(bottom.bottom[0] - values[0]) <= 1e-4 * values[-1]


def test_bounds_of_separate_eigenvalues_are_quadratic_in_the_residual():
    spectrum = torch.cat([torch.linspace(0, 1, 60), torch.tensor([5.0, 9.0])]).double()
    start = torch.randn(62, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = lanczos(lambda v: spectrum * v, start, 8)
    values, vectors = found.ritz()
    residuals, bounds = found.rest * np.abs(vectors[-1]), found.errors(values, vectors)
    assert (bounds <= residuals).all()
    assert bounds[-1] < 0.1 * residuals[-1]
    assert abs(values[-1] - 9.0) <= bounds[-1]  # eq. 3


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_bounds_hold_while_two_eigenvalues_still_look_like_one(share):
    spectrum = torch.cat([torch.tensor([1.0, 0.94]), torch.linspace(-0.1, 0.4, 2000)]).double()
    start = torch.randn(2002, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start[:2] = torch.tensor([share, 1.0])  # by 0.1, the second is found first
    for steps in range(3, 15):
        found = lanczos(lambda v: spectrum * v, start, steps)
        values, vectors = found.ritz()
        assert found.errors(values, vectors)[-1] > 5e-3 or 1 - values[-1] <= 5e-3


def test_the_top_eigenvalue_and_the_trace_are_pyhessians():
    peer = pytest.importorskip("pyhessian")
    net = network().eval()
    data = (torch.from_numpy(X), torch.from_numpy(LABELS))
    with torch.random.fork_rng(), pytest.warns(UserWarning, match="create_graph"):
        torch.manual_seed(0)
        other = peer.hessian(net, nn.CrossEntropyLoss(), data=data, cuda=False)
        torch.set_default_dtype(torch.float64)  # it draws its vectors in the default type
        try:
            largest = other.eigenvalues(maxIter=500, tol=1e-9)[0][0]
            traces = other.trace(maxIter=200, tol=0)
        finally:
            torch.set_default_dtype(torch.float32)
    net.zero_grad(set_to_none=True)
    assert eigenvalues(net, data, ends="top").top[0] == pytest.approx(largest, rel=1e-4)
    ours = trace(net, data, probes=200)
    # Two means over 200 random vectors each.
    assert abs(ours.value - np.mean(traces)) < 4 * np.hypot(ours.error, np.std(traces) / 200**0.5)


def test_lanczos_keeps_its_basis_orthogonal_where_rounding_would_not():
    spectrum = torch.cat([torch.linspace(0, 1, 300), torch.tensor([50.0, 100.0])]).double()
    found = lanczos(lambda v: spectrum * v, torch.ones(302, dtype=torch.float64), 80)
    gram = found.basis @ found.basis.T
    torch.testing.assert_close(gram, torch.eye(80, dtype=gram.dtype), rtol=0, atol=1e-13)
    values = found.ritz()[0]
    np.testing.assert_allclose(values[-2:], [50.0, 100.0], rtol=1e-12)
    assert (values[-3] < 1.01) and (np.diff(values[-3:]) > 1).all()  # no copies of converged values


def test_lanczos_ends_where_the_space_closes():
    spectrum = torch.tensor([1.0, 1.0, 1.0, 3.0, 3.0]).double()
    found = lanczos(lambda v: spectrum * v, torch.arange(1.0, 6.0).double(), 5)
    np.testing.assert_allclose(found.ritz()[0], [1.0, 3.0])
    assert found.rest == 0
    zero = lanczos(torch.zeros_like, torch.ones(4), 4)
    assert zero.ritz()[0].tolist() == [0.0]


def test_density_and_trace_have_the_moments_of_the_spectrum():
    H = whole_hessian(network())[0]
    n = len(H)
    found = density(network(), (X, LABELS), probes=16, steps=40)
    assert np.trapezoid(found.density, found.grid) == pytest.approx(1.0, abs=1e-4)
    # A probe's v'Hv has variance 2 tr(H^2) / n^2 nearly; five deviations of the mean of 16.
    spread = 5 * np.sqrt(2 * (H @ H).trace().item()) / n / np.sqrt(16)
    assert abs(found.moment(1) - H.trace().item() / n) < spread
    assert found.nodes.max() == pytest.approx(torch.linalg.eigvalsh(H)[-1].item())
    estimate = trace(network(), (X, LABELS), probes=60)
    assert abs(estimate.value - H.trace().item()) < 5 * estimate.error
    off = H - torch.diag(H.diagonal())  # Hutchinson's variance with signs: twice the squared off-diagonal
    assert estimate.error == pytest.approx(np.sqrt(2 * off.square().sum().item() / 60), rel=0.5)


def test_signs_find_the_trace_of_a_diagonal_exactly():
    found = trace(linear(), (np.diag([1.0, 2.0, 3.0, 4.0, 5.0]), np.ones(5)), loss="half_squared", probes=2)
    assert found.value == pytest.approx(55 / 5)
    assert found.error == pytest.approx(0, abs=1e-12)


def test_each_samples_smoothness():
    found = sample_smoothness(Surface(linear(), (X, Y), "half_squared", weight_decay=0.5))
    np.testing.assert_allclose(found, (X**2).sum(1) + 0.5, rtol=1e-9)


def test_attention_and_estimators_are_taken():
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x, need_weights=False)[0].mean((1, 2))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Attending()
    x = RNG.standard_normal((6, 3, 4)).astype(np.float32)
    assert np.isfinite(eigenvalues(model, (x, np.ones(6, np.float32)), max_iter=5).top[0])
    fitted = MLPClassifier((4,), random_state=0).fit(X, LABELS)
    assert eigenvalues(fitted, (X, LABELS)).top[0] > 0


# --- constants -------------------------------------------------------------------------------------------


def test_constants_of_least_squares_are_those_of_its_matrix():
    values = np.linalg.eigvalsh(X.T @ X / 50)
    found = constants(linear(), (X, Y), loss="half_squared", steps=400)
    assert found.smoothness == pytest.approx(values[-1])
    assert found.strong_convexity == pytest.approx(values[0], rel=1e-5)
    assert found.condition == pytest.approx(values[-1] / values[0], rel=1e-5)
    residual = Y - X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    assert found.least == pytest.approx(0.5 * np.mean(residual**2))
    # The last steps go along the flattest direction, where the inequality is an equality.
    assert found.polyak_lojasiewicz == pytest.approx(values[0], rel=1e-2)
    assert found.polyak_lojasiewicz >= values[0] * (1 - 1e-6)


def test_constants_where_there_are_more_weights_than_samples():
    """Not strongly convex, yet the inequality holds with the least eigenvalue that is not zero."""
    few = X[:3]
    values = np.linalg.eigvalsh(few @ few.T / 3)
    found = constants(linear(), (few, Y[:3]), loss="half_squared", steps=400, least=0.0)
    assert found.strong_convexity == pytest.approx(0, abs=1e-9)
    assert found.condition == np.inf
    assert values[0] * (1 - 1e-6) <= found.polyak_lojasiewicz < 1.2 * values[0]


def test_constants_of_a_network_bound_its_descent():
    net = network()
    before = Surface(net, (X, LABELS)).get()
    found = constants(net, (X, LABELS), steps=60, least=0.0)
    values = torch.linalg.eigvalsh(whole_hessian(net)[0])
    assert found.smoothness == pytest.approx(values[-1].item(), rel=1e-4)
    assert found.strong_convexity == pytest.approx(values[0].item(), rel=1e-4)
    assert found.condition == np.inf
    surface = Surface(net, (X, LABELS)).copy()
    gaps = []
    for _ in range(61):
        value, g = surface.slope()
        gaps.append(value - found.least)
        surface.put(surface.get() - g / found.smoothness)
    assert (np.array(gaps) <= found.predicted(60) * (1 + 1e-9)).all()
    assert torch.equal(Surface(net, (X, LABELS)).get(), before)


# --- predicted and measured ------------------------------------------------------------------------------

RIDGE = 0.05


@pytest.mark.parametrize("name", ["gd", "heavy-ball", "nesterov", "newton", "sgd"])
@pytest.mark.parametrize("loss", ["half_squared", "logistic"])
def test_theorems_hold(name, loss):
    target = Y if loss == "half_squared" else np.sign(Y)
    surface = Surface(linear(), (X, target), loss, weight_decay=RIDGE)
    found = decay(surface, optimizer=name, steps={"sgd": 200, "newton": 8}.get(name, 80), repeats=10)
    assert found.holds
    assert found.measured[-1] < 0.9 * found.measured[0]
    if loss == "half_squared":
        values = np.linalg.eigvalsh(X.T @ X / 50) + RIDGE
        assert found.condition == pytest.approx(values[-1] / values[0], rel=1e-6)


def test_svrg_falls_by_half_at_least_between_anchors():
    rows = X[:, :2] / np.linalg.norm(X[:, :2], axis=1, keepdims=True)
    model = made(lambda: nn.Linear(2, 1, bias=False))
    found = decay(model, (rows, Y), "svrg", loss="half_squared", steps=3, repeats=4)
    assert found.holds
    assert found.bound[1] / found.bound[0] == pytest.approx(
        0.5, rel=0.01
    )  # what length and step are chosen for


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("gd", lambda k: (1 - 1 / k) ** 2),  # the gap is a square
        ("heavy-ball", lambda k: ((k**0.5 - 1) / (k**0.5 + 1)) ** 2),
        ("nesterov", lambda k: 1 - k**-0.5),
    ],
)
def test_measured_factors_on_a_quadratic_are_the_closed_forms(name, rate):
    """On the flattest direction alone every method has its spectral radius, squared for the gap."""
    spread = np.sqrt(5 * np.linspace(1, 100, 5))
    model = linear()
    found = decay(model, (np.diag(spread), np.ones(5)), name, loss="half_squared", steps=160)
    assert found.condition == pytest.approx(100)
    assert found.factor == pytest.approx(rate(100), abs={"heavy-ball": 0.03, "nesterov": 0.1}.get(name, 1e-6))


def test_momentum_needs_the_root_of_the_steps():
    plain, fast = (
        decay(
            linear(),
            (np.diag(np.sqrt(5 * np.linspace(1, 400, 5))), np.ones(5)),
            name,
            loss="half_squared",
            steps=150,
        )
        for name in ("gd", "nesterov")
    )
    assert np.log(fast.factor) / np.log(plain.factor) > 5  # sqrt(400) / 2 = 10 in the limit


def test_edge_of_stability_on_a_quadratic_is_the_limit():
    top = np.linalg.eigvalsh(X.T @ X / 50)[-1]
    stable = edge_of_stability(linear(), (X, Y), loss="half_squared", learning_rate=1.9 / top, steps=60)
    assert stable.losses[-1] < stable.losses[0]
    np.testing.assert_allclose(stable.sharpness, top, rtol=1e-3)
    beyond = edge_of_stability(
        linear(), (X, Y), loss="half_squared", learning_rate=2.1 / top, steps=200, every=100
    )
    assert beyond.losses[-1] > 1e3 * beyond.losses[100]
    with pytest.raises(FloatingPointError, match=r"the loss became (inf|nan) at step \d+ \(learning_rate="):
        edge_of_stability(linear(), (X, Y), loss="half_squared", learning_rate=50.0, steps=400, every=400)


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: Surface(3, (X, Y)),
            TypeError,
            "model must be a torch module, or an estimator with one; got 3",
        ),
        (lambda: Surface(nn.Tanh(), (X, Y)), ValueError, "the model must have parameters to train; got none"),
        (lambda: Surface(linear(), (X, Y[:3])), ValueError, "X and y must have as many rows; got 50 and 3"),
        (
            lambda: Surface(linear(), X),
            TypeError,
            r"data must be inputs and targets; got ndarray. Pass \(X, y\)",
        ),
        (lambda: Surface(linear(), (X[:0], Y[:0])), ValueError, "data must have rows; got none"),
        (
            lambda: Surface(linear(), (X[:, :1], Y)).value(),
            ValueError,
            r"take inputs of shape \(1,\), .*; got RuntimeError: mat1",
        ),
        (
            lambda: Surface(nn.Linear(X.shape[1], 2).double(), (X, np.full(len(X), 5))).slope(),
            ValueError,
            "and the loss its outputs and the targets; got IndexError: Target 5 is out of bounds",
        ),
        (
            lambda: Surface(linear(), (X, np.full(len(X), "a"))),
            TypeError,
            "inputs and targets must be numbers; got dtype <U1. Pass class numbers, or a fitted classifier",
        ),
        (
            lambda: Surface(linear(), (X, Y), "squarred"),
            ValueError,
            "no loss named 'squarred'. Closest: 'squared'",
        ),
        (
            lambda: eigenvalues(linear(), (X, Y), k=0),
            ValueError,
            "k must lie between 1 and max_iter=200; got 0",
        ),
        (
            lambda: eigenvalues(linear(), (X, Y), ends="botom"),
            ValueError,
            "no ends named 'botom'. Closest: 'bottom'",
        ),
        (
            lambda: trace(linear(), (X, Y), probes=1),
            ValueError,
            "probes must be at least 2, for an error; got 1",
        ),
        (lambda: decay(linear(), (X, Y), "adam"), ValueError, "no theorem for an optimiser named 'adam'"),
        (
            lambda: decay(linear(), (X[:3], Y[:3])),
            ValueError,
            "strongly convex between here and its minimum; got mu =",
        ),
        (
            lambda: constants(linear(), (X, Y), least=1e9),
            ValueError,
            "least must not exceed what descent reaches",
        ),
    ],
)
def test_what_cannot_be_asked(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_names():
    assert set(THEOREMS) == {"gd", "heavy-ball", "nesterov", "newton", "sgd", "svrg"}
    assert theory.constants is theory.convergence.constants is constants
    assert theory.decay is theory.rates.decay is decay


def test_labels_of_a_classifier_are_its_classes():
    """A fitted classifier is asked with the labels it knows, in any container; a module with class numbers."""
    table = np.random.default_rng(0).normal(size=(40, 3))
    labels = np.where(table[:, 0] > 0, "right", "left")
    model = MLPClassifier((4,), training=Training(epochs=3), random_state=0).fit(table, labels)
    codes = Surface(model.module_, (table, (labels == "right").astype(int))).value()
    assert Surface(model, (pd.DataFrame(table), pd.Series(labels))).value() == codes
    with pytest.raises(ValueError, match="labels must be among those of the first fit .*; got 'up'"):
        Surface(model, (table, np.full(40, "up")))


def test_a_module_with_several_outputs_needs_a_loss_that_takes_them():
    """A dict used to end in a bare AttributeError."""

    class Named(torch.nn.Linear):
        def forward(self, x):
            return {"mean": super().forward(x)[:, 0]}

    model, X = Named(2, 1).double(), torch.eye(2, dtype=torch.float64)
    for y in (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64)):
        with pytest.raises(
            ValueError, match="Surface: the model must take.*outputs that are a dict.*of your own"
        ):
            constants(model, (X, y))
        with pytest.raises(ValueError, match="Surface: the model must take.*has no attribute 'sqrt'"):
            constants(model, (X, y), loss=lambda out, y: out.sqrt())
    found = constants(model, (X, torch.ones(2)), loss=lambda out, y: (out["mean"] - y).square())
    plain = torch.nn.Linear(2, 1).double()
    plain.load_state_dict(model.state_dict())
    assert found.smoothness == pytest.approx(constants(plain, (X, torch.ones(2))).smoothness, rel=1e-6)
