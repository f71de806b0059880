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
