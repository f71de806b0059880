"""The contract: what an estimator is. Read this first.

An estimator is a scikit-learn estimator whose ``fit`` is a loop over a state. A public
method checks, converts and calls one private hook; a concrete class writes the hooks and
its mathematics, nothing else:

``_learner(data)``
    Return the :class:`~corollary.engine.learner.Learner` that fits the data.
``_adopt(learner)``
    Copy what was learned into fitted attributes (names that end in ``_``).
``_predict``, ``_transform``, ``_log_prob``, ``_sample``, ...
    One per role. A hook gets checked data and returns an array or a tensor.

Roles are small mixins, freely combined. Progress, history, early stopping, checkpoints,
exact resume, devices and processes come from the engine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, RegressorMixin, TransformerMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from corollary import errors, io
from corollary.data import kinds
from corollary.data.indices import check_index, check_pairs
from corollary.engine.learner import Learner, State
from corollary.engine.loop import EarlyStopping, Event, Journal, drive
from corollary.engine.run import Run, current
from corollary.engine.training import Training

__all__ = [
    "Classifier",
    "Clusterer",
    "Completer",
    "Data",
    "Density",
    "Estimator",
    "Generator",
    "GradientTrained",
    "LanguageModel",
    "Memory",
    "Recommender",
    "Regressor",
    "Transformer",
    "as_tensor",
    "roles",
]

# Parameters that say how long to go on, not what is fitted: a checkpoint may be resumed with others.
BUDGET = {"epochs", "max_iter", "max_sweeps", "n_jobs", "tol", "verbose"}
ENGINE_ATTRIBUTES = (
    "_skl_callbacks",
    "_callback_fit_ctx",
    "_skl_callbacks_to_teardown",
    "_parent_callback_ctx",
)

_BORDERS: dict[str, Any] = {
    "graph": kinds.check_graph,
    "image": kinds.check_images,
    "ratings": kinds.check_ratings,
    "sequence": kinds.check_sequences,
    "set": kinds.check_sets,
    "text": kinds.check_texts,
}


class Data(NamedTuple):
    """What a learner is made from: checked, in the library's own form."""

    X: Any
    y: Any = None
    sample_weight: np.ndarray | None = None
    extra: Any = None


class Estimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Base of every model: ``fit`` in terms of ``_learner`` and ``_adopt``."""

    input: ClassVar[str] = "table"
    # How scikit-learn (tables) or `corollary.data.kinds` (the rest) shall check X.
    _checks: ClassVar[Mapping[str, Any]] = {}

    # --- hooks -------------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Learner:
        raise NotImplementedError

    def _adopt(self, learner: Any) -> None:
        raise NotImplementedError

    def _stopping(self) -> EarlyStopping | None:
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
        X : data of the estimator's input kind
            What to learn from.
        y : array-like, optional
            Targets, where the model has any.

        Returns
        -------
        self
        """
        self._fit(X, y)
        return self

    @with_callbacks  # type: ignore[untyped-decorator]
    def _fit(self, X: Any, y: Any = None, sample_weight: Any = None, extra: Any = None) -> Self:
        with self._unharmed():
            self._validate_params()
            data = self._data(X, y, sample_weight, extra)
            run = current()
            learner = self._learner(data)
            try:
                journal = self._drive(learner, data, run)
            except errors.Diverged:
                self._adopt(learner)
                raise
            self._adopt(learner)
            self.history_ = journal.rows
            run.record(self)
        return self

    def _drive(self, learner: Learner, data: Data, run: Run) -> Journal:
        if run.launches:
            result = run.launch(partial(_fit_share, self, data, run.settings()))
            learner.restore(result["learner"])
            return Journal(**result["journal"])
        total = self._total(learner)
        return drive(
            learner,
            run,
            owner=type(self).__name__,
            fingerprint=self._fingerprint(data) if run.directory is not None else None,
            stopping=self._stopping(),
            total=total,
            notify=self._notifier(data, total) if hasattr(self, "_skl_callbacks") else None,
        )

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Put everything back as it was if the block fails; a diverged fit keeps its last finite state."""
        before = dict(vars(self))
        try:
            yield
        except errors.Diverged:
            raise
        except BaseException:
            engine = {key: value for key, value in vars(self).items() if key in ENGINE_ATTRIBUTES}
            self.__dict__ = before | engine
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
        """Return what must be equal for a checkpoint to be resumed."""
        params = {
            key: repr(value)
            for key, value in self.get_params().items()
            if key.split("__")[-1] not in BUDGET and not hasattr(value, "get_params")
        }
        return {"model": type(self).__name__, **params, "data": digest(data)}

    # --- checking ----------------------------------------------------------------------------------------

    def _data(self, X: Any, y: Any, sample_weight: Any, extra: Any = None) -> Data:
        X = self._check(X, reset=True)
        y = self._check_y(X, y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return Data(X, y, sample_weight, extra)

    def _check(self, X: Any, reset: bool) -> Any:
        """Return X in the canonical form of the estimator's input kind."""
        if self.input == "table":
            options = {"dtype": (np.float64, np.float32), **self._checks}
            if not reset:  # a single row may be asked about
                options.pop("ensure_min_samples", None)
            return validate_data(self, _to_numpy(X), reset=reset, **options)
        return _BORDERS[self.input](X, type(self).__name__, **self._checks)

    def _check_y(self, X: Any, y: Any) -> Any:
        return None

    def _query(self, X: Any) -> Any:
        """Return checked data for a method that needs a fitted model."""
        check_is_fitted(self)
        return self._check(X, reset=False)

    # --- randomness --------------------------------------------------------------------------------------

    def _seed(self) -> int:
        """Return a seed from ``random_state``; the global generators are never touched."""
        state = getattr(self, "random_state", None)
        if state is None:
            return int(np.random.default_rng().integers(2**31 - 1))
        return int(check_random_state(state).randint(2**31 - 1))

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self._seed())

    # --- files -------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the model as one safetensors file; :func:`corollary.load` reads it."""
        return io.save(self, path)

    def _saved_attributes(self) -> dict[str, Any]:
        left_out = {*self.get_params(deep=False), *ENGINE_ATTRIBUTES, "_sklearn_output_config"}
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        weights = fitted.pop("module_", None)
        self.__dict__.update(fitted)
        if weights is not None:
            self.module_ = self._module()
            self.module_.load_state_dict(weights)
            self.module_.eval()

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what kind of data is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.input == "table"
        tags.input_tags.string = self.input == "text"
        tags.input_tags.sparse = bool(self._checks.get("accept_sparse", False))
        tags.input_tags.allow_nan = self._checks.get("ensure_all_finite") == "allow-nan"
        tags.non_deterministic = False
        return tags


def _fit_share(estimator: Estimator, data: Data, settings: dict[str, Any]) -> State:
    """Fit in one of several processes; what the first returns is the result."""
    with Run(**settings) as run:
        learner = estimator._learner(data)
        journal = estimator._drive(learner, data, run)
        return {"learner": learner.state(), "journal": vars(journal)}


def _bare_copy(estimator: Any) -> Any:
    model = object.__new__(type(estimator))
    vars(model).update({key: value for key, value in vars(estimator).items() if key not in ENGINE_ATTRIBUTES})
    return model


# --- gradient training -----------------------------------------------------------------------------------


class GradientTrained(Estimator):
    """Base of the estimators that descend: ``training`` is theirs to take.

    A subclass stores ``training`` and ``random_state``, may override ``_training_defaults``,
    builds ``_module()`` from fitted sizes, and returns ``self._descend(...)`` from ``_learner``.
    """

    _training_defaults: ClassVar[Mapping[str, Any]] = {}
    training: Training | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``training__epochs=5`` works even where ``training`` is None."""
        if self.training is None and any(key.startswith("training__") for key in params):
            self.training = Training()
        super().set_params(**params)
        return self

    def _plan(self) -> Training:
        training = self.training if self.training is not None else Training()
        if not isinstance(training, Training):
            raise errors.kind(type(self).__name__, "training must be a Training", repr(training))
        return training.resolved(**self._training_defaults)

    def _stopping(self) -> EarlyStopping | None:
        return self._plan().stopping()

    def _total(self, learner: Any) -> int | None:
        return int(learner.training.epochs)

    def _descend(
        self,
        objective: Any,
        *tensors: Any,
        stratify: Any = None,
        gradient: Any = None,
        batches: Any = None,
        validate: Any = None,
    ) -> Any:
        """Return the gradient learner for rows of tensors, with a validation part if stopping asks for one.

        ``batches`` are other batches than rows; ``validate(module)`` measures where the data bring their own
        validation part.
        """
        from corollary.engine.sgd import CHUNK, GradientLearner, TensorBatches, evaluate, seeded

        plan, seed, run = self._plan(), self._seed(), current()
        with seeded(seed):
            module = self._module()
        chunk = plan.batch_size  # what pads its batches is evaluated in batches of that size too
        if batches is None:
            batches = TensorBatches(*(t if t is None else t.to(run.device) for t in tensors))
            chunk = CHUNK
        if validate is not None:
            validate = partial(validate, module)
        elif plan.early_stopping:
            kept, held = _hold_out(
                len(batches), plan.validation_fraction, seed, stratify, type(self).__name__
            )
            validate = partial(evaluate, objective, module, batches.take(held), chunk)
            batches = batches.take(kept)
        return GradientLearner(
            module,
            objective,
            batches,
            plan,
            run,
            seed=seed,
            owner=type(self).__name__,
            validate=validate,
            gradient=gradient,
        )

    def _adopt(self, learner: Any) -> None:
        self.module_ = learner.result()
        self.n_iter_ = learner.epoch

    def _forward(self, X: np.ndarray, call: Any = None, chunk: int = 4096) -> np.ndarray:
        """Return the module's output for rows of X, in chunks, as an array."""
        import torch

        call = call or self.module_
        like = next(self.module_.parameters())
        parts = []
        with torch.inference_mode():
            for begin in range(0, len(X), chunk):
                rows = as_tensor(X[begin : begin + chunk]).to(device=like.device, dtype=like.dtype)
                parts.append(call(rows).cpu())
        return torch.cat(parts).numpy()


def _hold_out(n: int, fraction: float, seed: int, stratify: Any, owner: str) -> tuple[Any, Any]:
    import torch
    from sklearn.model_selection import train_test_split

    if n < 2 or int(n * fraction) < 1:
        raise errors.value(owner, f"early_stopping needs at least {int(1 / fraction) + 1} samples", n)
    if stratify is not None and np.bincount(stratify).min() < 2:
        stratify = None
    kept, held = train_test_split(np.arange(n), test_size=fraction, random_state=seed, stratify=stratify)
    return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(held))


# --- roles -----------------------------------------------------------------------------------------------


class Classifier(ClassifierMixin):  # type: ignore[misc]
    """Predicts one of several classes. Hook: ``_predict_proba(X)`` of shape (n, n_classes)."""

    role = "classifier"
    classes_: np.ndarray

    def _check_y(self, X: Any, y: Any) -> Any:
        y = _target(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise errors.value(
                type(self).__name__, "y must have at least two classes", f"the one class {self.classes_[0]!r}"
            )
        return codes

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, in the order of ``classes_``."""
        return _as_given(X, self._predict_proba(self._query(X)))  # type: ignore[attr-defined]

    def predict(self, X: Any) -> Any:
        """Return the most probable class."""
        winners = np.asarray(self._predict_proba(self._query(X))).argmax(axis=-1)  # type: ignore[attr-defined]
        return _as_given(X, self.classes_[winners])


class Regressor(RegressorMixin):  # type: ignore[misc]
    """Predicts numbers. Hook: ``_predict(X)`` of the shape of y."""

    role = "regressor"
    _multi_output: ClassVar[bool] = False

    def _check_y(self, X: Any, y: Any) -> Any:
        y = _target(self, X, y, multi_output=self._multi_output)
        return y.astype(X.dtype if getattr(X, "dtype", None) in (np.float32, np.float64) else np.float64)

    def predict(self, X: Any) -> Any:
        """Return the predicted targets."""
        return _as_given(X, self._predict(self._query(X)))  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn whether several targets at once are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._multi_output
        return tags


class Transformer(TransformerMixin):  # type: ignore[misc]
    """Maps data to features. Hooks: ``_transform(X)`` and, where it can be undone, ``_inverse_transform(Z)``."""

    role = "transformer"

    def transform(self, X: Any) -> Any:
        """Return the features of X."""
        return _as_given(X, self._transform(self._query(X)))  # type: ignore[attr-defined]

    @available_if(lambda self: hasattr(self, "_inverse_transform"))  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Any:
        """Return the data that these features stand for."""
        check_is_fitted(self)
        Z = check_array(_to_numpy(X), dtype=(np.float64, np.float32), input_name="X")
        return _as_given(X, self._inverse_transform(Z))  # type: ignore[attr-defined]


class Density:
    """Has a density. Hook: ``_log_prob(X)`` of shape (n,)."""

    role = "density"

    def score_samples(self, X: Any) -> Any:
        """Return the log-density of each sample, in nats."""
        return _as_given(X, self._log_prob(self._query(X)))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density per sample, in nats."""
        return float(np.mean(np.asarray(self._log_prob(self._query(X)), dtype=np.float64)))  # type: ignore[attr-defined]


class Generator:
    """Draws new samples. Hook: ``_sample(n, rng)``."""

    role = "generator"

    def sample(self, n_samples: int = 1) -> Any:
        """Draw new samples; with an integer ``random_state`` every call draws the same ones."""
        check_is_fitted(self)
        check_count(self, "n_samples", n_samples)
        return self._sample(n_samples, self._rng())  # type: ignore[attr-defined]


class Clusterer(ClusterMixin):  # type: ignore[misc]
    """Groups samples. Hook: ``_predict(X)`` of shape (n,)."""

    role = "clusterer"

    def predict(self, X: Any) -> Any:
        """Return the group of each sample."""
        return _as_given(X, self._predict(self._query(X)))  # type: ignore[attr-defined]

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit and return the group of each sample."""
        return self.fit(X, y).predict(X)  # type: ignore[attr-defined]


class Completer:
    """Fills in missing entries. Hook: ``_predict(users, items)`` of shape (n,)."""

    role = "completer"

    def predict(self, pairs: Any) -> np.ndarray:
        """Return the value of each (row, column) pair; ``pairs`` has shape (n, 2)."""
        check_is_fitted(self)
        rows, columns = check_pairs(pairs, self.shape_, type(self).__name__)  # type: ignore[attr-defined]
        return np.asarray(self._predict(rows, columns))  # type: ignore[attr-defined]

    def complete(self, X: Any) -> np.ndarray:
        """Return X, of the fitted shape, as a full array: known entries kept, the others predicted."""
        known = self._query(X)  # type: ignore[attr-defined]
        n, m = known.shape
        full = np.empty((n, m), known.dtype)
        every = np.arange(m)
        for i in range(n):
            full[i] = self._predict(np.full(m, i), every)  # type: ignore[attr-defined]
        full[np.repeat(np.arange(n), np.diff(known.indptr)), known.indices] = known.data
        return full

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative root-mean-square error on the stored entries of a ratings matrix."""
        held = self._query(X).tocoo()  # type: ignore[attr-defined]
        errors_ = held.data - self.predict(np.column_stack([held.row, held.col]))
        return -float(np.sqrt(np.mean(errors_.astype(np.float64) ** 2)))


class Recommender:
    """Ranks items for users. Hook: ``_recommend(users, n, seen)``, ``seen`` a CSR matrix of rows to leave out or None."""

    role = "recommender"

    def recommend(self, users: Any, n: int = 10, *, seen: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``n`` best items for each user, and their scores, best first.

        Parameters
        ----------
        users : array-like of int
            Row numbers of the fitted ratings.
        n : int, default=10
            How many items each.
        seen : sparse matrix, optional
            Ratings, with one row per entry of ``users``, whose items are left out.
        """
        check_is_fitted(self)
        check_count(self, "n", n)
        users = check_index(users, self.shape_[0], "user", type(self).__name__)  # type: ignore[attr-defined]
        items, scores = self._recommend(users, n, seen)  # type: ignore[attr-defined]
        return items, scores


class LanguageModel:
    """Continues text.

    Hooks: ``_token_log_probs(X, stride)``, one array of log-probabilities per text, and
    ``_generate(prompts, max_new_tokens, seed, temperature, top_k, top_p)``, a list of continued prompts.
    """

    role = "language-model"

    def perplexity(self, X: Any, *, stride: int | None = None) -> float:
        """Return exp of the mean negative log-probability (in nats) of a token, over all texts together.

        Parameters
        ----------
        X : list of str
            The texts.
        stride : int, optional
            How far windows over a long text move; smaller lets each token see more before it, and costs more.
            Half the context by default.
        """
        texts = self._query(X)  # type: ignore[attr-defined]
        if stride is not None:
            check_count(self, "stride", stride)
        logs = np.concatenate(self._token_log_probs(texts, stride))  # type: ignore[attr-defined]
        return float(np.exp(-logs.mean(dtype=np.float64)))

    def generate(
        self,
        prompts: Any = "",
        *,
        max_new_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Any:
        """Continue prompts; with an integer ``random_state`` every call draws the same.

        Parameters
        ----------
        prompts : str, list of str, or list of sequences of int, default=""
            What to continue; prompts of different lengths go together.
        max_new_tokens : int, default=100
            The most tokens to add to each; a text may end sooner.
        temperature : float, default=1.0
            Above 1 more varied, below 1 more predictable; 0 always takes the most probable token.
        top_k : int, optional
            Draw only among the k most probable tokens.
        top_p : float, optional
            Draw only among the fewest most probable tokens that together have this probability.

        Returns
        -------
        str or list
            The prompt with its continuation, or a list of those for a list of prompts.
        """
        check_is_fitted(self)
        name = type(self).__name__
        check_count(self, "max_new_tokens", max_new_tokens)
        if not temperature >= 0:
            raise errors.value(name, "temperature must not be negative", temperature)
        if top_k is not None:
            check_count(self, "top_k", top_k)
        if top_p is not None and not 0 < top_p <= 1:
            raise errors.value(name, "top_p must lie in (0, 1]", top_p)
        alone = isinstance(prompts, str)
        listed = [prompts] if alone else list(prompts)
        if not listed:
            raise errors.value(name, "there must be at least one prompt", "an empty list")
        how = {"temperature": float(temperature), "top_k": top_k, "top_p": top_p}
        made = self._generate(listed, max_new_tokens, self._seed(), **how)  # type: ignore[attr-defined]
        return made[0] if alone else made


class Memory:
    """Recalls stored patterns. Hook: ``_recall(X)`` of the shape of X."""

    role = "memory"

    def recall(self, X: Any) -> Any:
        """Return, for each cue, the pattern its recall ends in."""
        return _as_given(X, self._recall(self._query(X)))  # type: ignore[attr-defined]


def roles(cls: type) -> tuple[str, ...]:
    """Return what a class can do, from its mixins."""
    return tuple(dict.fromkeys(base.__dict__["role"] for base in cls.__mro__ if "role" in base.__dict__))


# --- small things that every border needs ----------------------------------------------------------------


def check_count(owner: Any, name: str, value: Any, low: int = 1) -> None:
    """Raise unless ``value`` is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise errors.value(type(owner).__name__, f"{name} must be an integer of at least {low}", repr(value))


def as_tensor(array: Any) -> Any:
    """Return a tensor over an array's memory; read-only memory is copied."""
    import torch

    if isinstance(array, torch.Tensor):
        return array
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def digest(value: Any) -> str:
    """Return a short hash of data, from at most 65536 evenly spaced entries of each array."""
    return f"{_crc(value, 0):08x}"


def _crc(value: Any, seed: int) -> int:
    if value is None:
        return seed
    if isinstance(value, str):
        return zlib.crc32(value[:65536].encode(), seed)
    if isinstance(value, list | tuple):
        seed = zlib.crc32(str(len(value)).encode(), seed)
        for part in value[:: max(1, len(value) // 1024)]:
            seed = _crc(part, seed)
        return seed
    if hasattr(value, "indptr"):
        return _crc((value.data, value.indices, value.indptr), seed)
    if hasattr(value, "edge_index"):
        return _crc([np.asarray(value.x), np.asarray(value.edge_index)], seed)
    array = np.asarray(value)
    seed = zlib.crc32(f"{array.dtype}{array.shape}".encode(), seed)
    flat = array.reshape(-1)[:: max(1, array.size // 65536)]
    return zlib.crc32(
        np.ascontiguousarray(flat).tobytes() if array.dtype != object else repr(flat).encode(), seed
    )


def _target(estimator: Any, X: Any, y: Any, multi_output: bool = False) -> np.ndarray:
    name = type(estimator).__name__
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    y = np.asarray(_to_numpy(y))
    y = y if multi_output and y.ndim == 2 else column_or_1d(y, warn=True)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(y) != rows:
        raise errors.value(name, f"y must have one entry per sample ({rows})", len(y))
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise errors.value(name, "y must be finite", "NaN or infinity in Input y", "Leave those rows out.")
    return np.asarray(y)


def _to_numpy(X: Any) -> Any:
    """Return torch tensors as arrays; everything else unchanged."""
    return X.detach().cpu().numpy() if type(X).__module__ == "torch" else X


def _as_given(X: Any, result: Any) -> Any:
    """Return the result as X came: torch for torch, on its device and in its floating type."""
    X = X.edge_index if hasattr(X, "edge_index") else X  # a graph of tensors gets tensors
    result = result if hasattr(result, "dtype") else np.asarray(result)
    if getattr(result.dtype, "kind", "f") in "OUS":  # labels that torch has no type for
        return result
    if type(X).__module__ != "torch":
        return result if isinstance(result, np.ndarray) else np.asarray(result)
    import torch

    out = torch.as_tensor(np.asarray(result), device=X.device)
    return out.to(X.dtype) if out.is_floating_point() and X.is_floating_point() else out
