"""Fashion-MNIST under attack: a plain, an adversarially trained and a spectrally penalised LeNet.

The variable ROBUSTNESS=tiny runs all of it in seconds, on few images, and writes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from corollary import ImageClassifier, Training, attack, data
from results.tables import at_least, page

EPS = 0.1  # of the l-infinity attacks, pixels from 0 to 1
SIZES = {
    "full": {"images": 2000, "attacked": 300, "epochs": 8, "seeds": (0, 1, 2), "steps": 40},
    "tiny": {"images": 400, "attacked": 40, "epochs": 1, "seeds": (0, 1), "steps": 3},
}
DEFENCES: dict[str, dict[str, Any]] = {
    "plain": {},
    "adversarial": {"adversary": attack.PGD(EPS, steps=5, bounds=(0, 1))},
    "spectral": {"spectral": 0.05},
}
TEXT = """Test accuracy of `ImageClassifier("lenet")` on Fashion-MNIST, without attack and under FGSM and PGD ({steps} steps)
within {eps} in the l-infinity norm (pixels lie in [0, 1]), and the median l2 length of DeepFool's changes. Mean and standard
deviation over {seeds} seeds; {epochs} epochs on the first {images:,} training images, a small budget for a machine of two
cores; the first {attacked:,} test images are attacked. The adversarially trained net saw PGD with 5 steps of the same radius;
the penalty is `Training(spectral=0.05)`, on the norms of the layers. PGD bounds the robust accuracy
from above: a stronger attack may find more. {verdict}"""


def run(out: Path) -> dict[str, Any]:
    """Train every net with every seed, attack it, and assert that adversarial training helps most."""
    name = "tiny" if os.environ.get("ROBUSTNESS") == "tiny" else "full"
    size = SIZES[name]
    parts = {defence: [part(defence, seed, name) for seed in size["seeds"]] for defence in DEFENCES}
    found = {defence: np.array([numbers for numbers, _ in each]) for defence, each in parts.items()}
    means = {defence: numbers.mean(0) for defence, numbers in found.items()}
    result = {defence: numbers.round(3).tolist() for defence, numbers in means.items()}
    if name == "tiny":
        return result
    headings = ("net", "accuracy", "under FGSM", "under PGD", "DeepFool's median change")
    rows: list[tuple[str, ...]] = [(defence, *_spread(numbers)) for defence, numbers in found.items()]
    share = f"{_most_frequent(size['attacked']):.3f}"
    rows.append(("always the same class", share, share, share, "none changes it"))
    text = TEXT.format(**{**size, "eps": EPS, "seeds": len(size["seeds"]), "verdict": _verdict(means)})
    _plot(out / "robustness.png", {defence: each[0][1] for defence, each in parts.items()})
    page(out / "robustness.md", "Fashion-MNIST under attack", text, headings, rows)
    at_least(means["plain"][0], 0.7, "accuracy of the plain net")
    at_least(means["adversarial"][2] - means["plain"][2], 0.25, "what adversarial training adds under PGD")
    at_least(means["adversarial"][3] / means["plain"][3], 1.3, "longer changes by adversarial training")
    return result


def part(defence: str, seed: int, name: str) -> tuple[list[float], list[np.ndarray]]:
    """Train one net and attack it; return its numbers, and images before and after."""
    size = SIZES[name]
    clothes = data.load("fashion-mnist")
    train, test = clothes.extra["split"]
    X, y = clothes.X[train[: size["images"]]], clothes.y[train[: size["images"]]]
    plan = Training(epochs=size["epochs"], learning_rate=2e-3, schedule="cosine", **DEFENCES[defence])
    model = ImageClassifier("lenet", training=plan, random_state=seed).fit(X, y)
    few = test[: size["attacked"]]
    return _measured(model, clothes.X[few], clothes.y[few], size["steps"], seed)


def _verdict(means: dict[str, np.ndarray]) -> str:
    """Say what the defences gain and cost, from the numbers."""
    plain = means["plain"]
    said = []
    for defence in ("adversarial", "spectral"):
        gain = means[defence] - plain
        far = means[defence][3] / plain[3]
        said.append(
            f"{defence} {gain[2]:+.2f} under PGD, {gain[0]:+.2f} without attack, changes {far:.2f} times as long"
        )
    return f"Against the plain net: {'; '.join(said)}."


def _most_frequent(n: int) -> float:
    clothes = data.load("fashion-mnist")
    labels = np.asarray(clothes.y[clothes.extra["split"][1][:n]])
    return float(np.unique(labels, return_counts=True)[1].max() / n)


def _measured(model: Any, X: Any, y: Any, steps: int, seed: int) -> tuple[list[float], list[np.ndarray]]:
    """Return the accuracies, DeepFool's median change, and a few images before and after."""
    within = {"eps": EPS, "bounds": (0, 1), "random_state": seed}
    one = attack.fgsm(model, X, y, **within)
    many = attack.pgd(model, X, y, steps=steps, **within)
    deep = attack.deepfool(model, X, y, bounds=(0, 1))
    numbers = [
        model.score(X, y),
        1 - one.success_rate,
        1 - many.success_rate,
        float(np.median(deep.distance)),
    ]
    return numbers, [np.asarray(X[:5]) / 255, many.adversarial[:5], deep.adversarial[:5]]


def _spread(numbers: np.ndarray) -> list[str]:
    return [f"{mean:.3f} ± {std:.3f}" for mean, std in zip(numbers.mean(0), numbers.std(0, ddof=1))]


def _plot(path: Path, examples: dict[str, list[np.ndarray]]) -> None:
    """Draw images, what PGD and what DeepFool made of them, for every net."""
    from matplotlib.figure import Figure

    from corollary import plot

    figure = Figure(figsize=(9, 1.9 * len(examples)), layout="constrained")
    grid = figure.add_gridspec(len(examples), 15)
    for i, (defence, parts) in enumerate(examples.items()):
        for j, (title, images) in enumerate(zip(("image", "PGD", "DeepFool"), parts)):
            for k, image in enumerate(images):
                axes = figure.add_subplot(grid[i, 5 * j + k])
                axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
                axes.set(xticks=[], yticks=[])
                if k == 2:
                    axes.set_title(f"{defence}: {title}", fontsize=8)
    plot.save(figure, path)
