"""GloVe and the eigenvectors of co-occurrence."""

import numpy as np
import pytest
from scipy import sparse

from corollary import Run, load
from corollary.embeddings import CooccurrenceEmbedding, GloVe, window_counts
from corollary.embeddings import corpus as C
from corollary.embeddings.cooccurrence import eigen_embedding, pmi
from corollary.embeddings.glove import AdaGrad, glove_loss, weights

TOPICS = (["sun", "warm", "sea", "sand"], ["snow", "cold", "ice", "frost"])


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [[*rng.choice(TOPICS[i % 2], size=8), "the"] for i in range(400)]


def counts(texts, model, harmonic):
    index = {word: i for i, word in enumerate(model.words_)}
    return window_counts(C.encode(texts, index), len(index), model.window, harmonic=harmonic)


# --- GloVe -----------------------------------------------------------------------------------------------


def test_weights_and_loss_by_hand():
    np.testing.assert_allclose(weights(np.array([1.0, 50, 100, 900]), 100, 0.5), [0.1, 0.5**0.5, 1, 1])
    N = sparse.csr_matrix(np.array([[0, 4.0], [0, 0]]))  # v = 0, w = 1
    inputs, outputs = np.array([[9, 9.0], [1, 2]]), np.array([[3, 1.0], [9, 9]])
    a, b = np.array([9, 0.5]), np.array([0.25, 9])
    expected = 0.2 * (5 + 0.5 + 0.25 - np.log(4)) ** 2
    assert glove_loss(N, inputs, outputs, a, b, 100, 0.5) == pytest.approx(expected)


def test_a_sweep_is_the_reference_loop():
    rng = np.random.default_rng(0)
    N = sparse.random(
        12, 12, density=0.4, random_state=0, data_rvs=lambda n: rng.uniform(0.5, 200, n)
    ).tocsr()
    learner = AdaGrad(N, GloVe(5, epochs=2), 1, seed=7)
    x, z = learner.inputs.astype(float), learner.outputs.astype(float)
    a, b, G, H, g, h = (
        np.zeros(12),
        np.zeros(12),
        np.ones((12, 5)),
        np.ones((12, 5)),
        np.ones(12),
        np.ones(12),
    )
    entries, total = N.tocoo(), 0.0
    for e in np.random.default_rng([7, 1]).permutation(N.nnz):
        v, w, n = entries.row[e], entries.col[e], entries.data[e]
        f = min(1, (n / 100) ** 0.75)
        r = x[w] @ z[v] + a[w] + b[v] - np.log(n)
        total += f * r * r
        gx, gz, c = 2 * f * r * z[v], 2 * f * r * x[w], 2 * f * r
        x[w] -= 0.05 * gx / np.sqrt(G[w])
        z[v] -= 0.05 * gz / np.sqrt(H[v])
        a[w] -= 0.05 * c / np.sqrt(g[w])
        b[v] -= 0.05 * c / np.sqrt(h[v])
        G[w], H[v], g[w], h[v] = G[w] + gx**2, H[v] + gz**2, g[w] + c**2, h[v] + c**2
    found = learner.step()
    assert found["loss"] == pytest.approx(total / N.nnz, rel=1e-4)
    for ours, theirs in ((learner.inputs, x), (learner.outputs, z), (learner.a, a), (learner.b, b)):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)  # float32 sums


def test_glove_learns(texts):
    model = GloVe(8, epochs=60, random_state=0).fit(texts)
    assert {w for w, _ in model.most_similar("sun", n=3)} == {"warm", "sea", "sand"}
    losses = [row["loss"] for row in model.history_]
    assert losses[-1] < 0.1 * losses[0]
    N = counts(texts, model, harmonic=True)
    tables = (model.input_vectors_, model.output_vectors_, model.input_bias_, model.output_bias_)
    assert glove_loss(N, *tables, 100, 0.75) / N.nnz < losses[-1] * 1.5
    np.testing.assert_array_equal(model.vectors_, model.input_vectors_ + model.output_vectors_)


def test_without_biases_it_factorises(texts):
    model = GloVe(9, bias=False, alpha=0.0, epochs=400, learning_rate=0.1, random_state=0).fit(texts)
    assert not model.input_bias_.any()
    N = counts(texts, model, harmonic=True).tocoo()
    product = model.output_vectors_ @ model.input_vectors_.T
    np.testing.assert_allclose(product[N.row, N.col], np.log(N.data), atol=0.1)


def test_glove_resumes_exactly(texts, tmp_path):
    whole = GloVe(4, epochs=6, random_state=0).fit(texts)
    with Run(tmp_path):
        GloVe(4, epochs=3, random_state=0).fit(texts)
    with Run(tmp_path, resume=True):
        resumed = GloVe(4, epochs=6, random_state=0).fit(texts)
    assert resumed.n_iter_ == 6
    assert np.array_equal(resumed.vectors_, whole.vectors_)
    threaded = GloVe(8, epochs=60, deterministic=False, n_jobs=2).fit(texts)
    assert {w for w, _ in threaded.most_similar("ice", n=3)} == {"snow", "cold", "frost"}


# --- co-occurrence ---------------------------------------------------------------------------------------


def test_pmi_by_its_definition():
    N = np.array([[4.0, 2, 0], [2, 0, 6], [0, 6, 1]])
    P, p = N / N.sum(), N.sum(0) / N.sum()
    with np.errstate(divide="ignore"):
        expected = np.where(N > 0, np.log(P / np.outer(p, p)), 0)
    np.testing.assert_allclose(pmi(sparse.csr_matrix(N), positive=False).toarray(), expected, atol=1e-12)
    found = pmi(sparse.csr_matrix(N))
    np.testing.assert_allclose(found.toarray(), np.maximum(expected, 0), atol=1e-12)
    assert found.nnz == (expected > 0).sum()
    independent = pmi(sparse.csr_matrix(np.outer([1.0, 2, 3], [1.0, 2, 3])), positive=False)
    np.testing.assert_allclose(independent.toarray(), 0, atol=1e-12)


@pytest.mark.parametrize("k", [3, 14, 15])
def test_eigenvectors_of_an_indefinite_matrix(k):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(15, 15))
    A = A + A.T
    E, values = eigen_embedding(sparse.csr_matrix(A), k, rng)
    exact, vectors = np.linalg.eigh(A)
    order = np.argsort(-np.abs(exact))[:k]
    np.testing.assert_allclose(values, exact[order], rtol=1e-9)
    assert (values < 0).any() and (values > 0).any()
    best = vectors[:, order] * exact[order] @ vectors[:, order].T
    np.testing.assert_allclose(E * np.sign(values) @ E.T, best, atol=1e-9)
    assert (E[np.abs(E).argmax(axis=0), np.arange(k)] > 0).all()


@pytest.mark.parametrize("measure", ["ppmi", "pmi", "log", "count"])
def test_cooccurrence_embeds_topics(texts, measure, tmp_path):
    model = CooccurrenceEmbedding(3, measure=measure, random_state=0).fit(texts)
    N = counts(texts, model, harmonic=False)
    assert (model.cooccurrences_ != N).nnz == 0
    chosen = {"count": N, "log": N.log1p(), "pmi": pmi(N, positive=False), "ppmi": pmi(N)}[measure]
    np.testing.assert_allclose(
        model.eigenvalues_, eigen_embedding(chosen, 3, np.random.default_rng(1))[1], rtol=1e-8
    )
    assert {w for w, _ in model.most_similar("frost", n=3)} == {"snow", "cold", "ice"}
    loaded = load(model.save(tmp_path / "model.safetensors"))
    assert loaded.most_similar("frost") == model.most_similar("frost")


def test_complaints(texts):
    with pytest.raises(ValueError, match=r"dimension must be at most the number of words \(9\); got 10"):
        CooccurrenceEmbedding(10).fit(texts)
    for model in (GloVe(), CooccurrenceEmbedding()):
        name = type(model).__name__
        with pytest.raises(ValueError, match=f"{name}: at least two words must occur min_count=5 times"):
            model.fit(["one two"])
        with pytest.raises(ValueError, match=f"{name}: some text must have two known words"):
            model.set_params(min_count=1).fit(["one", "two"])
