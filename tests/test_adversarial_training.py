"""Adversaries and spectral penalties in the training loop: closed forms, singular values by SVD, exact resume, no leaks."""

import numpy as np
import pytest
import torch
from torch import nn

from corollary import (
    VAE,
    ImageClassifier,
    MLPClassifier,
    NetClassifier,
    Run,
    SequenceClassifier,
    Training,
    attack,
    load,
)
from corollary.engine.batches import TensorBatches
from corollary.engine.objective import Supervised
from corollary.engine.operators import Affine, Jacobian, affine_layers, power_iteration, unit
from corollary.engine.regularisers import Spectral
from corollary.engine.sgd import GradientLearner
from corollary.losses import half_squared
from corollary.testing.checks import check_resume

RNG = np.random.default_rng(0)
X = RNG.normal(size=(96, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=(6, 3))).argmax(1)
IMAGES = RNG.uniform(size=(32, 8, 8)).astype(np.float32)
KINDS = (IMAGES[:, :4].mean((1, 2)) > IMAGES[:, 4:].mean((1, 2))).astype(int)


def normed(n_inputs, n_classes):
    return nn.Sequential(
        nn.Linear(n_inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, n_classes)
    )


# --- adversaries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm, dual", [("l1", np.inf), ("l2", 2), ("linf", 1)])
def test_a_linear_model_is_trained_on_the_loss_of_the_dual_norm(norm, dual):
    """Logistic loss: the inner maximum at x is that of the margin less eps |w|_p*, so the losses of an epoch are too."""

    class Line(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([0.5, -1.0, 0.25, 2.0], dtype=torch.float64))

        def forward(self, x):
            return x @ self.w

    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.where(torch.arange(20) % 2 == 0, 1.0, -1.0).double()
    logistic = Supervised(lambda z, t: nn.functional.softplus(-t * z))
    adversary = attack.PGD(0.3, norm=norm, steps=25, step_size=0.15)
    plan = Training(epochs=1, optimizer="gd", learning_rate=1e-3, adversary=adversary).resolved()
    module = Line()
    w = module.w.detach().clone()
    learner = GradientLearner(
        module, logistic, TensorBatches(x, y), plan, Run(device="cpu"), seed=0, owner="L"
    )
    found = learner.step()["loss"]
    margin = y * (x @ w) - 0.3 * torch.linalg.vector_norm(w, dual)
    assert found == pytest.approx(float(nn.functional.softplus(-margin).mean()), rel=1e-4)  # PGD's own error


MODELS = {
    "mlp": lambda plan: (MLPClassifier((6,), dropout=0.2, norm="batch", training=plan, random_state=0), X, Y),
    "net": lambda plan: (NetClassifier(normed, training=plan, random_state=0), X, Y),
    "image": lambda plan: (ImageClassifier("lenet", training=plan, random_state=0), IMAGES, KINDS),
}
DEFENCES = {
    "pgd": {"adversary": {"eps": 0.1, "steps": 2, "restarts": 2, "norm": "l2"}},
    "batch": {"adversary": attack.PGD(0.1, steps=1, batch_norm="batch", momentum=0.5)},
    "fgsm": {"adversary": attack.FGSM(0.1, random_start=True, batch_norm="update")},
    "weights": {"spectral": 1e-2},
    "jacobian": {"spectral": {"rate": 1e-2, "of": "jacobian", "n_iter": 2}},
}
PAIRS = [("mlp", "pgd"), ("mlp", "jacobian"), ("mlp", "weights"), ("net", "batch"), ("net", "fgsm")]
PAIRS += [("image", "pgd"), ("image", "weights"), ("image", "jacobian")]


@pytest.mark.parametrize("model, defence", PAIRS)
def test_defences_resume_exactly(model, defence):
    plan = Training(epochs=2, batch_size=20, **DEFENCES[defence])
    check_resume(*MODELS[model](plan))


def test_the_search_does_not_leak_into_batch_norm_unless_asked():
    def statistics(mode):
        module = normed(6, 3)
        plan = Training(
            epochs=1, batch_size=96, shuffle=False, adversary=attack.PGD(0.5, steps=3, batch_norm=mode)
        )
        model = NetClassifier(module, training=plan, random_state=0)
        learner = model._learner(model._data(X, Y, None))
        seen = []
        learner.module[1].register_forward_pre_hook(
            lambda part, inputs: seen.append((part.training, inputs[0].detach()))
        )
        before = learner.module[1].running_mean.clone()
        learner.step()
        training = [x for mode, x in seen if mode]
        return before, learner.module[1], training, len(seen)

    for mode in ("running", "batch"):
        before, norm, training, calls = statistics(mode)
        expected = 0.9 * before + 0.1 * training[-1].mean(0)  # one update, by the batch that is learned from
        torch.testing.assert_close(norm.running_mean, expected)
        assert int(norm.num_batches_tracked) == 1 and calls == 5
        assert len(training) == (1 if mode == "running" else 5)
    _, norm, _, _ = statistics("update")
    assert int(norm.num_batches_tracked) == 5


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_defences_in_half_precision(precision):
    plan = Training(epochs=1, adversary=0.1, spectral={"rate": 1e-3, "of": "jacobian"}, label_smoothing=0.1)
    with Run(precision=precision, device="cpu"):
        model = MLPClassifier((4,), training=plan, random_state=0).fit(X.astype(np.float64), Y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_robust_accuracy_rises():
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=300)
    strong = (2 * y - 1)[:, None] + 0.3 * rng.normal(size=(300, 1))
    weak = 0.15 * (2 * y - 1)[:, None] + 0.02 * rng.normal(
        size=(300, 12)
    )  # exact, and within reach of the attack
    data = np.hstack([strong, weak]).astype(np.float32)

    def robust(**defence):
        plan = Training(epochs=12, learning_rate=0.02, **defence)
        model = MLPClassifier((8,), training=plan, random_state=0).fit(data, y)
        return 1 - attack.pgd(model, data, y, eps=0.3, steps=10, bounds=None, random_state=0).success_rate

    assert robust(adversary={"eps": 0.3, "steps": 4}) > robust() + 0.1


def test_adversaries_are_saved_searched_and_checked(tmp_path):
    plan = Training(
        epochs=1, adversary=attack.PGD(0.1, steps=2, bounds=(-9, 9)), spectral=Spectral(1e-3, of="jacobian")
    )
    model = MLPClassifier((4,), training=plan, random_state=0).fit(X, Y)
    loaded = load(model.save(tmp_path / "model.safetensors"))
    assert loaded.training.adversary.steps == 2 and loaded.training.adversary.bounds == (-9, 9)
    assert loaded.training.spectral.of == "jacobian"
    model.set_params(training__adversary__eps=0.2)
    assert model.training.adversary.eps == 0.2
    wrong = [
        (attack.PGD(0.1, bounds=(0, 1)), "PGD: inputs must lie in bounds=.0, 1.; got minimum"),
        (attack.PGD(0.1, targeted=True), "an adversary in training must not be targeted"),
        (attack.PGD(-0.1), "eps must be a finite number of at least 0"),
        ({"eps": 0.1, "step": 3}, "no parameter of adversary named 'step'. Closest: 'steps'"),
        ("pgd", "adversary must be a radius, a dict of PGD's parameters, or have one of on_batch"),
        (attack.DeepFool(), "adversary must be a radius"),
    ]
    for adversary, words in wrong:
        with pytest.raises((TypeError, ValueError), match=words):
            MLPClassifier(training=Training(adversary=adversary)).fit(X, Y)
    with pytest.raises(ValueError, match="adversary needs a model whose loss compares"):
        VAE(training=Training(adversary=0.1)).fit(X)
    with pytest.raises(ValueError, match="adversary needs inputs of real numbers; got codes"):
        SequenceClassifier(training=Training(adversary=0.1)).fit(["ab", "ba"] * 4, [0, 1] * 4)
    for spectral, words in [
        ({"rate": 1, "of": "layers"}, "no of named 'layers'"),
        (-1.0, "spectral must be a number"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPClassifier(training=Training(spectral=spectral)).fit(X, Y)


# --- operators -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 3, stride=2, bias=False), nn.AvgPool2d(2)]
)
def test_the_norm_of_a_convolution_is_that_of_its_matrix(layer):
    """Kernels without negative weights have their leading vectors apart from the others, whatever was drawn."""
    layer = layer.double()
    for p in layer.parameters():
        p.data.abs_()
    A = Affine(layer, (2, 6, 6))
    basis = torch.eye(72, dtype=torch.float64).view(72, 2, 6, 6)
    matrix = A(basis).flatten(1).detach()
    v = unit(torch.ones(1, 2, 6, 6, dtype=torch.float64) + 0.1 * basis[:1])
    with torch.no_grad():
        u, v = power_iteration(A, v, 400)
        found = (u * A(v)).sum()
    torch.testing.assert_close(found, torch.linalg.matrix_norm(matrix, 2), rtol=1e-6, atol=0)


def test_affine_layers_are_found_by_trying():
    conv, full = nn.Conv2d(1, 2, 3), nn.Linear(32, 3)
    net = nn.Sequential(
        conv, nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(4), nn.Flatten(), full
    ).train()
    found = affine_layers(net, lambda: net(torch.rand(2, 1, 6, 6)))
    assert set(found) == {"0", "1", "4", "5", "6"} and net.training and net[1].num_batches_tracked == 0
    assert found["0"].shape == (1, 6, 6)


def test_the_jacobian_is_the_jacobian():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    J = Jacobian(net(x), x)
    whole = torch.stack([torch.autograd.functional.jacobian(net, row) for row in x.detach()])
    v, u = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(J(v), (whole @ v[:, :, None])[:, :, 0])
    torch.testing.assert_close(J.adjoint(u), (u[:, None] @ whole)[:, 0])
    u, v = power_iteration(J, unit(v), 300)
    torch.testing.assert_close(J.form(u, v), torch.linalg.matrix_norm(whole, 2), rtol=1e-6, atol=0)


def test_penalties_are_their_formulas():
    """After many warm-started iterations at still weights the penalty is half the squared singular value from an SVD."""

    def penalty(module, spectral, x, epochs):
        plan = Training(epochs=epochs, learning_rate=1e-12, optimizer="gd", spectral=spectral).resolved()
        batches, zero = (
            TensorBatches(x, torch.zeros(len(x), 2).double()),
            Supervised(lambda z, t: 0.0 * half_squared(z, t)),
        )
        learner = GradientLearner(module, zero, batches, plan, Run(device="cpu"), seed=0, owner="P")
        while not learner.done:
            found = learner.step()["loss"]
        return found, [p.grad.clone() for p in module.parameters()]

    torch.manual_seed(0)
    x = torch.randn(6, 1, 5, 5, dtype=torch.float64)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 2)).double()
    basis = torch.eye(25, dtype=torch.float64).view(25, 1, 5, 5)

    def norms():
        conv = (net[0](basis) - net[0](0 * basis)).flatten(1)
        return torch.stack([torch.linalg.matrix_norm(conv, 2), torch.linalg.matrix_norm(net[3].weight, 2)])

    def sharp():
        J = torch.stack([torch.func.jacrev(lambda r: net(r[None])[0])(row).flatten(1) for row in x])
        return torch.linalg.matrix_norm(J, 2)

    for spectral, exact in [
        ({"rate": 0.7, "n_iter": 60}, lambda: 0.35 * norms().square().sum()),
        ({"rate": 0.7, "of": "jacobian", "n_iter": 60}, lambda: 0.35 * sharp().square().mean()),
    ]:
        expected = torch.autograd.grad(exact(), net.parameters(), allow_unused=True)
        found, gradients = penalty(net, spectral, x, 10)
        assert found == pytest.approx(exact().item(), rel=1e-6)
        for ours, theirs in zip(gradients, expected):
            torch.testing.assert_close(
                ours, torch.zeros_like(ours) if theirs is None else theirs, rtol=1e-3, atol=1e-6
            )
