"""Callbacks for :class:`corollary.Run`: experiment trackers, and a live plot in notebooks.

Each is called with an :class:`~corollary.engine.loop.Event` after every step of any fit, classical or deep, and imports its
package when it is first used:

>>> import corollary
>>> from corollary.callbacks import TensorBoard
>>> run = corollary.Run(callbacks=[TensorBoard("runs/board")])

A callback of one's own is any function of an event; it sees ``event.metrics``, ``event.module_`` and ``event.optimizer``,
and returns True to stop the fit.
"""

from __future__ import annotations

import os
from importlib import import_module
from time import monotonic
from typing import Any

from corollary import errors, plot
from corollary.engine.loop import Event
from corollary.engine.notebook import display

__all__ = ["LivePlot", "MLflow", "TensorBoard", "WandB"]


def _package(name: str, owner: str, install: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        must = f"{owner} needs the package {install!r}"
        raise ImportError(
            errors.wording("callbacks", must, "none installed", f"pip install {install}.")
        ) from error


def _numbers(event: Event) -> dict[str, float]:
    return {name: value for name, value in event.metrics.items() if name != "step"}


class TensorBoard:
    """Write every metric as a scalar that ``tensorboard --logdir`` shows.

    Parameters
    ----------
    directory : path
        Where the event files go. Each estimator gets a folder of its own, and so does each further fit of it
        (``MLPClassifier``, ``MLPClassifier-2``, ...).
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = directory
        self._writers: dict[str, Any] = {}
        self._fits: dict[str, tuple[int, int]] = {}  # of each estimator: its fits so far, and the last step

    def __call__(self, event: Event) -> None:
        """Write the metrics of a step."""
        fit, last = self._fits.get(event.owner, (1, 0))
        if event.step <= last:  # steps count from 1 again: a further fit
            fit += 1
            self._writers.pop(event.owner).close()
        self._fits[event.owner] = fit, event.step
        if event.owner not in self._writers:
            board = _package("torch.utils.tensorboard", "TensorBoard", "tensorboard")
            folder = event.owner if fit == 1 else f"{event.owner}-{fit}"
            self._writers[event.owner] = board.SummaryWriter(os.path.join(self.directory, folder))
        for name, value in _numbers(event).items():
            self._writers[event.owner].add_scalar(name, value, event.step)
        self._writers[event.owner].flush()

    def close(self) -> None:
        """Close the files."""
        while self._writers:
            self._writers.popitem()[1].close()
        self._fits.clear()


class MLflow:
    """Log every metric to the active MLflow run, or to a new one.

    Parameters
    ----------
    prefix : str, default=""
        Put before the names of the metrics.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def __call__(self, event: Event) -> None:
        """Log the metrics of a step."""
        named = {f"{self.prefix}{name}": value for name, value in _numbers(event).items()}
        _package("mlflow", "MLflow", "mlflow").log_metrics(named, step=event.step)


class WandB:
    """Log every metric to the current Weights & Biases run, or to one that ``options`` start.

    The step of the fit is logged as ``step`` beside the metrics. W&B's own step counts on: it drops what comes with a
    smaller one, as the steps of a second fit would.

    Parameters
    ----------
    **options
        Arguments of ``wandb.init``, such as ``project="digits"``; used if no run is active.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, event: Event) -> None:
        """Log the metrics of a step."""
        wandb = _package("wandb", "WandB", "wandb")
        run = wandb.run or wandb.init(**self.options)
        run.log(dict(event.metrics) | {"step": event.step})


class LivePlot:
    """Draw the learning curves in a notebook while the fit goes on.

    Parameters
    ----------
    every : float, default=1.0
        Seconds between two drawings.
    """

    def __init__(self, every: float = 1.0) -> None:
        self.every = every
        self._rows: list[dict[str, float]] = []
        self._shown: Any = None
        self._last = -every

    def __call__(self, event: Event) -> None:
        """Add a step to the curves."""
        if event.step == 1 or (self._rows and event.step <= self._rows[-1]["step"]):
            self._rows, self._shown = [], None
        self._rows.append({**event.metrics, "step": event.step})
        if monotonic() - self._last < self.every and not event.learner.done:
            return
        self._last = monotonic()
        _package("IPython.display", "LivePlot", "ipython")  # which every notebook has
        figure = plot.save(plot.curves(self._rows))
        self._shown = display({"image/png": figure, "text/plain": "learning curves"}, self._shown)
