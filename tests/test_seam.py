"""Models with objectives of their own take validation data, further batches and warm starts as all others do."""

import numpy as np
import pytest

from corollary import GAN, LinkPredictor, NodeClassifier, Training, catalog
from corollary.data import Graph
from corollary.graphs.links import split_links
from corollary.testing.checks import sample_data

NAMES = ["WaveNet", "BERT", "ELMo", "Flow", "DDPM", "ScoreModel", "PixelCNN"]
NAMES += ["GraphClassifier", "NodeClassifier", "LinkPredictor", "GAN"]


def made(name, **training):
    model = catalog.resolve(name)
    model = model(**model._test_params()).set_params(random_state=0)
    return model.set_params(**{f"training__{key}": value for key, value in training.items()})


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


@pytest.mark.parametrize("name", NAMES)
def test_the_seam_of_all_gradient_models(name):
    model = made(name, epochs=2, early_stopping=False)
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
    given = (X,) if y is None else (X, y)
    model.fit(*given, validation=given)
    measured = "validation_coverage" if name == "GAN" else "validation_loss"  # a game has no one loss
    assert all(np.isfinite(row[measured]) for row in model.history_)
    again = made(name, epochs=1, early_stopping=False, warm_start=True)
    first = weights(again.partial_fit(*given))
    assert again.n_iter_ == 1
    second = weights(again.partial_fit(*given))
    assert again.n_iter_ == 2 and not np.array_equal(first, second)
    moved = abs(weights(again.fit(*given)) - second).mean()
    other = made(name, epochs=1, early_stopping=False).set_params(random_state=1)
    assert 0 < moved < abs(weights(other.fit(*given)) - second).mean()  # it went on from where it was


def ring(n, seed):
    """Return a graph in which each of two classes of nodes is a ring, with noisy features."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n // 2)
    ends = np.concatenate([np.roll(np.flatnonzero(y == c), 1) for c in (0, 1)])
    edges = np.stack([np.arange(n), ends])
    x = (y[:, None] + rng.normal(size=(n, 3))).astype(np.float32)
    return Graph(x=x, edge_index=np.concatenate([edges, edges[::-1]], axis=1), y=y)


def test_nodes_are_validated_on_another_graph_or_on_other_labels_of_the_same():
    G, other = ring(40, 0), ring(24, 1)
    model = NodeClassifier(hidden_layer_sizes=(8,), training=Training(60), random_state=0)
    assert model.fit(G, validation=(other,)).n_validation_ == 24
    assert {"validation_loss", "validation_accuracy"} <= {*model.history_[0]}
    best = min(row["validation_loss"] for row in model.history_)
    proba = model.predict_proba(other)[np.arange(24), other.y]
    assert -np.log(proba).mean() == pytest.approx(best, rel=1e-4)  # the best weights are kept
    known, held = (np.where(np.arange(40) % 2 == part, G.y, -1) for part in (0, 1))
    given = model.fit(G, known, validation=(G, held)).history_
    mask = np.arange(40) % 2 == 1
    masked = Graph(x=G.x, edge_index=G.edge_index, y=G.y, train_mask=~mask, val_mask=mask)
    own = model.fit(masked).history_
    assert [row["validation_loss"] for row in given] == [row["validation_loss"] for row in own]
    with pytest.raises(ValueError, match="nodes to validate on must have labels.*got none"):
        model.fit(G, validation=(other, np.full(24, -1)))


def test_losses_of_a_curriculum_are_those_of_the_nodes_that_are_learned_from():
    """Attention looks at the part of the graph that some nodes see: another part for validation."""
    G = ring(40, 0)
    mask = np.arange(40) < 8
    masked = Graph(x=G.x, edge_index=G.edge_index, y=G.y, train_mask=~mask, val_mask=mask)
    plain, chosen = (
        NodeClassifier(
            "gat", dropout=0.0, training=Training(2, curriculum=c, early_stopping=False), random_state=0
        )
        for c in (None, "loss")
    )
    first = chosen.fit(masked).history_[0]["loss"]
    assert first < plain.fit(masked).history_[0]["loss"]  # the easiest quarter


def test_held_out_edges_are_validated_with_the_edges_that_are_left():
    known, held = split_links(ring(40, 0), 0.2)
    model = LinkPredictor(hidden_layer_sizes=(8, 4), training=Training(5), random_state=0)
    model.fit(known, validation=(held,))
    assert all(0 < row["validation_loss"] < 10 for row in model.history_)
    plan = Training(300, early_stopping=True, patience=5)
    assert model.set_params(training=plan).fit(known, validation=(held,)).stopped_ == "early stopping"
    with pytest.raises(
        ValueError, match="edges between the same 40 nodes; got 48 between 24. Hold edges out"
    ):
        model.fit(known, validation=(ring(24, 0),))


def test_samples_of_a_game_are_compared_with_validation_data():
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 100
    model = GAN(latent=2, width=8, n_layers=1, training=Training(3), random_state=0)
    row = model.fit(near, validation=(far,)).history_[-1]
    assert row["validation_coverage"] == row["validation_near"] == 0.0 < row["coverage"]
