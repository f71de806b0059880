"""``corollary diagnose``: what is wrong with the training of a run, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corollary.cli.using import open_run, read_for

__all__ = ["diagnose_run"]


def diagnose_run(
    run: Path,
    source: str,
    validation: str | None,
    kind: str | None,
    target: str | None,
    columns: list[str] | None,
    time_limit: float,
) -> Any:
    """Return the diagnosis of the model of a run directory or file, on data read as its fit read them."""
    from corollary import diagnose

    model, config = open_run(run)
    target = target or config.get("data", {}).get("target")

    def read(source: str) -> Any:
        _, dataset, _ = read_for(model, config, run, source, kind, target, columns)
        return dataset.X if dataset.y is None else (dataset.X, dataset.y)

    held = read(validation) if validation is not None else None
    return diagnose(model, read(source), held, time_limit=time_limit)
