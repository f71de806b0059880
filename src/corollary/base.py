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
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from corollary import errors, io, shapes
from corollary.data import kinds
from corollary.data.columns import (
    as_columns,
    fit_columns,
    is_mixed,
    is_numeric,
    left_out,
    numbers_of,
)
from corollary.data.convert import as_input
from corollary.data.dataset import Dataset
from corollary.data.frames import as_frame
from corollary.data.images import levels_of
from corollary.data.sources import Source, as_source
from corollary.data.texts import as_texts, one_text
from corollary.engine.learner import Learner, State, gathered
from corollary.engine.loop import EarlyStopping, Event, Journal, check_divisible, drive
from corollary.engine.run import Run, current
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
from corollary.shapes import Columns, Count, Labels, List, Maybe, Number, Plain, Record, Text
from corollary.validation import (
    SCALE,
    as_tensor,
    broke_down,
    check_complete,
    check_count,
    digest,
    quick_sum,
    to_numpy,
)

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

# Parameters that say how long to go on, not what is fitted: a checkpoint may be resumed with others.
BUDGET = {"epochs", "max_iter", "max_sweeps", "n_draws", "n_estimators", "n_iter", "n_jobs", "tol", "verbose"}
# Attributes of ``partial_fit``: which call it is, and the optimisers so far.
CONTINUATION = ("_going_on", "_optimizer_states", "_agreed_seed")
ENGINE_ATTRIBUTES = (
    "_skl_callbacks",
    "_callback_fit_ctx",
    "_skl_callbacks_to_teardown",
    "_parent_callback_ctx",
    *CONTINUATION,
)

_KIND_CHECKS: dict[str, Any] = {
    "graph": kinds.check_graph,
    "image": kinds.check_images,
    "ratings": kinds.check_ratings,
    "sequence": kinds.check_sequences,
    "set": kinds.check_sets,
    "text": kinds.check_texts,
}


class Data(NamedTuple):
    """Validated data of a fit: inputs, targets, sample weights."""

    X: Any
    y: Any = None
    sample_weight: np.ndarray | None = None
    extra: Any = None
    validation: Any = None  # another one of these, which is only measured on


class Estimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Base of every model: ``fit`` in terms of ``_learner`` and ``_adopt``."""

    input: ClassVar[str] = "table"
    also: ClassVar[tuple[str, ...]] = ()  # further kinds of input that are taken as they are
    # What a fitted model holds: type, shape and range of every attribute; joined to the tables of the bases.
    _fitted: ClassVar[Mapping[str, Any]] = {
        "n_features_in_": Maybe(Count(1)),
        "feature_names_in_": Maybe(Labels("n_features_in_")),
        "n_iter_": Maybe(Count()),
        "history_": Maybe(List(Record(Number(finite=False)))),
        "columns_": Maybe(Columns()),
        "pixel_levels_": Maybe(Count(1)),
        "stopped_": Maybe(Text()),
        "reading_": Maybe(Plain()),
    }
    # How scikit-learn (tables) or `corollary.data.kinds` (the rest) shall check X.
    _checks: ClassVar[Mapping[str, Any]] = {}
    _reads_sources: ClassVar[bool] = False  # whether X may be a source: data that are read batch by batch
    _parameter_constraints: ClassVar[dict[str, Any]] = {}  # scikit-learn's form; what has none is not checked

    # --- hooks -------------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Learner:
        """Return the learner that fits checked data."""
        raise NotImplementedError

    def _adopt(self, learner: Any) -> None:
        """Copy what was learned into fitted attributes."""
        raise NotImplementedError

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        """Return sizes and types of checked training data by fitted attribute; one that is None is not kept.

        Further data are checked against them, and a module is built of them. The number of columns of a table is kept by
        scikit-learn's own check.
        """
        return {}

    def _stopping(self) -> EarlyStopping | None:
        """Return the rule of early stopping; None leaves it to the run."""
        return None

    def _total(self, learner: Any) -> int | None:
        """Return the number of steps a fit may take, for the progress bar."""
        return getattr(learner, "max_iter", None)

    def _module(self) -> Any:
        """Return a new, untrained torch module of the fitted sizes; used when loading."""
        raise NotImplementedError

    # --- fitting -----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : data of the estimator's input kind, or a Dataset
            What to learn from. A table may be a data frame of mixed columns, or a dict of columns, a list of dicts or
            rows with words: how they became numbers is then in ``columns_``, and new ones are read alike.
        y : array-like, optional
            Targets, where the model has any; those of the Dataset by default.

        Returns
        -------
        self
        """
        self._fit(X, y)
        return self

    @with_callbacks  # type: ignore[untyped-decorator]
    def _fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, extra: Any = None, validation: Any = None
    ) -> Self:
        begin, run = monotonic(), current()
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
        work = partial(_fit_share, model, data, number, begin)
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

    # --- checking ----------------------------------------------------------------------------------------

    def _data(self, X: Any, y: Any, sample_weight: Any, extra: Any = None) -> Data:
        """Return the checked training data."""
        X, y = self._read(X, y)
        X = self._admit(X, reset=True)
        y = X.target if y is None and isinstance(X, Source) else y
        y = self._check_y(X, y)
        return self._keep_sizes(Data(X, y, self._check_weight(X, sample_weight), extra))

    def _keep_sizes(self, data: Data) -> Data:
        """Keep the sizes of training data as fitted attributes; return the data."""
        for name, size in self._fitted_sizes(data).items():
            if size is None:
                self.__dict__.pop(name, None)
            else:
                setattr(self, name, size)
        return data

    def _check_weight(self, X: Any, sample_weight: Any) -> np.ndarray | None:
        if sample_weight is None:
            return None
        samples = np.empty(X.num_nodes) if hasattr(X, "num_nodes") else X
        return _check_sample_weight(sample_weight, samples, dtype=np.float64, ensure_non_negative=True)  # type: ignore[no-any-return]

    def _validation(self, given: Any) -> Data:
        """Return the checked validation data."""
        raise errors.kind(type(self).__name__, "there must be something to validate", "validation data")

    def _admit(self, X: Any, reset: bool) -> Any:
        """Return checked data; a source (data on disk) stays there, and each block is checked when it is read."""
        source = as_source(X) if self._reads_sources else None
        if source is None:
            return self._check(X, reset)
        head = self._check(source.head(max(1, self._checks.get("ensure_min_samples", 1))), reset)
        if reset:
            self._keep_sizes(Data(head))  # what is read later is checked against them
        return source.map(partial(self._check, reset=self.input != "table"))

    def _check(self, X: Any, reset: bool) -> Any:
        """Return X in the canonical form of the estimator's input kind."""
        if self.input == "table":
            options = {"dtype": (np.float64, np.float32), **self._checks}
            if not reset:  # a single row may be asked about, and the features are compared with the fit's
                options = {key: value for key, value in options.items() if not key.startswith("ensure_min")}
            if getattr(X, "ndim", 0) > 2 and not options.get("allow_nd"):
                must = "X must be a table of shape (n, d)"
                do = "For images use a model of images (`corollary list --input image`), or X.reshape(len(X), -1)."
                got = f"an array with dim {X.ndim}, shape {tuple(X.shape)}"
                raise errors.value(type(self).__name__, must, got, do)
            X = to_numpy(X)
            floats = isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64)
            if floats and np.isfinite(quick_sum(X)):
                options["ensure_all_finite"] = False  # scikit-learn's own pass would find nothing
            return validate_data(self, X, reset=reset, **options)
        deep = {"levels": self._pixel_levels()} if self.input == "image" else {}
        return _KIND_CHECKS[self.input](X, type(self).__name__, **self._checks, **deep)

    def _pixel_levels(self) -> int:
        """Return the largest value of 16-bit pixels, which are divided by it: that of the fit, or 65535 if it saw 8 bits."""
        return getattr(self, "pixel_levels_", 65535)

    def _check_y(self, X: Any, y: Any) -> Any:
        """Return checked targets, and keep what later calls need of them (classes); None where the model has no targets."""
        return None

    def _query(self, X: Any) -> Any:
        """Return new data checked, encoded as in the fit; raise if the model is not fitted."""
        check_is_fitted(self)
        return self._admit(self._read_again(X), reset=False)

    def _answer(self, hook: Any, X: Any) -> Any:
        """Return the result of a hook for new data; data on disk are processed block by block."""
        return self._by_blocks(hook, self._query(X))

    def _by_blocks(self, hook: Any, X: Any) -> Any:
        return np.concatenate([hook(block) for block in X.blocks()]) if isinstance(X, Source) else hook(X)

    # --- data sets and frames of mixed columns -----------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return X and y of the training data as arrays; columns of words and dates are encoded, as ``columns_`` then says."""
        for name in ("columns_", "pixel_levels_", "reading_"):
            self.__dict__.pop(name, None)
        names, known = None, {}
        X = self._counted(X)
        if isinstance(X, Dataset):
            y = X.y if y is None else y
            X = self._given(X, None)
            if X.kind == "table":
                names, known = X.feature_names, X.extra.get("columns", {})
            if "reading" in X.extra:
                self.reading_ = X.extra["reading"]
            X = X.X
        if "image" in (self.input, *self.also):
            if self.input == "image" and isinstance(X, list | tuple):
                X = kinds.check_images(X, type(self).__name__, scale=False, bounded=False)
            if levels := levels_of(X):
                self.pixel_levels_ = levels
        X, frame = self._as_frame(X)
        gaps = self._checks.get("ensure_all_finite") == "allow-nan"
        if self.input != "table" or (frame is None and not names) or hasattr(X, "tocsr"):
            return X, y
        if frame is not None and names is None and not is_mixed(frame, gaps):
            return X, y
        uses = {"classifier": "classes", "regressor": "numbers"}
        target = next((uses[role] for role in roles(type(self)) if role in uses), None)
        worded = getattr(getattr(y, "dtype", None), "kind", "O") not in "biufUS"
        if target is not None and y is not None and worded:
            check_complete(type(self).__name__, np.asarray(y, dtype=object))
        self.columns_, X = fit_columns(X, names, to_numpy(y), target, known, gaps, self._takes_sparse())
        if note := left_out(self.columns_, type(self).__name__):
            warnings.warn(note, errors.CorollaryWarning, stacklevel=5)
        return X, y

    def _read_batch(self, X: Any, y: Any, first: bool) -> tuple[Any, Any]:
        """Return X and y of a batch for ``partial_fit``: the first batch decides how columns are encoded."""
        if first:
            return self._read(X, y)
        return self._read_again(X), X.y if y is None and isinstance(X, Dataset) else y

    def _read_again(self, X: Any) -> Any:
        """Return new data encoded as those of the fit were; an array is taken as it is."""
        columns, frame = getattr(self, "columns_", None), None
        X = self._counted(X)
        if isinstance(X, Dataset):
            X = self._given(X, getattr(self, "reading_", None))
            if columns is not None:
                return as_columns(X, columns, type(self).__name__, sparse=self._takes_sparse()).X
            X = X.X
        else:
            X, frame = self._as_frame(X)
        if frame is not None and columns is not None:
            return numbers_of(frame, columns, type(self).__name__, sparse=self._takes_sparse())
        if frame is not None and is_mixed(frame, gaps=True):
            strange = next(c for c, dtype in frame.dtypes.items() if not is_numeric(dtype))
            do = "Fit on a frame with that column, or leave it out."
            must = "X must hold numbers, as in the fit"
            raise errors.value(type(self).__name__, must, f"column {str(strange)!r} of other values", do)
        return X

    def _as_frame(self, X: Any) -> tuple[Any, Any]:
        """Return X of a table model, dicts of columns and records turned into a frame; and the frame, or None for an array."""
        if self.input != "table" or hasattr(X, "tocsr"):
            return X, None
        name, must = (
            type(self).__name__,
            "X must be numbers of shape (n, d), a data frame or a dict of columns",
        )
        if isinstance(X, str | Path):
            do = f"Read the file first: fit(data.load({str(X)!r}, target=...)), or predict(data.load({str(X)!r}))."
            raise errors.kind(name, must, f"the string {str(X)!r}", do)
        frame = as_frame(X, name)
        if frame is None and isinstance(X, Mapping):
            got = f"a dict whose {str(next(iter(X)))!r} is no column" if X else "an empty dict"
            raise errors.kind(name, must, got, "Make a list of it, with one value per row.")
        return (X if frame is None else frame), frame

    def _takes_sparse(self) -> bool:
        return bool(self._checks.get("accept_sparse", False))

    def _counted(self, X: Any) -> Any:
        """Return X; a list of texts given to a table model becomes a data set of texts, which is then read as word counts."""
        texts = as_texts(X) if self.input == "table" else None
        if texts is None:
            return X
        if not self._checks.get("accept_sparse"):
            do = "Use a model of texts (`corollary list --input text`), or make numbers of them first."
            must = "X must be numbers of shape (n, d)"
            raise errors.value(type(self).__name__, must, f"{len(texts)} texts", do)
        return Dataset(texts, kind="text", name="texts")

    def _given(self, dataset: Dataset, reading: Any) -> Dataset:
        """Return the data set converted to the estimator's input kind; the columns of a table are not encoded yet."""
        if dataset.kind == self.input == "table":
            return dataset
        if getattr(self, "reads_whole_files", False):
            dataset = one_text(dataset)
        return as_input(dataset, self.input, type(self).__name__, reading, self.also)

    # --- randomness --------------------------------------------------------------------------------------

    def _seed(self) -> int:
        """Return a seed from ``random_state``; the global generators are never touched."""
        state = getattr(self, "random_state", None)
        if state is None:
            drawn = vars(self).get("_agreed_seed")
            return int(np.random.default_rng().integers(2**31 - 1)) if drawn is None else drawn
        return int(check_random_state(state).randint(2**31 - 1))

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self._seed())

    def history_frame(self) -> Any:
        """Return ``history_`` as a data frame: a row per step, a column per metric, ready for ``.plot()``."""
        check_is_fitted(self)
        import pandas as pd

        columns = list(dict.fromkeys(name for row in self.history_ for name in row)) or ["step"]
        return pd.DataFrame(self.history_, columns=columns).set_index("step")

    # --- files -------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the model as one safetensors file; :func:`corollary.load` reads it."""
        return io.save(self, path)

    def _given_parts(self) -> dict[str, Any]:
        """Return the parameters that no file can hold (modules, functions): :func:`corollary.load` has to be given them again."""
        return {}

    def _saved_attributes(self) -> dict[str, Any]:
        left_out = {*self.get_params(deep=False), *ENGINE_ATTRIBUTES, "_sklearn_output_config"}
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def _check_fitted(self, fitted: Mapping[str, Any]) -> None:
        """Raise unless fitted attributes, as read from a file, are what the class declares; nothing is built or run before."""
        # Only our own classes must declare every attribute; a third party's may have more.
        ours = type(self).__module__.startswith("corollary.")
        for name in fitted:
            if not ours and (
                not name.strip("_").isidentifier() or name.startswith("__") or hasattr(type(self), name)
            ):
                raise shapes.Mismatch(f"{name!r} is not a fitted attribute of {type(self).__name__}.")
        shapes.check(
            shapes.declared(type(self), "_fitted"), fitted, type(self).__name__, self, others=not ours
        )
        if self.input == "table" and "n_features_in_" not in fitted:
            raise shapes.Mismatch(f"n_features_in_ of {type(self).__name__} is missing.")

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        weights = fitted.pop("module_", None)
        self.__dict__.update(fitted)
        if weights is not None:
            from corollary.engine.building import filled

            self.module_ = filled(self._module, weights, type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what kind of data is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.input == "table"
        tags.input_tags.string = self.input == "text"
        tags.input_tags.sparse = self._takes_sparse()
        tags.input_tags.allow_nan = self._checks.get("ensure_all_finite") == "allow-nan"
        tags.non_deterministic = False
        return tags


def _fit_share(estimator: Estimator, data: Data, number: int, begin: float, run: Run) -> State:
    """Fit in one of several processes; return the state, the record and the message of a divergence."""
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
