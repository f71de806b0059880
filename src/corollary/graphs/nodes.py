r"""Classes of nodes, learned from some of them.

One graph is given whole, labels for some of its nodes :math:`\mathcal T`. A graph network :math:`f` sees all
nodes and edges, the loss only the labelled ones:

.. math:: \mathcal L = -\frac{1}{|\mathcal T|} \sum_{i \in \mathcal T} \log \mathrm{softmax}(f(X, E)_i)_{y_i}. \tag{1}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import accuracy_score
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data, as_tensor
from corollary.data.graphs import Graph, check_graph
from corollary.data.labels import places
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import with_accuracy
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import kind, value
from corollary.gradient import GradientClassifier, GradientTrained
from corollary.graphs.network import LAYERS, GraphNetwork
from corollary.nn.activations import ACTIVATIONS, ALIASES
from corollary.nn.sparse import Sparse, sparse
from corollary.shapes import Count, Dtype, Flag, Labels, Maybe

__all__ = ["NodeClassifier"]

# What the estimators hand on to the network, under the same names.
OPTIONS = ("activation", "dropout", "n_heads", "n_output_heads", "order")
WHOLE = 2**31 - 1  # batch size that no training set exceeds: every update sees all labelled nodes
SAMPLED = {"n_neighbors": [None, "array-like", Interval(Integral, 1, None, closed="left")]}
LOCAL = ("gat", "mpnn")  # what these compute at a node depends on the edges that enter it, and on no other

# What the papers use on citation graphs: Kipf and Welling (2017), and Velickovic et al. (2018) for attention.
NET = {"hidden_layer_sizes": (16,), "activation": "relu", "dropout": 0.5}
ATTENTION_NET = {"hidden_layer_sizes": (64,), "activation": "elu", "dropout": 0.6}
PLAN = {"epochs": 200, "learning_rate": 0.01, "batch_size": WHOLE, "patience": 50, "weight_decay": 5e-4}
ATTENTION_PLAN = {**PLAN, "epochs": 500, "learning_rate": 0.005, "patience": 100}


class Tensors(NamedTuple):
    """A graph on the device it is computed on."""

    x: Tensor | Sparse
    edge_index: Tensor
    edge_weight: Tensor | None

    @classmethod
    def of(cls, graph: Graph, device: Any, dtype: torch.dtype) -> Tensors:
        """Move the arrays of a graph."""
        weight = graph.edge_weight
        return cls(
            stacked([graph.x], device, dtype),
            as_tensor(graph.edge_index).to(device),
            None if weight is None else as_tensor(weight).to(device, dtype),
        )

    def around(self, nodes: Tensor, counts: tuple[int, ...], seed: int = 0) -> Tensors:
        """Return the part that some nodes see through sampled edges, those nodes first."""
        from corollary.graphs.sampling import neighbourhood

        seen, edges, which = neighbourhood(sparse(self.edge_index, self.x.shape[0]), nodes, counts, seed)
        return Tensors(self.x[seen], edges, None if self.edge_weight is None else self.edge_weight[which])


def with_indicators(graph: Graph, names: Any = None, owner: str = "") -> Graph:
    """Return a graph whose nodes are told apart by one feature each; with ``names``, those of the nodes of the fit."""
    from scipy.sparse import csr_array, eye_array

    if names is None or graph.nodes is None:
        return replace(graph, x=eye_array(graph.num_nodes, dtype=np.float32, format="csr"))
    columns = places(graph.nodes, names, len(names), "node", owner)
    ones = np.ones(len(columns), dtype=np.float32)
    return replace(
        graph, x=csr_array((ones, (np.arange(len(columns)), columns)), shape=(len(columns), len(names)))
    )


def stacked(parts: list[Any], device: Any, dtype: torch.dtype) -> Tensor | Sparse:
    """Return the rows of several tables of features, sparse if one of them is."""
    if not any(hasattr(part, "tocsr") for part in parts):
        return as_tensor(np.concatenate(parts) if len(parts) > 1 else parts[0]).to(device, dtype)
    from scipy.sparse import csr_matrix, vstack

    entries = vstack([csr_matrix(part) for part in parts]).tocoo()
    ends = (as_tensor(end.astype(np.int64)).to(device) for end in (entries.col, entries.row))
    return Sparse(*ends, entries.shape, as_tensor(entries.data).to(device, dtype))


class BaseGraphEstimator(GradientTrained):
    """What the estimators on graphs share: the network's parameters and the validation of inputs."""

    input = "graph"
    _training_defaults = {"epochs": 200, "learning_rate": 0.01, "batch_size": WHOLE, "patience": 50}
    _parameter_constraints = {
        "layer": [StrOptions(set(LAYERS))],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions({*ACTIVATIONS, *ALIASES})],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "n_output_heads": [Interval(Integral, 1, None, closed="left")],
        "order": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"dtype_": Dtype(), "weighted_": Flag(), "nodes_": Maybe(Labels())}

    def _setting(self, name: str) -> Any:
        """Return a parameter of the network, or the layer's own where it is None."""
        return getattr(self, name)

    def _widths(self) -> tuple[int, ...]:
        sizes = np.atleast_1d(self._setting("hidden_layer_sizes"))
        if sizes.size and sizes.min() < 1:
            raise value(type(self).__name__, "hidden_layer_sizes must be positive", tuple(sizes.tolist()))
        return (self.n_features_in_, *sizes.tolist())

    def _counts(self, layers: int) -> tuple[int, ...] | None:
        """Return how many neighbours each layer samples."""
        if self.n_neighbors is None:
            return None
        alike = np.ndim(self.n_neighbors) == 0
        counts = np.broadcast_to(self.n_neighbors, layers) if alike else self.n_neighbors
        if len(counts) != layers or min(counts) < 1:
            must = f"n_neighbors must be positive, one number or one for each of the {layers} layers"
            raise value(type(self).__name__, must, self.n_neighbors)
        return tuple(int(count) for count in counts)

    def _check(self, X: Any, reset: bool) -> Graph:
        dimension = None if reset else self.n_features_in_
        graph = check_graph(X, type(self).__name__, features=False, dimension=dimension)
        if graph.x is None:
            known = None if reset else getattr(self, "nodes_", None)
            named = with_indicators(graph, known, type(self).__name__)
            graph = check_graph(named, type(self).__name__, dimension=dimension)
        return graph

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        return {
            "nodes_": data.X.nodes,
            "n_features_in_": data.X.num_features,
            "dtype_": str(data.X.x.dtype),
            "weighted_": data.X.edge_weight is not None,
        }

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        x = torch.zeros(3, self.n_features_in_, dtype=next(self.module_.parameters()).dtype)
        inputs = {"x": x, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}
        free = {"x": {0: "nodes"}, "edge_index": {1: "edges"}}
        if self.weighted_:
            inputs["edge_weight"], free["edge_weight"] = x.new_ones(4), {0: "edges"}
        return inputs, free

    def _network(self, widths: tuple[int, ...]) -> GraphNetwork:
        options = {name: self._setting(name) for name in OPTIONS}
        options |= {"weighted": self.weighted_, "normalize": getattr(self, "normalized_", False)}
        network = GraphNetwork(widths, self.layer, **options)
        return network.to(getattr(torch, self.dtype_))

    @torch.no_grad()
    def _outputs(self, graph: Graph) -> Tensor:
        like = next(self.module_.parameters())
        return self.module_(*Tensors.of(graph, like.device, like.dtype)).cpu()


class NodeClassifier(GradientClassifier, BaseGraphEstimator):
    """Classify the nodes of a graph from the labels of some of them.

    The graph may be a PyTorch Geometric ``Data``, a networkx graph or a ``corollary.data.Graph``, as it is. Edges go one way
    (an undirected networkx edge, both ways); weights count, several between the same nodes and loops too. Nodes without
    features get one of their own each, and then only they can be predicted.

    Parameters
    ----------
    layer : str, default="gcn"
        The graph layer, one of ``corollary.graphs.network.LAYERS``.
    hidden_layer_sizes : sequence of int, optional
        Widths of the hidden layers; (16,), and (64,) for "gat". Each further layer sees one hop further; many smooth
        everything out.
    activation : str, optional
        One of ``corollary.nn.activations.ACTIVATIONS``; "relu", and "elu" for "gat".
    dropout : float, optional
        Share of each layer's input dropped at random while training, 0.5, and 0.6 for "gat"; more regularises more.
    n_heads : int, default=8
        Attention heads of the hidden layers of "gat"; they share the layer's width.
    n_output_heads : int, default=1
        Attention heads of the last layer of "gat", which are averaged; more steady the result. The paper takes 8 where
        labels are few.
    order : int, default=3
        Terms of the polynomials of "cheb"; each further one sees one hop further.
    normalize : bool or "auto", default="auto"
        Whether each node's features are divided by their sum, as counts of words should be; "auto" does so if
        none is negative and at most a third of them are not zero.
    n_neighbors : int or sequence of int, optional
        The most edges per node and layer that an update follows, drawn at random; for graphs of which only a part fits.
        Set ``Training(batch_size=...)`` too. By default all edges. Fewer are faster and noisier.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        How to descend. By default every update sees all labelled nodes.
    random_state : int or RandomState, optional
        Seed for initial weights and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : torch.nn.Module
        The trained network; called with ``x, edge_index, edge_weight`` it gives logits for every node.
    n_features_in_ : int
        Width of the node features.
    normalized_ : bool
        Whether each node's features are divided by their sum.
    n_validation_ : int
        How many nodes, of ``val_mask`` or of ``validation``, decide when to stop; 0 without any.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch, and validation loss and accuracy where there are nodes to validate on.

    Notes
    -----
    Minimises equation (1) of :mod:`corollary.graphs.nodes`. An epoch costs O(E d + n d d') per layer, for E edges
    and widths d, d'; with "gat" and "mpnn" only those edges and nodes count that the labelled ones see. Node features
    that are sparse (scipy's or torch's) stay so, and count with their entries only.
    Net and plan are by default those of the papers on citation graphs: Adam with a penalty of 5e-4 on the weights, 200
    epochs at rate 0.01, for "gat" 500 at 0.005. With a ``val_mask`` or ``validation`` the weights with the least loss on those
    nodes are kept, and the fit stops when it no longer improves, unless ``Training(early_stopping=False)``.

    References
    ----------
    .. [1] T. N. Kipf, M. Welling (2017). Semi-supervised classification with graph convolutional networks. ICLR.
    .. [2] P. Veličković et al. (2018). Graph attention networks. ICLR.

    Examples
    --------
    >>> import networkx as nx
    >>> from corollary import NodeClassifier
    >>> G = nx.karate_club_graph()
    >>> nx.set_node_attributes(G, nx.get_node_attributes(G, "club"), "y")
    >>> bool(NodeClassifier(random_state=0).fit(G).score(G) > 0.9)
    True
    """

    _parameter_constraints = {
        **BaseGraphEstimator._parameter_constraints,
        **{name: [None, *BaseGraphEstimator._parameter_constraints[name]] for name in NET},
        **SAMPLED,
        "normalize": ["boolean", StrOptions({"auto"})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }
    _fitted = {"normalized_": Flag(), "n_validation_": Count()}

    def __init__(
        self,
        layer="gcn",
        *,
        hidden_layer_sizes=None,
        activation=None,
        dropout=None,
        n_heads=8,
        n_output_heads=1,
        order=3,
        normalize="auto",
        n_neighbors=None,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.normalize = normalize
        self.n_neighbors = n_neighbors
        self.class_weight = class_weight
        self.layer = layer
        self.n_heads = n_heads
        self.n_output_heads = n_output_heads
        self.order = order
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"hidden_layer_sizes": (8,), "training": Training(epochs=3)}

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on one graph.

        Parameters
        ----------
        X : graph
            The whole graph, usually with node features ``x``. Where it has a ``train_mask``, only those nodes'
            labels are learned from; where it has a ``val_mask``, those nodes decide when to stop.
        y : array-like of shape (n_nodes,), optional
            Labels, by default the graph's own ``y``. Nodes labelled -1, None or NaN have none.
        sample_weight : array-like of shape (n_nodes,), optional
            How much each node counts.
        validation : tuple, optional
            ``(graph, y)``, or ``(graph,)`` with labels of its own: the nodes with labels (in its ``val_mask``, if it has
            one) decide when to stop. It may be another graph with the same features, or the same one with other labels.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def score(self, X, y=None):
        """Return the accuracy on the nodes of ``test_mask``, or on all labelled nodes without one."""
        graph = self._query(X)
        y = self._labels(graph, y)
        chosen = _labelled(y) if graph.test_mask is None else graph.test_mask & _labelled(y)
        if not chosen.any():
            must = "some nodes must have labels to be scored" + (
                ", in test_mask" if graph.test_mask is not None else ""
            )
            raise value(type(self).__name__, must, "none")
        winners = self._predict_proba(graph).argmax(1)
        return float(accuracy_score(y[chosen], self.classes_[winners[chosen]]))

    # --- hooks -------------------------------------------------------------------------------------------

    def _labels(self, graph: Graph, y: Any) -> np.ndarray:
        name, n = type(self).__name__, graph.num_nodes
        y = graph.y if y is None else np.asarray(y)
        if y is None:
            do = "Pass y with one label per node, -1 where none is known."
            raise value(name, f"labels must be given as y, or be the graph's y ({n})", "none", do)
        if y.shape not in ((n,), (n, 1)):
            turned = y.ndim == 2 and len(y) == n
            do = "Pass y.argmax(1) of indicators." if turned else "Mark nodes without a label by -1."
            raise value(name, f"there must be one label per node ({n})", f"shape {y.shape}", do)
        return y.reshape(n)

    def _check_y(self, X: Graph, y: Any) -> np.ndarray:
        """Return the class of every node, -1 where it has none."""
        name = type(self).__name__
        y = self._labels(X, y)
        for mask_name in ("train_mask", "val_mask"):
            mask = getattr(X, mask_name)
            if mask is not None and mask.ndim != 1:
                raise value(
                    name, f"{mask_name} must have shape (n,)", f"shape {mask.shape}", "Choose one split."
                )
        labelled = _labelled(y)
        learned = labelled if X.train_mask is None else X.train_mask
        if not labelled[learned].all():
            missing = int((learned & ~labelled).sum())
            must = f"every node of train_mask ({int(learned.sum())}) must have a label"
            raise value(name, must, f"{missing} without one", "Take them out of train_mask.")
        self.classes_ = np.unique(y[learned].tolist() if y.dtype == object else y[learned])
        if len(self.classes_) < 2:
            raise value(
                name, "y must have at least two classes among the nodes to learn from", len(self.classes_)
            )
        if self.classes_.dtype.kind == "f" and (self.classes_ != np.round(self.classes_)).any():
            raise kind(name, "labels must be classes", "real numbers", "Round them, or regress instead.")
        return self._known_y(X, y)

    def _known_y(self, X: Graph, y: Any) -> np.ndarray:
        y = self._labels(X, y)
        known = _labelled(y) & np.isin(y, self.classes_)
        codes = np.full(len(y), -1)
        codes[known] = np.searchsorted(self.classes_, y[known])
        return codes

    def _setting(self, name: str) -> Any:
        given = getattr(self, name)
        return (ATTENTION_NET if self.layer == "gat" else NET)[name] if given is None else given

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        normalized = _are_counts(data.X.x) if self.normalize == "auto" else bool(self.normalize)
        return {**super()._fitted_sizes(data), "normalized_": normalized}

    @property
    def _training_defaults(self) -> dict[str, Any]:
        plan = ATTENTION_PLAN if self.layer == "gat" else PLAN
        return {**plan, "early_stopping": bool(getattr(self, "n_validation_", 0))}

    def _learner(self, data: Data) -> Any:
        graph, given = data.X, data.validation or data
        learned = data.y >= 0 if graph.train_mask is None else graph.train_mask
        held = given.y >= 0
        if given.X.val_mask is not None:
            held &= given.X.val_mask
        elif given is data:
            held[:] = False
        self.n_validation_ = int(held.sum())
        if given is not data and not self.n_validation_:
            must = "nodes to validate on must have labels, and be in val_mask where there is one"
            raise value(type(self).__name__, must, "none")
        device = current().device
        tensors = Tensors.of(graph, device, getattr(torch, self.dtype_))
        batches = self._part(data, learned)
        objective = self._objective(tensors, batches, sampled=self.n_neighbors is not None)
        if not self.n_validation_:
            return self._descend(objective, batches)
        others = tensors if given is data else Tensors.of(given.X, device, getattr(torch, self.dtype_))
        check = self._part(given, held)
        measured = self._objective(others, check)
        return self._descend(objective, batches, validation=check, validation_objective=measured)

    def _objective(self, tensors: Tensors, batches: TensorBatches, sampled: bool = False) -> Any:
        """Return the loss at some nodes of a graph; updates follow sampled edges only if asked for."""
        counts = self._counts(len(self._widths())) if sampled else None
        view = self._view(tensors, batches.inputs[0].to(tensors.edge_index.device))

        def forward(module: nn.Module, nodes: Tensor) -> Tensor:
            if not module.training or counts is None:
                return view(module, nodes)
            around = tensors.around(nodes, counts, seed=int(torch.randint(2**62, ())))
            return module(*around)[: len(nodes)]

        return with_accuracy(self._criterion(), forward=forward, training=False)

    def _part(self, data: Data, mask: np.ndarray) -> TensorBatches:
        """Return some of the nodes with their classes and weights."""
        chosen = np.flatnonzero(mask)
        weight = None if data.sample_weight is None else data.sample_weight[chosen]
        some = data._replace(y=data.y[chosen], sample_weight=weight)
        return TensorBatches(as_tensor(chosen), *self._supervision(some))

    def _view(self, tensors: Tensors, nodes: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
        """Return the way to the logits of any of some nodes, through no more of the graph than they see."""
        n = tensors.x.shape[0]
        if self.layer not in LOCAL or len(nodes) in (0, n):
            return lambda module, chosen: module(*tensors)[chosen]
        part = tensors.around(nodes, (WHOLE,) * len(self._widths()))
        place = torch.zeros(n, dtype=torch.int64, device=nodes.device)
        place[nodes] = torch.arange(len(nodes), device=nodes.device)
        return lambda module, chosen: module(*part)[place[chosen]]

    def _module(self) -> GraphNetwork:
        widths = (*self._widths(), len(self.classes_))
        return self._network(widths)

    def _predict_proba(self, X: Graph) -> np.ndarray:
        return self._outputs(X).softmax(1).numpy()


def _are_counts(x: Any) -> bool:
    """Return whether features look like counts of words: none is negative, and most are zero."""
    entries = x.data if hasattr(x, "tocsr") else x
    return bool(np.count_nonzero(entries) <= x.shape[0] * x.shape[1] / 3 and entries.min(initial=0.0) >= 0)


def _labelled(y: np.ndarray) -> np.ndarray:
    """Return which nodes have a label: -1, None and NaN mean none."""
    if y.dtype == object:
        return np.array([label is not None and label == label and not _is_minus_one(label) for label in y])
    if y.dtype.kind in "US":
        return np.ones(len(y), dtype=bool)
    return (y == y) & (y != -1) if y.dtype.kind != "u" else np.ones(len(y), dtype=bool)


def _is_minus_one(label: Any) -> bool:
    return isinstance(label, int | np.integer) and label == -1
