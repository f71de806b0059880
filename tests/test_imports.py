"""Imports go one way, and cost little."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import corollary

ROOT = Path(corollary.__file__).parent
# A package may import from the packages before it, and from itself.
ORDER = [
    ["__init__"],
    ["errors"],
    ["compiled"],
    ["shapes"],
    ["catalog"],
    ["io"],
    ["export"],
    ["optim"],
    ["losses"],
    ["data"],
    ["engine"],
    ["linalg"],
    ["validation"],
    ["roles"],
    ["roletable"],
    ["base"],
    ["tuning"],
    ["gradient"],
    ["nn"],
    ["theory"],
    ["attack"],
    ["metrics"],
    ["connectionism", "linear", "completion", "mixtures", "embeddings", "networks", "kernels"],
    ["vision", "sequences", "language", "sets", "graphs", "generative", "bayes"],
    ["regularisation"],
    ["testing"],
    ["formulas"],
    ["plot"],
    ["callbacks"],
    ["comparison", "reporting"],
    ["diagnose"],
    ["cli", "__main__"],
]
LEVEL = {room: i for i, rooms in enumerate(ORDER) for room in rooms}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("corollary"):
            if node.module == "corollary":
                yield from (alias.name for alias in node.names if alias.name in LEVEL)
            else:
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("corollary."))


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_only(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert room in LEVEL, f"{room} has no place in the order of rooms"
    for other in imported(path):
        assert LEVEL[other] <= LEVEL[room], f"{room} must not import {other}"


def test_no_private_names_of_another_chapter():
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corollary."):
                if node.module.split(".")[1] != room:
                    private = [
                        a.name for a in node.names if a.name.startswith("_") and a.name != "__version__"
                    ]
                    assert not private, f"{path.name} imports {private} of {node.module}"


HEAVY = ("torch", "sklearn", "pandas", "numba", "matplotlib", "scipy", "lightning_fabric")


def modules_after(code):
    script = f"import sys\n{code}\nprint(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import corollary",
        "import corollary; corollary.list()",
        "import corollary.data",
        "from typer.testing import CliRunner\nfrom corollary.cli.app import app\nCliRunner().invoke(app, ['list'])",
        "from typer.testing import CliRunner\nfrom corollary.cli.app import app\nCliRunner().invoke(app, ['--help'])",
    ],
)
def test_light_imports(code):
    assert modules_after(code) == []


def test_lightning_and_numba_load_only_when_needed():
    loaded = modules_after(
        "import numpy as np, corollary\ncorollary.MLPClassifier().fit(np.eye(4), [0, 1, 0, 1])"
    )
    assert "lightning_fabric" not in loaded
    assert "numba" not in loaded
    assert "matplotlib" not in loaded


def test_import_time_against_numpy():
    """By processor time: how busy the machine is does not count."""

    def seconds(module):
        code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            for _ in range(5)
        ]
        return min(float(run.stdout) for run in runs)

    assert seconds("corollary") < seconds("numpy")
