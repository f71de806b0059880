import itertools

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import corollary
from corollary.connectionism.adaline import Adaline
from corollary.connectionism.nand import NandMachine, packed, read, simulate
from corollary.connectionism.threshold import ThresholdUnit, truth_table
from corollary.errors import Diverged

# --- the neuron of McCulloch and Pitts -------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_unit_survives_the_way_through_its_normal_form(n):
    x = truth_table(n)
    for signs in itertools.product((-1, 1), repeat=n):
        for threshold in range(-n - 1, n + 2):
            f = (x @ signs >= threshold).astype(int)
            unit = ThresholdUnit.from_dnf(x[f == 1].reshape(-1, n))
            np.testing.assert_array_equal(unit.predict(x), f)
            np.testing.assert_array_equal(unit.to_dnf(), x[f == 1])


def test_twelve_inputs_by_brute_force():
    rng = np.random.default_rng(0)
    x = truth_table(12)
    signs = rng.choice([-1, 1], 12)
    f = (x @ signs >= 2).astype(int)
    unit = ThresholdUnit().fit(x, f)
    np.testing.assert_array_equal(unit.signs_, signs)
    assert (unit.threshold_, unit.n_errors_) == (2, 0)
    assert len(unit.to_dnf()) == f.sum()


def test_exactly_the_functions_of_two_inputs_that_have_a_unit_get_one():
    x = truth_table(2)
    units = {
        tuple(int(v) for v in x @ s >= t) for s in itertools.product((-1, 1), repeat=2) for t in range(-3, 4)
    }
    for f in itertools.product((0, 1), repeat=4):
        terms = x[np.array(f) == 1].reshape(-1, 2)
        if f in units:
            assert ThresholdUnit.from_dnf(terms).n_errors_ == 0
        else:
            with pytest.raises(ValueError, match="must compute the form; got . of 4 inputs wrong"):
                ThresholdUnit.from_dnf(terms)
    assert (0, 1, 1, 0) not in units  # exclusive or


def test_terms_may_leave_inputs_out():
    unit = ThresholdUnit.from_dnf([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]])  # x1 or x2 or x3
    assert (unit.signs_.tolist(), unit.threshold_) == ([1, 1, 1], 1)


def test_bad_terms_labels_and_sizes_are_named():
    for terms, got in (
        ([[2, 0]], "2"),
        ([1, 0], r"shape \(2,\)"),
        ([[1, 0], [1]], "rows of different lengths"),
    ):
        with pytest.raises(ValueError, match=rf"terms must be a matrix of 1 .*; got {got}"):
            ThresholdUnit.from_dnf(terms)
    with pytest.raises(NotFittedError):
        ThresholdUnit().to_dnf()
    with pytest.raises(ValueError, match="y must have two classes; got 3"):
        ThresholdUnit().fit([[0], [1], [1]], [0, 1, 2])
    with pytest.raises(ValueError, match="a truth table has at most 20 inputs; got 21"):
        truth_table(21)


# --- Turing's machines -----------------------------------------------------------------------------------

# exclusive or from four NANDs: n = ab; p = an, q = bn; out = pq. Signals: a 0, b 1, units 2 to 5.
XOR = np.array([[0, 1], [0, 2], [1, 2], [3, 4]])


def test_a_run_checked_by_hand():
    states = simulate(XOR, np.ones((4, 2), bool), truth_table(2), 3)
    # all units start at 0, so after one step those that hear a unit are 1
    assert states[1].astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    # then p = not(a and n), q = not(b and n), with n = 1, 1, 1, 0
    assert states[2, 1:3].astype(int).tolist() == [[1, 1, 0, 1], [1, 0, 1, 1]]
    assert states[3, 3].astype(int).tolist() == [0, 1, 1, 0]


def test_a_switch_that_is_off_takes_its_input_out():
    x = truth_table(2)
    for switches in itertools.product((False, True), repeat=2):
        out = simulate(np.array([[0, 1]]), np.array([switches]), x, 1)[1, 0]
        on = [x[:, i] for i in (0, 1) if switches[i]]
        expected = 1 - np.prod(on, axis=0) if on else np.zeros(4)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("m", [4, 64, 100])
def test_packed_rows_run_as_plain_ones_do(m):
    rng = np.random.default_rng(m)
    x, y = rng.random((m, 5)) < 0.5, rng.random(m) < 0.5
    sources, on = rng.integers(0, 17, (12, 2)), rng.random((12, 2)) < 0.8
    data = packed(x), packed(y[:, None])[0], packed(np.ones((m, 1), bool))[0]
    found = read(sources, np.where(on, np.uint64(0), ~np.uint64(0)), *data, 6)
    wrong = (simulate(sources, on, x, 6)[-1] != y).sum(axis=1)
    assert found == (wrong.argmin(), wrong.min())


@pytest.mark.parametrize("seed", range(10))
def test_training_finds_every_function_of_two_inputs_and_the_parity_of_three(seed):
    x = truth_table(2)
    for f in itertools.product((0, 1), repeat=4):
        if len(set(f)) == 2:
            model = NandMachine(random_state=seed).fit(x, f)
            assert model.n_errors_ == 0
            assert model.predict(x).tolist() == list(f)
    x = truth_table(3)
    model = NandMachine(random_state=seed).fit(x, x.sum(1) % 2)
    assert model.n_errors_ == 0
    np.testing.assert_array_equal(model.predict(x), x.sum(1) % 2)
    assert model.n_iter_ < 60  # of 100


@pytest.mark.parametrize("seed", range(3))
def test_training_finds_the_parity_of_four(seed):
    x = truth_table(4)
    model = NandMachine(60, n_steps=10, max_iter=200, random_state=seed).fit(x, x.sum(1) % 2)
    np.testing.assert_array_equal(model.predict(x), x.sum(1) % 2)
    assert [row["errors"] for row in model.history_][-1] == 0


def test_switches_learn_more_than_reading_alone_and_rewiring_more_than_switches():
    x = truth_table(4)
    f = x.sum(1) % 2
    errors = {}
    for name, options in {"A": {"kind": "A"}, "B": {"rewire": False}, "rewired": {}}.items():
        models = [NandMachine(30, max_iter=3, random_state=seed, **options).fit(x, f) for seed in range(5)]
        errors[name] = sum(model.n_errors_ for model in models)
        assert all(model.switches_.all() for model in models) or name != "A"
    assert errors["A"] > errors["B"] > errors["rewired"]


def test_the_machine_resumes_exactly_and_is_kept_in_files(tmp_path):
    x = truth_table(4)
    f = x.sum(1) % 2
    whole = NandMachine(10, max_iter=4, random_state=0).fit(x, f)  # too small to find it
    assert len(whole.history_) == 4
    part = NandMachine(10, max_iter=2, random_state=0)
    with corollary.Run(tmp_path):
        part.fit(x, f)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=4).fit(x, f)
    np.testing.assert_array_equal(part.switches_, whole.switches_)
    np.testing.assert_array_equal(part.sources_, whole.sources_)
    again = corollary.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(x), whole.predict(x))
    with pytest.raises(ValueError, match="NandMachine: y must have two classes; got 3"):
        NandMachine().fit([[0], [1], [1]], [0, 1, 2])


# --- the adaptive linear unit ----------------------------------------------------------------------------


def linear(noise=0.0, n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, X @ [1.0, -2.0, 0.5] + 3 + noise * rng.standard_normal(n)


def test_the_first_epoch_is_the_delta_rule():
    X, y = linear(n=5)
    model = Adaline(0.1, normalize=False, max_iter=1, random_state=0).fit(X, y)
    w, b = np.zeros(3), 0.0
    for i in model._rng().permutation(5):
        error = y[i] - X[i] @ w - b
        w, b = w + 0.1 * error * X[i], b + 0.1 * error
    np.testing.assert_allclose(model.coef_, w, rtol=1e-12)
    assert model.intercept_ == pytest.approx(b)


def test_the_limit_is_least_squares():
    X, y = linear(noise=0.5)
    best = LinearRegression().fit(X, y)
    model = Adaline(0.02, normalize=False, decay=5, max_iter=3000, tol=1e-8, random_state=0).fit(X, y)
    # a step of 0.02 / 600 at the end leaves noise of about its square root times 0.5 / sqrt(200)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=2e-3)
    assert model.intercept_ == pytest.approx(best.intercept_, abs=2e-3)
    hovering = Adaline(0.1, normalize=False, decay=0, max_iter=50, random_state=0).fit(X, y)
    assert np.abs(hovering.coef_ - best.coef_).max() > 2e-3


def test_the_normalised_rule_takes_any_scale_and_the_plain_one_diverges_in_words():
    X, y = linear()
    model = Adaline(random_state=0).fit(1e4 * X, y - 3)
    np.testing.assert_allclose(model.coef_ * 1e4, [1.0, -2.0, 0.5], rtol=1e-3)
    with (
        np.errstate(all="ignore"),
        pytest.raises(Diverged, match=r"Adaline: loss became .*Lower learning_rate"),
    ):
        Adaline(1.0, normalize=False, decay=0, random_state=0).fit(1e4 * X, y)


def test_adaline_resumes_exactly(tmp_path):
    X, y = linear(noise=0.5)
    whole = Adaline(max_iter=20, tol=0, random_state=0).fit(X, y)
    part = Adaline(max_iter=9, tol=0, random_state=0)
    with corollary.Run(tmp_path):
        part.fit(X, y)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=20).fit(X, y)
    np.testing.assert_array_equal(part.coef_, whole.coef_)
