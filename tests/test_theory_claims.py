"""Counting against enumeration, piecewise linear functions exactly, bounds that hold."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from corollary import plot
from corollary.theory import approximation, bounds, counting

# --- counting -----------------------------------------------------------------------------------------------


def points(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize(("n", "d"), [(n, d) for n in range(1, 8) for d in (1, 2, 3)] + [(8, 3), (8, 4)])
def test_cover_is_what_enumeration_finds(n, d):
    assert counting.cover(n, d) == counting.count_dichotomies(points(n, d))


def test_counts_of_many_points_and_dimensions_end():
    """Beyond n dimensions all 2^n labellings are there, however many dimensions; the sums are those of binomials."""
    assert counting.cover(5, 10**15) == 2**5 and counting.zaslavsky(5, 10**15) == 2**5
    assert counting.cover(300, 151) == 2 * sum(math.comb(299, i) for i in range(151))
    assert counting.zaslavsky(300, 150) == sum(math.comb(300, i) for i in range(151))


def test_dichotomies_by_drawing_half_spaces():
    X = points(6, 3)
    W = points(200_000, 3, seed=1)
    assert len(np.unique(X @ W.T > 0, axis=1).T) == counting.cover(6, 3)


@pytest.mark.parametrize(("m", "n"), [(m, n) for m in range(1, 7) for n in (1, 2, 3)] + [(8, 2)])
def test_zaslavsky_is_what_enumeration_finds(m, n):
    assert counting.zaslavsky(m, n) == counting.count_regions(points(m, n), points(m, 1, seed=1)[:, 0])


def test_montufar_is_reached_by_a_network_that_folds():
    m, L = 3, 3
    fold, readout = np.full((m, 1), float(m)), np.array([[1.0, -2.0, 2.0]])
    layers = [(fold, -np.arange(m)), (fold @ readout, -np.arange(m))]
    layers.append((np.ones((m, 1)) @ readout, -(np.arange(m) + 0.4) / m))
    assert counting.count_pieces(layers, 0.0, 1.0) == counting.montufar([m] * L, 1) == 36


def test_vc_dimension_by_shattering():
    for d in (1, 2, 3):
        assert counting.vc_dimension(points(d + 2, d)) == d
    interval = lambda X, y: np.diff(np.flatnonzero(y[X[:, 0].argsort()] > 0)).max(initial=1) == 1
    assert counting.vc_dimension(points(5, 1), interval) == 2
    assert counting.shattered(points(4, 2), DecisionTreeClassifier())
    affine = LogisticRegression(C=1e6, max_iter=5000)
    assert counting.vc_dimension(points(4, 2), affine) == 3


def test_counting_refuses():
    with pytest.raises(ValueError, match="cover: n must be an integer of at least 1; got 0"):
        counting.cover(0, 2)
    with pytest.raises(ValueError, match="montufar: there must be at least one hidden layer"):
        counting.montufar([], 2)
    with pytest.raises(ValueError, match=r"at least as wide as the 2 inputs; got 1. Count .* linear_regions"):
        counting.montufar([1, 5], 2)
    with pytest.raises(ValueError, match=r"widths\[0\] must be an integer of at least 1; got 2.5"):
        counting.montufar([2.5, 3], 2)
    with pytest.raises(
        ValueError, match=r"at most 16 points to enumerate labellings; got 30: 2\^30. Take fewer"
    ):
        counting.count_dichotomies(points(30, 2))
    with pytest.raises(ValueError, match="at most 16 hyperplanes"):
        counting.count_regions(points(30, 2), np.zeros(30))
    with pytest.raises(ValueError, match=r"one entry per hyperplane \(3\)"):
        counting.count_regions(points(3, 2), np.zeros(2))
    with pytest.raises(ValueError, match=r"finite rows \(n, d\); got shape \(3,\)"):
        counting.shattered([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="function .X, y. -> bool or an estimator; got str"):
        counting.vc_dimension(points(3, 2), "trees")


def network(widths, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers[:-1]).double()


def test_regions_of_a_network_on_a_plane():
    net = network([3, 6, 5, 2])
    centre, span = points(1, 3)[0], points(2, 3, seed=1)
    found = counting.linear_regions(net, centre, span, radius=2.0)
    areas = []
    for polygon in found.polygons:  # the shoelace formula
        x, y = polygon.T
        areas.append(0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1)))
    assert min(areas) > 0 and sum(areas) == pytest.approx(16.0)  # they tile the square
    assert len(np.unique(found.patterns, axis=0)) == found.count
    middles = np.array([polygon.mean(0) for polygon in found.polygons])
    x = torch.tensor(centre + middles @ span, requires_grad=True)
    inside = np.einsum("rok,rk->ro", found.slopes, middles) + found.offsets
    np.testing.assert_allclose(net(x).detach(), inside, atol=1e-9)
    first = net[1](net[0](x))
    active = torch.cat([first > 0, net[2](first) > 0], 1).numpy()
    np.testing.assert_array_equal(active, found.patterns)
    seen = points(20_000, 2, seed=2).clip(-2, 2)
    h = net[0](torch.tensor(centre + seen @ span))
    drawn = torch.cat([h > 0, net[2](h.relu()) > 0], 1).numpy()
    assert {*map(tuple, drawn)} <= {*map(tuple, found.patterns)}
    figure = plot.regions(found)
    assert len(figure.axes[0].collections[0].get_paths()) == found.count


def test_regions_refuse():
    with pytest.raises(ValueError, match="Sequential of Linear and .leaky. ReLU layers; got"):
        counting.linear_regions(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    with pytest.raises(TypeError, match="a fitted network; got str"):
        counting.linear_regions("net")
    with pytest.raises(ValueError, match="must have 3 entries"):
        counting.linear_regions(network([3, 2, 1]), centre=[0, 0])
    with pytest.raises(ValueError, match="must span a plane"):
        counting.linear_regions(network([2, 2, 1]), directions=[[1, 1], [2, 2]])


# --- approximation ------------------------------------------------------------------------------------------


def test_splines_go_through_their_points_and_are_networks():
    rng = np.random.default_rng(0)
    x, y = rng.permutation(20) / 3.0, rng.normal(size=20)
    g, order = approximation.relu_spline(x, y), x.argsort()
    np.testing.assert_allclose(g(x), y, atol=1e-10)
    t = rng.uniform(x.min(), x.max(), size=200)
    np.testing.assert_allclose(g(t), np.interp(t, x[order], y[order]), atol=1e-10)
    t = np.append(t, [-5.0, 20.0])
    np.testing.assert_allclose(g.module()(torch.tensor(t)[:, None])[:, 0].detach(), g(t), atol=1e-9)
    plus, minus = (
        (np.outer(t, part[:, 0]) + part[:, 1]).max(1) for part in approximation.difference_of_convex(x, y)
    )
    np.testing.assert_allclose(plus - minus, g(t), atol=1e-9)
    straight = approximation.relu_spline([0, 1], [1, 3])
    assert straight(5) == 11 and len(straight.weights) == 0
    with pytest.raises(ValueError, match="every x must occur once; got 1.0 twice. Take the mean"):
        approximation.relu_spline([0, 1, 1], [0, 1, 2])
    with pytest.raises(ValueError, match="of one length of at least 2"):
        approximation.relu_spline([0], [0])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_k_hinges_are_exact(n):
    slopes, offsets = points(7, n), points(7, 1, seed=1)[:, 0]
    terms = approximation.k_hinge(slopes, offsets)
    assert max(map(len, terms)) <= n + 1
    planes = 5 * points(500, n, seed=2) @ slopes.T + offsets
    total = sum(times * planes[:, list(S)].max(1) for S, times in terms.items())
    np.testing.assert_allclose(total, planes.max(1), atol=1e-9)
    with pytest.raises(ValueError, match="at most 14 affine functions; got 20"):
        approximation.k_hinge(points(20, 2), np.zeros(20))
    with pytest.raises(ValueError, match="must fit"):
        approximation.k_hinge(slopes, offsets[:2])


def test_any_network_is_a_difference_of_convex_functions():
    net = network([3, 6, 5, 2])
    g, h = approximation.convex_parts(net)
    a, b = torch.tensor(points(300, 3)), torch.tensor(points(300, 3, seed=1))
    torch.testing.assert_close(g(a) - h(a), net(a).detach())
    for part in (g, h):
        assert bool((part((a + b) / 2) <= (part(a) + part(b)) / 2 + 1e-12).all())
    with pytest.raises(ValueError, match="all activations must be ReLU"):
        approximation.convex_parts(nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(), nn.Linear(2, 1)))


def test_barrons_bound_holds_at_every_size():
    rng = np.random.default_rng(0)
    G = rng.normal(size=(200, 400))
    G /= np.linalg.norm(G, axis=0)
    c = rng.normal(size=400)
    rate = approximation.barron_rate(np.zeros((200, 1)), G @ c, sizes=range(1, 60), dictionary=G)
    assert (200 * rate.errors <= np.abs(c).sum() ** 2 / rate.sizes + 1e-12).all()
    X = rng.uniform(-1, 1, size=(300, 5))
    assert approximation.barron_rate(X, np.sin(X.sum(1)), random_state=0).exponent < -1
    with pytest.raises(ValueError, match="sizes must be at most 200; got 300"):
        approximation.barron_rate(X[:200], X[:200, 0], sizes=[300])
    with pytest.raises(ValueError, match="must fit"):
        approximation.barron_rate(X, X[:5, 0])


def test_universality_fails_for_polynomials_alone():
    f = lambda x: np.abs(x - 0.3)
    for name in ("tanh", "relu", "sigmoid"):
        rate = approximation.universality(f, activation=name, random_state=0)
        assert rate.errors[-1] < 0.3 * rate.errors[0] and rate.errors[-1] < 0.1
    stuck = approximation.universality(f, activation=lambda z: z**3, random_state=0)
    x = np.linspace(-1, 1, 1001)
    best = np.polynomial.Chebyshev.interpolate(f, 3)(x)  # a cubic can do about as well, and no better by much
    assert stuck.errors[-1] > 0.5 * np.abs(best - f(x)).max()
    with pytest.raises(TypeError, match="f must be a function; got int"):
        approximation.universality(3)


# --- bounds -------------------------------------------------------------------------------------------------


def test_hoeffding_holds_on_both_sides():
    rng, n, delta = np.random.default_rng(0), 50, 0.1
    gaps = np.abs(rng.binomial(n, 0.5, size=100_000) / n - 0.5)
    assert np.mean(gaps > bounds.hoeffding(n, delta)) <= delta
    assert 2 * np.exp(-2 * n * bounds.hoeffding(n, delta) ** 2) == pytest.approx(delta)
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match="n must be a number of samples"):
            bounds.hoeffding(bad)
    with pytest.raises(ValueError, match="delta must lie between 0 and 1; got 1"):
        bounds.hoeffding(5, 1)


def test_growth_is_that_of_intervals():
    x = np.arange(6)
    patterns = {tuple((x >= a) & (x < b)) for a in range(7) for b in range(7)}
    assert len(patterns) == bounds.growth(6, 2)
    assert bounds.vc_bound(10**6, 2) < bounds.vc_bound(10**4, 2) < bounds.vc_bound(10**4, 20)
    with pytest.raises(ValueError, match="vc must not be negative"):
        bounds.vc_bound(10, -1)


def test_rademacher_complexity():
    every = np.array([*product([-1.0, 1.0], repeat=5)])
    assert bounds.rademacher(every, random_state=0) == (1.0, 0.0)
    one = bounds.rademacher(np.ones((1, 100)), draws=4000, random_state=0)
    assert abs(one.value) < 4 * one.error  # one function follows no noise
    signs = bounds.rademacher(np.array([np.ones(100), -np.ones(100)]), draws=4000, random_state=0)
    assert signs.value == pytest.approx(np.sqrt(2 / np.pi / 100), abs=4 * signs.error + 1e-3)
    X = points(30, 2)
    tree = bounds.rademacher(DecisionTreeClassifier(random_state=0), X, draws=5, random_state=0)
    stump = bounds.rademacher(DecisionTreeClassifier(max_depth=1), X, draws=5, random_state=0)
    assert tree.value == 1.0 > stump.value
    assert bounds.rademacher_bound(0.1, 0.2, 100) == pytest.approx(0.3 + 3 * bounds.hoeffding(100))
    with pytest.raises(ValueError, match="a classifier needs samples"):
        bounds.rademacher(DecisionTreeClassifier())
    with pytest.raises(ValueError, match=r"array \(functions, n\); got shape \(3,\)"):
        bounds.rademacher(np.ones(3))
    with pytest.raises(ValueError, match="draws must be at least 2"):
        bounds.rademacher(every, draws=1)


def test_pac_bayes_inverts_the_divergence_of_coins():
    for error, kl in ((0.0, 10.0), (0.1, 100.0), (0.4, 1.0)):
        p, room = bounds.pac_bayes(error, kl, 1000), (kl + np.log(2 * np.sqrt(1000) / 0.05)) / 1000
        heads = error * np.log(error / p) if error else 0.0
        assert heads + (1 - error) * np.log((1 - error) / (1 - p)) == pytest.approx(room, rel=1e-6)
        assert p <= bounds.pac_bayes(error, kl, 1000, form="root")
    assert bounds.pac_bayes(1.0, 0.0, 10) == 1.0
    with pytest.raises(ValueError, match=r"error must lie in \[0, 1\]"):
        bounds.pac_bayes(1.5, 0.0, 10)
    with pytest.raises(ValueError, match="form must be 'kl' or 'root'"):
        bounds.pac_bayes(0.5, 0.0, 10, form="square")


def test_certificate_of_a_network_on_real_digits():
    X, y = load_digits(return_X_y=True)
    X, order = torch.tensor(X / 16, dtype=torch.float32), np.random.default_rng(0).permutation(len(y))
    train, test = order[:1400], order[1400:]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(64, 10))
    net = bounds.StochasticNetwork(module).fit(X[train], y[train], epochs=60, random_state=0)
    found = bounds.certificate(net, X[train], y[train], draws=100)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        wrong = [float((net(X[test], generator).argmax(1).numpy() != y[test]).mean()) for _ in range(20)]
    assert found.error <= found.error_bound < found.bound < 0.85
    assert np.mean(wrong) < found.bound
    with pytest.raises(ValueError, match="labels must be from 0 to 9; got 0 to 10"):
        net.fit(X[:2], [0, 10])
    with pytest.raises(ValueError, match="one integer label per sample"):
        net.fit(X[:2], [0.5, 1.0])


def test_divergence_of_gaussians():
    net = bounds.StochasticNetwork(nn.Linear(3, 2), prior_std=0.3)
    assert float(net.kl().detach()) == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        net.means[0].add_(0.5)
        net.log_stds[1].fill_(np.log(0.1))
    found = torch.distributions.kl_divergence
    P, Q = torch.distributions.Normal(0.0, 0.3), torch.distributions.Normal
    expected = 6 * found(Q(0.5, 0.3), P) + 2 * found(Q(0.0, 0.1), P)
    assert float(net.kl().detach()) == pytest.approx(float(expected), rel=1e-5)


def test_certificates_refuse():
    X, y = torch.zeros(4, 2), [0, 1, 0, 1]
    with pytest.raises(TypeError, match="must be trained stochastically; got Linear. Wrap the module"):
        bounds.certificate(nn.Linear(2, 2), X, y)
    net = bounds.StochasticNetwork(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="must be fitted; got one that is not. Call its fit"):
        bounds.certificate(net, X, y)
    with pytest.raises(TypeError, match="module must be a torch.nn.Module; got list"):
        bounds.StochasticNetwork([])
    with pytest.raises(ValueError, match="prior_std must lie between 0 and 1; got 2"):
        bounds.StochasticNetwork(nn.Linear(2, 2), 2)


def test_double_descent_peaks_at_the_number_of_samples():
    X, y = load_digits(return_X_y=True)
    found = bounds.double_descent(
        X[:600], np.eye(10)[y[:600]], [10, 50, 100, 200, 1000], n_train=100, repeats=3, random_state=0
    )
    assert found.peak == found.n_train == 100
    assert found.test[-1] < found.test.min() * 1.0001 and found.test.max() > 2 * found.test[-1]
    assert (np.diff(found.train) < 1e-9).all() and found.train[-1] < 1e-9
    with pytest.raises(ValueError, match="leave samples to test on"):
        bounds.double_descent(X[:10], y[:10], n_train=10)
