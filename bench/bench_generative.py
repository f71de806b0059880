"""Generative models: drawing pixels with kept rows against a full pass for each, and the steps of adversarial games."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from bench.harness import Draw, Pair, claim


@claim("pixelcnn-sampling", peer="torch", aim=10)
def pixels(draw: Draw) -> Pair:
    """PixelCNN sampling against the full forward for every pixel"""
    from corollary.nn.pixels import PixelNetwork

    side, n = draw.size("side", 12, 28), draw.size("images", 4, 32)
    torch.manual_seed(0)
    net = PixelNetwork(1, 4, 16, 4).eval()
    u = torch.from_numpy(draw.rng.random((n, 1, side, side))).float()

    def choose(out: torch.Tensor, i: int, j: int, k: int) -> torch.Tensor:
        below = out.softmax(1).cumsum(1) < u[:, k, i, j, None]
        return below.sum(1).clamp_max(3) * 2 / 3 - 1

    def kept() -> np.ndarray:
        with torch.inference_mode():
            return net.draw(u, choose).numpy()

    def naive() -> np.ndarray:
        x = torch.zeros_like(u)
        with torch.inference_mode():
            for i, j in product(range(side), range(side)):
                x[:, 0, i, j] = choose(net(x)[:, 0, :, i, j], i, j, 0)
        return x.numpy()

    def quality(ours: np.ndarray, peer: np.ndarray) -> dict[str, float]:
        same = float(np.mean(ours == peer))
        if same < 0.99:  # a tie within rounding changes what follows it
            raise AssertionError("the drawn images differ")
        return {"same": same}

    return Pair(kept, naive, quality)
