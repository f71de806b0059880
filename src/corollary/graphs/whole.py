r"""Classes of whole graphs.

Nodes are embedded by a graph network, pooled by a function that does not depend on their order, and classified:

.. math:: p(y \mid G) = \mathrm{softmax}\Big(\sum_\ell V_\ell \bigoplus_{i \in G} \phi(H^\ell_i) + c\Big)_y, \tag{1}

with a sum, mean or maximum for :math:`\bigoplus`, over the outputs :math:`H^\ell` of all layers: near and far surroundings
both tell. A batch is the union of its graphs, with no edges between them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor, nn

from corollary.base import Data, as_tensor
from corollary.data.graphs import Graph, check_graphs
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import Supervised
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientClassifier
from corollary.graphs.network import GraphNetwork
from corollary.graphs.nodes import OPTIONS, BaseGraphEstimator, stacked
from corollary.nn.activations import activation as activation_of
from corollary.nn.message import reduce
from corollary.nn.sparse import ranges
from corollary.shapes import Dtype, Flag, Number

__all__ = ["GraphClassifier", "GraphReadout", "Union"]

CHUNK = 256  # graphs predicted at a time


class Union:
    """Many graphs in one set of tensors, of which any part can be had as one graph.

    Parameters
    ----------
    graphs : list of Graph
        The graphs; either all have edge weights or those without get ones.
    device, dtype
        Where and in what precision features are kept.
    """

    def __init__(self, graphs: list[Graph], device: Any, dtype: torch.dtype) -> None:
        self.x = stacked([g.x for g in graphs], device, dtype)
        self.edges = as_tensor(np.concatenate([g.edge_index for g in graphs], axis=1)).to(device)
        self.weight = None
        if any(g.edge_weight is not None for g in graphs):
            parts = [np.ones(g.num_edges) if g.edge_weight is None else g.edge_weight for g in graphs]
            self.weight = as_tensor(np.concatenate(parts)).to(device, dtype)
        self.nodes = torch.tensor([g.num_nodes for g in graphs], device=device)
        self.sizes = torch.tensor([g.num_edges for g in graphs], device=device)

    def take(self, graphs: Tensor) -> tuple[Any, Tensor, Tensor | None, Tensor, int]:
        """Return features, edges, weights and the owner of each node of the union of some of the graphs."""
        nodes, edges = self.nodes[graphs], self.sizes[graphs]
        rows, owner = ranges(self.nodes.cumsum(0)[graphs] - nodes, nodes)
        which, of = ranges(self.sizes.cumsum(0)[graphs] - edges, edges)
        shifted = self.edges[:, which] + (nodes.cumsum(0) - nodes)[of]
        weight = None if self.weight is None else self.weight[which]
        return self.x[rows], shifted, weight, owner, len(graphs)


class GraphReadout(nn.Module):
    """A graph network, a pooling over the nodes of each graph, and a linear classifier, eq. 1.

    Parameters
    ----------
    widths : sequence of int
        Input and hidden widths, then the number of outputs.
    layer : str
        The graph layer.
    pooling : {"sum", "mean", "max"}, default="sum"
        How nodes are put together.
    size : float, default=1.0
        The usual number of nodes; sums are divided by it.
    activation : str, default="relu"
        Between the layers, and before the pooling.
    dropout : float, default=0.0
        Of the pooled state.
    **options
        What the layer takes besides.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        layer: str,
        *,
        pooling: str = "sum",
        size: float = 1.0,
        activation: str = "relu",
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.network = GraphNetwork(widths[:-1], layer, activation=activation, **options)
        self.activation = activation_of(activation)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(sum(widths[1:-1]), widths[-1])
        self.pooling = pooling
        self.scale = 1 / size if pooling == "sum" else 1.0

    def forward(
        self, x: Any, edge_index: Tensor, edge_weight: Tensor | None, owner: Tensor, n: int
    ) -> Tensor:
        """Return the outputs of each of ``n`` graphs; ``owner`` says which one a node belongs to."""
        *states, last = self.network.states(x, edge_index, edge_weight)
        h = torch.cat([*states, self.activation(last)], 1)
        return self.head(self.dropout(reduce(h, owner, n, self.pooling) * self.scale))


class GraphClassifier(GradientClassifier, BaseGraphEstimator):
    """Classify whole graphs, such as molecules.

    Graphs may be PyTorch Geometric's ``Data``, networkx graphs or ``corollary.data.Graph``. If no graph has node features,
    all nodes get the same one, and the edges alone tell.

    Parameters
    ----------
    layer : str, default="gin"
        The graph layer, one of ``corollary.graphs.network.LAYERS``.
    hidden_layer_sizes : sequence of int, default=(32, 32, 32)
        Widths of the layers. Each further layer sees one hop further.
    pooling : {"sum", "mean", "max"}, default="sum"
        How nodes are put together; a sum also sees how many there are.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    dropout : float, default=0.2
        Share dropped while training; more regularises more.
    n_heads : int, default=8
        Attention heads of "gat", but for its last layer; they share the layer's width.
    n_output_heads : int, default=1
        Attention heads of the last layer of "gat", which are averaged; more steady the result.
    order : int, default=3
        Terms of the polynomials of "cheb".
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        How to descend; a sample is a graph.
    random_state : int or RandomState, optional
        Seed for initial weights, order and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : torch.nn.Module
        The trained network.
    n_features_in_ : int
        Width of the node features.
    mean_nodes_ : float
        Mean number of nodes of the graphs fitted.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean of -log p of equation (1) of :mod:`corollary.graphs.whole`. An epoch costs O(E d + n d d') per
    layer over all graphs together.

    References
    ----------
    .. [1] K. Xu, W. Hu, J. Leskovec, S. Jegelka (2019). How powerful are graph neural networks? ICLR.

    Examples
    --------
    >>> import networkx as nx
    >>> from corollary import GraphClassifier
    >>> graphs = [nx.cycle_graph(n) for n in range(4, 14)] + [nx.star_graph(n) for n in range(4, 14)]
    >>> y = ["ring"] * 10 + ["star"] * 10
    >>> bool(GraphClassifier(random_state=0).fit(graphs, y).score(graphs, y) > 0.8)
    True
    """

    _training_defaults = {"epochs": 60, "learning_rate": 0.01, "batch_size": 64, "patience": 20}
    _parameter_constraints = {
        **BaseGraphEstimator._parameter_constraints,
        "pooling": [StrOptions({"sum", "mean", "max"})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }
    _fitted = {"dtype_": Dtype(), "mean_nodes_": Number(0), "weighted_": Flag()}

    def __init__(
        self,
        layer="gin",
        *,
        hidden_layer_sizes=(32, 32, 32),
        pooling="sum",
        activation="relu",
        dropout=0.2,
        n_heads=8,
        n_output_heads=1,
        order=3,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.layer = layer
        self.hidden_layer_sizes = hidden_layer_sizes
        self.pooling = pooling
        self.activation = activation
        self.dropout = dropout
        self.n_heads = n_heads
        self.n_output_heads = n_output_heads
        self.order = order
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"hidden_layer_sizes": (8,), "training": Training(epochs=3)}

    @classmethod
    def _test_data(cls) -> tuple[list[Graph], np.ndarray]:
        rng = np.random.default_rng(0)
        y = np.arange(20) % 2
        graphs = []
        for label in y:
            n = int(rng.integers(3, 8))
            ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
            ends = ring if label else np.stack([np.zeros(n - 1, int), np.arange(1, n)])
            graphs.append(
                Graph(rng.normal(size=(n, 3)).astype(np.float32), np.concatenate([ends, ends[::-1]], 1))
            )
        return graphs, y

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on a list of graphs with node features ``x`` and labels y (n_graphs,), by default the graphs' own.

        ``validation`` is a tuple (X, y) on which the loss is measured after every epoch.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def _check(self, X: Any, reset: bool) -> list[Graph]:
        name, dimension = type(self).__name__, None if reset else self.n_features_in_
        graphs = check_graphs(X, name, features=False)
        if all(g.x is None for g in graphs):
            graphs = [replace(g, x=np.ones((g.num_nodes, 1), np.float32)) for g in graphs]
        return check_graphs(graphs, name, dimension=dimension)

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        return {
            "n_features_in_": data.X[0].num_features,
            "dtype_": str(np.result_type(*(g.x.dtype for g in data.X))),
            "mean_nodes_": float(np.mean([g.num_nodes for g in data.X])),
            "weighted_": any(g.edge_weight is not None for g in data.X),
        }

    def _check_y(self, X: list[Graph], y: Any) -> np.ndarray:
        return super()._check_y(X, self._labels(X, y))

    def _known_y(self, X: list[Graph], y: Any) -> np.ndarray:
        return super()._known_y(X, self._labels(X, y))

    def _labels(self, X: list[Graph], y: Any) -> Any:
        """Return y, or the graphs' own labels."""
        if y is None:
            own = [np.asarray(g.y).ravel() for g in X]
            if any(part.size != 1 or part[0] is None for part in own):
                do = "Pass y with one label per graph."
                raise value(
                    type(self).__name__, "labels must be given as y, or each graph must have one", "none", do
                )
            y = np.concatenate(own)
        return y

    def _learner(self, data: Data) -> Any:
        parts = [data] if data.validation is None else [data, data.validation]
        union = Union([g for part in parts for g in part.X], current().device, getattr(torch, self.dtype_))

        def forward(module: nn.Module, graphs: Tensor) -> Tensor:
            return module(*union.take(graphs))

        first = [0, len(data.X)]
        batches = [
            TensorBatches(start + torch.arange(len(part.X)), *self._supervision(part))
            for start, part in zip(first, parts)
        ]
        validation = batches[1] if len(batches) > 1 else None
        return self._descend(
            Supervised(self._criterion(), forward=forward), batches[0], validation=validation
        )

    def _graph_call(self) -> Any:
        def call(x: Tensor, edge_index: Tensor, *others: Tensor) -> Tensor:
            *weight, sizes = others
            place = torch.arange(x.shape[0])
            owner = (place[:, None] >= sizes.cumsum(0)).sum(1)
            return self.module_(x, edge_index, weight[0] if weight else None, owner, sizes.shape[0])

        return call

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        inputs, free = super()._graph_inputs()
        return inputs | {"sizes": torch.tensor([2, 1])}, free | {"sizes": {0: "graphs"}}

    def _module(self) -> GraphReadout:
        sizes = self._widths()
        if len(sizes) < 2:
            raise value(type(self).__name__, "hidden_layer_sizes must name at least one layer", "none")
        options = {name: getattr(self, name) for name in (*OPTIONS, "pooling")}
        options |= {"size": self.mean_nodes_, "weighted": self.weighted_, "aggr": "add"}
        module = GraphReadout((*sizes, len(self.classes_)), self.layer, **options)
        return module.to(getattr(torch, self.dtype_))

    @torch.no_grad()
    def _predict_proba(self, X: list[Graph]) -> np.ndarray:
        like = next(self.module_.parameters())
        union = Union(X, like.device, like.dtype)
        parts = torch.arange(len(X), device=like.device).split(CHUNK)
        return torch.cat([self.module_(*union.take(part)).softmax(1) for part in parts]).cpu().numpy()
