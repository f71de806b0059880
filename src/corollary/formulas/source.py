"""The source of a claim: its own lines, what it closes over, and the helpers of the formulary that it calls."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

__all__ = ["source"]

HERE = Path(__file__).parent


def source(claim: Callable[..., Any]) -> str:
    """Return the source of a claim with the helpers it calls; the name of a function that is not the formulary's."""
    if isinstance(claim, partial):
        options = [
            *(repr(a) for a in claim.args),
            *(f"{key}={value!r}" for key, value in claim.keywords.items()),
        ]
        return f"{source(claim.func)}\n# with {', '.join(options)}"
    if not _ours(claim):
        return (
            getattr(claim, "__module__", "") + "." + getattr(claim, "__qualname__", claim.__class__.__name__)
        )
    found: dict[FunctionType, str] = {}
    _collect(claim, found)  # type: ignore[arg-type]
    return "\n\n".join(reversed(found.values()))


def _ours(thing: Any) -> bool:
    return isinstance(thing, FunctionType) and Path(thing.__code__.co_filename).parent == HERE


def _collect(function: FunctionType, found: dict[FunctionType, str]) -> None:
    """Add the source of a function, then those of the formulary's functions that it names or closes over."""
    if function in found:
        return
    closed = inspect.getclosurevars(function)
    cells = {name: value for name, value in closed.nonlocals.items() if not callable(value)}
    notes = [f"# with {name} = {value!r}" for name, value in cells.items()]
    found[function] = "\n".join([_own(function.__code__), *notes])
    named = [value for value in closed.globals.values()] + [
        v for v in closed.nonlocals.values() if callable(v)
    ]
    for module in (value for value in closed.globals.values() if inspect.ismodule(value)):
        named += [getattr(module, name) for name in function.__code__.co_names if hasattr(module, name)]
    for other in named:
        if _ours(other):
            _collect(other, found)


def _own(code: CodeType) -> str:
    """Return the lines of one function or lambda."""
    text, functions = _parsed(code.co_filename)
    size = code.co_argcount + code.co_kwonlyargcount
    arguments = code.co_varnames[:size]
    nodes = [
        node
        for node in functions.get(code.co_firstlineno, [])
        if tuple(a.arg for a in [*node.args.args, *node.args.kwonlyargs]) == arguments
    ]
    inside = {position[:1] + position[2:3] for position in code.co_positions()}
    best = max(nodes, key=lambda node: sum(_starts(part) in inside for part in ast.walk(node)))
    lines = text.splitlines()
    if isinstance(best, ast.FunctionDef):
        return textwrap.dedent("\n".join(lines[best.lineno - 1 : best.end_lineno]))
    indent = " " * (len(lines[best.lineno - 1]) - len(lines[best.lineno - 1].lstrip()))
    return textwrap.dedent(indent + (ast.get_source_segment(text, best) or ""))


def _starts(node: ast.AST) -> tuple[int | None, int | None]:
    return getattr(node, "lineno", None), getattr(node, "col_offset", None)


@cache
def _parsed(path: str) -> tuple[str, dict[int, list[ast.Lambda | ast.FunctionDef]]]:
    """Return the text of a file and its functions by their first line."""
    text = Path(path).read_text(encoding="utf-8")
    functions: dict[int, list[ast.Lambda | ast.FunctionDef]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            functions.setdefault(node.lineno, []).append(node)
    return text, functions
