r"""BLEU: the n-gram overlap of translations with references.

With :math:`p_n` the share of the n-grams said that stand in a reference too, each counted at most as often as there,
c the number of words said and r that of the references nearest in length,

.. math:: \mathrm{BLEU} = \min(1, e^{1 - r/c}) \exp\Bigl(\tfrac14 \textstyle\sum_{n=1}^{4} \ln p_n\Bigr) \tag{1}

over a whole corpus: counts are summed before they are divided.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from corollary.errors import value

__all__ = ["bleu"]


def bleu(said: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], n: int = 4) -> float:
    """Return equation 1, from 0 to 1, of sentences as lists of words.

    Parameters
    ----------
    said : sequence of lists of str
        The translations.
    references : sequence of sequences of lists of str
        For each, one or more good ones.
    n : int, default=4
        The longest n-grams counted.

    References
    ----------
    .. [1] K. Papineni, S. Roukos, T. Ward, W.-J. Zhu (2002). BLEU: a method for automatic evaluation of machine
       translation. ACL.

    Examples
    --------
    >>> round(bleu([["the", "cat", "sat", "on", "it"]], [[["the", "cat", "sat", "on", "the", "mat"]]]), 3)
    0.548
    """
    if len(said) != len(references):
        must = f"there must be references for each of {len(said)} sentences"
        raise value("bleu", must, len(references), "Pass a list of them for every sentence.")
    right, total = [0] * n, [0] * n
    c = r = 0
    for words, good in zip(said, references):
        c += len(words)
        r += min((abs(len(other) - len(words)), len(other)) for other in good)[1]
        for i in range(n):
            grams = _grams(words, i + 1)
            most: Counter[tuple[str, ...]] = Counter()
            for other in good:
                most |= _grams(other, i + 1)
            right[i] += (grams & most).total()
            total[i] += grams.total()
    if min(right) == 0:
        return 0.0
    precision = sum(math.log(a / b) for a, b in zip(right, total)) / n
    return math.exp(min(0.0, 1 - r / c) + precision)


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(n))))
