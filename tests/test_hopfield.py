import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import corollary
from corollary.connectionism import HopfieldNetwork, capacity_curve
from corollary.connectionism.hopfield import energy, hebbian_weights, projection_weights
from corollary.errors import CorollaryWarning

RULES = ("hebb", "pseudo-inverse", "optimal")


def patterns(P, n, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).choice(np.array([-1, 1], dtype), (P, n))


def damaged(Xi, share, seed=1):
    return Xi * np.where(np.random.default_rng(seed).random(Xi.shape) < share, -1, 1)


def reference_recall(W, s, order, sweeps):
    """Recall by eq. 5, one unit at a time, fields computed anew at every visit."""
    s = s.copy()
    for _ in range(sweeps):
        before = s.copy()
        for i in order:
            field = W[i] @ s
            s[i] = s[i] if abs(field) < 1e-12 else np.sign(field)
        if np.array_equal(before, s):
            return s
    return s


def test_hebbian_weights_are_the_sum_of_outer_products_without_diagonal():
    Xi = patterns(5, 12)
    W = sum(np.outer(x, x) - np.eye(12) for x in Xi) / 12
    np.testing.assert_allclose(hebbian_weights(Xi), W, atol=1e-15)


def test_projection_weights_equal_the_pseudo_inverse():
    Xi = patterns(6, 20)
    W = np.linalg.pinv(Xi) @ Xi
    np.fill_diagonal(W, 0)
    np.testing.assert_allclose(projection_weights(Xi), W, atol=1e-12)
    doubled = projection_weights(np.vstack([Xi, Xi]))  # dependent patterns change nothing
    np.testing.assert_allclose(doubled, W, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_recall_equals_a_direct_loop(rule):
    Xi = patterns(8, 60)
    model = HopfieldNetwork(rule, random_state=0).fit(Xi)
    cues = damaged(Xi, 0.25)
    direct = [reference_recall(model.weights_, s, model.order_, 100) for s in cues]
    np.testing.assert_array_equal(model.recall(cues), direct)
    np.testing.assert_array_equal(model.transform(cues), direct)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bias", [0.0, 0.1])
def test_energy_never_rises_and_recall_ends_in_a_fixed_point(rule, bias):
    Xi = patterns(30, 80)
    model = HopfieldNetwork(rule, bias=bias, random_state=0).fit(Xi)
    cues = patterns(50, 80, seed=3)
    trace = model.energy_trace(cues)
    assert (np.diff(trace, axis=1) <= 1e-12).all()
    assert trace[:, 0] == pytest.approx(model.energy(cues))
    end = model.recall(cues)
    assert trace[:, -1] == pytest.approx(model.energy(end))
    fields = end @ model.weights_ + model.bias_
    assert (end * fields >= -1e-12).all()


def test_energy_has_the_factor_one_half():
    W, s, b = np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[1.0, -1.0]]), np.array([0.5, 3.0])
    assert energy(W, s, b) == pytest.approx([2.0 - 0.5 + 3.0])  # -(1/2)(-4) - (0.5 - 3)


def test_one_pattern_and_its_negative_attract_all_cues_nearer_than_half():
    x = patterns(1, 21)
    model = HopfieldNetwork(random_state=0).fit(x)
    cue = x.copy()
    cue[0, :9] *= -1  # distance 9 < (21 - 1) / 2
    np.testing.assert_array_equal(model.recall(cue), x)
    np.testing.assert_array_equal(model.recall(-cue), -x)


def test_two_units_at_once_cycle_and_one_at_a_time_do_not():
    X = np.array([[1.0, 1.0]])
    cue = np.array([[1.0, -1.0]])
    together = HopfieldNetwork(update="synchronous", max_sweeps=7, threshold=0.5, random_state=0)
    with pytest.warns(CorollaryWarning, match="below threshold=0.5; got minimum 1"):
        together.fit(X)
    assert together.recall(cue).tolist() == [[-1, 1]]  # and from there to [1, -1], and so on
    assert together.recall(-cue).tolist() == [[1, -1]]
    with pytest.warns(CorollaryWarning, match="below threshold=0; got minimum 1"):
        alone = HopfieldNetwork(random_state=0).fit(X)
    assert abs(alone.recall(cue).sum()) == 2


def test_synchronous_recall_restores_a_pattern():
    Xi = patterns(5, 100)
    model = HopfieldNetwork(update="synchronous", random_state=0).fit(Xi)
    np.testing.assert_array_equal(model.recall(damaged(Xi, 0.1)), Xi)


def test_optimal_rule_gives_margin_one_with_the_least_norm():
    Xi = patterns(40, 60)
    model = HopfieldNetwork("optimal", tol=1e-3, max_iter=5000, random_state=0).fit(Xi)
    W = model.weights_
    stability = Xi * (Xi @ W)
    assert stability.min() == pytest.approx(model.margin_)
    assert model.margin_ >= 1 - 1e-3
    np.testing.assert_array_equal(W, W.T)
    assert not W.diagonal().any()
    # strong duality: |W|^2 = sum of the multipliers, so any feasible W is at least as long
    other = projection_weights(Xi)
    other /= (Xi * (Xi @ other)).min()
    assert np.linalg.norm(W) < np.linalg.norm(other)


def test_optimal_rule_resumes_exactly(tmp_path):
    Xi = patterns(40, 60)
    whole = HopfieldNetwork("optimal", tol=1e-3, max_iter=60, random_state=0)
    parts = HopfieldNetwork("optimal", tol=1e-3, max_iter=25, random_state=0)
    with pytest.warns(ConvergenceWarning, match="margin 1 under the optimal rule; got .* Raise max_iter"):
        whole.fit(Xi)
        with corollary.Run(tmp_path):
            parts.fit(Xi)
        with corollary.Run(tmp_path, resume=True):
            parts.set_params(max_iter=60).fit(Xi)
    np.testing.assert_array_equal(whole.weights_, parts.weights_)


def test_hebbian_capacity_is_0_138():
    curve = capacity_curve(n_units=1000, loads=[0.1, 0.12, 0.13, 0.14, 0.15, 0.2], repeats=1, random_state=0)
    assert curve.critical == pytest.approx(0.138, abs=0.008)  # n = 1000 smears the jump by about 0.005
    assert curve.overlaps[0] > 0.99
    assert curve.overlaps[-1] < 0.6


@pytest.mark.parametrize("rule, load", [("pseudo-inverse", 0.5), ("optimal", 0.8)])
def test_other_rules_store_far_more(rule, load):
    curve = capacity_curve(rule, n_units=120, loads=[load], random_state=0)
    assert curve.overlaps[0] == 1
    assert np.isnan(curve.critical)


def test_zeros_and_ones_with_a_threshold():
    Xi = patterns(3, 40)
    a = HopfieldNetwork(random_state=0).fit(Xi)
    b = HopfieldNetwork(threshold=0.5, random_state=0).fit((Xi + 1) / 2)
    np.testing.assert_array_equal(a.weights_, b.weights_)


def test_single_precision_stays_and_files_keep_the_memory(tmp_path):
    Xi = patterns(4, 50, dtype=np.float32)
    model = HopfieldNetwork("pseudo-inverse", random_state=0).fit(Xi)
    assert model.weights_.dtype == np.float32
    assert model.recall(Xi).dtype == np.float32
    again = corollary.load(model.save(tmp_path / "memory.safetensors"))
    cues = damaged(Xi, 0.2).astype(np.float32)
    np.testing.assert_array_equal(again.recall(cues), model.recall(cues))


def test_bad_values_are_named():
    with pytest.raises(ValueError, match=r"bias must have shape \(4,\); got shape \(3,\)"):
        HopfieldNetwork(bias=[1, 2, 3]).fit(patterns(2, 4))
    with pytest.raises(ValueError, match="'rule' parameter of HopfieldNetwork"):
        HopfieldNetwork("hebbian").fit(patterns(2, 4))
    with pytest.raises(ValueError, match="capacity_curve: loads must be positive and rising"):
        capacity_curve(loads=[0.2, 0.1])
    with pytest.raises(ValueError, match="noise must be a share of the units, from 0 to 1; got 2"):
        capacity_curve(noise=2)
    with pytest.raises(ValueError, match="repeats must be at least 1; got 0"):
        capacity_curve(repeats=0)
