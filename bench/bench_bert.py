"""BERT against transformers: training steps with copied weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from bench.harness import THREADS, Pair, claim

STEPS = 3


@claim("bert-train", peer="transformers", floor=1.15)
def bert_train() -> Pair:
    """BERT pre-training step, 4 layers of width 256, 8,000 tokens, 16 texts of 128."""
    import transformers

    from corollary import BERT

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=8000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    peer = transformers.BertForPreTraining(config)
    ours = BERT.from_transformers(peer).module_
    tokens, follows = torch.randint(5, 8000, (16, 128)), torch.randint(0, 2, (16,))
    chosen = torch.rand(16, 128) < 0.15
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
