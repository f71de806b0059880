"""The cost of a step is counted: the same on every machine, however busy."""

import pytest
import torch
from torch import nn

from corollary.diagnose.cost import BYTE, CALL, FLOP, _Meter, cost
from corollary.diagnose.tape import unfused


def counted(step):
    meter = _Meter()
    with meter:
        step()
    return meter


def test_a_product_is_one_call_with_its_bytes_and_multiplications():
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    found = counted(lambda: a @ b)
    assert (found.calls, found.bytes, found.flops) == (1, 4 * (35 + 21 + 15), 2 * 5 * 7 * 3)
    assert cost(lambda: a @ b) == pytest.approx(CALL + BYTE * found.bytes + FLOP * found.flops)


def test_the_backward_pass_counts_too():
    net, x = nn.Linear(7, 3), torch.randn(5, 7)
    forward = counted(lambda: net(x)).flops
    both = counted(lambda: net(x).sum().backward()).flops
    assert both == 2 * forward  # the input needs no gradient


def test_a_sparse_matrix_moves_its_entries_and_not_its_gaps():
    dense, w = torch.eye(1000), torch.randn(1000, 2)
    sparse = counted(lambda: torch.sparse.mm(dense.to_sparse(), w))
    assert sparse.bytes < 0.02 * 4 * dense.numel() + counted(dense.to_sparse).bytes


def test_a_fused_recurrent_layer_costs_its_products():
    net, x = nn.LSTM(4, 8, batch_first=True), torch.randn(6, 9, 4)
    fused = counted(lambda: net(x)).flops
    with unfused():
        assert counted(lambda: net(x)).flops == fused == 2 * 6 * 9 * (4 + 8) * 4 * 8


def test_the_same_step_costs_the_same_again():
    net, x = (
        nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)),
        torch.randn(8, 2, 9),
    )
    net(x).sum().backward()  # the first gradient is kept, others are added
    assert cost(lambda: net(x).sum().backward()) == cost(lambda: net(x).sum().backward())
