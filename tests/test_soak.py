"""A short soak: a few systems, every fault."""

import json
import subprocess
import sys
from collections import Counter

from corollary.testing.soak import COUNTS, FAULTS, Round, page

SYSTEMS = "perceptron,gaussian-mixture,mlp,pca"


def test_nothing_is_lost(tmp_path):
    words = ["--seed", "1", "--rounds", "8", "--systems", SYSTEMS, "--page", tmp_path / "soak.md"]
    command = [sys.executable, "-m", "corollary.testing.soak", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    counts = json.loads(done.stdout)
    assert counts["lost"] == 0, done.stderr
    assert done.returncode == 0
    assert counts["rounds"] == counts["resumed identical"] == 8
    assert "| lost |" in (tmp_path / "soak.md").read_text()


def test_the_page_tells_what_was_lost():
    rounds = [
        Round("pca", "kill", Counter(rounds=1, lost=1), "it differs"),
        Round("als", "race", Counter(races=1), ""),
    ]
    text = page(rounds, 60.0, 0)
    assert "- pca, kill: it differs" in text
    assert all(name in text for name in (*COUNTS, *FAULTS))
