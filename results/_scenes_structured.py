"""Systems for sequences, images, sets and graphs, each shown on what it has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from corollary import catalog, data, plot
from results._drawings import ACCENT, INK, SOFT, WARM, panels
from results._showing import SECONDS, fitted, halves, share, titled, written

# --- sequences -------------------------------------------------------------------------------------------


def vowels(entry: catalog.Entry) -> Figure:
    """Held-out utterances: true against predicted speakers."""
    train, test = halves("japanese-vowels")
    model = fitted(entry, train.X, train.y)
    found = model.predict(test.X)
    return titled(plot.confusion(test.y, found), f"{entry.id}: whose vowel is it? {share(test.y, found)}")


def boundaries(entry: catalog.Entry) -> Figure:
    """Where words begin in Shakespeare written without spaces."""
    lines = [line.lower() for text in data.load("shakespeare").X[:3] for line in text.split("\n")]
    lines = ["".join(c for c in line if c.isalpha() or c == " ").strip() for line in lines]
    lines = [line for line in lines if 20 < len(line) < 50][:2500]
    X = [line.replace(" ", "") for line in lines]
    y = [_starts(line) for line in lines]
    model = fitted(entry, X[:2300], y[:2300])
    found = model.predict(X[2300:])
    right = np.mean(np.concatenate(found) == np.concatenate(y[2300:]))
    shown = []
    for text, wanted, tags in list(zip(X[2300:], y[2300:], found))[:8]:
        shown.append((_spaced(text, wanted), SOFT))
        shown.append((_spaced(text, tags), ACCENT))
    return written(f"Words without spaces, found again (grey: true): {right:.1%} of the letters right", shown)


def _starts(line: str) -> list[int]:
    return [int(i == 0 or line[i - 1] == " ") for i, c in enumerate(line) if c != " "]


def _spaced(text: str, tags: Any) -> str:
    return "".join(" " * int(t) + c for c, t in zip(text, tags)).strip()


def _series(n: int, length: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    t = np.arange(length)
    periods, phases = rng.uniform(12, 20, (n, 2, 1)), rng.uniform(0, 2 * np.pi, (n, 2, 1))
    waves = np.sin(2 * np.pi * t / (periods * [[1], [2.7]]) + phases)
    return list((waves[:, 0] + 0.3 * waves[:, 1] + 0.05 * rng.normal(size=(n, length))).astype(np.float32))


def forecast(entry: catalog.Entry) -> Figure:
    """The next values of unseen sums of two waves."""
    model = fitted(entry, _series(300, 80, 0), seconds=16, horizon=20)
    series = _series(3, 80, 1)
    found = np.asarray(model.predict([s[:60] for s in series]))[:, :, 0]
    figure, axes = panels(3, "Twenty steps ahead (blue) in unseen series (grey)", 3.0, 2.2)
    for part, s, ahead in zip(axes, series, found):
        part.plot(s, color=SOFT, lw=1.2)
        part.plot(range(60, 80), ahead, color=ACCENT, lw=1.8)
    return figure


def waves(entry: catalog.Entry) -> Figure:
    """How a wave net goes on, several times from the same beginning."""
    model = fitted(entry, [0.6 * s for s in _series(60, 200, 0)], seconds=16)
    start = 0.6 * _series(1, 200, 1)[0]
    figure, (axes,) = panels(1, "A wave (grey) and three continuations from its first half", 7, 2.4)
    axes.plot(start, color=SOFT, lw=1.2)
    for tail in model.generate([start[:100]] * 3, 100, temperature=0.4):
        axes.plot(range(100, 200), tail, lw=1)
    return figure


# --- images, sets, graphs --------------------------------------------------------------------------------


def images(entry: catalog.Entry) -> Figure:
    """Held-out digits with what they were taken for."""
    train, test = halves("digits")
    model = fitted(entry, train.X, train.y)
    found = model.predict(test.X)
    title = f"{entry.id} on held-out digits, {SECONDS:g} s of training: {share(test.y, found)}"
    order = np.argsort(found == test.y, kind="stable")  # mistakes first
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    for i, row in enumerate(order[:20]):
        axes = figure.add_subplot(2, 10, i + 1)
        axes.imshow(np.squeeze(test.X[row]), cmap="gray_r")
        axes.set_axis_off()
        wrong = found[row] != test.y[row]
        axes.set_title(f"{found[row]}, not {test.y[row]}" if wrong else str(found[row]), fontsize=7)
        axes.title.set_color(WARM if wrong else INK)
    return figure


def masks(entry: catalog.Entry) -> Figure:
    """Digits laid over a photograph, and where they were found."""
    rng = np.random.default_rng(0)
    digits, photo = data.load("digits").X, data.load("photos").X[0].mean(0) / 255
    digits = digits / digits.max()
    X, y = np.empty((700, 32, 32), np.float32), np.zeros((700, 32, 32), int)
    for i, digit in enumerate(digits[:700]):
        row, column = rng.integers(0, 395), rng.integers(0, 600)
        big = np.kron(digit, np.ones((3, 3)))
        top, left = rng.integers(0, 8, 2)
        y[i, top : top + 24, left : left + 24] = big > 0.4
        X[i] = photo[row : row + 32, column : column + 32] * 0.5 + 0.5 * y[i] * rng.uniform(0.6, 1)
    model = fitted(entry, X[:600], y[:600], seconds=25)
    found, score = model.predict(X[600:610]), model.score(X[600:], y[600:])
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    figure.suptitle(f"U-Net finds digits on photographs: intersection over union {score:.2f}", fontsize=10)
    for i, (rows, name) in enumerate(((X[600:], "image"), (y[600:], "mask"), (found, "found"))):
        for j in range(10):
            axes = figure.add_subplot(3, 10, 10 * i + j + 1)
            axes.imshow(rows[j], cmap="gray")
            axes.set(xticks=[], yticks=[])
            if j == 0:
                axes.set_ylabel(name, fontsize=8)
    return figure


SHAPES = ("ring", "square", "cross")


def _cloud(label: int, rng: np.random.Generator) -> np.ndarray:
    t = rng.uniform(0, 1, rng.integers(25, 45))
    a, side = 2 * np.pi * t, rng.integers(0, 4, len(t))
    ring = np.column_stack([np.cos(a), np.sin(a)])
    square = np.array([[2 * u - 1, 1] if s % 2 else [1, 2 * u - 1] for u, s in zip(t, side)])
    square = square * np.where(side < 2, 1, -1)[:, None]
    cross = np.column_stack([np.where(side % 2, 2 * t - 1, 0), np.where(side % 2, 0, 2 * t - 1)])
    turn = rng.uniform(0, np.pi / 2)
    R = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return ((ring, square, cross)[label] @ R + 0.05 * rng.normal(size=(len(t), 2))).astype(np.float32)


def clouds(entry: catalog.Entry) -> Figure:
    """Unseen clouds of points with what they were taken for."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = [_cloud(label, rng) for label in y]
    model = fitted(entry, X[:500], y[:500])
    found = model.predict(X[500:])
    figure, axes = panels(8, f"{entry.name} on unseen clouds: {share(y[500:], found)}", 1.2, 1.7)
    for part, cloud, label in zip(axes, X[500:], found):
        part.plot(*cloud.T, ".", ms=2, color=ACCENT)
        part.set_aspect("equal")
        part.set_axis_off()
        part.set_title(SHAPES[label], fontsize=8)
    return figure


def spreads(entry: catalog.Entry) -> Figure:
    """A number of a set: the standard deviation of its points."""
    rng = np.random.default_rng(0)
    y = rng.uniform(0.2, 2, 600)
    X = [(rng.normal(size=(rng.integers(10, 40), 1)) * s).astype(np.float32) for s in y]
    y = np.array([x.std() for x in X])
    model = fitted(entry, X[:500], y[:500])
    figure = plot.predictions(y[500:], model.predict(X[500:]))
    return titled(figure, "Deep sets: standard deviation\nof unseen sets of numbers")


def parts(entry: catalog.Entry) -> Figure:
    """The parts of unseen clouds, point by point."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(300):
        n = rng.integers(30, 60)
        handle = rng.normal(size=(n, 3)) * [0.08, 0.08, 1]
        head = rng.normal(size=(n, 3)) * [0.5, 0.5, 0.1] + [0, 0, 1.6]
        X.append(np.concatenate([handle, head]).astype(np.float32))
        y.append(np.repeat(["handle", "head"], n))
    model = fitted(entry, X[:250], y[:250])
    found = model.predict(X[250:])
    right = np.mean(np.concatenate(found) == np.concatenate(y[250:]))
    figure, axes = panels(
        5, f"PointNet finds the head of unseen hammers: {right:.1%} of the points right", 1.5, 2.6
    )
    for part, cloud, labels in zip(axes, X[250:], found):
        part.scatter(cloud[:, 0], cloud[:, 2], s=4, c=np.where(labels == "head", WARM, ACCENT))
        part.set_axis_off()
    return figure


def nodes(entry: catalog.Entry) -> Figure:
    """Zachary's club: some members' sides are known, the others' are predicted."""
    import networkx as nx

    club = data.load("karate").X
    graph = nx.Graph()
    graph.add_nodes_from(range(club.num_nodes))
    graph.add_edges_from(np.asarray(club.edge_index).T.tolist())
    y = np.asarray(club.y)
    known = np.zeros(len(y), bool)
    known[[0, 33] if entry.id != "spectral" else slice(None, None, 3)] = True  # a free filter needs more
    lone = replace(
        club, x=np.eye(len(y), dtype=np.float32), train_mask=known, val_mask=None, test_mask=~known
    )
    model = fitted(entry, lone)
    p = np.asarray(model.predict_proba(lone))[:, 1]
    found = model.predict(lone)
    title = f"{entry.id} on Zachary's club, {known.sum()} labels given (squares): {share(y[~known], found[~known])}"
    figure, (axes,) = panels(1, title, 5.6, 3.8)
    places = nx.spring_layout(graph, seed=3)
    options = {
        "cmap": "coolwarm",
        "vmin": 0,
        "vmax": 1,
        "node_size": 110,
        "edgecolors": INK,
        "linewidths": 0.5,
    }
    nx.draw_networkx_edges(graph, places, ax=axes, width=0.4, edge_color=SOFT)
    for shape, group in (("o", np.flatnonzero(~known)), ("s", np.flatnonzero(known))):
        colours = p[group]
        shown = {"nodelist": group.tolist(), "node_color": colours, "node_shape": shape}
        nx.draw_networkx_nodes(graph, places, ax=axes, **shown, **options)
    axes.set_axis_off()
    return figure


def molecules(entry: catalog.Entry) -> Figure:
    """Held-out molecules: mutagenic or not."""
    train, test = halves("mutag")
    model = fitted(entry, train.X, train.y)
    found = model.predict(test.X)
    return titled(plot.confusion(test.y, found), f"{entry.id} on held-out\nmolecules: {share(test.y, found)}")


def links(entry: catalog.Entry) -> Figure:
    """The friendships of Zachary's club, and how likely each pair is held to be friends."""
    club = data.load("karate").X
    n = club.num_nodes
    lone = replace(club, x=np.eye(n, dtype=np.float32))
    model = fitted(entry, lone)
    order = np.argsort(np.asarray(club.y), kind="stable")
    A = np.zeros((n, n))
    A[tuple(np.asarray(club.edge_index))] = 1
    pairs = np.array([(i, j) for i in order for j in order])
    P = model.link_probability(pairs).reshape(n, n)
    figure, axes = panels(2, "Zachary's club, one faction after the other", 3.4, 3.4)
    for part, table, title in zip(
        axes, (A[np.ix_(order, order)], P), ("friendships", "predicted probability")
    ):
        part.imshow(table, cmap="Blues", vmin=0, vmax=1)
        part.set_title(title, fontsize=9)
        part.set(xticks=[], yticks=[])
    return figure
