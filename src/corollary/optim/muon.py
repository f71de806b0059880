r"""Muon for whole networks: torch's Muon moves the matrices, AdamW everything else.

Muon steps along the orthogonal factor of the momentum of a matrix, which vectors (biases, gains) and kernels do not have. As is
usual, those are moved by AdamW at the same learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from corollary import errors
from corollary.optim.groups import called

__all__ = ["Muon"]


class Muon(Optimizer):
    """Torch's Muon for the matrices among the parameters, torch's AdamW for the others.

    Parameters
    ----------
    params : iterable of Tensor or dict
        What is optimised; some of it must be matrices.
    lr : float, default=1e-3
        Step size of both.
    weight_decay : float, default=0.1
        Share by which a step of size one would shrink the parameters.
    momentum : float, default=0.95
        Of the matrices.
    nesterov : bool, default=True
        Whether the momentum looks ahead.
    ns_steps : int, default=5
        Iterations that make the momentum orthogonal; more are more exact.
    ns_coefficients, eps : optional
        Of those iterations; torch's by default.
    adjust_lr_fn : {None, "original", "match_rms_adamw"}, default=None
        How the step depends on the shape of a matrix, as in torch; with "match_rms_adamw" rates that suit AdamW suit both.
    betas : (float, float), default=(0.9, 0.999)
        Of AdamW.

    Notes
    -----
    Where all parameters are matrices it is ``torch.optim.Muon``.

    References
    ----------
    .. [1] K. Jordan et al. (2024). Muon: an optimizer for hidden layers in neural networks. kellerjordan.github.io/posts/muon.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(3, 2)
    >>> [type(part).__name__ for part in Muon(net.parameters(), lr=0.01).parts]
    ['Muon', 'AdamW']
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] | None = None,
        eps: float | None = None,
        adjust_lr_fn: str | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        given = list(params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        split: tuple[list[Any], list[Any]] = ([], [])
        for group in groups:
            held = group["params"]
            held = [held] if isinstance(held, Tensor) else list(held)
            for part, wanted in zip(split, (True, False)):
                chosen = [p for p in held if (p.ndim == 2) == wanted]
                if chosen:
                    part.append({**group, "params": chosen})
        if not split[0]:
            shapes = ", ".join(str(tuple(p.shape)) for group in split[1] for p in group["params"]) or "none"
            raise errors.value("Muon", "some parameters must be matrices", shapes, "Use AdamW.")
        common = {"lr": lr, "weight_decay": weight_decay}
        own = {"momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        told = {"ns_coefficients": ns_coefficients, "eps": eps}
        own |= {name: value for name, value in told.items() if value is not None}  # type: ignore[dict-item]
        self.parts: list[Optimizer] = [torch.optim.Muon(split[0], **common, **own)]  # type: ignore[arg-type]
        if split[1]:
            self.parts.append(torch.optim.AdamW(split[1], betas=betas, **common))

    param_groups = property(lambda self: [*chain(*(part.param_groups for part in self.parts))])  # type: ignore[assignment]
    state = property(lambda self: {p: s for part in self.parts for p, s in part.state.items()})  # type: ignore[assignment]
    defaults = property(lambda self: self.parts[0].defaults)  # type: ignore[assignment]

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """Take a step of both."""
        loss = called(closure)
        for part in self.parts:
            part.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters: matrices to one, others to the other."""
        must, do = "parameters are given at the start", "Make a new optimiser of all of them."
        raise errors.value("Muon", must, "a further group", do)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both as that of one optimiser: parameters are counted through."""
        state: dict[int, Any] = {}
        groups, first = [], 0
        for part in self.parts:
            kept = part.state_dict()
            state |= {first + i: value for i, value in kept["state"].items()}
            groups += [{**g, "params": [first + i for i in g["params"]]} for g in kept["param_groups"]]
            first += sum(len(group["params"]) for group in kept["param_groups"])
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the states of both."""
        groups, first = list(state_dict["param_groups"]), 0
        for part in self.parts:
            own, groups = groups[: len(part.param_groups)], groups[len(part.param_groups) :]
            count = sum(len(group["params"]) for group in own)
            inside = {i - first: v for i, v in state_dict["state"].items() if first <= i < first + count}
            shifted = [{**group, "params": [i - first for i in group["params"]]} for group in own]
            part.load_state_dict({"state": inside, "param_groups": shifted})
            first += count

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs."""
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy."""
        self.__dict__.update(state)

    def __repr__(self) -> str:
        """Return both."""
        return f"Muon({', '.join(map(repr, self.parts))})"
