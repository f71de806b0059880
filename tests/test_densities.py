"""Densities on a board: grids found at any scale, noise that bounds them, Jacobians that are right."""

import numpy as np
import pytest
from scipy import stats

from corollary import GaussianMixture, compare, data
from corollary.comparison.densities import DensityOfData, Histograms, bits_of_plain, grid_steps
from corollary.data.convert import as_input


@pytest.mark.parametrize("scale", [1.0, 1 / 16, 1 / 255, 3.7e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_grid_is_found_whatever_its_scale(scale, dtype):
    levels = np.random.default_rng(0).integers(0, 17, size=(300, 3))
    X = (levels * scale + 0.3).astype(dtype)
    np.testing.assert_allclose(grid_steps(X.astype(np.float64)), scale, rtol=1e-3)
    np.testing.assert_allclose(grid_steps((X - X.mean(0)) / X.std(0)) * X.std(0), scale, rtol=1e-3)


def test_continuous_and_constant_columns_are_told_from_grids():
    rng = np.random.default_rng(0)
    half_zero = np.where(rng.random(200) < 0.5, 0.0, rng.normal(size=200))
    X = np.column_stack([rng.normal(size=200), np.full(200, 3.0), np.arange(200) * 0.25, half_zero])
    steps = grid_steps(X)
    assert steps[0] == 0 and np.isnan(steps[1]) and steps[2] == pytest.approx(0.25)
    assert steps[3] > 0  # an atom at zero gets noise too, or its density would have no bound


@pytest.mark.parametrize("scale", [1.0, 1 / 16])
def test_bits_are_at_least_the_entropy_of_the_data(scale):
    # 17 even, independent levels cost log2(17) bits each: no honest density can say less, and the unit is irrelevant
    levels = np.random.default_rng(0).integers(0, 17, size=(2000, 3))
    kept, held = levels[:1500] * scale, levels[1500:] * scale
    for model in (None, GaussianMixture(2, random_state=0)):
        bits = DensityOfData(model).fit(kept).bits_per_dimension(held)
        assert np.log2(17) - 0.01 < bits < np.log2(17) + 0.2
    plain = GaussianMixture(30, reg_covar=1e-9, random_state=0).fit(
        kept
    )  # peaks at the grid points as it likes
    assert bits_of_plain(plain, held)[0] > np.log2(17)


def test_the_density_is_one_of_the_data():
    """Integrate over the plane: margins, normal shape and scale with their Jacobians must give 1."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.gamma(2, 3, 400), rng.normal(50, 4, 400)])
    model = DensityOfData(GaussianMixture(2, random_state=0)).fit(X)
    a, b = np.linspace(-10, 60, 601), np.linspace(20, 80, 601)
    grid = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    total = np.exp(model.score_samples(grid)).sum() * (a[1] - a[0]) * (b[1] - b[0])
    # the Cauchy tails, worth one row of 400, reach beyond the rectangle
    assert total == pytest.approx(1.0, abs=0.01)


def test_histograms_invert_and_agree_with_their_density():
    x = np.random.default_rng(0).exponential(2.0, (500, 1))
    margins = Histograms(x, np.zeros(1), x.min(0))
    z = margins.normal(x)
    np.testing.assert_allclose(margins.inverse(z), x, atol=1e-3)
    slope = (stats.norm.cdf(margins.normal(x + 1e-6)) - stats.norm.cdf(margins.normal(x - 1e-6))) / 2e-6
    inside = np.abs(np.exp(margins.log_densities(x)) / slope - 1) < 1e-3
    assert inside.mean() > 0.95  # all but those within 1e-6 of an edge, or where quantiles lose digits


def test_samples_lie_on_the_grid_of_the_data():
    X = np.random.default_rng(0).integers(0, 5, size=(300, 2)) / 4
    drawn = DensityOfData(GaussianMixture(random_state=0)).fit(X).sample(50)
    np.testing.assert_allclose(drawn * 4, np.round(drawn * 4), atol=1e-9)


def test_the_board_of_digits_is_bounded_and_the_same_for_every_split():
    board = compare("digits", task="density", systems=["pca", "gaussian-mixture"], splits=3, seed=1)
    rows = {row["system"]: row for row in board.rows}
    assert board.metric == "bits per dimension"
    for row in rows.values():
        each = [*row["splits"]["bits per dimension"].values()]
        assert (
            0 < min(each) and max(each) < 4.5
        )  # 17 even levels would cost 4.09; without noise there is no bound
    assert rows["pca"]["score"] < rows["histograms"]["score"] < rows["gaussians"]["score"]
    assert "did not" not in board.verdict and board.winner is not None


def test_one_number_for_one_model():
    """The command line measures a fitted density by the same number as the board."""
    from corollary import PCA
    from corollary.roletable import TASKS

    kept, held = data.split(as_input(data.load("digits"), "table", "test"), 0.2, 0)
    found = TASKS["density"].numbers(PCA(20).fit(kept.X), held)
    assert found["bits per dimension"] == pytest.approx(-found["log-likelihood"] / np.log(2) / 64, rel=0.1)
    assert found["bits per dimension"] > 0


def test_a_bernoulli_likelihood_of_grey_values_is_not_called_a_density():
    from corollary import VAE, Training
    from corollary.roletable import TASKS

    digits = as_input(data.load("digits"), "table", "test")
    vae = VAE(2, training=Training(epochs=1), random_state=0).fit(digits.X)
    with pytest.raises(ValueError, match="Bernoulli likelihood is a probability of zeros and ones"):
        TASKS["density"].numbers(vae, digits)


def test_a_saved_density_says_the_same(tmp_path):
    X = np.random.default_rng(0).gamma(2, 1, (200, 3))
    board = compare(X, task="density", systems=["gaussian-mixture"], splits=1, rivals="none")
    path = board.best.save(tmp_path) / "density.safetensors"
    np.testing.assert_array_equal(
        DensityOfData.load(path).score_samples(X), board.best.model.score_samples(X)
    )


def test_networks_see_single_precision():
    """Half the time of a fit and of its score; what counts rows keeps double precision."""
    from corollary import Flow, GaussianMixture, Training

    X = np.random.default_rng(0).gamma(2, 1, (100, 3))
    net = DensityOfData(Flow(training=Training(epochs=1), random_state=0)).fit(X)
    assert net.model_.dtype_ == "float32" and net.score_samples(X).dtype == np.float64
    assert DensityOfData(GaussianMixture(2, random_state=0)).fit(X).model_.means_.dtype == np.float64
