"""Self-supervision: the bound of InfoNCE on correlated Gaussians, tasks against enumeration, features and their probes."""

import numpy as np
import pytest
import torch

from corollary import (
    ContrastivePredictiveCoding,
    ImageClassifier,
    PatchPretrainer,
    RotationPretrainer,
    Training,
    linear_probe,
)
from corollary.regularisation.contrastive import CPCNetwork, info_nce
from corollary.regularisation.tasks import rotations, shuffled
from corollary.testing import sample_data

IMAGES, LABELS = sample_data("image")
PLAN = Training(epochs=2)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_info_nce_bounds_the_information_of_correlated_gaussians(rho):
    """With the best critic, log p(y|x) / p(y): log N - loss is at most I = -log(1 - rho^2) / 2, and near it for many N."""
    rng, n, rounds = np.random.default_rng(0), 64, 400
    x = rng.normal(size=(rounds, n))
    y = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(rounds, n))
    var = 1 - rho**2
    critic = (
        -((y[:, None, :] - rho * x[:, :, None]) ** 2) / (2 * var) + y[:, None, :] ** 2 / 2 - np.log(var) / 2
    )
    each = np.log(n) - info_nce(torch.from_numpy(critic)).numpy().mean(1)
    bound, error = each.mean(), each.std() / np.sqrt(rounds)
    truth = -0.5 * np.log(var)
    assert bound <= truth + 5 * error + 1e-12  # five standard errors
    assert bound > truth - 0.05 - 5 * error  # the gap is of order (variance of the ratio) / N
    assert bound < np.log(n)


def test_info_nce_leaves_out_what_is_not_there():
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    there = torch.tensor([True, True, False, True, False])
    found = info_nce(scores, there)[there]
    torch.testing.assert_close(found, info_nce(scores[there][:, there]))
    torch.testing.assert_close(
        info_nce(scores), torch.nn.functional.cross_entropy(scores, torch.arange(5), reduction="none")
    )


def test_the_loss_of_ragged_sequences_is_that_of_a_loop():
    torch.manual_seed(0)
    net = CPCNetwork(3, 4, 2, codes=False)
    lengths = torch.tensor([5, 3, 4])
    x = torch.randn(3, 5, 3)
    z, c = net(x, lengths)
    loss, bound = net.losses(z, c, lengths)
    losses, bounds = [], []
    for k, W in enumerate(net.predictors, 1):
        for t in range(5 - k):
            there = [j for j in range(3) if t + k < lengths[j]]
            for i in there if len(there) > 1 else ():
                scores = torch.stack([z[j, t + k] @ W(c[i, t]) for j in there])
                losses.append(-scores.log_softmax(0)[there.index(i)])
                bounds.append(np.log(len(there)) - losses[-1].item())
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    assert bound.item() == pytest.approx(np.mean(bounds), abs=1e-5)


def test_rotations_and_shuffled_patches_are_what_they_say():
    x = torch.arange(2 * 1 * 4 * 4.0).reshape(2, 1, 4, 4)
    turned, which = rotations(x)
    assert which.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for image, k, source in zip(turned, which.tolist(), [0, 1] * 4):
        assert np.array_equal(image[0], np.rot90(x[source, 0], k))
    orders = torch.tensor([[0, 1, 2, 3], [3, 2, 0, 1]])
    moved = shuffled(x, orders, torch.tensor([0, 1]), 2)
    assert torch.equal(moved[0], x[0])
    quarter = lambda image, i: image[0, 2 * (i // 2) : 2 * (i // 2) + 2, 2 * (i % 2) : 2 * (i % 2) + 2]  # noqa: E731
    for place, source in enumerate([3, 2, 0, 1]):
        assert torch.equal(quarter(moved[1], place), quarter(x[1], source))


@pytest.mark.parametrize("model", [RotationPretrainer, PatchPretrainer])
def test_features_are_what_the_last_layer_reads_and_a_classifier_starts_from_them(model):
    fitted = model("lenet", training=PLAN, random_state=0).fit(IMAGES)
    features = torch.from_numpy(fitted.transform(IMAGES))
    module = fitted.module_
    logits = module[1].head(features)
    with torch.no_grad():
        torch.testing.assert_close(logits, module(torch.from_numpy(IMAGES)[:, None]))
    tuned = fitted.fine_tune(IMAGES, LABELS, freeze=-1, training=PLAN)
    assert isinstance(tuned, ImageClassifier) and tuned.classes_.tolist() == [0, 1]
    for name, weight in module.named_parameters():
        if not name.startswith("1.head."):
            assert torch.equal(weight, tuned.module_.get_parameter(name))


def test_features_of_a_net_of_maps_are_its_last_maps_of_the_grid_s_size():
    """On 16 x 16 pixels the stages of a ResNet end at 16, 8, 4 and 2: the third is read, on 4 x 4 cells."""
    images = np.random.default_rng(0).random((6, 16, 16)).astype(np.float32)
    fitted = RotationPretrainer("resnet", width=4, training=PLAN, random_state=0).fit(images)
    scale, net = fitted.module_
    with torch.no_grad():
        maps = net.stem(scale(torch.from_numpy(images)[:, None]))
        sides, kept = [], None
        for stage in net.stages:
            maps = stage(maps)
            sides.append(maps.shape[-1])
            kept = maps if sides[-1] >= 4 else kept
    assert sides[-1] < 4 <= kept.shape[-1]
    wanted = torch.nn.functional.adaptive_avg_pool2d(kept, 4).flatten(1)
    np.testing.assert_allclose(fitted.transform(images), wanted, rtol=1e-5, atol=1e-6)


def test_features_of_a_transformer_are_what_its_last_layer_reads():
    """Its patches are maps, but the first thing it makes."""
    images = np.random.default_rng(0).random((6, 32, 32)).astype(np.float32)
    fitted = RotationPretrainer("vit", width=8, training=PLAN, random_state=0).fit(images)
    last = [part for part in fitted.module_.modules() if isinstance(part, torch.nn.Linear)][-1]
    with torch.no_grad():
        logits = fitted.module_(torch.from_numpy(images)[:, None])
        torch.testing.assert_close(last(torch.from_numpy(fitted.transform(images))), logits)


def test_images_are_sequences_of_rows():
    model = ContrastivePredictiveCoding(4, training=PLAN, random_state=0).fit(IMAGES)
    rows = ContrastivePredictiveCoding(4, training=PLAN, random_state=0).fit([*IMAGES])
    assert np.array_equal(model.transform(IMAGES), rows.transform([*IMAGES]))
    colours = np.stack([IMAGES, 1 - IMAGES], axis=1)
    assert ContrastivePredictiveCoding(4, training=PLAN).fit(colours).n_features_in_ == 16


def test_what_cannot_be_learned_from_says_why():
    with pytest.raises(ValueError, match="images must be square, so that they can be turned; got 8 x 6"):
        RotationPretrainer("lenet").fit(IMAGES[:, :, :6])
    with pytest.raises(ValueError, match="multiples of grid=3; got 8 x 8"):
        PatchPretrainer("lenet", grid=3).fit(IMAGES)
    with pytest.raises(ValueError, match="n_permutations must be at most 24; got 25"):
        PatchPretrainer("lenet", n_permutations=25).fit(IMAGES)
    with pytest.raises(ValueError, match="some of more than one step; got 3 of at most 1 steps"):
        ContrastivePredictiveCoding().fit([np.zeros((1, 2))] * 3)
    with pytest.raises(ValueError, match="a probe needs labels; got unlabelled data"):
        linear_probe(np.zeros((4, 2)), None)
    rows = np.zeros((20, 2))
    with pytest.raises(
        ValueError, match="every sample must have a label; got 5 of 20 without. Leave them out"
    ):
        linear_probe(rows, [None] * 5 + ["a", "b", "c"] * 5)
    with pytest.raises(ValueError, match="every sample must have a label; got 20 of 20 without"):
        linear_probe(rows, np.full(20, np.nan))
    with pytest.raises(
        ValueError, match="at least two classes, and 5 samples of each, .*; got 1 classes, the smallest of 20"
    ):
        linear_probe(rows, np.zeros(20))
    with pytest.raises(ValueError, match=r"features must be of shape \(3, n_features\); got \(4, 2\)"):
        linear_probe(np.zeros((4, 2)), [0, 1, 0])
