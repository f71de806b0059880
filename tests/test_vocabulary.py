"""The table of words in CONTRIBUTING.md against the parameters that the library has."""

import inspect
import re
from pathlib import Path

import pytest
from sklearn.utils import all_estimators

from corollary import catalog
from corollary.engine.training import Training

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
THEIRS = {name: inspect.signature(cls).parameters.keys() for name, cls in all_estimators()}
ENTRIES = {entry.name: entry for entry in catalog.entries() if entry.kind == "estimator"}


def table():
    """Return the rows of the table of words: idea, word, and what is not said."""
    lines = PAGE.read_text().split("## Vocabulary")[1].split("## Errors")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][
        1:
    ]


FORBIDDEN = {
    word for *_, cell in table() for word in re.sub(r"\([^)]*\)", "", cell).replace(",", " ").split()
}


def slips(name, parameters):
    """Return parameters that have another name in the table, but for those of scikit-learn's class of that name."""
    return sorted((FORBIDDEN & set(parameters)) - set(THEIRS.get(name, ())))


def test_the_table_is_read():
    assert {"hidden_size", "readout", "max_words", "heads", "lr", "Trainer"} <= FORBIDDEN
    words = {word for _, cell, _ in table() for word in re.findall(r"`(\w+)`", cell)}
    assert {"width", "pooling", "n_neighbors"} <= words and not words & FORBIDDEN
    assert slips("GPT", ["width", "context"]) == ["context"]
    assert slips("Perceptron", ["eta0"]) == [] and slips("GPT", ["eta0"]) == ["eta0"]


@pytest.mark.parametrize("name", ENTRIES)
def test_a_parameter_has_the_table_s_word(name):
    parameters = ENTRIES[name].load()().get_params(deep=False)
    assert slips(name, parameters) == []
    assert "dimension" not in parameters or ENTRIES[name].chapter == "embeddings"


def test_a_field_of_training_has_the_table_s_word():
    assert slips("Training", inspect.signature(Training).parameters) == []
