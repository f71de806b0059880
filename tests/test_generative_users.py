"""What users of the generative models met: pictures of 8 bits, labels, mixed tables, long draws."""

from contextlib import contextmanager

import numpy as np
import pytest

from corollary import DDPM, GAN, VAE, Flow, PixelCNN, ScoreModel, Training, load
from corollary.comparison.densities import bits_of_plain, grid_steps
from corollary.comparison.measures import likelihood
from corollary.data import Dataset
from corollary.generative import common
from corollary.reporting.by_role import sections

RNG = np.random.default_rng(0)
SHORT = Training(epochs=1)
PICTURES = RNG.integers(0, 256, (60, 4, 5), dtype=np.uint8)
KINDS = np.repeat(["bar", "disc"], 30)
SMALL = [
    Flow(n_layers=2, hidden_layer_sizes=(8,), conditional=True),
    GAN(width=8, n_layers=1, latent=2, conditional=True),
    DDPM(n_steps=6, width=8, n_layers=1, sampling_steps=3, conditional=True),
    ScoreModel(width=8, n_layers=1, sampling_steps=8, conditional=True),
    PixelCNN(width=4, n_layers=1, conditional=True),
]


def names(models):
    return [type(model).__name__ for model in models]


def fitted(model):
    return model.set_params(training=SHORT, random_state=0).fit(PICTURES, KINDS)


@pytest.mark.parametrize("model", [VAE(2), PixelCNN(width=4, n_layers=1)], ids=["VAE", "PixelCNN"])
def test_models_of_all_grey_levels_of_8_bits_are_saved(model, tmp_path):
    found = fitted(model)
    assert found.levels_ == 256
    again = load(found.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.sample(2), found.sample(2))


@pytest.mark.parametrize("model", SMALL, ids=names(SMALL))
def test_reports_and_measures_of_conditional_models_of_pictures(model):
    held = Dataset(PICTURES, KINDS, "image", "pictures")
    shown = {title for title, *_ in sections(fitted(model), held)}
    assert "Samples" in shown
    assert ("Reconstructions" in shown) == hasattr(model, "inverse_transform")
    if hasattr(model, "score_samples"):
        bits = np.mean(model.bits_per_dimension(PICTURES, KINDS))
        assert likelihood(model, held)["bits per dimension"] == pytest.approx(bits)


def test_the_report_of_a_vae_of_pictures_shows_them_again():
    held = Dataset(PICTURES, None, "image", "pictures")
    assert {"Codes", "Reconstructions", "Samples"} <= {title for title, *_ in sections(fitted(VAE(2)), held)}


def test_labels_count_in_the_bound_of_a_conditional_ddpm():
    y = np.repeat([0, 1], 100)
    X = RNG.normal(scale=0.3, size=(200, 1)) + 4 * y[:, None]
    plan = Training(epochs=40, learning_rate=5e-3, batch_size=50)
    model = DDPM(20, width=16, n_layers=1, sampling_steps=5, conditional=True, training=plan, random_state=0)
    model.fit(X, y)
    right, wrong, without = (model.score_samples(X, *given).mean() for given in ((y,), (1 - y,), ()))
    assert right > wrong + 1 and right > without
    assert model.score(X, y) == pytest.approx(right)
    model.guidance = 2.0  # a way of drawing: the density is without it
    assert model.score(X, y) == pytest.approx(right)
    with pytest.raises(ValueError, match="no label named '7'"):
        model.score_samples(X, 7)


def test_columns_that_a_model_fills_with_noise_itself_get_none_from_the_measure():
    X = np.column_stack([RNG.integers(0, 2, 200), RNG.normal(size=200).round(1), RNG.normal(size=200)])
    flow = Flow("linear", training=Training(epochs=5), random_state=0).fit(X)
    bits, nats = bits_of_plain(flow, X)
    assert bits == pytest.approx(flow.bits_per_dimension(X).mean(), rel=1e-6)
    assert nats == pytest.approx(-bits * 3 * np.log(2))


def test_levels_that_differ_by_rounding_are_one():
    angle = 2 * np.pi * np.arange(240).repeat(3) / 12  # sines of months, each with several roundings
    sines = np.column_stack([np.sin(angle), np.cos(angle)])
    assert len(np.unique(sines[:, 0])) > 7 and (grid_steps(sines) > 0.1).all()
    incomes = np.append(np.arange(50.0).repeat(2), 1e9)  # one number far from all others hides no step
    assert grid_steps(incomes[:, None])[0] == 1.0


def test_bits_of_data_on_no_grid_need_no_noise(monkeypatch):
    X = RNG.normal(size=(60, 2))
    flow = Flow("linear", training=SHORT, random_state=0).fit(X)
    passes, mapped = [], Flow._mapped
    monkeypatch.setattr(Flow, "_mapped", lambda self, *given: passes.append(1) or mapped(self, *given))
    bits = flow.bits_per_dimension(X)
    assert len(passes) == 1
    np.testing.assert_allclose(bits, -flow.score_samples(X) / (2 * np.log(2)))


@pytest.mark.parametrize("model", SMALL, ids=names(SMALL))
def test_draws_are_made_in_parts_and_show_how_far_they_are(model, monkeypatch):
    bars = []

    class Watched:
        @contextmanager
        def bar(self, owner, total, start):
            rows = []
            yield rows.append
            bars.append((owner, total, [row["step"] for row in rows]))

    found = fitted(model)
    whole = found.sample(5, label="bar")
    monkeypatch.setattr(common, "current", Watched)
    monkeypatch.setattr(type(model), "_together", 2)
    how = {"GAN": {}, "Flow": {}, "PixelCNN": {}, "DDPM": {"eta": 0.0}}.get(
        type(model).__name__, {"method": "ode"}
    )
    parts = found.sample(5, label="bar", **how)
    (owner, total, steps), *_ = bars
    assert owner == type(model).__name__ and steps == list(range(1, total + 1)) and total % 3 == 0
    if type(model).__name__ in ("GAN", "Flow"):  # their noise is drawn in the same order
        np.testing.assert_allclose(parts, whole, atol=1 / 255 + 1e-6)
    if hasattr(model, "complete"):
        mask = np.zeros((4, 5), bool)
        mask[:2] = True
        assert found.complete(PICTURES[:5], mask).shape == (5, 4, 5) and len(bars) == 2


def test_a_vae_of_one_row():
    assert VAE(1, hidden_layer_sizes=(4,), training=SHORT).fit([[1.0, 2.0]]).sample(2).shape == (2, 2)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda vae, X: vae.traverse(X[:2], 0), r"x must be one row like those of fit; got shape \(2, 3\)"),
        (
            lambda vae, X: vae.interpolate(X[0], X[:1]),
            r"b must be one row like those of fit; got shape \(1, 3\)",
        ),
        (lambda vae, X: vae.interpolate(X[0], X[1, :2]), "3 features"),
        (lambda vae, X: vae.interpolate(X[0], X[1], 0), "n must be an integer of at least 1; got 0"),
        (lambda vae, X: vae.traverse(X[0], 0, n=2.5), "n must be an integer of at least 1; got 2.5"),
        (lambda vae, X: vae.traverse(X[0], 0.5), "unit must lie between 0 and 1; got 0.5"),
        (
            lambda vae, X: Flow(conditional=True).fit(X, X[:, 0]),
            r"name classes; got 60 .* pass y.astype\(str\)",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match=message):
        call(VAE(2, hidden_layer_sizes=(4,), training=SHORT).fit(X), X)


def test_codes_of_rows_of_frames_are_traversed():
    import pandas as pd

    frame = pd.DataFrame({"size": RNG.normal(size=60), "town": np.repeat(["a", "b", "c"], 20)})
    vae = VAE(2, hidden_layer_sizes=(4,), training=SHORT, random_state=0).fit(frame)
    np.testing.assert_allclose(vae.traverse(frame.iloc[0], 1, 3), vae.traverse(frame.iloc[:1], 1, 3))


def test_drawn_files_say_which_label_a_row_is_of(tmp_path):
    import pandas as pd

    from corollary.cli.using import sample_from

    frame = pd.DataFrame({"size": RNG.normal(size=60), "town": np.repeat(["a", "b", "c"], 20)})
    flow = Flow("linear", conditional=True, training=SHORT, random_state=0).fit(frame, KINDS)
    run, out = flow.save(tmp_path / "m.safetensors"), tmp_path / "drawn.csv"
    assert sample_from(run, 3, out, None).endswith("of bar, disc in turn")
    assert pd.read_csv(out)["label"].tolist() == ["bar", "disc", "bar"]
    assert "turn" not in sample_from(run, 2, out, None, "disc")
    assert pd.read_csv(out)["label"].tolist() == ["disc", "disc"]
