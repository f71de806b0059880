"""Digits: every density model in bits per dimension, against independent pixels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from corollary import compare
from results.tables import at_most, board_page, processor_time

SECONDS = float(os.environ.get("DIGITS_SECONDS", "60"))
TEXT = f"""Bits per pixel of held-out 8 × 8 digits, whose 17 grey levels lie on a grid: uniform noise of one level is added
to both parts, pixels are brought to normal shape by histograms of the training part, and both are undone in the density, so
that the number bounds the cost of a pixel in bits from above (17 even levels would cost 4.09). Five-fold cross-validation;
± is half of the 95 % interval of the mean, corrected for the overlap of the training parts; = is not told apart from
the first. Each fit has {SECONDS:g} s of one processor. The baselines know every pixel by itself and nothing of the others."""


def run(out: Path) -> dict[str, Any]:
    """Fit them all and assert that the best beats independent pixels, and is told apart from them."""
    with processor_time():
        board = compare("digits", task="density", seed=0, time_limit=SECONDS, progress=False)
    board_page(out, "digits_density", "Densities of digits", f"{TEXT}\n\n{board.verdict}", board)
    scores = {row["system"]: row["score"] for row in board.ranked}
    at_most(
        min(scores.values()),
        scores["histograms"] - 0.15,
        "bits of the best density against independent pixels",
    )
    at_most(scores["histograms"], 2.6, "bits of independent pixels")
    if board.winner is None:
        raise AssertionError(board.verdict)
    return scores
