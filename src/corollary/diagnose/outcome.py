"""Faults of the outcome: too small a model, memorised data, false confidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corollary.diagnose.asking import weightless
from corollary.diagnose.calibration import expected_error, temperature
from corollary.diagnose.exam import Exam
from corollary.diagnose.flow import learned
from corollary.diagnose.objectives import labels_of
from corollary.diagnose.reference import perceptron_gain
from corollary.diagnose.reference_nets import net_gain
from corollary.diagnose.rewards import wanted
from corollary.diagnose.rules import RULES
from corollary.diagnose.samples import IGNORED, main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.trials import Trials
from corollary.diagnose.widening import say_view, views

__all__ = ["capacity", "miscalibrated", "overfit", "too_simple"]

SAME = {
    "good",
    "control",
    "long",
    "new",
    "rate * 10",
    "rate / 10",
    "rate * 100",
    "no decay",
    "no dropout",
    "batch * 16",
}  # net
LESS = 0.08  # of what is possible: what a model scores less on its own rows than others on rows that they have not seen
ANOTHER = 0.03  # that another draw of the perceptron may differ by
# of what is possible: with so much it is not too small; what another net is ahead of one that is
ENOUGH, FAR = (0.75, 0.2)
UNMET = 0.15  # of what is possible: of new rows, what no run of a net gains though simple models do
DOUBT = 0.08  # below what is deserved; smoothing by a tenth asks for 0.05 less
EVEN = 0.03  # confidence above that of even odds that a model has which has learned nothing
LOUD = 1.5  # temperature on the rows it was trained on; of sound nets it is at most one
CLEARLY = 2.5  # standard errors of what that temperature gains on other rows
HALTED = 0.2  # confidence too low that a training stopped in time may have
SMOOTHED = 0.85  # confidence that customary label smoothing, of a tenth, asks for
# of a constant answer's loss: left on rows known by heart; that new rows cost more
BY_HEART, UNKNOWN = (0.02, 0.25)
ASIDE = 0.5  # how sure an overfit is that explains the lesser part of what is wrong


def capacity(exam: Exam) -> None:
    """Good settings do not help, but other models learn what this one cannot."""
    s = exam.subject
    base = exam.baselines
    unknown = exam.lab is None or s.output is None or base is None or not base.held
    if unknown or (exam.fine and not _behind(exam)) or exam.facts.get("untrained"):
        return
    lesser = {"miscalibrated"} | ({"overfit"} if exam.sure.get("overfit", 1.0) <= ASIDE else set())
    if set(exam.findings) - lesser:
        return  # reason enough
    trials = exam.facts.get("trials") or Trials(exam)
    score, chance = exam.score, base.chance
    new = trials.good("new long", "new", rate=3e-3, steps=3 * trials.steps)
    now = exam.facts.get("now", [float("nan")] * 4)
    best = max([score, new.score, *(r.score for name, r in exam.lab.runs.items() if name in SAME)])
    mine = (best + exam.aligned["train"] - chance) / max(1e-9, 1 - chance)
    theirs = base.gain
    x = s.train.x
    table = isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point()  # that both see as it is
    if theirs <= mine + LESS:
        other = perceptron_gain(base.problem, base.valid_problem, chance) if table else net_gain(exam)
        theirs = max(theirs, other - ANOTHER) if math.isfinite(other) else theirs
    exam.facts["capacity"] = {"mine": mine, "theirs": theirs, "new": new.score, "now": now[1]}
    behind = theirs - mine
    new_rows = _behind_on_new_rows(exam)
    seen = views(exam) if behind > LESS and math.isfinite(exam.facts.get("reference net", math.nan)) else None
    # a wider view closes most of the gap
    if seen is not None and seen[1] - seen[0] > max(LESS, 0.5 * (theirs - seen[0])):
        say_view(exam, *seen)
        return
    clearly = 1 - mine > 3 * (1 - theirs) or new_rows > UNMET
    if behind > LESS or (behind > LESS / 2 and clearly):
        said = (
            f"trained afresh with good settings it scores {best:.3f} on its own training rows; others, simple "
            f"models or a net of usual size, score {chance + theirs * (1 - chance):.3f} on rows they have not seen"
        )
        exam.find("capacity-too-small", mine, said, sure=0.7, repair={"width": "larger"})
        if not exam.facts.get("mended by a temperature") and exam.sure.get("miscalibrated", 0.0) > ASIDE:
            # a net that cannot follow the data is too sure here, too modest there
            exam.sure["miscalibrated"] = 0.6


def too_simple(exam: Exam) -> None:
    """A model without weights to be moved that is far behind simple models, on the very rows that it was fitted to."""
    s, base = exam.subject, exam.baselines
    if not weightless(s.net) or s.output is None or base is None or not base.held:
        return
    mine = (exam.score - base.chance) / max(1e-9, 1 - base.chance)
    if base.gain - mine > FAR and not set(exam.findings) - {"miscalibrated"}:
        said = (
            f"it scores {exam.score:.3f} on the rows that it was fitted to; simple models score "
            f"{base.score:.3f} on rows they have not seen"
        )
        trees = "ExtraTreesClassifier" if base.labels is not None else "ExtraTreesRegressor"
        exam.find("capacity-too-small", mine, said, sure=0.7, repair={"estimator": trees})
        exam.sure.update({cause: 0.6 for cause in exam.findings if cause == "miscalibrated"})


def _behind_on_new_rows(exam: Exam) -> float:
    """Return what no run of this net gains of validation rows, though simple models do."""
    base, runs = exam.baselines, exam.lab.runs
    scores = [exam.valid_score, *(r.valid_score for name, r in runs.items() if name in {*SAME, "new long"})]
    known = [score + exam.aligned["valid"] for score in scores if math.isfinite(score)]
    return (base.valid_score - max(known)) / max(1e-9, 1 - base.chance) if known else 0.0


def _behind(exam: Exam) -> bool:
    """Whether a model that does what simple models can is far behind a net of usual size, on rows that neither has seen."""
    if exam.gain > ENOUGH or learned(exam) or exam.has(*RULES):
        return False
    return net_gain(exam) > exam.gain + FAR


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
    error = max(error, math.hypot(*exam.error.values()) / max(1e-9, 1 - chance))
    history = s.history.get("val_loss", np.zeros(0))
    history = history[np.isfinite(history)]
    turned = _turned(history, b)
    constant = exam.constant_loss
    worse = (b - a) / max(abs(constant) if math.isfinite(constant) else abs(b), 1e-9)
    base = exam.baselines
    theirs = base.valid_score if base is not None else float("nan")
    luck = exam.error["valid"] / max(1e-9, 1 - chance)
    beaten = math.isfinite(theirs) and (theirs - valid) / max(1e-9, 1 - chance) > max(0.03, 2 * luck)
    # what it says of rows that it knows is worse than what others say of rows that they do not
    short = (
        base is not None and bool(base.held) and (train - chance) / max(1e-9, 1 - chance) < base.gain - LESS
    )
    exam.facts["gap"] = {"score": gap, "loss": worse, "turned": turned, "beaten": beaten}
    if exam.has("distribution-shift", "train-test-overlap", "no-signal", "misaligned-labels") and gap > 0.1:
        exam.facts["gap explained"] = True
    significant = gap > max(0.12, 2.5 * error) and train > chance  # nothing was learned by heart otherwise
    by_heart = a < BY_HEART * constant and worse > UNKNOWN
    if significant and (turned > 1.2 or beaten or worse > 0.4 or gap > 0.3 or by_heart):
        said = f"training score {train:.3f} and loss {a:.3g}, validation {valid:.3f} and {b:.3g}"
        said += f"; the validation loss is {turned:.2f} times its best" if turned > 1.05 else ""
        exam.find(
            "overfit",
            gap,
            said,
            sure=ASIDE if short else 0.8,
            evidence={"history": s.history},
            repair={"early_stopping": True},
        )
    elif turned > 1.5 and worse > 0.25 and gap > 0.04:
        said = f"the validation loss is {turned:.2f} times its best, {b:.3g} against {a:.3g} on training rows"
        exam.find(
            "overfit",
            turned,
            said,
            sure=ASIDE if short else 0.7,
            evidence={"history": s.history},
            repair={"early_stopping": True},
        )


def _turned(history: np.ndarray, now: float) -> float:
    """Return the validation loss at the end over its best; the end is the model's own where it went back to earlier weights."""
    if len(history) < 4 or history.min() <= 0:
        return 1.0
    best, last = float(history.min()), float(history[-1])
    return (now if 0.9 * best < now < last else last) / max(best, 1e-12)


def miscalibrated(exam: Exam) -> None:
    """Probabilities that are no frequencies."""
    s = exam.subject
    unasked = s.task not in ("classes", "binary") or s.output is None or s.net is None
    if unasked or exam.facts.get("untrained") or not getattr(s.net, "sure", True):
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
    classes = 2 if s.task == "binary" else z.shape[1]
    if float(confidence.mean()) < 1 / classes + EVEN:
        return  # it says nothing, and is sure of nothing
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
    if over < 0 and "stopped soon" in exam.facts:
        return  # confidence comes last
    if over < 0 and SMOOTHED < asked < float(confidence.mean()) + 0.1:
        return  # as sure as its loss wants it to be
    within = float(c.mean() - (a == b).mean())
    mended = exam.facts["mended by a temperature"] = over > 0 and _mended(s.task, (z, y), (zt, yt))
    doubts = within < -0.06 and inside > 0.08 + 1.2 * inside_noise and over < -0.06 and _wants_doubt(s, zt)
    if doubts or (mended and error > limit / 2) or (error > limit and (over > 0.06 or over < -HALTED)):
        own = mended or inside > 0.06 + inside_noise
        text = (
            f"confidence is {float(confidence.mean()):.2f} on average and right in {right:.2f} of cases: "
            f"calibration error {error:.3f}"
        )
        everywhere = own and within > 0.05  # too sure of the rows it knows, too
        if everywhere and "overfit" in exam.sure and exam.facts["gap"]["score"] < 0.2:
            exam.sure["overfit"] = min(exam.sure["overfit"], 0.6)
        exam.find("miscalibrated", error, text, sure=0.85 if own else 0.6, repair={"temperature": temperature(z, y, s.task)},
                  evidence={"own": own})  # fmt: skip


def _mended(task: str, new: tuple[Tensor, Tensor], known: tuple[Tensor, Tensor]) -> bool:
    """Whether one temperature, fitted to the rows it was trained on, is far above one and mends those that it was not.

    A descent on the loss itself ends with the scale that is best on its own rows: another hand has made the logits larger.
    """
    T = temperature(*known, task)
    if T < LOUD or task == "binary" and known[0].numel() != known[1].numel():
        return False
    z, y = new[0].detach().float().cpu(), new[1].detach().cpu()
    if task == "binary":
        target = y.reshape(-1).float()
        before, after = (
            F.binary_cross_entropy_with_logits(w.reshape(-1), target, reduction="none") for w in (z, z / T)
        )
    elif z.ndim == 2 and not y.is_floating_point():
        before, after = (
            F.cross_entropy(w, y.long(), reduction="none", ignore_index=IGNORED) for w in (z, z / T)
        )
    else:
        return False
    gained = before - after
    return float(gained.mean()) > CLEARLY * float(gained.std()) / math.sqrt(len(gained))


def _wants_doubt(s: Any, z: Tensor) -> bool:
    """Whether the user's own loss rewards less confidence than answers deserve, as a focal loss with a large exponent does."""
    if not s.criterion.custom or s.task != "classes" or z.ndim != 2 or z.shape[1] < 2:
        return False
    try:
        return wanted(s.criterion, z.shape[1]) < 0.8 - DOUBT
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return False


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
