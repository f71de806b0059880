"""Recall in a Hopfield network against the loop that everyone writes."""

from __future__ import annotations

import numpy as np

from bench.harness import Draw, Pair, claim


@claim("hopfield-recall", peer="numpy", aim=30)
def recall(draw: Draw) -> Pair:
    """Hopfield recall one unit at a time"""
    from corollary.connectionism import HopfieldNetwork

    rng, d = draw.rng, draw.size("units", 300, 3000)
    m = max(2, int(d * draw.real("load", 0.02, 0.13)))
    asked = min(m, draw.size("cues", 5, 40))
    Xi = rng.choice(np.array([-1, 1], draw.choice("type", ("float32", "float64"))), (m, d))
    cues = Xi[:asked] * np.where(rng.random((asked, d)) < draw.real("noise", 0.05, 0.3), -1, 1).astype(
        Xi.dtype
    )
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
        return {"overlap": float((ours * Xi[:asked]).mean())}

    return Pair(lambda: model.recall(cues), loop, quality)
