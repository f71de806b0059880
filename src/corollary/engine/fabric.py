"""Lightning Fabric for a run: device, precision and communication between processes."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lightning_fabric
from lightning_fabric.strategies.ddp import DDPStrategy

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = ["make_fabric"]


class _Unwrapped(DDPStrategy):
    """The processes of DDP without its wrapper around the module: each player reduces its own gradients."""

    def setup_module(self, module: Any) -> Any:
        return module


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    """Let a logger pass warnings only."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def make_fabric(run: Run) -> Any:
    """Return a launched Fabric with the settings of a run."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if run.world > 1 else 1
    kind, _, number = run.device.partition(":")
    strategy: Any = "auto"
    if run.world > 1:  # parameters that a batch does not reach have no gradient in any process
        strategy = _Unwrapped() if run.shards else "ddp_find_unused_parameters_true"
    with warnings.catch_warnings(), _silenced("lightning_fabric.utilities"):  # which announces every process
        warnings.simplefilter("ignore")
        fabric = lightning_fabric.Fabric(
            accelerator=kind,
            devices=[int(number)] if number and run.world == 1 else local,
            num_nodes=max(1, run.world // local),
            strategy=strategy,
            precision=run.precision or "32-true",  # type: ignore[arg-type]
        )
        fabric.launch()
    return fabric
