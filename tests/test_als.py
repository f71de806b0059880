import numpy as np
import pytest
from scipy import sparse

import corollary
from corollary.completion import ALS


def ratings(users=60, items=40, known=900, rank=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    A, B, b = (
        rng.standard_normal((users, rank)),
        rng.standard_normal((items, rank)),
        rng.standard_normal(users),
    )
    u, i = np.divmod(rng.choice(users * items, known, replace=False), items)
    values = 3 + (A[u] * B[i]).sum(1) + 0.5 * b[u] + 0.1 * rng.standard_normal(known)
    return sparse.csr_matrix((values.astype(dtype), (u, i)), shape=(users, items))


def counts(**options):
    R = ratings(**options)
    R.data = np.abs(R.data)
    return R


def objective(model, R):
    """Compute eq. 1 or 2 on dense matrices."""
    known = (R != 0).toarray()
    U, V, b, c = model.user_factors_, model.item_factors_, model.user_bias_, model.item_bias_
    weights = lambda M: np.diff(M.tocsr().indptr) if model.scale_by_count else np.ones(M.shape[0])
    ridge = weights(R) @ ((U**2).sum(1) + b**2) + weights(R.T) @ ((V**2).sum(1) + c**2)
    if model.feedback == "implicit":
        data = ((1 + model.alpha * R.toarray()) * (known - U @ V.T) ** 2).sum()
    else:
        data = ((R.toarray() - model.mean_ - b[:, None] - c - U @ V.T)[known] ** 2).sum()
    return data + model.regularization * ridge


def direct_row(model, R, u):
    """Solve the normal equations of one user, eq. 3, by Cholesky factors."""
    items = R[u].indices
    V = model.item_factors_
    ridge = model.regularization * (len(items) if model.scale_by_count else 1)
    if model.feedback == "implicit":
        w = 1 + model.alpha * R[u].data
        A = V.T @ V + (V[items].T * (w - 1)) @ V[items]
        return np.linalg.solve(A + ridge * np.eye(len(A)), V[items].T @ w)
    Y = np.column_stack([V[items], np.ones(len(items))]) if model.bias else V[items]
    A = Y.T @ Y + ridge * np.eye(Y.shape[1])
    return np.linalg.solve(A, Y.T @ (R[u].data - model.mean_ - model.item_bias_[items]))


CASES = [
    {"feedback": "explicit", "bias": True, "scale_by_count": True, "regularization": 0.1},
    {"feedback": "explicit", "bias": False, "scale_by_count": False, "regularization": 1.0},
    {"feedback": "implicit", "scale_by_count": False, "regularization": 0.5, "alpha": 2.0},
    {"feedback": "implicit", "scale_by_count": True, "regularization": 0.05},
]


@pytest.mark.parametrize("settings", CASES)
def test_the_recorded_loss_is_the_objective_and_never_rises(settings):
    R = counts()
    losses = []
    for sweeps in range(1, 8):
        model = ALS(5, **settings, max_iter=sweeps, tol=0, random_state=0).fit(R)
        assert model.history_[-1]["loss"] == pytest.approx(objective(model, R), rel=1e-10)
        losses.append(model.history_[-1]["loss"])
    # conjugate gradients from the last solution descend even when cut short
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()


@pytest.mark.parametrize("settings", CASES)
def test_fold_in_solves_the_normal_equations(settings):
    R = counts()
    model = ALS(5, **settings, max_iter=3, random_state=0).fit(R)
    factors, biases = model.fold_in(R)
    for u in (0, 7, 59):
        x = direct_row(model, R, u)
        mine = np.append(factors[u], biases[u]) if settings.get("bias") else factors[u]
        # conjugate gradients in double precision, run to the end on a well conditioned system
        np.testing.assert_allclose(mine, x, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("settings", CASES)
def test_a_converged_fit_is_its_own_fold_in(settings):
    R = counts()
    model = ALS(4, **settings, max_iter=3000, tol=0, cg_steps=10, random_state=0).fit(R)
    factors, biases = model.fold_in(R)
    np.testing.assert_allclose(
        factors, model.user_factors_, atol=1e-4
    )  # slow directions move by 1e-5 a sweep
    np.testing.assert_allclose(biases, model.user_bias_, atol=1e-4)
    columns, shifts = model.fold_in(R, axis=1)
    np.testing.assert_allclose(columns, model.item_factors_, atol=1e-4)
    np.testing.assert_allclose(shifts, model.item_bias_, atol=1e-4)


def test_objective_agrees_with_implicit():
    from implicit.als import AlternatingLeastSquares

    R = counts(users=200, items=80, known=4000, dtype=np.float32)
    confidence = R.copy()
    confidence.data += 1
    peer = AlternatingLeastSquares(
        factors=8, regularization=0.5, iterations=60, random_state=0, use_gpu=False, num_threads=1
    )
    peer.fit(confidence, show_progress=False)
    ours = ALS(
        8, feedback="implicit", regularization=0.5, scale_by_count=False, max_iter=60, tol=0, random_state=0
    )
    ours.fit(R)
    mine = ours.history_[-1]["loss"]
    ours.user_factors_, ours.item_factors_ = peer.user_factors, peer.item_factors
    # two starts end in different local minima of a non-convex problem: within half a percent here
    assert mine == pytest.approx(objective(ours, R.astype(np.float64)), rel=5e-3)


def test_recovers_a_planted_matrix():
    R = ratings(users=120, items=80, known=5000, rank=2)
    everything = ratings(users=120, items=80, known=9600, rank=2)  # same factors, other noise
    model = ALS(2, regularization=1e-3, max_iter=100, random_state=0).fit(R)
    assert -model.score(everything) < 0.12  # the noise has deviation 0.1
    baseline = ALS(1, regularization=1e3, max_iter=5, random_state=0).fit(R)
    assert -baseline.score(everything) > 1


def test_predictions_are_the_sum_of_their_parts():
    R = ratings()
    model = ALS(3, random_state=0).fit(R)
    full = (
        model.user_factors_ @ model.item_factors_.T
        + model.user_bias_[:, None]
        + model.item_bias_
        + model.mean_
    )
    pairs = np.array([[0, 0], [5, 39], [59, 7]])
    np.testing.assert_allclose(model.predict(pairs), full[pairs[:, 0], pairs[:, 1]], rtol=1e-12)
    items, scores = model.recommend([5, 0], n=4)
    np.testing.assert_array_equal(items, np.argsort(-full[[5, 0]], axis=1)[:, :4])
    np.testing.assert_allclose(scores, -np.sort(-full[[5, 0]], axis=1)[:, :4])


def test_seen_items_are_left_out_and_minus_one_where_none_is_left():
    R = ratings()
    model = ALS(3, random_state=0).fit(R)
    items, _ = model.recommend([3, 4], n=10, seen=R[[3, 4]])
    assert not set(items[0]) & set(R[3].indices)
    everything = sparse.csr_matrix(np.ones((1, 40)))
    everything[0, 7] = 0
    everything.eliminate_zeros()
    items, scores = model.recommend([3], n=3, seen=everything)
    assert items.tolist() == [[7, -1, -1]]
    assert np.isneginf(scores[0, 1:]).all()


def test_similar_items_are_ranked_by_cosine():
    model = ALS(3, random_state=0).fit(ratings())
    unit = model.item_factors_ / np.linalg.norm(model.item_factors_, axis=1, keepdims=True)
    items, cosines = model.similar([4, 9], n=5)
    assert items[:, 0].tolist() == [4, 9]
    np.testing.assert_array_equal(items, np.argsort(-(unit[[4, 9]] @ unit.T), axis=1)[:, :5])
    assert cosines[:, 0] == pytest.approx(1)


def test_new_users_and_items_join_the_model():
    R = ratings()
    model = ALS(3, random_state=0).fit(R)
    factors, biases = model.fold_in(R[:2])
    assert model.add_users(R[:2]).tolist() == [60, 61]
    assert model.shape_ == (62, 40)
    np.testing.assert_array_equal(model.user_factors_[60:], factors)
    np.testing.assert_array_equal(model.user_bias_[60:], biases)
    column = sparse.vstack([R, R[:2]]).tocsc()[:, [5]]
    assert model.add_items(column).tolist() == [40]
    assert model.predict([[61, 40]]).shape == (1,)


def test_users_and_items_without_ratings_get_zeros():
    R = ratings().tolil()
    R[7] = 0
    R[:, 3] = 0
    model = ALS(3, random_state=0).fit(R.tocsr())
    assert not model.user_factors_[7].any()
    assert not model.item_factors_[3].any()
    assert model.predict([[7, 3]]) == pytest.approx([model.mean_])


def test_resume_is_exact(tmp_path):
    R = ratings(dtype=np.float32)
    whole = ALS(3, max_iter=9, tol=0, random_state=0).fit(R)
    part = ALS(3, max_iter=4, tol=0, random_state=0)
    with corollary.Run(tmp_path):
        part.fit(R)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=9).fit(R)
    assert part.user_factors_.dtype == np.float32
    np.testing.assert_array_equal(part.user_factors_, whole.user_factors_)
    np.testing.assert_array_equal(part.item_factors_, whole.item_factors_)


def test_files_keep_the_model(tmp_path):
    model = ALS(3, random_state=0).fit(ratings())
    again = corollary.load(model.save(tmp_path / "als.safetensors"))
    pairs = [[0, 0], [59, 39]]
    np.testing.assert_array_equal(again.predict(pairs), model.predict(pairs))
    assert again.shape_ == (60, 40)


def test_an_explicit_rating_of_zero_counts_and_a_frame_is_taken():
    import pandas as pd

    R = sparse.csr_matrix((np.array([0.0, 4.0, 2.0]), ([0, 0, 1], [0, 1, 1])), shape=(2, 2))
    model = ALS(1, random_state=0).fit(R)
    assert model.mean_ == pytest.approx(2)
    frame = pd.DataFrame({"user": ["a", "a", "b"], "item": ["x", "y", "y"], "rating": [0.0, 4.0, 2.0]})
    again = ALS(1, random_state=0).fit(frame)
    np.testing.assert_allclose(
        again.predict([[1, 0]]), model.predict([[1, 0]]), rtol=1e-5
    )  # frames are float32


def test_bad_input_is_named():
    R = ratings()
    model = ALS(3, random_state=0).fit(R)
    with pytest.raises(
        ValueError, match=r"ALS: X must have one row per user \(60\) and one column per item \(40\); "
        r"got shape \(40, 60\). Pass X.T if rows are items.",
    ):  # fmt: skip
        model.score(R.T)
    with pytest.raises(ValueError, match=r"one column per item \(40\); got shape \(40, 7\). Pass X.T"):
        model.fold_in(R[:7].T)
    with pytest.raises(ValueError, match=r"one row per user \(60\); got shape \(3, 40\)\.$"):
        model.fold_in(R[:3], axis=1)
    with pytest.raises(ValueError, match=r"axis must be 0 \(new users\) or 1 \(new items\); got 2"):
        model.fold_in(R, axis=2)
    with pytest.raises(ValueError, match=r"n_components must be at most .* \(40\); got 41"):
        ALS(41).fit(R)
    with pytest.raises(ValueError, match=r"n must be at most the number of items \(40\); got 41"):
        model.recommend([0], n=41)
    with pytest.raises(ValueError, match="user numbers must lie in 0 to 59; got 60"):
        model.recommend([60])
    with pytest.raises(ValueError, match="item numbers must lie in 0 to 39; got -1"):
        model.similar([-1])
    R = counts()
    R.data[0] = -2
    with pytest.raises(ValueError, match="implicit feedback must be non-negative; got minimum -2"):
        ALS(3, feedback="implicit").fit(R)


def test_implicit_feedback_is_scored_by_rank():
    rng = np.random.default_rng(0)
    R = counts(users=80, items=30, known=900)
    model = ALS(4, feedback="implicit", max_iter=10, random_state=0).fit(R)
    scores = model.user_factors_ @ model.item_factors_.T
    held = sparse.csr_matrix(rng.poisson(0.2, (80, 30)).astype(float))
    coo, total, ranks = held.tocoo(), 0.0, 0.0
    for u, i, r in zip(coo.row, coo.col, coo.data):
        before = (scores[u] > scores[u, i]).sum() + 0.5 * ((scores[u] == scores[u, i]).sum() - 1)
        ranks, total = ranks + r * before / 29, total + r
    assert model.score(held) == pytest.approx(1 - ranks / total, abs=1e-12)
    assert 0.4 < model.score(held) < 0.6  # these counts have nothing to do with the fitted ones
    assert model.score(R) > 0.65
    model.item_factors_[:] = 0
    assert model.score(R) == pytest.approx(0.5)  # equal scores share their places
    with pytest.raises(ValueError, match="ALS: X must have a count above 0 to be scored; got none"):
        model.score(held * 0)


def test_scores_follow_preferences_that_were_held_out():
    rng = np.random.default_rng(1)
    taste, kind = rng.integers(2, size=200), np.arange(60) % 2
    clicks = rng.random((200, 60)) < np.where(taste[:, None] == kind, 0.4, 0.02)
    test = clicks & (rng.random(clicks.shape) < 0.3)
    model = ALS(2, feedback="implicit", alpha=5.0, random_state=0)
    model.fit(sparse.csr_matrix((clicks & ~test).astype(float)))
    # with two kinds of items, those of the right kind fill the first half: a rank of a quarter at best
    assert 0.65 < model.score(sparse.csr_matrix(test.astype(float))) < 0.8
