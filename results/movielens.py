"""MovieLens 100k: every completer on one fixed split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corollary import compare
from results.tables import at_most, board_page

TEXT = "Root-mean-square error on 10 % of the ratings, held out at random with seed 0; every completer with its defaults."


def run(out: Path) -> dict[str, Any]:
    """Fit them all and assert the floors."""
    board = compare("ml-100k", test=0.1, seed=0)
    board_page(out, "movielens", "MovieLens 100k", TEXT, board)
    scores = {row["system"]: row["score"] for row in board.rows if row["score"] is not None}
    at_most(scores["baseline"], 0.95, "the baseline's error")
    at_most(scores["als"], 0.94, "the error of ALS")
    at_most(scores["als"], scores["baseline"] - 0.005, "the error of ALS against the baseline")
    return scores
