r"""Projected gradient ascent on the loss, and its first step.

Within the ball of radius :math:`\epsilon` around an input :math:`x`, and within bounds, PGD climbs from a random start

.. math::
    x_0 \sim U(B_\epsilon^p(x)), \qquad x_{k+1} = \Pi_{B_\epsilon^p(x)}\big(x_k + \alpha\, v_k\big), \tag{1}

where :math:`v_k` is the steepest-ascent direction (:mod:`corollary.attack.balls`) of the loss's gradient :math:`g_k`, or with
momentum :math:`\mu` that of

.. math:: m_k = \mu\, m_{k-1} + g_k / \lVert g_k \rVert_1. \tag{2}

For :math:`p = \infty` one step of :math:`\alpha = \epsilon` from :math:`x` itself is the fast gradient sign method,
:math:`x + \epsilon\, \mathrm{sgn}(g)` (3). For a linear loss (3) and its like in the other norms are optimal: the loss grows by
:math:`\epsilon \lVert g \rVert_{p^*}`, the dual norm. A targeted attack descends on the loss of the class to reach.

The same steps inside the training loop make *adversarial training*: each batch is replaced by its worst neighbour,

.. math:: \min_\theta\, \mathbb E \max_{\lVert r \rVert_p \le \epsilon} \ell(f_\theta(x + r), y). \tag{4}

References
----------
.. [1] I. Goodfellow, J. Shlens, C. Szegedy (2015). Explaining and harnessing adversarial examples. ICLR.
.. [2] A. Madry et al. (2018). Towards deep learning models resistant to adversarial attacks. ICLR.
.. [3] Y. Dong et al. (2018). Boosting adversarial attacks with momentum. CVPR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from corollary import errors
from corollary.attack.balls import check_norm, column, lengths, project, steepest, uniform
from corollary.attack.base import Attack, AttackResult, Given, check_bounds, objective
from corollary.engine.batches import Batch, typed
from corollary.engine.regulariser import Regulariser

__all__ = ["FGSM", "PGD", "ascend", "fgsm", "pgd"]

LOSSES = ("cross-entropy", "margin")
OVERREACH = 2.5  # a step is this share of the radius divided by the number of steps: any point of the ball can be reached
MODES = ("running", "batch", "update")


class Found(NamedTuple):
    """The inputs kept, their loss, whether each succeeds, and after how many steps it was found."""

    x: Tensor
    loss: Tensor
    won: Tensor
    step: Tensor


def ascend(
    losses: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    start: Tensor,
    *,
    norm: str,
    eps: float,
    step_size: float,
    steps: int,
    low: Tensor | None,
    high: Tensor | None,
    momentum: float = 0.0,
    keep: str = "best",
) -> Found:
    """Climb by eqs. 1 and 2 from ``start``; keep for each sample the best iterate, or the last.

    ``losses(x)`` returns one loss per sample (n,) and which samples succeed (n,). A success beats a failure; between two
    successes or two failures the larger loss wins.
    """
    point, m = start, torch.zeros_like(x)
    found = Found(start, *(x.new_full((len(x),), fill) for fill in (-torch.inf, 0)), x.new_zeros(len(x)))
    found = found._replace(won=found.won.bool(), step=found.step.long())
    for k in range(steps + 1):
        with torch.set_grad_enabled(k < steps):
            point = point.detach().requires_grad_(k < steps)
            loss, won = losses(point)
        now = Found(point.detach(), loss.detach(), won, torch.full_like(found.step, k))
        found = _better(found, now) if keep == "best" else now
        if k == steps:
            break
        (g,) = torch.autograd.grad(loss.sum(), point)
        if momentum:
            m = momentum * m + g / column(lengths(g, "l1").clamp_min(torch.finfo(g.dtype).tiny), g)
            g = m
        room = None
        if norm == "l1" and low is not None and high is not None:
            room = torch.where(g > 0, high - now.x, now.x - low)
        point = x + project(now.x + steepest(g, norm, step_size, room) - x, norm, eps)
        point = point if low is None else point.clamp(low, high)
    return found


def _better(old: Found, new: Found) -> Found:
    """Return for each sample the better of two."""
    better = (new.won & ~old.won) | ((new.won == old.won) & (new.loss > old.loss))
    pick = [torch.where(better, a, b) for a, b in zip(new[1:], old[1:])]
    return Found(torch.where(column(better, new.x), new.x, old.x), *pick)


# --- as objects ------------------------------------------------------------------------------------------


class _Ascent(Attack, Regulariser):
    """What PGD and FGSM share: the search over a data set, and that over a batch in training."""

    name = "adversary"
    needs_target = True
    # What FGSM does not let choose.
    restarts = 1
    momentum = 0.0
    keep = "last"

    @property
    def _step(self) -> float:
        return float(OVERREACH * self.eps / self.steps if self.step_size is None else self.step_size)

    def _check(self, *_: Any) -> None:
        name = type(self).__name__
        check_norm(self.norm, name)
        self._check_number("eps", 0)
        self._check_number("step_size", 0, above=True, optional=True)
        self._check_number("momentum", 0)
        self._check_count("steps", "restarts", "batch_size")
        for what, value, choices in (
            ("loss", self.loss, LOSSES),
            ("keep", self.keep, ("best", "last")),
            ("batch_norm", self.batch_norm, MODES),
        ):
            if value not in choices:
                raise errors.unknown(name, what, str(value), choices)
        if self.restarts > 1 and not self.random_start:
            raise errors.value(name, "restarts need random_start=True", f"restarts={self.restarts}")

    def _start(self, x: Tensor, low: Tensor | None, high: Tensor | None, rng: torch.Generator) -> Tensor:
        if not self.random_start:
            return x
        start = x + uniform(x, self.norm, self.eps, rng)
        return start if low is None else start.clamp(low, high)

    def _climb(self, losses: Any, x: Tensor, start: Tensor, low: Any, high: Any) -> Found:
        return ascend(
            losses, x, start, norm=self.norm, eps=self.eps, step_size=self._step, steps=self.steps, low=low,
            high=high, momentum=self.momentum, keep=self.keep,
        )  # fmt: skip

    # --- on a data set -----------------------------------------------------------------------------------

    def _search(self, given: Given, rng: torch.Generator) -> AttackResult:
        sign = -1.0 if self.targeted else 1.0

        def losses(rows: Tensor) -> Any:
            y = given.y[rows]

            def call(x: Tensor) -> tuple[Tensor, Tensor]:
                z = given.scores(x)
                return sign * objective(z, y, self.loss), (z.argmax(1) == y) == self.targeted

            return call

        x, n = given.x, len(given.x)
        best = Found(
            x.clone(),
            x.new_full((n,), -torch.inf),
            torch.zeros(n, dtype=torch.bool, device=x.device),
            torch.zeros(n, dtype=torch.long, device=x.device),
        )
        active = torch.arange(n, device=x.device)
        for _ in range(self.restarts):
            start = self._start(x, given.low, given.high, rng)
            for rows in active.split(self.batch_size):
                found = self._climb(losses(rows), x[rows], start[rows], given.low, given.high)
                for kept, part in zip(best, _better(Found(*(t[rows] for t in best)), found)):
                    kept[rows] = part
            active = torch.nonzero(~best.won)[:, 0]
            if not len(active):
                break
        if not torch.isfinite(best.loss).all():
            must = "the model's loss must be finite"
            raise errors.value(type(self).__name__, must, "NaN or infinity", "Look at the model's weights.")
        return given.result(best.x, best.won, best.step, sign * best.loss, self.norm)

    # --- in training -------------------------------------------------------------------------------------

    def attach(self, learner: Any) -> None:
        """Check that the model has a target and real inputs, and that they lie within the bounds."""
        super().attach(learner)
        self._check()
        name, owner = type(self).__name__, learner.owner
        if self.targeted:
            raise errors.value(owner, "an adversary in training must not be targeted", "targeted=True")
        batch = next(iter(learner.batches.epoch(None, learner.training.batch_size, 0)))
        real = [i for i, t in enumerate(batch.inputs) if isinstance(t, Tensor) and t.is_floating_point()]
        if not real:
            do = "Leave adversary out."
            raise errors.value(owner, "adversary needs inputs of real numbers", "codes, tokens or nodes", do)
        self._place = real[0]
        check_bounds(self.bounds, batch.inputs[self._place], name)

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with the worst inputs that were found, eq. 4."""
        learner, at = self._learner, self._place
        x, aim, net = batch.inputs[at].detach(), learner.players[0].objective, learner.module

        def put(inputs: Tensor) -> tuple[Any, ...]:
            return (*batch.inputs[:at], inputs, *batch.inputs[at + 1 :])

        def losses(inputs: Tensor) -> tuple[Tensor, Tensor]:
            found = aim.losses(net, typed(net, batch._replace(inputs=put(inputs))))
            found = found.reshape(len(inputs), -1).mean(1).to(x.dtype)
            return found, torch.zeros(len(inputs), dtype=torch.bool, device=x.device)

        low = high = None
        if self.bounds is not None:  # noise that was added before may lie outside, and may stay there
            low, high = (torch.as_tensor(end, dtype=x.dtype, device=x.device) for end in self.bounds)
            low, high = torch.minimum(low, x), torch.maximum(high, x)
        best: Found | None = None
        with learner.stream, _normalising(net, self.batch_norm):
            for _ in range(self.restarts):
                found = self._climb(losses, x, self._start(x, low, high, rng), low, high)
                best = found if best is None else _better(best, found)
        assert best is not None
        return batch._replace(inputs=put(best.x.to(batch.inputs[at].dtype)))


@contextmanager
def _normalising(net: nn.Module, statistics: str) -> Iterator[None]:
    """Let batch normalisation use its running statistics, those of the batch, or those and learn from them."""
    training = [part for part in net.modules() if part.training]
    kept = []
    if statistics == "running":
        net.eval()
    elif statistics == "batch":
        kept = [(buffer, buffer.clone()) for part in training for buffer in part.buffers(recurse=False)]
    try:
        yield
    finally:
        for part in training:
            part.training = True
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)


class PGD(_Ascent):
    """Projected gradient descent on the inputs: the strongest first-order attack, and the adversary of training.

    Parameters
    ----------
    eps : float
        Radius of the ball; larger is easier to fool within, and easier to see.
    norm : {"linf", "l2", "l1"}, default="linf"
        Which ball.
    steps : int, default=10
        Gradient steps; more find worse inputs, and cost a forward and a backward pass each.
    step_size : float, optional
        Length of a step in the same norm; by default ``2.5 * eps / steps``.
    bounds : (low, high), optional
        Range of the inputs, numbers or arrays of a sample's shape: (0, 1) for images. None does not bound them.
    random_start : bool, default=True
        Whether to begin at a random point of the ball rather than at the input.
    restarts : int, default=1
        Random starts; each tries again only the samples on which those before failed.
    targeted : bool, default=False
        Whether y are classes to reach rather than to leave.
    momentum : float, default=0.0
        Share of the last direction that is kept.
    loss : {"cross-entropy", "margin"}, default="cross-entropy"
        What is maximised; the margin, the lead of the best other logit, still has a gradient where a softmax is
        saturated. Training takes the model's own loss.
    keep : {"best", "last"}, default="best"
        Which iterate is returned for each sample.
    batch_norm : {"running", "batch", "update"}, default="running"
        In training: whether the search sees the network in evaluation mode, with running statistics and no dropout;
        or as it is trained, with the statistics of the batch, which leave the running ones alone or update them.
    batch_size : int, default=256
        Samples attacked at a time, outside training.

    Notes
    -----
    ``Training(adversary=PGD(...))`` trains on the worst inputs found, eq. 4. One call costs ``restarts * (steps + 1)`` forward
    and ``restarts * steps`` backward passes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLPClassifier(random_state=0).fit(X, y)
    >>> found = attack.PGD(eps=2.0, steps=10)(model, X, y, random_state=0)
    >>> bool(found.distance.max() <= 2.0 + 1e-5), found.success_rate > 0.5
    (True, True)
    """

    def __init__(
        self,
        eps: float,
        *,
        norm: str = "linf",
        steps: int = 10,
        step_size: float | None = None,
        bounds: Any = None,
        random_start: bool = True,
        restarts: int = 1,
        targeted: bool = False,
        momentum: float = 0.0,
        loss: str = "cross-entropy",
        keep: str = "best",
        batch_norm: str = "running",
        batch_size: int = 256,
    ) -> None:
        self.eps = eps
        self.norm = norm
        self.steps = steps
        self.step_size = step_size
        self.bounds = bounds
        self.random_start = random_start
        self.restarts = restarts
        self.targeted = targeted
        self.momentum = momentum
        self.loss = loss
        self.keep = keep
        self.batch_norm = batch_norm
        self.batch_size = batch_size


class FGSM(_Ascent):
    """The fast gradient sign method: one step of the whole radius, in any of the three norms.

    Parameters
    ----------
    eps : float
        Radius of the ball.
    norm : {"linf", "l2", "l1"}, default="linf"
        Which ball; the sign belongs to "linf", the others step along their own steepest direction.
    step_size : float, optional
        Length of the step; by default ``eps``. After a random start 1.25 of it is usual.
    bounds : (low, high), optional
        Range of the inputs; None does not bound them.
    random_start : bool, default=False
        Whether to begin at a random point of the ball.
    targeted : bool, default=False
        Whether y are classes to reach rather than to leave.
    loss : {"cross-entropy", "margin"}, default="cross-entropy"
        What is maximised.
    batch_norm : {"running", "batch", "update"}, default="running"
        In training: as in :class:`PGD`.
    batch_size : int, default=256
        Samples attacked at a time, outside training.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLPClassifier(random_state=0).fit(X, y)
    >>> attack.FGSM(eps=2.0)(model, X, y).success_rate > 0.3
    True
    """

    steps = 1

    def __init__(
        self,
        eps: float,
        *,
        norm: str = "linf",
        step_size: float | None = None,
        bounds: Any = None,
        random_start: bool = False,
        targeted: bool = False,
        loss: str = "cross-entropy",
        batch_norm: str = "running",
        batch_size: int = 256,
    ) -> None:
        self.eps = eps
        self.norm = norm
        self.step_size = step_size
        self.bounds = bounds
        self.random_start = random_start
        self.targeted = targeted
        self.loss = loss
        self.batch_norm = batch_norm
        self.batch_size = batch_size

    @property
    def _step(self) -> float:
        return float(self.eps if self.step_size is None else self.step_size)


# --- as functions ----------------------------------------------------------------------------------------


def pgd(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    eps: float,
    norm: str = "linf",
    steps: int,
    step_size: float | None = None,
    bounds: Any,
    random_state: Any = None,
    **options: Any,
) -> AttackResult:
    """Attack a classifier by projected gradient ascent on its loss.

    Parameters
    ----------
    model : torch.nn.Module or fitted classifier
        A module must be in evaluation mode and return logits; what it does to its inputs first is part of it.
    X : array or tensor of shape (n, ...)
        Inputs, within ``bounds``.
    y : array of shape (n,), optional
        Labels of a classifier, class numbers of a module; by default what the model says.
    eps, norm, steps, step_size, bounds
        As :class:`PGD` takes them; ``bounds`` must be given, and may be None.
    random_state : int or RandomState, optional
        Seed of the random starts.
    **options
        ``random_start``, ``restarts``, ``targeted``, ``momentum``, ``loss``, ``keep`` and ``batch_size`` of :class:`PGD`.

    Returns
    -------
    AttackResult
        ``adversarial``, ``success``, ``distance``, ``steps`` and ``loss``.

    Examples
    --------
    >>> import torch
    >>> from corollary import attack
    >>> line = torch.nn.Linear(2, 2).eval()
    >>> x = torch.tensor([[0.5, 0.5]])
    >>> found = attack.pgd(line, x, eps=0.25, norm="l2", steps=5, bounds=(0, 1), random_state=0)
    >>> bool(found.distance[0] <= 0.25 + 1e-6)
    True
    """
    made = PGD(eps, norm=norm, steps=steps, step_size=step_size, bounds=bounds, **_known(PGD, options, "pgd"))
    return made(model, X, y, random_state=random_state)


def fgsm(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    eps: float,
    norm: str = "linf",
    step_size: float | None = None,
    bounds: Any,
    random_state: Any = None,
    **options: Any,
) -> AttackResult:
    """Attack a classifier by one step along the sign of the loss's gradient.

    Parameters
    ----------
    model, X, y
        As :func:`pgd` takes them.
    eps, norm, step_size, bounds
        As :class:`FGSM` takes them; ``bounds`` must be given, and may be None.
    random_state : int or RandomState, optional
        Seed of a random start, if there is one.
    **options
        ``random_start``, ``targeted``, ``loss`` and ``batch_size`` of :class:`FGSM`.

    Returns
    -------
    AttackResult

    Examples
    --------
    >>> import torch
    >>> from corollary import attack
    >>> line = torch.nn.Linear(2, 2).eval()
    >>> found = attack.fgsm(line, torch.tensor([[0.5, 0.5]]), eps=0.25, bounds=(0, 1))
    >>> round(float(found.distance[0]), 4)
    0.25
    """
    made = FGSM(eps, norm=norm, step_size=step_size, bounds=bounds, **_known(FGSM, options, "fgsm"))
    return made(model, X, y, random_state=random_state)


def _known(cls: Any, options: dict[str, Any], owner: str) -> dict[str, Any]:
    for name in options:
        if name not in cls._get_param_names():
            raise errors.unknown(owner, "option", name, cls._get_param_names())
    return options
