r"""Dropout at prediction time: Monte-Carlo dropout, the mean and spread over random masks.

With a mask :math:`Z` whose entries are kept with probability :math:`\pi = 1 - p`, a network with dropout is an ensemble of all
networks with some units left out,

.. math:: p(y \mid x) = \sum_Z p(Z)\, p(y \mid x, Z). \tag{1}

Every gradient-trained estimator with a parameter ``dropout`` trains one member at a time. Kept units are divided by
:math:`\pi` while training, so that the whole network needs no change afterwards: it is the *weight rescaling* rule
:math:`\tilde\theta = \pi \theta`, whose inputs to every layer are the means over the masks, and which for a linear softmax model
is the renormalised geometric mean of the members exactly. *Monte-Carlo dropout* instead draws :math:`S` masks and takes

.. math:: \hat p(y \mid x) = \frac{1}{S} \sum_{s=1}^{S} p(y \mid x, Z_s), \tag{2}

whose spread says how much the members disagree. On a linear model with squared error, dropout of the inputs is an L2 penalty
that adapts to the scale of each input,

.. math::
    \mathbb E_Z \sum_n \Bigl(y_n - \sum_j w_j \frac{z_{nj}}{\pi} x_{nj}\Bigr)^2
    = \lVert y - Xw \rVert^2 + \frac{p}{1 - p} \sum_j w_j^2 \lVert X_{\cdot j} \rVert^2. \tag{3}
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.random import seeded

__all__ = ["Spread", "dropping", "monte_carlo_dropout"]


class Spread(NamedTuple):
    """Mean and standard deviation over passes with dropout."""

    mean: Tensor
    std: Tensor


@contextmanager
def dropping(module: nn.Module, owner: str = "dropout") -> Iterator[None]:
    """Put the dropout layers of a module into training mode, everything else into evaluation mode; restore both after."""

    def drops(part: nn.Module) -> bool:
        if isinstance(part, nn.modules.dropout._DropoutNd):
            return bool(part.p > 0)
        share = getattr(part, "dropout", 0.0)
        return isinstance(share, float) and share > 0

    parts = [part for part in module.modules() if drops(part)]
    if not parts:
        raise errors.value(
            owner, "dropout_samples needs a network with dropout", "one without", "Set dropout."
        )
    before = {part: part.training for part in module.modules()}
    module.eval()
    for part in parts:
        part.training = True
    try:
        yield
    finally:
        for part, mode in before.items():
            part.training = mode


def monte_carlo_dropout(
    module: nn.Module, *inputs: Any, n_samples: int = 50, random_state: int = 0
) -> Spread:
    """Return mean and standard deviation of a torch module's output over passes with dropout, eq. 2.

    The classifiers and regressors of the library do it themselves: ``predict_proba(X, dropout_samples=50)`` and
    ``predict(X, dropout_samples=50, return_std=True)``. Where an output are logits, pass a module that ends in a softmax.

    Parameters
    ----------
    module : nn.Module
        Any module with dropout layers; all its other layers are as in evaluation.
    *inputs : tensors
        What it is called with.
    n_samples : int, default=50
        Passes. More give a better mean.
    random_state : int, default=0
        Seed of the masks; torch's own generators are left alone.

    Returns
    -------
    Spread
        ``mean`` and ``std``, of the shape of one output.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    >>> x = torch.ones(3, 4)
    >>> found = monte_carlo_dropout(net, x, n_samples=4000)
    >>> bool((found.mean - net.eval()(x)).abs().max() < 0.1)  # weight rescaling: exact for a linear layer
    True
    """
    if isinstance(n_samples, bool) or not isinstance(n_samples, int) or n_samples < 1:
        raise errors.value("monte_carlo_dropout", "n_samples must be a positive integer", repr(n_samples))
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with torch.no_grad(), seeded(random_state, device), dropping(module, "monte_carlo_dropout"):
        first = module(*inputs)
        mean, square = first.clone(), torch.zeros_like(first)
        for count in range(2, n_samples + 1):  # Welford's recursion: no pass is kept
            new = module(*inputs)
            step = new - mean
            mean += step / count
            square += step * (new - mean)
    return Spread(mean, (square / n_samples).sqrt())
