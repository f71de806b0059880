"""``corollary attack``: accuracy of a fitted classifier under attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corollary import errors
from corollary.cli.using import open_run, read_for, write_columns

__all__ = ["attack_run"]


def attack_run(
    run: Path,
    source: str,
    kind: str | None,
    target: str | None,
    eps: str,
    bounds: str,
    n: int | None,
    out: Path | None,
    options: dict[str, Any],
) -> list[dict[str, float]]:
    """Attack the model of a run on labelled data, write the curve if asked to, and return its rows."""
    from corollary import attack, plot
    from corollary.roles import Classifier

    model, config = open_run(run)
    if not isinstance(model, Classifier) and not hasattr(model, "classes_"):
        raise errors.value("attack", "the model must be a classifier", type(model).__name__)
    target = target or config.get("data", {}).get("target")
    radii, ends = numbers(eps, "--eps"), _ends(bounds, model.input)
    _, dataset, _ = read_for(model, config, run, source, kind, target)
    if dataset.y is None:
        do = "Pass --target COLUMN, or a folder with a sub-folder per class."
        raise errors.value("attack", f"the data must have labels, {source!r} among others", "none", do)
    if n is not None and n < 1:
        raise errors.value("attack", "-n must be at least 1", n)
    if options["attack"] != "pgd":
        restarts = options.pop("restarts")
        if restarts != 1:
            raise errors.value("attack", "--restarts belongs to --attack pgd", options["attack"])
    curve = attack.evaluate(model, dataset.X[:n], dataset.y[:n], eps=radii, bounds=ends, **options)
    rows = curve.rows()
    if out is not None and out.suffix == ".png":
        plot.save(plot.robustness(curve, f"{type(model).__name__} under {curve.attack}"), out)
    elif out is not None:
        write_columns(out, [*rows[0]], [[row[name] for row in rows] for name in rows[0]])
    return rows


def numbers(text: str, owner: str) -> list[float]:
    """Return numbers that are separated by commas.

    >>> numbers("0.1, 8", "--eps")
    [0.1, 8.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise errors.value(owner, "numbers must be separated by commas", repr(text)) from error


def _ends(text: str, input: str) -> tuple[float, float] | None:
    if text in ("auto", "none"):
        return (0.0, 1.0) if text == "auto" and input == "image" else None
    ends = numbers(text, "--bounds")
    if len(ends) != 2:
        raise errors.value("--bounds", "there must be two numbers, low,high", repr(text), "Or none.")
    return ends[0], ends[1]
