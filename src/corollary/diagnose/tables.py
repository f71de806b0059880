"""Inputs of any kind as a table of numbers, with the same columns for training and for validation.

Tables stay as they are; images become pooled pixels and summaries, sequences their steps (or their main directions) and
statistics over time, texts counts of words, nodes of a graph their features and the means of their neighbours.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corollary.diagnose.samples import Samples

__all__ = ["Graph", "Reader", "dense", "graph_of", "joined"]

WIDE = 300  # columns of words or steps at most
DIRECTIONS = 30  # that stand for longer sequences
FITTED = 1000  # rows that they are found in
PLACES = 32  # words of a text up to which every place has a column of its own
MOSTLY = 0.5  # of the times that a word stands anywhere
HOPS = 3  # means of neighbours of neighbours
LARGE = 4000  # nodes up to which a matrix of all pairs is formed


def dense(x: Tensor) -> np.ndarray:
    """Return an input as real numbers, what is not finite as zero."""
    x = x.detach().cpu()
    x = x.to_dense() if x.layout != torch.strided else x
    return np.nan_to_num(x.float().numpy(), nan=0.0, posinf=0.0, neginf=0.0)


class Graph(NamedTuple):
    """A graph among the inputs: features (N, d), adjacency (N, N), and which node each row is about."""

    x: np.ndarray
    A: np.ndarray
    nodes: np.ndarray | None  # None: every node is a row

    @property
    def P(self) -> np.ndarray:
        """The mean over neighbours, as a matrix."""
        return self.A / np.maximum(self.A.sum(1, keepdims=True), 1e-12)


def graph_of(samples: Samples) -> Graph | None:
    """Return the graph among the inputs: a square or sparse matrix, or edges, beside features of as many nodes."""
    given = [t for t in [*samples.args, *samples.kwargs.values()] if isinstance(t, Tensor) and t.ndim]
    given += samples.held
    for t in given[1:]:
        square = t.ndim == 2 and t.shape[0] == t.shape[1]
        edges = t.ndim == 2 and t.shape[0] == 2 and not t.is_floating_point()
        if not (square or edges):
            continue
        real = [g for g in given if g is not t and g.ndim == 2 and g.is_floating_point()]
        real = [g for g in real if not square or len(g) == len(t)]
        if not real or len(real[0]) > LARGE or (edges and real[0].shape[0] == 2):
            continue
        x = real[0]
        if square:
            A = np.abs(dense(t))
        else:
            A = np.zeros((len(x), len(x)), np.float32)
            A[t[0].cpu().numpy(), t[1].cpu().numpy()] = 1
        if len(x) == samples.n:
            return Graph(dense(x), A, None)
        index = next(
            (g for g in given if g.ndim == 1 and not g.is_floating_point() and len(g) == samples.n), None
        )
        if index is not None and int(index.max()) < len(x):
            return Graph(dense(x), A, index.cpu().numpy())
    return None


class Reader:
    """Turns samples into a table whose columns are those of the training samples.

    Parameters
    ----------
    train : Samples
        Words and directions are found in them, and in ``valid``: chosen by training alone they would favour it, and
        tell the two apart.
    steps_last : bool
        Whether sequences come as (rows, channels, steps).
    valid : Samples, optional
        The validation samples.
    """

    def __init__(self, train: Samples, steps_last: bool = False, valid: Samples | None = None) -> None:
        self.train, self.steps_last, self.valid = train, steps_last, valid
        self.words: dict[int, np.ndarray] = {}
        self.directions: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.target: tuple[np.ndarray, np.ndarray] | None = None
        self.column: int | None = None

    def one_target(self, y: np.ndarray) -> np.ndarray:
        """Return several targets along the direction in which those seen first, of training, vary most."""
        if self.target is None:
            mean = y.mean(0)
            self.target = mean, np.linalg.svd((y - mean)[:500], full_matrices=False)[2][0]
        mean, direction = self.target
        return (y - mean) @ direction

    def one_column(self, y: Tensor) -> int:
        """Return which of several labels stands for all: of those seen first, of training, the one that varies most."""
        if self.column is None:
            self.column = int(y.float().std(0).argmax())
        return self.column

    @cached_property
    def _graph(self) -> np.ndarray | None:
        """The table of all nodes."""
        graph = graph_of(self.train)
        if graph is None:
            return None
        parts = [graph.x.reshape(len(graph.x), -1)]
        for _ in range(HOPS):
            parts.append(graph.P @ parts[-1])
        return np.concatenate([*parts, graph.A.sum(1, keepdims=True)], 1)

    def __call__(self, samples: Samples, rows: np.ndarray) -> np.ndarray:
        """Return the table of some samples."""
        if samples.graphs is not None:
            return dense(samples.graphs.table(samples.x))[rows]
        graph = graph_of(samples)
        if graph is not None and self._graph is not None and len(self._graph) == len(graph.x):
            return self._graph[rows if graph.nodes is None else graph.nodes[rows]]
        parts = []
        for i, t in enumerate([*samples.args, *samples.kwargs.values()]):
            if isinstance(t, Tensor) and t.ndim and len(t) == samples.n and t.layout == torch.strided:
                parts.append(self._columns(i, t[torch.as_tensor(rows).to(t.device)]))
        return np.concatenate(parts, 1) if parts else np.zeros((len(rows), 1), np.float32)

    def without_place(self, samples: Samples, rows: np.ndarray, column: int) -> np.ndarray | None:
        """Return the table of texts or sequences without one place, where a column is about a place; None otherwise."""
        place = self.place_of(samples, column)
        t = samples.x
        if place is None or (t.ndim == 2 and t.is_floating_point()):
            return None
        if t.ndim == 2:
            return tokens(np.delete(t.cpu().numpy()[rows], place, axis=1), self._vocabulary(0))
        x = np.delete(self._steps(t[torch.as_tensor(rows).to(t.device)]), place, axis=1)
        return np.concatenate([x.reshape(len(x), -1), statistics(x)], 1)

    def words_of(self, columns: np.ndarray) -> list[int]:
        """Return those of some columns of the table that count a word of the first input."""
        t = self._own(0)
        if not isinstance(t, Tensor) or t.ndim != 2 or t.is_floating_point() or not self._are_words(0):
            return []
        return [int(c) for c in columns if c < len(self._vocabulary(0))]

    def place_of(self, samples: Samples, column: int) -> int | None:
        """Return the column, word or step of the inputs that a column of the table is about; None where it is not one."""
        if len([*samples.args, *samples.kwargs]) != 1 or not isinstance(samples.x, Tensor):
            return None
        t = samples.x
        if t.ndim == 2 and (t.is_floating_point() or not self._are_words(0)):
            return column
        if t.ndim == 2:
            place = column - len(self._vocabulary(0))
            if place < 0:
                return self._place_of_word(t, int(self._vocabulary(0)[column]))
            return place if t.shape[1] <= PLACES else None
        return self._step_of(t, column) if t.ndim == 3 else None

    @staticmethod
    def _place_of_word(t: Tensor, word: int) -> int | None:
        """Return the place of texts where a word stands, if it mostly stands there."""
        count = (t == word).sum(0)
        return int(count.argmax()) if int(count.max()) > MOSTLY * int(count.sum()) else None

    def _step_of(self, t: Tensor, column: int) -> int | None:
        """The same for sequences, whose first and last step are among the statistics too."""
        steps, width = (t.shape[2], t.shape[1]) if self.steps_last else (t.shape[1], t.shape[2])
        if steps * width > WIDE or steps < 3:
            return None
        beyond = column - steps * width
        if beyond < 0:
            return column // width
        return (0 if beyond < 5 * width else steps - 1) if 4 * width <= beyond < 6 * width else None

    def _columns(self, i: int, t: Tensor) -> np.ndarray:
        if t.ndim == 2 and not t.is_floating_point() and t.shape[1] > 1 and self._are_words(i):
            return tokens(t.cpu().numpy(), self._vocabulary(i))
        if t.ndim <= 2:
            return dense(t).reshape(len(t), -1)
        if t.ndim == 3:
            return self._sequence(i, self._steps(t))
        return image(dense(t))

    def _own(self, i: int) -> Tensor:
        return [*self.train.args, *self.train.kwargs.values()][i]

    def _both(self, i: int) -> list[Tensor]:
        own = self._own(i)
        other = [] if self.valid is None else [*self.valid.args, *self.valid.kwargs.values()][i : i + 1]
        return [own, *(t for t in other if isinstance(t, Tensor) and t.shape[1:] == own.shape[1:])]

    def _are_words(self, i: int) -> bool:
        return int(self._own(i).max()) > 1

    def _vocabulary(self, i: int) -> np.ndarray:
        """The words that have a column, the most frequent first; 0 to the largest where those are few."""
        if i not in self.words:
            ids = [t.cpu().numpy().ravel() for t in self._both(i)]
            self.words[i] = vocabulary(np.concatenate(ids))
        return self.words[i]

    def _steps(self, t: Tensor) -> np.ndarray:
        return dense(t.movedim(1, 2) if self.steps_last else t)

    def _sequence(self, i: int, x: np.ndarray) -> np.ndarray:
        flat = x.reshape(len(x), -1)
        if flat.shape[1] > WIDE:
            if i not in self.directions:
                own = np.concatenate([self._steps(t[:FITTED]) for t in self._both(i)])
                self.directions[i] = main_directions(own.reshape(len(own), -1), DIRECTIONS)
            mean, Q = self.directions[i]
            flat = (flat - mean) @ Q
        return np.concatenate([flat, statistics(x)], 1)


def joined(samples: Samples, rows: np.ndarray) -> np.ndarray | None:
    r"""Return which kinds of nodes are joined, :math:`X^\top A X`, of inputs that are a graph each; None of others."""
    given = [t for _, t in samples.named if t.ndim == 3 and len(t) == samples.n and t.is_floating_point()]
    if len(given) != 2:
        return None
    x, A = given if given[1].shape[1] == given[1].shape[2] else given[::-1]
    if not A.shape[1] == A.shape[2] == x.shape[1] or x.shape[2] ** 2 > WIDE:
        return None
    at = torch.as_tensor(rows)
    X, A = torch.from_numpy(dense(x[at])), torch.from_numpy(dense(A[at]))
    return np.concatenate([(X.mT @ A @ X).flatten(1).numpy(), (X.mT @ A @ A @ X).flatten(1).numpy()], 1)


def vocabulary(ids: np.ndarray) -> np.ndarray:
    """Return the words that have a column."""
    counts = np.bincount(ids[ids >= 0])
    return np.arange(len(counts)) if len(counts) <= WIDE else np.argsort(-counts, kind="stable")[:WIDE]


def tokens(ids: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return counts of words, and the words at the places of short texts or at both ends."""
    code = np.full(max(int(ids.max()), int(words.max())) + 2, -1)
    code[words] = np.arange(len(words))
    at = code[np.where(ids >= 0, ids, len(code) - 1)]
    counts = np.zeros((len(ids), len(words)), np.float32)
    r = np.repeat(np.arange(len(ids)), ids.shape[1])
    flat = at.ravel()
    np.add.at(counts, (r[flat >= 0], flat[flat >= 0]), 1)
    ends = at[:, [0, -1]] if ids.shape[1] > PLACES else at
    return np.concatenate([counts, ends.astype(np.float32)], 1)


def statistics(x: np.ndarray) -> np.ndarray:
    """Return statistics over the steps of sequences (n, steps, width)."""
    n, steps, _ = x.shape
    found = [x.mean(1), x.std(1), x.min(1), x.max(1), x[:, 0], x[:, -1]]
    if steps >= 2:
        found.append(np.abs(np.diff(x, axis=1)).mean(1))
    if steps >= 4:
        found.append(np.abs(np.fft.rfft(x, axis=1))[:, 1:13].reshape(n, -1).astype(np.float32))
    return np.concatenate(found, 1)


def image(x: np.ndarray) -> np.ndarray:
    """Return pooled pixels and summaries of images."""
    n = len(x)
    x = x.reshape(n, x.shape[1], x.shape[2], -1)
    t = torch.from_numpy(x)
    edges = [np.abs(np.diff(x, axis=a)).mean((2, 3)) for a in (2, 3) if x.shape[a] > 1]
    found = [x.mean((2, 3)), x.std((2, 3)), x.max((2, 3)), *edges]
    small = min(8, x.shape[2]), min(8, x.shape[3])
    found.append(F.adaptive_avg_pool2d(t, small).numpy().reshape(n, -1))
    best = F.adaptive_max_pool2d(t, tuple(min(4, s) for s in small)).numpy().reshape(n, -1)
    return np.concatenate([*found, best], 1)


def main_directions(flat: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and about the first k main directions, by one random projection."""
    mean = flat.mean(0)
    centred = flat - mean
    rng = np.random.default_rng(0)
    sketch = centred @ rng.normal(size=(flat.shape[1], k + 10)).astype(np.float32)
    Q: Any = np.linalg.qr(centred.T @ sketch)[0]
    return mean, Q[:, :k]
