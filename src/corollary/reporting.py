"""A report to open in a browser: what was fitted, how it went, and pictures of what it does.

Which pictures there are follows from the model's roles, never from its name.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corollary import __version__, plot
from corollary.base import roles
from corollary.data.dataset import Dataset
from corollary.data.kinds import check_images
from corollary.roletable import entries_of

__all__ = ["report"]

Section = tuple[str, str, Any]  # heading, text, figure or None

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-weight: 600; margin-bottom: 0 } h2 { font-weight: 600; margin-top: 2.2rem }
img { max-width: 100%; height: auto } pre { background: #f3f5f7; padding: .8rem; overflow-x: auto; border-radius: 6px }
table { border-collapse: collapse } td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top }
.soft { color: #616e7c }
"""


def report(model: Any, dataset: Dataset, path: str | Path, **facts: Any) -> Path:
    """Write an HTML page about a fitted model and data it can be shown on.

    Parameters
    ----------
    model : fitted estimator
        What the page is about.
    dataset : Dataset
        Data of the model's input kind, with ``y`` if there is one.
    path : path
        The file to write.
    **facts
        Further lines of the summary, such as ``accuracy=0.97``.
    """
    rows = [("data", repr(dataset)), ("roles", ", ".join(roles(type(model))))]
    rows += [
        (key, f"{value:.6g}" if isinstance(value, float) else str(value)) for key, value in facts.items()
    ]
    seconds = model.history_[-1]["seconds"] if model.history_ else 0.0  # stopped before the first step
    rows += [("steps", str(len(model.history_))), ("seconds", f"{seconds:.2f}")]
    body = [f"<h1>{type(model).__name__}</h1>", f'<p class="soft">corollary {__version__}</p>', _table(rows)]
    body.append(f"<h2>Parameters</h2><pre>{html.escape(repr(model))}</pre>")
    for heading, text, figure in sections(model, dataset):
        body.append(f"<h2>{html.escape(heading)}</h2>")
        body.append(f"<p>{html.escape(text)}</p>" if "\n" not in text else f"<pre>{html.escape(text)}</pre>")
        if figure is not None:
            data = base64.b64encode(plot.save(figure)).decode()
            body.append(f'<img alt="{html.escape(heading)}" src="data:image/png;base64,{data}">')
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>{type(model).__name__}</title>"
    Path(path).write_text(f"{page}<style>{STYLE}</style>{''.join(body)}</html>\n", encoding="utf-8")
    return Path(path)


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows)
    return f"<table>{cells}</table>"


def sections(model: Any, dataset: Dataset) -> Iterator[Section]:
    """Yield the sections that fit the model's roles."""
    if any(len(row) > 2 for row in model.history_):
        yield "Learning curves", "Every metric of the history, step by step.", plot.curves(model.history_)
    for role in entries_of(type(model)):
        if role.section is not None:
            yield from role.section(model, dataset)
    if hasattr(model, "components_"):
        yield from _components(model, dataset)


# --- one function per role -------------------------------------------------------------------------------


def _classified(model: Any, dataset: Dataset) -> Iterator[Section]:
    truth, predicted = _labels(model, dataset)
    if truth is not None:
        share = float(np.mean(truth == predicted))
        text = f"True against predicted classes on the data given; {share:.1%} are right."
        yield "Confusion", text, plot.confusion(truth, predicted)


def _labels(model: Any, dataset: Dataset) -> tuple[Any, Any]:
    predicted = np.asarray(model.predict(dataset.X))
    if hasattr(dataset.X, "edge_index"):
        if dataset.X.y is None:
            return None, None
        mask = getattr(dataset.X, "test_mask", None)
        mask = slice(None) if mask is None else np.asarray(mask, dtype=bool)
        return np.asarray(dataset.X.y)[mask], predicted[mask]
    return (None, None) if dataset.y is None else (np.asarray(dataset.y), predicted)


def _predicted(model: Any, dataset: Dataset) -> Iterator[Section]:
    if dataset.y is not None:
        figure = plot.predictions(dataset.y, model.predict(dataset.X))
        yield "Predictions", "Predicted against true values.", figure


def _grouped(model: Any, dataset: Dataset) -> Iterator[Section]:
    groups = model.predict(dataset.X)
    yield (
        "Groups",
        "The data in their two leading directions, coloured by group.",
        plot.codes(dataset.X, groups),
    )


def _coded(model: Any, dataset: Dataset) -> Iterator[Section]:
    codes = model.transform(dataset.X)
    if isinstance(codes, np.ndarray) and codes.ndim == 2 and codes.shape != np.shape(dataset.X):
        labels = dataset.y if dataset.y is not None and len(np.unique(dataset.y)) <= 50 else None
        yield "Codes", "Each sample's features, in their two leading directions.", plot.codes(codes, labels)
    shape = dataset.extra.get("image_shape")
    if shape and hasattr(model, "inverse_transform"):
        again = model.inverse_transform(model.transform(dataset.X[:10]))
        yield (
            "Reconstructions",
            "Samples above, what is left of them below.",
            plot.pairs(dataset.X, again, shape),
        )


def _components(model: Any, dataset: Dataset) -> Iterator[Section]:
    shape = dataset.extra.get("image_shape")
    components = np.asarray(model.components_)
    if shape and components.shape[1] == int(np.prod(shape)):
        figure = plot.image_grid(components[:20].reshape(-1, *shape))
        yield "Components", "The leading components as images.", figure
    elif dataset.feature_names is not None and components.shape[1] == len(dataset.feature_names):
        names = np.asarray(dataset.feature_names)
        lines = [", ".join(names[np.argsort(-row)[:10]]) for row in components[:20]]
        yield "Components", "\n".join(["The features that weigh most in each component.", *lines]), None


def _segmented(model: Any, dataset: Dataset) -> Iterator[Section]:
    images = check_images(dataset.X[:8], "report")
    shown = images[:, :3] if images.shape[1] >= 3 else images[:, :1]
    rows = [shown, _as_grey(model.predict(dataset.X[:8]), model.classes_, shown)]
    text = "Images above, the classes found in them below."
    if dataset.y is not None:
        rows.insert(
            1,
            _as_grey(np.asarray(dataset.y[:8]).reshape(len(shown), *shown.shape[2:]), model.classes_, shown),
        )
        text = "Images, the classes of their pixels, and the classes found."
    yield "Masks", text, plot.image_grid(np.concatenate(rows), columns=len(shown))


def _as_grey(masks: Any, classes: Any, like: np.ndarray) -> np.ndarray:
    """Return masks as images with one grey per class."""
    grey = np.searchsorted(classes, masks)[:, None] / (len(classes) - 1)
    return np.broadcast_to(grey, like.shape)


def _tagged(model: Any, dataset: Dataset) -> Iterator[Section]:
    if dataset.y is not None:
        truth = np.concatenate(model._labels(model._query(dataset.X), dataset.y))
        found = np.concatenate(model.predict(dataset.X))
        text = f"True against predicted labels of all parts; {np.mean(truth == found):.1%} are right."
        yield "Confusion", text, plot.confusion(truth, found)


def _forecast(model: Any, dataset: Dataset) -> Iterator[Section]:
    waves = [wave for wave in dataset.X if len(wave) > model.horizon][:3]
    if waves:
        ahead = model.predict([wave[: len(wave) - model.horizon] for wave in waves])
        text = f"Series, and the forecast of their last {model.horizon} steps from those before, in colour."
        yield "Forecasts", text, plot.series(waves, ahead)


def _translated(model: Any, dataset: Dataset) -> Iterator[Section]:
    texts = list(dataset.X[:10])
    wanted = [None] * len(texts) if dataset.y is None else list(dataset.y[:10])
    lines = ["What the model makes of some texts, and what was wanted."]
    for text, found, right in zip(texts, model.predict(texts), wanted):
        lines.append(f"{text} → {found}" + ("" if right is None else f"   ({right})"))
    yield "Translations", "\n".join(lines), None


def _answered(model: Any, dataset: Dataset) -> Iterator[Section]:
    for _, lines, picture in _translated(model, dataset):
        yield "Answers", lines, picture


def _drawn(model: Any, dataset: Dataset) -> Iterator[Section]:
    shape = dataset.extra.get("image_shape")
    drawn = np.asarray(model.sample(40 if dataset.kind != "sequence" else 4))
    if dataset.kind == "sequence":
        yield "Samples", "Drawn from the model.", plot.series(drawn)
    elif shape:
        images = (
            np.clip(drawn.reshape(-1, *shape), 0, 1) if dataset.X.max() <= 1 else drawn.reshape(-1, *shape)
        )
        yield "Samples", "Drawn from the model.", plot.image_grid(images)
    elif drawn.ndim == 2:
        many = np.asarray(model.sample(min(1000, len(dataset.X))))
        labels = ["data"] * len(dataset.X) + ["drawn"] * len(many)
        order = np.random.default_rng(0).permutation(len(labels))
        both = np.concatenate([dataset.X, many])[order]
        yield "Samples", "Drawn samples among the data.", plot.codes(both, np.asarray(labels)[order])


def _recommended(model: Any, dataset: Dataset) -> Iterator[Section]:
    users = np.arange(min(5, dataset.X.shape[0]))
    items, scores = model.recommend(users, 5, seen=dataset.X[users])
    names = dataset.extra.get("items")
    people = dataset.extra.get("users")
    lines = ["The best unseen items of the first users, with their scores."]
    for user, row, values in zip(users, items, scores):
        shown = [f"{names[i] if names is not None else i} ({v:.2f})" for i, v in zip(row, values) if i >= 0]
        lines.append(f"{people[user] if people is not None else user}: {', '.join(shown)}")
    yield "Recommendations", "\n".join(lines), None


def _recalled(model: Any, dataset: Dataset) -> Iterator[Section]:
    cues = dataset.X[:10]
    shape = dataset.extra.get("image_shape")
    if shape:
        figure = plot.pairs(cues, model.recall(cues), shape)
        yield "Recall", "Cues above, what they recall below.", figure


def _continued(model: Any, dataset: Dataset) -> Iterator[Section]:
    prompts = [text[:24] for text in dataset.X if text.strip()][:3]
    lines = [repr(text) for text in model.generate(prompts, max_new_tokens=80)]
    yield (
        "Continuations",
        "\n".join(["How the model goes on from the beginnings of three texts.", *lines]),
        None,
    )
