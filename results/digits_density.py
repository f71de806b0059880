"""Digits: every density model by held-out log-likelihood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corollary import compare
from results.tables import at_least, board_page

TEXT = """Mean held-out log-likelihood in nats of the 8 × 8 digits: uniform noise of one grey level is added (they are
integers), constant pixels are left out, columns are standardised; 20 % held out with seed 0."""


def run(out: Path) -> dict[str, Any]:
    """Fit them all and assert that a mixture beats one Gaussian."""
    board = compare("digits", task="density", seed=0, time_limit=60)
    board_page(out, "digits_density", "Densities of digits", TEXT, board)
    scores = {row["system"]: row["score"] for row in board.rows if row["score"] is not None}
    at_least(max(scores.values()), scores["pca"], "the best density against one Gaussian")
    return scores
