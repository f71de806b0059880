"""``corollary predict``, ``sample`` and ``runs``: what can be done with a run directory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.catalog import entries
from corollary.cli.console import note
from corollary.cli.fitting import parse_columns
from corollary.data.columns import LEFT_OUT, plain_columns, table_of
from corollary.data.dataset import Dataset
from corollary.engine.directory import busy, read_object
from corollary.engine.loop import STOPS

__all__ = ["export_to", "list_runs", "open_run", "predict_with", "read_for", "sample_from", "write_columns"]


def open_run(run: Path) -> tuple[Any, dict[str, Any]]:
    """Return the model of a run directory or file, and the run's configuration."""
    from corollary import io

    path = run / "model.safetensors" if run.is_dir() else run
    if _of_a_board(run):
        name = _beside(run, "config.json").get("model")
        do = "`corollary predict` takes it, and so does corollary.comparison.Chosen.load in Python."
        raise errors.value("run", "this command takes a model of the library", f"{name} in {str(run)!r}", do)
    if not path.exists() and (run / "checkpoints").is_dir():
        do = "The `corollary fit` command that began it, with --resume, goes on."
        raise errors.value("run", f"{str(run)!r} must hold a model", "an unfinished fit", do)
    if not path.exists():
        others = [str(p) for p in run.parent.glob("*") if _is_run(p)] if run.parent.exists() else []
        near = errors.closest(str(run), others)
        raise FileNotFoundError(
            f"run: no model in {str(run)!r}. Closest: {near or 'none'}. See `corollary runs`."
        )
    return io.load(path), _beside(run, "config.json")


def _is_run(path: Path) -> bool:
    """Whether a path is one of a run directory, whole or begun, or a model file."""
    return path.suffix == ".safetensors" or any(
        (path / name).exists() for name in ("config.json", "checkpoints")
    )


def _of_a_board(run: Path) -> bool:
    """Whether a run holds what only a board writes: a model of scikit-learn's, or a density of data as given."""
    return any((run / name).exists() for name in ("model.skops", "density.safetensors"))


def _beside(run: Path, name: str) -> dict[str, Any]:
    """Return the object in a JSON file of the run directory, in which ``run`` may be the model file."""
    return read_object((run if run.is_dir() else run.parent) / name)


def export_to(run: Path, out: Path) -> str:
    """Write the model of a run as an ONNX graph, and return a line that says what it takes and gives."""
    model, _ = open_run(run)
    if not hasattr(model, "to_onnx"):
        must = "only models that are networks have an ONNX graph"
        raise errors.value("export", must, type(model).__name__, "Use the model file with corollary.load.")
    import onnx

    graph = onnx.load(model.to_onnx(out), load_external_data=False).graph
    takes, gives = (", ".join(slot.name for slot in slots) for slots in (graph.input, graph.output))
    return f"{type(model).__name__} in {out}: {takes} -> {gives}"


def read_for(
    model: Any,
    config: dict[str, Any],
    run: Path,
    source: str,
    kind: str | None,
    target: str | None,
    columns: list[str] | None = None,
) -> tuple[Dataset, Dataset, dict[str, Any]]:
    """Return data as they were read, as a fitted model takes them, and how the data of its fit were read."""
    from corollary import data
    from corollary.data.convert import as_input

    kind = kind or config.get("data", {}).get("kind" if model.input == "ratings" else "given_kind")
    reading = {**getattr(model, "reading_", {}), **_beside(run, "reading.json")}
    if hasattr(model, "columns_"):
        reading["columns"] = model.columns_
    elif "columns" in reading:
        reading["columns"] = plain_columns(reading["columns"])
    _compare_told(parse_columns(columns or []), reading.get("columns", ()))
    given = data.load(source, kind, target, reading=reading)
    sparse = bool(getattr(model, "_checks", {}).get("accept_sparse", False))
    return given, as_input(given, model.input, type(model).__name__, reading, model.also, sparse), reading


def predict_with(
    run: Path,
    source: str,
    out: Path,
    kind: str | None,
    target: str | None,
    columns: list[str] | None = None,
    trusted: list[str] | None = None,
) -> str:
    """Predict with a fitted model, write the result, and return a line to print."""
    _check_suffix(out)
    if _of_a_board(run):
        model, given, dataset, reading, table = _from_board(run, source, kind, target, columns, trusted or [])
    else:
        model, config = open_run(run)
        given, dataset, reading = read_for(model, config, run, source, kind, target, columns)
        table = _table_of(model)
    if getattr(model, "role", "") == "segmenter" and out.suffix in ("", ".png"):
        return _write_pictures(model, given, dataset, out)
    if table is None:
        raise errors.value("predict", "the model must predict, transform or recall", type(model).__name__)
    names, columns, array = table(model, dataset)
    names, columns = _marked(names, columns, dataset if dataset.kind == "sequence" else given, reading)
    write_columns(out, names, columns, array)
    return f"{len(columns[0])} rows of {', '.join(names[:4])}{' …' if len(names) > 4 else ''} in {out}"


def _from_board(
    run: Path, source: str, kind: str | None, target: str | None, columns: Any, trusted: list[str]
) -> tuple[Any, Dataset, Dataset, dict[str, Any], Any]:
    """Return a model that a board saved, the data as read and as it takes them, the reading, and what makes its table."""
    from corollary import data
    from corollary.comparison.chosen import Chosen

    chosen = Chosen.load(run, trusted)
    reading = chosen.reader.reading
    _compare_told(parse_columns(columns or []), reading.get("columns", ()))
    given = data.load(source, kind or chosen.kind, target, reading=reading)
    return chosen.model, given, chosen.reader(given), reading, _table_of(chosen.model, chosen.task)


def _table_of(model: Any, task: str = "") -> Any:
    """Return the function that makes the columns to write: by the model's role, its task on a board, or its methods."""
    from corollary.roletable import ROLES, TASKS, entries_of

    played = [*entries_of(type(model)), *([ROLES[TASKS[task].role]] if task in TASKS else [])]
    found = next((role.columns for role in played if role.columns is not None), None)
    able = {"score_samples": density_columns, "transform": code_columns}
    return found or next((table for method, table in able.items() if hasattr(model, method)), None)


def _write_pictures(model: Any, given: Dataset, dataset: Dataset, out: Path) -> str:
    """Write the masks of images as pictures, into a folder under the images' names, or one into a file."""
    from corollary.data.masks import write_masks

    names = given.extra.get("files") or [f"{i:05d}" for i in range(len(dataset))]
    if out.suffix == ".png" and len(names) > 1:
        do = "Use --out FOLDER, for one picture per image, or .npy for an array."
        raise errors.value("--out", "a .png file holds one mask", f"{len(names)} images", do)
    folder, names = (out.parent, [out.name]) if out.suffix == ".png" else (out, names)
    written = write_masks(folder, names, np.asarray(model.predict(dataset.X)), model.classes_)
    return f"{len(written)} masks in {out}"


def _compare_told(told: dict[str, str], learned: Any) -> None:
    """Warn of columns that the user declares otherwise than in the fit: they are read as in the fit."""
    kinds = {column["name"]: column["kind"] for column in learned}
    for name, kind in told.items():
        if name not in kinds:
            raise errors.unknown("predict", "column of the fit", name, kinds)
        if kind != kinds[name] and not (kind in LEFT_OUT and kinds[name] in LEFT_OUT):
            note(
                f"predict: column {name!r} is read as {kinds[name]}, as in the fit; "
                f"--column {name}={kind} has no effect here. Fit again with it."
            )


def _marked(names: list[str], columns: list[Any], given: Any, reading: Any) -> tuple[list[str], list[Any]]:
    """Put what names the rows first, files, nodes or the ids of the data, so that predictions can be joined with them."""
    marks = {"file": given.extra["files"]} if "files" in given.extra else {}
    marks |= {"series": given.extra["names"]} if given.kind == "sequence" and "names" in given.extra else {}
    if given.kind == "graph" and names[0] != "source":
        nodes = given.extra.get("nodes", getattr(given.X, "nodes", None))
        marks |= {"node": np.arange(len(given)) if nodes is None else nodes}
    frame = given.X if hasattr(given.X, "iloc") else None
    for column in reading.get("columns", ()):
        if column["kind"] == "id" and frame is not None and column["name"] in frame.columns:
            marks[column["name"]] = frame[column["name"]]
    rows = np.asarray(columns[0]) if names[0] == "sample" else np.arange(len(columns[0]))
    able = {
        key: np.asarray(mark) for key, mark in marks.items() if key not in names and len(mark) == len(given)
    }
    if not able or (names[0] != "sample" and len(rows) != len(given)):
        return names, columns
    return [*able, *names], [*(mark[rows] for mark in able.values()), *columns]


# --- what each role writes: names, columns, and an array where the result is no table --------------------

Columns = tuple[list[str], list[Any], np.ndarray | None]


def class_columns(model: Any, dataset: Dataset) -> Columns:
    """Return the predicted class and, where there are any, the probabilities of all of them."""
    several = getattr(model, "multilabel_", False)
    said = (
        ["; ".join(map(str, labels)) for labels in model.predict_labels(dataset.X)]
        if several
        else model.predict(dataset.X)
    )
    names, columns = ["prediction"], [said]
    if hasattr(model, "predict_proba"):
        names += [f"p({label})" for label in model.classes_]
        columns += [*np.asarray(model.predict_proba(dataset.X)).T]
    return names, columns, None


def text_columns(model: Any, dataset: Dataset) -> Columns:
    """Return how each text goes on."""
    return ["continuation"], [model.generate(dataset.X, max_new_tokens=80)], None


def part_columns(model: Any, dataset: Dataset) -> Columns:
    """Return one row for every part of every sample."""
    found = model.predict(dataset.X)
    counts = [len(part) for part in found]
    sample, part = np.repeat(np.arange(len(found)), counts), np.concatenate([np.arange(n) for n in counts])
    return ["sample", "part", "prediction"], [sample, part, np.concatenate(found)], None


def _from_method(method: str, heading: str) -> Callable[[Any, Dataset], Columns]:
    """Return a function that calls one method on the data and makes columns of the result."""

    def table(model: Any, dataset: Dataset) -> Columns:
        from corollary.comparison.measures import labels_for

        result = np.asarray(getattr(model, method)(dataset.X, *labels_for(model, dataset)))
        if not result.size:
            must = f"the model must have found something to {method} with"
            raise errors.value(
                "predict", must, "no components", "Fit it to more data, or with other settings."
            )
        flat = result.reshape(len(result), -1)
        names = [heading] if flat.shape[1] == 1 else [f"{heading}{i}" for i in range(flat.shape[1])]
        return names, [*flat.T], result if result.ndim > 2 else None

    return table


recalled_columns = _from_method("recall", "unit")
predicted_columns = _from_method("predict", "prediction")
code_columns = _from_method("transform", "code")
density_columns = _from_method("score_samples", "log_prob")


def forecast_columns(model: Any, dataset: Dataset) -> Columns:
    """Return a row for every step ahead of every series: its date where there are dates, the forecast, and an interval."""
    from corollary.data.series import following

    said = np.asarray(model.predict(dataset.X))
    n, steps, d = said.shape
    series, ahead = np.repeat(np.arange(n), steps), np.tile(np.arange(1, steps + 1), n)
    names, columns = ["sample", "step"], [series, ahead]
    if "names" in dataset.extra:
        names[0], columns[0] = "series", np.asarray(dataset.extra["names"])[series]
    if "dates" in dataset.extra:
        after = [following(dates[-1], dataset.extra["frequency"], steps) for dates in dataset.extra["dates"]]
        names[1], columns[1] = "date", np.concatenate(after)
    features = [str(name) for name in dataset.feature_names or ()]
    features = (
        features if len(features) == d else ["prediction" if d == 1 else f"prediction{j}" for j in range(d)]
    )
    names, columns = [*names, *features], [*columns, *said.reshape(-1, d).T]
    if hasattr(model, "predict_interval"):
        for word, ends in zip(("low", "high"), model.predict_interval(dataset.X, coverage=0.9)):
            names += [f"{name} {word} 90%" for name in features]
            columns += [*np.asarray(ends).reshape(-1, d).T]
    return names, columns, None


def link_columns(model: Any, dataset: Dataset) -> Columns:
    """Return the most probable edges that the graph of the fit does not have."""
    pairs, chances = model.missing_links()
    return ["source", "target", "probability"], [*pairs.T, chances], None


def completed_columns(model: Any, dataset: Dataset) -> Columns:
    """Return the value of every (user, item) pair of a ratings file, matched by the names of the fit."""
    coo = dataset.X.tocoo()
    shown = [
        np.asarray(dataset.extra[key])[places] if key in dataset.extra else places
        for key, places in (("users", coo.row), ("items", coo.col))
    ]
    named = hasattr(model, "users_") or hasattr(model, "items_")
    asked = shown if named and "users" in dataset.extra else (coo.row, coo.col)
    return ["user", "item", "prediction"], [*shown, model.predict([*zip(*asked)])], None


def _class_named(model: Any, label: str) -> Any:
    """Return the class of a conditional model that is written like a label."""
    name = type(model).__name__
    if not getattr(model, "conditional", False):
        do = "Fit with --set conditional=true and --target."
        raise errors.value(name, "only a conditional model takes a label", repr(label), do)
    known = {str(one): one for one in model.classes_}
    if label not in known:
        raise errors.unknown(name, "label", label, known)
    return known[label]


def sample_from(run: Path, n: int, out: Path, seed: int | None, label: str | None = None) -> str:
    """Draw from a generator or a language model, write the draws, and return a line to print."""
    from corollary.roletable import entries_of

    _check_suffix(out)
    if (run / "density.safetensors").exists():
        from corollary.comparison.densities import DensityOfData

        model, config = DensityOfData.load(run / "density.safetensors"), _beside(run, "config.json")
        draw: Any = DensityOfData.sample
    else:
        model, config = open_run(run)
        draw = next((role.draw for role in entries_of(type(model)) if role.draw is not None), None)
    for part in (model, getattr(model, "model_", None)):
        if seed is not None and part is not None and "random_state" in part.get_params():
            part.set_params(random_state=seed)
    if draw is None:
        able = [entry.name for entry in entries(role="generator")]
        raise errors.value(
            "sample", f"the model must be a generator ({', '.join(able)})", type(model).__name__
        )
    labels = None
    if label is not None or getattr(model, "conditional", False):
        labels = np.resize(model.classes_ if label is None else [_class_named(model, label)], n)
    drawn = draw(model, n) if labels is None else model.sample(n, labels)
    if isinstance(drawn, list):
        write_columns(out, ["text"], [drawn])
        return f"{n} texts in {out}"
    drawn = np.asarray(drawn)
    shape = config.get("data", {}).get("image_shape") or (drawn.shape[1:] if drawn.ndim > 2 else None)
    if out.suffix == ".png":
        if not shape:
            raise errors.value(
                "sample", "a .png file needs a model of images", type(model).__name__, "Use .csv."
            )
        from corollary import plot

        images = np.clip(drawn, 0, 1).reshape(-1, *shape)
        kind = config.get("data", {}).get("kind", "image" if drawn.ndim == 4 else "table")
        plot.save(plot.image_grid(images, inverted=kind != "image"), out)
    elif out.suffix not in (".npy", ".npz") and not shape and hasattr(model, "columns_"):
        table = table_of(drawn, model.columns_)
        names, columns = [*table.columns], [_cells(table[name]) for name in table.columns]
        if labels is not None:
            names, columns = [*names, config.get("data", {}).get("target") or "label"], [*columns, labels]
        write_columns(out, names, columns)
    else:
        flat = drawn.reshape(n, -1)
        write_columns(
            out,
            [f"x{i}" for i in range(flat.shape[1])],
            [*flat.T],
            drawn.reshape(n, *shape) if shape else drawn,
        )
    in_turn = (
        f", of {', '.join(map(str, model.classes_[:n]))} in turn"
        if labels is not None and label is None
        else ""
    )
    return f"{n} samples in {out}{in_turn}"


def _cells(column: Any) -> np.ndarray:
    """Return the cells of a column for a file: dates as text, gaps as nothing."""
    dated = column.dtype.kind == "M"
    cells = column.astype(str) if dated else column.astype(object)
    return cells.where(column.notna(), None).to_numpy(dtype=object)


def harmless(cell: Any) -> Any:
    """Return text that a spreadsheet would run as a formula with an apostrophe before it; all else unchanged.

    >>> harmless("=1+1"), harmless("-3"), harmless("word"), harmless(-3)
    ("'=1+1", '-3', 'word', -3)
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def write_columns(path: Path, names: list[str], columns: list[Any], array: Any = None) -> None:
    """Write columns as .csv, .json or .txt, or as an array in .npy or .npz."""
    if path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(map(harmless, names))
            writer.writerows([harmless(cell) for cell in row] for row in zip(*columns))
    elif path.suffix == ".json":
        plain = [np.asarray(column).tolist() for column in columns]
        path.write_text(json.dumps([dict(zip(names, row)) for row in zip(*plain)], indent=1) + "\n")
    elif path.suffix == ".txt":
        path.write_text("\n".join(" ".join(map(str, row)) for row in zip(*columns)) + "\n", encoding="utf-8")
    elif path.suffix == ".npy":
        np.save(path, np.column_stack(columns) if array is None else array)
    elif path.suffix == ".npz":
        np.savez(path, **{"X": array} if array is not None else dict(zip(names, columns)))
    else:
        _check_suffix(path, ("", ".png"))


def _check_suffix(path: Path, no: tuple[str, ...] = ()) -> None:
    """Raise, before anything is computed, if results cannot be written into such a file."""
    if path.suffix not in (".csv", ".json", ".npy", ".npz", ".txt", ".png", "") or path.suffix in (*no,):
        do = "A model of masks also writes .png, or pictures into a folder."
        must = "the file must end in .csv, .json, .npy, .npz or .txt"
        raise errors.value("--out", must, repr(path.suffix), do)


def list_runs(directory: Path) -> list[dict[str, Any]]:
    """Return a row for every run below a directory."""
    if not directory.is_dir():
        raise FileNotFoundError(
            f"runs: no directory {str(directory)!r}. `corollary fit … --run DIR` makes one."
        )
    found = {path.parent for path in directory.rglob("config.json")}
    found |= {path.parent for path in directory.rglob("checkpoints") if path.is_dir()}
    return [_run_row(folder) for folder in sorted(found)]


def _run_row(folder: Path) -> dict[str, Any]:
    """Return what is known of one run; a damaged file costs its own part of the row."""
    config, history = _beside(folder, "config.json"), _history(folder / "history.csv")
    last = history[-1] if history else {}
    shown = {key: value for key, value in last.items() if key not in ("step", "seconds") and value}
    return {
        "run": str(folder),
        "model": str(config.get("model", "?")),
        "data": (config.get("data") or {}).get("name", ""),
        "steps": len(history),
        "seconds": round(float(last.get("seconds") or 0.0), 2),
        "last": ", ".join(f"{key} {float(value):.4g}" for key, value in shown.items()),
        "state": _run_state(folder, config),
    }


def _run_state(folder: Path, config: dict[str, Any]) -> str:
    """Return whether a run is whole, at work, stopped, unfinished or damaged."""
    if not config:
        return "damaged" if (folder / "config.json").exists() else "unfinished"
    if busy(folder):
        return "running"
    if config.get("stopped", "done") is None:
        return "unfinished"
    if config.get("stopped") in STOPS:
        return f"stopped by {config['stopped']}"
    return "whole" if (folder / "report.html").exists() else "no report"


def _history(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            [float(value) for value in row.values() if value]
    except (OSError, ValueError, TypeError, csv.Error):
        return []
    return rows
