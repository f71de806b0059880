"""GPT against transformers' GPT-2 with the same weights: generation and training."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F

from bench.harness import THREADS, Draw, Pair, claim

STEPS = 4


def _models(draw: Draw) -> tuple[Any, Any, int]:
    """Return ours and the peer with the same weights, and the size of their vocabulary."""
    torch.set_num_threads(THREADS)
    vocabulary, heads = draw.size("vocabulary", 100, 10000), draw.choice("heads", (2, 4, 8))
    width = 32 * draw.choice("width / 32", (2, 4, 8))
    config = {
        "vocab_size": vocabulary, "n_positions": 512, "n_embd": width, "n_layer": draw.choice("layers", (2, 4, 6)),
        "n_head": heads, "bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        peer = GPT2LMHeadModel(GPT2Config(**config, attn_implementation="sdpa"))
    from corollary import GPT

    return GPT.from_transformers(peer).module_, peer, vocabulary


def _same_tokens(ours: list[int], peer: list[int]) -> dict[str, float]:
    if ours != peer:
        raise AssertionError("the generated tokens differ")
    return {"tokens": len(ours)}


@claim("gpt-generate", peer="transformers", aim=3.0)
def gpt_generate(draw: Draw) -> Pair:
    """GPT generation, greedy, batch 1"""
    from corollary.language.decoder import generate

    module, peer, vocabulary = _models(draw)
    peer.eval()
    start, new = draw.size("prompt", 4, 128), draw.size("tokens", 64, 320)
    prompt = torch.randint(0, vocabulary, (1, start), generator=torch.Generator().manual_seed(0))
    how = {
        "do_sample": False,
        "pad_token_id": 0,
        "eos_token_id": None,
        "attention_mask": torch.ones_like(prompt),
    }

    def theirs() -> list[int]:
        return peer.generate(prompt, max_new_tokens=new, **how)[0, start:].tolist()

    return Pair(lambda: generate(module, prompt.tolist(), new, temperature=0)[0], theirs, _same_tokens)


@claim("gpt-train", peer="transformers", aim=1.1)
def gpt_train(draw: Draw) -> Pair:
    """GPT training step

    Where the vocabulary is large and the network small, nearly all the time is the last product and its softmax, which are the
    same on both sides.
    """
    module, peer, vocabulary = _models(draw)
    module.train()
    peer.train()
    size = draw.size("texts", 4, 32), draw.choice("length", (32, 64, 128, 256))
    x = torch.randint(0, vocabulary, size, generator=torch.Generator().manual_seed(0))
    ours_step = torch.optim.AdamW(module.parameters(), 1e-3, fused=True)
    peer_step = torch.optim.AdamW(peer.parameters(), 1e-3)

    def ours() -> float:
        for _ in range(STEPS):
            ours_step.zero_grad()
            loss = F.cross_entropy(module(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            ours_step.step()
        return float(loss.detach())

    def theirs() -> float:
        for _ in range(STEPS):
            peer_step.zero_grad()
            loss = peer(x, labels=x).loss
            loss.backward()
            peer_step.step()
        return float(loss.detach())

    return Pair(ours, theirs, _same_loss)


def _same_loss(ours: float, peer: float) -> dict[str, float]:
    if abs(ours - peer) > 1e-3:
        raise AssertionError(f"losses after the same steps differ: {ours} and {peer}")
    return {"loss": ours, "difference": abs(ours - peer)}
