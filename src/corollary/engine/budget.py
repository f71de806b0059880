r"""Batch size and number of epochs from the number of samples, by a budget of updates.

A network gets off the ground after a number of updates, not of epochs: fifteen epochs are thousands of updates on 60,000
samples and thirty on 120. So an estimator names the updates :math:`U` that its task takes, and the samples :math:`n` say
the rest. Batches are small where there are few samples, so that an epoch has about :math:`P` of them,

.. math:: B = 2^{\lfloor \log_2 (n / P) \rfloor} \text{ within } [B_{\min}, B_{\max}], \tag{1}

and there are as many epochs as the updates take, within bounds: never fewer than large data need, never so many that a
handful of samples is learned by heart,

.. math:: E = \lceil U / \lceil n / B \rceil \rceil \text{ within } [E_{\min}, E_{\max}]. \tag{2}

A batch size or a number of epochs that the user gives is kept; (2) then holds with that batch size.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Budget"]


class Budget(NamedTuple):
    """The rule that turns a number of samples into a batch size and epochs, eqs. 1 and 2.

    Parameters
    ----------
    updates : int
        Updates that the task takes, U.
    batch_sizes : (int, int), default=(8, 64)
        The least and the largest batch size.
    epochs : (int, int), default=(15, 100)
        The fewest and the most epochs.
    parts : int, default=12
        Batches that an epoch of few samples has, P.

    Examples
    --------
    >>> rule = Budget(600)
    >>> [(n, rule.batch_size(n), rule.passes(n)) for n in (100, 400, 2000, 60_000)]
    [(100, 8, 47), (400, 32, 47), (2000, 64, 19), (60000, 64, 15)]
    """

    updates: int
    batch_sizes: tuple[int, int] = (8, 64)
    epochs: tuple[int, int] = (15, 100)
    parts: int = 12

    def batch_size(self, n: int) -> int:
        """Return the samples of a batch, eq. 1."""
        wanted = 1 << (max(1, n // self.parts).bit_length() - 1)
        return _within(wanted, self.batch_sizes)

    def passes(self, n: int, batch_size: int | None = None) -> int:
        """Return the epochs, eq. 2."""
        size = min(n, batch_size or self.batch_size(n))
        return _within(-(-self.updates // -(-n // size)), self.epochs)


def _within(value: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(bounds[1], value))
