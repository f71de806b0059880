"""The code of every tutorial runs as it stands."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore")
def test_a_tutorial_runs(page, tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "tutorial"}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    assert blocks
    with torch.random.fork_rng():
        for block in blocks:
            exec(compile(block, page.name, "exec"), names)
    if page.stem == "own_modules":
        assert names["model"].score(names["X"], names["y"]) > 0.8
        assert names["codes"].shape == (1797, 4)
