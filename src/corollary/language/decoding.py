"""Fast generation with a small decoder: one token a call, as one compiled loop over its weights.

For a batch of one, a small transformer spends most of its time between its operations. Here a row goes
through all layers without leaving the cache of the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from corollary.compiled import njit

__all__ = ["Compiled"]

FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(fastmath=FAST, cache=True)
def _matvec(W, b, x, out):  # (n, d), (n,), (d,) -> (n,), four rows share one pass over x
    n, d = W.shape
    i = 0
    while i + 4 <= n:
        w0, w1, w2, w3 = W[i], W[i + 1], W[i + 2], W[i + 3]
        s0 = s1 = s2 = s3 = np.float32(0)
        for k in range(d):
            s0 += w0[k] * x[k]
            s1 += w1[k] * x[k]
            s2 += w2[k] * x[k]
            s3 += w3[k] * x[k]
        out[i], out[i + 1], out[i + 2], out[i + 3] = s0 + b[i], s1 + b[i + 1], s2 + b[i + 2], s3 + b[i + 3]
        i += 4
    while i < n:
        s0 = np.float32(0)
        for k in range(d):
            s0 += W[i, k] * x[k]
        out[i] = s0 + b[i]
        i += 1


@njit(fastmath=FAST, cache=True)
def _normalise(x, gain, bias, epsilon, out):
    mean = np.float32(0)
    for k in range(x.size):
        mean += x[k]
    mean /= np.float32(x.size)
    variance = np.float32(0)
    for k in range(x.size):
        variance += (x[k] - mean) * (x[k] - mean)
    scale = np.float32(1) / np.sqrt(variance / np.float32(x.size) + epsilon)
    for k in range(x.size):
        out[k] = (x[k] - mean) * scale * gain[k] + bias[k]


@njit(fastmath=FAST, cache=True)
def _activate(kind, u):
    one = np.float32(1)
    for k in range(u.size):
        z = u[k]
        # gelu with tanh: 0.5 (1 + tanh(y)) = 1 / (1 + exp(-2 y)), y = sqrt(2 / pi) (z + 0.044715 z^3)
        if kind == 0:
            u[k] = z / (
                one + np.exp(np.float32(-1.5957691216057308) * (z + np.float32(0.044715) * z * z * z))
            )
        elif kind == 1:
            u[k] = max(z, np.float32(0))
        else:
            u[k] = z / (one + np.exp(-z))


@njit(fastmath=FAST, cache=True)
def _attend(q, keys, values, scale, scores, out):  # (d,), (s, d), (s, d) -> (d,)
    top = np.float32(-np.inf)
    for j in range(len(keys)):
        s = np.float32(0)
        for k in range(q.size):
            s += keys[j, k] * q[k]
        scores[j] = s * scale
        top = max(top, scores[j])
    total = np.float32(0)
    out[:] = 0
    for j in range(len(keys)):
        w = np.exp(scores[j] - top)
        total += w
        for k in range(q.size):
            out[k] += w * values[j, k]
    for k in range(q.size):
        out[k] /= total


@njit(fastmath=FAST, cache=True)
def _row(b, token, place, kind, embedding, places, head, ends, norms, epsilon, scales,
         Wq, bq, Wo, bo, W1, b1, W2, b2, keys, values, logits):  # fmt: skip
    d, n_heads, width = embedding.shape[1], keys.shape[2], keys.shape[4]
    h = embedding[token] + places[place]
    x, y, o = np.empty(d, np.float32), np.empty(d, np.float32), np.empty(d, np.float32)
    q, u = np.empty(3 * d, np.float32), np.empty(W1.shape[1], np.float32)
    scores = np.empty(place + 1, np.float32)
    for layer in range(Wq.shape[0]):
        _normalise(h, norms[layer, 0], norms[layer, 1], epsilon, x)
        _matvec(Wq[layer], bq[layer], x, q)
        for a in range(n_heads):
            lo, hi = a * width, (a + 1) * width
            keys[layer, b, a, place] = q[d + lo : d + hi]
            values[layer, b, a, place] = q[2 * d + lo : 2 * d + hi]
            past = place + 1
            _attend(
                q[lo:hi],
                keys[layer, b, a, :past],
                values[layer, b, a, :past],
                scales[layer],
                scores,
                y[lo:hi],
            )
        _matvec(Wo[layer], bo[layer], y, o)
        h += o
        _normalise(h, norms[layer, 2], norms[layer, 3], epsilon, x)
        _matvec(W1[layer], b1[layer], x, u)
        _activate(kind, u)
        _matvec(W2[layer], b2[layer], u, o)
        h += o
    _normalise(h, ends[0], ends[1], epsilon, x)
    _matvec(head, np.zeros(head.shape[0], np.float32), x, logits)


@njit(cache=True)
def _one(tokens, at, kind, embedding, places, head, ends, norms, epsilon, scales,
         Wq, bq, Wo, bo, W1, b1, W2, b2, keys, values, logits):  # fmt: skip
    _row(0, tokens[0], at[0], kind, embedding, places, head, ends, norms, epsilon, scales,
         Wq, bq, Wo, bo, W1, b1, W2, b2, keys, values, logits[0])  # fmt: skip


@njit(parallel=True, cache=True)
def _many(tokens, at, kind, embedding, places, head, ends, norms, epsilon, scales,
          Wq, bq, Wo, bo, W1, b1, W2, b2, keys, values, logits):  # fmt: skip
    for b in prange(len(tokens)):
        _row(b, tokens[b], at[b], kind, embedding, places, head, ends, norms, epsilon, scales,
             Wq, bq, Wo, bo, W1, b1, W2, b2, keys, values, logits[b])  # fmt: skip


class Compiled:
    """A decoder's weights and a cache, as the loop wants them."""

    def __init__(self, module: Any, cache: Any) -> None:
        blocks = module.blocks
        head = module.tokens if module.head is None else module.head

        def stack(*names: str) -> np.ndarray:
            return np.stack([_array(b.get_parameter(name)) for b in blocks for name in names])

        norms = stack("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias")
        self.arguments = (
            {"gelu_tanh": 0, "relu": 1, "silu": 2}[blocks[0].activation],
            _array(module.tokens.weight),
            _array(module.places.weight),
            _array(head.weight),
            np.stack([_array(module.norm.weight), _array(module.norm.bias)]),
            norms.reshape(len(blocks), 4, -1),
            np.float32(module.norm.eps),
            np.array([block.scale for block in blocks], np.float32),
            *(
                stack(f"{layer}.{part}")
                for layer in ("qkv", "mix", "expand", "contract")
                for part in ("weight", "bias")
            ),
            cache.keys.numpy(),
            cache.values.numpy(),
        )
        self.logits = torch.empty(cache.keys.shape[1], len(head.weight))

    def advance(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Read one more token per row, each at its place; return the logits after it."""
        run = _one if len(tokens) == 1 else _many
        run(tokens.numpy(), places.numpy(), *self.arguments, self.logits.numpy())
        return self.logits


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
