r"""Which nodes are joined: the graph auto-encoder.

A graph network embeds the nodes, :math:`Z = f(X, E)`, and an edge has probability

.. math:: p(u \to v) = \sigma(z_u \cdot z_v + c). \tag{1}

Training takes each edge as a positive and one random pair of nodes per edge as a negative example:

.. math:: \mathcal L = -\tfrac{1}{|E|} \sum_{(u, v) \in E} \big[\log p(u \to v) + \log(1 - p(u' \to v'))\big]. \tag{2}
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary.base import Data, Linker, Transformer, as_tensor, check_count
from corollary.data.graphs import Graph, check_graph
from corollary.data.labels import as_names
from corollary.engine.batches import Batch, TensorBatches
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import value
from corollary.graphs.network import GraphNetwork
from corollary.graphs.nodes import SAMPLED, BaseGraphEstimator, Tensors
from corollary.shapes import Array, Count, Index, List

__all__ = ["LinkNetwork", "LinkPredictor", "absent_pairs", "split_links"]

BLOCK = 1024  # nodes whose pairs with all others are looked at together


class LinkNetwork(nn.Module):
    """A graph network whose outputs are compared pair by pair, eq. 1."""

    def __init__(self, network: GraphNetwork) -> None:
        super().__init__()
        self.network = network
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, x: Any, edge_index: Tensor, edge_weight: Tensor | None, pairs: Tensor) -> Tensor:
        """Return the logits of pairs (m, 2) of nodes."""
        return self.compare(self.network(x, edge_index, edge_weight), pairs)

    def compare(self, z: Tensor, pairs: Tensor) -> Tensor:
        """Return the logits of pairs from the nodes' embeddings."""
        return (z[pairs[:, 0]] * z[pairs[:, 1]]).sum(1) + self.offset


class LinkPredictor(Linker, Transformer, BaseGraphEstimator):
    """Embed the nodes of a graph so that joined ones are alike, and predict missing edges.

    The graph may be a PyTorch Geometric ``Data``, a networkx graph or a ``corollary.data.Graph``. Nodes without features
    get one of their own each.

    Parameters
    ----------
    layer : str, default="gcn"
        The graph layer, one of ``corollary.graphs.network.LAYERS``.
    hidden_layer_sizes : sequence of int, default=(64, 32)
        Widths of the layers; the last one is that of the embedding.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    dropout : float, default=0.0
        Share of each layer's input dropped while training.
    n_heads : int, default=8
        Attention heads of "gat", but for its last layer; they share the layer's width.
    n_output_heads : int, default=1
        Attention heads of the last layer of "gat", which are averaged; more steady the result.
    order : int, default=3
        Terms of the polynomials of "cheb".
    n_neighbors : int or sequence of int, optional
        The most edges per node and layer that an update follows, drawn at random; for graphs of which only a part fits.
        Set ``Training(batch_size=...)`` too. By default all edges. Fewer are faster and noisier.
    training : Training, optional
        How to descend; a sample is an edge, and by default every update sees all of them.
    random_state : int or RandomState, optional
        Seed for initial weights and negative pairs.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_nodes, d)
        The nodes of the fitted graph.
    edge_index_ : ndarray of shape (2, E)
        The edges of the fitted graph.
    nodes_ : ndarray of shape (n_nodes,)
        Names of the nodes, if the graph has any but numbers from 0.
    module_ : torch.nn.Module
        The trained network.
    shape_ : (int, int)
        Number of nodes, twice.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises equation (2) of :mod:`corollary.graphs.links`, which does not know the direction of an edge. An epoch
    costs O(E d + n d d') per layer.

    References
    ----------
    .. [1] T. N. Kipf, M. Welling (2016). Variational graph auto-encoders.

    Examples
    --------
    >>> import networkx as nx
    >>> from corollary import LinkPredictor
    >>> G = nx.karate_club_graph()
    >>> model = LinkPredictor(random_state=0).fit(G)
    >>> bool(model.link_probability([[0, 1]])[0] > model.link_probability([[0, 26]])[0])
    True
    """

    _parameter_constraints = {**BaseGraphEstimator._parameter_constraints, **SAMPLED}
    _fitted = {
        "shape_": List([Count(1), Count(1)]),
        "edge_index_": Index(2, None, below="shape_.0"),
        "embedding_": Array("shape_.0", None),
    }

    def __init__(
        self,
        layer="gcn",
        *,
        hidden_layer_sizes=(64, 32),
        activation="relu",
        dropout=0.0,
        n_heads=8,
        n_output_heads=1,
        order=3,
        n_neighbors=None,
        training=None,
        random_state=None,
    ):
        self.layer = layer
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.n_heads = n_heads
        self.n_output_heads = n_output_heads
        self.order = order
        self.n_neighbors = n_neighbors
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"hidden_layer_sizes": (8, 4), "training": Training(epochs=3)}

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Learn the edges of a graph.

        Parameters
        ----------
        X : graph
            The graph.
        y : None
            Not used.
        validation : tuple, optional
            ``(graph,)``: edges that were held out of X, between the same nodes, as :func:`split_links` gives them. Their
            loss is measured after every epoch; the network still sees the edges of X only.

        Returns
        -------
        self
        """
        return self._fit(X, y, validation=validation)  # type: ignore[no-any-return]

    def missing_links(self, n: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Return the n pairs of nodes (n, 2) that are not joined and most probably would be, and their probabilities.

        Parameters
        ----------
        n : int, default=100
            How many; fewer are returned if there are no more.

        Notes
        -----
        Looks at all pairs, O(nodes^2 d), a block of rows at a time. A pair is listed once, whatever its direction.
        """
        check_is_fitted(self)
        check_count(self, "n", n)
        z, size = torch.from_numpy(self.embedding_), self.shape_[0]
        (a, b), best = torch.from_numpy(self.edge_index_), torch.empty(0)
        pairs = torch.empty(0, 2, dtype=torch.int64)
        for begin in range(0, size, BLOCK):
            logits = z[begin : begin + BLOCK] @ z.T
            rows = torch.arange(begin, begin + len(logits))
            logits[torch.arange(size) <= rows[:, None]] = -torch.inf
            for first, second in ((a, b), (b, a)):
                inside = (first >= begin) & (first < begin + len(logits))
                logits[first[inside] - begin, second[inside]] = -torch.inf
            found = torch.topk(logits.flatten(), min(n, logits.numel()))
            places = torch.stack([found.indices // size + begin, found.indices % size], 1)
            best, pairs = torch.cat([best, found.values]), torch.cat([pairs, places])
            order = torch.argsort(best, descending=True, stable=True)[:n]
            best, pairs = best[order], pairs[order]
        pairs = pairs[torch.isfinite(best)]
        names = getattr(self, "nodes_", None)
        return as_names(pairs.numpy(), names), self._probability(*pairs.numpy().T)

    def _probability(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            z = torch.from_numpy(self.embedding_)
            logits = self.module_.cpu().compare(z, torch.from_numpy(np.column_stack([rows, columns])))
        return logits.sigmoid().numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Return the area under the ROC curve of the edges of a graph against as many random pairs without one.

        The graph has the nodes of the fitted one, and edges that were held out of it; the pairs are joined in neither.
        """
        check_is_fitted(self)
        graph = check_graph(X, type(self).__name__, features=False)
        if graph.num_nodes != self.shape_[0]:
            do = "Score edges that were held out of the fitted graph, as split_links gives them."
            raise value(
                type(self).__name__, f"the graph must have {self.shape_[0]} nodes", graph.num_nodes, do
            )
        joined = graph.edge_index.T
        known = np.concatenate([self.edge_index_, graph.edge_index], axis=1)
        absent = absent_pairs(known, graph.num_nodes, len(joined), self._rng())
        if not len(joined) or not len(absent):
            must = "the graph must have edges, and pairs of nodes without one"
            got = f"{len(joined)} edges between {graph.num_nodes} nodes"
            raise value(
                type(self).__name__, must, got, "Hold out edges of the fitted graph with split_links."
            )
        truth = np.repeat([1, 0], [len(joined), len(absent)])
        return float(roc_auc_score(truth, self._probability(*np.concatenate([joined, absent]).T)))

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        shape = (data.X.num_nodes, data.X.num_nodes)
        return {**super()._fitted_sizes(data), "shape_": shape, "edge_index_": data.X.edge_index}

    def _learner(self, data: Data) -> Any:
        graph, run = data.X, current()
        if graph.num_edges == 0:
            do = "Edges are what is learned; to classify nodes without them use NodeClassifier."
            raise value(type(self).__name__, "the graph must have edges to learn from", "none", do)
        self._learned = Tensors.of(graph, run.device, getattr(torch, self.dtype_))
        tensors, counts = self._learned, self._counts(len(self._widths()) - 1)

        def objective(module: nn.Module, batch: Batch) -> Tensor:
            (joined,) = batch.inputs
            other = torch.randint(graph.num_nodes, joined.shape, device=joined.device)
            part, pairs = tensors, torch.cat([joined, other])
            if counts is not None and module.training:
                nodes, pairs = pairs.unique(return_inverse=True)
                part = tensors.around(nodes, counts, seed=int(torch.randint(2**62, ())))
            logits = module(*part, pairs)
            truth = torch.zeros_like(logits)
            truth[: len(joined)] = 1.0
            return 2 * F.binary_cross_entropy_with_logits(logits, truth)

        held = None if data.validation is None else self._held(data.validation.X)
        return self._descend(objective, TensorBatches(as_tensor(graph.edge_index.T)), validation=held)

    def _held(self, graph: Graph) -> TensorBatches:
        """Return the edges to validate on, of a graph with the same nodes."""
        if graph.num_nodes != self.shape_[0] or graph.num_edges == 0:
            must = f"the graph to validate on must have edges between the same {self.shape_[0]} nodes"
            got = f"{graph.num_edges} between {graph.num_nodes}"
            raise value(type(self).__name__, must, got, "Hold edges out with split_links.")
        return TensorBatches(as_tensor(graph.edge_index.T))

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        with torch.no_grad():
            self.embedding_ = self.module_.network(*self._learned).cpu().numpy()
        del self._learned

    def _module(self) -> LinkNetwork:
        sizes = self._widths()
        if len(sizes) < 2:
            raise value(type(self).__name__, "hidden_layer_sizes must name at least one layer", "none")
        return LinkNetwork(self._network(sizes)).to(getattr(torch, self.dtype_))

    @torch.no_grad()
    def _transform(self, X: Graph) -> np.ndarray:
        like = self.module_.offset
        return self.module_.network(*Tensors.of(X, like.device, like.dtype)).cpu().numpy()


def absent_pairs(edges: np.ndarray, n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pairs of different nodes that no edge joins; fewer, or none, where nearly all are joined."""
    drawn = rng.integers(0, n, size=(4 * count + 64, 2))
    free = (drawn[:, 0] != drawn[:, 1]) & ~np.isin(drawn[:, 0] * n + drawn[:, 1], edges[0] * n + edges[1])
    return drawn[free][:count]


def split_links(X: Any, test: float = 0.1, seed: int = 0) -> tuple[Graph, Graph]:
    """Return a graph without some of its edges, and one with only those.

    Parameters
    ----------
    X : graph
        The whole graph; both directions of an edge go the same way.
    test : float, default=0.1
        Share of the edges held out.
    seed : int, default=0
        Decides which.

    Returns
    -------
    (Graph, Graph)

    Examples
    --------
    >>> import networkx as nx
    >>> split_links(nx.cycle_graph(10), test=0.2)
    (Graph(10 nodes, 16 edges, 0 features), Graph(10 nodes, 4 edges, 0 features))
    """
    graph = check_graph(X, "split_links", features=False)
    if not 0 < test < 1:
        raise value("split_links", "test must be a share between 0 and 1", test)
    if graph.num_edges == 0:
        raise value("split_links", "the graph must have edges to hold some out", "none")
    low, high = graph.edge_index.min(0), graph.edge_index.max(0)
    _, which = np.unique(low * graph.num_nodes + high, return_inverse=True)
    count = int(which.max()) + 1
    held = np.zeros(count, bool)
    held[np.random.default_rng(seed).permutation(count)[: max(1, round(test * count))]] = True

    def part(mask: np.ndarray) -> Graph:
        def rows(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[mask]

        return replace(
            graph,
            edge_index=graph.edge_index[:, mask],
            edge_weight=rows(graph.edge_weight),
            edge_attr=rows(graph.edge_attr),
        )

    return part(~held[which]), part(held[which])
