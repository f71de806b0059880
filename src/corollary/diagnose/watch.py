r"""Watch a training while it runs: say at the step where it happens that it goes wrong.

With :math:`g_l` and :math:`w_l` the root mean squares of gradient and weights of layer :math:`l`, and :math:`\Delta w` what one
update changes, the signs are

.. math::
    \frac{g_l}{g_m} < 10^{-4} \text{ and } \frac{g_l / w_l}{g_m / w_m} < 10^{-4} \quad (l < m), \tag{1}

*the gradient vanishes* on its way from layer :math:`m` to :math:`l` (reversed: it explodes, as it does when it is a thousand
times as long as the weights, or a hundred times as long as usual); rows of a weight whose gradient is
exactly zero on several batches in turn belong to *dead units* (2); a loss that is no number, one above twice its first and four
times its best value, or :math:`\lVert \Delta w \rVert > 0.3 \lVert w \rVert` update after update mean that *the rate is too
high* (3); and a validation loss that stays above its minimum by a tenth of what it had gained, while the training loss falls,
*has turned* (4).

Looking costs two passes over the parameters. It is done only while the time spent on it, and on reading the losses, is below a
share of the training time.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose.report import Finding

__all__ = ["Watch"]

DECAY = 1e-4  # of the gradient between two layers: beyond what layers of a healthy net differ by
LONG = 1e3  # times the weights' length: a rate of a thousandth would replace them in one step
SPIKE = 100.0  # times the usual length, above which a gradient has exploded
DEAD = 0.5  # share of a layer's units without a gradient
TURNOVER = 0.3  # share of the weights that an update may change
FREE = 0.01  # seconds of looking that are allowed in any case
LOOKS = 5  # in a row, before something is said of units
ROW = 3  # in a row, before something is said of gradients, updates and validation
WARMUP = 3  # losses of which the largest is the first one: one batch alone may be small by chance
SMOOTH = 0.05  # of the new loss in the running mean
GAIN = 0.1  # share of what validation had gained, lost again
UNITS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # layers whose output units are the rows of their weight


class Watch:
    """Say during a training when gradients vanish or explode, units die, the rate is too high or validation turns.

    Give it to a run, ``Run(callbacks=[Watch()])``, or call it in a loop of one's own: :meth:`after_step` after each
    ``optimizer.step()`` and before the gradients are cleared, :meth:`validated` after each validation.

    Parameters
    ----------
    share : float, default=0.01
        Of the training time that watching may take; a larger one looks more often. Looking may take half of it at least,
        however long reading the losses takes.
    say : callable, optional
        Called with each message; by default it becomes a :class:`~corollary.errors.CorollaryWarning`. Every cause is
        said once.

    Attributes
    ----------
    findings : list of Finding
        What was said: cause, step and layer, value, advice.
    step : int
        Updates seen.

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import Watch
    >>> watch = Watch(say=print)
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> loss = (model(torch.ones(4, 1)) * float("inf")).mean()
    >>> watch.after_step(model, loss)
    learning-rate-too-large at step 1: the loss is ... Divide the learning rate by ten, or warm it up.
    """

    def __init__(self, share: float = 0.01, say: Callable[[str], Any] | None = None) -> None:
        if not 0 < share <= 1:
            raise errors.value("Watch", "share must lie in (0, 1]", share)
        self.share = share
        self.say = say
        self.findings: list[Finding] = []
        self.reset()

    def reset(self) -> None:
        """Forget the training so far, for the next one; what was found stays."""
        self.step = self.looks = 0
        self.spent = self.read = 0.0  # seconds of looking, and of steps where only the loss was read
        self._begin = math.nan
        self._layers: list[tuple[str, nn.Module, Tensor]] = []
        self._model: Any = None
        self._before: list[Tensor] | None = None
        self._alive: list[Tensor] = []
        self._window = 0
        self._runs: dict[str, int] = {}
        self._lengths: deque[float] = deque(maxlen=50)
        self._losses = _Losses()
        self._valid: list[tuple[float, float, int]] = []  # validation loss, training loss, step
        self._epochs = _Losses()
        self._said: set[str] = set()

    # --- where it is called ------------------------------------------------------------------------------

    def after_step(self, model: nn.Module, loss: Any = None) -> None:
        """Look at a model after an update, before its gradients are cleared.

        Parameters
        ----------
        model : nn.Module
            What is trained.
        loss : Tensor or float, optional
            The loss of the batch.
        """
        now = perf_counter()
        if self.step == 0:
            self._begin = now
        self.step += 1
        due = self._before is not None or self.spent <= self._allowed(now - self._begin)
        if loss is not None and (due or not isinstance(loss, Tensor) or loss.is_cpu):
            self._judge_loss(self._losses, _number(loss))
        if due:
            self._look(model)
            self.spent += perf_counter() - now
        else:
            self.read += perf_counter() - now

    def _allowed(self, seconds: float) -> float:
        """Return what looking may take of a training time: the share less what reading losses took, or half the share.

        So little that nobody notices is always allowed: a training of some hundred small steps is over before its share
        is worth a look.
        """
        return FREE + max(self.share * seconds - self.read, self.share / 2 * seconds)

    def validated(self, loss: Any, train_loss: Any = None) -> None:
        """Tell the loss on validation data, and the latest training loss if ``after_step`` was not given any.

        Parameters
        ----------
        loss : Tensor or float
            Mean loss on data that are not trained on.
        train_loss : Tensor or float, optional
            That on the training data.
        """
        train = _number(train_loss) if train_loss is not None else self._losses.mean
        self._valid.append((_number(loss), train, self.step))
        self._judge_validation()

    def begin(self, learner: Any, owner: str) -> None:
        """Begin with a fit of the library: called by the engine, before the first step."""
        self.reset()
        for player in getattr(learner, "players", ()):
            register = getattr(player.optimizer, "register_step_post_hook", None)
            if register is not None:
                register(lambda *_, module=player.module: self.after_step(module))

    def __call__(self, event: Any) -> None:
        """Take the metrics of an epoch."""
        if "loss" in event.metrics:
            self._judge_loss(self._epochs, event.metrics["loss"], "epoch", event.step)
        if "validation_loss" in event.metrics:
            self._valid.append(
                (event.metrics["validation_loss"], event.metrics.get("loss", math.nan), event.step)
            )
            self._judge_validation("epoch")

    # --- gradients, units and updates, equations 1 to 3 --------------------------------------------------

    @torch.no_grad()
    def _look(self, model: nn.Module) -> None:
        if self._model is not model:
            self._know(model)
        layers = [
            (name, part, w) for name, part, w in self._layers if w.grad is not None and not w.grad.is_sparse
        ]
        if self._before is not None:
            self._judge_update()
            return
        if not layers:
            self._no_gradients()
            return
        self.looks += 1
        slopes = [w.grad for _, _, w in layers]
        lengths = torch.stack(torch._foreach_norm([*slopes, *(w for _, _, w in layers)])).double().tolist()
        g = [n / math.sqrt(w.numel()) for n, (_, _, w) in zip(lengths, layers)]
        w = [n / math.sqrt(v.numel()) for n, (_, _, v) in zip(lengths[len(layers) :], layers)]
        self._judge_flow([name for name, _, _ in layers], g, w)
        self._judge_length(math.hypot(*lengths[: len(layers)]), math.hypot(*lengths[len(layers) :]))
        self._judge_units(layers, any(g))
        self._before = [v.detach().clone() for _, _, v in self._layers]

    def _know(self, model: nn.Module) -> None:
        """Find the weights that are trained, in order; those of embeddings are touched in part only."""
        self._model = model
        seen: set[int] = set()
        self._layers = []
        for name, part in model.named_modules():
            for key, p in part.named_parameters(recurse=False):
                if id(p) not in seen and p.requires_grad and p.ndim >= 2 and p.is_floating_point():
                    if not isinstance(part, nn.Embedding | nn.EmbeddingBag):
                        seen.add(id(p))
                        self._layers.append((f"{name}.{key}" if name else key, part, p))

    def _no_gradients(self) -> None:
        if self._runs.setdefault("missing", 0) == 2 and self._layers:
            must = "gradients must be there when after_step is called"
            do = "Call it after optimizer.step() and before zero_grad()."
            self._tell(errors.wording("Watch", must, "none in any layer", do))
        self._runs["missing"] += 1

    def _judge_flow(self, names: list[str], g: list[float], w: list[float]) -> None:
        """Compare the gradients of earlier and later layers, eq. 1."""
        if not all(map(math.isfinite, g)):
            bad = next(name for name, value in zip(names, g) if not math.isfinite(value))
            self._found("exploding-gradient", "the gradient is not finite", math.inf, bad)
            return
        pairs = [(name, a, a / b) for name, a, b in zip(names, g, w) if a > 0 and b > 0]
        worst = {"vanishing-gradient": (1.0, ""), "exploding-gradient": (1.0, "")}
        for i, (name, a, r) in enumerate(pairs):
            for later, c, s in pairs[i + 1 :]:
                down, up = max(a / c, r / s), max(c / a, s / r)
                if down < worst["vanishing-gradient"][0]:
                    worst["vanishing-gradient"] = (down, f"{later} to {name}")
                if up < worst["exploding-gradient"][0]:
                    worst["exploding-gradient"] = (up, f"{later} to {name}")
        for cause, (ratio, where) in worst.items():
            if self._in_a_row(cause, ratio < DECAY):
                verb = "shrinks" if cause == "vanishing-gradient" else "grows"
                times = 1 / ratio
                self._found(
                    cause, f"the gradient {verb} {times:.0f}-fold on its way back from {where}", ratio, where
                )

    def _judge_length(self, length: float, weights: float) -> None:
        """Compare the whole gradient with the weights, and with what it usually is."""
        if not math.isfinite(length):
            return
        ratio = length / max(weights, 1e-30)
        if self._in_a_row("long", ratio > LONG):
            said = f"the gradient is {ratio:.3g} times as long as the weights"
            self._found("exploding-gradient", said, ratio)
        if self._in_a_row("short", 0 < ratio < 1 / LONG**2.5 and self.looks <= LOOKS):
            said = f"the gradient is {ratio:.3g} times as long as the weights from the first step on"
            self._found("vanishing-gradient", said, ratio)
        usual = sorted(self._lengths)[len(self._lengths) // 2] if len(self._lengths) >= LOOKS else math.inf
        self._lengths.append(length)
        if length > SPIKE * usual > 0:
            said = f"the gradient's length is {length:.3g}, usually {usual:.3g}"
            self._found("exploding-gradient", said, length / usual)

    def _judge_units(self, layers: list[tuple[str, nn.Module, Tensor]], any_gradient: bool) -> None:
        """Count rows whose gradient was zero on all of the last batches, sign 2."""
        inner = [(name, w) for name, part, w in layers[:-1] if isinstance(part, UNITS) and len(w) > 3]
        rows = [w.grad.flatten(1).any(1) for _, w in inner]  # type: ignore[union-attr]
        if self._window == 0 or len(rows) != len(self._alive):
            self._alive, self._window = rows, 1
            self._flowed = any_gradient
            return
        self._alive = [a | b for a, b in zip(self._alive, rows)]
        self._flowed |= any_gradient
        self._window += 1
        if self._window < LOOKS:
            return
        self._window = 0
        if not self._flowed:
            self._found("dead-units", "no gradient reaches any weight", 1.0, "all layers")
            return
        shares = [(1 - float(a.double().mean()), name) for a, (name, _) in zip(self._alive, inner)]
        share, name = max(shares, default=(0.0, ""), key=lambda found: found[0])  # the first of equals
        if share >= DEAD:
            self._found("dead-units", f"{share:.0%} of the units get no gradient any more", share, name)

    def _judge_update(self) -> None:
        """Compare an update with the weights, sign 3."""
        before, self._before = self._before, None
        now = [w for _, _, w in self._layers]
        if before is None or len(before) != len(now) or not now:
            return
        moved = torch.stack(torch._foreach_norm(torch._foreach_sub(now, before))).double().norm()
        ratio = float(moved / torch.stack(torch._foreach_norm(before)).double().norm().clamp_min(1e-30))
        if self._in_a_row("update", ratio > TURNOVER) or not math.isfinite(ratio):
            self._found("learning-rate-too-large", f"one update changes the weights by {ratio:.0%}", ratio)

    # --- losses, signs 3 and 4 ---------------------------------------------------------------------------

    def _judge_loss(self, losses: _Losses, loss: float, unit: str = "step", at: int | None = None) -> None:
        grown = losses.add(loss)
        if math.isnan(loss) and unit == "step" and self.step == 1:  # no update yet: no rate is to blame
            self._found("not-finite-data", "the loss is nan before any update that was watched", loss)
        elif not math.isfinite(loss):
            self._found("learning-rate-too-large", f"the loss is {loss}", loss, unit=unit, at=at)
        elif grown:
            said = f"the loss is {losses.mean:.4g}; it began at {losses.first:.4g} and was {losses.best:.4g}"
            value = losses.mean / losses.best if losses.best else math.inf
            self._found("learning-rate-too-large", said, value, unit=unit, at=at)

    def _judge_validation(self, unit: str = "step") -> None:
        values = [v for v, _, _ in self._valid]
        best = min(range(len(values)), key=values.__getitem__)
        gained = values[0] - values[best] or abs(values[best])
        since = values[best + 1 :]
        turned = len(since) >= ROW and all(v - values[best] > GAIN * gained for v in since[-ROW:])
        train = [t for _, t, _ in self._valid]
        if turned and not train[-1] >= train[best]:
            at = self._valid[best][2]
            said = f"validation was best ({values[best]:.4g}) at {unit} {at} and is {values[-1]:.4g} now"
            self._found(
                "overfit",
                said,
                (values[-1] - values[best]) / gained,
                f"{unit} {at}",
                unit=unit,
                at=self._valid[-1][2],
            )

    # --- saying ------------------------------------------------------------------------------------------

    def _in_a_row(self, what: str, happens: bool) -> bool:
        self._runs[what] = self._runs.get(what, 0) + 1 if happens else 0
        return self._runs[what] >= ROW

    def _found(
        self,
        cause: str,
        said: str,
        value: float,
        where: str = "",
        *,
        unit: str = "step",
        at: int | None = None,
    ) -> None:
        if cause in self._said:
            return
        self._said.add(cause)
        step = self.step if at is None else at
        finding = Finding(cause, "warning", value, where or f"{unit} {step}", said, {unit: step})
        self.findings.append(finding)
        place = f" in {where}" if where and unit not in where and where not in said else ""
        self._tell(f"{cause} at {unit} {step}{place}: {said}. {finding.advice}")

    def _tell(self, text: str) -> None:
        if self.say is not None:
            self.say(text)
        else:
            warnings.warn(text, errors.CorollaryWarning, stacklevel=4)


def _number(value: Any) -> float:
    return value.item() if isinstance(value, Tensor) else float(value)


class _Losses:
    """The first, the best and the running mean of losses, and whether they have grown."""

    def __init__(self) -> None:
        self.count, self.mean, self.first, self.best = 0, math.nan, -math.inf, math.inf

    def add(self, loss: float) -> bool:
        """Take a loss; return whether the mean is far above both the first and the best."""
        if not math.isfinite(loss):
            return False
        self.count += 1
        rate = max(SMOOTH, 1 / self.count)
        self.mean = loss if self.count == 1 else (1 - rate) * self.mean + rate * loss
        self.best = min(self.best, self.mean)
        if self.count <= WARMUP:
            self.first = max(self.first, loss)
        return self.mean > 2 * abs(self.first) and self.mean > 4 * abs(self.best)
