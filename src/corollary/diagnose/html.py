"""A diagnosis as a page that a person understands in a minute: the verdict, the first cause, what to paste, the details."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from corollary import __version__
from corollary.diagnose.pictures import layer_rows, picture
from corollary.io import write_text
from corollary.reporting.pages import figure_tag, page, table_html

__all__ = ["to_html"]

STYLE = """
.verdict { font-size: 1.25rem; border-left: 6px solid #15803d; padding: .6rem 1rem; background: #f0fdf4 }
.verdict.error { border-color: #b91c1c; background: #fef2f2 } .verdict.warning { border-color: #b45309; background: #fffbeb }
.mark { display: inline-block; font-size: .78rem; font-weight: 600; padding: .05rem .5rem; border-radius: 9px; color: #fff }
.mark.error { background: #b91c1c } .mark.warning { background: #b45309 } .mark.info { background: #64748b }
.why { color: #475569 } .paste { border-left: 4px solid #2563eb } h3 { margin: 1.6rem 0 .2rem }
details { margin: 1rem 0 } summary { cursor: pointer; font-weight: 600 }
"""
MARKS = {"error": "error", "warning": "warning", "info": "note"}
VERDICTS = {
    "data": "Something is wrong with the data",
    "objective": "The loss does not fit the output",
    "graph": "Something in the loop or the graph is broken",
    "start": "The network starts, or has got, where it cannot learn",
    "architecture": "The architecture is in the way",
    "descent": "The settings of the training are off",
    "outcome": "The training works, but not what came of it",
}


def to_html(report: Any, path: Any) -> Path:
    """Write a report as one HTML file without anything beside it; return its path.

    Parameters
    ----------
    report : Report
        What :func:`corollary.diagnose` returned.
    path : path
        The file to write.
    """
    alarms = report.alarms
    body = [_verdict(report)]
    if alarms:
        body.append(_first(report, alarms[0]))
    if report.proof:
        body.append(_proof(report.proof))
    rest = alarms[1:]
    if rest:
        body.append("<h2>Also found</h2>")
        body += [_short(report, finding) for finding in rest]
    body.append(_details(report))
    body.append(f"<p class=soft>corollary {__version__}, {report.seconds:.1f} s</p>")
    return write_text(path, page("Diagnosis", "".join(body), STYLE))


def _verdict(report: Any) -> str:
    if not report.alarms:
        return _no_alarm(report)
    first = report.alarms[0]
    more = len(report.alarms) - 1
    also = f" {more} further finding{'s' if more > 1 else ''} below." if more else ""
    text = f"{VERDICTS.get(first.family, 'Something is wrong')}: <b>{html.escape(first.cause)}</b>."
    return f"<p class='verdict {first.severity}'>{text}{also}</p>"


def _no_alarm(report: Any) -> str:
    """Return the verdict where no rule has fired: of a healthy training, or of one that could not be looked at."""
    if report.uncalled:
        said = next(f.said for f in report.findings if f.cause == "forward").removeprefix("diagnose: ")
        head = "The model could not be called with these data."
        return f"<p class='verdict error'><b>{head}</b> {html.escape(_sentence(said))}</p>"
    gaps = report.unmeasured
    if not gaps:
        rest = "No measurement is outside what a healthy training shows."
        return f"<p class=verdict><b>Nothing found wrong.</b> {rest}</p>"
    few = ", ".join(gaps[:6]) + (" …" if len(gaps) > 6 else "")
    text = f"<b>Nothing found wrong in what was measured.</b> {len(gaps)} checks were not made: {html.escape(few)}."
    return f"<p class='verdict warning'>{text}</p>"


def _first(report: Any, finding: Any) -> str:
    parts = [
        f"<h2>{html.escape(finding.cause)}{_place(finding)}</h2>",
        f"<p>{html.escape(_sentence(finding.said))}</p>",
    ]
    drawn = picture(report, finding)
    if drawn is not None:
        parts.append(figure_tag(drawn, finding.cause))
    parts += ["<h3>What to do</h3>", f"<p>{html.escape(finding.advice)}</p>"]
    if finding.code:
        parts.append(f"<pre class=paste>{html.escape(finding.code)}</pre>")
    if finding.repair:
        parts.append(
            f"<p class=why>Settings that mend it: <code>{html.escape(_settings(finding.repair))}</code></p>"
        )
    parts.append(_why(finding))
    if finding.explains:
        parts.append(f"<p>It explains what else was found: {html.escape(', '.join(finding.explains))}.</p>")
    return "".join(parts)


def _short(report: Any, finding: Any) -> str:
    mark = f"<span class='mark {finding.severity}'>{MARKS[finding.severity]}</span>"
    parts = [
        f"<h3>{mark} {html.escape(finding.cause)}{_place(finding)}</h3><p>{html.escape(_sentence(finding.said))} "
    ]
    parts.append(f"{html.escape(finding.advice)}</p>")
    if finding.explained_by:
        parts.append(
            f"<p class=why>It may follow from {html.escape(finding.explained_by)}: mend that first.</p>"
        )
    if finding.code:
        parts.append(f"<pre class=paste>{html.escape(finding.code)}</pre>")
    drawn = picture(report, finding)
    inside = figure_tag(drawn, finding.cause) if drawn is not None else ""
    return "".join([*parts, f"<details><summary>Why</summary>{_why(finding)}{inside}</details>"])


def _why(finding: Any) -> str:
    text = f"Measured: {finding.value:.4g}. " if math.isfinite(finding.value) else ""
    said = f"{text}It fires {finding.threshold}." if finding.threshold else text
    return f"<p class=why>{html.escape(said)}{_formula(finding.formula)}</p>"


def _formula(id: str) -> str:
    """Return the formula in words, and where it is checked and shown."""
    if not id:
        return ""
    from corollary.formulas import find

    said = find(id)[0].statement
    return f" Why: {html.escape(said)} (<code>corollary formula {html.escape(id)}</code>)"


def _place(finding: Any) -> str:
    return f" <span class=soft>{html.escape(str(finding.where))}</span>" if finding.where else ""


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") if text else ""


def _settings(repair: dict[str, Any]) -> str:
    from corollary.diagnose.report import plain

    return ", ".join(f"{key} = {_cut(plain(value))}" for key, value in repair.items())


def _cut(value: Any, most: int = 120) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _proof(proof: dict[str, Any]) -> str:
    from corollary.diagnose.report import plain

    told = {**proof, "changed": _settings(proof["changed"])} if proof.get("changed") else proof
    rows = [(key.replace("_", " "), _cut(plain(value))) for key, value in told.items()]
    return "<h2>Proof: trained as it is, and repaired</h2>" + table_html((), rows)


def _details(report: Any) -> str:
    """Return notes, numbers and the table per layer, closed until asked for."""
    parts = []
    notes = [f for f in report.findings if not f.alarm and (report.alarms or f.cause != "forward")]
    if notes:
        rows = [(f.cause, f.where, f.said) for f in notes]
        parts.append(
            "<details open><summary>Worth knowing</summary>"
            + table_html(("what", "where", ""), rows)
            + "</details>"
        )
    numbers = [
        (key, value)
        for key, value in report.measurements.items()
        if isinstance(value, int | float | str | bool) and value == value  # what is no number says nothing
    ]
    if numbers:
        parts.append("<details open><summary>Numbers</summary>" + table_html((), numbers) + "</details>")
    layers = layer_rows(report)
    if layers:
        heads = list(dict.fromkeys(key for row in layers for key in row))
        cells = [[_cell(row.get(head, "")) for head in heads] for row in layers]
        parts.append("<details open><summary>Layers</summary>" + table_html(heads, cells) + "</details>")
    return "<h2>Details</h2>" + "".join(parts) if parts else ""


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    return value if isinstance(value, int | float | str) else _cut(value, 60)
