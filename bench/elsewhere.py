"""neural-tangents, in an environment of its own, asked by line: ``python bench/elsewhere.py DATA.npz``.

It needs a jax that no other peer can live with; ``PYTHON`` below says how to make the environment. Each line on standard input
is one computation; "save PATH" writes the last result. This file runs in that environment, and imports nothing of ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# python -m venv /tmp/neural-tangents, and there
# pip install neural-tangents==0.6.5 jax==0.4.30 jaxlib==0.4.30 tf2jax==0.3.6 'numpy<2'
PYTHON = os.environ.get("NEURAL_TANGENTS_PYTHON", "/tmp/neural-tangents/bin/python")


class Elsewhere:
    """The other side's process, started at its first call."""

    def __init__(self, **data: Any) -> None:
        self.data = data
        self.folder = Path(tempfile.mkdtemp())
        self.process: subprocess.Popen[str] | None = None

    def _ask(self, word: str) -> None:
        if self.process is None:
            np.savez(self.folder / "data.npz", **self.data)
            command = [PYTHON, __file__, str(self.folder / "data.npz")]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line == "done\n":
                return
        raise RuntimeError(f"{PYTHON} ended; is neural-tangents installed there?")

    def __call__(self) -> Elsewhere:
        """Compute once; the result stays there until it is fetched."""
        self._ask("compute")
        return self

    def fetch(self) -> np.ndarray:
        """Return the last result."""
        path = self.folder / "found.npy"
        self._ask(f"save {path}")
        return np.asarray(np.load(path))


def _infinite(data: Any) -> Callable[[], Any]:
    import jax
    from neural_tangents import stax

    def dense() -> Any:
        return stax.Dense(1, W_std=float(data["weight_std"]), b_std=float(data["bias_std"]))

    phi = {"relu": stax.Relu, "erf": stax.Erf}[str(data["activation"])]
    layers = [part for _ in range(int(data["n_layers"])) for part in (dense(), phi())]
    kernel = stax.serial(*layers, dense())[2]
    call = jax.jit(lambda x: tuple(kernel(x, None, ("nngp", "ntk"))))
    X = jax.numpy.asarray(data["X"])
    return lambda: jax.block_until_ready(call(X))[1]


def main(path: str) -> None:
    """Serve."""
    import jax

    data = np.load(path)
    jax.config.update("jax_enable_x64", data["X"].dtype == np.float64)
    call, found = _infinite(data), None
    for line in sys.stdin:
        word, _, where = line.strip().partition(" ")
        if word == "save":
            np.save(where, np.asarray(found))
        else:
            found = call()
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
