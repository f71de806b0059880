"""Learners from sums over the data: the same models from rows that stay on disk."""

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import torch

import corollary
from corollary import PCA, GaussianMixture, LinearRegression, LogisticRegression, Ridge, Run
from corollary.base import roles
from corollary.data import ParquetTable
from corollary.data import sources as disk
from corollary.engine import sources as engine
from corollary.engine.sources import blocks, gathered
from corollary.linalg.moments import moments_of
from corollary.validation import as_tensor

N, D = 420, 5


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (disk, engine):
        monkeypatch.setattr(module, "BLOCK", 8 * D * 50)


@pytest.fixture
def given(tmp_path, small_blocks):
    """Return rows and targets in memory, and the same rows as a map, a Parquet folder, a data set and a stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + 20
    X -= X.min()
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "parts").mkdir()
    for part in range(2):
        table = pa.table({f"f{j}": X[part * 210 : (part + 1) * 210, j] for j in range(D)})
        pq.write_table(table, tmp_path / "parts" / f"{part}.parquet", row_group_size=60)
    places = {
        "map": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "parquet": ParquetTable(tmp_path / "parts"),
        "dataset": torch.utils.data.StackDataset(torch.from_numpy(X)),
        "stream": lambda: iter(X),
    }
    return X, X @ rng.normal(size=D) + rng.normal(size=N), places


OTHERS = ["parquet", "dataset", "stream"]
# Sums in another order differ by rounding, 1e-16, times what the model makes of it.
FITS = {
    "PCA": (lambda: corollary.PCA(3), "components_", 1e-9),
    "krylov": (lambda: corollary.PCA(3, svd_solver="krylov", random_state=0), "components_", 1e-6),
    "ProbabilisticPCA": (lambda: corollary.ProbabilisticPCA(2), "components_", 1e-9),
    "FactorAnalysis": (lambda: corollary.FactorAnalysis(2), "components_", 1e-7),
    "GaussianMixture": (lambda: corollary.GaussianMixture(2, random_state=0, tol=1e-2), "means_", 1e-7),
    "LinearRegression": (LinearRegression, "coef_", 1e-7),
    "Ridge": (lambda: Ridge(2.0), "coef_", 1e-7),
    "ball": (lambda: Ridge(radius=0.5, max_iter=50), "coef_", 1e-7),
    "Lasso": (lambda: corollary.Lasso(0.3, tol=1e-12), "coef_", 1e-6),
    "Mixture": (lambda: corollary.Mixture(2, random_state=0, max_iter=5, tol=0.0), "weights_", 1e-7),
    "categorical": (
        lambda: corollary.Mixture(2, component="categorical", random_state=0, max_iter=5, tol=0.0),
        "weights_",
        1e-7,
    ),
    "LogisticRegression": (lambda: LogisticRegression(tol=1e-9, solver="newton-cholesky"), "coef_", 1e-5),
    "SoftmaxRegression": (lambda: corollary.SoftmaxRegression(tol=1e-9), "coef_", 1e-7),
    "NMF": (lambda: corollary.NMF(2, init="random", random_state=0, max_iter=20), "components_", 1e-9),
    "NMF of counts": (
        lambda: corollary.NMF(
            2, solver="mu", beta_loss="kullback-leibler", init="random", random_state=0, max_iter=20
        ),
        "components_",
        1e-6,
    ),
    "LDA": (lambda: corollary.create("lda", n_components=2, max_iter=3, random_state=0), "components_", 1e-9),
    "PLSA": (lambda: corollary.PLSA(2, max_iter=5, random_state=0), "components_", 1e-9),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name, place",
    [(name, "map") for name in FITS]
    + [(name, place) for name in ("PCA", "GaussianMixture", "Ridge") for place in OTHERS],
)
def test_rows_on_disk_give_the_model_of_memory(given, name, place, tmp_path):
    X, y, places = given
    make, attribute, tolerance = FITS[name]
    labels = y > np.median(y) if name == "LogisticRegression" else np.digitize(y, np.quantile(y, [0.3, 0.6]))
    kinds = roles(type(make()))
    if name == "categorical":
        X = np.floor(X / 20)
        np.save(tmp_path / "symbols.npy", X)
        places = {"map": np.load(tmp_path / "symbols.npy", mmap_mode="r")}
    target = labels if "classifier" in kinds else y if "regressor" in kinds else None
    inside, outside = make().fit(X, target), make().fit(places[place], target)
    wanted = getattr(inside, attribute)
    np.testing.assert_allclose(
        getattr(outside, attribute), wanted, rtol=tolerance, atol=tolerance * abs(wanted).max()
    )
    for method in ("predict", "predict_proba", "transform", "score_samples"):
        if hasattr(inside, method):
            asked, known = getattr(outside, method)(places[place]), getattr(outside, method)(X)
            np.testing.assert_allclose(asked, known, rtol=1e-9, atol=1e-12)


def test_weights_and_constants_on_disk(given):
    X, y, places = given
    w = np.random.default_rng(1).uniform(0.1, 3, N)
    exact = {"tol": 1e-14}
    for make in (
        lambda: LinearRegression(fit_intercept=False),
        lambda: Ridge(3.0),
        lambda: corollary.Lasso(0.1, **exact),
        lambda: corollary.Lasso(0.1, fit_intercept=False, **exact),
    ):
        np.testing.assert_allclose(
            make().fit(places["map"], y, w).coef_, make().fit(X, y, w).coef_, rtol=1e-8
        )
    inside, outside = (GaussianMixture(2, random_state=0).fit(Z, sample_weight=w) for Z in (X, places["map"]))
    np.testing.assert_allclose(outside.covariances_, inside.covariances_, rtol=1e-6)
    assert (inside.labels_ == outside.labels_).all()


def test_wide_mixtures_and_missing_values_on_disk(given, monkeypatch, tmp_path):
    from corollary.mixtures import gaussian_em

    X, _, places = given
    monkeypatch.setattr(gaussian_em, "WIDEST", 1)
    for kind in ("full", "diag"):
        inside, outside = (
            GaussianMixture(2, covariance_type=kind, random_state=0).fit(Z) for Z in (X, places["stream"])
        )
        np.testing.assert_allclose(outside.covariances_, inside.covariances_, rtol=1e-7)
    X = X.copy()
    X[::9, 1] = np.nan
    np.save(tmp_path / "holes.npy", X)
    holes = np.load(tmp_path / "holes.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        PCA(2, random_state=0).fit(holes).components_, PCA(2, random_state=0).fit(X).components_
    )


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
def test_ratings_on_disk(tmp_path, small_blocks):
    """Ratings as a mapped matrix with holes, and as triples in Parquet parts, whose ids are labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    R = np.where(rng.random((60, 7)) < 0.5, rng.integers(1, 6, (60, 7)).astype(np.float32), np.nan)
    np.save(tmp_path / "r.npy", R)
    users, items = np.nonzero(~np.isnan(R))
    order = rng.permutation(len(users))
    triples = {"userId": 3 * users[order] + 1, "rating": R[users, items][order], "itemId": 10 * items[order]}
    for part, rows in enumerate((slice(0, 90), slice(90, None))):
        table = pa.table({name: column[rows] for name, column in triples.items()})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=40)
    for make in (lambda: corollary.ALS(2, max_iter=3, random_state=0), corollary.BiasBaseline):
        inside = make().fit(R)
        for outside in (np.load(tmp_path / "r.npy", mmap_mode="r"), ParquetTable(tmp_path)):
            found = make().fit(outside)
            assert found.shape_ == inside.shape_
            pairs = np.column_stack([users, items])
            np.testing.assert_allclose(found.predict(pairs), inside.predict(pairs), rtol=1e-5)
    wrong = {**triples, "userId": triples["userId"] + 0.5}
    pq.write_table(pa.table(wrong), tmp_path / "0.parquet")
    pq.write_table(pa.table(wrong), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="ALS: user ids must be whole numbers from 0; got .*5"):
        corollary.ALS(2).fit(ParquetTable(tmp_path))
    with pytest.raises(
        ValueError, match=r"ALS: ratings must be a matrix with a row per user; got shape \(60,\)"
    ):
        corollary.ALS(2).fit(lambda: iter(R[:, 0]))


def test_moments_far_from_zero_and_in_any_blocks(small_blocks):
    X = 1e8 + np.random.default_rng(0).normal(size=(333, 3))
    w = np.arange(333) % 4.0
    found = moments_of(X, weight=w)
    np.testing.assert_allclose(found.scatter / w.sum(), np.cov(X.T, aweights=w, ddof=0), rtol=1e-7)
    np.testing.assert_allclose(moments_of(X, diagonal=True).scatter / 333, X.var(0), rtol=1e-7)


def test_blocks_are_counted_and_shares_are_cut(given):
    X, _, places = given
    for place in ("map", "stream"):
        source = disk.as_source(places[place])
        parts = list(blocks(source, slice(70, 300)))
        assert len(parts) > 2 and parts[0][0].start == 0 and parts[-1][0].stop == 230
        np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), X[70:300])
        rows = np.array([0, 3, 77, 300, N - 1])
        np.testing.assert_array_equal(gathered(source, rows), X[rows])

    class Short(disk.MappedArray):
        def _read(self, rows):
            return super()._read(rows)[: len(rows) // 2]

    with pytest.raises(ValueError, match=f"the source must give its {N} rows; got"):
        list(blocks(Short(X)))


def test_two_processes_sum_their_shares(given, monkeypatch):
    X, _, places = given
    meeting, said, found = threading.Barrier(2), {}, {}

    class Share(Run):
        def __init__(self, rank):
            super().__init__()
            self.mine = rank

        world, rank = 2, property(lambda self: self.mine)

        def sum(self, x):
            said[self.mine] = x
            meeting.wait()
            total = said[0] + said[1]
            meeting.wait()
            return total

    local = threading.local()
    monkeypatch.setattr("corollary.linalg.moments.current", lambda: local.run)

    def work(rank):
        local.run = Share(rank)
        found[rank] = moments_of(disk.as_source(places["map"]))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(2):
        np.testing.assert_allclose(found[rank].scatter / N, np.cov(X.T, ddof=0), rtol=1e-10)


def test_a_read_only_map_is_not_copied_into_a_tensor(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = as_tensor(mapped)
    assert tensor.data_ptr() == mapped.__array_interface__["data"][0]
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    assert as_tensor(frozen).data_ptr() != frozen.__array_interface__["data"][0]
    del mapped
    assert tensor.sum() == 15  # the map lives as long as the tensor


MEMORY = """
import sys
import warnings
import numpy as np
import torch
from corollary import GaussianMixture, PCA, Ridge

def megabytes(field):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(field))

torch.set_num_threads(1)
warnings.simplefilter("ignore")
X = np.load(sys.argv[1], mmap_mode="r")
y = np.arange(len(X), dtype=float)
for make in (lambda: PCA(2), lambda: Ridge(), lambda: GaussianMixture(2, covariance_type="diag", max_iter=1)):
    make().fit(X[:25_000], y[:25_000])  # what the library and a few blocks take
    open("/proc/self/clear_refs", "w").write("5")  # the peak is counted from here
    before = megabytes("VmRSS")
    make().fit(X, y)
    assert megabytes("VmHWM") - before < X.nbytes / 2**20 / 4, (make(), before, megabytes("VmHWM"), X.nbytes / 2**20)
"""


def test_a_table_on_disk_takes_a_quarter_of_its_size_at_most(tmp_path):
    table = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (300_000, 100))  # 114 MB
    table[::100] = np.random.default_rng(0).normal(size=(3000, 100))
    table.flush()
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "x.npy")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
