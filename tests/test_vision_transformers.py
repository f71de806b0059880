"""Weights that fit: ResNet and ViT against transformers' own, with random weights of several configurations."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import corollary
from corollary import ImageClassifier, Training
from corollary.vision import ResNet, ViT, resnet, vit
from corollary.vision.checkpoints import renamed

transformers = pytest.importorskip("transformers")

RESNETS = [
    {
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [2, 1],
        "layer_type": "basic",
        "num_channels": 1,
    },
    {"embedding_size": 16, "hidden_sizes": [32, 64, 128], "depths": [1, 2, 1], "layer_type": "bottleneck"},
    {
        "embedding_size": 8,
        "hidden_sizes": [16, 32],
        "depths": [2, 2],
        "layer_type": "bottleneck",
        "downsample_in_bottleneck": True,
        "downsample_in_first_stage": True,
    },
    {
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "layer_type": "basic",
        "hidden_act": "gelu",
    },
]
VITS = [
    {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "image_size": 16,
    },
    {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 96,
        "image_size": [12, 20],
        "num_channels": 1,
        "qkv_bias": False,
        "layer_norm_eps": 1e-5,
    },
    {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 32,
        "image_size": 8,
        "hidden_act": "relu",
    },
]


def theirs(kind, settings, seed=0):
    """A transformers model with random weights, and random statistics where it has some."""
    torch.manual_seed(seed)
    if kind == "resnet":
        model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=5, **settings))
    else:
        config = transformers.ViTConfig(num_labels=5, patch_size=4, **settings)
        model = transformers.ViTForImageClassification(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                draw = torch.randn_like(tensor)
                tensor.copy_(draw.abs() + 0.5 if "running_var" in name else 0.2 * draw + (tensor.ndim == 1))
    return model.eval()


CASES = [("resnet", s) for s in RESNETS] + [("vit", s) for s in VITS]


def images(kind, settings):
    size = settings.get("image_size", 32)
    h, w = (size, size) if isinstance(size, int) else size
    return torch.rand(3, settings.get("num_channels", 3), h, w, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_outputs_and_gradients_agree(kind, settings):
    peer, x = theirs(kind, settings), images(kind, settings)
    ours = (ResNet if kind == "resnet" else ViT).from_transformers(peer)
    base = peer.resnet if kind == "resnet" else peer.vit
    assert not ours.training
    y = torch.tensor([0, 3, 4])
    a, b = ours(x), peer(x).logits
    scale = float(b.detach().abs().max())
    assert float((a - b).detach().abs().max()) < 1e-5 * max(1.0, scale)  # float32, other order of sums
    torch.testing.assert_close(
        ours.features(x), base(x).last_hidden_state, rtol=1e-5, atol=1e-5 * max(1.0, scale)
    )

    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(ours(x1), y).backward()
    torch.nn.functional.cross_entropy(peer(x2).logits, y).backward()
    assert float((x1.grad - x2.grad).abs().max()) <= 1e-5 * max(1.0, float(x2.grad.abs().max()))
    wanted = gradients(peer, kind)
    for name, p in ours.named_parameters():
        bound = 1e-5 * max(1.0, float(wanted[name].abs().max()))
        torch.testing.assert_close(p.grad, wanted[name], rtol=0, atol=bound)


def gradients(peer, kind):
    """The gradients of a transformers model, under our names."""
    found = {name: p.grad for name, p in peer.named_parameters()}
    if kind == "resnet":
        return renamed(found, resnet.RULES)
    return vit._fused(renamed(found, vit.RULES))


@pytest.mark.parametrize("settings", RESNETS)
def test_statistics_of_batches_agree(settings):
    """While training too: the same outputs, and the same running statistics afterwards."""
    peer, x = theirs("resnet", settings).train(), images("resnet", settings)
    ours = ResNet.from_transformers(peer).train()
    a, b = ours(x), peer(x).logits
    assert float((a - b).detach().abs().max()) < 1e-4 * max(1.0, float(b.detach().abs().max()))
    wanted = renamed(peer.state_dict(), resnet.RULES)
    for name in (name for name in wanted if "running" in name):
        statistics = wanted[name]
        torch.testing.assert_close(ours.state_dict()[name], statistics, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_directories(kind, settings, tmp_path):
    peer, x = theirs(kind, settings), images(kind, settings)
    peer.save_pretrained(tmp_path)
    cls = ResNet if kind == "resnet" else ViT
    torch.testing.assert_close(
        cls.from_transformers(tmp_path)(x), cls.from_transformers(peer)(x), rtol=0, atol=0
    )
    torch.testing.assert_close(cls.from_transformers(str(tmp_path))(x), peer(x).logits, rtol=1e-5, atol=1e-4)


OLD = [
    ("vit.layers.", "vit.encoder.layer."),
    (".attention.q_proj.", ".attention.attention.query."),
    (".attention.k_proj.", ".attention.attention.key."),
    (".attention.v_proj.", ".attention.attention.value."),
    (".attention.o_proj.", ".attention.output.dense."),
    (".mlp.fc1.", ".intermediate.dense."),
    (".mlp.fc2.", ".output.dense."),
]


def test_files_of_earlier_versions(tmp_path):
    """Files on disk mostly have the names of transformers 4, here in several shards."""
    peer, x = theirs(*CASES[4]), images(*CASES[4])
    weights = {}
    for name, tensor in peer.state_dict().items():
        for new, old in OLD:
            name = name.replace(new, old)
        weights[name] = tensor.clone()
    assert any("encoder.layer.0.attention.attention.query" in name for name in weights)
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: weights[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps(peer.config.to_dict()))
    torch.testing.assert_close(
        ViT.from_transformers(tmp_path)(x), ViT.from_transformers(peer)(x), rtol=0, atol=0
    )


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("kind", "settings"), CASES[::4])
def test_pickled_weights(kind, settings, shards, tmp_path):
    """``pytorch_model.bin``, as transformers wrote it for years, whole or in shards."""
    peer, x = theirs(kind, settings), images(kind, settings)
    names = sorted(peer.state_dict())
    files = {f"pytorch_model-{i}.bin": names[i::shards] for i in range(shards)}
    if shards == 1:
        files = {"pytorch_model.bin": names}
    else:
        index = {"weight_map": {name: file for file, part in files.items() for name in part}}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    for file, part in files.items():
        torch.save({name: peer.state_dict()[name] for name in part}, tmp_path / file)
    (tmp_path / "config.json").write_text(json.dumps(peer.config.to_dict()))
    cls = ResNet if kind == "resnet" else ViT
    torch.testing.assert_close(cls.from_transformers(tmp_path)(x), cls.from_transformers(peer)(x))


def test_weights_that_would_run_code_are_refused(tmp_path):
    touched = tmp_path / "touched"

    class Evil:
        def __reduce__(self):
            return Path.touch, (touched,)

    torch.save({"weight": Evil()}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match="must be a file of weights and nothing else"):
        ViT.from_transformers(tmp_path)
    assert not touched.exists()


def test_configurations_that_say_little(tmp_path):
    """Files leave out what is usual; that of ResNet-50 has no ``downsample_in_bottleneck``."""
    peer, x = theirs(*CASES[0]), images(*CASES[0])
    peer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("downsample_in_bottleneck", "downsample_in_first_stage"):
        assert config.pop(name) is resnet.DEFAULTS[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.testing.assert_close(ResNet.from_transformers(tmp_path)(x), ResNet.from_transformers(peer)(x))
    usual = transformers.ViTConfig().to_dict() | transformers.ResNetConfig().to_dict()
    del usual["hidden_act"]  # each its own
    for name, value in (vit.DEFAULTS | resnet.DEFAULTS).items():
        assert usual.get(name, value) == value, name


def test_bare_models():
    """Without a head the output is what the head would see."""
    x = images(*CASES[0])
    peer = theirs(*CASES[0]).resnet
    pooled = ResNet.from_transformers(peer)(x)
    torch.testing.assert_close(pooled, peer(x).pooler_output.flatten(1), rtol=1e-5, atol=1e-5)
    x = images(*CASES[4])
    torch.manual_seed(0)
    peer = transformers.ViTModel(transformers.ViTConfig(patch_size=4, **VITS[0])).eval()
    torch.testing.assert_close(
        ViT.from_transformers(peer)(x), peer(x).last_hidden_state[:, 0], rtol=1e-5, atol=1e-5
    )


def test_errors(tmp_path):
    with pytest.raises(TypeError, match="a transformers model or a directory; got int"):
        ViT.from_transformers(3)
    with pytest.raises(ValueError, match="must hold config.json and .*; got no such directory"):
        ViT.from_transformers(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="must be of type 'vit'; got 'resnet'"):
        ViT.from_transformers(theirs(*CASES[0]))
    peer = theirs(*CASES[0])
    peer.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("classifier.1.weight")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="those of the configuration; got .*head.2.weight.* missing"):
        ResNet.from_transformers(tmp_path)
    weights["classifier.1.weight"] = torch.zeros(5, 3)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"head.2.weight of shape \(5, 3\) instead of \(5, \d+\)"):
        ResNet.from_transformers(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    with pytest.raises(ValueError, match="must hold gone.safetensors, which its index lists"):
        ResNet.from_transformers(tmp_path)
    peer.config.hidden_act = "prelu"
    with pytest.raises(ValueError, match="no activation named 'prelu'"):
        ResNet.from_transformers(peer)


@pytest.mark.parametrize("size", [(97, 97), (101, 67), (63, 61), (31, 29), (5, 3)])
def test_sides_without_a_common_divisor_are_padded(size):
    torch.manual_seed(0)
    options = {"channels": 1, "n_classes": 3, "width": 8, "n_layers": 1, "n_heads": 2}
    net = ViT(size=size, **options).eval()
    p, whole = net.patch_size[0], [n + m for n, m in zip(size, net.margin)]
    assert net.positions.shape[1] <= 1 + 16**2
    assert all(n % p == 0 and m < p for n, m in zip(whole, net.margin))
    x = torch.randn(2, 1, *size)
    framed, (top, left) = torch.zeros(2, 1, *whole), (m // 2 for m in net.margin)
    framed[..., top : top + size[0], left : left + size[1]] = x
    other = ViT(size=tuple(whole), patch_size=p, **options).eval()
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(x), other(framed))


def test_common_divisors_are_still_taken():
    for size, patch in [(224, 16), (28, 4), (32, 4), (8, 2), (64, 8)]:
        net = ViT(channels=1, n_classes=2, size=size, width=4, n_layers=1, n_heads=1)
        assert net.patch_size == (patch, patch) and net.margin == (0, 0)


# --- as estimators ------------------------------------------------------------------------------------------


def directory(kind, settings, path, bare=False):
    """Write a model with its preprocessing, as people have it on disk."""
    peer = theirs(kind, settings)
    peer.config.id2label = {i: f"kind {i}" for i in range(5)}
    (getattr(peer, kind) if bare else peer).save_pretrained(path)
    h, w = images(kind, settings).shape[2:]
    channels = settings.get("num_channels", 3)
    said = {
        "image_mean": [0.4, 0.5, 0.6][:channels],
        "image_std": [0.2, 0.3, 0.25][:channels],
        "do_normalize": True,
    }
    (path / "preprocessor_config.json").write_text(json.dumps({**said, "size": {"height": h, "width": w}}))
    return peer, said


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_a_checkpoint_is_a_classifier(kind, settings, tmp_path):
    peer, said = directory(kind, settings, tmp_path)
    model, x = ImageClassifier.from_transformers(tmp_path), images(kind, settings)
    mean, scale = (torch.tensor(said[key])[:, None, None] for key in ("image_mean", "image_std"))
    with torch.no_grad():
        expected = peer((x - mean) / scale).logits.softmax(1).numpy()
    np.testing.assert_allclose(model.predict_proba(x.numpy()), expected, rtol=1e-4, atol=1e-5)  # float32
    assert model.predict(x.numpy()).tolist() == [f"kind {i}" for i in expected.argmax(1)]
    again = corollary.load(model.save(tmp_path / "model.safetensors"))
    assert np.array_equal(again.predict_proba(x.numpy()), model.predict_proba(x.numpy()))
    plain = ImageClassifier.from_transformers(
        peer, image_size=x.shape[2:]
    )  # of preprocessing it says nothing
    with torch.no_grad():
        np.testing.assert_allclose(
            plain.predict_proba(x.numpy()), peer(x).logits.softmax(1), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(("kind", "settings"), [CASES[0], CASES[-1]])
@pytest.mark.parametrize("bare", [False, True])
def test_fine_tuning_starts_from_the_weights(kind, settings, bare, tmp_path):
    peer, said = directory(kind, settings, tmp_path, bare)
    rng, shape = np.random.default_rng(0), images(kind, settings).shape[1:]
    y = np.arange(16) % 2
    X = (rng.uniform(0, 0.5, size=(16, *shape)) + 0.5 * y[:, None, None, None]).astype(np.float32)
    source = ImageClassifier.from_transformers(tmp_path)
    if bare:
        with pytest.raises(NotFittedError):
            source.predict(X)
    still = source.fine_tune(X, y, training=Training(epochs=1, learning_rate=1e-12), random_state=0)
    assert still.classes_.tolist() == [0, 1] and still.channel_mean_.tolist() == said["image_mean"]
    before = ImageClassifier.from_transformers(peer).module_[1].state_dict()
    after = still.module_[1].state_dict()
    for name in before:
        if not name.startswith("head.") and "running" not in name and "num_batches" not in name:
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9)
    tuned = source.fine_tune(X, y, training=Training(epochs=30, learning_rate=3e-3), random_state=0)
    assert tuned.score(X, y) > still.score(X, y) or still.score(X, y) == 1.0
    assert tuned.score(X, y) > 0.9
    copied = clone(tuned).set_params(training=Training(epochs=1, learning_rate=1e-12))
    weights = copied.fit(X, y).module_[1].state_dict()  # a clone starts from the same weights
    name = next(n for n in before if n.endswith("weight") and not n.startswith("head."))
    torch.testing.assert_close(weights[name], before[name], rtol=0, atol=1e-9)
    again = corollary.load(tuned.save(tmp_path / "tuned.safetensors"))
    assert np.array_equal(again.predict_proba(X), tuned.predict_proba(X))
    again.fit(X, y)


def test_positions_for_other_sides_are_interpolated_as_by_transformers():
    peer = theirs(*CASES[-1])
    model = ImageClassifier.from_transformers(peer)
    X = np.random.default_rng(0).uniform(size=(4, 3, 16, 12)).astype(np.float32)
    tuned = model.fine_tune(X, [0, 1, 0, 1], training=Training(epochs=1, learning_rate=1e-12))
    with torch.no_grad():
        expected = peer.vit(torch.from_numpy(X), interpolate_pos_encoding=True).last_hidden_state
        found = tuned.module_[1].features(torch.from_numpy(X))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_tuned_is_named(tmp_path):
    model = ImageClassifier.from_transformers(theirs(*CASES[-1]))
    with pytest.raises(
        ValueError, match="images must have 3 channels, as those that the weights know; got 1"
    ):
        model.fine_tune(np.zeros((4, 8, 8), np.float32), [0, 1, 0, 1])
    (tmp_path / "config.json").write_text('{"model_type": "convnext"}')
    with pytest.raises(ValueError, match="no pre-trained net named 'convnext'. Closest: 'resnet'."):
        ImageClassifier.from_transformers(tmp_path)
