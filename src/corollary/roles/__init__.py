"""Roles: mixins with the public methods of classifiers, regressors, transformers, densities, recommenders and others.

A public method validates its input, calls one private hook of the concrete class, and converts the result. An estimator
combines as many roles as it has.
"""

from __future__ import annotations

from corollary.roles.classifier import Classifier
from corollary.roles.completer import Completer
from corollary.roles.language_model import LanguageModel
from corollary.roles.linker import Linker
from corollary.roles.recommender import Recommender
from corollary.roles.regressor import Regressor
from corollary.roles.tagger import Tagger
from corollary.roles.unsupervised import Clusterer, Density, Generator, Memory, TopicModel, Transformer

__all__ = [
    "Classifier",
    "Clusterer",
    "Completer",
    "Density",
    "Generator",
    "LanguageModel",
    "Linker",
    "Memory",
    "Recommender",
    "Regressor",
    "Tagger",
    "TopicModel",
    "Transformer",
    "roles",
]


def roles(cls: type) -> tuple[str, ...]:
    """Return the roles of an estimator class, from its mixins, as names of :mod:`corollary.roletable`."""
    return tuple(dict.fromkeys(base.__dict__["role"] for base in cls.__mro__ if "role" in base.__dict__))
