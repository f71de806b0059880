"""Parameters, products, shapes, fields and memory of modules: enumerations, torch's counter, torchinfo and fvcore."""

import itertools
import warnings
from math import prod

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from corollary import MLPClassifier, diagnose
from corollary.theory.convolution import footprint


class Residual(nn.Module):
    """Branches, functional calls, strides, a shared layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.block = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        y = F.relu(self.norm(self.stem(x)))
        y = y + self.block(F.relu(self.block(y)))
        return self.head(F.max_pool2d(y, 2).mean((2, 3)))


class Tied(nn.Module):
    """Input and output weights are one, as in language models; takes several arguments."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.rnn = nn.GRU(6, 6, batch_first=True)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight
        self.idle = nn.Linear(2, 2)

    def forward(self, tokens, scale=None):
        h, last = self.rnn(self.embed(tokens))
        return {"logits": self.out(h * scale), "state": last}


NETS = {
    "residual": (Residual, (2, 3, 16, 16)),
    "chain": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, dilation=2), nn.ReLU(), nn.MaxPool1d(2), nn.ConvTranspose1d(4, 3, 2, stride=2),
            nn.Flatten(), nn.Linear(48, 7),
        ),
        (3, 2, 20),
    ),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), (5, 4)),
}  # fmt: skip


def made(name):
    build, shape = NETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(), shape


@pytest.mark.parametrize("name", NETS)
def test_counts_agree_with_torch_and_torchinfo(name):
    torchinfo = pytest.importorskip("torchinfo")
    net, shape = made(name)
    x = torch.rand(shape)
    found = diagnose.summary(net, x)
    with FlopCounterMode(display=False) as counter:
        net.eval()(x)
    assert found.flops == counter.get_total_flops() == 2 * found.macs
    theirs = torchinfo.summary(net, input_data=x, verbose=0)
    assert found.parameters == theirs.total_params
    if (
        name != "chain"
    ):  # it counts a transposed convolution by its outputs, of which stride by stride few taps are hit
        no_bias = theirs.total_mult_adds - sum(_bias_steps(net, x))
        assert found.macs == no_bias


@pytest.mark.slow  # importing it takes seconds
@pytest.mark.parametrize("name", NETS)
def test_counts_agree_with_fvcore(name):
    fvcore = pytest.importorskip("fvcore.nn")
    net, shape = made(name)
    x = torch.rand(shape)
    found = diagnose.summary(net, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flops = fvcore.FlopCountAnalysis(net, x)
        flops.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        by_kind = flops.by_operator()
    assert found.macs == by_kind["linear"] + by_kind["conv"]


def _bias_steps(net, x):
    """Yield the additions of biases, which torchinfo counts as well: one for each output of a convolution or layer."""
    found = diagnose.summary(net, x).frame
    for name, part in net.named_modules():
        if getattr(part, "bias", None) is not None and isinstance(part, nn.Linear | nn.Conv2d | nn.Conv1d):
            yield prod(found.loc[name, "output"]) * found.loc[name, "calls"]
        elif isinstance(part, nn.BatchNorm2d):
            yield found.loc[name, "output"][0] * sum(p.numel() for p in part.parameters())


def test_products_of_a_convolution_by_enumeration():
    n, c, k, size, stride, pad, groups, out = 2, 4, 3, 7, 2, 1, 2, 6
    net = nn.Conv2d(c, out, k, stride=stride, padding=pad, groups=groups)
    steps = 0
    side = (size + 2 * pad - k) // stride + 1
    for _ in itertools.product(
        range(n), range(out), range(side), range(side), range(c // groups), range(k), range(k)
    ):
        steps += 1
    found = diagnose.summary(net, (n, c, size, size))
    assert found.macs == steps
    assert found.layers[0].output == (n, out, side, side)


@pytest.mark.parametrize("kind, gates", [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_products_of_recurrent_layers(kind, gates):
    n, t, d, h = 2, 5, 3, 4
    net = kind(d, h, num_layers=2, bidirectional=True, batch_first=True)
    found = diagnose.summary(net, (n, t, d))
    assert found.macs == n * t * 2 * gates * h * ((d + h) + (2 * h + h))  # both directions of both layers
    assert found.parameters == sum(p.numel() for p in net.parameters())


def test_products_of_attention_in_every_mode():
    n, t, d, inner = 2, 5, 16, 32
    layer = nn.TransformerEncoderLayer(d, 4, inner, batch_first=True)
    expected = n * (t * d * 3 * d + 2 * t * t * d + t * d * d + 2 * t * d * inner)
    for net in (layer.eval(), layer.train()):
        found = diagnose.summary(net, (n, t, d))
        assert found.macs == expected
    assert layer.training
    assert found.frame.loc["self_attn.out_proj", "parameters"] == d * d + d
    assert found.unused == []  # it is used by a functional call


def test_sparse_products_count_entries():
    A = torch.eye(6).to_sparse()

    class Net(nn.Module):
        def forward(self, x):
            return torch.sparse.mm(A, x)

    assert diagnose.summary(Net(), (6, 3)).macs == 6 * 3


def test_shared_weights_count_once_and_dicts_are_arguments():
    net = Tied()
    given = {"tokens": torch.randint(0, 11, (2, 4)), "scale": torch.ones(6)}
    found = diagnose.summary(net, given)
    assert found.parameters == sum(p.numel() for p in net.parameters())
    assert found.frame.loc["out", "parameters"] == 0
    assert found.frame.loc["out", "shared"] == 66
    assert found.unused == ["idle.weight", "idle.bias"]
    assert found.layers[0].output == {"logits": (2, 4, 11), "state": (1, 2, 6)}
    assert found.macs == 2 * 4 * (3 * 6 * (6 + 6) + 6 * 11)
    assert found.macs == diagnose.summary(net, (given["tokens"], given["scale"])).macs
    assert "(shared)" in str(found)
    assert "2 parameters are not used" in str(found)


def test_a_dict_that_forward_does_not_know_is_one_argument():
    class Net(nn.Module):
        def forward(self, batch):
            return batch["a"] @ batch["b"]

    assert diagnose.summary(Net(), {"a": torch.ones(2, 3), "b": torch.ones(3, 4)}).macs == 24


# --- receptive fields ------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "dilated": lambda: nn.Sequential(nn.Conv2d(1, 2, 3, dilation=2), nn.ReLU(), nn.Conv2d(2, 1, 3, stride=2)),
    "pooled": lambda: nn.Sequential(nn.Conv2d(1, 2, 5, padding=2), nn.AvgPool2d(2), nn.Conv2d(2, 2, 3), nn.MaxPool2d(3, 2)),
    "reflected": lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, stride=3)),
    "branches": lambda: Branches(),
    "channels last": lambda: ChannelsLast(),
}  # fmt: skip


class Branches(nn.Module):
    """Two widths that meet, beside a shortcut."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 5, padding=2)
        self.c = nn.Conv2d(2, 1, 3)

    def forward(self, x):
        return self.c(torch.cat([self.a(x) + x, self.b(x)], 1))


class ChannelsLast(nn.Module):
    """As in ConvNeXt: a convolution, then layers of features with the image axes in front."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.mix = nn.Conv2d(1, 4, 7), nn.LayerNorm(4), nn.Linear(4, 2)
        self.last = nn.Conv2d(2, 1, 3)

    def forward(self, x):
        y = self.mix(self.norm(self.conv(x).permute(0, 2, 3, 1)))
        return self.last(y.permute(0, 3, 1, 2))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_fields_are_what_differentiation_finds(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = CONVOLUTIONS[name]()
    seen = footprint(net, (1, 31, 31))
    assert diagnose.summary(net, (1, 1, 31, 31)).receptive_field == tuple(len(axis) for axis in seen)


def test_fields_of_sums_and_flat_layers_are_everything():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    found = diagnose.summary(net, (1, 1, 9, 12)).frame["receptive_field"]
    assert found["0"] == (3, 3)
    assert found["3"] == (9, 12)
    flat = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(20, 2))
    assert diagnose.summary(flat, (1, 1, 12)).receptive_field == (12,)


def test_no_field_is_claimed_where_positions_were_shuffled():
    class Shuffled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(1, 1, 3)

        def forward(self, x):
            return self.conv(self.conv(x)[..., torch.randperm(8)])

    assert diagnose.summary(Shuffled(), (1, 1, 10)).receptive_field is None


# --- memory, state, errors -------------------------------------------------------------------------------


def test_memory_is_what_autograd_keeps():
    net = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))
    found = diagnose.summary(net, (5, 4))
    # sigmoid keeps its output, which is also the second layer's input; the input itself is the user's
    assert found.memory == 5 * 8 * 4
    assert found.frame.loc["1", "memory"] == found.memory
    assert found.input_bytes == 5 * 4 * 4
    assert found.parameter_bytes == 4 * found.parameters
    for p in net.parameters():
        p.requires_grad_(False)
    assert diagnose.summary(net, (5, 4)).memory == 0


def test_nothing_is_changed():
    net, shape = made("residual")
    net.train()
    net.head.eval()
    state = {key: value.clone() for key, value in net.state_dict().items()}
    random, hooks = torch.get_rng_state(), [len(m._forward_hooks) for m in net.modules()]
    diagnose.summary(net, shape)
    assert torch.equal(random, torch.get_rng_state())
    assert net.training and net.norm.training and not net.head.training
    assert hooks == [len(m._forward_hooks) for m in net.modules()]
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key])
    assert all(p.grad is None for p in net.parameters())


def test_estimators_wrappers_arrays_and_half_precision():
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20) % 2
    model = MLPClassifier((5,), random_state=0).fit(X, y)
    assert diagnose.summary(model, X).macs == 20 * (3 * 5 + 5 * 2)
    net = nn.Sequential(nn.Linear(3, 2)).to(torch.bfloat16)
    assert diagnose.summary(nn.DataParallel(net), X).macs == 20 * 6
    assert diagnose.summary(nn.Sequential(nn.Linear(3, 2)).to("meta"), (20, 3)).macs == 20 * 6
    assert (
        diagnose.summary(nn.BatchNorm1d(3), (1, 3)).parameters == 6
    )  # one row has no statistics to train with


@pytest.mark.slow  # the compiler takes seconds to import
def test_compiled_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of its own modules
        net = torch.compile(nn.Sequential(nn.Linear(3, 2)), backend="eager")
    found = diagnose.summary(net, (20, 3))
    assert found.macs == 20 * 6
    assert found.layers[0].type == "Sequential"


def test_the_table_and_the_plain_values():
    net, shape = made("residual")
    found = diagnose.summary(net, shape)
    text = str(found)
    assert "stem: Conv2d" in text and f"{found.macs:,} MACs" in text
    plain = found.to_dict()
    assert plain["macs"] == found.macs == sum(layer["macs"] for layer in plain["layers"])
    assert found.frame["calls"]["block"] == 2


def test_messages():
    with pytest.raises(
        ValueError,
        match=r"summary: Linear must run on the input; got RuntimeError .*\(2, 5\).*weight \(4, 3\)",
    ):
        diagnose.summary(nn.Linear(3, 4), (2, 5))
    with pytest.raises(
        TypeError, match=r"summary: model must be a torch module.*got the class MLPClassifier"
    ):
        diagnose.summary(MLPClassifier, (2, 5))
    with pytest.raises(TypeError, match=r"summary: input must be what the module is called with; got str"):
        diagnose.summary(nn.Linear(3, 4), "image")
