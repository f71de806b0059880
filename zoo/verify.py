"""Whether the faults are faults: ``python -m zoo.verify [NAME ...] [--seeds N]``.

A case that takes ``mended=True`` is trained with and without its fault. Printed are the seconds, the score on the training and
on the held-out rows (balanced accuracy, or the share of the variance explained) and the held-out loss, first with the fault.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from zoo import CASES


def scores(model: torch.nn.Module, data: Any) -> tuple[float, float]:
    """Return balanced accuracy or R2, and the log-loss or squared error."""
    if not isinstance(data, tuple):
        return float("nan"), float("nan")
    x, y = data
    y = torch.as_tensor(y)
    with torch.no_grad():
        output = model(*x) if isinstance(x, tuple) else model(torch.as_tensor(x))
    output = output[0] if isinstance(output, tuple) else output
    kept = y != -100
    if y.is_floating_point() or output.shape[-1] == 1:
        output = output.reshape(y.shape)
        if set(y.unique().tolist()) <= {0.0, 1.0}:
            return balanced((output > 0).long(), y), F.binary_cross_entropy_with_logits(
                output, y.float()
            ).item()
        error = F.mse_loss(output, y.float()).item()
        return 1 - error / y.float().var().item(), error
    if output.dim() == 3:
        output, y, kept = output.flatten(0, 1), y.flatten(), kept.flatten()
    return balanced(output.argmax(1)[kept], y[kept]), F.cross_entropy(output[kept], y[kept]).item()


def balanced(answer: torch.Tensor, y: torch.Tensor) -> float:
    """Return the mean recall."""
    return float(np.mean([(answer[y == c] == c).float().mean().item() for c in y.unique()]))


def main(arguments: list[str]) -> int:
    """Train the chosen cases and print a line each."""
    parser = argparse.ArgumentParser(prog="python -m zoo.verify", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, by the beginning of their names or of a cause")
    parser.add_argument("--author")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args(arguments)
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"zoo.{path.stem}")
    for item in CASES.values():
        if given.author not in (None, item.author):
            continue
        if given.names and not any(
            n.startswith(tuple(given.names)) for n in (item.name, *(item.causes or ["healthy"]))
        ):
            continue
        mendable = "mended" in inspect.signature(item.make).parameters
        for seed in range(given.seeds):
            line = f"{item.name[:44]:44} {'+'.join(item.causes)[:30]:30}"
            for mended in (False, True)[: 1 + mendable]:
                torch.manual_seed(seed)
                np.random.seed(seed)  # noqa: NPY002  as in examine
                begin = time.process_time()
                built = item.make(seed, mended=True) if mended else item.make(seed)
                seconds = time.process_time() - begin
                line += f" | {seconds:4.1f}s train {scores(built['model'], built['data'])[0]:6.3f}"
                line += " held out {:6.3f} loss {:9.4g}".format(
                    *scores(built["model"], built.get("validation"))
                )
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
