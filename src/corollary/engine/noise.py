"""Noise on inputs, targets, gradients and weights, as regularisers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.batches import Batch
from corollary.engine.random import generator
from corollary.engine.regulariser import Regulariser
from corollary.losses import Draw, exchanged, tossed

__all__ = ["GradientNoise", "InputNoise", "TargetNoise", "WeightNoise"]


class InputNoise(Regulariser):
    r"""Noise on the inputs, drawn anew in every update: ``Training(input_noise=0.1)``.

    ``target_noise``, ``weight_noise`` and ``gradient_noise`` of :class:`~corollary.Training` add it elsewhere.

    Parameters
    ----------
    scale : float
        Standard deviation of the normal noise, in the units of the inputs. More regularises more.

    Notes
    -----
    For a linear model noise on the inputs is Tikhonov regularisation (ridge regression), since

    .. math:: \mathbb E_\varepsilon\, (y - w^\top(x + \varepsilon))^2 = (y - w^\top x)^2 + \sigma^2 \lVert w \rVert^2, \tag{1}

    and for a network it penalises, to second order in :math:`\sigma`, the squared gradient of the output by the input.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import MLPRegressor, Training
    >>> X = np.random.default_rng(0).choice([-1.0, 1.0], size=(2000, 1))
    >>> plan = Training(input_noise=1.0, learning_rate=0.01, epochs=20)
    >>> model = MLPRegressor((), training=plan, random_state=0).fit(X, X[:, 0])
    >>> bool(abs(model.coefs_[0].item() - 0.5) < 0.1)  # 1 / (1 + sigma^2)
    True
    """

    name = "input_noise"
    low = 0.0

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with noisy inputs."""
        inputs = list(batch.inputs)
        for i in self._real(batch):
            inputs[i] = inputs[i] + self.scale * _for_samples(torch.randn, inputs[i], batch, rng)
        return batch._replace(inputs=tuple(inputs))


class TargetNoise(Regulariser):
    """Exchange classes for random ones with this probability; add normal noise of this deviation to numbers."""

    name = "target_noise"
    needs_target = True
    low = 0.0

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with noisy targets."""
        return batch._replace(
            target=self._noisy(batch.target, lambda kind, y: _for_samples(kind, y, batch, rng))
        )

    def _noisy(self, y: Tensor, draw: Draw) -> Tensor:
        criterion = self._criterion()
        if hasattr(criterion, "with_noise"):  # several targets, of classes or of numbers
            return criterion.with_noise(y, self.scale, draw)  # type: ignore[no-any-return]
        if y.is_floating_point() and not hasattr(criterion, "soften"):
            return y + self.scale * draw(torch.randn, y)
        classes = self._n_classes()
        if y.is_floating_point():
            return self._soft_noisy(y, classes, getattr(criterion, "axis", 1), draw)
        other = (classes * draw(torch.rand, y)).to(y.dtype)
        return torch.where(draw(torch.rand, y) < self.scale, other, y)

    def _soft_noisy(self, y: Tensor, classes: int, axis: int, draw: Draw) -> Tensor:
        """Return probabilities of classes, or of the second of two (n,), with some exchanged."""
        if y.ndim == 1:
            return tossed(y, self.scale, draw)
        if y.shape[axis] != classes:
            must, do = "target_noise needs labels, numbers or probabilities", "Leave target_noise out."
            got = f"targets of shape {tuple(y.shape)} for {classes} classes"
            raise errors.value(self._learner.owner, must, got, do)
        return exchanged(y.movedim(axis, -1), self.scale, draw).movedim(-1, axis)


class Drawing(Regulariser):
    """A regulariser with random numbers of its own.

    Processes that share a batch may draw differently for their samples; what is drawn for the weights must be the same in
    all of them, or their weights would differ.
    """

    def attach(self, learner: Any) -> None:
        """Make the generator, from the seed of the fit and the regulariser's name."""
        super().attach(learner)
        mixed = np.random.SeedSequence([learner.seed, zlib.crc32(self.name.encode())])
        self._rng = generator(int(mixed.generate_state(1)[0]), learner.run.device)

    def state(self) -> dict[str, Any]:
        """Return the state of the generator."""
        return {"rng": self._rng.get_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a snapshot."""
        self._rng.set_state(state["rng"])


class GradientNoise(Drawing):
    """Add normal noise of this standard deviation to the gradients."""

    name = "gradient_noise"
    low = 0.0

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_gradient(self, vectors: Sequence[Tensor]) -> None:
        """Add the noise in place."""
        for v in vectors:
            if v.grad is not None:
                v.grad.add_(_normal(v.grad, self._rng), alpha=self.scale)


class WeightNoise(Drawing):
    """Take gradients at weights with normal noise of this standard deviation, drawn anew in every update."""

    name = "weight_noise"
    low = 0.0

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Draw the noise of this update; the batch stays."""
        self._noise = [
            [self.scale * _normal(w, self._rng) for w in player.vectors()] for player in self._learner.players
        ]
        return batch

    @contextmanager
    def around_gradient(self) -> Iterator[None]:
        """Move the weights, and put them back."""
        players = self._learner.players
        kept = [player.copies() for player in players]
        for player, weights, noise in zip(players, kept, self._noise):
            player.put([w + e for w, e in zip(weights, noise)])
        try:
            yield
        finally:
            for player, weights in zip(players, kept):
                player.put(weights)


def _normal(like: Tensor, rng: torch.Generator) -> Tensor:
    drawn = torch.randn(like.shape, generator=rng, device=rng.device, dtype=like.dtype)
    return drawn.to(like.device)


def _for_samples(draw: Any, like: Tensor, batch: Batch, rng: torch.Generator) -> Tensor:
    """Return random numbers for the samples that are here, as one process would draw them for the whole batch."""
    here = len(range(batch.size)[batch.rows])
    n = batch.size if like.ndim and len(like) == here else len(like)
    dtype = like.dtype if like.is_floating_point() else torch.float32
    drawn = draw(n, *like.shape[1:], generator=rng, device=rng.device, dtype=dtype)
    return (drawn[batch.rows] if n != len(like) else drawn).to(like.device)  # type: ignore[no-any-return]
