"""Thin products against NumPy's in double precision, over odd shapes, types and strides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corollary.linalg_kernels import back_product, packed, product, unpacked


def strided(X):
    return np.repeat(X, 2, 1)[::-1, ::2]


@pytest.mark.parametrize(
    ("dtype", "seen"), [(np.float32, np.asarray), (np.float64, np.asarray), (np.float64, strided)]
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
    np.testing.assert_allclose(product(X, B), wide @ B, atol=room)
    np.testing.assert_allclose(back_product(X, Y), wide.T @ Y, atol=room)


def test_long_rows_go_in_chunks_and_many_rows_in_parts():
    rng = np.random.default_rng(0)
    for shape in ((5, 5000), (5000, 5)):
        X = rng.standard_normal(shape)
        B, Y = rng.standard_normal((shape[1], 9)), rng.standard_normal((shape[0], 9))
        np.testing.assert_allclose(product(X, B), X @ B, atol=1e-11)
        np.testing.assert_allclose(back_product(X, Y), X.T @ Y, atol=1e-11)


@pytest.mark.parametrize("K", [1, 8, 20, 24, 25, 33, 100])
def test_panels_keep_their_columns(K):
    B = np.arange(3.0 * K).reshape(3, K)
    wide = packed(B)
    assert wide.shape[2] * wide.itemsize in (32, 64, 96)
    np.testing.assert_array_equal(unpacked(wide, K), B)
