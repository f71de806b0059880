"""The command line: in this process, because torch takes seconds to import, and some of it as a command of its own."""

import contextlib
import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from corollary.cli import main, using
from corollary.cli.using import predict_with


def corollary(*words, cwd=None):
    command = [sys.executable, "-m", "corollary", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def good(*words, cwd="."):
    """Run the command line in this process and return what it prints."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.chdir(cwd):
        patch.setattr(sys, "argv", ["corollary", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return out.getvalue()


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A directory with a table, ratings, and one fitted run."""
    place = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    with open(place / "flowers.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["width", "height", "depth", "kind"])
        table.writerows([*row, "tall" if row[1] > 0 else "small"] for row in X)
    with open(place / "ratings.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["user", "item", "rating"])
        pairs = [(u, i) for u in range(20) for i in range(12) if rng.random() < 0.6]
        table.writerows([f"u{u}", f"film {i}", rng.integers(1, 6)] for u, i in pairs)
    options = ["--target", "kind", "--set", "training.epochs=40", "--set", "hidden_layer_sizes=(8,)"]
    good("fit", "mlp", "--data", "flowers.csv", *options, "--run", "runs/flowers", cwd=place)
    return place


def test_list_as_json_has_what_others_need():
    entries = json.loads(good("list", "--json"))
    assert {"id", "name", "module", "chapter", "title", "input", "roles"} <= set(entries[0])
    by_id = {entry["id"]: entry for entry in entries}
    assert by_id["vae"]["name"] == "VAE"
    assert by_id["vae"]["chapter"] == "generative"
    assert "generator" in by_id["vae"]["roles"]


def test_list_can_be_narrowed():
    names = {entry["name"] for entry in json.loads(good("list", "--role", "generator", "--json"))}
    assert "VAE" in names
    assert "MLPClassifier" not in names


def test_show_names_parameters_and_formulas():
    told = json.loads(good("show", "VAE", "--json"))
    assert told["parameters"]["latent"] == "16"
    assert any("elbo" in formula["id"] for formula in told["formulas"])
    assert "Parameters" in good("show", "vae")


def test_data_lists_and_describes():
    names = {row["name"] for row in json.loads(good("data", "--json"))}
    assert {"digits", "iris", "ml-100k", "cora", "shakespeare", "tatoeba-en-es"} <= names
    assert "150" in good("data", "iris")


def test_a_run_directory_holds_everything(workplace):
    run = workplace / "runs" / "flowers"
    config = json.loads((run / "config.json").read_text())
    assert config["model"] == "MLPClassifier"
    assert config["params"]["training__epochs"] == 40
    rows = table(run / "history.csv")
    assert len(rows) == 40
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    page = (run / "report.html").read_text()
    assert page.count("data:image/png;base64") >= 2
    assert "Confusion" in page
    assert (run / "model.safetensors").exists()


def test_attack_measures_a_run_and_writes_its_curve(workplace):
    """One process each for the two ways out; what cannot be done says why."""
    from corollary.cli.attacking import attack_run

    words = ["--data", "flowers.csv", "--eps", "0.1,2", "--steps", "5", "-n", "40"]
    rows = json.loads(good("attack", "runs/flowers", *words, "--json", "--out", "curve.png", cwd=workplace))
    assert [row["eps"] for row in rows] == [0, 0.1, 2] and rows[2]["accuracy"] < rows[0]["accuracy"]
    assert (workplace / "curve.png").read_bytes().startswith(b"\x89PNG")
    options = {"norm": "l2", "attack": "deepfool", "steps": 20, "restarts": 1, "random_state": 0}
    run, source = workplace / "runs/flowers", str(workplace / "flowers.csv")
    found = attack_run(run, source, None, None, "0.5", "-9,9", None, workplace / "curve.csv", dict(options))
    assert len(table(workplace / "curve.csv")) == len(found) == 2
    for wrong, match in [
        ({"eps": "much"}, "--eps: numbers must be separated by commas; got 'much'"),
        ({"bounds": "1"}, "--bounds: there must be two numbers"),
        ({"n": 0}, "-n must be at least 1"),
        ({"options": {**options, "restarts": 3}}, "--restarts belongs to --attack pgd"),
    ]:
        given = {"eps": "0.5", "bounds": "none", "n": 5, "options": dict(options), **wrong}
        with pytest.raises(ValueError, match=match):
            attack_run(run, source, None, None, out=None, **given)


def test_predict_writes_classes_and_probabilities(workplace):
    good(
        "predict",
        "runs/flowers",
        "--data",
        "flowers.csv",
        "--out",
        "p.csv",
        cwd=workplace,
    )
    rows = table(workplace / "p.csv")
    assert len(rows) == 80
    assert set(rows[0]) == {"prediction", "p(small)", "p(tall)"}
    assert float(rows[0]["p(small)"]) + float(rows[0]["p(tall)"]) == pytest.approx(1, abs=1e-5)


def test_sample_draws_images(workplace):
    fit = ["fit", "vae", "--data", "digits", "--set", "training.epochs=1", "--run", "runs/v"]
    good(*fit, cwd=workplace)
    good("sample", "runs/v", "-n", "6", "--out", "drawn.npy", cwd=workplace)
    assert np.load(workplace / "drawn.npy").shape == (6, 1, 8, 8)
    good("sample", "runs/v", "-n", "6", "--out", "drawn.png", cwd=workplace)
    assert (workplace / "drawn.png").read_bytes()[:4] == b"\x89PNG"


def test_a_ratings_file_is_compared_and_completed(workplace):
    board = json.loads(good("compare", "--data", "ratings.csv", "--json", "--out", "b.png", cwd=workplace))
    assert board["task"] == "completion"
    assert any(row["score"] is not None for row in board["rows"])
    assert (workplace / "b.png").exists()
    good("fit", "als", "--data", "ratings.csv", "--set", "n_components=4", "--run", "runs/als", cwd=workplace)
    assert "Recommendations" in (workplace / "runs" / "als" / "report.html").read_text()
    good("predict", "runs/als", "--data", "ratings.csv", "--out", "r.csv", cwd=workplace)
    rows = table(workplace / "r.csv")
    assert set(rows[0]) == {"user", "item", "prediction"}
    assert rows[0]["user"].startswith("u")


def test_a_topic_model_of_texts_meets_new_texts(workplace):
    (workplace / "texts.txt").write_text("red green blue\none two three\nblue red green\ntwo three one\n" * 5)
    (workplace / "new.txt").write_text("green unheard-of\nthree\n")
    sets = ["--set", "n_components=2", "--set", "inference=cvb0", "--set", "max_iter=40"]
    good("fit", "lda", "--data", "texts.txt", *sets, "--run", "runs/lda", cwd=workplace)
    good("predict", "runs/lda", "--data", "new.txt", "--out", "t.csv", cwd=workplace)
    colours, numbers = ([float(value) for value in row.values()] for row in table(workplace / "t.csv"))
    assert np.argmax(colours) != np.argmax(numbers)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return good


def test_a_label_for_every_step(here):
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 6, size=80)
    X = rng.normal(size=(lengths.sum(), 2))
    np.savez("steps.npz", X=X, lengths=lengths, y=(X[:, 0] > 0).astype(int))
    sets = ["--set", "width=8", "--set", "training.epochs=40"]
    told = json.loads(here("fit", "sequence-tagger", "--data", "steps.npz", *sets, "--run", "r", "--json"))
    assert told["held-out accuracy"] > 0.7
    here("predict", "r", "--data", "steps.npz", "--out", "p.csv")
    rows = table("p.csv")
    assert [int(row["sample"]) for row in rows] == np.repeat(np.arange(80), lengths).tolist()
    assert np.mean([int(row["prediction"]) == (x > 0) for row, x in zip(rows, X[:, 0])]) > 0.7


def test_masks_keep_their_shape(here):
    X = np.random.default_rng(0).random((10, 8, 8)).astype(np.float32)
    np.savez("masks.npz", X=X, y=X > 0.5)
    sets = ["--set", "width=2", "--set", "training.epochs=1"]
    told = json.loads(here("fit", "unet", "--data", "masks.npz", *sets, "--run", "r", "--json"))
    assert 0 <= told["held-out intersection over union"] <= 1
    here("predict", "r", "--data", "masks.npz", "--out", "p.npy")
    assert np.load("p.npy").shape == X.shape


def test_what_stopped_a_fit_is_said_only_if_something_did(here):
    options = ["--data", "iris", "--set", "training.epochs=2", "--json"]
    assert "stopped" not in json.loads(here("fit", "mlp", *options, "--run", "whole"))
    cut = here("fit", "mlp", *options, "--run", "cut", "--time-limit", "0")
    assert json.loads(cut[cut.index("{") :])["stopped"] == "time limit"


def test_runs_are_listed(workplace):
    rows = json.loads(good("runs", "--json", cwd=workplace))
    assert any(row["model"] == "MLPClassifier" and row["steps"] == 40 for row in rows)


def test_resume_goes_on(workplace):
    words = ["fit", "mlp", "--data", "flowers.csv", "--target", "kind", "--run", "runs/r"]
    good(*words, "--set", "training.epochs=3", cwd=workplace)
    good(*words, "--set", "training.epochs=5", "--resume", cwd=workplace)
    assert len(table(workplace / "runs" / "r" / "history.csv")) == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "mpl", "--data", "iris"], "no system named 'mpl'. Closest: 'mlp'"),
        (["show", "VEA"], "Closest: 'vae'"),
        (["fit", "mlp", "--data", "iriss"], "'iris'"),
        (["fit", "mlp", "--data", "flowers.csv", "--target", "kinds"], "'kind'"),
        (["fit", "mlp", "--data", "iris", "--set", "activasion=relu"], "Closest: 'activation'"),
        (["fit", "mlp", "--data", "iris", "--set", "training.epoch=2"], "Closest: 'epochs'"),
        (["fit", "mlp", "--data", "iris", "--set", "activation=rulu"], "activation"),
        (["fit", "mlp", "--data", "iris", "--set", "nonsense"], "--set takes key=value"),
        (["fit", "als", "--data", "iris"], "data must be of kind ratings"),
        (["fit", "exact-recovery", "--data", "iris"], "Use `corollary compute exact-recovery`"),
        (["compute", "perceptron"], "Use `corollary fit perceptron`"),
        (["compute", "scalar-factorisation", "--set", "a=2"], "c, t must be given; got a"),
        (["predict", "runs/none", "--data", "iris", "--out", "x.csv"], "no model in"),
        (["predict", "runs/flowers", "--data", "iris", "--out", "x.csv"], "columns of the fit"),
        (["sample", "runs/flowers", "--out", "x.csv"], "must be a generator"),
        (["compare", "--data", "iris", "--task", "clasification"], "Closest: 'classification'"),
        (["list", "--input", "tables"], "Closest: 'table'"),
        (["data", "digitz"], "'digits'"),
        (["runs", "nowhere"], "no directory 'nowhere'"),
        (["formula", "prob-bayes"], "Closest: 'prob-bayes-rule'"),
        (["check", "probabilty"], "Closest: 'probability'"),
    ],
    ids=lambda v: " ".join(v)[:40] if isinstance(v, list) else "",
)
def test_mistakes_get_the_closest_choice_and_exit_code_2(workplace, words, message, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    monkeypatch.setattr(sys, "argv", ["corollary", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_mistake_in_a_real_process(workplace):
    done = corollary("fit", "mpl", "--data", "iris", cwd=workplace)
    assert done.returncode == 2
    assert "Closest: 'mlp'" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_and_formula():
    rows = json.loads(good("check", "information", "--json"))
    assert all(row["holds"] for row in rows)
    assert {"id", "topic", "holds", "deviation", "tolerance", "seconds"} == set(rows[0])
    wrong = json.loads(good("check", "information", "--wrong", "--json"))
    assert not any(row["holds"] for row in wrong)
    shown = good("formula", "prob-bayes-rule", "--seed", "3")
    assert "LaTeX" in shown and "seed 3" in shown and "does not hold" in shown
    assert "lambda" in shown or "def " in shown  # the source of either form
    facts = json.loads(good("formula", "ineq-hoeffding", "--json"))
    assert {"t", "widths"} == facts["inputs"].keys()
    assert facts["right"]["holds"] and not any(form["holds"] for form in facts["wrong"])
    assert facts["wrong"][0]["name"] == "as printed, E5 in 002 Background" and facts["errata"][0]["loose"]
    assert "metric-fid" in good("formula", "evaluation")


def test_functions_are_computed(here):
    found = json.loads(
        here("compute", "scalar-factorisation", "--set", "a=2", "--set", "c=0.1", "--set", "t=[0,9]")
    )
    np.testing.assert_allclose(found, [0.1, 2.0], atol=1e-6)
    curve = json.loads(here("compute", "exact-recovery", "--set", "n=6", "--set", "repeats=1"))
    assert curve["degrees_of_freedom"] == 11 and len(curve["success"]) == len(curve["samples"])
    matrix = json.loads(here("compute", "laplacian", "--data", "karate"))
    assert matrix["shape"] == [34, 34] and sum(matrix["value"]) == pytest.approx(0)


def test_nothing_found_is_said(here, tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.save("noise.npy", X)
    here("fit", "indian-buffet", "--data", "noise.npy", "--set", "noise_variance=100.0", "--run", "r")
    with pytest.raises(ValueError, match="must have found something to transform with; got no components"):
        predict_with(tmp_path / "r", "noise.npy", tmp_path / "p.csv", None, None)


def test_csv_holds_no_formulas(tmp_path):
    columns = [["=1+1", "@SUM(A1)", "plain", "-3.5", "-x"], [-1.0, 2.0, 3.0, 4.0, 5.0]]
    using.write_columns(tmp_path / "out.csv", ["=name", "number"], columns)
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=name", "number"]
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'@SUM(A1)", "plain", "-3.5", "'-x"]
    assert [row[1] for row in rows[1:]] == ["-1.0", "2.0", "3.0", "4.0", "5.0"]


def test_a_wrong_strategy_names_the_closest(workplace):
    found = corollary("fit", "mlp", "--data", "flowers.csv", "--strategy", "fsbp", cwd=workplace)
    assert found.returncode
    assert "no strategy named 'fsbp'. Closest: 'fsdp'" in found.stderr + found.stdout
    assert "Traceback" not in found.stderr
