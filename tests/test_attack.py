"""Attacks against closed forms, torchattacks and foolbox; what cannot be attacked says why."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from corollary import (
    BaggingClassifier,
    BayesianClassifier,
    DeepSetsClassifier,
    Distiller,
    ImageClassifier,
    LogisticRegression,
    MLPClassifier,
    NetClassifier,
    NNGPClassifier,
    NTKClassifier,
    PointNet,
    SelfTraining,
    SequenceClassifier,
    TextCNN,
    Training,
    attack,
)
from corollary.attack.balls import lengths, project, steepest, uniform
from corollary.bayes import HMC

DUAL = {"l1": "linf", "l2": "l2", "linf": "l1"}
EPS = {"l1": 2.0, "l2": 0.6, "linf": 0.1}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)]
        made = nn.Sequential(*layers).eval()
        with torch.no_grad():
            made[-1].weight *= 6  # logits far enough apart that attacks have something to do
    return made


@pytest.fixture(scope="module")
def images():
    return torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 0.4 + 0.3


@pytest.fixture(scope="module")
def labels(net, images):
    return net(images).argmax(1)


# --- balls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", DUAL)
def test_steepest_steps_reach_the_dual_norm_and_nothing_does_better(norm):
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(6, 9, generator=rng, dtype=torch.float64)
    v = steepest(z, norm, 0.7)
    torch.testing.assert_close(lengths(v, norm), torch.full((6,), 0.7, dtype=torch.float64))
    torch.testing.assert_close((v * z).sum(1), 0.7 * lengths(z, DUAL[norm]))
    for _ in range(50):
        assert ((uniform(z, norm, 0.7, rng) * z).sum(1) <= (v * z).sum(1) + 1e-12).all()
    assert not steepest(torch.zeros(2, 3), norm, 1.0).any()


def test_steps_in_l1_fill_the_room_there_is():
    """The linear programme max v.z with |v|_1 <= a and |v_i| <= m_i, solved by scipy."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    z, room = rng.normal(size=(5, 6)), rng.uniform(0, 0.5, size=(5, 6))
    found = steepest(torch.tensor(z), "l1", 1.0, torch.tensor(room)).numpy()
    for zi, m, v in zip(z, room, found):
        best = linprog(-np.abs(zi), A_ub=np.ones((1, 6)), b_ub=[1.0], bounds=[(0, b) for b in m])
        assert v @ zi == pytest.approx(-best.fun, abs=1e-9)
        assert np.abs(v).sum() <= 1 + 1e-12 and (np.abs(v) <= m + 1e-12).all()


@pytest.mark.parametrize("norm", DUAL)
def test_projections_are_the_nearest_points(norm):
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(8, 5, generator=rng, dtype=torch.float64)
    found = project(z, norm, 0.9)
    assert (lengths(found, norm) <= 0.9 + 1e-12).all()
    inside = uniform(z, norm, 0.9, rng)
    torch.testing.assert_close(project(inside, norm, 0.9), inside)
    for _ in range(300):  # (z - p).(q - p) <= 0 for every q of a convex set
        q = uniform(z, norm, 0.9, rng)
        assert (((z - found) * (q - found)).sum(1) <= 1e-12).all()


@pytest.mark.parametrize("norm", DUAL)
def test_starts_are_uniform_in_the_ball(norm):
    """The share of a ball of dimension d within the radius r is r^d."""
    z = uniform(torch.zeros(20_000, 3), norm, 2.0, torch.Generator().manual_seed(0))
    volume = (lengths(z, norm) / 2.0) ** 3
    assert volume.max() <= 1 + 1e-5
    # 20000 uniform numbers: the standard error of their mean is 0.002, that of a coordinate's mean below 0.01.
    assert abs(float(volume.mean()) - 0.5) < 0.01
    assert z.mean(0).abs().max() < 0.05


# --- linear models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def line():
    rng = torch.Generator().manual_seed(3)
    made = nn.Linear(12, 2).double().eval()
    with torch.no_grad():
        made.weight.copy_(torch.randn(2, 12, generator=rng, dtype=torch.float64))
        made.bias.copy_(torch.tensor([0.3, -0.2], dtype=torch.float64))
    x = torch.randn(15, 12, generator=rng, dtype=torch.float64)
    y = made(x).argmax(1)
    z = made(x).detach()
    margin = z.gather(1, y[:, None])[:, 0] - z.gather(1, 1 - y[:, None])[:, 0]
    return made, x, y, margin


@pytest.mark.parametrize("norm", DUAL)
def test_the_worst_loss_of_a_linear_model_is_that_of_the_dual_norm(line, norm):
    """max over |r|_p <= eps of log(1 + exp(-margin(x + r))) = log(1 + exp(eps |w|_p* - margin))."""
    model, x, y, margin = line
    w = lengths((model.weight[1] - model.weight[0]).detach()[None], DUAL[norm])
    worst = nn.functional.softplus(0.8 * w - margin)
    one = attack.fgsm(model, x, y, eps=0.8, norm=norm, bounds=None)
    many = attack.pgd(model, x, y, eps=0.8, norm=norm, steps=40, step_size=0.4, bounds=None, random_state=0)
    torch.testing.assert_close(one.loss, worst)
    torch.testing.assert_close(
        many.loss, worst, rtol=1e-4, atol=1e-6
    )  # it ends a fraction of a step away for l1 and l2
    assert torch.equal(one.success, 0.8 * w > margin)
    assert (many.distance <= 0.8 + 1e-9).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_deepfool_of_a_linear_model_is_the_distance_to_the_boundary(line, norm):
    model, x, y, margin = line
    w = lengths((model.weight[1] - model.weight[0]).detach()[None], DUAL[norm])
    found = attack.deepfool(model, x, y, norm=norm, overshoot=0.05, bounds=None)
    torch.testing.assert_close(found.distance, 1.05 * margin / w)
    assert found.success.all() and (found.steps == 1).all()
    expected = (1.05 * margin / w / lengths(x, norm)).mean()
    assert found.robustness == pytest.approx(float(expected))
    near = attack.deepfool(
        model, x, y, norm=norm, overshoot=0.05, bounds=None, eps=float(found.distance.median())
    )
    assert torch.equal(near.success, found.distance <= found.distance.median())
    already = attack.deepfool(model, x, 1 - y, norm=norm, bounds=None)
    assert already.success.all() and not already.distance.any() and not already.steps.any()


# --- other libraries -------------------------------------------------------------------------------------


def test_same_start_same_steps_as_torchattacks(net, images, labels):
    """Rounding of a few steps in single precision is below 1e-5."""
    theirs = pytest.importorskip("torchattacks", reason="peer library torchattacks is not installed")
    plain = {"bounds": (0, 1), "random_start": False, "keep": "last"}
    bounds = {"bounds": (0, 1)}
    pairs = [
        (theirs.FGSM(net, eps=0.1), attack.fgsm(net, images, labels, eps=0.1, **bounds)),
        (
            theirs.PGD(net, eps=0.1, alpha=0.02, steps=9, random_start=False),
            attack.pgd(net, images, labels, eps=0.1, steps=9, step_size=0.02, **plain),
        ),
        (
            theirs.PGDL2(net, eps=0.6, alpha=0.1, steps=9, random_start=False),
            attack.pgd(net, images, labels, eps=0.6, norm="l2", steps=9, step_size=0.1, **plain),
        ),
        (
            theirs.MIFGSM(net, eps=0.1, alpha=0.02, steps=9, decay=0.7),
            attack.pgd(net, images, labels, eps=0.1, steps=9, step_size=0.02, momentum=0.7, **plain),
        ),
        (
            theirs.DeepFool(net, steps=3, overshoot=0.0),  # it lengthens every step rather than their sum
            attack.deepfool(net, images, labels, steps=3, overshoot=0.0, **bounds),
        ),
    ]
    for peer, ours in pairs:
        torch.testing.assert_close(ours.adversarial, peer(images, labels), rtol=0, atol=1e-5)


class _Exact:
    """DeepFool of foolbox without the 1e-4 that it adds to every distance."""

    def get_perturbations(self, distances, grads):
        return super().get_perturbations(distances - 1e-4, grads)


def test_same_start_same_steps_as_foolbox(net, images, labels):
    fb = pytest.importorskip("foolbox", reason="peer library foolbox is not installed")
    model = fb.PyTorchModel(net, bounds=(0, 1))
    plain = {"bounds": (0, 1), "random_start": False, "keep": "last"}
    attacks = fb.attacks
    steps = {"abs_stepsize": 0.02, "steps": 9, "random_start": False}
    l2 = type("L2", (_Exact, attacks.L2DeepFoolAttack), {})(steps=50)
    linf = type("Linf", (_Exact, attacks.LinfDeepFoolAttack), {})(steps=50)
    pairs = [
        (attacks.FGSM(random_start=False), 0.1, attack.fgsm(net, images, labels, eps=0.1, bounds=(0, 1))),
        (
            attacks.LinfPGD(**steps),
            0.1,
            attack.pgd(net, images, labels, eps=0.1, steps=9, step_size=0.02, **plain),
        ),
        (
            attacks.L2PGD(**steps),
            0.1,
            attack.pgd(net, images, labels, eps=0.1, norm="l2", steps=9, step_size=0.02, **plain),
        ),
        (l2, None, attack.deepfool(net, images, labels, bounds=(0, 1))),
        (linf, None, attack.deepfool(net, images, labels, norm="linf", bounds=(0, 1))),
    ]
    for peer, eps, ours in pairs:
        _, theirs, _ = peer(model, images, labels, epsilons=eps)
        torch.testing.assert_close(ours.adversarial, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm, theirs", [("l1", "L1PGD"), ("l2", "L2PGD"), ("linf", "LinfPGD")])
def test_no_fewer_successes_than_foolbox_at_the_same_budget(net, images, labels, norm, theirs):
    fb = pytest.importorskip("foolbox", reason="peer library foolbox is not installed")
    eps = {"l1": 6.0, "l2": 0.9, "linf": 0.12}[norm]
    ours = attack.pgd(net, images, labels, eps=eps, norm=norm, steps=20, bounds=(0, 1), random_start=False)
    peer = getattr(fb.attacks, theirs)(steps=20, random_start=False)
    _, _, won = peer(fb.PyTorchModel(net, bounds=(0, 1)), images, labels, epsilons=eps)
    assert 0 < ours.success.sum() and ours.success.sum() >= won.sum()


# --- what is promised ------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", DUAL)
def test_attacks_stay_in_ball_and_bounds_and_say_what_is_true(net, images, labels, norm):
    found = attack.pgd(
        net, images, labels, eps=EPS[norm], norm=norm, steps=8, bounds=(0.3, 0.7), random_state=0
    )
    assert found.adversarial.min() >= 0.3 and found.adversarial.max() <= 0.7
    assert (lengths(found.adversarial - images, norm) <= EPS[norm] * (1 + 1e-5)).all()
    z = net(found.adversarial).detach()
    assert torch.equal(found.success, z.argmax(1) != labels)
    torch.testing.assert_close(found.loss, nn.functional.cross_entropy(z, labels, reduction="none"))
    torch.testing.assert_close(found.distance, lengths(found.adversarial - images, norm))


def test_the_best_is_kept_and_restarts_and_steps_only_help(net, images, labels):
    def run(**options):
        settings = {"eps": 0.09, "steps": 5, "bounds": (0, 1), "random_state": 0, **options}
        return attack.pgd(net, images, labels, **settings)

    best, last = run(step_size=0.09), run(step_size=0.09, keep="last")
    worse = last.success & ~best.success
    assert not worse.any()
    same = best.success == last.success
    assert (best.loss >= last.loss - 1e-6)[same].all()
    assert (run(restarts=4).success | ~run().success).all()
    assert torch.equal(run().adversarial, run().adversarial)
    assert torch.equal(run(batch_size=7).success, run().success)


def test_targets_are_reached(net, images, labels):
    target = (labels + 1) % 5
    found = attack.pgd(net, images, target, eps=0.6, steps=40, bounds=(0, 1), targeted=True, random_state=0)
    assert found.success_rate > 0.8
    assert torch.equal(found.success, net(found.adversarial).argmax(1) == target)
    margin = attack.pgd(net, images, labels, eps=0.3, steps=20, bounds=(0, 1), loss="margin", random_state=0)
    assert torch.equal(margin.success, margin.loss > 0)


def test_deepfool_at_once_is_deepfool_one_at_a_time(net, images, labels):
    whole = attack.deepfool(net, images, labels, bounds=(0, 1))
    single = [attack.deepfool(net, x[None], y[None], bounds=(0, 1)) for x, y in zip(images[:6], labels)]
    torch.testing.assert_close(
        whole.adversarial[:6], torch.cat([s.adversarial for s in single]), rtol=0, atol=1e-5
    )
    assert whole.success.all()
    few = attack.deepfool(net, images, labels, bounds=(0, 1), batch_size=5)
    torch.testing.assert_close(few.adversarial, whole.adversarial, rtol=0, atol=1e-5)
    narrow = attack.deepfool(net, images, labels, bounds=(0, 1), candidates=2)
    assert narrow.distance.mean() >= whole.distance.mean() - 1e-6


def test_deepfool_takes_large_samples_in_parts(net, images, labels, monkeypatch):
    whole = attack.deepfool(net, images, labels, bounds=(0, 1))
    seen = []
    hook = net.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    monkeypatch.setattr(sys.modules["corollary.attack.deepfool"], "CACHED", 20 * images[0].numel())
    parts = attack.deepfool(net, images, labels, bounds=(0, 1))
    hook.remove()
    assert max(seen) == 20 < len(images)
    torch.testing.assert_close(parts.adversarial, whole.adversarial, rtol=0, atol=1e-5)  # rounding of batches
    assert torch.equal(parts.steps, whole.steps)


def test_deepfool_goes_round_the_bounds():
    """Where a coordinate cannot move, the distance is that to the boundary within the others."""
    line = nn.Linear(4, 2, bias=False).double().eval()
    line.weight.data.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [3.0, -2.0, 1.0, 0.5]]))
    x = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)  # the second class lacks 2
    bounds = ([0.0, 0.0, 0.0, 0.0], [1e-9, 1.0, 1.0, 1.0])
    for norm, expected in [("l2", 2.0 / (4 + 1 + 0.25) ** 0.5), ("linf", 2.0 / (2 + 1 + 0.5))]:
        found = attack.deepfool(line, x, [0], norm=norm, overshoot=1e-6, bounds=bounds)
        assert found.success.all() and found.distance.item() == pytest.approx(expected, rel=1e-5)


def test_the_global_random_state_and_the_weights_are_left_alone(net, images):
    net.zero_grad(set_to_none=True)
    before, weights = torch.get_rng_state(), [p.clone() for p in net.parameters()]
    with torch.no_grad():  # a caller's mode does not matter
        attack.pgd(net, images, eps=0.1, steps=2, bounds=(0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(weights, net.parameters()))


# --- estimators ------------------------------------------------------------------------------------------


def small():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))


X = RNG.normal(size=(80, 6))
Y = np.array(["no", "yes"])[(X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)]
PLAN = Training(epochs=15, learning_rate=0.01)
MODELS = {
    "mlp": lambda: MLPClassifier((8,), training=PLAN, random_state=0),
    "net": lambda: NetClassifier(small, loss="binary", training=PLAN, random_state=0),
    "logistic": lambda: LogisticRegression(),
    "nngp": lambda: NNGPClassifier(n_layers=1),
    "ntk": lambda: NTKClassifier(n_layers=1),
    "posterior": lambda: BayesianClassifier((4,), sampler=HMC(2, 10, 20, max_steps=5), random_state=0),
    "bagging": lambda: BaggingClassifier("softmax-regression", 3, max_features=0.9, random_state=0),
    "student": lambda: Distiller("softmax-regression", "logistic", random_state=0),
    "self-training": lambda: SelfTraining("softmax-regression"),
}


@pytest.mark.parametrize("name", MODELS)
def test_fitted_classifiers_are_attacked_by_their_own_labels(name):
    model = MODELS[name]().fit(X, Y)
    for found in (
        attack.pgd(model, X, Y, eps=1.0, norm="l2", steps=10, bounds=None, random_state=0),
        attack.fgsm(model, X, Y, eps=0.5, bounds=(X.min() - 1, X.max() + 1)),
        attack.deepfool(model, X, Y, bounds=None),
    ):
        assert isinstance(found.adversarial, np.ndarray) and found.adversarial.dtype == X.dtype
        assert np.array_equal(model.predict(found.adversarial) != Y, found.success)
        assert 0.1 < found.success_rate
    with pytest.raises(
        ValueError, match="labels must be among those of the first fit .2 classes.; got 'maybe'"
    ):
        attack.pgd(model, X, ["maybe"] * 80, eps=0.1, steps=1, bounds=None)


@pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
@pytest.mark.parametrize("cls", [NNGPClassifier, NTKClassifier])
def test_slopes_of_infinitely_wide_classifiers(cls, activation):
    """Against central differences: their error is of the order of the squared step, 1e-8, times third derivatives."""
    model = cls(activation=activation).fit(X, Y)
    scores, _ = model._differentiable()
    x, v = (
        torch.tensor(X[:4] + 0.1, requires_grad=True),
        torch.tensor(np.random.default_rng(1).normal(size=(4, 6))),
    )
    (slope,) = torch.autograd.grad(scores(x)[:, 0].sum(), x)
    near = [scores(x.detach() + h * v)[:, 0] for h in (1e-4, -1e-4)]
    torch.testing.assert_close((slope * v).sum(1), (near[0] - near[1]) / 2e-4, rtol=1e-4, atol=1e-5)
    said = model.predict_proba(X[:4] + 0.1)
    np.testing.assert_allclose(scores(x).softmax(1).detach(), said, atol=1e-10)


def test_images_come_back_as_they_were_given():
    pixels = RNG.integers(0, 256, size=(30, 8, 8), dtype=np.uint8)
    y = (pixels[:, :4].mean((1, 2)) > pixels[:, 4:].mean((1, 2))).astype(int)
    model = ImageClassifier("lenet", training=Training(epochs=5), random_state=0).fit(pixels, y)
    found = attack.pgd(model, pixels, y, eps=0.2, steps=5, bounds=(0, 1), random_state=0)
    assert found.adversarial.shape == (30, 8, 8) and found.adversarial.dtype == np.float32
    assert np.array_equal(model.predict(found.adversarial) != y, found.success)
    assert np.abs(found.adversarial - pixels / 255).max() <= 0.2 + 1e-6
    colour = torch.rand(4, 8, 8, 3)
    three = ImageClassifier("lenet", training=Training(epochs=1), random_state=0).fit(colour, [0, 1, 0, 1])
    again = attack.fgsm(three, colour, eps=0.1, bounds=(0, 1))
    assert again.adversarial.shape == (4, 8, 8, 3) and isinstance(again.adversarial, torch.Tensor)
    assert (again.adversarial - colour).abs().max() <= 0.1 + 1e-6


@pytest.mark.parametrize("kind", [DeepSetsClassifier, PointNet, SequenceClassifier])
def test_sets_and_sequences_of_one_size_are_attacked(kind):
    data = RNG.normal(size=(24, 6, 2))
    y = (data[:, :, 0].mean(1) > 0).astype(int)
    model = kind(training=Training(epochs=3), random_state=0).fit(data, y)
    found = attack.pgd(model, data, y, eps=0.5, steps=5, bounds=None, random_state=0)
    assert found.adversarial.shape == data.shape and found.success.any()
    assert np.array_equal(model.predict(found.adversarial) != y, found.success)
    with pytest.raises(
        ValueError, match="sets and sequences must all have one size; got shapes .2, 2. and .6, 2."
    ):
        pgd(model, [data[0], data[1][:2]])


# --- what cannot be attacked -----------------------------------------------------------------------------


def pgd(model, x, y=None, **options):
    return attack.pgd(model, x, y, **{"eps": 0.1, "steps": 2, "bounds": None, "random_state": 0, **options})


class Broken(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3] * torch.nan


ONE = torch.full((2, 1, 8, 8), 0.5)
WRONG = [
    (
        lambda net: pgd(net, -2.1 * ONE, bounds=(0, 1)),
        r"PGD: inputs must lie in bounds=\(0, 1\); got minimum -1.05",
    ),
    (lambda net: pgd(net, 3 * ONE, bounds=(0, 1)), "got maximum 1.5. Put the normalisation inside the model"),
    (lambda net: pgd(net, ONE, bounds=(1, 0)), "the lower bound must lie below the upper"),
    (lambda net: pgd(net, ONE, bounds=(0, 1, 2)), "bounds must be None or"),
    (lambda net: pgd(net, ONE, bounds=(np.zeros(3), 1)), "arrays of a sample's shape"),
    (
        lambda net: pgd(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), ONE),
        r"evaluation mode.*Call model.eval",
    ),
    (lambda net: pgd(net, ONE, [0, 5]), "labels must lie between 0 and 4, the model's last class; got 5"),
    (lambda net: pgd(net, ONE, [0]), r"y must have one label per sample \(2\)"),
    (lambda net: pgd(net, ONE, [0.5, 1.0]), "y must hold class numbers"),
    (lambda net: pgd(net, ONE * torch.nan), "X must be finite; got NaN or infinity in 2 samples"),
    (lambda net: pgd(net, ONE[:0]), "X must hold at least one sample"),
    (lambda net: pgd(net, ONE.to(torch.uint8)), "X must hold real numbers; got uint8"),
    (lambda net: pgd(Broken().eval(), ONE), "logits must be finite"),
    (lambda net: pgd(Broken().eval(), ONE, [0, 1]), "the model's loss must be finite"),
    (lambda net: attack.deepfool(Broken().eval(), ONE, [0, 1], bounds=None), "logits must be finite"),
    (lambda net: pgd(net, ONE, norm="l3"), "PGD: no norm named 'l3'. Closest: 'l2', 'l1'"),
    (lambda net: attack.deepfool(net, ONE, norm="l1", bounds=None), "DeepFool: no norm named 'l1'"),
    (lambda net: pgd(net, ONE, eps=-1), "eps must be a finite number of at least 0; got -1"),
    (lambda net: pgd(net, ONE, steps=0), "steps must be an integer of at least 1; got 0"),
    (lambda net: pgd(net, ONE, step_size=0), "step_size must be a finite number above 0"),
    (lambda net: pgd(net, ONE, restarts=2, random_start=False), "restarts need random_start=True"),
    (lambda net: pgd(net, ONE, restart=2), "pgd: no option named 'restart'. Closest: 'restarts'"),
    (lambda net: pgd(net, ONE, loss="hinge"), "no loss named 'hinge'"),
    (lambda net: pgd(net, ONE, targeted=True), "a targeted attack needs y"),
    (lambda net: pgd(3, ONE), "model must be a torch.nn.Module or a fitted classifier; got int"),
    (lambda net: pgd(MLPClassifier(), ONE), "not fitted yet"),
    (lambda net: attack.deepfool(net, ONE, candidates=1, bounds=None), "candidates must be at least 2"),
    (lambda net: pgd(nn.Flatten(0).eval(), ONE), "the model must return logits"),
]


@pytest.mark.parametrize("call, words", WRONG, ids=[words[:40] for _, words in WRONG])
def test_what_cannot_be_attacked_says_why(net, call, words):
    with pytest.raises((TypeError, ValueError, AttributeError), match=words):
        call(net)


def test_samples_of_another_shape_say_so(net):
    with pytest.raises(
        ValueError, match=r"PGD: the model must take samples of shape \(3,\), .*got RuntimeError"
    ):
        pgd(net, torch.zeros(2, 3))


def test_models_without_a_gradient_say_so():
    words = SequenceClassifier(training=Training(epochs=1), random_state=0).fit(["ab", "ba"] * 4, [0, 1] * 4)
    with pytest.raises(ValueError, match="the inputs must be real numbers in arrays of one shape; got codes"):
        pgd(words, ["ab"])
    texts = TextCNN(training=Training(epochs=1), random_state=0).fit(["a b", "b a"] * 4, [0, 1] * 4)
    with pytest.raises(ValueError, match="TextCNN: only tables, images, sets and sequences of real numbers"):
        pgd(texts, ["a b"])
    from sklearn.tree import DecisionTreeClassifier

    with pytest.raises(ValueError, match="the classifier must have a gradient; got DecisionTreeClassifier"):
        pgd(DecisionTreeClassifier().fit(X, Y), X)


class Cut(torch.nn.Module):
    """A network that cuts its inputs off from torch's graph; its weights have gradients."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(2, 3)

    def forward(self, x):
        return self.last(x.detach())


@pytest.mark.parametrize("call", [attack.pgd, attack.fgsm, attack.deepfool])
def test_logits_that_are_cut_off_from_the_inputs_say_so(call):
    options = {} if call is attack.deepfool else {"eps": 0.1}
    options |= {"steps": 2} if call is attack.pgd else {}
    with pytest.raises(
        ValueError, match=r"the logits must have a gradient by the inputs; got .*Leave out detach"
    ):
        call(Cut().eval(), torch.zeros(2, 2), bounds=None, **options)


def test_the_score_of_an_input_of_zeros_is_infinite():
    found = attack.deepfool(torch.nn.Linear(2, 2).eval(), torch.zeros(2, 2), bounds=None)
    assert found.success.all() and found.robustness == np.inf
