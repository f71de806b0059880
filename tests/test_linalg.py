"""Thin products against NumPy's in double precision, over odd shapes, types and strides."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config, get_num_threads, njit
from scipy import sparse

from corollary import linalg
from corollary.linalg.dense import DenseRows, gram_of_blocks, packed, scatter, unpacked
from corollary.linalg.sparse import SparseRows
from corollary.linalg.threads import threads
from corollary.linalg.tiles import REGISTER, WIDE, tile
from corollary.linear.regression import LinearRegression
from corollary.validation import quick_sum


def products(kind, X, B, Y):
    out = np.empty((X.shape[0], B.shape[1]), B.dtype)
    rows = kind(X)
    rows.product(B, out)
    return out, rows.back_product(Y)


def strided(X):
    return np.repeat(X, 2, 1)[::-1, ::2]


@pytest.mark.parametrize(
    ("dtype", "seen"),
    [
        (np.float32, np.asarray),
        (np.float64, np.asarray),
        (np.float64, strided),
        (np.float32, np.asfortranarray),
    ],
)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 60), st.integers(1, 75), st.integers(0, 99))
def test_products_are_numpys(dtype, seen, n, m, K, seed):
    rng = np.random.default_rng(seed)
    X = seen(rng.standard_normal((n, m)).astype(dtype))
    B, Y = rng.standard_normal((m, K)).astype(dtype), rng.standard_normal((n, K)).astype(dtype)
    wide = X.astype(np.float64)
    # a sum of up to 70 terms of size 1 rounds by a few units in its last place
    room = 200 * np.finfo(dtype).eps
    dot, back = products(DenseRows, X, B, Y)
    np.testing.assert_allclose(dot, wide @ B, atol=room)
    np.testing.assert_allclose(back, wide.T @ Y, atol=room)


@pytest.mark.parametrize("size", [REGISTER, WIDE])
@pytest.mark.parametrize("registers", [1, 3])
def test_a_tile_is_a_product_whatever_registers_the_processor_has(size, registers):
    run = tile(4, registers, size)

    @njit
    def product(y, x, b):
        run(y, 0, y.shape[1], x, 0, x.shape[1], 1, b, 0, b.shape[1], x.shape[1])

    rng, width = np.random.default_rng(0), registers * size // 8
    x, b, y = rng.standard_normal((4, 9)), rng.standard_normal((9, width)), np.ones((4, width))
    product(y, x, b)
    np.testing.assert_allclose(y, 1 + x @ b, atol=1e-14)  # nine terms of size 1


def test_long_rows_go_in_chunks_and_many_rows_in_parts():
    rng = np.random.default_rng(0)
    for shape in ((5, 5000), (5000, 5)):
        X = rng.standard_normal(shape)
        B, Y = rng.standard_normal((shape[1], 9)), rng.standard_normal((shape[0], 9))
        dot, back = products(DenseRows, X, B, Y)
        np.testing.assert_allclose(dot, X @ B, atol=1e-11)
        np.testing.assert_allclose(back, X.T @ Y, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seen", [np.asarray, np.asfortranarray, strided])
@pytest.mark.parametrize("shape", [(3, 1), (1000, 30), (700, 101)])
def test_a_scatter_is_numpys_in_double_precision(dtype, seen, shape):
    X = seen(np.random.default_rng(0).standard_normal(shape).astype(dtype) + dtype(1))
    wide = X.astype(np.float64)
    total, G = scatter(X)
    np.testing.assert_allclose(total, wide.sum(0), rtol=1e-12)
    # entries of size n, of up to 512 rows summed in the type of the data
    np.testing.assert_allclose(G, wide.T @ wide, atol=20 * np.finfo(dtype).eps * shape[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("seen", [np.asarray, np.asfortranarray, strided])
@pytest.mark.parametrize("at", [(0, 0), (400, 7), (-1, -1)])
def test_no_bad_entry_of_a_large_table_escapes(bad, seen, at):
    X = np.ones((1001, 11))
    X[at] = bad
    assert not np.isfinite(quick_sum(seen(X)))
    with pytest.raises(ValueError, match="NaN" if np.isnan(bad) else "infinity"):
        LinearRegression().fit(seen(X), np.arange(1001.0))


@pytest.mark.skipif(config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_little_work_is_done_by_one_thread_and_much_by_as_many_as_asked_for():
    before = get_num_threads()
    for n_jobs, work, expected in (
        (None, 1e3, 1),
        (None, 1e9, before),
        (1, 1e9, 1),
        (-1, 1e3, 1),
        (2, 1e9, 2),
    ):
        with threads(n_jobs, work):
            assert get_num_threads() == expected
        assert get_num_threads() == before


@pytest.mark.parametrize("K", [1, 8, 20, 24, 25, 33, 100])
def test_panels_keep_their_columns(K):
    B = np.arange(3.0 * K).reshape(3, K)
    wide = packed(B)
    assert wide.shape[2] * wide.itemsize in (WIDE, 2 * WIDE, 3 * WIDE)
    np.testing.assert_array_equal(unpacked(wide, K), B)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 90), st.integers(1, 60), st.integers(8, 75), st.integers(0, 99))
def test_sparse_products_are_scipys(dtype, n, m, K, seed):
    rng = np.random.default_rng(seed)
    X = sparse.random(n, m, 0.2, format="csr", random_state=rng, dtype=dtype)
    B, Y = rng.standard_normal((m, K)).astype(dtype), rng.standard_normal((n, K)).astype(dtype)
    room = 200 * np.finfo(dtype).eps
    dot, back = products(SparseRows, X, B, Y)
    np.testing.assert_allclose(dot, X.astype(np.float64) @ B, atol=room)
    np.testing.assert_allclose(back, X.T.astype(np.float64) @ Y, atol=room)


@pytest.mark.parametrize("shape", [(1, 9, 3), (3, 500, 7), (2, 1000, 30)])
def test_the_gram_matrix_of_blocks_is_exact(shape):
    Y = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wide = np.concatenate(Y, 1).astype(np.float64)
    np.testing.assert_allclose(gram_of_blocks(Y), wide.T @ wide, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_large_matrices_have_the_triplets_of_lapack(dtype, is_sparse, monkeypatch):
    monkeypatch.setattr(linalg, "LARGE", 0)  # as if everything were large: all products are compiled
    monkeypatch.setattr(linalg, "LARGE_SPARSE", 0)
    rng = np.random.default_rng(0)
    X = (
        (rng.standard_normal((300, 3)) * [9, 6, 4]) @ rng.standard_normal((3, 80))
        + rng.random((300, 80))
        + 0.5
    )
    X = np.where(rng.random(X.shape) < 0.5, X, 0).astype(dtype) if is_sparse else X.astype(dtype)
    mean = X.mean(0)
    A = linalg.Centred(
        sparse.csc_matrix(X) if is_sparse else torch.from_numpy(X), torch.from_numpy(mean), len(X)
    )
    found = linalg.krylov_svd(A, 3, blocks=6)
    _, s, Vt = np.linalg.svd((X - mean).astype(np.float64))
    assert isinstance(A.rows._compiled, SparseRows if is_sparse else DenseRows)
    room = 1e-5 if dtype == np.float32 else 1e-9  # of float32 sums; six blocks leave no more of the rest
    np.testing.assert_allclose(found.values, s[:3], rtol=room)
    np.testing.assert_allclose(np.abs(np.sum(found.rows.numpy() * Vt[:3], 1)), 1, atol=room)
