"""``corollary fit``: from a name and a source to a run directory."""

from __future__ import annotations

import ast
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.catalog import Entry
from corollary.cli.console import note, quoted
from corollary.data.detect import KINDS_OF_COLUMN
from corollary.data.tables import guess_target
from corollary.engine.clock import now
from corollary.engine.interrupts import OutOfTime, time_box
from corollary.engine.loop import STOPS
from corollary.io import write_text
from corollary.roles import roles

__all__ = ["fit_system", "parse_columns", "parse_settings"]

WORDS = {"true": True, "false": False, "null": None}  # as shells and JSON write them


def parse_settings(settings: list[str], known: dict[str, Any], owner: str) -> dict[str, Any]:
    """Return ``key=value`` words as parameters; values are Python literals, true, false or null, or else strings.

    >>> parse_settings(["latent=8", "training.epochs=3"], {"latent": 2, "training": None}, "VAE")
    {'latent': 8, 'training__epochs': 3}
    """
    params = {}
    for word in settings:
        key, sign, value = word.partition("=")
        if not sign:
            raise errors.value(
                owner, "--set takes key=value", repr(word), "For instance --set training.epochs=20."
            )
        key = key.strip().replace(".", "__")
        _check_name(key, known, owner)
        try:
            params[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            params[key] = WORDS.get(value, value)
    return params


def _check_name(key: str, known: dict[str, Any], owner: str) -> None:
    from corollary.engine.training import Training

    head, _, rest = key.partition("__")
    if head not in known:
        do = f"See `corollary show {owner}`."
        if "training" in known and head in Training().get_params():
            do = f"How to descend is set with a prefix: --set training.{head}=VALUE."
        raise errors.unknown(owner, "parameter", head, [k for k in known if "__" not in k], do)
    if head == "training" and rest:
        if rest not in Training().get_params():
            raise errors.unknown("Training", "parameter", rest, Training().get_params())


def fit_system(
    entry: Entry,
    source: str,
    *,
    kind: str | None,
    target: str | None,
    settings: list[str],
    directory: Path | None,
    resume: bool,
    seed: int,
    test: float,
    run_options: dict[str, Any],
    columns: list[str] | None = None,
) -> dict[str, Any]:
    """Fit, measure, and leave everything in the run directory; return what to print."""
    from corollary import data
    from corollary.data.convert import as_input
    from corollary.data.texts import one_text
    from corollary.engine.run import Run
    from corollary.reporting import report, steps_done

    if entry.kind != "estimator":
        do = f"Use `corollary {'compute' if entry.kind == 'function' else 'show'} {entry.id}`."
        raise errors.value(entry.name, "fit takes an estimator", entry.kind, do)
    model = entry.create()
    params = parse_settings(settings, model.get_params(), entry.name)
    if "random_state" in model.get_params():
        params.setdefault("random_state", seed)
    model.set_params(**params)
    # a meta-estimator takes what its members take
    entry = replace(entry, input=model.input, also=tuple(model.also))
    directory = directory or Path("runs") / f"{entry.id}-{time.strftime('%Y%m%d-%H%M%S')}"
    run, begin = Run(directory, resume=resume, **run_options), now()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = data.load(source, kind, target, columns=parse_columns(columns or []))
        _check_target(entry, dataset, source)
        if getattr(model, "reads_whole_files", False):
            dataset = one_text(dataset)
        if "forecaster" in entry.roles:
            kept, held = _in_time(as_input(dataset, entry.input, entry.name), test)
        else:
            # whole series are held out, not rows of theirs
            if (dataset.kind, entry.input) == ("table", "sequence"):
                dataset = as_input(dataset, entry.input, entry.name)
            kept, held = _as_inputs(*_divide(dataset, test, seed, entry), entry)
        request = {"source": source, "kind": kind, "target": target, "seed": seed, "test": test}
        run.notes["data"] = _described(kept, request)
        with run:
            _fit(model, kept)
    kinds = [w for w in caught if issubclass(w.category, errors.CorollaryWarning)]
    for text in dict.fromkeys(str(w.message) for w in kinds if w.category is not errors.FitStopped):
        note(text)
    if hasattr(model, "columns_"):
        kept, held = (part and _as_fitted(part, model) for part in (kept, held))
    _remember(directory, kept)
    limit = 0.0 if model.stopped_ in ("Ctrl-C", "SIGTERM") else run.time_limit  # who interrupts wants an end
    measured = _measured(model, held, entry, _time_left(limit, begin))
    result = {"model": repr(model), "data": repr(dataset), **measured}
    train, left = None if held is None else kept, _time_left(limit, begin)
    try:
        page = report(
            model, held or kept, directory / "report.html", train=train, time_limit=left, **measured
        )
        written = {"report": str(page)}
    except OSError as error:  # a full disk after the fit
        if not (directory / "model.safetensors").is_file():
            raise
        written = {}
        note(f"No report could be written ({error.strerror}). The model is whole, in {directory}.")
    seconds = model.history_[-1]["seconds"] if model.history_ else 0.0
    whole = steps_done(model)
    result |= {"steps": int(whole) if whole.isdigit() else whole, "seconds": seconds}
    result |= {"run": str(directory), **written}
    if model.stopped_ not in STOPS:
        return result
    note(f"Stopped by {model.stopped_}. The same command with --run {directory} --resume goes on.")
    return {**result, "stopped": model.stopped_}


def _fit(model: Any, kept: Any) -> None:
    try:
        if (kept.kind == "table" and not hasattr(kept.X, "tocsr")) or kept.kind == model.input == "ratings":
            model.fit(kept)  # learns how to read the columns, or the names
        else:
            model.fit(kept.X, kept.y) if kept.y is not None else model.fit(kept.X)
    except errors.OtherFit as error:
        raise errors.OtherFit(str(error).replace("resume=True", "--resume")) from None


def _as_fitted(dataset: Any, model: Any) -> Any:
    """Return a table as numbers, as the fit read it, with its frame in ``extra["given"]`` for the report."""
    from corollary.data.convert import as_input

    taught = {"classifier", "regressor"} & {*roles(type(model))}
    sparse = bool(taught) and bool(model._checks.get("accept_sparse", False))
    found = as_input(dataset, "table", type(model).__name__, {"columns": model.columns_}, sparse=sparse)
    given = {"given": dataset.X} if hasattr(dataset.X, "iloc") else {}
    return replace(found, extra={**found.extra, **given})


def _time_left(limit: float | None, begin: float) -> float | None:
    """Return the seconds for measures and pictures: what the fit left, and at least a little."""
    return None if limit is None else max(limit + begin - now(), 2.0, limit / 5)


def parse_columns(words: list[str]) -> dict[str, str]:
    """Return ``name=kind`` words as what columns are.

    >>> parse_columns(["zip code=category"])
    {'zip code': 'category'}
    """
    told = {}
    for word in words:
        name, sign, kind = word.rpartition("=")
        if not sign or not name:
            do = f"For instance --column zip=category; kinds: {', '.join(KINDS_OF_COLUMN)}."
            raise errors.value("--column", "it takes name=kind", repr(word), do)
        told[name.strip()] = kind.strip()
    return told


def _check_target(entry: Entry, dataset: Any, source: str) -> None:
    """Raise if the model learns from a target and the data have none, with what to type."""
    _check_classes(entry, dataset)
    taught = {"classifier", "regressor", "tagger", "segmenter", "translator", "answerer"} & {*entry.roles}
    if not taught or dataset.y is not None or dataset.kind == "graphs":
        return
    if dataset.kind == "graph":
        if dataset.X.y is not None:
            return
        do = "Add --target NAME, an attribute of the nodes; edges alone can be a folder of edges.csv and nodes.csv."
        raise errors.value(
            entry.name, "fit needs classes of nodes to learn from", f"{source} without any", do
        )
    do = "Put the files of each class into a sub-folder of its own, named after it."
    if "segmenter" in taught:
        do = "Put the images into images/ and their masks, of the same names, into masks/ beside it."
    if dataset.kind in ("table", "ratings") or Path(source).suffix:
        names = [str(name) for name in dataset.feature_names or ()]
        guess = guess_target(dataset) if dataset.kind == "table" else None
        shown = f" Columns: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}." if names else ""
        do = f"Add --target {quoted(guess) if guess else 'NAME'}.{shown}"
    raise errors.value(entry.name, "fit needs a target to learn from", f"{source} without one", do)


def _check_classes(entry: Entry, dataset: Any) -> None:
    """Raise if a classifier is given measurements: a class for nearly every row is no class."""
    y = np.asarray(dataset.y) if dataset.y is not None and not isinstance(dataset.y, list) else np.zeros(0)
    if (
        "classifier" not in entry.roles
        or "regressor" in entry.roles
        or y.ndim != 1
        or y.dtype.kind not in "iuf"
    ):
        return
    distinct = len(np.unique(y))
    if distinct > max(20, len(y) // 2):
        do = "Fit a regressor: see `corollary list --role regressor`."
        got = f"{distinct} different numbers in {len(y)} rows"
        raise errors.value(entry.name, "a classifier needs a target of classes", got, do)


def _as_inputs(kept: Any, held: Any, entry: Entry) -> tuple[Any, Any]:
    """Return both parts as the model takes them; the columns of tables are left to its fit."""
    from corollary.data.convert import as_input

    if kept.kind == entry.input == "table":
        return kept, held
    same = held is kept
    kept = as_input(kept, entry.input, entry.name, also=entry.also)
    if held is None or same:
        return kept, kept if same else None
    return kept, as_input(held, entry.input, entry.name, kept.extra.get("reading"), entry.also)


def _divide(dataset: Any, test: float, seed: int, entry: Entry) -> tuple[Any, Any]:
    from corollary import data

    if "link-predictor" in entry.roles and test:
        from corollary.comparison.links import edges_held_out

        return next(edges_held_out(dataset, 1, test, seed))
    if dataset.kind == "graph" and getattr(dataset.X, "test_mask", None) is not None:
        return dataset, dataset
    if not test or (len(dataset) < 2 and dataset.kind != "text"):
        return dataset, None
    by_time = dataset.kind == "ratings" and "times" in dataset.extra
    return data.split(dataset, test, seed, by="time" if by_time else "chance")


def _in_time(dataset: Any, test: float) -> tuple[Any, Any]:
    """Return series without their last steps, and whole; short ones are not divided."""
    from corollary.comparison.forecasts import in_time

    if not test or min(map(len, dataset.X)) < 10:
        return dataset, None
    return next(in_time(dataset, 1, test))


def _measured(model: Any, held: Any, entry: Entry, seconds: float | None) -> dict[str, Any]:
    """Return the measures of every task that the model does and the held-out data allow."""
    if held is None:
        return {}
    from corollary.comparison import task_of
    from corollary.roletable import TASKS

    found = {}
    likely = task_of(held)
    until = None if seconds is None else now() + seconds
    for name, task in TASKS.items():
        likely_one = task.role not in ("classifier", "regressor") or name == likely
        if task.role in entry.roles and task.usual and likely_one:
            try:
                with time_box(None if until is None else until - now()):
                    numbers = task.numbers(model, held)
                found |= {f"held-out {metric}": value for metric, value in numbers.items()}
            except (ValueError, TypeError, AttributeError, OutOfTime) as error:
                found[f"held-out {task.metric}"] = f"not measured: {error}"
    return found


def _described(dataset: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return what ``config.json`` says of the data, so that the run can be used and repeated."""
    facts = {**request, "name": dataset.name, "kind": dataset.kind, "given_kind": request["kind"]}
    if "image_shape" in dataset.extra:
        facts["image_shape"] = [*dataset.extra["image_shape"]]
    return facts


def _remember(directory: Path, dataset: Any) -> None:
    """Write down what was learned in reading the data, for the data that will be predicted."""
    reading = {key: value for key, value in dataset.extra.get("reading", {}).items() if key != "columns"}
    if reading:  # how columns are read stands in the model's own file
        write_text(directory / "reading.json", json.dumps(reading) + "\n")
