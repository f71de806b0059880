"""The repair as code that can be pasted: with the columns, rates and weights that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from corollary.diagnose.rules import RULES

__all__ = ["pasted"]

LOSSES = {
    "cross_entropy": "nn.CrossEntropyLoss()",
    "bce_with_logits": "nn.BCEWithLogitsLoss()",
    "mse": "lambda output, target: F.mse_loss(output.reshape(target.shape), target)",
}
GROUPS = "for group in optimizer.param_groups:\n    group[{name!r}] = {value:.3g}"


def _group(name: str) -> Callable[[Any], str]:
    return lambda value: GROUPS.format(name=name, value=value)


def _drawn(kind: str) -> str:
    return (
        "for m in model.modules():\n    if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d)):\n"
        f"        nn.init.{kind}_normal_(m.weight)\n        if m.bias is not None:\n            nn.init.zeros_(m.bias)"
    )


def _weights(value: Mapping[Any, float]) -> str:
    known = {int(k): float(v) for k, v in value.items()}
    listed = ", ".join(f"{known.get(k, 1.0):.3g}" for k in range(max(known) + 1))
    return f"loss = nn.CrossEntropyLoss(weight=torch.tensor([{listed}]))"


CODE: dict[str, Callable[[Any], str]] = {
    "drop_columns": lambda v: f"X = numpy.delete(X, {list(v)}, axis=1)",
    "standardise_inputs": lambda _: (
        "mean, std = X.mean(0), X.std(0) + 1e-8\nX = (X - mean) / std  # the same mean and std for new data"
    ),
    "standardise_targets": lambda _: (
        "centre, scale = y.mean(), y.std()\ny = (y - centre) / scale  # predictions: centre + scale * output"
    ),
    "roll_targets": lambda v: f"y = numpy.roll(y, {-int(v)}, axis=0)" if v else "y = y[::-1]",
    "class_weight": _weights,
    "loss": lambda v: f"loss = {LOSSES.get(v, repr(v))}",
    "estimator": lambda v: f"from sklearn.ensemble import {v}\n\nestimator = {v}(300)",
    "log_input": lambda v: f"loss = nn.PoissonNLLLoss(log_input={v})",
    "targets": lambda v: f"y = {v}",
    "optimizer": lambda _: "optimizer = torch.optim.Adam(model.parameters())",
    "learning_rate": _group("lr"),
    "weight_decay": _group("weight_decay"),
    "dropout": lambda v: f"for m in model.modules():\n    if isinstance(m, nn.Dropout):\n        m.p = {v:g}",
    "batch_size": lambda v: f"loader = DataLoader(data, batch_size={int(v)}, shuffle=True)",
    "clip_norm": lambda v: (
        f"torch.nn.utils.clip_grad_norm_(model.parameters(), {v:g})  # between backward() and step()"
    ),
    "initialise": _drawn,
    "requires_grad": lambda _: (
        "model.requires_grad_(True)\noptimizer = torch.optim.Adam(model.parameters(), lr=1e-3)"
    ),
    "temperature": lambda v: f"logits = logits / {v:.3g}",
    "eval": lambda _: "model.eval()",
}


def pasted(cause: str, repair: Mapping[str, Any]) -> str:
    """Return the code that mends a cause: of the repair that was measured, or what the table of rules says.

    Examples
    --------
    >>> pasted("constant-features", {"drop_columns": [3, 7]})
    'X = numpy.delete(X, [3, 7], axis=1)'
    """
    lines = [CODE[key](value) for key, value in repair.items() if key in CODE]
    general = RULES[cause].code if cause in RULES else ""
    return "\n".join(lines) if lines else general
