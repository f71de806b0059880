"""What a diagnosis gives back: findings, most probable cause first, and measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corollary.diagnose.pasting import pasted
from corollary.diagnose.rules import RULES

__all__ = ["ALARMS", "Finding", "Report"]

ALARMS = ("warning", "error")
MARKS = {"error": "✗", "warning": "!", "info": "·"}


@dataclass
class Finding:
    """One cause: how sure, what was measured, where, and what to do."""

    cause: str
    severity: str  # "error" and "warning" are alarms, "info" is a number worth knowing
    value: float = float("nan")  # the number that was measured
    where: str = ""  # layer, column, rows, epoch
    said: str = ""  # what was measured, as a sentence
    evidence: dict[str, Any] = field(default_factory=dict)  # numbers and arrays, for the picture
    explains: list[str] = field(default_factory=list)  # causes further down that follow from this one
    repair: dict[str, Any] = field(default_factory=dict)  # settings that would mend it
    explained_by: str = ""  # a cause further up that this one may follow from

    @property
    def alarm(self) -> bool:
        """Whether it says that something is wrong."""
        return self.severity in ALARMS

    @property
    def family(self) -> str:
        """Where in the making of a model the fault lies."""
        return RULES[self.cause].family if self.cause in RULES else "note"

    @property
    def formula(self) -> str:
        """The id of the formula behind it, in ``corollary.formulas``."""
        return RULES[self.cause].formula if self.cause in RULES else ""

    @property
    def advice(self) -> str:
        """What to do."""
        return RULES[self.cause].advice if self.cause in RULES else ""

    @property
    def code(self) -> str:
        """The repair, to be pasted, with what was measured."""
        return pasted(self.cause, self.repair)

    @property
    def link(self) -> str:
        """The formula's place in the formulary, below the documentation."""
        return f"docs/formulary.md#{self.formula}" if self.formula else ""

    @property
    def page(self) -> str:
        """The page about the cause, below the documentation."""
        return f"docs/diagnose/{self.cause}.md" if self.cause in RULES else ""

    @property
    def threshold(self) -> str:
        """When the rule fires, and why there."""
        return RULES[self.cause].fires if self.cause in RULES else ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        names = (
            "cause", "severity", "family", "value", "where", "said", "formula", "link", "page", "advice",
            "code", "threshold", "explains", "explained_by", "evidence", "repair",
        )  # fmt: skip
        return {name: plain(getattr(self, name)) for name in names}

    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        lines = [f"{MARKS[self.severity]} {self.cause}{place}: {self.said}"]
        if self.alarm:
            lines.append(f"    fires: {self.threshold}")
            lines.append(f"    do: {self.advice}")
            lines += [f"        {line}" for line in self.code.splitlines()]
            lines.append(f"    formula: {self.formula} ({self.link}); see {self.page}")
        if self.explained_by and self.alarm:
            lines.append(f"    may follow from: {self.explained_by}")
        if self.explains:
            lines.append(f"    explains: {', '.join(self.explains)}")
        return "\n".join(lines)


@dataclass
class Report:
    """Findings, most probable cause first, and measurements.

    Attributes
    ----------
    findings : list of Finding
        "error" and "warning" are alarms; "info" are notes.
    measurements : dict
        Loss, score, baselines, smoothness, parameters, a table per layer, and more.
    seconds : float
        How long it took.
    """

    findings: list[Finding]
    measurements: dict[str, Any]
    seconds: float = 0.0
    proof: dict[str, Any] | None = None
    subject: Any = field(default=None, repr=False)

    @property
    def alarms(self) -> list[Finding]:
        """The findings that say that something is wrong."""
        return [f for f in self.findings if f.alarm]

    @property
    def uncalled(self) -> bool:
        """Whether the model could not be called, so that only its data were looked at."""
        return any(f.cause == "forward" for f in self.findings)

    @property
    def unmeasured(self) -> list[str]:
        """What was not measured, for want of time or because it cannot be."""
        return [name for f in self.findings if f.cause == "unmeasured" for name in f.where.split(", ")]

    @property
    def healthy(self) -> bool:
        """Whether the model could be called and nothing is wrong."""
        return not self.alarms and not self.uncalled

    @property
    def verdict(self) -> str:
        """The first cause, or that none was found, with what that rests on."""
        if self.alarms:
            return self.alarms[0].cause + ("; the model could not be called" if self.uncalled else "")
        if self.uncalled:
            return "the model could not be called with these data"
        gaps = len(self.unmeasured)
        return "nothing found wrong" + (f" in what was measured; {gaps} checks were not made" if gaps else "")

    def __str__(self) -> str:
        lines = [f"diagnosis: {self.verdict} ({self.seconds:.1f} s)"]
        lines += [str(f) for f in self.findings]
        if self.proof:
            lines += ["proof: trained as it is, and repaired", *_lines(self.proof)]
        numbers = _lines(self.measurements)
        return "\n".join([*lines, "measurements", *numbers]) if numbers else "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {
            "findings": [f.to_dict() for f in self.findings],
            "measurements": plain(self.measurements),
            "seconds": self.seconds,
            "proof": plain(self.proof),
        }

    def to_html(self, path: Any) -> Any:
        """Write a page that a person understands in a minute; return its path."""
        from corollary.diagnose.html import to_html

        return to_html(self, path)

    def plot(self) -> Any:
        """Return a figure: the evidence of the first finding, the history, and the layers."""
        from corollary.diagnose.pictures import plot

        return plot(self)

    def repair(self) -> dict[str, Any]:
        """Return settings that mend what was found, as far as settings can: scaling, rate, weights, start.

        Examples
        --------
        >>> Report([Finding("weight-decay-too-large", "warning", repair={"weight_decay": 0.0})], {}).repair()
        {'weight_decay': 0.0}
        """
        found: dict[str, Any] = {}
        for finding in reversed(self.alarms):  # the first cause has the last word
            if not finding.explained_by:
                found.update(finding.repair)
        if len(found) > 1:
            found.pop("temperature", None)  # of the model as it is, not of one that is trained anew
        return found


def _lines(values: Mapping[str, Any]) -> list[str]:
    """Return numbers and words, one per line; what is no number is left out."""
    shown = {k: v for k, v in values.items() if isinstance(v, (int, float, str, bool)) and v == v}
    return [f"  {k}: {v:.4g}" if isinstance(v, float) else f"  {k}: {v}" for k, v in shown.items()]


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: arrays as lists, what is not finite as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, str, bool, type(None))) else str(value)
