"""Sequences: batches of like lengths against padding, the linear recurrent unit against loops and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import THREADS, Draw, Pair, claim


def _close(tolerance: float) -> Any:
    def quality(ours: Any, peer: Any) -> dict[str, float]:
        gaps = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, peer)]
        if max(gaps) > tolerance:
            raise AssertionError(f"results differ by {max(gaps):.2e} of their size")
        return {"relative difference": max(gaps)}

    return quality


# --- batches ----------------------------------------------------------------------------------------------


def _sequences(draw: Draw) -> tuple[list[np.ndarray], np.ndarray]:
    rng, n = draw.rng, draw.size("sequences", 400, 2000)
    spread = draw.real("spread of log length", 0.3, 1.2)
    lengths = np.clip(rng.lognormal(3.3, spread, size=n), 2, 300).astype(int)
    X = [rng.integers(0, 50, size=t) for t in lengths]
    return X, np.array([int(x[-1] < 25) for x in X])


@claim("bucketed-batches", peer="torch", aim=1.5)
def bucketed_batches(draw: Draw) -> Pair:
    """GRU epoch on sequences of 2 to 300 steps: like lengths together, against padding as they come"""
    from corollary.engine.batches import epoch_order
    from corollary.engine.ragged import Ragged, RaggedBatches
    from corollary.sequences.network import SequenceNetwork

    torch.set_num_threads(THREADS)
    X, y = _sequences(draw)
    hidden = draw.choice("hidden", (32, 64, 128))

    def trainer(pool: int) -> Any:
        torch.manual_seed(0)
        net = SequenceNetwork(50, 2, "gru", width=hidden, embedding_dimension=32)
        optimizer = torch.optim.Adam(net.parameters(), 3e-3)
        batches, epoch = RaggedBatches(Ragged.of(X), torch.from_numpy(y), pool=pool), [0]

        def train() -> float:
            total = 0.0
            for batch in batches.epoch(epoch_order(0, epoch[0], len(X)), 32):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(*batch.inputs), batch.target)
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * batch.size
            epoch[0] += 1
            return total / len(X)

        return train

    def quality(ours: float, peer: float) -> dict[str, float]:
        if ours > peer + 0.1:
            raise AssertionError(f"loss {ours} after the first epoch, {peer} with random batches")
        return {"loss": ours, "peer loss": peer}

    return Pair(trainer(50), trainer(0), quality)


# --- the linear recurrent unit ----------------------------------------------------------------------------


def _inputs(draw: Draw) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(draw.index)
    n, t, d = draw.size("batch", 4, 32), draw.size("steps", 128, 2048), draw.size("channels", 32, 256)
    v = 0.1 * torch.randn(2, n, t, d, generator=g)
    radius, phase = 0.95 + 0.049 * torch.rand(d, generator=g), 0.5 * torch.rand(d, generator=g)
    return v[0], v[1], radius * torch.cos(phase), radius * torch.sin(phase)


@claim("lru-forward", peer="torch", aim=4.0)
def lru_forward(draw: Draw) -> Pair:
    """Linear recurrence forward, against a Python loop over time"""
    from corollary.nn.lru import linear_scan, scan_loop

    torch.set_num_threads(THREADS)
    vr, vi, lr, li = _inputs(draw)
    v, lam = torch.complex(vr, vi), torch.complex(lr, li)

    def peer() -> Any:
        with torch.no_grad():
            x = scan_loop(v, lam)
        return x.real, x.imag

    return Pair(lambda: linear_scan(vr, vi, lr, li), peer, _close(1e-4))


@claim("lru-train", peer="torch", aim=2.0)
def lru_train(draw: Draw) -> Pair:
    """Linear recurrence forward and backward, against a Python loop over time"""
    from corollary.nn.lru import linear_scan, scan_loop

    torch.set_num_threads(THREADS)
    vr, vi, lr, li = _inputs(draw)
    v, lam = torch.complex(vr, vi).requires_grad_(), torch.complex(lr, li).requires_grad_()
    parts = [part.clone().requires_grad_() for part in (vr, vi, lr, li)]

    def ours() -> Any:
        xr, _ = linear_scan(*parts)
        grads = torch.autograd.grad(xr.square().sum(), parts)
        return grads[0], grads[2]

    def peer() -> Any:
        grads = torch.autograd.grad(scan_loop(v, lam).real.square().sum(), (v, lam))
        return grads[0].real, grads[1].real

    return Pair(ours, peer, _close(1e-3))


@claim("lru-against-lstm", peer="torch", aim=1.0)
def lru_against_lstm(draw: Draw) -> Pair:
    """A training step of nn.LRU against torch.nn.LSTM"""
    from corollary.nn import LRU

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    n, t, d = (
        draw.size("batch", 4, 32),
        draw.size("steps", 64, 1024),
        draw.choice("width", (32, 64, 128, 256)),
    )
    x = torch.randn(n, t, d)
    unit, cell = LRU(d), torch.nn.LSTM(d, d, batch_first=True)

    def step(module: torch.nn.Module) -> Any:
        def run() -> float:
            out = module(x)
            loss = (out if isinstance(out, Tensor) else out[0]).square().mean()
            torch.autograd.grad(loss, list(module.parameters()))
            return float(loss.detach())

        return run

    return Pair(step(unit), step(cell), lambda ours, peer: {"loss": ours, "peer loss": peer})
