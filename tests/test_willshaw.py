import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import corollary
from corollary.connectionism.willshaw import WillshawMemory, unpacked


def patterns(s, n, r, seed=0):
    rng = np.random.default_rng(seed)
    columns = np.argsort(rng.random((s, n)), axis=1)[:, :r] if s * n < 10**7 else rng.integers(0, n, (s, r))
    rows = np.repeat(np.arange(s), r)
    X = sparse.csr_matrix((np.ones(s * r, np.float32), (rows, columns.ravel())), shape=(s, n))
    X.data[:] = 1
    return X


def test_store_and_recall_equal_brute_force():
    X = patterns(30, 100, 6).toarray()
    model = WillshawMemory().fit(X)
    theta = np.minimum(1, X.T @ X)
    np.testing.assert_array_equal(unpacked(model.bits_, 100), theta.astype(bool))
    cues = X * (np.random.default_rng(1).random(X.shape) < 0.7)
    cues[3] = 0
    expected = (cues @ theta >= cues.sum(1, keepdims=True)) & (cues.sum(1, keepdims=True) > 0)
    np.testing.assert_array_equal(model.recall(cues), expected)
    np.testing.assert_array_equal(model.transform(sparse.csr_matrix(cues)).toarray(), expected)


def test_no_stored_one_is_ever_missing():
    X = patterns(400, 128, 7)
    recalled = WillshawMemory().fit(X).recall(X)
    assert sparse.issparse(recalled)
    assert (recalled - X).min() >= 0


def test_patterns_of_different_sizes_are_recalled():
    X = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]])
    np.testing.assert_array_equal(WillshawMemory().fit(X).recall(X), X)  # erratum E24: no fixed threshold


def test_information_is_near_ln_2_per_entry_at_half_fill():
    n, r = 1024, 10  # r = log2 n
    s = round(math.log(2) * n * (n - 1) / (r * (r - 1)))
    X = patterns(s, n, r)
    model = WillshawMemory().fit(X)
    report = model.capacity()
    assert report.patterns == s
    assert report.fill == pytest.approx(0.5, abs=0.005)  # a million entries, many set together
    assert report.expected_fill == pytest.approx(0.5, abs=1e-3)
    assert report.best_patterns == pytest.approx(s, abs=1)
    extra = (model.recall(X) - X).sum() / s
    assert extra == pytest.approx(report.spurious, rel=0.05)  # over 8000 recalls; about one, n 2^-r
    # log2 of n over r is below r log2 n, the more so the smaller n is: ln 2 is the limit
    assert 0.5 < report.bits_per_entry < math.log(2)
    told = math.log2(math.comb(n, r)) - math.log2(math.comb(r + 1, r))  # about one of the ones is too many
    assert report.bits_per_entry == pytest.approx(s * told / n**2, rel=0.02)


def test_an_overfull_memory_tells_nothing():
    report = WillshawMemory().fit(patterns(20_000, 256, 8)).capacity()
    assert report.fill > 0.99 and report.spurious > 240
    assert 0 <= report.bits_per_entry < 0.25


def test_hundreds_of_thousands_of_patterns(tmp_path):
    X = patterns(200_000, 4096, 12)
    model = WillshawMemory().fit(X)
    assert model.bits_.nbytes == 4096**2 // 8
    assert len(model.history_) == 4
    some = X[::5000]
    assert (model.recall(some) - some).min() >= 0
    half = WillshawMemory().fit(X[:100_000]).partial_fit(X[100_000:])
    np.testing.assert_array_equal(half.bits_, model.bits_)
    assert (half.n_patterns_, half.ones_) == (model.n_patterns_, pytest.approx(model.ones_))
    again = corollary.load(model.save(tmp_path / "memory.safetensors"))
    assert (again.recall(some) != model.recall(some)).nnz == 0


def test_output_form_and_unfitted():
    X = patterns(5, 70, 4)
    assert isinstance(WillshawMemory("dense").fit(X).recall(X), np.ndarray)
    assert sparse.issparse(WillshawMemory("sparse").fit(X).recall(X.toarray()))
    with pytest.raises(NotFittedError):
        WillshawMemory().capacity()
    assert WillshawMemory().partial_fit(X).n_patterns_ == 5


# --- pairs -----------------------------------------------------------------------------------------------


def test_pairs_equal_brute_force():
    X, Y = patterns(40, 100, 6).toarray(), patterns(40, 70, 4, seed=1).toarray()
    model = WillshawMemory().fit(X, Y)
    theta = np.minimum(1, X.T @ Y)
    assert (model.paired_, model.n_outputs_, model.bits_.shape) == (True, 70, (100, 2))
    np.testing.assert_array_equal(unpacked(model.bits_, 70), theta.astype(bool))
    cues = X * (np.random.default_rng(2).random(X.shape) < 0.7)
    cues[3] = 0
    expected = (cues @ theta >= cues.sum(1, keepdims=True)) & (cues.sum(1, keepdims=True) > 0)
    np.testing.assert_array_equal(model.recall(cues), expected)
    np.testing.assert_array_equal(model.recall(sparse.csr_matrix(cues)).toarray(), expected)
    assert (model.recall(X) >= Y).all()  # no stored one is ever missing
    np.testing.assert_array_equal(WillshawMemory().fit(X, X).bits_, WillshawMemory().fit(X).bits_)


def test_hundreds_of_thousands_of_pairs(tmp_path):
    X, Y = patterns(300_000, 8192, 13), patterns(300_000, 4096, 12, seed=1)
    model = WillshawMemory().fit(X, Y)
    assert model.bits_.nbytes == 8192 * 4096 // 8
    report = model.capacity()
    assert report.fill == pytest.approx(report.expected_fill, abs=0.005)
    some = slice(0, 300_000, 1000)
    extra = model.recall(X[some]) - Y[some]
    assert extra.min() >= 0
    # 300 recalls of about 4 ones too many each, which differ by about their root
    assert extra.sum() / 300 == pytest.approx(report.spurious, rel=0.25)
    half = WillshawMemory().partial_fit(X[:150_000], Y[:150_000]).partial_fit(X[150_000:], Y[150_000:])
    np.testing.assert_array_equal(half.bits_, model.bits_)
    assert half.output_ones_ == pytest.approx(model.output_ones_)
    again = corollary.load(model.save(tmp_path / "memory.safetensors"))
    assert (again.recall(X[some]) != model.recall(X[some])).nnz == 0


def test_a_fit_of_pairs_resumes_exactly(tmp_path):
    X, Y = patterns(200_000, 256, 3), patterns(200_000, 128, 3, seed=1)
    whole = WillshawMemory().fit(X, Y)
    with corollary.Run(tmp_path, callbacks=[lambda event: event.step == 2], checkpoint_every=0):
        WillshawMemory().fit(X, Y)
    with corollary.Run(tmp_path, resume=True):
        resumed = WillshawMemory().fit(X, Y)
    np.testing.assert_array_equal(resumed.bits_, whole.bits_)


def test_partners_that_do_not_fit_are_named():
    X = patterns(5, 70, 4).toarray()
    with pytest.raises(ValueError, match=r"Y must have one row per row of X \(5\); got 4"):
        WillshawMemory().fit(X, X[:4])
    with pytest.raises(ValueError, match="Y must have 70 columns, as in fit; got none"):
        WillshawMemory().fit(X, X).partial_fit(X)
    with pytest.raises(ValueError, match="Y must be left out, as in fit; got 3 columns"):
        WillshawMemory().fit(X).partial_fit(X, X[:, :3])
    assert not WillshawMemory().fit(X, np.arange(5)).paired_  # labels, as any transformer gets
