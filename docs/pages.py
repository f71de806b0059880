"""The generated pages: one per system, the formulary and the errata, from catalog, docstrings and records."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from docs.causes import cause_pages

from corollary import catalog
from corollary.formulas import TOPICS, Erratum, Formula, Outcome, all_formulas

__all__ = ["pages"]

HERE = Path(__file__).parent
SUPERVISED = {
    "answerer",
    "classifier",
    "multi-task",
    "regressor",
    "segmenter",
    "tagger",
    "translator",
}  # fitted with targets
# Claims of the course on pages of their own making.
CLAIMS = {
    "certificates": "a PAC-Bayes bound below 1 on real digits, with the network that attains it",
    "kernel_drift": "the tangent kernel drifts with one over the root of the width where the output weights have one sign, "
    "and faster where their signs are random",
    "rings": "mode collapse on a ring and a grid, by loss and by rule",
    "robustness": "what adversarial training gains and costs",
}
EXACT = 1e-9  # deviations below it are rounding, and shown as such


def pages() -> dict[str, str]:
    """Return every generated page by its name below ``docs``."""
    formulas = all_formulas()
    found = {"formulary.md": formulary(formulas), "errata.md": errata(formulas), "systems/index.md": index()}
    found["results/index.md"], found["results/claims.md"] = results(), claims()
    found.update(cause_pages(formulas))
    for entry in catalog.entries():
        found[f"systems/{entry.id}.md"] = system(entry, formulas)
    return found


# --- systems ---------------------------------------------------------------------------------------------


def index() -> str:
    """Return the table of all systems: what each takes and what it can do."""
    lines = ["# The systems", "", "Generated from the catalog by `make docs`.", ""]
    for chapter in dict.fromkeys(entry.chapter for entry in catalog.entries()):
        lines += [f"## {chapter}", "", "| id | name | takes | can do | |", "|---|---|---|---|---|"]
        for entry in catalog.entries(chapter=chapter):
            does = ", ".join(entry.roles) or entry.kind
            lines.append(
                f"| [{entry.id}]({entry.id}.md) | `{entry.name}` | {entry.input} | {does} | {entry.title} |"
            )
        lines.append("")
    return "\n".join(lines)


def system(entry: catalog.Entry, formulas: list[Formula]) -> str:
    """Return the page of one system."""
    thing = entry.load()
    module = inspect.getmodule(thing)
    lines = [f"# {entry.name}", "", f"{entry.title}. Catalog id `{entry.id}`, in `{entry.module}`.", ""]
    lines += [*_use(entry), *_mathematics(module), "## Reference", "", *_reference(thing), ""]
    if (HERE / "pictures" / f"{entry.id}.png").exists():
        lines += ["## Picture", "", f"![{entry.name}](../pictures/{entry.id}.png)", ""]
    mine = [f for f in formulas if entry.id in f.systems]
    if mine:
        lines += ["## Formulas", ""]
        lines += [f"- [`{f.id}`](../formulary.md#{f.id}): {f.statement}" for f in mine]
        lines.append("")
    shown = [
        item for name, item in _titles("../results/") if re.search(rf"\b{entry.name}\b", name.read_text())
    ]
    if shown:
        lines += ["## Results", "", *shown, ""]
    return "\n".join(lines)


def results() -> str:
    """Return the list of what was reached on real data."""
    head = [
        "# Results on real data",
        "",
        "`make results` trains, asserts the floors and rewrites these pages.",
        "",
    ]
    items = [item for path, item in _titles("") if not path.stem.startswith("claim_")]
    return "\n".join([*head, *items, ""])


def claims() -> str:
    """Return the list of the claims of the course, each with what was found."""
    lines = [
        "# Claims of the course",
        "",
        "Each page has the claim, the setting, the number found, its seeds, and one line to change to see the claim break.",
        "`python -m results claim_NAME` runs one again.",
        "",
    ]
    folder = HERE / "results"
    for path in sorted(folder.glob("claim_*.md")):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"\*\*Found\.\*\* (.+?)\n\n", text, re.S)
        lines.append(f"- [{_title(path)}]({path.name}): {' '.join(found[1].split()) if found else ''}")
    for name, what in CLAIMS.items():
        path = folder / f"{name}.md"
        if path.exists():
            lines.append(f"- [{_title(path)}]({path.name}): {what}.")
    return "\n".join([*lines, ""])


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _titles(folder: str) -> Iterator[tuple[Path, str]]:
    """Yield the pages of results, each with a line that links to it by its title."""
    for path in sorted((HERE / "results").glob("*.md")):
        if path.stem != "index":
            yield path, f"- [{_title(path)}]({folder}{path.name})"


def _use(entry: catalog.Entry) -> list[str]:
    if entry.kind == "sampler":
        use = [
            f"sampler = {entry.name}().fit(log_density, start)  # (chains, d) -> (chains,), (d,)",
            "sampler.summary()",
        ]
        return ["```python", f"from corollary import {entry.name}", "", *use, "```", ""]
    if entry.kind != "estimator":
        return ["```python", f"from {entry.module} import {entry.name}", "```", ""]
    fixed = ", ".join(f"{key}={value!r}" for key, value in entry.params).replace("'", '"')
    example = {"graph": "cora", "ratings": "ml-100k", "text": "shakespeare", "sequence": "spoken-digits"}
    own = {"gin": "mutag", "sequence-tagger": "steps.npz", "unet": "masks.npz"}
    source = own.get(entry.id, example.get(entry.input, "digits"))
    told = not SUPERVISED.isdisjoint(entry.roles) and entry.module != "corollary.graphs.nodes"
    if told and entry.input == "text":
        source = "texts.csv --kind text --target y"
    return [
        "```python",
        f"from corollary import {entry.name}",
        "",
        f"model = {entry.name}({fixed}).fit({'X, y' if told else 'X'})",
        "```",
        "",
        "```",
        f"corollary fit {entry.id} --data {source}",
        "```",
        "",
    ]


def _mathematics(module: object) -> list[str]:
    text = inspect.getdoc(module) or ""
    return ["## Mathematics", "", markdown(text), ""] if ":math:" in text or ".. math" in text else []


def _reference(thing: object) -> list[str]:
    text = inspect.getdoc(thing) or ""
    out: list[str] = []
    for part in re.split(r"\n(?=[A-Z][A-Za-z ]+\n-+\n)", text):
        head = re.match(r"([A-Z][A-Za-z ]+)\n-+\n", part)
        if head is None:
            out += [markdown(part), ""]
        elif head[1] == "Examples":
            out += ["**Examples**", "", "```python", part[head.end() :].strip(), "```", ""]
        elif head[1] in ("Parameters", "Attributes", "Returns"):
            out += [f"**{head[1]}**", "", *_items(part[head.end() :]), ""]
        else:
            out += [f"**{head[1]}**", "", markdown(part[head.end() :].strip()), ""]
    return out


def _items(text: str) -> Iterator[str]:
    for block in re.split(r"\n(?=\S)", text.strip()):
        first, _, rest = block.partition("\n")
        name, _, kind = first.partition(" : ")
        about = " ".join(markdown(inspect.cleandoc(rest)).split())
        yield f"- `{name}` ({kind}): {about}" if kind else f"- `{name}`: {about}"


def markdown(text: str) -> str:
    """Return reStructuredText as Markdown: maths, code and references."""
    text = "\n".join(_displays(text.splitlines()))
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r":(?:class|func|mod|meth|data):`~?([^`]*)`", r"`\1`", text)
    return text.replace("``", "`").replace(".. [", "[").rstrip()


def _displays(lines: list[str]) -> Iterator[str]:
    """Yield the lines with each ``.. math::`` block, which its indentation ends, as one display."""
    rest = iter([*lines, ""])
    for line in rest:
        if not line.strip().startswith(".. math::"):
            yield line
            continue
        body = [line.strip().removeprefix(".. math::")]
        for inner in rest:
            if inner.strip() and not inner.startswith("    "):
                yield from ("$$" + " ".join(" ".join(body).split()) + "$$", "", inner)
                break
            body.append(inner)
        else:
            yield "$$" + " ".join(" ".join(body).split()) + "$$"


# --- formulas --------------------------------------------------------------------------------------------


def formulary(formulas: list[Formula]) -> str:
    """Return all formulas by topic."""
    rows = numbered_errata(formulas)
    lines = [
        "# The formulary",
        "",
        f"{len(formulas)} formulas, each a check that can fail: `corollary check`.",
    ]
    lines += ["Generated by `make docs`; the places are those of the course notes.", ""]
    for topic, title in TOPICS.items():
        lines += [f"## {title}", "", f"[the code](../src/corollary/formulas/{topic}.py)", ""]
        for f in (f for f in formulas if f.topic == topic):
            lines += [f'### <a id="{f.id}"></a>`{f.id}`', "", f.statement, "", f"$${f.latex}$$", ""]
            facts = [f"Notes: {f.where}."]
            if f.systems:
                facts.append("Systems: " + ", ".join(_link(id) for id in f.systems) + ".")
            if f.errata:
                mine = [(anchor, e.number) for anchor, e, owner in rows if owner is f]
                facts.append(
                    "Wrong in the notes: "
                    + ", ".join(f"[{no}](errata.md#{anchor})" for anchor, no in mine)
                    + "."
                )
            lines += [" ".join(facts), ""]
    return "\n".join(lines)


def _link(id: str) -> str:
    known = {entry.id for entry in catalog.entries()}
    return f"[{id}](systems/{id}.md)" if id in known else id


def errata(formulas: list[Formula]) -> str:
    """Return the places where the notes are wrong, with the measured evidence."""
    rows = numbered_errata(formulas)
    head = [
        "# Errata of the notes",
        "",
        f"{len({e.number for _, e, _ in rows})} places where the course notes are wrong, by number: E for errors, T for typing",
        "and scanning. Generated by `make docs`.",
        "",
        "Each printed form runs through the check of its formula, beside the right form. *Off by* is how far",
        "a form is from the truth in that check, and *allowed* is how far it may be in the part of the check",
        "that judged it: a wrong form is off by more than allowed. *Rounding* is less than 1e-9, and *no bound* means",
        "that the form is not defined or not finite. A bound marked *valid, loose* is true as printed but further from the",
        "truth than it need be. `corollary formula ID` shows the numbers of one instance.",
        "",
        "Kinds: a *formula* that is false, *dimensions* or indices that do not fit, a *definition*, a *claim* in words",
        "(with a counterexample), *typing*.",
        "",
        "| no. | where | kind | printed | right | formula | printed: off by (allowed) | right: off by (allowed) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_erratum(*row) for row in rows)]) + "\n"


def _erratum(anchor: str, e: Erratum, f: Formula) -> str:
    printed = e.printed + (f"; counterexample: {e.counterexample}" if e.counterexample else "")
    cells = [
        f'<a id="{anchor}"></a>{e.number}',
        e.where,
        e.kind + (" (valid, loose)" if e.loose else ""),
        printed.replace("|", r"\|"),
        e.correction.replace("|", r"\|"),
        f"[`{f.id}`](formulary.md#{f.id})",
        _off(f.check(claim=e.form)),
        _off(f.check()),
    ]
    return "| " + " | ".join(cells) + " |"


def numbered_errata(formulas: list[Formula]) -> list[tuple[str, Erratum, Formula]]:
    """Return the errata in order, each with an anchor of its own: E84, E84b, E84c."""
    found = sorted(
        ((e, f) for f in formulas for e in f.errata),
        key=lambda row: (row[0].number[0], int(row[0].number[1:])),
    )
    seen: Counter[str] = Counter()
    rows = []
    for e, f in found:
        rows.append((e.number + "abcdefgh"[seen[e.number]].replace("a", ""), e, f))
        seen[e.number] += 1
    return rows


def _off(outcome: Outcome) -> str:
    return f"{_number(outcome.deviation)} ({outcome.tolerance:.2g})"


def _number(value: float) -> str:
    if value < EXACT:
        return "rounding"
    return f"{value:.2g}" if value < 1e300 else "no bound"
