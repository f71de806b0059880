"""Chinese restaurant and Indian buffet: against enumeration, closed forms, known counts and scikit-learn."""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

import corollary
from corollary.mixtures import DirichletProcessMixture, IndianBuffetProcess
from corollary.mixtures import restaurant_kernels as kernels
from corollary.mixtures.dirichlet_process import Seating, draw_concentration, expected_tables, log_seating
from corollary.mixtures.indian_buffet import harmonic, log_buffet, log_evidence

KINDS = ["full", "diag", "spherical", "bernoulli", "categorical", "poisson", "exponential"]


def settings(kind):
    gaussian = kind in ("full", "diag", "spherical")
    return {"covariance_type": kind} if gaussian else {"component": kind}


def few_rows(kind, n=5, seed=0):
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(n) < n // 2, 0.2, 0.8)[:, None] * np.ones(2)
    return {
        "bernoulli": lambda: rng.binomial(1, level),
        "categorical": lambda: rng.binomial(2, level),
        "exponential": lambda: rng.exponential(3 * level),
        "poisson": lambda: rng.poisson(4 * level),
    }.get(kind, lambda: rng.normal(2 * level, 0.7))().astype(np.float64)


def made(kind, X, **options):
    """Return the model's family and encoded rows."""
    model = DirichletProcessMixture(**settings(kind), **options)
    family = model._prior_of(X)
    return family, family.encode(X)


def partitions(n):
    """Yield every partition of n things as labels in order of appearance."""
    for z in itertools.product(range(n), repeat=n):
        if all(label <= max(z[:i], default=-1) + 1 for i, label in enumerate(z)):
            yield z


def in_order(z):
    seen = {}
    return tuple(seen.setdefault(label, len(seen)) for label in z)


# --- closed forms ----------------------------------------------------------------------------------------


def test_seatings_of_a_given_size_add_up_to_one():
    for alpha in (0.3, 2.0):
        total = sum(math.exp(log_seating(np.bincount(z), alpha)) for z in partitions(6))
        mean = sum((max(z) + 1) * math.exp(log_seating(np.bincount(z), alpha)) for z in partitions(6))
        assert total == pytest.approx(1, abs=1e-12)
        assert mean == pytest.approx(expected_tables(6, alpha), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_evidence_is_the_product_of_predictive_densities(kind):
    X = few_rows(kind, 9)
    family, rows = made(kind, X)
    total = 0.0
    for i in range(len(X)):
        t = family.seated(rows[:i], np.zeros(i, np.int64))
        total += family.log_predictive(X[i : i + 1], t)[0, 0]
    t = family.seated(rows, np.zeros(len(X), np.int64))
    assert family.log_evidence(t)[0] + family.constant(X).sum() == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_predictive_densities_are_the_textbooks(kind):
    X, x = few_rows(kind, 6), few_rows(kind, 4, seed=1)
    family, rows = made(kind, X, smoothing=1.5)
    found = family.log_predictive(x, family.seated(rows, np.zeros(6, np.int64)))[:, 0]
    n, mean, prior, kappa = 6, X.mean(axis=0), family.prior, 0.1
    centre = (kappa * family.centre + X.sum(axis=0)) / (kappa + n) if hasattr(family, "centre") else None
    if kind == "full":
        nu, m0 = prior.nu + n, family.centre
        Psi = family.covariance * (prior.nu - 3) + X.T @ X + kappa * np.outer(m0, m0)
        Psi -= (kappa + n) * np.outer(centre, centre)
        scale = Psi * (kappa + n + 1) / ((kappa + n) * (nu - 1))
        expected = stats.multivariate_t(centre, scale, df=nu - 1).logpdf(x)
    elif kind in ("diag", "spherical"):
        sums = ((X - mean) ** 2).sum(axis=0) + kappa * n / (kappa + n) * (mean - family.centre) ** 2
        if kind == "diag":
            nu, psi = prior.nu + n, family.covariance * (prior.nu - 2) + sums
            width = np.sqrt(psi * (kappa + n + 1) / ((kappa + n) * nu))
            expected = stats.t(nu, centre, width).logpdf(x).sum(axis=1)
        else:
            nu, psi = prior.nu + 2 * n, family.covariance.mean() * (prior.nu - 2) + sums.sum()
            scale = psi * (kappa + n + 1) / ((kappa + n) * nu) * np.eye(2)
            expected = stats.multivariate_t(centre, scale, df=nu).logpdf(x)
    elif kind in ("bernoulli", "categorical"):
        size = family.sizes[:, None]
        shares = [[(X[:, j] == v).sum() + 1.5 for v in range(size.max())] for j in (0, 1)] / (n + 1.5 * size)
        expected = np.log(shares[np.arange(2), x.astype(int)]).sum(axis=1)
    elif kind == "poisson":
        shape, rate = 1.5 + X.sum(axis=0), 1.5 / mean + n
        expected = stats.nbinom(shape, rate / (rate + 1)).logpmf(x).sum(axis=1)
    else:
        shape, rate = 1.5 + n, 1.5 * mean + X.sum(axis=0)
        expected = stats.lomax(shape, scale=rate).logpdf(x).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_as_before_when_a_customer_has_left(kind):
    X = few_rows(kind, 40)
    family, rows = made(kind, X)
    t, w = family.seated(rows, np.zeros(40, np.int64)), np.empty(family.empty.a.shape[1])
    for i in range(39, 19, -1):
        kernels._move(family.prior, t, 0, rows[i], -1, w)
    fresh = family.seated(rows[:20], np.zeros(20, np.int64))
    for part, other in zip(t, fresh):
        np.testing.assert_allclose(part[0], other[0], rtol=1e-9, atol=1e-9)


# --- the sampler has the right law -----------------------------------------------------------------------


def sampled(kind, X, alpha, sweeps, split_merge, seed=0):
    """Return how often each partition is met."""
    model = DirichletProcessMixture(
        **settings(kind), concentration=alpha, split_merge=split_merge, max_iter=sweeps, random_state=seed
    )
    model.n_features_in_ = X.shape[1]
    learner = model._learner(corollary.base.Data(X))
    counts = {}
    for _ in range(sweeps):
        learner.step()
        key = in_order(learner.z.tolist())
        counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.mark.parametrize(
    ("kind", "split_merge"), [*((kind, 0) for kind in KINDS), ("full", 3), ("poisson", 3)]
)
def test_partitions_are_met_as_often_as_enumeration_says(kind, split_merge):
    X, alpha, sweeps = few_rows(kind), 0.8, 3000
    family, rows = made(kind, X)
    every = list(partitions(5))
    assert len(every) == 52
    logs = [
        log_seating(np.bincount(z), alpha) + family.log_evidence(family.seated(rows, np.array(z)))[:-1].sum()
        for z in every
    ]
    p = np.exp(logs - np.logaddexp.reduce(logs))
    counts = sampled(kind, X, alpha, sweeps, split_merge)
    q = np.array([counts.get(z, 0) for z in every]) / sweeps
    # the distance of independent draws is about sqrt(52 / (2 pi sweeps)), 0.05; correlated ones have somewhat more
    assert 0.5 * np.abs(p - q).sum() < 0.1


def test_concentration_is_drawn_from_its_posterior():
    rng, n, K, prior = np.random.default_rng(0), 50, 6, (2.0, 0.5)
    alpha, draws = 1.0, []
    for _ in range(20000):
        alpha = draw_concentration(alpha, K, n, prior, rng)
        draws.append(alpha)
    grid = np.linspace(1e-3, 30, 60000)
    log_p = stats.gamma.logpdf(grid, 2.0, scale=2.0) + K * np.log(grid) + gammaln(grid) - gammaln(grid + n)
    p = np.exp(log_p - log_p.max())
    mean = (p * grid).sum() / p.sum()
    spread = math.sqrt((p * grid**2).sum() / p.sum() - mean**2)
    assert np.mean(draws) == pytest.approx(mean, abs=6 * spread / math.sqrt(20000 / 3))
    assert np.std(draws) == pytest.approx(spread, rel=0.06)


# --- use -------------------------------------------------------------------------------------------------


def groups(K=4, n=400, d=3, seed=0, width=1.0):
    """Return rows in groups with centres far apart, and their groups."""
    rng = np.random.default_rng(seed)
    corners = 12.0 * np.array(list(itertools.product((0, 1), repeat=d)))[rng.permutation(2**d)[:K]]
    z = np.arange(n) % K
    return corners[z] + width * rng.normal(size=(n, d)), z


@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
@pytest.mark.parametrize("K", [2, 3, 6])
def test_known_numbers_of_groups_are_found(kind, K):
    X, z = groups(K)
    model = DirichletProcessMixture(covariance_type=kind, max_iter=40, random_state=0).fit(X)
    assert adjusted_rand_score(z, model.labels_) > 0.98
    big = model.weights_ > 0.02
    assert big.sum() == K  # a stray row or two may have tables of their own
    assert model.weights_.sum() == pytest.approx(1)
    assert (np.diff(model.weights_) <= 0).all()
    means = np.stack([X[z == k].mean(axis=0) for k in range(K)])
    gaps = np.linalg.norm(means[:, None] - model.means_[big], axis=2).min(axis=1)
    assert gaps.max() < 0.3
    assert len(model.history_) == 40


@pytest.mark.parametrize("kind", ["bernoulli", "categorical", "poisson", "exponential"])
def test_groups_of_the_other_families_are_found(kind):
    rng, z = np.random.default_rng(0), np.arange(300) % 3
    level = np.kron(np.eye(3) * 0.9 + 0.05, np.ones((1, 6)))[z]
    X = {
        "bernoulli": lambda: rng.binomial(1, level),
        "categorical": lambda: rng.binomial(3, level),
        "exponential": lambda: rng.exponential(20 * level),
        "poisson": lambda: rng.poisson(10 * level),
    }[kind]().astype(float)
    model = DirichletProcessMixture(kind, max_iter=30, random_state=0).fit(X)
    assert adjusted_rand_score(z, model.labels_) > 0.9
    assert (model.weights_ > 0.05).sum() == 3
    drawn = model.sample(4000)
    np.testing.assert_allclose(drawn.mean(axis=0), X.mean(axis=0), rtol=0.25, atol=0.1)
    assert np.isfinite(model.score_samples(drawn)).all()
    value = next(iter(model.parameters_.values()))
    assert value.shape[0] == model.n_components_


def test_densities_add_up_to_one_and_samples_follow_them():
    X, _ = groups(2, 60, d=1, width=2.0)
    for kind in ("full", "diag", "spherical"):
        model = DirichletProcessMixture(covariance_type=kind, max_iter=10, random_state=0).fit(X)
        grid = np.linspace(-400, 400, 80001)[:, None]
        density = np.exp(model.score_samples(grid))
        assert density.sum() * 0.01 == pytest.approx(1, abs=5e-3)  # heavy tails beyond the grid
        below = [density[grid[:, 0] < cut].sum() * 0.01 for cut in (0, 6, 12)]
        drawn = model.sample(20000)[:, 0]
        np.testing.assert_allclose([(drawn < cut).mean() for cut in (0, 6, 12)], below, atol=0.02)


def test_held_out_likelihood_is_no_worse_than_scikit_learns():
    X, _ = groups(5, 1000, d=4)
    ours = DirichletProcessMixture(max_iter=30, random_state=0).fit(X[:500]).score(X[500:])
    theirs = (
        BayesianGaussianMixture(n_components=10, random_state=0, max_iter=500, n_init=3)
        .fit(X[:500])
        .score(X[500:])
    )
    assert ours > theirs - 0.05


def test_ten_thousand_rows_and_many_tables():
    X, z = groups(8, 10_000, d=10)
    model = DirichletProcessMixture(max_iter=3, random_state=0).fit(X)
    assert adjusted_rand_score(z, model.labels_) > 0.95
    # a concentration so large that the tables must be enlarged on the way
    make = DirichletProcessMixture(
        "categorical", concentration=1e4, max_iter=2, split_merge=2, random_state=0
    )
    many = make.fit(np.zeros((500, 1)))
    assert many.n_components_ > 400  # 488 are expected
    assert many.labels_.max() + 1 == many.n_components_


def test_seatings_of_the_prior_have_the_expected_number_of_tables():
    # rows that say nothing: one symbol only
    X, alpha, n = np.zeros((60, 1)), 3.0, 60
    model = DirichletProcessMixture("categorical", concentration=alpha, max_iter=400, random_state=0).fit(X)
    K = [row["components"] for row in model.history_]
    # the variance of one seating is below the mean, 10; sweeps of all customers forget within a few
    assert np.mean(K) == pytest.approx(expected_tables(n, alpha), abs=6 * math.sqrt(10 * 5 / 400))


def test_files_resume_and_single_precision(tmp_path):
    X, z = groups(3, 90)
    whole = DirichletProcessMixture(max_iter=12, random_state=3).fit(X)
    part = DirichletProcessMixture(max_iter=5, random_state=3)
    with corollary.Run(tmp_path):
        part.fit(X)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=12).fit(X)
    np.testing.assert_array_equal(part.labels_, whole.labels_)
    assert part.log_joint_ == whole.log_joint_
    again = corollary.load(whole.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    single = DirichletProcessMixture(max_iter=12, random_state=3).fit(X.astype(np.float32))
    assert single.score_samples(X.astype(np.float32)).dtype == np.float32
    assert adjusted_rand_score(z, single.labels_) > 0.98


def test_bad_settings_are_named():
    X, _ = groups(2, 20)
    make = DirichletProcessMixture
    with pytest.raises(ValueError, match=r"mean_prior must have shape \(3,\); got \(2,\)"):
        make(mean_prior=[0, 0]).fit(X)
    with pytest.raises(
        ValueError, match=r"covariance_prior must be a number or have shape \(3, 3\); got \(3,\)"
    ):
        make(covariance_prior=[1, 1, 1]).fit(X)
    with pytest.raises(ValueError, match="covariance_prior must be positive definite"):
        make(covariance_prior=np.diag([1, 1, -1])).fit(X)
    with pytest.raises(ValueError, match="degrees_of_freedom_prior must be above 4; got 3"):
        make(degrees_of_freedom_prior=3).fit(X)
    with pytest.raises(ValueError, match=r"concentration_prior must be two numbers above 0 .* got \(1, 0\)"):
        make(concentration_prior=(1, 0)).fit(X)
    with pytest.raises(ValueError, match="DirichletProcessMixture: poisson data must be counts; got -"):
        make("poisson").fit(-np.ones((4, 2)))
    with pytest.raises(TypeError, match="[Ss]parse"):
        make().fit(sparse.csr_matrix(X))


# --- the buffet ------------------------------------------------------------------------------------------


def bars(n=100, noise=0.3, seed=0):
    """Return pictures of 6 by 6 pixels, each a sum of some of four shapes; the shapes; and who has which."""
    shapes = np.zeros((4, 6, 6))
    shapes[0, :2, 1] = shapes[0, 1, :3] = shapes[0, 2, 1] = 1
    shapes[1, :3, 3:] = 1
    shapes[1, 1, 4] = 0
    shapes[2, 3:, 0] = shapes[2, 5, :3] = shapes[2, 4, 1] = 1
    shapes[3, 3:, 4] = shapes[3, 3, 3:] = 1
    rng = np.random.default_rng(seed)
    Z = rng.random((n, 4)) < 0.5
    A = shapes.reshape(4, 36)
    return Z @ A + noise * rng.normal(size=(n, 36)), A, Z


def test_the_four_shapes_are_found():
    X, A, Z = bars(noise=0.5)
    fits = [IndianBuffetProcess(max_iter=100, random_state=seed).fit(X) for seed in range(4)]
    model = max(fits, key=lambda fit: fit.log_joint_)  # nine in ten find them; the others are less probable
    likeness = np.corrcoef(np.vstack([A, model.components_]))[:4, 4:]
    assert likeness.max(axis=1).min() > 0.9
    which = likeness.argmax(axis=1)
    assert len(set(which)) == 4
    assert (model.codes_[:, which] == Z).mean() > 0.95
    assert math.sqrt(model.noise_variance_) == pytest.approx(0.5, abs=0.05)
    fresh, _, truth = bars(noise=0.5, seed=1)
    codes = model.transform(fresh)
    assert (codes[:, which] == truth).mean() > 0.95
    rest = fresh - model.inverse_transform(codes)
    assert np.sqrt((rest**2).mean()) < 0.6


def test_codes_of_new_rows_are_the_best_of_all():
    X, _, _ = bars(60)
    model = IndianBuffetProcess(max_iter=60, random_state=0).fit(X)
    K = model.n_components_
    assert K <= 10
    every = np.array(list(itertools.product((0, 1), repeat=K)), float)
    share = model.counts_ / 61
    prior = every @ np.log(share) + (1 - every) @ np.log(1 - share)
    v = model.noise_variance_ + ((every @ model._covariance) * every).sum(axis=1)
    fresh = bars(40, seed=2)[0]
    gaps = ((fresh[:, None] - every @ model.components_) ** 2).sum(axis=2)
    value = prior - 18 * np.log(v) - gaps / (2 * v)
    found = value[np.arange(40), model.transform(fresh).astype(int) @ 2 ** np.arange(K)[::-1]]
    # a search that flips one or two at a time may end beside the best now and then
    assert (found >= value.max(axis=1) - 1e-9).mean() > 0.9


def test_evidence_is_that_of_the_gaussian():
    X, _, Z = bars(7)
    Z = Z.astype(float)
    cov = 0.3 * np.eye(7) + 2.0 * Z @ Z.T
    expected = stats.multivariate_normal(np.zeros(7), cov).logpdf(X.T).sum()
    assert log_evidence(X, Z, 0.3, 2.0) == pytest.approx(expected, rel=1e-10)


def test_dishes_without_data_follow_the_process():
    # noise beyond all measure: the rows say nothing, and the number of dishes is Poisson
    X, alpha = np.random.default_rng(0).normal(size=(8, 2)), 2.0
    model = IndianBuffetProcess(
        alpha, noise_variance=1e8, component_variance=1.0, max_iter=1500, random_state=0
    )
    K = np.array([row["components"] for row in model.fit(X).history_[20:]])
    mean = alpha * harmonic(8)
    assert K.mean() == pytest.approx(mean, abs=0.9)  # sweeps forget within about five: 4 standard errors
    assert K.var() == pytest.approx(mean, rel=0.6)
    assert model.sample(5).shape == (5, 2)


def test_dishes_of_two_rows_are_met_as_often_as_enumeration_says():
    X, alpha, noise, spread = np.array([[1.0, 0.2], [0.6, -0.8]]), 1.2, 0.4, 0.8
    model = IndianBuffetProcess(
        alpha, noise_variance=noise, component_variance=spread, max_iter=4000, random_state=0
    )
    learner, met = model._learner(corollary.base.Data(X)), {}
    for _ in range(4000):
        learner.step()
        columns = [tuple(c) for c in learner.Z.T.tolist()]
        key = tuple(columns.count(c) for c in ((1, 1), (1, 0), (0, 1)))
        met[key] = met.get(key, 0) + 1
    exact = {}
    for key in itertools.product(range(8), repeat=3):
        Z = np.repeat(np.array([[1, 1, 0], [1, 0, 1]]), key, axis=1)
        exact[key] = math.exp(log_buffet(Z, alpha) + log_evidence(X, Z, noise, spread))
    total = sum(exact.values())
    gap = 0.5 * sum(abs(p / total - met.get(key, 0) / 4000) for key, p in exact.items())
    assert gap < 0.08


def test_the_buffet_resumes_and_is_kept(tmp_path):
    X = bars(30)[0]
    whole = IndianBuffetProcess(max_iter=12, random_state=1).fit(X)
    part = IndianBuffetProcess(max_iter=5, random_state=1)
    with corollary.Run(tmp_path):
        part.fit(X)
    with corollary.Run(tmp_path, resume=True):
        part.set_params(max_iter=12).fit(X)
    np.testing.assert_array_equal(part.codes_, whole.codes_)
    np.testing.assert_array_equal(part.components_, whole.components_)
    again = corollary.load(whole.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.transform(X), whole.transform(X))
    np.testing.assert_array_equal(again.sample(3), whole.sample(3))
    # dishes that are many must make room on the way
    crowded = IndianBuffetProcess(
        40.0, noise_variance=1e6, component_variance=1.0, max_iter=2, random_state=0
    )
    assert crowded.fit(X).n_components_ > 60


@pytest.mark.parametrize("seed", range(3))
def test_few_rows_of_one_group_are_not_scattered(seed):
    X = np.random.default_rng(seed).normal(size=(64, 4))
    model = DirichletProcessMixture(max_iter=30, random_state=seed).fit(X)
    assert model.n_components_ <= 2


def test_many_dimensions_do_not_give_everybody_a_table():
    """Where one table is more probable than many, the first sweep gives up before all are seated."""
    X = np.random.default_rng(0).normal(size=(600, 40)) @ np.random.default_rng(1).normal(size=(40, 40))
    model = DirichletProcessMixture(random_state=0)
    family = model._prior_of(X)
    seating, counts = Seating(model, family, family.encode(X)), []
    seat = kernels.seat

    def watched(*given):
        done, K = seat(*given)
        counts.append(K)
        return done, K

    with mock.patch.object(kernels, "seat", watched):
        row = seating.sweep()
    assert row["components"] < 10
    assert max(counts) < 130
