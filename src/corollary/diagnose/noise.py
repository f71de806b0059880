r"""How noisy a batch's gradient is: the noise scale.

With per-sample gradients of mean :math:`G` and covariance :math:`\Sigma`, a batch of :math:`b` rows has
:math:`\mathbb E \lVert g_b \rVert^2 = \lVert G \rVert^2 + \operatorname{tr} \Sigma / b` (1), and the batch size at which noise
and signal are as large is

.. math:: b^\ast = \operatorname{tr} \Sigma / \lVert G \rVert^2. \tag{2}

Far below it batches may grow for nothing; far above it they are wasted. Both terms are estimated without bias from
disjoint batches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from corollary import errors
from corollary.diagnose.calling import alone
from corollary.diagnose.reading import prepared
from corollary.diagnose.subject import Subject, quiet
from corollary.diagnose.telling import told

__all__ = ["Noise", "gradient_noise", "noise_of"]


@told
class Noise(NamedTuple):
    """The signal and the noise of gradients."""

    scale: float  # eq. 2; infinite where no signal is seen
    trace: float  # of the covariance of one row's gradient
    signal: float  # squared length of the mean gradient, without bias
    ratio: float  # signal over noise in one batch of the size asked about
    batch_size: int
    layers: dict[str, float]  # the scale of every parameter


@alone
def gradient_noise(
    model: Any,
    data: Any,
    *,
    loss: Any = None,
    batch_size: int = 32,
    batches: int = 64,
    random_state: int = 0,
) -> Noise:
    """Return the noise scale of a model's gradient.

    Parameters
    ----------
    model, data, loss
        As :func:`corollary.diagnose` takes them. The model is asked in evaluation mode and not changed.
    batch_size : int, default=32
        Rows of a batch. Made smaller where the data have no four batches.
    batches : int, default=64
        Disjoint batches at most.
    random_state : int, default=0
        Of their rows.

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import gradient_noise
    >>> X = torch.ones(256, 1)
    >>> y = torch.arange(256) % 2 * 2.0  # half of the rows pull up, half down
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> _ = model.weight.data.fill_(0.5)
    >>> round(gradient_noise(model, (X, y), loss="mse", batch_size=1, batches=256).scale, 1)
    4.1
    """
    if batch_size < 1 or batches < 2:
        raise errors.value(
            "gradient_noise", "batch_size must be at least 1 and batches at least 2", (batch_size, batches)
        )
    subject = prepared(model, data, loss=loss)
    if subject.net is None or subject.error is not None:
        raise errors.value("gradient_noise", "the module must take its inputs", subject.error or "no module")
    return noise_of(subject, batch_size, batches, random_state)


def noise_of(subject: Subject, batch_size: int, batches: int, random_state: int = 0) -> Noise:
    """Return the noise of a subject's gradient, over all its training rows."""
    samples = subject.all_train
    rows = np.flatnonzero(samples.counted.numpy())
    if len(rows) < 4:
        raise errors.value("gradient_noise", "data must have at least 4 rows", len(rows))
    size = min(batch_size, len(rows) // 4)
    m = min(batches, len(rows) // size)
    order = np.random.default_rng(random_state).permutation(rows)[: m * size].reshape(m, size)
    net = subject.twin().eval()
    params = {n: p for n, p in net.named_parameters() if p.requires_grad}
    total = {n: torch.zeros_like(p) for n, p in params.items()}
    squares = dict.fromkeys(params, 0.0)
    with quiet(net), torch.enable_grad():
        for part in order:
            value = subject.loss(net, samples.take(np.sort(part)))
            found = torch.autograd.grad(value, list(params.values()), allow_unused=True)
            for name, g in zip(params, found):
                if g is not None:
                    total[name] += g / m
                    squares[name] += float(g.double().square().sum()) / m
    if not all(math.isfinite(v) for v in squares.values()):
        do = "See corollary.diagnose(model, data) for its cause."
        raise errors.value("gradient_noise", "gradients must be finite", "NaN or infinity", do)
    traces, signals = {}, {}
    for name in params:
        mean2 = float(total[name].double().square().sum())
        traces[name] = size * max(0.0, squares[name] - mean2) * m / (m - 1)
        signals[name] = mean2 - traces[name] / (m * size)
    trace, signal = sum(traces.values()), sum(signals.values())
    scale = trace / signal if signal > 0 else float("inf")
    layers = {n: traces[n] / signals[n] if signals[n] > 0 else float("inf") for n in params}
    ratio = max(signal, 0.0) * size / trace if trace > 0 else float("inf")
    return Noise(scale, trace, max(signal, 0.0), ratio, size, layers)
