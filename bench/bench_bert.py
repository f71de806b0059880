"""BERT against transformers: training steps with copied weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from bench.harness import THREADS, Draw, Pair, claim

STEPS = 3


@claim("bert-train", peer="transformers", aim=1.1)
def bert_train(draw: Draw) -> Pair:
    """BERT pre-training step"""
    import transformers

    from corollary import BERT

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    vocabulary, width = draw.size("vocabulary", 2000, 16000), draw.choice("width", (128, 192, 256))
    texts, length = draw.size("texts", 4, 32), draw.choice("length", (32, 64, 128))
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=draw.choice("layers", (2, 4, 6)),
        num_attention_heads=4,
        intermediate_size=4 * width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    peer = transformers.BertForPreTraining(config)
    ours = BERT.from_transformers(peer).module_
    tokens, follows = torch.randint(5, vocabulary, (texts, length)), torch.randint(0, 2, (texts,))
    chosen = torch.rand(texts, length) < 0.15
    labels = torch.where(chosen, tokens, -100)

    def theirs() -> Any:
        return peer(tokens, labels=labels, next_sentence_label=follows).loss

    def mine() -> Any:
        guesses, logits = ours(tokens, None, None, chosen)
        return F.cross_entropy(guesses, tokens[chosen]) + F.cross_entropy(logits, follows)

    return Pair(_trainer(ours, mine), _trainer(peer, theirs), _equal)


def _trainer(module: torch.nn.Module, loss: Any) -> Any:
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4, fused=True)
    module.train()

    def train() -> float:
        for _ in range(STEPS):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
        return float(value.detach())

    return train


def _equal(ours: float, peer: float) -> dict[str, float]:
    if abs(ours - peer) > 1e-3:
        raise AssertionError(f"losses after the same steps differ: {ours} and {peer}")
    return {"loss": ours, "difference": abs(ours - peer)}
