"""The base class of all estimators, and the hooks that a model writes. Read this first.

An estimator is a scikit-learn estimator whose ``fit`` is a loop over a state. A public
method checks, converts and calls one private hook; a concrete class writes the hooks and
its mathematics, nothing else:

``_learner(data)``
    Return the :class:`~corollary.engine.learner.Learner` that fits the data.
``_adopt(learner)``
    Copy what was learned into fitted attributes (names that end in ``_``).
``_predict``, ``_transform``, ``_log_prob``, ``_sample``, ...
    One per role. A hook gets checked data and returns an array or a tensor.

Roles (:mod:`corollary.roles`) are small mixins, freely combined. Progress, history, early stopping, checkpoints,
exact resume, devices and processes come from the engine.

``hooks`` holds what a model declares and writes. What calls the hooks: ``reading`` makes arrays of the user's data,
``checking`` checks them, ``fitting`` runs the loop, ``saving`` writes and reads the fitted attributes.
"""

from __future__ import annotations

from corollary.base.estimator import Estimator
from corollary.base.hooks import Data
from corollary.roles import (
    Classifier,
    Clusterer,
    Completer,
    Density,
    Generator,
    LanguageModel,
    Linker,
    Memory,
    Recommender,
    Regressor,
    Tagger,
    TopicModel,
    Transformer,
    roles,
)
from corollary.validation import as_tensor, check_count

__all__ = [
    "Classifier",
    "Clusterer",
    "Completer",
    "Data",
    "Density",
    "Estimator",
    "Generator",
    "LanguageModel",
    "Linker",
    "Memory",
    "Recommender",
    "Regressor",
    "Tagger",
    "TopicModel",
    "Transformer",
    "as_tensor",
    "check_count",
    "roles",
]
