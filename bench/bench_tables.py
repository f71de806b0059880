"""Reading delimited text against pandas: what finding encoding, separator, decimal sign, header and kinds costs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.harness import Draw, Pair, claim

AIM = 1 / 1.3  # within 1.3 times of pandas


@claim("read-numeric-csv", peer="pandas", aim=AIM)
def numeric_csv(draw: Draw) -> Pair:
    """Read a CSV file of numbers

    The numbers are read by pandas on both sides; ours finds encoding, separator, decimal sign, header and kinds first.
    """
    import pandas as pd

    from corollary import data

    rows, columns = draw.size("rows", 20_000, 400_000), draw.size("columns", 5, 60)
    frame = pd.DataFrame(draw.rng.standard_normal((rows, columns)).round(4)).add_prefix("v")
    folder = TemporaryDirectory()  # lives as long as the functions below
    path = Path(folder.name) / "t.csv"
    frame.to_csv(path, index=False)

    def ours() -> np.ndarray:
        return np.asarray(data.load(path).X if folder else None)

    def peer() -> np.ndarray:
        return pd.read_csv(path).to_numpy()

    def same(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
        np.testing.assert_array_equal(a, b)
        return {"megabytes": path.stat().st_size / 2**20}

    return Pair(ours, peer, same)
