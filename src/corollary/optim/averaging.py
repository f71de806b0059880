r"""Averages of the weights over training: Polyak averaging and exponential moving averages.

The last point of a stochastic descent jumps about the minimum; an average of the points does not. Polyak's and Ruppert's is
the plain mean,

.. math:: \bar w_n = \frac{1}{n} \sum_{t=1}^{n} w_t, \tag{1}

which, with steps that shrink more slowly than 1/t, is as good as any estimate can be. An exponential one forgets,

.. math:: \bar w_n = d_n\, \bar w_{n-1} + (1 - d_n)\, w_n, \qquad d_n = \min\!\Big(d, \frac{1 + n}{10 + n}\Big), \tag{2}

the sooner in the first updates, so that the initial weights do not linger.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from corollary.errors import value

__all__ = ["average"]


def average(module: nn.Module, decay: float | str = "polyak") -> Any:
    """Return a copy of a module whose weights are the average over all calls of ``update_parameters(module)``.

    Parameters
    ----------
    module : torch.nn.Module
        What is trained.
    decay : float or "polyak", default="polyak"
        The plain mean, eq. 1, or the factor d of an exponential one, eq. 2; closer to 1 averages over more updates.

    Returns
    -------
    torch.optim.swa_utils.AveragedModel
        Called as the module is. ``Training(average=...)`` does the same for every gradient-trained estimator.

    References
    ----------
    .. [1] B. T. Polyak, A. B. Juditsky (1992). Acceleration of stochastic approximation by averaging. SIAM Journal on
       Control and Optimization 30, 838-855.

    Examples
    --------
    >>> import torch
    >>> from corollary.optim import average
    >>> net = torch.nn.Linear(1, 1, bias=False)
    >>> mean = average(net)
    >>> for weight in (1.0, 2.0, 6.0):
    ...     _ = net.weight.data.fill_(weight)
    ...     mean.update_parameters(net)
    >>> mean.module.weight.item()
    3.0
    """
    from torch.optim.swa_utils import AveragedModel

    if decay != "polyak" and (isinstance(decay, str) or not 0 <= decay < 1):
        raise value("average", 'decay must be "polyak" or a number from 0 to below 1', repr(decay))
    rule = None if isinstance(decay, str) else exponential(decay)
    return AveragedModel(module, multi_avg_fn=rule, use_buffers=True)


def exponential(decay: float) -> Any:
    """Return the update of eq. 2 as torch's averages take it."""
    from torch.optim.swa_utils import get_ema_multi_avg_fn

    def update(kept: Any, now: Any, n: Tensor) -> None:
        early = (1 + int(n)) / (10 + int(n))
        get_ema_multi_avg_fn(min(decay, early))(kept, now, n)  # type: ignore[no-untyped-call]

    return update
