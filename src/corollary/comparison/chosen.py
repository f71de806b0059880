"""A model taken from a board: it reads data as they were given, and can be saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corollary import __version__, data, errors, io
from corollary.comparison import foreign
from corollary.comparison.densities import DensityOfData
from corollary.comparison.rivals import Reader, Rival
from corollary.data.columns import plain_columns
from corollary.data.dataset import Dataset

__all__ = ["Chosen"]

READS = ("predict", "predict_proba", "decision_function", "transform", "score_samples", "perplexity")


class Chosen:
    """A fitted model with what it knows about reading data.

    Parameters
    ----------
    model : fitted estimator
        What was fitted.
    reader : Reader
        How it reads data.
    dataset : Dataset
        What it was fitted to.
    task : str
        What it was chosen for.
    """

    def __init__(self, model: Any, reader: Reader, dataset: Dataset, task: str = "") -> None:
        self.model = model
        self.reader = reader
        self.task = task
        self.kind, self.name, self.columns = dataset.kind, dataset.name, dataset.feature_names

    def __repr__(self) -> str:
        return f"{self.reader.rival.id} fitted to {self.name!r}: {self.model!r}"

    def read(self, X: Any) -> Any:
        """Return data, given as to ``compare``, in the form that the model takes."""
        given = X if isinstance(X, Dataset) else data.load(X, self.kind, reading=self.reader.reading)
        if (
            given.feature_names is None
            and hasattr(given.X, "shape")
            and given.X.shape[1:] == (len(self.columns or ()),)
        ):
            # an array has the columns in the order of the fit
            given = replace(given, feature_names=self.columns)
        return self.reader(given).X

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "model":  # of an object that is being copied
            raise AttributeError(name)
        method = getattr(self.model, name)
        if name not in READS or self.kind == "ratings":
            return method
        return lambda X, *args, **options: method(self.read(X), *args, **options)

    def save(self, directory: str | Path) -> Path:
        """Write the model with its reading as a run directory, which ``corollary predict`` and :meth:`load` take.

        A density of given data becomes ``density.safetensors``, which ``DensityOfData.load`` reads. Models of scikit-learn
        become ``model.skops``, which is no pickle: :mod:`corollary.comparison.foreign` says what such a file may hold.
        """
        directory, name, write = Path(directory), *self._file()
        directory.mkdir(parents=True, exist_ok=True)
        write(directory / name)
        rows = getattr(self.model, "history_", [])
        config = {"model": type(self.model).__name__, "version": __version__, "params": {}}
        config["data"] = {"name": self.name, "kind": self.kind, "given_kind": self.kind}
        config["chosen"] = {
            "system": self.reader.rival.id,
            "input": self.reader.rival.input,
            "sparse": self.reader.sparse,
            "task": self.task,
            "columns": None if self.columns is None else [str(c) for c in self.columns],
        }
        (directory / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")
        (directory / "history.csv").write_text("step\n" + "".join(f"{i + 1}\n" for i in range(len(rows))))
        if self.reader.reading:
            (directory / "reading.json").write_text(json.dumps(self.reader.reading, default=_plain) + "\n")
        return directory

    def _file(self) -> tuple[str, Any]:
        """Return the name of the model's file, and what writes it."""
        density = isinstance(self.model, DensityOfData)
        inner = self.model.model if density else self.model
        if inner is None or hasattr(inner, "save"):
            return "density.safetensors" if density else "model.safetensors", self.model.save
        written = foreign.dump(self.model)  # before there is a directory
        return "model.skops", lambda path: path.write_bytes(written)

    @classmethod
    def load(cls, directory: str | Path, trusted: Sequence[str] = ()) -> Chosen:
        """Return what :meth:`save` wrote; nothing in the files is executed.

        Parameters
        ----------
        directory : path
            A run directory.
        trusted : sequence of str
            Types that a model of scikit-learn's may hold beyond those known to do no harm.
        """
        directory = Path(directory)
        config, reading = (_json(directory / name) for name in ("config.json", "reading.json"))
        facts, about = config.get("chosen"), config.get("data")
        if not isinstance(facts, dict) or not isinstance(about, dict):
            do = (
                "board.best.save(DIRECTORY) writes one; corollary.load reads model.safetensors of other runs."
            )
            raise errors.value("load", f"{str(directory)!r} must hold a model of a board", "none", do)
        if "columns" in reading:
            reading["columns"] = plain_columns(reading["columns"])
        if (directory / "model.skops").exists():
            model = foreign.load(directory / "model.skops", trusted)
        elif (directory / "density.safetensors").exists():
            model = DensityOfData.load(directory / "density.safetensors")
        else:
            model = io.load(directory / "model.safetensors")
        name, input = str(facts.get("system")), facts.get("input")
        reader = Reader(Rival(name, name, "yours", input, _not_again), reading, bool(facts.get("sparse")))
        extra = {key: values for key, values in _json(directory / "labels.json").items()}
        like = Dataset(None, None, about["kind"], str(about["name"]), facts.get("columns"), extra=extra)
        return cls(model, reader, like, str(facts.get("task") or ""))


def _not_again(data: Dataset, seed: int) -> Any:
    raise errors.value("fit", "a model from a file is fitted already", "one to fit again", "Compare again.")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
