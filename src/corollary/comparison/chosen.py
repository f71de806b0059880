"""A model taken from a board: it reads data as they were given, and can be saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from corollary import __version__, data, errors
from corollary.comparison.densities import DensityOfData
from corollary.comparison.rivals import Reader
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
    """

    def __init__(self, model: Any, reader: Reader, dataset: Dataset) -> None:
        self.model = model
        self.reader = reader
        self.kind, self.name, self.columns = dataset.kind, dataset.name, dataset.feature_names

    def __repr__(self) -> str:
        return f"{self.reader.rival.id} fitted to {self.name!r}: {self.model!r}"

    def read(self, X: Any) -> Any:
        """Return data, given as to ``compare``, in the form that the model takes."""
        given = X if isinstance(X, Dataset) else data.load(X, self.kind)
        if (
            given.feature_names is None
            and hasattr(given.X, "shape")
            and given.X.shape[1:] == (len(self.columns or ()),)
        ):
            given = replace(
                given, feature_names=self.columns
            )  # an array has the columns in the order of the fit
        return self.reader(given).X

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.model, name)
        if name not in READS or self.kind == "ratings":
            return method
        return lambda X, *args, **options: method(self.read(X), *args, **options)

    def _skops(self) -> bytes:
        """Return a model of scikit-learn in the format of skops; files of ours never hold pickles."""
        name = type(self.model).__name__
        try:
            import skops.io
        except ImportError as error:
            do = 'Run `pip install "corollary[skops]"`, or save a system of the library: board.fit(NAME).save(DIRECTORY).'
            must = f"a model of scikit-learn ({name}) is saved with skops"
            raise ImportError(errors.wording("save", must, "no such package", do)) from error
        try:
            return bytes(skops.io.dumps(self.model))
        except Exception as error:  # whatever a class of the user's makes of it
            do = "Save it in your own way: board.best.model is the estimator."
            got = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            raise errors.value("save", f"{name} must be of a kind that skops writes", got, do) from error

    def save(self, directory: str | Path) -> Path:
        """Write the model with its reading as a run directory, which ``corollary predict`` takes.

        A density of given data becomes ``density.safetensors``, which ``DensityOfData.load`` reads. Models of scikit-learn
        become ``model.skops``, which is no pickle: ``skops.io.load`` reads it, and ``skops.io.get_untrusted_types`` says
        what is in it before.
        """
        directory = Path(directory)
        ours = hasattr(self.model, "save")
        if not ours:
            written = self._skops()
        directory.mkdir(parents=True, exist_ok=True)
        if isinstance(self.model, DensityOfData) and self.reader.rival.group != "scikit-learn":
            self.model.save(directory / "density.safetensors")
        elif ours:
            self.model.save(directory / "model.safetensors")
        else:
            (directory / "model.skops").write_bytes(written)
        rows = getattr(self.model, "history_", [])
        config = {"model": type(self.model).__name__, "version": __version__, "params": {}}
        config["data"] = {"name": self.name, "kind": self.kind, "given_kind": self.kind}
        (directory / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")
        (directory / "history.csv").write_text("step\n" + "".join(f"{i + 1}\n" for i in range(len(rows))))
        if self.reader.reading:
            (directory / "reading.json").write_text(json.dumps(self.reader.reading, default=_plain) + "\n")
        return directory


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
