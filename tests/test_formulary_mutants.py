"""Every argument of every formula matters to its check: changed, the check notices, or a reason says why not."""

import warnings
from pathlib import Path

import pytest
import torch

from corollary.formulas import TOPICS, find
from formulary_mutants import mutants


def equivalents():
    """The listed mutants, each (formula, argument, change), with the reason that it is no other formula."""
    found = {}
    for line in (
        (Path(__file__).parent / "formulary_equivalents.txt").read_text(encoding="utf-8").splitlines()
    ):
        if line and not line.startswith("#"):
            head, _, reason = line.partition(": ")
            id, argument, changes = head.split()
            assert len(reason) > 10, line
            found |= {(id, argument, change): reason for change in changes.split(",")}
    return found


EQUIVALENT = equivalents()


def survives(formula, claim):
    """Whether the check holds for a changed formula; one that cannot even be evaluated is noticed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return formula.check(0, claim).holds
        except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
            return False


@pytest.mark.parametrize("topic", TOPICS)
def test_checks_notice_a_change_of_any_argument(topic):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the checks are many and small
    try:
        alive = {
            (f.id, argument, change)
            for f in find(topic)
            for argument, change, claim in mutants(f)
            if survives(f, claim)
        }
    finally:
        torch.set_num_threads(threads)
    listed = {key for key in EQUIVALENT if key[0] in {f.id for f in find(topic)}}
    assert alive == listed, "blind checks (left), or stale entries of formulary_equivalents.txt (right)"


def test_the_list_names_formulas_that_exist():
    assert {key[0] for key in EQUIVALENT} <= {f.id for f in find()}


def test_a_blind_check_is_found():
    """The first check of SVRG had its anchor at the optimum, where the full gradient is zero."""
    import numpy as np

    from corollary.formulas.record import REGISTRY, equal, formula

    @formula("blind", latex="", where="", right=lambda x, c: c * x, wrong=lambda x, c: c * x + 1)
    def blind(rng, claim):
        x = rng.normal(size=3)
        return equal(claim(x, 1.0), x, tol=1e-12)

    del REGISTRY["blind"]
    alive = {(argument, change) for argument, change, claim in mutants(blind) if survives(blind, claim)}
    assert alive == {("c", "one")}
    assert np.isfinite(blind.check().deviation)
