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
    """One way to measure a role: by which numbers, against whom, with which settings.

    Parameters
    ----------
    metric : str
        The number that ranks, unless ``ranks`` chooses another.
    measure : callable
        ``measure(model, held_out)`` for a fitted model and a held-out :class:`~corollary.data.Dataset`: one number,
        or a mapping with the number of every metric.
    larger_is_better : bool, default=True
        Whether that holds for ``metric``.
    others : mapping of str to bool
        Further metrics that ``measure`` returns, each with whether larger is better.
    ranks : callable, optional
        ``ranks(dataset) -> (metric, reason)`` chooses the metric that ranks.
    rivals : callable, optional
        ``rivals(dataset)`` returns baselines and scikit-learn's estimators for the board.
    settings : callable, optional
        ``settings(model, training_part)`` returns parameters of a system of the catalog that fit the data.
    adapt : callable, optional
        ``adapt(model, training_part, seed)`` wraps a model before it is fitted.
    usual : bool, default=True
        Whether ``corollary fit`` reports it without being asked.
    role : str
        Set by the table.
    """

    metric: str
    measure: Function
    larger_is_better: bool = True
    others: Mapping[str, bool] = field(default_factory=dict)
    ranks: Function | None = None
    rivals: Function | None = None
    settings: Function | None = None
    adapt: Function | None = None
    usual: bool = True
    role: str = ""

    @property
    def directions(self) -> dict[str, bool]:
        """Every metric, with whether larger is better."""
        return {self.metric: self.larger_is_better, **self.others}

    def numbers(self, model: Any, held: Any) -> dict[str, float]:
        """Return every metric of a fitted model on held-out data, in the table's order."""
        found = self.measure(model, held)
        found = found if isinstance(found, Mapping) else {self.metric: found}
        return {name: float(found[name]) for name in self.directions if name in found}


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
        ``columns(model, dataset) -> (names, columns, array or None)``: what ``corollary predict`` writes.
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


def _task(
    metric: str,
    measure: str,
    larger_is_better: bool = True,
    others: str = "",
    usual: bool = True,
    **later: str,
) -> Task:
    """Return a task whose functions, ``module.name`` below ``comparison``, are imported when they are called.

    ``others`` lists further metrics, separated by commas; those that end in ``↓`` are better when smaller.
    """

    def function(path: str) -> Function:
        module, _, name = path.rpartition(".")
        return _later(f"comparison.{module}", name)

    names = [name.strip() for name in others.split(",") if name]
    directions = {name.rstrip("↓"): not name.endswith("↓") for name in names}
    functions: dict[str, Any] = {key: function(path) for key, path in later.items()}
    return Task(metric, function(measure), larger_is_better, directions, usual=usual, **functions)


_CLASSES = "balanced accuracy, F1, ROC AUC, log-loss↓, calibration error↓"
_predicted = _later("cli.using", "predicted_columns")


# In the order in which a model of several roles is asked by `corollary predict`.
_ENTRIES = (
    Role(
        "completer",
        "fills in missing entries",
        ask={"predict": lambda model, X: model.predict(_pairs(X))},
        columns=_later("cli.using", "completed_columns"),
        tasks={
            "completion": _task(
                "RMSE",
                "ranking.ratings",
                False,
                "mean absolute error↓, precision@10, recall@10, NDCG@10",
                ranks="tasks.ranks_ratings",
                rivals="baselines.of_ratings",
            )
        },
    ),
    Role(
        "recommender",
        "ranks items for users",
        ask={"recommend": lambda model, X: model.recommend([0, 1], 3)},
        section=_later("reporting.by_role", "_recommended"),
    ),
    Role(
        "classifier",
        "predicts one of several classes",
        ask=_methods("predict_proba", "predict"),
        columns=_later("cli.using", "class_columns"),
        section=_later("reporting.predictions", "classified"),
        tasks={
            name: _task(
                "accuracy",
                "measures.classes",
                True,
                _CLASSES,
                ranks="tasks.ranks_classes",
                rivals="tasks.class_rivals",
            )
            for name in ("classification", "nodes")
        }
        | {
            "multilabel": _task(
                "F1",
                "measures.label_sets",
                True,
                "macro F1, exact, labels right",
                rivals="tasks.label_rivals",
            )
        },
    ),
    Role(
        "language-model",
        "continues text",
        ask={"generate": lambda model, X: model.generate(X[:2], max_new_tokens=5)},
        columns=_later("cli.using", "text_columns"),
        draw=lambda model, n: model.generate([""] * n, max_new_tokens=200),
        section=_later("reporting.by_role", "_continued"),
        tasks={
            "language": _task("bits per character", "tasks.perplexity", False, rivals="baselines.of_language")
        },
    ),
    Role(
        "tagger",
        "labels every part of a sample",
        ask=_methods("predict_proba", "predict"),
        columns=_later("cli.using", "part_columns"),
        section=_later("reporting.by_role", "_tagged"),
        tasks={"tagging": _task("accuracy", "measures.parts", True, "F1", rivals="baselines.of_parts")},
    ),
    Role(
        "memory",
        "recalls stored patterns",
        ask=_methods("recall"),
        columns=_later("cli.using", "recalled_columns"),
        section=_later("reporting.by_role", "_recalled"),
    ),
    Role(
        "regressor",
        "predicts numbers",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting.predictions", "predicted"),
        tasks={
            "regression": _task(
                "R²", "measures.numbers", True, "RMSE↓, mean absolute error↓", rivals="tasks.number_rivals"
            )
        },
    ),
    Role(
        "multi-task",
        "predicts several targets at once",
        ask=_methods("predict", "features"),
        columns=_predicted,
    ),
    Role(
        "clusterer",
        "groups samples",
        ask=_methods("predict_proba", "predict"),
        columns=_predicted,
        section=_later("reporting.by_role", "_grouped"),
        tasks={
            "clustering": _task(
                "adjusted Rand index",
                "measures.groups",
                True,
                "mutual information",
                usual=False,
                rivals="tasks.group_rivals",
                settings="tasks.group_settings",
            ),
            "separation": _task(
                "silhouette",
                "measures.separation",
                usual=False,
                rivals="tasks.group_rivals",
                settings="tasks.group_settings",
            ),
        },
    ),
    Role(
        "segmenter",
        "gives every pixel a class",
        ask=_methods("predict_proba", "predict"),
        columns=_predicted,
        section=_later("reporting.by_role", "_segmented"),
        tasks={
            "segmentation": _task("intersection over union", "measures.pixels", rivals="baselines.of_pixels")
        },
    ),
    Role(
        "forecaster",
        "continues series",
        ask=_methods("predict"),
        columns=_later("cli.using", "forecast_columns"),
        section=_later("reporting.by_role", "_forecast"),
        tasks={
            "forecasting": _task(
                "MASE",
                "forecasts.ahead",
                False,
                "RMSE↓",
                rivals="forecasts.naive",
                settings="tasks.forecast_settings",
            )
        },
    ),
    Role(
        "translator",
        "turns texts into texts",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting.by_role", "_translated"),
        tasks={
            "translation": _task("trigram F1", "measures.texts", True, "exact", rivals="baselines.of_texts")
        },
    ),
    Role(
        "answerer",
        "finds answers in passages",
        ask=_methods("predict"),
        columns=_predicted,
        section=_later("reporting.by_role", "_answered"),
        tasks={"answering": _task("exact", "measures.answers", True, "word F1", rivals="baselines.of_texts")},
    ),
    Role(
        "topic-model",
        "explains counts of words by topics",
        ask=_methods("transform"),
        section=_later("reporting.by_role", "_topics"),
        tasks={
            "topics": _task(
                "word perplexity",
                "tasks.topics",
                False,
                "coherence",
                rivals="baselines.of_topics",
                settings="tasks.topic_settings",
            )
        },
    ),
    Role(
        "link-predictor",
        "predicts missing edges",
        ask={"link_probability": lambda model, X: model.link_probability([[0, 1], [2, 0]])},
        columns=_later("cli.using", "link_columns"),
        section=_later("reporting.by_role", "_linked"),
        tasks={
            "links": _task(
                "ROC AUC",
                "links.linked",
                True,
                "average precision, hits@10, hits@50",
                rivals="links.of_links",
            )
        },
    ),
    Role(
        "transformer",
        "maps data to features",
        ask=_methods("transform"),
        columns=_later("cli.using", "code_columns"),
        section=_later("reporting.by_role", "_coded"),
        tasks={
            "reconstruction": _task(
                "variance kept",
                "measures.codes",
                usual=False,
                rivals="tasks.code_rivals",
                settings="tasks.code_settings",
            )
        },
    ),
    Role(
        "density",
        "has a density",
        ask=_methods("score_samples"),
        columns=_later("cli.using", "density_columns"),
        tasks={
            "density": _task(
                "bits per dimension",
                "measures.likelihood",
                False,
                "log-likelihood",
                ranks="tasks.ranks_densities",
                rivals="tasks.density_rivals",
                settings="tasks.density_settings",
                adapt="tasks.of_data",
            )
        },
    ),
    Role(
        "generator",
        "draws new samples",
        ask={"sample": lambda model, X: model.sample(4)},
        draw=lambda model, n: model.sample(n),
        section=_later("reporting.by_role", "_drawn"),
        tasks={
            "generation": _task(
                "Fréchet distance",
                "measures.draws",
                False,
                "precision, recall, told from data↓",
                usual=False,
                ranks="tasks.ranks_draws",
                rivals="baselines.of_densities",
                settings="tasks.density_settings",
                adapt="tasks.of_data",
            )
        },
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
