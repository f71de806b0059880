r"""Vocabularies: texts as sequences of word or character numbers, and back.

Four numbers are kept: 0 pads, 1 begins and 2 ends a sequence, 3 stands for what ``fit`` has not seen.

>>> units = vocabulary(["the sea, the sun"], "word")
>>> encode(["the moon"], units, "word")
[array([4, 3])]
>>> decode([4, 6, 2, 4], units, "word")
'the sea'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["BEGIN", "END", "PAD", "SPECIAL", "UNKNOWN", "decode", "encode", "join", "split", "vocabulary"]

PAD, BEGIN, END, UNKNOWN = range(4)
SPECIAL = 4
WORD = re.compile(r"\w+|[^\w\s]")
TIGHT = re.compile(r"\s+(?=[.,;:!?)\]}'’])|(?<=[¿¡(\[{])\s+")  # the space before or after these marks


def split(text: str, unit: str) -> list[str]:
    """Return words and punctuation marks, in lower case ("word") or as written ("cased word"), or characters."""
    if unit == "character":
        return list(text)
    return WORD.findall(text.lower() if unit == "word" else text)


def vocabulary(texts: Iterable[str], unit: str, max_size: int | None = None, min_count: int = 1) -> list[str]:
    """Return the units that occur at least ``min_count`` times, the most frequent first."""
    counts = Counter(part for text in texts for part in split(text, unit))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [part for part, count in ranked if count >= min_count][:max_size]


def encode(texts: Sequence[str], units: Sequence[str], unit: str) -> list[np.ndarray]:
    """Return each text as numbers."""
    number = {part: SPECIAL + i for i, part in enumerate(units)}
    return [
        np.array([number.get(part, UNKNOWN) for part in split(text, unit)], dtype=np.int64) for text in texts
    ]


def decode(codes: Iterable[int], units: Sequence[str], unit: str) -> str:
    """Return the text of numbers, up to the end symbol; the unknown is a question mark in diamonds."""
    parts: list[str] = []
    for code in codes:
        if code == END:
            break
        if code >= SPECIAL:
            parts.append(units[code - SPECIAL])
        elif code == UNKNOWN:
            parts.append("\N{REPLACEMENT CHARACTER}")
    return join(parts, unit)


def join(parts: Iterable[str], unit: str) -> str:
    """Return the text of words and marks, or of characters."""
    return "".join(parts) if unit == "character" else TIGHT.sub("", " ".join(parts))
