"""English to Spanish: an encoder and a decoder with and without attention, and a transformer."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from corollary import Seq2Seq, Training, Transformer, data
from corollary.sequences import bleu, words
from results.tables import at_least, at_most, page

SHORTEST, LONGEST, TRAINED, TESTED, EPOCHS, WORDS = 3, 8, 20_000, 300, 6, 2000
TEXT = f"""Sentence pairs of Tatoeba (`tatoeba-en-es`) of {SHORTEST} to {LONGEST} words and marks on both sides: {TRAINED:,}
pairs to learn from, {TESTED} other English sentences to be tested on, none of which is among the first, with all the
translations that Tatoeba has of each as references. Words are the units; the {WORDS:,} most frequent of each language are
told apart. `Seq2Seq` with and without attention and `Transformer` have the same width (128), plan (Adam, each
with its default learning rate falling along a cosine, batches of 32, dropout 0.2) and number of epochs ({EPOCHS}), one seed,
and translate by a beam of 4. The loss is in nats per word and mark of the held-out references."""
SHOWN = 8
MODELS = {
    "Seq2Seq, no attention": lambda plan: Seq2Seq(attention=False, embedding_dimension=128, **_common(plan)),
    "Seq2Seq, attention": lambda plan: Seq2Seq(attention=True, embedding_dimension=128, **_common(plan)),
    "Transformer": lambda plan: Transformer(2, width=128, n_heads=4, inner_width=256, **_common(plan)),
}


def _common(plan: Training) -> dict[str, Any]:
    return {
        "dropout": 0.2, "unit": "word", "vocabulary_size": WORDS, "beam_size": 4, "training": plan, "random_state": 0,
    }  # fmt: skip


def run(out: Path) -> dict[str, Any]:
    """Train the three, translate what they have not seen, and assert that attention pays."""
    train, test = _pairs()
    asked = [*dict.fromkeys(x for x, _ in test)]
    references = [[words.split(y, "word") for x, y in test if x == sentence] for sentence in asked]
    plan = Training(epochs=EPOCHS, batch_size=32, schedule="cosine")
    rows, losses, scores, said, models = [], {}, {}, {}, {}
    for name, make in MODELS.items():
        start = perf_counter()
        model = models[name] = make(plan).fit(*map(list, zip(*train)))
        seconds = perf_counter() - start
        said[name] = model.predict(asked)
        scores[name] = bleu([words.split(text, "word") for text in said[name]], references)
        losses[name] = _held_out(model, test)
        weights = sum(p.numel() for p in model.module_.parameters())
        rows.append((name, f"{weights:,}", losses[name], 100 * scores[name], round(seconds)))
    _plot(out / "translation.png", models, asked, said["Seq2Seq, attention"])
    headings = ("model", "weights", "held-out loss", "BLEU", "seconds to fit")
    path = out / "translation.md"
    page(path, "English to Spanish", TEXT, headings, rows)
    path.write_text(path.read_text(encoding="utf-8") + _examples(asked, references, said), encoding="utf-8")
    plain, attention = "Seq2Seq, no attention", "Seq2Seq, attention"
    at_most(losses[attention], losses[plain] - 0.05, "held-out loss with attention")
    at_least(scores[attention], scores[plain], "BLEU with attention")
    at_most(losses["Transformer"], losses[plain], "held-out loss of the transformer")
    for name, floor in ((attention, 0.12), ("Transformer", 0.15)):
        at_least(scores[name], floor, f"BLEU of {name}")
    return {name: {"loss": losses[name], "bleu": scores[name]} for name in MODELS}


def _pairs() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return pairs to learn from and, of other English sentences, pairs to be tested on."""
    source = data.load("tatoeba-en-es")

    def fits(text: str) -> bool:
        return SHORTEST <= len(words.split(text, "word")) <= LONGEST

    pairs = [(x, y) for x, y in zip(source.X, source.y) if fits(x) and fits(y)]
    sentences = np.array(sorted({x for x, _ in pairs}))
    order = np.random.default_rng(0).permutation(len(sentences))
    held = set(sentences[order[:TESTED]])
    kept = [pair for pair in pairs if pair[0] not in held]
    chosen = np.random.default_rng(1).permutation(len(kept))[:TRAINED]
    return [kept[i] for i in chosen], [pair for pair in pairs if pair[0] in held]


def _held_out(model: Any, test: list[tuple[str, str]]) -> float:
    X, y = map(list, zip(*test))
    symbols = sum(len(words.split(text, "word")) + 1 for text in y)
    return float(-model.score_pairs(X, y).sum() / symbols)


def _examples(asked: list[str], references: Any, said: dict[str, list[str]]) -> str:
    """Return a table of the first sentences and what was made of them."""
    lines = ["\n| " + " | ".join(["English", "a reference", *said]) + " |", "|" + "---|" * (len(said) + 2)]
    for i in range(SHOWN):
        cells = [asked[i], words.join(references[i][0], "word"), *(texts[i] for texts in said.values())]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _plot(path: Path, models: dict[str, Any], asked: list[str], said: list[str]) -> None:
    """Draw the losses, and where the decoder looked in two sentences."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for name, model in models.items():
        axes[0].plot(
            [row["step"] for row in model.history_], [row["loss"] for row in model.history_], label=name
        )
    axes[0].set(xlabel="epoch", ylabel="training loss, nats per word")
    axes[0].legend()
    longest = sorted(range(SHOWN), key=lambda i: -len(said[i]))[:2]
    weights = models["Seq2Seq, attention"].attention_weights(
        [asked[i] for i in longest], [said[i] for i in longest]
    )
    for part, i, w in zip(axes[1:], longest, weights):
        part.imshow(w, cmap="viridis", vmin=0, vmax=1)
        part.set_xticks(range(w.shape[1]), [*words.split(asked[i], "word"), "end"], rotation=60)
        part.set_yticks(range(w.shape[0]), [*words.split(said[i], "word"), "end"])
    figure.savefig(path, dpi=110)
    plt.close(figure)
