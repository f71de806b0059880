"""Sequences: batches of like lengths against padding, the linear recurrent unit against loops and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import THREADS, Pair, claim


def _close(tolerance: float) -> Any:
    def quality(ours: Any, peer: Any) -> dict[str, float]:
        gaps = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, peer)]
        if max(gaps) > tolerance:
            raise AssertionError(f"results differ by {max(gaps):.2e} of their size")
        return {"relative difference": max(gaps)}

    return quality


# --- batches ----------------------------------------------------------------------------------------------


def _sequences() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(3.3, 0.8, size=1500), 2, 200).astype(int)
    X = [rng.integers(0, 50, size=t) for t in lengths]
    return X, np.array([int(x[-1] < 25) for x in X])


@claim("bucketed-batches", peer="torch", floor=1.5)
def bucketed_batches() -> Pair:
    """GRU epoch on 1,500 sequences of 2 to 200 steps: like lengths together, against padding as they come."""
    from corollary.engine.ragged import Ragged, RaggedBatches
    from corollary.engine.sgd import epoch_order
    from corollary.sequences.network import SequenceNetwork

    torch.set_num_threads(THREADS)
    X, y = _sequences()

    def trainer(pool: int) -> Any:
        torch.manual_seed(0)
        net = SequenceNetwork(50, 2, "gru", hidden_size=64, embedding_size=32)
        optimizer = torch.optim.Adam(net.parameters(), 3e-3)
        batches, epoch = RaggedBatches(Ragged.of(X), torch.from_numpy(y), pool=pool), [0]

        def train() -> float:
            total = 0.0
            for size, (x, lengths, labels) in batches.epoch(epoch_order(0, epoch[0], len(X)), 32):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x, lengths), labels)
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * size
            epoch[0] += 1
            return total / len(X)

        return train

    def quality(ours: float, peer: float) -> dict[str, float]:
        if ours > peer + 0.1:
            raise AssertionError(f"loss {ours} after the first epoch, {peer} with random batches")
        return {"loss": ours, "peer loss": peer}

    return Pair(trainer(50), trainer(0), quality)


# --- the linear recurrent unit ----------------------------------------------------------------------------


def _inputs() -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    v = 0.1 * torch.randn(2, 16, 1024, 256, generator=g)
    radius, phase = 0.95 + 0.049 * torch.rand(256, generator=g), 0.5 * torch.rand(256, generator=g)
    return v[0], v[1], radius * torch.cos(phase), radius * torch.sin(phase)


@claim("lru-forward", peer="torch", floor=6.0)
def lru_forward() -> Pair:
    """Linear recurrence forward, 16 x 1024 x 256, against a Python loop over time."""
    from corollary.nn.lru import linear_scan, scan_loop

    torch.set_num_threads(THREADS)
    vr, vi, lr, li = _inputs()
    v, lam = torch.complex(vr, vi), torch.complex(lr, li)

    def peer() -> Any:
        with torch.no_grad():
            x = scan_loop(v, lam)
        return x.real, x.imag

    return Pair(lambda: linear_scan(vr, vi, lr, li), peer, _close(1e-4))


@claim("lru-train", peer="torch", floor=2.0)
def lru_train() -> Pair:
    """Linear recurrence forward and backward, 16 x 1024 x 256, against a Python loop over time."""
    from corollary.nn.lru import linear_scan, scan_loop

    torch.set_num_threads(THREADS)
    vr, vi, lr, li = _inputs()
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


@claim("lru-against-lstm", peer="torch", floor=1.0)
def lru_against_lstm() -> Pair:
    """A training step of nn.LRU against torch.nn.LSTM, 16 x 512 x 128."""
    from corollary.nn import LRU

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    x = torch.randn(16, 512, 128)
    unit, cell = LRU(128), torch.nn.LSTM(128, 128, batch_first=True)

    def step(module: torch.nn.Module) -> Any:
        def run() -> float:
            out = module(x)
            loss = (out if isinstance(out, Tensor) else out[0]).square().mean()
            torch.autograd.grad(loss, list(module.parameters()))
            return float(loss.detach())

        return run

    return Pair(step(unit), step(cell), lambda ours, peer: {"loss": ours, "peer loss": peer})
