import copy

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
    ridge = weights(R) @ (U**2).sum(1) + weights(R.T) @ (V**2).sum(1)
    if model.feedback == "implicit":
        data = ((1 + model.alpha * R.toarray()) * (known - U @ V.T) ** 2).sum()
    else:
        data = ((R.toarray() - model.mean_ - b[:, None] - c - U @ V.T)[known] ** 2).sum()
    return data + model.regularization * ridge + model.damping * ((b**2).sum() + (c**2).sum())


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
    ridges = np.full(Y.shape[1], ridge)
    ridges[V.shape[1] :] = model.damping  # of the bias
    A = Y.T @ Y + np.diag(ridges)
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
    model = ALS(2, regularization=1e-3, damping=0.01, max_iter=100, random_state=0).fit(R)
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
    items, scores = model.recommend([5, 0], n=4, seen=None)
    np.testing.assert_array_equal(items, np.argsort(-full[[5, 0]], axis=1)[:, :4])
    np.testing.assert_allclose(scores, -np.sort(-full[[5, 0]], axis=1)[:, :4])


def test_seen_items_are_left_out_and_minus_one_where_none_is_left():
    R = ratings()
    model = ALS(3, random_state=0).fit(R)
    items, scores = model.recommend([3, 4], n=10, seen=R[[3, 4]])
    assert not set(items[0]) & set(R[3].indices)
    for a, b in zip(model.recommend([3, 4], n=10), (items, scores)):  # what was fitted, without being told
        np.testing.assert_array_equal(a, b)
    assert set(model.recommend([3], n=40, seen=None)[0][0]) == set(range(40))
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
        again.predict([("b", "x")]), model.predict([[1, 0]]), rtol=1e-5
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
    with pytest.raises(ValueError, match=r"n must be at most the number of users \(60\); got 61"):
        model.similar_users([0], n=61)
    with pytest.raises(ValueError, match="seen must be ratings, None or 'fitted'; got 'all'"):
        model.recommend([0], seen="all")
    with pytest.raises(ValueError, match="item numbers must lie in 0 to 39; got 40"):
        model.recommend([0], exclude=[40])
    with pytest.raises(ValueError, match="one row for each of 1 different users; got 2 rows for 2 users"):
        model.update_users([3, 3], R[:2])
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


# --- implicit's own methods, with the same factors --------------------------------------------------------


@pytest.fixture(scope="module")
def both():
    """Return our model and implicit's with the same factors, the counts, and the confidences that implicit takes."""
    peer = pytest.importorskip("implicit.cpu.als")
    R = counts().astype(np.float32)
    options = {"regularization": 0.3, "random_state": 0}
    ours = ALS(5, feedback="implicit", alpha=2.0, scale_by_count=False, max_iter=4, **options).fit(R)
    theirs = peer.AlternatingLeastSquares(factors=5, alpha=1.0, num_threads=1, **options)
    C = R.copy()
    C.data = 1 + 2 * C.data
    theirs.user_factors, theirs.item_factors = ours.user_factors_.copy(), ours.item_factors_.copy()
    return ours, theirs, R, C


@pytest.mark.filterwarnings("ignore")
def test_rankings_and_filters_are_those_of_implicit(both):
    ours, theirs, R, C = both
    users = np.array([3, 0, 11])
    for mine, names in [
        ({}, {}),
        ({"seen": None}, {"filter_already_liked_items": False}),
        ({"exclude": [1, 5, 7]}, {"filter_items": [1, 5, 7]}),
        ({"items": [2, 4, 9, 12, 20, 21, 22, 23]}, {"items": [2, 4, 9, 12, 20, 21, 22, 23]}),
    ]:
        items, scores = ours.recommend(users, 3, **mine)
        expected, worth = theirs.recommend(users, C[users], N=3, **names)
        real = items >= 0  # where none is left, implicit repeats items with the lowest number there is
        np.testing.assert_array_equal(items[real], expected[real])
        np.testing.assert_allclose(scores[real], worth[real], rtol=1e-4, atol=1e-5)
    near, cosines = ours.similar_users(users, 4)
    expected, worth = theirs.similar_users(users, N=4)
    np.testing.assert_array_equal(near, expected)
    np.testing.assert_allclose(cosines, worth, rtol=1e-4)  # float32 in both


@pytest.mark.filterwarnings("ignore")
def test_known_users_are_computed_anew_as_by_implicit(both):
    ours, theirs, R, C = both
    users = [4, 2]
    new = R[[10, 12]]
    expected = theirs.recalculate_user(users, C[[10, 12]])
    model = copy.deepcopy(ours)
    model.update_users(users, new)
    # Its Cholesky factors and our conjugate gradients solve the same equations in float32.
    np.testing.assert_allclose(model.user_factors_[users], expected, rtol=1e-3, atol=1e-4)
    others = np.setdiff1d(np.arange(len(ours.user_factors_)), users)
    np.testing.assert_array_equal(model.user_factors_[others], ours.user_factors_[others])
    assert (model.ratings_[users] != new).nnz == 0 and (model.ratings_[others] != R[others]).nnz == 0
    assert not set(model.recommend([4], 5)[0][0]) & set(new[0].indices)


@pytest.mark.filterwarnings("ignore")
def test_explanations_are_those_of_implicit(both):
    ours, theirs, R, C = both
    for user, item in [(0, 3), (7, 20), (11, 1)]:
        total, top, _ = theirs.explain(user, C, item, N=4)
        ours_is = ours.explain(user, item, n=4)
        assert ours_is.score == pytest.approx(total, rel=1e-3, abs=1e-4)
        assert ours_is.items.tolist() == [i for i, _ in top]
        np.testing.assert_allclose(ours_is.contributions, [s for _, s in top], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_explanations_of_explicit_ratings_add_up(bias):
    R = ratings()
    model = ALS(3, bias=bias, max_iter=40, cg_steps=8, random_state=0).fit(R)
    model.update_users(np.arange(60), R)  # so that every user's equations hold exactly
    for user, item in [(0, 3), (17, 20)]:
        why = model.explain(user, item, n=100)
        assert sorted(why.items) == sorted(R[user].indices)
        assert why.score == pytest.approx(why.baseline + why.contributions.sum())
        assert why.score == pytest.approx(float(model.predict([[user, item]])[0]), rel=1e-5)
        assert (np.diff(why.contributions) <= 0).all()


def test_more_components_than_users():
    R = ratings()[:6]
    model = ALS(50, random_state=0, regularization=0.01, max_iter=30).fit(R)
    assert model.user_factors_.shape == (6, 50)
    assert np.sqrt(np.mean((model.predict(np.column_stack(R.nonzero())) - R.data) ** 2)) < 0.5


def test_what_was_fitted_is_saved_and_grows(tmp_path):
    R = ratings()
    model = ALS(3, random_state=0).fit(R)
    model.add_users(R[:2])
    model.add_items(sparse.vstack([R[:, :1], R[:2, :1]]))
    assert model.ratings_.shape == model.shape_ == (62, 41)
    loaded = corollary.load(model.save(tmp_path / "als.safetensors"))
    np.testing.assert_array_equal(loaded.recommend([61], 5)[0], model.recommend([61], 5)[0])
    assert not set(loaded.recommend([61], 5)[0][0]) & set(R[1].indices)


def test_the_chosen_penalty_follows_noise_and_unit():
    noisy, clear = (ratings(300, 200, 15000) for _ in range(2))
    noisy.data += 3 * np.random.default_rng(1).standard_normal(noisy.nnz)
    found = {name: ALS(4, random_state=0).fit(R) for name, R in (("noisy", noisy), ("clear", clear))}
    assert found["noisy"].regularization_ > 3 * found["clear"].regularization_
    for R, model in ((noisy, found["noisy"]), (clear, found["clear"])):
        in_percent = ALS(4, random_state=0, damping=5).fit(100 * R)
        assert in_percent.regularization_ == pytest.approx(100 * model.regularization_)
    again = ALS(4, regularization=found["noisy"].regularization_, random_state=0).fit(noisy)
    np.testing.assert_array_equal(again.user_factors_, found["noisy"].user_factors_)  # trials leave no trace


def test_noise_is_not_predicted_worse_than_by_means():
    """Ratings without any taste in them: the factors must not make it worse than the biases alone."""
    rng = np.random.default_rng(0)
    u, i = np.divmod(rng.choice(500 * 300, 20000, replace=False), 300)
    values = 3 + 0.3 * rng.standard_normal(500)[u] + rng.standard_normal(20000)
    R, held = (
        sparse.csr_matrix((values[part], (u[part], i[part])), shape=(500, 300))
        for part in (slice(2000, None), slice(2000))
    )
    means = corollary.BiasBaseline().fit(R).score(held)
    assert ALS(random_state=0).fit(R).score(held) > means - 0.01
    assert (
        ALS(random_state=0, regularization=0.05).fit(R).score(held) < means - 0.1
    )  # so that the test can fail


@pytest.mark.parametrize(("feedback", "factors"), [("explicit", 16), ("implicit", 64)])
def test_the_usual_number_of_factors(feedback, factors):
    model = ALS(feedback=feedback, max_iter=1, random_state=0).fit(counts())
    assert model.user_factors_.shape == (60, factors) and model.item_factors_.shape == (40, factors)
