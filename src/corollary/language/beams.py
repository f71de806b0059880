r"""Beam search in a decoder: the most probable continuation among the k best beginnings.

A beginning of n new tokens :math:`y` after a prompt x is worth :math:`\sum_t \log p(y_t \mid x, y_{<t})`; the k best go on. One
that has ended, or has the length that was asked for, competes by

.. math:: \frac{1}{n^\alpha} \sum_{t=1}^{n} \log p(y_t \mid x, y_{<t}), \tag{1}

n with its end token. A prompt is done once k have ended and the best that goes on, ended now, would be worth less than
each of them. These are the rules of transformers' ``generate``, so that equal weights say the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from corollary.errors import value
from corollary.language.decoder import Decoder, State, penalised, seen_tokens

__all__ = ["beam_search"]


class _Ended:
    """The k best of what has ended after one prompt, by eq. 1."""

    def __init__(self, k: int) -> None:
        self.k, self.open = k, True
        self.found: list[tuple[float, list[int]]] = []

    def enter(self, worth: float, tokens: list[int]) -> None:
        if self.open:
            self.found = sorted([*self.found, (worth, tokens)], key=lambda pair: -pair[0])[: self.k]

    def close(self, best_open: float) -> None:
        """Stop once k have ended and nothing that goes on is better than the worst of them."""
        self.open = self.open and (len(self.found) < self.k or best_open > self.found[-1][0])


def beam_search(
    module: Decoder,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    beam_size: int,
    length_penalty: float = 1.0,
    repetition_penalty: float = 1.0,
    ends: frozenset[int] = frozenset(),
) -> list[list[int]]:
    """Return the best new tokens after each prompt, without the end token.

    Parameters
    ----------
    module : Decoder
        What predicts, in evaluation mode.
    prompts : sequence of sequences of int
        At least one token each; with the new tokens they must fit into the context.
    max_new_tokens : int
        How many tokens at most.
    beam_size, length_penalty : int, float
        k, and alpha of eq. 1; above 0 longer ones gain.
    repetition_penalty : float
        See :func:`~corollary.language.decoder.penalised`.
    ends : set of int
        The tokens that end a text.
    """
    longest = max(len(prompt) for prompt in prompts)
    if longest + max_new_tokens > module.max_length:
        must = f"in beam search, prompt and new tokens must fit into max_length={module.max_length}"
        do = f"Use max_new_tokens={max(1, module.max_length - longest)}, or beam_size=1, which can forget."
        raise value("GPT", must, f"{longest} + {max_new_tokens} tokens", do)
    k, n = beam_size, len(prompts)
    rows = [list(map(int, prompt)) for prompt in prompts for _ in range(k)]
    begun = [len(row) for row in rows]
    ended = [_Ended(k) for _ in range(n)]
    with torch.inference_mode():
        state = State(module, rows, longest + max_new_tokens)
        scores = torch.full((n, k), -torch.inf, device=state.logits.device)
        scores[:, 0] = 0.0  # all are equal at first: only one of them counts
        for length in range(1, max_new_tokens + 1):
            log_p = state.logits.float().log_softmax(-1)
            if repetition_penalty != 1.0:
                log_p = penalised(log_p, seen_tokens(rows, log_p), repetition_penalty)
            values, places = (
                (scores.reshape(-1, 1) + log_p).reshape(n, -1).topk(min(2 * k, k * log_p.shape[1]), 1)
            )
            going = _step(
                values,
                places,
                log_p.shape[1],
                rows,
                begun,
                ended,
                ends,
                length,
                max_new_tokens,
                length_penalty,
            )
            parents, tokens, scores = going
            for i, kept in enumerate(ended):
                kept.close(float(scores[i].max()) / length**length_penalty)
            if length == max_new_tokens or not any(kept.open for kept in ended):
                break
            rows = [[*rows[parent], token] for parent, token in zip(parents.tolist(), tokens.tolist())]
            state.keep(parents)
            state.read(rows)
    return [max(kept.found, key=lambda pair: pair[0])[1] for kept in ended]


def _step(
    values: Tensor, places: Tensor, v: int, rows: list[list[int]], begun: list[int], ended: list[_Ended],
    ends: frozenset[int], length: int, most: int, penalty: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Enter what has ended; return which rows go on with which tokens, and their scores."""
    n, k = len(ended), ended[0].k
    first = torch.arange(n, device=values.device)[:, None] * k
    parents, tokens = first + places // v, places % v
    stops = torch.isin(tokens, torch.tensor(sorted(ends), dtype=tokens.dtype, device=tokens.device))
    over = stops | (length == most)
    for i, j in (over[:, :k] & values[:, :k].isfinite()).nonzero().tolist():
        parent, token = int(parents[i, j]), int(tokens[i, j])
        new = [*rows[parent][begun[parent] :], *([] if bool(stops[i, j]) else [token])]
        ended[i].enter(float(values[i, j]) / length**penalty, new)
    scores, chosen = values.masked_fill(over, -torch.inf).topk(min(k, values.shape[1]), 1)
    if scores.shape[1] < k:  # fewer tokens than beams
        room = (0, k - scores.shape[1])
        scores = torch.nn.functional.pad(scores, room, value=-torch.inf)
        chosen = torch.nn.functional.pad(chosen, room)
    return parents.gather(1, chosen).reshape(-1), tokens.gather(1, chosen).reshape(-1), scores
