"""``corollary demo``: the main job on handwritten digits, without a download."""

from __future__ import annotations

from pathlib import Path

from corollary import catalog
from corollary.cli.comparing import leaderboard
from corollary.cli.console import say, table
from corollary.cli.fitting import fit_system

__all__ = ["run_demo"]

DATA = "digits"


def run_demo(directory: Path, time_limit: float) -> None:
    """Rank the density models on digits, then train a generator on them and write its report."""
    from corollary.engine.run import Run

    say("1. Which model describes handwritten digits best? Held-out log-likelihood, one split for all.\n")
    directory.mkdir(parents=True, exist_ok=True)
    options = {"task": "density", "time_limit": time_limit}
    leaderboard(DATA, None, None, directory / "leaderboard.png", False, options)
    say("\n2. A variational autoencoder learns to draw them.\n")
    with Run(progress=True):
        result = fit_system(
            catalog.find("vae"),
            DATA,
            kind=None,
            target=None,
            settings=["training.epochs=100"],
            directory=directory,
            resume=False,
            seed=0,
            test=0.2,
            run_options={"progress": True, "time_limit": 3 * time_limit},
        )
    table(("", ""), [(key, value) for key, value in result.items() if value])
    say(f"\nOpen {result['report']} in a browser.")
