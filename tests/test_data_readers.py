"""Every format there and back, every inference rule, and every complaint of ``load`` and ``split``."""

import builtins
import bz2
import gzip
import io
import json
import lzma
import struct
import sys
import wave
import zipfile
from collections import defaultdict

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import sparse
from scipy.io import wavfile

from corollary import data
from corollary.data import Dataset, Graph
from corollary.data.convert import as_input
from corollary.data.named import networks, records
from corollary.errors import CorollaryWarning


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def saved(tmp_path):
    def saved(name, **arrays):
        path = tmp_path / name
        np.savez(path, **arrays)
        return path

    return saved


def refuse(source, message, error=ValueError, **options):
    with pytest.raises(error, match=message):
        data.load(source, **options)


# ---------------------------------------------------------------------------------------- tables


def test_a_table_of_numbers(write):
    found = data.load(write("t.csv", "a,b,c\n1,2.5,3\n4,,6\n"))
    assert found.kind == "table" and found.name == "t" and found.feature_names == ["a", "b", "c"]
    np.testing.assert_array_equal(found.X, [[1, 2.5, 3], [4, np.nan, 6]])
    assert found.y is None and found.X.dtype == np.float64 and found.source.endswith("t.csv")


@pytest.mark.parametrize(
    "name, separator", [("t.csv", ","), ("t.csv", ";"), ("t.tsv", "\t"), ("t.tab", "\t")]
)
def test_separators(write, name, separator):
    text = "a,b,c\n1,2,x\n4,5,y\n".replace(",", separator)
    found = data.load(write(name, text), target="c")
    np.testing.assert_array_equal(found.X, [[1, 2], [4, 5]])
    assert found.y.tolist() == ["x", "y"] and found.feature_names == ["a", "b"]


def test_a_first_line_of_numbers_is_data(write):
    found = data.load(write("t.csv", "1,2\n3,4\n"), target="x1")
    np.testing.assert_array_equal(found.X, [[1], [3]])
    np.testing.assert_array_equal(found.y, [2, 4])


def test_mixed_columns_stay_a_frame_and_become_numbers_on_demand(write):
    found = data.load(write("t.csv", "height,colour,y\n1,red,0\n3,blue,1\n5,red,1\n"), target="y")
    assert isinstance(found.X, pd.DataFrame) and found.y.tolist() == [0, 1, 1]
    numbers = data.numeric(found.X)
    np.testing.assert_allclose(numbers[:, 0], (np.array([1, 3, 5]) - 3) / np.sqrt(8 / 3))
    np.testing.assert_array_equal(numbers[:, 1:], [[0, 1], [1, 0], [0, 1]])


def test_the_encoder_meets_new_categories_missing_numbers_and_dates():
    frame = pd.DataFrame(
        {"n": [1.0, np.nan, 3.0], "c": ["a", "b", None], "d": pd.to_datetime(["2020-01-01"] * 3)}
    )
    fitted = data.encoder().fit(frame)
    names = ["n", "n is missing", "c=a", "c=b", "c is missing", "d"]
    assert fitted.get_feature_names_out().tolist() == names
    other = pd.DataFrame({"n": [2.0, None], "c": ["z", None], "d": pd.to_datetime(["2020-01-01"] * 2)})
    expected = [[0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0]]
    np.testing.assert_allclose(fitted.transform(other), expected)
    with pytest.raises(TypeError, match="X must be a data frame.*; got ndarray"):
        fitted.transform(np.eye(3))


MIXED = "height,colour\n1,red\n3,blue\n5,red\n"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("height,colour\n3,blue\n", [[0, 1, 0]]),
        ("colour,height,more\nred,3,9\n", [[0, 0, 1]]),
        ("colour,height\ngreen,\n,3\n", [[0, 0, 0], [0, 0, 0]]),
    ],
    ids=["fewer categories", "other order", "unknown and missing"],
)
def test_new_data_are_read_as_those_of_the_fit(write, text, expected):
    first = as_input(data.load(write("first.csv", MIXED)), "table", "PCA")
    assert first.feature_names == ["height", "colour=blue", "colour=red"]
    reading = json.loads(json.dumps(first.extra["reading"]))  # as a run directory keeps it
    again = as_input(data.load(write("new.csv", text)), "table", "PCA", reading)
    np.testing.assert_allclose(again.X, expected)


@pytest.mark.parametrize(
    "text, message",
    [
        ("height\n3\n", "must have the columns of the fit; 'colour' is missing; got height"),
        ("colour,height\nred,tall\n", "column 'height' must hold numbers, as in the fit"),
    ],
)
def test_new_data_without_what_the_fit_had(write, text, message):
    reading = as_input(data.load(write("first.csv", MIXED)), "table", "PCA").extra["reading"]
    with pytest.raises(ValueError, match=message):
        as_input(data.load(write("new.csv", text)), "table", "PCA", reading)
    with pytest.raises(ValueError, match="got columns without names"):
        as_input(data.load(np.eye(3)), "table", "PCA", reading)


def test_numbers_are_found_by_name_and_arrays_by_place(write):
    reading = as_input(data.load(write("a.csv", "a,b\n1,2\n")), "table", "PCA").extra["reading"]
    new = data.load(write("b.csv", "b,kind,a\n5,x,4\n"))
    np.testing.assert_array_equal(as_input(new, "table", "PCA", reading).X, [[4, 5]])
    new = data.load(write("c.csv", "b,c,a\n5,6,4\n"))
    np.testing.assert_array_equal(as_input(new, "table", "PCA", reading).X, [[4, 5]])
    np.testing.assert_array_equal(as_input(data.load(np.eye(2)), "table", "PCA", reading).X, np.eye(2))


def test_new_texts_are_counted_in_the_words_of_the_fit():
    first = as_input(data.load(["to be or not", "to do"]), "table", "PLSA")
    new = as_input(data.load(["be be other", "new words"]), "table", "PLSA", first.extra["reading"])
    assert new.feature_names == first.feature_names == ["be", "do", "not", "or", "to"]
    np.testing.assert_array_equal(new.X.toarray(), [[2, 0, 0, 0, 0], [0, 0, 0, 0, 0]])


def test_the_index_that_pandas_writes_is_left_out(write):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    found = data.load(write("t.csv", frame.to_csv()))
    assert found.feature_names == ["a", "b"] and found.X.shape == (2, 2)


def test_parquet_there_and_back(tmp_path):
    frame = pd.DataFrame(
        {"a": np.float32([1, 2]), "b": np.float32([3, 4]), "c": ["x", "y"], "n": [True, False]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    found = data.load(tmp_path / "t.parquet", target="c")
    np.testing.assert_array_equal(found.X, [[1, 3, 1], [2, 4, 0]])
    frame[["a", "b"]].to_parquet(tmp_path / "u.pq")
    assert data.load(tmp_path / "u.pq").X.dtype == np.float32
    nullable = pd.DataFrame({"a": pd.array([1, None], "Int64"), "y": pd.array([0, 1], "Int64")})
    found = data.load(nullable, target="y")
    np.testing.assert_array_equal(found.X, [[1], [np.nan]])
    assert found.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    "name, content, options, message",
    [
        ("t.csv", "", {}, "t.csv must have content; got an empty file"),
        ("t.csv", " \n\n", {}, "at least one row; got an empty file"),
        ("t.csv", ";;\n;\n", {}, "at least one field that is not empty; got separators only"),
        ("t.csv", "a,b\n", {}, "at least one row; got only a header"),
        ("t.csv", "a,b\n1,2\n3\n", {}, "must have 2 fields, as the first; got 1 in line 3"),
        ("t.csv", "a,b\n1,2,3\n", {}, "must have 2 fields, as the first; got 3 in line 2"),
        ("t.csv", 'a,b\n1,"2\n3,4\n', {}, "t.csv must"),
        (
            "t.csv",
            b"a,b\n1,\x01\xff\n",
            {},
            "must be text; got byte 0x01, as in binary files. Save it as UTF-8",
        ),
        ("t.csv", "height,b\n1,2\n", {"target": "heigt"}, "no column named 'heigt'. Closest: 'height'"),
        ("t.csv", "a,b\n1,\n3,\n", {"target": "b"}, "some row of t must have a value of 'b'; got none"),
        ("t.csv", "a\n1\n", {"target": "a"}, "one column besides the target"),
        ("t.csv", "a,b\n1,2\n", {"kind": "image"}, "cannot hold data of kind image; got delimited text"),
        ("t.csv", "a,b\n1,2\n", {"kind": "tabl"}, "no kind named 'tabl'. Closest: 'table'"),
        ("t.parquet", "nothing of the kind", {}, "must be a Parquet file"),
        ("t.xyz", "1,2", {}, r"must end in one of .csv, .* got '.xyz'. Pass kind="),
    ],
)
def test_wrong_tables(write, name, content, options, message):
    refuse(write(name, content), message, **options)


def test_an_empty_parquet_file(tmp_path):
    pd.DataFrame({"a": []}).to_parquet(tmp_path / "t.parquet")
    refuse(tmp_path / "t.parquet", "at least one row")


def test_other_suffixes_can_be_told(write):
    assert data.load(write("t.xyz", "1,2\n3,4"), kind="table").X.shape == (2, 2)


def test_long_fields_are_read(write):
    path = write("t.csv", "text,y\n" + "word " * 50000 + ",1\n")
    assert len(data.load(path, kind="text", target="y").X[0]) == 250000


# --------------------------------------------------------------------------------- NumPy files


def test_arrays_there_and_back(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(6).reshape(2, 3))
    found = data.load(tmp_path / "t.npy")
    np.testing.assert_array_equal(found.X, np.arange(6.0).reshape(2, 3))
    assert found.kind == "table" and found.X.dtype == np.float64
    np.save(tmp_path / "i.npy", np.zeros((2, 4, 4), np.uint8))
    assert data.load(tmp_path / "i.npy").kind == "image"
    np.save(tmp_path / "s.npy", np.zeros((2, 4), int))
    assert [s.dtype for s in data.load(tmp_path / "s.npy", kind="sequence").X] == [np.int64] * 2


def test_large_arrays_stay_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("corollary.data.arrays._MAPPED", 100)
    np.save(tmp_path / "t.npy", np.ones((10, 10)))
    assert isinstance(data.load(tmp_path / "t.npy").X.base, np.memmap)


def test_npz_keys(saved):
    X, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "a"])
    for arrays in ({"X": X, "y": y}, {"data": X, "target": y}, {"whatever": X, "labels": y}):
        found = data.load(saved("t.npz", **arrays))
        np.testing.assert_array_equal(found.X, X)
        np.testing.assert_array_equal(found.y, y)
    found = data.load(saved("t.npz", X=X, y=y, z=np.arange(3)), target="z")
    np.testing.assert_array_equal(found.y, [0, 1, 2])


def test_npz_of_keras_has_its_split(saved):
    X = np.zeros((5, 4, 4), np.uint8)
    arrays = {"x_train": X[:3], "x_test": X[3:], "y_train": np.arange(3), "y_test": np.arange(3, 5)}
    found = data.load(saved("t.npz", **arrays))
    assert found.kind == "image" and found.y.tolist() == [0, 1, 2, 3, 4]
    train, test = data.split(found, test="published")
    assert train.y.tolist() == [0, 1, 2] and test.y.tolist() == [3, 4] and "split" not in train.extra


def test_npz_of_sequences_and_sets(saved):
    frames, lengths = np.arange(10.0).reshape(5, 2), np.array([2, 3])
    found = data.load(saved("t.npz", X=frames, lengths=lengths, y=np.array([0, 1])))
    assert found.kind == "sequence" and [s.shape for s in found.X] == [(2, 2), (3, 2)]
    found = data.load(saved("t.npz", X=frames, lengths=lengths, y=np.arange(5)))  # a label per step
    assert [part.tolist() for part in found.y] == [[0, 1], [2, 3, 4]]
    assert data.load(saved("t.npz", X=frames, lengths=lengths), kind="set").kind == "set"
    found = data.load(saved("t.npz", X=frames, lengths=np.array([5, 0])), kind="set")
    assert [s.shape for s in found.X] == [(5, 2), (0, 2)]
    found = data.load(saved("t.npz", a=np.array([1, 2]), b=np.array([3])), kind="sequence")
    assert [s.tolist() for s in found.X] == [[1, 2], [3]]


def test_npz_of_a_graph_and_of_ratings(saved, tmp_path):
    edges = np.array([[0, 1], [1, 2]])
    found = data.load(saved("g.npz", x=np.eye(4), edge_index=edges, y=np.arange(4)))
    assert found.kind == "graph" and found.X.num_nodes == 4 and found.y.tolist() == [0, 1, 2, 3]
    assert data.load(saved("g.npz", edge_index=edges, num_nodes=np.array(9))).X.num_nodes == 9
    many = {"x": np.eye(4), "edge_index": edges, "batch": np.array([0, 0, 0, 1]), "y": np.array([5, 7])}
    found = data.load(saved("g.npz", **many))
    assert found.kind == "graphs" and [g.num_nodes for g in found.X] == [3, 1] and found.y.tolist() == [5, 7]
    assert data.load(saved("g.npz", **many), kind="graph").X.num_nodes == 4
    R = sparse.random(5, 6, 0.5, "csr", rng=np.random.default_rng(0))
    for form in ("csr", "csc"):
        sparse.save_npz(tmp_path / "r.npz", R.asformat(form))
        found = data.load(tmp_path / "r.npz")
        assert found.kind == "ratings" and (found.X != R).nnz == 0
        found = data.load(tmp_path / "r.npz", kind="table")
        assert found.kind == "table" and found.X.format == "csr" and (found.X != R).nnz == 0
    with pytest.raises(ValueError, match="Pass kind='table'"):
        as_input(data.load(R), "table", "PLSA")


class Bomb:
    def __reduce__(self):
        return print, ("this must never run",)


def test_object_arrays_are_never_unpickled(saved, tmp_path, capsys):
    bombs = np.array([Bomb()], dtype=object)
    refuse(saved("t.npz", X=bombs), "array of numbers or strings; got an array of Python objects")
    np.save(tmp_path / "t.npy", bombs)
    refuse(tmp_path / "t.npy", "got an array of Python objects, which only pickle can read")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arrays, options, message",
    [
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, {}, r"one entry per example \(2\); got shape \(3,\)"),
        ({"X": np.ones((2, 2))}, {"target": "z"}, "no array named 'z'. Closest: 'X'"),
        ({"a": np.ones(2), "b": np.ones(2)}, {}, "must have an array X; got a, b. Save"),
        ({"y": np.ones(2)}, {}, "must have an array X; got only a target"),
        ({}, {}, "at least one array"),
        ({"X": np.ones((5, 2)), "lengths": np.array([2, 2])}, {}, "must add up .* got 4 and X of shape"),
        ({"X": np.ones((5, 2)), "lengths": np.array([2.0, 3.0])}, {}, "lengths must be a list of integers"),
        ({"x_train": np.ones((2, 3)), "x_test": np.ones((2, 4))}, {}, "must fit together"),
        ({"edge_index": np.array([[0], [9]]), "x": np.ones((2, 1))}, {}, "edges must join nodes 0 to 1"),
        ({"edge_index": np.array([[0], [1]])}, {"kind": "graphs"}, "batch must have the number of a graph"),
        ({"X": np.ones(3)}, {}, r"rows and columns; got shape \(3,\). Pass kind="),
        ({"X": np.full((1, 2, 2), 7.0)}, {}, r"load: float images must lie in \[0, 1\]"),
    ],
)
def test_wrong_npz(saved, arrays, options, message):
    refuse(saved("t.npz", **arrays), message, **options)


def test_damaged_numpy_files(write, saved, tmp_path):
    refuse(write("t.npy", "no array"), "t.npy must be a NumPy file")
    refuse(write("t.npz", b"PK\x03\x04 no archive"), "t.npz must be a NumPy file")
    raw = saved("u.npz", X=np.ones((50, 50))).read_bytes()
    refuse(write("v.npz", raw[:200]), "v.npz must be a NumPy file")
    header = raw.replace(b"(50, 50)", b"(9, 999)")
    refuse(write("w.npz", header), "must be a NumPy file")
    broken = {
        "data": np.ones(2),
        "indices": np.array([0, 9]),
        "indptr": np.array([0, 2]),
        "shape": np.array([1, 3]),
    }
    refuse(
        saved("x.npz", format=np.array(b"csr"), **broken), "a sparse matrix as scipy.sparse.save_npz writes"
    )


# ---------------------------------------------------------------------------------------- images


def picture(path, pixels, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels, mode).save(path) if mode is None else Image.fromarray(pixels).convert(mode).save(
        path
    )
    return path


def test_an_image_folder_with_a_class_per_sub_folder(tmp_path):
    rng = np.random.default_rng(0)
    cats, dogs = rng.integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    for i in range(3):
        picture(tmp_path / "pets" / "cat" / f"{i}.png", cats[i])
        picture(tmp_path / "pets" / "dog" / f"{i}.png", dogs[i])
    (tmp_path / "pets" / ".hidden").mkdir()
    found = data.load(tmp_path / "pets")
    assert found.kind == "image" and found.name == "pets"
    np.testing.assert_array_equal(found.X, np.concatenate([cats, dogs]))
    assert found.y.tolist() == ["cat"] * 3 + ["dog"] * 3


def test_colour_and_grey_images_together_become_colour(tmp_path):
    colour = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    picture(tmp_path / "a.png", colour)
    picture(tmp_path / "b.png", colour[:, :, 0])
    picture(tmp_path / "c.png", np.dstack([colour, colour[:, :, :1]]))
    found = data.load(tmp_path)
    assert found.X.shape == (3, 3, 4, 5) and found.y is None
    np.testing.assert_array_equal(found.X[0], colour.transpose(2, 0, 1))
    np.testing.assert_array_equal(found.X[1], np.repeat(colour[None, :, :, 0], 3, 0))
    alpha = colour[:, :, :1] / 255
    np.testing.assert_allclose(
        found.X[2], (colour * alpha + 255 * (1 - alpha)).transpose(2, 0, 1), atol=1
    )  # as over white


def test_single_images_of_other_modes(tmp_path):
    deep = (np.arange(20).reshape(4, 5) * 3000).astype(np.uint16)
    found = data.load(picture(tmp_path / "a.png", deep))
    np.testing.assert_array_equal(found.X[0], deep)
    bits = np.eye(4, dtype=np.uint8) * 255
    np.testing.assert_array_equal(data.load(picture(tmp_path / "b.png", bits, "1")).X[0], bits)
    assert data.load(picture(tmp_path / "c.gif", np.zeros((4, 5, 3), np.uint8), "P")).X.shape == (1, 3, 4, 5)


def test_deep_images_keep_their_brightness_when_they_are_scaled(tmp_path):
    for name, side, grey in (("a", 8, 30_000), ("b", 8, 60_000), ("c", 16, 30_000), ("d", 24, 100)):
        shaded = np.full((side, side), grey, np.uint16)
        shaded[:2] += 1000
        picture(tmp_path / f"{name}.png", shaded)
    with pytest.warns(CorollaryWarning, match="2 of 4 images"):
        X = data.load(tmp_path).X
    assert X.dtype == np.uint16
    np.testing.assert_array_equal(X[:, 4, 4], [30_000, 60_000, 30_000, 100])


def test_wrong_image_folders(tmp_path, write):
    picture(tmp_path / "a" / "x.png", np.zeros((4, 5), np.uint8))
    picture(tmp_path / "z.png", np.zeros((4, 5), np.uint8))
    refuse(tmp_path, r"must all lie in sub-folders \(one per class\), or none of them; got 1 beside 1")
    refuse(write("b/x.png", "no picture"), "x.png must be an image file")
    refuse(tmp_path / "z.png", "holds data of kind image; got kind='text'", kind="text")
    refuse(tmp_path / "z.png", "no columns to take a target from; got target='y'", target="y")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "must hold image, .wav or .txt files, .* got no files")
    refuse(tmp_path / "empty", "must hold text files", kind="text")
    refuse(tmp_path / "empty", "a folder must hold images, sounds or texts; got kind='table'", kind="table")


# ------------------------------------------------------------------------------------------ text


def test_a_document_per_line_per_file_and_per_row(write):
    assert data.load(write("t.txt", "\ufeffone two\n\nthrée\r\n")).X == ["one two", "thrée"]
    write("d/pos/1.txt", "good")
    write("d/neg/1.txt", "bad")
    found = data.load(write("d/neg/2.txt", "worse").parent.parent)
    assert found.kind == "text" and found.X == ["bad", "worse", "good"]
    assert found.y.tolist() == ["neg", "neg", "pos"]
    found = data.load(write("t.csv", 'text,id,y\n"a, b",1,0\nc,2,1\n'), kind="text", target="y")
    assert found.X == ["a, b", "c"] and found.y.tolist() == [0, 1]
    found = data.load(write("u.csv", "review,y\nfine,0\n,1\n"), kind="text", target="y")
    assert found.X == ["fine", ""]
    assert data.load(write("v.csv", "words\nfine\n"), kind="text").X == ["fine"]
    assert data.load(write("t.txt", "abc\nab\n"), kind="sequence").kind == "sequence"


def test_wrong_text(write):
    refuse(write("t.txt", " \n"), "at least one line of text")
    refuse(write("t.txt", b"\x7fELF\x02\xff"), "must be text; got byte 0x02, as in binary files")
    refuse(write("d/1.txt", "").parent, "some document in d must have words")
    refuse(write("t.csv", "a,b,y\n1,2,3\n"), "a column called 'text'; got a, b", kind="text", target="y")
    refuse(write("t.txt", "a"), "no columns to take a target from", target="y")


# --------------------------------------------------------------------------------------- ratings


@pytest.mark.parametrize(
    "name, text, options",
    [
        ("r.csv", "userId,movieId,rating,timestamp\n7,1,4.5,9\n3,1,2,9\n", {}),
        ("r.tsv", "user\titem\tvalue\n7\t1\t4.5\n3\t1\t2\n", {}),
        ("u.data", "7\t1\t4.5\t88\n3\t1\t2\t88\n", {"kind": "ratings"}),
        ("ratings.dat", "7::1::4.5::88\n3::1::2::88\n", {"kind": "ratings"}),
        ("r.txt", "7 1 4.5\n3   1 2\n", {"kind": "ratings"}),
        ("r.csv", "who,what,how\n7,1,4.5\n3,1,2\n", {"kind": "ratings"}),
    ],
)
def test_ratings_of_every_format(write, name, text, options):
    found = data.load(write(name, text), **options)
    assert found.kind == "ratings" and found.X.dtype == np.float32
    np.testing.assert_array_equal(found.X.toarray(), [[2], [4.5]])
    assert found.extra["users"].tolist() == [3, 7] and found.extra["items"].tolist() == [1]


def test_a_target_makes_ratings_a_table(write):
    path = write("r.csv", "user,item,rating\n1,1,5\n")
    assert data.load(path, target="rating").kind == "table"
    assert data.load(path, kind="table").kind == "table"


def test_repeated_ratings(write):
    with pytest.warns(CorollaryWarning, match="load: 1 ratings repeat"):
        found = data.load(write("r.csv", "user,item,rating\n1,1,5\n1,1,3\n"))
    assert found.X[0, 0] == 3


@pytest.mark.parametrize(
    "text, message",
    [
        ("user,item,rating\n-1,1,5\n", "user ids must not be negative; got -1"),
        ("user,item,rating\n1,,5\n", "every item must have an id; got 1 missing"),
        ("user,item,rating\n1,1,\n", "must be numbers; got 1 missing of 1"),
        ("user,item,rating\n1,1,good\n", "must be numbers"),
        ("1,2\n3,4\n", r"three columns \(user, item, value\); got 2"),
    ],
)
def test_wrong_ratings(write, text, message):
    refuse(write("r.csv", text), message, kind="ratings")


# ---------------------------------------------------------------------------------------- graphs


@pytest.mark.parametrize(
    "name, text",
    [
        ("g.edges", "# a comment\n0 1\n1 2\n"),
        ("g.edgelist", "% another\n0\t1\n\n1\t2\n"),
        ("g.csv", "source,target\n0,1\n1,2\n"),
        ("g.txt", "0 , 1\n2 , 1\n"),
    ],
)
def test_edge_lists_of_every_format(write, name, text):
    kind = None if name.startswith("g.edge") else "graph"
    found = data.load(write(name, text), kind=kind)
    np.testing.assert_array_equal(found.X.edge_index, [[0, 1, 1, 2], [1, 0, 2, 1]])
    assert found.kind == "graph" and found.X.num_nodes == 3 and found.X.x is None


def test_edges_between_names_with_weights(write):
    found = data.load(write("g.edges", "ann bob 2\nbob cid 0.5\n"))
    assert found.extra["nodes"].tolist() == ["ann", "bob", "cid"]
    np.testing.assert_array_equal(found.X.edge_weight, [2, 2, 0.5, 0.5])


@pytest.mark.parametrize(
    "text, message",
    [
        ("# nothing\n", "at least one edge"),
        ("0 1\n0 1 2\n", "'source target' or 'source target weight'; got 3 fields in edge 2"),
        ("0\n", "got 1 fields in edge 1"),
        ("0,\n", "must have two ends; got an empty id"),
        ("0 -1\n", "must not be negative; got -1"),
        ("0 1 x\n", "weights of g.edges must be numbers"),
        ("0 1 nan\n", "weights of g.edges must be finite"),
    ],
)
def test_wrong_edges(write, text, message):
    refuse(write("g.edges", text), message)


def test_an_edge_list_is_text(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "g.parquet")
    refuse(tmp_path / "g.parquet", "an edge list must be a text file", kind="graph")


def test_graphml_there_and_back(tmp_path):
    G = nx.gnp_random_graph(6, 0.6, seed=1, directed=True)
    for node, attributes in G.nodes(data=True):
        attributes.update(size=float(node), age=node, party="left" if node % 2 else "right")
    nx.set_edge_attributes(G, 2.0, "weight")
    nx.write_graphml(G, tmp_path / "g.graphml")
    found = data.load(tmp_path / "g.graphml", target="party")
    assert found.feature_names == ["size", "age"] and found.y.tolist() == ["right", "left"] * 3
    np.testing.assert_array_equal(found.X.x, np.repeat(np.arange(6.0)[:, None], 2, 1))
    assert set(map(tuple, found.X.edge_index.T)) == set(G.edges) and (found.X.edge_weight == 2).all()
    assert data.load(tmp_path / "g.graphml").y is None
    refuse(tmp_path / "g.graphml", "no node attribute named 'prty'. Closest: 'party'", target="prty")


def test_wrong_graphml(tmp_path, write):
    refuse(write("g.graphml", "<no xml"), "g.graphml must be a GraphML file; got ParseError")
    nx.write_graphml(nx.Graph(), tmp_path / "g.graphml")
    refuse(tmp_path / "g.graphml", "at least one node")
    G = nx.path_graph(3)
    G.nodes[0]["size"] = 1.0
    nx.write_graphml(G, tmp_path / "g.graphml")
    refuse(tmp_path / "g.graphml", "'size' of g.graphml must be given for every node; got 2 nodes without it")


# ----------------------------------------------------------------------------------------- sound


def test_sounds_there_and_back(tmp_path):
    samples = np.linspace(-1, 1, 50)
    for i, dtype in enumerate((np.int16, np.int32, np.float32, np.uint8)):
        scale = {np.int16: 2**15 - 1, np.int32: 2**31 - 1, np.float32: 1, np.uint8: 127}[dtype]
        wavfile.write(
            tmp_path / f"{i}.wav", 8000, (samples * scale + (128 if dtype == np.uint8 else 0)).astype(dtype)
        )
        found = data.load(tmp_path / f"{i}.wav")
        assert found.kind == "sequence" and found.extra["rate"] == 8000 and found.X[0].shape == (50, 1)
        np.testing.assert_allclose(found.X[0][:, 0], samples, atol=0.02 if dtype == np.uint8 else 1e-4)
    assert len(data.load(tmp_path).X) == 4


def test_a_folder_of_sounds_and_stereo(tmp_path):
    for label in ("no", "yes"):
        (tmp_path / label).mkdir()
        wavfile.write(tmp_path / label / "1.wav", 8000, np.zeros((7, 2), np.int16))
    found = data.load(tmp_path)
    assert found.y.tolist() == ["no", "yes"] and found.X[0].shape == (7, 2)


def test_wrong_sounds(write):
    refuse(write("a.wav", "no sound"), "a.wav must be a WAV file")
    raw = io.BytesIO()
    with wave.open(raw, "wb") as silent:
        silent.setparams((1, 2, 8000, 0, "NONE", ""))
    refuse(write("b.wav", raw.getvalue()), "b.wav must")
    bad = b"RIFF" + struct.pack("<I", 4) + b"WAVE"
    refuse(write("c.wav", bad), "c.wav must be a WAV file")


# ---------------------------------------------------------------------------------------- memory


def test_data_in_memory_of_every_kind():
    edges = np.array([[0], [1]])
    cases = {
        "table": [np.ones((2, 3)), [[1, 2], [3, 4]], pd.DataFrame({"a": [1, 2]})],
        "image": [np.zeros((2, 4, 4)), np.zeros((2, 3, 4, 4), np.uint8)],
        "sequence": [[np.array([1, 2]), np.array([3])], (np.ones((3, 2)), np.ones((2, 2)))],
        "graph": [Graph(np.eye(2), edges), nx.path_graph(2)],
        "graphs": [[Graph(np.eye(2), edges)] * 2, [nx.path_graph(2)]],
        "text": [["one", "two"]],
        "ratings": [sparse.csr_matrix(np.eye(3))],
    }
    for kind, sources in cases.items():
        for source in sources:
            found = data.load(source)
            assert found.kind == kind and repr(found).startswith(f"Dataset 'data': {kind}, X")
            assert data.load(found) is found


def test_a_grey_image_keeps_its_three_axes():
    assert data.load(np.zeros((2, 4, 4), np.uint8)).X.shape == (2, 4, 4)
    assert data.load([np.zeros((4, 4)), np.ones((4, 4))], kind="image").X.shape == (2, 4, 4)


def test_pictures_and_words_in_memory():
    grey = Image.fromarray(np.arange(30, dtype=np.uint8).reshape(5, 6))
    assert repr(data.load([grey, grey])) == "Dataset 'data': image, X (2, 5, 6)"
    assert data.load([grey.convert("RGB"), grey]).X.shape == (2, 3, 5, 6)
    found = data.load([["the", "cat"], ["a"]])
    assert found.kind == "sequence" and found.X == [["the", "cat"], ["a"]]


def test_frames_in_memory():
    frame = pd.DataFrame({"user": ["b", "a"], "item": [1, 2], "rating": [3, 4]})
    assert data.load(frame).kind == "table"
    assert data.load(frame, kind="ratings").extra["users"].tolist() == ["a", "b"]
    assert data.load(pd.DataFrame({"text": ["x", "y"], "y": [0, 1]}), kind="text", target="y").X == ["x", "y"]
    assert data.load(pd.DataFrame({0: [1.0, 2.0], 1: [3.0, 4.0]}), target=1).y.tolist() == [3, 4]


def test_a_target_beside_data_in_memory():
    assert data.load(np.eye(2), y=["a", "b"]).y.tolist() == ["a", "b"]
    frame = pd.DataFrame({"a": [1, 2], "c": ["x", "y"]})
    assert data.load(frame, y=pd.Series([0, 1], index=[5, 6])).y.tolist() == [0, 1]
    graph = data.load(Graph(np.eye(2), np.array([[0], [1]])), y=[3, 4])
    assert graph.y.tolist() == graph.X.y.tolist() == [3, 4]
    steps = data.load([np.array([1, 2]), np.array([3])], y=[["a", "b"], ["a"]])
    assert steps.y == [["a", "b"], ["a"]]
    assert data.load(data.load("iris"), y=np.arange(150)).y[-1] == 149
    refuse(np.eye(3), r"one entry per example \(3\); got shape \(2,\)", y=[0, 1])
    refuse(frame, "from y= or from target=; got both", y=[0, 1], target="a")


@pytest.mark.parametrize(
    "source, options, error, message",
    [
        (np.ones((2, 3)), {"target": "y"}, ValueError, "no columns to take a target from"),
        (np.ones(3), {}, ValueError, "rows and columns"),
        ([[1, 2], [3]], {}, ValueError, "one length; got different lengths"),
        (np.array([[1j, 2.0]]), {}, TypeError, "a table must hold real numbers"),
        ("no-such-file.csv", {}, FileNotFoundError, "a path that exists; got 'no-such-file.csv'"),
        ("minst", {}, FileNotFoundError, "Data sets with a name like it: 'mnist'"),
        (Dataset(np.ones((2, 2)), name="mine"), {"target": "a"}, ValueError, "'mine' brings its own target"),
        (Dataset(np.ones((2, 2))), {"kind": "text"}, ValueError, "is of kind table; got kind='text'. Leave"),
    ],
)
def test_wrong_sources(source, options, error, message):
    refuse(source, message, error, **options)


def test_images_can_be_read_as_a_table():
    found = data.load(Dataset(np.full((2, 4, 4), 255, np.uint8), kind="image"), kind="table")
    np.testing.assert_array_equal(found.X, np.ones((2, 16)))


def test_a_data_set_has_a_known_kind():
    with pytest.raises(ValueError, match="Dataset: no kind named 'imge'. Closest: 'image'"):
        Dataset(np.ones((1, 1, 1)), kind="imge")


@pytest.fixture
def without(monkeypatch):
    def without(package):
        real = builtins.__import__

        def blocked(module, *args, **options):
            if module.split(".")[0] == package:
                raise ImportError(module)
            return real(module, *args, **options)

        for module in [m for m in sys.modules if m.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setattr(builtins, "__import__", blocked)

    return without


PARQUET = defaultdict(lambda: b"PAR1")


@pytest.mark.parametrize(
    "package, extra, call",
    [
        ("PIL", "images", lambda write: data.load(write("a.png", "x"))),
        ("PIL", "images", lambda write: data.load("photos")),
        ("pyarrow", "parquet", lambda write: data.load(write("a.parquet", "x"))),
        ("pyarrow", "parquet", lambda write: networks.cora(PARQUET)),
        ("pyarrow", "parquet", lambda write: records.widedeep(PARQUET, "adult", "income")),
        ("networkx", "graphs", lambda write: data.load(write("a.graphml", "x"))),
        ("networkx", "graphs", lambda write: data.load("karate")),
    ],
)
def test_a_missing_package_is_named_with_its_extra(write, without, package, extra, call):
    data.load("iris")  # scikit-learn and pandas look for packages when they are imported
    without(package)
    with pytest.raises(ImportError, match=rf"load: needs the package .* pip install 'corollary\[{extra}\]'"):
        call(write)


# ----------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize(
    "source",
    [
        Dataset(np.arange(20.0).reshape(10, 2), np.arange(10)),
        Dataset(pd.DataFrame({"a": range(10), "b": list("abcdefghij")}), np.arange(10)),
        Dataset(np.zeros((10, 4, 4)), np.arange(10), "image"),
        Dataset([np.array([i]) for i in range(10)], np.arange(10), "sequence"),
        Dataset([f"text {i}" for i in range(10)], list(range(10)), "text", extra={"titles": list(range(10))}),
        Dataset([Graph(np.eye(2), np.array([[0], [1]]))] * 10, np.arange(10), "graphs"),
    ],
    ids=lambda source: source.kind,
)
def test_examples_are_divided(source):
    train, test = data.split(source, test=0.3, seed=1)
    assert (len(train), len(test)) == (7, 3) and train.kind == source.kind
    assert sorted([*train.y, *test.y]) == list(range(10))
    for part in (train, test):
        for i, label in enumerate(part.y):
            if source.kind in ("text", "sequence"):
                assert part.X[i] is source.X[label]
        assert list(part.extra.get("titles", part.y)) == list(part.y)
    again = data.split(source, test=0.3, seed=1)
    assert list(again[1].y) == list(test.y)
    assert list(data.split(source, test=0.3, seed=2)[1].y) != list(test.y)


def test_of_ratings_entries_are_divided():
    R = sparse.random(20, 30, 0.2, "csr", rng=np.random.default_rng(0))
    R.data[0] = 0.0  # a stored zero is a rating
    train, test = data.split(Dataset(R, kind="ratings"), test=0.25)
    assert train.X.shape == test.X.shape == R.shape
    assert train.X.nnz + test.X.nnz == R.nnz and test.X.nnz == 30
    np.testing.assert_allclose((train.X + test.X).toarray(), R.toarray())
    assert train.X.multiply(test.X).nnz == 0


def test_of_a_graph_nodes_are_masked():
    graph = Graph(np.eye(10), np.array([[0], [1]]), np.arange(10), val_mask=np.ones(10, bool))
    train, test = data.split(Dataset(graph, graph.y, "graph"), test=0.2)
    assert train.X.num_nodes == 10 and train.X.train_mask.sum() == 8 and test.X.test_mask.sum() == 2
    assert not (train.X.train_mask & train.X.test_mask).any() and train.X.val_mask is None
    assert data.split(train, test="published") == (train, train)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, "half"])
def test_wrong_shares(share):
    with pytest.raises(ValueError, match="split: test must be a share between 0 and 1, or 'published'; got"):
        data.split(Dataset(np.ones((4, 2))), test=share)


def test_what_cannot_be_divided():
    with pytest.raises(ValueError, match="two examples or more to divide; got 1"):
        data.split(Dataset(np.ones((1, 2))))
    with pytest.raises(ValueError, match="a published split; got 'mine' without one. Pass a share"):
        data.split(Dataset(np.ones((4, 2)), name="mine"), test="published")


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.csv.xz", "t.csv.zip", "t.csv"])
def test_compressed_tables(write, name):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("t.csv", "a,b\n1,2\n")
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".csv": gzip.compress}
    suffix = name[name.rindex(".") :]
    raw = packed.getvalue() if suffix == ".zip" else pack[suffix](b"a,b\n1,2\n")
    found = data.load(write(name, raw))
    assert found.name == "t" and found.X.tolist() == [[1, 2]]
    refuse(write(f"cut.{name}", raw[: len(raw) // 2 + 8]), "must be a whole compressed file")


@pytest.mark.parametrize("start", [b"BZh", b"BZh91AY&SY", b"\x1f\x8b", b"\xfd7zXZ\x00", b"PK\x03\x04"])
def test_what_only_starts_like_an_archive(write, start):
    refuse(write("t.csv", start + b"a,b\n1,2\n" * 20), "t.csv must be")


def test_an_archive_of_several_files(write):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    refuse(write("t.csv.zip", packed.getvalue()), "an archive of one file; got 2: a.csv, b.csv. Unpack it")


def test_a_small_packed_table_cannot_take_all_memory(write):
    raw = bz2.compress(b"a,b\n" + b"1,2\n" * 400_000)
    refuse(write("t.csv.bz2", raw), "must fit into 1000 bytes", limits=data.Limits(bytes=1000))
