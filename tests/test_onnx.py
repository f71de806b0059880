"""Models as ONNX graphs: onnxruntime says what the model says, on other sizes than the graph was traced with."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from corollary import (
    GPT,
    PCA,
    ImageClassifier,
    MLPClassifier,
    MLPRegressor,
    Run,
    SequenceClassifier,
    Training,
    catalog,
    testing,
)
from corollary.cli.app import app
from corollary.engine.ragged import Ragged
from corollary.gradient import GradientTrained

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

ESTIMATORS = {
    entry.name: entry.load()
    for entry in catalog.entries(kind="estimator")
    if issubclass(entry.load(), GradientTrained)
}
REFUSED = {
    "SequenceForecaster", "WaveNet", "Seq2Seq", "Transformer", "MemoryNetwork",  # say one thing after the other
    "ELMo", "BERT", "BERTAnswerer",  # answer from more than one pass, or in texts
    "LinkPredictor", "Flow",  # have no prediction for a graph or row alone
}  # fmt: skip
QUICK = {"MLPClassifier", "MLPRegressor", "Autoencoder"}


def made(name, **params):
    cls = ESTIMATORS[name]
    model = cls(**{**cls._test_params(), "random_state": 0, **params}).set_params(training__epochs=2)
    X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
    return model.fit(X, y), X


def padded(parts, **types):
    ragged = Ragged.of(parts, **types)
    return [t.numpy() for t in ragged.padded(torch.arange(len(ragged)))]


def fed(model, X):
    """Return what a caller of the graph gives it."""
    if model.input in ("table", "image"):
        return {"X": model._query(X).astype(np.float32)}
    if model.input == "graph":
        graphs = [X] if hasattr(X, "edge_index") else X
        shifts = np.cumsum([0, *(g.num_nodes for g in graphs)])
        checked = model._query(X)
        graphs = [checked] if hasattr(checked, "edge_index") else checked
        x = np.concatenate([g.x.toarray() if hasattr(g.x, "toarray") else g.x for g in graphs]).astype(
            np.float32
        )
        edges = np.concatenate([g.edge_index + s for g, s in zip(graphs, shifts)], axis=1)
        alone = {"x": x, "edge_index": edges}
        return alone if hasattr(X, "edge_index") else {**alone, "sizes": np.diff(shifts)}
    if model.input in ("sequence", "set"):
        X, lengths = padded(model._query(X))
        return {"X": X.astype(np.float32) if X.dtype.kind == "f" else X, "lengths": lengths}
    if hasattr(model, "_framed"):
        tagger = hasattr(model, "_windows")
        tokens, lengths = padded(model._windows(model._query(X))[0] if tagger else model._framed(list(X)))
    else:
        tokens, lengths = padded(model._ragged(X).flat.split(model._ragged(X).lengths.tolist()))
    scores = {"scores": model.ngram_scores(X)} if hasattr(model, "ngrams_") else {}
    return {"tokens": tokens, "lengths": lengths, **scores}


def run(path, given):
    session = onnxruntime.InferenceSession(path)
    names = [slot.name for slot in session.get_outputs()]
    return dict(zip(names, session.run(None, given))), session


def agree(model, X, path):
    found, session = run(model.to_onnx(path), fed(model, X))
    # float32 through other kernels
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
    notes = session.get_modelmeta().custom_metadata_map
    assert notes["model"] == type(model).__name__
    if "probabilities" in found:
        expected = model.predict_proba(X)
        if hasattr(model, "_windows"):  # a word's tag is said by its first piece
            _, places, counts = model._windows(model._query(X))
            parts = iter([part[place] for part, place in zip(found["probabilities"], places)])
            found["probabilities"] = [np.concatenate([next(parts) for _ in range(n)]) for n in counts]
        assert json.loads(notes["classes"]) == np.asarray(model.classes_).tolist()
        if isinstance(expected, list):  # of every part of every sequence
            for own, theirs in zip(expected, found["probabilities"]):
                close(theirs[: len(own)], own)
        else:
            close(found["probabilities"], expected)
            np.testing.assert_array_equal(found["label"], found["probabilities"].argmax(1))
    elif "prediction" in found:
        close(found["prediction"], model.predict(X))
    elif "code" in found:
        close(found["code"], model.transform(X))
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow)
        for n in ESTIMATORS
        if n not in REFUSED | {"GPT"}
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_onnxruntime_says_what_the_model_says(name, tmp_path):
    model, X = made(name)
    assert agree(model, X, tmp_path / "model.onnx")


@pytest.mark.parametrize("name", sorted(REFUSED & set(ESTIMATORS)))
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_graph_says_so(name, tmp_path):
    model = object.__new__(ESTIMATORS[name])
    model.__dict__.update(training=None, module_=torch.nn.Linear(1, 1))
    with pytest.raises(
        ValueError, match=f"{name}: to_onnx needs a model that answers by one pass .* Use save"
    ):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")
def test_units_and_labels_are_in_the_graph(tmp_path):
    rng = np.random.default_rng(0)
    X = 50 + 9 * rng.normal(size=(60, 4))
    for options, y in [
        ({}, 1e4 + 300 * X[:, 0]),
        ({}, np.column_stack([X[:, 0], -1e3 * X[:, 1]])),
        ({"loss": "poisson"}, rng.poisson(3, size=60)),
    ]:
        model = MLPRegressor((6,), training=Training(epochs=5), random_state=0, **options).fit(X, y)
        agree(model, X[:7], tmp_path / "numbers.onnx")
    model = MLPClassifier((6,), training=Training(epochs=5)).fit(
        X, np.array(["low", "high"])[(X[:, 0] > 50) * 1]
    )
    found = agree(model, X[:7], tmp_path / "words.onnx")
    assert (model.classes_[found["label"]] == model.predict(X[:7])).all()


@pytest.mark.parametrize("net", ["resnet", pytest.param("vit", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_images_and_their_standardisation(net, tmp_path):
    X, y = testing.sample_data("image")
    model = ImageClassifier(net, width=4, training=Training(epochs=1), random_state=0).fit(X, y)
    agree(model, X[:5], tmp_path / "net.onnx")


@pytest.mark.parametrize(
    "cell", [pytest.param(c, marks=pytest.mark.slow) for c in ("rnn", "lstm", "gru", "lru", "tcn")]
)
@pytest.mark.parametrize("pooling", ["last", "mean", "max"])
@pytest.mark.filterwarnings("ignore")
def test_sequences_of_other_lengths(cell, pooling, tmp_path):
    X, y = testing.sample_data("sequence")
    model = SequenceClassifier(cell=cell, width=4, pooling=pooling, training=Training(epochs=1)).fit(X, y)
    agree(model, X[:9], tmp_path / "net.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["gcn", "gat", "gin", "cheb", "mpnn"])
@pytest.mark.filterwarnings("ignore")
def test_layers_of_graphs(layer, tmp_path):
    model, X = made("NodeClassifier", layer=layer)
    agree(model, X, tmp_path / "net.onnx")


@pytest.mark.filterwarnings("ignore")
def test_language_models_give_logits(tmp_path):
    model = GPT(1, n_heads=2, width=8, max_length=12, training=Training(epochs=1)).fit(["abab", "baba"])
    tokens = np.array([[1, 2, 1, 2, 0], [2, 1, 0, 1, 2], [0, 0, 1, 1, 1]])
    found, session = run(model.to_onnx(tmp_path / "gpt.onnx"), {"tokens": tokens})
    with torch.no_grad():
        np.testing.assert_allclose(
            found["logits"], model.module_(torch.from_numpy(tokens)), rtol=1e-3, atol=1e-5
        )
    assert json.loads(session.get_modelmeta().custom_metadata_map["ends"]) == [model.tokenizer_.end]


# --- the command line ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_export_of_a_run(tmp_path):
    runner, (X, y) = CliRunner(), testing.sample_data("table")
    with Run(tmp_path / "run"):
        model = MLPClassifier((4,), training=Training(epochs=2), random_state=0).fit(X, y)
    done = runner.invoke(app, ["export", str(tmp_path / "run"), "--onnx", str(tmp_path / "net.onnx")])
    assert done.exit_code == 0 and "MLPClassifier in" in done.output
    assert "X -> probabilities, label" in " ".join(done.output.split())
    found, _ = run(tmp_path / "net.onnx", {"X": X.astype(np.float32)})
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), rtol=1e-3, atol=1e-5)
    path = PCA(2).fit(X).save(tmp_path / "pca.safetensors")
    done = runner.invoke(app, ["export", str(path), "--onnx", str(tmp_path / "pca.onnx")])
    assert isinstance(done.exception, ValueError)
    assert "only models that are networks have an ONNX graph; got PCA" in str(done.exception)
