"""Data that stay on disk: the same models from less memory."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from corollary import VAE, ImageClassifier, MLPClassifier, MLPRegressor, Perceptron, Run, Training
from corollary.data import ImageFolder, ParquetTable
from corollary.data.sources import MapDataset, MappedArray, as_source
from corollary.testing import same

PLAN = Training(epochs=3, batch_size=16)


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = (rng.normal(size=(200, 5)) + y[:, None]).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    return X, y, np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.fixture
def parquet(tmp_path, table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y, _ = table
    for part in range(2):
        rows = slice(100 * part, 100 * (part + 1))
        columns = {f"f{j}": X[rows, j] for j in range(5)} | {"label": np.array(["no", "yes"])[y[rows]]}
        pq.write_table(pa.table(columns), tmp_path / f"part{part}.parquet", row_group_size=30)
    return tmp_path


def mlp(**options):
    return MLPClassifier((8,), training=Training(epochs=3, batch_size=16, **options), random_state=0)


# --- sources themselves ----------------------------------------------------------------------------------


def test_a_memory_map_gives_its_rows(table):
    X, _, mapped = table
    source = as_source(mapped)
    rows = np.random.default_rng(1).permutation(200)
    np.testing.assert_array_equal(source[rows], X[rows])
    np.testing.assert_array_equal(source[3:50], X[3:50])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), X)
    assert source.bounds() == (X.min(), X.max())
    assert as_source(X) is None and isinstance(as_source(np.asarray(mapped)), MappedArray)


def test_a_memory_map_travels_as_its_path(table):
    X, _, mapped = table
    text = pickle.dumps(as_source(mapped))
    assert len(text) < 1000 < X.nbytes
    np.testing.assert_array_equal(pickle.loads(text)[:], X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(as_source(mapped[10:])))[:], X[10:])


def test_private_changes_of_a_map_are_kept(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[1] = 5.0
    source = as_source(private)
    assert source[:].sum() == 10.0 == source[:].sum()


def test_parquet_rows_in_any_order(parquet, table):
    X, y, _ = table
    source = ParquetTable(parquet, target="label", window=2)
    rows = np.random.default_rng(1).permutation(200)
    np.testing.assert_array_equal(source[rows], X[rows])
    assert source.dtype == np.float32 and len(source._held) <= 2
    assert (source.target == np.array(["no", "yes"])[y]).all()


def test_parquet_groups_come_in_an_order_of_the_seed_and_windows_are_mixed(parquet):
    source = ParquetTable(parquet, target="label", window=2)
    order = source.order(7)
    assert sorted(order) == list(range(200))
    np.testing.assert_array_equal(order, source.order(7))
    assert not np.array_equal(order, source.order(8))
    groups = np.searchsorted(source._starts, order, side="right") - 1
    sizes = np.diff(source._starts)
    first = groups[: sizes[groups[0]]]
    assert (
        1 <= len(set(first)) <= 2 and not (np.diff(order[:20]) == 1).all()
    )  # a window of two, its rows mixed


def test_parquet_errors(parquet, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(ValueError, match="no column named 'labek'. Closest: 'label'"):
        ParquetTable(parquet, target="labek")
    with pytest.raises(ValueError, match="column 'label' must hold numbers; got string"):
        ParquetTable(parquet)
    pq.write_table(pa.table({"f0": [1.0], "other": [2.0]}), parquet / "part2.parquet")
    with pytest.raises(
        ValueError, match=r"all parts must have the columns of part0.parquet; got part2.parquet.*'other'"
    ):
        ParquetTable(parquet, target="label")
    with pytest.raises(FileNotFoundError, match="there must be a .parquet file"):
        ParquetTable(tmp_path / "nowhere")
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match="bad.parquet must be a Parquet file"):
        ParquetTable(tmp_path / "bad.parquet")


# --- fitting ---------------------------------------------------------------------------------------------


def test_a_memory_map_gives_the_same_model_as_memory(table):
    X, y, mapped = table
    for options in ({}, {"early_stopping": True, "patience": 2}):
        inside, outside = mlp(**options).fit(X, y), mlp(**options).fit(mapped, y)
        assert [r["loss"] for r in inside.history_] == [r["loss"] for r in outside.history_]
        np.testing.assert_array_equal(inside.predict_proba(X), outside.predict_proba(mapped))
    vae = VAE(2, hidden_layer_sizes=(4,), training=PLAN, random_state=0)
    assert same(vae.fit(X).transform(X), vae.fit(mapped).transform(mapped))
    regressor = MLPRegressor((4,), training=PLAN, random_state=0)
    np.testing.assert_array_equal(regressor.fit(X, y).predict(X), regressor.fit(mapped, y).predict(mapped))


def test_image_maps(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 255, (40, 3, 8, 8), dtype=np.uint8), np.arange(40) % 2
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    net = ImageClassifier("lenet", training=Training(epochs=2, batch_size=16), random_state=0)
    inside = net.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(net.fit(mapped, y).predict_proba(mapped), inside, rtol=1e-5, atol=1e-6)


def test_parquet_brings_its_targets_and_resumes_inside_an_epoch(parquet, tmp_path):
    source = ParquetTable(parquet, target="label", window=2)
    whole = mlp().fit(source)
    assert whole.classes_.tolist() == ["no", "yes"]
    assert whole.history_[-1]["loss"] < whole.history_[0]["loss"]
    resumed = _killed_and_resumed(
        lambda: mlp().fit(ParquetTable(parquet, target="label", window=2)), tmp_path / "r"
    )
    np.testing.assert_array_equal(resumed.predict_proba(source), whole.predict_proba(source))


def _killed_and_resumed(fit, folder, cut=20):
    """Fit with a power cut inside the second epoch, after a checkpoint there, and resume."""
    from corollary.engine import sgd

    class PowerCut(Exception):
        pass

    seen, update, wanted = [0], sgd.GradientLearner._update, sgd.pause_wanted

    def counted(self, batch):
        seen[0] += 1
        if seen[0] > cut:
            raise PowerCut
        update(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sgd.GradientLearner, "_update", counted)
        patch.setattr(sgd, "pause_wanted", lambda **how: seen[0] == cut or wanted(**how))
        with pytest.raises(PowerCut), Run(folder, checkpoint_every=0):
            fit()
    with Run(folder, resume=True):
        return fit()


def test_a_torch_data_set_is_data(table):
    X, y, _ = table
    plain = mlp().fit(X, y)
    given = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(mlp().fit(given).predict_proba(given), plain.predict_proba(X))

    class Squares(Dataset):
        def __len__(self):
            return 50

        def __getitem__(self, i):
            return np.float32([i, i**2]), float(i)

    assert MLPRegressor((4,), training=PLAN).fit(Squares()).n_features_in_ == 2
    assert as_source(Squares()).target.tolist() == list(range(50))
    assert isinstance(as_source(Squares()), MapDataset)


class Counted(IterableDataset):
    """Rows in order; it knows its position."""

    def __init__(self, X, y):
        self.X, self.y, self.at, self.begin, self.walked = X, y, 0, 0, []

    def __iter__(self):
        begin, self.begin = self.begin, 0
        self.walked.append(0)
        for row in range(begin, len(self.X)):
            self.at = row + 1
            self.walked[-1] += 1
            yield self.X[row], self.y[row]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.begin = state["at"]


def test_a_stream_is_read_in_its_own_order(table):
    X, y, _ = table
    plain = mlp(shuffle=False).fit(X, y)

    def rows():
        yield from zip(X, y)

    for stream in (rows, Counted(X, y)):
        np.testing.assert_array_equal(mlp().fit(stream).predict_proba(X), plain.predict_proba(X))
        np.testing.assert_array_equal(plain.predict_proba(stream), plain.predict_proba(X))


def test_a_stream_that_knows_its_position_goes_on_there(table, tmp_path):
    X, y, _ = table
    whole = mlp().fit(Counted(X, y))
    streams = []

    def fit():
        streams.append(Counted(X, y))
        return mlp().fit(streams[-1])

    resumed = _killed_and_resumed(fit, tmp_path / "r")
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    # Counted, looked at for the hash, then on: 13 batches of 16 an epoch, cut behind the seventh of the second.
    assert streams[1].walked == [200, 1, 200 - 7 * 16, 200]


def test_stream_errors(table):
    X, y, _ = table

    def rows():
        yield from X

    with pytest.raises(TypeError, match="anew in every epoch; got generator. Pass the generator function"):
        VAE(2).fit(rows())
    with pytest.raises(ValueError, match="must give samples; got none"):
        VAE(2).fit(lambda: iter(()))
    with pytest.raises(ValueError, match="early_stopping holds out samples"):
        VAE(2, training=Training(early_stopping=True)).fit(rows)
    lengths = iter([200, 200, 130])

    def shrinking():
        yield from X[: next(lengths)]

    model = VAE(2, hidden_layer_sizes=(4,), training=PLAN, random_state=0).fit(X)
    before = model.transform(X)
    with pytest.raises(ValueError, match="must give the 200 samples that it gave at first; got 130 of them"):
        model.fit(shrinking)
    assert same(model.transform(X), before)


def test_an_image_folder_is_decoded_as_it_is_read(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in ("dark", "light"):
        (tmp_path / label).mkdir()
        for i in range(12):
            low = 128 * (label == "light")
            pixels = rng.integers(low, low + 128, (9, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / label / f"{i}.png")
    source = ImageFolder(tmp_path, size=(8, 8))
    assert source.shape == (24, 3, 8, 8) and source.target[0] == "dark"
    plan = Training(epochs=15, batch_size=8)
    model = ImageClassifier("lenet", training=plan, random_state=0).fit(source)
    assert model.score(source[:], source.target) > 0.9
    Image.new("RGB", (20, 30)).save(tmp_path / "dark" / "odd.png")
    with pytest.raises(ValueError, match=r"sample 12 must have shape \(3, 9, 8\)"):
        ImageFolder(tmp_path)[:]


def test_bad_rows_are_named_when_they_are_read(tmp_path, table):
    X, y, _ = table
    bad = X.copy()
    bad[150, 2] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(ValueError, match="contains NaN"):
        mlp().fit(np.load(tmp_path / "bad.npy", mmap_mode="r"), y)


def test_what_reads_no_source_says_so(parquet):
    with pytest.raises(TypeError, match=r"takes data that fit into memory; got ParquetTable\(200, 5\)"):
        Perceptron().fit(ParquetTable(parquet, target="label"), np.zeros(200))


def test_two_processes_share_a_memory_map(table):
    X, y, mapped = table
    with Run(processes=2):
        model = mlp().fit(mapped, y)
    alone = mlp().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), rtol=1e-3, atol=1e-4)


MEMORY = """
import sys
import warnings
import numpy as np
import torch
import corollary
from corollary import ImageClassifier, MLPClassifier, Training, VAE

def megabytes(field):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(field))

torch.set_num_threads(1)
path, names = sys.argv[1], sys.argv[2:]
X = np.load(path, mmap_mode="r") if path.endswith(".npy") else corollary.data.ParquetTable(path, window=4)
plan = Training(epochs=1, batch_size=512)
makers = {
    "mlp": lambda: MLPClassifier((4,), training=plan),
    "vae": lambda: VAE(2, hidden_layer_sizes=(4,), likelihood="gaussian", training=plan),
    "lenet": lambda: ImageClassifier("lenet", training=plan),
}
for name in names:
    makers[name]().fit(X[:1024], np.arange(1024) % 2)  # what the library and two batches take
    open("/proc/self/clear_refs", "w").write("5")  # the peak is counted from here
    before = megabytes("VmRSS")
    with corollary.Run(time_limit=3), warnings.catch_warnings():  # long enough to read from all over the file
        warnings.simplefilter("ignore")
        makers[name]().fit(X, np.arange(len(X)) % 2)
    assert megabytes("VmHWM") - before < X.nbytes / 2**20 / 4, (name, before, megabytes("VmHWM"), X.nbytes / 2**20)
"""


def _fits_in_a_quarter(path, *names):
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_table_on_disk_takes_a_quarter_of_its_size_at_most(tmp_path):
    table = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (200_000, 300))  # 229 MB
    table[::500] = np.random.default_rng(0).normal(size=(400, 300))
    table.flush()
    _fits_in_a_quarter(tmp_path / "x.npy", "mlp", "vae")


def test_images_on_disk_take_a_quarter_of_their_size_at_most(tmp_path):
    images = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (600_000, 28, 28))  # 449 MB
    images[::2000] = np.random.default_rng(0).integers(0, 255, (300, 28, 28))
    images.flush()
    _fits_in_a_quarter(tmp_path / "x.npy", "lenet")


def test_a_parquet_folder_takes_a_quarter_of_its_size_at_most(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = np.zeros(150_000, np.float32)
    for part in range(4):  # 229 MB of floats
        table = pa.table({f"f{j}": column for j in range(100)})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=5000, compression="none")
    _fits_in_a_quarter(tmp_path, "mlp")


def test_images_of_other_depths_keep_their_brightness(tmp_path):
    """White is white in 8 bits and in 16, whichever comes first; written into the other type as they are, values wrap."""
    from PIL import Image

    for name, deep in (("first8", False), ("first16", True)):
        folder = tmp_path / name
        folder.mkdir()
        for i, sixteen in enumerate((deep, not deep)):
            values = np.array([[0, 65535], [32896, 257]], np.uint16)
            Image.fromarray(values if sixteen else (values // 257).astype(np.uint8)).save(folder / f"{i}.png")
        source = ImageFolder(folder)
        assert source.dtype == (np.uint16 if deep else np.uint8)
        found = source[:] / np.iinfo(source.dtype).max
        np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_a_stream_that_is_shuffled_anew_would_get_other_samples_targets(table):
    """It used to be trained on, each sample with the target of another."""
    X, y, _ = table

    class Shuffled(IterableDataset):
        def __iter__(self):
            for row in torch.randperm(len(X)).tolist():
                yield X[row], y[row]

    with (
        torch.random.fork_rng(),
        pytest.raises(ValueError, match=r"same order in every epoch; got the target \d"),
    ):
        mlp().fit(Shuffled())


def test_a_loader_is_told_apart_from_its_data(table):
    X, y, _ = table
    loader = torch.utils.data.DataLoader(
        TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), batch_size=8
    )
    with pytest.raises(TypeError, match=r"X must be samples; got a DataLoader, .* Pass loader\.dataset"):
        mlp().fit(loader)
