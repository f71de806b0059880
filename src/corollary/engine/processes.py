"""Several processes on one machine, started in torchrun's manner."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corollary import io
from corollary.engine.learner import State

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = ["launch"]

RESULT = "result.safetensors"


def launch(work: Callable[[], State], run: Run) -> State:
    """Call ``work`` in ``run.processes`` processes that see each other; return the first one's result.

    ``work`` must be picklable (a bound method of an estimator is).
    """
    import torch
    from torch.multiprocessing.spawn import spawn

    with tempfile.TemporaryDirectory() as folder:
        threads = max(1, torch.get_num_threads() // run.processes)
        settings = (run.processes, _free_port(), threads, folder, work)
        spawn(_worker, settings, nprocs=run.processes)  # type: ignore[no-untyped-call]
        result: State = io.read(Path(folder) / RESULT, "result")
    return result


def _worker(rank: int, world: int, port: int, threads: int, folder: str, work: Callable[[], Any]) -> None:
    import torch

    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID="corollary",
    )
    torch.set_num_threads(threads)
    result = work()
    if rank == 0:
        io.write(Path(folder) / RESULT, result, "result")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
