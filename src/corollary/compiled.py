"""numba's ``njit`` for the library's kernels, with a cache on disk that several processes may fill at once.

numba keeps numbered files and an index of them, which it writes first: two processes that compile one kernel for different
types at once take the same number, and one is then given the other's code. Here a file is named after the signature, and
says of which source, for which processor and by which numba its code was made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import IndexDataCacheFile

__all__ = ["KernelFiles", "njit"]


def njit(*, cache: Any = False, **options: Any) -> Callable[[Any], Any]:
    """Return numba's decorator; with ``cache``, compiled code is kept in files wherever there is a place for them."""

    def decorator(function: Any) -> Any:
        kernel = numba.njit(**options)(function)
        if cache and hasattr(kernel, "enable_caching"):  # a plain function under NUMBA_DISABLE_JIT
            _keep(kernel)
        return kernel

    return decorator


def _keep(kernel: Any) -> None:
    try:
        kernel.enable_caching()
    except RuntimeError:  # no directory can be written: every process compiles for itself
        return
    files = kernel._cache._cache_file
    kernel._cache._cache_file = KernelFiles(
        files._cache_path, files._index_name.removesuffix(".nbi"), files._source_stamp
    )


class KernelFiles(IndexDataCacheFile):  # type: ignore[misc]
    """The compiled forms of one kernel: a file for each signature, without an index."""

    def save(self, key: Any, data: Any) -> None:
        """Keep compiled code; without room for it, the next process compiles again."""
        try:
            self._save_data(self._name(key), (self._made(key), data))
        except OSError:
            return

    def load(self, key: Any) -> Any:
        """Return the code for a signature; None if there is none, or none of this source that can be read."""
        try:
            made, data = self._load_data(self._name(key))
        except Exception:  # not there, cut short, or of a numba whose types are no more
            return None
        return data if made == self._made(key) else None

    def flush(self) -> None:
        """Remove the kept code of all signatures."""
        before, after = self._data_name_pattern.split("{number:d}")
        for name in os.listdir(self._cache_path):
            if name.startswith(before) and name.endswith(after):
                os.unlink(self._data_path(name))

    def _name(self, key: Any) -> str:
        """Return the name of a signature's file."""
        mark = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return str(self._data_name_pattern.replace("{number:d}", mark))

    def _made(self, key: Any) -> tuple[Any, ...]:
        return self._version, self._source_stamp, key
