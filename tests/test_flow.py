"""Normalising flows: inverses, log-determinants, densities, against autograd, integrals, zuko and nflows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zuko
from nflows import transforms as nf
from nflows.distributions import StandardNormal
from nflows.flows import Flow as NFlow
from scipy.stats import multivariate_normal

from corollary import Flow, Training, load
from corollary.generative.flow import FlowModule
from corollary.nn.flows import (
    MADE,
    AffineCoupling,
    Chain,
    MaskedAutoregressive,
    Planar,
    QRLinear,
    Reorder,
    Reverse,
    SplitCoupling,
    Squeeze,
)

D = 5


def scrambled(module):
    """Return the module in float64 with weights that are not those of the start."""
    module = module.double()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p += 0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64)
    return module


def coupling(d=D):
    return AffineCoupling(
        (torch.arange(d) % 2).double(),
        torch.nn.Sequential(torch.nn.Linear(d, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2 * d)),
    )


LAYERS = {
    "linear": lambda: QRLinear(D),
    "planar": lambda: Planar(D),
    "coupling": coupling,
    "split coupling": lambda: SplitCoupling(2, torch.nn.Linear(D - 2, 4), "second"),
    "reorder": lambda: Reorder(torch.tensor([3, 1, 0, 4, 2])),
    "autoregressive": lambda: MaskedAutoregressive(MADE(D, (16, 16))),
    "one number": lambda: MaskedAutoregressive(MADE(1, (4,))),
    "reverse": Reverse,
    "chain": lambda: Chain(
        [coupling(), Reverse(), Planar(D), QRLinear(D), MaskedAutoregressive(MADE(D, (7,)))]
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_inverts_and_its_log_determinant_is_autograds(name):
    layer = scrambled(LAYERS[name]())
    x = torch.randn(6, 1 if name == "one number" else D, dtype=torch.float64)
    with torch.no_grad():
        z, log_det = layer(x)
        np.testing.assert_allclose(layer.inverse(z), x, atol=1e-9)
    for i in range(6):
        J = torch.autograd.functional.jacobian(lambda v: layer(v[None])[0][0], x[i])
        assert float(log_det[i]) == pytest.approx(float(torch.linalg.slogdet(J).logabsdet), abs=1e-9)


def test_made_depends_on_earlier_coordinates_only():
    net = scrambled(MADE(D, (16, 16)))
    J = torch.autograd.functional.jacobian(lambda v: net(v[None])[0], torch.randn(D, dtype=torch.float64))
    for part in J.split(D):
        assert (part.triu() == 0).all() and (part.tril(-1) != 0).any(1)[1:].all()


def test_squeeze_moves_blocks_to_channels():
    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    z, log_det = Squeeze()(x)
    assert z.shape == (1, 8, 2, 2) and torch.equal(Squeeze().inverse(z), x) and not log_det.any()
    assert z[0, :4, 0, 0].tolist() == [0, 1, 4, 5]


# --- zuko ---------------------------------------------------------------------------------------------------


def test_autoregressive_density_is_zukos_with_its_networks():
    """Our layers around zuko's own masked networks; zuko interleaves shift and log-scale, we put them side by side."""
    torch.manual_seed(0)
    theirs = zuko.flows.MAF(D, transforms=3, hidden_features=(16,)).double()

    class Net(torch.nn.Module):
        def __init__(self, transform):
            super().__init__()
            self.hyper = transform.hyper

        def forward(self, x):
            return self.hyper(x).unflatten(-1, (-1, 2)).transpose(1, 2).flatten(1)

    class Ordered(torch.nn.Module):  # zuko's order of the coordinates is part of its masks
        def __init__(self, net):
            super().__init__()
            self.layer = MaskedAutoregressive(net)

        def forward(self, x, context=None):
            return self.layer(x)

    ours = FlowModule(Chain([Ordered(Net(t)) for t in theirs.transform.transforms]), 0).double()
    x = torch.randn(20, D, dtype=torch.float64)
    np.testing.assert_allclose(ours(x).detach(), theirs().log_prob(x).detach(), rtol=1e-9)


def test_coupling_density_is_zukos_with_its_networks():
    torch.manual_seed(0)
    theirs = zuko.flows.coupling.GeneralCouplingTransform(D, hidden_features=(16,)).double()
    mask = theirs.mask

    class Net(torch.nn.Module):
        def forward(self, kept):
            shift, raw = theirs.hyper(kept[:, mask]).unflatten(-1, (-1, 2)).unbind(-1)
            out = kept.new_zeros(len(kept), 2, D)
            out[:, 0, ~mask], out[:, 1, ~mask] = shift, raw
            return out.flatten(1)

    x = torch.randn(20, D, dtype=torch.float64)
    z, log_det = AffineCoupling(mask.double(), Net())(x)
    expected, ladj = theirs().call_and_ladj(x)
    np.testing.assert_allclose(z.detach(), expected.detach(), rtol=1e-9)
    np.testing.assert_allclose(log_det.detach(), ladj.detach(), rtol=1e-9, atol=1e-12)


# --- nflows -------------------------------------------------------------------------------------------------
# Its scales have other bounds than ours, so each net is told to say the log of nflows' scale; the bound of ours is far away.

FAR = 1e12


def nflows_density(layers, x):
    return NFlow(nf.CompositeTransform(layers), StandardNormal([D])).double().log_prob(x)


def test_coupling_density_is_nflows_with_its_networks():
    torch.manual_seed(0)
    x = torch.randn(20, D, dtype=torch.float64)

    class Net(torch.nn.Linear):
        def forward(self, kept, context=None):
            return super().forward(kept)

    class Ours(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, kept):
            shift, raw = self.net(kept).chunk(2, 1)
            return torch.cat([shift, (torch.sigmoid(raw + 2) + 1e-3).log()], 1)

    first = (torch.arange(D) < 2).long()  # 1 where nflows moves a coordinate
    layers = [nf.AffineCouplingTransform(first, Net), nf.AffineCouplingTransform(1 - first, Net)]
    expected = nflows_density(layers, x)
    ours = Chain(
        [
            SplitCoupling(2, Ours(layer.transform_net), passes, FAR)
            for layer, passes in zip(layers, ("second", "first"))
        ]
    )
    np.testing.assert_allclose(FlowModule(ours, 0)(x).detach(), expected.detach(), rtol=1e-9)


def test_autoregressive_density_is_nflows_with_its_weights():
    """The masks are the same by construction, so weights can be copied; nflows interleaves scale and shift."""
    torch.manual_seed(0)
    x = torch.randn(20, D, dtype=torch.float64)
    theirs = nf.MaskedAffineAutoregressiveTransform(D, 16, num_blocks=1, use_residual_blocks=False)
    expected = nflows_density([theirs], x)
    net, made = MADE(D, (16, 16)).double(), theirs.autoregressive_net
    with torch.no_grad():
        for ours, source in zip(net.layers, (made.initial_layer, made.blocks[0].linear)):
            ours.weight.copy_(source.weight), ours.bias.copy_(source.bias)
        for name in ("weight", "bias"):
            scale, shift = getattr(made.final_layer, name).unflatten(0, (D, 2)).unbind(1)
            getattr(net.layers[-1], name).copy_(torch.cat([shift, scale]))

    class Ours(torch.nn.Module):
        def forward(self, x):
            shift, raw = net(x).chunk(2, 1)
            return torch.cat([shift, (torch.nn.functional.softplus(raw) + 1e-3).log()], 1)

    found = FlowModule(Chain([MaskedAutoregressive(Ours(), FAR)]), 0)(x)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-9)


def test_linear_density_is_nflows_with_its_weights():
    torch.manual_seed(0)
    x = torch.randn(20, D, dtype=torch.float64)
    theirs, ours = nf.QRLinear(D, 4), QRLinear(D, 4).double()
    expected = nflows_density([theirs], x)
    with torch.no_grad():
        ours.upper.copy_(theirs._create_upper()), ours.log_diagonal.copy_(theirs.log_upper_diag)
        ours.vectors.copy_(theirs.orthogonal.q_vectors.flip(0)), ours.shift.copy_(theirs.bias)
    np.testing.assert_allclose(FlowModule(Chain([ours]), 0)(x).detach(), expected.detach(), rtol=1e-9)


# --- the estimator ------------------------------------------------------------------------------------------


def moons(n=1500, seed=0):
    from sklearn.datasets import make_moons

    X, y = make_moons(n, noise=0.08, random_state=seed)
    return X * [3.0, 0.5] + [10.0, -2.0], y


@pytest.mark.parametrize("kind", ["linear", "planar", "coupling", "autoregressive"])
def test_a_density_in_the_plane_integrates_to_one_in_the_users_units(kind):
    X, _ = moons(400)
    model = Flow(
        kind, n_layers=4, hidden_layer_sizes=(32,), training=Training(epochs=15), random_state=0
    ).fit(X)
    low, high = X.min(0) - 1.5 * np.ptp(X, axis=0), X.max(0) + 1.5 * np.ptp(X, axis=0)
    a, b = np.linspace(low[0], high[0], 400), np.linspace(low[1], high[1], 400)
    p = np.exp(model.score_samples(np.stack(np.meshgrid(a, b), -1).reshape(-1, 2))).reshape(400, 400)
    assert np.trapezoid(np.trapezoid(p, a, axis=1), b) == pytest.approx(
        1, abs=0.02
    )  # the tails beyond are cut


def test_a_linear_flow_finds_the_gaussian():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 3)) @ [[2.0, 1, 0], [0, 1, 1], [0.3, 0, 5]] + [5, 0, -3]
    plan = Training(epochs=80, learning_rate=0.03, schedule="cosine", batch_size=256)
    model = Flow("linear", training=plan, random_state=0).fit(X)
    exact = multivariate_normal(X.mean(0), np.cov(X.T)).logpdf(X).mean()
    assert model.score(X) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("kind", ["coupling", "autoregressive"])
def test_bent_flows_beat_the_gaussian_on_moons(kind):
    X, _ = moons()
    held, _ = moons(500, 1)
    plan = Training(epochs=40, learning_rate=3e-3, schedule="cosine")
    model = Flow(kind, n_layers=6, hidden_layer_sizes=(64, 64), training=plan, random_state=0).fit(X)
    gaussian = multivariate_normal(X.mean(0), np.cov(X.T)).logpdf(held).mean()
    assert model.score(held) > gaussian + 0.5
    Z = model.transform(X)
    np.testing.assert_allclose(model.inverse_transform(Z), X, atol=1e-6)


def test_images_of_any_side_multi_scale_inverse_and_save(tmp_path):
    rng = np.random.default_rng(0)
    for shape in ((16, 8, 8), (16, 3, 8, 12), (16, 7, 5)):
        X = rng.integers(0, 256, shape).astype(np.uint8)
        model = Flow(n_layers=2, hidden_layer_sizes=(8,), training=Training(epochs=1), random_state=0).fit(X)
        scaled = model._scaling.forward(torch.from_numpy(model._query(X)))[0]
        with torch.no_grad():
            z, _ = model.module_.layers(scaled)
            back = model.module_.layers.inverse(z)
        np.testing.assert_allclose(back, scaled, atol=1e-3)  # float32 through a dozen layers
        assert model.sample(3).shape == (3, *model.sample_shape_)
        again = load(model.save(tmp_path / "flow.safetensors"))
        np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
        assert 2 < model.bits_per_dimension(X).mean() < 20  # uniform pixels have 8 bits


def test_conditional_flow_knows_its_labels():
    X, y = moons()
    plan = Training(epochs=20, learning_rate=3e-3)
    for kind in ("linear", "planar", "coupling", "autoregressive"):
        settings = {"n_layers": 4, "hidden_layer_sizes": (32,), "training": plan, "random_state": 0}
        model = Flow(kind, conditional=True, **settings).fit(X, y)
        assert model.score(X, y) > model.score(X, 1 - y) + 0.3
        np.testing.assert_allclose(model.inverse_transform(model.transform(X, y), y), X, atol=1e-5)


def test_bad_points_are_named():
    model = Flow("linear", training=Training(epochs=1)).fit(moons(100)[0])
    with pytest.raises(ValueError, match=r"shape \(n, 2\); got shape \(3, 5\)"):
        model.inverse_transform(np.zeros((3, 5)))


# --- held-out data ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    X = load_digits().images / 16
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:1200]], X[order[1200:]]


def histogram_bits(train, held):
    """Bits per pixel of every pixel's own smoothed histogram over the 17 grey levels."""
    train, held = (np.rint(16 * part).astype(int).reshape(len(part), -1) for part in (train, held))
    counts = np.stack([(train == level).sum(0) + 0.5 for level in range(17)])
    return -np.log2(np.take_along_axis(counts / counts.sum(0), held, 0)).mean()


@pytest.mark.parametrize(
    "kind, n, plan",
    [
        ("coupling", 600, Training(epochs=6, batch_size=64, learning_rate=5e-3)),
        ("autoregressive", 1200, Training(epochs=8, batch_size=32, learning_rate=5e-3)),
    ],
    ids=["coupling", "autoregressive"],
)
def test_default_flows_generalise_on_few_digits(digits, kind, n, plan):
    """Bits of held-out digits are below independent pixels', with no sample that costs more than twice the mean."""
    train, held = digits[0][:n], digits[1]
    model = Flow(kind, training=plan, random_state=0).fit(train)
    assert "validation_loss" in model.history_[0]
    bits = model.bits_per_dimension(held)
    assert bits.mean() < histogram_bits(train, held)
    assert bits.max() < 2 * bits.mean()


@pytest.mark.parametrize("kind", ["linear", "planar", "coupling", "autoregressive"])
def test_a_default_flow_is_no_worse_than_the_gaussian_on_a_small_table(digits, kind):
    """As a table: the descent begins at the shrunk Gaussian, whose bits of held-out digits are below independent pixels'."""
    train, held = (part.reshape(len(part), -1) for part in digits)
    model = Flow(kind, training=Training(epochs=3), random_state=0).fit(train[:400])
    assert model.bits_per_dimension(held).mean() < 3.2


def test_few_samples_are_not_held_out_unless_that_is_asked_for():
    X = moons(30)[0]
    assert "validation_loss" not in Flow("linear", training=Training(epochs=1)).fit(X).history_[0]
    plan = Training(epochs=1, early_stopping=True)
    assert "validation_loss" in Flow("linear", training=plan).fit(X).history_[0]


@pytest.mark.parametrize("kind", ["coupling", "autoregressive", "planar", "linear"])
def test_flows_of_images_begin_at_the_histograms_of_pixels(kind):
    """Bits of held-out digits after a moment of training: at most those of independent pixels, which a logit is far above."""
    from sklearn.datasets import load_digits

    X = load_digits().images.astype(np.float32)[:, None] / 16
    train, test = X[:800], X[800:1000]
    plan = Training(epochs=3, early_stopping=False)
    model = Flow(kind, n_layers=2, hidden_layer_sizes=(16,), training=plan, random_state=0).fit(train)
    codes = np.rint(test * 16).astype(int).reshape(len(test), -1)
    alone = -np.log2(np.take_along_axis(np.diff(model.scaling_["below"], axis=0), codes, 0)).mean()
    found = model.bits_per_dimension(test).mean()
    assert found < alone + 0.02  # the Gaussian that is worth one row, and draws of the noise


@pytest.mark.parametrize(
    "Z, message",
    [
        ([["a", "b"]], "points must be numbers; got type <U1"),
        ([[np.nan, 0.0]], "points must be finite; got 1 of 2 that are not"),
    ],
)
def test_points_that_stand_for_nothing_are_named(Z, message):
    model = Flow("linear", training=Training(epochs=1)).fit(np.random.default_rng(0).normal(size=(20, 2)))
    with pytest.raises(ValueError, match=message):
        model.inverse_transform(Z)


@pytest.mark.parametrize(
    "sizes, shape, message",
    [
        ((0,), (20, 2), "each of hidden_layer_sizes must be an integer of at least 1; got 0"),
        (("a",), (20, 2), "must be an integer of at least 1; got 'a'"),
        ((), (20, 4, 4), "hidden_layer_sizes must name at least one layer"),
    ],
)
def test_hidden_widths_that_cannot_be(sizes, shape, message):
    with pytest.raises(ValueError, match=message):
        Flow(hidden_layer_sizes=sizes).fit(np.random.default_rng(0).random(shape))


@pytest.mark.parametrize("kind", ["linear", "planar"])
def test_a_single_column_has_no_rotation_to_warn_of(kind, recwarn):
    X = np.random.default_rng(0).normal(3, 2, (60, 1))
    Flow(kind, training=Training(epochs=2), random_state=0).fit(X)
    assert not recwarn
