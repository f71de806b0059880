"""A small graph with everything odd in it, and what a layer makes of it; for the tests of graph layers."""

from __future__ import annotations

import torch


def graph(n=12, edges=40, width=5, seed=0, dtype=torch.float32):
    """Directed, with several edges between the same nodes, two self-loops and an isolated node."""
    g = torch.Generator().manual_seed(seed)
    ends = torch.stack(
        [torch.randint(0, 5, (edges,), generator=g), torch.randint(5, n - 1, (edges,), generator=g)]
    )
    ends = torch.cat([ends, ends[:, :9].flip(0), torch.tensor([[2, 7], [2, 7]])], 1)
    ends = ends[:, torch.randperm(ends.shape[1], generator=g)]
    x = torch.randn(n, width, generator=g, dtype=dtype)
    return x, ends, torch.rand(ends.shape[1], generator=g, dtype=dtype) + 0.1


def results(layer, x, edges, *rest):
    """Return the output of a layer and the gradients of a loss by input, weights and parameters."""
    x = x.clone().requires_grad_()
    rest = tuple(r if r is None else r.clone().requires_grad_() for r in rest)
    out = layer(x, edges, *rest)
    (out * torch.arange(out.numel()).reshape(out.shape).cos()).sum().backward()
    return [out, x.grad, *(r.grad for r in rest if r is not None), *(p.grad for p in layer.parameters())]
