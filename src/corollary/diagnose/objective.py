"""What the loss is given and what it rewards: probabilities in place of logits, a loss that does not fit the target."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines, scaled
from corollary.diagnose.exam import Exam
from corollary.diagnose.rewards import (
    best_output,
    class_axis,
    one_sided,
    softmax_inside,
    takes_logits,
    treats_as_numbers,
)
from corollary.diagnose.samples import IGNORED, main_output, with_main

__all__ = ["double_softmax", "wrong_loss"]

UNIT = 1e-3  # how near to one the sums of probabilities are
SENSIBLE = 0.3  # of the way from none to right answers, in the loss: a model that has learned something
IN_LINE = 0.5  # rank correlation of numbers and distances of classes; of classes on a line it is near one
GUESSED = 0.05  # of the mean recall, above that of guesses
PRAISED = 0.1  # of the way from right answers to none, in the loss
BEYOND = 0.02  # of the targets, or of one, from which it is no rounding


def _like_logits(exam: Exam, z: Tensor, y: Tensor) -> str | None:
    """Return which loss on logits the user's is: "cross_entropy" or "bce_with_logits", by name or by its values."""
    c = exam.subject.criterion
    if c.name in ("cross_entropy", "bce_with_logits"):
        return c.name
    if c.name != "custom" or not c.was_given:
        return None
    try:
        value = float(c(with_main(exam.subject.output, z), y))
        if not y.is_floating_point() and z.ndim == y.ndim + 1:
            if abs(value - float(F.cross_entropy(z, y.long()))) < 1e-4 * (1 + abs(value)):
                return "cross_entropy"
        if z.numel() == y.numel():
            same = float(F.binary_cross_entropy_with_logits(z.reshape(-1), y.reshape(-1).to(z.dtype)))
            if abs(value - same) < 1e-4 * (1 + abs(value)):
                return "bce_with_logits"
    except (RuntimeError, ValueError, IndexError):
        return None
    return None


def double_softmax(exam: Exam) -> None:
    """Probabilities handed to a loss that takes logits."""
    s = exam.subject
    z, y = main_output(s.output), s.train.y
    if z is None or not isinstance(y, Tensor) or z.ndim < 1 or s.task in ("embedding", "ordinal"):
        return
    z = z.detach().float().cpu()
    kind = _like_logits(exam, z, y.cpu())
    if kind is None and s.criterion.custom and takes_logits(s.criterion, s.output, z, y.cpu()):
        kind = "maybe"  # which of the two, its outputs tell
    bounded = bool((z >= -1e-6).all()) and bool((z <= 1 + 1e-6).all())
    axis = class_axis(z, y)
    several = z.ndim >= 2 and z.shape[axis] > 1 and not (y.is_floating_point() and y.ndim < z.ndim)
    off = float((z.sum(axis) - 1).abs().max()) if several else float("inf")
    if s.criterion.custom and softmax_inside(s.criterion, s.output, z, y.cpu()):
        said = "the loss of right answers, however sure, stays where a second softmax (or sigmoid) leaves it"
        exam.find("double-softmax", 1.0, said, where="loss")
    elif kind in ("cross_entropy", "maybe") and bounded and off < UNIT:
        said = f"outputs are probabilities already (rows sum to 1 within {off:.0e}), and the loss applies a softmax to them"
        exam.find("double-softmax", 1 - off, said, where="output")
    elif kind == "bce_with_logits" or (kind == "maybe" and s.task != "classes"):
        last = exam.last_call
        if bounded and (last == "sigmoid" or float(z.std()) > 1e-4) and last in ("sigmoid", "softmax", ""):
            said = "outputs lie between 0 and 1 already, and the loss applies a sigmoid to them"
            exam.find("double-softmax", 1.0, said, where="output")


def wrong_loss(exam: Exam) -> None:
    """A loss that does not belong to the target, or whose best output is not the right one."""
    s = exam.subject
    c, y = s.criterion, s.train.y
    z = main_output(s.output)
    if z is None or not c.was_given or _beyond_one(exam) or not isinstance(y, Tensor):
        return
    if s.task in ("embedding", "ordinal"):
        if c.opposed:
            said = "the loss is less where rows lie beside those of other classes: it does not reward being right"
            exam.find("wrong-loss", float("nan"), said, where="loss")
        return
    z, yc = z.detach().float().cpu(), y.detach().cpu()
    try:
        with torch.no_grad():
            float(c(s.output, y.to(main_output(s.output).device)))
    except Exception as error:
        why = str(error).removeprefix("diagnose: ")[:120]
        said = f"the loss cannot take output {tuple(z.shape)} and target {tuple(y.shape)}: {why}"
        exam.find("wrong-loss", float("nan"), said, where="loss", repair=_fitting(z, yc))
        return
    if _numbers_for_classes(exam, z, yc) or _not_log(exam, z, yc) or _several_at_once(exam, yc):
        return
    _one_class(exam, z)
    _broadcast(exam, z, yc)
    if c.custom:
        best_output(exam, z, yc)
        _one_sided(exam, z, yc)
        _content(exam)
        if (
            s.task == "classes"
            and not exam.has("wrong-loss")
            and treats_as_numbers(exam, z, yc)
            and not _in_line(exam)
        ):
            said = "the loss of a wrong class grows with its number, as if classes were quantities, and these have no order"
            exam.find("wrong-loss", z.shape[1], said, where="loss", repair={"loss": "cross_entropy"})
        _no_numbers(exam)


def _no_numbers(exam: Exam) -> None:
    """Notice outputs that the loss likes and that explain nothing as numbers: logits of shares, risks, several kinds at once."""
    known = exam.facts.get("loss of right, none, wrong")
    if known is None or exam.has("wrong-loss") or exam.subject.task != "regression":
        return
    good, none, _ = known
    if exam.score < 0 and exam.performance["train loss"] < none - SENSIBLE * (none - good):
        exam.judge_by_loss()


def _fitting(z: Tensor, y: Tensor) -> dict[str, str]:
    """Return the form of the targets that a loss of such outputs takes, where they are near one."""
    if z.ndim == 2 and z.shape[1] > 1:
        if y.shape == z.shape and bool(((y == 0) | (y == 1)).all()):
            return {"targets": "y.argmax(1)" if bool((y.sum(1) == 1).all()) else "y.float()"}
        if y.numel() == len(y) and bool((y == y.round()).all()):
            return {"targets": "y.reshape(-1).long()"}
    if y.numel() == z.numel():
        return {"targets": f"y.reshape{(-1, *z.shape[1:])}.float()"}
    return {}


def _one_sided(exam: Exam, z: Tensor, y: Tensor) -> None:
    """A loss that asks for one class only, or drives the answers of a class away from it."""
    asked = None if exam.has("wrong-loss") else one_sided(exam.subject.criterion, exam.subject.output, z, y)
    if asked is not None:
        said = f"of the classes {asked[1]} only {asked[0]} draw outputs towards them: others cost nothing, or less where wrong"
        exam.find("wrong-loss", len(asked[0]), said, where="loss")


def _content(exam: Exam) -> None:
    """A loss that is nearly as small as that of right answers, of a model whose answers are no better than any."""
    known = exam.facts.get("loss of right, none, wrong")
    if known is None or exam.has("wrong-loss") or exam.subject.task not in ("classes", "binary"):
        return
    (good, none, _), now = known, exam.performance["train loss"]
    classes = 2 if exam.subject.task == "binary" else main_output(exam.subject.output).shape[1]
    guessed = exam.score < exam.performance["train chance"] and exam.balanced < 1 / classes + GUESSED
    if guessed and now < good + PRAISED * (none - good):
        said = f"the loss is {now:.3g}, nearly that of right answers ({good:.3g}), though the answers are guesses"
        exam.find("wrong-loss", now, said, where="loss")


def _numbers_for_classes(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """Squared errors of class numbers."""
    c = exam.subject.criterion
    values = torch.unique(y[:5000].float())
    numeric = c.name in ("mse", "l1", "huber") or (c.name == "custom" and exam.subject.task == "regression")
    if not numeric or c.free or z.numel() != y.numel() or y.ndim > 2 or (y.ndim == 2 and y.shape[1] > 1):
        return False
    whole = bool((values == values.round()).all())
    few = len(values) <= 20 and len(y) >= 3 * len(values)
    if not (whole and few and len(values) >= 2):
        return False
    if len(values) == 2 and c.name == "custom" and _margin(exam, values, y):
        return False
    from_zero = float(values.min()) in (0.0, 1.0, -1.0) and bool((values[1:] - values[:-1] <= 2).all())
    integer = not y.is_floating_point()
    ordered = _ordered(exam) if len(values) > 2 else False
    if from_zero and (integer or len(values) == 2 or not ordered) and not (ordered and len(values) > 10):
        said = (
            f"targets are {len(values)} classes, {values[:5].tolist()}, and the loss treats them as numbers"
        )
        exam.find("wrong-loss", len(values), said, where="loss", repair={"loss": "cross_entropy"})
        return True
    return False


def _margin(exam: Exam, values: Tensor, y: Tensor) -> bool:
    """Whether answers far beyond the right one of two values cost no more: then these are no numbers to the loss."""
    s = exam.subject
    middle = float(values.mean())
    right = y.reshape(main_output(s.output).shape).float()
    with torch.no_grad():
        near, far = (
            float(s.criterion(with_main(s.output, middle + k * (right - middle)), y)) for k in (1.0, 3.0)
        )
    return far <= near + 1e-6


def _ordered(exam: Exam) -> bool:
    """Whether classes behave as numbers: a line through them explains what trees explain."""
    base = exam.baselines
    if base is None or not base.held:
        return True
    if base.problem.classes:
        p = base.problem
        as_numbers = baselines(Problem(p.X, p.y.astype(float), False, p.rows), None, 30)
        return as_numbers.score > 0.9 or as_numbers.score > base.gain
    counts = np.unique(base.problem.y, return_counts=True)[1]
    return float(counts.min() / counts.max()) < 0.3


def _in_line(exam: Exam) -> bool:
    """Whether classes further apart in number lie further apart in the table of features: then they have an order."""
    base = exam.baselines
    if base is None or not base.held or not base.problem.classes:
        return True
    p = base.problem
    S = scaled(p.X)
    means = np.stack([S[p.y == k].mean(0) for k in base.labels])
    a, b = np.triu_indices(len(means), 1)
    return bool(
        spearmanr(np.abs(base.labels[a] - base.labels[b]), np.linalg.norm(means[a] - means[b], axis=1))[0]
        > IN_LINE
    )


def _not_log(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """The negative log-likelihood of what are no log-probabilities."""
    c = exam.subject.criterion
    if c.name != "nll" or z.ndim < 2:
        return False
    total = z.logsumexp(1)
    off = float(total.abs().max())
    if off > 0.05:
        probabilities = bool((z >= 0).all()) and float((z.sum(1) - 1).abs().max()) < UNIT
        what = "probabilities without logarithm" if probabilities else "logits"
        said = f"the loss takes log-probabilities, whose exponentials sum to 1; the outputs are {what} (log-sum {off:.3g})"
        exam.find("wrong-loss", off, said, where="loss", repair={"loss": "cross_entropy"})
        return True
    return False


def _one_class(exam: Exam, z: Tensor) -> None:
    c = exam.subject.criterion
    if c.name in ("cross_entropy", "nll") and z.ndim >= 2 and z.shape[1] == 1:
        said = "a softmax over one output is always 1: the loss is zero whatever the model says"
        exam.find("wrong-loss", 0.0, said, where="loss", repair={"loss": "bce_with_logits"})


def _beyond_one(exam: Exam) -> bool:
    """A loss of probabilities for targets that are none."""
    s = exam.subject
    target = s.target(s.train)
    if s.criterion.name not in ("bce", "bce_with_logits") or not isinstance(target, Tensor):
        return False
    t = target.detach().float()
    t = t[t != IGNORED]
    share = float(((t < -BEYOND) | (t > 1 + BEYOND)).float().mean()) if t.numel() else 0.0
    if share > BEYOND:
        said = f"the loss takes targets from 0 to 1, and {share:.0%} of them lie beyond: it has no least value there"
        exam.find("wrong-loss", share, said, where="loss", repair={"loss": "mse"})
    return share > BEYOND


def _several_at_once(exam: Exam, y: Tensor) -> bool:
    """A softmax, which shares one between the classes, for rows that belong to several or to none of them."""
    if (
        exam.subject.criterion.name != "cross_entropy"
        or not y.is_floating_point()
        or y.ndim != 2
        or y.shape[1] < 2
    ):
        return False
    share = float(((y.sum(1) - 1).abs() > BEYOND).float().mean())
    if share < BEYOND or not bool(((y == 0) | (y == 1)).all()):
        return False
    said = f"{share:.0%} of the rows belong to several classes or to none, and a softmax shares one among all"
    exam.find("wrong-loss", share, said, where="loss", repair={"loss": "bce_with_logits"})
    return True


def _broadcast(exam: Exam, z: Tensor, y: Tensor) -> None:
    """Outputs (n, 1) beside targets (n,) become a table (n, n), whose best output is the mean."""
    s = exam.subject
    numeric = s.criterion.name in ("mse", "l1", "huber") or (
        s.criterion.name == "custom" and s.task == "regression"
    )
    if not s.criterion.custom or not numeric or z.shape == y.shape or z.numel() != y.numel() or len(y) < 8:
        return
    with torch.no_grad():
        spread = y.float().reshape(z.shape)
        differs = float(s.criterion(spread, y)) > 1e-6 + 10 * float(s.criterion(spread, spread))
    if differs:
        said = (
            f"output {tuple(z.shape)} and target {tuple(y.shape)} are broadcast to a table: every output "
            "is compared with every target"
        )
        exam.find(
            "wrong-loss",
            float("nan"),
            said,
            where="loss",
            repair={"loss": "mse"},
            sure=1.0 if s.criterion.custom else 0.8,
        )
