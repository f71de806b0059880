r"""BERT's pre-training tasks: masked language modelling and next-sentence prediction.

Two sentences a and b are read as ``[CLS] a [SEP] b [SEP]``; half of the time b follows a in its document. Of the 15 % of
tokens :math:`\mathcal M` that are to be guessed, 80 % are replaced by a mask, 10 % by a random token, and 10 % are left as
they are (1); that gives :math:`\tilde x`. The loss is

.. math::
    \mathcal L = -\frac{1}{|\mathcal M|} \sum_{t \in \mathcal M} \log p(x_t \mid \tilde x)
    - \log p(\text{follows} \mid \tilde x). \tag{2}
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.engine.batches import Batch
from corollary.engine.ragged import padding_mask

__all__ = ["mask_tokens", "pretraining_loss", "sentence_pairs"]


def mask_tokens(
    tokens: Tensor, special: Tensor, mask: int, n_tokens: int, share: float = 0.15
) -> tuple[Tensor, Tensor]:
    """Return tokens as eq. 1 hides them, and which are to be guessed; ``special`` (b, t) ones never are.

    A text of which nothing was chosen has one token chosen, so that every batch has something to learn.
    """
    draw = torch.rand(tokens.shape, device=tokens.device).masked_fill(special, 2.0)
    chosen = draw < share
    least = draw.argmin(1, keepdim=True)
    chosen.scatter_(1, least, chosen.gather(1, least) | (draw.gather(1, least) < 2))
    fate = torch.rand(tokens.shape, device=tokens.device)
    other = torch.randint(0, n_tokens, tokens.shape, device=tokens.device)
    hidden = torch.where(chosen & (fate < 0.8), mask, tokens)
    return torch.where(chosen & (fate >= 0.9), other, hidden), chosen


def sentence_pairs(
    documents: list[list[list[int]]], tokenizer: Any, max_length: int, rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return framed pairs, their sentence types, and whether the second follows (1) or is from anywhere (0).

    Consecutive sentences are joined while a quarter of the context holds them; a document of one sentence is halved.
    What does not follow is from another document, if there is one.
    """
    room = (max_length - 3) // 2
    segments = [_segments(document, room) for document in documents]
    rows, types, follows = [], [], []
    for i, parts in enumerate(segments):
        if len(parts) == 1:
            middle = (len(parts[0]) + 1) // 2
            parts = [parts[0][:middle], parts[0][middle:]]
        for a, b in zip(parts[:-1], parts[1:]):
            true = rng.random() < 0.5 or len(segments) < 2
            if not true:
                other = segments[(i + rng.integers(1, len(segments))) % len(segments)]
                b = other[rng.integers(len(other))]
            rows.append(np.array([tokenizer.open, *a[:room], tokenizer.part, *b[:room], tokenizer.part]))
            types.append(np.repeat([0, 1], [len(a[:room]) + 2, len(b[:room]) + 1]))
            follows.append(int(true))
    return rows, types, np.array(follows)


def _segments(sentences: list[list[int]], room: int) -> list[list[int]]:
    parts: list[list[int]] = []
    for sentence in sentences:
        if parts and len(parts[-1]) + len(sentence) <= room // 2:
            parts[-1] = parts[-1] + sentence
        else:
            parts.append(sentence)
    if len(parts) == 1 and len(sentences) > 1:
        middle = len(sentences) // 2
        parts = [sum(sentences[:middle], []), sum(sentences[middle:], [])]
    return parts or [[]]


def pretraining_loss(module: nn.Module, batch: Batch, *, tokenizer: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Return eq. 2 over a batch, and its two parts."""
    (tokens, lengths, types, _), follows = batch.inputs, batch.target
    fixed = ~padding_mask(lengths, tokens.shape[1], tokens.device)
    fixed = fixed | (tokens == tokenizer.open) | (tokens == tokenizer.part)
    hidden, chosen = mask_tokens(tokens, fixed, tokenizer.mask, tokenizer.size)
    guesses, next_logits = module(hidden, lengths, types, chosen)
    guessing = F.cross_entropy(guesses, tokens[chosen], reduction="sum") / max(1, int(chosen.sum()))
    following = F.cross_entropy(next_logits, follows)
    return guessing + following, {"guessing": guessing.detach(), "following": following.detach()}
