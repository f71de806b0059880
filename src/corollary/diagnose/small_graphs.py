"""Many small graphs as one, as loaders of graphs put them together: which nodes and edges are whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Graphs"]


class Graphs(NamedTuple):
    """Small graphs put together as one, without edges between them: a vector says which graph each node is in."""

    member: Tensor
    edges: Tensor
    first: Tensor  # node of each graph, and their number at the end
    n: int

    @classmethod
    def of(cls, given: list[Any], n: int) -> Graphs | None:
        """Find vector and edges among inputs; None if there are none."""
        given = [t for t in given if isinstance(t, Tensor) and t.layout == torch.strided]
        whole = [t for t in given if not t.is_floating_point() and t.dtype != torch.bool]
        edges = next((t for t in whole if t.ndim == 2 and t.shape[0] == 2 and t.numel()), None)
        sizes = {len(t) for t in given if t.is_floating_point() and t.ndim == 2}
        member = next((t for t in whole if t.ndim == 1 and n < len(t) in sizes and _counts_up(t, n)), None)
        if edges is None or member is None or int(edges.max()) >= len(member):
            return None
        if not torch.equal(member[edges[0]], member[edges[1]]):
            return None
        first = torch.searchsorted(member, torch.arange(n + 1, device=member.device))
        return cls(member, edges, first, n)

    def picked(self, rows: Tensor) -> Callable[[Any], Any]:
        """Return what takes the part of a tensor that belongs to some of the graphs, as the first, the second and so on."""
        rows = rows.to(self.member.device)
        sizes = self.first[rows + 1] - self.first[rows]
        new = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), sizes)
        begin = sizes.cumsum(0) - sizes
        nodes = torch.arange(len(new), device=rows.device) - begin[new] + self.first[rows][new]
        mine = self.member[self.edges[0]]
        order = mine.argsort(stable=True)
        ends = torch.searchsorted(mine[order], torch.arange(self.n + 1, device=rows.device))
        counts = ends[rows + 1] - ends[rows]
        of = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
        past = counts.cumsum(0) - counts
        kept = order[torch.arange(len(of), device=rows.device) - past[of] + ends[rows][of]]

        def part(t: Any) -> Any:
            if not isinstance(t, Tensor) or not t.ndim:
                return t
            if t.shape == self.edges.shape and torch.equal(t, self.edges):
                return t[:, kept] - self.first[rows][of] + begin[of]
            if t.shape == self.member.shape and torch.equal(t, self.member):
                return new
            if len(t) == len(self.member):
                return t[nodes]
            if len(t) == self.n:
                return t[rows]
            return t[kept] if len(t) == self.edges.shape[1] else t

        return part

    def table(self, x: Tensor) -> Tensor:
        """Return, of each graph, means and largest values of its nodes and of their neighbours, and its size."""
        x = x.float().flatten(1)
        degree = torch.bincount(self.edges[1], minlength=len(x)).float()[:, None]
        near = torch.zeros_like(x).index_add(0, self.edges[1], x[self.edges[0]])
        each = torch.cat([x, near, near / degree.clamp_min(1), degree], 1)
        size = (self.first[1:] - self.first[:-1]).float()[:, None]
        mean = each.new_zeros(self.n, each.shape[1]).index_add(0, self.member, each) / size
        most = each.new_full((self.n, each.shape[1]), -torch.inf)
        most = most.scatter_reduce(0, self.member[:, None].expand_as(each), each, "amax")
        return torch.cat([mean, most, size, mean[:, -1:] * size], 1)


def _counts_up(t: Tensor, n: int) -> bool:
    """Whether numbers count samples: from the first to the last, none left out."""
    steps = t.diff()
    return int(t[0]) == 0 and int(t[-1]) == n - 1 and bool(((steps == 0) | (steps == 1)).all())
