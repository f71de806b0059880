"""Systems for tables, ratings and words, each shown on real data."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from corollary import Training, catalog, data, plot, reporting
from corollary.data.dataset import Dataset
from results._drawings import ACCENT, INK, WARM, panels
from results._showing import LONGER, fitted, halves, share, titled, written

# --- tables ----------------------------------------------------------------------------------------------


def classes(entry: catalog.Entry) -> Figure:
    """Held-out digits: true against predicted classes."""
    train, test = halves("digits", "table")
    model = fitted(entry, train.X, train.y)
    found = model.predict(test.X)
    figure = plot.confusion(test.y, found)
    return titled(figure, f"{entry.name} on held-out digits: {share(test.y, found)}")


def numbers(entry: catalog.Entry) -> Figure:
    """Held-out patients: predicted against true progress of the disease."""
    train, test = halves("diabetes", "table")
    scale = train.y.mean(), train.y.std()
    model = fitted(entry, train.X, (train.y - scale[0]) / scale[1])
    found = np.ravel(model.predict(test.X)) * scale[1] + scale[0]
    error = 1 - np.mean((found - test.y) ** 2) / np.var(test.y)
    figure = plot.predictions(test.y, found)
    return titled(figure, f"{entry.name} on held-out patients:\n{error:.0%} of the variance explained")


def pixels(entry: catalog.Entry) -> Figure:
    """Digits: the last section of the report that has a figure (components, samples, codes)."""
    train, test = halves("digits", "table")
    names = catalog.create(entry.id).get_params()
    few = {name: 20 for name in ("n_components", "latent") if name in names}
    model = fitted(entry, train.X, **few)
    shown = [(head, figure) for head, _, figure in reporting.sections(model, test) if figure is not None]
    head, figure = shown[-1]
    return titled(figure, f"{entry.name} on digits: {head.lower()}")


def low_rank(entry: catalog.Entry) -> Figure:
    """Held-out digits, rebuilt from fewer and fewer numbers."""
    train, test = halves("digits", "table")
    rows, names = [test.X[:12]], ["digits"]
    for rank in (20, 10, 5, 2):
        model = fitted(entry, train.X, n_components=rank)
        rows.append(model.inverse_transform(model.transform(test.X[:12])))
        names.append(f"rank {rank}")
    figure, (axes,) = panels(1, "Held-out digits, and what some of their components keep", 7, 3.4)
    pages = np.clip(np.array(rows).reshape(len(rows), 12, 8, 8), 0, 1)
    axes.imshow(pages.transpose(0, 2, 1, 3).reshape(8 * len(rows), 96), cmap="gray_r")
    axes.set_yticks(8 * np.arange(len(rows)) + 4, names)
    axes.set_xticks([])
    return figure


def groups(entry: catalog.Entry) -> Figure:
    """Irises in their two leading directions, coloured by the group they were put in."""
    flowers = data.load("iris")
    names = catalog.create(entry.id).get_params()
    model = fitted(entry, flowers.X, **({"n_components": 3} if "n_components" in names else {}))
    figure, axes = panels(2, f"{entry.name} on irises", 3.6, 3.2)
    centred = flowers.X - flowers.X.mean(0)
    Z = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    for part, labels, title in zip(axes, (model.predict(flowers.X), flowers.y), ("groups", "species")):
        part.scatter(*Z.T, c=np.unique(labels, return_inverse=True)[1], s=10, cmap="tab10", lw=0)
        part.set_title(f"{len(np.unique(labels))} {title}", fontsize=9)
    return figure


def memories(entry: catalog.Entry) -> Figure:
    """Ten digits are stored, and recalled from copies with some pixels wrong."""
    digits = data.load("digits")
    first = [int(np.flatnonzero(digits.y == k)[0]) for k in range(10)]
    stored = np.where(digits.X[first].reshape(10, -1) > digits.X.max() / 2, 1.0, -1.0)
    model = fitted(entry, stored, rule="pseudo-inverse")
    rng = np.random.default_rng(0)
    cues = np.where(rng.random(stored.shape) < 0.12, -stored, stored)
    return _recalled("Hopfield network, pseudo-inverse rule: 12 % of the pixels flipped", stored, cues, model)


def sparse_memories(entry: catalog.Entry) -> Figure:
    """Sparse patterns are stored, and recalled from half of their ones."""
    rng = np.random.default_rng(0)
    stored = np.zeros((60, 256))
    for row in stored:
        row[rng.choice(256, 8, replace=False)] = 1
    cues = stored[:10].copy()
    for row in cues:
        row[rng.permutation(np.flatnonzero(row))[:4]] = 0
    model = fitted(entry, stored)
    return _recalled("Willshaw memory of 60 sparse patterns: half of the ones forgotten", stored, cues, model)


def _recalled(title: str, stored: np.ndarray, cues: np.ndarray, model: Any) -> Figure:
    found, side = model.recall(cues), int(np.sqrt(stored.shape[1]))
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    wrong = int(np.sum(found != stored[: len(cues)]))
    figure.suptitle(f"{title}; {wrong} of {found.size} units recalled wrongly", fontsize=10)
    for i, (rows, name) in enumerate(((stored, "stored"), (cues, "cue"), (found, "recalled"))):
        for j in range(len(cues)):
            axes = figure.add_subplot(3, len(cues), i * len(cues) + j + 1)
            axes.imshow(rows[j].reshape(side, side), cmap="gray_r")
            axes.set(xticks=[], yticks=[])
            if j == 0:
                axes.set_ylabel(name, fontsize=8)
    return figure


def unit(entry: catalog.Entry) -> Figure:
    """What one neuron needs to see and must not see to tell two digits apart."""
    train, test = halves("digits", "table")
    pick = [part.X[part.y < 2] for part in (train, test)], [part.y[part.y < 2] for part in (train, test)]
    model = fitted(entry, pick[0][0], pick[1][0])
    figure, axes = panels(
        3, f"One neuron tells 1 from 0: {share(pick[1][1], model.predict(pick[0][1]))}", 2.3
    )
    for part, k in zip(axes, (0, 1)):
        part.imshow(train.X[train.y == k].mean(0).reshape(8, 8), cmap="gray_r")
        part.set_title(f"mean of the {k}s", fontsize=9)
    axes[2].imshow(model.signs_.reshape(8, 8), cmap="coolwarm", vmin=-1, vmax=1)
    axes[2].set_title(f"signs; fires from {model.threshold_} on", fontsize=9)
    for part in axes:
        part.set_axis_off()
    return figure


def nand(entry: catalog.Entry) -> Figure:
    """Turing's machine learns the parity of two bits and the majority of three."""
    bits = np.array(np.meshgrid(*[[0, 1]] * 3)).T.reshape(-1, 3)
    tasks = {"majority of three": bits.sum(1) > 1, "first and not last": (bits[:, 0] > bits[:, 2])}
    tasks["parity of the first two"] = bits[:, 0] != bits[:, 1]
    figure, axes = panels(3, "NAND machines: wanted above, computed below, for all inputs", 3.0, 1.6)
    for part, (name, wanted) in zip(axes, tasks.items()):
        found = fitted(entry, bits, wanted.astype(int)).predict(bits)
        part.imshow([wanted, found], cmap="Blues", vmin=0, vmax=1.3)
        part.set_title(name, fontsize=9)
        part.set_xticks(range(8), ["".join(map(str, row)) for row in bits], fontsize=6)
        part.set_yticks([])
    return figure


def modes(entry: catalog.Entry) -> Figure:
    """A deep linear network learns the strong directions of its task first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    U, V = (np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in range(2))
    model = fitted(entry, X, X @ (U * [4, 2.5, 1.5, 0.8, 0.4, 0.2]) @ V.T, scale=0.02, learning_rate=0.02)
    figure, (axes,) = panels(1, "Deep linear network: a fall for every direction learned", 5.4, 3.0)
    axes.loglog(
        [row["step"] for row in model.history_], [row["loss"] for row in model.history_], color=ACCENT
    )
    axes.set(xlabel="step", ylabel="loss")
    return figure


# --- ratings and words -----------------------------------------------------------------------------------


def ratings(entry: catalog.Entry) -> Figure:
    """Held-out ratings: predictions for films that got 1 to 5 stars."""
    train, test = halves("ml-100k")
    model = fitted(entry, train.X)
    held = test.X.tocoo()
    found = model.predict(np.column_stack([held.row, held.col]))
    error = float(np.sqrt(np.mean((found - held.data) ** 2)))
    figure, (axes,) = panels(1, f"{entry.name} on held-out MovieLens ratings: error {error:.3f}", 5, 3.4)
    stars = np.unique(held.data)
    axes.boxplot([found[held.data == s] for s in stars], tick_labels=[f"{s:g}" for s in stars], sym="")
    axes.set(xlabel="true rating", ylabel="predicted rating")
    return figure


FAMILIES = {
    "months": "january february march april june july august september october november december",
    "countries": "france germany spain italy russia japan china canada australia england",
    "numbers": "two three four five six seven eight nine ten",
    "family": "father mother son daughter brother sister wife husband king queen",
    "music": "album song songs guitar band vocals music chart singles track",
    "war": "army troops division battle ships fleet soldiers corps attack regiment",
}


def words(entry: catalog.Entry) -> Figure:
    """Words of WikiText-2 in the plane of their leading directions, with their families' colours."""
    lines = [text.lower().split() for text in data.load("wikitext-2").X]
    model = fitted(entry, lines, dimension=50)
    place = {word: i for i, word in enumerate(model.words_)}
    known = {name: [w for w in text.split() if w in place] for name, text in FAMILIES.items()}
    rows = model.vectors_[[place[w] for family in known.values() for w in family]]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centred = rows - rows.mean(0)
    Z = iter(centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T)
    figure, (axes,) = panels(1, f"{entry.id}: words of WikiText-2", 7.5, 5.2)
    for (name, family), colour in zip(known.items(), (ACCENT, WARM, "#2b8a3e", "#862e9c", INK, "#c2255c")):
        for word in family:
            x, y = next(Z)
            axes.plot(x, y, ".", color=colour, ms=2)
            axes.annotate(word, (x, y), fontsize=7, color=colour)
        axes.plot([], [], "s", color=colour, label=name)
    axes.legend(fontsize=7, frameon=False)
    return figure


@cache
def posts(n: int = 250) -> tuple[Dataset, Dataset]:
    """Return posts of four newsgroups, some held out."""
    source = data.load("20newsgroups")
    names = np.asarray(source.target_names)[source.y] if source.target_names is not None else source.y
    kept = ["rec.sport.hockey", "sci.space", "comp.graphics", "talk.politics.guns"]
    rows = np.concatenate([np.flatnonzero(np.asarray(names) == k)[:n] for k in kept])
    few = Dataset([source.X[i][:600] for i in rows], np.asarray(names)[rows], kind="text", name="newsgroups")
    return data.split(few, 0.2, seed=0)


def topics(entry: catalog.Entry) -> Figure:
    """The strongest words of four topics found in posts of four newsgroups."""
    from sklearn.feature_extraction.text import CountVectorizer

    reader = CountVectorizer(min_df=4, max_df=0.2, stop_words="english")
    X = reader.fit_transform(posts()[0].X).astype(float)
    names = reader.get_feature_names_out()
    model = fitted(entry, X[np.diff(X.indptr) > 0], n_components=4)
    figure, axes = panels(
        4, f"{entry.name}: four topics of posts on hockey, space, graphics and guns", 2.3, 3.0
    )
    for part, row in zip(axes, np.asarray(model.components_)):
        best = np.argsort(-row)[:10]
        part.barh(names[best][::-1], (row[best] / row.sum())[::-1], color=ACCENT)
    return figure


def newsgroups(entry: catalog.Entry) -> Figure:
    """Held-out posts: true against predicted newsgroups."""
    train, test = posts()
    small = {"n_layers": 1, "width": 32, "n_heads": 2, "max_length": 48, "dropout": 0.0}
    small["training"] = Training(epochs=60, learning_rate=3e-3)
    transformer = "n_heads" in catalog.create(entry.id).get_params()
    model = fitted(entry, train.X, train.y, seconds=LONGER, **(small if transformer else {}))
    found = model.predict(test.X)
    title = f"{entry.name} on held-out posts, {LONGER:g} s of training: {share(test.y, found)}"
    return titled(plot.confusion(test.y, found), title)


def texts(entry: catalog.Entry) -> Figure:
    """Held-out posts as vectors, in the plane that tells the newsgroups apart best."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    train, test = posts()
    model = fitted(entry, train.X)
    Z = [np.array([np.mean(np.atleast_2d(z), 0) for z in model.transform(part.X)]) for part in (train, test)]
    plane = LinearDiscriminantAnalysis(n_components=2, solver="eigen", shrinkage="auto").fit(Z[0], train.y)
    title = f"{entry.name}: held-out posts as vectors, in the plane of the training posts' groups"
    return titled(plot.codes(plane.transform(Z[1]), test.y), title)


def continued(entry: catalog.Entry) -> Figure:
    """What a model trained for some seconds on Shakespeare writes."""
    plays = [text[:20000] for text in data.load("shakespeare").X[:10]]
    small = {"n_layers": 2, "width": 64, "max_length": 64, "training": Training(learning_rate=4e-3)}
    model = fitted(entry, plays, seconds=LONGER, **small)
    prompts = ["To be, or not to ", "My lord, ", "The king "]
    made = model.generate(prompts, max_new_tokens=120)
    lines = [(repr(text)[:95], INK) for text in made]
    return written(f"{entry.name} after {LONGER:g} s of Shakespeare, character by character", lines)


def reversals(entry: catalog.Entry) -> Figure:
    """Short words are written backwards."""
    rng = np.random.default_rng(0)
    X = ["".join(rng.choice(list("aeinrst"), rng.integers(3, 6))) for _ in range(2000)]
    y = [word[::-1] for word in X]
    plan = Training(epochs=300, batch_size=64, learning_rate=2e-3)
    model = fitted(entry, X[:1900], y[:1900], seconds=LONGER, training=plan)
    found = model.predict(X[1900:])
    lines = [
        (f"{a:>8}  ->  {b}", ACCENT if b == c else WARM) for a, b, c in zip(X[1900:1912], found, y[1900:])
    ]
    title = f"{entry.name} writes backwards what it has not seen: {share(y[1900:], found)} (orange: wrong)"
    return written(title, lines, 6)


def stories(entry: catalog.Entry) -> Figure:
    """Which facts a memory network looks at, hop by hop."""
    rng = np.random.default_rng(0)
    people, rooms = ["ann", "bob", "eve"], ["garden", "kitchen", "hall", "office"]
    X, y = [], []
    for _ in range(1500):
        walks = [(rng.choice(people), rng.choice(rooms)) for _ in range(5)]
        who = rng.choice([p for p, _ in walks])
        facts = [f"{p} went to the {r}" for p, r in walks]
        X.append("\n".join([*facts, f"where is {who}"]))
        y.append(str([r for p, r in walks if p == who][-1]))
    plan = Training(epochs=200, learning_rate=1e-2, batch_size=64)
    model = fitted(entry, X[:1400], y[:1400], training=plan)
    found = model.predict(X[1400:])
    facts, question = X[1400].split("\n")[:-1], X[1400].split("\n")[-1]
    seen = np.asarray(model.attention([X[1400]])[0])[:, : len(facts)]
    title = f"Unseen stories: {share(y[1400:], found)}. {question}? {found[0]}"
    figure, (axes,) = panels(1, title, 5, 2.8)
    axes.imshow(seen.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(seen)), [f"hop {i + 1}" for i in range(len(seen))])
    axes.set_yticks(range(len(facts)), facts[::-1])
    return figure
