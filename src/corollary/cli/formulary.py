"""``corollary check`` and ``corollary formula``: the formulas of the notes, run and shown."""

from __future__ import annotations

from typing import Any

from corollary import errors, formulas
from corollary.cli.console import say, show_json, table
from corollary.formulas.rendering import plain_text

__all__ = ["check_formulas", "show_formula"]


def check_formulas(names: list[str], wrong: bool, seed: int, as_json: bool) -> int:
    """Run the checks and print them; return 0 only if all is as it must be."""
    import torch

    found = formulas.find(*names)
    known = [*formulas.TOPICS, *(f.id for f in formulas.all_formulas())]
    for name in names:
        if name not in known:
            raise errors.unknown("check", "topic or formula", name, known)
    torch.set_num_threads(1)  # the checks are many and small
    rows = [_row(formula, wrong, seed) for formula in found]
    bad = [row for row in rows if row["holds"] == wrong]
    if as_json:
        show_json(rows)
        return int(bool(bad))
    table(
        ("formula", "topic", "as it must be", "deviation", "tolerance", "seconds"),
        [
            (
                r["id"],
                r["topic"],
                "no" if r in bad else "yes",
                f"{r['deviation']:.2g}",
                f"{r['tolerance']:.2g}",
                f"{r['seconds']:.3f}",
            )
            for r in rows
        ],
    )
    _totals(rows, bad, wrong)
    return int(bool(bad))


def _row(formula: Any, wrong: bool, seed: int) -> dict[str, Any]:
    """Return the outcome; with ``wrong``, that of the wrong form which comes closest to holding."""
    outcomes = formula.check_wrong(seed) if wrong else [formula.check(seed)]
    closest = min(outcomes, key=lambda o: o.deviation / max(o.tolerance, 1e-300))
    return {
        "id": formula.id,
        "topic": formula.topic,
        "holds": closest.holds,
        "deviation": closest.deviation if closest.deviation < 1e308 else 1e308,
        "tolerance": closest.tolerance,
        "seconds": round(sum(o.seconds for o in outcomes), 4),
    }


def _totals(rows: list[dict[str, Any]], bad: list[dict[str, Any]], wrong: bool) -> None:
    say("")
    per_topic = []
    for topic in dict.fromkeys(row["topic"] for row in rows):
        mine = [row for row in rows if row["topic"] == topic]
        good = sum(row not in bad for row in mine)
        per_topic.append((formulas.TOPICS.get(topic, topic), f"{good} of {len(mine)}"))
    verb = "fail as they must" if wrong else "hold"
    table(("topic", verb), per_topic)
    seconds = sum(row["seconds"] for row in rows)
    say(f"\n{len(rows) - len(bad)} of {len(rows)} {verb}, in {seconds:.1f} s.")


def show_formula(id: str, as_json: bool) -> None:
    """Print one formula."""
    found = {f.id: f for f in formulas.all_formulas()}
    if id not in found:
        raise errors.unknown("formula", "formula", id, found)
    f = found[id]
    errata = [{"number": e.number, "printed": e.printed, "correction": e.correction} for e in f.errata]
    facts = {
        "id": f.id,
        "topic": f.topic,
        "statement": f.statement,
        "latex": f.latex,
        "plain": plain_text(f.latex),
        "where": f.where,
        "errata": errata,
        "systems": [*f.systems],
        "functions": [*f.functions],
        "outcome": vars(f.check()),
    }
    if as_json:
        show_json(facts)
        return
    say(f"{f.id} ({formulas.TOPICS[f.topic]})\n\n{f.statement}\n\n  {facts['plain']}\n\nLaTeX: {f.latex}")
    say(f"In the notes: {f.where}")
    for e in errata:
        say(f"Misprint {e['number']}: printed {e['printed']}; right is {e['correction']}")
    if f.systems or f.functions:
        say(f"Behind: {', '.join([*f.systems, *f.functions])}")
    outcome = f.check()
    say(f"Checked: deviation {outcome.deviation:.2g}, tolerance {outcome.tolerance:.2g}")
