"""The library's layers and estimators as the checks call them: on NumPy arrays, with given weights.

Chapters are imported when a check runs, so that loading the formulary stays light.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["built", "edges_and_weights", "fitted", "graph_of", "seeded", "tensor", "unit"]


def tensor(values: Any) -> torch.Tensor:
    """The values as a tensor in double precision."""
    return torch.tensor(np.asarray(values, dtype=float))


def unit(name: str) -> Callable[[Any], np.ndarray]:
    """The library's activation of this name, as a function of arrays."""
    from corollary import nn

    return lambda z: nn.activation(name)(tensor(z)).numpy()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator inside, and leave it as it was outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def built(make: Callable[[], torch.nn.Module], **weights: Any) -> torch.nn.Module:
    """A module in double precision with these parameters, all of them; ``__`` stands for a dot."""
    with seeded(0):
        module = make().double().eval().requires_grad_(False)
    given = {name.replace("__", "."): value for name, value in weights.items()}
    for name, parameter in module.named_parameters():
        parameter.copy_(tensor(given.pop(name)).reshape(parameter.shape))
    if given:
        raise KeyError(f"no such parameters: {sorted(given)}")
    return module


def fitted(model: Any, *data: Any) -> Any:
    """The model after ``fit``, whether or not it says that it has converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


def edges_and_weights(A: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The edges of an adjacency matrix, sources and targets, and their weights."""
    source, target = np.nonzero(A)
    return torch.tensor(np.stack([source, target])), tensor(A[source, target])


def graph_of(A: np.ndarray) -> Any:
    """An adjacency matrix as a graph of the library."""
    from corollary.data.graphs import Graph

    edges, weights = edges_and_weights(A)
    return Graph(None, edges.numpy(), edge_weight=weights.numpy(), num_nodes=len(A))
