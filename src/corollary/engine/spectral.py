r"""Penalties on operator norms: of the layers, or of the network's Jacobian at the data.

A network of layers :math:`W^\ell` and activations of slope at most 1 changes its output by at most

.. math::
    \frac{\lVert f(x + \Delta) - f(x) \rVert}{\lVert \Delta \rVert} \approx
    \frac{\lVert J_f(x) \Delta \rVert}{\lVert \Delta \rVert}
    \le \sigma(J_f(x)) \le \prod_\ell \sigma(W^\ell). \tag{1}

The spectral penalty adds the layers' own norms to the loss, the data-dependent one that of the Jacobian at each sample,

.. math:: \frac{\lambda}{2} \sum_\ell \sigma(W^\ell)^2, \qquad \frac{\lambda}{2} \frac1n \sum_i \sigma(J_f(x_i))^2. \tag{2}

Singular vectors are followed by the power method (:mod:`corollary.engine.operators`): each update begins with the vectors of
the last. At a singular value that is alone its derivative is that of :math:`u^\top A v` with :math:`u, v` held fixed (3).

References
----------
.. [1] Y. Yoshida, T. Miyato (2017). Spectral norm regularization for improving the generalizability of deep learning.
.. [2] K. Roth, Y. Kilcher, T. Hofmann (2020). Adversarial training is a form of data-dependent operator norm regularization.
   NeurIPS.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.batches import Batch, typed
from corollary.engine.operators import Jacobian, Matrix, Operator, affine_layers, power_iteration, unit
from corollary.engine.random import seeded
from corollary.engine.regulariser import Regulariser
from corollary.losses import weighted_mean

__all__ = ["Spectral"]


class Spectral(Regulariser):
    """Penalty on largest singular values, eq. 2: ``Training(spectral=0.01)``.

    Parameters
    ----------
    rate : float
        Factor of the penalty. More makes the network flatter: more robust, and at some point less accurate.
    of : {"weights", "jacobian"}, default="weights"
        Whether the layers' norms are penalised, convolutions as operators on the images they see, or the norm of the
        Jacobian of the outputs at each sample of the batch.
    n_iter : int, default=1
        Power iterations an update; they begin with the vectors of the update before (of the sample at the same place of
        the batch, for "jacobian").

    Notes
    -----
    For "weights" an update costs about one more pass over a single sample, for "jacobian" ``2 * n_iter + 2`` backward passes
    over the batch and one that is differentiated twice. The Jacobian is that of the network in evaluation mode.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, Training
    >>> import numpy as np
    >>> X, y = load_iris(return_X_y=True)
    >>> def largest(rate):
    ...     plan = Training(epochs=20, spectral=rate)
    ...     return max(np.linalg.norm(W, 2) for W in MLPClassifier(training=plan, random_state=0).fit(X, y).coefs_)
    >>> bool(largest(1.0) < largest(0.0))
    True
    """

    name = "spectral"

    def __init__(self, rate: float, of: str = "weights", n_iter: int = 1) -> None:
        self.rate = rate
        self.of = of
        self.n_iter = n_iter

    def attach(self, learner: Any) -> None:
        """Find the layers and their leading singular vectors, or the inputs of the Jacobian."""
        if self.of not in ("weights", "jacobian"):
            raise errors.unknown("Spectral", "of", str(self.of), ("weights", "jacobian"))
        if not isinstance(self.n_iter, int) or self.n_iter < 1:
            raise errors.value("Spectral", "n_iter must be an integer of at least 1", repr(self.n_iter))
        self.needs_target = self.of == "jacobian"
        super().attach(learner)
        self._check(0.0)
        self._v: list[Tensor] = []
        if self.of == "weights":
            self._operators = _operators(learner)
            self._v = [operator.start() for operator in self._operators]
            return
        batch = next(iter(learner.batches.epoch(None, learner.training.batch_size, 0)))
        real = [i for i, t in enumerate(batch.inputs) if isinstance(t, Tensor) and t.is_floating_point()]
        if not real:
            must, do = "a penalty on the Jacobian needs inputs of real numbers", "Use of='weights'."
            raise errors.value(learner.owner, must, "codes, tokens or nodes", do)
        self._place = real[0]

    def on_loss(self, loss: Tensor, module: nn.Module, batch: Batch) -> Tensor:
        """Return the penalised loss."""
        if self.of == "jacobian":
            return loss + self.rate * self._jacobian(batch)
        for i, A in enumerate(self._operators):
            with torch.no_grad():
                u, self._v[i] = power_iteration(A, self._v[i], self.n_iter)
            loss = loss + 0.5 * self.rate * (u * A(self._v[i])).sum().square()
        return loss

    def _jacobian(self, batch: Batch) -> Tensor:
        """Return the mean of half the squared norms of the Jacobians at the samples."""
        learner, at = self._learner, self._place
        net, batch = learner.module, typed(learner.module, batch)
        x = batch.inputs[at].detach().requires_grad_()
        training = [part for part in net.modules() if part.training]
        net.eval()
        try:
            z = learner.players[0].objective.output(net, (*batch.inputs[:at], x, *batch.inputs[at + 1 :]))
        finally:
            for part in training:
                part.training = True
        J = Jacobian(z[0] if isinstance(z, tuple) else z, x)
        u, v = power_iteration(J, self._last(x), self.n_iter)
        self._v = [torch.cat([v, self._v[0][len(v) :]]) if self._fits(x) else v]
        weight = batch.weight if batch.weight is not None and batch.weight.ndim == 1 else None
        return weighted_mean(0.5 * J.form(u, v).square(), weight)

    def _fits(self, x: Tensor) -> bool:
        return bool(self._v) and self._v[0].shape[1:] == x.shape[1:]

    def _last(self, x: Tensor) -> Tensor:
        """Return the vectors that the samples at the same places had, and random ones for the rest."""
        kept = self._v[0][: len(x)] if self._fits(x) else x[:0]
        shape, rng = (len(x) - len(kept), *x.shape[1:]), self._learner.generator
        new = torch.randn(shape, generator=rng, device=rng.device, dtype=x.dtype).to(x.device)
        return torch.cat([kept.to(x.dtype), unit(new)]).detach()

    def state(self) -> dict[str, Any]:
        """Return the singular vectors."""
        return {"v": [v.clone() for v in self._v]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a snapshot."""
        device = next(self._learner.module.parameters()).device
        self._v = [v.clone().to(device) for v in state["v"]]


def _operators(learner: Any) -> list[Any]:
    """Return an operator for every weight: the affine layer that holds it, or the weight itself as a matrix."""
    module, matrices = learner.module, [p for player in learner.players for p in player.matrices]
    owners = {id(p): part for part in module.modules() for p in part.parameters(recurse=False)}
    layers: dict[int, Operator] = {}
    if any(p.ndim > 2 for p in matrices):
        batch = typed(module, next(iter(learner.batches.epoch(None, learner.training.batch_size, 0))))
        with seeded(learner.seed, learner.run.device):
            found = affine_layers(
                module, lambda: [player.objective(module, batch) for player in learner.players]
            )
        layers = {id(A.layer): A for A in found.values() if not isinstance(A.layer, nn.Linear)}
    operators: dict[int, Any] = {}
    for p in matrices:
        owner = owners[id(p)]
        held = id(owner) in layers and p.ndim > 2
        operators[id(owner) if held else id(p)] = layers[id(owner)] if held else Matrix(p)
    return list(operators.values())
