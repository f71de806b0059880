"""Nets on graphs: nodes that become alike, and answers that lie further away than the layers reach."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.baselines import ROWS, Problem, baselines
from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import quiet
from corollary.diagnose.tables import Graph, graph_of
from corollary.diagnose.trace import SCATTERS, WEIGHTED, Call

__all__ = ["graph_field", "oversmoothing"]

SCATTERED = {name.rstrip("_") for name in SCATTERS}
LOST = 0.15  # of what is possible, that fewer averages tell more: simple models on other draws differ by less
DEEP = 6  # averages from which a net is deep for a graph: most of it is within reach


def variation(h: Tensor, limits: Tensor) -> float:
    """Return the part of nodes' states outside of what repeated averages converge to, relative to their size."""
    h = h.detach().float().cpu().reshape(len(h), -1)
    return float((h - limits @ (limits.T @ h)).norm() / h.norm().clamp_min(1e-12))


def limits_of(graph: Graph) -> Tensor:
    """Return a basis of those limits: equal states, their sums, states as the roots of the degrees, the first eigenvector."""
    A = torch.from_numpy(np.ascontiguousarray(graph.A)).float()
    first = torch.ones(len(A))
    for _ in range(30):
        first = A @ first
        first = first / first.norm().clamp_min(1e-12)
    degrees = (A > 0).float().sum(1)
    return torch.linalg.qr(torch.stack([torch.ones(len(A)), degrees, degrees.sqrt(), first], 1))[0]


def oversmoothing(exam: Exam) -> None:
    """Nodes of a graph whose states have become alike, where nearer neighbours tell more than all of them."""
    s, t = exam.subject, exam.trace
    graph = graph_of(s.train) if t is not None else None
    if graph is None:
        _many_graphs(exam)
        return
    states = _states(t.calls, len(graph.x))
    hops = hops_of(exam, len(graph.x))
    if len(states) < 4 or hops < 3:
        return
    limits = limits_of(graph)
    profile = [variation(c.out, limits) for c in states]
    first, alike = max(profile[:2]), min(profile[len(profile) // 2 :])
    likeness = _likeness(states[-1].out)
    exam.facts["node variation"], exam.facts["hops"], exam.facts["node likeness"] = profile, hops, likeness
    if exam.fine:
        return
    near, far = max(_gain_at(exam, graph, k) for k in (1, 2)), _gain_at(exam, graph, hops)
    exam.facts["gain at 2 hops and at all"] = [near, far]
    smooth = alike < 0.1 * first or alike < 0.05 or likeness > 0.98
    lost = hops >= DEEP and near > far + LOST
    if hops >= DEEP and not smooth and near > exam.gain + 0.1:  # shallow views tell more: did it begin so?
        began = _alike_at_the_start(exam, limits, len(graph.x))
        smooth, alike = (True, began) if began < 0.1 * first else (smooth, alike)
    if smooth or lost:
        said = f"after {hops} averages the states of the nodes vary by {alike:.3f} of their size, {first:.3f} in the first"
        said += f"; simple models gain {near:.2f} from one or two averages and {far:.2f} from all"
        _say(exam, alike, said, states[-1].where, profile)


def _say(exam: Exam, alike: float, said: str, where: str, profile: list[float]) -> None:
    """Note that nodes are alike, and doubt what that brings about: units and gradients of nodes that are alike."""
    exam.find("oversmoothing", alike, said, where=where, sure=0.9, evidence={"profile": profile})
    for cause in ("dead-units", "symmetric-initialisation", "vanishing-gradient"):
        if cause in exam.sure:
            exam.sure[cause] = min(exam.sure[cause], 0.5)


def _many_graphs(exam: Exam) -> None:
    """The same for a batch of small graphs, or of readings of one: nodes of a graph become alike."""
    t = exam.trace
    if t is None or exam.fine:
        return
    rounds = [c for c in t.calls if c.name in ("matmul", "bmm") and c.out.ndim == 3 and _averages(c)]
    if len(rounds) < DEEP:
        return
    profile = []
    for c in rounds:
        h = c.out.detach().float()
        profile.append(float((h - h.mean(1, keepdim=True)).norm() / h.norm().clamp_min(1e-12)))
    first, alike = max(profile[:2]), min(profile[len(profile) // 2 :])
    exam.facts["node variation"], exam.facts["hops"] = profile, len(rounds)
    near, far = _readings(exam, rounds[0].entered, len(rounds))
    if alike < 0.15 * first or alike < 0.05 or near > max(far + LOST, exam.gain + LOST):
        said = f"after {len(rounds)} averages the nodes of a graph vary by {alike:.3f} of their size, {first:.3f} in the first"
        said += (
            f"; simple models gain {near:.2f} from one or two averages and {far:.2f} from all"
            if near > far
            else ""
        )
        _say(exam, alike, said, rounds[-1].where, profile)


def _readings(exam: Exam, A: Tensor, hops: int) -> tuple[float, float]:
    """Return what simple models gain of nodes' own targets from one or two averages over one graph, and from all."""
    x, y = exam.subject.train.x, exam.subject.train.y
    if (
        A.ndim != 2
        or not isinstance(y, Tensor)
        or x.ndim != 3
        or x.shape[:2] != y.shape
        or x.shape[1] != len(A)
    ):
        return float("nan"), float("nan")
    rows = np.random.default_rng(0).permutation(y.numel())[:ROWS]
    P = A.detach().float().cpu() / A.detach().float().cpu().sum(1, keepdim=True).clamp_min(1e-12)
    classes, target = exam.subject.task != "regression", y.detach().cpu().reshape(-1).numpy()[rows]
    h, gains = x.detach().float().cpu(), {}
    for k in range(1, hops + 1):
        h = P @ h
        if k in (1, 2, hops):
            gains[k] = baselines(
                Problem(h.reshape(y.numel(), -1).numpy()[rows], target, classes, rows), None, 30
            ).gain
    exam.facts["gain at 2 hops and at all"] = [max(gains[1], gains[2]), gains[hops]]
    return max(gains[1], gains[2]), gains[hops]


def _averages(c: Call) -> bool:
    """Whether a product is a mean over nodes: with a matrix of all pairs, of one graph or of each, and nothing below zero."""
    t, n = c.entered, c.out.shape[1]
    return isinstance(t, Tensor) and t.ndim in (2, 3) and t.shape[-2:] == (n, n) and bool((t >= 0).all())


def _alike_at_the_start(exam: Exam, limits: Tensor, n: int) -> float:
    """Return how much the last states of the nodes vary under the initial weights, or under new ones."""
    s = exam.subject
    with quiet(s.given):
        torch.manual_seed(0)
        net = s.twin("initial" if s.initial is not None else "new")
    states = _states(exam.traced(net).calls, n)
    found = min(variation(c.out, limits) for c in states[len(states) // 2 :])
    exam.facts["node variation at the start"] = found
    return found


def _gain_at(exam: Exam, graph: Graph, hops: int) -> float:
    """Return what simple models gain from the features averaged so many times."""
    base = exam.baselines
    if base is None or not base.held:
        return float("nan")
    x = graph.x.reshape(len(graph.x), -1)
    P = graph.P
    for _ in range(hops):
        x = P @ x
    p = base.problem
    rows = p.rows if graph.nodes is None else graph.nodes[p.rows]
    return baselines(Problem(x[rows], p.y, p.classes, p.rows), None, 30).gain


def _likeness(h: Tensor) -> float:
    h = h.detach().float()[:500]
    h = h / h.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return float((h @ h.T).mean())


def _states(calls: list[Call], n: int) -> list[Call]:
    """Return the calls whose outputs are states of the nodes."""
    rounds = {id(c) for c in messages(calls, n)}
    return [
        c
        for c in calls
        if c.out.ndim == 2 and len(c.out) == n and (c.name not in SCATTERED or id(c) in rounds)
    ]


def messages(calls: list[Call], n: int) -> list[Call]:
    """Return the sums over edges that carry states of the nodes.

    Beside them, between the same two layers, the weights of attention are summed and edges are counted: those are
    narrower, or of nothing but ones.
    """
    found: list[Call] = []
    layer: list[Call] = []
    for c in calls:
        if c.name in WEIGHTED:
            found, layer = found + _widest(layer), []
        elif c.name in SCATTERED and c.out.ndim >= 2 and len(c.out) == n:
            if (
                isinstance(c.entered, Tensor)
                and c.entered.numel()
                and bool(c.entered.min() < c.entered.max())
            ):
                layer.append(c)
    return found + _widest(layer)


def _widest(layer: list[Call]) -> list[Call]:
    return [c for c in layer if c.out.numel() == max(other.out.numel() for other in layer)]


def hops_of(exam: Exam, n: int) -> int:
    """Return how many edges away an input still counts: products with a matrix of all nodes, sums over edges, or layers."""
    assert exam.trace is not None
    count = len(messages(exam.trace.calls, n))
    for c in exam.trace.calls:
        if c.name in ("matmul", "mm", "spmm", "sparse_mm", "bmm") and isinstance(c.entered, Tensor):
            count += c.entered.shape[-2:] == (n, n)
    return count or len(exam.trace.layers())


def graph_field(exam: Exam, graph: Graph) -> None:
    """Nodes whose class is said by others further away than the layers reach."""
    base = exam.baselines
    if base is None or not base.held:
        return
    hops = hops_of(exam, len(graph.x))
    if hops > 3 or exam.has("oversmoothing"):
        return
    parts, P, p = [graph.x.reshape(len(graph.x), -1)], graph.P, base.problem
    for _ in range(8):
        parts.append(P @ parts[-1])
    rows = p.rows if graph.nodes is None else graph.nodes[p.rows]

    def gain(k: int) -> float:
        table = np.concatenate(parts[: k + 1], 1)[rows]
        return baselines(Problem(table, p.y, p.classes, p.rows), None, 30).gain

    near, far = gain(hops), max(gain(min(8, 2 * hops + 2)), gain(min(8, hops + 2)))
    exam.facts["near and far"] = [near, far, hops]
    if far > near + 0.12:
        said = f"{hops} layers see {hops} edges far; simple models gain {near:.2f} from there and {far:.2f} from further away"
        exam.find("receptive-field-too-small", hops, said, where="graph", sure=0.85)
