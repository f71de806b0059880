"""How many threads compiled loops use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from joblib import effective_n_jobs
from numba import get_num_threads, set_num_threads

__all__ = ["threads"]

SHORT = 2**21  # operations that one thread does sooner than another one wakes: a few hundred microseconds


@contextmanager
def threads(n_jobs: int | None = None, work: float = float("inf")) -> Iterator[None]:
    """Run the loops of a block in ``n_jobs`` threads, by default all, and in one if there is little work.

    Loops that follow a product should have got it from torch, which shares its threads with them: those of NumPy's products
    go on spinning for some milliseconds, and loops in several threads wait for a core meanwhile.
    """
    before = get_num_threads()
    wanted = before if n_jobs is None else max(1, min(effective_n_jobs(n_jobs), before))
    try:
        set_num_threads(1 if work < SHORT else wanted)
        yield
    finally:
        set_num_threads(before)
