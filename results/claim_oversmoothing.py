"""Claim: deep propagation makes all nodes alike, at the rate of the second eigenvalue of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from corollary import theory
from results._claims import panels, spread, write
from results.tables import at_least, at_most

GRAPHS = {
    "karate club": nx.karate_club_graph,
    "Les Misérables": nx.les_miserables_graph,
    "Florentine families": nx.florentine_families_graph,
    "southern women": nx.davis_southern_women_graph,
}
SEEDS = 5
LAYERS = 60
SKIP = 0.0  # share of the input that every layer keeps
KEPT = 0.1  # the same, for the line that shows what it prevents


def propagated(graph: Any, x: np.ndarray, skip: float) -> tuple[np.ndarray, float]:
    """Return the share of the features outside the limit after each layer, and the second eigenvalue."""
    A = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    scale = 1 / np.sqrt(A.sum(1))
    P = scale[:, None] * A * scale
    v = (1 / scale) / np.linalg.norm(1 / scale)
    h, shares = x, []
    for _ in range(LAYERS + 1):
        rest = h - np.outer(v, v @ h)
        shares.append(np.linalg.norm(rest) / np.linalg.norm(h))
        h = (1 - skip) * P @ h + skip * x
    return np.array(shares), float(np.sort(np.abs(np.linalg.eigvalsh(P - np.outer(v, v))))[-1])


def run(out: Path) -> dict[str, Any]:
    """Measure the rate on four real graphs, draw it, and assert that it is the second eigenvalue."""
    figure, axes = panels()
    rows, ratios = [], []
    for number, (name, make) in enumerate(GRAPHS.items()):
        graph = nx.Graph(make())
        rates = []
        for seed in range(SEEDS):
            x = np.random.default_rng(seed).normal(size=(len(graph), 8))
            shares, second = propagated(graph, x, SKIP)
            late = np.flatnonzero(shares > 1e-9)[-20:]  # before rounding is all that is left
            rates.append(float((shares[late[-1]] / shares[late[0]]) ** (1 / (late[-1] - late[0]))))
        bare = nx.Graph(graph.edges)  # the library's own measurement, of the same graph without weights
        assert abs(theory.oversmoothing(bare, np.eye(len(bare)), 2).rate - second) < 1e-9
        axes.semilogy(shares, color=f"C{number}", label=name)
        kept = propagated(graph, x, KEPT)[0]
        axes.semilogy(kept, color=f"C{number}", ls=":")
        ratios += [rate / second for rate in rates]
        rows.append((name, len(graph), second, spread(rates, 4), float(shares[16]), float(kept[16])))
    axes.set(xlabel="layers", ylabel="share of the features that tells nodes apart")
    axes.legend(frameon=False)
    write(
        out,
        "claim_oversmoothing",
        "The rate of oversmoothing",
        claim="Each propagation with the symmetrically normalised adjacency shrinks what tells the nodes of a "
        "connected graph apart "
        "by its second largest absolute eigenvalue.",
        setting=f"Four real graphs without their weights, random features of 8 columns, {SEEDS} seeds, up to {LAYERS} "
        "propagations; the rate over the last twenty layers before rounding. Dotted: every layer keeps "
        f"{KEPT:.0%} of the input.",
        found=f"measured rate over second eigenvalue {spread(ratios, 4)} (claimed 1).",
        change=f"`SKIP = {KEPT}` stops it, as the dotted lines show.",
        headings=(
            "graph",
            "nodes",
            "second eigenvalue",
            "rate per layer",
            "left after 16 layers",
            "with a skip",
        ),
        rows=rows,
        figure=figure,
    )
    at_most(max(abs(value - 1) for value in ratios), 0.02, "distance of the rate from the eigenvalue")
    at_least(min(row[5] for row in rows), 0.05, "what is left after 16 layers with a skip")
    return {"ratios": spread(ratios, 4)}
