"""Lipschitz bounds, slopes and certified radii by SVD and closed forms; smoothing; curves of robust accuracy."""

import numpy as np
import pytest
import torch
from torch import nn

from corollary import ImageClassifier, MLPClassifier, Training, attack, plot, theory
from corollary.attack.smoothing import clopper_pearson
from corollary.theory import lipschitz

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
Y = np.array(["a", "b", "c"])[(X @ RNG.normal(size=(5, 3))).argmax(1)]


@pytest.fixture(scope="module")
def model():
    return MLPClassifier((8,), training=Training(epochs=20, learning_rate=0.02), random_state=0).fit(X, Y)


def linear(*rows):
    layer = nn.Linear(len(rows[0]), len(rows), bias=False).double()
    layer.weight.data.copy_(torch.tensor(rows))
    return layer


@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.Conv2d(2, 3, 3, padding=1), (2, 7, 7)),
        (nn.Conv2d(2, 6, 3, stride=2), (2, 14, 14)),  # beyond what is written out: by Lanczos
        (nn.ConvTranspose2d(2, 1, 3), (2, 4, 4)),
        (nn.Linear(6, 4), (6,)),
    ],
)
def test_operator_norms_are_the_largest_singular_values(layer, shape):
    layer = layer.double()
    d = int(np.prod(shape))
    with torch.no_grad():
        matrix = layer(torch.eye(d).double().view(d, *shape)) - layer(torch.zeros(1, *shape).double())
    expected = torch.linalg.svdvals(matrix.flatten(1))[0].item()
    assert theory.operator_norm(layer, shape) == pytest.approx(expected, rel=1e-9)


def test_slopes_of_activations():
    known = {
        nn.ReLU(): 1,
        nn.Tanh(): 1,
        nn.Sigmoid(): 0.25,
        nn.LeakyReLU(1.5): 1.5,
        nn.Softplus(): 1,
        nn.ELU(2.0): 2,
    }
    for phi, value in known.items():
        assert lipschitz.slope(phi) == pytest.approx(value, abs=1e-8)


class Branches(nn.Module):
    """Sums, concatenations and functions written in forward."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (
            linear([2.0, 0.0], [0.0, 1.0]),
            linear([0.0, 3.0], [0.0, 0.0]),
            linear([1.0] * 4),
        )

    def forward(self, x):
        added = torch.sigmoid(x + self.a(x))
        return self.c(torch.cat([added, 0.5 * self.b(x)], 1)).mean(1)


def test_constants_multiply_add_and_join():
    found = theory.product_bound(Branches(), torch.zeros(1, 2))
    assert found.constant == pytest.approx(2 * np.hypot(0.25 * 3, 0.5 * 3))  # |c| = 2
    pool = nn.Sequential(nn.MaxPool2d(3, 1), nn.Flatten(), nn.AvgPool1d(4))
    assert theory.product_bound(pool, torch.zeros(1, 1, 4, 4).double()).constant == pytest.approx(3 * 0.5)
    normal = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).double()
    normal[0].running_var.copy_(torch.tensor([1.0, 0.25, 4.0]))
    found = theory.product_bound(normal, torch.zeros(1, 3))
    assert found.constant == pytest.approx(1 / np.sqrt(0.25 + 1e-5)) and normal.training


def test_the_bound_is_above_every_slope_and_quotient(model):
    bound = theory.product_bound(model, X).constant
    slopes = theory.jacobian_norm(model, X)
    net, x = model.module_, torch.tensor(X)
    J = torch.func.vmap(torch.func.jacrev(net))(x)
    np.testing.assert_allclose(slopes, torch.linalg.matrix_norm(J, 2).detach().numpy(), rtol=1e-6)
    assert slopes.max() <= bound
    expected = np.prod([np.linalg.norm(W, 2) for W in model.coefs_])
    assert bound == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        quotient = (net(x[1:]) - net(x[:-1])).norm(dim=1) / (x[1:] - x[:-1]).norm(dim=1)
    assert quotient.max() <= bound


def test_certified_radii_are_exact_for_lines_and_below_every_attack(model):
    line = linear([1.0, 2.0], [0.0, -1.0], [3.0, 0.0])
    x = torch.tensor(RNG.normal(size=(20, 2)))
    z = line(x).detach().numpy()
    best = z.argmax(1)
    W = line.weight.detach().numpy()
    gaps = [
        [(z[i, b] - z[i, k]) / np.linalg.norm(W[b] - W[k]) for k in range(3) if k != b]
        for i, b in enumerate(best)
    ]
    np.testing.assert_allclose(theory.certified_radius(line, x), np.min(gaps, 1))
    radius = theory.certified_radius(model, X, Y)
    found = attack.deepfool(model, X, Y, bounds=None)
    right = model.predict(X) == Y
    assert (radius[right] > 0).all() and not radius[~right].any()
    assert (found.distance >= radius - 1e-9).all()
    one = nn.Sequential(linear([2.0, 0.0]), nn.Flatten(0))
    np.testing.assert_allclose(theory.certified_radius(one, torch.tensor([[0.5, 9.0]]).double()), [0.5])
    with pytest.raises(ValueError, match="labels must be among the model's 3 classes, 0 to 2; got 3"):
        theory.certified_radius(line, x[:2], [1, 3])


def test_a_convolutional_net_with_its_standardisation_is_bounded():
    images = RNG.uniform(size=(16, 8, 8)).astype(np.float32)
    y = np.arange(16) % 2
    net = ImageClassifier("lenet", training=Training(epochs=1), random_state=0).fit(images, y)
    bound, slopes = theory.product_bound(net, images), theory.jacobian_norm(net, images, tol=1e-5)
    assert slopes.max() <= bound.constant
    assert np.isclose([*bound.layers.values()], 1 / net.channel_scale_[0], rtol=1e-5).any()
    radius, found = theory.certified_radius(net, images), attack.deepfool(net, images, bounds=None)
    assert (found.distance[found.success] >= radius[found.success]).all()


def test_what_has_no_bound_says_so(model):
    norm = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    with pytest.raises(ValueError, match="every part must be affine.*got LayerNorm"):
        theory.product_bound(norm, torch.zeros(1, 3))

    class Product(nn.Module):
        def forward(self, x):
            return x * x

    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ValueError, match="every part must be affine.*got mul"):
        theory.product_bound(Product(), torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"the network must be one that torch.fx can trace"):
        theory.product_bound(Branch(), torch.ones(1, 3))
    with pytest.raises(TypeError, match="model must be a torch.nn.Module, or a fitted network; got int"):
        theory.jacobian_norm(3, X)
    with pytest.raises(ValueError, match="X must hold finite samples"):
        theory.jacobian_norm(norm, torch.full((1, 3), torch.nan))
    with pytest.raises(ValueError, match=r"y must have one label per sample \(60\)"):
        theory.certified_radius(model, X, Y[:3])


# --- smoothing -------------------------------------------------------------------------------------------


def test_clopper_pearson_is_statsmodels():
    from statsmodels.stats.proportion import proportion_confint

    for k in (1, 30, 99, 100):
        expected = proportion_confint(k, 100, alpha=0.02, method="beta")[0]  # two-sided: one per cent below
        assert clopper_pearson(k, 100, 0.01) == pytest.approx(expected, abs=1e-12)


def test_smoothing_certifies_the_distance_to_a_line_from_below():
    line = linear([1.0, 0.0], [-1.0, 0.0]).eval()
    x = torch.tensor([[d, 7.0] for d in (-0.6, -0.2, 0.0, 0.1, 0.4, 0.9)]).double()
    found = attack.smooth(line, x, sigma=0.5, n_samples=4000, random_state=0)
    distance = x[:, 0].abs()
    assert (found.radius <= distance).all()
    # The bound on p lies about 3 standard errors (0.008) below it: at most 0.08 in the radius where p < 0.97.
    assert (found.radius >= distance - 0.08)[:5][found.certified[:5]].all()
    assert found.prediction[[0, 1, 3, 4, 5]].tolist() == [1, 1, 0, 0, 0]
    assert not found.certified[2] and found.radius[2] == 0
    truth = (x[:, 0] < 0).long()
    assert found.accuracy(truth, 0.3) == pytest.approx(3 / 6)
    again = attack.smooth(line, x, sigma=0.5, n_samples=4000, random_state=0, batch_size=4000)
    assert torch.equal(again.prediction[[0, 5]], found.prediction[[0, 5]])


def test_estimators_are_smoothed_with_their_labels(model):
    found = attack.smooth(model, X[:5], sigma=0.1, n_samples=200, random_state=0)
    assert set(found.prediction) <= set("abc") and found.radius.max() <= 0.1 * 2.5
    for wrong, words in [
        ({"sigma": 0}, "sigma must be"),
        ({"sigma": 1.0, "alpha": 0.7}, "alpha must lie"),
        ({"sigma": 1, "n_samples": 0}, "n_samples"),
    ]:
        with pytest.raises(ValueError, match=words):
            attack.smooth(model, X, **wrong)


# --- curves ----------------------------------------------------------------------------------------------


def test_curves_fall_and_deepfool_s_are_its_distances(model):
    eps = [0.5, 0.1, 1.0]
    curve = attack.evaluate(model, X, Y, eps=eps, norm="l2", steps=10, bounds=None, random_state=0)
    assert curve.eps.tolist() == [0.0, 0.1, 0.5, 1.0]
    assert curve.accuracy[0] == pytest.approx(model.score(X, Y))
    assert (np.diff(curve.accuracy) <= 0).all() and curve.accuracy[-1] < curve.accuracy[0]
    assert (curve.low <= curve.accuracy).all() and (curve.accuracy <= curve.high).all()
    certified = theory.certified_radius(model, X, Y)
    for r, accuracy in zip(curve.eps, curve.accuracy):
        assert (certified > r).mean() <= accuracy
    fast = attack.evaluate(model, X, Y, eps=eps, norm="l2", attack="fgsm", bounds=None)
    # Ten steps from a random start may miss what one long step finds, in a sample or two.
    assert (fast.accuracy >= curve.accuracy - 2.01 / len(Y)).all()
    deep = attack.evaluate(model, X, Y, eps=eps, norm="l2", attack="deepfool", bounds=None)
    distance = attack.deepfool(model, X, Y, norm="l2", steps=40, bounds=None).distance
    right = model.predict(X) == Y
    for r, accuracy in zip(deep.eps, deep.accuracy):
        assert accuracy == pytest.approx(np.mean(right & (distance > r)))
    assert [row["eps"] for row in curve.rows()] == curve.eps.tolist()
    figure = plot.robustness({"pgd": curve, "deepfool": deep})
    assert len(figure.axes[0].lines) == 2 and plot.save(plot.robustness(curve)).startswith(b"\x89PNG")
    for wrong, words in [
        ({"eps": [-1]}, "eps must be finite radii"),
        ({"eps": [1], "attack": "pdg"}, "no attack named"),
    ]:
        with pytest.raises(ValueError, match=words):
            attack.evaluate(model, X, Y, bounds=None, **wrong)


def test_the_bound_of_a_module_that_returns_a_dict_is_refused_by_name():
    class Dict(nn.Linear):
        def forward(self, x):
            return {"logits": super().forward(x)}

    with pytest.raises(
        TypeError, match="product_bound: the module must return a tensor; got a dict. Wrap it"
    ):
        theory.product_bound(Dict(3, 2), torch.zeros(1, 3))
