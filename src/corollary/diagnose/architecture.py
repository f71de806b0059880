"""Faults of the architecture: nodes that become alike, fields that are too small, layers that are too narrow, tiny batches."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary.diagnose.baselines import Problem, baselines, problem
from corollary.diagnose.exam import Exam
from corollary.diagnose.graph import _fine
from corollary.diagnose.subject import quiet
from corollary.diagnose.tables import Graph, dense, graph_of, statistics, tokens, vocabulary
from corollary.diagnose.trace import WEIGHTED, sensitivity

__all__ = ["CHECKS", "parts_score"]

# --- graphs ----------------------------------------------------------------------------------------------


def variation(h: Tensor, limits: Tensor) -> float:
    """Return the part of nodes' states outside of what repeated averages converge to, relative to their size."""
    h = h.detach().float().cpu().reshape(len(h), -1)
    return float((h - limits @ (limits.T @ h)).norm() / h.norm().clamp_min(1e-12))


def limits_of(graph: Graph) -> Tensor:
    """Return a basis of those limits: equal states, states as the roots of the degrees, and the first eigenvector."""
    A = torch.from_numpy(np.ascontiguousarray(graph.A)).float()
    first = torch.ones(len(A))
    for _ in range(30):
        first = A @ first
        first = first / first.norm().clamp_min(1e-12)
    return torch.linalg.qr(torch.stack([torch.ones(len(A)), (A > 0).float().sum(1).sqrt(), first], 1))[0]


def oversmoothing(exam: Exam) -> None:
    """Nodes of a graph whose states have become alike, where nearer neighbours tell more than all of them."""
    s, t = exam.subject, exam.trace
    graph = graph_of(s.train) if t is not None else None
    if graph is None:
        return
    states = [c for c in t.calls if c.out.ndim == 2 and len(c.out) == len(graph.x)]
    hops = _hops(exam, len(graph.x))
    if len(states) < 4 or hops < 3:
        return
    limits = limits_of(graph)
    profile = [variation(c.out, limits) for c in states]
    first, alike = max(profile[:2]), min(profile[len(profile) // 2 :])
    likeness = _likeness(states[-1].out)
    exam.facts["node variation"], exam.facts["hops"], exam.facts["node likeness"] = profile, hops, likeness
    if _fine(exam):
        return
    near, far = (_gain_at(exam, graph, k) for k in (2, hops))
    exam.facts["gain at 2 hops and at all"] = [near, far]
    smooth = alike < 0.1 * first or alike < 0.05 or likeness > 0.98
    lost = hops >= 6 and near > far + 0.15
    if smooth or lost:
        said = f"after {hops} averages the states of the nodes vary by {alike:.3f} of their size, {first:.3f} in the first"
        said += f"; simple models gain {near:.2f} from two averages and {far:.2f} from all"
        where = states[-1].where
        exam.find("oversmoothing", alike, said, where=where, sure=0.9, evidence={"profile": profile})
        for cause in (
            "dead-units",
            "symmetric-initialisation",
            "vanishing-gradient",
        ):  # of nodes that are alike
            if cause in exam.sure:
                exam.sure[cause] = min(exam.sure[cause], 0.5)


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


def _hops(exam: Exam, n: int) -> int:
    """Return how many edges away an input still counts: products with a matrix of all nodes, or layers with weights."""
    assert exam.trace is not None
    count = 0
    for c in exam.trace.calls:
        if c.name in ("matmul", "mm", "spmm", "sparse_mm", "bmm") and isinstance(c.entered, Tensor):
            count += c.entered.shape[-2:] == (n, n)
    return count or len(exam.trace.layers())


# --- receptive field -------------------------------------------------------------------------------------


def parts_score(exam: Exam, steps: Iterable[int]) -> float:
    """Return what simple models gain from some positions of a sequence or columns of an image only."""
    s = exam.subject
    x, y = s.train.x, s.train.y
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.ndim < 2:
        return float("nan")
    base = exam.baselines
    if (
        base is None
        or not len(base.problem.rows)
        or len(np.unique(base.problem.rows)) < len(base.problem.rows)
    ):
        return float("nan")
    chosen = torch.as_tensor(list(steps))
    rows = torch.as_tensor(base.problem.rows)
    if x.ndim == 2 and not x.is_floating_point():
        ids = x[rows][:, chosen].cpu().numpy()
        table = tokens(ids, vocabulary(x.cpu().numpy().ravel()))
    elif x.ndim == 3:
        part = x[rows].movedim(1, 2) if exam.steps_last else x[rows]
        steps_ = dense(part[:, chosen])
        table = np.concatenate([steps_.reshape(len(steps_), -1)[:, :400], statistics(steps_)], 1)
    elif x.ndim == 2:
        table = dense(x[rows][:, chosen])
    else:
        return float("nan")
    return baselines(Problem(table, base.problem.y, base.problem.classes, base.problem.rows), None, 30).gain


def receptive_field(exam: Exam) -> None:
    """Outputs that do not see what decides."""
    s = exam.subject
    if s.net is None or exam.trace is None or _fine(exam):
        return
    x = s.train.x
    graph = graph_of(s.train)
    if graph is not None:
        _graph_field(exam, graph)
        return
    if not isinstance(x, Tensor) or s.train.whole:
        return
    y = s.train.y
    if isinstance(y, Tensor) and y.ndim >= 2:
        numbers = s.task == "regression" and y.shape == x.shape[: y.ndim] and _has_convolution(exam)
        if (s.task == "classes" and not y.is_floating_point()) or numbers:
            _field_of_positions(exam)
            return
    if x.ndim not in (2, 3, 4) or (x.ndim == 2 and x.is_floating_point() and not _has_convolution(exam)):
        return
    rows = s.train if s.train.n <= 128 else s.train.take(np.arange(128))
    found = sensitivity(s, s.net, rows)
    if found is None:
        return
    g = found[1].float().abs()
    if x.ndim <= 3 and g.ndim == 3:
        seen = g.amax((0, 1) if exam.steps_last else (0, 2)).cpu().numpy()
    elif g.ndim == 2:
        seen = g.amax(0).cpu().numpy()
    else:
        seen = None
    if seen is not None and len(seen) >= 4:
        blind = np.flatnonzero(seen <= 1e-9 * seen.max())
        exam.facts["positions seen"] = [int(len(seen) - len(blind)), len(seen)]
        if 0.1 * len(seen) <= len(blind) < len(seen):
            hidden = parts_score(exam, blind)
            visible = parts_score(exam, np.setdiff1d(np.arange(len(seen)), blind))
            exam.facts["blind and seen"] = [hidden, visible]
            if np.isfinite(hidden) and hidden > 0.15 and hidden > visible + 0.05:
                said = (
                    f"{len(blind)} of {len(seen)} positions have no effect on the output, and say more about the target "
                    f"({hidden:.2f}) than those that do ({visible:.2f})"
                )
                where = f"positions {blind[:10].tolist()}"
                exam.find("receptive-field-too-small", len(seen) - len(blind), said, where=where, sure=0.95)
                return


def _has_convolution(exam: Exam) -> bool:
    return exam.trace is not None and any(c.name.startswith("conv") for c in exam.trace.calls)


def _field_of_positions(exam: Exam) -> None:
    """Where every position has a class: windows as wide as the field, against wider ones."""
    s = exam.subject
    x, y = s.train.x, s.train.y
    rows = s.train.take(np.arange(min(8, s.train.n)))
    if y.ndim == 2 and x.shape[1] == y.shape[1]:
        field = _field_1d(exam, rows)
        if field is None:
            return
        exam.facts["receptive field"] = field
        narrow, wide = (
            _window_score(exam, field),
            _window_score(
                exam,
                (max(field[0], 1) * 4 + 4, max(field[1], 1) * 4 + 4)
                if field[1]
                else (max(field[0], 1) * 4 + 8, 0),
            ),
        )
        exam.facts["window scores"] = [narrow, wide]
        if np.isfinite(wide) and wide > narrow + 0.08 and narrow < 0.85:
            said = (
                f"a position sees {field[0]} steps back and {field[1]} ahead; simple models gain {narrow:.2f} "
                f"from those and {wide:.2f} from more"
            )
            exam.find("receptive-field-too-small", sum(field) + 1, said, where="output", sure=0.9)


def _field_1d(exam: Exam, rows: Any) -> tuple[int, int] | None:
    s = exam.subject
    net = s.twin().eval()
    at = rows.x.shape[1] // 2
    with quiet(net), torch.no_grad():
        from corollary.diagnose.subject import main_output

        base = main_output(s.call(net, rows))
        if base.shape[1] != rows.x.shape[1]:
            base = base.movedim(1, -1)
        if base.ndim < 2 or base.shape[1] != rows.x.shape[1]:
            return None
        seen = []
        steps = rows.x.shape[1]
        for j in range(steps):
            x = rows.x.clone()
            x[:, j] = x[:, j].roll(1, 0) if x.is_floating_point() else x[:, j].roll(1, 0)
            if torch.equal(x, rows.x):
                continue
            out = main_output(s.call(net, rows.replaced(x)))
            out = out if out.shape[1] == steps else out.movedim(1, -1)
            if float((out[:, at] - base[:, at]).abs().max()) > 1e-6 * float(base.abs().max()):
                seen.append(j - at)
    return (-min(seen + [0]), max(seen + [0])) if seen else (0, 0)


def _window_score(exam: Exam, field: tuple[int, int]) -> float:
    """Return what trees gain from windows of inputs around positions."""
    s = exam.subject
    x, y = s.train.x.cpu(), s.train.y.cpu()
    back, ahead = field
    rng = np.random.default_rng(0)
    n, steps = y.shape
    back, ahead = min(back, steps - 1), min(ahead, steps - 1)
    counted = np.argwhere((y != -100).numpy())
    pick = counted[rng.choice(len(counted), min(1500, len(counted)), replace=False)]
    offsets = np.arange(-back, ahead + 1)
    where = pick[:, 1][:, None] + offsets[None]
    inside = (where >= 0) & (where < steps)
    values = x.float().numpy() if x.ndim == 3 else x.float().numpy()[..., None]
    table = np.where(inside[..., None], values[pick[:, 0][:, None], where.clip(0, steps - 1)], -1.0).reshape(
        len(pick), -1
    )
    target = y.numpy()[pick[:, 0], pick[:, 1]]
    return baselines(Problem(table, target, s.task == "classes", pick[:, 0]), None, 40).gain


def _graph_field(exam: Exam, graph: Graph) -> None:
    """Nodes whose class is said by others further away than the layers reach."""
    base = exam.baselines
    if base is None or not base.held:
        return
    hops = _hops(exam, len(graph.x))
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


# --- narrow layers ---------------------------------------------------------------------------------------


def bottleneck(exam: Exam) -> None:
    """A layer far narrower than those around it, behind which the answer is gone."""
    s, t = exam.subject, exam.trace
    if t is None or s.net is None:
        return
    states = []
    for c in t.calls:
        if c.name in WEIGHTED and c.out.ndim >= 2:
            states.append((c.where, c.units.shape[1], c))
    if len(states) < 2:
        return
    x = s.train.x
    inputs = x.shape[1] if isinstance(x, Tensor) and x.ndim == 2 else 10**6
    widths = [w for _, w, _ in states]
    inner = list(range(len(widths) - 1))
    narrow = min(inner, key=lambda i: widths[i])
    width = widths[narrow]
    before = max([*widths[:narrow], min(inputs, 10**4)])
    after = max(widths[narrow + 1 :])
    exam.facts["narrowest"] = [states[narrow][0], width, before, after]
    outputs = widths[-1]
    hour_glass = (
        max(widths[:narrow], default=0) >= 4 * width and max(widths[narrow + 1 : -1], default=0) >= 4 * width
    )
    inner_narrow = hour_glass or (max(widths[:narrow], default=0) >= 8 * width)
    code = s.task == "reconstruction" and after >= 2 * width and before >= 2 * width
    if not (inner_narrow or code):
        return
    if s.task == "reconstruction":
        if hasattr(s.net, "encode"):
            return  # a variational code is narrow by design, and as wide as its prior lets it
        _narrow_code(exam, states[narrow][0], width)
        return
    if width >= 16 or _fine(exam):
        return
    upstream = next((i for i in range(narrow - 1, -1, -1) if widths[i] >= 4 * width), None)
    lost = _lost(exam, None if upstream is None else states[upstream][2], states[narrow][2])
    exam.facts["lost in narrow layer"] = lost
    if lost is None or lost[0] > lost[1] + 0.06 or width <= max(2, (outputs - 1) // 3):
        said = f"{states[narrow][0]} is {width} wide between {before} and {after}"
        said += (
            ""
            if lost is None
            else f"; a simple model gains {lost[0]:.2f} before it and {lost[1]:.2f} after it"
        )
        exam.find("bottleneck", width, said, where=states[narrow][0], sure=0.85, repair={"width": 4 * width})


def _lost(exam: Exam, before: Any, after: Any) -> tuple[float, float] | None:
    """Return what simple models gain from the states before and after a layer."""
    s = exam.subject
    y = s.train.y
    if not isinstance(y, Tensor) or before is None:
        return None
    # the states are of the traced rows
    from corollary.diagnose.exam import TRACED

    rows = np.arange(s.train.n)
    if not s.train.whole and s.train.n > TRACED:
        rows = np.sort(np.random.default_rng(3).choice(s.train.n, TRACED, replace=False))
    p = problem(s.train, s.task, exam.reader, rows=rows)
    if p is None or len(p.rows) != len(rows):
        return None

    def gain(c: Any) -> float:
        h = c.out.detach().float()
        if len(h) != len(rows):
            return float("nan")
        h = h.reshape(len(h), -1).cpu().numpy()
        return baselines(Problem(h[:, :400], p.y, p.classes, p.rows), None, 30).gain

    return gain(before), gain(after)


def _narrow_code(exam: Exam, where: str, width: int) -> None:
    """A code that is smaller than the data's own dimension: what PCA of that size keeps, and of a larger one."""
    s = exam.subject
    flat = dense(s.train.x).reshape(s.train.n, -1)
    flat = flat - flat.mean(0)
    spectrum = np.square(np.linalg.svd(flat[:1000], compute_uv=False))
    kept = np.cumsum(spectrum) / spectrum.sum()
    score = exam.score
    exam.facts["code"] = {"width": width, "kept": float(kept[min(width, len(kept)) - 1]), "score": score}
    linear = float(kept[min(width, len(kept)) - 1])
    double = float(kept[min(4 * width, len(kept)) - 1])
    if score < 0.8 and linear < 0.8 and double > linear + 0.1 and score > linear - 0.25:
        said = (
            f"{width} numbers keep {linear:.0%} of the variance, {4 * width} would keep {double:.0%}; "
            f"the model explains {score:.0%}"
        )
        exam.find("bottleneck", width, said, where=where, sure=0.85, repair={"latent": 4 * width})


# --- batches ---------------------------------------------------------------------------------------------


def batch_norm_noise(exam: Exam) -> None:
    """Running statistics of batch normalisation that are far from those of the data: batches were tiny."""
    s = exam.subject
    if s.net is None or exam.trace is None:
        return
    norms = [
        (n, m)
        for n, m in s.net.named_modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
    ]
    if not norms:
        return
    net = copy.deepcopy(s.net).float()
    entered: dict[str, Tensor] = {}
    hooks = []
    for name, m in net.named_modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            hooks.append(
                m.register_forward_pre_hook(
                    lambda mod, args, name=name: entered.__setitem__(name, args[0].detach())
                )
            )
    rows = s.train if s.train.whole or s.train.n <= 512 else s.train.take(np.arange(512))
    with torch.no_grad(), quiet(net):
        s.call(net.eval(), rows)
    for h in hooks:
        h.remove()
    off = []
    for name, m in norms:
        if name not in entered:
            continue
        h = entered[name].movedim(1, -1).reshape(-1, entered[name].shape[1])
        spread = h.var(0, unbiased=False) + 1e-12
        off.append(float(((m.running_mean.float() - h.mean(0)).square() / spread).median()))
    exam.facts["batch norm offset"] = off
    if s.settings.batch_size is not None and s.settings.batch_size <= 4 and len(norms):
        exam.facts["tiny batches with norm"] = True


CHECKS = (oversmoothing, receptive_field, bottleneck, batch_norm_noise)
