import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import corollary
from corollary.completion import (
    BiasBaseline,
    SingularValueProjection,
    SingularValueThresholding,
    degrees_of_freedom,
    incoherence,
    recovery_curve,
    scalar_flow,
)
from corollary.completion.scalar import integrate_flow


def planted(n=60, m=50, rank=2, share=0.5, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, m))
    X = np.where(rng.random((n, m)) < share, A + noise * rng.standard_normal((n, m)), np.nan)
    return A, X


def dense(model):
    return (model.left_ * model.singular_values_) @ model.right_.T


def shrink(M, tau):
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    return (U * np.maximum(s - tau, 0)) @ Vt


def relative(B, A):
    return np.linalg.norm(B - A) / np.linalg.norm(A)


# --- baseline --------------------------------------------------------------------------------------------


def test_baseline_equals_the_direct_computation():
    _, X = planted()
    known = ~np.isnan(X)
    mean = X[known].mean()
    columns = np.where(known, X - mean, 0).sum(0) / (4 + known.sum(0))
    rows = np.where(known, X - mean - columns, 0).sum(1) / (4 + known.sum(1))
    model = BiasBaseline(damping=4).fit(X)
    full = mean + rows[:, None] + columns
    pairs = np.argwhere(np.ones(X.shape, bool))
    np.testing.assert_allclose(model.predict(pairs), full.ravel(), atol=1e-13)
    by_rows = BiasBaseline("rows", damping=0).fit(X)
    np.testing.assert_allclose(by_rows.predict([[3, 4], [7, 0]]), np.nanmean(X, axis=1)[[3, 7]])
    by_columns = BiasBaseline("columns", damping=0).fit(X)
    np.testing.assert_allclose(by_columns.predict([[3, 4], [7, 0]]), np.nanmean(X, axis=0)[[4, 0]])
    np.testing.assert_array_equal(model.complete(X)[known], X[known])
    np.testing.assert_allclose(model.complete(X)[~known], full[~known])


@pytest.mark.parametrize("by, axis", [("rows", 1), ("columns", 0)])
def test_z_scores_have_mean_zero_and_deviation_one(by, axis):
    _, X = planted()
    scores = BiasBaseline(by).z_scores(X).toarray()
    scores[np.isnan(X)] = np.nan
    np.testing.assert_allclose(np.nanmean(scores, axis=axis), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scores, axis=axis), 1, rtol=1e-12)
    constant = BiasBaseline("rows").z_scores(np.array([[3.0, 3.0, np.nan], [1.0, 2.0, 3.0]]))
    assert not constant.toarray()[0].any()


def test_an_empty_row_and_column_predict_the_mean():
    X = np.array([[1.0, 3.0, np.nan], [np.nan] * 3, [5.0, 3.0, np.nan]])
    model = BiasBaseline().fit(X)
    assert model.predict([[1, 2]]) == pytest.approx([3.0])
    with pytest.raises(ValueError, match='z-scores are by="rows" or by="columns"'):
        model.z_scores(X)


# --- soft-impute -----------------------------------------------------------------------------------------


def test_soft_impute_reaches_the_fixed_point_of_its_equation():
    _, X = planted(noise=0.1)
    known = ~np.isnan(X)
    tau = 2.0
    model = SingularValueThresholding(tau, tol=1e-9, max_iter=5000, random_state=0).fit(X)
    B = dense(model)
    again = shrink(np.where(known, X, B), tau)  # eq. 2 with full matrices
    assert relative(again, B) < 1e-6  # the step that stopped changed 1e-9 of it; momentum adds to that
    loss = 0.5 * ((X - B)[known] ** 2).sum() + tau * np.linalg.svd(B, compute_uv=False).sum()
    assert model.history_[-1]["loss"] == pytest.approx(loss, rel=1e-9)
    plain = np.zeros_like(B)
    for _ in range(3000):
        plain = shrink(np.where(known, X, plain), tau)
    assert relative(B, plain) < 1e-6


def test_soft_impute_without_a_rank_finds_it():
    A, X = planted(80, 70, rank=3, share=0.5, noise=0.01)
    model = SingularValueThresholding(1.0, random_state=0, max_iter=500).fit(X)
    assert model.rank_ == 3
    assert relative(dense(model), A) < 0.1
    wide = SingularValueThresholding(1e-3, random_state=0, max_iter=50).fit(X)
    assert wide.rank_ > 20  # more than the first subspace has columns
    capped = SingularValueThresholding(1e-3, max_rank=2, random_state=0, max_iter=50).fit(X)
    assert capped.rank_ == 2


def test_a_raised_threshold_lowers_the_rank_to_zero():
    _, X = planted(noise=0.3)
    ranks = [SingularValueThresholding(t, random_state=0).fit(X).rank_ for t in (0.5, 3.0, 1000.0)]
    assert ranks[0] > ranks[1] > ranks[2] == 0
    model = SingularValueThresholding(1000.0, random_state=0).fit(X)
    assert model.predict([[0, 0]]) == pytest.approx([0])


def test_biases_are_taken_off_first():
    _, X = planted(noise=0.1)
    X = X + 5 + np.arange(60)[:, None] / 10
    model = SingularValueThresholding(1e6, bias=True, random_state=0).fit(X)
    base = BiasBaseline().fit(X)
    np.testing.assert_allclose(model.predict([[3, 4], [50, 2]]), base.predict([[3, 4], [50, 2]]))


# --- singular value thresholding and projection ----------------------------------------------------------


def test_svt_recovers_exactly_in_the_incoherent_regime():
    A, X = planted(100, 100, rank=2, share=0.45)
    model = SingularValueThresholding(method="svt", tol=1e-6, max_iter=2000, random_state=0).fit(X)
    assert relative(dense(model), A) < 1e-5
    assert model.rank_ == 2


def test_svt_limit_has_weight_one_half():
    # one missing entry: the limit minimises tau |B|_* + |B|_F^2 / 2 over it (erratum E37)
    tau = 0.3
    X = np.array([[1.0, 0.4], [0.7, np.nan]])
    model = SingularValueThresholding(tau, method="svt", step=1.0, tol=1e-12, max_iter=20000, random_state=0)
    got = dense(model.fit(X))[1, 1]
    grid = np.linspace(-1, 1, 20001)
    B = np.array([[[1.0, 0.4], [0.7, z]] for z in grid])
    s = np.linalg.svd(B, compute_uv=False)
    best = grid[(tau * s.sum(1) + 0.5 * (s**2).sum(1)).argmin()]
    printed = grid[(tau * s.sum(1) + 0.5 / tau * (s**2).sum(1)).argmin()]
    assert got == pytest.approx(best, abs=2e-4)  # the grid's spacing is 1e-4
    assert abs(got - printed) > 0.05


def test_svp_recovers_a_planted_matrix():
    A, X = planted(100, 80, rank=3, share=0.5)
    model = SingularValueProjection(3, tol=0, max_iter=400, random_state=0).fit(X)
    assert relative(dense(model), A) < 1e-4
    losses = [row["loss"] for row in model.history_]
    assert (np.diff(losses) <= 0).all()
    assert model.left_.shape == (100, 3)


def test_a_step_too_long_is_halved():
    A, X = planted(60, 60, rank=1, share=0.8)
    model = SingularValueProjection(1, step=50.0, tol=0, max_iter=300, random_state=0).fit(X)
    assert relative(dense(model), A) < 1e-3


# --- all of them -----------------------------------------------------------------------------------------

COMPLETERS = [
    (SingularValueThresholding, {"threshold": 1.0}),
    (SingularValueThresholding, {"threshold": 5.0, "method": "svt"}),
    (SingularValueProjection, {"rank": 2}),
]


@pytest.mark.parametrize("model, params", COMPLETERS)
def test_resume_is_exact(model, params, tmp_path):
    _, X = planted(noise=0.1)
    whole = model(**params, tol=0, max_iter=24, random_state=0).fit(X)
    part = model(**params, tol=0, max_iter=11, random_state=0)
    with corollary.Run(tmp_path):
        part.fit(X)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=24).fit(X)
    np.testing.assert_array_equal(dense(part), dense(whole))
    again = corollary.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict([[0, 1]]), whole.predict([[0, 1]]))


@pytest.mark.parametrize("model, params", COMPLETERS)
def test_single_precision_and_sparse_input(model, params):
    _, X = planted(noise=0.1)
    rows, columns = np.nonzero(~np.isnan(X))
    R = sparse.coo_matrix((X[rows, columns].astype(np.float32), (rows, columns)), shape=X.shape)
    a = model(**params, random_state=0, max_iter=20).fit(R)
    b = model(**params, random_state=0, max_iter=20).fit(X)
    assert a.left_.dtype == np.float32
    assert a.predict([[0, 0]]).dtype == np.float32
    assert relative(dense(a), dense(b)) < 1e-2  # float32 steps, twenty of them


MEMORY = """
import sys, numpy as np
from pathlib import Path
from scipy import sparse
from corollary.completion import ALS, SingularValueProjection, SingularValueThresholding

def peak():
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)

def ratings(n, m, per_row):
    rng, stride = np.random.default_rng(0), m // per_row
    columns = rng.integers(0, m, (n, 1)) + stride * np.arange(per_row) + rng.integers(0, stride, (n, per_row))
    values = 3 + rng.standard_normal((n, per_row), np.float32)
    rows = np.repeat(np.arange(n), per_row)
    return sparse.csr_matrix((values.ravel(), (rows, columns.ravel() % m)), shape=(n, m))

models = {
    "als": ALS(16, max_iter=2, random_state=0),
    "implicit": ALS(16, feedback="implicit", max_iter=2, random_state=0),
    "soft-impute": SingularValueThresholding(20.0, max_rank=8, max_iter=3, random_state=0),
    "svt": SingularValueThresholding(20.0, method="svt", max_rank=8, max_iter=3, random_state=0),
    "svp": SingularValueProjection(5, max_iter=3, random_state=0),
}
for model in models.values():  # what is compiled or imported on the way does not count
    model.fit(abs(ratings(200, 50, 10)))
R = abs(ratings(20_000, 5_000, 100))
assert R.nnz == 2_000_000
before = peak()
for name, model in models.items():
    model.fit(R)
    assert np.isfinite(model.predict([[0, 0], [19_999, 4_999]])).all()
    print(name, peak() - before)
"""


def test_two_million_entries_of_a_hundred_million_fit_comfortably():
    # a process of its own, whose peak is not that of other tests
    script = [sys.executable, "-W", "ignore", "-c", MEMORY]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    grown = dict(line.split() for line in done.stdout.splitlines())
    assert grown.keys() == {"als", "implicit", "soft-impute", "svt", "svp"}
    # the matrix has 16 MB of entries and places, a few copies of which are needed; full it would have 400 or 800 MB
    assert max(map(float, grown.values())) < 200, grown


def test_bad_ranks_and_shapes_are_named():
    _, X = planted()
    with pytest.raises(
        ValueError, match=r"max_rank must be at most the smaller side of the matrix \(50\); got 51"
    ):
        SingularValueThresholding(max_rank=51).fit(X)
    with pytest.raises(
        ValueError, match=r"rank must be at most the smaller side of the matrix \(50\); got 51"
    ):
        SingularValueProjection(51).fit(X)
    for model in (SingularValueProjection(2), BiasBaseline(), SingularValueThresholding(1.0)):
        with pytest.raises(ValueError, match=r"got shape \(50, 60\). Pass X.T if rows are items"):
            model.fit(X).score(X.T)


# --- recovery and the scalar flow ------------------------------------------------------------------------


def test_degrees_of_freedom_are_the_rank_of_the_jacobian():
    rng = np.random.default_rng(0)
    n, m, k = 6, 5, 2
    U, V = rng.standard_normal((n, k)), rng.standard_normal((m, k))
    J = np.hstack([np.kron(np.eye(n), V), np.vstack([np.kron(np.eye(m), U[i]) for i in range(n)])])
    assert degrees_of_freedom((n, m), k) == np.linalg.matrix_rank(J)
    assert degrees_of_freedom((30, 30), 2) == 2 * 30 * 2 - 2**2
    with pytest.raises(ValueError, match="rank must lie in 0 to 5; got 6"):
        degrees_of_freedom((n, m), 6)


def test_incoherence_of_known_matrices():
    assert incoherence(np.eye(8)) == pytest.approx(np.sqrt(8))  # E = I: 1 = mu sqrt(8) / 8
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    assert 1 < incoherence(A) < incoherence(np.diag([1.0] + [0] * 29)) == pytest.approx(30)
    with pytest.raises(ValueError, match="must be a matrix that is not zero; got zeros"):
        incoherence(np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"rank must lie in 1 to the matrix's own \(2\); got 3"):
        incoherence(A, 3)


def test_recovery_has_a_transition_above_the_degrees_of_freedom():
    curve = recovery_curve(20, 1, samples=[30, 39, 120, 300], repeats=6, random_state=0)
    assert curve.degrees_of_freedom == 39
    assert curve.success[0] == 0
    assert (np.diff(curve.success) >= 0).all()
    assert curve.success[-1] == 1
    with pytest.raises(ValueError, match="samples must lie in 1 to 400; got 3 to 401"):
        recovery_curve(20, 1, samples=[3, 401])


@pytest.mark.parametrize("a, c", [(2.0, 0.1), (1.0, 3.0), (-1.5, 0.4), (0.0, 0.7), (2.0, 0.0), (3.0, 3.0)])
def test_scalar_flow_equals_the_integrated_equation(a, c):
    t = np.linspace(0, 3, 7)
    u = np.sqrt(c)
    np.testing.assert_allclose(scalar_flow(a, c, t), integrate_flow(a, u, u, t), atol=1e-9)
    limit = a if a > 0 and c > 0 else 0.0
    assert scalar_flow(a, c, 1e4) == pytest.approx(limit, abs=1e-3)
    assert np.isfinite(scalar_flow(a, c, [1e6])).all()


def test_scalar_flow_names_bad_values():
    with pytest.raises(ValueError, match="c must not be negative; got -1"):
        scalar_flow(1.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="t must not be negative; got minimum -2"):
        scalar_flow(1.0, 1.0, [-2.0])
