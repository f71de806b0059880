"""Small files that ask for much memory are refused before it is taken; the bound can be raised."""

import gzip
import io
import json
import re
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


def packed(path, head, line):
    """Write a small file of many lines."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head + line * (2**28 // len(line)))


def far_cell(path):
    """Write a workbook of two cells, as far from each other as can be."""
    pd.DataFrame({"a": [1]}).to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    cells = b'<sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, re.sub(b"<sheetData>.*</sheetData>", cells, content))


def bombs(folder):
    """Write every bomb into the folder, and return their names with the options of load."""
    png(folder / "a_picture.png", 20_000)  # before all others, so that no peak of theirs hides its own
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
    for name, record in {"keys": '{{"k{}": 1}}', "nested": '{{"a": {{"k{}": 1}}}}'}.items():
        (folder / f"{name}.jsonl").write_text("\n".join(record.format(i) for i in range(20_000)))
    (folder / "columns.json").write_text(json.dumps({f"k{i}": {f"r{i}": 1} for i in range(20_000)}))
    packed(folder / "cells.csv.gz", b"a,b\n", b"1,2\n")
    packed(folder / "lines.txt.gz", b"", b"ab\n")
    far_cell(folder / "far.xlsx")
    pd.DataFrame({"a": ["x" * 10**6] * 1000}).to_parquet(folder / "strings.parquet", compression="zstd")
    long = pd.DataFrame({f"a{i}": np.zeros(4_000_000, np.int8) for i in range(20)})
    long.to_parquet(folder / "long.parquet")
    return [path.name for path in folder.iterdir()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    bombs(folder)
    return folder


NAMES = """a_picture.png zeros.npz claim.npz claim.npy wide.npz nodes.npz batch.npz columns.csv field.csv ids.edges
long.parquet keys.jsonl nested.jsonl columns.json cells.csv.gz lines.txt.gz far.xlsx strings.parquet""".split()


def test_bombs_cost_little_memory(folder):
    """All of them, in a process of their own: its memory grows by no more than the largest file needs as text."""
    code = textwrap.dedent(
        """
        import json, resource, sys, pandas, openpyxl, pyarrow.parquet, networkx, scipy.sparse, PIL.Image
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
        # of what is unpacked as it is parsed, the bound itself may be held
        assert grown < 64 + 6 * size + (512 if name.endswith(".gz") else 0), (name, grown, said)


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


@pytest.mark.parametrize("form", ["coo", "dia"])
def test_other_sparse_formats_are_named(tmp_path, form):
    """Their parts are no table of their own."""
    sparse.save_npz(tmp_path / "s.npz", sparse.eye(4, format=form))
    with pytest.raises(
        ValueError, match=rf"got ValueError: the format {form}, and only CSR and CSC are read"
    ):
        data.load(tmp_path / "s.npz")


def test_ordinary_packed_files_workbooks_and_records_are_read(tmp_path):
    """What is counted of fields, lines, cells and repeated strings refuses nothing that people have."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=2000).round(3), "b": rng.choice(["red", "green"], 2000)})
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_json(tmp_path / "t.jsonl.gz", orient="records", lines=True)
    frame.head(50).to_excel(tmp_path / "t.xlsx", index=False, startrow=3, startcol=2)
    frame.to_parquet(tmp_path / "t.parquet")
    small = Limits(bytes=2**17)  # of which the files themselves would leave little
    for name, rows in {"t.csv.gz": 2000, "t.jsonl.gz": 2000, "t.xlsx": 50, "t.parquet": 2000}.items():
        assert data.load(tmp_path / name, limits=small).X.shape == (rows, 2), name
