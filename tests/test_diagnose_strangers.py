"""What strangers hand to ``diagnose``: data in odd forms, callers in odd states, and what cannot be; nothing is silent."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import corollary
from corollary import diagnose
from corollary.diagnose.exam import Exam
from corollary.diagnose.outputs import reachable
from corollary.diagnose.pasting import pasted
from corollary.diagnose.reading import prepared, read
from corollary.diagnose.report import Finding, Report
from corollary.diagnose.rules import RULES
from corollary.diagnose.trials import Room, say

N = 120
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] > 0).long()
WORDS = np.array(["no", "yes"])


def net(inputs=6, outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


def slow_net():
    """Return a net that a rate of 1e-5 has left where it was drawn, and its optimiser."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
    return model.eval(), optimizer


# --- where it is called ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "around", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_the_mode_of_the_caller_changes_nothing(around):
    model, optimizer = slow_net()
    plain = diagnose.gradient_noise(model, (X, Y)), diagnose.sharpness(model, (X, Y))
    with around():
        assert diagnose.gradient_noise(model, (X, Y)).trace == plain[0].trace
        assert diagnose.sharpness(model, (X, Y)) == plain[1]
        found = diagnose(model, (X, Y), optimizer=optimizer)
    assert found.alarms[0].cause == "learning-rate-too-small"
    assert not found.unmeasured


def test_no_random_state_is_touched_by_a_loader_or_by_the_module():
    class Draws(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, x):
            random.random()
            np.random.rand()  # noqa: NPY002
            return self.body(x)

    loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True)
    model = Draws().eval()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    diagnose(model, loader, time_limit=2)
    diagnose.sharpness(model, loader)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert (before[2] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("limit", [0, -1.0, None, "a", float("nan")])
def test_a_time_limit_is_a_positive_number(limit):
    with pytest.raises(ValueError, match="time_limit must be a positive number of seconds"):
        diagnose(net(), (X, Y), time_limit=limit)


# --- forms of data -----------------------------------------------------------------------------------------


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Stream(IterableDataset):
    def __iter__(self):
        return zip(X, Y)


@pytest.mark.parametrize(
    "data",
    [
        Stream(),
        [(X[:60], Y[:60]), (X[60:], Y[60:])],
        [{"x": X[:60], "label": Y[:60]}, {"x": X[60:], "label": Y[60:]}],
        DataLoader(Items([{"x": x, "label": y} for x, y in zip(X, Y)]), 16),
        ([*X], Y),
        (X.numpy()[::-1], Y.numpy()[::-1]),
    ],
)
def test_every_form_of_the_same_data_is_read_alike(data):
    found = read(data, net())
    assert found.n == N
    assert sorted(found.x[:, 0].tolist()) == sorted(X[:, 0].tolist())
    assert int(found.y.sum()) == int(Y.sum())


def test_words_are_coded_as_in_training_whatever_a_batch_or_validation_holds():
    batches = [(X[Y == k], WORDS[Y[Y == k]]) for k in (1, 0)]  # one word in each batch
    found = prepared(net(), batches, (X[Y == 1], WORDS[Y[Y == 1]]))
    assert found.train.y.tolist() == [1] * int(Y.sum()) + [0] * int((1 - Y).sum())
    assert set(found.valid.y.tolist()) == {1}
    assert found.notes == [
        ("labels", "labels that are words are read in alphabetical order: no = 0, yes = 1")
    ]


@pytest.mark.parametrize("words", [False, True])
def test_classes_that_only_validation_has_are_said_and_left_out(words):
    labels = Y.clone()
    labels[:12] = 2
    names = np.array(["no", "yes", "zebra"])
    data, valid = ((X, names[Y]), (X + 0.1, names[labels])) if words else ((X, Y), (X + 0.1, labels))
    report = diagnose(net(), data, valid, time_limit=5)
    finding = next(f for f in report.alarms if f.cause == "distribution-shift")
    assert finding.value == pytest.approx(0.1)
    assert ("zebra" if words else "(2)") in finding.said
    assert np.isfinite(report.measurements["valid loss"])


@pytest.mark.parametrize("empty", [(X[:0], Y[:0]), DataLoader(TensorDataset(X[:0], Y[:0]))])
def test_a_validation_without_rows_is_said_and_the_rest_is_measured(empty):
    report = diagnose(net(), (X, Y), empty, time_limit=5)
    assert any("validation has no rows" in f.said for f in report.findings)
    assert np.isfinite(report.measurements["train loss"])


def test_tokens_of_batches_of_unequal_lengths_are_filled_up_and_numbers_of_unequal_forms_refused():
    module = nn.Embedding(9, 2, padding_idx=7)
    batches = iter(
        [
            (torch.ones(2, 3).long(), torch.ones(2, 3).long()),
            (torch.ones(1, 5).long(), torch.ones(1, 5).long()),
        ]
    )
    found = read(batches, module)
    assert found.x.tolist() == [[1, 1, 1, 7, 7], [1, 1, 1, 7, 7], [1] * 5]
    assert found.y.tolist() == [[1, 1, 1, -100, -100], [1, 1, 1, -100, -100], [1] * 5]
    with pytest.raises(ValueError, match="batches must have inputs and targets of one form"):
        read(iter([(torch.ones(2, 3), Y[:2]), (torch.ones(2, 3, 1), Y[:2])]), module)


def test_items_of_unequal_size_ask_for_the_loader():
    with pytest.raises(ValueError, match="Pass the loader that it was trained with"):
        diagnose(net(), Items([(torch.ones(1 + i % 2), 0) for i in range(4)]))


def test_a_frame_is_read_without_a_warning_and_one_with_words_is_named():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X.numpy())
    assert read((frame, pd.Series(Y.numpy())), net()).n == N
    with pytest.raises(ValueError, match="X must hold numbers; got 'Rome' among them"):
        diagnose(net(), (frame.assign(city="Rome"), Y))


def test_several_inputs_in_a_list_and_several_targets_are_taken_in_batches():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = net(9), nn.Linear(9, 1)

        def forward(self, x, z):
            both = torch.cat([x, z], 1)
            return self.a(both), self.b(both)

    def loss(out, target):
        return F.cross_entropy(out[0], target[0]) + F.mse_loss(out[1], target[1])

    data = ([X, X[:, :3]], (Y, X[:, :1]))
    report = diagnose(Joined().eval(), data, loss=loss, time_limit=5)
    assert report.healthy
    assert not report.unmeasured
    part = read(data).take([1, 4])
    assert part.y[0].tolist() == Y[[1, 4]].tolist()
    assert part.y[1].shape == (2, 1)


def test_a_module_that_takes_its_dict_whole_is_called_so_and_torchs_loss_gets_its_logits():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, batch):
            return {"logits": self.body(batch["features"]), "mean": batch["features"].mean()}

    loader = DataLoader(Items([{"features": x, "label": y} for x, y in zip(X, Y)]), 16)
    report = diagnose(Whole().eval(), loader, loss=nn.CrossEntropyLoss(), time_limit=5)
    assert not report.uncalled
    assert np.isfinite(report.measurements["train loss"])
    assert not [f for f in report.alarms if f.cause == "wrong-loss"]


# --- several heads -----------------------------------------------------------------------------------------


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.first, self.second = nn.Linear(6, 32), nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, x):
        h = F.relu(self.trunk(x))
        return self.first(h), self.second(h)


def test_a_head_beside_the_answers_is_no_bottleneck_and_limits_no_output():
    torch.manual_seed(0)
    model = Heads().eval()
    exam = Exam(prepared(model, (X, Y), loss=lambda out, y: F.cross_entropy(out[0], y)), 30)
    low, high = reachable(exam)
    assert float((high - low).min()) > 100
    causes = [
        f.cause
        for f in diagnose(model, (X, Y), loss=lambda out, y: F.cross_entropy(out[0], y), time_limit=5).alarms
    ]
    assert "bottleneck" not in causes
    assert "output-range" not in causes


class Code(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.encoder, self.decoder, self.parts = nn.Linear(6, 8), nn.Linear(4, 6), parts

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return (self.decoder(code), mean, log_variance)[: self.parts]


@pytest.mark.parametrize("parts", [3, 1])
def test_a_code_that_is_drawn_is_meant_so_where_its_distribution_is_returned(parts):
    torch.manual_seed(0)
    report = diagnose(Code(parts).eval(), (X, X), loss=lambda out, x: F.mse_loss(out[0], x), time_limit=5)
    assert ("stochastic-evaluation" in [f.cause for f in report.alarms]) is (parts == 1)


def test_a_model_left_in_training_mode_is_told_so():
    model = nn.Sequential(nn.Dropout(0.5), net()).train()
    report = diagnose(model, (X, Y), time_limit=5)
    assert "the model is in training mode" in next(
        f.said for f in report.alarms if f.cause == "stochastic-evaluation"
    )


# --- what cannot be ----------------------------------------------------------------------------------------


class Needs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 2)

    def forward(self, x, lengths, *, mask):
        return self.body(x)


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 2)

    def forward(self, x):
        return None


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Needs(), "It takes 3 inputs: pass X as {'x': …, 'lengths': …, 'mask': …}"),
        (Empty(), "returns NoneType, in which there is no tensor"),
        (nn.Linear(9, 2), "(120, 6)"),
    ],
)
def test_a_model_that_cannot_be_called_is_not_healthy_and_says_so_once(model, said, tmp_path):
    report = diagnose(model, (X, Y), loss="cross_entropy")
    assert not report.healthy
    assert str(report).startswith("diagnosis: the model could not be called")
    notes = [f for f in report.findings if not f.alarm]
    assert said in notes[0].said
    assert [f.cause for f in notes] == ["forward", "unmeasured"]  # one note for all that needs the model
    page = report.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "could not be called" in page
    assert "Nothing found wrong" not in page


def test_a_loss_that_cannot_be_taken_is_one_finding_and_one_note():
    report = diagnose(net(), (X, Y), loss=nn.BCEWithLogitsLoss())
    assert [f.cause for f in report.findings] == ["wrong-loss", "unmeasured"]
    assert "needs the loss" in report.findings[1].said


def test_what_was_left_out_for_want_of_time_is_part_of_the_verdict(tmp_path):
    report = Report(
        [Finding("unmeasured", "info", where="shift, fragile", said="left out: the time limit was reached")],
        {},
    )
    assert report.unmeasured == ["shift", "fragile"]
    assert "nothing found wrong in what was measured; 2 checks were not made" in str(report)
    assert "2 checks were not made: shift, fragile" in report.to_html(tmp_path / "r.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: diagnose(net(), X, loss="cross_entropy"),
            ValueError,
            "cross_entropy needs targets; got X alone",
        ),
        (lambda: diagnose(net(), (X, Y), loss=nn.CrossEntropyLoss), TypeError, r"Write CrossEntropyLoss\(\)"),
        (lambda: diagnose(nn.Linear, (X, Y)), TypeError, "got the class Linear. Make one"),
        (lambda: diagnose(net(), DataLoader(TensorDataset(X[:0]))), ValueError, "got an empty DataLoader"),
        (lambda: diagnose(corollary.MLPClassifier(), (X.numpy(), Y.numpy())), ValueError, "not fitted"),
        (
            lambda: diagnose.hessian(net(), (X * np.nan, Y)),
            ValueError,
            "hessian: the loss must be finite; got nan",
        ),
        (lambda: diagnose.gradient_noise(net(), (X * np.nan, Y)), ValueError, "gradients must be finite"),
    ],
)
def test_what_is_needed_is_said(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_an_optimiser_may_come_as_lightning_returns_it():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for given in ([optimizer], ([optimizer], []), {"optimizer": optimizer, "lr_scheduler": None}):
        assert corollary.diagnose.examine.Settings.of(given, None).learning_rate == 0.25


# --- what is said and pasted -------------------------------------------------------------------------------


def test_the_rate_that_was_tried_is_the_one_that_is_named_and_pasted():
    model, optimizer = slow_net()
    report = diagnose(model, (X, Y), optimizer=optimizer)
    first = report.alarms[0]
    rate = first.repair["learning_rate"]
    assert rate > 1e-4  # ten times the rate would do next to nothing
    assert f"with a rate of {rate:.3g} it is" in first.said
    assert f"{rate:.3g}" in first.code


def test_usual_settings_are_not_told_as_a_tenth_of_an_unknown_rate():
    exam = Exam(prepared(net(), (X, Y)), 30)
    run = exam.lab.run("good", exam.subject.twin(), steps=3, rate=1e-3)
    room = Room(1.0, 0.5, float("nan"), float("nan"), 0.7)
    say(exam, "weight-decay-too-large", 1.0, room, run, None)
    say(exam, "learning-rate-too-large", 1.0, room, run, None)
    for finding in exam.findings.values():
        assert "with usual settings (Adam at 0.001, no decay, no dropout)" in finding.said
    names = {"torch": torch, "model": net()}
    exec(exam.findings["learning-rate-too-large"].code, names)  # noqa: S102
    assert names["optimizer"].param_groups[0]["lr"] == 1e-3


def test_the_temperature_of_the_model_as_it_is_is_no_setting_of_one_trained_anew():
    tempered = Finding("miscalibrated", "warning", repair={"temperature": 3.0})
    assert Report([tempered], {}).repair() == {"temperature": 3.0}
    scaled = Finding("unscaled-inputs", "warning", repair={"standardise_inputs": True})
    assert Report([scaled, tempered], {}).repair() == {"standardise_inputs": True}


def test_the_gain_of_a_repair_is_printed():
    assert "  gain: 0.25" in str(Report([], {}, proof={"changed": {}, "gain": 0.25}))


STANDS = (
    "not-finite-data", "unscaled-inputs", "constant-features", "duplicate-features", "train-test-overlap", "distribution-shift",
    "class-imbalance", "wrong-loss", "symmetric-initialisation", "saturated-units", "dead-units", "vanishing-gradient",
    "overfit", "adversarially-fragile", "batch-too-small", "frozen-parameters",
)  # fmt: skip


@pytest.mark.parametrize("cause", STANDS)
def test_the_general_repair_runs_as_it_stands(cause):
    tensors = cause in ("class-imbalance", "adversarially-fragile", "wrong-loss")
    names = {
        "X": X.clone() if tensors else X.numpy().copy(), "y": Y.clone() if tensors else Y.numpy().copy(), "numpy": np,
        "torch": torch, "nn": nn, "F": F, "model": net(), "loss": nn.CrossEntropyLoss(), "DataLoader": DataLoader,
        "data": TensorDataset(X, Y), "corollary": corollary,
    }  # fmt: skip
    exec(pasted(cause, {}), names)  # noqa: S102
    assert RULES[cause].code == pasted(cause, {})


def test_repeated_rows_are_dropped_with_their_labels():
    names = {"numpy": np, "X": np.array([[3.0], [1.0], [3.0]]), "y": np.array([30, 10, 30])}
    exec(pasted("train-test-overlap", {}), names)  # noqa: S102
    assert (names["X"][:, 0] * 10 == names["y"]).all()
    assert len(names["y"]) == 2
    names = {"numpy": np, "X": np.array([[3.0, 1.0, 3.0]])}
    exec(pasted("duplicate-features", {}), names)  # noqa: S102
    assert names["X"].tolist() == [[3.0, 1.0]]  # in the order that they had


def test_a_loss_that_is_nan_before_any_update_is_not_the_rates_fault():
    said = []
    watch = diagnose.Watch(say=said.append)
    model = nn.Linear(2, 1)
    watch.after_step(model, torch.tensor(float("nan")))
    assert said[0].startswith("not-finite-data at step 1: the loss is nan")


def test_the_page_shows_runs_by_what_they_are_and_the_proof_before_the_rest(tmp_path):
    first = Finding(
        "learning-rate-too-small", "warning", evidence={"losses": [3.0, 2.0, 1.0], "control": [3.0, 3.0, 3.0]}
    )
    second = Finding("capacity-too-small", "warning", explained_by="learning-rate-too-small")
    proof = {"changed": {"learning_rate": 0.1}, "gain": 0.5}
    report = Report([first, second], {"baseline valid score": float("nan")}, proof=proof)
    axes = report.plot().axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["with the change", "as it is"]
    assert axes.get_xlabel() == "step"
    page = report.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.index("Proof") < page.index("Also found") < page.index("mend that first")
    assert "learning_rate = 0.1" in page
    assert "nan" not in page.partition("<h2>Details")[2]
