r"""PixelCNN: an autoregressive model of images, with an exact likelihood.

With the grey levels of all channels of all pixels in the order of reading,

.. math:: P(x) = \prod_i P(x_i \mid x_1, \dots, x_{i-1}), \tag{1}

and a network of causal convolutions (:mod:`corollary.nn.pixels`) gives all factors in one pass. A factor is a softmax over the
:math:`L` levels (2), or a mixture of :math:`K` logistic distributions, cut into levels,

.. math::
    P(x_i = l) = \sum_k \pi_k \Bigl[ \sigma\Bigl( \frac{l + \frac12 - \mu_k}{s_k} \Bigr)
    - \sigma\Bigl( \frac{l - \frac12 - \mu_k}{s_k} \Bigr) \Bigr], \tag{3}

where the first and the last level take all that is beyond them. It has few numbers for many levels and knows that neighbouring
levels are alike. To draw, the factors are used one after the other; what is known of an image is put in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary.base import Data, as_tensor
from corollary.engine.batches import Batch, TensorBatches
from corollary.engine.training import Training
from corollary.generative.common import ExactDensity, GenerativeModel
from corollary.generative.scaling import grid_step
from corollary.nn.pixels import PixelNetwork
from corollary.shapes import Count
from corollary.validation import as_given

__all__ = ["PixelCNN", "levels_in", "logistic_mixture"]

SEEN = 2_000_000  # pixels that are looked at for the number of levels
SHARPEST = -7.0  # smallest log-scale of a logistic, in units of half the range


def logistic_mixture(out: Tensor, codes: Tensor, levels: int) -> Tensor:
    """Return eq. 3 in logarithms: (..., 3 K) numbers and codes (...) -> (...).

    The numbers are the logits of the weights, the means on a scale from -1 to 1, and the log-scales.
    """
    weights, means, log_scales = out.chunk(3, -1)
    x = (2 * codes.to(out.dtype) / (levels - 1) - 1)[..., None]
    half, inverse = 1 / (levels - 1), torch.exp(-log_scales.clamp_min(SHARPEST))
    upper, lower = (x + half - means) * inverse, (x - half - means) * inverse
    # log(sigmoid(u) - sigmoid(l)) = log sigmoid(u) + log sigmoid(-l) + log(1 - exp(l - u)), stable everywhere
    middle = F.logsigmoid(upper) + F.logsigmoid(-lower) + torch.log(-torch.expm1(lower - upper))
    last = (codes == levels - 1)[..., None]
    cut = torch.where(
        (codes == 0)[..., None], F.logsigmoid(upper), torch.where(last, F.logsigmoid(-lower), middle)
    )
    return torch.logsumexp(F.log_softmax(weights, -1) + cut, -1)


def levels_in(X: np.ndarray) -> int:
    """Return how many grey levels images in [0, 1] have: those of an even grid that holds all of them, or 256.

    >>> levels_in(np.array([0.0, 1.0, 1.0])), levels_in(np.array([0, 0.25, 0.25, 1.0])), levels_in(np.random.rand(9))
    (2, 5, 256)
    """
    seen = X.reshape(-1)[:SEEN].astype(np.float64)
    step = grid_step(seen)
    found = 256 if not step else min(256, max(2, round(1 / step) + 1))
    off = np.abs(seen * (found - 1) - np.round(seen * (found - 1))).max()
    return found if off < 1e-3 else 256


class PixelCNN(ExactDensity, GenerativeModel):
    """Train an autoregressive model of images, pixel after pixel, with an exact likelihood; draw and complete images by it.

    Use it where the likelihood of images counts, or images are to be completed; drawing takes a step for every pixel.

    Parameters
    ----------
    levels : int, optional
        Grey levels, 2 (binary images) to 256; by default as many as the images have. Pixels are rounded to them.
    output : {"categorical", "logistic-mixture"}, default="categorical"
        A free probability for each level, eq. 2, or eq. 3, which learns faster from few images with many levels.
    n_components : int, default=5
        Logistic distributions of eq. 3.
    width : int, optional
        Features for each channel, 16 or 32; by default chosen from the data.
    n_layers : int, optional
        Gated layers, 3 to 8; by default chosen from the data. More see farther.
    conditional : bool, default=False
        Whether labels y given to ``fit`` are conditioned on.
    training : Training, optional
        Settings of gradient descent. By default a tenth of the data, if there are at least 50 images, is held out for
        early stopping.
    random_state : int or RandomState, optional
        Seed for weights, order of samples and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network: scaled images to numbers (n, channels, numbers, h, w).
    levels_ : int
        Grey levels.
    sample_shape_ : tuple of int
        Shape of one image, (channels, h, w).
    history_ : list of dict
        Loss of every epoch: nats per image. ``bits`` are those per dimension.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    ``score_samples`` is the log-probability, eq. 1, of images rounded to the levels. An image of N pixels costs one pass; drawing
    computes for each pixel only what is new, which in all is about as much arithmetic as one pass. ``complete`` draws the
    rest of images of which some pixels are known.

    References
    ----------
    .. [1] A. van den Oord, N. Kalchbrenner, K. Kavukcuoglu (2016). Pixel recurrent neural networks. ICML. Eq. (1).
    .. [2] A. van den Oord et al. (2016). Conditional image generation with PixelCNN decoders. NeurIPS. Eq. (2).
    .. [3] T. Salimans, A. Karpathy, X. Chen, D. P. Kingma (2017). PixelCNN++. ICLR. Eq. (2).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import PixelCNN, Training
    >>> X = load_digits().images[:64] / 16
    >>> model = PixelCNN(width=4, n_layers=1, training=Training(epochs=1), random_state=0).fit(X)
    >>> model.levels_, model.sample(2).shape
    (17, (2, 1, 8, 8))
    """

    input = "image"
    also = ()
    _together = 256  # images scored or drawn at a time
    _fitted = {"levels_": Count(2, 257)}
    _training_defaults = {
        "epochs": 100,
        "learning_rate": 2e-3,
        "batch_size": 32,
        "clip_norm": 1.0,
        "early_stopping": True,
    }
    _parameter_constraints = {
        "levels": [None, Interval(Integral, 2, 256, closed="both")],
        "output": [StrOptions({"categorical", "logistic-mixture"})],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "n_layers": [None, Interval(Integral, 1, None, closed="left")],
        "conditional": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        levels=None,
        *,
        output="categorical",
        n_components=5,
        width=None,
        n_layers=None,
        conditional=False,
        training=None,
        random_state=None,
    ):
        self.levels = levels
        self.output = output
        self.n_components = n_components
        self.width = width
        self.n_layers = n_layers
        self.conditional = conditional
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"levels": 4, "width": 4, "n_layers": 2, "training": Training(epochs=2)}

    # --- learning ----------------------------------------------------------------------------------------

    def _module(self) -> PixelNetwork:
        c, h, w = self.sample_shape_
        n_out = self.levels_ if self.output == "categorical" else 3 * self.n_components
        width = self.width or (16 if self.n_samples_ < 5_000 else 32)
        n_layers = self.n_layers or int(np.clip(max(h, w) // 3, 3, 8))
        return PixelNetwork(c, n_out, (h, w), width, n_layers, self.n_classes_)

    def _measure(self, data: Data) -> None:
        self.dtype_ = "float32"
        self.levels_ = int(self.levels or levels_in(data.X))

    def _batches(self, data: Data) -> TensorBatches:
        return TensorBatches(self._quantised(data.X), None if data.y is None else as_tensor(data.y))

    def _quantised(self, X: np.ndarray) -> Tensor:
        """Return the level of each pixel."""
        return torch.from_numpy(np.rint(X * (self.levels_ - 1)).astype(np.uint8))

    def _objective(self, module: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = -self._log_mass(module, batch.inputs[0], batch.target).mean()
        return loss, {"bits": loss.detach() / (self.n_features_in_ * math.log(2))}

    def _scaled(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        return 2 * codes.to(dtype) / (self.levels_ - 1) - 1

    def _log_mass(self, module: nn.Module, codes: Tensor, label: Tensor | None) -> Tensor:
        """Return eq. 1 in logarithms, (n,)."""
        out = module(self._scaled(codes, next(module.parameters()).dtype), label)
        codes = codes.long()
        if self.output == "categorical":
            found = -F.cross_entropy(out.transpose(1, 2), codes, reduction="none")
        else:
            found = logistic_mixture(out.movedim(2, -1), codes, self.levels_)
        return found.flatten(1).sum(1)

    # --- probabilities -----------------------------------------------------------------------------------

    def _log_prob(self, X: np.ndarray, y: Any = None, noise: Any = None) -> np.ndarray:
        labels, parts = self._codes(y, len(X)), []
        device = next(self.module_.parameters()).device
        with torch.inference_mode():
            for rows in self._parts(len(X)):
                label = None if labels is None else labels[rows].to(device)
                parts.append(self._log_mass(self.module_, self._quantised(X[rows]).to(device), label).cpu())
        return torch.cat(parts).numpy()

    def bits_per_dimension(self, X, y=None):
        """Return bits per dimension of each image: minus the logarithm to base 2 of its probability, over its numbers."""
        return -self._log_prob(self._query(X), y) / (self.n_features_in_ * math.log(2))

    # --- drawing -----------------------------------------------------------------------------------------

    def _masses(self, out: Tensor) -> Tensor:
        """Return the probabilities (n, levels) of one channel of one pixel."""
        if self.output == "categorical":
            return out.softmax(1)
        codes = torch.arange(self.levels_, device=out.device)
        return logistic_mixture(out[:, None], codes.expand(len(out), -1), self.levels_).exp()

    def _sample(
        self, n: int, rng: np.random.Generator, codes: Tensor | None = None, known: Any = None, **how: Any
    ) -> np.ndarray:
        like, parts = next(self.module_.parameters()), []
        with torch.inference_mode(), self._progress(n, self.n_features_in_) as step:
            for rows in self._parts(n):
                u = torch.from_numpy(rng.random((rows.stop - rows.start, *self.sample_shape_))).to(like)
                label = None if codes is None else codes[rows].to(like.device)
                given = None if known is None else tuple(part[rows].to(like.device) for part in known)
                x = self.module_.draw(u, self._chooser(u, given, step), label)
                parts.append(((x + 1) / 2 * (self.levels_ - 1)).round().cpu())
        return (torch.cat(parts) / (self.levels_ - 1)).numpy()

    def _chooser(self, u: Tensor, known: Any, step: Callable[[], None] = lambda: None) -> Any:
        """Return the function that draws a value by its uniform number, or takes the known one."""

        def choose(out: Tensor, i: int, j: int, k: int) -> Tensor:
            step()
            below = self._masses(out).cumsum(1) < u[:, k, i, j, None]
            drawn = below.sum(1).clamp_max(self.levels_ - 1)
            if known is not None:
                mask, codes = known
                drawn = torch.where(mask[:, k, i, j], codes[:, k, i, j].long(), drawn)
            return self._scaled(drawn, out.dtype)

        return choose

    def complete(self, X, mask, *, label=None):
        """Return images whose pixels under ``mask`` are kept and whose others are drawn, given all pixels before them.

        Exact for known pixels that come before the unknown ones, such as an upper half; known pixels that come after them
        are kept, but do not influence what is drawn before. Images come back with pixels in [0, 1].

        Parameters
        ----------
        X : array-like of shape (n, h, w) or (n, c, h, w)
            Images; what stands where the mask is False does not matter.
        mask : array-like of bool, of the shape of X or of one image
            True where a pixel is known.
        label : label or array of labels, optional
            For conditional models.
        """
        check_is_fitted(self)
        given, mask = self._known(X, mask)
        rng = self._rng()
        known = (torch.from_numpy(mask.copy()), self._quantised(given))
        drawn = self._sample(len(given), rng, self._codes(label, len(given), rng), known)
        return as_given(X, np.where(mask, given, drawn).astype(given.dtype).reshape(np.shape(X)))
