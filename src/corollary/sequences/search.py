r"""Beam search for step-by-step decoders.

A beam keeps the k best beginnings by :math:`\sum_t \log p(y_t \mid y_{<t})` (1); ended ones compete by their sum
divided by :math:`n^{\alpha}`, n the number of symbols, so that short answers are not favoured. An input is done once k
beginnings have ended; k = 1 is greedy. A beam may lose sight of what greedy search finds, so that competes as well: a
wider search never finds less than k = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corollary.sequences.words import BEGIN, END

__all__ = ["beam_search"]


class _Best:
    """The best of what has ended."""

    def __init__(self) -> None:
        self.ended, self.rank, self.log_prob, self.codes = 0, -float("inf"), -float("inf"), list[int]()

    def enter(self, rank: float, log_prob: float, codes: list[int]) -> None:
        self.ended += 1
        if rank > self.rank:
            self.rank, self.log_prob, self.codes = rank, log_prob, codes


def beam_search(
    advance: Callable[[Tensor, Any], tuple[Tensor, Any]],
    select: Callable[[Any, Tensor], Any],
    state: Any,
    n: int,
    *,
    beam_size: int = 1,
    max_length: int = 100,
    length_penalty: float = 1.0,
    device: Any = None,
) -> tuple[list[list[int]], list[float]]:
    """Return the best sequence for each of n inputs, without its end symbol, and its log-probability.

    Parameters
    ----------
    advance : callable
        ``advance(symbols (m,), state)`` returns log-probabilities (m, v) of the next symbol, and the next state.
    select : callable
        ``select(state, rows)`` returns the state of these rows.
    state : object
        Before the first symbol, for n rows.
    n : int
        Number of inputs.
    beam_size, max_length, length_penalty
        k, the most symbols before the end symbol, and alpha of eq. 1.
    device : torch device
        Where symbols live.
    """
    settings = (advance, select, state, n, max_length, length_penalty, device)
    best = _search(beam_size, *settings)
    if beam_size > 1:
        best = [max(pair, key=lambda kept: kept.rank) for pair in zip(best, _search(1, *settings))]
    return [kept.codes for kept in best], [kept.log_prob for kept in best]


def _search(
    k: int, advance: Any, select: Any, state: Any, n: int, max_length: int, length_penalty: float, device: Any
) -> list[_Best]:
    best = [_Best() for _ in range(n)]
    state = select(state, torch.arange(n, device=device).repeat_interleave(k))
    scores = torch.full((n, k), -torch.inf, dtype=torch.float64, device=device)
    scores[:, 0] = 0.0  # all beams are equal at first: only one of them counts
    said = torch.full((n * k, 1), BEGIN, device=device)
    for length in range(1, max_length + 2):
        log_p, state = advance(said[:, -1], state)
        total = scores.reshape(-1, 1) + log_p.double()
        total[:, :END] = -torch.inf  # padding and the beginning are never said
        if length > max_length:
            total[:, END + 1 :] = -torch.inf  # nothing fits any more but the end
        v = total.shape[1]
        values, places = total.reshape(n, k * v).topk(min(2 * k, k * v), 1)
        rows, scores = _advance_beams(best, said, values, places, v, k, length**length_penalty)
        said = torch.cat([said[rows[0]], rows[1][:, None]], 1)
        state = select(state, rows[0])
        if not torch.isfinite(scores).any():
            break
    return best


def _advance_beams(
    best: list[_Best], said: Tensor, values: Tensor, places: Tensor, v: int, k: int, norm: float
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Enter ended sequences into ``best``; return which rows go on with which symbols, and their scores."""
    n = len(values)
    parents, symbols = places // v, places % v
    ended = symbols == END
    for i, j in (ended & values.isfinite())[:, :k].nonzero().tolist():
        value = float(values[i, j])
        best[i].enter(value / norm, value, said[i * k + int(parents[i, j]), 1:].tolist())
    going = values.masked_fill(ended, -torch.inf)
    scores, chosen = going.topk(min(k, going.shape[1]), 1)
    if scores.shape[1] < k:  # fewer symbols than beams
        chosen = torch.nn.functional.pad(chosen, (0, k - chosen.shape[1]))
        scores = torch.nn.functional.pad(scores, (0, k - scores.shape[1]), value=-torch.inf)
    scores[torch.tensor([kept.ended >= k for kept in best], device=said.device)] = -torch.inf
    first = torch.arange(n, device=said.device)[:, None] * k
    return ((first + parents.gather(1, chosen)).reshape(-1), symbols.gather(1, chosen).reshape(-1)), scores
