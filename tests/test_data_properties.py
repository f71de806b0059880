"""Readers under random data: what is written comes back, and random bytes get our own error only."""

import io
import string
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from corollary import data
from corollary.data.named.networks import unpickle
from corollary.errors import CorollaryWarning

quick = settings(max_examples=40, deadline=None)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
# Letters with what a delimited file must quote; no word that pandas takes for a missing value or a number.
words = st.text(alphabet="bcdgh \"',;\t\n", min_size=1, max_size=8).map(lambda text: f"q{text}q")
names = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=6).map(lambda s: f"c_{s}"), unique=True)


def written(name: str, content: bytes) -> Path:
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(content)
    return path


def table(columns, elements):
    shape = st.tuples(st.integers(1, 8), st.just(len(columns)))
    return shape.flatmap(lambda s: hnp.arrays(np.float64, s, elements=elements))


@quick
@given(names.filter(len).flatmap(lambda c: st.tuples(st.just(c), table(c, numbers))), st.sampled_from(",;\t"))
def test_a_table_of_numbers_comes_back(given_, separator):
    columns, X = given_
    text = pd.DataFrame(X, columns=columns).to_csv(index=False, sep=separator)
    found = data.load(written("t.tsv" if separator == "\t" else "t.csv", text.encode()), kind="table")
    np.testing.assert_allclose(found.X, X, rtol=1e-15, atol=0)
    assert found.feature_names == columns


@quick
@given(st.lists(st.tuples(st.integers(-(2**53), 2**53), words, words), min_size=1, max_size=8))
def test_mixed_columns_and_class_labels_come_back(rows):
    frame = pd.DataFrame(rows, columns=["number", "word", "label"])
    found = data.load(written("t.csv", frame.to_csv(index=False).encode()), target="label")
    assert found.y.tolist() == frame["label"].tolist()
    assert found.X["word"].tolist() == frame["word"].tolist()
    assert found.X["number"].tolist() == frame["number"].tolist()


@quick
@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=numbers),
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
)
def test_arrays_come_back(X, dtype):
    with np.errstate(all="ignore"):
        X = np.nan_to_num(X.astype(dtype)) if np.issubdtype(dtype, np.floating) else (X % 256).astype(dtype)
    y = np.arange(len(X))
    raw = io.BytesIO()
    np.savez(raw, X=X, y=y)
    found = data.load(written("t.npz", raw.getvalue()))
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.y, y)
    assert found.X.dtype == (dtype if np.issubdtype(dtype, np.floating) else np.float64)


@quick
@given(st.lists(st.lists(st.integers(0, 2**31), min_size=1, max_size=6), min_size=1, max_size=6))
def test_sequences_come_back(sequences):
    raw = io.BytesIO()
    np.savez(raw, X=np.concatenate(sequences), lengths=[len(s) for s in sequences])
    assert [s.tolist() for s in data.load(written("t.npz", raw.getvalue())).X] == sequences


triples = st.dictionaries(
    st.tuples(st.integers(0, 10**9), st.integers(0, 50)),
    st.integers(-20, 20).map(lambda v: v / 4),
    min_size=1,
)


@quick
@given(triples, st.sampled_from([",", "\t", "::", " "]), st.booleans())
def test_ratings_come_back(ratings, separator, header):
    lines = [separator.join(map(str, (user, item, value))) for (user, item), value in ratings.items()]
    lines = [separator.join(["user", "item", "rating"]), *lines] if header else lines
    found = data.load(written("r.dat", "\n".join(lines).encode()), kind="ratings")
    R, users, items = found.X.tocoo(), found.extra["users"], found.extra["items"]
    assert {(users[u], items[i]): v for u, i, v in zip(R.row, R.col, R.data)} == ratings
    assert sorted(users) == list(users) and R.nnz == len(ratings)


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), min_size=1))
def test_of_repeated_ratings_the_last_counts(rows):
    expected = {(user, item): value for user, item, value in rows}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorollaryWarning)
        found = data.load(pd.DataFrame(rows, columns=["user", "item", "value"]), kind="ratings")
    R, users, items = found.X.tocoo(), found.extra["users"], found.extra["items"]
    assert {(users[u], items[i]): v for u, i, v in zip(R.row, R.col, R.data)} == expected


node = st.one_of(st.integers(0, 10**6).map(str), st.text(string.ascii_letters, min_size=1, max_size=5))


@quick
@given(st.lists(st.tuples(node, node), min_size=1, max_size=20), st.sampled_from([" ", "\t", ",", " ; "]))
def test_edge_lists_come_back_in_both_directions(edges, separator):
    text = "\n".join(["# comment", *(separator.join(edge) for edge in edges)])
    if edges[0][0].lower() in ("source", "src", "from", "u"):
        return
    found = data.load(written("g.edges", text.encode()))
    labels = [str(label) for label in found.extra["nodes"]]
    pairs = [(labels[a], labels[b]) for a, b in found.X.edge_index.T]
    wanted = {pair for a, b in edges for pair in ((a, b), (b, a))}
    if found.extra["nodes"].dtype.kind == "i":
        wanted = {(str(int(a)), str(int(b))) for a, b in wanted}
    assert set(pairs) == wanted and len(pairs) == len(wanted)


@quick
@given(
    st.lists(
        st.text(min_size=1, max_size=20).filter(lambda t: t.strip() and len(t.splitlines()) == 1),
        min_size=1,
        max_size=8,
    )
)
def test_lines_come_back(lines):
    try:
        raw = "\n".join(lines).encode()
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8
        return
    assert data.load(written("t.txt", raw)).X == [line for text in lines for line in text.splitlines()]


@quick
@given(st.integers(2, 60), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
def test_a_split_is_a_partition(n, share, seed):
    train, test = data.split(data.Dataset(np.arange(n)[:, None]), test=share, seed=seed)
    assert sorted([*train.X[:, 0], *test.X[:, 0]]) == list(range(n))
    assert len(test) >= 1 and len(train) >= 1 and abs(len(test) - share * n) <= 1


# ------------------------------------------------------------------------------------ random bytes

npz, npy = io.BytesIO(), io.BytesIO()
np.savez(npz, X=np.arange(6.0).reshape(2, 3), y=np.arange(2))
np.save(npy, np.arange(6.0).reshape(2, 3))
sparse_npz = io.BytesIO()
sparse.save_npz(sparse_npz, sparse.csr_matrix(np.eye(3)), compressed=False)
SEEDS = {
    ".npz": [npz.getvalue(), sparse_npz.getvalue()],
    ".npy": [npy.getvalue()],
    ".csv": [b"a,b\n1,2\n3,4\n", b"user,item,rating\n1,2,3\n"],
    ".tsv": [b"a\tb\n1\t2\n"],
    ".parquet": [b"PAR1" + bytes(20) + b"PAR1"],
    ".txt": [b"some words\n"],
    ".edges": [b"0 1 2\n1 2 3\n"],
    ".graphml": [
        b'<?xml version="1.0"?><graphml><graph edgedefault="directed"><node id="a"/></graph></graphml>'
    ],
    ".wav": [
        b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\4\0\0\0\1\0\2\0"
    ],
    ".png": [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0"],
    ".pgm": [b"P5 2 2 255\nabcd"],
}


@st.composite
def damaged(draw, suffix):
    """Random bytes, or a sound file with a few of them changed, cut or added."""
    raw = bytearray(draw(st.one_of(st.binary(max_size=80), st.sampled_from(SEEDS[suffix]))))
    for _ in range(draw(st.integers(0, 3))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.integers(0, len(raw)))]) + draw(st.binary(max_size=5))


@pytest.mark.parametrize("suffix", SEEDS)
@pytest.mark.parametrize("kind", [None, "ratings", "graph", "sequence"])
def test_random_bytes_give_data_or_our_own_error(suffix, kind):
    folder = Path(tempfile.mkdtemp())

    @settings(max_examples=40, deadline=None)
    @given(damaged(suffix))
    def run(raw):
        path = folder / f"f{suffix}"
        path.write_bytes(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorollaryWarning)
            try:
                assert isinstance(data.load(path, kind=kind), data.Dataset)
            except (ValueError, TypeError) as error:
                assert str(error).startswith("load: "), f"{type(error)}: {error}"

    run()


@quick
@given(st.binary(max_size=60))
def test_random_pickles_run_nothing(raw):
    try:
        unpickle(b"\x80\x02" + raw)
    except ValueError as error:
        assert str(error).startswith("load: a pickle must hold only")
