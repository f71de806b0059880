"""Phrases scored linearly, beside networks of texts; several labels per sample."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import corollary
from corollary import BERTClassifier, MLPClassifier, Run, SequenceClassifier, TextCNN, Training
from corollary.comparison import compare, task_of
from corollary.comparison.measures import label_sets as label_measures
from corollary.data.dataset import Dataset
from corollary.data.multilabel import indicators, label_sets
from corollary.sequences import ngrams

torch.set_num_threads(1)
QUICK = {"n_filters": 4, "embedding_dimension": 8, "training": Training(epochs=2), "random_state": 0}
SMALL = {
    "n_layers": 1,
    "width": 8,
    "n_heads": 2,
    "max_length": 16,
    "training": Training(epochs=1),
    "random_state": 0,
}


def texts_of(n=60, seed=0):
    """Texts of two topics whose words mix, with labels."""
    rng, y = np.random.default_rng(seed), np.arange(n) % 2
    own = [["sea", "sun", "sand", "swim"], ["snow", "ice", "cold", "ski"]]
    mixed = ["the", "a", "we", "went", "and", "then"]
    texts = [
        " ".join([*rng.choice(own[label], 2), *rng.choice(mixed, 4), *rng.choice(own[1 - label], 1)])
        for label in y
    ]
    return texts, y


# --- equations 1 and 2 -----------------------------------------------------------------------------------


def test_features_are_sublinear_tf_idf():
    texts, _ = texts_of()
    counts, phrases = ngrams.phrase_counts(texts, 2)
    ours = ngrams.weighted(counts, ngrams.rarity(counts)).toarray()
    usual = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=ngrams.WORD)
    theirs = usual.fit_transform(texts).toarray()
    assert phrases == usual.get_feature_names_out().tolist()
    np.testing.assert_allclose(ours, theirs, atol=1e-12)  # the same sums in another order


@pytest.mark.parametrize("strength", [0.5, 5.0])
def test_scores_are_those_of_logistic_regression(strength):
    rng = np.random.default_rng(0)
    texts, _ = texts_of(90)
    y = rng.integers(0, 3, 90)
    counts, _ = ngrams.phrase_counts(texts, 1)
    V, weight = ngrams.weighted(counts, ngrams.rarity(counts)), rng.uniform(0.5, 2, 90)
    W, b = ngrams.fit_scores(V, np.eye(3)[y], weight, strength)
    usual = LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit(V, y, weight)
    ours, theirs = V @ W + b, usual.decision_function(V)
    ours -= ours.mean(1, keepdims=True)
    # both stop where the gradient is about 1e-4 of the loss's scale
    np.testing.assert_allclose(ours, theirs - theirs.mean(1, keepdims=True), atol=5e-3)


def test_one_logistic_regression_per_label():
    rng = np.random.default_rng(1)
    texts, _ = texts_of(80)
    Y = rng.integers(0, 2, (80, 3)).astype(float)
    counts, _ = ngrams.phrase_counts(texts, 1)
    V = ngrams.weighted(counts, ngrams.rarity(counts))
    W, b = ngrams.fit_scores(V, Y, np.ones(80), 2.0, several=True)
    for j in range(3):
        alone = LogisticRegression(C=2.0, tol=1e-8, max_iter=5000).fit(V, Y[:, j])
        np.testing.assert_allclose((V @ W + b)[:, j], alone.decision_function(V), atol=5e-3)


def test_cross_fitted_scores_have_not_seen_their_text():
    """On labels drawn by a coin the scores of the fit know all, cross-fitted ones nothing."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"w{i}" for i in range(400)], 12)) for _ in range(150)]
    y = rng.integers(0, 2, 150)
    counts, _ = ngrams.phrase_counts(texts, 1)
    V = ngrams.weighted(counts, ngrams.rarity(counts))
    scores, beta, strength = ngrams.cross_fitted(V, np.eye(2)[y], np.ones(150), ngrams.folds_of(texts))
    W, b = ngrams.fit_scores(V, np.eye(2)[y], np.ones(150), strength)
    assert np.mean((V @ W + b).argmax(1) == y) > 0.95
    assert np.mean(scores.argmax(1) == y) < 0.65
    assert beta < 0.5  # and they are not trusted


def test_texts_that_are_there_twice_stay_together():
    texts, _ = texts_of(300)
    folds = ngrams.folds_of([*texts, *texts])
    np.testing.assert_array_equal(folds[:300], folds[300:])
    assert len(np.unique(folds)) == ngrams.FOLDS


def test_beta_makes_the_cross_entropy_least():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    scores[np.arange(200), y] += 1.0
    cost, beta = ngrams.tempered(scores, np.eye(3)[y], np.ones(200))
    grid = [ngrams.losses(s * scores, np.eye(3)[y], False)[0].mean() for s in np.linspace(0.1, 4, 400)]
    assert cost <= min(grid) + 1e-6 and 0.5 < beta < 2


# --- beside a network ------------------------------------------------------------------------------------


def test_training_starts_from_the_linear_part():
    texts, y = texts_of()
    model = TextCNN(**{**QUICK, "training": Training(epochs=1, learning_rate=1e-12)}).fit(texts, y)
    scores = model.ngram_scores(texts)
    np.testing.assert_allclose(model.predict_proba(texts), torch.tensor(scores).softmax(1).numpy(), atol=1e-6)
    top = model.top_ngrams(4)
    assert {"sea", "sun", "sand", "swim"} & set(top[0]) and {"snow", "ice", "cold", "ski"} & set(top[1])
    new = model.ngram_scores(["sun and sea", "ice and snow", "", "never seen"])
    assert new[0, 0] > new[0, 1] and new[1, 0] < new[1, 1]
    np.testing.assert_allclose(new[2], new[3])


@pytest.mark.parametrize("model", [TextCNN(**QUICK), BERTClassifier(**SMALL)], ids=lambda m: type(m).__name__)
def test_files_weights_limits_and_no_linear_part(model, tmp_path):
    texts, y = texts_of()
    fitted = clone(model).fit(texts, y, np.ones(len(y)))
    again = corollary.load(fitted.save(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(again.predict_proba(texts), fitted.predict_proba(texts))
    plain = clone(model).set_params(ngrams=0).fit(texts, y)
    assert not hasattr(plain, "ngrams_")
    with pytest.raises(ValueError, match="must have a linear part; got none. Fit it with ngrams=2"):
        plain.top_ngrams()
    soft = clone(model).fit(texts, np.eye(2)[y] * 0.8 + 0.1)
    assert soft.predict_proba(texts).shape == (60, 2)
    blank = clone(model).fit(["?", "!", ".", ","], [0, 1, 0, 1])
    assert not hasattr(blank, "ngrams_")
    with Run(time_limit=1e-3):
        with pytest.warns(corollary.errors.FitStopped):
            assert clone(model).fit(texts, y).predict(texts).shape == (60,)


def test_a_bert_that_was_pretrained_has_no_linear_part():
    texts, y = texts_of()
    base = corollary.BERT(
        1, width=8, n_heads=2, max_length=16, training=Training(epochs=1), random_state=0
    ).fit(texts)
    tuned = base.fine_tune(texts, y, training=Training(epochs=1))
    assert not hasattr(tuned, "ngrams_") and tuned.predict(texts).shape == (60,)


# --- several labels --------------------------------------------------------------------------------------


def test_what_several_labels_are():
    classes, table = label_sets([["b", "a"], ["a"], []])
    assert classes.tolist() == ["a", "b"] and table.tolist() == [[1, 1], [1, 0], [0, 0]]
    assert label_sets(np.array([[0, 1, 1], [1, 0, 0]]))[0].tolist() == [0, 1, 2]
    for other in (["a", "b"], [0, 1], np.eye(3), np.array([[0.5, 0.5]]), [[0.2, 1.4]]):
        assert label_sets(other) is None
    with pytest.raises(ValueError, match="fit: no label named 'c'"):
        indicators([["c"]], np.array(["a"]))


def labelled_texts():
    texts, y = texts_of(80)
    wet = ["rain" if i % 3 == 0 else "dry" for i in range(80)]
    labels = [["warm" if t == 0 else "cold", *(["wet"] if w == "rain" else [])] for t, w in zip(y, wet)]
    return [f"{text} {w}" for text, w in zip(texts, wet)], labels


@pytest.mark.parametrize("model", [TextCNN(**QUICK), BERTClassifier(**SMALL)], ids=lambda m: type(m).__name__)
def test_texts_with_several_labels(model, tmp_path):
    texts, labels = labelled_texts()
    fitted = clone(model).fit(texts[:60], labels[:60])
    assert fitted.classes_.tolist() == ["cold", "warm", "wet"]
    assert fitted.predict(texts).shape == (80, 3) and fitted.score(texts[60:], labels[60:]) > 0.6
    assert fitted.predict_labels(texts[:1])[0] and set(fitted.predict_labels(texts)[0]) <= set(
        fitted.classes_
    )
    again = corollary.load(fitted.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.predict(texts), fitted.predict(texts))
    found = label_measures(fitted, Dataset(texts[60:], labels[60:], "text"))
    assert 0.6 < found["F1"] <= 1 and found["exact"] <= found["labels right"]
    fitted.partial_fit(texts[:60], labels[:60])
    one = fitted.fit(texts, ["a", "b"] * 40)
    assert not hasattr(one, "multilabel_") and one.predict(texts).shape == (80,)


def test_tables_and_sequences_with_several_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    Y = (X[:, :3] > 0).astype(int)
    model = MLPClassifier((16,), training=Training(60, learning_rate=0.02), random_state=0).fit(
        X[:100], Y[:100]
    )
    assert model.score(X[100:], Y[100:]) > 0.7
    sure = model.predict_proba(X)
    assert sure.shape == (150, 3) and not np.allclose(sure.sum(1), 1)
    steps = [np.tile(x, (5, 1)) for x in X]
    series = SequenceClassifier(width=8, training=Training(20), random_state=0).fit(steps[:100], Y[:100])
    assert np.mean(series.predict(steps[100:]) == Y[100:]) > 0.7
    with pytest.raises(
        ValueError, match="PointNet: y must have one label per sample; got several. Use a model that takes"
    ):
        corollary.PointNet().fit([rng.normal(size=(4, 3)) for _ in range(6)], [["a", "b"]] * 3 + [["a"]] * 3)
    with pytest.raises(ValueError, match="class_weight is for one label per sample"):
        MLPClassifier(class_weight="balanced").fit(X, Y)


def test_a_board_and_a_report_of_several_labels(tmp_path):
    texts, labels = labelled_texts()
    data = Dataset(texts, labels, "text", "weather")
    assert task_of(data) == "multilabel"
    board = compare(data, systems=[TextCNN(**QUICK)], splits=1, progress=False)
    assert board.metric == "F1" and {row["system"] for row in board.rows} == {"TextCNN", "sk-tfidf", "prior"}
    assert all(row["score"] is not None for row in board.rows)
    model = TextCNN(**QUICK).fit(texts, labels)
    page = corollary.report(model, data, tmp_path / "report.html").read_text()
    assert "By label" in page and "precision" in page
