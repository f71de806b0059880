"""Shakespeare by characters: a GPT against an LSTM of as many parameters, in the same time."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary import GPT, Run, Training, data
from corollary.language.decoder import filtered
from corollary.language.tokens import CharacterTokenizer
from results.tables import at_least, at_most, page, spread

HELD = ("hamlet", "tempest", "twelfth_night")
HELD_CHARACTERS = 20_000
CONTEXT, SECONDS, RATE, SEEDS = 64, 20.0, 3e-3, (0, 1, 2)
TEXT = """{train} works of Shakespeare to train on, every tenth of those there are ({characters:,} characters, {kinds} kinds of
them), one character a token. *Bits* are the mean of -log2 p per character over the first {held:,} characters of each of three
works held out ({names}), in windows of {context}. Both nets see windows of {context} characters in batches of 16 and train by
AdamW at a rate of {rate} with an exponential average of the weights (0.99), for {seconds:.0f} seconds of one core's own time
(other processes do not count; what lies between two epochs is interpolated): mean ± standard deviation
over {seeds} seeds. A uniform guess costs {uniform:.2f} bits,
the frequencies of the characters {unigram:.2f}, those after the character before {bigram:.2f}."""
PLAN = Training(
    99, learning_rate=RATE, batch_size=16, warmup=100, average=0.99, weight_decay=0.01, clip_norm=1.0
)


class RecurrentNetwork(nn.Module):
    """Two LSTMs between an embedding and a linear map: tokens (b, t) to logits (b, t, n_tokens)."""

    def __init__(self, n_tokens: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_tokens, 64)
        self.cells = nn.LSTM(64, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, n_tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token at every place."""
        return self.head(self.cells(self.tokens(tokens))[0])


class LSTM(GPT):
    """The same texts, windows, training and scores as GPT, with another network."""

    def _module(self) -> nn.Module:
        return RecurrentNetwork(self.n_tokens_, self.width)

    def _generate(self, prompts: Any, max_new_tokens: int, seed: int, **how: Any) -> list[str]:
        net, generator = self.module_, torch.Generator().manual_seed(seed)
        read, state, new = torch.tensor([self._prompt(prompts[0])]), None, []
        with torch.inference_mode():
            for _ in range(max_new_tokens):
                h, state = net.cells(net.tokens(read), state)
                chances = filtered(net.head(h[:, -1]), how["temperature"], top_p=how["top_p"]).softmax(-1)
                read = torch.multinomial(chances, 1, generator=generator)
                new.append(int(read))
        return [prompts[0] + self.tokenizer_.decode(new)]


def works() -> tuple[list[str], list[str]]:
    """Return the works to train on, and the beginnings of those held out, in plain characters."""
    found = data.load("shakespeare")
    plain = [text.replace("\r", "").encode("ascii", "ignore").decode() for text in found.X]
    parts = dict(zip(found.extra["titles"], plain))
    rest = [text for title, text in parts.items() if title not in HELD]
    return rest[::10], [parts[title][:HELD_CHARACTERS] for title in HELD]


@torch.inference_mode()
def bits(net: nn.Module, held: list[Tensor]) -> float:
    """Return bits per character of held texts (n,), in windows."""
    windows = torch.cat([codes.unfold(0, CONTEXT + 1, CONTEXT) for codes in held])
    logits = torch.cat([net(part[:, :-1]) for part in windows.split(64)])
    return float(F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())) / math.log(2)


def frequencies(train: list[str], held: list[str]) -> tuple[float, float]:
    """Return the bits per character of the held texts by character frequencies, alone and after one character."""
    tokenizer = CharacterTokenizer.train(train + held)
    n = tokenizer.size
    counts = torch.ones(n, n, dtype=torch.float64)
    for text in train:
        codes = torch.from_numpy(tokenizer.encode(text))
        counts.view(-1).add_(torch.bincount(codes[:-1] * n + codes[1:], minlength=n * n))
    codes = torch.from_numpy(tokenizer.encode("".join(held)))
    alone, after = counts.sum(0) / counts.sum(), counts / counts.sum(1, keepdim=True)
    return -float(alone[codes].log2().mean()), -float(after[codes[:-1], codes[1:]].log2().mean())


def curve(model: GPT, train: list[str], held: list[str]) -> np.ndarray:
    """Train until the time is up; return (seconds of the core, held-out bits) after every epoch."""
    found: list[tuple[float, float]] = []
    idle, began = 0.0, time.process_time()

    def watch(event: Any) -> bool:
        nonlocal idle
        spent = time.process_time() - began - idle
        codes = [torch.from_numpy(model.tokenizer_.encode(text)) for text in held]
        found.append((spent, bits(event.learner.result(), codes)))
        idle = time.process_time() - began - spent
        return spent >= SECONDS

    with Run(progress=False, callbacks=[watch]):
        model.fit(train)
    return np.array(found)


def run(out: Path) -> dict[str, Any]:
    """Train both, assert that both have learned to spell, and show what they write."""
    torch.set_num_threads(1)
    train, held = works()
    known = set("".join(train))
    held = ["".join(c for c in text if c in known) for text in held]
    curves: dict[str, list[np.ndarray]] = {}
    for seed in SEEDS:
        models = {
            "GPT, 3 layers of 96": GPT(3, width=96, max_length=CONTEXT, training=PLAN, random_state=seed),
            "LSTM, 2 layers of 155": LSTM(2, width=155, max_length=CONTEXT, training=PLAN, random_state=seed),
        }
        for name, model in models.items():
            curves.setdefault(name, []).append(curve(model, train, held))
    final = {name: [float(np.interp(SECONDS, *points.T)) for points in runs] for name, runs in curves.items()}
    sizes = {name: sum(p.numel() for p in m.module_.parameters()) for name, m in models.items()}
    kinds = next(iter(models.values())).n_tokens_
    unigram, bigram = frequencies(train, held)
    draw(curves, bigram, out / "shakespeare.png")
    text = TEXT.format(
        train=len(train), characters=sum(map(len, train)), kinds=kinds - 1, held=HELD_CHARACTERS,
        names=", ".join(HELD), context=CONTEXT, seeds=len(SEEDS), rate=RATE, seconds=SECONDS,
        uniform=math.log2(kinds), unigram=unigram, bigram=bigram,
    )  # fmt: skip
    passes = {name: SECONDS / runs[-1][-1, 0] * models[name].n_iter_ for name, runs in curves.items()}
    rows = [(name, f"{sizes[name]:,}", f"{passes[name]:.1f}", spread(final[name])) for name in models]
    rows.append(("frequencies after one character", f"{kinds**2:,}", "1.0", f"{bigram:.3f}"))
    headings = ("model", "weights", "passes over the texts", f"bits after {SECONDS:.0f} s")
    page(out / "shakespeare.md", "Shakespeare by characters", text, headings, rows)
    _append(out / "shakespeare.md", models)
    for name, values in final.items():
        at_most(max(values), bigram - 0.1, f"bits per character of {name}")
    gpt, lstm = sizes.values()
    at_most(abs(gpt / lstm - 1), 0.02, "the difference in size")
    at_least(min(points[-1, 0] for runs in curves.values() for points in runs), SECONDS, "the time spent")
    return {name: spread(values) for name, values in final.items()}


def _append(path: Path, models: dict[str, GPT]) -> None:
    """Add a text of each."""
    lines = []
    for name, model in models.items():
        made = model.generate("HAMLET.\n", max_new_tokens=400, temperature=0.8, top_p=0.95)
        lines += ["", f"## What the {name.split(',')[0]} writes", "", "```text", made.rstrip(), "```"]
    path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines) + "\n", encoding="utf-8")


def draw(curves: dict[str, list[np.ndarray]], bigram: float, path: Path) -> None:
    """Draw held-out bits against seconds of training."""
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for colour, (name, runs) in zip(("tab:blue", "tab:orange"), curves.items()):
        for points in runs:
            axis.plot(*points.T, "o-", color=colour, label=name if points is runs[0] else None)
    axis.axhline(bigram, color="grey", linestyle=":", label="frequencies after one character")
    axis.set(xlabel="seconds of training, one core", ylabel="bits per held-out character")
    axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
