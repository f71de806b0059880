"""Inputs that hold the answer: a column made from the target, or later steps that a net looks at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.baselines import Baselines, Problem, baselines, scaled
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import Samples, main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.tables import dense, graph_of

__all__ = ["target_leak"]

# of what one column leaves open: others that tell more of it belong to it, as colour does to weight
COMPLETED = 0.5
SHORT = 0.85  # of what can be gained, from which one column is enough for an answer
ASKED = 512  # rows
CLEAR = 3.0  # standard errors: of k rows in which two answers differ, all for one of them, the difference is k +- sqrt(k)
STAMPED = 0.99  # of a pixel's variance between classes: it is one number for each
# of a pixel's variance between classes (each class may have its own); share of an image that is a mark; of an image
MARK, FEW, PIXELS = (0.5, 0.05, 20000)


class Strongest(NamedTuple):
    """The column that goes with the target most, with those that repeat it, and what they and all others gain."""

    column: int
    group: np.ndarray
    strength: float
    alone: Baselines
    others: Baselines


def target_leak(exam: Exam) -> None:
    """One column that says nearly everything while the others say little, or that the model takes for a short cut."""
    base = exam.baselines
    if _sees_answer(exam) or base is None or not base.held or _mark(exam) or base.gain < 0.3:
        return
    if base.problem.words is not None:
        return  # a word may well have one kind wherever it stands
    found = _strongest(exam, base)
    if found is None:
        return
    a, o = found.alone.gain, found.others.gain
    valid = found.alone.valid.get(found.alone.best, float("nan")) if found.alone.valid else float("nan")
    lost = (valid - base.chance) / max(1e-9, 1 - base.chance) < a - 0.3
    mine = (exam.score - base.chance) / max(1e-9, 1 - base.chance)
    # a leak makes the model good; what it does not use is no reason for its failure
    used = not mine < 0.5 * a
    exam.facts["best column"] = {
        "column": found.column, "alone": found.alone.score, "others": found.others.score, "valid": valid, "used": used,
    }  # fmt: skip
    classes = base.problem.classes
    if exam.subject.train.x.ndim >= 3 and found.strength < (0.98 if classes and used else 0.9995):
        return  # a place of a sequence is no column
    # a good feature leaves some rows wrong; one made from the answer hardly any, of all rows that were asked
    sure, seen = (a, a) if not classes else _surely(found.alone, base, with_valid=not lost)
    plain = sure > 0.97 and (o < a - 0.12 or (seen > 0.99 and o < a - 0.06))
    plain = plain or (not classes and found.strength > 0.9995 and o < 0.985)  # the number itself
    by_itself = 1 - base.gain > COMPLETED * (1 - a)  # others do not tell what it leaves open
    mild = a > 0.9 and o < 0.5 * a and by_itself  # nearly everything, and twice what all others say together
    broken = lost and a > 0.5 and a > o + 0.15 and not exam.has("train-test-overlap")
    # a word for every class: no text tells its own so plainly, whatever its other words say
    told = classes and a > 0.99 and found.strength > 0.9
    told = told and len(exam.reader.words_of(found.group)) >= len(np.unique(base.problem.y))
    # nearly all of few rows is not nearly all of many: the column must be right where the others are wrong in CLEAR ** 2 rows
    ahead = (found.alone.score - found.others.score) * len(base.problem.y)
    if classes and ahead < CLEAR**2:
        plain = mild = False
    # of a text, others that tell more are other words
    apart = by_itself or o > SHORT or bool(exam.reader.words_of(found.group))
    surely = plain or broken or mild or told
    if surely or (a > SHORT and apart and _decides_alone(exam, [found.column, *found.group])):
        said = f"column {found.column} alone scores {found.alone.score:.3f} on held-out rows, all others {found.others.score:.3f}"
        said += f"; on validation it scores {valid:.3f}" if lost else ""
        exam.find("target-leak", found.alone.score, said, where=f"column {found.column}",
                  sure=0.55 if not used else 1.0 if plain or told else 0.9 if broken else 0.8,
                  evidence={"alone": found.alone.score, "others": found.others.score},
                  repair={"drop_columns": found.group.tolist()})  # fmt: skip


def _surely(alone: Baselines, base: Baselines, with_valid: bool) -> tuple[float, float]:
    """Return what a column gains at least, two standard errors below what it gained on all rows, and that."""
    right, n = alone.score * len(base.problem.y), len(base.problem.y)
    if with_valid and alone.valid and base.valid_problem is not None:
        m = len(base.valid_problem.y)
        right, n = right + alone.valid[alone.best] * m, n + m
    wrong = (n - right + 1) / (n + 2)
    wrong += 2 * np.sqrt(wrong * (1 - wrong) / n)
    possible = max(1e-9, 1 - base.chance)
    return float(1 - wrong / possible), float(1 - (1 - right / n) / possible)


def _mark(exam: Exam) -> bool:
    """Whether a few pixels at one place go with the classes, and decide for the model, though the rest says something too."""
    s, base = exam.subject, exam.baselines
    x = s.train.x
    if (
        not isinstance(x, Tensor)
        or x.ndim != 4
        or not x.is_floating_point()
        or not base.problem.classes
        or s.output is None
    ):
        return False
    p = base.problem
    if len(np.unique(p.rows)) < len(p.rows) or x[0].numel() > PIXELS:
        return False
    flat = dense(x[torch.as_tensor(p.rows)]).reshape(len(p.rows), -1)
    strength = _association(scaled(flat), p)
    strength = strength.reshape(x.shape[1], -1).max(0)  # of all channels
    place = np.flatnonzero(strength > 0.5 * strength.max())
    if strength.max() < MARK or len(place) > max(1, FEW * len(strength)):
        return False
    samples = (s.valid or s.train).first(ASKED)
    rows = torch.from_numpy(np.random.default_rng(0).permutation(samples.n))
    whole, other = samples.x.flatten(2), samples.x[rows].flatten(2)
    alone, without = other.clone(), whole.clone()
    alone[:, :, place], without[:, :, place] = whole[:, :, place], other[:, :, place]
    mine, kept, left = _gains(
        exam, samples, [samples.x, alone.reshape(samples.x.shape), without.reshape(samples.x.shape)]
    )
    exam.facts["mark"] = {
        "strength": float(strength.max()),
        "pixels": len(place),
        "gains": [mine, kept, left],
    }
    # as no picture is by nature, whether the model looks there or not
    stamped = bool(strength.max() > STAMPED)
    if not stamped and (mine < 0.5 or kept < SHORT * mine or left > (1 - SHORT) * mine):
        return False
    covered = x.flatten(2).clone()
    covered[:, :, place] = covered[:, :, place].mean(0, keepdim=True)
    rest = exam.facts["mark"]["rest"] = baselines(
        Problem(exam.reader(s.train.replaced(covered.reshape(x.shape)), p.rows), p.y, True, p.rows), None, 30
    ).gain
    if rest < 0.1:
        return False
    said = f"{len(place)} of {len(strength)} pixels go with the class"
    said += f"; with all others of another image the model gains {kept:.2f} of {mine:.2f}"
    exam.find("target-leak", kept, said, where=f"pixels {place[:10].tolist()}", sure=0.9)
    return True


def _gains(exam: Exam, samples: Samples, inputs: list[Tensor]) -> list[float]:
    """Return the model's score above chance, as a share of what is possible, with other first inputs."""
    s, found = exam.subject, []
    with torch.no_grad(), quiet(s.net):
        for x in inputs:
            z = main_output(s.call(s.net.eval(), samples.replaced(x)))
            score, chance = s.criterion.score(z, samples.y)
            found.append((score - chance) / max(1e-9, 1 - chance))
    return found


def _strongest(exam: Exam, base: Baselines) -> Strongest | None:
    """Return the strongest column; None where there is none to speak of, or nothing beside it."""
    p = base.problem
    S = scaled(p.X)
    if S.shape[1] < 2:
        return None
    strength = _association(S, p)
    top = int(np.argmax(strength))
    alike = np.abs(S.T @ S[:, top]) / (len(S) * max(1e-9, S[:, top].std())) / np.maximum(1e-9, S.std(0))
    group = np.flatnonzero(alike > 0.98)
    if p.classes:  # an indicator per class, or a word, which may be counted and stand in one place
        like_it, n = np.flatnonzero(strength > 0.9 * strength[top]), len(np.unique(p.y))
        words = len(exam.reader.words_of(like_it))
        group = np.union1d(group, like_it) if (n > 2 or words) and (words or len(like_it)) <= n else group
    rest = np.setdiff1d(np.arange(S.shape[1]), group)
    graph = graph_of(exam.subject.train)
    mean = graph is not None and top >= graph.x.reshape(len(graph.x), -1).shape[1]
    if not len(rest) or strength[top] < 0.35 or mean:  # means over neighbours are no column of anyone's
        return None
    alone = baselines(Problem(p.X[:, group], p.y, p.classes, p.rows), _part(base.valid_problem, group), 30)
    left = exam.reader.without_place(exam.subject.train, p.rows, top)  # a word counts among all words too
    others = baselines(Problem(p.X[:, rest] if left is None else left, p.y, p.classes, p.rows), None, 30)
    return Strongest(top, group, float(strength[top]), alone, others)


def _decides_alone(exam: Exam, group: list[int]) -> bool:
    """Whether the model takes a short cut: one column decides although the others would do as well.

    With all others taken from another row the answers stay with that column, and with it alone from another row they go. Of one
    word of a text the second is enough, as no single place tells so much by nature.
    """
    s = exam.subject
    samples = (s.valid or s.train).first(ASKED)
    places = [exam.reader.place_of(samples, int(column)) for column in group]
    place = list(dict.fromkeys(p for p in places if p is not None))
    if not all(len(torch.unique(samples.x[:, p])) <= 2 for p in place):
        place = place[:1]  # indicators belong together, features that tell much do not
    if s.net is None or s.output is None or not place or samples.whole:
        return False
    rows = torch.from_numpy(np.random.default_rng(0).permutation(samples.n))
    alone, without = samples.x[rows].clone(), samples.x.clone()
    alone[:, place], without[:, place] = samples.x[:, place], samples.x[rows][:, place]
    found = _gains(exam, samples, [samples.x, alone, without])
    exam.facts["gain, from the best column alone, without it"] = found
    mine, kept, left = found
    if not samples.x.is_floating_point():
        return mine > 0.5 and left < 0.5 * mine
    return mine > 0.5 and kept > SHORT * mine and left < (1 - SHORT) * mine


def _part(p: Problem | None, columns: np.ndarray) -> Problem | None:
    if p is None or p.X.shape[1] <= columns.max():
        return None
    return Problem(p.X[:, columns], p.y, p.classes, p.rows)


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
