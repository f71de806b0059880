"""One table of roles drives compare, reports, the command line and the tests."""

from importlib import import_module

import numpy as np
import pytest

from corollary import catalog, metrics, roletable, testing
from corollary.base import Estimator
from corollary.data.dataset import Dataset
from corollary.engine.learner import Once
from corollary.roletable import ROLES, TASKS, Role, Task, add_role


def test_every_role_of_the_catalog_has_an_entry_and_nothing_else_has():
    assert {role for entry in catalog.entries() for role in entry.roles} == set(ROLES)


def test_what_is_imported_later_exists():
    later = [
        function
        for role in ROLES.values()
        for function in (
            role.columns,
            role.draw,
            role.section,
            *(
                part
                for task in role.tasks.values()
                for part in (task.measure, task.ranks, task.rivals, task.settings, task.adapt)
            ),
        )
        if function is not None and function.__name__ != "<lambda>"
    ]
    assert len(later) > 30
    for function in later:
        assert callable(getattr(import_module(function.__module__), function.__name__))


def test_a_task_knows_its_role():
    assert TASKS["generation"].role == "generator"
    assert TASKS["nodes"].role == TASKS["classification"].role == "classifier"


class Ranker(Estimator):
    """A third party's model with a role of its own."""

    role = "ranker"

    def _learner(self, data):
        return Once(lambda: {"mean": data.X.mean(0)})

    def _adopt(self, learner):
        self.mean_ = learner.results["mean"]

    def rank(self, X):
        return np.argsort(self._query(X) @ self.mean_)


@pytest.fixture
def ranking():
    task = Task("share in place", lambda model, held: float(np.mean(model.rank(held.X) == held.y)))
    add_role(
        Role("ranker", "orders samples", {"rank": lambda model, X: model.rank(X)}, tasks={"ranking": task})
    )
    yield
    del ROLES["ranker"], TASKS["ranking"]


def test_a_new_role_is_one_entry(ranking):
    X, _ = testing.sample_data("table")
    model = Ranker().fit(X)
    assert testing.outputs(model, X).keys() == {"rank"}
    testing.checks.check_unfitted(Ranker(), X, None)
    assert TASKS["ranking"].measure(model, Dataset(X, model.rank(X))) == 1.0


def test_a_role_without_an_entry_says_what_to_do():
    with pytest.raises(ValueError, match="Ranker: no role named 'ranker'.*add_role"):
        list(roletable.entries_of(Ranker))


def test_our_own_roles_are_not_replaced():
    with pytest.raises(ValueError, match="must be new; got 'density'"):
        add_role(Role("density", "again", {}))
    with pytest.raises(ValueError, match="must be new; got 'topics'"):
        add_role(Role("mine", "again", {}, tasks={"topics": TASKS["topics"]}))


def test_every_generator_returns_samples_alone():
    for entry in catalog.entries(role="generator"):
        cls = entry.load()
        model = cls(**cls._test_params() if hasattr(cls, "_test_params") else {})
        X, y = model._test_data() if hasattr(model, "_test_data") else testing.sample_data(model.input)
        drawn = testing.checks._fitted(model, X, y).sample(3)
        assert isinstance(drawn, np.ndarray | list) and len(drawn) == 3, entry.id


def test_frechet_distance_of_gaussians_in_one_dimension():
    # (mean difference)² + (difference of standard deviations)²
    x = np.array([-1.0, 1.0]) * np.sqrt(0.5)  # variance 1
    assert metrics.frechet_distance(x, 5 + 3 * x) == pytest.approx(25 + 4)
    with pytest.raises(ValueError, match="same number of features; got 2 and 3"):
        metrics.frechet_distance(np.zeros((4, 2)), np.zeros((4, 3)))
