"""Skip-gram: the loss and its steps, the full softmax, gensim's files, edges."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from scipy.special import log_softmax

from corollary import Run, create, load
from corollary.embeddings import KeyedVectors, SkipGram, read_word2vec, window_counts
from corollary.embeddings import corpus as C
from corollary.embeddings import skipgram_kernels as K
from corollary.embeddings.skipgram import keep_probabilities
from corollary.errors import CorollaryWarning

TOPICS = (["sun", "warm", "sea", "sand"], ["snow", "cold", "ice", "frost"])


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [[*rng.choice(TOPICS[i % 2], size=8), "the"] for i in range(400)]


@pytest.fixture(scope="module")
def model(texts):
    return SkipGram(12, epochs=8, random_state=0, subsample=0, learning_rate=0.1).fit(texts)


# --- the pieces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(3, 4), (5, 6), (2, 9)])
def test_one_step_is_the_gradient_of_the_loss(n, m):
    rng = np.random.default_rng(0)
    inputs, outputs = (
        rng.normal(scale=0.7, size=(20, 10)).astype(np.float32) for _ in range(2)
    )  # scores below 8
    contexts, targets = np.arange(n), rng.permutation(20)[:m]
    before = inputs.astype(np.float64), outputs.astype(np.float64)
    width = -(-m // K.BLOCK) * K.BLOCK
    Z, X, G = (
        np.zeros((width, 10), np.float32),
        np.zeros((n + 4, 10), np.float32),
        np.ones((n + 4, width), np.float32),
    )
    loss = K._position(contexts, n, targets, m, inputs, outputs, np.float32(0.1), K.sigmoid_table(), Z, X, G)
    x, o = before[0][contexts], before[1][targets]
    sign = np.where(np.arange(m) == 0, 1.0, -1.0)
    scores = sign * (x @ o.T)
    slope = sign / (1 + np.exp(scores))  # of log sigma(sign * score)
    tolerance = 0.1 * 16 / K.GRID * 8  # a cell of the grid, times the largest sums
    assert loss == pytest.approx(np.logaddexp(0, -scores).sum(), rel=1e-2)
    np.testing.assert_allclose(inputs[contexts] - x, 0.1 * slope @ o, atol=tolerance)
    np.testing.assert_allclose(outputs[targets] - o, 0.1 * slope.T @ x, atol=tolerance)
    untouched = np.setdiff1d(np.arange(20), targets)
    assert np.array_equal(outputs[untouched], before[1][untouched].astype(np.float32))


def test_noise_has_the_right_frequencies():
    counts = np.array([1000, 100, 10, 1])
    table = K.noise_table(counts, 0.75)
    assert len(table) == 2**20
    expected = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(np.bincount(table) / len(table), expected, atol=1e-6)


def test_frequent_words_are_passed_over():
    keep = keep_probabilities(np.array([900_000, 99_990, 10]), 1e-3)
    assert keep[0] == pytest.approx((np.sqrt(0.9 / 1e-3) + 1) * 1e-3 / 0.9)
    assert keep[2] == 1
    assert np.array_equal(keep_probabilities(np.array([5, 1]), 0), [1, 1])


def test_window_counts_by_brute_force():
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 7, n) for n in (0, 1, 5, 30)]
    start = np.concatenate([[0], np.cumsum([len(t) for t in texts])])
    corpus = C.Corpus(np.concatenate(texts).astype(np.int32), start)
    for harmonic in (False, True):
        expected = np.zeros((7, 7))
        for text in texts:
            for i, w in enumerate(text):
                for j, v in enumerate(text):
                    if 1 <= abs(i - j) <= 3:
                        expected[v, w] += 1 / abs(i - j) if harmonic else 1
        np.testing.assert_allclose(
            window_counts(corpus, 7, 3, harmonic=harmonic).toarray(), expected, rtol=1e-6
        )


def test_window_counts_do_not_depend_on_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    corpus = C.Corpus(rng.integers(0, 5, 100).astype(np.int32), np.array([0, 33, 64, 100]))
    whole = window_counts(corpus, 5, 4).toarray()
    monkeypatch.setattr(C, "CHUNK", 7)
    assert np.array_equal(window_counts(corpus, 5, 4).toarray(), whole)


# --- what is learned -------------------------------------------------------------------------------------


def test_neighbours_are_of_the_topic(model):
    for topic in TOPICS:
        for word in topic:
            found = {w for w, _ in model.most_similar(word, n=3)}
            assert found == set(topic) - {word}
    assert model.similarity("sun", "sea") > 0.9 > 0.5 > model.similarity("sun", "ice")
    losses = [row["loss"] for row in model.history_]
    assert losses[-1] < losses[0]
    assert losses[0] < 6 * np.log(2) + 0.1  # at the start every pair costs log 2 per target


def test_the_optimum_is_shifted_pmi():
    """On a tiny vocabulary the scores are the log-odds of true pairs against drawn ones."""
    rng = np.random.default_rng(0)
    joint = np.array([[0.30, 0.10, 0.05], [0.10, 0.15, 0.05], [0.05, 0.05, 0.15]])
    pairs = rng.choice(9, size=60000, p=joint.ravel())
    texts = [[f"w{i // 3}", f"w{i % 3}"] for i in pairs]
    fit = SkipGram(
        3, window=1, negative=2, alpha=1.0, subsample=0, epochs=12, learning_rate=0.05, random_state=0
    )
    fit.fit(texts)
    order = [fit.words_.index(f"w{i}") for i in range(3)]
    scores = (fit.vectors_ @ fit.context_vectors_.T)[np.ix_(order, order)]
    joint = (joint + joint.T) / 2
    p = joint.sum(0)
    # A word that is the target itself is no negative, so among pairs (v, u) those with target u are missing.
    expected = np.log(joint / ((p[:, None] - joint) * 2 * p))
    np.testing.assert_allclose(scores, expected, atol=0.12)  # noise of the last, small steps


def test_softmax_is_a_distribution_and_reaches_the_counts():
    rng = np.random.default_rng(0)
    texts = [[*rng.choice(["a", "b", "c", "d"], size=6, p=[0.4, 0.3, 0.2, 0.1])] for _ in range(200)]
    fit = create("skipgram-softmax", dimension=8, epochs=400, window=2, min_count=1, random_state=0).fit(
        texts
    )
    p = fit.context_probabilities(fit.words_)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    index = {w: i for i, w in enumerate(fit.words_)}
    N = window_counts(C.encode(texts, index), 4, 2).toarray()
    empirical = N / N.sum(1, keepdims=True)  # the maximum of the likelihood, attained with enough dimensions
    np.testing.assert_allclose(p, empirical, atol=0.01)
    entropy = -(N * np.log(empirical)).sum() / N.sum()
    assert fit.history_[-1]["loss"] == pytest.approx(entropy, abs=1e-3)
    scores = fit.vectors_ @ fit.context_vectors_.T + fit.bias_
    np.testing.assert_allclose(np.log(p), log_softmax(scores.astype(float), axis=1), atol=1e-6)


def test_threads_learn_too(texts):
    fit = SkipGram(12, epochs=8, deterministic=False, n_jobs=2, subsample=0, learning_rate=0.1).fit(texts)
    assert {w for w, _ in fit.most_similar("snow", n=3)} == {"cold", "ice", "frost"}


def test_deterministic_fits_resume_exactly(texts, tmp_path):
    params = {"dimension": 8, "epochs": 5, "random_state": 3}
    whole = SkipGram(**params).fit(texts)
    again = SkipGram(**params).fit([" ".join(text) for text in texts])
    assert np.array_equal(whole.vectors_, again.vectors_)

    class Cut(Exception):
        pass

    def cut(event):
        if event.step == 3:
            raise Cut

    with pytest.raises(Cut), Run(tmp_path, checkpoint_every=0, callbacks=[cut]):
        SkipGram(**params).fit(texts)
    with Run(tmp_path, resume=True):
        resumed = SkipGram(**params).fit(texts)
    assert np.array_equal(whole.vectors_, resumed.vectors_)
    assert np.array_equal(whole.context_vectors_, resumed.context_vectors_)


# --- words and vectors -----------------------------------------------------------------------------------


def test_transform_takes_words_texts_and_token_lists(model):
    np.testing.assert_array_equal(model.transform(iter(["sun", "sea"])), model.transform(["sun", "sea"]))
    np.testing.assert_array_equal(model.transform(["sun"])[0], model["sun"])
    expected = (model["sun"] + model["ice"]) / 2
    np.testing.assert_allclose(model.transform(["sun nonsense ice"])[0], expected, rtol=1e-6)
    np.testing.assert_allclose(model.transform([["sun", "ice"]])[0], expected, rtol=1e-6)
    assert not model.transform(["nonsense"]).any()
    assert "sun" in model and "nonsense" not in model


def test_analogy_and_most_similar_by_hand():
    vectors = KeyedVectors(
        ["man", "king", "woman", "queen", "apple"], [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0, 0]]
    )
    assert vectors.analogy("man", "king", "woman")[0][0] == "queen"
    word, cosine = vectors.most_similar("man", n=1)[0]
    assert word in ("king", "woman") and cosine == pytest.approx(np.sqrt(0.5))
    assert len(vectors.most_similar("man", n=99)) == 4
    found = vectors.evaluate_analogies(
        [["MAN", "king", "woman"], ["man", "king", "pear"]], ["queen", "queen"]
    )
    assert found == (1.0, 1, 2)
    found = vectors.evaluate_similarity(
        [["man", "king"], ["man", "apple"], ["man", "queen"], ["x", "y"]], [9, 1, 5, 3]
    )
    assert found == (1.0, 3, 4)


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(model, tmp_path, binary):
    gensim = pytest.importorskip("gensim.models")
    path = model.save_word2vec(tmp_path / "ours", binary=binary)
    theirs = gensim.KeyedVectors.load_word2vec_format(path, binary=binary)
    assert theirs.index_to_key == model.words_
    np.testing.assert_array_equal(theirs.vectors, model.vectors_)
    assert [w for w, _ in theirs.most_similar("sun", topn=3)] == [
        w for w, _ in model.most_similar("sun", n=3)
    ]
    theirs.save_word2vec_format(tmp_path / "theirs", binary=binary)
    back = read_word2vec(tmp_path / "theirs", binary=binary)
    assert back.words_ == model.words_
    np.testing.assert_allclose(back.vectors_, model.vectors_, rtol=1e-6)


def test_files_without_a_first_line_are_read(model, tmp_path):
    gensim = pytest.importorskip("gensim.models")
    theirs = gensim.KeyedVectors.load_word2vec_format(model.save_word2vec(tmp_path / "ours"))
    theirs.save_word2vec_format(tmp_path / "glove.txt", write_header=False)
    back = read_word2vec(tmp_path / "glove.txt")
    assert back.words_ == model.words_
    np.testing.assert_allclose(back.vectors_, model.vectors_, rtol=1e-6)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, bz2.compress, lzma.compress])
def test_strangers_files_are_read_as_gensim_reads_them(binary, pack, tmp_path):
    gensim = pytest.importorskip("gensim.models")
    words, vectors = (
        [b"sun", b"s\xffn", b"sun", b"caf\xc3\xa9", b"s\xffn"],
        np.arange(10, dtype="<f4").reshape(5, 2) / 8,
    )
    rows = [row.tobytes() if binary else " ".join(map(str, row)).encode() for row in vectors]
    data = b"5 2\n" + b"".join(word + b" " + row + b"\n" for word, row in zip(words, rows))
    path = tmp_path / "words"
    path.write_bytes(pack(data))
    with pytest.warns(
        CorollaryWarning, match="2 words of .*words' occur again, such as 'sun'; the first vector"
    ):
        ours = read_word2vec(path, binary=binary)
    (tmp_path / "plain").write_bytes(data)
    theirs = gensim.KeyedVectors.load_word2vec_format(
        tmp_path / "plain", binary=binary, unicode_errors="replace"
    )
    known = [word for word in theirs.index_to_key if word is not None]  # it leaves holes
    assert ours.words_ == known == ["sun", "s\ufffdn", "caf\u00e9"]
    np.testing.assert_array_equal(ours.vectors_, theirs.vectors[: len(known)])
    with pytest.warns(CorollaryWarning, match="occur again"):
        assert read_word2vec(path, binary=binary, unicode_errors="ignore").words_ == [
            "sun",
            "sn",
            "caf\u00e9",
        ]
    with pytest.raises(ValueError, match="must be UTF-8; got .*Use unicode_errors="):
        read_word2vec(path, binary=binary, unicode_errors="strict")
    with pytest.raises(KeyError, match="^KeyedVectors: no word named 'son'. Closest: .*'sun'"):
        ours["son"]


def test_a_compressed_file_that_was_cut_short(tmp_path):
    (tmp_path / "words.gz").write_bytes(gzip.compress(b"1 1\nsun 1.0\n")[:-9])
    with pytest.raises(ValueError, match="must be a whole file; got .* Copy it again"):
        read_word2vec(tmp_path / "words.gz")


def test_saved_models_know_their_words(model, tmp_path):
    model.most_similar("sun")
    loaded = load(model.save(tmp_path / "words.safetensors"))
    assert loaded.most_similar("sun") == model.most_similar("sun")


# --- complaints ------------------------------------------------------------------------------------------


def test_complaints(model, tmp_path):
    with pytest.raises(ValueError, match="at least two words must occur min_count=5 times; got 0 of 3 words"):
        SkipGram().fit(["one two three"])
    with pytest.raises(ValueError, match="some text must have two known words; got texts of single words"):
        SkipGram(min_count=1).fit(["one", "two"])
    with pytest.raises(TypeError, match="every text must be a string or a list of strings; got the token 1"):
        SkipGram().fit([["a"], [1]])
    with pytest.raises(TypeError, match="got a list within a list"):
        SkipGram().fit([["a"], [["b"]]])
    with pytest.raises(TypeError, match="got int at 1"):
        SkipGram().fit([["a"], 7])
    for ask in (model.most_similar, model.__getitem__):
        with pytest.raises(
            KeyError, match=r"^SkipGram: no word named 'snoww'. Closest: 'snow', .* Lower min_count"
        ):
            ask("snoww")
    with pytest.raises(ValueError, match="most_similar needs at least one word; got none"):
        model.most_similar([])
    with pytest.raises(ValueError, match="n must be an integer of at least 1; got 0"):
        model.most_similar("sun", n=0)
    with pytest.raises(ValueError, match="at least two pairs of known words; got 1"):
        model.evaluate_similarity([["sun", "sea"]], [1])
    with pytest.raises(ValueError, match="at least one question of known words; got none"):
        model.evaluate_analogies([["a", "b", "c"]], ["d"])
    with pytest.raises(ValueError, match=r"there must be 2 words in every row; got shape \(1, 3\)"):
        model.evaluate_similarity([["a", "b", "c"]], [1])
    with pytest.raises(ValueError, match=r"there must be one score for each of 2 rows; got shape \(1,\)"):
        model.evaluate_similarity([["sun", "sea"], ["sea", "sun"]], [1])
    with pytest.raises(ValueError, match=r"there must be one answer for each of 1 rows; got shape \(2,\)"):
        model.evaluate_analogies([["sun", "sea", "sun"]], ["sea", "sun"])
    with pytest.raises(ValueError, match="words must be different; got 1 different ones"):
        KeyedVectors(["a", "a"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"one vector for each of 1 words; got shape \(2, 3\)"):
        KeyedVectors(["a"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="must be without white space; got 'new york'"):
        KeyedVectors(["new york"], np.zeros((1, 3))).save_word2vec(tmp_path / "x")
    path = tmp_path / "cut"
    path.write_bytes(b"hello\n")
    with pytest.raises(ValueError, match="begin with the number of words and the dimension, .* got b'hello'"):
        read_word2vec(path)
    path.write_bytes(b"sun 1 2\nsea 3\n")
    with pytest.raises(ValueError, match="must hold 2 words of dimension 2.* got 1"):
        read_word2vec(path)
    with pytest.raises(ValueError, match="Is binary=False"):
        read_word2vec(path, binary=True)
    whole = model.save_word2vec(tmp_path / "whole", binary=True).read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="must hold 9 words of dimension 12.* got 8"):
        read_word2vec(path, binary=True)
    with pytest.raises(ValueError, match="is binary=True"):
        read_word2vec(tmp_path / "whole")
