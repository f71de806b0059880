"""Nets for sequences and texts run elsewhere: ONNX against torch."""

import numpy as np
import pytest
import torch
from torch import nn

from corollary.language.elmo import PLACES, ELMoNetwork
from corollary.language.transformer import TransformerNetwork
from corollary.sequences.memory import MemoryNet
from corollary.sequences.seq2seq import Seq2SeqNetwork
from corollary.sequences.textcnn import TextCNNNetwork
from corollary.sequences.wavenet import WaveNetwork

torch.set_num_threads(1)
ort = pytest.importorskip("onnxruntime")


class Full(nn.Module):
    """A net for pairs, on sequences without padding."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return self.net(x, None, y)


X, Y = torch.arange(4, 25).reshape(3, 7) % 8 + 4, torch.arange(15).reshape(3, 5) % 5 + 4
NETS = {
    "elmo": (
        lambda: ELMoNetwork(12, 9, width=6, n_out=2),
        (torch.arange(200).reshape(2, 5, PLACES) % 11 + 1,),
    ),
    "memory": (lambda: MemoryNet(12, 3, n_facts=7), (X[:, :, None].repeat(1, 1, 2), X)),
    "seq2seq": (lambda: Full(Seq2SeqNetwork(12, 9, hidden_size=8)), (X, Y)),
    "textcnn": (lambda: TextCNNNetwork(12, 3), (X,)),
    "transformer": (
        lambda: Full(TransformerNetwork(12, 9, dimension=16, n_heads=2, n_layers=2, inner=32)),
        (X, Y),
    ),
    "wavenet": (lambda: WaveNetwork(12, 6, 7, n_layers=3), (X,)),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.filterwarnings("ignore")
def test_onnx_gives_the_same(name, tmp_path):
    make, inputs = NETS[name]
    torch.manual_seed(0)
    net = make().eval()
    names = [f"input{i}" for i in range(len(inputs))]
    torch.onnx.export(net, inputs, tmp_path / "net.onnx", dynamo=False, input_names=names)
    found = ort.InferenceSession(tmp_path / "net.onnx").run(
        None, {n: x.numpy() for n, x in zip(names, inputs)}
    )
    wanted = net(*inputs)
    for a, b in zip(found, wanted if isinstance(wanted, tuple) else (wanted,)):
        np.testing.assert_allclose(a, b.detach(), atol=1e-5)  # float32 through other kernels
