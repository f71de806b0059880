"""Compiled kernels on disk: processes that compile at once, files that are damaged, disks that are full."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config
from numba.core.caching import IndexDataCacheFile

from corollary import compiled

KERNEL = """
from corollary.compiled import njit


@njit(cache=True)
def half(x):
    return x / 2 if x > 0 else x
"""
# Process 1 writes numba's index last and process 0 its code last: under one number, 1 is entered with the code of 0.
RACE = """
import sys, time
from pathlib import Path
from numba.core.caching import IndexDataCacheFile as Files

here, folder = int(sys.argv[1]), Path(sys.argv[2])


def in_turn(write, first, name):
    def turned(self, *arguments):
        (folder / f"{here}-begins-{name}").touch()
        while not (folder / f"{1 - here}-begins-{name}").exists():
            time.sleep(0.001)
        while here != first and not (folder / f"{first}-ends-{name}").exists():
            time.sleep(0.001)
        write(self, *arguments)
        (folder / f"{here}-ends-{name}").touch()

    return turned


Files._save_index = in_turn(Files._save_index, 0, "index")
Files._save_data = in_turn(Files._save_data, 1, "data")
from raced_kernel import half

print(half((3, 3.5)[here]))
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Return what imports a kernel anew, as another process would; its code is kept in a folder of its own."""
    (tmp_path / "raced_kernel.py").write_text(KERNEL)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)

    def anew():
        monkeypatch.delitem(sys.modules, "raced_kernel", raising=False)
        return importlib.import_module("raced_kernel").half

    yield anew
    sys.modules.pop("raced_kernel", None)


def test_two_processes_that_compile_a_kernel_at_once_do_not_exchange_their_code(tmp_path, kernel):
    """numba gave the second file the name of the first: an argument's bits were taken for another type's."""
    path = os.pathsep.join([str(tmp_path), str(Path(compiled.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": config.CACHE_DIR}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(i), tmp_path], env=environment, stdout=-1, stderr=-1
        )
        for i in (0, 1)
    ]
    said = [racer.communicate() for racer in racers]
    assert [out.split() for out, _ in said] == [[b"1.5"], [b"1.75"]], said
    half = kernel()
    assert (half(3), half(3.5)) == (1.5, 1.75)
    assert sum(half.stats.cache_hits.values()) == 2  # neither of them compiled again


@pytest.mark.parametrize("damage", [b"", b"no code", None])
def test_kept_code_that_is_damaged_or_of_another_source_is_compiled_again(tmp_path, kernel, damage):
    assert kernel()(3.0) == 1.5
    (kept,) = (tmp_path / "cache").glob("*/*.nbc")
    if damage is None:
        (tmp_path / "raced_kernel.py").write_text(KERNEL.replace("x / 2 if", "x / 4 if") + "\n")
        importlib.invalidate_caches()
    else:
        kept.write_bytes(damage)
    half, right = kernel(), 0.75 if damage is None else 1.5
    assert half(3.0) == right and not sum(half.stats.cache_hits.values())
    again = kernel()
    assert again(3.0) == right and sum(again.stats.cache_hits.values()) == 1


def test_a_full_disk_costs_the_kept_code_alone(kernel, monkeypatch):
    """The fit that first compiled a kernel ended with a bare OSError."""

    def full(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_data", full)
    assert kernel()(3.0) == 1.5


def test_kernels_compile_where_no_directory_can_be_written(kernel, monkeypatch):
    """A read-only installation without a home could not import the library."""
    from numba.core.caching import CompileResultCacheImpl

    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    assert kernel()(3.0) == 1.5
