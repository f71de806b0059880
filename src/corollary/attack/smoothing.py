r"""Randomised smoothing: a certificate for any classifier, from its answers to noisy inputs.

The smoothed classifier says the class that the base classifier :math:`f` gives most often under normal noise,

.. math:: g(x) = \arg\max_c\, P\big(f(x + \varepsilon) = c\big), \qquad \varepsilon \sim \mathcal N(0, \sigma^2 I). \tag{1}

If its class has probability at least :math:`\underline p > 1/2`, no change shorter than

.. math:: R = \sigma\, \Phi^{-1}(\underline p) \tag{2}

in the l2 norm changes :math:`g`. The class is guessed from :math:`n_0` draws; of :math:`n` further ones :math:`k` agree, and

.. math:: \underline p = B^{-1}(\alpha;\, k,\, n - k + 1), \tag{3}

the :math:`\alpha`-quantile of a Beta distribution, is the Clopper-Pearson bound, below which the probability lies in a share
:math:`\alpha` of all cases at most. Where :math:`\underline p \le 1/2` there is no certificate. For a linear classifier (2)
with the true probability is the distance to the boundary.

References
----------
.. [1] J. Cohen, E. Rosenfeld, J. Z. Kolter (2019). Certified adversarial robustness via randomized smoothing. ICML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from corollary import errors
from corollary.attack.base import Given, prepare
from corollary.engine.random import generator
from corollary.validation import as_given

__all__ = ["Certificate", "clopper_pearson", "smooth"]


@dataclass(frozen=True)
class Certificate:
    """What a smoothed classifier says, and how far that holds; one entry per sample.

    Attributes
    ----------
    prediction : array of shape (n,)
        The smoothed class.
    radius : array of shape (n,)
        The l2 radius within which it does not change, with the confidence asked for; 0 where there is no certificate.
    certified : array of bool, shape (n,)
        Whether there is one.
    probability : array of shape (n,)
        Lower bound on the probability of the class under noise.
    """

    prediction: Any
    radius: Any
    certified: Any
    probability: Any

    def accuracy(self, y: Any, radius: float = 0.0) -> float:
        """Return the share of samples that are certified to be classified as y at every change up to a radius."""
        right = np.asarray(self.prediction) == np.asarray(y)
        return float(np.mean(right & np.asarray(self.certified) & (np.asarray(self.radius) >= radius)))


def clopper_pearson(k: Any, n: int, alpha: float) -> np.ndarray:
    """Return the lower bound of eq. 3 on a probability, of which k in n trials speak.

    >>> clopper_pearson([0, 100], 100, 0.001).round(4)
    array([0.    , 0.9333])
    """
    from scipy.stats import beta

    k = np.asarray(k)
    return np.where(k > 0, beta.ppf(alpha, np.maximum(k, 1), n - k + 1), 0.0)


def smooth(
    model: Any,
    X: Any,
    *,
    sigma: float,
    n_samples: int = 1000,
    n_guess: int = 100,
    alpha: float = 0.001,
    random_state: Any = None,
    batch_size: int = 1000,
) -> Certificate:
    """Classify inputs by the majority under normal noise, and certify the radius within which it holds.

    Parameters
    ----------
    model : torch.nn.Module or fitted classifier
        The base classifier, as :func:`corollary.attack.pgd` takes it. One that was trained with noise
        (``Training(input_noise=sigma)``) gives larger radii.
    X : array or tensor of shape (n, ...)
        Inputs.
    sigma : float
        Standard deviation of the noise, in the units of the inputs. More certifies larger radii, and blurs more.
    n_samples : int, default=1000
        Draws from which the probability is bounded; the largest radius that can be certified grows with it.
    n_guess : int, default=100
        Draws from which the class is guessed.
    alpha : float, default=0.001
        Probability with which a certificate may be wrong.
    random_state : int or RandomState, optional
        Seed of the noise.
    batch_size : int, default=1000
        Noisy inputs at a time.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import torch
    >>> from corollary import attack
    >>> line = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = line.weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> found = attack.smooth(line, torch.tensor([[0.5, 3.0]]), sigma=0.5, random_state=0)
    >>> int(found.prediction[0]), bool(0.4 < found.radius[0] <= 0.5)  # the boundary lies 0.5 away
    (0, True)
    """
    _check(sigma, n_samples, n_guess, alpha, batch_size)
    from scipy.stats import norm

    given = prepare(model, X, None, None, "smooth")
    seed = check_random_state(random_state).randint(2**31 - 1) if random_state is not None else None
    seed = int(np.random.default_rng().integers(2**31 - 1)) if seed is None else int(seed)
    rng = generator(seed, given.x.device)
    codes = _votes(given, sigma, n_guess, rng, batch_size).argmax(1)
    counts = _votes(given, sigma, n_samples, rng, batch_size)[np.arange(len(codes)), codes]
    low = clopper_pearson(counts, n_samples, alpha)
    sure = low > 0.5
    radius = np.where(sure, sigma * norm.ppf(np.where(sure, low, 0.5)), 0.0)
    said = codes if given.labels is None else given.labels[codes]
    return Certificate(*(as_given(X, each) for each in (said, radius, sure, low)))


def _votes(given: Given, sigma: float, n: int, rng: torch.Generator, batch_size: int) -> np.ndarray:
    """Return how often each class is given to each sample under noise, (samples, classes)."""
    some = min(n, batch_size)  # draws of one sample at a time, and as many samples as fit beside
    found = []
    with torch.no_grad():
        for x in given.x.split(max(1, batch_size // some)):
            votes: Any = 0
            for begin in range(0, n, some):
                shape = (len(x), min(some, n - begin), *x.shape[1:])
                noise = torch.randn(shape, generator=rng, device=rng.device, dtype=x.dtype).to(x.device)
                z = given.scores((x[:, None] + sigma * noise).flatten(0, 1))
                said = torch.nn.functional.one_hot(z.argmax(1), z.shape[1])
                votes = votes + said.view(*shape[:2], -1).sum(1)
            found.append(votes)
    return torch.cat(found).cpu().numpy()


def _check(sigma: Any, n_samples: Any, n_guess: Any, alpha: Any, batch_size: Any) -> None:
    if not isinstance(sigma, int | float) or not 0 < sigma < np.inf:
        raise errors.value("smooth", "sigma must be positive", repr(sigma))
    if not isinstance(alpha, float) or not 0 < alpha < 0.5:
        raise errors.value("smooth", "alpha must lie between 0 and 0.5", repr(alpha))
    for name, count in (("n_samples", n_samples), ("n_guess", n_guess), ("batch_size", batch_size)):
        if not isinstance(count, int) or count < 1:
            raise errors.value("smooth", f"{name} must be an integer of at least 1", repr(count))
