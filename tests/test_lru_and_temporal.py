"""The linear recurrent unit and temporal convolutions against loops."""

import pytest
import torch

from corollary import nn
from corollary.nn import lru_kernels
from corollary.nn.lru import LRU, linear_scan, scan_loop, scan_parallel
from corollary.sequences.network import SequenceEncoder

torch.set_num_threads(1)


def random_scan(steps=37, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    v = torch.randn(2, 2, steps, 5, generator=g, dtype=dtype)
    radius, phase = torch.rand(5, generator=g, dtype=dtype), 6 * torch.rand(5, generator=g, dtype=dtype)
    return v[0], v[1], radius * torch.cos(phase), radius * torch.sin(phase)


def test_all_scans_agree_with_the_loop():
    vr, vi, lr, li = random_scan()
    wanted = scan_loop(torch.complex(vr, vi), torch.complex(lr, li))
    xr, xi = linear_scan(vr, vi, lr, li)
    torch.testing.assert_close(torch.complex(xr, xi), wanted, rtol=1e-12, atol=1e-12)
    parallel = scan_parallel(torch.complex(vr, vi), torch.complex(lr, li))
    torch.testing.assert_close(parallel, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("small", [0, 2**17], ids=["several threads", "one thread"])
def test_the_gradient_is_that_of_the_loop(small, monkeypatch):
    monkeypatch.setattr(lru_kernels, "SMALL", small)
    parts = [part.requires_grad_() for part in random_scan()]
    weight = torch.randn(2, 2, 37, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    xr, xi = linear_scan(*parts)
    ours = torch.autograd.grad((xr * weight[0] + xi * weight[1]).sum(), parts)
    vr, vi, lr, li = parts
    x = scan_loop(torch.complex(vr, vi), torch.complex(lr, li))
    loop = torch.autograd.grad((x.real * weight[0] + x.imag * weight[1]).sum(), parts)
    for a, b in zip(ours, loop):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_gradcheck():
    assert torch.autograd.gradcheck(linear_scan, [p.requires_grad_() for p in random_scan(6)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_unit_is_its_equation(dtype):
    torch.manual_seed(0)
    unit = LRU(4, 7).to(dtype)
    u = torch.randn(2, 11, 4).to(dtype)
    lam = torch.complex(*(p.double() for p in unit.eigenvalues()))
    B, C = unit.B.double(), unit.C.double()
    gamma = torch.sqrt(1 - lam.abs() ** 2)
    v = u.double().to(torch.complex128) @ torch.complex(B[:7], B[7:]).T * gamma
    wanted = (scan_loop(v, lam) @ torch.complex(C[:, :7], C[:, 7:]).T).real + unit.D.double() * u.double()
    found = unit(u)
    assert found.dtype == dtype
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-10, torch.bfloat16: 0.2}[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


def test_stable_for_ten_thousand_steps_whatever_the_parameters():
    torch.manual_seed(0)
    unit = LRU(3, r_min=0.999, r_max=0.99999)
    with torch.no_grad():
        unit.nu.copy_(torch.tensor([-20.0, 5.0, -12.0]))  # training may send them anywhere
    u = torch.randn(1, 10_000, 3, requires_grad=True)
    y = unit(u)
    y.square().mean().backward()
    assert torch.isfinite(y).all() and y.abs().max() < 100
    assert all(torch.isfinite(p.grad).all() for p in (*unit.parameters(), u))


def test_single_precision_holds_for_ten_thousand_steps():
    torch.manual_seed(0)
    unit = LRU(3, 8, r_min=0.99, r_max=0.9999)
    u = torch.randn(1, 10_000, 3)
    y = unit(u)
    wanted = unit.double()(u.double())
    # errors of one step decay as the state does: they add up to 1 / (1 - r) = 10^4 steps' at most
    assert (y - wanted).abs().max() < 1e-3 * wanted.abs().max()
    assert wanted[:, -1000:].std() < 3 * wanted[:, :2000].std()  # and the state does not grow


@pytest.mark.parametrize("cell", ["lru", "tcn"])
def test_a_stack_is_stable_for_ten_thousand_steps(cell):
    torch.manual_seed(0)
    net = SequenceEncoder(2, 4, cell, 3)
    x = torch.randn(1, 10_000, 2)
    h = net(x)
    h[:, -1].sum().backward()
    assert h.isfinite().all() and h.abs().max() < 1e3
    assert all(p.grad.isfinite().all() for p in net.parameters())


# --- convolutions -----------------------------------------------------------------------------------------


def test_causal_convolution_by_brute_force():
    torch.manual_seed(0)
    layer = nn.CausalConv1d(2, 3, 3, dilation=2).double()
    x = torch.randn(1, 2, 10).double()
    y = layer(x)
    for t in range(10):
        wanted = layer.bias.clone()
        for j in range(3):
            s = t - 2 * (2 - j)
            if s >= 0:
                wanted = wanted + layer.weight[:, :, j] @ x[0, :, s]
        torch.testing.assert_close(y[0, :, t], wanted)


@pytest.mark.parametrize("kernel_size", [2, 3])
def test_the_receptive_field_is_what_it_says(kernel_size):
    torch.manual_seed(0)
    net = nn.TemporalConvNet(1, (4, 4, 4), kernel_size).double()
    for block in net:
        for p in block.parameters():
            p.data.abs_()  # so that nothing cancels and no unit is dead
    x = torch.rand(1, 1, 60).double().requires_grad_()
    (grad,) = torch.autograd.grad(net(x)[0, :, 50].sum(), x)
    seen = grad[0, 0].nonzero()[:, 0]
    assert seen.max() == 50 and seen.min() == 50 - net.receptive_field + 1
