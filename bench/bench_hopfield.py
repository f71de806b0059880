"""Recall in a Hopfield network against the loop that everyone writes."""

from __future__ import annotations

import numpy as np

from bench.harness import Pair, claim


@claim("hopfield-recall", peer="numpy", floor=30)
def recall() -> Pair:
    """Hopfield recall one unit at a time, 2000 units, 200 patterns, 20 cues."""
    from corollary.connectionism import HopfieldNetwork

    rng = np.random.default_rng(0)
    Xi = rng.choice(np.array([-1.0, 1.0], np.float32), (200, 2000))
    cues = Xi[:20] * np.where(rng.random((20, 2000)) < 0.1, -1, 1).astype(np.float32)
    model = HopfieldNetwork(random_state=0).fit(Xi)

    def loop() -> np.ndarray:
        W, out = model.weights_, cues.copy()
        for s in out:
            for _ in range(model.max_sweeps):
                flips = 0
                for i in model.order_:
                    if s[i] * (W[i] @ s) < 0:
                        s[i] = -s[i]
                        flips += 1
                if not flips:
                    break
        return out

    def quality(ours: np.ndarray, peer: np.ndarray) -> dict[str, float]:
        if not np.array_equal(ours, peer):
            raise AssertionError("the recalled states differ")
        return {"overlap": float((ours * Xi[:20]).mean())}

    return Pair(lambda: model.recall(cues), loop, quality)
