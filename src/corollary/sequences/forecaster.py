r"""The next values of a series.

Standardised, a series changes from step to step by what a causal network says,

.. math:: \hat x^{t+1} = x^t + f(x^1, \dots, x^t), \tag{1}

and the mean of :math:`\lVert \hat x^{t+1} - x^{t+1} \rVert^2 / d` over all steps is minimised (2). Longer forecasts feed
:math:`\hat x^{t+1}` back as :math:`x^{t+1}`.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from corollary.base import Data
from corollary.border import to_numpy
from corollary.engine.batches import Batch
from corollary.engine.ragged import RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.errors import value
from corollary.sequences.common import BaseSequenceNetwork
from corollary.sequences.network import RECURRENT

__all__ = ["SequenceForecaster"]


class SequenceForecaster(BaseSequenceNetwork):
    """Forecast series of numbers of any length.

    Takes a list of series ``(t, d)`` or ``(t,)`` of floats, which may differ in length, and learns to continue them; one
    series ``(t,)`` alone, as an array or a column of a frame, counts as a list of one.

    Parameters
    ----------
    cell : {"rnn", "lstm", "gru", "lru", "tcn"}, default="gru"
        What reads the series.
    horizon : int, default=1
        How many steps ``predict`` looks ahead. Errors grow with it, since forecasts are fed back.
    width : int, default=64
        Width of the states. Wider remembers more.
    n_layers : int, optional
        Depth: how many recurrences are stacked. By default 2; for "tcn" as many blocks as see all of nearly every
        series.
    dropout : float, default=0.0
        Share of activations dropped at random while training; more regularises more.
    truncation : int, optional
        Let gradients flow back over at most so many steps: for long series.
    training : Training, optional
        How to descend.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : SequenceNetwork
        The trained network; called with padded series it gives the standardised change after every step.
    feature_mean_, feature_scale_ : ndarray of shape (n_features_in_,)
        What series are standardised by.
    n_features_in_ : int
        Width d of a step.
    n_layers_ : int
        Depth that was built.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises equation (2) of :mod:`corollary.sequences.forecaster`. An epoch costs
    O(steps * width^2 * n_layers). A recurrent cell reads the series once and goes on from its state; "lru" and
    "tcn" read it again for every step ahead.

    Examples
    --------
    >>> from corollary import SequenceForecaster
    >>> wave = np.sin(0.3 * np.arange(60.0))
    >>> model = SequenceForecaster(horizon=3, width=16, random_state=0).fit([wave] * 16)
    >>> bool(np.abs(model.predict([wave[:40]])[0, :, 0] - wave[40:43]).max() < 0.3)
    True
    """

    role = "forecaster"
    _usual_depth = 2
    _parameter_constraints = {
        **{
            k: v
            for k, v in BaseSequenceNetwork._parameter_constraints.items()
            if k not in ("bidirectional", "embedding_dimension")
        },
        "horizon": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        cell="gru",
        *,
        horizon=1,
        width=64,
        n_layers=None,
        dropout=0.0,
        truncation=None,
        training=None,
        random_state=None,
    ):
        self.cell = cell
        self.horizon = horizon
        self.width = width
        self.n_layers = n_layers
        self.dropout = dropout
        self.truncation = truncation
        self.training = training
        self.random_state = random_state

    def predict(self, X):
        """Return the next ``horizon`` steps of each series, (n, horizon, d)."""
        parts = self._query(X)
        return np.stack(self._evaluate(parts, self._stepped if self.cell in RECURRENT else self._reread))

    def score(self, X, y=None):
        """Return R^2 of the forecasts one step ahead, over all steps of all series."""
        parts = self._query(X)
        ahead = self._evaluate(parts, lambda x, lengths: x + self.module_(x) * self.module_.inputs.scale)
        said = np.concatenate([a[: len(part) - 1] for a, part in zip(ahead, parts)])
        came = np.concatenate([part[1:] for part in parts])
        if len(came) < 2:
            raise value(type(self).__name__, "score needs at least two steps to compare", len(came))
        return float(r2_score(came, said))

    # --- hooks -------------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        values = to_numpy(X)
        alone = getattr(values, "ndim", 0) == 1 and getattr(values.dtype, "kind", "") in ("i", "u", "f")
        parts = super()._check([np.asarray(values, np.float64)] if alone else X, reset)
        if reset and self.kind_ != "vector":
            raise value(
                type(self).__name__, "series must be of real numbers", "codes or strings", "Pass floats."
            )
        if reset and min(map(len, parts)) < 2:
            i = int(np.argmin([len(part) for part in parts]))
            raise value(
                type(self).__name__, "series must have 2 steps or more to learn from", f"1 in series {i}"
            )
        return parts

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self.n_outputs_ = self.n_features_in_

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._ragged(data.X))

    def _aim(self) -> Any:
        scale = torch.as_tensor(self.feature_scale_).to(current().device, getattr(torch, self.dtype_))
        return partial(step_error, scale=scale)

    def _stepped(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Feed forecasts back, one step of the cell each, from the state at each series' own end."""
        net, cell = self.module_, self.module_.encoder.cell
        packed = pack_padded_sequence(net.inputs(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        state = cell(packed)[1]
        now, ahead = x[torch.arange(len(x), device=x.device), lengths.to(x.device) - 1], []
        for _ in range(self.horizon):
            top = (state[0] if isinstance(state, tuple) else state)[-1]  # of an LSTM, without its memory
            now = now + net.head(top) * net.inputs.scale
            ahead.append(now)
            state = cell(net.inputs(now)[:, None], state)[1]
        return torch.stack(ahead, 1)

    def _reread(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Feed forecasts back as further steps, each series at its own end."""
        rows, lengths = torch.arange(len(x), device=x.device), lengths.to(x.device)
        x = torch.cat([x, x.new_zeros(len(x), self.horizon, x.shape[2])], 1)
        for ahead in range(self.horizon):
            end = lengths + ahead
            change = self.module_(x[:, : int(end.max())])[rows, end - 1]
            x[rows, end] = x[rows, end - 1] + change * self.module_.inputs.scale
        return torch.stack([x[rows, lengths + ahead] for ahead in range(self.horizon)], 1)


def step_error(module: nn.Module, batch: Batch, *, scale: Tensor) -> Tensor:
    """Return the mean squared error of eq. 2 over the steps of a batch."""
    x, lengths = batch.inputs
    change = (x[:, 1:] - x[:, :-1]) / scale
    inside = padding_mask(lengths - 1, x.shape[1] - 1, x.device)
    return (module(x[:, :-1]) - change)[inside].square().mean()
