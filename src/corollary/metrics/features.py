"""Features by which samples are compared: of a network, an estimator, a function, or the numbers themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.errors import CorollaryWarning

__all__ = ["RandomFeatures", "feature_blocks", "features_of"]

BLOCK = 512  # samples whose features are computed at a time


class RandomFeatures(nn.Module):
    """Convolutions with fixed random weights: texture statistics of images of any size, without training.

    Three strided convolutions with ReLU; the outputs' means and standard deviations over the picture are the
    features. Distances between them order generators sensibly, but are comparable only with each other.

    Parameters
    ----------
    channels : int
        Channels of the images.
    width : int, default=32
        Channels of the first convolution; the later ones have twice and four times as many.
    seed : int, default=0
        Decides the weights.
    """

    def __init__(self, channels: int, width: int = 32, seed: int = 0) -> None:
        super().__init__()
        sizes, generator = (channels, width, 2 * width, 4 * width), torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1, bias=False) for a, b in zip(sizes, sizes[1:]))
        for layer in self.layers:
            (weight,) = layer.parameters()
            nn.init.orthogonal_(weight, nn.init.calculate_gain("relu"), generator=generator)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, 14 * width) of images (n, channels, h, w)."""
        found = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            found += [x.mean((2, 3)), x.std((2, 3), correction=0)]
        return torch.cat(found, 1)


def features_of(samples: Any, features: Any = None, owner: str = "features_of") -> np.ndarray:
    """Return the features (n, f) of all samples in float64."""
    return np.concatenate(list(feature_blocks(samples, features, owner)))


def feature_blocks(samples: Any, features: Any, owner: str) -> Iterator[np.ndarray]:
    """Yield features block by block, so that only one block of activations is in memory.

    Parameters
    ----------
    samples : array-like of shape (n, ...), or an iterable of such blocks
        Samples; an iterator of blocks is read once.
    features : callable, torch.nn.Module or estimator, optional
        Function of a block (a module gets a float32 tensor; of an estimator ``transform`` is called). By default
        tables are taken as they are, and images go through :class:`RandomFeatures`, with a warning.
    owner : str
        Name of the caller, used at the start of error messages.
    """
    blocks = samples if isinstance(samples, Iterator) else _cut(samples, owner)
    call: Callable[[np.ndarray], Any] | None = None
    for block in blocks:
        block = _array(block)
        call = call or _function(features, block, owner)
        found = np.asarray(call(block), dtype=np.float64)
        found = found.reshape(len(block), -1) if len(found) == len(block) else found
        if found.ndim != 2 or len(found) != len(block):
            must = f"features must have one row per sample ({len(block)})"
            raise errors.value(owner, must, f"shape {found.shape}")
        if not np.isfinite(found).all():
            raise errors.value(owner, "features must be finite", "NaN or infinity", "Check the samples.")
        yield found


def _cut(samples: Any, owner: str) -> Iterator[np.ndarray]:
    samples = _array(samples)
    if samples.ndim < 2:
        must = "samples must have one row each, shape (n, ...)"
        raise errors.value(owner, must, f"shape {samples.shape}", "Pass x[:, None] for single numbers.")
    for begin in range(0, len(samples), BLOCK):
        yield samples[begin : begin + BLOCK]


def _array(samples: Any) -> np.ndarray:
    return samples.detach().cpu().numpy() if isinstance(samples, Tensor) else np.asarray(samples)


def _function(features: Any, block: np.ndarray, owner: str) -> Callable[[np.ndarray], Any]:
    if features is None and block.ndim >= 3:
        warnings.warn(
            f"{owner}: no features given, so images are compared by random convolutional features; such distances are "
            "comparable only with each other. Pass features=, for instance a classifier's penultimate layer.",
            CorollaryWarning,
            stacklevel=4,
        )
        images = block if block.ndim == 4 else block[:, None]
        return _through(RandomFeatures(images.shape[1]))
    if features is None:
        return lambda block: block.reshape(len(block), -1)
    if isinstance(features, nn.Module):
        return _through(features)
    if hasattr(features, "transform"):
        return lambda block: features.transform(block)
    if not callable(features):
        must = "features must be a function, a torch module or an estimator with transform"
        raise errors.kind(owner, must, type(features).__name__)
    return lambda block: _array(features(block))


def _through(module: nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    """Return a call of the module in evaluation mode; its own mode is put back."""
    first = next(module.parameters(), torch.zeros(()))

    def call(block: np.ndarray) -> np.ndarray:
        x = torch.as_tensor(np.array(block), dtype=first.dtype, device=first.device)
        x = x[:, None] if isinstance(module, RandomFeatures) and x.ndim == 3 else x
        training = module.training
        module.eval()
        try:
            with torch.inference_mode():
                out = module(x)
        finally:
            module.train(training)
        found: np.ndarray = out.flatten(1).double().cpu().numpy()
        return found

    return call
