"""Probabilistic latent semantic analysis: EM, KL-NMF, edges."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import NMF

from corollary import Run
from corollary.mixtures import PLSA
from corollary.mixtures.plsa import EM


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(80, 0.05), 4)
    return rng.poisson(80 * (rng.dirichlet(np.full(4, 0.2), 120) @ phi)).astype(np.float64)


def test_one_sweep_is_the_equation(counts):
    rng = np.random.default_rng(1)
    N = counts[:7]
    topics, mixtures = rng.dirichlet(np.ones(80), 3).T.copy(), rng.dirichlet(np.ones(3), 7)
    q = topics[None] * mixtures[:, None]  # (documents, words, topics)
    q /= q.sum(-1, keepdims=True)
    mass = N[:, :, None] * q
    learner = EM(sparse.csr_matrix(N), topics.copy(), mixtures.copy(), 1, 0.0, None)
    found = learner.step()
    np.testing.assert_allclose(learner.topics, mass.sum(0) / mass.sum((0, 1)), rtol=1e-12)
    np.testing.assert_allclose(learner.mixtures, mass.sum(1) / N.sum(1, keepdims=True), rtol=1e-12)
    expected = (N * np.log(mixtures @ topics.T)).sum() / N.sum()
    assert found["log_likelihood"] == pytest.approx(expected, rel=1e-12)


def test_one_sweep_is_kl_nmf_then_normalised(counts):
    rng = np.random.default_rng(2)
    N, length = counts, counts.sum(1, keepdims=True)
    topics, mixtures = rng.dirichlet(np.ones(80), 3).T.copy(), rng.dirichlet(np.ones(3), 120)
    W, H = length * mixtures, topics.T
    ratio = N / (W @ H)
    W_next = W * (ratio @ H.T) / H.sum(1)
    H_next = H * (W.T @ ratio) / W.sum(0)[:, None]
    learner = EM(sparse.csr_matrix(N), topics, mixtures, 1, 0.0, None)
    learner.step()
    np.testing.assert_allclose(learner.mixtures, W_next / W_next.sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(learner.topics.T, H_next / H_next.sum(1, keepdims=True), rtol=1e-10)


def test_likelihood_is_kl_nmfs(counts):
    def fitted(seed):
        model = NMF(
            4,
            beta_loss="kullback-leibler",
            solver="mu",
            init="random",
            max_iter=400,
            tol=0,
            random_state=seed,
        )
        P = model.fit_transform(counts) @ model.components_
        return (counts * np.log(np.maximum(P / P.sum(1, keepdims=True), 1e-300))).sum() / counts.sum()

    theirs = max(fitted(seed) for seed in range(2))
    ours = max(
        PLSA(4, max_iter=400, tol=0.0, random_state=seed).fit(counts).log_likelihood_ for seed in range(2)
    )
    assert ours == pytest.approx(theirs, abs=0.02)  # both climb to a local maximum


def test_likelihood_never_falls(counts):
    model = PLSA(5, max_iter=60, tol=0.0, random_state=0).fit(counts)
    rises = np.diff([row["log_likelihood"] for row in model.history_])
    assert rises.min() > -1e-12
    np.testing.assert_allclose(model.components_.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(model.mixtures_.sum(1), 1, rtol=1e-12)


def test_a_converged_fit_stops_and_its_documents_are_where_they_were(counts):
    model = PLSA(4, max_iter=3000, tol=1e-8, random_state=0).fit(sparse.csr_matrix(counts))
    assert model.n_iter_ < 3000
    np.testing.assert_allclose(model.transform(counts), model.mixtures_, atol=0.02)
    assert model.score(counts) == pytest.approx(model.log_likelihood_, abs=1e-3)
    assert model.perplexity(counts) == pytest.approx(np.exp(-model.log_likelihood_), rel=1e-3)
    back = model.inverse_transform(model.mixtures_)
    np.testing.assert_allclose(back.sum(1), 1, rtol=1e-9)


def test_resume_threads_and_types(counts, tmp_path):
    whole = PLSA(4, max_iter=9, tol=0.0, random_state=0).fit(counts)
    with Run(tmp_path):
        PLSA(4, max_iter=4, tol=0.0, random_state=0).fit(counts)
    with Run(tmp_path, resume=True):
        resumed = PLSA(4, max_iter=9, tol=0.0, random_state=0, n_jobs=1).fit(counts)
    assert np.array_equal(resumed.components_, whole.components_)
    assert np.array_equal(resumed.mixtures_, whole.mixtures_)
    single = PLSA(4, max_iter=9, tol=0.0, random_state=0).fit(counts.astype(np.float32))
    assert single.components_.dtype == single.transform(counts.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.components_, whole.components_, atol=1e-4)


def test_empty_documents_and_unseen_words():
    X = np.array([[3.0, 0, 1], [0, 0, 0], [0, 0, 2]])
    model = PLSA(2, random_state=0).fit(X)
    np.testing.assert_allclose(model.mixtures_[1], [0.5, 0.5])
    np.testing.assert_allclose(model.components_[:, 1], 0, atol=1e-12)
    np.testing.assert_allclose(model.transform([[0.0, 4, 0]]).sum(1), 1)


def test_complaints():
    with pytest.raises(ValueError, match="Negative values in data passed to PLSA.fit"):
        PLSA().fit([[1, -1]])
    with pytest.raises(ValueError, match="PLSA: some document must have words; got counts that are all zero"):
        PLSA().fit(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="'n_components' parameter"):
        PLSA(0).fit([[1, 2]])
