"""What the first fit costs: kernels are compiled once for a machine, and read from disk after that.

``python -m bench.first_call`` fits each system on small data, and some on large, in a new process, with an empty cache and with
a filled one, and writes ``results/first_call.json``; the benchmarks page shows it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEMS = (
    "perceptron", "willshaw", "als", "svt", "nmf", "gaussian-mixture", "lda", "dirichlet-process",
    "skipgram-negative", "glove", "gcn", "gat",
)  # fmt: skip
LARGE = {  # data from which on other kernels are worth compiling
    "nmf": 'rng.random((2000, 600), "f")',
    "pca": 'rng.random((2000, 4000), "f")',
    "low-rank": 'random(20_000, 5_000, 0.02, "csr", "f", rng)',
}
OUT = Path(__file__).parent / "results" / "first_call.json"
CODE = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from scipy.sparse import random
from sklearn.base import clone
from corollary import catalog, testing
entry = catalog.find(sys.argv[1])
model = catalog.create(entry.id, **getattr(entry.load(), "_test_params", dict)())
_, X, y = next(iter(testing.cases(model)))
X = abs(X) if sys.argv[1] in ("nmf", "lda") else X
rng = np.random.default_rng(0)
X = eval(sys.argv[2]) if sys.argv[2] else X
for _ in range(2):
    start = time.perf_counter()
    clone(model).fit(X, y)
    print(time.perf_counter() - start)
"""


def seconds(name: str, data: str, cache: str) -> list[float]:
    """Return the seconds of the first and the second fit in a new process."""
    run = subprocess.run(
        [sys.executable, "-c", CODE, name, data],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
    )
    return [float(line) for line in run.stdout.split()]


def main() -> None:
    """Measure them all."""
    found = {}
    for name, data in [*((name, "") for name in SYSTEMS), *LARGE.items()]:
        with tempfile.TemporaryDirectory() as cache:
            empty, filled = seconds(name, data, cache), seconds(name, data, cache)
        label = f"{name}, large data" if data else name
        found[label] = {
            "compiling": round(empty[0], 2),
            "cached": round(filled[0], 2),
            "again": round(filled[1], 3),
        }
        sys.stdout.write(f"{label}: {found[label]}\n")
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
