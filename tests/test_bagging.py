"""Bagging: scikit-learn's on the same bags, any member of any kind of samples, out-of-bag answers, files and resume."""

import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import ensemble
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Ridge as ScikitRidge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor

import corollary
from corollary import Bagging, BaggingClassifier, BaggingRegressor, MLPClassifier, Run, Training, load
from corollary.testing import sample_data

X, Y = load_iris(return_X_y=True)
LABELS = np.array(["setosa", "versicolor", "virginica"])[Y]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_samples": 0.5, "max_features": 3},
        {"max_features": 0.5, "bootstrap_features": True},
        {"bootstrap": False, "max_samples": 40},
    ],
)
@pytest.mark.parametrize("member", [KNeighborsClassifier(3), SVC()], ids=["probabilities", "votes"])
def test_classifiers_are_scikit_learns_on_the_same_bags(member, options):
    """The members are fitted to the same rows, or to the same weights where they take them: only the order of sums may differ."""
    ours = BaggingClassifier(member, 12, random_state=3, **options).fit(X, LABELS)
    theirs = ensemble.BaggingClassifier(member, 12, random_state=3, **options)
    oob = options.get("bootstrap", True)
    theirs.set_params(oob_score=oob).fit(X, LABELS)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-12)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    if oob:
        known = np.isfinite(ours.oob_decision_function_[:, 0])
        np.testing.assert_allclose(
            ours.oob_decision_function_[known], theirs.oob_decision_function_[known], atol=1e-12
        )
        right = ours.classes_[ours.oob_decision_function_[known].argmax(1)] == LABELS[known]
        assert ours.oob_score_ == np.mean(right) == ours.history_[-1]["oob_score"]
    else:
        assert not hasattr(ours, "oob_score_")


@pytest.mark.parametrize(
    "member", [ScikitRidge(0.1), DecisionTreeRegressor(min_samples_leaf=1)], ids=["ridge", "tree"]
)
def test_regressors_are_scikit_learns_on_the_same_bags(member):
    A, b = load_diabetes(return_X_y=True)
    ours = BaggingRegressor(member, 20, random_state=0).fit(A, b)
    theirs = ensemble.BaggingRegressor(member, 20, oob_score=True, random_state=0).fit(A, b)
    np.testing.assert_allclose(ours.predict(A), theirs.predict(A), rtol=1e-9)
    assert ours.oob_score_ == pytest.approx(theirs.oob_score_, abs=1e-9)
    if isinstance(
        member, ScikitRidge
    ):  # rows that are there twice, or rows of weight 2, are the same to least squares
        with_ours = BaggingRegressor(corollary.Ridge(0.1), 20, random_state=0).fit(A, b)
        np.testing.assert_allclose(with_ours.predict(A), ours.predict(A), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
@pytest.mark.parametrize(
    ("kind", "member"),
    [
        ("image", corollary.ImageClassifier("lenet", training=Training(epochs=2))),
        ("sequence", corollary.SequenceClassifier(training=Training(epochs=2))),
        ("text", corollary.TextCNN(training=Training(epochs=2))),
    ],
)
def test_members_of_any_kind_of_samples(kind, member, tmp_path):
    samples, y = sample_data(kind)
    model = Bagging(member, 2, random_state=0).fit(samples, y)
    assert model.input == kind
    each = np.mean([member.predict_proba(samples) for member in model.estimators_], axis=0)
    np.testing.assert_allclose(model.predict_proba(samples), each, atol=1e-7)
    loaded = load(model.save(tmp_path / "m.safetensors"))
    assert np.array_equal(loaded.predict_proba(samples), model.predict_proba(samples))


def test_jobs_change_nothing_and_more_members_may_follow(tmp_path):
    member = MLPClassifier((4,), training=Training(epochs=3))
    alone = Bagging(member, 4, random_state=0).fit(X, LABELS)
    with Run(tmp_path):
        Bagging(member, 2, random_state=0).fit(X, LABELS)
    with Run(tmp_path, resume=True), parallel_config(backend="threading"):  # processes take seconds to start
        several = Bagging(member, 4, n_jobs=2, random_state=0).fit(X, LABELS)
    assert np.array_equal(alone.predict_proba(X), several.predict_proba(X))
    assert [row["oob_score"] for row in alone.history_] == [row["oob_score"] for row in several.history_]


def test_rare_classes_and_a_class_that_a_bag_lacks():
    y = np.zeros(150, int)
    y[:2] = 1
    model = BaggingClassifier("softmax-regression", 6, max_samples=30, random_state=0).fit(X, y)
    assert all(len(member.classes_) == 2 for member in model.estimators_)
    few = np.where(np.arange(150) < 2, 2, Y % 2)
    model = BaggingClassifier("softmax-regression", 6, max_samples=30, random_state=0).fit(X, few)
    assert min(len(member.classes_) for member in model.estimators_) == 2
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)
    with pytest.raises(ValueError, match=r"a bag must hold more than one class.*Raise max_samples"):
        BaggingClassifier("softmax-regression", max_samples=1).fit(X, Y)


def test_what_cannot_be_bagged_says_why(tmp_path):
    trees = BaggingRegressor(DecisionTreeRegressor(), 2, random_state=0).fit(X, Y)
    with pytest.raises(TypeError, match=r"our own estimators; got a sklearn\.tree.*DecisionTreeRegressor"):
        trees.save(tmp_path / "m.safetensors")
    with (
        Run(tmp_path),
        pytest.raises(TypeError, match="with a run directory estimator must be an estimator of"),
    ):
        trees.fit(X, Y)
    with pytest.raises(TypeError, match="estimator must be a classifier; got .*Use Bagging"):
        BaggingClassifier("ridge").fit(X, Y)
    with pytest.raises(TypeError, match="estimator must be a regressor; got .*Use Bagging"):
        BaggingRegressor("mlp").fit(X, Y)
    with pytest.raises(TypeError, match="classifier or a regressor, whose answers can be averaged"):
        Bagging("pca")
    with pytest.raises(TypeError, match="estimator must be an estimator; got 3"):
        Bagging(3)
    with pytest.raises(ValueError, match="no system named 'mpl'. Closest: 'mlp'"):
        Bagging("mpl")
    with pytest.raises(ValueError, match="must take samples one by one .*got a model of a graph"):
        BaggingClassifier("gcn").fit(*sample_data("graph"))
    with pytest.raises(ValueError, match="max_features must be at most 4; got 9"):
        Bagging("ridge", max_features=9).fit(X, Y)
    with pytest.raises(ValueError, match="features can be drawn of tables only; got images"):
        Bagging("lenet", max_features=0.5).fit(*sample_data("image"))


def test_members_by_name_take_settings(tmp_path):
    model = BaggingClassifier().set_params(estimator="mlp", estimator__training__epochs=1, n_estimators=2)
    assert isinstance(model.estimator, MLPClassifier) and len(model.fit(X, Y).estimators_[0].history_) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Run(tmp_path):
            BaggingClassifier("softmax-regression", 2, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="a resumed fit must have estimator="), Run(tmp_path, resume=True):
        BaggingClassifier("logistic", 2, random_state=0).fit(X, Y)
