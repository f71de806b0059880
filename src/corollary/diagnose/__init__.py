"""What is wrong with my training, and what do I change? For any torch module and any fitted estimator.

The package is itself the function: ``corollary.diagnose(model, data)`` returns a report of findings, the most probable cause
first, and of measurements. The instruments it uses can be called alone: ``corollary.diagnose.summary(module, input)``.

A diagnosis goes in four steps: ``subject`` turns what was given into something that can be asked, and ``trace`` looks at it
layer by layer; the checks that ``examine`` lists by family measure, a small file for each kind of fault; ``rules`` is the
table of causes with what fires each; ``ranking`` puts the causes of other causes first. ``report`` is what comes back.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# Public name -> the file that holds it. Imported when first used.
_WHERE = {
    "CAUSES": "rules",
    "FAMILIES": "rules",
    "Finding": "report",
    "Report": "report",
    "Watch": "watch",
    "calibration": "calibration",
    "gradient_noise": "noise",
    "hessian": "curvature",
    "loss_surface": "surface",
    "memorisation": "memorisation",
    "sharpness": "curvature",
    "summary": "summary",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605


def _imported(name: str) -> ModuleType:
    """Return a file of the package; what it imports may draw random numbers, of which the caller's are none."""
    state = random.getstate()
    try:
        return import_module(f"corollary.diagnose.{name}")
    finally:
        random.setstate(state)


class _Diagnose(ModuleType):
    """The package as a function; a file with the name of a function of its own does not hide that."""

    def __call__(self, model: Any, data: Any, validation: Any = None, **options: Any) -> Any:
        """Find out what is wrong; see :func:`corollary.diagnose.examine.diagnose`."""
        return _imported("examine").diagnose(model, data, validation, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if _WHERE.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(_imported(_WHERE[name]), name)
    raise AttributeError(f"module 'corollary.diagnose' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


sys.modules[__name__].__class__ = _Diagnose
