r"""DeepFool: the smallest change of an input that changes the class.

For linear logits the nearest boundary between the class :math:`y` and another class :math:`k` lies, in the norm :math:`p`, at

.. math::
    r_k = \frac{|h_k|}{\lVert \nabla h_k \rVert_{p^*}}\; v_k, \qquad h_k = f_k - f_y, \qquad
    v_k = \frac{|\nabla h_k|^{p^*-1} \odot \mathrm{sgn}(\nabla h_k)}{\lVert \nabla h_k \rVert_{p^*}^{p^*-1}}, \tag{1}

of length :math:`\lVert r_k \rVert_p = |h_k| / \lVert \nabla h_k \rVert_{p^*}`, and the smallest change is the shortest of them.
DeepFool takes (1) for the linearised network, moves by the shortest, and repeats until the class changes; the sum of the
changes is lengthened by an overshoot :math:`\eta`, which carries it across the boundary:

.. math:: x_{i+1} = x + (1 + \eta) \sum_{j \le i} r^{(j)}. \tag{2}

Few samples need more than ten steps; those that creep along a curved boundary get across because :math:`\eta` is doubled after
every ten steps.

The mean of :math:`\lVert r(x) \rVert / \lVert x \rVert` over inputs is the robustness score :math:`\hat\rho` (3).

All samples are moved together; those whose class has changed drop out, and the gradients of the rival classes are taken only
for those that remain. A coordinate that stands at its bound and would be moved beyond it counts for nothing in
(1), so that the others make up for it.

References
----------
.. [1] S. Moosavi-Dezfooli, A. Fawzi, P. Frossard (2016). DeepFool: a simple and accurate method to fool deep
   neural networks. CVPR.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corollary import errors
from corollary.attack.balls import check_norm, column, lengths, steepest
from corollary.attack.base import Attack, AttackResult, Given, objective

__all__ = ["DeepFool", "deepfool", "nearest_boundary"]

DUAL = {"l2": "l2", "linf": "l1"}
DOUBLED = 10  # steps after which the overshoot is doubled
FEW = 0.8  # share of a part below which those left go through the network again, so that gradients are theirs alone
LEAST = 16  # samples in a part, however large they are
CACHED = 2**15  # numbers in a part on a CPU: layers of more have left its cache by the backward pass


def nearest_boundary(gaps: Tensor, slopes: Tensor, norm: str) -> Tensor:
    """Return the shortest change of eq. 1 for gaps h (n, k) and their gradients (k, n, ...).

    >>> nearest_boundary(torch.tensor([[-1.0, -9.0]]), torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]]]), "l2")
    tensor([[0.5000, 0.0000]])
    """
    tiny = torch.finfo(gaps.dtype).tiny
    sizes = torch.stack([lengths(slope, DUAL[norm]) for slope in slopes], 1)  # (n, k)
    away = torch.where(sizes > tiny, gaps.abs() / sizes.clamp_min(tiny), torch.inf)
    distance, nearest = away.min(1)
    slope = slopes[nearest, torch.arange(len(gaps), device=gaps.device)]
    reach = torch.where(torch.isfinite(distance), distance, 0.0)
    return column(reach, slope) * steepest(slope, norm, 1.0)


class DeepFool(Attack):
    """Find the smallest change of each input that changes its class, for a whole batch at once.

    Parameters
    ----------
    norm : {"l2", "linf"}, default="l2"
        In which norm the change shall be small.
    steps : int, default=50
        Most linearisations.
    overshoot : float, default=0.02
        By which share the change is lengthened; more crosses a curved boundary in fewer steps, and farther.
    candidates : int or None, default=10
        How many classes, in the order of the model's logits, are looked at; None for all.
    eps : float, optional
        Largest distance that counts as a success; any by default.
    bounds : (low, high), optional
        Range of the inputs; None does not bound them.
    batch_size : int, default=256
        Most samples that go through the model at a time; fewer large ones do on a CPU, whose cache is small.

    Notes
    -----
    A step costs one forward pass and ``candidates - 1`` backward passes over the samples that are still active.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLPClassifier(random_state=0).fit(X, y)
    >>> found = attack.DeepFool()(model, X, y)
    >>> found.success_rate, 0 < found.robustness < 1
    (1.0, True)
    """

    def __init__(
        self,
        *,
        norm: str = "l2",
        steps: int = 50,
        overshoot: float = 0.02,
        candidates: int | None = 10,
        eps: float | None = None,
        bounds: Any = None,
        batch_size: int = 256,
    ) -> None:
        self.norm = norm
        self.steps = steps
        self.overshoot = overshoot
        self.candidates = candidates
        self.eps = eps
        self.bounds = bounds
        self.batch_size = batch_size

    def _check(self) -> None:
        check_norm(self.norm, "DeepFool", tuple(DUAL))
        self._check_count("steps", "batch_size")
        self._check_number("overshoot", 0)
        self._check_number("eps", 0, optional=True)
        if self.candidates is not None:
            self._check_count("candidates")
            if self.candidates < 2:
                raise errors.value("DeepFool", "candidates must be at least 2, the class and a rival", 1)

    def _search(self, given: Given, rng: torch.Generator) -> AttackResult:
        search = _Search(given)
        active = torch.arange(len(given.x), device=given.x.device)
        for k in range(self.steps + 1):
            active = torch.cat([self._advance(search, part, k) for part in active.split(self._part(given.x))])
            if not len(active):
                break
        won = search.won
        if self.eps is not None:
            won = won & (lengths(search.moved - given.x, self.norm) <= self.eps)
        return given.result(search.moved, won, search.steps, search.loss, self.norm)

    def _part(self, x: Tensor) -> int:
        """Return how many samples go through the model at a time."""
        cached = max(LEAST, CACHED // max(1, x[:1].numel()))
        return min(self.batch_size, cached) if x.is_cpu else self.batch_size

    def _advance(self, search: _Search, rows: Tensor, k: int) -> Tensor:
        """Make step k for some samples; return those whose class had not changed before."""
        given, last = search.given, k == self.steps
        y = given.y[rows]
        with torch.set_grad_enabled(not last):
            point = search.moved[rows].requires_grad_(not last)
            z = given.scores(point)
        self._finite(z)
        still = z.argmax(1) == y
        search.loss[rows] = objective(z.detach(), y, "cross-entropy")
        search.won[rows] = ~still
        rows, y, there = rows[still], y[still], still
        if last or not len(rows):
            return rows
        if len(rows) < FEW * len(still):
            point = search.moved[rows].requires_grad_()
            z, there = given.scores(point), still[still]
        overshoot = self.overshoot * 2 ** (k // DOUBLED)
        search.move(rows, self._change(given, z, point, y, there), overshoot)
        return rows

    def _change(self, given: Given, z: Tensor, point: Tensor, y: Tensor, there: Tensor) -> Tensor:
        """Return eq. 1 for the samples ``there``, of classes y, along the coordinates that bounds leave free."""
        z = z[there]
        count = z.shape[1] if self.candidates is None else min(self.candidates, z.shape[1])
        rivals = z.detach().scatter(1, y[:, None], -torch.inf).topk(count - 1, dim=1).indices  # (n, k)
        h = z.gather(1, rivals) - z.gather(1, y[:, None])
        ones = torch.ones_like(y, dtype=z.dtype)
        slopes = torch.stack(
            [
                torch.autograd.grad(h[:, j], point, ones, retain_graph=j < count - 2)[0][there]
                for j in range(count - 1)
            ]
        )
        if given.low is not None and given.high is not None:
            here = point.detach()[there]
            stuck = ((slopes > 0) & (here >= given.high)) | ((slopes < 0) & (here <= given.low))
            slopes = slopes.masked_fill(stuck, 0)
        return nearest_boundary(h.detach(), slopes, self.norm)

    def _finite(self, z: Tensor) -> None:
        if not torch.isfinite(z).all():
            do = "Look at the model's weights."
            raise errors.value("DeepFool", "the model's logits must be finite", "NaN or infinity", do)


class _Search:
    """Where the samples have got to, the sum of their changes (eq. 2), steps, losses and successes."""

    def __init__(self, given: Given) -> None:
        n, device = len(given.x), given.x.device
        self.given = given
        self.moved, self.total = given.x.clone(), torch.zeros_like(given.x)
        self.steps = torch.zeros(n, dtype=torch.long, device=device)
        self.loss, self.won = given.x.new_zeros(n), torch.zeros(n, dtype=torch.bool, device=device)

    def move(self, rows: Tensor, change: Tensor, overshoot: float) -> None:
        """Add a change to some samples, inside the bounds."""
        x, low, high = self.given.x[rows], self.given.low, self.given.high
        total = self.total[rows] + change
        if low is not None:
            total = (x + total).clamp(low, high) - x
        step = x + (1 + overshoot) * total
        self.total[rows], self.moved[rows] = total, step if low is None else step.clamp(low, high)
        self.steps[rows] += 1


def deepfool(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    eps: float | None = None,
    norm: str = "l2",
    steps: int = 50,
    overshoot: float = 0.02,
    candidates: int | None = 10,
    bounds: Any,
    random_state: Any = None,
    batch_size: int = 256,
) -> AttackResult:
    """Find the smallest change of each input that changes its class.

    Parameters
    ----------
    model, X, y
        As :func:`corollary.attack.pgd` takes them.
    eps, norm, steps, overshoot, candidates, bounds, batch_size
        As :class:`DeepFool` takes them; ``bounds`` must be given, and may be None.
    random_state : ignored
        Nothing is drawn; here so that the three attacks are called alike.

    Returns
    -------
    AttackResult
        ``distance`` is that of the change, ``robustness`` the score of eq. 3.

    Examples
    --------
    >>> import torch
    >>> from corollary import attack
    >>> line = torch.nn.Linear(2, 2).eval()
    >>> found = attack.deepfool(line, torch.tensor([[0.5, 0.5]]), bounds=None)
    >>> int(found.steps[0]), bool(found.success[0])
    (1, True)
    """
    options = {"norm": norm, "steps": steps, "overshoot": overshoot, "candidates": candidates}
    return DeepFool(**options, eps=eps, bounds=bounds, batch_size=batch_size)(model, X, y)
