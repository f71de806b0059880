r"""One network for several tasks: a shared trunk, and a head for each.

With features :math:`h = f_\theta(x)` of the trunk and heads :math:`g_1, \dots, g_T`, every task :math:`t` has targets for
the samples :math:`S_t`, which need not be all, and

.. math:: \mathcal L = \sum_{t=1}^{T} \frac{w_t}{|S_t|} \sum_{i \in S_t} \ell_t\bigl(g_t(f_\theta(x_i)), y_{it}\bigr), \tag{1}

where :math:`\ell_t` is the cross-entropy for classes, and half the squared error of standardised targets for numbers. A task
with few targets borrows features from the others: they must serve all tasks, which regularises each.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from corollary import errors
from corollary.base import Data, as_tensor
from corollary.engine.batches import Batch
from corollary.engine.objective import Supervised
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.gradient import GradientTrained
from corollary.losses import weighted_mean
from corollary.networks.modules import reads_integers
from corollary.networks.net import BaseNet
from corollary.regularisation.multitask_network import Tasks, Trunk, features
from corollary.regularisation.multitask_targets import ALONE, TargetTable, as_table, kind_of, plain, present
from corollary.roles.targets import given_target
from corollary.shapes import Array, Count, Labels, List, Maybe, Text
from corollary.validation import as_given, finite, to_numpy

__all__ = ["MultiTaskNet", "Tasks", "Trunk"]

KINDS = ("classification", "regression")


class MultiTaskNet(BaseNet):
    """Learn several targets with one network: a shared trunk, and a head for each task.

    Tasks are classes or numbers, in any mixture, and a sample may have targets for some tasks only. A task with few targets
    gains from related ones with many.

    Parameters
    ----------
    module : nn.Module, class or function, optional
        The trunk; its output, flattened, are the features that the heads read. A class or function is told ``n_inputs`` or
        ``input_shape`` where it names them. By default a perceptron of ``hidden_layer_sizes``.
    options : dict, optional
        Further arguments of the class or function; ``module__width=8`` sets one of them.
    hidden_layer_sizes : sequence of int, default=(100,)
        Widths of the trunk, where no module is given. Wider fit more.
    head_layer_sizes : sequence of int, default=()
        Widths of hidden layers of each head. More let the tasks differ more.
    tasks : dict, optional
        Maps names of tasks to "classification" or "regression", where the targets do not tell: by default words, Booleans
        and whole numbers of at most 100 values (20 if they come as floats) are classes.
    task_weight : dict, optional
        Maps names of tasks to their weight in the loss, 1 by default.
    training : Training, optional
        Settings of gradient descent. By default at most 100 epochs in batches of 32; of 500 rows or more in memory a
        tenth is held out, and ten epochs without a smaller loss on it end the fit.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    tasks_ : ndarray of shape (n_tasks,)
        The names of the tasks.
    classes_ : list
        For each task its labels, or None if it has numbers.
    target_mean_, target_scale_ : ndarray of shape (n_tasks,)
        What turns outputs into numbers; 0 and 1 for classes.
    module_ : Trunk
        The trained network: ``module_.trunk`` and ``module_.heads``.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss, the part of each task in it (``loss_NAME``), and seconds of every epoch.

    Notes
    -----
    Minimises (1). Targets are given as a dict or a frame by task, as columns of an array, or alone; NaN and None mean none.
    ``predict`` answers in the form in which the targets were given. ``fine_tune`` to other tasks keeps the trunk and has new
    heads; its ``freeze=-1`` trains the heads alone.

    References
    ----------
    .. [1] R. Caruana (1997). Multitask learning. Machine Learning 28, 41-75.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from corollary import MultiTaskNet, Training
    >>> X, y = load_digits(return_X_y=True)
    >>> targets = {"digit": y, "odd": y % 2 == 1, "ink": X.sum(1)}
    >>> model = MultiTaskNet(training=Training(epochs=20), random_state=0).fit(X / 16, targets)
    >>> {name: bool(score > 0.9) for name, score in model.scores(X / 16, targets).items()}
    {'digit': True, 'odd': True, 'ink': True}
    """

    role = "multi-task"
    _takes_several = False
    _fitted = {
        "n_samples_": Maybe(Count()),
        "tasks_": Labels(),
        "classes_": List(Maybe(Labels()), "tasks_"),
        "target_mean_": Array("tasks_"),
        "target_scale_": Array("tasks_"),
        "form_": Text(("array", "frame", "mapping", "vector")),
    }
    _parameter_constraints = {
        **BaseNet._parameter_constraints,
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "head_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "tasks": [None, dict],
        "task_weight": [None, dict],
    }

    def __init__(
        self,
        module=None,
        *,
        options=None,
        hidden_layer_sizes=(100,),
        head_layer_sizes=(),
        tasks=None,
        task_weight=None,
        training=None,
        random_state=None,
    ):
        self.module = module
        self.options = options
        self.hidden_layer_sizes = hidden_layer_sizes
        self.head_layer_sizes = head_layer_sizes
        self.tasks = tasks
        self.task_weight = task_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"hidden_layer_sizes": (8,), "training": Training(epochs=20, learning_rate=1e-2)}

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on X with targets y: a dict or a frame by task, columns of an array, or one target; NaN and None mean none.

        ``validation`` is a tuple (X, y) on which the loss is measured after every epoch.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def partial_fit(self, X, y=None, sample_weight=None):
        """Train for one more epoch on these data, with the tasks, labels and scales of the first call."""
        return super().partial_fit(X, y, None, sample_weight)

    @property
    def _training_defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self._perceptron_defaults()

    # --- targets -----------------------------------------------------------------------------------------

    def _check_y(self, X: Any, y: Any) -> np.ndarray:
        """Learn tasks, labels and scales; return the targets as one array (n, sum of outputs)."""
        table = as_table(y, len(X), type(self).__name__)
        names = [*table.columns]
        for option, given in (("tasks", self.tasks), ("task_weight", self.task_weight)):
            for name in given or {}:
                if str(name) not in names:
                    raise errors.unknown(type(self).__name__, f"task (in {option})", str(name), names)
        self.tasks_, self.form_ = np.array(names), table.form
        self.classes_, means, scales = [], [], []
        for name, column in table.columns.items():
            labels, mean, scale = self._learned(name, column)
            self.classes_.append(labels)
            means.append(mean)
            scales.append(scale)
        self.target_mean_, self.target_scale_ = np.array(means), np.array(scales)
        return self._encoded(table)

    def _learned(self, name: str, column: np.ndarray) -> tuple[np.ndarray | None, float, float]:
        """Return labels, mean and scale of a task."""
        owner, there = type(self).__name__, present(column)
        if not there.any():
            raise errors.value(owner, f"task {name!r} must have targets", "none", "Leave the task out.")
        values = plain(column, there)
        kind = {str(key): kind for key, kind in (self.tasks or {}).items()}.get(name) or kind_of(values)
        if kind not in KINDS:
            raise errors.unknown(owner, "kind of task", str(kind), KINDS)
        if kind == "classification":
            labels = np.unique(values)
            if len(labels) < 2:
                must = f"task {name!r} must have at least two classes"
                raise errors.value(owner, must, f"one class, {labels.tolist()[0]!r}")
            return labels, 0.0, 1.0
        numbers = self._numbers(name, values)
        return None, float(numbers.mean()), float(numbers.std()) or 1.0

    def _numbers(self, name: str, values: np.ndarray) -> np.ndarray:
        owner = type(self).__name__
        try:
            found = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            must, do = f"task {name!r} must hold numbers", f"Or tasks={{{name!r}: 'classification'}}."
            raise errors.value(owner, must, repr(values.tolist()[0]), do) from error
        if not np.isfinite(found).all():
            raise errors.value(owner, f"task {name!r} must be finite", "infinity in y")
        return found

    def _check_tasks(self, table: TargetTable) -> None:
        if [*table.columns] != self.tasks_.tolist():
            must = f"y must have the tasks {self.tasks_.tolist()}"
            raise errors.value(type(self).__name__, must, [*table.columns])

    def _encoded(self, table: TargetTable) -> np.ndarray:
        """Return indicators and standardised numbers side by side, NaN where there is no target."""
        parts, owner = [], type(self).__name__
        self._check_tasks(table)
        for t, (name, column) in enumerate(table.columns.items()):
            there = present(column)
            part = np.full((len(column), self._outputs_of(t)), np.nan)
            values, labels = plain(column, there), self.classes_[t]
            if labels is None:
                part[there, 0] = (self._numbers(name, values) - self.target_mean_[t]) / self.target_scale_[t]
            elif there.any():
                strange = np.setdiff1d(values, labels)
                if len(strange):
                    must = f"labels of task {name!r} must be among its {len(labels)} classes"
                    raise errors.value(owner, must, repr(strange.tolist()[0]))
                part[there] = np.eye(len(labels))[np.searchsorted(labels, values)]
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def _known_y(self, X: Any, y: Any) -> np.ndarray:
        return self._encoded(as_table(y, len(X), type(self).__name__))

    def _outputs_of(self, t: int) -> int:
        labels = self.classes_[t]
        return 1 if labels is None else len(labels)

    def _head_knows(self) -> Any:
        return [
            [name, None if c is None else c.tolist()] for name, c in zip(self.tasks_.tolist(), self.classes_)
        ]

    def _tuned(self, module: Any, plan: Training) -> Training:
        """Start from weights of other tasks with the trunk alone."""
        known = getattr(self, "tuning_", {}).get("classes")
        if known is not None and known != self._head_knows():
            trunk = {name: w for name, w in self.pretrained_.items() if not name.startswith("heads.")}
            heads = {name: w for name, w in module.state_dict().items() if name.startswith("heads.")}
            self.pretrained_ = {**trunk, **heads}
        return super()._tuned(module, plan)

    # --- learning ----------------------------------------------------------------------------------------

    def _measure(self, data: Data) -> None:
        self.n_samples_ = len(data.X) if isinstance(data.X, np.ndarray) else 0
        if self.module is not None:
            super()._measure(data)
            return
        self.input_shape_ = [int(size) for size in data.X.shape[1:]]
        self.dtype_ = str(data.X.dtype) if data.X.dtype in (np.float32, np.float64) else "float32"
        self.reads_integers_ = False

    def _module(self) -> Trunk:
        outputs = [self._outputs_of(t) for t in range(len(self.tasks_))]
        hidden = [int(width) for width in np.atleast_1d(self.head_layer_sizes)]
        if self.module is None:
            widths = [
                int(np.prod(self.input_shape_)),
                *np.atleast_1d(self.hidden_layer_sizes).astype(int).tolist(),
            ]
            made = Trunk(_perceptron(widths), widths[-1], hidden, outputs)
            for layer in made.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)  # as our perceptrons
            return made.to(getattr(torch, self.dtype_))
        trunk = super()._module()
        like = next((p for p in trunk.parameters() if p.is_floating_point()), torch.zeros(()))
        kind = torch.int64 if reads_integers(trunk) else like.dtype
        trunk.eval()
        with torch.no_grad():
            width = features(trunk, torch.zeros((1, *self.input_shape_), dtype=kind)).shape[1]
        return Trunk(trunk.train(), width, hidden, outputs).to(like.dtype)

    def _batches(self, data: Data) -> Any:
        target = as_tensor(data.y.astype(self.dtype_))
        return batches_of(self._typed(data.X), target, self._as_weight(data.sample_weight))

    def _scales(self, data: Data) -> list[float]:
        """Return w_t n / |S_t| of each task, with the weights of samples."""
        weights = {str(name): weight for name, weight in (self.task_weight or {}).items()}
        first = np.cumsum([0, *(self._outputs_of(t) for t in range(len(self.tasks_) - 1))])
        there, found = ~np.isnan(data.y[:, first]), []
        sample = np.ones(len(there)) if data.sample_weight is None else data.sample_weight
        for t, name in enumerate(self.tasks_.tolist()):
            weight = weights.get(name, 1.0)
            if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= weight < np.inf:
                must = f"task_weight[{name!r}] must be a number of at least 0"
                raise errors.value(type(self).__name__, must, repr(weight))
            found.append(float(weight * sample.sum() / max(sample[there[:, t]].sum(), np.finfo(float).tiny)))
        return found

    def _learner(self, data: Data) -> Any:
        self._ready(data)
        outputs = [self._outputs_of(t) for t in range(len(self.tasks_))]
        criterion = Tasks(outputs, self._scales(data))

        def metrics(output: Tensor, batch: Batch) -> dict[str, Tensor]:
            parts = criterion.parts(output.detach(), batch.target)
            return {
                f"loss_{name}": weighted_mean(part, batch.weight)
                for name, part in zip(self.tasks_.tolist(), parts)
            }

        validation = None if data.validation is None else self._batches(data.validation)
        aim = Supervised(criterion, metrics=metrics if len(outputs) > 1 else None)
        return self._descend(aim, self._batches(data), validation=validation)

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        if self.module is not None:
            super()._load_attributes(fitted)
        else:  # the trunk is ours, so that what a file asks for is compared with what it holds before it is built
            GradientTrained._load_attributes(self, fitted)

    # --- answers -----------------------------------------------------------------------------------------

    def predict(self, X):
        """Return the most probable label or the number of each task, in the form in which the targets were given."""
        check_is_fitted(self)
        found = {}
        for t, (name, z) in enumerate(self._said(X).items()):
            labels = self.classes_[t]
            if labels is None:
                found[name] = as_given(X, z[:, 0] * self.target_scale_[t] + self.target_mean_[t])
            else:
                found[name] = as_given(X, labels[z.argmax(1)])
        return self._formed(found, X)

    def predict_proba(self, X):
        """Return, by task, the probability of each of its labels (n, n_classes); of one task alone, the array."""
        check_is_fitted(self)
        found = {
            name: as_given(X, _softmax(z))
            for t, (name, z) in enumerate(self._said(X).items())
            if self.classes_[t] is not None
        }
        if not found:
            must, do = "predict_proba needs a task with classes", "Use predict."
            raise errors.value(type(self).__name__, must, "numbers only", do)
        return found[ALONE] if self.form_ == "vector" else found

    def features(self, X):
        """Return the features that all heads read."""
        return as_given(X, finite(self, self._answer(self._features, X)))

    def _features(self, X: Any) -> np.ndarray:
        return self._forward(self._typed(X), lambda x: features(self.module_.trunk, x), keep=True)

    def scores(self, X, y=None):
        """Return, by task, the accuracy or the coefficient of determination over the samples that have a target.

        A label that the fit has not seen counts as missed.
        """
        from sklearn.metrics import r2_score

        check_is_fitted(self)
        wanted = as_table(given_target(self, X, y), _rows(X), type(self).__name__)
        self._check_tasks(wanted)
        said, found = self._said(X), {}
        for t, (name, column) in enumerate(wanted.columns.items()):
            there, labels = present(column), self.classes_[t]
            if not there.any():
                continue
            z, values = said[name][there], plain(column, there)
            if labels is None:
                guess = z[:, 0] * self.target_scale_[t] + self.target_mean_[t]
                found[name] = float(r2_score(self._numbers(name, values), guess))
            else:
                found[name] = float(np.mean(labels[z.argmax(1)] == values))
        return found

    def score(self, X, y=None):
        """Return the mean of ``scores``."""
        return float(np.mean([*self.scores(X, y).values()]))

    def _said(self, X: Any) -> dict[str, np.ndarray]:
        """Return the outputs of each head."""
        z = finite(self, self._answer(self._outputs, X)).astype(np.float64)
        cuts = np.cumsum([self._outputs_of(t) for t in range(len(self.tasks_))])[:-1]
        return dict(zip(self.tasks_.tolist(), np.split(z, cuts, axis=1)))

    def _formed(self, found: dict[str, Any], X: Any) -> Any:
        """Return answers by task in the form of the fit's targets."""
        if self.form_ == "vector":
            return found[ALONE]
        if self.form_ == "mapping":
            return found
        if self.form_ == "frame":
            import pandas as pd

            return pd.DataFrame({name: np.asarray(to_numpy(part)) for name, part in found.items()})
        parts = [*found.values()]
        return (
            torch.stack([p.to(parts[-1]) for p in parts], 1)
            if isinstance(parts[0], Tensor)
            else np.column_stack(parts)
        )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that there must be targets, and that there may be several."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in zip(widths, widths[1:]):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers)


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _rows(X: Any) -> int:
    X = getattr(X, "X", X)
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
