r"""Contrastive predictive coding: features of sequences from which the future can be told from other futures.

An encoder makes a code :math:`z_t` of each step, a recurrent net a context :math:`c_t` of all steps so far, and one matrix per
distance :math:`k` scores how well a code fits :math:`k` steps later: :math:`f_k(z, c) = z^\top W_k c`. Of :math:`N` codes, one
from the same sequence and the others from other sequences of the batch, the right one is to be found (InfoNCE):

.. math:: \mathcal L_k = -\mathbb E \log \frac{e^{f_k(z_{t+k}, c_t)}}{\sum_{j=1}^{N} e^{f_k(z^j_{t+k}, c_t)}}. \tag{1}

The best score is :math:`\log p(z_{t+k} \mid c_t) / p(z_{t+k})` up to a constant, and the loss bounds the mutual information
from below,

.. math:: I(z_{t+k}; c_t) \ge \log N - \mathcal L_k, \tag{2}

by no more than :math:`\log N`: to see much information takes large batches.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data, Transformer, as_tensor
from corollary.engine.batches import Batch
from corollary.engine.ragged import RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.sequences.common import BaseSequence, scale_of
from corollary.shapes import Array, Maybe
from corollary.validation import to_numpy

__all__ = ["CPCNetwork", "ContrastivePredictiveCoding", "info_nce"]


def info_nce(scores: Tensor, there: Tensor | None = None) -> Tensor:
    """Return the loss (..., n) of finding the right one of n candidates, which lie on the diagonal of scores (..., n, n), eq. 1.

    ``there`` (..., n) says which candidates there are; the others count neither as right nor as wrong ones.

    >>> info_nce(torch.zeros(4, 4))  # no idea: log 4
    tensor([1.3863, 1.3863, 1.3863, 1.3863])
    """
    if there is not None:
        scores = scores.masked_fill(~there[..., None, :], -torch.inf)
        scores = torch.where(there[..., :, None], scores, 0.0)  # rows that are not asked for stay finite
    return -scores.log_softmax(-1).diagonal(dim1=-2, dim2=-1)


class CPCNetwork(nn.Module):
    """Codes, contexts, and one matrix for each distance that is predicted."""

    def __init__(self, n_in: int, width: int, distances: int, codes: bool) -> None:
        super().__init__()
        first: nn.Module = nn.Embedding(n_in, width) if codes else nn.Linear(n_in, width)
        self.encoder = nn.Sequential(first, nn.ReLU(), nn.Linear(width, width))
        self.context = nn.GRU(width, width, batch_first=True)
        self.predictors = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(distances)])
        self.register_buffer("mean", torch.zeros(1 if codes else n_in))
        self.register_buffer("scale", torch.ones(1 if codes else n_in))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return codes and contexts, (b, t, width) each."""
        z = self.encoder((x - self.mean) / self.scale if x.is_floating_point() else x)
        return z, self.context(z)[0]

    def losses(self, z: Tensor, c: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss over steps and distances, and the mean bound on the information, eq. 1 and 2."""
        inside = padding_mask(lengths, z.shape[1], z.device)
        losses, bounds = [], []
        for k, predict in enumerate(self.predictors, 1):
            if k >= z.shape[1]:
                break
            there = inside[:, k:].T  # (t, b): which sequences have a step there
            scores = torch.einsum("itd,jtd->tij", predict(c[:, :-k]), z[:, k:])
            found = info_nce(scores, there)[there]
            n = there.sum(1, keepdim=True).expand_as(there)[there]
            losses.append(found[n > 1])  # where there is something to tell it from
            bounds.append(n[n > 1].to(found.dtype).log() - losses[-1].detach())
        if not losses or not sum(map(len, losses)):
            return 0.0 * (z.sum() + c.sum()), torch.zeros(())
        return torch.cat(losses).mean(), torch.cat(bounds).mean()


class ContrastivePredictiveCoding(Transformer, BaseSequence):
    """Learn features of sequences, or of images row by row, by telling their future from that of others (a contrastive loss).

    Parameters
    ----------
    width : int, default=64
        Width of codes and contexts. Wider keep more.
    distance : int, default=4
        Steps ahead that are predicted; more ask for what lasts longer.
    training : Training, optional
        Settings of gradient descent. Larger batches have more other sequences to be told apart from.
    random_state : int or RandomState, optional
        Seed for initial weights and order of samples.

    Attributes
    ----------
    module_ : CPCNetwork
        The trained network.
    feature_mean_, feature_scale_ : ndarray of shape (n_features,)
        What vectors are standardised with.
    history_ : list of dict
        Step, loss, information (the bound of eq. 2, in nats) and seconds of every epoch.

    Notes
    -----
    Minimises (1), averaged over steps and distances. ``transform`` gives the mean context of each sequence. Images (n, h, w)
    or (n, c, h, w) are sequences of their rows. An epoch costs O(n t (batch_size + width) width) per distance.

    References
    ----------
    .. [1] A. van den Oord, Y. Li, O. Vinyals (2018). Representation learning with contrastive predictive coding. arXiv
       1807.03748.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import ContrastivePredictiveCoding, Training
    >>> X = load_digits().images / 16
    >>> model = ContrastivePredictiveCoding(16, training=Training(epochs=3), random_state=0).fit(X)
    >>> model.transform(X).shape, bool(model.history_[-1]["information"] > 0)
    ((1797, 16), True)
    """

    also = ("image",)
    _training_defaults = {"epochs": 30, "learning_rate": 2e-3, "batch_size": 64, "clip_norm": 1.0}
    _parameter_constraints = {
        "width": [Interval(Integral, 1, None, closed="left")],
        "distance": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "feature_mean_": Maybe(Array("n_features_in_")),
        "feature_scale_": Maybe(Array("n_features_in_")),
    }

    def __init__(self, width=64, *, distance=4, training=None, random_state=None):
        self.width = width
        self.distance = distance
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 8, "distance": 2, "training": Training(epochs=3, learning_rate=0.01)}

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        given = to_numpy(X)
        if isinstance(given, np.ndarray) and given.ndim == 4:  # (n, c, h, w) -> rows of all channels
            given = given.transpose(0, 2, 1, 3).reshape(len(given), given.shape[2], -1)
        if isinstance(given, np.ndarray) and given.ndim == 3 and given.dtype.kind in "ui":
            given = given.astype(np.float32)
        return super()._check([*given] if isinstance(given, np.ndarray) and given.ndim == 3 else X, reset)

    def _measure(self, data: Data) -> None:
        longest = max(len(part) for part in data.X)
        if longest < 2 or len(data.X) < 2:
            must = "there must be several sequences, and some of more than one step"
            raise errors.value(type(self).__name__, must, f"{len(data.X)} of at most {longest} steps")
        if self.kind_ == "vector":
            self.feature_mean_, self.feature_scale_ = scale_of(data.X)

    def _module(self) -> CPCNetwork:
        codes = self.kind_ != "vector"
        n_in = self.n_codes_ if codes else self.n_features_in_
        module = CPCNetwork(n_in, self.width, self.distance, codes).to(getattr(torch, self.dtype_))
        if not codes:
            module.mean.copy_(as_tensor(self.feature_mean_))
            module.scale.copy_(as_tensor(self.feature_scale_))
        return module

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._ragged(data.X, current().device))

    def _aim(self) -> Any:
        def objective(module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
            x, lengths = batch.inputs
            inner = getattr(module, "module", module)  # several processes wrap it
            loss, bound = inner.losses(*module(x, lengths), lengths)
            return loss, {"information": bound}

        return objective

    def _transform(self, X: list[np.ndarray]) -> np.ndarray:
        def call(x: Tensor, lengths: Tensor) -> Tensor:
            context = self.module_(x, lengths)[1]
            inside = padding_mask(lengths, x.shape[1], context.device)[..., None].to(context.dtype)
            return (context * inside).sum(1) / inside.sum(1).clamp(min=1)

        return np.stack(self._evaluate(X, call))
