"""Faults of the outcome: too small a model, memorised data, codes that say nothing, samples that repeat, false confidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.calibration import expected_error, temperature
from corollary.diagnose.descent import Trials, level
from corollary.diagnose.exam import Exam
from corollary.diagnose.graph import _fine
from corollary.diagnose.objectives import labels_of
from corollary.diagnose.reference import perceptron_gain
from corollary.diagnose.subject import main_output, quiet
from corollary.diagnose.tables import dense
from corollary.diagnose.widening import wider_view

__all__ = ["CHECKS"]


LESS = 0.08  # of what is possible: what a model scores less on its own rows than others on rows that they have not seen
ANOTHER = 0.03  # that another draw of the perceptron may differ by
HALTED = 0.2  # confidence too low that a training stopped in time may have
SMOOTHED = 0.85  # confidence that customary label smoothing, of a tenth, asks for
FRAGILE = 0.3  # of the way half to the nearest other class: sound classifiers keep more than 0.4 of it


def capacity(exam: Exam) -> None:
    """Good settings do not help, but other models learn what this one cannot."""
    s = exam.subject
    base = exam.baselines
    if (
        exam.lab is None
        or s.output is None
        or base is None
        or not base.held
        or _fine(exam)
        or exam.facts.get("untrained")
    ):
        return
    if exam.findings:
        return
    trials = exam.facts.get("trials") or Trials(exam)
    score, chance = exam.score, base.chance
    new = trials.good("new long", "new", rate=3e-3, steps=3 * trials.steps)
    now = exam.facts.get("now", [float("nan")] * 4)
    best = max(score, new.score)
    mine = (best - chance) / max(1e-9, 1 - chance)
    theirs = base.gain
    x = s.train.x
    table = isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point()  # that both see as it is
    if theirs <= mine + LESS and table:
        theirs = max(theirs, perceptron_gain(base.problem, base.valid_problem, chance) - ANOTHER)
    exam.facts["capacity"] = {"mine": mine, "theirs": theirs, "new": new.score, "now": now[1]}
    if theirs > mine + LESS:
        said = (
            f"trained afresh with good settings it scores {best:.3f} on its own training rows; others, simple "
            f"models or a perceptron of 64 units, score {chance + theirs * (1 - chance):.3f} on rows they have not seen"
        )
        exam.find("capacity-too-small", mine, said, sure=0.7, repair={"width": "larger"})


def overfit(exam: Exam) -> None:
    """A gap between training and validation that a simpler or earlier model would not have."""
    s, perf = exam.subject, exam.performance
    if s.valid is None or "valid loss" not in perf:
        return
    train, valid, chance = perf["train score"], perf["valid score"], perf["train chance"]
    a, b = perf["train loss"], perf["valid loss"]
    n = max(1, int(s.valid.counted.sum()))
    gap = (train - valid) / max(1e-9, 1 - chance) if math.isfinite(train) and math.isfinite(valid) else 0.0
    error = math.sqrt(0.25 / n) / max(1e-9, 1 - chance) if s.task != "regression" else math.sqrt(2 / n)
    history = s.history.get("val_loss", np.zeros(0))
    history = history[np.isfinite(history)]
    turned = (
        float(history[-1] / max(1e-12, history.min())) if len(history) >= 4 and history.min() > 0 else 1.0
    )
    constant = level(exam)
    worse = (b - a) / max(abs(constant) if math.isfinite(constant) else abs(b), 1e-9)
    base = exam.baselines
    theirs = base.valid_score if base is not None else float("nan")
    beaten = math.isfinite(theirs) and (theirs - valid) / max(1e-9, 1 - chance) > 0.03
    exam.facts["gap"] = {"score": gap, "loss": worse, "turned": turned, "beaten": beaten}
    if exam.has("distribution-shift", "train-test-overlap", "no-signal", "misaligned-labels") and gap > 0.1:
        exam.facts["gap explained"] = True
    significant = gap > max(0.12, 2.5 * error) and train > chance  # nothing was learned by heart otherwise
    if significant and (turned > 1.2 or beaten or worse > 0.4 or gap > 0.3):
        said = f"training score {train:.3f} and loss {a:.3g}, validation {valid:.3f} and {b:.3g}"
        said += f"; the validation loss is {turned:.2f} times its best" if turned > 1.05 else ""
        exam.find(
            "overfit", gap, said, sure=0.8, evidence={"history": s.history}, repair={"early_stopping": True}
        )
    elif turned > 1.5 and worse > 0.25 and gap > 0.04:
        said = f"the validation loss is {turned:.2f} times its best, {b:.3g} against {a:.3g} on training rows"
        exam.find(
            "overfit",
            turned,
            said,
            sure=0.7,
            evidence={"history": s.history},
            repair={"early_stopping": True},
        )


# --- confidence ------------------------------------------------------------------------------------------


def miscalibrated(exam: Exam) -> None:
    """Probabilities that are no frequencies."""
    s = exam.subject
    if (
        s.task not in ("classes", "binary")
        or s.output is None
        or s.net is None
        or exam.facts.get("untrained")
    ):
        return
    samples = s.valid if s.valid is not None else None
    if samples is None or int(samples.counted.sum()) < 40:
        return
    with torch.no_grad(), quiet(s.net):
        z = main_output(s.call(s.net.eval(), samples))
    keep = samples.counted
    z, y = (z[keep], samples.y[keep]) if samples.whole else (z, samples.y)
    said, true, confidence = labels_of(z, y, s.task)
    error, noise, *_ = expected_error(confidence, said == true)
    right = float((said == true).mean())
    over = float(confidence.mean()) - right
    exam.facts["calibration error"], exam.facts["overconfidence"] = error, over
    zt, yt = main_output(s.output), s.train.y
    keep = s.train.counted
    zt, yt = (zt[keep], yt[keep]) if s.train.whole else (zt, yt)
    a, b, c = labels_of(zt, yt, s.task)
    inside, inside_noise, *_ = expected_error(c, a == b)
    exam.facts["calibration error on training rows"] = inside
    limit = 0.08 + 1.2 * noise
    asked = _asked(s, zt)
    if over < 0 and SMOOTHED < asked < float(confidence.mean()) + 0.1:
        return  # as sure as its loss wants it to be
    if error > limit and (over > 0.06 or over < -HALTED):
        own = inside > 0.06 + inside_noise
        text = (
            f"confidence is {float(confidence.mean()):.2f} on average and right in {right:.2f} of cases: "
            f"calibration error {error:.3f}"
        )
        exam.find("miscalibrated", error, text, sure=0.85 if own else 0.6, repair={"temperature": temperature(z, y, s.task)},
                  evidence={"own": own})  # fmt: skip


def _asked(s: Any, z: Tensor) -> float:
    """Return the confidence in right answers that the user's loss rewards most: below one under label smoothing."""
    if not s.criterion.custom or s.task != "classes" or z.ndim != 2 or z.shape[1] < 2:
        return 1.0
    k = z.shape[1]
    y = torch.arange(k, device=z.device)
    sizes = torch.linspace(0.5, 15, 59)
    try:
        losses = [float(s.criterion(size * torch.eye(k, device=z.device), y)) for size in sizes]
    except (RuntimeError, ValueError, TypeError):
        return 1.0
    best = float(sizes[int(np.argmin(losses))])
    return math.exp(best) / (math.exp(best) + k - 1)


# --- small changes ---------------------------------------------------------------------------------------


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
    if (exam.facts["radius share"] < FRAGILE or _leans(exam)) and (_fine(exam) or gain > 0.85):
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
        z = main_output(net(*q.args, **q.kwargs)).float()
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
            z = main_output(net(*q.args, **q.kwargs)).float()
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


# --- generative ------------------------------------------------------------------------------------------


def posterior_collapse(exam: Exam) -> None:
    """Codes that do not depend on the input."""
    s = exam.subject
    encode = getattr(s.net, "encode", None)
    if encode is None or s.net is None:
        return
    x = s.train.x
    device, dtype = s.place(s.net)
    rows = (s.train if s.train.n <= 1024 else s.train.take(np.arange(1024))).to(device, dtype)
    with torch.no_grad(), quiet(s.net):
        code = s.net.eval().encode(rows.x)
    if not isinstance(code, (tuple, list)) or len(code) < 2:
        return
    mean, log_variance = code[0].float(), code[1].float()
    kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)
    kl = kl.reshape(len(kl), -1).mean(0).cpu().numpy()
    used = int((mean.reshape(len(mean), -1).var(0) > 0.01).sum())
    total = float(kl.sum())
    exam.facts["kl per dimension"], exam.facts["dimensions in use"] = kl.tolist(), used
    score = exam.score
    need = min(len(kl), _needed(dense(x)))
    exam.facts["dimensions needed"] = need
    if total < 0.1 * min(len(kl), 4) or used == 0 or (used < 0.34 * need and used <= 0.5 * len(kl)):
        said = (
            f"{used} of {len(kl)} dimensions of the code are in use, with {total:.2g} nats in all; the "
            f"data vary in about {need}"
        )
        exam.find(
            "posterior-collapse", used, said, where="encode", sure=0.95, evidence={"kl": kl, "score": score}
        )
        if "dead-units" in exam.sure:  # of an encoder that is not needed
            exam.sure["dead-units"] = min(exam.sure["dead-units"], 0.5)
        if (
            exam.sure.get("frozen-parameters", 1.0) < 0.75
        ):  # weights that read an empty code have nothing to learn from
            exam.drop("frozen-parameters")


def _needed(x: np.ndarray) -> int:
    """Return how many directions hold nine tenths of the variance."""
    flat = x.reshape(len(x), -1)[:1000]
    spectrum = np.square(np.linalg.svd(flat - flat.mean(0), compute_uv=False))
    return int(np.searchsorted(np.cumsum(spectrum) / max(spectrum.sum(), 1e-30), 0.9) + 1)


def mode_collapse(exam: Exam) -> None:
    """Samples that repeat a part of the data and leave out the rest."""
    s = exam.subject
    sample = getattr(s.net, "sample", None)
    if sample is None or s.net is None:
        return
    n = min(500, s.train.n // 2)
    if n < 20:
        return
    with torch.no_grad(), quiet(s.net):
        torch.manual_seed(0)
        made = main_output(s.net.eval().sample(n))
    if made is None:
        return
    real = dense(s.train.x).reshape(s.train.n, -1)
    fake = dense(made).reshape(len(made), -1)
    if fake.shape[1] != real.shape[1]:
        return
    rng = np.random.default_rng(0)
    order = rng.permutation(len(real))
    a, b = real[order[:n]], real[order[n : 2 * n]]
    mean, std = real.mean(0), real.std(0) + 1e-9
    keep = std > 1e-6
    a, b, f = ((v[:, keep] - mean[keep]) / std[keep] for v in (a, b, fake))
    cover, usual = _coverage(a, f), _coverage(a, b)
    spread = float(np.sqrt(np.square(f - f.mean(0)).mean()) / np.sqrt(np.square(a - a.mean(0)).mean()))
    k = int(min(10, max(2, len(a) // 20)))
    clusters = KMeans(k, n_init=2, random_state=0).fit(np.concatenate([a, b]))
    real_share = np.bincount(clusters.labels_, minlength=k) / len(clusters.labels_)
    fake_share = np.bincount(clusters.predict(f.astype(clusters.cluster_centers_.dtype)), minlength=k) / len(
        f
    )
    missing = float(real_share[fake_share < 0.15 * real_share].sum())
    exam.facts["coverage"] = {"samples": cover, "data": usual, "spread": spread, "missing": missing}
    if (cover < 0.6 * usual and (spread < 0.75 or missing > 0.1)) or missing > 0.2 or spread < 0.5:
        said = (
            f"samples lie near {cover:.0%} of the data (other data near {usual:.0%}), vary {spread:.2f} "
            f"times as much, and miss {missing:.0%} of the clusters' mass"
        )
        exam.find("mode-collapse", cover, said, where="sample", sure=0.9)


def _coverage(a: np.ndarray, b: np.ndarray, k: int = 5) -> float:
    """Return the share of rows of ``a`` that have one of ``b`` among as near as their own neighbours are."""
    index = NearestNeighbors(n_neighbors=min(k + 1, len(a))).fit(a)
    radii = index.kneighbors(a)[0][:, -1]
    near = NearestNeighbors(n_neighbors=1).fit(b).kneighbors(a)[0][:, 0]
    return float((near <= radii).mean())


CHECKS = (posterior_collapse, mode_collapse, wider_view, overfit, miscalibrated, fragile, capacity)
