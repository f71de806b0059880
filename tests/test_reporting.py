"""Reports: what each role shows, and numbers in them that can be counted again."""

import numpy as np
import pytest

from corollary import Segmenter, Seq2Seq, SequenceForecaster, SequenceTagger, Training, WaveNet
from corollary.comparison import TASKS, task_of
from corollary.data.dataset import Dataset
from corollary.reporting import report, sections


def fitted(cls, **options):
    X, y = cls._test_data() if hasattr(cls, "_test_data") else (None, None)
    if X is None:
        X = [np.sin(0.3 * np.arange(20.0) + p)[:, None] for p in range(6)]
    model = cls(**{**cls._test_params(), **options}, random_state=0).fit(X, y)
    return model, Dataset(X, y, kind=cls.input, name="small")


def shown(cls, **options):
    model, dataset = fitted(cls, **options)
    return model, dataset, {heading: (text, figure) for heading, text, figure in sections(model, dataset)}


def test_masks_stand_below_their_images():
    model, dataset, found = shown(Segmenter)
    panels = [axes.images[0].get_array() for axes in found["Masks"][1].axes]
    assert len(panels) == 3 * 8
    np.testing.assert_array_equal(panels[8], dataset.y[0])
    np.testing.assert_array_equal(panels[16], model.predict(dataset.X)[0])


def test_tags_are_counted_part_by_part():
    model, dataset, found = shown(SequenceTagger)
    assert f"{model.score(dataset.X, dataset.y):.1%} are right" in found["Confusion"][0]


def test_forecasts_lie_over_the_steps_they_are_about():
    model, dataset, found = shown(SequenceForecaster, horizon=4)
    lines = found["Forecasts"][1].axes[0].lines
    assert lines[1].get_xdata().tolist() == [16, 17, 18, 19]
    expected = model.predict([wave[:16] for wave in dataset.X])[0, :, 0]
    np.testing.assert_allclose(lines[1].get_ydata().ravel(), expected)


def test_translations_stand_beside_what_was_wanted():
    model, dataset, found = shown(Seq2Seq)
    said = model.predict(dataset.X[:1])[0]
    assert f"{dataset.X[0]} → {said}   ({dataset.y[0]})" in found["Translations"][0]


def test_waves_are_drawn(tmp_path):
    model, dataset, found = shown(WaveNet)
    assert len(found["Samples"][1].axes) == 4
    page = report(model, dataset, tmp_path / "page.html", accuracy=0.5).read_text()
    assert page.count("data:image/png") == len(found) and "<td>0.5</td>" in page


@pytest.mark.parametrize(
    ("cls", "task"), [(Segmenter, "segmentation"), (SequenceTagger, "tagging"), (WaveNet, "density")]
)
def test_the_task_follows_from_the_data_and_is_the_models_own_score(cls, task):
    model, dataset = fitted(cls, training=Training(epochs=1))
    assert task_of(dataset) == task
    arguments = (dataset.X,) if dataset.y is None else (dataset.X, dataset.y)
    assert model.score(*arguments) in [pytest.approx(v) for v in TASKS[task].numbers(model, dataset).values()]


# --- what stands at the top ------------------------------------------------------------------------------


def uneven(n=400):
    rng = np.random.default_rng(0)
    y = np.where(rng.permutation(n) < 0.075 * n, "yes", "no")
    return Dataset(rng.normal(size=(n, 4)), y, feature_names=[*"abcd"], name="churn")


def test_a_constant_guess_is_called_one(tmp_path):
    from corollary import LogisticRegression, data

    kept, held = data.split(uneven(), 0.5, 0)
    model = LogisticRegression().fit(kept.X, kept.y)
    assert set(model.predict(held.X)) == {"no"}
    page = report(model, held, tmp_path / "page.html", train=kept).read_text()
    lead = page.split("<p class=lead>")[1].split("</p>")[0]
    assert "ROC AUC" in lead and "always the most frequent class: 0.5" in lead
    assert "It answers no to everything" in lead
    assert "would be right in" in page  # beside the share that is right stands what a guess gets
    assert "held out" in page and "fitted to" in page
    classes = page.split("<h2>By class</h2>")[1].split("</table>")[0]
    assert "<td>yes</td><td>0</td><td>0</td>" in classes  # its precision and recall


def test_a_model_that_learned_says_how_much(tmp_path):
    from corollary import Ridge, SoftmaxRegression, data
    from corollary.reporting.lead import lead

    kept, held = data.split(data.load("iris"), 0.3, 0)
    text = lead(SoftmaxRegression().fit(kept.X, kept.y), held, kept)
    assert "better than the baseline (always the most frequent class" in text and "no better" not in text
    kept, held = data.split(data.load("diabetes"), 0.3, 0)
    model = Ridge().fit(kept.X, kept.y)
    assert "R²" in lead(model, held, kept) and "always the" in lead(model, held, kept)
    found = [heading for heading, _, _ in sections(model, held)]
    assert {"Predictions", "Residuals", "Worst cases", "Importances"} <= set(found)


def test_the_worst_cases_are_the_worst():
    from corollary import SoftmaxRegression, data

    iris = data.load("iris")
    model = SoftmaxRegression(max_iter=2).fit(iris.X, iris.y)
    found = {heading: text for heading, text, _ in sections(model, iris)}
    right = model.predict_proba(iris.X)[np.arange(150), np.searchsorted(model.classes_, iris.y)]
    wrong = np.flatnonzero(model.predict(iris.X) != iris.y)
    worst = wrong[np.argsort(right[wrong], kind="stable")][:12]
    assert [row[0] for row in found["Worst cases"].rows] == worst.tolist()


def test_recommendations_are_whole():
    from scipy import sparse

    from corollary import ALS

    rng = np.random.default_rng(0)
    R = sparse.csr_matrix(np.where(rng.random((12, 20)) < 0.4, rng.integers(1, 6, (12, 20)), 0).astype(float))
    names = [f"A rather long name of a film, number {i}, with a subtitle" for i in range(20)]
    ratings = Dataset(R, kind="ratings", extra={"items": names, "users": [f"user {i}" for i in range(12)]})
    found = {heading: text for heading, text, _ in sections(ALS(2, random_state=0).fit(R), ratings)}
    from corollary.reporting.pages import STYLE, section_html

    page = section_html("Recommendations", found["Recommendations"])
    assert page.count("with a subtitle") == 25 and "…" not in page
    assert "pre-wrap" in STYLE
