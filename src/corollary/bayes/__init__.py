"""Samplers for any log-density, diagnostics of their draws, and Bayesian neural networks."""

from corollary.bayes.density import Posterior
from corollary.bayes.diagnostics import bfmi, ess, mcse, r_hat, summary, to_arviz
from corollary.bayes.hmc import HMC
from corollary.bayes.langevin import MALA, SGHMC, SGLD, ULA
from corollary.bayes.logistic import LogisticPosterior
from corollary.bayes.metropolis import Metropolis
from corollary.bayes.network import BayesianClassifier, BayesianRegressor
from corollary.bayes.nuts import NUTS

__all__ = [
    "BayesianClassifier",
    "BayesianRegressor",
    "HMC",
    "LogisticPosterior",
    "MALA",
    "NUTS",
    "SGHMC",
    "SGLD",
    "ULA",
    "Metropolis",
    "Posterior",
    "bfmi",
    "ess",
    "mcse",
    "r_hat",
    "summary",
    "to_arviz",
]
