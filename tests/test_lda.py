"""Latent Dirichlet allocation against scikit-learn, against its definitions, and at its edges."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import digamma
from sklearn.decomposition import LatentDirichletAllocation as Reference

from corollary import PLSA, GaussianMixture, Run, load
from corollary.mixtures import LatentDirichletAllocation as LDA
from corollary.mixtures import lda_collapsed as collapsed
from corollary.mixtures import lda_kernels as kernels
from corollary.mixtures import topics as T

INFERENCES = ("batch", "online", "cvb0", "gibbs")


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(200, 0.05), 5)
    counts = rng.poisson(60 * (rng.dirichlet(np.full(5, 0.2), 300) @ phi))
    return sparse.csr_matrix(counts.astype(np.float64)), phi


# --- the same as scikit-learn ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, schedule",
    [
        ("batch", {}),
        ("online", {}),
        (
            "online",
            {"batch_size": 64, "learning_offset": 64.0, "learning_decay": 0.9, "topic_word_prior": 0.02},
        ),
    ],
    ids=["batch", "online", "online slowly"],
)
def test_topics_bound_and_mixtures_are_scikit_learns(corpus, method, schedule):
    X, _ = corpus
    params = {
        "n_components": 5,
        "max_iter": 3,
        "learning_method": method,
        "random_state": 3,
        "mean_change_tol": 1e-6,
        **schedule,
    }
    ours, theirs = LDA(**params).fit(X), Reference(**params).fit(X)
    # Documents stop at the same update but for rounding at the threshold, hence not 1e-10.
    np.testing.assert_allclose(ours.components_, theirs.components_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        ours.exp_dirichlet_component_, theirs.exp_dirichlet_component_, rtol=1e-4, atol=1e-7
    )
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-5)
    assert ours.bound_ == pytest.approx(theirs.bound_, rel=1e-5)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-6)
    assert ours.perplexity(X, sub_sampling=True) == pytest.approx(
        theirs.perplexity(X, sub_sampling=True), rel=1e-5
    )


def test_partial_fit_is_scikit_learns(corpus):
    X, _ = corpus
    params = {"n_components": 4, "random_state": 0, "total_samples": 600, "batch_size": 50}
    ours, theirs = LDA(**params), Reference(**params)
    for rows in (X[:150], X[150:]):
        ours.partial_fit(rows)
        theirs.partial_fit(rows)
    np.testing.assert_allclose(ours.components_, theirs.components_, rtol=1e-3, atol=1e-4)
    assert ours.n_batch_iter_ == theirs.n_batch_iter_ == 7


def test_evaluation_stops_as_scikit_learns(corpus):
    X, _ = corpus
    params = {"n_components": 3, "max_iter": 50, "evaluate_every": 2, "perp_tol": 5.0, "random_state": 0}
    ours = LDA(**params).fit(X)
    assert ours.n_iter_ < 50
    assert ours.n_iter_ == Reference(**params).fit(X).n_iter_ + 1  # theirs does not count the pass that stops
    assert [row["step"] for row in ours.history_ if "perplexity" in row] == list(
        range(2, ours.n_iter_ + 1, 2)
    )


# --- the pieces ------------------------------------------------------------------------------------------


def test_exp_psi():
    x = np.logspace(-2, 8, 5000).reshape(50, 100)
    np.testing.assert_allclose(kernels.exp_psi(x), np.exp(digamma(x)), rtol=1e-9)
    assert kernels.exp_psi(np.array([[1e-8]]))[0, 0] < 1e-200


def test_alias_tables_give_the_weights_back():
    rng = np.random.default_rng(0)
    nw = rng.integers(0, 9, (4, 7)).astype(np.int32)
    alpha, eta = rng.random(7), 0.3
    weight, chance, other, total = np.empty((4, 7)), np.empty((4, 7)), np.empty((4, 7), np.int32), np.empty(4)
    nk = nw.sum(0).astype(np.int64)
    collapsed.alias_tables(nw, nk, alpha, eta, weight, chance, other, total)
    expected = alpha * (nw + eta) / (nk + 4 * eta)
    np.testing.assert_allclose(total, expected.sum(1), rtol=1e-12)
    for w in range(4):
        drawn = np.zeros(7)
        np.add.at(drawn, np.arange(7), chance[w])
        np.add.at(drawn, other[w], 1 - chance[w])
        np.testing.assert_allclose(drawn / 7, expected[w] / total[w], atol=1e-12)


def test_one_cvb0_update_is_its_equation():
    X = sparse.csr_matrix([[2.0, 1.0]])
    gamma = np.array([[0.3, 0.7], [0.6, 0.4]], np.float32)
    nw = (gamma * X.data[:, None]).astype(np.float32)
    nd = nw.sum(0, keepdims=True)
    expected = (nd[0] - gamma[0] + 0.1) * (nw[0] - gamma[0] + 0.05) / (nw.sum(0) + 2 * 0.05)
    split = np.array([[0, 1, 2]])
    bounds = np.array([0, 0, 1])  # one document, in the second of two blocks: word 1 first, then word 0
    before = gamma.copy()
    collapsed.cvb0_sweep(
        bounds[[0, 2]], split[:, [0, 2]], X.indices, X.data.astype(np.float32), gamma, nd, nw,
        np.full(2, 0.1, np.float32), np.float32(0.05),
    )  # fmt: skip
    np.testing.assert_allclose(gamma[0], expected / expected.sum(), rtol=1e-5)
    assert not np.allclose(gamma[1], before[1])
    np.testing.assert_allclose(nw, gamma * X.data[:, None], rtol=1e-5)
    np.testing.assert_allclose(nd[0], nw.sum(0), rtol=1e-5)


def test_gibbs_draws_from_the_posterior():
    """Two tokens of two words, two topics, an old table: the chain's frequency against the exact probability."""
    alpha, eta, n = np.array([0.5, 0.5]), 0.4, 40000
    word, start, topic = np.array([0, 1], np.int32), np.array([0, 2]), np.array([0, 1], np.int32)
    nw = np.array([[1, 0], [0, 1]], np.int32)
    nk = np.array([1, 1])
    tables = (np.empty((2, 2)), np.empty((2, 2)), np.empty((2, 2), np.int32), np.empty(2))
    stale = np.array([[4, 1], [2, 2]], np.int32)
    collapsed.alias_tables(stale, stale.sum(0).astype(np.int64), alpha, eta, *tables)
    state, together = np.array([12345], np.uint64), 0
    for _ in range(n):
        collapsed._gibbs_block(0, 1, start, word, topic, nw, nk, alpha, eta, *tables, state)
        together += topic[0] == topic[1]
    assert np.array_equal(nw[word, topic], [1, 1]) and np.array_equal(nk, nw.sum(0))
    # Dirichlet-multinomials: in one topic (alpha + 1) eta / (2 eta + 1), apart alpha / 2, both times a constant.
    same, apart = 1.5 * eta / (2 * eta + 1), 0.5 * 0.5
    assert together / n == pytest.approx(same / (same + apart), abs=0.015)  # about 4 standard errors


# --- quality ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inference", "passes"), [("cvb0", 30), ("gibbs", 60)])
def test_collapsed_inference_finds_the_topics(corpus, inference, passes):
    X, phi = corpus
    priors = {"doc_topic_prior": 0.2, "topic_word_prior": 0.05}
    fits = [LDA(5, inference=inference, max_iter=passes, random_state=i, **priors).fit(X) for i in range(3)]
    model = min(fits, key=lambda fit: fit.bound_)  # one start may end with two topics in one
    found = model.components_
    found = found / found.sum(1, keepdims=True)
    distance = 0.5 * np.abs(phi[:, None] - found[None]).sum(-1)
    assert distance.min(1).max() < 0.25  # total variation of each true topic to the nearest found
    assert sorted(distance.argmin(1)) == list(range(5))
    perplexities = [row["perplexity"] for row in model.history_]
    assert perplexities[-1] < 0.8 * perplexities[0]
    assert model.bound_ == perplexities[-1]


def test_held_out_documents_are_predicted_better_than_by_the_variational_bound(corpus):
    X, phi = corpus
    halves = T.halve(X[250:], np.random.default_rng(0))
    priors = {"doc_topic_prior": 0.2, "topic_word_prior": 0.05, "random_state": 0}
    scores = {
        kind: T.completion_perplexity(
            LDA(5, inference=kind, max_iter=20, **priors).fit(X[:250]).components_, halves
        )
        for kind in ("batch", "cvb0")
    }
    assert scores["cvb0"] < scores["batch"]
    assert scores["cvb0"] < 1.15 * T.completion_perplexity(phi, halves)


def test_prior_is_learned_by_the_evidence():
    rng = np.random.default_rng(0)
    alpha = np.array([0.9, 0.3, 0.1])
    counts = np.array([rng.multinomial(200, p) for p in rng.dirichlet(alpha, 3000)])
    found = T.learn_prior(counts, np.full(3, 1 / 3), steps=200)
    np.testing.assert_allclose(found, alpha, rtol=0.06)  # three standard errors for 3000 documents
    assert np.array_equal(T.learn_prior(np.zeros((4, 3)), np.full(3, 0.5)), np.full(3, 0.5))


@pytest.mark.parametrize("inference", INFERENCES)
def test_learned_priors(corpus, inference):
    X, _ = corpus
    params = {"inference": inference, "max_iter": 10, "random_state": 0}
    evidence = LDA(5, learn_prior="evidence", **params).fit(X)
    assert evidence.doc_topic_prior_.shape == (5,)
    assert np.ptp(evidence.doc_topic_prior_) > 0
    held = LDA(5, learn_prior="held-out", **params).fit(X)
    assert 1e-3 < held.doc_topic_prior_ < 1
    assert held.doc_topic_prior_ != 0.2
    assert held.transform(X).shape == (300, 5)


# --- exactness -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", INFERENCES)
def test_threads_change_nothing(corpus, inference):
    X, _ = corpus
    one, two = (LDA(4, inference=inference, max_iter=4, n_jobs=n, random_state=0).fit(X) for n in (1, 2))
    assert np.array_equal(one.components_, two.components_)


@pytest.mark.parametrize("inference", INFERENCES)
def test_a_resumed_fit_is_an_uninterrupted_one(corpus, inference, tmp_path):
    X, _ = corpus
    params = {"inference": inference, "random_state": 0, "learn_prior": "evidence", "n_components": 4}
    whole = LDA(max_iter=12, **params).fit(X)
    with Run(tmp_path, checkpoint_every=0, callbacks=[lambda event: event.step == 7]):
        LDA(max_iter=12, **params).fit(X)
    _forget_the_stop(tmp_path)
    with Run(tmp_path, resume=True):
        resumed = LDA(max_iter=12, **params).fit(X)
    assert resumed.n_iter_ == 12
    assert np.array_equal(resumed.components_, whole.components_)
    assert np.array_equal(resumed.doc_topic_prior_, whole.doc_topic_prior_)


def _forget_the_stop(folder):
    """Make a checkpoint look as if the power had failed: it then does not say that a callback stopped it."""
    from corollary import io

    for path in (folder / "checkpoints").rglob("*.safetensors"):
        document = io.read(path, "checkpoint")
        document["journal"]["stopped"] = ""
        io.write(path, document, "checkpoint")


@pytest.mark.parametrize("inference", INFERENCES)
def test_dense_sparse_and_unsorted_are_one(corpus, inference):
    X = corpus[0][:60]
    shuffled = X.copy()
    for i in range(X.shape[0]):
        rows = slice(X.indptr[i], X.indptr[i + 1])
        shuffled.indices[rows], shuffled.data[rows] = X.indices[rows][::-1], X.data[rows][::-1]
    shuffled.has_sorted_indices = False
    before = shuffled.indices.copy()
    models = [
        LDA(3, inference=inference, max_iter=3, random_state=0).fit(x) for x in (X, X.toarray(), shuffled)
    ]
    assert np.array_equal(shuffled.indices, before)
    for other in models[1:]:
        assert np.array_equal(models[0].components_, other.components_)


@pytest.mark.parametrize("inference", ["cvb0", "gibbs"])
def test_empty_documents_and_words(inference):
    X = sparse.csr_matrix(np.array([[3.0, 0, 1], [0, 0, 0], [0, 0, 2]]))
    model = LDA(2, inference=inference, max_iter=5, random_state=0).fit(X)
    assert np.isfinite(model.components_).all()
    np.testing.assert_allclose(model.transform(X)[1], [0.5, 0.5])
    assert model.components_.sum() == pytest.approx(6 + 2 * 3 * 0.5, rel=1e-5)


def test_more_topics_than_documents():
    model = LDA(6, inference="cvb0", max_iter=3, random_state=0).fit([[1, 2], [2, 1]])
    assert model.components_.shape == (6, 2)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("inference", INFERENCES)
def test_types_are_kept(corpus, inference, kind):
    X = corpus[0][:50].astype(kind)
    model = LDA(3, inference=inference, max_iter=2, random_state=0).fit(X)
    assert model.components_.dtype == model.transform(X).dtype == kind


def test_a_loaded_model_goes_on(corpus, tmp_path):
    X, _ = corpus
    model = LDA(3, max_iter=2, random_state=0).fit(X)
    loaded = load(model.save(tmp_path / "lda.safetensors"))
    assert np.array_equal(loaded.transform(X), model.transform(X))
    assert loaded.partial_fit(X[:40]).n_batch_iter_ == 4


# --- complaints ------------------------------------------------------------------------------------------


def test_complaints(corpus):
    X, _ = corpus
    with pytest.raises(ValueError, match="Negative values in data passed to LatentDirichletAllocation.fit"):
        LDA().fit([[1, -1]])
    with pytest.raises(
        ValueError, match=r"needs whole counts; got 0\.5\. Round them, or use inference='cvb0'"
    ):
        LDA(inference="gibbs").fit([[1, 0.5], [1, 2]])
    with pytest.raises(ValueError, match="needs at least two documents; got 1"):
        LDA(learn_prior="held-out").fit([[1, 2]])
    with pytest.raises(ValueError, match="needs words in the documents left out; got none"):
        LDA(learn_prior="held-out", random_state=0).fit(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="'inference' parameter"):
        LDA(inference="exact").fit(X)
    model = LDA(3, max_iter=1, random_state=0).fit(X)
    with pytest.raises(ValueError, match="Number of samples must be 300; got 2"):
        model._perplexity_precomp_distr(X, np.ones((2, 3)))
    with pytest.raises(ValueError, match="Number of topics must be 3; got 2"):
        model._perplexity_precomp_distr(X, np.ones((300, 2)))
    with pytest.raises(ValueError, match="n_top must lie between 2 and the 200 words; got 1"):
        T.coherence(model.components_, X, 1)


# --- topics ----------------------------------------------------------------------------------------------


def test_fold_in_climbs_to_the_maximum():
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    theta = T.fold_in(sparse.csr_matrix([[7.0, 4, 5], [0, 0, 0]]), topics, tol=1e-12, max_iter=5000)
    grid = np.linspace(0, 1, 100001)
    likelihood = np.array([7, 4, 5]) @ np.log(np.outer(topics[0], grid) + np.outer(topics[1], 1 - grid))
    assert theta[0, 0] == pytest.approx(grid[likelihood.argmax()], abs=1e-4)
    np.testing.assert_allclose(theta[1], [0.5, 0.5])


def test_completion_perplexity_by_hand():
    halves = T.Halves(sparse.csr_matrix([[0.0, 0]]), sparse.csr_matrix([[3.0, 1]]))
    found = T.completion_perplexity(np.array([[0.8, 0.2], [0.4, 0.6]]), halves, alpha=1.0)
    assert found == pytest.approx(np.exp(-(3 * np.log(0.6) + np.log(0.4)) / 4), rel=1e-9)


def test_halves_add_up(corpus):
    X, _ = corpus
    halves = T.halve(X, np.random.default_rng(0))
    assert (halves.seen + halves.rest != X).nnz == 0
    assert 0.4 < halves.seen.sum() / X.sum() < 0.6


def test_coherence_extremes():
    X = np.array([[1, 1, 0, 0, 1], [1, 1, 0, 0, 1], [0, 0, 1, 0, 1], [0, 0, 0, 1, 1]])
    topics = np.array([[9, 8, 0, 0, 0], [0, 0, 9, 8, 0], [9, 0, 0, 0, 8.0]])
    np.testing.assert_allclose(T.coherence(topics, X, 2), [1, -1, 0], atol=1e-12)
    assert T.coherence(np.array([[1, 2.0]]), np.ones((3, 2)), 2) == [1.0]


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["batch", "online"])
def test_two_processes_give_the_topics_of_one(corpus, inference):
    X = corpus[0][:101]
    params = {"n_components": 3, "inference": inference, "max_iter": 3, "random_state": 0}
    one = LDA(**params).fit(X)
    with Run(processes=2):
        two = LDA(**params).fit(X)
    np.testing.assert_allclose(two.components_, one.components_, rtol=1e-9)  # sums in another order


@pytest.mark.slow
def test_two_processes_share_collapsed_inference(corpus):
    X = corpus[0]
    one = LDA(5, inference="cvb0", max_iter=15, random_state=0).fit(X)
    with Run(processes=2):
        two = LDA(5, inference="cvb0", max_iter=15, random_state=0).fit(X)
    assert two.bound_ == pytest.approx(one.bound_, rel=0.02)  # each sees the other's changes a sweep later
    assert two.components_.sum() == pytest.approx(one.components_.sum(), rel=1e-4)


def test_raw_texts_become_topics_of_content_words(tmp_path):
    rng = np.random.default_rng(0)
    subjects = [["sea", "ship", "wave", "sailor"], ["oven", "bread", "flour", "yeast"]]
    texts = [f"the {' and the '.join(rng.choice(subjects[i % 2], 6))} of it was in a" for i in range(60)]
    model = LDA(2, max_iter=30, random_state=0).fit(texts)
    top = model.top_words(4)
    assert sorted(map(sorted, top)) == sorted(map(sorted, subjects))  # no "the", no "and"
    again = load(model.save(tmp_path / "lda.safetensors"))
    np.testing.assert_array_equal(again.transform(texts[:3]), model.transform(np.array(texts[:3])))
    german = ["das ist der Wagen und die Straße", "das ist die Straße und der Wagen"] * 3
    assert {"wagen", "straße"} == set(PLSA(1).fit(german).top_words()[0])
    numbers = LDA(2, random_state=0).fit(np.eye(3))
    assert {word for row in numbers.top_words(2) for word in row} <= {"0", "1", "2"}
    with pytest.raises(ValueError, match="numbers of shape .*; got 2 texts. Use a model of texts"):
        GaussianMixture().fit(["one", "two"])
