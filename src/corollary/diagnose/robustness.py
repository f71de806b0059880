"""How far the nearest input with another answer is, beside how far apart the classes lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.tables import dense

__all__ = ["fragile"]

FRAGILE = 0.3  # of the way half to the nearest other class: sound classifiers keep more than 0.4 of it


def fragile(exam: Exam) -> None:
    """How far the nearest other answer is, relative to how far apart classes lie."""
    s = exam.subject
    x = s.train.x
    if (
        s.task not in ("classes", "binary")
        or s.net is None
        or s.train.whole
        or not isinstance(x, Tensor)
        or not x.is_floating_point()
    ):
        return
    if exam.facts.get("untrained") or exam.facts.get("weights broken") or s.output is None:
        return
    samples = s.valid if s.valid is not None and s.valid.n >= 30 else s.train
    rows = samples if samples.n <= 128 else samples.take(np.arange(128))
    y = rows.y
    if not isinstance(y, Tensor) or y.reshape(len(y), -1).shape[1] != 1:
        return
    y = y.reshape(-1).long().cpu()
    net = s.twin().eval()
    flat = dense(s.train.x).reshape(s.train.n, -1)
    unit = np.maximum(flat.std(0), 1e-3 * flat.std() + 1e-12)  # every feature in its own deviations
    radius, right = _radius(s, net, rows, y, torch.from_numpy(unit).float())
    if right.sum() < 15:
        return
    labels = s.train.y.reshape(-1).cpu().numpy().astype(int)
    flat, mine = flat / unit, dense(rows.x).reshape(rows.n, -1) / unit
    apart = []
    for label in np.unique(y.numpy()):
        other = flat[labels != label]
        mask = y.numpy() == label
        if len(other) and mask.any():
            apart.append(
                (mask, NearestNeighbors(n_neighbors=1).fit(other[:1500]).kneighbors(mine[mask])[0][:, 0])
            )
    distance = np.zeros(rows.n)
    for mask, d in apart:
        distance[mask] = d
    share = radius[right] / np.maximum(distance[right] / 2, 1e-12)
    exam.facts["sup radius"] = _sup_share(flat, labels, exam, s, net, rows, y, unit, right)
    exam.facts["radius"] = float(np.median(radius[right]))
    exam.facts["radius share"] = float(np.median(share))
    size = float(np.sqrt(np.square(flat - flat.mean(0)).mean()))
    exam.facts["radius per size"] = float(np.median(radius[right])) / max(
        1e-12, size * math.sqrt(flat.shape[1])
    )
    gain = (exam.valid_score - exam.performance["train chance"]) / max(
        1e-9, 1 - exam.performance["train chance"]
    )
    if (exam.facts["radius share"] < FRAGILE or _leans(exam)) and (exam.fine or gain > 0.85):
        said = (
            f"half of the right answers change within {np.median(radius[right]):.3g}, {np.median(share):.1%} "
            "of the way to the nearest other class"
        )
        exam.find("adversarially-fragile", float(np.median(share)), said, where="inputs", sure=0.7)


def _leans(exam: Exam) -> bool:
    """Whether a net for two classes leans on faint features beside a sturdy one.

    One column alone says nearly as much, and its classes lie far further apart than all columns at once must move.
    """
    alone = exam.facts.get("best column", {}).get("alone", 0.0)
    perf, (reach, apart) = exam.performance, exam.facts["sup radius"]
    chance, score = perf["train chance"], exam.valid_score if math.isfinite(exam.valid_score) else exam.score
    sturdy = alone - chance > 0.8 * (score - chance) and len(exam.facts.get("class shares", ())) == 2
    return sturdy and reach < apart / 3 and exam.facts["radius share"] < 0.45


def _sup_share(
    flat: np.ndarray, labels: np.ndarray, exam: Exam, s: Any, net: Any, rows: Any, y: Tensor, unit: np.ndarray, right: np.ndarray
) -> list[float]:  # fmt: skip
    """Return how far every feature must move at once, in deviations, for another answer, and what one feature alone would allow.

    The first is the gap over the sum of absolute slopes; the second half the largest difference of two classes' means.
    """
    device, dtype = s.place(net)
    moved = rows.to(device, dtype)
    x = moved.x.detach().clone().requires_grad_(True)
    with quiet(net), torch.enable_grad():
        q = moved.replaced(x)
        z = main_output(q.call(net)).float()
        if z.ndim == 1 or z.shape[1] == 1:
            v = z.reshape(-1)
            z = torch.stack([-v / 2, v / 2], 1)
        own = z.gather(1, y.to(z.device)[:, None])[:, 0]
        gap = own - z.scatter(1, y.to(z.device)[:, None], float("-inf")).max(1).values
        (g,) = torch.autograd.grad(gap.sum(), x)
    slope = (g.reshape(len(g), -1).float().cpu() * torch.from_numpy(unit).float()).abs().sum(1)
    reach = (gap.detach().float().cpu() / slope.clamp_min(1e-20)).numpy()[right]
    means = np.stack([flat[labels == c].mean(0) for c in np.unique(labels)])
    apart = [np.abs(a - b).max() / 2 for i, a in enumerate(means) for b in means[i + 1 :]]
    return [float(np.median(reach)), float(np.median(apart))]


def _radius(s: Any, net: Any, rows: Any, y: Tensor, unit: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance to the decision border, to first order, refined once, and which rows are right."""
    device, dtype = s.place(net)
    moved = rows.to(device, dtype)
    x = moved.x.detach().clone()
    start = x.clone()
    right = None
    for _ in range(3):
        x.requires_grad_(True)
        with quiet(net), torch.enable_grad():
            q = moved.replaced(x)
            z = main_output(q.call(net)).float()
            if z.ndim == 1 or z.shape[1] == 1:
                v = z.reshape(-1)
                z = torch.stack([-v / 2, v / 2], 1)
            own = z.gather(1, y.to(z.device)[:, None])[:, 0]
            other = z.scatter(1, y.to(z.device)[:, None], float("-inf")).max(1).values
            gap = own - other
            (g,) = torch.autograd.grad(gap.sum(), x)
        right = (gap > 0).cpu().numpy() if right is None else right
        flat = g.reshape(len(g), -1).float() * unit.to(g.device)
        norm2 = flat.square().sum(1).clamp_min(1e-20)
        step = (gap.detach().float() / norm2)[:, None] * flat * unit.to(g.device)
        x = (x.detach() - step.reshape(x.shape).to(x)).detach()
    moved = (x - start).reshape(len(x), -1).float() / unit.to(x.device)
    radius = moved.norm(dim=1).cpu().numpy()
    return radius, right
