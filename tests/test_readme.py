"""The examples of the README run as they stand."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.filterwarnings("ignore")
def test_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) == 5
    names: dict = {}
    for example in EXAMPLES:
        exec(compile(example, "README.md", "exec"), names)
    assert names["codes"].shape == (1797, 10)
    assert names["new_digits"].shape == (16, 64)
    assert names["items"].shape == (2, 1)
    assert (tmp_path / "leaderboard.html").exists()


def test_links_lead_somewhere():
    root = Path(__file__).parents[1]
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / link).exists(), link
