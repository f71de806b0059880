"""``diagnose`` takes any module: every form of input and output, and says what is needed where it cannot."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import corollary
from corollary import diagnose
from corollary.diagnose.subject import main_output, unwrapped

N = 120


def table(seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(N, 6, generator=g)
    return X, (X[:, 0] + X[:, 1] > 0).long()


X, Y = table()
TEXT = torch.randint(1, 30, (N, 10), generator=torch.Generator().manual_seed(1))


class Functional(nn.Module):
    """Everything by functional calls, with parameters of its own."""

    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.randn(6, 16) / 6**0.5)
        self.V = nn.Parameter(torch.randn(2, 16) / 4)

    def forward(self, x):
        return F.linear(F.relu(x @ self.W), self.V)


class Shared(nn.Module):
    """One layer used three times, and tied input and output vectors."""

    def __init__(self):
        super().__init__()
        self.words, self.mix = nn.Embedding(30, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 30, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        h = self.words(x).mean(1)
        for _ in range(3):
            h = h + torch.tanh(self.mix(h))
        return self.head(h)[:, :2]


class Two(nn.Module):
    """Two inputs, and several outputs as a dict."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(12, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, a, b):
        h = F.gelu(self.body(torch.cat([a, b], 1)))
        return {"logits": self.head(h), "other": self.other(h)}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cell = nn.Embedding(30, 8), nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.cell(self.words(x))[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask=None):
        h = self.block(
            self.words(input_ids),
            src_key_padding_mask=None if attention_mask is None else attention_mask == 0,
        )
        return SimpleNamespace(loss=None, logits=self.head(h.mean(1)))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 2)

    def forward(self, x):
        return Doubled.apply(self.body(x))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x, edges):
        A = torch.zeros(len(x), len(x)).index_put((edges[0], edges[1]), torch.tensor(1.0)) + torch.eye(len(x))
        A = A / A.sum(1, keepdim=True)
        return A @ self.two(F.relu(A @ self.one(x)))


def plain():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


EDGES = torch.randint(0, N, (2, 300), generator=torch.Generator().manual_seed(2))
FORMS = {
    "functional calls": (Functional, (X, Y)),
    "numpy arrays": (plain, (X.numpy(), Y.numpy())),
    "shared weights": (Shared, (TEXT, Y)),
    "a tuple of inputs, several outputs": (Two, ((X, X), Y)),
    "a dict of inputs": (Two, ({"a": X, "b": X}, Y)),
    "recurrent": (Recurrent, (TEXT, Y)),
    "attention, Hugging Face's dict and output": (
        Attention,
        {"input_ids": TEXT, "attention_mask": torch.ones_like(TEXT), "labels": Y},
    ),
    "convolutional": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
        ),
        (torch.randn(N, 1, 8, 8), Y),
    ),
    "custom autograd": (Custom, (X, Y)),
    "a graph by its edges": (Graph, ((X, EDGES), Y)),
    "half precision": (lambda: plain().bfloat16(), (X, Y)),
    "a loader": (plain, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=16)),
    "a data set": (plain, torch.utils.data.TensorDataset(X, Y)),
    "targets of numbers": (lambda: nn.Linear(6, 1), (X, X[:, :1])),
    "one label for each step": (
        lambda: nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 3)),
        (TEXT, TEXT % 3),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_module_is_measured_without_a_note_of_failure(form):
    make, data = FORMS[form]
    torch.manual_seed(0)
    model = make().eval()
    report = diagnose(model, data)
    assert not [f for f in report.findings if "could not be measured" in f.said or f.cause == "forward"]
    assert report.measurements["parameters"] == sum(p.numel() for p in model.parameters())
    assert report.measurements["layers"]


def test_the_model_and_the_random_state_are_left_as_they_were():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
    F.cross_entropy(model(X), Y).backward()
    model[1].eval()
    kept = []
    hook = model.register_forward_hook(lambda *_: kept.append(1))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters()]
    modes = [m.training for m in model.modules()]
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    diagnose(
        model,
        (X, Y),
        (X[:40] + 0.1, Y[:40]),
        optimizer=optimizer,
        batch_size=16,
        history=[{"loss": 1.0}] * 3,
        time_limit=3,
    )
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters()))
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch_state, torch.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()  # noqa: NPY002
    assert not kept
    hook.remove()


def test_wrapped_modules_are_seen_through():
    model = plain()
    assert unwrapped(nn.DataParallel(model)) is model
    compiled = torch.compile(model, backend="eager")
    assert unwrapped(compiled) is model
    report = diagnose(compiled, (X, Y))
    assert report.measurements["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_model_inside_ddp(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("torch was built without distributed")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(plain())
        report = diagnose(model, (X, Y))
    finally:
        torch.distributed.destroy_process_group()
    assert report.measurements["parameters"] == 146
    assert report.healthy


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_measured_from_outside_and_blamed_for_nothing_that_was_not_seen():
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
    nn.init.constant_(model[0].bias, -10)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for scripted in (torch.jit.script(model), torch.jit.trace(model, X[:4])):
        report = diagnose(scripted, (X, Y), loss="cross_entropy")
        assert set(f.cause for f in report.alarms) <= {"capacity-too-small"}
        said = next(f for f in report.findings if f.cause == "unmeasured")
        assert said.said.endswith("a scripted module hides its layers; pass the module that it was made from")
        assert all(torch.equal(p, before[k]) for k, p in scripted.state_dict().items())


def test_weights_without_values_are_said():
    report = diagnose(plain().to("meta"), (X, Y))
    assert any("meta device" in f.said for f in report.findings)


def test_users_of_skorch_and_lightning_hand_over_module_loader_and_optimiser():
    skorch = pytest.importorskip("skorch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = skorch.NeuralNetClassifier(
            plain, criterion=nn.CrossEntropyLoss, max_epochs=3, lr=0.1, verbose=0
        )
        net.fit(X.numpy(), Y.numpy())
    report = diagnose(net, (X.numpy(), Y.numpy()))
    assert report.measurements["loss"] == "cross_entropy"
    assert report.measurements["parameters"] == 146

    class Lit(nn.Module):  # as a LightningModule is: a module that holds one, with its own step
        def __init__(self):
            super().__init__()
            self.net = plain()

        def forward(self, x):
            return self.net(x)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-3)

    lit = Lit()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=16)
    assert diagnose(lit.eval(), loader, optimizer=lit.configure_optimizers(), batch_size=16).healthy


def test_a_fitted_estimator_needs_nothing_but_the_data():
    model = corollary.MLPClassifier((8,), training=corollary.Training(epochs=3), random_state=0)
    model.fit(X.numpy(), Y.numpy())
    report = diagnose(model, (X.numpy(), Y.numpy()), time_limit=4)
    assert report.measurements["task"] == "classes"
    assert not [f for f in report.findings if "could not be measured" in f.said]


def test_a_classical_estimator_is_measured_by_its_data():
    from sklearn.linear_model import LogisticRegression

    bad = X.numpy().copy()
    bad[3, 2] = np.nan
    report = diagnose(LogisticRegression(), (bad, Y.numpy()))
    assert report.findings[0].cause == "not-finite-data"


def test_outputs_of_any_form_have_a_main_tensor():
    z = torch.zeros(3, 2)
    for out in (z, (z, None), [z], {"logits": z}, SimpleNamespace(logits=z), {"a": None, "b": (z,)}):
        assert main_output(out) is z
    assert main_output({"a": "text"}) is None


# --- what cannot be ----------------------------------------------------------------------------------------


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 2)

    def forward(self, x):
        raise RuntimeError("out of luck")


class Needs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 2)

    def forward(self, x, mask):
        return self.body(x * mask)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Linear(9, 2), r"\[\(120, 6\)\].*\(2, 9\)"),
        (Raises(), "out of luck"),
        (Needs(), "mask"),
    ],
)
def test_a_forward_that_fails_is_named_and_the_data_are_measured_all_the_same(model, said):
    broken = X.clone()
    broken[2, 3] = float("nan")
    report = diagnose(model, (broken, Y), loss="cross_entropy")
    assert [f.cause for f in report.alarms] == ["not-finite-data"]
    note = next(f for f in report.findings if f.cause == "forward")
    import re

    assert re.search(said, note.said)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: diagnose(plain(), (X, Y[:50])), ValueError, r"as many rows; got X \(120, 6\) and y \(50,\)"),
        (lambda: diagnose(plain(), iter([])), ValueError, "an iterator that is at its end"),
        (lambda: diagnose(plain(), (X[:0], Y[:0])), ValueError, "data must have rows"),
        (lambda: diagnose(plain(), 7), TypeError, "data must be"),
        (lambda: diagnose("model", (X, Y)), TypeError, "model must be a torch module or a fitted estimator"),
        (lambda: diagnose(plain(), (X, Y), loss="cros_entropy"), ValueError, "cross_entropy"),
        (lambda: diagnose(plain(), (X, Y), loss=3), TypeError, "loss must be a name or a function"),
        (
            lambda: diagnose(plain(), (X, Y), optimizer="adam"),
            TypeError,
            "optimizer must be a torch optimiser",
        ),
    ],
)
def test_bad_input_is_said(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_loss_that_does_not_fit_the_output_is_a_finding():
    report = diagnose(nn.Linear(6, 3), (X, X[:, :2]), loss=nn.MSELoss())
    said = next(f.said for f in report.alarms if f.cause == "wrong-loss")
    assert "(120, 3)" in said
    assert "(120, 2)" in said
