"""Whole files with changed values: an error or a model, never a crash, never much memory."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from corollary import catalog, io, load
from corollary.connectionism import HopfieldNetwork
from corollary.mixtures import LatentDirichletAllocation
from corollary.networks import MLPClassifier

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import hostile  # noqa: E402

CHAPTERS = sorted({entry.chapter for entry in catalog.entries(kind="estimator")})


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_changed_files_and_checkpoints(chapter):
    """Some changes of every kind; ``python tests/contract/hostile.py CHAPTER 1000`` makes more."""
    command = [sys.executable, str(HERE / "hostile.py"), chapter, "5"]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout)
    assert found and not {name: wrong for name, wrong in found.items() if wrong}


def altered(model, path, change):
    """Save a model, change its document and arrays, and write it with a right checksum."""
    header, arrays = io._open(model.save(path))
    change(header["document"], arrays)
    hostile.write(path, header, arrays)
    return path


def test_indices_out_of_range_are_refused(tmp_path):
    X = np.sign(np.random.default_rng(0).normal(size=(3, 8)))

    def change(document, arrays):
        arrays[document["fitted"]["order_"]["name"]][3] = 2**40

    path = altered(HopfieldNetwork().fit(X), tmp_path / "m", change)
    with pytest.raises(
        io.FileError, match="order_ of HopfieldNetwork must be integers from 0 to 7; got 1099511627776"
    ):
        load(path)


def test_emptied_tensors_are_refused(tmp_path):
    model = LatentDirichletAllocation(2, max_iter=1).fit(np.ones((4, 5)))

    def change(document, arrays):
        for name in ("components_", "exp_dirichlet_component_"):
            where = document["fitted"][name]["name"]
            arrays[where] = arrays[where][:0]

    with pytest.raises(
        io.FileError, match=r"components_ .* must be of shape \(n_components, n_features_in_\) with"
    ):
        load(altered(model, tmp_path / "m", change))


@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_sparse_matrices_are_checked_whole(tmp_path, part):
    matrix = sparse.random(5, 6, 0.5, format="csr", random_state=0)
    header, arrays = io._open(io.write(tmp_path / "m", matrix, "test"))
    arrays[header["document"]["value"][part]["name"]][1] = 2**20
    hostile.write(tmp_path / "m", header, arrays)
    with pytest.raises(io.FileError, match="does not hold what its header says"):
        io.read(tmp_path / "m", "test")


def test_parameters_changed_after_the_fit_are_told_when_saving(tmp_path):
    model = LatentDirichletAllocation(2, max_iter=1).fit(np.ones((4, 5))).set_params(n_components=3)
    with pytest.raises(ValueError, match="save: .*n_components = 3.* put back the parameters"):
        model.save(tmp_path / "m")


BOMBS = {
    "units": ("MLPClassifier", {"hidden_layer_sizes": {"$": "tuple", "value": [60_000_000]}}),
    "layers": ("MLPClassifier", {"hidden_layer_sizes": [1] * 300_000}),
    "width of labels": ("MLPClassifier", {}),
    "dia": ("MLPClassifier", {}),
    "blocks": ("GPT", {"n_layers": 300_000}),
    "max_length": ("GPT", {"max_length": 10**9}),
}


def bomb(folder, name):
    """Write a small file that asks for much."""
    from corollary import GPT, Training

    rng = np.random.default_rng(0)
    if BOMBS[name][0] == "GPT":
        model = GPT(1, n_heads=2, width=8, max_length=8, training=Training(epochs=1)).fit(
            ["a b c d e f g h"] * 4
        )
    else:
        model = MLPClassifier((2,), training=Training(epochs=1)).fit(rng.normal(size=(8, 3)), ["a", "b"] * 4)

    def change(document, arrays):
        document["params"].update(BOMBS[name][1])
        if name == "width of labels":
            document["fitted"]["classes_"]["dtype"] = "<U400000000"
        if name == "dia":
            parts = {"data": np.ones(2), "indices": np.array([0, 2**27]), "indptr": np.array([0, 2])}
            named = {key: {"$": "array", "name": key} for key in parts}
            arrays.update(parts)
            value = {**named, "shape": [1, 2**28]}
            document["params"]["class_weight"] = {"$": "sparse", "format": "dia", "value": value}

    return altered(model, folder / name, change)


def test_bombs_take_no_memory(tmp_path):
    for name in BOMBS:
        bomb(tmp_path, name)
    code = textwrap.dedent(
        """
        import json, resource, sys
        from pathlib import Path
        import corollary, torch, scipy.sparse
        from corollary import GPT, MLPClassifier, Training, io
        MLPClassifier((2,), training=Training(epochs=1)).fit([[0.0], [1.0]] * 4, [0, 1] * 4)
        GPT(1, n_heads=2, width=8, max_length=8, training=Training(epochs=1)).fit(["a b c d e f g h"] * 4)
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found = {}
        for path in sorted(Path(sys.argv[1]).iterdir()):
            before = peak()
            try:
                corollary.load(path)
                said = "loaded"
            except io.FileError as error:
                said = str(error)
            found[path.name] = said, peak() - before
        print(json.dumps(found))
        """
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = json.loads(out.stdout)
    assert found.keys() == BOMBS.keys()
    for name, (said, grown) in found.items():
        assert said.startswith("load: ") or name == "width of labels", (
            name,
            said,
        )  # the width is not believed
        assert grown < 48 + 20 * (tmp_path / name).stat().st_size / 2**20, (name, grown)
