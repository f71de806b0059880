"""How a model was trained, as far as that is known: the optimiser's settings and the history of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from corollary import errors

__all__ = ["OWNER", "Settings", "tidy_history"]

OWNER = "diagnose"


@dataclass
class Settings:
    """How it was trained, as far as that is known."""

    optimizer: str | None = None  # "adam", "sgd", ...
    learning_rate: float | None = None
    weight_decay: float | None = None
    momentum: float = 0.0
    decoupled: bool = False  # whether the decay is AdamW's
    batch_size: int | None = None
    trained: set[int] | None = None  # ids of the parameters that the optimiser holds
    steps: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    cut: float = 1.0  # what a schedule has left of the rate, which is the one before it
    idle: set[int] = field(default_factory=set)  # ids of those whose rate is zero while others' is not
    # of the largest rate, by the ids of those with a smaller one
    shares: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, optimizer: Any, batch_size: Any) -> Settings:
        """Read a torch optimiser."""
        whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
        if batch_size is not None and not (whole and batch_size > 0):
            raise errors.value(OWNER, "batch_size must be a positive number of rows", repr(batch_size))
        if optimizer is None:
            return cls(batch_size=batch_size)
        # as configure_optimizers of Lightning returns it, or with schedules
        if isinstance(optimizer, Mapping):
            optimizer = optimizer.get("optimizer", optimizer)
        while isinstance(optimizer, (tuple, list)) and optimizer:
            optimizer = optimizer[0]
        groups = getattr(optimizer, "param_groups", None)
        if not groups:
            got = optimizer.__name__ if isinstance(optimizer, type) else repr(optimizer)
            do = "Pass the one that trained the model, or leave it out if it is gone."
            raise errors.kind(OWNER, "optimizer must be a torch optimiser", got, do)
        name = type(optimizer).__name__.lower()
        first = groups[0]
        rates = [float(max(g["lr"], g.get("initial_lr", 0.0), g.get("max_lr", 0.0))) for g in groups]
        steps = [int(s["step"]) for s in optimizer.state.values() if "step" in s]
        return cls(
            name,
            max(rates),
            max(float(g.get("weight_decay", 0.0)) for g in groups),
            float(first.get("momentum", 0.0)),
            "adamw" in name or bool(first.get("decoupled_weight_decay", False)),
            batch_size,
            {id(p) for g in groups for p in g["params"]},
            max(steps) if steps else None,
            {k: first[k] for k in ("betas", "eps", "nesterov", "alpha") if k in first},
            max(float(g["lr"]) for g in groups) / max(*rates, 1e-300),
            {id(p) for g, rate in zip(groups, rates) if rate == 0 < max(rates) for p in g["params"]},
            {id(p): r / max(rates) for g, r in zip(groups, rates) if 0 < r < max(rates) for p in g["params"]},
        )


def tidy_history(history: Any) -> dict[str, np.ndarray]:
    """Return the history as arrays by name: from a list of dicts, a dict of lists, a frame or a list of losses."""
    if history is None:
        return {}
    if isinstance(history, str) or not hasattr(history, "__iter__"):
        raise errors.kind(OWNER, 'history must be a dict per epoch with "loss"', repr(history))
    if hasattr(history, "to_dict") and hasattr(history, "columns"):
        history = {c: list(history[c]) for c in history.columns}
    if isinstance(history, Mapping):
        found = {str(k): v for k, v in history.items()}
    else:
        rows = list(history)
        if not rows:
            return {}
        if isinstance(rows[0], Mapping):
            names = {str(k) for row in rows for k in row}
            found = {k: [row.get(k, np.nan) for row in rows] for k in names}
        else:
            found = {"loss": rows}
    tidy = {}
    for key, values in found.items():
        try:
            tidy[key] = np.asarray([float(v) if v is not None else np.nan for v in np.atleast_1d(values)])
        except (TypeError, ValueError):
            continue
    for name, others in (
        ("loss", ("train_loss", "training_loss")),
        ("val_loss", ("valid_loss", "validation_loss", "test_loss")),
    ):
        for other in others:
            if name not in tidy and other in tidy:
                tidy[name] = tidy[other]
    return tidy
