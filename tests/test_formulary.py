"""Every formula of the inventory is there, holds, and can fail."""

import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

import numpy as np
import pytest
import torch
from docs import pages as generated

from corollary import catalog
from corollary.formulas import TOPICS, all_formulas, find
from corollary.formulas.record import (
    REGISTRY,
    Outcome,
    all_of,
    at_least,
    at_most,
    equal,
    exponent,
    formula,
    within,
)
from corollary.formulas.source import source

FORMULAS = all_formulas()
pages = cache(generated.pages)
SHARED = Path(__file__).parents[2] / "shared"
IDS = (Path(__file__).parent / "inventory.txt").read_text().split()
MORE = (
    (Path(__file__).parent / "inventory_more.txt").read_text().split()
)  # of the second reading of the notes


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the checks are many and small
    yield
    torch.set_num_threads(before)


def test_every_id_of_the_inventory_is_there_and_unique():
    ids = [f.id for f in FORMULAS]
    assert len(ids) == len(set(ids))
    assert len(IDS) == 423 and set(ids) == set(IDS) | set(MORE)


@pytest.mark.skipif(not SHARED.exists(), reason="the inventory itself is not part of the project")
def test_our_list_of_ids_is_the_inventorys():
    found = re.findall(r"^\| `([a-z0-9-]+)` \|", (SHARED / "formulas.md").read_text(), re.M)
    assert found == IDS


def test_every_genuine_erratum_is_there():
    numbers = {e.number for f in FORMULAS for e in f.errata}
    assert {f"E{i}" for i in range(1, 114)} <= numbers


def test_topics_are_those_of_the_table():
    assert list(dict.fromkeys(f.topic for f in FORMULAS)) == list(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_checks_hold(topic, seed):
    failed = [(f.id, f.check(seed)) for f in find(topic) if not f.check(seed).holds]
    assert not failed


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_variants_fail_with_margin(topic, seed):
    close = []
    for f in find(topic):
        assert f.wrong
        close += [(f.id, o) for o in f.check_wrong(seed) if o.deviation <= 2 * o.tolerance]
    assert not close


@pytest.mark.parametrize("f", FORMULAS, ids=lambda f: f.id)
def test_records_are_whole(f):
    assert len(f.statement) > 20 and f.statement[0].isupper() and f.statement.endswith(".")
    assert f.latex.count("{") == f.latex.count("}")
    assert re.search(r"00[0-4]", f.where)
    known = {line.split()[0] for line in (Path(__file__).parent / "systems.txt").read_text().splitlines()}
    assert set(f.systems) <= known | {entry.id for entry in catalog.entries()}


def resolve(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def codes(thing):
    """The code that runs when a function is called, or a class made or one of its methods called."""
    if isinstance(thing, type):
        own = [kind for kind in thing.__mro__ if kind.__module__ == thing.__module__]
        found = [getattr(part, "__func__", part) for kind in own for part in vars(kind).values()]
        return {part.__code__ for part in found if isinstance(part, FunctionType)}
    while hasattr(thing, "__wrapped__"):
        thing = thing.__wrapped__
    return {thing.__code__}


def ran(action):
    """All Python code that runs during an action."""
    seen: set[CodeType] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code) if event == "call" else None)
    try:
        action()
    finally:
        sys.setprofile(before)
    return seen


PACKAGE = Path(import_module("corollary").__file__).parent
AROUND = (
    "formulas",
    "data",
    "engine",
)  # what checks themselves are made of, and what every fit passes through


@pytest.mark.parametrize("name", sorted({name for f in FORMULAS for name in f.functions}))
def test_functions_are_public_names_of_the_library(name):
    assert name.startswith("corollary.") and not any(part.startswith("_") for part in name.split("."))
    assert callable(resolve(name))


@pytest.mark.parametrize("f", FORMULAS, ids=lambda f: f.id)
def test_functions_named_are_called_and_functions_called_are_named(f):
    f.check()  # what is only imported, compiled or cached once must not count
    seen = ran(f.check)
    idle = [name for name in f.functions if not codes(resolve(name)) & seen]
    assert not idle, "named, but not called by the check"
    inside = [Path(code.co_filename) for code in seen]
    chapters = {p.relative_to(PACKAGE).parts[0] for p in inside if p.is_relative_to(PACKAGE)} - {*AROUND}
    assert f.functions or not any((PACKAGE / chapter).is_dir() for chapter in chapters), (
        "called, but not named"
    )


def test_systems_are_linked_to_code_by_formulas():
    """Nearly every system that is there has a formula whose check calls the library."""
    linked = {system for f in FORMULAS if f.functions for system in f.systems}
    named = {system for f in FORMULAS for system in f.systems}
    there = {entry.id for entry in catalog.entries()} & named
    assert len(there & linked) >= 0.9 * len(there), sorted(there - linked)


def test_every_system_has_its_formulas():
    named = {system for f in FORMULAS for system in f.systems}
    systems = {line.split()[0] for line in (Path(__file__).parent / "systems.txt").read_text().splitlines()}
    assert systems <= named


def test_links_go_both_ways():
    from corollary.cli.describe import formulas_of

    entry = catalog.find("pca")
    assert {f["id"] for f in formulas_of(entry)} == {f.id for f in FORMULAS if "pca" in f.systems}
    assert formulas_of(entry)


def test_a_check_without_a_wrong_form_is_refused():
    with pytest.raises(ValueError, match="give a wrong form"):
        formula("x", latex="", where="", right=lambda: 1)


def test_outcomes():
    assert equal([1.0, 2.0], [1.0, 2.0], tol=0).holds
    assert not equal([1.0], [1.1], tol=0.05).holds
    assert equal([100.0], [101.0], tol=0.02, relative=True).holds
    assert not equal([1.0, 2.0], [1.0, 2.0, 3.0], tol=9).holds
    assert not equal(float("nan"), 0.0, tol=1).holds
    assert at_most([1, 2], 2).holds and not at_most([1, 3], 2).holds
    assert at_least(2, 2).holds and not at_least(1, 2).holds
    assert within(0.5, 0, 1).holds and not within(1.5, 0, 1).holds
    assert exponent([1, 2, 4], [1, 4, 16], 2, tol=1e-9).holds
    assert not all_of(Outcome(0, 1), Outcome(2, 1)).holds
    assert not all_of(Outcome(float("nan"), 1), Outcome(0, 1)).holds


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?|rounding|no bound")


@pytest.mark.parametrize("name", ["formulary.md", "errata.md", "systems/index.md"])
def test_generated_pages_are_current(name):
    written = (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8")
    fresh = pages()[name]
    # Deviations differ in their digits from machine to machine; everything else must be equal.
    assert NUMBER.sub("#", written) == NUMBER.sub("#", fresh), "run `make docs`"


def test_every_system_has_its_current_page():
    docs = Path(__file__).parents[1] / "docs"
    stale = []
    for name, text in pages().items():
        if name.startswith("systems/"):
            path = docs / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
    assert not stale, "run `make docs`"


def test_errata_say_where_what_kind_and_why():
    places = {"000", "001", "002", "003", "004"}
    for f in FORMULAS:
        for e in f.errata:
            assert e.where[:3] in places and len(e.where) > 4, e
            assert (e.kind == "typing") == e.number.startswith("T"), e
            assert e.counterexample or e.kind != "claim", e
            assert (
                e.printed.count("$") % 2
                == e.correction.count("$") % 2
                == e.counterexample.count("$") % 2
                == 0
            )


def test_loose_bounds_are_valid_and_loose():
    """A bound that is called valid lies on the right side of the truth, though far from it."""
    loose = {(e.number, f.id) for f in FORMULAS for e in f.errata if e.loose}
    assert loose == {("E5", "ineq-hoeffding"), ("E19", "it-jsd"), ("E84", "slt-pac-bayes")}
    for t in (0.1, 0.3):
        widths = np.linspace(0.5, 2, 8)
        f = REGISTRY["ineq-hoeffding"]
        assert f.right(t, widths) < f.errata[0].form(t, widths) <= 1
    f = REGISTRY["slt-pac-bayes"]
    for e in f.errata:
        if e.loose:
            assert e.form(5.0, 1000, 0.05) > f.right(5.0, 1000, 0.05)


def test_anchors_of_the_errata_are_unique_and_linked():
    page, formulary = pages()["errata.md"], pages()["formulary.md"]
    anchors = re.findall(r'<a id="([ET]\d+[a-z]?)">', page)
    assert len(anchors) == len(set(anchors)) == sum(len(f.errata) for f in FORMULAS)
    assert set(re.findall(r"errata\.md#(\w+)", formulary)) == set(anchors)


def test_instances_and_sources():
    for f in FORMULAS:
        one = f.instance(seed=1)
        assert one.inputs and one.outcome.holds and one.outcome.sides is not None
        for claim in (f.right, *f.wrong):
            text = source(claim)
            assert "lambda" in text or "def " in text or "." in text
    assert source(REGISTRY["slt-pac-bayes"].right).startswith("def pac_bayes_right(kl, s, epsilon):")
    assert "# with low = 0.0" in source(REGISTRY["gcn-spectrum"].errata[0].form)
    assert source(np.matmul).endswith("matmul")
