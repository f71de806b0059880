"""Convolution arithmetic against brute force and torch; poolings; normalisation by name."""

import itertools

import numpy as np
import pytest
import torch
from scipy import signal
from torch import nn

from corollary.nn import MinPool1d, MinPool2d, SoftmaxPool1d, SoftmaxPool2d, norm
from corollary.nn.activations import ACTIVATIONS, activation
from corollary.theory import convolution as C

TIGHT = {"rtol": 0, "atol": 1e-12}  # float64 sums of a few dozen terms


def by_the_sum(f, h):
    """Equation 1 as it stands: every pair of entries adds to the place of their sum."""
    out = np.zeros([n + k - 1 for n, k in zip(f.shape, h.shape)])
    for t in itertools.product(*map(range, f.shape)):
        for v in itertools.product(*map(range, h.shape)):
            out[tuple(np.add(t, v))] += f[t] * h[v]
    return out


@pytest.mark.parametrize("mode", C.MODES)
@pytest.mark.parametrize(("n", "k"), [((9,), (4,)), ((7,), (7,)), ((6, 5), (3, 2)), ((5, 6), (1, 4))])
def test_four_forms_agree(
    n,
    k,
    mode,
):
    rng = np.random.default_rng(0)
    f, h = rng.normal(size=n), rng.normal(size=k)
    full = by_the_sum(f, h)
    np.testing.assert_allclose(C.convolve(f, h), full, **TIGHT)
    reference = C.convolve(f, h, mode)
    np.testing.assert_allclose(reference, signal.convolve(f, h, mode), **TIGHT)
    np.testing.assert_allclose(C.fft_convolve(f, h, mode), reference, **TIGHT)
    flipped = np.flip(h)
    if mode == "full":
        np.testing.assert_allclose(C.correlate(f, flipped), full, **TIGHT)
        np.testing.assert_allclose(C.correlate(f, h), signal.correlate(f, h), **TIGHT)
    if len(n) == 1:
        np.testing.assert_allclose(C.toeplitz(h, n[0], mode) @ f, reference, **TIGHT)


def test_batches_and_tensors():
    f, h = torch.randn(3, 2, 8, 7), torch.randn(3, 3)
    out = C.convolve(f, h, "same")
    assert isinstance(out, torch.Tensor) and out.dtype == torch.float32 and out.shape == f.shape
    np.testing.assert_allclose(out[2, 1], signal.convolve2d(f[2, 1], h, "same"), atol=1e-5)  # float32


def test_toeplitz_matrix_is_constant_on_diagonals():
    T = C.toeplitz([1.0, 2.0, 3.0], 6)
    for offset in range(-7, 6):
        assert len(set(np.diagonal(T, offset))) == 1


def random_layer(rng, axes):
    """Settings of a convolution that fits into what it is given; groups divide the channels."""
    draw = lambda low, high: tuple(rng.integers(low, high, axes).tolist())
    groups = int(rng.choice([1, 2, 3]))
    settings = {"stride": draw(1, 4), "padding": draw(0, 3), "dilation": draw(1, 3)}
    channels = [groups * int(rng.integers(1, 3)) for _ in range(2)]
    return channels, draw(1, 5), {**settings, "groups": groups}, draw(9, 12)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_matrix_of_random_layers(seed, axes):
    """The layer is its matrix, the transposed layer is the transposed matrix, and all sizes and counts agree."""
    channels, k, settings, n = random_layer(np.random.default_rng(seed), axes)
    layer = (nn.Conv1d, nn.Conv2d)[axes - 1](*channels, k, **settings, bias=False).double()
    x = torch.randn(channels[0], *n, dtype=torch.float64)
    y = layer(x[None]).detach()[0]
    M = C.convolution_matrix(layer.weight.detach(), n, **settings)
    torch.testing.assert_close(M @ x.flatten(), y.flatten(), **TIGHT)
    sizes = {key: value for key, value in settings.items() if key != "groups"}
    assert C.output_size(n, k, **sizes) == tuple(y.shape[1:])

    smallest = C.transposed_size(tuple(y.shape[1:]), k, **sizes)
    extra = tuple(a - b for a, b in zip(n, smallest))  # what the stride left over
    assert all(0 <= e < s for e, s in zip(extra, settings["stride"]))
    assert C.transposed_size(tuple(y.shape[1:]), k, **sizes, extra=extra) == n
    upward = (nn.functional.conv_transpose1d, nn.functional.conv_transpose2d)[axes - 1]
    again = upward(y[None], layer.weight.detach(), **dict(settings), output_padding=0)[0]
    assert tuple(again.shape[1:]) == smallest
    inside = (slice(None), *(slice(0, a) for a in smallest))
    torch.testing.assert_close((M.T @ y.flatten()).reshape(x.shape)[inside], again, **TIGHT)


def random_chain(rng, axes):
    """A stack of convolutions, some in groups, and poolings."""
    conv, largest, mean = (
        (nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d),
        (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d),
    )[axes - 1]
    draw = lambda low, high: tuple(rng.integers(low, high, axes).tolist())
    layers, width = [], 2
    for _ in range(rng.integers(1, 6 if axes == 1 else 4)):
        k, s, p = draw(1, 5), draw(1, 3), draw(0, 2)
        if rng.random() < 0.3:
            pool = largest if rng.random() < 0.5 else mean
            layers.append(pool(k, s, tuple(min(a, b // 2) for a, b in zip(p, k))))
        else:
            groups = int(rng.integers(1, 3))
            layers += [conv(width, 4, k, s, p, draw(1, 3), groups, bool(rng.integers(2))), nn.ReLU()]
            width = 4
    return nn.Sequential(*layers)


@pytest.mark.parametrize(("axes", "n"), [(1, (400,)), (2, (70, 83))])
@pytest.mark.parametrize("seed", range(15))
def test_random_architectures(seed, axes, n):
    """Sizes, fields and counts of whole stacks, against torch and against what gradients reach."""
    torch.manual_seed(seed)
    net = random_chain(np.random.default_rng(seed), axes)
    out = net(torch.zeros(1, 2, *n)).shape[2:]
    seen = C.footprint(net, (2, *n))
    for axis in range(axes):
        size = n[axis]
        for layer in C.layers_of(net, axis):
            options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
            size = C.output_size(size, layer.kernel, **options)
        assert size == out[axis]
        assert seen[axis] == C.receptive_field(net, axis).of(out[axis] // 2)
    convolutions = [part for part in net if isinstance(part, nn.Conv1d | nn.Conv2d)]
    counts = [
        C.parameter_count(
            (99,) * axes,
            layer.kernel_size,
            channels=layer.in_channels,
            kernels=layer.out_channels,
            groups=layer.groups,
            bias=layer.bias is not None,
        )
        for layer in convolutions
    ]
    assert sum(counts) == sum(p.numel() for p in net.parameters())


def test_footprint_of_branches():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 7, padding=3)

        def forward(self, x):
            return self.a(x) + self.b(x)

    assert C.footprint(Branches(), (1, 15, 21)) == (range(4, 11), range(7, 14))


def test_named_paddings_and_half_rule():
    for i, k, d in itertools.product((5, 9), (1, 3, 5), (1, 2)):
        if i >= d * (k - 1) + 1:
            assert C.output_size(i, k, dilation=d, padding="half") == i
            assert C.output_size(i, k, dilation=d, padding="full") == i + d * (k - 1)
            assert C.output_size(i, k, dilation=d, padding="valid") == i - d * (k - 1)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even")
@pytest.mark.parametrize("k", range(1, 7))
@pytest.mark.parametrize("d", [1, 2, 3])
def test_same_padding_is_torchs(k, d):
    """For even kernels too, where it is one longer behind than in front."""
    layer = nn.Conv1d(1, 1, k, padding="same", dilation=d)
    assert C.output_size(20, k, padding="same", dilation=d) == layer(torch.zeros(1, 1, 20)).shape[2] == 20
    assert C.footprint(layer, (1, 40))[0] == C.receptive_field(layer).of(20)


def test_poolings_that_round_up():
    """Every size, window, stride and padding that torch takes."""
    for n, k, s in itertools.product(range(1, 12), range(1, 5), range(1, 6)):
        for p in range(k // 2 + 1):
            if n + 2 * p >= k:
                pooled = nn.functional.max_pool1d(torch.zeros(1, n), k, s, p, ceil_mode=True).shape[1]
                assert C.output_size(n, k, stride=s, padding=p, ceil_mode=True) == pooled, (n, k, s, p)


def test_parameter_counts():
    layer = nn.Conv2d(3, 5, (2, 3))
    count = sum(p.numel() for p in layer.parameters())
    assert C.parameter_count((6, 7), (2, 3), channels=3, kernels=5) == count
    out = 5 * 5 * 5  # 5 kernels on (6-2+1) x (7-3+1)
    dense = nn.Linear(3 * 6 * 7, out)
    assert C.parameter_count((6, 7), (2, 3), channels=3, kernels=5, sharing="dense") == sum(
        p.numel() for p in dense.parameters()
    )
    assert C.parameter_count((6, 7), (2, 3), channels=3, kernels=5, sharing="local") == out * (2 * 3 * 3 + 1)
    assert C.parameter_count(9, 3, bias=False) == 3
    grouped = nn.Conv2d(6, 4, 3, groups=2)
    count = sum(p.numel() for p in grouped.parameters())
    assert C.parameter_count((6, 7), 3, channels=6, kernels=4, groups=2) == count


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: C.convolve([1.0], [1.0], "some"), "no mode named 'some'"),
        (lambda: C.convolve([1.0], [1.0, 2.0], "valid"), "no larger than the signal"),
        (lambda: C.convolve([1.0], np.ones((2, 2))), "one or two axes"),
        (lambda: C.toeplitz(np.ones((2, 2)), 3), "kernel must have one axis"),
        (lambda: C.output_size(3, 5), r"got 3 \+ 2 \* 0 and 5. Pad by 1"),
        (lambda: C.output_size(3, 2, stride=0), "stride and dilation must be at least 1"),
        (lambda: C.output_size(3, 2, padding="some"), "no padding named"),
        (lambda: C.output_size((3, 3), (2, 2, 2)), "one per axis"),
        (lambda: C.parameter_count(3, 2, sharing="some"), "no sharing named"),
        (
            lambda: C.parameter_count(3, 2, channels=4, kernels=3, groups=2),
            r"divide the output channels \(3\); got 2",
        ),
        (lambda: C.convolution_matrix(torch.ones(3, 1, 2), 4, groups=2), r"output channels \(3\); got 2"),
        (lambda: C.transposed_size((3, 3), (2, 2, 2)), "one per axis"),
        (lambda: SoftmaxPool1d(5)(torch.zeros(1, 1, 3)), "must fit into the input"),
        (lambda: norm("some", 3), "no normalisation named"),
        (lambda: norm("weight", 3), "needs the layer"),
    ],
)
def test_errors(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_fields_need_fixed_kernels():
    with pytest.raises(TypeError, match="AdaptiveAvgPool1d. Use footprint"):
        C.receptive_field(nn.Sequential(nn.AdaptiveAvgPool1d(1)))


# --- poolings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "s"), [((2, 3), (2, 2)), ((3, 3), None), ((1, 2), (1, 1))])
def test_softmax_pooling_window_by_window(k, s):
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    step = s or k
    out = SoftmaxPool2d(k, s, beta=1.7)(x)
    for i, j in itertools.product(range(out.shape[2]), range(out.shape[3])):
        window = x[:, :, i * step[0] : i * step[0] + k[0], j * step[1] : j * step[1] + k[1]].flatten(2)
        weights = torch.exp(1.7 * window)
        expected = (weights * window).sum(-1) / weights.sum(-1)
        torch.testing.assert_close(out[:, :, i, j], expected, rtol=1e-12, atol=1e-12)


def test_softmax_pooling_between_minimum_mean_and_maximum():
    x = torch.randn(2, 3, 12, dtype=torch.float64) * 3
    torch.testing.assert_close(SoftmaxPool1d(3, beta=0.0)(x), nn.AvgPool1d(3)(x))
    torch.testing.assert_close(SoftmaxPool1d(3, beta=1e4)(x), nn.MaxPool1d(3)(x))
    torch.testing.assert_close(SoftmaxPool1d(3, beta=-1e4)(x), MinPool1d(3)(x))
    assert SoftmaxPool1d(3)(x * 1e3).isfinite().all()  # exponents far beyond the floating range


def test_minimum_pooling():
    x = torch.randn(2, 3, 8, 9)
    windows = x.unfold(2, 2, 2).unfold(3, 3, 3).flatten(-2)
    assert torch.equal(MinPool2d((2, 3))(x), windows.amin(-1))
    assert torch.equal(
        MinPool2d(3, 1, padding=1)(x)[..., 1:-1, 1:-1], x.unfold(2, 3, 1).unfold(3, 3, 1).amin((-1, -2))
    )


# --- layers by name --------------------------------------------------------------------------------------


def test_weight_normalisation_is_equation_1():
    layer = norm("weight", nn.Linear(4, 3).double())
    g, v = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    with torch.no_grad():
        g.copy_(torch.tensor([[2.0], [0.5], [1.0]]))
    torch.testing.assert_close(layer.weight, g * v / v.norm(dim=1, keepdim=True))


def test_norm_around_layers():
    x = torch.randn(16, 3, 6, 6)
    for name in ("batch", "layer"):
        out = norm(name, nn.Conv2d(3, 4, 3))(x)
        over = (0, 2, 3) if name == "batch" else (1, 2, 3)
        torch.testing.assert_close(out.mean(over), torch.zeros_like(out.mean(over)), atol=1e-5, rtol=0)
    plain = nn.Linear(3, 4)
    assert norm(None, plain) is plain
    assert norm("batch", plain)[1].num_features == 4


# Derivatives in closed form; maxout and softmax mix several inputs and are tested apart.
DERIVATIVES = {
    "absu": torch.sign,
    "elu": lambda z: torch.where(z > 0, 1.0, z.exp()),
    "gelu": lambda z: 0.5 * (1 + torch.erf(z / 2**0.5)) + z * torch.exp(-z * z / 2) / (2 * torch.pi) ** 0.5,
    "identity": torch.ones_like,
    "leaky": lambda z: torch.where(z > 0, 1.0, 0.01),
    "relu": lambda z: (z > 0).to(z),
    "sigmoid": lambda z: torch.sigmoid(z) * (1 - torch.sigmoid(z)),
    "silu": lambda z: torch.sigmoid(z) * (1 + z * (1 - torch.sigmoid(z))),
    "softplus": torch.sigmoid,
    "tanh": lambda z: 1 - torch.tanh(z) ** 2,
}


@pytest.mark.parametrize("name", sorted(DERIVATIVES))
def test_derivatives_of_activations(name):
    z = torch.linspace(-3, 3, 50, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(activation(name)(z).sum(), z)
    torch.testing.assert_close(slope, DERIVATIVES[name](z.detach()).to(slope), rtol=1e-6, atol=1e-9)


def test_activations_of_several_inputs():
    assert set(ACTIVATIONS) == {*DERIVATIVES, "heaviside", "maxout", "softmax"}
    z = torch.tensor([[1.0, 3.0, -2.0, -1.0]])
    assert torch.equal(activation("maxout")(z), torch.tensor([[3.0, -1.0]]))
    assert torch.equal(activation("heaviside")(z), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    torch.testing.assert_close(activation("softmax")(z).sum(-1), torch.ones(1))
