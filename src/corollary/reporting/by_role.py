"""Sections of a report by role: learning curves, clusters, codes, samples, recommendations, forecasts, texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from corollary import plot
from corollary.comparison.measures import image_shape, labels_for
from corollary.data.dataset import Dataset
from corollary.data.kinds import check_images
from corollary.data.labels import as_names
from corollary.reporting.pages import Table
from corollary.reporting.predictions import files_of
from corollary.roles import roles
from corollary.roletable import entries_of

__all__ = ["sections"]

Section = tuple[str, Any, Any]  # heading, text or Table, figure or None


def sections(model: Any, dataset: Dataset) -> Iterator[Section]:
    """Yield the sections that fit the model's roles."""
    if any(len(row) > 2 for row in getattr(model, "history_", ())):
        yield "Learning curves", "Every metric of the history, step by step.", plot.curves(model.history_)
    for role in entries_of(type(model)):
        if role.section is not None:
            yield from role.section(model, dataset)
    if hasattr(model, "components_") and "topic-model" not in roles(type(model)):
        yield from _components(model, dataset)


# --- one function per role -------------------------------------------------------------------------------


def _grouped(model: Any, dataset: Dataset) -> Iterator[Section]:
    groups = model.predict(dataset.X)
    yield (
        "Groups",
        "The data in their two leading directions, coloured by group.",
        plot.codes(dataset.X, groups),
    )


def _coded(model: Any, dataset: Dataset) -> Iterator[Section]:
    given = labels_for(model, dataset)
    codes = model.transform(dataset.X, *given)
    if isinstance(codes, np.ndarray) and codes.ndim == 2 and codes.shape != np.shape(dataset.X):
        labels = dataset.y if dataset.y is not None and len(np.unique(dataset.y)) <= 50 else None
        yield "Codes", "Each sample's features, in their two leading directions.", plot.codes(codes, labels)
    shape = image_shape(dataset)
    if shape and hasattr(model, "inverse_transform"):
        some = dataset.X[:10]
        given = tuple(y[:10] for y in given)
        again = model.inverse_transform(model.transform(some, *given), *given)
        pictures = dataset.kind == "image"
        before = check_images(some, "report") if pictures else some
        shape = again.shape[1:] if again.ndim == 4 else shape
        picture = plot.pairs(before, again, shape, inverted=not pictures)
        yield "Reconstructions", "Samples above, what is left of them below.", picture


def _topics(model: Any, dataset: Dataset) -> Iterator[Section]:
    weights = np.asarray(model.components_)
    names = dataset.feature_names
    top = np.argsort(-weights, axis=1, kind="stable")[:, :10]
    words = model.top_words(10) if names is None else [[str(names[j]) for j in row] for row in top]
    shares = np.asarray(model.transform(dataset.X)).mean(0)
    fits = model.coherence(dataset.X) if weights.shape[1] > 1 else np.zeros(len(weights))
    rows = [
        (int(i), f"{shares[i] / shares.sum():.1%}", f"{fits[i]:.2f}", ", ".join(words[i]))
        for i in np.argsort(-shares, kind="stable")[:50]
    ]
    text = "The words that weigh most in each topic. Coherence, how far these words come together in documents, is between -1 "
    text += f"(never) and 1 (always); {np.mean(fits):.2f} in the mean."
    yield "Topics", Table(text, ("topic", "share", "coherence", "words"), rows), None


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
    yield "Masks", text, plot.image_grid(np.concatenate(rows), columns=len(shown), inverted=False)
    if dataset.y is not None:
        yield from _pixels_by_class(model, dataset)


def _pixels_by_class(model: Any, dataset: Dataset) -> Iterator[Section]:
    """Yield intersection over union, precision and recall of each class, and the images that came out worst."""
    found, classes = np.asarray(model.predict(dataset.X)), model.classes_
    truth = np.asarray(dataset.y).reshape(found.shape)
    rows = []
    for label in classes:
        said, true = found == label, truth == label
        both, either = int((said & true).sum()), int((said | true).sum())
        share = (both / n if n else None for n in (either, int(said.sum()), int(true.sum())))
        rows.append((label, *share, f"{true.mean():.2%}"))
    headings = ("class", "IoU", "precision", "recall", "share of the pixels")
    known = [row[1] for row in rows if row[1] is not None]
    text = f"Mean intersection over union {np.mean(known):.3f}; {np.mean(found == truth):.1%} of the pixels are right."
    yield "By class", Table(text, headings, rows), None
    right = (found == truth).mean((1, 2))
    files = files_of(dataset)
    worst = np.argsort(right, kind="stable")[:8]
    named = [(int(i), *files[i : i + 1], f"{right[i]:.1%}") for i in worst]
    headings = ("row", *(["file"] if files else []), "right pixels")
    images = check_images(dataset.X[worst], "report")
    shown = images[:, :3] if images.shape[1] >= 3 else images[:, :1]
    parts = [shown, *(_as_grey(masks[worst], classes, shown) for masks in (truth, found))]
    text = "The images with the fewest right pixels; their classes, and the classes found."
    yield (
        "Worst cases",
        Table(text, headings, named),
        plot.image_grid(np.concatenate(parts), columns=len(worst), inverted=False),
    )


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
    yield from _backtested(model, dataset)


def _backtested(model: Any, dataset: Dataset) -> Iterator[Section]:
    """Show the errors from several points in time beside the naive forecasts; the model is not fitted again."""
    from corollary.sequences import backtest

    longest = sorted(dataset.X, key=len)[-20:]
    count = min(5, (min(map(len, longest)) - 2) // model.horizon)
    if count < 1:
        return
    found = backtest(model, longest, n_origins=count, refit=False)
    keys = [*found["model"]]
    rows = [[name, *(f"{row[key]:.4g}" if key in row else "" for key in keys)] for name, row in found.items()]
    text = f"Forecasts of {model.horizon} steps from {count} points in time up to the end of {len(longest)} series, with this "
    text += "model as it is: points within the data that it was fitted to flatter it. `backtest` fits it anew at each point."
    yield "Backtest", Table(text, ["", *keys], rows), None


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
    last = model.history_[-1] if getattr(model, "history_", None) else {}
    if {"coverage", "near"} <= set(last):
        text = f"{last['coverage']:.0%} of the data have a drawn sample among their nearest neighbours (few: modes are missing); "
        yield "Coverage", text + f"{last['near']:.0%} of the drawn samples lie among the data.", None
    shape = image_shape(dataset)
    drawn = np.asarray(model.sample(40 if dataset.kind != "sequence" else 4))
    if dataset.kind == "sequence":
        yield "Samples", "Drawn from the model.", plot.series(drawn)
    elif shape:
        images = drawn if drawn.ndim == 4 else drawn.reshape(-1, *shape)
        pictures = dataset.kind == "image"
        images = np.clip(images, 0, 1) if pictures or dataset.X.max() <= 1 else images
        yield "Samples", "Drawn from the model.", plot.image_grid(images, inverted=not pictures)
    elif drawn.ndim == 2:
        many = np.asarray(model.sample(min(1000, len(dataset.X))))
        labels = ["data"] * len(dataset.X) + ["drawn"] * len(many)
        order = np.random.default_rng(0).permutation(len(labels))
        both = np.concatenate([dataset.X, many])[order]
        yield "Samples", "Drawn samples among the data.", plot.codes(both, np.asarray(labels)[order])


def _recommended(model: Any, dataset: Dataset) -> Iterator[Section]:
    users = np.arange(min(5, dataset.X.shape[0]))
    seen, known = dataset.extra.get("seen"), getattr(model, "users_", None)
    asked = as_names(users, known)
    items, scores = model.recommend(asked, 5, seen=dataset.X[users] if seen is None else seen[users])
    names, people = dataset.extra.get("items"), dataset.extra.get("users")
    if hasattr(model, "items_"):
        names = None  # the model says them itself
    rows = []
    for user, person, row, values in zip(users, asked, items, scores):
        found = [(i if names is None else names[i], v) for i, v in zip(row, values) if np.isfinite(v)]
        who = person if known is not None or people is None else people[user]
        rows.append((who, *(f"{item} ({v:.2f})" for item, v in found)))
    headings = ("user", *(f"{place}." for place in range(1, 6)))
    yield (
        "Recommendations",
        Table("The best unseen items of the first users, with their scores.", headings, rows),
        None,
    )


def _linked(model: Any, dataset: Dataset) -> Iterator[Section]:
    pairs, chances = model.missing_links(12)
    rows = [(a, b, f"{chance:.3f}") for (a, b), chance in zip(pairs.tolist(), chances)]
    text = "The most probable edges that the graph of the fit does not have."
    yield "Missing edges", Table(text, ("node", "node", "probability"), rows), None


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
