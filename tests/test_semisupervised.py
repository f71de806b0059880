"""Semi-supervised learning: scikit-learn's self-training round by round, consistency against its formula."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from sklearn.semi_supervised import SelfTrainingClassifier

from corollary import Consistency, ImageClassifier, MLPClassifier, SelfTraining, Training, load
from corollary.engine.batches import Batch
from corollary.engine.objective import Supervised
from corollary.losses import CrossEntropy
from corollary.regularisation.semisupervised import has_label
from corollary.testing import sample_data

X, Y = load_iris(return_X_y=True)
FEW = np.where(np.random.default_rng(0).random(150) < 0.15, Y, -1)


@pytest.mark.parametrize(("threshold", "max_iter"), [(0.75, 10), (0.99, 2), (0.6, 1)])
def test_rounds_are_those_of_scikit_learn(threshold, max_iter):
    ours = SelfTraining(GaussianNB(), threshold=threshold, max_iter=max_iter).fit(X, FEW)
    theirs = SelfTrainingClassifier(GaussianNB(), threshold=threshold, max_iter=max_iter).fit(X, FEW)
    assert np.array_equal(ours.transduction_, theirs.transduction_)
    assert np.array_equal(ours.labeled_iter_, theirs.labeled_iter_)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-12)
    assert ours.history_[-1]["labelled"] == (ours.transduction_ >= 0).sum()


def test_names_none_and_nan():
    names = np.array(["a", "b", "c"], dtype=object)[Y]
    given = np.where(FEW >= 0, names, None)
    one = SelfTraining("softmax-regression", random_state=0).fit(X, given)
    two = SelfTraining("softmax-regression", random_state=0).fit(X, np.where(FEW >= 0, FEW, np.nan))
    assert one.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
    assert has_label([1.0, np.nan, -1.0]).tolist() == [True, False, False]


def test_consistency_is_its_formula_and_reaches_the_samples_without_labels(tmp_path):
    rows, weight = torch.randn(6, 3), torch.randn(3, 2)

    class Host:
        owner = "Host"
        players = (type("P", (), {"objective": Supervised(CrossEntropy(2))}),)

    def module(x):
        seen.append(x)
        return x @ weight

    seen = []
    part = Consistency(2.0, noise=0.5)
    part.attach(Host)
    found = part.on_loss(torch.tensor(1.0), module, Batch((rows,), None, None, 6))
    p, q = ((x @ weight).softmax(1) for x in seen)
    torch.testing.assert_close(found, 1 + 2 * (p - q).square().sum(1).mean())
    assert not torch.equal(seen[0], seen[1])
    plan = Training(epochs=2)
    with_it = SelfTraining(MLPClassifier((4,), training=plan), consistency=1.0, max_iter=0, random_state=0)
    with_it.fit(X, FEW)
    plain = SelfTraining(MLPClassifier((4,), training=plan), max_iter=0, random_state=0).fit(X, FEW)
    assert not np.allclose(with_it.predict_proba(X), plain.predict_proba(X))
    loaded = load(with_it.save(tmp_path / "m.safetensors"))
    assert np.array_equal(loaded.predict_proba(X), with_it.predict_proba(X))


def test_images_and_what_cannot_work():
    images, y = sample_data("image")
    few = np.where(np.arange(40) < 12, y, -1)
    net = ImageClassifier("lenet", training=Training(epochs=2))
    assert SelfTraining(net, max_iter=1, random_state=0).fit(images, few).predict(images).shape == (40,)
    with pytest.raises(ValueError, match="some samples must have a label"):
        SelfTraining("softmax-regression").fit(X, np.full(150, -1))
    with pytest.raises(ValueError, match="at least two classes; got the one class 1"):
        SelfTraining("softmax-regression").fit(X, np.where(FEW == 1, 1, -1))
    with pytest.raises(TypeError, match="a classifier with probabilities; got 'ridge'"):
        SelfTraining("ridge").fit(X, FEW)
    with pytest.raises(ValueError, match="consistency needs a network"):
        SelfTraining("softmax-regression", consistency=1.0).fit(X, FEW)
