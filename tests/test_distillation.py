"""Distillation: the tempered loss against autograd and its limits, students that are networks and others, classes by name."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from corollary import (
    Distiller,
    ImageClassifier,
    MLPClassifier,
    Run,
    SoftmaxRegression,
    Training,
    load,
)
from corollary.losses import CrossEntropy
from corollary.regularisation.distillation import Tempered, tempered
from corollary.testing import sample_data

X, Y = load_iris(return_X_y=True)
LABELS = np.array(["setosa", "versicolor", "virginica"])[Y]
RNG = np.random.default_rng(0)


def test_tempered_probabilities_are_those_of_divided_logits():
    z = RNG.normal(size=(6, 4)) * 3
    np.testing.assert_allclose(tempered(softmax(z, 1), 3.0), softmax(z / 3, 1), atol=1e-12)
    np.testing.assert_allclose(tempered(softmax(z, 1), 1.0), softmax(z, 1), atol=1e-12)
    np.testing.assert_allclose(tempered(softmax(z, 1), 1e6), 0.25, atol=1e-4)
    np.testing.assert_allclose(tempered(np.array([[1.0, 0.0]]), 1.0), [[1.0, 0.0]], atol=1e-12)


def test_the_loss_and_its_gradient_have_their_closed_forms():
    z, v, y = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3)), np.array([0, 1, 2, 2, 0])
    T, alpha = 4.0, 0.3
    soft, hard = softmax(v / T, 1), np.eye(3)[y]
    logits = torch.tensor(z, requires_grad=True)
    loss = Tempered(CrossEntropy(3), T, alpha)(logits, torch.tensor(np.concatenate([soft, hard], 1)))
    expected = (
        -(1 - alpha) * T**2 * (soft * log_softmax(z / T, 1)).sum(1)
        - alpha * log_softmax(z, 1)[np.arange(5), y]
    )
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-12)
    loss.sum().backward()
    slope = (1 - alpha) * T * (softmax(z / T, 1) - soft) + alpha * (softmax(z, 1) - hard)
    np.testing.assert_allclose(logits.grad, slope, atol=1e-12)


def contexts():
    """Inputs that name one of two contexts; the teacher's probabilities are then those it has counted."""
    A = np.repeat(np.eye(2), 50, axis=0)
    y = np.concatenate([np.repeat([0, 1, 2], [30, 15, 5]), np.repeat([0, 1, 2], [5, 10, 35])])
    return A, y, np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])


@pytest.mark.parametrize("T", [1.0, 3.0])
def test_a_network_student_learns_the_teacher_itself(T):
    """A student that can say anything is the teacher: with temperature on both sides it gets p, not p_T."""
    A, y, p = contexts()
    teacher = MLPClassifier((), training=Training(optimizer="lbfgs", epochs=60), random_state=0).fit(A, y)
    student = MLPClassifier((), training=Training(optimizer="lbfgs", epochs=60))
    model = Distiller(teacher, student, temperature=T, random_state=0).fit(A)
    np.testing.assert_allclose(model.predict_proba(np.eye(2)), p, atol=2e-4)
    other = np.zeros(100, int)  # labels that say otherwise, at T = 1: the mixture of both
    if T == 1:
        model = Distiller(teacher, student, temperature=T, hard_weight=0.5, random_state=0).fit(A, other)
        np.testing.assert_allclose(model.predict_proba(np.eye(2)), (p + [1, 0, 0]) / 2, atol=2e-4)


def test_other_students_learn_the_targets_as_weights():
    A, y, p = contexts()
    teacher = MLPClassifier((), training=Training(optimizer="lbfgs", epochs=60), random_state=0).fit(A, y)
    model = Distiller(teacher, DecisionTreeClassifier(), temperature=1.0, hard_weight=0.0).fit(A, y)
    np.testing.assert_allclose(model.predict_proba(np.eye(2)), p, atol=2e-4)
    model = Distiller(KNeighborsClassifier(), SoftmaxRegression(), temperature=1.0, random_state=0).fit(
        X, LABELS
    )
    assert model.score(X, LABELS) > 0.9 and type(model.student_) is SoftmaxRegression
    with pytest.raises(ValueError, match="a network, or its fit must take sample_weight; got KNeighbors"):
        Distiller(teacher, KNeighborsClassifier()).fit(A, y)


def test_teachers_are_fitted_where_they_are_not_and_clones_fit_their_own(tmp_path):
    plan = Training(epochs=5, learning_rate=0.02)
    model = Distiller("softmax-regression", MLPClassifier((8,), training=plan), random_state=0).fit(X, LABELS)
    assert model.teacher_.score(X, Y) > 0.9
    fitted = Distiller(SoftmaxRegression().fit(X, LABELS), MLPClassifier((8,), training=plan), random_state=0)
    fitted.fit(X, LABELS)
    assert not hasattr(fitted, "teacher_")
    np.testing.assert_allclose(fitted.predict_proba(X), model.predict_proba(X), atol=1e-6)
    again = clone(fitted).fit(X, LABELS)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    loaded = load(fitted.save(tmp_path / "m.safetensors"))  # the student; a teacher's weights stay out
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert not hasattr(loaded.teacher, "classes_")


def test_images_and_early_stopping():
    images, y = sample_data("image")
    net = ImageClassifier("lenet", training=Training(epochs=2), random_state=0)
    plan = Training(epochs=3, early_stopping=True, patience=1, validation_fraction=0.2, label_smoothing=0.1)
    student = ImageClassifier("lenet", class_weight="balanced", training=plan)
    model = Distiller(net.fit(images, y), student, random_state=0).fit(images, y)
    assert (
        model.input == "image" and "validation_loss" in model.history_[0] and "accuracy" in model.history_[0]
    )
    assert model.predict_proba(images).shape == (40, 2)


def test_classes_kinds_and_teachers_that_do_not_fit_are_named(tmp_path):
    teacher = SoftmaxRegression().fit(X[50:], LABELS[50:])
    with pytest.raises(
        ValueError, match=r"teacher must know the classes \['setosa', .*got one of \['versicolor'"
    ):
        Distiller(teacher, "mlp").fit(X, LABELS)
    student = MLPClassifier((4,), training=Training(epochs=1), random_state=0).fit(X[50:], LABELS[50:])
    with pytest.raises(
        ValueError, match=r"student must know the classes \['setosa', .*got one of \['versicolor'"
    ):
        Distiller("softmax-regression", student).fit(X, LABELS)
    fewer = Distiller(SoftmaxRegression().fit(X, LABELS), "softmax-regression").fit(X[50:], LABELS[50:])
    assert fewer.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    with pytest.raises(ValueError, match="must take the same kind of samples; got image and table"):
        Distiller("lenet", "mlp").fit(X, Y)
    with pytest.raises(TypeError, match="teacher must be a classifier; got Ridge"):
        Distiller("ridge", "mlp").fit(X, Y)
    with pytest.raises(ValueError, match="the teacher must have probabilities; got LinearSVC"):
        Distiller(LinearSVC(), "mlp").fit(X, Y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        Distiller("mlp", "mlp").fit(X)
    one, other = (SoftmaxRegression().fit(X, labels) for labels in (Y, (Y + 1) % 3))
    student = MLPClassifier((4,), training=Training(epochs=2))
    with Run(tmp_path):
        Distiller(one, student, random_state=0).fit(X, Y)
    with Run(tmp_path, resume=True), pytest.raises(ValueError, match="a resumed fit must have data="):
        Distiller(other, student, random_state=0).fit(X, Y)


def test_a_teacher_that_knows_names_of_columns_is_asked_by_them():
    """Without a warning, which is an error here; columns in another order are refused."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    labels = np.where(table["a"] > 0, "right", "left")
    teacher, student = (
        LogisticRegression().fit(table, labels),
        MLPClassifier((4,), training=Training(epochs=2)),
    )
    named = Distiller(teacher, student, random_state=0).fit(table, labels)
    plain = Distiller(LogisticRegression().fit(table.to_numpy(), labels), student, random_state=0)
    assert np.array_equal(
        named.predict_proba(table), plain.fit(table.to_numpy(), labels).predict_proba(table.to_numpy())
    )
    with pytest.raises(ValueError, match="same order"):
        Distiller(teacher, student).fit(table[["b", "a"]], labels)
