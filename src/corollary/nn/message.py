r"""Message passing: the form that every graph layer has.

.. math:: x_i' = \phi\Big(x_i, \bigoplus_{j \to i} \psi(x_i, x_j, e_{ij})\Big), \tag{1}

with a sum, mean, maximum or minimum for :math:`\bigoplus`. A message that depends on :math:`x_j` only makes a
convolution, one whose weight depends on both ends an attention; each is a special case of the next.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.sparse import check_edges, features, project

__all__ = ["MPNNConv", "MessagePassing", "reduce"]

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


def reduce(messages: Tensor, target: Tensor, n: int, how: str = "add") -> Tensor:
    """Put the messages (E, ...) of each of n targets together: (n, ...); a target without any gets zeros."""
    if how in ("add", "sum", "mean"):
        total = messages.new_zeros(n, *messages.shape[1:]).index_add(0, target, messages)
        if how != "mean":
            return total
        # By sums: ONNX has no mean over places, and its exporter writes another one.
        count = messages.new_zeros(n).index_add(0, target, messages.new_ones(len(messages)))
        return total / count.clamp_min(1).reshape(-1, *[1] * (messages.ndim - 1))
    where = target.reshape(-1, *[1] * (messages.ndim - 1)).expand_as(messages)
    out = messages.new_zeros(n, *messages.shape[1:])
    return out.scatter_reduce(0, where, messages, REDUCTIONS[how], include_self=False)


class MessagePassing(nn.Module):
    """Base of your own graph layers: write ``message``, perhaps ``update``, and call ``propagate``.

    As in torch_geometric, a parameter of ``message`` named ``foo_j`` gets the rows of ``foo`` at the source of each
    edge, ``foo_i`` those at its target, and any other name the argument of that name.

    Parameters
    ----------
    aggr : {"add", "sum", "mean", "max", "min"}, default="add"
        How messages are put together.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way they go along edges.

    Examples
    --------
    >>> import torch
    >>> from corollary.nn import MessagePassing
    >>> class Differences(MessagePassing):
    ...     def forward(self, x, edge_index):
    ...         return self.propagate(edge_index, x=x)
    ...     def message(self, x_i, x_j):
    ...         return x_j - x_i
    >>> Differences()(torch.tensor([[1.0], [4.0]]), torch.tensor([[0, 1], [1, 0]]))
    tensor([[ 3.],
            [-3.]])
    """

    def __init__(self, aggr: str = "add", *, flow: str = "source_to_target") -> None:
        super().__init__()
        if aggr not in REDUCTIONS:
            raise value(type(self).__name__, f"aggr must be one of {sorted(REDUCTIONS)}", repr(aggr))
        if flow not in ("source_to_target", "target_to_source"):
            raise value(
                type(self).__name__, "flow must be 'source_to_target' or 'target_to_source'", repr(flow)
            )
        self.aggr = aggr
        self.flow = flow
        self._names = tuple(inspect.signature(self.message).parameters)
        self._update_names = tuple(inspect.signature(self.update).parameters)[1:]

    def message(self, x_j: Tensor) -> Tensor:
        """Return the message of every edge; by default the features of its source."""
        return x_j

    def update(self, inputs: Tensor) -> Tensor:
        """Return the new features from what was put together; by default just that."""
        return inputs

    def propagate(self, edge_index: Tensor, size: tuple[int, int] | None = None, **given: Any) -> Tensor:
        """Send messages along all edges, put them together and update.

        Parameters
        ----------
        edge_index : tensor of int64 of shape (2, E)
            Sources and targets.
        size : (int, int), optional
            Number of sources and of targets, where it cannot be read from an argument named after nodes.
        **given
            What ``message`` and ``update`` take; a pair (sources, targets) for two kinds of nodes.
        """
        sources, targets = size or self._sizes(given)
        forward = self.flow == "source_to_target"
        check_edges(edge_index, (sources, targets) if forward else (targets, sources), type(self).__name__)
        source, target = edge_index if forward else edge_index.flip(0)
        inputs = {name: self._argument(name, given, source, target) for name in self._names}
        out = reduce(self.message(**inputs), target, targets, self.aggr)
        return self.update(out, **{name: given[name] for name in self._update_names})

    def _argument(self, name: str, given: dict[str, Any], source: Tensor, target: Tensor) -> Any:
        stem = name[:-2] if name.endswith(("_i", "_j")) else name
        if stem not in given:
            raise value(
                type(self).__name__,
                f"message needs {name}, so propagate must be given {stem}=",
                sorted(given),
            )
        if stem == name:
            return given[name]
        at_target = name.endswith("_i")
        held = given[stem][at_target] if isinstance(given[stem], tuple) else given[stem]
        return None if held is None else held[target if at_target else source]

    def _sizes(self, given: dict[str, Any]) -> tuple[int, int]:
        for name in self._names:
            stem = name[:-2]
            if name.endswith(("_i", "_j")) and given.get(stem) is not None:
                held = given[stem]
                parts = held if isinstance(held, tuple) else (held, held)
                known = [len(part) for part in parts if part is not None]
                return (known[0], known[-1])  # as many targets as sources, where only these have features
        must = "propagate must be told size=, or be given something that message takes by node"
        raise value(type(self).__name__, must, sorted(given))


class MPNNConv(MessagePassing):
    """Send messages that depend on both ends of an edge, and on its weight.

    Parameters
    ----------
    in_channels, out_channels : int
        Widths.
    aggr : {"add", "sum", "mean", "max", "min"}, default="add"
        How messages are put together.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way they go along edges.

    Notes
    -----
    Equation (1) with a rectified linear message and a linear update. A call costs O((E + n) d_in d_out).
    """

    def __init__(
        self, in_channels: int, out_channels: int, aggr: str = "add", *, flow: str = "source_to_target"
    ) -> None:
        super().__init__(aggr, flow=flow)
        self.at_target = nn.Linear(in_channels, out_channels)
        self.at_source = nn.Linear(in_channels, out_channels, bias=False)
        self.own = nn.Linear(in_channels, out_channels)
        self.mix = nn.Linear(out_channels, out_channels, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return eq. 1 for every node: (n, in_channels) -> (n, out_channels)."""
        x = features(x)
        # Linear in each end, so computed once per node.
        at_source, at_target, own = (
            project(x, lin.weight, lin.bias) for lin in (self.at_source, self.at_target, self.own)
        )
        h = (at_source, at_target)
        return own + self.mix(self.propagate(edge_index, h=h, edge_weight=edge_weight))

    def message(self, h_i: Tensor, h_j: Tensor, edge_weight: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return the rectified sum of both ends' terms, times the edge's weight."""
        out = torch.relu(h_i + h_j)
        return out if edge_weight is None else out * edge_weight[:, None]
