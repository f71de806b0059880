r"""Shortcut connections: residual (add the input) and dense (concatenate the input)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Dense", "Residual"]


class Residual(nn.Module):
    r"""A block plus its input, :math:`x + F(x)`; a linear map of the input where the widths differ."""

    def __init__(self, block: nn.Module, n_in: int | None = None, n_out: int | None = None) -> None:
        super().__init__()
        self.block = block
        self.shortcut: nn.Module = nn.Identity()
        if n_in is not None and n_out is not None and n_in != n_out:
            self.shortcut = nn.Linear(n_in, n_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return self.shortcut(x) + self.block(x)


class Dense(nn.Module):
    r"""A block beside its input, :math:`[x, F(x)]`, concatenated along ``dim``."""

    def __init__(self, block: nn.Module, dim: int = 1) -> None:
        super().__init__()
        self.block = block
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Return the concatenation."""
        return torch.cat([x, self.block(x)], self.dim)
