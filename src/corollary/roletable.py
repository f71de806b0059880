"""The table of roles: what compare, the reports, the command line and the contract tests know of each role.

A model's roles come from its mixins (:func:`corollary.roles.roles`). Everything that differs from role to role stands in
:data:`ROLES`, one entry each, so that a new role is a mixin and an entry:

>>> from corollary.roletable import ROLES
>>> ROLES["density"].title
'has a density'
>>> [*ROLES["density"].tasks]
['density']

A third party adds its own with :func:`add_role`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from corollary import errors
from corollary.roles import roles

__all__ = ["ROLES", "TASKS", "Role", "Task", "add_role", "entries_of"]

Function = Callable[..., Any]


@dataclass(frozen=True)
class Task:
    """One way to measure a role: by which number, on data prepared how.

    Parameters
    ----------
    metric : str
        What the number is called.
    measure : callable
        ``measure(model, held_out) -> float`` for a fitted model and a held-out :class:`~corollary.data.Dataset`.
    larger_is_better : bool, default=True
        Which way the leaderboard is sorted.
    prepare : callable, optional
        ``prepare(dataset) -> dataset`` before the split, where models can only be compared on prepared data.
    usual : bool, default=True
        Whether ``corollary fit`` reports it without being asked.
    role : str
        Set by the table.
    """

    metric: str
    measure: Function
    larger_is_better: bool = True
    prepare: Function = lambda dataset: dataset
    usual: bool = True
    role: str = ""


@dataclass(frozen=True)
class Role:
    """What the library must know of a role to compare, report, print and test it.

    Parameters
    ----------
    name : str
        The ``role`` of the mixin.
    title : str
        What such a model does, as the end of a sentence.
    ask : mapping of str to callable
        For each method, ``call(model, X)`` that calls it with what data X allow. The contract tests compare the results
        bit by bit, and expect ``NotFittedError`` before ``fit``. Methods that a model does not have are left out.
    columns : callable, optional
        ``columns(model, dataset, labels) -> (names, columns, array or None)``: what ``corollary predict`` writes.
        Of several roles the one that stands first in the table decides.
    draw : callable, optional
        ``draw(model, n) -> list or array`` of new samples: what ``corollary sample`` writes.
    section : callable, optional
        ``section(model, dataset)`` yields the (heading, text, figure) of a report.
    tasks : mapping of str to Task
        What :func:`corollary.compare` can measure.
    """

    name: str
    title: str
    ask: Mapping[str, Function]
    columns: Function | None = None
    draw: Function | None = None
    section: Function | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)


def _later(module: str, name: str) -> Function:
    """Return a function of a package that is imported when it is first called: pictures need Matplotlib."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(f"corollary.{module}"), name)(*args, **options)

    call.__name__, call.__module__ = name, f"corollary.{module}"
    return call


def _methods(*names: str) -> dict[str, Function]:
    """Return, for each name, what gives X to the method of that name."""
    return {name: lambda model, X, name=name: getattr(model, name)(X) for name in names}


def _pairs(X: Any) -> np.ndarray:
    coo = X.tocoo()
    return np.column_stack([coo.row, coo.col])


def _measured(
    metric: str, measure: str, larger_is_better: bool = True, prepare: str = "", usual: bool = True
) -> Task:
    how: dict[str, Any] = {"prepare": _later("comparison", prepare)} if prepare else {}
    return Task(metric, _later("comparison", measure), larger_is_better, usual=usual, **how)


_predicted = _later("cli.using", "predicted_columns")


# In the order in which a model of several roles is asked by `corollary predict`.
_ENTRIES = (
    Role(
        "completer",
        "fills in missing entries",
        ask={"predict": lambda model, X: model.predict(_pairs(X))},
        columns=_later("cli.using", "completed_columns"),
        tasks={"completion": _measured("root-mean-square error", "_completion_rmse", False)},
    ),
    Role(
        "recommender",
        "ranks items for users",
        ask={"recommend": lambda model, X: model.recommend([0, 1], 3)},
        section=_later("reporting", "_recommended"),
    ),
    Role(
        "classifier",
        "predicts one of several classes",
        ask=_methods("predict_proba", "predict"),
        columns=_later("cli.using", "class_columns"),
        section=_later("reporting", "_classified"),
        tasks={
            "classification": _measured("accuracy", "_accuracy"),
            "nodes": _measured("accuracy", "_node_accuracy"),
        },
    ),
    Role(
        "language-model",
        "continues text",
        ask={"generate": lambda model, X: model.generate(X[:2], max_new_tokens=5)},
        columns=_later("cli.using", "text_columns"),
        draw=lambda model, n: model.generate([""] * n, max_new_tokens=200),
        section=_later("reporting", "_continued"),
        tasks={"language": _measured("perplexity", "_perplexity", False)},
    ),
    Role(
        "tagger",
        "labels every part of a sample",
        ask=_methods("predict_proba", "predict"),
        columns=_later("cli.using", "part_columns"),
        section=_later("reporting", "_tagged"),
        tasks={"tagging": _measured("accuracy", "_own_score")},
    ),
    Role(
        "memory",
        "recalls stored patterns",
        ask=_methods("recall"),
        columns=_later("cli.using", "recalled_columns"),
        section=_later("reporting", "_recalled"),
    ),
    Role(
        "regressor",
        "predicts numbers",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting", "_predicted"),
        tasks={"regression": _measured("root-mean-square error", "_rmse", False)},
    ),
    Role(
        "clusterer",
        "groups samples",
        ask=_methods("predict_proba", "predict"),
        columns=_predicted,
        section=_later("reporting", "_grouped"),
        tasks={
            "clustering": _measured("adjusted Rand index", "_rand", usual=False),
            "separation": _measured("silhouette", "_silhouette", usual=False),
        },
    ),
    Role(
        "segmenter",
        "gives every pixel a class",
        ask=_methods("predict_proba", "predict"),
        columns=_predicted,
        section=_later("reporting", "_segmented"),
        tasks={"segmentation": _measured("intersection over union", "_own_score")},
    ),
    Role(
        "forecaster",
        "continues series",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting", "_forecast"),
        tasks={"forecasting": _measured("R² one step ahead", "_own_score")},
    ),
    Role(
        "translator",
        "turns texts into texts",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting", "_translated"),
        tasks={"translation": _measured("share of exact texts", "_own_score")},
    ),
    Role(
        "answerer",
        "finds answers in passages",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting", "_answered"),
        tasks={"answering": _measured("share of exact answers", "_own_score")},
    ),
    Role(
        "topic-model",
        "explains counts of words by topics",
        ask=_methods("transform"),
        tasks={"topics": _measured("word perplexity", "_document_completion", False)},
    ),
    Role(
        "transformer",
        "maps data to features",
        ask=_methods("transform"),
        columns=_later("cli.using", "code_columns"),
        section=_later("reporting", "_coded"),
        tasks={"reconstruction": _measured("mean squared error", "_reconstruction", False, usual=False)},
    ),
    Role(
        "density",
        "has a density",
        ask=_methods("score_samples"),
        columns=_later("cli.using", "density_columns"),
        tasks={"density": _measured("log-likelihood (nats)", "_log_likelihood", prepare="_standardised")},
    ),
    Role(
        "generator",
        "draws new samples",
        ask={"sample": lambda model, X: model.sample(4)},
        draw=lambda model, n: model.sample(n),
        section=_later("reporting", "_drawn"),
        tasks={"generation": _measured("Fréchet distance", "_frechet", False, "_standardised", usual=False)},
    ),
)

ROLES: dict[str, Role] = {}


# Every task by name, with the role that does it; `add_role` keeps it up to date.
TASKS: dict[str, Task] = {}


def _enter(role: Role) -> None:
    ROLES[role.name] = role
    TASKS.update({name: replace(task, role=role.name) for name, task in role.tasks.items()})


def add_role(role: Role) -> None:
    """Add a role with its tasks, or put another entry in the place of one that was added before.

    >>> from corollary.roletable import ROLES, Role, add_role
    >>> add_role(Role("ranker", "orders samples", ask={"rank": lambda model, X: model.rank(X)}))
    >>> ROLES.pop("ranker").title
    'orders samples'
    """
    ours = {name for known in _ENTRIES for name in (known.name, *known.tasks)}
    taken = sorted(ours & {role.name, *role.tasks})
    if taken:
        do = "Give it a name of its own."
        raise errors.value("add_role", "the role and its tasks must be new", ", ".join(map(repr, taken)), do)
    _enter(role)


def entries_of(cls: type) -> Iterator[Role]:
    """Yield the entries of the roles that a class plays, in the order of the table."""
    played = roles(cls)
    for name in played:
        if name not in ROLES:
            do = "Describe it once: corollary.roletable.add_role(Role(...))."
            raise errors.unknown(cls.__name__, "role", name, ROLES, do)
    yield from (role for name, role in ROLES.items() if name in played)


for _role in _ENTRIES:
    _enter(_role)
