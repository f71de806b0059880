"""What distillation, fine-tuning and self-supervision are worth on real digits, five seeds each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from corollary import (
    Bagging,
    ContrastivePredictiveCoding,
    Distiller,
    ImageClassifier,
    MLPClassifier,
    RotationPretrainer,
    Training,
    data,
    linear_probe,
)
from results.tables import at_least, page

SEEDS = 5
TEXT = f"""Accuracy in %, mean ± standard deviation over {SEEDS} seeds, each with other samples; *gain* is the mean of the
differences, seed by seed, and in how many seeds it is positive. *Distillation*: a net of 12 hidden units learns
scikit-learn's 8 × 8 digits from 200 labels, or by `Distiller` (temperature 2) from what ten nets of 64 units by
`Bagging`, which learned the same 200 labels, say of these and of 600 digits without labels; measured on the other 997.
*Fine-tuning*: LeNet as `ImageClassifier` learns the digits 5 to 9 from 100 labels, from scratch, or from weights that
have learned the digits 0 to 4; measured on the rest of the digits 5 to 9. *Probes*: a linear
classifier on features of 500 samples in five folds, from an untrained net, or from the same net after `RotationPretrainer` has
seen these digits, or `ContrastivePredictiveCoding` these spoken digits, both without labels. A gain
that is not positive in most seeds is no gain: nothing is claimed for it."""


def distillation(seed: int) -> tuple[float, float]:
    """Return the accuracy of a small net with 200 labels alone, and of one that a teacher with these labels taught."""
    digits = data.load("digits", "table")
    order = np.random.default_rng(seed).permutation(len(digits.y))
    labelled, seen, test = order[:200], order[:800], order[800:]
    X, y = digits.X[labelled], digits.y[labelled]
    small = MLPClassifier((12,), training=Training(epochs=100), random_state=seed)
    teacher = Bagging(MLPClassifier((64,), training=Training(epochs=60)), 10, random_state=seed).fit(X, y)
    taught = Distiller(teacher, small, temperature=2.0, random_state=seed).fit(digits.X[seen])
    alone = small.fit(X, y)
    return alone.score(digits.X[test], digits.y[test]), taught.score(digits.X[test], digits.y[test])


def fine_tuning(seed: int) -> tuple[float, float]:
    """Return the accuracy of LeNet with 100 labels from scratch, and from weights that know other digits."""
    digits = data.load("digits")
    rng = np.random.default_rng(seed)
    low = np.flatnonzero(digits.y < 5)
    high = rng.permutation(np.flatnonzero(digits.y >= 5))
    few, rest = high[:100], high[100:]
    plan = Training(epochs=60, learning_rate=2e-3, batch_size=32)
    scratch = ImageClassifier("lenet", training=plan, random_state=seed)
    first = Training(epochs=20, learning_rate=2e-3, batch_size=32)
    base = ImageClassifier("lenet", training=first, random_state=seed).fit(digits.X[low], digits.y[low])
    tuned = base.fine_tune(digits.X[few], digits.y[few], training=plan)
    scratch.fit(digits.X[few], digits.y[few])
    return scratch.score(digits.X[rest], digits.y[rest]), tuned.score(digits.X[rest], digits.y[rest])


def _probes(model: Any, X: Any, y: Any) -> tuple[float, float]:
    """Return the probe of the features of an untrained net, and of the trained one."""
    still = Training(epochs=1, learning_rate=1e-12)  # no step that a float could hold
    before = type(model)(**{**model.get_params(deep=False), "training": still}).fit(X)
    return linear_probe(before.transform(X), y), linear_probe(model.fit(X).transform(X), y)


def rotation(seed: int, net: str = "resnet", width: int | None = 8) -> tuple[float, float]:
    """Return the probes of a net's features of digits."""
    digits = data.load("digits")
    rows = np.random.default_rng(seed).permutation(len(digits.y))[:500]
    model = RotationPretrainer(net, width=width, training=Training(epochs=15), random_state=seed)
    return _probes(model, digits.X[rows], digits.y[rows])


def rotation_lenet(seed: int) -> tuple[float, float]:
    """Return the same of LeNet, whose last features are those of a full layer."""
    return rotation(seed, "lenet", None)


def coding(seed: int) -> tuple[float, float]:
    """Return the probes of features of spoken digits."""
    spoken = data.load("spoken-digits")
    rows = np.random.default_rng(seed).permutation(len(spoken.y))[:500]
    model = ContrastivePredictiveCoding(32, training=Training(epochs=20), random_state=seed)
    return _probes(model, [spoken.X[i] for i in rows], np.asarray(spoken.y)[rows])


CASES = {
    "distillation": ("net alone", "taught net", distillation),
    "fine-tuning, 100 labels": ("from scratch", "fine-tuned", fine_tuning),
    "probe, rotations of digits, ResNet": ("untrained", "pre-trained", rotation),
    "probe, rotations of digits, LeNet": ("untrained", "pre-trained", rotation_lenet),
    "probe, coding of spoken digits": ("untrained", "pre-trained", coding),
}
SHOWN = {"probe, rotations of digits, LeNet"}  # without a floor


def run(out: Path) -> dict[str, Any]:
    """Measure all, write the page, and assert that each mean gain is positive."""
    rows, gains = [], {}
    for name, (first, second, measure) in CASES.items():
        found = 100 * np.array([measure(seed) for seed in range(SEEDS)])
        gain = found[:, 1] - found[:, 0]
        cells = [f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for values in found.T]
        won = f"{gain.mean():+.1f} ({int((gain > 0).sum())} of {SEEDS})"
        rows.append((name, f"{first}: {cells[0]}", f"{second}: {cells[1]}", won))
        gains[name] = float(gain.mean())
    headings = ("what", "without", "with", "gain (seeds)")
    page(out / "transfer.md", "Distillation, fine-tuning and self-supervision", TEXT, headings, rows)
    for name in set(gains) - SHOWN:
        at_least(gains[name], 0.0, f"the gain of {name}")
    return gains
