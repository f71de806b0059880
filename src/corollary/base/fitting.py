"""Fitting: ``_fit`` checks the data, asks the model for a learner, and lets the engine drive it.

A fit that fails leaves the model as it was; one that diverges leaves it with its last finite state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_random_state

from corollary import errors, shapes
from corollary.base.checking import Checking
from corollary.base.hooks import Data
from corollary.engine.clock import now
from corollary.engine.learner import Learner, State, gathered
from corollary.engine.loop import Event, Journal, check_divisible, drive
from corollary.engine.run import Run, current
from corollary.validation import SCALE, broke_down, digest

__all__ = ["ENGINE_ATTRIBUTES", "Fitting"]

# Parameters that say how long to go on, not what is fitted: a checkpoint may be resumed with others.
BUDGET = {"epochs", "max_iter", "max_sweeps", "n_draws", "n_estimators", "n_iter", "n_jobs", "tol", "verbose"}
# Attributes of ``partial_fit``: which call it is, and the optimisers so far.
CONTINUATION = ("_going_on", "_optimizer_states", "_agreed_seed")
# What the engine and scikit-learn's callbacks attach to a model; it is neither copied nor saved.
ENGINE_ATTRIBUTES = (
    "_skl_callbacks",
    "_callback_fit_ctx",
    "_skl_callbacks_to_teardown",
    "_parent_callback_ctx",
    *CONTINUATION,
)


class Fitting(CallbackSupportMixin, Checking):  # type: ignore[misc]
    """Fits a model by the loop of its learner, in this process or in several."""

    @with_callbacks  # type: ignore[untyped-decorator]
    def _fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, extra: Any = None, validation: Any = None
    ) -> Self:
        begin, run = now(), current()
        with self._rolled_back_on_failure(), run.hold(), self._common_seed(run):
            self._validate_params()
            data = self._data(X, y, sample_weight, extra)
            if validation is not None:
                data = data._replace(validation=self._validation(validation))
            number = run.next_fit(type(self).__name__)
            run.announce(self)
            learner = self._learner(data)
            try:
                journal = self._drive(learner, data, run, number, begin)
            except errors.Diverged:
                self._adopt(learner)
                raise
            self._adopt(learner)
            broken = shapes.not_finite(shapes.declared(type(self), "_fitted"), vars(self))
            if broken is not None:
                raise errors.value(
                    type(self).__name__, f"{broken} must be finite after the fit", "NaN or infinity", SCALE
                )
            self.history_ = journal.history()
            self.stopped_ = journal.stopped
            run.record(self)
        return self

    def _drive(self, learner: Learner, data: Data, run: Run, number: int, begin: float) -> Journal:
        """Run the training loop in this process, or in new ones; return its record."""
        if run.launches:
            return self._launch(learner, data, run, number, begin)
        total = self._total(learner)
        return drive(
            learner,
            run,
            owner=type(self).__name__,
            fingerprint=self._fingerprint(data) if run.directory is not None else None,
            stopping=self._stopping(),
            total=total,
            notify=self._notifier(data, total) if hasattr(self, "_skl_callbacks") else None,
            progress=True if getattr(self, "verbose", False) else None,
            fit=number,
            since=begin,
        )

    def _launch(self, learner: Learner, data: Data, run: Run, number: int, begin: float) -> Journal:
        """Fit in new processes, and take over the final state of the first."""
        from corollary.engine.processes import launch

        check_divisible(learner, run, type(self).__name__, run.processes)
        notify = self._notifier(data, self._total(learner)) if hasattr(self, "_skl_callbacks") else None
        told = (*run.callbacks, *((notify,) if notify else ()))
        model = _bare_copy(self)
        vars(model).update({name: vars(self)[name] for name in CONTINUATION if name in vars(self)})
        work = partial(_fit_share, model, data, number, now() - begin)
        result = launch(work, run, learner, type(self).__name__, told)
        learner.restore(result["learner"])
        if result["diverged"]:
            raise errors.Diverged(result["diverged"])
        return Journal(**result["journal"])

    @contextmanager
    def _common_seed(self, run: Run) -> Iterator[None]:
        """Let all processes of a fit without a ``random_state`` draw the same numbers."""
        if (run.world == 1 and not run.launches) or getattr(self, "random_state", None) is not None:
            yield
            return
        seed = self._seed()
        self._agreed_seed = seed if run.world == 1 else int(run.sum(np.array(seed if run.rank == 0 else 0)))
        try:
            yield
        finally:
            del self._agreed_seed

    @contextmanager
    def _rolled_back_on_failure(self) -> Iterator[None]:
        """Restore all attributes if the fit fails; a diverged fit keeps its last finite state."""
        before = dict(vars(self))
        try:
            yield
        except errors.Diverged:
            raise
        except BaseException as error:
            engine = {key: value for key, value in vars(self).items() if key in ENGINE_ATTRIBUTES}
            self.__dict__ = before | engine
            # of a log-density it is the user's own function that failed
            if broke_down(error) and self.input != "log-density":
                must, got = "the numbers of the fit must stay finite", f"{type(error).__name__}: {error}"
                raise errors.value(type(self).__name__, must, got.rstrip("."), SCALE) from error
            raise

    def _notifier(self, data: Data, total: int | None) -> Any:
        """Return a function that passes each step on to scikit-learn's callbacks."""
        context = self._init_callback_context(max_subtasks=total)
        context.call_on_fit_task_begin(estimator=self, X=data.X, y=data.y)

        def attributes(learner: Any) -> dict[str, Any]:
            model = _bare_copy(self)
            model._adopt(learner)
            return {
                key: value for key, value in vars(model).items() if key not in model.get_params(deep=False)
            }

        def notify(event: Event) -> bool:
            task = context.subcontext(task_name="step")
            task.call_on_fit_task_begin(estimator=self, X=data.X, y=data.y)
            give = partial(attributes, event.learner)
            stop = task.call_on_fit_task_end(
                estimator=self, X=data.X, y=data.y, reconstruction_attributes=give
            )
            if stop or event.learner.done:
                context.call_on_fit_task_end(
                    estimator=self, X=data.X, y=data.y, reconstruction_attributes=give
                )
            return bool(stop)

        return notify

    def _fingerprint(self, data: Data) -> State:
        """Return what identifies a fit, so that only its own checkpoints are resumed: parameters and a hash of the data."""
        params = {
            key: repr(value)
            for key, value in self.get_params().items()
            if key.split("__")[-1] not in BUDGET and not hasattr(value, "get_params")
        }
        return {"model": type(self).__name__, **params, "data": digest(data)}

    def _seed(self) -> int:
        """Return a seed from ``random_state``; the global generators are never touched."""
        state = getattr(self, "random_state", None)
        if state is None:
            drawn = vars(self).get("_agreed_seed")
            return int(np.random.default_rng().integers(2**31 - 1)) if drawn is None else drawn
        return int(check_random_state(state).randint(2**31 - 1))

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self._seed())


def _fit_share(estimator: Fitting, data: Data, number: int, spent: float, run: Run) -> State:
    """Fit in one of several processes; return the state, the record and the message of a divergence."""
    begin = now() - spent  # by the clock of this process
    learner = estimator._learner(data)
    journal, diverged = Journal(), ""
    try:
        journal = estimator._drive(learner, data, run, number, begin)
    except errors.Diverged as error:  # the last finite state is the result all the same
        diverged = str(error)
    state = gathered(learner, learner.state())
    return {"learner": state, "journal": vars(journal), "diverged": diverged}


def _bare_copy(estimator: Any) -> Any:
    """Return a shallow copy without what the engine and scikit-learn's callbacks have attached."""
    model = object.__new__(type(estimator))
    vars(model).update({key: value for key, value in vars(estimator).items() if key not in ENGINE_ATTRIBUTES})
    return model
