"""Files: what is written comes back, and nothing else ever runs."""

import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from corollary import MLPClassifier, Training, io, load
from corollary.testing import same


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.array(["no", "yes"] * 15)
    return MLPClassifier((4,), training=Training(epochs=2), random_state=0).fit(X, y), X


DOCUMENTS = [
    None,
    True,
    -3,
    2**100,
    0.1,
    float("inf"),
    float("nan"),
    "text with \u2603",
    [1, [2.5, None]],
    (1, ("a", (True,))),
    {"a": {"b": [1]}},
    {1: "x", (2, 3): "y"},
    np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array(3.5),
    np.array([], dtype=np.float32),
    np.array([True, False]),
    np.array([1 + 2j, 3j]),
    np.array([[1 + 2j], [3j]], dtype=np.complex64),
    np.array(["a", "bcd"]),
    np.array([1, "x", None], dtype=object),
    np.float32(0.3),
    np.int64(7),
    np.bool_(True),
    torch.arange(4.0),
    torch.arange(4).to(torch.bfloat16),
    torch.tensor([1, 2], dtype=torch.uint8),
    sparse.random(4, 5, 0.4, format="csr", random_state=0),
    sparse.random(4, 5, 0.4, format="csc", random_state=0),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: f"{type(d).__name__}-{str(d)[:20]!r}")
def test_documents_come_back(tmp_path, document):
    io.write(tmp_path / "x", document, "test")
    back = io.read(tmp_path / "x", "test")
    assert type(back) is type(document) or isinstance(document, np.generic)
    if isinstance(document, torch.Tensor):
        assert back.dtype == document.dtype
        assert torch.equal(back, document)
    elif isinstance(document, np.ndarray) and document.dtype == object:
        assert back.tolist() == document.tolist()
    elif isinstance(document, float) and np.isnan(document):
        assert np.isnan(back)
    elif isinstance(document, dict):
        assert back == document
    else:
        assert same(back, document)
    if isinstance(document, np.ndarray):
        assert back.dtype == document.dtype
        assert back.flags.f_contiguous == document.flags.f_contiguous


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(document=NESTED)
def test_any_plain_document_comes_back(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("io") / "x"
    io.write(path, document, "test")
    assert io.read(path, "test") == document


def test_a_model_comes_back(tmp_path, fitted):
    model, X = fitted
    again = load(model.save(tmp_path / "m.safetensors"))
    assert again.get_params()["training__epochs"] == 2
    assert same(again.predict_proba(X), model.predict_proba(X))
    assert again.classes_.tolist() == ["no", "yes"]
    assert again.history_ == model.history_


def test_an_unfitted_model_comes_back(tmp_path):
    io.save(MLPClassifier((7,)), tmp_path / "m")
    assert load(tmp_path / "m").hidden_layer_sizes == (7,)


def test_what_cannot_be_kept_is_named(tmp_path):
    with pytest.raises(TypeError, match="must be numbers, strings.*got a builtins.function"):
        io.write(tmp_path / "x", {"f": lambda: None}, "test")
    assert not list(tmp_path.iterdir())


def test_missing_file():
    with pytest.raises(FileNotFoundError, match="no file 'nowhere'"):
        load("nowhere")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused(tmp_path_factory, fitted, data):
    path = tmp_path_factory.mktemp("io") / "m"
    fitted[0].save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans(), label="cut"):
        content = content[: data.draw(st.integers(0, len(content) - 1), label="length")]
    else:
        place = data.draw(st.integers(0, len(content) - 1), label="place")
        content[place] ^= data.draw(st.integers(1, 255), label="bits")
    path.write_bytes(bytes(content))
    with pytest.raises(io.FileError, match="^load: "):
        load(path)


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("io") / "m"
    path.write_bytes(content)
    with pytest.raises(io.FileError):
        load(path)


def forged(path, header):
    """Write a whole file with this header and a right checksum, as an attacker could."""
    text = json.dumps(header)
    meta = {"__metadata__": {io.KEY: text, "sha256": io._digest(text, {})}}
    raw = json.dumps(meta).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)
    return path


def model_header(**changes):
    document = {"$": "estimator", "name": "MLPClassifier", "params": {}, "fitted": {}, **changes}
    return {"schema": io.SCHEMA, "version": "0", "kind": "model", "document": document}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (model_header(name="os.system"), "not in the catalog"),
        (model_header(name="Popen"), "not in the catalog"),
        (model_header(params={"nonsense": 1}), "altered"),
        (model_header(fitted={"fit": 1}), "not a fitted attribute"),
        (model_header(fitted={"__class__": 1}), "not a fitted attribute"),
        (model_header(fitted={"x_": {"$": "array", "name": "9"}}), "altered"),
        (model_header(fitted={"x_": {"$": "pickle", "value": "gASV"}}), "unknown entry 'pickle'"),
        ({**model_header(), "schema": io.SCHEMA + 1}, r"schema 2; this version reads up to 1. Install"),
        ({**model_header(), "kind": "checkpoint"}, "is a checkpoint file; a model file"),
        ([1, 2], "altered"),
        ({}, "altered"),
    ],
)
def test_hostile_files_are_refused(tmp_path, header, message):
    with pytest.raises(io.FileError, match=message):
        load(forged(tmp_path / "m", header))


def test_someone_elses_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(2)}, tmp_path / "m")
    with pytest.raises(io.FileError, match="corollary did not write it"):
        load(tmp_path / "m")


def test_writing_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "m"
    io.write(path, {"a": 1}, "test")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk is full")))
    with pytest.raises(OSError, match="disk is full"):
        io.write(path, {"a": 2}, "test")
    assert io.read(path, "test") == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_directory_that_is_not_there_is_named(tmp_path):
    from corollary import PCA, MLPClassifier, Training

    model = PCA(1).fit(np.eye(3))
    with pytest.raises(FileNotFoundError, match="^save: no directory '.*nowhere'. Make it first.$"):
        model.save(tmp_path / "nowhere" / "m.safetensors")
    pytest.importorskip("onnx")
    net = MLPClassifier((2,), training=Training(epochs=1)).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(FileNotFoundError, match="^save: no directory '.*nowhere'. Make it first.$"):
        net.to_onnx(tmp_path / "nowhere" / "m.onnx")
