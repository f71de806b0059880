"""Graph layers against torch_geometric: whole training epochs with copied weights."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import THREADS, Draw, Pair, claim

CLASSES = 16
STEPS = 3  # epochs per sample


class Work(NamedTuple):
    """A graph and the widths of the layers on it."""

    x: Tensor
    edges: Tensor
    y: Tensor
    hidden: int


def _work(draw: Draw) -> Work:
    torch.set_num_threads(THREADS)
    nodes, degree = draw.size("nodes", 2000, 60000), draw.size("degree", 4, 30)
    width, hidden = draw.size("features", 16, 256), draw.choice("hidden", (16, 64, 128))
    g = torch.Generator().manual_seed(draw.index)
    half = torch.randint(0, nodes, (2, nodes * degree // 2), generator=g)
    edges = torch.cat([half, half.flip(0)], 1)
    return Work(
        torch.randn(nodes, width, generator=g),
        edges,
        torch.randint(0, CLASSES, (nodes,), generator=g),
        hidden,
    )


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


def _pair(draw: Draw, layers: Any, csr: bool = False) -> Pair:
    from corollary import nn

    work = _work(draw)
    x, edges, y, _ = work
    ours, peer = layers(nn, work), layers(_pyg(), work)
    ours.load_state_dict(peer.state_dict())
    form = edges
    if csr:
        from torch_geometric.utils import to_torch_csr_tensor

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            edges = torch.unique(edges, dim=1)  # the CSR form cannot hold an edge twice
            form = to_torch_csr_tensor(edges.flip(0), size=(len(x), len(x)))
    return Pair(_trainer(ours, x, edges, y), _trainer(peer, x, form, y), _equal)


def _pyg() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.nn as pyg
    return pyg


def _gcn(kind: Any, work: Work) -> _Two:
    torch.manual_seed(0)
    first = kind.GCNConv(work.x.shape[1], work.hidden, cached=True)
    return _Two(first, kind.GCNConv(work.hidden, CLASSES, cached=True))


@claim("gcn-epoch", peer="torch_geometric", aim=3.0)
def gcn_epoch(draw: Draw) -> Pair:
    """GCN epoch"""
    return _pair(draw, _gcn)


@claim("gcn-epoch-csr", peer="torch_geometric", aim=1.0)
def gcn_epoch_csr(draw: Draw) -> Pair:
    """GCN epoch, the peer given its CSR form

    Small graphs are within the time that threads take to wake: products of less than a tenth of a millisecond are done by one.
    """
    return _pair(draw, _gcn, csr=True)


def _cheb(kind: Any, work: Work) -> _Two:
    torch.manual_seed(0)
    return _Two(kind.ChebConv(work.x.shape[1], work.hidden, 3), kind.ChebConv(work.hidden, CLASSES, 3))


def _gin(kind: Any, work: Work) -> _Two:
    torch.manual_seed(0)

    def network(n_in: int, n_out: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(n_in, work.hidden), torch.nn.ReLU(), torch.nn.Linear(work.hidden, n_out)
        )

    first = kind.GINConv(network(work.x.shape[1], work.hidden))
    return _Two(first, kind.GINConv(network(work.hidden, CLASSES)))


def _gat(kind: Any, work: Work) -> _Two:
    torch.manual_seed(0)
    return _Two(kind.GATConv(work.x.shape[1], work.hidden // 8, heads=8), kind.GATConv(work.hidden, CLASSES))


@claim("cheb-epoch", peer="torch_geometric", aim=2.0)
def cheb_epoch(draw: Draw) -> Pair:
    """ChebNet epoch with K=3"""
    return _pair(draw, _cheb)


@claim("gin-epoch", peer="torch_geometric", aim=2.0)
def gin_epoch(draw: Draw) -> Pair:
    """GIN epoch

    Small graphs are within the time that threads take to wake: products of less than a tenth of a millisecond are done by one.
    """
    return _pair(draw, _gin)


@claim("gin-epoch-csr", peer="torch_geometric", aim=1.0)
def gin_epoch_csr(draw: Draw) -> Pair:
    """GIN epoch, the peer given its CSR form"""
    return _pair(draw, _gin, csr=True)


@claim("gat-epoch", peer="torch_geometric", aim=1.3)
def gat_epoch(draw: Draw) -> Pair:
    """GAT epoch with 8 heads of 8"""
    return _pair(draw, _gat)
