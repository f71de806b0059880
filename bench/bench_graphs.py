"""Graph layers against torch_geometric: whole training epochs with copied weights."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import THREADS, Pair, claim

NODES, EDGES, WIDTH, HIDDEN, CLASSES = 50_000, 500_000, 128, 64, 16
STEPS = 3  # epochs per sample


def _graph() -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    half = torch.randint(0, NODES, (2, EDGES // 2), generator=g)
    edges = torch.cat([half, half.flip(0)], 1)
    return torch.randn(NODES, WIDTH, generator=g), edges, torch.randint(0, CLASSES, (NODES,), generator=g)


class _Two(torch.nn.Module):
    """Two layers with a rectifier between them."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x, edges)), edges)


def _trainer(module: torch.nn.Module, x: Tensor, edges: Tensor, y: Tensor) -> Any:
    """Return a call that runs some epochs from the module's present state on."""
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, fused=True)

    def train() -> float:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(module(x, edges), y)
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    return train


def _equal(ours: float, peer: float) -> dict[str, float]:
    if abs(ours - peer) > 1e-4:
        raise AssertionError(f"losses after the same epochs differ: {ours} and {peer}")
    return {"loss": ours, "difference": abs(ours - peer)}


def _pair(ours: torch.nn.Module, peer: torch.nn.Module, csr: bool = False) -> Pair:
    torch.set_num_threads(THREADS)
    x, edges, y = _graph()
    ours.load_state_dict(peer.state_dict())
    form = edges
    if csr:
        from torch_geometric.utils import to_torch_csr_tensor

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            edges = torch.unique(edges, dim=1)  # the CSR form cannot hold an edge twice
            form = to_torch_csr_tensor(edges.flip(0), size=(NODES, NODES))
    return Pair(_trainer(ours, x, edges, y), _trainer(peer, x, form, y), _equal)


def _pyg() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.nn as pyg
    return pyg


def _gcn(kind: Any) -> _Two:
    torch.manual_seed(0)
    return _Two(kind.GCNConv(WIDTH, HIDDEN, cached=True), kind.GCNConv(HIDDEN, CLASSES, cached=True))


@claim("gcn-epoch", peer="torch_geometric", floor=4.0)
def gcn_epoch() -> Pair:
    """GCN epoch, 50,000 nodes, 500,000 edges."""
    from corollary import nn

    return _pair(_gcn(nn), _gcn(_pyg()))


@claim("gcn-epoch-csr", peer="torch_geometric", floor=1.0)
def gcn_epoch_csr() -> Pair:
    """GCN epoch, the peer given its CSR form."""
    from corollary import nn

    return _pair(_gcn(nn), _gcn(_pyg()), csr=True)


def _cheb(kind: Any) -> _Two:
    torch.manual_seed(0)
    return _Two(kind.ChebConv(WIDTH, HIDDEN, 3), kind.ChebConv(HIDDEN, CLASSES, 3))


def _gin(kind: Any) -> _Two:
    torch.manual_seed(0)

    def network(n_in: int, n_out: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(n_in, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, n_out)
        )

    return _Two(kind.GINConv(network(WIDTH, HIDDEN)), kind.GINConv(network(HIDDEN, CLASSES)))


def _gat(kind: Any) -> _Two:
    torch.manual_seed(0)
    return _Two(kind.GATConv(WIDTH, 8, heads=8), kind.GATConv(64, CLASSES))


@claim("cheb-epoch", peer="torch_geometric", floor=3.0)
def cheb_epoch() -> Pair:
    """ChebNet epoch with K=3, 50,000 nodes, 500,000 edges."""
    from corollary import nn

    return _pair(_cheb(nn), _cheb(_pyg()))


@claim("gin-epoch", peer="torch_geometric", floor=3.0)
def gin_epoch() -> Pair:
    """GIN epoch, 50,000 nodes, 500,000 edges."""
    from corollary import nn

    return _pair(_gin(nn), _gin(_pyg()))


@claim("gin-epoch-csr", peer="torch_geometric", floor=1.0)
def gin_epoch_csr() -> Pair:
    """GIN epoch, the peer given its CSR form."""
    from corollary import nn

    return _pair(_gin(nn), _gin(_pyg()), csr=True)


@claim("gat-epoch", peer="torch_geometric", floor=1.6)
def gat_epoch() -> Pair:
    """GAT epoch with 8 heads of 8, 50,000 nodes, 500,000 edges."""
    from corollary import nn

    return _pair(_gat(nn), _gat(_pyg()))
