"""Multi-process fits on one machine: ``Run(processes=2)`` starts workers as torchrun does.

The process that starts the workers does not train. It locks the run's directory, calls the callbacks, passes signals on to
the workers, and raises their errors.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corollary import errors, io
from corollary.engine.checkpoints import plain
from corollary.engine.interrupts import listening
from corollary.engine.learner import Learner, State
from corollary.engine.loop import Event

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = ["launch"]

RESULT = "result.safetensors"
STOP = "stop"
POLL = 0.1  # seconds between two looks at the signals
GRACE = 2.0  # seconds in which the others may notice that one is lost


def launch(
    work: Callable[[Run], State],
    run: Run,
    learner: Learner,
    owner: str,
    told: Sequence[Callable[[Any], bool | None]] = (),
) -> State:
    """Call ``work(run)`` in ``run.processes`` processes that see each other; return the first one's result.

    Parameters
    ----------
    work : callable
        The function that each worker calls; it must be picklable (a partial of a function is).
    run : Run
        Its settings are passed to the workers.
    learner : Learner
        The learner of this process. Callbacks see it in the state of the first worker.
    owner : str
        Name of the estimator, used at the start of error messages.
    told : sequence of callable
        The callbacks. They are called in this process after every step of the first worker.
    """
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.multiprocessing.spawn import spawn

    # the workers meet here, as under torchrun: a port that one of them opened later could be taken by then
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        here, there = torch.multiprocessing.get_context("spawn").Pipe()
        threads = max(1, torch.get_num_threads() // run.processes)
        settings = (
            run.processes,
            meeting.port,
            threads,
            folder,
            work,
            run.settings(),
            there if told else None,
        )
        try:
            with _quiet_torch():
                workers = spawn(_worker, settings, nprocs=run.processes, join=False).processes  # type: ignore[no-untyped-call]
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            must, do = (
                "several processes must be able to receive the work",
                "Define functions at the top of a module.",
            )
            raise errors.value(owner, must, str(error), do) from error
        there.close()
        try:
            with listening(run) as signals:
                while not _ended(workers, [here] if told else []):
                    if signals.interrupted:
                        (Path(folder) / STOP).write_text(signals.interrupted)
                    if told and here.poll():
                        _serve(here, learner, owner, told)
            _complain(workers, Path(folder), owner, run)
            result: State = io.read(Path(folder) / RESULT, "result")
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
    for name, text in result.pop("warnings"):
        warnings.warn(text, getattr(errors, name), stacklevel=4)
    return result


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Let processes that start now print torch's C++ errors only: DDP warns when no parameter was left out after all."""
    name = "TORCH_CPP_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    os.environ[name] = "ERROR"
    try:
        yield
    finally:
        del os.environ[name]


def _ended(workers: Sequence[Any], told: list[Any]) -> bool:
    """Wait for up to ``POLL`` seconds; return whether all workers have ended, or one has failed."""
    from multiprocessing.connection import wait

    running = [worker for worker in workers if worker.exitcode is None]
    if running and all(worker.exitcode in (None, 0) for worker in workers):
        wait([*(worker.sentinel for worker in running), *told], timeout=POLL)
        return False
    return True


def _complain(workers: Sequence[Any], folder: Path, owner: str, run: Run) -> None:
    """Raise what a worker raised, or say that one is lost and how to go on."""
    if all(worker.exitcode == 0 for worker in workers):
        return
    for worker in workers:
        worker.join(GRACE)
    lost = [(rank, worker.exitcode) for rank, worker in enumerate(workers) if (worker.exitcode or 0) < 0]
    raised = sorted(folder.glob("error-*"), key=lambda path: path.stat().st_mtime_ns)
    if raised and not lost:
        error: BaseException = pickle.loads(raised[0].read_bytes())
        raise error
    how = ", ".join(
        f"process {rank} of {len(workers)} by {signal.Signals(-code).name}" for rank, code in lost
    )
    do = "Fit again inside a Run with a directory, to be able to go on after such a loss."
    if run.directory is not None:
        do = (
            f'Go on from the last checkpoint with `with corollary.Run("{run.directory}", resume=True, ...):`.'
        )
    got = f"the end of {how}" if how else "an end without a result"
    raise errors.RunError(errors.wording(owner, "every process must live to the end of the fit", got, do))


# --- events ----------------------------------------------------------------------------------------------


class _Relay:
    """A callback in the first worker that sends every event to the process with the user's callbacks."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def __call__(self, event: Event) -> bool:
        self.connection.send((event.step, dict(event.metrics), event.seconds))
        while True:
            answer = self.connection.recv()
            if answer != "state":
                return bool(answer)
            self.connection.send(event.learner.state())


class _RemoteEvent:
    """An :class:`Event` of a worker; the learner's state is fetched when a callback first looks at the learner."""

    module_, optimizer = Event.module_, Event.optimizer

    def __init__(self, message: tuple[Any, ...], connection: Any, learner: Learner, owner: str) -> None:
        self.step, self.metrics, self.seconds = message
        self.owner = owner
        self._connection, self._learner, self._fetched = connection, learner, False

    @property
    def learner(self) -> Learner:
        """The learner as it is after this step."""
        if not self._fetched:
            self._connection.send("state")
            self._learner.restore(self._connection.recv())
            self._fetched = True
        return self._learner


def _serve(connection: Any, learner: Learner, owner: str, told: Sequence[Callable[[Any], Any]]) -> None:
    try:
        event = _RemoteEvent(connection.recv(), connection, learner, owner)
        connection.send(any([bool(call(event)) for call in told]))
    except (EOFError, ConnectionError, BrokenPipeError):  # the worker is gone; that is said elsewhere
        return


# --- in a worker -----------------------------------------------------------------------------------------


def _worker(
    rank: int,
    world: int,
    port: int,
    threads: int,
    folder: str,
    work: Callable[[Run], State],
    settings: dict[str, Any],
    connection: Any,
) -> None:
    import torch

    from corollary.engine.run import LAUNCHER, Run

    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RUN_ID=LAUNCHER,
    )
    _heed_parent()
    torch.set_num_threads(threads)
    relay = [_Relay(connection)] if rank == 0 and connection is not None else []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", errors.CorollaryWarning)
            with Run(**settings, callbacks=relay) as run:
                run.listen_to(Path(folder) / STOP)
                result = work(run)
        if rank == 0:
            ours = [w for w in caught if issubclass(w.category, errors.CorollaryWarning)]
            result["warnings"] = [(w.category.__name__, str(w.message)) for w in ours]
            io.write(Path(folder) / RESULT, plain(result), "result")
    except Exception as error:
        (Path(folder) / f"error-{rank}").write_bytes(_pickled(error))
        raise
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _heed_parent() -> None:
    """Leave Ctrl-C to the process that started this one, and end with it."""
    parent = os.getppid()

    def on_interrupt(number: int, frame: Any) -> None:
        if os.getppid() != parent:
            os._exit(1)

    signal.signal(signal.SIGINT, on_interrupt)


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # an error of somebody else's with arguments of its own
        return pickle.dumps(errors.RunError(f"{type(error).__name__}: {error}"))
    return content
