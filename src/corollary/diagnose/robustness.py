r"""How far the nearest input with another answer is, beside how far the data would let it be.

With the gap :math:`g(x) = f_y(x) - \max_{k \ne y} f_k(x)` between the right answer and the next, and every feature measured in
its own deviation, the border lies to first order at :math:`|g| / \lVert \nabla g \rVert_2`, and at
:math:`|g| / \lVert \nabla g \rVert_1` if all features may move at once by as much. Every net yields to such a move; one is called
fragile if a sturdier answer was there to be learned: half the way to the nearest other class is much further, one column's
classes lie much further apart, or some steps on moved inputs teach the net to withstand them, or moves several times as far.
Where the data hold no sturdier answer one is fragile whose slope points where inputs of one class hardly vary: it lives on a
cue too faint to be seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import Samples, main_output
from corollary.diagnose.subject import Subject, quiet
from corollary.diagnose.tables import dense

__all__ = ["fragile"]

ROWS = 128
FRAGILE = 0.3  # of half the way to the nearest other class: sound classifiers keep more than 0.4 of it
DOUBTFUL = 0.5  # share up to which it is tried whether the net can be taught to withstand
BESIDE = 0.4  # of half the distance of two classes in one column: the least move of all columns that is no cause for alarm
MOVE = 1.5  # of the median move that changes the answer, under which a sound net still gives one right answer in three
TAUGHT = 0.86  # of the right answers, won back under that move: sound nets win back less than 0.4, with batch norm up to 0.85
# the same of a net whose border is near; of photographs it always is, and nothing can be won back
REGAINED = 0.45
LEARNED_WELL = 0.85  # of what is possible
LEARNED = 0.2  # of what is possible, from which there are answers to be moved
NOTHING = 0.01  # of half the way: no pupil is needed
NARROW = 0.5  # of a feature's deviation, that rows of one class vary by along the slope: of sound nets it is 0.57 to 2
FARTHER = 4.0  # times as far lie the classes of one column; and the move that a pupil is to withstand
SIDEWAYS = 0.12  # of all features' deviations at once, beyond which a move is not tiny
FAINT = 0.1  # of half the distance of two classes in one column, that tells of faint features however far rows lie apart
STEPS, RATE, BATCH = 300, 1e-3, 32


def fragile(exam: Exam) -> None:
    """How far the nearest other answer is, relative to how far apart classes lie."""
    s = exam.subject
    rows = _asked(exam)
    well = exam.fine or exam.gain > LEARNED_WELL
    if rows is None or not (well or exam.gain > LEARNED):
        return
    y = rows.y.reshape(-1).long().cpu()
    net = s.twin().eval()
    flat = dense(s.train.x).reshape(s.train.n, -1)
    unit = flat.std(0)  # every feature in its own deviations
    unit = np.maximum(unit, 1e-3 * np.median(unit[unit > 0]) + 1e-12 if unit.any() else 1.0)
    scale = torch.from_numpy(unit).float()
    radius, right = _radius(s, net, rows, y, scale)
    if right.sum() < 15:
        return
    labels = s.train.y.reshape(-1).cpu().numpy().astype(int)
    share = radius / np.maximum(
        _way(flat / unit, labels, dense(rows.x).reshape(rows.n, -1) / unit, y.numpy()), 1e-12
    )
    half, median = float(np.median(share[right])), float(np.median(radius[right]))
    exam.facts["radius"], exam.facts["radius share"] = median, half
    gap, slope = _gap(s, net, rows, y, rows.x)
    all_at_once = (gap / (slope.reshape(len(gap), -1) * scale).abs().sum(1).clamp_min(1e-20)).numpy()[right]
    reach, apart = float(np.median(all_at_once)), _apart(flat / unit, labels)
    exam.facts["sup radius"] = [reach, apart]
    near = half < FRAGILE and reach < BESIDE * apart
    doubtful = half < DOUBTFUL or reach < FAINT * apart
    surely = near and half < NOTHING  # so near that no model which has learned less well is there by itself
    beside = reach < apart / FARTHER
    hidden = exam.gain > LEARNED_WELL and (beside or (half < DOUBTFUL and reach < SIDEWAYS))
    surely |= hidden and _narrow(exam, flat / unit, labels, slope, scale)
    if surely or (
        well
        and (
            _leans(exam)
            or (doubtful and _taught(exam, net, MOVE * reach, scale) > (REGAINED if near else TAUGHT))
            or (beside and _taught(exam, net, FARTHER * reach, scale) > _half_way(labels))
        )
    ):
        said = f"half of the right answers change within {median:.3g}, {half:.1%} of half the way to the nearest other class"
        exam.find("adversarially-fragile", half, said, where="inputs", sure=0.7)


def _asked(exam: Exam) -> Samples | None:
    """Return the rows whose answers are to be moved; None where that cannot be asked."""
    s, x = exam.subject, exam.subject.train.x
    if s.task not in ("classes", "binary") or s.net is None or s.output is None or s.train.whole:
        return None
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return None
    if exam.facts.get("untrained") or exam.facts.get("weights broken"):
        return None
    rows = (s.valid if s.valid is not None and s.valid.n >= 30 else s.train).first(ROWS)
    return rows if isinstance(rows.y, Tensor) and rows.y.reshape(rows.n, -1).shape[1] == 1 else None


def _way(flat: np.ndarray, labels: np.ndarray, mine: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return half the distance of every row to the nearest training row of another class."""
    found = np.zeros(len(mine))
    for label in np.unique(y):
        other = flat[labels != label][:1500]
        if len(other):
            index = NearestNeighbors(n_neighbors=1).fit(other)
            found[y == label] = index.kneighbors(mine[y == label])[0][:, 0] / 2
    return found


def _apart(flat: np.ndarray, labels: np.ndarray) -> float:
    """Return half the largest difference of two classes' means in one column, the median over pairs."""
    means = np.stack([flat[labels == c].mean(0) for c in np.unique(labels)])
    return float(np.median([np.abs(a - b).max() / 2 for i, a in enumerate(means) for b in means[i + 1 :]]))


def _half_way(labels: np.ndarray) -> float:
    """Return the mean recall in the middle between that of a constant answer and one."""
    return (1 + 1 / len(np.unique(labels))) / 2


def _narrow(exam: Exam, X: np.ndarray, labels: np.ndarray, slope: Tensor, scale: Tensor) -> bool:
    """Whether rows of one class hardly vary along the slope of the answers, beside how much they vary in a feature."""
    d = (slope.reshape(len(slope), -1) * scale).numpy()
    d /= np.maximum(np.linalg.norm(d, axis=1, keepdims=True), 1e-30)
    own = X[:1000].copy()
    for label in np.unique(labels[:1000]):
        own[labels[:1000] == label] -= own[labels[:1000] == label].mean(0)
    exam.facts["varies along the slope"] = float(np.median((own @ d.T).std(0)))
    return bool(exam.facts["varies along the slope"] < NARROW)


def _leans(exam: Exam) -> bool:
    """Whether a net for two classes leans on faint features beside a sturdy one.

    One column alone says nearly as much, and its classes lie far further apart than all columns at once must move.
    """
    alone = exam.facts.get("best column", {}).get("alone", 0.0)
    perf, (reach, apart) = exam.performance, exam.facts["sup radius"]
    chance, score = perf["train chance"], exam.valid_score if math.isfinite(exam.valid_score) else exam.score
    sturdy = alone - chance > 0.8 * (score - chance) and len(exam.facts.get("class shares", ())) == 2
    return sturdy and reach < apart / 3 and exam.facts["radius share"] < 0.45


def _taught(exam: Exam, net: nn.Module, size: float, scale: Tensor) -> float:
    """Return what a copy that is trained on moved inputs wins back under a move that nearly all answers of the net yield to."""
    s = exam.subject
    rows = (s.valid if s.valid is not None and s.valid.n >= 30 else s.train).first(2 * ROWS)
    before = _withstands(s, net, rows, size, scale)
    if before > 0.2 or exam.lab is None or exam.left < 2:
        return 0.0
    pupil = s.twin().train()
    steps = exam.lab.steps_for(1.0, 50, STEPS)
    descent, rng = torch.optim.Adam(pupil.parameters(), RATE), np.random.default_rng(0)
    with quiet(pupil):
        torch.manual_seed(0)
        for i in range(steps):
            batch = s.train.take(rng.choice(s.train.n, min(BATCH, s.train.n), replace=False))
            moved = _moved(s, pupil, batch, size * min(1.0, 2 * (i + 1) / steps), scale)
            descent.zero_grad()
            with torch.enable_grad():
                F.cross_entropy(_logits(s, pupil.train(), moved), _labels(s, moved)).backward()
            descent.step()
    after = _withstands(s, pupil.eval(), rows, size, scale)
    exam.facts["withstands moved inputs, and taught to"] = [before, after]
    return after - before


def _withstands(s: Subject, net: nn.Module, rows: Samples, size: float, scale: Tensor) -> float:
    """Return the mean recall on moved inputs."""
    moved = _moved(s, net, rows, size, scale)
    with torch.no_grad(), quiet(net):
        right = _logits(s, net.eval(), moved).argmax(1) == _labels(s, moved)
    y = _labels(s, moved)
    return float(np.mean([float(right[y == k].float().mean()) for k in y.unique()]))


def _moved(s: Subject, net: nn.Module, rows: Samples, size: float, scale: Tensor) -> Samples:
    """Return rows, every feature moved by so many of its deviations against the right answer."""
    was = net.training
    _, slope = _gap(s, net.eval(), rows, _labels(s, rows).cpu(), rows.x)
    net.train(was)
    step = size * slope.sign() * scale.reshape(rows.x.shape[1:])
    return rows.replaced(rows.x - step.to(rows.x))


def _labels(s: Subject, rows: Samples) -> Tensor:
    return rows.y.reshape(-1).long().to(s.place(s.net)[0])


def _logits(s: Subject, net: nn.Module, rows: Samples) -> Tensor:
    """Return an output per class; of one number for two classes, half of it for one and against the other."""
    z = main_output(s.call(net, rows)).float()
    if z.ndim == 1 or z.shape[1] == 1:
        z = torch.stack([-z.reshape(-1) / 2, z.reshape(-1) / 2], 1)
    return z


def _gap(s: Subject, net: nn.Module, rows: Samples, y: Tensor, x: Any) -> tuple[Tensor, Tensor]:
    """Return how far the right answer is ahead of the next, and the derivative by the inputs."""
    device, dtype = s.place(net)
    x = x.detach().to(device, dtype).clone().requires_grad_(True)
    with quiet(net), torch.enable_grad():
        z = _logits(s, net, rows.replaced(x))
        own = y.to(z.device)[:, None]
        gap = z.gather(1, own)[:, 0] - z.scatter(1, own, float("-inf")).max(1).values
        (g,) = torch.autograd.grad(gap.sum(), x)
    return gap.detach().float().cpu(), g.detach().float().cpu()


def _radius(
    s: Subject, net: nn.Module, rows: Samples, y: Tensor, unit: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance to the decision border, to first order, refined twice, and which rows are right."""
    start = rows.x.detach().float().cpu()
    x, right = start, None
    for _ in range(3):
        gap, g = _gap(s, net, rows, y, x)
        right = (gap > 0).numpy() if right is None else right
        flat = g.reshape(len(g), -1) * unit
        step = (gap / flat.square().sum(1).clamp_min(1e-20))[:, None] * flat * unit
        x = x - step.reshape(x.shape)
    radius = ((x - start).reshape(len(x), -1) / unit).norm(dim=1).numpy()
    return radius, right
