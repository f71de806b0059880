"""What every net for sequences must do: run elsewhere, in every type, learn in every part, overfit a batch."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from corollary.nn import LRU, TemporalConvNet
from corollary.sequences.memory import MemoryNet
from corollary.sequences.network import CELLS, RECURRENT, SequenceNetwork
from corollary.sequences.seq2seq import Seq2SeqNetwork
from corollary.sequences.textcnn import TextCNNNetwork
from corollary.sequences.wavenet import WaveNetwork
from corollary.testing import overfitted

torch.set_num_threads(1)


class Full(nn.Module):
    """A net for pairs, on sequences without padding."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return self.net(x, None, y)


X, Y = torch.arange(4, 25).reshape(3, 7) % 8 + 4, torch.arange(15).reshape(3, 5) % 5 + 4
VECTORS = torch.sin(torch.arange(63.0) ** 2).reshape(3, 7, 3)


def both_ways(cell, dropout):
    n_layers = 2 if cell in RECURRENT else 1
    options = {"bidirectional": True, "embedding_dimension": 5, "dropout": dropout}
    return SequenceNetwork(12, 3, cell, width=6, n_layers=n_layers, **options)


def every_step(cell, dropout):
    return SequenceNetwork(3, 2, cell, width=6, n_layers=2, pooling=None, dropout=dropout)


# name -> (make(dropout), inputs)
NETS = {
    **{f"{cell}-codes-both-ways": (lambda p, c=cell: both_ways(c, p), (X,)) for cell in CELLS},
    "gru-vectors-every-step": (lambda p: every_step("gru", p), (VECTORS,)),
    "lru-layer": (lambda p: LRU(3, 5), (VECTORS,)),
    "temporal-conv": (lambda p: TemporalConvNet(7, (6, 6), dropout=p), (VECTORS,)),
    "memory": (lambda p: MemoryNet(12, 3, width=8, n_facts=7), (X[:, :, None].repeat(1, 1, 2), X)),
    "seq2seq": (lambda p: Full(Seq2SeqNetwork(12, 9, width=8, dropout=p)), (X, Y)),
    "seq2seq-lstm-plain": (
        lambda p: Full(Seq2SeqNetwork(12, 9, "lstm", width=8, n_layers=2, attention=False, dropout=p)),
        (X, Y),
    ),
    "textcnn": (lambda p: TextCNNNetwork(12, 3, dropout=p), (X,)),
    "wavenet": (lambda p: WaveNetwork(12, 6, 7, n_layers=3), (X,)),
}
NAMES = [*NETS]
LAYERS = {"lru-layer", "temporal-conv"}  # one is linear, the other never negative: parts of nets
FIXED = {"temporal-conv"}  # its second axis holds the channels
DROPS = [name for name in NETS if name not in ("lru-layer", "memory", "wavenet")]


def made(name, dropout=0.0, dtype=torch.float32):
    make, inputs = NETS[name]
    torch.manual_seed(0)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    return make(dropout).to(dtype), inputs


def loss(net, inputs):
    """Squares around different targets, so that every part of the output has something to learn."""
    out = net(*inputs)
    return (out - torch.linspace(-1, 1, out.numel()).view_as(out)).square().mean()


# --- elsewhere --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # of the exporter's own making
def test_onnx_gives_the_same_at_other_lengths_too(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    net, inputs = made(name)
    names = [f"input{i}" for i in range(len(inputs))]
    axes = {n: {0: "batch"} if name in FIXED else {0: "batch", 1: "time"} for n in names}
    where = tmp_path / "net.onnx"
    torch.onnx.export(net.eval(), inputs, where, dynamo=False, input_names=names, dynamic_axes=axes)
    session = ort.InferenceSession(where)
    for given in (inputs, tuple(x[:2] if name in FIXED else x[:2, :4] for x in inputs)):
        (found,) = session.run(None, {n: x.numpy() for n, x in zip(names, given)})
        np.testing.assert_allclose(found, net(*given).detach(), atol=1e-5)  # float32 through other kernels


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_an_exported_program_gives_the_same(name):
    net, inputs = made(name)
    program = torch.export.export(net.eval(), inputs)
    # the doubling scan adds in another order
    torch.testing.assert_close(program.module()(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_net_gives_the_same_and_the_same_gradients(name):
    torch._dynamo.reset()
    net, inputs = made(name)
    wanted = torch.autograd.grad(loss(net, inputs), [*net.parameters()])
    compiled = torch.compile(net, backend="aot_eager")
    found = torch.autograd.grad(loss(compiled, inputs), [*net.parameters()])
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # a compiler is called many times
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_inductor_gives_the_same(name):
    torch._dynamo.reset()
    net, inputs = made(name)
    torch.testing.assert_close(torch.compile(net.eval())(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)


# --- types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_backward_reaches_every_parameter_in_double_precision(name):
    net, inputs = made(name, dtype=torch.float64)
    assert net(*inputs).dtype == torch.float64
    loss(net, inputs).backward()
    for which, p in net.named_parameters():
        assert p.grad is not None and (p.grad != 0).any() and p.grad.isfinite().all(), which


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_near_full(name):
    net, inputs = made(name)
    full = net.eval()(*inputs).detach()
    half, inputs = made(name, dtype=torch.bfloat16)
    out = half.eval()(*inputs).detach()
    assert out.dtype == torch.bfloat16
    assert (out.float() - full).norm() < 0.1 * full.norm()  # 8 bits of mantissa, some tens of roundings
    loss(half.train(), inputs).backward()
    assert all(p.grad.isfinite().all() for p in half.parameters())


# --- learning ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_training_and_evaluation_differ_by_dropout_alone(name):
    net, inputs = made(name)
    torch.testing.assert_close(net.train()(*inputs), net.eval()(*inputs))


@pytest.mark.parametrize("name", DROPS)
def test_dropout_drops_while_training_and_never_later(name):
    net, inputs = made(name, dropout=0.5)
    net.train()
    assert not torch.equal(net(*inputs), net(*inputs))
    net.eval()
    assert torch.equal(net(*inputs), net(*inputs))


@pytest.mark.parametrize("name", [name for name in NETS if name not in LAYERS])
def test_one_batch_can_be_overfitted(name):
    net, inputs = made(name)
    # a constant leaves the variance of the targets, a third
    assert overfitted(net, lambda: loss(net, inputs), below=0.1) < 0.1
