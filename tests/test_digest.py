"""A resumed fit is compared with all of its data: one entry changed is other data."""

import numpy as np
import pytest
import torch
from scipy import sparse

from corollary.data import Graph, ImageFolder, ParquetTable
from corollary.data.sources import as_source
from corollary.validation import HASH_BLOCK, digest


def arrays(rng):
    return {
        "large": rng.normal(size=(300_000, 3)),  # more than the 65536 entries that used to be looked at
        "wide": rng.normal(size=(2, HASH_BLOCK // 8 + 5)),
        "columns": np.asfortranarray(rng.normal(size=(50_000, 5))),
        "whole numbers": rng.integers(0, 9, size=200_000),
        "texts": np.array([f"word {i}" for i in range(3000)]),
        "mixed": np.array(["a", 1, None] * 500, dtype=object),
    }


@pytest.mark.parametrize("name", list(arrays(np.random.default_rng(0))))
def test_every_entry_counts(name):
    rng = np.random.default_rng(1)
    array = arrays(rng)[name]
    before = digest(array)
    assert digest(array.copy()) == before
    for _ in range(3):
        place = tuple(rng.integers(0, side) for side in array.shape)
        kept, array[place] = array[place], array[(0,) * array.ndim] if array.dtype.kind == "U" else 5
        changed = not np.array_equal(kept, array[place])
        assert (digest(array) != before) == changed
        array[place] = kept


def test_layout_does_not_matter_and_shape_and_type_do():
    a = np.random.default_rng(0).normal(size=(700, 900))
    assert digest(a) == digest(np.asfortranarray(a)) == digest(np.repeat(a, 2, axis=1)[:, ::2])
    assert len({digest(a), digest(a.T), digest(a.ravel()), digest(a.astype(np.float32))}) == 4


def test_every_kind_of_data():
    texts = [f"text number {i}" for i in range(5000)]  # 1024 of them used to be looked at
    other = [*texts[:-2], texts[-2] + "!", texts[-1]]
    assert digest(texts) != digest(other)
    assert digest(["x" * 70_000 + "a"]) != digest(["x" * 70_000 + "b"])
    assert digest(np.zeros((0, 3))) != digest(np.zeros((3, 0)))
    m = sparse.random(500, 400, density=0.5, format="csr", random_state=0)
    n = m.copy()
    n.data[77_777] += 1
    assert digest(m) != digest(n) != digest(m.tocsc())
    edges = np.array([[0, 1], [1, 0]])
    graphs = [Graph(x=np.eye(2), edge_index=edges, y=np.array(y)) for y in ([0, 1], [1, 0])]
    assert digest(graphs[0]) != digest(graphs[1])  # labels and masks used to be left out
    assert digest(torch.arange(4.0)) == digest(np.arange(4, dtype=np.float32))
    assert digest(torch.ones(3, dtype=torch.bfloat16)) != digest(torch.zeros(3, dtype=torch.bfloat16))
    around = [1.0]
    around.append(around)
    assert digest(around)


def test_a_memory_map_is_not_copied(tmp_path):
    import tracemalloc

    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(40, 200_000)))  # 64 MB
    mapped = np.load(path, mmap_mode="r")
    tracemalloc.start()
    found = digest(mapped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22
    assert found == digest(np.load(path))


class Augmenting(torch.utils.data.Dataset):
    """A data set whose samples differ each time they are read."""

    def __len__(self):
        return 30

    def __getitem__(self, row):
        return np.random.default_rng().normal(size=3) + row


def test_every_sample_of_a_source_counts(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))

    def sources(X, name):
        folder = tmp_path / name
        (folder / "images" / "a").mkdir(parents=True)
        np.save(folder / "x.npy", X)
        pq.write_table(
            pa.table({f"f{j}": X[:, j] for j in range(3)}), folder / "x.parquet", row_group_size=70
        )
        for i, row in enumerate(X[195:205]):
            pixels = np.broadcast_to((50 * abs(row)).clip(0, 255).astype(np.uint8)[:, None], (3, 4))
            Image.fromarray(np.ascontiguousarray(pixels)).save(folder / "images" / "a" / f"{i}.png")
        data = torch.utils.data.StackDataset(torch.from_numpy(X))
        places = [np.load(folder / "x.npy", mmap_mode="r"), ParquetTable(folder / "x.parquet")]
        places += [ImageFolder(folder / "images"), data, lambda: iter(X)]
        return [digest(as_source(place)) for place in places]

    changed = X.copy()
    changed[200, 1] += 2.0  # none of the sixteen rows that used to be looked at
    first = sources(X, "one")
    assert first == sources(X.copy(), "two")
    assert all(a != b for a, b in zip(first, sources(changed, "three"), strict=True))
    assert digest(as_source(Augmenting())) == digest(as_source(Augmenting()))
