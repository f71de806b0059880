"""``corollary check`` and ``corollary formula``: the formulas of the notes, run and shown."""

from __future__ import annotations

import re
from textwrap import indent
from typing import Any

import numpy as np

from corollary import errors, formulas
from corollary.cli.console import say, show_json, table
from corollary.formulas.rendering import plain_text
from corollary.formulas.source import source

__all__ = ["check_formulas", "show_formulas"]

SMALL = 24  # arrays of more entries are shown by their shape


def check_formulas(names: list[str], wrong: bool, seed: int, as_json: bool) -> int:
    """Run the checks and print them; return 0 only if all is as it must be."""
    import torch

    _check_known("check", names)
    found = formulas.find(*names)
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


def show_formulas(names: list[str], seed: int, as_json: bool) -> None:
    """Print a formula with its source and the numbers of one instance; for a topic, its list of formulas."""
    _check_known("formula", names)
    if len(names) == 1 and names[0] in formulas.TOPICS:
        found = formulas.find(*names)
        if as_json:
            show_json([{"id": f.id, "statement": f.statement, "latex": f.latex} for f in found])
            return
        say(f"{formulas.TOPICS[names[0]]}\n")
        table(("formula", "statement"), [(f.id, f.statement) for f in found])
        say("\n`corollary formula ID` shows one of them.")
        return
    shown = [_facts(f, seed) for f in formulas.find(*names)]
    if as_json:
        show_json(shown[0] if len(shown) == 1 else shown)
        return
    for k, facts in enumerate(shown):
        if k:
            say("\n" + "-" * 80 + "\n")
        _print(facts)


def _check_known(owner: str, names: list[str]) -> None:
    known = [*formulas.TOPICS, *(f.id for f in formulas.all_formulas())]
    for name in names:
        if name not in known:
            raise errors.unknown(owner, "topic or formula", name, known)


def _facts(f: formulas.Formula, seed: int) -> dict[str, Any]:
    """Return all there is to know about a formula, as plain values."""
    wrong = [(f"as printed, {e.number} in {e.where}", e.form) for e in f.errata]
    if f.slip is not None:
        wrong.append(("a slip", f.slip))
    right = _run(f, seed, f.right)
    return {
        "id": f.id,
        "topic": f.topic,
        "statement": f.statement,
        "latex": f.latex,
        "plain": plain_text(f.latex),
        "where": f.where,
        "errata": [{key: value for key, value in vars(e).items() if key != "form"} for e in f.errata],
        "systems": [*f.systems],
        "functions": [*f.functions],
        "seed": seed,
        "inputs": {name: plain(value) for name, value in f.instance(seed).inputs.items()},
        "right": {"source": source(f.right), **right},
        "wrong": [{"name": name, "source": source(form), **_run(f, seed, form)} for name, form in wrong],
    }


def _run(f: formulas.Formula, seed: int, claim: Any) -> dict[str, Any]:
    one = f.instance(seed, claim)
    outcome = one.outcome
    relation, left, right = _worst_entry(*outcome.sides) if outcome.sides else ("", None, None)
    return {
        "result": plain(one.result),
        "compared": {"left": plain(left), "relation": relation, "right": plain(right)},
        "holds": outcome.holds,
        "deviation": outcome.deviation if outcome.deviation < 1e308 else 1e308,
        "tolerance": outcome.tolerance,
    }


def _worst_entry(relation: str, left: np.ndarray, right: np.ndarray) -> tuple[str, Any, Any]:
    """Return both sides of a comparison, of large arrays the entry that is furthest off."""
    shape = np.broadcast_shapes(left.shape, right.shape) if left.size == 1 or right.size == 1 else left.shape
    if relation == "in":
        return (
            relation,
            left if left.size <= SMALL else left.flat[np.abs(left - right.mean()).argmax()],
            right,
        )
    if max(left.size, right.size) <= SMALL or (
        left.shape != right.shape and left.size != 1 and right.size != 1
    ):
        return relation, left, right
    left, right = np.broadcast_to(left, shape), np.broadcast_to(right, shape)
    worst = (np.abs(left - right) if relation == "=" else left - right).argmax()
    return relation, left.flat[worst], right.flat[worst]


def _print(facts: dict[str, Any]) -> None:
    say(f"{facts['id']} ({formulas.TOPICS[facts['topic']]})\n\n{facts['statement']}\n\n  {facts['plain']}\n")
    say(f"LaTeX: {facts['latex']}\nIn the notes: {facts['where']}")
    for e in facts["errata"]:
        printed, correction, counterexample = (
            _words(e[key]) for key in ("printed", "correction", "counterexample")
        )
        say(f"Wrong in {e['where']} ({e['number']}, {e['kind']}): {printed}; right is: {correction}")
        if counterexample:
            say(f"  counterexample: {counterexample}")
        if e["loose"]:
            say("  as a bound it is valid, but loose")
    if facts["systems"] or facts["functions"]:
        say(f"Behind: {', '.join([*facts['systems'], *facts['functions']])}")
    say(f"\nOne instance (seed {facts['seed']}), the first of what the check asks:")
    for name, value in facts["inputs"].items():
        say(f"  {name} = {text(value)}")
    for name, form in [("Right", facts["right"]), *((f"Wrong ({w['name']})", w) for w in facts["wrong"])]:
        say(f"\n{name}:\n\n{indent(form['source'], '  ')}\n\n  gives {text(form['result'])}")
        sides = form["compared"]
        if sides["relation"]:
            say(f"  compared: {text(sides['left'])} {sides['relation']} {text(sides['right'])}")
        verdict = "holds" if form["holds"] else "does not hold"
        say(f"  {verdict}: deviation {form['deviation']:.2g}, tolerance {form['tolerance']:.2g}")


def _words(sentence: str) -> str:
    """Return a sentence with the formulas in it as plain text."""
    return re.sub(r"\$([^$]*)\$", lambda m: plain_text(m[1]), sentence)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: small arrays whole, large ones by their shape, functions by name."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        if value.size > SMALL:
            return f"array of shape {value.shape}"
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__name__", type(value).__name__)


def text(value: Any) -> str:
    """Return a plain value in one line, numbers with four digits."""
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
