"""SegFormer against transformers' own, with random weights; checkpoints as segmenters, and tuned further."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import corollary
from corollary import Segmenter, Training
from corollary.vision import SegFormer, segformer
from corollary.vision.nets import build

transformers = pytest.importorskip("transformers")

SETTINGS = {
    "depths": [1, 2],
    "hidden_sizes": [8, 12],
    "num_attention_heads": [1, 3],
    "sr_ratios": [4, 1],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "mlp_ratios": [4, 2],
    "num_encoder_blocks": 2,
    "decoder_hidden_size": 16,
    "num_labels": 3,
}
OLD = [  # names of the files that are on disk nearly everywhere
    (r"^segformer\.stages\.(\d+)\.patch_embeddings\.", r"segformer.encoder.patch_embeddings.\1."),
    (r"^segformer\.stages\.(\d+)\.blocks\.", r"segformer.encoder.block.\1."),
    (r"^segformer\.stages\.(\d+)\.layer_norm\.", r"segformer.encoder.layer_norm.\1."),
    (r"\.sequence_reduction\.sequence_reduction\.", ".self.sr."),
    (r"\.sequence_reduction\.layer_norm\.", ".self.layer_norm."),
    (r"\.q_proj\.", ".self.query."),
    (r"\.k_proj\.", ".self.key."),
    (r"\.v_proj\.", ".self.value."),
    (r"\.o_proj\.", ".output.dense."),
    (r"\.fc(\d)\.", r".dense\1."),
    (r"\.layernorm_before\.", ".layer_norm_1."),
    (r"\.layernorm_after\.", ".layer_norm_2."),
    (r"linear_projections", "linear_c"),
]


def theirs(cls="SegformerForSemanticSegmentation", **settings):
    torch.manual_seed(0)
    model = getattr(transformers, cls)(transformers.SegformerConfig(**{**SETTINGS, **settings}))
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                draw = torch.randn_like(tensor)
                tensor.copy_(draw.abs() + 0.5 if "running_var" in name else 0.2 * draw + (tensor.ndim == 1))
    return model.eval()


def images(n=2, channels=3, h=32, w=40):
    return torch.rand(n, channels, h, w, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("settings", [{}, {"hidden_act": "relu", "num_channels": 1, "sr_ratios": [2, 2]}])
def test_outputs_and_gradients_agree(settings):
    peer, x = theirs(**settings), images(channels=settings.get("num_channels", 3))
    ours, y = SegFormer.from_transformers(peer), torch.randint(0, 3, (2, 32, 40))
    whole = lambda logits: F.interpolate(logits, size=y.shape[1:], mode="bilinear")
    a, b = ours(x), whole(peer(x).logits)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5 * float(b.detach().abs().max()))  # float32
    F.cross_entropy(a, y).backward()
    F.cross_entropy(b, y).backward()
    wanted = segformer.own_names({name: p.grad for name, p in peer.named_parameters()})
    for name, p in ours.named_parameters():
        bound = 1e-5 * max(1.0, float(wanted[name].abs().max()))
        torch.testing.assert_close(p.grad, wanted[name], rtol=0, atol=bound)


def test_files_of_earlier_versions(tmp_path):
    peer, x = theirs(), images()
    from corollary.vision.checkpoints import renamed

    save_file(renamed(peer.state_dict(), OLD), tmp_path / "model.safetensors")
    names = load_file(tmp_path / "model.safetensors")
    assert {
        "segformer.encoder.block.0.0.attention.self.sr.weight",
        "decode_head.linear_c.1.proj.bias",
    } <= set(names)
    (tmp_path / "config.json").write_text(json.dumps(peer.config.to_dict()))
    assert torch.equal(SegFormer.from_transformers(tmp_path)(x), SegFormer.from_transformers(peer)(x))


def test_what_a_configuration_leaves_out_is_transformers_default():
    usual = transformers.SegformerConfig().to_dict()
    for name, said in segformer.DEFAULTS.items():
        assert np.array_equal(usual[name], said), name


def directory(path, cls="SegformerForSemanticSegmentation"):
    peer = theirs(cls)
    peer.config.id2label = {0: "ground", 1: "house", 2: "tree"}
    peer.save_pretrained(path)
    said = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "size": {"height": 32, "width": 40}}
    (path / "preprocessor_config.json").write_text(json.dumps(said))
    return peer


def test_a_checkpoint_is_a_segmenter(tmp_path):
    peer, x = directory(tmp_path), images()
    model = Segmenter.from_transformers(tmp_path)
    mean, scale = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])
    with torch.no_grad():
        seen = (x - mean[:, None, None]) / scale[:, None, None]
        expected = F.interpolate(peer(seen).logits, size=(32, 40), mode="bilinear").softmax(1).numpy()
    np.testing.assert_allclose(model.predict_proba(x.numpy()), expected, rtol=1e-4, atol=1e-5)  # float32
    names = np.array(["ground", "house", "tree"])
    assert np.array_equal(model.predict(x.numpy()), names[expected.argmax(1)])
    again = corollary.load(model.save(tmp_path / "model.safetensors"))
    assert np.array_equal(again.predict_proba(x.numpy()), model.predict_proba(x.numpy()))


def squares(n=12):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 0.3, (n, 3, 32, 40)).astype(np.float32)
    masks = np.zeros((n, 32, 40), np.int64)
    for image, mask in zip(X, masks):
        r, c = rng.integers(0, 20, 2)
        mask[r : r + 12, c : c + 12] = 1
        image[:, mask == 1] += 0.6
    return X, masks


@pytest.mark.parametrize("cls", ["SegformerForSemanticSegmentation", "SegformerForImageClassification"])
def test_a_checkpoint_is_tuned_to_other_masks(cls, tmp_path):
    """Whole, or the encoder alone, as those trained on whole images are published."""
    peer = directory(tmp_path, cls)
    (X, masks), start = squares(), Segmenter.from_transformers(tmp_path)
    tuned = start.fine_tune(X, masks, training=Training(epochs=1, learning_rate=1e-6), random_state=0)
    assert tuned.classes_.tolist() == [0, 1]
    weights, found = segformer.own_names(peer.state_dict()), tuned.module_[1].state_dict()
    for name in (name for name in found if name.startswith("stages.")):
        torch.testing.assert_close(found[name], weights[name], rtol=0, atol=1e-4)  # after a few steps of 1e-6
    longer = Training(epochs=30, learning_rate=0.01)
    assert start.fine_tune(X, masks, training=longer, random_state=0).score(X, masks) > 0.7


def test_the_head_stays_where_the_classes_do():
    X, masks = squares()
    model = Segmenter(width=4, training=Training(epochs=2), random_state=0).fit(X, masks)
    still = Training(epochs=1, learning_rate=1e-9)
    same = model.fine_tune(X, masks, training=still)
    torch.testing.assert_close(same.module_[1].head.weight, model.module_[1].head.weight, rtol=0, atol=1e-6)
    other = model.fine_tune(X, masks * 7, training=still, random_state=1)
    assert float((other.module_[1].head.weight - model.module_[1].head.weight).detach().abs().max()) > 0.01


def test_what_makes_no_sense():
    with pytest.raises(ValueError, match="SegFormer: images must be at least 32 x 32; got 16 x 16"):
        build("segformer", (3, 16, 16), 2)
    with pytest.raises(ValueError, match="no layout named 'b7'"):
        SegFormer("b7")
    with pytest.raises(ValueError, match="widths must be multiples of n_heads"):
        SegFormer(widths=(9, 18, 36, 72))
    vit = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        image_size=8,
        patch_size=4,
    )
    with pytest.raises(ValueError, match="Segmenter: no pre-trained net named 'vit'.*segformer"):
        Segmenter.from_transformers(transformers.ViTModel(vit))


def test_published_sizes():
    """Parameters of b0 and b1 with 150 classes, counted from transformers' modules of the same configuration."""
    for layout, settings in (("b0", {}), ("b1", {"hidden_sizes": [64, 128, 320, 512]})):
        with torch.device("meta"):
            config = transformers.SegformerConfig(num_labels=150, **settings)
            wanted = transformers.SegformerForSemanticSegmentation(config)
            ours = SegFormer(layout, n_classes=150)
        count = lambda net: sum(p.numel() for p in net.parameters())
        assert count(ours) == count(wanted)
