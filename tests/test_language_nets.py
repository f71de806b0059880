"""What every net of the chapter must do: learn, forget nothing, change type, and run elsewhere."""

import copy
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corollary.language.bert_heads import HeadedNetwork
from corollary.language.decoder import Decoder
from corollary.language.elmo import PLACES, ELMoNetwork
from corollary.language.encoder import BertNetwork
from corollary.language.transformer import TransformerNetwork
from corollary.sequences.textcnn import TextCNNNetwork

torch.set_num_threads(1)

LENGTHS = torch.tensor([7, 4, 5])


class Pretraining(nn.Module):
    """BERT's two heads, as its own training has them, at every place."""

    def __init__(self, **options):
        super().__init__()
        self.bert = BertNetwork(12, 8, **options)

    def forward(self, tokens, lengths=None):
        h = self.bert(tokens, lengths)
        return self.bert.guesses(h), self.bert.follows(self.bert.pooled(h))


class Translating(nn.Module):
    """A net for pairs with its inputs in the order of the others."""

    def __init__(self, **options):
        super().__init__()
        self.net = TransformerNetwork(12, 9, **options)

    def forward(self, x, y, lengths=None):
        return self.net(x, lengths, y)


def draw(high, *shape, seed=0):
    return torch.randint(4, high, shape, generator=torch.Generator().manual_seed(seed))


SIZES = {"width": 16, "n_heads": 2, "n_layers": 2, "inner_width": 32}
TOKENS = draw(12, 3, 7)
NETS = {
    "gpt": (lambda dropout: Decoder(12, 8, 16, 2, 2, dropout=dropout), (TOKENS,)),
    "gpt-untied": (lambda dropout: Decoder(12, 8, 16, 2, 2, dropout=dropout, tied=False), (TOKENS,)),
    "bert": (lambda dropout: Pretraining(**SIZES, dropout=dropout), (TOKENS,)),
    "bert-classifier": (
        lambda dropout: HeadedNetwork(BertNetwork(12, 8, **SIZES, dropout=dropout), 3, dropout, 5),
        (TOKENS,),
    ),
    "bert-tagger": (
        lambda dropout: HeadedNetwork(
            BertNetwork(12, 8, **SIZES, dropout=dropout), 3, dropout, 5, pooled=False
        ),
        (TOKENS,),
    ),
    "transformer": (lambda dropout: Translating(**SIZES, dropout=dropout), (TOKENS, draw(9, 3, 5, seed=1))),
    "elmo": (
        lambda dropout: ELMoNetwork(12, 9, width=8, n_out=2, dropout=dropout),
        (draw(12, 3, 7, PLACES),),
    ),
    "text-cnn": (
        lambda dropout: TextCNNNetwork(12, 3, embedding_dimension=8, n_filters=8, dropout=dropout),
        (TOKENS,),
    ),
}
every = pytest.mark.parametrize("name", NETS)


def build(name, dropout=0.0, seed=0):
    make, inputs = NETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = make(dropout)
        for p in net.parameters():  # large enough weights that mistakes show
            if p.ndim > 1 and not name.startswith("elmo"):
                nn.init.normal_(p, std=0.2)
    return net.eval(), inputs


def listed(out):
    return list(out) if isinstance(out, tuple) else [out]


def same(found, wanted, **tolerance):
    for a, b in zip(listed(found), listed(wanted), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def loss(net, inputs, seed=0):
    """Return the cross-entropy of random answers, one for every place or text."""
    losses = []
    for logits in listed(net(*inputs)):
        n = logits.shape[-1]
        wanted = draw(4 + n, *logits.shape[:-1], seed=seed) - 4
        losses.append(F.cross_entropy(logits.reshape(-1, n), wanted.reshape(-1)))
    return torch.stack(losses).mean()


@every
def test_the_gradient_reaches_every_parameter(name):
    net, inputs = build(name)
    loss(net.train(), inputs).backward()
    for part, p in net.named_parameters():
        if p.requires_grad:
            assert p.grad is not None and bool((p.grad != 0).any()), part


@every
def test_one_batch_can_be_overfitted(name):
    make, inputs = NETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make(0.0).train()
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
    first = loss(net, inputs).item()
    for _ in range(200):
        optimizer.zero_grad()
        value = loss(net, inputs)
        value.backward()
        optimizer.step()
    assert value.item() < 0.15 * first


@every
def test_modes_differ_by_dropout_alone(name):
    net, inputs = build(name)
    wet, _ = build(name, dropout=0.5)
    wet.load_state_dict(net.state_dict())
    same(
        net.train()(*inputs), net.eval()(*inputs), rtol=1e-5, atol=1e-5
    )  # torch has its own kernels for evaluation
    same(wet(*inputs), net(*inputs))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = wet.train()(*inputs), wet(*inputs)
    assert all(not torch.allclose(a, b) for a, b in zip(listed(first), listed(second)))


@every
@torch.no_grad()
def test_types(name):
    net, inputs = build(name)
    wanted = listed(net(*inputs))
    for out, at in zip(listed(copy.deepcopy(net).double()(*inputs)), wanted):
        assert out.dtype == torch.float64
        torch.testing.assert_close(out.float(), at, rtol=1e-4, atol=1e-4)
    for out, at in zip(listed(copy.deepcopy(net).bfloat16()(*inputs)), wanted):
        assert out.dtype == torch.bfloat16
        scale = float(at.abs().max())  # eight bits of mantissa, through a dozen layers
        assert float((out.float() - at).abs().max()) < 0.1 * scale


def arguments(name):
    """Return the inputs without and, where the net takes them, with lengths."""
    inputs = NETS[name][1]
    return [inputs] if name.startswith("gpt") else [inputs, (*inputs, LENGTHS)]


@every
@pytest.mark.filterwarnings("ignore:The tensor attributes self.*_flat_weights")  # torch's LSTM, about itself
def test_torch_export(name):
    net, _ = build(name)
    for inputs in arguments(name):
        same(torch.export.export(net, inputs).module()(*inputs), net(*inputs), rtol=1e-5, atol=1e-5)


@every
@pytest.mark.filterwarnings("ignore")
def test_onnx(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    net, inputs = build(name)
    names = [f"input{i}" for i in range(len(inputs))]
    axes = {n: {0: "batch"} for n in names}
    torch.onnx.export(net, inputs, tmp_path / "net.onnx", dynamo=False, input_names=names, dynamic_axes=axes)
    session = ort.InferenceSession(tmp_path / "net.onnx")
    for batch in (inputs, tuple(x[:2] for x in inputs)):  # the batch may have another size
        found = session.run(None, {n: x.numpy() for n, x in zip(names, batch)})
        for a, b in zip(found, listed(net(*batch)), strict=True):
            np.testing.assert_allclose(a, b.detach(), atol=1e-5)  # float32 through other kernels


@every
def test_compiled_without_a_break(name):
    net, _ = build(name)
    torch.compiler.reset()
    compiled = torch.compile(net, backend="eager", fullgraph=name != "elmo")  # torch leaves LSTMs as they are
    with torch.no_grad():
        for inputs in arguments(name):
            same(compiled(*inputs), net(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler")
@every
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own parts
def test_compiled(name):
    net, inputs = build(name)
    torch.compiler.reset()
    with torch.no_grad():
        same(torch.compile(net)(*inputs), net(*inputs), rtol=1e-4, atol=1e-4)
