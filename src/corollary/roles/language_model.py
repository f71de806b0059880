"""Language models: perplexity, and generation by sampling or beam search."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.validation import check_count

__all__ = ["LanguageModel"]


class LanguageModel:
    """Continues text.

    Hooks: ``_token_log_probs(X, stride)``, one array of log-probabilities per text, and
    ``_generate(prompts, max_new_tokens, seed, **how)``, a list of continued prompts.
    """

    role = "language-model"
    reads_whole_files = True  # a text file is one text, not a document a line

    def perplexity(self, X: Any, *, stride: int | None = None) -> float:
        """Return exp of the mean negative log-probability (in nats) of a token, over all texts together.

        Parameters
        ----------
        X : list of str
            The texts.
        stride : int, optional
            Step between the windows over a long text. A smaller one gives each token more context, and costs more.
            Half the context by default.
        """
        texts = self._query(X)  # type: ignore[attr-defined]
        if stride is not None:
            check_count(self, "stride", stride)
        logs = np.concatenate(self._token_log_probs(texts, stride))  # type: ignore[attr-defined]
        return float(np.exp(-logs.mean(dtype=np.float64)))

    def generate(
        self,
        prompts: Any = "",
        *,
        max_new_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        beam_size: int = 1,
        length_penalty: float = 1.0,
    ) -> Any:
        """Continue prompts; with an integer ``random_state`` every call draws the same.

        Parameters
        ----------
        prompts : str, list of str, or list of sequences of int, default=""
            What to continue; prompts of different lengths go together.
        max_new_tokens : int, default=100
            The most tokens to add to each; a text may end sooner.
        temperature : float, default=1.0
            Above 1 more varied, below 1 more predictable; 0 always takes the most probable token.
        top_k : int, optional
            Draw only among the k most probable tokens.
        top_p : float, optional
            Draw only among the fewest most probable tokens that together have this probability.
        repetition_penalty : float, default=1.0
            Above 1, tokens that have occurred become less probable: positive logits are divided by it, negative ones
            multiplied.
        beam_size : int, default=1
            Above 1, beam search for the most probable text with so many candidates at a time; nothing is drawn.
        length_penalty : float, default=1.0
            In beam search, log-probabilities are divided by the length of the text to this power.

        Returns
        -------
        str or list
            The prompt with its continuation, or a list of those for a list of prompts.
        """
        check_is_fitted(self)
        check_count(self, "max_new_tokens", max_new_tokens)
        how = _checked_sampling(
            self,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            beam_size=beam_size,
            length_penalty=length_penalty,
        )
        listed = _listed_prompts(prompts, type(self).__name__)
        made = self._generate(listed, max_new_tokens, self._seed(), **how)  # type: ignore[attr-defined]
        return made[0] if isinstance(prompts, str) else made


def _listed_prompts(prompts: Any, owner: str) -> list[Any]:
    """Return the prompts as a list that is not empty."""
    if not isinstance(prompts, Iterable) or isinstance(prompts, bytes | dict):
        raise errors.kind(owner, "prompts must be a string or a list of prompts", type(prompts).__name__)
    listed = [prompts] if isinstance(prompts, str) else list(prompts)
    if not listed:
        raise errors.value(owner, "there must be at least one prompt", "an empty list")
    return listed


def _checked_sampling(
    model: Any,
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    repetition_penalty: float,
    beam_size: int,
    length_penalty: float,
) -> dict[str, Any]:
    """Return the settings of ``generate`` by name; raise unless each is in its range."""
    name = type(model).__name__
    if not isinstance(temperature, Real) or not temperature >= 0:
        raise errors.value(name, "temperature must be a number that is not negative", repr(temperature))
    if top_k is not None:
        check_count(model, "top_k", top_k)
    if top_p is not None and not (isinstance(top_p, Real) and 0 < top_p <= 1):
        raise errors.value(name, "top_p must lie in (0, 1]", repr(top_p))
    for key, number in (("repetition_penalty", repetition_penalty), ("length_penalty", length_penalty)):
        if not isinstance(number, Real) or not (number > 0 or key == "length_penalty"):
            raise errors.value(name, f"{key} must be a positive number", repr(number))
    check_count(model, "beam_size", beam_size)
    if beam_size > 1 and (top_k, top_p, temperature) not in ((None, None, 0), (None, None, 1)):
        got = f"temperature={temperature}, top_k={top_k}, top_p={top_p}"
        raise errors.value(name, "beam search draws nothing", got, "Leave them out, or use beam_size=1.")
    return {
        "temperature": float(temperature),
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": float(repetition_penalty),
        "beam_size": beam_size,
        "length_penalty": float(length_penalty),
    }
