"""Tangent kernels: of finite networks against per-sample Jacobians by torch.func, of infinite ones against neural-tangents.

neural-tangents lives in an environment of its own (:mod:`bench.elsewhere`); its time includes one line through a pipe. Its
structured derivatives of finite networks do not run with the jax (0.4.30) that it can be installed with here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from bench.elsewhere import Elsewhere
from bench.harness import Draw, Pair, claim

CHUNK = 50  # samples whose Jacobians are held at a time: more do not fit into memory at the largest widths


def _same(ours: Tensor, peer: Any) -> dict[str, float]:
    peer = torch.from_numpy(peer.fetch()) if isinstance(peer, Elsewhere) else peer
    gap = float((ours - peer).abs().max() / peer.abs().max())
    # in single precision an angle of zero, on the peer's diagonal, is rounded by the root of the precision
    if gap > (3.5e-4 if peer.dtype == torch.float32 else 1e-4):
        raise AssertionError(f"the kernels differ by {gap:.1e}")
    return {"difference": gap}


def per_sample(net: nn.Module, X: Tensor) -> Tensor:
    """Return the kernel, averaged over outputs, from Jacobians that torch.func forms for every sample."""
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def outputs(parameters: dict[str, Any], x: Tensor) -> Tensor:
        return functional_call(net, parameters, (x[None],))[0]  # type: ignore[no-any-return]

    def rows(x: Tensor) -> Tensor:
        found = vmap(jacrev(outputs), (None, 0))(weights, x)
        return torch.cat([found[name].flatten(2) for name in weights], 2)

    blocks = [
        torch.cat([torch.einsum("nop,mop->nm", a, rows(y)) for y in X.split(CHUNK)], 1)
        for a in map(rows, X.split(CHUNK))
    ]
    return torch.cat(blocks) / net(X[:1]).shape[1]


@claim("empirical-ntk", peer="torch.func per-sample Jacobians", aim=20)
def empirical_ntk(draw: Draw) -> Pair:
    """Tangent kernel of a multi-layer perceptron"""
    from corollary.theory.ntk import empirical

    n, width = draw.size("samples", 50, 300), draw.size("width", 64, 512)
    torch.manual_seed(int(draw.rng.integers(2**31)))
    net = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    X = torch.from_numpy(draw.rng.normal(size=(n, 64))).float()
    return Pair(lambda: empirical(net, X), lambda: per_sample(net, X), _same, repeats=3)


@claim("infinite-kernel", peer="neural-tangents", aim=1.5)
def infinite(draw: Draw) -> Pair:
    """Both kernels of an infinitely wide network, one thousand samples

    An inverse cosine or sine for every pair and layer; jax's is in single precision where the data are.
    """
    from corollary.theory.infinite import infinite_kernels

    n, d = draw.size("samples", 800, 1200), draw.size("features", 10, 200)
    layers, phi = draw.choice("layers", (1, 2, 3)), draw.choice("activation", ("relu", "erf"))
    X = torch.from_numpy(draw.rng.normal(size=(n, d)).astype(draw.choice("type", ("float32", "float64"))))
    net = {"n_layers": layers, "activation": phi, "weight_std": 1.4, "bias_std": 0.1}
    return Pair(lambda: infinite_kernels(X, **net).ntk, Elsewhere(X=X.numpy(), **net), _same)
