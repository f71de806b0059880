"""Pre-training and fine-tuning by one mechanism: what is kept, frozen, slowed and new, for every kind of network."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import corollary
from corollary import MLPClassifier, MLPRegressor, Run, Training, load
from corollary.engine.transfer import layers_of
from corollary.testing import sample_data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
PLAN = Training(epochs=3, learning_rate=0.01)


def network(**options):
    return MLPClassifier((6, 4), training=PLAN, random_state=0, **options).fit(X, Y)


def weights(model):
    return {name: w.detach().clone() for name, w in model.module_.state_dict().items()}


def test_layers_are_the_parts_in_order():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1))
            self.blocks = nn.ModuleList([nn.Linear(1, 1), nn.LayerNorm(1)])
            self.head = nn.Linear(1, 2)

    found = layers_of(nn.Sequential(nn.Identity(), Two()))
    assert [names[0] for names in found] == [
        "1.token",
        "1.blocks.0.weight",
        "1.blocks.1.weight",
        "1.head.weight",
    ]


def test_frozen_layers_stay_and_the_others_move():
    base = network()
    before = weights(base)
    for freeze, still in ((-1, {"0", "2"}), (1, {"0"}), ("2.", {"2"}), (["0.weight", "*.bias"], None)):
        tuned = base.fine_tune(X, 1 - Y, freeze=freeze)
        after = weights(tuned)
        kept = {name for name in before if torch.equal(before[name], after[name])}
        if still is None:
            assert kept == {"0.weight", "0.bias", "2.bias", "4.bias"}
        else:
            assert kept == {name for name in before if name.split(".")[0] in still}
    assert {name: torch.equal(before[name], w) for name, w in weights(base).items()} == dict.fromkeys(
        before, True
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_layer_rates_are_rates_of_the_optimiser(optimizer, weight_decay):
    """One update on all the data, beside torch's own parameter groups with a rate each."""
    plan = Training(
        epochs=1, optimizer=optimizer, learning_rate=0.05, batch_size=60, weight_decay=weight_decay
    )
    base = network()
    tuned = base.fine_tune(X, Y, rate_decay=0.5, training=plan)
    module = base._module()
    module.load_state_dict(base.module_.state_dict())
    groups = []
    for k, layer in enumerate(("4", "2", "0")):
        for name, p in module.get_submodule(layer).named_parameters():
            decay = weight_decay if name == "weight" else 0.0
            groups.append({"params": [p], "lr": 0.05 * 0.5**k, "weight_decay": decay})
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](groups, lr=0.05)
    nn.functional.cross_entropy(module(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
    optimizer.step()
    for name, w in weights(tuned).items():
        torch.testing.assert_close(w, module.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_the_head_is_new_where_the_classes_are_others():
    base, slow = network(), Training(epochs=1, learning_rate=1e-12)
    same = weights(base.fine_tune(X, Y, training=slow))
    assert all(torch.allclose(w, same[name]) for name, w in weights(base).items())
    for other in (Y + 5, RNG.permutation(np.arange(60) % 3)):
        found = base.fine_tune(X, other, training=slow)
        assert found.classes_.tolist() == np.unique(other).tolist()
        new = weights(found)
        assert torch.allclose(new["2.weight"], weights(base)["2.weight"])
        assert new["4.weight"].shape != same["4.weight"].shape or not torch.allclose(
            new["4.weight"], same["4.weight"]
        )


CASES = {
    "image": corollary.ImageClassifier("lenet", training=PLAN, random_state=0),
    "resnet": corollary.ImageClassifier("resnet", width=4, training=PLAN, random_state=0),
    "vit": corollary.ImageClassifier("vit", width=8, training=PLAN, random_state=0),
    "sequence": corollary.SequenceClassifier(width=4, training=PLAN, random_state=0),
    "text": corollary.TextCNN(n_filters=4, training=PLAN, random_state=0),
    "set": corollary.DeepSetsClassifier(training=PLAN, random_state=0),
    "graph": corollary.NodeClassifier(training=PLAN, random_state=0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
def test_every_kind_of_network_is_tuned_by_the_same_mechanism(name, tmp_path):
    kind = {"resnet": "image", "vit": "image"}.get(name, name)
    samples, y = sample_data(kind)
    base = CASES[name].fit(samples) if kind == "graph" else CASES[name].fit(samples, y)
    head = layers_of(base.module_)[-1]
    assert any(2 in base.module_.get_parameter(part).shape for part in head)
    tuned = (
        base.fine_tune(samples, freeze=-1, training=PLAN)
        if kind == "graph"
        else base.fine_tune(
            samples[:30], (np.asarray(y[:30]) + np.arange(30) % 4).clip(0, 3), freeze=-1, training=PLAN
        )
    )
    old, new = dict(base.module_.named_parameters()), dict(tuned.module_.named_parameters())
    moved = {
        part for part in new if old[part].shape != new[part].shape or not torch.equal(old[part], new[part])
    }
    assert moved and moved <= set(head)
    norms = [part for part in base.module_.state_dict() if "running" in part]
    assert all(torch.equal(base.module_.state_dict()[n], tuned.module_.state_dict()[n]) for n in norms)
    loaded = load(tuned.save(tmp_path / "m.safetensors"))
    assert np.array_equal(loaded.predict_proba(samples), tuned.predict_proba(samples))


def test_pretrain_then_fit_clones_resume_and_numbers(tmp_path):
    model = MLPRegressor((6,), training=PLAN, random_state=0).pretrain(X, X[:, 0], rate_decay=0.5)
    assert not hasattr(model, "module_")
    again = clone(model).fit(X, X[:, 1])
    model.fit(X, X[:, 1])
    assert np.array_equal(model.predict(X), again.predict(X))
    fresh = MLPRegressor((6,), training=PLAN, random_state=0).fit(X, X[:, 1])
    assert not np.array_equal(model.predict(X), fresh.predict(X))
    with Run(tmp_path, checkpoint_every=0):
        clone(model).set_params(training__epochs=2).fit(X, X[:, 1])
    with Run(tmp_path, resume=True):
        resumed = clone(model).fit(X, X[:, 1])
    assert np.array_equal(resumed.predict(X), model.predict(X))


def test_frames_and_words_are_read_as_the_weights_know_them():
    import pandas as pd

    frame = pd.DataFrame({"size": X[:, 0], "place": np.where(Y, "a", "b")})
    base = MLPClassifier((4,), training=PLAN, random_state=0).fit(frame, Y)
    tuned = base.fine_tune(frame.assign(place="a").head(20), Y[:20])
    assert tuned.n_features_in_ == base.n_features_in_
    texts = ["sun warm sea"] * 5 + ["snow cold ice"] * 5
    words = corollary.TextCNN(n_filters=4, training=PLAN, random_state=0).fit(texts, [0] * 5 + [1] * 5)
    other = words.fine_tune(["sun new words", "ice and others"] * 3, [0, 1] * 3)
    assert other.vocabulary_ == words.vocabulary_


def test_what_does_not_fit_says_why():
    base = network()
    with pytest.raises(ValueError, match="freeze must leave some of the 3 layers to train; got 3"):
        base.fine_tune(X, Y, freeze=3)
    with pytest.raises(ValueError, match="no parameter named 'haed'.*A name's beginning is enough"):
        base.fine_tune(X, Y, freeze="haed")
    with pytest.raises(ValueError, match="freeze must leave some parameters to train; got all of them"):
        base.fine_tune(X, Y, freeze="*")
    with pytest.raises(ValueError, match=r"rate_decay must lie in \(0, 1\]; got 0"):
        base.fine_tune(X, Y, rate_decay=0)
    with pytest.raises(ValueError, match="5 features"):
        base.fine_tune(X[:, :3], Y)
    with pytest.raises(ValueError, match="up to the head; got another shape of 0"):
        clone(base.fine_tune(X, Y)).set_params(hidden_layer_sizes=(7, 4)).fit(X, Y)
