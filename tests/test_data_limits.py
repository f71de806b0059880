"""Small files that ask for much memory are refused before it is taken; the bound can be raised."""

import io
import json
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import sparse

from corollary import data
from corollary.data import Limits
from corollary.errors import Refused


def png(path, side):
    """Write a black picture of side x side pixels, row by row, in little memory."""
    packer = zlib.compressobj(1)
    rows = b"".join(packer.compress(b"\0" * (side + 1)) for _ in range(side)) + packer.flush()

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def npy_header(shape, dtype="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def zipped(path, **parts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                for piece in content:
                    file.write(piece)


def sparse_npz(path, shape):
    parts = {"data": np.ones(1), "indices": np.zeros(1, np.int64), "indptr": np.array([0, 1])}
    np.savez(path, **parts, shape=np.array(shape), format=np.array(b"csr"))


def bombs(folder):
    """Write every bomb into the folder, and return their names with the options of load."""
    png(folder / "picture.png", 9_000)
    zeros = (b"\0" * 2**20 for _ in range(520))
    zipped(folder / "zeros.npz", X=[npy_header((2**17, 520)), *zeros])
    zipped(folder / "claim.npz", X=[npy_header((2**40,))])
    (folder / "claim.npy").write_bytes(npy_header((2**35, 2)) + b"\0" * 100)
    sparse_npz(folder / "wide.npz", (1, 2**50))
    np.savez(folder / "nodes.npz", edge_index=np.array([[0], [2**50]]))
    np.savez(folder / "batch.npz", edge_index=np.zeros((2, 1), int), x=np.ones((2, 1)), batch=[0, 2**50])
    (folder / "columns.csv").write_text(
        ",".join(f"c{i}" for i in range(200_000)) + "\n" + "1," * 199_999 + "1\n"
    )
    (folder / "field.csv").write_text('a,b\n1,"' + "x" * 20_000_000 + '"\n')
    (folder / "ids.edges").write_text("\n".join([*("a b" for _ in range(20_000)), "x" * 100_000 + " y"]))
    long = pd.DataFrame({f"a{i}": np.zeros(4_000_000, np.int8) for i in range(20)})
    long.to_parquet(folder / "long.parquet")
    return [path.name for path in folder.iterdir()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    bombs(folder)
    return folder


NAMES = """picture.png zeros.npz claim.npz claim.npy wide.npz nodes.npz batch.npz columns.csv field.csv ids.edges
long.parquet""".split()


def test_bombs_cost_little_memory(folder):
    """All of them, in a process of their own: its memory grows by no more than the largest file needs as text."""
    code = textwrap.dedent(
        """
        import json, resource, sys, pandas, pyarrow.parquet, networkx, scipy.sparse, PIL.Image
        from pathlib import Path
        from corollary import data
        data.load([[1.0, 2.0]])
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = {}
        for path in sorted(Path(sys.argv[1]).iterdir()):
            before = peak()
            try:
                data.load(path)
                said = "loaded"
            except ValueError as error:
                said = str(error)
            found[path.name] = said, (peak() - before) / 1024
        print(json.dumps(found))
        """
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    found = json.loads(out.stdout)
    assert sorted(found) == sorted(NAMES)
    for name, (said, grown) in found.items():
        assert said.startswith("load: "), (name, said)
        size = (folder / name).stat().st_size / 2**20
        assert grown < 64 + 6 * size, (name, grown, said)


@pytest.mark.parametrize(
    ("content", "low", "high"),
    [
        ("a,b,c\n1,2,3\n", Limits(columns=2), Limits(columns=3)),
        ("a,b\n1,xyz\n", Limits(field=2), Limits(field=3)),
    ],
)
def test_the_bound_can_be_raised(tmp_path, content, low, high):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(Refused, match=r"raise the bound: load\(..., limits=Limits\("):
        data.load(tmp_path / "t.csv", limits=low)
    assert data.load(tmp_path / "t.csv", limits=high).kind == "table"


def test_many_small_pictures_count_together(tmp_path):
    for i in range(4):
        Image.fromarray(np.zeros((200, 200), np.uint8)).save(tmp_path / f"{i}.png")
    assert data.load(tmp_path, limits=Limits(bytes=4 * 8 * 200**2)).X.shape == (4, 200, 200)
    with pytest.raises(Refused, match="must fit into 1279999 bytes"):
        data.load(tmp_path, limits=Limits(bytes=4 * 8 * 200**2 - 1))


def test_wide_sparse_matrices_within_the_bound_are_read(tmp_path):
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_matrix(([1.0], ([0], [10**6 - 1])), shape=(2, 10**6)))
    assert data.load(tmp_path / "s.npz").X.shape == (2, 10**6)


def test_limits_are_limits():
    with pytest.raises(TypeError, match=r"limits must be a corollary.data.Limits; got int"):
        data.load(__file__, limits=3)
