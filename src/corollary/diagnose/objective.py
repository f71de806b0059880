"""What the loss is given and what it rewards: probabilities in place of logits, a loss that does not fit the target."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output, with_main

__all__ = ["class_axis", "double_softmax", "wrong_loss"]

UNIT = 1e-3  # how near to one the sums of probabilities are
ROWS = 256
SIZES = (
    6.0,
    4.0,
    2.5,
)  # of logits, from sure to leaning; numbers compared with ones and zeros are best at one


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


def class_axis(z: Tensor, y: Tensor) -> int:
    """Return the axis of an output on which its classes lie."""
    if (
        z.ndim > 2
        and not y.is_floating_point()
        and z.shape[:-1] == y.shape
        and (z.shape[0], *z.shape[2:]) != tuple(y.shape)
    ):
        return z.ndim - 1
    return 1


def double_softmax(exam: Exam) -> None:
    """Probabilities handed to a loss that takes logits."""
    s = exam.subject
    z, y = main_output(s.output), s.train.y
    if z is None or not isinstance(y, Tensor) or z.ndim < 1:
        return
    z = z.detach().float().cpu()
    kind = _like_logits(exam, z, y.cpu())
    if kind is None and s.criterion.name == "custom" and s.task == "classes":
        kind = "maybe"
    if kind in ("cross_entropy", "maybe") and z.ndim >= 2 and not (y.is_floating_point() and y.ndim < z.ndim):
        axis = class_axis(z, y)
        if z.shape[axis] < 2:
            return
        sums = z.sum(axis)
        positive = bool((z >= -1e-6).all()) and bool((z <= 1 + 1e-6).all())
        off = float((sums - 1).abs().max())
        if positive and off < UNIT and (kind == "cross_entropy" or _maximum_at_logits(exam, z, y)):
            said = f"outputs are probabilities already (rows sum to 1 within {off:.0e}), and the loss applies a softmax to them"
            exam.find("double-softmax", 1 - off, said, where="output")
    elif kind == "bce_with_logits":
        last = exam.last_call
        bounded = bool(((z >= 0) & (z <= 1)).all())
        if bounded and (last == "sigmoid" or float(z.std()) > 1e-4) and last in ("sigmoid", "softmax", ""):
            said = "outputs lie between 0 and 1 already, and the loss applies a sigmoid to them"
            exam.find("double-softmax", 1.0, said, where="output")


def _maximum_at_logits(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """Whether the loss of probabilities is that of logits: it stays well above zero for a perfect answer."""
    if y.is_floating_point():
        return False
    k = z.shape[1]
    if z.ndim != 2:
        return False
    ideal = F.one_hot(y.long().clamp(0, k - 1), k).float()
    try:
        nearly = with_main(exam.subject.output, ideal * (1 - 1e-6) + 1e-6 / k)
        value = float(exam.subject.criterion(nearly, y))
    except (RuntimeError, ValueError, IndexError):
        return False
    return abs(value - float(F.cross_entropy(ideal, y.long()))) < 1e-2


def wrong_loss(exam: Exam) -> None:
    """A loss that does not belong to the target, or whose best output is not the right one."""
    s = exam.subject
    c, y = s.criterion, s.train.y
    z = main_output(s.output)
    if z is None or not isinstance(y, Tensor) or not c.was_given:
        return
    z, yc = z.detach().float().cpu(), y.detach().cpu()
    try:
        with torch.no_grad():
            float(c(s.output, y.to(main_output(s.output).device)))
    except Exception as error:
        said = f"the loss cannot take output {tuple(z.shape)} and target {tuple(y.shape)}: {str(error)[:120]}"
        exam.find("wrong-loss", float("nan"), said, where="loss")
        return
    if _numbers_for_classes(exam, z, yc) or _not_log(exam, z, yc):
        return
    _one_class(exam, z)
    if c.custom:
        _best_output(exam, z, yc)
    _broadcast(exam, z, yc)


def _numbers_for_classes(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """Squared errors of class numbers."""
    c = exam.subject.criterion
    values = torch.unique(y[:5000].float())
    numeric = c.name in ("mse", "l1", "huber") or (c.name == "custom" and exam.subject.task == "regression")
    if not numeric or z.numel() != y.numel() or y.ndim > 2 or (y.ndim == 2 and y.shape[1] > 1):
        return False
    whole = bool((values == values.round()).all())
    few = len(values) <= 20 and len(y) >= 3 * len(values)
    if not (whole and few and len(values) >= 2):
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


def _best_output(exam: Exam, z: Tensor, y: Tensor) -> None:
    """Ask the user's loss about right outputs, as sure as it likes them best, about wrong ones and about none."""
    s = exam.subject
    if not isinstance(s.output, Tensor):
        return
    asked = _right_and_wrong(s.task, z[:ROWS], y[:ROWS])
    if asked is None:
        return
    right, none, wrong = asked
    mixed = [o[torch.from_numpy(np.random.default_rng(0).permutation(len(o)))] for o in right]
    with torch.no_grad():
        try:
            losses = [float(s.criterion(o, y[:ROWS])) for o in (*right, none, *wrong, *mixed)]
        except Exception:
            return
    sizes, flat = len(right), losses[len(right)]
    best = int(np.argmin(losses[:sizes]))
    good, bad, shuffled = losses[best], losses[sizes + 1 + best], losses[2 * sizes + 1 + best]
    exam.facts["loss of right, none, wrong"] = [good, flat, bad]
    slack = 1e-6 * (1 + abs(flat))
    cancels = not torch.equal(mixed[best], right[best]) and abs(shuffled - good) <= 1e-4 * abs(bad - good)
    if good <= bad - slack and good <= flat + slack and not cancels:
        return
    if s.task == "regression" and _rewards(exam, z[:ROWS], y[:ROWS]):
        return
    said = (
        f"the loss of right answers is {good:.3g}, of no answer {flat:.3g}, of wrong ones {bad:.3g}: "
        "it does not reward being right"
    )
    if cancels:
        said = f"the loss of right answers is {good:.3g}, and the same if they are given to other rows: errors cancel"
    exam.find("wrong-loss", good - bad, said, where="loss")


def _right_and_wrong(task: str, z: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor, list[Tensor]] | None:
    """Return right outputs, one that says nothing, and wrong ones, in the form of the net's own outputs.

    Of logits they come in several sizes: a loss with label smoothing is least at one that is less than sure.
    """
    if task == "classes" and not y.is_floating_point() and z.ndim == 2 and y.ndim == 1:
        k = z.shape[1]
        good = F.one_hot(y.long().clamp(0, k - 1), k).float()
        bad, none = good.roll(1, 1), torch.zeros_like(good)
        if bool((z >= 0).all()) and float((z.sum(1) - 1).abs().max()) < UNIT:  # probabilities
            return [good * 0.98 + 0.02 / k], none + 1 / k, [bad * 0.98 + 0.02 / k]
        if bool((z <= 0).all()) and float(z.logsumexp(1).abs().max()) < UNIT:
            logs = [[(size * o).log_softmax(1) for size in SIZES] for o in (good, bad)]
            return logs[0], none.log_softmax(1), logs[1]
        return [size * good for size in SIZES], none, [size * bad for size in SIZES]
    if task not in ("regression", "binary", "multilabel") or z.numel() != y.numel():
        return None
    t = y.reshape(z.shape).float()
    if task == "regression":
        noise = torch.randn(t.shape, generator=torch.Generator().manual_seed(0)) * (float(t.std()) or 1.0)
        return [t], t + noise, [t + 3 * noise]
    if bool(((z >= 0) & (z <= 1)).all()):
        return [t * 0.98 + 0.01], torch.full_like(t, 0.5), [(1 - t) * 0.98 + 0.01]
    return [size * (2 * t - 1) for size in SIZES], torch.zeros_like(t), [size * (1 - 2 * t) for size in SIZES]


def _rewards(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """Whether the outputs that minimise a loss of numbers rise with the targets: they may be their logarithms."""
    free = torch.zeros_like(z).requires_grad_(True)
    descent = torch.optim.Adam([free], 0.1)
    with torch.enable_grad():
        for _ in range(100):
            descent.zero_grad()
            loss = exam.subject.criterion(free, y)
            if not loss.requires_grad or not bool(torch.isfinite(loss)):
                return False
            loss.backward()
            descent.step()
        if bool((y >= 0).all()):  # outputs may be logarithms of the answers
            least = float(exam.subject.criterion(y.reshape(z.shape).float().clamp_min(0.05).log(), y))
            exam.subject.criterion.logarithms = least < float(loss) + 0.1 * abs(float(loss))
            exam.__dict__.pop("performance", None)
    a, b = free.detach().reshape(-1).numpy(), y.reshape(-1).float().numpy()
    rank = lambda v: v.argsort().argsort()  # noqa: E731
    distinct = len(np.unique(b)) > 1 and float(a.std()) > 1e-6
    return bool(distinct and np.corrcoef(rank(a + 1e-9 * b), rank(b))[0, 1] > 0.9)


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
