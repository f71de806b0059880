"""Faults of the data that show in how inputs and targets go together: leaks, wrong order, noise, no signal, rare classes.

Held-out simple models tell them from faults of the model: what trees and neighbours cannot learn either, no descent will.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.baselines import Baselines, Problem, baselines, scaled, score_of
from corollary.diagnose.exam import Exam
from corollary.diagnose.objectives import labels_of
from corollary.diagnose.subject import main_output, quiet
from corollary.diagnose.tables import graph_of

__all__ = ["CHECKS"]

SHIFTS = (1, -1, 2, -2, 3, -3, 5, -5, 10, -10)
CLEAR = 4.0  # standard errors from which a score is above chance


# --- leaks -----------------------------------------------------------------------------------------------


def target_leak(exam: Exam) -> None:
    """One column that says nearly everything while the others say little."""
    if _sees_answer(exam):
        return
    base = exam.baselines
    if base is None or not base.held or base.gain < 0.3:
        return
    p = base.problem
    S = scaled(p.X)
    if S.shape[1] < 2:
        return
    strength = _association(S, p)
    top = int(np.argmax(strength))
    alike = np.abs(S.T @ S[:, top]) / (len(S) * max(1e-9, S[:, top].std())) / np.maximum(1e-9, S.std(0))
    group = np.flatnonzero(alike > 0.98)
    if p.classes and len(np.unique(p.y)) > 2:  # an indicator per class
        group = np.union1d(group, np.flatnonzero(strength > 0.9 * strength[top]))
    rest = np.setdiff1d(np.arange(S.shape[1]), group)
    if not len(rest):
        return
    graph = graph_of(exam.subject.train)
    if strength[top] < 0.35 or (graph is not None and top >= graph.x.reshape(len(graph.x), -1).shape[1]):
        return  # means over neighbours are no column of anyone's
    alone = baselines(Problem(p.X[:, group], p.y, p.classes, p.rows), _part(base.valid_problem, group), 30)
    left = exam.reader.without_place(
        exam.subject.train, p.rows, top
    )  # a word counts at its place and among all words
    others = baselines(Problem(p.X[:, rest] if left is None else left, p.y, p.classes, p.rows), None, 30)
    gone = lambda b: b.gain  # noqa: E731
    a, o = gone(alone), gone(others)
    valid = alone.valid.get(alone.best, float("nan")) if alone.valid else float("nan")
    kept = (valid - base.chance) / max(1e-9, 1 - base.chance)
    exam.facts["best column"] = {"column": top, "alone": alone.score, "others": others.score, "valid": valid}
    lost = np.isfinite(kept) and kept < a - 0.3
    # a good feature leaves some rows wrong; one made from the answer hardly any
    plain = (a > 0.97 and o < a - 0.12) or (a > 0.99 and o < a - 0.06)
    plain = plain or (not p.classes and strength[top] > 0.9995 and o < 0.985)  # the number itself
    mild = a > 0.9 and o < 0.5 * a  # nearly everything, and twice what all others say together
    broken = lost and a > 0.5 and a > o + 0.15 and not exam.has("train-test-overlap")
    # a leak makes the model good; what it does not use is no reason for its failure, and a place of a sequence is no column
    mine = (exam.score - base.chance) / max(1e-9, 1 - base.chance)
    used = not mine < 0.5 * a
    exam.facts["leak used"] = used
    if exam.subject.train.x.ndim >= 3 and strength[top] < (0.98 if p.classes and used else 0.9995):
        return
    if plain or broken or mild:
        said = f"column {top} alone scores {alone.score:.3f} on held-out rows, all others {others.score:.3f}"
        said += f"; on validation it scores {valid:.3f}" if lost else ""
        exam.find("target-leak", alone.score, said, where=f"column {top}",
                  sure=0.65 if not used else 1.0 if plain else 0.9 if broken else 0.8,
                  evidence={"alone": alone.score, "others": others.score}, repair={"drop_columns": group.tolist()})  # fmt: skip


def _part(p: Problem | None, columns: np.ndarray) -> Problem | None:
    return (
        None
        if p is None or p.X.shape[1] <= columns.max()
        else Problem(p.X[:, columns], p.y, p.classes, p.rows)
    )


def _association(S: np.ndarray, p: Problem) -> np.ndarray:
    """Return, per column, the share of variance between classes (the best class against the rest), or the squared correlation."""
    total = S.var(0) + 1e-12
    if not p.classes:
        z = (p.y - p.y.mean()) / max(1e-12, p.y.std())
        ranks = (S.argsort(0).argsort(0) - (len(S) - 1) / 2) / (len(S) / np.sqrt(12))
        zr = (p.y.argsort().argsort() - (len(S) - 1) / 2) / (len(S) / np.sqrt(12))
        return np.maximum(np.square(S.T @ z / len(z)) / total, np.square(ranks.T @ zr / len(z)))
    found = np.zeros(S.shape[1])
    between = np.zeros(S.shape[1])
    for label in np.unique(p.y):
        mask = p.y == label
        if mask.sum() < 3 or (~mask).sum() < 3:
            continue
        share = mask.mean()
        inside, outside = S[mask].mean(0), S[~mask].mean(0)
        found = np.maximum(found, share * (1 - share) * np.square(inside - outside) / total)
        between += share * np.square(inside)
    return np.maximum(found, between / total)


def _sees_answer(exam: Exam) -> bool:
    """Whether targets are the inputs, or later inputs that the net looks at."""
    s = exam.subject
    x, y = s.train.x, s.train.y
    if (
        s.net is None
        or not isinstance(y, Tensor)
        or not isinstance(x, Tensor)
        or y.ndim < 2
        or x.shape[:2] != y.shape[:2]
    ):
        return False
    if x.shape[1] < 4 or s.train.whole or s.task not in ("classes", "regression") or x.ndim > 3:
        return False
    xs, ys = x.float(), y.float()
    if xs.shape != ys.shape:
        return False
    counted = ys != -100
    if s.task == "classes" and float((xs == ys)[counted].float().mean()) > 0.98:
        exam.find("target-leak", 1.0, "the targets are the inputs of the same step", where="y")
        return True
    if float((xs[:, 1:] == ys[:, :-1])[counted[:, :-1]].float().mean()) < 0.9:
        return False
    rows = s.train.take(np.arange(min(16, s.train.n)))
    at = x.shape[1] // 2
    changed = rows.x.clone()
    changed[:, at + 1 :] = changed[:, at + 1 :].flip(0)
    with torch.no_grad(), quiet(s.net):
        first = main_output(s.call(s.net.eval(), rows))
        second = main_output(s.call(s.net, rows.replaced(changed)))
    if first.shape[:2] != x.shape[:2]:
        first, second = first.movedim(1, -1), second.movedim(1, -1)
    if first.shape[:2] != x.shape[:2]:
        return False
    change = float((first[:, : at + 1] - second[:, : at + 1]).abs().max())
    if change > 1e-5 * float(first.abs().max()):
        said = "the output of a step depends on later steps, and the target is the next step: a causal mask is missing"
        exam.find("target-leak", change, said, where="attention over later steps")
        return True
    return False


# --- order, noise, nothing -------------------------------------------------------------------------------


def relation(exam: Exam) -> None:
    """Whether inputs and targets belong together at all, everywhere, and in the right order."""
    base = exam.baselines
    if base is None or not base.held or len(base.problem.y) < 30:
        return
    p = base.problem
    gain_needed = CLEAR * base.error / max(1e-9, 1 - base.chance)
    learned = base.gain > max(gain_needed, 0.04) or _ranked(base)
    own = _own(exam)
    exam.facts["relation"] = {
        "held": base.score,
        "valid": base.valid_score,
        "own": own,
        "chance": base.chance,
    }
    if _other_codes(exam, base, own):
        return
    model = _gain(exam)
    if model > max(0.15, 2 * gain_needed):
        if learned:
            _noise_or_block(exam, base)
        return
    if learned and base.gain > 0.1:
        _noise_or_block(exam, base)
        return
    moved = _moved(exam, p)
    if moved is not None:
        shift, score, plain = moved
        said = f"targets moved by {shift} rows are learned by neighbours ({score:.3f}), as they stand they are not ({plain:.3f})"
        exam.find("misaligned-labels", score, said, where=f"shift {shift}", repair={"roll_targets": shift})
        return
    if np.isfinite(own) and own > 0.2 and own > 3 * max(0.0, base.gain):
        said = (
            f"the validation targets can be learned from their inputs (gain {own:.2f}), the training "
            f"targets cannot ({base.gain:.2f})"
        )
        exam.find("misaligned-labels", own, said, where="training targets")
        return
    if learned or base.gain > 0.04:
        return
    said = f"trees, neighbours and a line score {base.score:.3f} on held-out rows, a constant answer {base.chance:.3f}"
    exam.facts["no signal"] = said
    sure = 1.0 if exam.subject.valid is not None else 0.85
    if exam.subject.train.x is not None and getattr(exam.subject.train.x, "ndim", 2) > 2:
        sure -= 0.1  # flat features may miss what a net would see
    exam.find("no-signal", base.score, said, sure=sure, evidence=dict(base.held))


def _other_codes(exam: Exam, base: Baselines, own: float) -> bool:
    """Whether each part can be learned but not one from the other, on inputs that are alike: classes are coded otherwise."""
    reached = (base.valid_score - base.chance) / max(1e-9, 1 - base.chance)
    apart = np.isfinite(own) and np.isfinite(reached) and reached < 0.3 * min(own, base.gain)
    if not apart or min(own, base.gain) < 0.4 or exam.has("distribution-shift"):
        return False
    said = (
        f"training and validation targets can each be learned from their inputs ({base.gain:.2f} and {own:.2f}), "
        f"but not the ones from the others ({reached:.2f})"
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
        if m >= 8 and _findable(base, [k]) > 0.5 + max(0.1, 3.3 * error):
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


def _own(exam: Exam) -> float:
    """Return what simple models gain on validation rows when they learn from other validation rows."""
    base = exam.baselines
    v = base.valid_problem if base is not None else None
    if v is None or len(v.y) < 40 or (v.classes and len(np.unique(v.y)) < 2):
        return float("nan")
    return baselines(v, None, 30).gain


def _moved(exam: Exam, p: Problem) -> tuple[int, float, float] | None:
    """Return the shift of targets at which neighbours learn them, if there is one."""
    y = exam.subject.train.y
    if (
        not isinstance(y, Tensor)
        or y.reshape(len(y), -1).shape[1] != 1
        or len(exam.subject.rows) != exam.subject.all_train.n
    ):
        return None
    full = y.reshape(len(y)).cpu().numpy()
    S = scaled(p.X)
    near = NearestNeighbors(n_neighbors=min(7, len(S) - 1)).fit(S).kneighbors(return_distance=False)

    def score(target: np.ndarray) -> float:
        if p.classes:
            labels = np.unique(target)
            codes = (target[:, None] == labels).astype(float)
            return score_of(codes[near].mean(1), target, labels)
        return score_of(target[near].mean(1), target, None)

    plain = score(full[p.rows])
    moved = {k: full[(p.rows + k) % len(full)] for k in SHIFTS}
    moved[0] = full[::-1][p.rows]  # the other way round
    tried = {k: score(target) for k, target in moved.items() if p.classes or not _an_input(p.X, target)}
    if not tried:
        return None
    best = max(tried, key=lambda k: tried[k])
    error = np.sqrt(0.25 / len(p.y)) if p.classes else np.sqrt(2 / len(p.y))
    if tried[best] > plain + max(0.1, 5 * error):
        return best, tried[best], plain
    return None


def _an_input(X: np.ndarray, target: np.ndarray) -> bool:
    """Whether a target is a column of the inputs: windows of a series hold the targets of the rows before."""
    Z = (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)
    z = (target - target.mean()) / max(float(target.std()), 1e-12)
    return bool((np.abs(Z.T @ z) / len(z) > 0.9).any())


def _noise_or_block(exam: Exam, base: Baselines) -> None:
    """Labels that held-out predictions contradict: in a run of rows, or here and there."""
    p = base.problem
    name = max(base.valid, key=lambda k: base.valid[k]) if base.valid else base.best
    guess = base.guesses[name]
    if p.classes:
        wrong = base.labels[guess.argmax(1)] != p.y
    else:
        rest = np.abs(guess - p.y)
        wrong = rest > 3 * np.median(rest) + 1e-12
    if _block(exam, base, wrong, guess):
        return
    if not exam.has("target-leak", "distribution-shift"):
        _noise(exam, base, name, wrong, guess)


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
    rows = p.rows[inside]
    said = (
        f"rows {rows.min()} to {rows.max()} contradict the others ({rate_in:.0%} wrong against {rate_out:.0%}): "
        "their targets are of other rows"
    )
    exam.find("misaligned-labels", rate_in, said, where=f"rows {rows.min()} to {rows.max()}")
    return True


def _noise(exam: Exam, base: Baselines, name: str, wrong: np.ndarray, guess: np.ndarray) -> None:
    """Errors among the most confident rows, beyond those on clean validation rows."""
    p = base.problem
    n = len(p.y)
    v = base.valid_problem
    new = (
        np.zeros(0, int) if v is None else np.flatnonzero(~np.isin(v.rows, exam.facts.get("shared rows", [])))
    )
    if base.valid and len(new) >= 30:  # rows that are in both parts are known, not foreseen
        compare = _cleaner if p.classes else _nearer
        held, valid, share, suspicious = compare(base, name, new)
        exam.facts["noise gap"] = [held, valid]
        if suspicious:
            said = (
                f"simple models score {held:.3f} on held-out training rows but {valid:.3f} on validation: "
                f"about {share:.0%} of the training labels are wrong"
            )
            exam.find("label-noise", share, said, where=f"rows {p.rows[wrong][:20].tolist()}", sure=0.95)
            return
    if not p.classes or base.gain < 0.35:
        if not p.classes and base.gain > 0.2:
            _outliers(exam, base, guess)
        return
    together = sum(_sharp(base.guesses[k]) for k in base.guesses) / len(base.guesses)
    said_class = base.labels[together.argmax(1)]
    missed = said_class != p.y
    ordered = np.sort(together, 1)
    order = np.argsort(-(ordered[:, -1] - ordered[:, -2]))
    top, middle = order[: n // 5], order[n // 5 : n // 2]
    e_top, e_mid = float(missed[top].mean()), float(missed[middle].mean())
    se = np.sqrt(max(e_top, 0.02) / len(top))
    exam.facts["confident errors"] = [e_top, e_mid]
    if e_top > 0.05 + 2 * se and e_top > 0.55 * e_mid:
        said = (
            f"{e_top:.0%} of the most confident held-out predictions contradict the label, as many as "
            f"among the less confident ({e_mid:.0%})"
        )
        exam.find(
            "label-noise",
            e_top,
            said,
            where=f"rows {p.rows[order[: n // 2]][missed[order[: n // 2]]][:20].tolist()}",
            sure=0.85,
        )


def _cleaner(base: Baselines, name: str, new: np.ndarray) -> tuple[float, float, float, bool]:
    """Compare classes held out of training with those of validation: all simple models must find the latter cleaner.

    The middle one of their gaps counts, against the standard error of a difference of two shares with one true value.
    """
    p, v = base.problem, base.valid_problem
    pairs = [(base.held[k], score_of(base.valid_guesses[k][new], v.y[new], base.labels)) for k in base.valid]
    held, valid = sorted(pairs, key=lambda pair: pair[1] - pair[0])[len(pairs) // 2]
    n, m = len(p.y), len(new)
    both = (n * held + m * valid + 1) / (n + m + 2)
    error = np.sqrt(both * (1 - both) * (1 / n + 1 / m))
    return held, valid, (valid - held) / max(1e-9, valid), valid - held > max(0.05, 3.2 * error)


def _nearer(base: Baselines, name: str, new: np.ndarray) -> tuple[float, float, float, bool]:
    """The same for numbers: the squared errors of one model in both parts."""
    p, v = base.problem, base.valid_problem
    inside = np.square(base.guesses[name] - p.y)
    outside = np.square(base.valid_guesses[name] - v.y)[new]
    a, b = float(inside.mean()), float(outside.mean())
    error = np.sqrt(inside.var() / len(p.y) + outside.var() / len(new))
    share = (a - b) / max(1e-12, float(p.y.var()))
    held, valid = base.held[name], base.valid[name]
    return held, valid, share, a - b > 4 * error and share > 0.1 and valid > held + 0.1


def _sharp(g: np.ndarray) -> np.ndarray:
    g = np.clip(g, 0, 1)
    return g / np.maximum(g.sum(1, keepdims=True), 1e-9)


def _outliers(exam: Exam, base: Baselines, guess: np.ndarray) -> None:
    """Real targets far from what all others say: more than heavy tails on both sides would."""
    p = base.problem
    rest = guess - p.y
    scale = 1.4826 * np.median(np.abs(rest - np.median(rest)))
    far = np.abs(rest) > 6 * scale
    if base.gain > 0.4 and 0.02 < far.mean() < 0.4:
        exam.facts["far targets"] = float(far.mean())


# --- rare classes ----------------------------------------------------------------------------------------


def imbalance(exam: Exam) -> None:
    """Rare classes that the model misses although they can be found."""
    s = exam.subject
    if s.task not in ("classes", "binary") or s.output is None or s.net is None:
        return
    z, y = main_output(s.output), s.train.y
    keep = s.train.counted
    said, true, _ = labels_of(z[keep] if s.train.whole else z, y[keep] if s.train.whole else y, s.task)
    labels, counts = np.unique(true, return_counts=True)
    if len(labels) < 2:
        return
    share = counts / counts.sum()
    rare = labels[share < (0.15 if len(labels) == 2 else 0.35 / len(labels))]
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
    recall = {int(k): float((said[true == k] == k).mean()) for k in labels if (true == k).any()}
    missed = [k for k in rare.tolist() if recall.get(k, 1.0) < 0.6]
    common = [recall[k] for k in recall if k not in rare.tolist()]
    exam.facts["recall"] = recall
    if not missed or not common or np.mean(common) < 0.6 or recall[missed[0]] > np.mean(common) - 0.25:
        return
    base = exam.baselines
    findable = _findable(base, missed)
    exam.facts["rare findable"] = findable
    if findable < 0.7:
        return
    worst = min(missed, key=lambda k: recall[k])
    text = (
        f"class {worst} has {share[labels == worst][0]:.1%} of the rows and is found in {recall[worst]:.0%} "
        f"of cases, the others in {np.mean(common):.0%}"
    )
    weights = {int(k): float(counts.sum() / (len(labels) * c)) for k, c in zip(labels, counts)}
    exam.find("class-imbalance", recall[worst], text, where=f"classes {missed}", evidence={"recall": recall},
              sure=0.9, repair={"class_weight": weights})  # fmt: skip


def _findable(base: Baselines | None, missed: list[int]) -> float:
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
            order = guess[:, where[0]].argsort(kind="stable").argsort() + 1.0
            m = mask.sum()
            best = max(best, float((order[mask].mean() - (m + 1) / 2) / max(1, len(mask) - m)))
    return best


CHECKS = (target_leak, relation, imbalance)
