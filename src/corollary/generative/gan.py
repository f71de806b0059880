r"""Generative adversarial networks.

A generator :math:`G` makes samples of noise, a critic with score :math:`f` tells them from data. With
:math:`D = \sigma(f)` the probability of being real, the critic maximises

.. math:: V(D, G) = \mathbb E_p \log D(x) + \mathbb E_z \log(1 - D(G(z))). \tag{1}

The best critic is :math:`D^* = p / (p + q)` (2) for data :math:`p` and samples :math:`q`, and reaches

.. math:: V(D^*, G) = 2\, \mathrm{JS}(p, q) - \log 4, \tag{3}

so :math:`\log 2 + V / 2` is a lower bound of the Jensen-Shannon divergence. The generator minimises (1) (*minimax*), whose
gradient vanishes where :math:`D(G(z)) \to 0`, or maximises :math:`\mathbb E_z \log D(G(z))` (*non-saturating*) (4), which
has the same fixed point. Disjoint supports have :math:`\mathrm{JS} = \log 2` wherever they are; their Wasserstein distance
still shrinks as they come closer,

.. math:: W(p, q) = \sup_{\lVert f \rVert_L \le 1} \mathbb E_p f(x) - \mathbb E_q f(x), \tag{5}

and the generator minimises it. The critic is kept smooth by clipping its weights (*wasserstein*), or by the penalty
:math:`\lambda\, \mathbb E_{\hat x} (\lVert \nabla f(\hat x) \rVert_2 - 1)^2` (6) at points :math:`\hat x` between data and
samples (*wasserstein-gp*); with any loss it can be divided by the spectral norms of its layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data
from corollary.engine.batches import Batch, TensorBatches
from corollary.engine.player import Player
from corollary.engine.training import Training
from corollary.generative.adversaries import Adversaries
from corollary.generative.common import GenerativeModel
from corollary.metrics.neighbours import Balls
from corollary.validation import as_given

__all__ = ["GAN", "critic_loss", "generator_loss", "gradient_penalty", "slope_penalty"]

LOSSES = ("minimax", "non-saturating", "wasserstein", "wasserstein-gp")
CLIP = 0.05  # largest weight of a clipped critic
LOOKED_AT = 500  # samples that coverage is measured with after every epoch
NEIGHBOURS = 5


def critic_loss(real: Tensor, fake: Tensor, loss: str) -> Tensor:
    """Return the critic's loss, given its scores of data and of samples: -V of eq. 1, or minus eq. 5."""
    if loss.startswith("wasserstein"):
        return fake.mean() - real.mean()
    return F.softplus(-real).mean() + F.softplus(fake).mean()


def generator_loss(fake: Tensor, loss: str) -> Tensor:
    """Return the generator's loss, given the critic's scores of its samples: eq. 1, 4 or 5."""
    if loss == "minimax":
        return -F.softplus(fake).mean()
    return F.softplus(-fake).mean() if loss == "non-saturating" else -fake.mean()


def gradient_penalty(
    score: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, u: Tensor | None = None
) -> Tensor:
    """Return eq. 6 without its factor, at points drawn evenly, by ``u`` (n,), on the segments between pairs."""
    u = torch.rand(len(real), dtype=real.dtype, device=real.device) if u is None else u
    u = u.view(-1, *(1,) * (real.ndim - 1))
    return slope_penalty(score, u * real + (1 - u) * fake).mean()


def slope_penalty(score: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the squared distance from 1 of the length of the score's gradient at each point, (n,)."""
    x = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(score(x).sum(), x, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square()


class GAN(GenerativeModel):
    """Learn to draw samples like a table's rows or like images, by a generator trained against a critic.

    Use it where samples must be drawn fast, in one pass; it has no density, and may leave out parts of the data, which
    ``history_`` shows.

    Parameters
    ----------
    loss : {"wasserstein-gp", "wasserstein", "non-saturating", "minimax"}, default="wasserstein-gp"
        What is played for, eqs. 1 to 6. The first finds all modes most surely; the last two are faster.
    latent : int, default=16
        Dimension of the noise.
    rule : {"alternating", "extragradient", "simultaneous"}, default="alternating"
        How the players move: one after the other, or by the gradients one step ahead, which circles less.
    critic_steps : int, optional
        Moves of the critic for each of the generator; by default 1, for the Wasserstein losses 2 on tables and 5 on images.
    critic_learning_rate : float, optional
        The critic's own learning rate; that of ``training`` by default.
    penalty : float, optional
        Weight of eq. 6 with loss="wasserstein-gp"; by default 0.1 on tables and 10 on images. More keeps the critic smoother,
        and everything slower.
    spectral_norm : bool, default=False
        Whether the layers of the critic are divided by their largest singular value.
    width : int, optional
        Units of a layer, or channels at full resolution; by default chosen from the data.
    n_layers : int, optional
        Hidden layers (tables) or halvings (images); by default chosen from the data.
    conditional : bool, default=False
        Whether labels y given to ``fit`` are conditioned on.
    training : Training, optional
        Settings of gradient descent; weights are averaged by default.
    random_state : int or RandomState, optional
        Seed for weights, order of samples, noise and draws.

    Attributes
    ----------
    module_ : torch.nn.Module
        Both networks, ``generator`` and ``critic``.
    sample_shape_ : tuple of int
        Shape of one sample.
    history_ : list of dict
        Of every epoch: losses of both; ``critic_distance``, the critic's estimate of the divergence (3) or distance (5);
        ``coverage``, the share of data with a sample among their nearest neighbours (low where modes are missing); ``near``,
        the share of samples that lie among the data; ``density``, how deep they do.
    n_iter_ : int
        Epochs run.

    Notes
    -----
    If a loss or a weight becomes infinite the fit stops, the last finite state is kept, and the error says which player
    ran away.

    References
    ----------
    .. [1] I. Goodfellow et al. (2014). Generative adversarial nets. NeurIPS. Eq. (1), Proposition 1.
    .. [2] M. Arjovsky, S. Chintala, L. Bottou (2017). Wasserstein generative adversarial networks. ICML. Eq. (2).
    .. [3] I. Gulrajani et al. (2017). Improved training of Wasserstein GANs. NeurIPS. Eq. (3).
    .. [4] T. Miyato et al. (2018). Spectral normalization for generative adversarial networks. ICLR.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import GAN, Training
    >>> model = GAN(training=Training(epochs=2), random_state=0).fit(load_iris().data)
    >>> model.sample(3).shape, 0 <= model.history_[-1]["coverage"] <= 1
    ((3, 4), True)
    """

    _parameter_constraints = {
        "loss": [StrOptions(set(LOSSES))],
        "latent": [Interval(Integral, 1, None, closed="left")],
        "rule": [StrOptions({"alternating", "extragradient", "simultaneous"})],
        "critic_steps": [None, Interval(Integral, 1, None, closed="left")],
        "critic_learning_rate": [None, Interval(Real, 0, None, closed="neither")],
        "penalty": [None, Interval(Real, 0, None, closed="left")],
        "spectral_norm": ["boolean"],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "n_layers": [None, Interval(Integral, 1, None, closed="left")],
        "conditional": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        loss="wasserstein-gp",
        *,
        latent=16,
        rule="alternating",
        critic_steps=None,
        critic_learning_rate=None,
        penalty=None,
        spectral_norm=False,
        width=None,
        n_layers=None,
        conditional=False,
        training=None,
        random_state=None,
    ):
        self.loss = loss
        self.latent = latent
        self.rule = rule
        self.critic_steps = critic_steps
        self.critic_learning_rate = critic_learning_rate
        self.penalty = penalty
        self.spectral_norm = spectral_norm
        self.width = width
        self.n_layers = n_layers
        self.conditional = conditional
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"latent": 2, "width": 8, "n_layers": 1, "training": Training(epochs=2)}

    # --- learning ----------------------------------------------------------------------------------------

    @property
    def _images(self) -> bool:
        return len(getattr(self, "sample_shape_", ())) == 3

    @property
    def _training_defaults(self) -> dict[str, Any]:
        return {
            "epochs": 200,
            "learning_rate": 5e-4 if self._images else 1e-3,
            "batch_size": 64,
            "optimizer_options": {"betas": (0.5, 0.9)},
            "average": 0.995,
        }

    def _module(self) -> Adversaries:
        sizes = (self.n_classes_, self.width, self.n_layers, self.spectral_norm)
        return Adversaries(tuple(self.sample_shape_), self.latent, *sizes).to(getattr(torch, self.dtype_))

    def _measure(self, data: Data) -> None:
        self._scale(data.X, "signed" if data.X.ndim == 4 else "standard")

    def _learner(self, data: Data) -> Any:
        if self._plan().early_stopping:
            must, do = (
                "early_stopping needs a loss that falls",
                "Watch coverage and near in history_ instead.",
            )
            raise errors.value("GAN", must, "a game of two losses", do)
        self._ready(data)
        batches = self._batches(data)
        measures = [self._collapse(batches)]
        if data.validation is not None:
            measures.append(self._collapse(self._batches(data.validation), "validation_"))

        def validate(module: nn.Module) -> dict[str, float]:
            return {key: number for measure in measures for key, number in measure(module).items()}

        return self._descend(self._players(), batches, rule=self.rule, validate=validate)

    def _players(self) -> list[Player]:
        project = _clip if self.loss == "wasserstein" else None
        own = {"learning_rate": self.critic_learning_rate} if self.critic_learning_rate else {}
        steps = self.critic_steps or self._usual_steps()
        critic = Player(self._critic_objective, "critic", steps=steps, project=project, **own)
        return [critic, Player(self._generator_objective, "generator")]

    def _usual_steps(self) -> int:
        return 1 if not self.loss.startswith("wasserstein") else 5 if self._images else 2

    def _made(self, module: Any, batch: Batch) -> Tensor:
        z = batch.noise(torch.randn, self.latent, like=batch.inputs[0])
        return module.generator(z, batch.target)  # type: ignore[no-any-return]

    def _critic_objective(self, module: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        x, label, scaling = batch.inputs[0], batch.target, self._scaling
        real, _ = scaling.forward(
            x, batch.noise(torch.rand, *x.shape[1:], like=x) if scaling.step.any() else 0.0
        )
        with torch.no_grad():
            fake = self._made(module, batch)
        both = module.critic(torch.cat([real, fake]), None if label is None else label.repeat(2))
        found = critic_loss(*both.chunk(2), self.loss)
        wasserstein = self.loss.startswith("wasserstein")
        distance = -found.detach() if wasserstein else math.log(2) - found.detach() / 2
        if self.loss == "wasserstein-gp":
            u = batch.noise(torch.rand, like=x)
            penalty = gradient_penalty(lambda between: module.critic(between, label), real, fake, u)
            weight = self.penalty if self.penalty is not None else 10.0 if self._images else 0.1
            found = found + weight * penalty
        return found, {"distance": distance}

    def _generator_objective(self, module: Any, batch: Batch) -> Tensor:
        fake = self._made(module, batch)
        return generator_loss(module.critic(fake, batch.target), self.loss)

    # --- collapse ----------------------------------------------------------------------------------------

    def _collapse(self, batches: TensorBatches, prefix: str = "") -> Any:
        """Return the measure after every epoch: how much of some data is covered, and how much of what is drawn is near."""
        rows = torch.from_numpy(np.random.default_rng(0).permutation(len(batches))[:LOOKED_AT])
        some = batches.take(rows)
        (x,), label = some.inputs, some.target
        k = min(NEIGHBOURS, len(x) - 1)
        if k < 1:
            return lambda module: {}
        balls = Balls(self._scaling.forward(x)[0].flatten(1).double(), k)

        def measure(module: nn.Module) -> dict[str, float]:
            like = next(module.parameters())
            given = x.to(like.device, like.dtype)
            codes = None if label is None else label.to(like.device)
            fake = self._made(module, Batch((given,), codes, size=len(given)))
            drawn = fake.flatten(1).double().cpu()
            if not bool(drawn.isfinite().all()):
                return {}
            return {prefix + key: number for key, number in balls.judge(drawn).items()}

        return measure

    # --- samples and scores ------------------------------------------------------------------------------

    def _draw(
        self,
        n: int,
        labels: Tensor | None,
        rng: np.random.Generator,
        *,
        step: Callable[[], None],
        **how: Any,
    ) -> Tensor:
        made: Tensor = self.module_.generator(self._noise((n, self.latent), rng), labels)
        step()
        return made

    def discriminate(self, X, y=None):
        """Return the critic's output for samples: the probability of being real, eq. 2, or the potential of eq. 5."""

        def judge(z: Tensor, log_det: Tensor, label: Tensor | None) -> Tensor:
            score: Tensor = self.module_.critic(z, label)
            return score if self.loss.startswith("wasserstein") else score.sigmoid()

        return as_given(X, self._mapped(self._query(X), judge, y))


def _clip(vectors: list[Tensor]) -> None:
    for vector in vectors:
        vector.clamp_(-CLIP, CLIP)
