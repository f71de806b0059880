r"""Bayesian neural networks: a posterior over the weights, by any of the samplers.

A network :math:`f_w` with the prior :math:`w \sim \mathcal N(0, s^2 I)` and a likelihood, of classes
:math:`p(y \mid x, w) = \mathrm{softmax}(f_w(x))_y` or of numbers :math:`\mathcal N(y; f_w(x), \sigma^2)`, has the posterior

.. math:: \log p(w \mid X, y) = -\frac{\lVert w\rVert^2}{2 s^2} + \sum_i \log p(y_i \mid x_i, w) + \text{const}. \tag{1}

A sampler draws :math:`w_1, \dots, w_M` from it, and predictions average over them,

.. math:: p(y \mid x, X, y) \approx \frac1M \sum_m p(y \mid x, w_m), \tag{2}

so that where the draws disagree the average is unsure. The predicted variance of a number is that of the means over the
draws, plus the mean of :math:`\sigma^2` (3). Inputs are standardised, and so are targets that are numbers; then
:math:`\log\sigma`, unless it is given, is one more parameter with the prior :math:`\mathcal N(-1, 1)`.
"""

from __future__ import annotations

import math
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils.checkpoint import checkpoint

from corollary import errors
from corollary.base import Classifier, Data, Estimator, Regressor, as_tensor
from corollary.bayes import diagnostics
from corollary.bayes.density import Posterior
from corollary.bayes.hmc import HMC
from corollary.bayes.sampler import Sampler, collected, warn_of
from corollary.engine.random import seeded
from corollary.metrics.calibration import calibration_error
from corollary.networks.modules import build
from corollary.nn.activations import ACTIVATIONS, ALIASES
from corollary.nn.mlp import MLP
from corollary.shapes import Array, Count, Dtype, Number, Record
from corollary.validation import as_given

__all__ = ["BayesianClassifier", "BayesianRegressor", "Network"]

BLOCK = 2**22  # outputs and hidden units that are computed at once
# Layers that act on the last axis, or on every number, whatever stands before.
PLAIN = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus, nn.LeakyReLU)


class Network:
    """A module as a function of many flat vectors of weights at once.

    Parameters
    ----------
    module : nn.Module
        What is called, in evaluation mode.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module.eval().requires_grad_(False)
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        self.sizes = [shape.numel() for shape in self.shapes.values()]
        layers = list(module.children()) if isinstance(module, nn.Sequential) else []
        self.plain = bool(layers) and all(isinstance(part, (nn.Linear, *PLAIN)) for part in layers)
        self.width = max([1, *(shape[0] for shape in self.shapes.values() if len(shape))])

    def __len__(self) -> int:
        """Return the number of weights."""
        return sum(self.sizes)

    def weights(self) -> Tensor:
        """Return the module's own weights as one vector."""
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])

    def __call__(self, w: Tensor, X: Tensor) -> Tensor:
        """Return the outputs (m, n, k) of weights (m, d) for rows (n, ...)."""
        parts = zip(self.shapes.items(), w.split(self.sizes, 1))
        named = {name: part.reshape(len(w), *shape) for (name, shape), part in parts}
        if not self.plain:
            call = lambda weights: functional_call(self.module, weights, (X,))
            return vmap(call)(named)  # type: ignore[no-any-return]
        h = X.expand(len(w), *X.shape)
        for i, layer in enumerate(self.module.children()):
            if isinstance(layer, nn.Linear):
                h = h @ named[f"{i}.weight"].mT
                h = h + named[f"{i}.bias"][:, None] if layer.bias is not None else h
            else:
                h = layer(h)
        return h


# --- estimators ------------------------------------------------------------------------------------------


class _Bayesian(Estimator):
    """What both estimators share: the network, its prior, and predictions for all draws."""

    _parameter_constraints = {
        "net": ["array-like", Interval(Integral, 1, None, closed="left"), nn.Module, callable],
        "activation": [StrOptions({*ACTIVATIONS, *ALIASES})],
        "prior": [Interval(Real, 0, None, closed="neither"), callable],
        "sampler": [None, Sampler],
        "random_state": ["random_state"],
    }
    _fitted = {
        "dtype_": Dtype(),
        "n_outputs_": Count(1),
        "input_mean_": Array("n_features_in_"),
        "input_scale_": Array("n_features_in_", low=0),
        "draws_": Array("chains", "kept", "weights"),
        "statistics_": Record(Array("chains", None, kind="fb", finite=False)),
        "n_invalid_": Count(),
    }

    def fit(self, X, y=None):
        """Draw from the posterior of the weights, given rows X and targets y."""
        self._fit(X, y)
        warn_of(self.statistics_, self.n_invalid_, type(self).__name__)
        return self

    # --- hooks of the two --------------------------------------------------------------------------------

    def _extra(self) -> int:
        """Return the number of parameters beside the weights."""
        return 0

    def _log_likelihood(self, network: Network, theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    def _targets(self, data: Data) -> Tensor:
        raise NotImplementedError

    # --- the posterior -----------------------------------------------------------------------------------

    def _given_parts(self) -> dict[str, Any]:
        parts = {"net": self.net, "prior": self.prior}
        return {name: part for name, part in parts.items() if callable(part)}

    def _module(self) -> nn.Module:
        if callable(self.net):  # a module, or what makes one
            n = self.n_outputs_
            sizes = {"n_inputs": self.n_features_in_, "input_shape": (self.n_features_in_,)}
            module = build(self.net, {}, {**sizes, "n_outputs": n, "n_classes": n}, type(self).__name__)
            for part in module.modules():
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()  # every chain starts from weights of its own
        else:
            widths = (self.n_features_in_, *np.atleast_1d(self.net).tolist(), self.n_outputs_)
            module = MLP(widths, self.activation)
        return module.to(getattr(torch, self.dtype_))

    def _network(self) -> Network:
        with seeded(0):
            return Network(self._module())

    def _log_prior(self, theta: Tensor) -> Tensor:
        w = theta[:, : theta.shape[1] - self._extra()]
        if callable(self.prior):
            return self.prior(w)  # type: ignore[no-any-return]
        return -0.5 * w.square().sum(1) / self.prior**2

    def _chosen(self) -> Any:
        sampler = (
            HMC(n_chains=4, n_draws=250, warmup=250, max_steps=30) if self.sampler is None else self.sampler
        )
        sampler._validate_params()
        return sampler

    def _scaled(self, X: np.ndarray) -> Tensor:
        return as_tensor(((X - self.input_mean_) / self.input_scale_).astype(self.dtype_))

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        n_outputs = len(self.classes_) if isinstance(self, Classifier) else 1
        return {"dtype_": str(data.X.dtype), "n_outputs_": n_outputs}

    def _learner(self, data: Data) -> Any:
        sampler, seed, name = self._chosen(), self._seed(), type(self).__name__
        sizes = np.asarray([] if callable(self.net) else self.net)
        if sizes.size and (sizes.dtype.kind not in "iu" or sizes.min() < 1):
            raise errors.value(name, "net must be positive widths of hidden layers, or a module", self.net)
        self.input_mean_, scale = data.X.mean(0, dtype=np.float64), data.X.std(0, dtype=np.float64)
        self.input_scale_ = np.where(scale > 0, scale, 1.0)
        X, y = self._scaled(data.X), self._targets(data)
        network = self._network()
        self._check_outputs(network, X)
        start = torch.full((sampler.n_chains, len(network) + self._extra()), -1.0, dtype=X.dtype)
        for chain in range(sampler.n_chains):
            with seeded(seed + chain):
                start[chain, : len(network)] = Network(self._module()).weights()
        posterior = Posterior(self._log_prior, partial(self._log_likelihood, network), X, y)
        return sampler.chains(posterior, start, seed, name)

    def _check_outputs(self, network: Network, X: Tensor) -> None:
        try:
            shape = tuple(network(network.weights()[None], X[:2]).shape)
        except (RuntimeError, TypeError, ValueError) as error:
            must = f"net must take a batch of rows with {X.shape[1]} features"
            raise errors.value(type(self).__name__, must, " ".join(str(error).split())[:200]) from error
        if shape != (1, min(2, len(X)), self.n_outputs_):
            must = f"net must return {self.n_outputs_} outputs for each row"
            raise errors.value(type(self).__name__, must, f"shape {shape[1:]}", "Change its last layer.")

    def _adopt(self, learner: Any) -> None:
        self.n_iter_, self.n_invalid_ = learner.n_iter, learner.invalid
        self.draws_, self.statistics_ = collected(learner)
        if not self.draws_.shape[1]:  # stopped in the warm-up: where the chains are is all that there is
            self.draws_ = learner.theta[:, None].cpu().numpy()

    # --- predictions -------------------------------------------------------------------------------------

    def _each(self, X: np.ndarray) -> Any:
        """Yield the outputs (m, n, k) of the network and the draws (m, d), block by block of all draws."""
        network, rows = self._network(), self._scaled(X)
        flat = as_tensor(self.draws_.reshape(-1, self.draws_.shape[2]))
        block = max(1, BLOCK // max(1, len(rows) * network.width))
        with torch.inference_mode():
            for theta in flat.split(block):
                yield network(theta[:, : len(network)], rows), theta

    def summary(self) -> Any:
        """Return :func:`corollary.bayes.summary` of the weights; those of symmetric networks need not agree between chains."""
        check_is_fitted(self)
        return diagnostics.summary(self.draws_)


class BayesianClassifier(Classifier, _Bayesian):
    """Classify rows with a Bayesian neural network: probabilities averaged over the posterior of its weights.

    Use it on small tables where being sure matters; for many rows take ``sampler=SGLD(batch_size=...)``.

    Parameters
    ----------
    net : int, sequence of int, nn.Module, class or function, default=(16,)
        Widths of the hidden layers of a multi-layer perceptron; or any module with as many outputs as classes, or what makes
        one, which is told ``n_inputs`` and ``n_outputs`` where it names them.
    activation : str, default="tanh"
        Of the perceptron, one of ``corollary.nn.activations.ACTIVATIONS``. Smooth ones suit Hamiltonian samplers.
    prior : float or callable, default=1.0
        Standard deviation of the normal prior of every weight; larger allows rougher functions. Or the log-density of the
        weights, (chains, d) -> (chains,).
    sampler : sampler of corollary.bayes, optional
        What draws the weights; by default ``HMC(4, 250, 250, max_steps=30)``. Its ``random_state`` is not used.
    random_state : int or RandomState, optional
        Seed of initial weights and sampler.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The weights, flat.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        What the sampler says of each draw.
    n_iter_ : int
        Engine steps done.
    history_ : list of dict
        Means over the chains of every step.

    Notes
    -----
    Samples (1) of :mod:`corollary.bayes.network`; probabilities are (2). A gradient costs O(n_chains * n * number of
    weights), a prediction O(draws * number of weights) for each row.

    References
    ----------
    .. [1] R. M. Neal (1996). Bayesian learning for neural networks. Springer.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import BayesianClassifier
    >>> from corollary.bayes import HMC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianClassifier((4,), sampler=HMC(2, 50, 50, max_steps=10), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.predictive(X[:5]).shape
    (100, 5, 3)
    """

    def __init__(self, net=(16,), *, activation="tanh", prior=1.0, sampler=None, random_state=None):
        self.net = net
        self.activation = activation
        self.prior = prior
        self.sampler = sampler
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"net": (3,), "sampler": HMC(2, 5, 15, max_steps=3)}

    def _targets(self, data: Data) -> Tensor:
        return as_tensor(data.y.astype(np.int64))

    def _log_likelihood(self, network: Network, theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
        logits = network(theta, X)
        return -F.cross_entropy(logits.mT, y.expand(len(theta), -1), reduction="none")

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        total = sum(out.softmax(2).sum(0, dtype=torch.float64) for out, _ in self._each(X))
        return np.asarray(total / (self.draws_.shape[0] * self.draws_.shape[1])).astype(X.dtype)

    def _differentiable(self) -> tuple[Any, Tensor]:
        """Return the map from rows to the logarithms of (2), which attacks follow, and a tensor of the type it takes."""
        network, draws = self._network(), as_tensor(self.draws_.reshape(-1, self.draws_.shape[2]))
        mean, scale = (as_tensor(part).to(draws) for part in (self.input_mean_, self.input_scale_))

        def of_block(theta: Tensor, rows: Tensor) -> Tensor:
            return network(theta, rows).log_softmax(2).logsumexp(0)

        def scores(x: Tensor) -> Tensor:
            rows = (x - mean) / scale
            blocks = draws.split(max(1, BLOCK // max(1, len(rows) * network.width)))
            # what a block computes is computed again on the way back, so that only one is held at a time
            found = [checkpoint(of_block, theta, rows, use_reentrant=False) for theta in blocks]
            return torch.stack(found).logsumexp(0) - math.log(len(draws))

        return scores, draws

    def predictive(self, X):
        """Return the probabilities of every draw, (n_chains * n_draws, n, n_classes); their mean is ``predict_proba``."""
        return as_given(X, torch.cat([out.softmax(2) for out, _ in self._each(self._query(X))]).numpy())

    def calibration(self, X, y):
        """Return how well the probabilities of held-out rows are calibrated.

        Returns
        -------
        dict
            ``accuracy``; ``nll``, the mean negative log-likelihood in nats; ``ece``, the expected calibration error over ten
            bins of confidence; ``brier``, the mean squared error of the probabilities.
        """
        chances = np.asarray(self.predict_proba(X), np.float64)
        y = np.asarray(y)
        codes = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        if (self.classes_[codes] != y).any() or len(y) != len(chances):
            must = f"y must have one of {len(self.classes_)} known labels for each of {len(chances)} rows"
            raise errors.value(
                type(self).__name__, must, f"{len(y)} labels, of which some are strange or missing"
            )
        right = chances[np.arange(len(y)), codes]
        return {
            "accuracy": float((chances.argmax(1) == codes).mean()),
            "nll": float(-np.log(right.clip(1e-300)).mean()),
            "ece": calibration_error(chances, codes),
            "brier": float(np.square(chances - np.eye(len(self.classes_))[codes]).sum(1).mean()),
        }


class BayesianRegressor(Regressor, _Bayesian):
    """Predict numbers with a Bayesian neural network, each with its own standard deviation.

    Parameters
    ----------
    net : int, sequence of int, nn.Module, class or function, default=(16,)
        Widths of the hidden layers of a multi-layer perceptron; or any module with one output, or what makes one,
        which is told ``n_inputs`` and ``n_outputs`` where it names them.
    activation : str, default="tanh"
        Of the perceptron, one of ``corollary.nn.activations.ACTIVATIONS``. Smooth ones suit Hamiltonian samplers.
    prior : float or callable, default=1.0
        Standard deviation of the normal prior of every weight; larger allows rougher functions. Or the log-density of the
        weights, (chains, d) -> (chains,).
    noise : float, optional
        Standard deviation of the targets around the function, in their own units; learned by default.
    sampler : sampler of corollary.bayes, optional
        What draws the weights; by default ``HMC(4, 250, 250, max_steps=30)``. Its ``random_state`` is not used.
    random_state : int or RandomState, optional
        Seed of initial weights and sampler.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The weights, flat; the last of them is the logarithm of the noise in standardised targets, where it is learned.
    target_mean_, target_scale_ : float
        What turns outputs into targets.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        What the sampler says of each draw.
    n_iter_ : int
        Engine steps done.
    history_ : list of dict
        Means over the chains of every step.

    Notes
    -----
    Samples (1) of :mod:`corollary.bayes.network`; predictions are the mean of (2), with the variance (3). A gradient costs
    O(n_chains * n * number of weights), a prediction O(draws * number of weights) for each row.

    References
    ----------
    .. [1] R. M. Neal (1996). Bayesian learning for neural networks. Springer.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import BayesianRegressor
    >>> from corollary.bayes import HMC
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> y = np.sin(3 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=30)
    >>> model = BayesianRegressor((4,), noise=0.1, sampler=HMC(2, 80, 80, max_steps=10), random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.0], [5.0]], return_std=True)
    >>> bool(std[1] > std[0])  # far from the data it is less sure
    True
    """

    _fitted = {"target_mean_": Number(), "target_scale_": Number(0)}
    _parameter_constraints = {
        **_Bayesian._parameter_constraints,
        "noise": [None, Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self, net=(16,), *, activation="tanh", prior=1.0, noise=None, sampler=None, random_state=None
    ):
        self.net = net
        self.activation = activation
        self.prior = prior
        self.noise = noise
        self.sampler = sampler
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"net": (3,), "sampler": HMC(2, 5, 20, max_steps=4)}

    def _extra(self) -> int:
        return int(self.noise is None)

    def _targets(self, data: Data) -> Tensor:
        y = np.asarray(data.y, np.float64)
        self.target_mean_, spread = float(y.mean()), float(y.std())
        self.target_scale_ = spread if spread > 0 else 1.0
        return as_tensor(((y - self.target_mean_) / self.target_scale_).astype(self.dtype_))

    def _log_prior(self, theta: Tensor) -> Tensor:
        found = super()._log_prior(theta)
        return found if self.noise is not None else found - 0.5 * (theta[:, -1] + 1).square()

    def _log_noise(self, theta: Tensor) -> Tensor:
        """Return log sigma of each draw, in standardised targets."""
        if self.noise is None:
            return theta[:, -1]
        return torch.full_like(theta[:, 0], math.log(self.noise / self.target_scale_))

    def _log_likelihood(self, network: Network, theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
        mean, log_noise = network(theta[:, : len(network)], X)[:, :, 0], self._log_noise(theta)[:, None]
        return -0.5 * ((y - mean) * (-log_noise).exp()).square() - log_noise

    def _moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the prediction of each row, eq. 3."""
        count, first, second = 0, 0.0, 0.0
        for out, theta in self._each(X):
            mean = out[:, :, 0].double()
            count += len(mean)
            first = first + mean.sum(0)
            second = second + (mean.square() + (2 * self._log_noise(theta)).double().exp()[:, None]).sum(0)
        mean = first / count
        std = (second / count - mean.square()).clamp(min=0).sqrt()
        return (mean * self.target_scale_ + self.target_mean_).numpy(), (std * self.target_scale_).numpy()

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return self._moments(X)[0].astype(X.dtype)

    def predict(self, X, *, return_std=False):
        """Return the predicted targets, and with ``return_std`` their standard deviations."""
        if not return_std:
            return super().predict(X)
        checked = self._query(X)
        mean, std = self._moments(checked)
        return as_given(X, mean.astype(checked.dtype)), as_given(X, std.astype(checked.dtype))

    def predictive(self, X):
        """Return the function's values for every draw, (n_chains * n_draws, n), without the noise."""
        values = torch.cat([out[:, :, 0] for out, _ in self._each(self._query(X))])
        return as_given(X, (values * self.target_scale_ + self.target_mean_).numpy())

    def calibration(self, X, y):
        """Return how well the predictions of held-out rows are calibrated.

        Returns
        -------
        dict
            ``rmse``; ``nll``, the mean negative log-likelihood in nats of a normal with the predicted mean and standard
            deviation; ``coverage_50`` and ``coverage_90``, the share of targets in the central intervals that should hold
            50% and 90%.
        """
        mean, std = (np.asarray(part, np.float64) for part in self.predict(X, return_std=True))
        y = np.asarray(y, np.float64)
        if y.shape != mean.shape:
            raise errors.value(type(self).__name__, f"y must have shape {mean.shape}", f"shape {y.shape}")
        std = std.clip(1e-12)
        z = (y - mean) / std
        return {
            "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
            "nll": float(np.mean(0.5 * z**2 + np.log(std) + 0.5 * math.log(2 * math.pi))),
            "coverage_50": float(np.mean(np.abs(z) < 0.6744897501960817)),
            "coverage_90": float(np.mean(np.abs(z) < 1.6448536269514722)),
        }
