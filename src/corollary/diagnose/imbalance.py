"""Rare classes that the model misses although they can be found."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from corollary.diagnose.baselines import Baselines, foretells
from corollary.diagnose.exam import Exam
from corollary.diagnose.objectives import labels_of
from corollary.diagnose.positions import places
from corollary.diagnose.samples import IGNORED, main_output
from corollary.diagnose.subject import quiet

__all__ = ["findable", "imbalance"]

RARELY = 0.1  # of the places
NEVER = 0.2  # of the marked places: who finds so few has learned to mark none

# standard errors, by which a class is rarer than drawing from even classes makes the rarest of some
CLEAR = 3.0


def imbalance(exam: Exam) -> None:
    """Rare classes that the model misses although they can be found."""
    s = exam.subject
    if s.task == "multilabel":
        _rare_places(exam)
    if s.task not in ("classes", "binary") or s.output is None or s.net is None:
        return
    if foretells(s.train.x, s.train.y):
        return  # rare words are rarely the most probable next one; their probabilities count, not how many are found
    z, y = main_output(s.output), s.train.y
    keep = s.train.counted
    said, true, _ = labels_of(z[keep] if s.train.whole else z, y[keep] if s.train.whole else y, s.task)
    labels, counts = np.unique(true, return_counts=True)
    if len(labels) < 2:
        return
    share = counts / counts.sum()
    few = (1 / len(labels) - share) / np.sqrt((1 - 1 / len(labels)) / len(labels) / counts.sum()) > CLEAR
    rare = labels[few & (share < (0.15 if len(labels) == 2 else 0.35 / len(labels)))]
    exam.facts["class shares"] = {int(k): float(v) for k, v in zip(labels, share)}
    if not len(rare):
        return
    parts = [(said, true)]
    if s.valid is not None:
        with torch.no_grad(), quiet(s.net):
            zv = main_output(s.call(s.net.eval(), s.valid))
        kv = s.valid.counted
        a, b, _ = labels_of(
            zv[kv] if s.valid.whole else zv, s.valid.y[kv] if s.valid.whole else s.valid.y, s.task
        )
        if np.isin(b, rare).sum() >= 5:
            parts = [(a, b)]
    said, true = parts[0]
    ranks = _ranks(z[keep] if s.train.whole else z, y[keep] if s.train.whole else y)
    recall = {int(k): float((said[true == k] == k).mean()) for k in labels if (true == k).any()}
    missed = [k for k in rare.tolist() if recall.get(k, 1.0) < 0.6]
    common = [recall[k] for k in recall if k not in rare.tolist()]
    exam.facts["recall"] = recall
    if not missed or not common or np.mean(common) < 0.6 or recall[missed[0]] > np.mean(common) - 0.25:
        return
    base = exam.baselines
    found = max(findable(base, missed), *(ranks.get(k, 0.5) for k in missed))
    exam.facts["rare findable"] = found
    if found < 0.7:
        return
    worst = min(missed, key=lambda k: recall[k])
    text = (
        f"class {worst} has {share[labels == worst][0]:.1%} of the rows and is found in {recall[worst]:.0%} "
        f"of cases, the others in {np.mean(common):.0%}"
    )
    weights = {int(k): float(counts.sum() / (len(labels) * c)) for k, c in zip(labels, counts)}
    exam.find("class-imbalance", recall[worst], text, where=f"classes {missed}", evidence={"recall": recall},
              sure=0.9, repair={"class_weight": weights})  # fmt: skip


def _rare_places(exam: Exam) -> None:
    """Places of a mask, or steps of a sequence, that are rarely marked, and never by the model, though it ranks them first."""
    s = exam.subject
    if s.output is None or s.net is None or places(exam) is None:
        return
    z, y = exam.answers("train" if s.valid is None else "valid")
    said, true, _ = labels_of(z, y, s.task)
    share = float(true.mean())
    if not 0 < share < RARELY or true.sum() < 20:
        return
    recall, told = float(said[true == 1].mean()), _auc(_counted(z, y), true == 1)
    exam.facts["marked places"] = {"share": share, "recall": recall, "ranked": told}
    if recall < NEVER and told > 0.8:
        text = f"{share:.1%} of the places are marked, and {recall:.0%} of these are found, though the model ranks them first "
        text += f"(AUC {told:.2f})"
        exam.find("class-imbalance", recall, text, where="marked places", sure=0.7,
                  repair={"class_weight": {0: 1.0, 1: float((1 - share) / share)}})  # fmt: skip


def _counted(z: Tensor, y: Tensor) -> np.ndarray:
    """Return the outputs at places that are counted."""
    return z.float().reshape(-1)[(y != IGNORED).reshape(-1)].numpy()


def _ranks(z: Tensor, y: Tensor) -> dict[int, float]:
    """Return how well the model's own outputs rank the rows of every class above others (AUC), whatever it then says."""
    z, y = z.detach().float().cpu(), y.detach().cpu().reshape(len(y), -1)
    if z.ndim > 2 or y.shape[1] != 1:
        return {}
    z = torch.cat([-z.reshape(len(z), 1), z.reshape(len(z), 1)], 1) if z.ndim == 1 or z.shape[1] == 1 else z
    true = y[:, 0].round().long().numpy()
    return {int(k): _auc(z[:, int(k)].numpy(), true == k) for k in np.unique(true) if 0 <= k < z.shape[1]}


def _auc(values: np.ndarray, mask: np.ndarray) -> float:
    """Return the share of pairs of a row inside and one outside of which the former has the larger value."""
    m = int(mask.sum())
    return float((rankdata(values)[mask].mean() - (m + 1) / 2) / max(1, len(mask) - m)) if m else 0.5


def findable(base: Baselines | None, missed: list[int]) -> float:
    """Return how well simple models rank rows of the missed classes above others (AUC)."""
    if base is None or base.labels is None:
        return 0.5
    best = 0.5
    for guess in base.guesses.values():
        for k in missed:
            where = np.flatnonzero(base.labels == k)
            mask = base.problem.y == k
            if not len(where) or mask.sum() < 3:
                continue
            best = max(best, _auc(guess[:, where[0]], mask))
    return best
