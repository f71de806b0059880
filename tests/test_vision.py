"""The nets for images: published tables, small sizes, training, types, exports; both estimators."""

import io
import shutil
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from corollary import ImageClassifier, Segmenter, Training
from corollary.engine.player import flatten
from corollary.testing import overfitted
from corollary.vision import VGG, AlexNet, DenseNet, GoogLeNet, LeNet5, ResNet, UNet, ViT
from corollary.vision.lenet import TABLE
from corollary.vision.net import Conv
from corollary.vision.nets import NETS, build
from corollary.vision.segmenter import intersection_over_union


def count(module):
    return sum(p.numel() for p in module.parameters())


# Where the papers or the reference implementations state a number.
PUBLISHED = [
    (lambda: LeNet5().features, 60_000),
    (AlexNet, 60_965_224),
    (GoogLeNet, 6_998_552),
    (lambda: GoogLeNet(auxiliary=True), 13_378_280),
    *[
        (lambda d=d: VGG(d), n)
        for d, n in ((11, 132863336), (13, 133047848), (16, 138357544), (19, 143667240))
    ],
    *[
        (lambda d=d: ResNet(d), n)
        for d, n in ((18, 11689512), (34, 21797672), (50, 25557032), (101, 44549160), (152, 60192808))
    ],
    *[
        (lambda d=d: DenseNet(d), n)
        for d, n in ((121, 7978856), (161, 28681000), (169, 14149480), (201, 20013928))
    ],
    *[
        (lambda s=s: ViT(s), n)
        for s, n in (("tiny", 5717416), ("small", 22050664), ("base", 86567656), ("large", 304326632))
    ],
    (lambda: ViT("base", patch_size=32), 88_224_232),
    (lambda: UNet(padding=False, norm=False, n_classes=1), 31_030_593),
]


@pytest.mark.parametrize(("make", "parameters"), PUBLISHED)
def test_published_parameter_counts(make, parameters):
    with torch.device("meta"):  # nothing is allocated or drawn
        assert count(make()) == parameters


def test_published_shapes():
    with torch.device("meta"):
        assert UNet(padding=False, norm=False)(torch.empty(1, 1, 572, 572)).shape == (1, 2, 388, 388)
        assert AlexNet().features[:2](torch.empty(1, 3, 224, 224)).shape == (1, 96, 55, 55)
        assert AlexNet().features(torch.empty(1, 3, 224, 224)).shape == (1, 256, 6, 6)
        assert VGG(16).features(torch.empty(1, 3, 224, 224)).shape == (1, 512, 7, 7)
        assert ResNet(50).features(torch.empty(1, 3, 224, 224)).shape == (1, 2048, 7, 7)
        assert DenseNet(121).features(torch.empty(1, 3, 224, 224)).shape == (1, 1024, 7, 7)
        assert GoogLeNet().eval().features(torch.empty(1, 3, 224, 224)).shape == (1, 1024, 7, 7)
        assert ViT("base").features(torch.empty(1, 3, 224, 224)).shape == (1, 197, 768)
        assert LeNet5().features[:1](torch.empty(1, 1, 32, 32)).shape == (1, 6, 28, 28)
        assert LeNet5().features[:4](torch.empty(1, 1, 32, 32)).shape == (1, 16, 5, 5)


def test_connections_of_lenet():
    """Table I of the paper: sixty links, and map 15 sees all six."""
    assert [len(row) for row in TABLE] == [3] * 6 + [4] * 9 + [6]
    columns = [sum(i in row for row in TABLE) for i in range(6)]
    assert columns == [10] * 6
    assert sorted(TABLE[12]) == [0, 1, 3, 4] and sorted(TABLE[14]) == [0, 2, 3, 5]


NAMES = ["lenet", "alexnet", "vgg", "inception", "resnet", "densenet", "vit", "unet"]
TINY = {"densenet": {"depth": (1, 2)}, "vit": {"n_layers": 2}, "resnet": {"depth": (1, 1)}}


def tiny(name, size=16, channels=1, n_classes=3):
    torch.manual_seed(0)
    return build(name, (channels, size, size), n_classes, **TINY.get(name, {}))


@pytest.mark.parametrize("size", [8, 28, 33, 64])
@pytest.mark.parametrize("name", NAMES)
def test_small_images_of_any_size(name, size):
    if name == "vit" and size == 33:
        size = (21, 33)
    h, w = (size, size) if isinstance(size, int) else size
    net = build(name, (1, h, w), 10)
    assert count(net) < 2_000_000
    out = net(torch.rand(2, 1, h, w))
    assert out.shape == ((2, 10, h, w) if name == "unet" else (2, 10))


@pytest.mark.parametrize("name", NAMES)
def test_backward_reaches_every_parameter(name):
    net, x = tiny(name), torch.rand(4, 1, 16, 16)
    net(x).square().sum().backward()
    silent = [n for n, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []


def test_auxiliary_classifiers():
    net = GoogLeNet(channels=1, n_classes=3, size=16, auxiliary=True)
    x = torch.rand(4, 1, 16, 16)
    outputs = net.train()(x)
    assert [tuple(o.shape) for o in outputs] == [(4, 3)] * 3
    sum(o.square().sum() for o in outputs).backward()
    assert all(p.grad is not None for p in net.parameters())
    assert net.eval()(x).shape == (4, 3)


@pytest.mark.parametrize("name", NAMES)
def test_one_batch_can_be_overfitted(name):
    net = tiny(name)
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(8, 1, 16, 16, generator=rng)
    y = (x[:, 0] > 0.5).long() if name == "unet" else torch.arange(8) % 3
    loss = lambda: nn.functional.cross_entropy(net(x), y)
    assert overfitted(net, loss, below=0.05, learning_rate=3e-3) < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_types_and_memory_formats(name):
    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    net = tiny(name).eval()
    with torch.no_grad():
        reference = net.double()(x.double())
        assert reference.dtype == torch.float64
        single = net.float()(x)
        last = net.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
        half = net.bfloat16()(x.bfloat16())
    scale = float(reference.abs().max())
    torch.testing.assert_close(single.double(), reference, rtol=0, atol=1e-4 * scale)
    torch.testing.assert_close(last, single, rtol=0, atol=1e-4 * scale)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), reference, rtol=0, atol=0.15 * scale)  # 8 bits, many layers


def test_wide_convolutions_keep_channels_first_and_change_no_number():
    """One of 2**20 weights does, a narrow one does not; weights of a plain net fit, and vectors of all of them too."""
    narrow, wide = Conv(512, 227), Conv(512, 228)  # 512 x 9 x 228 is the first above 2**20
    plain = nn.Sequential(nn.Conv2d(512, 228, 3, padding=1, bias=False), *list(Conv(512, 228))[1:])
    plain.load_state_dict(wide.state_dict())
    for net in (narrow, wide):
        net.to(memory_format=torch.channels_last)
    flatten(list(wide.parameters()))
    assert narrow[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert wide[0].weight.is_contiguous() and wide[0].weight.grad.is_contiguous()
    x = torch.rand(2, 512, 4, 4, generator=torch.Generator().manual_seed(0))
    outputs = [plain(x), wide(x.contiguous(memory_format=torch.channels_last))]
    for out in outputs:
        out.square().sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(wide[0].weight.grad, plain[0].weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_modes_differ_only_where_they_should(name):
    net, x = tiny(name), torch.rand(4, 1, 16, 16)
    random = [m for m in net.modules() if isinstance(m, nn.Dropout) and m.p > 0]
    batch = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    same = torch.allclose(net.train()(x), net.eval()(x), atol=1e-6)
    assert same == (not random and not batch)
    torch.testing.assert_close(net(x)[:1], net(x[:1]), rtol=1e-4, atol=1e-5)  # no leak between images


def test_strided_pointwise_convolution():
    from corollary.vision.net import Pointwise

    ours, x = Pointwise(3, 5, 2), torch.rand(2, 3, 7, 8)
    torch.testing.assert_close(ours(x), nn.functional.conv2d(x, ours.weight, stride=2))


# --- exports ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_torch_export(name):
    net, x = tiny(name).eval(), torch.rand(2, 1, 16, 16)
    exported = torch.export.export(net, (x,)).module()
    torch.testing.assert_close(exported(x), net(x), rtol=1e-5, atol=1e-6)


def onnx_output(write, x):
    import onnxruntime

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


@pytest.mark.parametrize("name", NAMES)
def test_onnx(name):
    pytest.importorskip("onnxruntime")
    net, x = tiny(name).eval(), torch.rand(2, 1, 16, 16)
    out = onnx_output(lambda file: torch.onnx.export(net, (x,), file, dynamo=False), x)
    np.testing.assert_allclose(out, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_onnx_through_torch_export(name):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    net, x = tiny(name).eval(), torch.rand(2, 1, 16, 16)
    out = onnx_output(lambda file: torch.onnx.export(net, (x,), dynamo=True, verbose=False).save(file), x)
    np.testing.assert_allclose(out, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


LONG = pytest.param("inception", marks=pytest.mark.slow)  # half a minute: nine modules of four branches


@pytest.mark.parametrize("name", [LONG if name == "inception" else name for name in NAMES])
@pytest.mark.filterwarnings("ignore")
def test_compiled_without_a_break(name):
    """Captured whole, forward and backward; the code for processors is torch's own affair."""
    torch._dynamo.reset()
    net, x = tiny(name).eval(), torch.rand(2, 1, 16, 16)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    weights = [*net.parameters()]
    expected = torch.autograd.grad(net(x).square().sum(), weights)
    found = torch.autograd.grad(compiled(x).square().sum(), weights)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(b.abs().max())))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_compile(name):
    net, x = tiny(name).eval(), torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(torch.compile(net)(x), net(x), rtol=1e-4, atol=1e-5)


# --- estimators ------------------------------------------------------------------------------------------


def stripes(n=60, size=12, channels=1, seed=0):
    """Upright and level stripes, and noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    wave = (np.arange(size) % 4 < 2) * 0.6
    X = rng.uniform(0, 0.4, (n, channels, size, size))
    X += np.where(y[:, None, None, None], wave[:, None], wave[None, :])
    return X.astype(np.float32), np.array(["level", "upright"])[y]


@pytest.mark.parametrize("name", ["lenet", "inception", "resnet", "densenet", "vit"])
def test_classifier_learns_stripes(name):
    X, y = stripes()
    options = TINY.get(name)
    views = 0 if name == "vit" else None  # 40 images are too few to learn what a shift is
    plan = Training(epochs=25, batch_size=20, learning_rate=2e-3, augment=views)
    width = 8 if name == "inception" else None
    model = ImageClassifier(name, width=width, options=options, training=plan, random_state=0)
    model.fit(X[:40], y[:40])
    assert model.score(X[40:], y[40:]) >= 0.9
    assert model.predict_proba(X).shape == (60, 2)
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]
    assert (
        model.module_(torch.from_numpy(X)).argmax(1).numpy().tolist()
        == (model.predict(X) == "upright").tolist()
    )


def test_forms_of_images_agree():
    X, y = stripes(20)
    as_bytes = np.round(X * 255).astype(np.uint8)
    plan = Training(epochs=2)
    model = ImageClassifier("lenet", training=plan, random_state=0).fit(as_bytes, y)
    expected = model.predict_proba(as_bytes)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(model.predict_proba(as_bytes[:, 0]), expected)  # (n, h, w)
    np.testing.assert_array_equal(model.predict_proba(list(as_bytes)), expected)
    np.testing.assert_array_equal(model.predict_proba(as_bytes.transpose(0, 2, 3, 1)), expected)
    np.testing.assert_array_equal(model.predict_proba([Image.fromarray(x[0]) for x in as_bytes]), expected)
    found = model.predict_proba(torch.from_numpy(as_bytes))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), expected)
    double = ImageClassifier("lenet", training=plan, random_state=0).fit(X.astype(np.float64), y)
    assert double.predict_proba(X.astype(np.float64)).dtype == np.float64


def test_weights_of_samples_and_classes():
    X, y = stripes(40)
    keep = np.arange(40) < 20
    plan = Training(epochs=2, batch_size=64)
    make = lambda **options: ImageClassifier(
        "vit", options={"n_layers": 1}, training=plan, random_state=0, **options
    )
    flipped = np.where(keep, y, "level")
    ignoring = make().fit(X, flipped, sample_weight=np.where(keep, 1.0, 0.0))
    also = make().fit(X, y, sample_weight=np.where(keep, 1.0, 0.0))
    np.testing.assert_array_equal(ignoring.predict_proba(X), also.predict_proba(X))
    heavy = make(class_weight={"level": 100.0, "upright": 1.0}).fit(X, y).predict_proba(X)[:, 0].mean()
    light = make(class_weight={"level": 1.0, "upright": 100.0}).fit(X, y).predict_proba(X)[:, 0].mean()
    assert heavy > light


def test_a_last_batch_of_one_image():
    """Its maps of one pixel have no variance; running statistics stand in."""
    X, y = stripes(9, size=8)
    model = ImageClassifier("resnet", width=4, training=Training(epochs=1, batch_size=8), random_state=0).fit(
        X, y
    )
    assert np.isfinite(model.predict_proba(X)).all()


def test_standardisation_is_inside_the_module():
    X, y = stripes(20, channels=2)
    model = ImageClassifier("lenet", training=Training(epochs=1), random_state=0).fit(X, y)
    z = model.module_[0](torch.from_numpy(X))
    torch.testing.assert_close(z.mean((0, 2, 3)), torch.zeros(2), rtol=0, atol=1e-5)
    torch.testing.assert_close(z.std((0, 2, 3), correction=0), torch.ones(2), rtol=0, atol=1e-4)
    flat = ImageClassifier("lenet", training=Training(epochs=1), random_state=0).fit(
        np.ones((4, 8, 8)), [0, 1, 0, 1]
    )
    assert np.isfinite(flat.predict_proba(np.ones((1, 8, 8)))).all()  # a constant channel


def blobs(n=40, size=20, seed=0):
    """Bright discs on noise, and their masks."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size]
    centre = rng.uniform(5, size - 5, (n, 2))
    masks = (rows - centre[:, :1, None]) ** 2 + (columns - centre[:, 1:, None]) ** 2 < 16
    return (rng.uniform(0, 0.6, masks.shape) + 0.4 * masks).astype(np.float32), masks


def test_segmenter_finds_discs():
    X, masks = blobs()
    labels = np.where(masks, 7, 3)
    model = Segmenter(width=8, training=Training(epochs=15, batch_size=8, learning_rate=5e-3), random_state=0)
    model.fit(X[:30], labels[:30])
    assert model.classes_.tolist() == [3, 7]
    found = model.predict(X[30:])
    assert found.shape == (10, 20, 20) and set(np.unique(found)) <= {3, 7}
    assert model.score(X[30:], labels[30:]) > 0.85
    for form in (labels[30:, None], labels[30:, ..., None]):
        assert model.score(X[30:], form) == model.score(X[30:], labels[30:])
    p = model.predict_proba(X[30:])
    assert p.shape == (10, 2, 20, 20)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert isinstance(model.predict(torch.from_numpy(X[30:])), torch.Tensor)
    threshold = intersection_over_union(labels[30:], np.where(X[30:] > 0.5, 7, 3), [3, 7]).mean()
    assert model.score(X[30:], labels[30:]) > threshold + 0.1


def test_intersection_over_union_by_counting():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, (4, 5, 6)), rng.integers(0, 3, (4, 5, 6))
    where = [({*np.flatnonzero(a == k)}, {*np.flatnonzero(b == k)}) for k in range(3)]
    expected = [len(p & q) / len(p | q) for p, q in where]
    np.testing.assert_allclose(intersection_over_union(a, b, range(3)), expected)
    assert np.isnan(intersection_over_union([0], [0], [1]))[0]


def test_padding_of_odd_images_is_cut_again():
    net = UNet(size=30, depth=3, width=4).eval()
    x = torch.rand(1, 1, 30, 21)
    whole = nn.functional.pad(x, (0, 3, 0, 2), mode="replicate")
    torch.testing.assert_close(net(x), net(whole)[:, :, :30, :21])


# --- bad input -------------------------------------------------------------------------------------------


def fit(model=None, X=None, y=None):
    default_X, default_y = stripes(8)
    model = model or ImageClassifier("lenet", training=Training(epochs=1), random_state=0)
    return model.fit(default_X if X is None else X, default_y if y is None else y)


BAD = [
    (
        lambda: fit(X=[np.zeros((8, 8))] * 7 + [np.zeros((8, 9))]),
        r"one size; got \(8, 8\) .* and \(8, 9\) for image 7",
    ),
    (
        lambda: fit(X=np.full((8, 8, 8), 200.0)),
        r"must lie in \[0, 1\]; got minimum 200, maximum 200. Divide by 255",
    ),
    (lambda: fit(X=np.full((8, 8, 8), np.nan)), "pixels must be finite"),
    (lambda: fit(X=np.zeros((8, 64))), r"pass X.reshape\(-1, 8, 8\)"),
    (lambda: fit(X=np.zeros((8, 2, 2))), "at least 4 x 4; got 2 x 2"),
    (lambda: fit(y=["a"] * 8), "at least two classes"),
    (lambda: fit(y=["a", "b"]), r"one entry per sample \(8\)"),
    (lambda: fit(ImageClassifier("resnet19")), "no net named 'resnet19'. Closest: 'resnet1"),
    (lambda: fit(ImageClassifier("lenet", width=3)), "net='lenet': this net has no options; got width"),
    (lambda: fit(ImageClassifier("vgg", options={"deep": 3})), "options must be among depth, .*; got deep"),
    (lambda: AlexNet(size=32, width=8), "width must be a multiple of 6; got 8. Use width=12"),
    (lambda: fit().predict(np.zeros((1, 10, 10))), "images must be 12 x 12; got 10 x 10"),
    (lambda: fit().predict(np.zeros((1, 3, 12, 12))), r"must have 1 channel; got 3 .*grey: X.mean\(1\)"),
    (
        lambda: fit(X=np.zeros((8, 3, 12, 12))).predict(np.zeros((1, 12, 12))),
        r"must have 3 channels; got 1 .*np.repeat\(X, 3, axis=1\)",
    ),
    (lambda: fit(X=np.zeros((8, 2, 12, 12))).predict(np.zeros((1, 12, 12))), "2 channels; got 1 .*fitted on"),
    (lambda: fit().predict([np.zeros((12, 12)), np.zeros((12, 10))]), r"\(12, 12\) .* and \(12, 10\)"),
    (lambda: fit(X=stripes(8)[0] - 0.5), r"got minimum -0.4.*scale them: \(X - \(-0.4\d*\)\) / 0.9"),
    (lambda: fit(X=stripes(8)[0] * 15), r"\[0, 1\]; got .*Divide by 1"),
    (lambda: ImageClassifier().fit(stripes(8)[0], None), "requires y to be passed"),
    (lambda: fit(y=[0.0, 1.0, np.nan] + [0.0] * 5), "y must be finite; got NaN .*Leave those rows out"),
    (lambda: fit(y=["a", None, *"bababa"]), "a label for each of 8; got 1 missing, the first at 1"),
    (
        lambda: fit(ImageClassifier("vgg"), np.zeros((8, 1, 9))),
        "at least 2 x 2; got 1 x 9. Resize them to 2 x 2",
    ),
    (lambda: fit(ImageClassifier("resnet"), np.zeros((8, 1, 9))), "at least 2 x 2; got 1 x 9"),
    (lambda: fit(ImageClassifier("alexnet"), np.zeros((8, 3, 9))), "at least 4 x 4; got 3 x 9"),
    (lambda: fit(ImageClassifier("inception"), np.zeros((8, 3, 9))), "at least 4 x 4; got 3 x 9"),
    (lambda: fit(ImageClassifier("densenet"), np.zeros((8, 3, 9))), "at least 4 x 4; got 3 x 9"),
    (
        lambda: fit(ImageClassifier("vit", options={"patch_size": 5})),
        r"patch_size must divide the image's sides \(12 x 12\); got 5 x 5. Use patch_size=4, or pad the images to 15 x 15",
    ),
    (lambda: ViT(size=32)(torch.zeros(1, 3, 30, 32)), "images must be 32 x 32; got 30 x 32"),
    (lambda: ViT("tiny", n_heads=5), "width must be a multiple of n_heads=5; got 192. Use width=195"),
    (lambda: ViT("giant"), "no preset named 'giant'"),
    (lambda: VGG(12), "no depth named '12'. Closest: '1"),
    (lambda: ResNet(19), "no depth named '19'"),
    (lambda: DenseNet(120), "no depth named '120'"),
    (lambda: ResNet((1, 1), widths=(8,)), r"one entry per stage \(2\); got 1"),
    (lambda: ResNet(stem="tall"), "no stem named 'tall'"),
    (lambda: build("resnet19", (1, 8, 8), 2), "no net named 'resnet19'. Closest: 'resnet1"),
    (lambda: UNet(padding=False, width=1)(torch.zeros(1, 1, 90, 90)), "even sides to be halved; got 39 x 39"),
    (lambda: Segmenter().fit(np.zeros((4, 8, 8)), None), "one mask per image"),
    (
        lambda: Segmenter().fit(np.zeros((4, 8, 8)), np.full((4, 8, 8), np.nan)),
        "every pixel; got NaN for 256",
    ),
    (
        lambda: Segmenter().fit(np.zeros((4, 8, 8)), np.zeros((4, 8, 9))),
        r"shape \(4, 8, 8\); got shape \(4, 8, 9\)",
    ),
    (lambda: Segmenter().fit(np.zeros((4, 8, 8)), np.zeros((4, 8, 8))), "at least two classes"),
]


@pytest.mark.parametrize(("call", "match"), BAD)
def test_errors(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_names_of_nets_have_no_case_and_are_no_classes():
    X, y = stripes(8)
    make = lambda name: ImageClassifier(name, width=4, training=Training(epochs=1), random_state=0).fit(X, y)
    np.testing.assert_array_equal(make("ResNet18").predict_proba(X), make("resnet18").predict_proba(X))
    with pytest.raises(
        TypeError, match="Segmenter: net must be a name; got UNet. Use net='unet', and options="
    ):
        Segmenter(net=UNet).fit(X[:, 0], X[:, 0] > 0.5)


def test_masks_are_labels():
    with pytest.raises(TypeError, match="masks must hold labels; got fractions"):
        Segmenter().fit(np.zeros((4, 8, 8)), np.full((4, 8, 8), 0.5))


def test_every_name_builds():
    with torch.device("meta"):
        for name in NETS:
            assert count(build(name, (3, 224, 224), 5)) > 0


def test_masks_of_words_are_predicted_for_tensors_too():
    X = np.random.default_rng(0).uniform(size=(12, 8, 8)).astype(np.float32)
    model = Segmenter(width=4, training=Training(epochs=1), random_state=0).fit(
        X, np.where(X > 0.5, "cell", "ground")
    )
    assert np.array_equal(model.predict(torch.from_numpy(X)), model.predict(X))
