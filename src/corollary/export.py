"""ONNX export: a fitted network as one graph from the inputs of ``predict`` to its outputs.

The graph holds everything between the two: standardisation of the input, the network, the softmax, the scale of the targets.
Only what is no arithmetic stays outside (reading files, splitting texts into tokens); the labels are in the metadata.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import missing, value
from corollary.io import check_directory

__all__ = ["Classes", "Linked", "Named", "Numbers", "Program", "Several", "write_onnx"]

OPSET = 18  # the first with maxima over places


@dataclass
class Program:
    """What a graph is made from."""

    call: Callable[..., Any]
    inputs: Mapping[str, Tensor]  # examples, by name
    free: Mapping[str, Mapping[int, str]]  # the axes that may have any length, by name
    outputs: tuple[str, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)  # JSON, kept as metadata
    # Whether by torch.export rather than by tracing, which fixes the sizes of gathers and scatters.
    captured: bool = False


class Classes(nn.Module):
    """Logits to probabilities and the number of the most probable class."""

    names = ("probabilities", "label")

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        return logits.softmax(self.axis), logits.argmax(self.axis)


class Linked(nn.Module):
    """Outputs to probabilities by a link, and the number of the most probable class."""

    names = ("probabilities", "label")

    def __init__(self, link: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.link = link

    def forward(self, output: Any) -> tuple[Tensor, Tensor]:
        """Return both."""
        p = self.link(output)
        return p, p.argmax(1)


class Several(nn.Module):
    """Logits to the probability of each label by itself, and which are more probable than not."""

    names = ("probabilities", "labels")

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        return logits.sigmoid(), logits > 0


class Numbers(nn.Module):
    """Outputs of a network to targets: the exponential of rates, shift and scale, the shape."""

    names = ("prediction",)

    def __init__(self, mean: Any, scale: Any, like: Tensor, *, rates: bool, alone: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean).to(like))
        self.register_buffer("scale", torch.as_tensor(scale).to(like))
        self.rates, self.alone = rates, alone

    def forward(self, output: Tensor) -> tuple[Tensor]:
        """Return the targets."""
        y = (output.exp() if self.rates else output) * self.scale + self.mean
        return (y[:, 0] if self.alone else y,)


class Named(nn.Module):
    """The output as it is, under a name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.names = (name,)

    def forward(self, output: Tensor) -> tuple[Tensor]:
        """Return it."""
        return (output,)


class _Whole(nn.Module):
    """A call and what follows it; the modules are registered, so that their weights are in the graph."""

    def __init__(self, call: Callable[..., Any], parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.call = call

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(*inputs)


def write_onnx(program: Program, path: str | os.PathLike[str], owner: str, *parts: nn.Module) -> Path:
    """Write a program as an ONNX file, with its weights in it.

    Parameters
    ----------
    program : Program
        What to write.
    path : path
        The file.
    owner : str
        The model's name, for messages.
    *parts : torch.nn.Module
        What the call is made of.
    """
    try:
        import onnx
    except ImportError:
        raise missing(owner, "onnx", "onnx") from None
    path = Path(path)
    check_directory(path)
    net = _Whole(program.call, list(parts)).eval()
    fresh = path.with_name(f".{path.name}.fresh")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of the exporter, about what it will become
            (_capture if program.captured else _trace)(net, program, os.fspath(fresh))
        model = onnx.load(fresh)
        for key, note in {"model": owner, **program.notes}.items():
            model.metadata_props.add(
                key=key, value=note if isinstance(note, str) else json.dumps(note, default=str)
            )
        onnx.save(model, fresh)
        os.replace(fresh, path)
    except (RuntimeError, NotImplementedError, torch.onnx.OnnxExporterError) as error:
        got = " ".join(str(error).split())[:200]
        do = "Use save and corollary.load, or torch.export on module_."
        raise value(owner, "the network must be made of operations that ONNX has", got, do) from error
    finally:
        fresh.unlink(missing_ok=True)
    return path


def _trace(net: nn.Module, program: Program, path: str) -> None:
    torch.onnx.export(
        net,
        tuple(program.inputs.values()),
        path,
        dynamo=False,
        opset_version=OPSET,
        input_names=list(program.inputs),
        output_names=list(program.outputs),
        dynamic_axes={name: dict(axes) for name, axes in program.free.items()},
    )


def _capture(net: nn.Module, program: Program, path: str) -> None:
    sizes = {name: torch.export.Dim(name) for axes in program.free.values() for name in axes.values()}
    free = tuple(
        {axis: sizes[size] for axis, size in program.free.get(name, {}).items()} for name in program.inputs
    )
    torch.onnx.export(
        net,
        tuple(program.inputs.values()),
        path,
        dynamo=True,
        opset_version=OPSET,
        input_names=list(program.inputs),
        output_names=list(program.outputs),
        dynamic_shapes={"inputs": free},
        external_data=False,
        verbose=False,
    )
