"""Run scikit-learn's own test file for a class with ours in its place.

A module here says ``globals().update(borrow("sklearn....test_x", X=OurX, excused={...}))``: the
source of the installed test file is executed once more while the name it imports stands for our
class, and what it defines becomes this module's. A test that ours cannot pass is *excused* by
name, or by ``name[id-pattern]``, with a reason; it must then fail, or the excuse is out of date. Only where
rounding decides whether it fails is the reason :class:`Sometimes`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from typing import Any
from unittest.mock import patch

import pytest

EXCUSED = "__excused__"


class Sometimes(str):
    """A reason for which a test may fail, and on another machine may not."""


def borrow(module: str, excused: dict[str, str] | None = None, **ours: type) -> dict[str, Any]:
    """Return the contents of a test module of scikit-learn, made with our classes."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    with standing_in(module.split(".tests.")[0], ours):
        spec.loader.exec_module(copy)
    contents = {name: value for name, value in vars(copy).items() if not name.startswith("__")}
    for value in contents.values():
        if hasattr(value, "pytestmark"):
            value.pytestmark = [_listed(mark) for mark in value.pytestmark]
    return {**contents, EXCUSED: excused or {}}


@contextmanager
def standing_in(package: str, ours: dict[str, type]) -> Iterator[None]:
    """Let the names of a package, and of its modules that define them, mean our classes."""
    with ExitStack() as stack:
        for name, cls in ours.items():
            home = importlib.import_module(package)
            theirs = getattr(home, name)
            for where in {package, theirs.__module__}:
                stack.enter_context(patch.object(importlib.import_module(where), name, cls))
        yield


def _listed(mark: pytest.Mark) -> pytest.Mark:
    """Return a mark whose parameters are a list: pytest warns of generators."""
    if mark.name != "parametrize" or isinstance(mark.args[1], Collection):
        return mark
    return pytest.mark.parametrize(mark.args[0], list(mark.args[1]), *mark.args[2:], **mark.kwargs).mark


def reason(excused: dict[str, str], test: str) -> str | None:
    """Return why a test is excused, if it is; ``[`` in a pattern is a plain character."""
    bare = test.split("[")[0]
    for pattern, why in excused.items():
        if pattern == bare or fnmatch(test, pattern.replace("[", "[[]")):
            return why
    return None
