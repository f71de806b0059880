r"""Fine-tuning of a network from given weights: a new head, frozen layers, smaller learning rates of lower layers.

The layers of a module are its parts with parameters in the order in which they were made, lists of parts taken apart; the last
one is the head. With layers :math:`1, \dots, L` and a decay :math:`\rho`, layer :math:`\ell` is moved at the rate

.. math:: \eta_\ell = \rho^{L - \ell}\, \eta, \tag{1}

so that what is general, near the inputs, changes least (discriminative rates); frozen layers do not move at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.regulariser import Regulariser

__all__ = ["LayerRates", "freeze", "layers_of", "place"]


def layers_of(module: nn.Module) -> list[list[str]]:
    """Return the names of the parameters of each layer, from the inputs to the head.

    >>> layers_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    [['0.weight', '0.bias'], ['2.weight', '2.bias']]
    """
    while True:  # a module around a single one is that one
        parts = [name for name, part in module.named_children() if any(True for _ in part.parameters())]
        if len(parts) != 1 or [*module.parameters(recurse=False)]:
            return [names for names in _split(module, "", deep=True) if names]
        inner = parts[0]
        return [[f"{inner}.{name}" for name in names] for names in layers_of(module.get_submodule(inner))]


def _split(module: nn.Module, prefix: str, deep: bool = False) -> Iterator[list[str]]:
    """Yield the names of direct parameters, then of each part; of parts with lists of parts in them too, if deep."""
    yield [prefix + name for name, _ in module.named_parameters(recurse=False)]
    for name, part in module.named_children():
        listed = any(isinstance(inner, nn.Sequential | nn.ModuleList) for inner in part.children())
        if isinstance(part, nn.Sequential | nn.ModuleList) or (deep and listed):
            yield from _split(part, f"{prefix}{name}.")
        else:
            yield [f"{prefix}{name}.{inner}" for inner, _ in part.named_parameters()]


def freeze(module: nn.Module, which: int | str | Sequence[str], owner: str) -> None:
    """Take layers out of training: the first so many (-1: all but the head), or by parts or patterns of names."""
    layers, known = layers_of(module), [name for name, _ in module.named_parameters()]
    if isinstance(which, bool):
        raise errors.kind(owner, "freeze must be a number of layers or names", repr(which))
    if isinstance(which, int):
        if not -len(layers) < which < len(layers):
            must = f"freeze must leave some of the {len(layers)} layers to train"
            raise errors.value(owner, must, which, "Use freeze=-1 for all but the head.")
        chosen = {name for names in layers[:which] for name in names} if which else set()
    else:
        patterns = [which] if isinstance(which, str) else list(which)
        found = {p: {n for n in known if n.startswith(p) or fnmatch(n, p)} for p in patterns}
        for pattern, names in found.items():
            if not names:
                raise errors.unknown(owner, "parameter", pattern, known, "A name's beginning is enough.")
        chosen = set().union(*found.values())
        if len(chosen) == len(known):
            raise errors.value(owner, "freeze must leave some parameters to train", "all of them")
    for name, p in module.named_parameters():
        if name in chosen:
            p.requires_grad_(False)


def place(module: nn.Module, weights: Mapping[str, Tensor], owner: str, *, new_head: bool = False) -> None:
    """Put weights into a module; its head stays as it is if it has another shape or is to be new."""
    have, head = module.state_dict(), set(layers_of(module)[-1])
    kept = {name: weight for name, weight in weights.items() if not (new_head and name in head)}
    wrong = [name for name in have if name not in weights or have[name].shape != weights[name].shape]
    if set(wrong) - head or set(weights) - set(have):
        first = sorted(set(wrong) - head or set(weights) - set(have))[0]
        must = "data and parameters must fit the weights to start from, up to the head"
        do = "Keep the sizes of the network and the features of its inputs."
        raise errors.value(owner, must, f"another shape of {first}", do)
    if wrong:  # the whole head, not only the part of another shape
        kept = {name: weight for name, weight in kept.items() if name not in head}
    module.load_state_dict({**have, **kept})


class LayerRates(Regulariser):
    """Move lower layers at lower rates, eq. 1: every update is shortened by its layer's factor.

    That is the same as a rate per layer for each optimiser whose steps are in proportion to its rate, weight decay
    included.

    Parameters
    ----------
    decay : float
        The factor from each layer to the one below it, in (0, 1].
    """

    name = "rate_decay"

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def attach(self, learner: Any) -> None:
        """Find the factor of every weight."""
        super().attach(learner)
        layers = layers_of(learner.module)
        place = {name: len(layers) - 1 - i for i, names in enumerate(layers) for name in names}
        self._factors = []
        named = dict(learner.module.named_parameters())
        for player in learner.players:
            for vector in player.vectors():
                factor = torch.ones_like(vector, requires_grad=False)
                for name, p in named.items():
                    begin = (p.data_ptr() - vector.data_ptr()) // p.element_size()
                    if p is vector:
                        factor.fill_(self.decay ** place[name])
                    elif p.requires_grad and 0 <= begin < vector.numel() and player.flat:
                        factor[begin : begin + p.numel()] = self.decay ** place[name]
                self._factors.append(factor)

    def on_gradient(self, vectors: Sequence[Tensor]) -> None:
        """Remember where the weights are."""
        self._before = [v.detach().clone() for v in vectors]

    @torch.no_grad()
    def after_step(self, vectors: Sequence[Tensor]) -> None:
        """Go only part of the way."""
        for v, before, factor in zip(vectors, self._before, self._factors):
            v.copy_(before + factor * (v - before))
