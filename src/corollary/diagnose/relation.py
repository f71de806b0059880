"""Whether inputs and targets belong together: everywhere, in the right order, at all.

Held-out simple models tell faults of the data from faults of the model: what trees and neighbours cannot learn either, no
descent will.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.baselines import Baselines, Problem, baselines, line, scaled, score_of
from corollary.diagnose.exam import RARE, Exam
from corollary.diagnose.imbalance import findable
from corollary.diagnose.label_noise import label_noise
from corollary.diagnose.tables import dense, joined

__all__ = ["relation"]

SHIFTS = (1, -1, 2, -2, 3, -3, 5, -5, 10, -10)
CLEAR = 4.0  # standard errors from which a score is above chance
CHANCE = 2.0  # the same, up to which the best of three may come by chance
FEW = 0.1  # gain that may come by chance where rows are too few to say that there is no signal
# deviations of a walk, and the share of the targets that fit better a few rows further
SLIPPED, LEAST = (4.0, 0.1)
OTHER = 0.3  # deviations of the targets, that one of another row is away at least, as a rule
AGREES = 0.2  # rank correlation of a model with targets that have outliers
SLIDES = 12  # numbers by which windows may be apart
SAME = 0.999  # correlation of a column with a target that it is, up to rounding
SIDE = 0.99  # AUC of a column whose side of a number a class is, up to the rows at both ends


def relation(exam: Exam) -> None:
    """Whether inputs and targets belong together at all, everywhere, and in the right order."""
    base = exam.baselines
    if base is None or not base.held or len(base.problem.y) < 30:
        return
    learned, gain_needed = _learned(base)
    if not learned:
        base = _closer(exam, base)
        learned, gain_needed = _learned(base)
    p = base.problem
    own = _own(exam)
    exam.facts["relation"] = {
        "held": base.score,
        "valid": base.valid_score,
        "own": own,
        "chance": base.chance,
    }
    if _other_codes(exam, base, own) or _mixed_up(exam, base, own, gain_needed):
        return
    model = _gain(exam)
    if model > max(0.15, 2 * gain_needed):
        reached = base.reached
        if learned or reached > gain_needed:  # wrong targets hide what can be learned from other wrong ones
            _noise_or_block(exam, base)
        return
    if learned and base.gain > 0.1:
        _noise_or_block(exam, base)
        return
    moved = _moved(exam, p)
    if moved is not None:
        shift, score, plain = moved
        said = f"targets moved by {shift} rows are learned by simple models ({score:.3f}), as they stand not ({plain:.3f})"
        exam.find("misaligned-labels", score, said, where=f"shift {shift}", repair={"roll_targets": shift})
        return
    if np.isfinite(own) and own > max(0.2, _needed(base.valid_problem)) and own > 3 * max(0.0, base.gain):
        said = (
            f"the validation targets can be learned from their inputs (gain {own:.2f}), the training "
            f"targets cannot ({base.gain:.2f})"
        )
        exam.find("misaligned-labels", own, said, where="training targets")
        return
    x = exam.subject.train.x
    # of others than tables a net may see more, and of rare classes a score does not tell
    plain = isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point() and base.chance < RARE
    luck = CHANCE * gain_needed / CLEAR
    if learned or base.gain > max(0.04, luck if plain and luck < FEW else 0.0) or _agrees(exam):
        return
    said = f"trees, neighbours and a line score {base.score:.3f} on held-out rows, a constant answer {base.chance:.3f}"
    exam.facts["no signal"] = said
    sure = 1.0 if exam.subject.valid is not None else 0.85
    if exam.subject.train.x is not None and getattr(exam.subject.train.x, "ndim", 2) > 2:
        sure -= 0.1  # flat features may miss what a net would see
    exam.find("no-signal", base.score, said, sure=sure, evidence=dict(base.held))


def _agrees(exam: Exam) -> bool:
    """Whether the model puts numbers in their order where its squared errors are those of a few outliers."""
    s = exam.subject
    if s.task != "regression" or s.output is None or s.valid is None:
        return False
    z, y = (t.float().reshape(-1) for t in exam.answers("valid"))
    return len(z) == len(y) and bool(spearmanr(z, y).statistic > max(AGREES, CLEAR / np.sqrt(len(y))))


def _learned(base: Baselines) -> tuple[bool, float]:
    """Return whether simple models are above chance, and the gain from which one is."""
    needed = CLEAR * base.error / max(1e-9, 1 - base.chance)
    return base.gain > max(needed, 0.04) or _ranked(base), needed


def _closer(exam: Exam, base: Baselines) -> Baselines:
    """Return simple models that know, of inputs that are a graph each, which kinds of nodes are joined; else those given."""
    s, p, v = exam.subject, base.problem, base.valid_problem
    more = joined(s.train, p.rows)
    if more is None:
        return base
    other = None if v is None or s.valid is None else joined(s.valid, v.rows)
    valid = None if other is None else Problem(np.concatenate([v.X, other], 1), v.y, v.classes, v.rows)
    return baselines(Problem(np.concatenate([p.X, more], 1), p.y, p.classes, p.rows), valid)


def _other_codes(exam: Exam, base: Baselines, own: float) -> bool:
    """Whether each part can be learned but not one from the other, on inputs that are alike: classes are coded otherwise."""
    reached = base.reached
    apart = np.isfinite(own) and np.isfinite(reached) and reached < 0.3 * min(own, base.gain)
    if not apart or min(own, base.gain) < 0.4 or exam.has("distribution-shift"):
        return False
    if min(own, base.gain) - reached < _needed(base.valid_problem):
        return False  # a few rows of a rare class
    said = (
        f"training and validation targets can each be learned from their inputs ({base.gain:.2f} and {own:.2f}), "
        f"but not the ones from the others ({reached:.2f})"
    )
    exam.find("misaligned-labels", reached, said, where="validation targets")
    return True


def _mixed_up(exam: Exam, base: Baselines, own: float, needed: float) -> bool:
    """Whether training targets can be learned, and those of validation neither from training nor from themselves."""
    reached = base.reached
    known = np.isfinite(own) and np.isfinite(reached) and not exam.has("distribution-shift")
    if not known or base.gain < max(0.3, 2 * needed) or max(own, reached, _gain(exam)) > 0.25 * base.gain:
        return False
    if base.labels is not None and _ranked(baselines(base.valid_problem, None, 30)):
        return False
    said = (
        f"training targets can be learned from their inputs (gain {base.gain:.2f}), those of validation neither by what was "
        f"learned there ({reached:.2f}) nor from each other ({own:.2f})"
    )
    exam.find("misaligned-labels", reached, said, where="validation targets")
    return True


def _ranked(base: Baselines) -> bool:
    """Whether simple models rank the rows of some class first, though none may reach a half: signal about a rare class."""
    if base.labels is None:
        return False
    counts = {int(k): int((base.problem.y == k).sum()) for k in base.labels}
    for k, m in counts.items():
        error = np.sqrt((len(base.problem.y) + 1) / (12 * max(1, m * (len(base.problem.y) - m))))
        if m >= 8 and findable(base, [k]) > 0.5 + max(0.1, 3.3 * error):
            return True
    return False


def _gain(exam: Exam) -> float:
    """Return the model's score above chance where it counts: on validation, as a share of what is possible."""
    perf = exam.performance
    score, chance = perf.get("valid score", np.nan), perf.get("valid chance", np.nan)
    if not np.isfinite(score):
        return 0.0
    error = 0.0
    if exam.subject.valid is not None:
        error = 2 * np.sqrt(0.25 / max(1, exam.subject.valid.n))
    return (score - chance - error) / max(1e-9, 1 - chance)


def _needed(p: Problem) -> float:
    """Return the gain from which a score is above chance; of rare classes it is large."""
    if not p.classes:
        return CLEAR * float(np.sqrt(2 / len(p.y)))
    chance = float(np.unique(p.y, return_counts=True)[1].max() / len(p.y))
    return CLEAR * float(np.sqrt(chance * (1 - chance) / len(p.y))) / max(1e-9, 1 - chance)


def _own(exam: Exam) -> float:
    """Return what simple models gain on validation rows when they learn from other validation rows."""
    base = exam.baselines
    v = base.valid_problem if base is not None else None
    if v is None or len(v.y) < 40 or (v.classes and len(np.unique(v.y)) < 2):
        return float("nan")
    return baselines(v, None, 30).gain


def _moved(exam: Exam, p: Problem) -> tuple[int, float, float] | None:
    """Return the shift of targets at which neighbours learn them, if there is one."""
    # of data that are large some rows are looked at, and their neighbours are others
    whole = exam.subject.all_train
    x, y = whole.x, whole.y
    if not isinstance(y, Tensor) or y.reshape(len(y), -1).shape[1] != 1:
        return None
    slides = isinstance(x, Tensor) and _sliding(dense(x[:400]).reshape(min(len(x), 400), -1))
    if slides and not p.classes:
        return None
    full, rows = y.reshape(len(y)).cpu().numpy(), exam.subject.rows[p.rows]
    S = scaled(p.X)
    near = NearestNeighbors(n_neighbors=min(7, len(S) - 1)).fit(S).kneighbors(return_distance=False)

    def score(target: np.ndarray) -> float:
        labels = np.unique(target) if p.classes else None
        codes = (target[:, None] == labels).astype(float) if p.classes else (target - target.mean())[:, None]
        guess = codes[near].mean(1) if p.classes else target[near].mean(1)
        return max(
            score_of(guess, target, labels), score_of(line(S, None, target, codes, labels)[0], target, labels)
        )

    plain = score(full[rows])
    moved = {k: full[(rows + k) % len(full)] for k in SHIFTS}
    moved[0] = full[::-1][rows]  # the other way round
    tried = {k: score(t) for k, t in moved.items() if not (slides or not p.classes) or not _an_input(p.X, t)}
    if not tried:
        return None
    best = max(tried, key=lambda k: tried[k])
    error = np.sqrt(0.25 / len(p.y)) if p.classes else np.sqrt(2 / len(p.y))
    if tried[best] > plain + max(0.1, 5 * error):
        return best, tried[best], plain
    return None


def _an_input(X: np.ndarray, target: np.ndarray) -> bool:
    """Whether a target is a column of the inputs, or on which side of a number it is: windows hold targets of rows before."""
    labels = np.unique(target)
    if len(labels) == 2:
        inside = target == labels[1]
        m = int(inside.sum())
        auc = (X.argsort(0).argsort(0)[inside].mean(0) - (m - 1) / 2) / (len(target) - m)
        return bool((np.maximum(auc, 1 - auc) > SIDE).any())
    Z = (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)
    z = (target - target.mean()) / max(float(target.std()), 1e-12)
    return bool((np.abs(Z.T @ z) / len(z) > SAME).any())


def _sliding(x: np.ndarray) -> bool:
    """Whether rows are windows of one series, each a few steps after the one before: targets of other rows are then inputs."""
    a, b = x[:-1], x[1:]
    shifts = [k for k in range(1, min(SLIDES, x.shape[1] // 2) + 1)]
    return any(
        bool((np.isclose(u[:, k:], v[:, :-k]).mean(1) > 0.9).mean() > 0.5)
        for k in shifts
        for u, v in ((a, b), (b, a))
    )


def _noise_or_block(exam: Exam, base: Baselines) -> None:
    """Labels that held-out predictions contradict: in a run of rows, or here and there."""
    p = base.problem
    name = max(base.valid, key=lambda k: base.valid[k]) if base.valid else base.best
    guess = base.guesses[name]
    if p.classes:
        wrong = base.labels[guess.argmax(1)] != p.y
    else:
        rest = np.abs(guess - p.y)
        wrong = rest > max(3 * np.median(rest), OTHER * p.y.std()) + 1e-12
    if _slipped(exam, base, guess) or _block(exam, base, wrong, guess):
        return
    if not exam.has("target-leak"):
        label_noise(exam, base, name, wrong, guess)


def _slipped(exam: Exam, base: Baselines, guess: np.ndarray) -> bool:
    """Whether, from some row on, held-out predictions fit the targets of rows a little further better than their own."""
    p, s = base.problem, exam.subject
    y = s.all_train.y
    alone = isinstance(y, Tensor) and y.reshape(len(y), -1).shape[1] == 1
    if not p.classes or not alone or len(p.y) < 200 or len(np.unique(p.rows)) < len(p.rows):
        return False
    full, order = y.reshape(len(y)).cpu().numpy(), np.argsort(s.rows[p.rows])
    rows, said = s.rows[p.rows][order], base.labels[guess.argmax(1)][order]
    own = (said == full[rows]).astype(float)
    best = max(
        ((k, *_stretch((said == full[(rows + k) % len(full)]) - own)) for k in SHIFTS),
        key=lambda found: found[1],
    )
    shift, height, begin, end = best
    inside = slice(begin, end)
    moved = float((said[inside] == full[(rows[inside] + shift) % len(full)]).mean()) if end > begin else 0.0
    gain = moved - (float(own[inside].mean()) if end > begin else 1.0)
    exam.facts["slipped"] = {"shift": shift, "height": height, "gain": gain}
    x = s.all_train.x
    if (
        height < SLIPPED
        or gain < LEAST
        or (isinstance(x, Tensor) and _sliding(dense(x[:400]).reshape(min(len(x), 400), -1)))
    ):
        return False
    first, last = int(rows[begin]), int(rows[end - 1])
    said_so = f"of rows {first} to {last} held-out predictions fit the targets {shift} rows further in {moved:.0%} of cases, "
    said_so += f"their own in {moved - gain:.0%}"
    exam.find("misaligned-labels", gain, said_so, where=f"rows {first} to {last}, shift {shift}", sure=0.95)
    return True


def _stretch(steps: np.ndarray) -> tuple[float, int, int]:
    """Return the largest sum of neighbouring numbers, in deviations of a walk of all of them, and where it begins and ends."""
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    low = np.minimum.accumulate(walk)
    end = int((walk - low).argmax())
    begin = int(walk[: end + 1].argmin())
    return float((walk - low).max()) / (np.sqrt(len(steps)) * max(1e-9, float(steps.std()))), begin, end


def _block(exam: Exam, base: Baselines, wrong: np.ndarray, guess: np.ndarray) -> bool:
    """Whether the errors lie in one run of rows."""
    p = base.problem
    if len(wrong) < 100 or len(np.unique(p.rows)) < len(p.rows):
        return False
    if p.classes:  # sorted rows have runs of their own: what is usual for a class is taken off
        excess = wrong.astype(float)
        for label in np.unique(p.y):
            excess[p.y == label] -= wrong[p.y == label].mean()
    else:
        excess = wrong - wrong.mean()
    walk = np.concatenate([[0.0], np.cumsum(excess)])
    low, high = int(walk.argmin()), int(walk.argmax())
    begin, end = min(low, high), max(low, high)
    height = abs(walk[high] - walk[low]) / (np.sqrt(len(wrong)) * max(1e-9, excess.std()))
    inside = np.zeros(len(wrong), bool)
    inside[begin:end] = True
    if low > high:
        inside = ~inside
    if inside.sum() < 20 or (~inside).sum() < 20:
        return False
    rate_in, rate_out = float(wrong[inside].mean()), float(wrong[~inside].mean())
    exam.facts["block"] = {"height": height, "inside": rate_in, "outside": rate_out}
    if height < 2.6 or rate_in < 2 * rate_out + 0.15:
        return False
    rows = exam.subject.rows[p.rows[inside]]
    said = (
        f"rows {rows.min()} to {rows.max()} contradict the others ({rate_in:.0%} wrong against {rate_out:.0%}): "
        "their targets are of other rows"
    )
    exam.find("misaligned-labels", rate_in, said, where=f"rows {rows.min()} to {rows.max()}")
    return True
