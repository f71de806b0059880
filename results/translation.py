"""English to Spanish: an encoder and a decoder with and without attention, and a transformer."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from corollary import Seq2Seq, Training, Transformer, data
from corollary.sequences import bleu, words
from results.tables import at_least, at_most, page, spread

SHORTEST, LONGEST, TRAINED, TESTED, EPOCHS, WORDS, SEEDS = 3, 8, 20_000, 300, 6, 2000, (0, 1, 2)
TEXT = f"""Sentence pairs of Tatoeba (`tatoeba-en-es`) of {SHORTEST} to {LONGEST} words and marks on both sides: {TRAINED:,}
pairs to learn from, {TESTED} other English sentences to be tested on, none of which is among the first, with all the
translations that Tatoeba has of each as references. Words are the units; the {WORDS:,} most frequent of each language are
told apart. `Seq2Seq` with and without attention and `Transformer` have the same width (128), plan (Adam, each
with its default learning rate falling along a cosine, batches of 32, dropout 0.2) and number of epochs ({EPOCHS}), and
translate by a beam of 4: mean ± standard deviation over {len(SEEDS)} seeds. The loss is in nats per word and mark of the held-out
references. *Nearest sentence* answers with the translation of the known English sentence that is nearest by tf-idf.
Seconds are those of one core that others used too."""
SHOWN = 8
FLOOR = 12.0  # BLEU of the models with attention
PLAIN, ATTENTION = "Seq2Seq, no attention", "Seq2Seq, attention"
AIMED = (ATTENTION, "Transformer")
MODELS = {
    PLAIN: lambda plan, seed: Seq2Seq(attention=False, embedding_dimension=128, **_common(plan, seed)),
    ATTENTION: lambda plan, seed: Seq2Seq(attention=True, embedding_dimension=128, **_common(plan, seed)),
    "Transformer": lambda plan, seed: Transformer(
        2, width=128, n_heads=4, inner_width=256, **_common(plan, seed)
    ),
}


def _common(plan: Training, seed: int) -> dict[str, Any]:
    return {
        "dropout": 0.2, "unit": "word", "vocabulary_size": WORDS, "beam_size": 4, "training": plan, "random_state": seed,
    }  # fmt: skip


def run(out: Path) -> dict[str, Any]:
    """Train the three, translate what they have not seen, and assert that attention pays."""
    train, test = _pairs()
    asked = [*dict.fromkeys(x for x, _ in test)]
    references = [[words.split(y, "word") for x, y in test if x == sentence] for sentence in asked]
    plan = Training(epochs=EPOCHS, batch_size=32, schedule="cosine")
    losses: dict[str, list[float]] = {name: [] for name in MODELS}
    scores: dict[str, list[float]] = {name: [] for name in MODELS}
    seconds, said, models = dict.fromkeys(MODELS, 0.0), {}, {}
    for seed in SEEDS:
        for name, make in MODELS.items():
            start = perf_counter()
            model = models[name] = make(plan, seed).fit(*map(list, zip(*train)))
            seconds[name] += (perf_counter() - start) / len(SEEDS)
            said[name] = model.predict(asked)
            scores[name].append(100 * _bleu(said[name], references))
            losses[name].append(_held_out(model, test))
    weights = {name: sum(p.numel() for p in model.module_.parameters()) for name, model in models.items()}
    rows = [
        (name, f"{weights[name]:,}", spread(losses[name]), spread(scores[name], 1), round(seconds[name]))
        for name in MODELS
    ]
    nearest = 100 * _bleu(_nearest(train, asked), references)
    rows.append(("nearest sentence", "0", "", f"{nearest:.1f}", 0))
    loss, score = ({name: float(np.mean(v)) for name, v in d.items()} for d in (losses, scores))
    _plot(out / "translation.png", models, asked, said[ATTENTION])
    headings = ("model", "weights", "held-out loss", "BLEU", "seconds to fit")
    path = out / "translation.md"
    page(path, "English to Spanish", TEXT + _verdict(score, nearest), headings, rows)
    path.write_text(path.read_text(encoding="utf-8") + _examples(asked, references, said), encoding="utf-8")
    plain, attention = PLAIN, ATTENTION
    at_most(loss[attention], loss[plain] - 0.05, "held-out loss with attention")
    at_least(score[attention], score[plain], "BLEU with attention")
    at_most(loss["Transformer"], loss[plain], "held-out loss of the transformer")
    for name in AIMED:
        at_least(score[name], FLOOR, f"BLEU of {name}")
    return {name: {"loss": loss[name], "bleu": score[name]} for name in MODELS}


def _verdict(score: dict[str, float], nearest: float) -> str:
    """Return what the scores are not good enough for, as the page says it."""
    worse = [name for name in score if score[name] < nearest]
    missed = [name for name in AIMED if score[name] < FLOOR]
    text = f"\n**Worse than the nearest sentence**: {'; '.join(worse)}." if worse else ""
    return text + (f" **Below the floor** of {FLOOR:g} BLEU: {'; '.join(missed)}." if missed else "")


def _bleu(said: list[str], references: Any) -> float:
    return bleu([words.split(text, "word") for text in said], references)


def _nearest(train: list[tuple[str, str]], asked: list[str]) -> list[str]:
    """Return the translations of the nearest known sentences."""
    reader = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", sublinear_tf=True)
    known = reader.fit_transform([x for x, _ in train])
    return [train[i][1] for i in (reader.transform(asked) @ known.T).toarray().argmax(axis=1)]


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
    weights = models[ATTENTION].attention_weights([asked[i] for i in longest], [said[i] for i in longest])
    for part, i, w in zip(axes[1:], longest, weights):
        part.imshow(w, cmap="viridis", vmin=0, vmax=1)
        part.set_xticks(range(w.shape[1]), [*words.split(asked[i], "word"), "end"], rotation=60)
        part.set_yticks(range(w.shape[0]), [*words.split(said[i], "word"), "end"])
    figure.savefig(path, dpi=110)
    plt.close(figure)
