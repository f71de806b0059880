"""Faults of generative models: codes that say nothing, samples that repeat."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.tables import dense

__all__ = ["mode_collapse", "posterior_collapse"]


SCATTERED = 1.4  # times as much as data vary samples that have not learned where these are


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
        code = s.net.eval().encode(rows.x)  # type: ignore[operator]
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
        # weights that read an empty code have nothing to learn from
        if exam.sure.get("frozen-parameters", 1.0) < 0.75:
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
        made = main_output(s.net.eval().sample(n))  # type: ignore[operator]
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
    narrow = (cover < 0.6 * usual and (spread < 0.75 or missing > 0.1)) or missing > 0.2
    alike = spread < 0.5 and cover < 0.8 * usual  # means of a decoder vary less, and lie near all of the data
    if (narrow or alike) and not (spread > SCATTERED and missing < 0.5):
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
