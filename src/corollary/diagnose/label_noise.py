"""Labels that are wrong here and there: what confident held-out predictions contradict."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

from corollary.diagnose.baselines import Baselines, Problem, foretells, score_of
from corollary.diagnose.exam import Exam
from corollary.diagnose.positions import places
from corollary.diagnose.reference import perceptron_guesses
from corollary.diagnose.reference_nets import net_gain
from corollary.diagnose.samples import main_output, with_main
from corollary.diagnose.subject import quiet
from corollary.diagnose.windows import answers_last

__all__ = ["label_noise"]

MANY = 200  # validation rows whose fifth is enough to count errors in
CLEAR = 3.5  # standard errors by which a model does not do worse on rows that it knows by chance
# of the confident errors: simple models make more of them on validation too, the model itself fewer
REFUTED = 0.7
# deviations of the targets that an error is far at; of the loss at twice as far, where squares say 4
FAR, LINEAR = (10.0, 2.5)
# gain from which simple models are judges by themselves, and from which the model bears them out
SURE, LEAST = (0.25, 0.15)
CLEAN = 0.9  # score of simple models from which they are good enough judges by themselves


def label_noise(exam: Exam, base: Baselines, name: str, wrong: np.ndarray, guess: np.ndarray) -> None:
    """Errors among the most confident rows, beyond those on clean validation rows."""
    p = base.problem
    v = base.valid_problem
    new = (
        np.zeros(0, int) if v is None else np.flatnonzero(~np.isin(v.rows, exam.facts.get("shared rows", [])))
    )
    alike = not exam.has("distribution-shift")
    if not p.classes and exam.fine and robust(exam):
        return  # what the loss is there for, and it has done it
    if alike and base.valid and len(new) >= 30:  # rows that are in both parts are known, not foreseen
        compare = _cleaner if p.classes else _nearer
        held, valid, share, suspicious = compare(base, name, new)
        exam.facts["noise gap"] = [held, valid]
        if suspicious:
            said = (
                f"simple models score {held:.3f} on held-out training rows but {valid:.3f} on validation: "
                f"about {share:.0%} of the training labels are wrong"
            )
            exam.find(
                "label-noise",
                share,
                said,
                where=f"rows {exam.subject.rows[p.rows[wrong]][:20].tolist()}",
                sure=0.95,
            )
            return
    s = exam.subject
    # a word is no label: what comes next is drawn, not wrong
    if p.classes and not foretells(s.train.x, s.train.y):
        _confident_errors(exam, base)
    elif not p.classes and not (alike and _better_where_new(exam)) and base.gain > 0.2:
        _outliers(exam, base, guess)


def robust(exam: Exam) -> bool:
    """Whether the loss of numbers grows no faster than large errors do: outliers pull no more than others."""
    s = exam.subject
    z, y = main_output(s.output), s.train.y
    if s.task != "regression" or not s.criterion.was_given or z is None or z.numel() != y.numel():
        return False
    y = y.reshape(z.shape).to(z)
    far = FAR * float(y.float().std())
    with torch.no_grad():
        near, further = (
            float(s.criterion(with_main(s.output, y + k * far), s.target(s.train))) for k in (1, 2)
        )
    return 0 < further < LINEAR * near


def _better_where_new(exam: Exam) -> bool:
    """Whether the model's own errors are larger on the numbers that it was trained on than on those it has not seen."""
    s = exam.subject
    if s.valid is None or s.task != "regression" or s.train.whole or s.output is None:
        return False
    with torch.no_grad(), quiet(s.net):
        outs = [main_output(s.output), main_output(s.call(s.net.eval(), s.valid))]
    errors = []
    for z, samples in zip(outs, (s.train, s.valid)):
        if z.numel() != samples.y.numel():
            return False
        rest = (s.criterion.answers(z).float().cpu() - samples.y.reshape(z.shape).float().cpu()).abs()
        errors.append(rest.reshape(len(rest), -1).mean(1).numpy())
    inside, outside = errors
    error = np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))
    exam.facts["errors where trained and where new"] = [
        float(inside.mean()),
        float(outside.mean()),
        float(error),
    ]
    train, valid = exam.performance["train score"], exam.performance["valid score"]
    if not (inside.mean() - outside.mean() > CLEAR * error and valid > train + 0.1 and valid > 0.3):
        return False
    said = f"the model explains {train:.2f} of the targets that it was trained on and {valid:.2f} of those it has not seen"
    rows = s.rows[np.argsort(-inside)[:20]]
    exam.find("label-noise", valid - train, said, where=f"rows {rows.tolist()}", sure=0.9)
    return True


def _confident_errors(exam: Exam, base: Baselines) -> None:
    r"""Errors that do not become rarer where predictions are sure.

    Where classes overlap, the share of errors :math:`1 - \max_k p(k \mid x)` goes to zero away from the border; where a share
    :math:`\eta` of the labels is drawn anew it stays at :math:`\eta (1 - 1/K)` however far one goes.
    """
    p, n = base.problem, len(base.problem.y)
    if len(np.unique(p.X, axis=0)) < n / 2:
        return  # rows that are alike in every column may differ in what was not asked: their class is a chance by nature
    guesses = [_sharp(g) for g in base.guesses.values()]
    x = exam.subject.train.x
    if base.score < CLEAN and isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point():
        guesses.append(perceptron_guesses(p))
    together: Any = sum(guesses) / len(guesses)
    missed = base.labels[together.argmax(1)] != p.y
    gain = max(base.gain, (1 - missed.mean() - base.chance) / max(1e-9, 1 - base.chance))
    if gain < SURE and not (gain > LEAST and _own_errors(exam)):
        return
    ordered = np.sort(together, 1)
    order = np.argsort(-(ordered[:, -1] - ordered[:, -2]))
    top, middle = order[: n // 5], order[n // 5 : n // 2]
    e_top, e_mid = float(missed[top].mean()), float(missed[middle].mean())
    usual = errors_of_an_overlap(gain, 0.2)
    error = np.sqrt(max(e_top, 0.02) / len(top))
    exam.facts["confident errors"] = [e_top, e_mid, usual]
    if e_top > max(usual, 0.05) + 2 * error and e_top > 0.55 * e_mid and not _refuted(exam, base, e_top):
        said = (
            f"{e_top:.0%} of the most confident held-out predictions contradict the label, nearly as many as among the less "
            f"confident ({e_mid:.0%}); of classes that merely overlap {usual:.0%} would"
        )
        sure = order[: n // 2]
        where = f"rows {exam.subject.rows[p.rows[sure]][missed[sure]][:20].tolist()}"
        exam.find("label-noise", e_top, said, where=where, sure=0.85)


def _own_errors(exam: Exam) -> bool:
    """Whether the model too, which has learned nothing by heart, errs on new rows where it is sure more than an overlap does."""
    s, perf = exam.subject, exam.performance
    if s.valid is None or s.task != "classes" or s.valid.n < MANY or exam.gain < LEAST:
        return False
    if perf["train score"] - perf["valid score"] > 2 * np.sqrt(0.25 / s.valid.n):
        return False
    with torch.no_grad(), quiet(s.net):
        z = main_output(s.call(s.net.eval(), s.valid)).float().cpu()
    if (
        z.ndim != 2
        or len(z) != s.valid.n
        or not isinstance(s.valid.y, Tensor)
        or s.valid.y.shape != z.shape[:1]
    ):
        return False
    p = z.softmax(1).numpy()
    share = _errors_where_sure(p, p.argmax(1) != s.valid.y.cpu().numpy())
    exam.facts["own confident errors"] = share
    return share > errors_of_an_overlap(exam.gain, 0.2) + 2 * np.sqrt(share / (0.2 * len(z)))


def _refuted(exam: Exam, base: Baselines, share: float) -> bool:
    """Whether simple models are poor judges: as sure and as often wrong of validation labels that the model bears out."""
    s, v = exam.subject, base.valid_problem
    if _net_errs_less(exam, base, share):
        return True
    if s.valid is None or s.net is None or not base.valid_guesses or exam.gain < base.gain / 2:
        return False
    mine = _own_guesses(exam, v)
    if mine is None:
        return False
    theirs: Any = sum(_sharp(g) for g in base.valid_guesses.values()) / len(base.valid_guesses)
    wrong = [
        _errors_where_sure(theirs, base.labels[theirs.argmax(1)] != v.y),
        _errors_where_sure(mine, mine.argmax(1) != v.y),
    ]
    exam.facts["confident errors on validation"] = wrong
    return wrong[0] > REFUTED * share > wrong[1]


def _own_guesses(exam: Exam, v: Problem) -> np.ndarray | None:
    """Return the probabilities that the model gives the classes of validation rows, or of places of them."""
    s = exam.subject
    with torch.no_grad(), quiet(s.net):
        z = main_output(s.call(s.net.eval(), s.valid)).float().cpu()
    if len(z) != s.valid.n:
        return None
    if v.places is None:
        if len(np.unique(v.rows)) < len(v.rows):
            return None
        if s.task == "binary" and z.numel() == len(z):
            return _of_one(z.reshape(len(z), 1)).numpy()[v.rows]
        return z.softmax(1).numpy()[v.rows] if s.task == "classes" and z.ndim == 2 else None
    found = places(exam, s.valid)
    z = None if found is None else answers_last(z, found.sides)
    if z is None:
        return None
    z = z[(v.rows, *v.places.T)]
    if s.task == "classes":
        return z.softmax(1).numpy()
    return _of_one(z).numpy() if z.shape[1] == 1 else None


def _of_one(z: Tensor) -> Tensor:
    """Return the probabilities of no and of yes, from one logit or probability."""
    p = z if bool(((z >= 0) & (z <= 1)).all()) else z.sigmoid()
    return torch.cat([1 - p, p], 1)


def _net_errs_less(exam: Exam, base: Baselines, share: float) -> bool:
    """Whether a net of usual form, of images, sequences or texts, errs less often on rows it has not seen than labels are wrong.

    Where validation has cleaner labels it would do so all the same, so simple models must be as often wrong there.
    """
    if exam.subject.valid is not None:
        if not base.valid_guesses:
            return False
        theirs: Any = sum(_sharp(g) for g in base.valid_guesses.values()) / len(base.valid_guesses)
        v = base.valid_problem
        if _errors_where_sure(theirs, base.labels[theirs.argmax(1)] != v.y) < REFUTED * share:
            return False
    gain = net_gain(exam)
    return bool((1 - gain) * (1 - base.chance) < REFUTED * share)


def _errors_where_sure(p: np.ndarray, missed: np.ndarray) -> float:
    """Return the share of errors among the fifth of the rows whose first answer is furthest ahead of the second."""
    ordered = np.sort(p, 1)
    top = np.argsort(-(ordered[:, -1] - ordered[:, -2]))[: max(1, len(p) // 5)]
    return float(missed[top].mean())


def errors_of_an_overlap(gain: float, share: float) -> float:
    r"""Return the errors among the most confident share of rows of two normal classes that are told apart as well as here.

    For classes :math:`\mathcal N(\pm d/2, 1)` a share :math:`\Phi(d/2)` is right, and of the rows with :math:`|x| > t`, which
    are :math:`\Phi(d/2 - t) + \Phi(-d/2 - t)`, those of the second term are wrong.
    """
    half = norm.ppf((1 + min(gain, 0.999)) / 2)
    t = brentq(lambda t: norm.cdf(half - t) + norm.cdf(-half - t) - share, 0.0, half + 10)
    return float(norm.cdf(-half - t) / share)


def _cleaner(base: Baselines, name: str, new: np.ndarray) -> tuple[float, float, float, bool]:
    """Compare classes held out of training with those of validation: all simple models must find the latter cleaner.

    The middle one of their gaps counts, against the standard error of a difference of two shares with one true value.
    """
    p, v = base.problem, base.valid_problem
    pairs = [
        (
            score_of(base.guesses[k], p.y, base.labels),
            score_of(base.valid_guesses[k][new], v.y[new], base.labels),
        )
        for k in base.valid
    ]
    held, valid = sorted(pairs, key=lambda pair: pair[1] - pair[0])[len(pairs) // 2]
    n, m = len(p.y), len(new)
    both = (n * held + m * valid + 1) / (n + m + 2)
    error = np.sqrt(both * (1 - both) * (1 / n + 1 / m))
    return held, valid, (valid - held) / max(1e-9, valid), valid - held > max(0.05, 3.2 * error)


def _nearer(base: Baselines, name: str, new: np.ndarray) -> tuple[float, float, float, bool]:
    """The same for numbers: the errors of one model in both parts, whose sizes vary less than their squares."""
    p, v = base.problem, base.valid_problem
    inside = np.abs(base.guesses[name] - p.y)
    outside = np.abs(base.valid_guesses[name] - v.y)[new]
    error = np.sqrt(inside.var() / len(p.y) + outside.var() / len(new))
    clear = inside.mean() - outside.mean() > 4 * error
    share = float(np.square(inside).mean() - np.square(outside).mean()) / max(1e-12, float(p.y.var()))
    held, valid = base.held[name], base.valid[name]
    return held, valid, share, bool(clear) and share > 0.1 and valid > held + 0.1


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
