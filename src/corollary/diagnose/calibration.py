r"""Whether stated probabilities are frequencies.

Predictions are put into bins by their confidence; with :math:`c_b` the mean confidence and :math:`a_b` the share of right
answers of bin :math:`b`, which holds the share :math:`p_b` of the rows, the expected calibration error is

.. math:: \mathrm{ECE} = \sum_b p_b\, \lvert a_b - c_b \rvert. \tag{1}

One *temperature* :math:`T` that divides all logits, chosen for the least cross-entropy, mends confidence that is off everywhere
alike and changes no answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from corollary import errors
from corollary.diagnose.calling import alone
from corollary.diagnose.objectives import labels_of
from corollary.diagnose.reading import prepared
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.telling import told

__all__ = ["Calibration", "calibration", "expected_error", "temperature"]


@told
class Calibration(NamedTuple):
    """How well probabilities are frequencies."""

    error: float  # eq. 1
    noise: float  # what eq. 1 is on average for perfect probabilities and as many rows
    largest: float  # over the bins
    overconfidence: float  # mean confidence less the share of right answers
    temperature: float
    error_after: float  # eq. 1 with the logits divided by it
    confidence: np.ndarray  # per bin
    accuracy: np.ndarray  # per bin
    counts: np.ndarray

    def plot(self) -> Any:
        """Return the reliability diagram."""
        from matplotlib.figure import Figure

        from corollary.plot.pictures import ACCENT, SOFT

        figure = Figure(figsize=(3.8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=SOFT, lw=1, ls="--")
        axes.plot(self.confidence, self.accuracy, "o-", color=ACCENT)
        axes.set(xlabel="confidence", ylabel="share of right answers", xlim=(0, 1.02), ylim=(0, 1.02))
        axes.set_title(f"calibration error {self.error:.3f}", fontsize=9)
        return figure


def expected_error(
    confidence: np.ndarray, right: np.ndarray, bins: int = 10
) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
    """Return eq. 1 over bins of equally many rows, what sampling alone gives, and confidence, accuracy and rows of the bins."""
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, len(order))) if len(part)]
    c = np.array([confidence[part].mean() for part in parts])
    a = np.array([right[part].mean() for part in parts])
    n = np.array([len(part) for part in parts])
    share = n / n.sum()
    noise = np.sqrt(2 / np.pi) * np.sqrt(np.maximum(c * (1 - c), 1e-4) / n)
    return float(share @ np.abs(a - c)), float(share @ noise), c, a, n


def temperature(z: Tensor, y: Tensor, task: str) -> float:
    """Return the divisor of the logits with the least cross-entropy."""
    z, y = z.detach().float().cpu(), y.detach().cpu()
    if task == "classes" and z.ndim == 2 and not y.is_floating_point():
        loss = lambda t: float(F.cross_entropy(z / t, y.long(), ignore_index=-100))  # noqa: E731
    elif task == "binary":
        target = y.reshape(-1).float()
        loss = lambda t: float(F.binary_cross_entropy_with_logits(z.reshape(-1) / t, target))  # noqa: E731
    else:
        return 1.0
    found = minimize_scalar(lambda s: loss(np.exp(s)), bounds=(-4.0, 4.0), method="bounded")
    return float(np.exp(found.x))


@alone
def calibration(model: Any, data: Any, *, loss: Any = None, bins: int = 10) -> Calibration:
    """Return how well a classifier's probabilities are frequencies, on data that it was not trained on.

    Parameters
    ----------
    model : nn.Module, fitted estimator, or anything with ``predict_proba``
        It is asked in evaluation mode and not changed.
    data : (X, y)
        Rows that it was not trained on.
    loss : optional
        As in :func:`corollary.diagnose`; it says whether outputs are logits of classes or of yes and no.
    bins : int, default=10
        Of equally many rows.

    Examples
    --------
    >>> import torch
    >>> from corollary.diagnose import calibration
    >>> y = (torch.arange(100) % 10 > 0).long()  # one of ten is wrong
    >>> logits = torch.stack([torch.zeros(100), torch.full((100,), 4.0)], 1)
    >>> found = calibration(torch.nn.Identity(), (logits, y))
    >>> round(found.overconfidence, 3), round(found.temperature, 2), round(found.error_after, 3)
    (0.082, 1.82, 0.0)
    """
    if bins < 2:
        raise errors.value("calibration", "bins must be at least 2", bins)
    z, y, task = _answers(model, data, loss)
    said, true, confidence = labels_of(z, y, task)
    if not len(true):
        raise errors.value("calibration", "data must have labels", "none")
    right = said == true
    error, noise, c, a, n = expected_error(confidence, right, bins)
    t = temperature(z, y, task)
    logits = z if task == "binary" else torch.log(_chances(z))
    after_said, after_true, after = labels_of(logits / t, y, task)
    after_error = expected_error(after, after_said == after_true, bins)[0]
    over = float(confidence.mean() - right.mean())
    return Calibration(error, noise, float(np.abs(a - c).max()), over, t, after_error, c, a, n)


def _chances(z: Tensor) -> Tensor:
    """Return logits as probabilities, above zero; what is probabilities already stays."""
    rows = z.float()
    unit = bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all())
    return (rows if unit else rows.softmax(1)).clamp_min(1e-30)


def _answers(model: Any, data: Any, loss: Any) -> tuple[Tensor, Tensor, str]:
    """Return logits, labels and the task."""
    if not isinstance(model, torch.nn.Module) and getattr(model, "module_", None) is None:
        if not hasattr(model, "predict_proba"):
            raise errors.kind("calibration", "model must give probabilities", type(model).__name__)
        X, y = (data.X, data.y) if hasattr(data, "X") and hasattr(data, "y") else data
        chances = torch.as_tensor(np.asarray(model.predict_proba(X)))
        code = np.searchsorted(np.asarray(model.classes_), np.asarray(y))
        return torch.log(chances.clamp_min(1e-30)), torch.as_tensor(code), "classes"
    subject = prepared(model, data, loss=loss)
    if subject.net is None or subject.error is not None:
        raise errors.value("calibration", "the module must take its inputs", subject.error or "no module")
    if subject.task not in ("classes", "binary"):
        raise errors.value("calibration", "the model must be a classifier", f"the task {subject.task}")
    samples = subject.all_train if isinstance(model, torch.nn.Module) else subject.train
    with torch.no_grad(), quiet(subject.net):
        z = main_output(subject.call(subject.net.eval(), samples)).detach().float().cpu()
    keep = samples.counted
    return (z[keep], samples.y[keep], subject.task) if samples.whole else (z, samples.y, subject.task)
