"""What distillation, fine-tuning, a second task and self-supervision are worth on real data, five seeds each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from corollary import (
    Bagging,
    ContrastivePredictiveCoding,
    Distiller,
    ImageClassifier,
    MLPClassifier,
    MultiTaskNet,
    RotationPretrainer,
    Training,
    data,
    linear_probe,
)
from results.tables import at_least, page

SEEDS = 5
KEPT = "transfer.json"  # what every case found, so that one can be run alone
NOT_CLAIMED = ("distillation, teacher of the same labels",)  # where no gain was found
TEXT = f"""Accuracy in %, mean ± standard deviation over {SEEDS} seeds, each with other samples; *gain* is the mean of the
differences, seed by seed, and in how many seeds it is positive. *Distillation*: a net of 12 hidden units learns scikit-learn's
8 × 8 digits from 200 labels for 300 epochs, alone, or by `Distiller` with its defaults from these labels and from what ten nets
of 64 units by `Bagging` say of them, which have learned 800 labels; or the same 200, where there is nothing to gain,
because such a teacher is hardly better than the net alone; or the same 200 of which 40 are wrong, which the teacher
averages out; or these, and speak of 600 digits without labels too; measured on the other 997. *Fine-tuning*: LeNet
as `ImageClassifier` learns the MNIST digits 5 to 9 from 100 labels, from scratch, or from weights that have learned the
digits 0 to 4 from 2,000; measured on 2,000 others. *Several tasks*: which of the ten digits it is, from 100 labels, by
`MultiTaskNet` alone, or with a second head that learns odd or even from 1,000; measured on the other 797. *Probes*: a
linear classifier in five folds on the features of 500 samples that the net has not seen, from an untrained net, or from the
same net (the default of each) after `RotationPretrainer` has seen other clothes of Fashion-MNIST, or
`ContrastivePredictiveCoding` other spoken digits, both without labels. A gain that is not positive in most seeds is no
gain: nothing is claimed for it. `TRANSFER="coding" python -m results transfer` runs one case again."""


def _digits(seed: int) -> tuple[Any, Any]:
    digits = data.load("digits", "table")
    order = np.random.default_rng(seed).permutation(len(digits.y))
    return digits.X[order], digits.y[order]


def distillation(seed: int, known: int = 800, seen: int = 200, wrong: float = 0.0) -> tuple[float, float]:
    """Return the accuracy of a small net with 200 labels alone, and of one that a teacher taught.

    The teacher learns ``known`` labels, of which a share may be ``wrong``, and speaks of ``seen`` samples.
    """
    X, y = _digits(seed)
    labels, some = y.copy(), int(wrong * 200)
    labels[:some] = (labels[:some] + np.random.default_rng(seed).integers(1, 10, size=some)) % 10
    small = MLPClassifier((12,), training=Training(epochs=300), random_state=seed)
    teacher = Bagging(MLPClassifier((64,), training=Training(epochs=60)), 10, random_state=seed)
    teacher.fit(X[:known], labels[:known])
    distiller = Distiller(teacher, small, random_state=seed)
    taught = distiller.fit(X[:200], labels[:200]) if seen == 200 else distiller.fit(X[:seen])
    alone = small.fit(X[:200], labels[:200])
    return alone.score(X[800:], y[800:]), taught.score(X[800:], y[800:])


def same_labels(seed: int) -> tuple[float, float]:
    """Return the same where the teacher has learned no more labels than the student sees."""
    return distillation(seed, known=200)


def wrong_labels(seed: int) -> tuple[float, float]:
    """Return the same where a fifth of the labels are wrong, for teacher and student alike."""
    return distillation(seed, known=200, wrong=0.2)


def unlabelled(seed: int) -> tuple[float, float]:
    """Return the same where the teacher also speaks of 600 digits without labels."""
    return distillation(seed, known=200, seen=800, wrong=0.2)


def fine_tuning(seed: int) -> tuple[float, float]:
    """Return the accuracy of LeNet with 100 labels from scratch, and from weights that know other digits."""
    mnist = data.load("mnist")
    X, y = np.asarray(mnist.X[:20000], dtype=np.float32) / 255, np.asarray(mnist.y[:20000])
    order = np.random.default_rng(seed).permutation(20000)
    low, high = order[y[order] < 5][:2000], order[y[order] >= 5]
    few, rest = high[:100], high[100:2100]
    plan = Training(epochs=60, learning_rate=1e-3, batch_size=32)
    scratch = ImageClassifier("lenet", training=plan, random_state=seed).fit(X[few], y[few])
    first = Training(epochs=8, learning_rate=2e-3, batch_size=64)
    base = ImageClassifier("lenet", training=first, random_state=seed).fit(X[low], y[low])
    tuned = base.fine_tune(X[few], y[few], training=plan)
    return scratch.score(X[rest], y[rest]), tuned.score(X[rest], y[rest])


def tasks(seed: int) -> tuple[float, float]:
    """Return the accuracy of ten digits from 100 labels alone, and beside odd or even of 1,000."""
    X, y = _digits(seed)
    few = np.where(np.arange(1000) < 100, y[:1000].astype(float), np.nan)
    alone = MultiTaskNet(training=Training(epochs=400, learning_rate=2e-3), random_state=seed)
    both = MultiTaskNet(
        tasks={"digit": "classification"},
        training=Training(epochs=40, learning_rate=2e-3),  # as many updates
        random_state=seed,
    )
    both.fit(X[:1000], {"digit": few, "odd": y[:1000] % 2 == 1})
    right = float(np.mean(both.predict(X[1000:])["digit"] == y[1000:]))
    return alone.fit(X[:100], y[:100]).score(X[1000:], y[1000:]), right


def _probes(model: Any, seen: Any, X: Any, y: Any) -> tuple[float, float]:
    """Return the probe of the features of an untrained net, and of the trained one."""
    still = Training(epochs=1, learning_rate=1e-12)  # no step that a float could hold
    before = type(model)(**{**model.get_params(deep=False), "training": still}).fit(seen)
    return linear_probe(before.transform(X), y), linear_probe(model.fit(seen).transform(X), y)


def rotation(seed: int) -> tuple[float, float]:
    """Return the probes of a net's features of clothes."""
    clothes = data.load("fashion-mnist")
    rows = np.random.default_rng(seed).permutation(20000)[:2500]
    X, y = np.asarray(clothes.X[rows], dtype=np.float32) / 255, np.asarray(clothes.y[rows])
    plan = Training(epochs=6, learning_rate=2e-3, batch_size=64)
    model = RotationPretrainer(training=plan, random_state=seed)
    return _probes(model, X[:2000], X[2000:], y[2000:])


def coding(seed: int) -> tuple[float, float]:
    """Return the probes of features of spoken digits."""
    spoken = data.load("spoken-digits")
    rows = np.random.default_rng(seed).permutation(len(spoken.y))
    X, y = [spoken.X[i] for i in rows], np.asarray(spoken.y)[rows]
    model = ContrastivePredictiveCoding(32, training=Training(epochs=20), random_state=seed)
    return _probes(model, X[500:2000], X[:500], y[:500])


CASES = {
    "distillation": ("net alone", "taught net", distillation),
    "distillation, teacher of the same labels": ("net alone", "taught net", same_labels),
    "distillation, a fifth of the labels wrong": ("net alone", "taught net", wrong_labels),
    "distillation, a fifth wrong, samples without labels": ("net alone", "taught net", unlabelled),
    "fine-tuning, 100 labels": ("from scratch", "fine-tuned", fine_tuning),
    "several tasks": ("one head", "two heads", tasks),
    "probe, rotations of clothes": ("untrained", "pre-trained", rotation),
    "probe, coding of spoken digits": ("untrained", "pre-trained", coding),
}


def measured(out: Path) -> dict[str, np.ndarray]:
    """Return what every case found, (seeds, 2) in %; run all, or those whose name holds the variable TRANSFER."""
    wanted = os.environ.get("TRANSFER", "")
    found = {}
    for name, (_, _, measure) in CASES.items():
        path = out / KEPT
        if wanted in name:
            values = [measure(seed) for seed in range(SEEDS)]
            kept = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps({**kept, name: values}, indent=1) + "\n")
        kept = json.loads(path.read_text()) if path.exists() else {}
        if name in kept:
            found[name] = 100 * np.array(kept[name])
    return found


def run(out: Path) -> dict[str, Any]:
    """Measure all, write the page, and assert the gains that are claimed."""
    rows, gains = [], {}
    for name, found in measured(out).items():
        first, second, _ = CASES[name]
        gain = found[:, 1] - found[:, 0]
        cells = [f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for values in found.T]
        won = f"{gain.mean():+.1f} ({int((gain > 0).sum())} of {len(gain)})"
        rows.append((name, f"{first}: {cells[0]}", f"{second}: {cells[1]}", won))
        gains[name] = float(gain.mean())
    headings = ("what", "without", "with", "gain (seeds)")
    page(out / "transfer.md", "Distillation, fine-tuning and self-supervision", TEXT, headings, rows)
    for name in gains.keys() - {*NOT_CLAIMED}:
        at_least(gains[name], 0.0, f"the gain of {name}")
    return gains
