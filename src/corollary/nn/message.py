r"""Message passing: the form that every graph layer has.

.. math:: x_i' = \phi\Big(x_i, \bigoplus_{j \to i} \psi(x_i, x_j, e_{ij})\Big), \tag{1}

with a sum, mean, product, maximum or minimum for :math:`\bigoplus`. A message that depends on :math:`x_j` only makes a
convolution, one whose weight depends on both ends an attention; each is a special case of the next.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from corollary.errors import kind, value
from corollary.nn.adjacency import Edges, as_edges, is_matrix
from corollary.nn.sparse import check_edges, features, project

__all__ = ["MPNNConv", "MessagePassing", "reduce"]

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "mul": "prod", "max": "amax", "min": "amin"}


def reduce(messages: Tensor, target: Tensor, n: int, how: str = "add", dim: int = 0) -> Tensor:
    """Put the messages (E, ...) of each of n targets together: (n, ...).

    A target without any gets zeros, and ones for a product. ``dim`` is the axis of the messages and of the targets.
    """
    dim %= messages.ndim
    shape = [n if axis == dim else size for axis, size in enumerate(messages.shape)]
    along = [-1 if axis == dim else 1 for axis in range(messages.ndim)]
    if how in ("add", "sum", "mean"):
        total = messages.new_zeros(shape).index_add(dim, target, messages)
        if how != "mean":
            return total
        # By sums: ONNX has no mean over places, and its exporter writes another one.
        count = messages.new_zeros(n).index_add(0, target, messages.new_ones(messages.shape[dim]))
        return total / count.clamp_min(1).reshape(along)
    where = target.long().reshape(along).expand_as(messages)
    empty = messages.new_full(shape, float(how == "mul"))
    return empty.scatter_reduce(dim, where, messages, REDUCTIONS[how], include_self=how == "mul")


class MessagePassing(nn.Module):
    """Base of your own graph layers: write ``message``, perhaps ``aggregate`` and ``update``, and call ``propagate``.

    As in torch_geometric, a parameter of these methods named ``foo_j`` gets the rows of ``foo`` at the source of each
    edge, ``foo_i`` those at its target, and any other name the argument of that name, or its own default. Known
    without being given are ``index`` (the targets), ``edge_index``, ``size``, ``size_i``, ``size_j`` and ``dim_size``.

    Parameters
    ----------
    aggr : str, sequence of str or torch.nn.Module, default="add"
        How messages are put together: "add", "sum", "mean", "mul", "max" or "min"; several are joined along the last
        axis. A module is called with messages, targets, ``ptr=None``, ``dim_size`` and ``dim``, as torch_geometric's are;
        other names are those of its modules, where it is installed.
    aggr_kwargs : dict, optional
        Arguments of the module of torch_geometric that ``aggr`` names.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way they go along edges.
    node_dim : int, default=-2
        The axis of the nodes in what ``foo_i`` and ``foo_j`` are taken from.

    Notes
    -----
    A layer that writes ``message_and_aggregate(adj_t, ...)`` gets a sparse matrix as it was passed, in one step, unless
    ``fuse`` is set to False, as it is for products, several aggregations and modules. Hooks are registered as in
    torch_geometric: ``register_message_forward_hook`` and so on, before and after ``propagate``, ``message``,
    ``aggregate``, ``message_and_aggregate`` and ``edge_update``.

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

    def __init__(
        self,
        aggr: str | Sequence[str] | nn.Module | None = "add",
        *,
        aggr_kwargs: dict[str, Any] | None = None,
        flow: str = "source_to_target",
        node_dim: int = -2,
    ) -> None:
        super().__init__()
        if flow not in ("source_to_target", "target_to_source"):
            must = "flow must be 'source_to_target' or 'target_to_source'"
            raise value(type(self).__name__, must, repr(flow))
        self.aggr = None if isinstance(aggr, nn.Module) else aggr
        self.aggr_module = aggr if isinstance(aggr, nn.Module) else self._named(self.aggr, aggr_kwargs)
        self.flow = flow
        self.node_dim = node_dim
        written = type(self).message_and_aggregate is not MessagePassing.message_and_aggregate
        one = isinstance(aggr, str) and aggr != "mul" and self.aggr_module is None
        self.fuse = written and (aggr is None or one)
        self._takes = {stage: _parameters(getattr(self, stage), skip) for stage, skip in STAGES.items()}
        for stage in HOOKED:
            for when in ("forward_pre_hooks", "forward_hooks"):
                setattr(self, f"_{stage}_{when}", OrderedDict())

    def _named(self, aggr: Any, options: dict[str, Any] | None) -> nn.Module | None:
        """Return torch_geometric's module for names that are not ours, or that come with options."""
        names = [aggr] if isinstance(aggr, str) else aggr or ()
        strange = [name for name in names if name not in REDUCTIONS]
        if not strange and not options:
            return None
        try:
            from torch_geometric.nn.resolver import aggregation_resolver

            return aggregation_resolver(aggr, **(options or {}))  # type: ignore[no-any-return]
        except (ImportError, ValueError) as error:
            do = "Pass others as a module; those of torch_geometric have names where it is installed."
            must, got = f"aggr must be one of {sorted(REDUCTIONS)}", repr(strange[0] if strange else aggr)
            raise value(type(self).__name__, must, got, do) from error

    def reset_parameters(self) -> None:
        """Draw new weights of ``aggr`` where that is a module; a layer with weights of its own resets them after it."""
        if self.aggr_module is not None and hasattr(self.aggr_module, "reset_parameters"):
            self.aggr_module.reset_parameters()  # type: ignore[operator]

    def __repr__(self) -> str:
        """Return the widths, where the layer keeps them by torch_geometric's names."""
        widths = [getattr(self, name) for name in ("in_channels", "out_channels") if hasattr(self, name)]
        return f"{type(self).__name__}({', '.join(map(str, widths))})"

    # --- what a layer writes -----------------------------------------------------------------------------

    def message(self, x_j: Tensor) -> Any:
        """Return the message of every edge; by default the features of its source."""
        return x_j

    def aggregate(
        self, inputs: Any, index: Tensor, ptr: Tensor | None = None, dim_size: int | None = None
    ) -> Any:
        """Return what each target makes of its messages; by default ``aggr`` of them."""
        n = int(index.max()) + 1 if dim_size is None else dim_size
        if self.aggr_module is not None:
            return self.aggr_module(inputs, index, ptr=ptr, dim_size=n, dim=self.node_dim)
        if self.aggr is None:
            must = "a layer made with aggr=None must write aggregate"
            raise value(type(self).__name__, must, "none", "Write it, or name an aggr.")
        names = [self.aggr] if isinstance(self.aggr, str) else self.aggr
        dim = self.node_dim if inputs.ndim > 1 else 0
        parts = [reduce(inputs, index, n, name, dim) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def update(self, inputs: Any) -> Any:
        """Return the new features from what was put together; by default just that."""
        return inputs

    def message_and_aggregate(self, adj_t: Any) -> Any:
        """Return what each target makes of its messages, from a sparse matrix at once."""
        raise NotImplementedError

    def edge_update(self) -> Any:
        """Return new features of the edges, for ``edge_updater``."""
        raise NotImplementedError

    # --- what it calls -----------------------------------------------------------------------------------

    def propagate(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """Send messages along all edges, put them together and update.

        Parameters
        ----------
        edge_index : tensor of int64 of shape (2, E), or sparse matrix
            Sources and targets; or a torch or scipy matrix whose entry (i, j) belongs to the edge from j to i. Its
            entries are what ``edge_weight`` or ``edge_type`` is, where that is asked for and not given, and
            ``edge_attr`` if they are vectors.
        size : (int, int), optional
            Number of nodes that the first and the second row of ``edge_index`` number, where it cannot be read from
            an argument named after nodes.
        **given
            What ``message``, ``aggregate`` and ``update`` take; for two kinds of nodes a pair in the order of the rows
            of ``edge_index``: sources and targets, or targets and sources where ``flow`` says that.
        """
        return self._hooked("propagate", (edge_index, size, given), self._propagate)

    def _propagate(self, graph: Any, size: Any, given: dict[str, Any]) -> Any:
        known = self._known(graph, size, given, ("message", "aggregate", "update"))
        if is_matrix(graph) and self.fuse:
            inputs = (known["adj_t"], self._arguments("message_and_aggregate", known))
            out = self._hooked(
                "message_and_aggregate", inputs, lambda adj, kw: self.message_and_aggregate(adj, **kw)
            )
        else:
            arguments = self._arguments("message", known)
            messages = self._hooked("message", (arguments,), lambda kw: self.message(**kw))
            arguments = self._arguments("aggregate", known)
            out = self._hooked("aggregate", (arguments,), lambda kw: self.aggregate(messages, **kw))
        return self.update(out, **self._arguments("update", known))

    def edge_updater(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """Return what ``edge_update`` makes of every edge; its arguments are named as those of ``message``."""

        def call(graph: Any, size: Any, given: dict[str, Any]) -> Any:
            known = self._known(graph, size, given, ("edge_update",))
            return self.edge_update(**self._arguments("edge_update", known))

        return self._hooked("edge_update", (edge_index, size, given), call)

    # --- how arguments are found -------------------------------------------------------------------------

    def _known(self, graph: Any, size: Any, given: dict[str, Any], stages: tuple[str, ...]) -> dict[str, Any]:
        """Return everything that a method may ask for by name."""
        edges = as_edges(type(self).__name__, graph, None, self.flow)
        size = self._sizes(edges, size, given, stages)
        check_edges(edges.index, size, type(self).__name__)
        i, j = self._rows
        known = {
            "index": edges.index[i], "ptr": None, "dim_size": size[i], "adj_t": _tensor(graph), "edge_index": edges.index,
            "edge_index_i": edges.index[i], "edge_index_j": edges.index[j],
            "size": size, "size_i": size[i], "size_j": size[j],
        } | given  # fmt: skip
        if edges.weight is not None:
            vectors = edges.weight if edges.weight.ndim > 1 else None
            read = {"edge_weight": edges.weight, "edge_type": edges.weight, "edge_attr": vectors}
            for name, entries in read.items():
                known[name] = entries if known.get(name) is None else known[name]
        return known

    @property
    def _rows(self) -> tuple[int, int]:
        """The rows of ``edge_index`` that hold the targets, ``foo_i``, and the sources, ``foo_j``."""
        return (1, 0) if self.flow == "source_to_target" else (0, 1)

    def _arguments(self, stage: str, known: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._argument(stage, name, default, known) for name, default in self._takes[stage].items()
        }

    def _argument(self, stage: str, name: str, default: Any, known: dict[str, Any]) -> Any:
        by_node = name.endswith(("_i", "_j")) and name not in known
        stem = name[:-2] if by_node else name
        if stem not in known:
            if default is not inspect.Parameter.empty:
                return default
            call = "edge_updater" if stage == "edge_update" else "propagate"
            must = f"{stage} needs {name}, so {call} must be given {stem}="
            raise value(type(self).__name__, must, sorted(set(known) - SPECIAL))
        if not by_node:
            return known[name]
        row = self._rows[name.endswith("_j")]
        held = known[stem][row] if isinstance(known[stem], tuple | list) else known[stem]
        if not isinstance(held, Tensor):
            return held
        dim = self.node_dim if held.ndim > 1 else 0
        return held.index_select(dim, known["edge_index" + name[-2:]])

    def _sizes(
        self, edges: Edges, size: Any, given: dict[str, Any], stages: tuple[str, ...]
    ) -> tuple[int, int]:
        """Return how many nodes each row of edges numbers: as said, as the matrix has it, or as what is given by node."""
        kept = getattr(edges.index, "sparse_size", None)  # torch_geometric's EdgeIndex knows it
        told = list(size or edges.size or (kept() if callable(kept) else (None, None)))
        for name in (name for stage in stages for name in self._takes[stage] if name.endswith(("_i", "_j"))):
            held, row = given.get(name[:-2]), self._rows[name.endswith("_j")]
            parts = enumerate(held) if isinstance(held, tuple | list) else [(row, held)]
            for at, part in parts:
                if isinstance(part, Tensor):
                    n = part.shape[self.node_dim if part.ndim > 1 else 0]
                    told[at] = n if told[at] is None else told[at]
                    if told[at] != n:
                        must = f"{name[:-2]} must have a row for each of the {told[at]} nodes of edge_index[{at}]"
                        raise value(type(self).__name__, must, n)
        if told == [None, None]:
            must = "propagate must be told size=, or be given something that message takes by node"
            raise value(type(self).__name__, must, sorted(given))
        # As many targets as sources, where only one of them is known.
        return tuple(told[1 - at] if n is None else n for at, n in enumerate(told))  # type: ignore[return-value]

    def _hooked(self, stage: str, inputs: tuple[Any, ...], call: Callable[..., Any]) -> Any:
        for hook in getattr(self, f"_{stage}_forward_pre_hooks").values():
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        out = call(*inputs)
        for hook in getattr(self, f"_{stage}_forward_hooks").values():
            changed = hook(self, inputs, out)
            out = out if changed is None else changed
        return out


# What each method is given without looking its name up: the messages, what was put together, the matrix.
STAGES = {"message": 0, "aggregate": 1, "update": 1, "message_and_aggregate": 1, "edge_update": 0}
HOOKED = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
SPECIAL = {
    "index", "ptr", "dim_size", "adj_t", "edge_index", "edge_index_i", "edge_index_j", "size", "size_i", "size_j",
}  # fmt: skip


def _parameters(method: Callable[..., Any], skip: int) -> dict[str, Any]:
    """Return names and defaults of a method's parameters but for the first ``skip``."""
    found = list(inspect.signature(method).parameters.values())[skip:]
    for p in found:
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            must = f"{method.__name__} must name its parameters, since they are looked up by name"
            raise kind(type(method.__self__).__name__, must, str(p))  # type: ignore[attr-defined]
    return {p.name: p.default for p in found}


def _tensor(graph: Any) -> Any:
    """Return a scipy matrix as torch's, anything else as it is."""
    if isinstance(graph, Tensor):
        return graph
    rows = graph.tocsr()
    start, index, entries = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
    return torch.sparse_csr_tensor(start, index, entries, rows.shape, check_invariants=False)


def _register(stage: str, when: str) -> Callable[..., RemovableHandle]:
    def register(self: MessagePassing, hook: Callable[..., Any]) -> RemovableHandle:
        hooks = getattr(self, f"_{stage}_{when}s")
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    register.__doc__ = (
        f"Call ``hook`` {'before' if 'pre' in when else 'after'} ``{stage}``; the handle removes it."
    )
    return register


for _stage in HOOKED:
    for _when in ("forward_pre_hook", "forward_hook"):
        setattr(MessagePassing, f"register_{_stage}_{_when}", _register(_stage, _when))


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
        """Return eq. 1 for every node: (n, in_channels) -> (n, out_channels).

        ``edge_index`` may be a sparse matrix, whose entries are the weights.
        """
        x = features(x)
        # Linear in each end, so computed once per node.
        at_source, at_target, own = (
            project(x, lin.weight, lin.bias) for lin in (self.at_source, self.at_target, self.own)
        )
        h = (at_source, at_target) if self._rows == (1, 0) else (at_target, at_source)
        return own + self.mix(self.propagate(edge_index, h=h, edge_weight=edge_weight))

    def message(self, h_i: Tensor, h_j: Tensor, edge_weight: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return the rectified sum of both ends' terms, times the edge's weight."""
        out = torch.relu(h_i + h_j)
        return out if edge_weight is None else out * edge_weight[:, None]
