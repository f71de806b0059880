"""What editors and type checkers see of the package; ``types_client.py`` beside this is read by mypy in ``make lint``."""

from pathlib import Path

from docs.stub import STUB, stub

import corollary


def test_the_stub_is_up_to_date():
    assert STUB.read_text() == stub(), "run `make docs`"


def test_the_stub_names_what_the_package_has():
    named = {line.split(" as ")[1] for line in STUB.read_text().splitlines() if " as " in line}
    assert named | {"__version__"} == set(dir(corollary))


def test_the_package_says_that_it_is_typed():
    assert (Path(corollary.__file__).parent / "py.typed").exists()
