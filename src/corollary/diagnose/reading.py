"""What was given as data, as samples; what was given as a model, as a subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose.samples import IGNORED, Samples
from corollary.diagnose.settings import OWNER, Settings
from corollary.diagnose.subject import Subject, unwrapped

__all__ = ["prepared", "read"]

MOST = 20000  # rows read from a loader


def prepared(
    model: Any,
    data: Any,
    validation: Any = None,
    *,
    loss: Any = None,
    settings: Settings | None = None,
    history: Any = None,
    initial: Mapping[str, Any] | None = None,
    step: Any = None,
) -> Subject:
    """Return the subject of a module, or of an estimator that has one, with data of any form."""
    module, settings = unwrapped(model), settings or Settings()
    if not isinstance(module, nn.Module):
        from corollary.diagnose.estimators import subject_of

        return subject_of(module, data, validation, loss, settings, history, initial, step)
    train, valid = (None if d is None else shifted(module, read(d)) for d in (data, validation))
    assert train is not None
    return Subject(
        module, train, valid, loss=loss, settings=settings, history=history, initial=initial, step=step
    )


def shifted(module: nn.Module, samples: Samples) -> Samples:
    """Return samples of a causal language model of transformers with each label at the step that predicts it."""
    y, ids = samples.y, samples.kwargs.get("input_ids")
    causal = type(module).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    if not causal or not isinstance(y, Tensor) or ids is None or y.shape != ids.shape:
        return samples
    ahead = torch.cat([y[:, 1:], torch.full_like(y[:, :1], IGNORED)], 1)
    return Samples(samples.args, samples.kwargs, ahead, samples.n)


def read(data: Any) -> Samples:
    """Return samples of (X, y), of X, of a loader or of a data set."""
    if isinstance(data, Samples):
        return data
    if hasattr(data, "X") and hasattr(data, "y") and not isinstance(data, (tuple, list, Tensor)):
        return Samples.of(data.X, data.y)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return checked(Samples.of(*data))
    if isinstance(data, (tuple, list)) and len(data) == 1:
        return checked(Samples.of(data[0]))
    if isinstance(data, (Tensor, np.ndarray, Mapping)) or hasattr(data, "to_numpy"):
        return checked(Samples.of(data))
    if isinstance(data, torch.utils.data.Dataset) and hasattr(data, "__len__"):
        data = torch.utils.data.DataLoader(data, batch_size=256)
    if hasattr(data, "__iter__"):
        return joined(data)
    raise errors.kind(OWNER, "data must be (X, y), X, a loader or a data set", type(data).__name__)


def joined(loader: Any) -> Samples:
    """Return the batches of a loader as one."""
    parts, rows = [], 0
    for batch in loader:
        part = read(batch) if not isinstance(batch, Samples) else batch
        parts.append(part)
        rows += part.n
        if rows >= MOST:
            break
    if not parts:
        raise errors.value(
            OWNER,
            "data must have rows",
            "an iterator that is at its end",
            "Pass the loader, not its iterator.",
        )
    first = parts[0]
    cat = lambda values: torch.cat(values) if isinstance(values[0], Tensor) and values[0].ndim else values[0]  # noqa: E731
    args = [cat([p.args[i] for p in parts]) for i in range(len(first.args))]
    kwargs = {k: cat([p.kwargs[k] for p in parts]) for k in first.kwargs}
    return Samples(args, kwargs, None if first.y is None else cat([p.y for p in parts]), rows)


def checked(samples: Samples) -> Samples:
    """Return samples whose inputs and targets have as many rows, or say so."""
    x, y = samples.x, samples.y
    if not samples.n:
        raise errors.value(OWNER, "data must have rows", "none")
    if isinstance(x, Tensor) and isinstance(y, Tensor) and y.ndim and x.ndim:
        sizes = [
            len(t) for t in [*samples.args, *samples.kwargs.values()] if isinstance(t, Tensor) and t.ndim
        ]
        if len(y) not in sizes:
            got = f"X {tuple(x.shape)} and y {tuple(y.shape)}"
            raise errors.value(
                OWNER, "X and y must have as many rows", got, "Pass (X, y); several inputs go into a tuple X."
            )
    return samples
