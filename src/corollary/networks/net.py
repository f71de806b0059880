r"""Any ``torch.nn.Module`` as an estimator: classifier, regressor, or with an objective of your own.

A module :math:`f_w` is trained by descending on the mean loss

.. math:: \frac{1}{n} \sum_i \ell(f_w(x_i), y_i) \tag{1}

over batches. It is given as an instance, a class, or a function that returns one; a class or a function is told the sizes
that it names among its arguments:

``n_inputs``
    Number of features: the last axis of X.
``input_shape``
    Shape of one sample.
``n_outputs``, ``n_classes``
    Number of classes, or of target columns.

A module of several inputs gets them as a tuple of arrays or, by the names of its arguments, as a dict of arrays
(:mod:`corollary.networks.inputs`); it is told ``n_inputs`` and ``input_shape`` of each, as a list or a dict.

What a file holds are the weights, the configuration, and the name of the module's class for people to read. Nothing is
imported by that name: ``load(path, module=...)`` puts the module in.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from corollary import errors, losses
from corollary.base import Data, Transformer, as_tensor
from corollary.engine.batches import Batch, typed
from corollary.engine.objective import Supervised
from corollary.engine.random import seeded
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.export import Linked, Named
from corollary.gradient import GradientClassifier, GradientRegressor, GradientTrained
from corollary.io import FileError
from corollary.networks.criteria import (
    CLASSES,
    LINKS,
    TORCH_LOSSES,
    ClassCriterion,
    Fitting,
    said,
    unreduced,
)
from corollary.networks.inputs import call, is_records, together, zeros
from corollary.networks.modules import build, reads_integers, takes_one, try_out
from corollary.shapes import Count, Dtype, Flag, Maybe, Plain, Text

__all__ = ["BaseNet", "Net", "NetClassifier", "NetRegressor"]

TRIAL = 8  # samples on which a module is tried before it is trained
SIZES = ("n_inputs", "input_shape", "n_outputs", "n_classes")


class BaseNet(GradientTrained):
    """Base of the estimators around a given module: ``module`` and ``options``, its sizes, its outputs."""

    _reads_sources = True
    _takes_several = True
    _checks = {"allow_nd": True, "dtype": "numeric"}
    _fitted = {
        "n_outputs_": Maybe(Count(0)),
        "input_shape_": Plain(),
        "input_names_": Maybe(Plain()),
        "input_kinds_": Maybe(Text()),
        "dtype_": Dtype(),
        "reads_integers_": Flag(),
    }
    _parameter_constraints = {"options": [None, dict], "random_state": ["random_state"]}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep`` those of the module too, as ``module__width``."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.options, dict):
            params |= {f"module__{key}": value for key, value in self.options.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``module__width=8`` is an argument of the module's class."""
        inner = {
            key.removeprefix("module__"): params.pop(key) for key in [*params] if key.startswith("module__")
        }
        if inner:
            params["options"] = {**(params.get("options", self.options) or {}), **inner}
        return super().set_params(**params)

    def _given_parts(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in ("module", "loss", "objective", "link") and not isinstance(value, str | None)
        }

    # --- several inputs ----------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
        records = together(X, type(self).__name__) if self._takes_several else None
        if records is None:
            return super()._read(X, y)
        self.__dict__.pop("columns_", None)
        return records, y

    def _read_again(self, X: Any) -> Any:
        records = together(X, type(self).__name__) if self._takes_several else None
        return super()._read_again(X) if records is None else records

    def _admit(self, X: Any, reset: bool) -> Any:
        names = None if reset else self._names()
        if not (self._takes_several and is_records(X)) and names is None:
            return super()._admit(X, reset)
        if reset:
            return X
        known = None if names is None else dict(zip(names, map(tuple, self.input_shape_)))
        given = {name: kind.shape for name, (kind, *_) in X.dtype.fields.items()} if is_records(X) else None
        if known != given:
            must = f"X must hold the inputs of the fit, {known or tuple(self.input_shape_)}"
            raise errors.value(type(self).__name__, must, given or f"an array of shape {np.shape(X)}")
        return X[names]  # in the order of the fit

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        if not is_records(data.X):
            shape = [int(size) for size in data.X.shape[1:]]
            return {"input_shape_": shape, "input_names_": None, "input_kinds_": None}
        kinds = [data.X.dtype.fields[name][0] for name in data.X.dtype.names]
        return {
            "n_features_in_": len(kinds),
            "feature_names_in_": None,
            "input_shape_": [list(kind.shape) for kind in kinds],
            "input_names_": list(data.X.dtype.names),
            "input_kinds_": "".join(kind.base.kind for kind in kinds),
        }

    def _sizes(self) -> dict[str, Any]:
        n, names = getattr(self, "n_outputs_", None), self._names()
        shapes = [tuple(shape) for shape in (self.input_shape_ if names else [self.input_shape_])]
        widths = [shape[-1] if shape else 1 for shape in shapes]

        def told(parts: list[Any]) -> Any:
            if names is None:
                return parts[0]
            return parts if names[0].isdigit() else dict(zip(names, parts))

        sizes = {"n_inputs": told(widths), "input_shape": told(shapes)}
        return sizes if not n else {**sizes, "n_outputs": n, "n_classes": n}

    def _names(self) -> list[str] | None:
        """Return the names of several inputs, numbers if they have none; None for one input."""
        return getattr(self, "input_names_", None)

    def _call(self, module: nn.Module, *inputs: Tensor) -> Any:
        return call(module, inputs, self._names())

    def _forward_by_name(self) -> Any:
        """Return how the module is called where its inputs go by names."""
        names = self._names()
        return None if names is None or names[0].isdigit() else self._call

    def _zeros(self, n: int, integers: bool) -> tuple[Tensor, ...]:
        """Return n samples of zeros, as the module takes them."""
        shapes = self.input_shape_ if self._names() is not None else [self.input_shape_]
        kinds = getattr(self, "input_kinds_", "i")
        kinds = kinds if integers else kinds.replace("i", "f").replace("u", "f")
        return zeros(n, shapes, kinds, torch.get_default_dtype())

    # --- the module --------------------------------------------------------------------------------------

    def _module(self) -> nn.Module:
        if self.module is None:
            do = "Pass a torch.nn.Module, its class, or a function that makes one."
            raise errors.value(type(self).__name__, "module must be given", "None", do)
        module = build(self.module, dict(self.options or {}), self._sizes(), type(self).__name__)
        if any(is_lazy(p) for p in (*module.parameters(), *module.buffers())):
            self._materialise(module)
        return takes_one(module)

    def _materialise(self, module: nn.Module) -> None:
        """Call a module on samples of zeros, so that its lazy layers learn their widths."""
        training = module.training
        with torch.no_grad():
            self._call(module.eval(), *self._zeros(2, reads_integers(module)))
        module.train(training)

    def _measure(self, data: Data) -> None:
        with seeded(0):
            module = self._module()
        like = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        self.dtype_ = str(like).removeprefix("torch.") if like != torch.bfloat16 else "float32"
        self.reads_integers_ = reads_integers(module)

    def _typed(self, X: Any) -> Any:
        """Return samples in the type of the module's weights, or as int64 where it looks integers up; inputs apart."""
        if is_records(X):
            parts = [np.ascontiguousarray(X[name]) for name in X.dtype.names]
            return tuple(part if part.dtype.kind == "b" else self._typed(part) for part in parts)
        looked_up = self.reads_integers_ and X.dtype.kind in "iu"
        return X.astype(np.int64 if looked_up else self.dtype_, copy=False)

    def _descend(self, objective: Any, batches: Any, **options: Any) -> Any:
        learner = super()._descend(objective, batches, **options)
        first = next(iter(learner.batches.epoch(None, TRIAL, 0)))
        with seeded(0):
            try_out(learner.module, objective, typed(learner.module, first), type(self).__name__)
        return learner

    def _load_attributes(self, fitted: dict[str, Any]) -> None:
        weights, tuned = fitted.pop("module_", None), fitted.pop("pretrained_", False)
        vars(self).update(fitted)
        if weights is not None:
            with seeded(0):
                module = self._module()
            try:
                module.load_state_dict(weights)
            except RuntimeError as error:
                must, do = "module= must be as it was in the fit", "Give it the same arguments."
                got = " ".join(str(error).split())[:200]
                raise FileError(str(errors.value("load", must, got, do))) from error
            self.module_ = module.eval()
            if tuned:
                self._go_on_tuning()

    def _outputs(self, X: Any, link: Any = None) -> np.ndarray:
        """Return what the module says of X, in chunks, through a link."""

        def answer(*inputs: Tensor) -> Tensor:
            out = self._call(self.module_, *inputs)
            return said(out, type(self).__name__) if link is None else link(out)

        return self._forward(self._typed(X), answer, keep=True)

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        names = (
            ["X"] if self._names() is None else [f"X{n}" if n.isdigit() else n for n in self._names() or ()]
        )
        return dict(zip(names, self._zeros(2, self.reads_integers_))), {name: {0: "n"} for name in names}

    def _graph_call(self) -> Any:
        return partial(self._call, self.module_)


class NetClassifier(BaseNet, GradientClassifier):
    """Train any ``torch.nn.Module`` as a classifier.

    Parameters
    ----------
    module : nn.Module, class or function
        The module; a class or function is told ``n_inputs``, ``input_shape``, ``n_outputs`` or ``n_classes`` where it
        names them.
    options : dict, optional
        Further arguments of the class or function; ``module__width=8`` sets one of them.
    loss : str, callable or loss class, default="cross-entropy"
        "cross-entropy" and "margin" for logits (n, n_classes), "nll" for log-probabilities, "binary" for one logit of two
        classes; a loss of torch; or any function of (output, target).
    link : callable, optional
        Turns outputs into probabilities where the loss does not tell how.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : nn.Module
        The trained module.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises (1) of :mod:`corollary.networks.net`. Integers stay integers if the module has an embedding layer, and become
    floats if not.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from corollary import NetClassifier, Training
    >>> X, y = load_iris(return_X_y=True)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> model = NetClassifier(net, training=Training(epochs=60, learning_rate=0.02), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _parameter_constraints = {**BaseNet._parameter_constraints, "class_weight": [None, dict, str]}

    def __init__(
        self,
        module=None,
        *,
        options=None,
        loss="cross-entropy",
        link=None,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.module = module
        self.options = options
        self.loss = loss
        self.link = link
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"module": _small, "training": Training(epochs=60, learning_rate=1e-2)}

    def _kind(self) -> str | None:
        """Return what the outputs mean, by the name of the loss or torch's class."""
        if isinstance(self.loss, str):
            if self.loss not in CLASSES:
                raise errors.unknown(type(self).__name__, "loss", self.loss, CLASSES)
            return self.loss
        cls = self.loss if isinstance(self.loss, type) else type(self.loss)
        return next((name for known, name in TORCH_LOSSES.items() if issubclass(cls, known)), None)

    def _measure(self, data: Data) -> None:
        kind = self._kind()
        self.n_outputs_ = 1 if kind in ("binary", "probability") else len(self.classes_)
        if self.n_outputs_ == 1 and len(self.classes_) > 2:
            do = "Use loss='cross-entropy'."
            raise errors.value(
                type(self).__name__, f"loss={kind!r} takes two classes", len(self.classes_), do
            )
        super()._measure(data)

    def _batches(self, data: Data) -> Any:
        target, weight = self._supervision(data)
        if self.n_outputs_ == 1:
            target = target.to(getattr(torch, self.dtype_))
        return batches_of(self._typed(data.X), target, weight)

    def _aim(self) -> Any:
        criterion = CLASSES[self.loss] if isinstance(self.loss, str) else unreduced(self.loss)
        fitting = Fitting(criterion, self.loss, type(self).__name__)
        return Supervised(ClassCriterion(fitting, len(self.classes_)), forward=self._forward_by_name())

    def _predict_proba(self, X: Any) -> np.ndarray:
        return self._outputs(X, self._link())

    def _link(self) -> Any:
        """Return what makes probabilities of the module's output."""
        link, owner = LINKS[self._kind() or "cross-entropy"], type(self).__name__
        return self.link or (lambda output: link(said(output, owner)))

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        return self._graph_call(), Linked(self._link()), {"classes": self.classes_.tolist()}

    def _differentiable(self) -> tuple[Any, Any]:
        """Return the map to logits: the module's own outputs, or logarithms of what a link makes of them."""
        if self._names() is not None:
            must = "only a module of one input has a gradient to follow"
            raise errors.value(type(self).__name__, must, f"{len(self._names() or ())} inputs")
        call, like = super()._differentiable()
        kind, owner = self._kind(), type(self).__name__

        def scores(x: Tensor) -> Tensor:
            if self.link is not None or kind == "probability":
                p = (self.link or self._link())(call(x))
                return p.clamp_min(torch.finfo(p.dtype).tiny).log()
            z = said(call(x), owner)
            return F.pad(z.reshape(-1, 1), (1, 0)) if kind == "binary" else z

        return scores, like


class NetRegressor(BaseNet, GradientRegressor):
    """Train any ``torch.nn.Module`` as a regressor.

    Parameters
    ----------
    module : nn.Module, class or function
        The module; a class or function is told ``n_inputs``, ``input_shape`` or ``n_outputs`` where it names them.
    options : dict, optional
        Further arguments of the class or function; ``module__width=8`` sets one of them.
    loss : str, callable or loss class, default="squared"
        One of ``corollary.losses.REGRESSION``, a loss of torch, or any function of (output, target).
    link : callable, optional
        Turns outputs into predictions; by default the exponential where the loss is Poisson's of log-rates, else the
        output itself, or the first of several.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : nn.Module
        The trained module; its output, through the link, is the prediction. Targets are not scaled.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises (1) of :mod:`corollary.networks.net`.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from corollary import NetRegressor, Training
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> model = NetRegressor(torch.nn.Linear, options={"in_features": 1, "out_features": 1}, random_state=0)
    >>> model = model.set_params(training__epochs=100, training__learning_rate=0.05).fit(X, 2 * X[:, 0] + 1)
    >>> bool(abs(model.predict([[0.5]])[0] - 2.0) < 0.1)
    True
    """

    _multi_output = True
    _fitted = {name: Maybe(Plain()) for name in ("target_mean_", "target_scale_", "target_ndim_")}

    def __init__(
        self, module=None, *, options=None, loss="squared", link=None, training=None, random_state=None
    ):
        self.module = module
        self.options = options
        self.loss = loss
        self.link = link
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"module": _small, "training": Training(epochs=60, learning_rate=1e-2)}

    def _measure(self, data: Data) -> None:
        self.target_ndim_, self.n_outputs_ = data.y.ndim, 1 if data.y.ndim == 1 else data.y.shape[1]
        super()._measure(data)

    def _batches(self, data: Data) -> Any:
        y = np.asarray(data.y).astype(self.dtype_)
        return batches_of(self._typed(data.X), as_tensor(y), self._as_weight(data.sample_weight))

    def _aim(self) -> Any:
        owner = type(self).__name__
        named = isinstance(self.loss, str)
        criterion = losses.regression(self.loss, owner) if named else unreduced(self.loss)
        return Supervised(Fitting(criterion, self.loss, owner, alike=True), forward=self._forward_by_name())

    def _link(self) -> Any:
        """Return what makes predictions of the module's output."""
        loss = self.loss() if isinstance(self.loss, type) else self.loss
        rates = loss == "poisson" or (isinstance(loss, nn.PoissonNLLLoss) and loss.log_input)
        owner = type(self).__name__
        if self.link is not None or not rates:
            return self.link or partial(said, owner=owner)
        return lambda output: said(output, owner).exp()

    def _predict(self, X: Any) -> np.ndarray:
        y = self._outputs(X, self._link())
        y = y.reshape(len(y)) if self.target_ndim_ == 1 else y
        return y.astype(X.dtype) if getattr(X, "dtype", None) in (np.float32, np.float64) else y

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        call, link, alone = self._graph_call(), self._link(), self.target_ndim_ == 1

        def predict(*inputs: Tensor) -> Tensor:
            y: Tensor = link(call(*inputs))
            return y.flatten() if alone else y

        return predict, Named("prediction"), {}


class Net(Transformer, BaseNet):
    """Train any ``torch.nn.Module`` on an objective of your own.

    Parameters
    ----------
    module : nn.Module, class or function
        The module; a class or function is told ``n_inputs`` or ``input_shape`` where it names them.
    objective : callable
        ``objective(module, batch)`` returns the mean loss over the batch, or that and a dict of metrics for the history;
        ``batch`` has ``inputs`` (a tuple), ``target``, ``weight`` and ``size``.
    options : dict, optional
        Further arguments of the class or function; ``module__width=8`` sets one of them.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and noise.

    Attributes
    ----------
    module_ : nn.Module
        The trained module; ``transform`` returns its output.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss, metrics and seconds of every epoch.

    Notes
    -----
    Minimises the mean of ``objective``.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from corollary import Net, Training
    >>> def reconstruction(module, batch):
    ...     (x,) = batch.inputs
    ...     return (module(x) - x).square().mean()
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = Net(torch.nn.Linear(3, 3), reconstruction, training=Training(epochs=100, learning_rate=0.02))
    >>> bool(np.abs(model.fit(X).transform(X) - X).mean() < 0.1)
    True
    """

    def __init__(self, module=None, objective=None, *, options=None, training=None, random_state=None):
        self.module = module
        self.objective = objective
        self.options = options
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"module": _mirror, "objective": _reconstruction, "training": Training(epochs=3)}

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on X, with targets y if the objective uses any; integers become class indices (int64)."""
        return self._fit(X, y, sample_weight, validation=validation)

    def _check_y(self, X: Any, y: Any) -> Any:
        if y is None:
            return None
        y = np.asarray(y)
        if len(y) != len(X):
            raise errors.value(type(self).__name__, f"y must have one entry per sample ({len(X)})", len(y))
        return y

    def _measure(self, data: Data) -> None:
        if not callable(self.objective):
            do = "Pass a function of (module, batch) that returns the loss."
            raise errors.kind(type(self).__name__, "objective must be a function", repr(self.objective), do)
        super()._measure(data)

    def _batches(self, data: Data) -> Any:
        target = None
        if data.y is not None:
            target = as_tensor(data.y.astype(np.int64 if data.y.dtype.kind in "iub" else self.dtype_))
        return batches_of(self._typed(data.X), target, self._as_weight(data.sample_weight))

    def _aim(self) -> Any:
        return self.objective

    def _transform(self, X: Any) -> np.ndarray:
        return self._outputs(X)

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        call, owner = self._graph_call(), type(self).__name__
        return lambda *inputs: said(call(*inputs), owner), Named("output"), {}

    @property
    def _n_features_out(self) -> int:
        with torch.inference_mode():
            out = self._call(self.module_, *self._zeros(1, self.reads_integers_))
            width = said(out, type(self).__name__).shape
        return int(width[1]) if len(width) > 1 else 1


# --- for the contract tests ------------------------------------------------------------------------------


def _small(n_inputs: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.ReLU(), nn.Linear(8, n_outputs))


def _mirror(n_inputs: int) -> nn.Module:
    return nn.Linear(n_inputs, n_inputs)


def _reconstruction(module: nn.Module, batch: Batch) -> Tensor:
    (x,) = batch.inputs
    return (module(x) - x).square().mean()
