"""What a diagnosis gives back: findings in full, repairs that can be pasted and proved, pages, the command line, the rules."""

import json

import numpy as np
import pytest
import torch
from docs.causes import EXAMPLES, cause_pages, program
from torch import nn
from torch.nn import functional as F

from corollary import diagnose
from corollary.diagnose import CAUSES, FAMILIES, Finding, Report
from corollary.diagnose.pasting import CODE, pasted
from corollary.diagnose.ranking import EXPLAINS
from corollary.diagnose.rules import RULES
from corollary.formulas import all_formulas

VOCABULARY = """
not-finite-data overflow unscaled-inputs unscaled-targets constant-features duplicate-features train-test-overlap
distribution-shift target-leak misaligned-labels no-signal label-noise class-imbalance double-softmax wrong-loss output-range
stochastic-evaluation detached-parameters frozen-parameters gradients-not-cleared symmetric-initialisation saturated-units
dead-units exploding-gradient vanishing-gradient oversmoothing receptive-field-too-small bottleneck batch-too-small
learning-rate-too-large learning-rate-too-small weight-decay-too-large dropout-too-large capacity-too-small overfit
posterior-collapse mode-collapse miscalibrated adversarially-fragile
""".split()


def data(n=240, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 5, generator=g)
    return X, (X[:, 0] + X[:, 1] > 0).long()


def small():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.fixture(scope="module")
def report():
    X, y = data()
    X[:, 3] *= 5000
    X[:, 4] = 1.0
    return diagnose(small(), (X, y), loss="cross_entropy")


# --- the table ---------------------------------------------------------------------------------------------


def test_the_rules_cover_the_vocabulary_and_every_row_is_whole():
    assert set(VOCABULARY) <= set(CAUSES)
    known = {f.id for f in all_formulas()}
    for cause, rule in RULES.items():
        assert rule.family in FAMILIES, cause
        assert rule.formula in known, cause
        assert rule.severity in ("warning", "error"), cause
        assert all(text for field, text in rule._asdict().items() if field != "code"), cause
    assert [FAMILIES.index(r.family) for r in RULES.values()] == sorted(
        FAMILIES.index(r.family) for r in RULES.values()
    )
    assert set(EXPLAINS) <= set(CAUSES)
    assert all(set(below) <= set(CAUSES) for below in EXPLAINS.values())


def test_there_is_a_page_with_an_example_for_every_cause():
    pages = cause_pages(all_formulas())
    assert set(EXAMPLES) == set(CAUSES)
    for cause in CAUSES:
        text = pages[f"diagnose/{cause}.md"]
        for head in (
            "How it looks",
            "Why it happens",
            "How it is measured",
            "How it is repaired",
            "An example",
        ):
            assert f"## {head}" in text
        assert f"[{cause}]" in pages["diagnose/index.md"]


def run_example(cause):
    names = {}
    torch.manual_seed(0)
    exec(compile(program(cause).replace("print(", "str("), cause, "exec"), names)  # noqa: S102  our own pages
    return [f.cause for f in names["report"].alarms]


QUICK = ("not-finite-data", "overflow", "double-softmax", "mode-collapse", "stochastic-evaluation")


@pytest.mark.parametrize("cause", QUICK)
def test_the_example_of_a_page_shows_its_cause(cause):
    assert run_example(cause)[0] == cause


@pytest.mark.slow
@pytest.mark.parametrize("cause", [c for c in CAUSES if c not in QUICK])
def test_every_example_shows_its_cause(cause):
    assert run_example(cause)[0] == cause


# --- findings ----------------------------------------------------------------------------------------------


def test_a_finding_is_whole(report):
    first = report.findings[0]
    assert first.cause == "unscaled-inputs"
    assert first.value > 1000
    assert first.where == "column 3"
    assert first.formula in first.link
    assert first.threshold
    assert first.advice
    assert "std" in first.code
    assert first.evidence["sizes"][3] > 1000
    text = str(report)
    for part in (
        "unscaled-inputs",
        "fires:",
        "do:",
        "formula:",
        "docs/diagnose/unscaled-inputs.md",
        "measurements",
    ):
        assert part in text
    assert {f.cause for f in report.alarms} >= {"unscaled-inputs", "constant-features"}
    assert json.loads(json.dumps(report.to_dict()))["findings"][0]["cause"] == "unscaled-inputs"


def test_the_repair_is_a_configuration_and_code(report):
    assert report.repair() == {"standardise_inputs": True, "drop_columns": [4]}
    X = np.array([[1.0, 10.0], [3.0, 30.0]])
    names = {"X": X, "numpy": np, "y": np.arange(4)}
    exec(pasted("unscaled-inputs", {"standardise_inputs": True}), names)  # noqa: S102
    assert np.allclose(names["X"].std(0), 1)
    exec(pasted("constant-features", {"drop_columns": [0]}), names)  # noqa: S102
    assert names["X"].shape == (2, 1)
    exec(pasted("misaligned-labels", {"roll_targets": 1}), names)  # noqa: S102
    assert names["y"].tolist() == [1, 2, 3, 0]
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9), nn.Linear(2, 2))
    made = {
        "model": model, "nn": nn, "torch": torch, "F": F, "logits": torch.ones(2), "data": [1, 2], "y": np.arange(3.0),
        "optimizer": torch.optim.SGD(model.parameters(), 3.0), "DataLoader": torch.utils.data.DataLoader,
        "X": X, "numpy": np,
    }  # fmt: skip
    values = {
        "drop_columns": [1], "roll_targets": 0, "class_weight": {0: 0.5, 1: 9.0}, "loss": "mse", "learning_rate": 0.1,
        "weight_decay": 0.0, "dropout": 0.2, "batch_size": 4, "clip_norm": 1.0, "initialise": "xavier", "temperature": 2.0,
        "estimator": "ExtraTreesClassifier",
    }  # fmt: skip
    for key in CODE:
        exec(pasted("overfit", {key: values.get(key, True)}), made)  # noqa: S102  every line can be run
    exec(pasted("learning-rate-too-large", {"learning_rate": 0.1}), made)  # noqa: S102
    assert made["optimizer"].param_groups[0]["lr"] == 0.1
    assert model[1].p == 0.2
    assert not model.training


@pytest.mark.parametrize("cause", ["unscaled-inputs", "weight-decay-too-large", "wrong-loss"])
def test_prove_trains_both_and_shows_the_gain(cause):
    from corollary.diagnose.exam import Exam
    from corollary.diagnose.proof import proved
    from corollary.diagnose.reading import prepared
    from corollary.diagnose.subject import Settings

    X, y = data()
    model = small()
    optimizer = torch.optim.Adam(
        model.parameters(), 1e-2, weight_decay=5.0 if cause == "weight-decay-too-large" else 0.0
    )
    loss, repair = "cross_entropy", {"weight_decay": 0.0}
    if cause == "unscaled-inputs":
        X[:, 3] *= 5000
        repair = {"standardise_inputs": True}
    if cause == "wrong-loss":
        loss, repair = (lambda out, target: -F.cross_entropy(out, target)), {"loss": "cross_entropy"}
    subject = prepared(
        model, (X[:160], y[:160]), (X[160:], y[160:]), loss=loss, settings=Settings.of(optimizer, 32)
    )
    exam = Exam(subject, 30)
    exam.lab.cost = 1.0  # the least number of steps
    found = proved(exam, repair)
    assert found["changed"] == repair
    assert found["gain"] > 0.1
    assert found["validation score repaired"] > 0.7


def test_prove_on_the_whole_and_where_nothing_can_be_trained(monkeypatch):
    from corollary.diagnose import proof

    monkeypatch.setattr(proof, "SECONDS", 0.05)
    X, y = data()
    X[:, 3] *= 5000
    found = diagnose(small(), (X, y), loss="cross_entropy", prove=True)
    assert found.proof["changed"] == {"standardise_inputs": True}
    assert "gain" in found.proof
    X[2, 2] = float("nan")
    assert "not mended by settings" in diagnose(small(), (X, y), prove=True).proof["said"]


def test_what_is_sure_and_upstream_comes_first():
    from corollary.diagnose.ranking import ranked

    class Asked:
        sure = {"overfit": 0.9, "unscaled-inputs": 1.0, "dead-units": 0.9, "miscalibrated": 0.9}
        findings = {c: Finding(c, RULES[c].severity) for c in sure}
        notes = [Finding("note", "info")]
        facts = {}

    order = ranked(Asked())
    assert [f.cause for f in order] == ["unscaled-inputs", "overfit", "dead-units", "miscalibrated", "note"]
    assert order[0].explains == ["dead-units"]
    assert order[2].severity == "warning"  # among the first three a consequence may be the cause after all
    assert order[2].explained_by == "unscaled-inputs"
    assert order[3].severity == "info"


# --- pages and the command line ----------------------------------------------------------------------------


def test_the_page_has_verdict_picture_and_repair(report, tmp_path):
    report.proof = {"changed": {"standardise_inputs": True}, "gain": 0.25}
    text = report.to_html(tmp_path / "report.html").read_text(encoding="utf-8")
    report.proof = None
    assert (
        text.index("class='verdict")
        < text.index("<svg" if "<svg" in text else "<img")
        < text.index("What to do")
    )
    for part in (
        "unscaled-inputs",
        "constant-features",
        "Proof",
        "0.25",
        "corollary formula condition-number",
        "Layers",
    ):
        assert part in text
    healthy = Report([], {"loss": "mse"}).to_html(tmp_path / "fine.html").read_text(encoding="utf-8")
    assert "Nothing found wrong" in healthy
    assert report.plot().axes


def test_the_command_line_exits_with_one_on_an_error(run, tmp_path):
    import pandas as pd

    X, y = data()
    noise = np.random.default_rng(0).normal(size=240)
    frame = pd.DataFrame(X.numpy(), columns=list("abcde")).assign(
        y=np.where(y.numpy() + 0.7 * noise > 0.5, "yes", "no")
    )
    frame.assign(after=(frame["y"] == "yes") + 0.01 * noise).to_csv("leak.csv", index=False)
    code, *_ = run(
        "fit",
        "mlp",
        "--data",
        "leak.csv",
        "--target",
        "y",
        "--run",
        "runs/leak",
        "--set",
        "training.epochs=4",
    )
    assert code == 0
    code, out, _ = run(
        "diagnose", "runs/leak", "--data", "leak.csv", "--html", "leak.html", "--time-limit", "5"
    )
    assert code == 1
    assert "target-leak" in out
    assert "target-leak" in (tmp_path / "leak.html").read_text(encoding="utf-8")
    code, out, _ = run("diagnose", "runs/leak", "--data", "leak.csv", "--json", "--time-limit", "5")
    assert json.loads(out)["findings"][0]["cause"] == "target-leak"


def test_probabilities_within_their_range_are_no_fault_of_a_loss_that_takes_them():
    X, y = data()
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    bounded = nn.Sequential(*net[:3], nn.Tanh())
    own = diagnose(net, (X, y.float()), loss=lambda z, t: F.binary_cross_entropy(z[:, 0], t))
    logits = diagnose(
        bounded, (X, y.float()), loss=lambda z, t: F.binary_cross_entropy_with_logits(z[:, 0], t)
    )
    assert "output-range" not in [f.cause for f in own.findings]
    assert "output-range" in [f.cause for f in logits.findings]
