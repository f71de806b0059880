"""GPT against transformers' GPT-2 with the same weights: generation and training."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F

from bench.harness import THREADS, Pair, claim

CONFIG = {
    "vocab_size": 1000, "n_positions": 512, "n_embd": 128, "n_layer": 4, "n_head": 4, "bos_token_id": 0,
    "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
BATCH, LENGTH, STEPS, NEW = 16, 128, 4, 256


def _models() -> tuple[Any, Any]:
    torch.set_num_threads(THREADS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        peer = GPT2LMHeadModel(GPT2Config(**CONFIG, attn_implementation="sdpa"))
    from corollary import GPT

    return GPT.from_transformers(peer).module_, peer


def _same_tokens(ours: list[int], peer: list[int]) -> dict[str, float]:
    if ours != peer:
        raise AssertionError("the generated tokens differ")
    return {"tokens": len(ours)}


@claim("gpt-generate", peer="transformers", floor=3.0)
def gpt_generate() -> Pair:
    """GPT, 256 tokens from a prompt of 16, batch 1, greedy."""
    from corollary.language.decoder import generate

    module, peer = _models()
    peer.eval()
    prompt = torch.randint(0, 1000, (1, 16), generator=torch.Generator().manual_seed(0))
    how = {
        "do_sample": False,
        "pad_token_id": 0,
        "eos_token_id": None,
        "attention_mask": torch.ones_like(prompt),
    }

    def theirs() -> list[int]:
        return peer.generate(prompt, max_new_tokens=NEW, **how)[0, 16:].tolist()

    return Pair(lambda: generate(module, prompt.tolist(), NEW, temperature=0)[0], theirs, _same_tokens)


@claim("gpt-train", peer="transformers", floor=1.15)
def gpt_train() -> Pair:
    """GPT training step, 4 layers of 128, batch 16 of 128 tokens."""
    module, peer = _models()
    module.train()
    peer.train()
    x = torch.randint(0, 1000, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
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
