"""``diagnose`` asks fitted estimators of every role for what they do: by their objective, their samples or their predictions."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import corollary
from corollary import Training, catalog, diagnose
from corollary.testing.checks import sample_data

R = np.random.default_rng(0)
X = R.normal(size=(500, 4))
Y = (X[:, 0] + X[:, 1] + 0.5 * R.normal(size=500) > 0).astype(int)
TRAIN, VALID = slice(0, 300), slice(300, 500)


def parts(X, y):
    return (X[TRAIN], y[TRAIN]), (X[VALID], y[VALID])


def fitted(id):
    entry = next(e for e in catalog.entries() if e.id == id)
    kind = entry.load()
    X, y = kind()._test_data() if hasattr(kind, "_test_data") else sample_data(entry.input)
    model = entry.create(**kind._test_params(), random_state=0)
    return (model.fit(X) if y is None else model.fit(X, y)), X if y is None else (X, y)


NETS = (
    "gcn", "gat", "spectral", "mpnn", "multi-task", "sequence-forecaster", "sequence-tagger", "text-cnn", "gpt", "bert",
    "bert-answerer", "bert-tagger", "vae", "flows", "ddpm", "score", "pixelcnn", "self-supervised", "unet", "seq2seq",
)  # fmt: skip


@pytest.mark.parametrize("id", NETS)
def test_the_network_of_an_estimator_of_any_role_is_asked_by_its_objective(id):
    model, data = fitted(id)
    before = {name: value for name, value in vars(model).items() if not name.endswith("_")}
    report = diagnose(model, data, time_limit=3)
    assert np.isfinite(report.measurements["train loss"])
    assert not [f for f in report.findings if f.cause in ("forward", "module", "duplicate-features")]
    assert not [
        f for f in report.findings if "could not be measured" in f.said and "wider view" not in f.where
    ]
    assert {name: value for name, value in vars(model).items() if not name.endswith("_")} == before


def test_several_players_are_told_and_their_samples_looked_at():
    model, data = fitted("gan")
    report = diagnose(model, data)
    assert "2 players train GAN" in next(f.said for f in report.findings if f.cause == "module")
    assert "coverage" in report.measurements["details"]


def test_an_objective_draws_the_same_numbers_at_every_call_and_others_in_training():
    from corollary.diagnose.reading import prepared

    model, data = fitted("ddpm")
    subject = prepared(model, data)
    first, second = (subject.call(subject.net.eval(), subject.train) for _ in range(2))
    assert first == second
    net = subject.twin().train()
    assert len({subject.call(net, subject.train).item() for _ in range(3)}) == 3
    assert subject.net.sample(4).numpy() == pytest.approx(model.sample(4), abs=1e-4)


def test_steps_beyond_the_end_of_a_sequence_do_not_count():
    model, (sequences, y) = fitted("sequence-tagger")
    report = diagnose(model, (sequences, y), time_limit=2)
    true = np.concatenate(y)
    share = np.unique(true, return_counts=True)[1].max() / len(true)
    assert report.measurements["train chance"] == pytest.approx(share)


def test_parameters_that_are_not_used_may_stand_still():
    model, data = fitted("bert-tagger")
    assert "frozen-parameters" not in [f.cause for f in diagnose(model, data, time_limit=3).alarms]


# --- without a network -------------------------------------------------------------------------------------


def scaled(model):
    return make_pipeline(StandardScaler(), model)


@pytest.mark.parametrize(
    "model", [scaled(LogisticRegression()), scaled(LinearSVC()), corollary.LogisticRegression(),
              GridSearchCV(LogisticRegression(), {"C": [0.1, 1]})]
)  # fmt: skip
@pytest.mark.parametrize("words", [False, True])
def test_predictions_are_scored_by_the_classes_of_the_fit(model, words):
    train, valid = parts(X * [1, 1, 1, 1000], np.array(["no", "yes"])[Y] if words else Y)
    report = diagnose(model.fit(*train), train, valid)
    assert report.healthy
    assert report.measurements["valid score"] == pytest.approx(model.score(*valid))
    assert "its predictions were looked at" in next(f.said for f in report.findings if f.cause == "estimator")


def test_faults_of_the_outcome_are_seen_by_predictions_alone():
    noisy = np.where(R.random(500) < 0.3, 1 - Y, Y)
    train, valid = parts(X, noisy)
    assert diagnose(DecisionTreeClassifier().fit(*train), train, valid).alarms[0].cause == "overfit"
    train, valid = parts(X, (np.square(X[:, :2]).sum(1) > 1.4).astype(int))
    found = diagnose(LogisticRegression().fit(*train), train, valid).alarms[0]
    assert found.cause == "capacity-too-small"
    assert found.code.splitlines()[-1] == "estimator = ExtraTreesClassifier(300)"
    train, valid = parts(np.c_[X, Y + 0.01 * R.normal(size=500)], Y)
    assert diagnose(scaled(LogisticRegression()).fit(*train), train, valid).alarms[0].cause == "target-leak"


def test_frames_with_words_and_texts_are_handed_over_as_they_are():
    frame = pd.DataFrame({"a": X[:, 0], "c": R.choice(["x", "y", "z"], 500)})
    y = (frame.a + 2 * (frame.c == "x") > 0.6).astype(int).to_numpy()
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["c"]), (StandardScaler(), ["a"])), LogisticRegression()
    )
    (a, b), (c, d) = (frame[:300], y[:300]), (frame[300:], y[300:])
    report = diagnose(model.fit(a, b), (a, b), (c, d))
    assert report.measurements["valid score"] == pytest.approx(model.score(c, d))
    words = np.array(["sun warm sea", "snow cold ice"])
    texts = [f"{words[k]} and the {i % 7}" for i, k in enumerate(Y)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=100)).fit(texts[:300], Y[:300])
    report = diagnose(model, (texts[:300], Y[:300]), (texts[300:], Y[300:]))
    assert report.measurements["valid score"] == 1
    assert report.measurements["baseline valid score"] == 1


def test_targets_that_an_estimator_does_not_learn_from_are_left_out():
    report = diagnose(KMeans(2, n_init=1).fit(X), (X, R.integers(0, 2, 500)))
    assert report.healthy
    assert "its data alone" in next(f.said for f in report.findings if f.cause == "estimator")


def test_the_net_at_the_end_of_a_pipeline_is_looked_into():
    model = scaled(corollary.MLPClassifier((8,), training=Training(epochs=20), random_state=0))
    train, valid = parts(X * [1, 1, 1, 1e5], Y)
    report = diagnose(model.fit(*train), train, valid, time_limit=5)
    assert report.measurements["parameters"] > 0
    assert "unscaled-inputs" not in [f.cause for f in report.alarms]


def test_rows_that_a_fitted_estimator_cannot_take_are_named():
    bad = X.copy()
    bad[3, 2] = np.nan
    report = diagnose(scaled(LogisticRegression()).fit(X, Y), (bad, Y))
    assert report.alarms[0].cause == "not-finite-data"
    assert "Pipeline could not be asked" in next(f.said for f in report.findings if f.cause == "module")


def test_the_gain_of_a_repair_is_that_of_the_loss_where_there_is_no_score():
    model = corollary.VAE(training=Training(epochs=3, learning_rate=1e-6), random_state=0).fit(X[TRAIN])
    proof = diagnose(model, X[TRAIN], X[VALID], prove=True).proof
    assert proof["gain"] == proof["validation loss as it is"] - proof["validation loss repaired"] > 0.5
