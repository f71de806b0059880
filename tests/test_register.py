"""Other people's estimators: registered by hand, by entry points, or not at all."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA

import corollary
from corollary import catalog, io, testing
from corollary.base import Classifier, Estimator
from corollary.engine.learner import Once


class NearestMean(Classifier, Estimator):
    """Nearest class mean.

    Takes the class whose mean is closest.
    """

    def __init__(self, *, sharpness=1.0):
        self.sharpness = sharpness

    def fit(self, X, y):
        return self._fit(X, y)

    def _learner(self, data):
        return Once(
            lambda: {"means": np.stack([data.X[data.y == k].mean(0) for k in range(len(self.classes_))])}
        )

    def _adopt(self, learner):
        self.means_ = learner.results["means"]

    def _predict_proba(self, X):
        d = -self.sharpness * ((X[:, None] - self.means_) ** 2).sum(-1)
        p = np.exp(d - d.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)


@pytest.fixture
def registered():
    corollary.register(NearestMean, id="nearest-mean")
    yield
    catalog.forget("nearest-mean")


def test_the_contract_holds_for_an_estimator_that_is_not_in_the_catalog():
    testing.check_estimator(NearestMean())


def test_what_the_checks_are_not_for():
    with pytest.raises(
        TypeError, match=r"must be an instance; got the class NearestMean. Pass NearestMean\(\)"
    ):
        testing.check_estimator(NearestMean)
    with pytest.raises(TypeError, match=r"must inherit from corollary\.base\.Estimator; got PCA"):
        testing.check_estimator(PCA())


def test_scikit_learns_checks_too():
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(NearestMean(), on_fail=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []


def test_an_unregistered_class_is_named_and_not_imported(tmp_path):
    X, y = testing.sample_data("table")
    path = NearestMean().fit(X, y).save(tmp_path / "m.safetensors")
    with pytest.raises(
        io.FileError, match=r"'NearestMean', which is not in the catalog.*classes=\[NearestMean\]"
    ):
        corollary.load(path)
    again = corollary.load(path, classes=[NearestMean])
    assert type(again) is NearestMean


def test_registered_systems_are_everywhere(registered, tmp_path):
    entry = corollary.find("nearest-mean")
    assert entry.title == "Nearest class mean" and entry.roles == ("classifier",) and entry.input == "table"
    assert entry.chapter == __name__.split(".")[0]
    assert corollary.NearestMean is NearestMean and "NearestMean" in dir(corollary)
    assert corollary.create("nearest-mean", sharpness=2.0).sharpness == 2.0
    assert "NearestMean" in corollary.list(role="classifier")
    board = corollary.compare("iris", systems=["nearest-mean", "logistic"])
    assert {row["system"] for row in board.rows if row["score"] > 0.8} >= {"nearest-mean", "logistic"}
    X, y = testing.sample_data("table")
    path = NearestMean().fit(X, y).save(tmp_path / "m.safetensors")
    assert type(corollary.load(path)) is NearestMean


def test_one_class_under_several_ids():
    corollary.register(NearestMean, id="blunt-mean", params={"sharpness": 0.1})
    corollary.register(NearestMean, id="sharp-mean", params={"sharpness": 9.0})
    try:
        assert corollary.create("sharp-mean").sharpness == 9.0
        assert corollary.create("NearestMean").sharpness == 1.0
    finally:
        catalog.forget("blunt-mean")
        catalog.forget("sharp-mean")


def test_what_cannot_be_registered():
    with pytest.raises(TypeError, match="register: a system must be a class that inherits"):
        corollary.register(3)
    with pytest.raises(
        ValueError, match=r"id and name must be new; got .*NearestMean as 'vae', which is corollary"
    ):
        corollary.register(NearestMean, id="vae")
    with pytest.raises(ValueError, match=r"which is corollary\.linear\.pca\.PCA"):
        corollary.register(type("PCA", (NearestMean,), {"__module__": "elsewhere"}))
    with pytest.raises(ValueError, match="forget: no registered system named 'pca'"):
        catalog.forget("pca")


def test_a_name_stands_for_the_classs_own_defaults():
    for name in (
        "ImageClassifier",
        "LinkPredictor",
        "NodeClassifier",
        "SequenceClassifier",
        "SkipGram",
        "GraphClassifier",
    ):
        assert repr(corollary.create(name)) == repr(catalog.resolve(name)())
    assert corollary.create("lenet").net == "lenet" and corollary.create("mpnn").layer == "mpnn"


PACKAGE = """
import numpy as np
from corollary.base import Estimator, Transformer
from corollary.engine.learner import Once


class Scaler(Transformer, Estimator):
    '''Division by the largest entry of each column.'''

    def _learner(self, data):
        return Once(lambda: {"top": np.abs(data.X).max(0)})

    def _adopt(self, learner):
        self.top_ = np.maximum(learner.results["top"], 1e-12)

    def _transform(self, X):
        return X / self.top_
"""
LIGHT = """
from corollary.catalog import Entry

SYSTEMS = [Entry("light-scaler", "LightScaler", "acme.heavy", "A scaler", "table", ("transformer",))]
"""


@pytest.fixture
def installed(tmp_path):
    """A third-party package with entry points, as pip would have put it there."""
    package = tmp_path / "acme"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "light.py").write_text(LIGHT)
    (package / "heavy.py").write_text("from acme import Scaler\n\nclass LightScaler(Scaler):\n    pass\n")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    lines = [
        "[corollary.systems]",
        "acme-scaler = acme:Scaler",
        "light = acme.light:SYSTEMS",
        "broken = acme:Nothing",
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, "vae = acme:Scaler"]) + "\n")
    return tmp_path


SCRIPT = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import corollary
    names = corollary.list(chapter="acme")
assert names == ("Scaler", "LightScaler"), names
assert "acme.heavy" not in sys.modules
texts = sorted(str(w.message) for w in caught)
assert len(texts) == 2 and "'acme:Nothing' cannot be used" in texts[0] and "id and name must be new" in texts[1], texts
import numpy as np
from corollary import LightScaler, testing
testing.check_estimator(corollary.create("acme-scaler"))
model = LightScaler().fit(np.eye(3))
path = model.save(sys.argv[1] + "/m.safetensors")
assert type(corollary.load(path)).__module__ == "acme.heavy"
board = corollary.compare("iris", systems=["acme-scaler"], task="reconstruction")
from corollary.cli import main
warnings.simplefilter("ignore")
sys.argv = ["corollary", "fit", "acme-scaler", "--data", "iris", "--run", sys.argv[1] + "/run"]
main()
"""


def test_an_installed_package_brings_its_systems(installed):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(installed)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (installed / "run" / "report.html").exists()


def test_star_import_brings_tools_and_systems():
    space = {}
    exec("from corollary import *", space)
    assert {"MLPClassifier", "Run", "compare", "load"} <= space.keys()
    assert "list" not in space
