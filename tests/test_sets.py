"""Functions of sets: any size, any order."""

import shutil

import numpy as np
import onnxruntime
import pytest
import torch

import corollary
from corollary import DeepSetsClassifier, DeepSetsRegressor, PointNet, PointNetSegmenter, Training
from corollary.nn.deep_sets import DeepSets, EquivariantLinear, set_pool
from corollary.sets.deep_sets import relative
from corollary.sets.places import what_to_see
from corollary.sets.pointnet import PointNetwork

torch.set_num_threads(1)


@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
@pytest.mark.parametrize("equivariant", [False, True])
def test_order_and_padding_do_not_matter(pooling, equivariant):
    torch.manual_seed(0)
    net = DeepSets(3, 2, (8, 8), pooling=pooling, equivariant=equivariant).double()
    x, order = torch.randn(1, 6, 3).double(), torch.randperm(6)
    out, turned = net(x), net(x[:, order])
    torch.testing.assert_close(turned, out[:, order] if equivariant else out)
    padded = torch.cat([x, torch.full((1, 3, 3), 1e3).double()], 1)
    found = net(padded, torch.tensor([6]))
    torch.testing.assert_close(found[:, :6] if equivariant else found, out)
    found.sum().backward()
    assert all((p.grad != 0).any() for p in net.parameters())


def test_pooling_by_hand_and_of_nothing():
    x = torch.tensor([[[1.0], [3.0], [9.0]], [[7.0], [7.0], [7.0]]])
    for how, wanted in (("sum", [4.0, 0.0]), ("mean", [2.0, 0.0]), ("max", [3.0, 0.0])):
        assert set_pool(x, torch.tensor([2, 0]), how)[:, 0].tolist() == wanted
        assert set_pool(x[:, :0], torch.tensor([0, 0]), how).tolist() == [[0.0], [0.0]]
        assert set_pool(x[:, :0], None, how).tolist() == [[0.0], [0.0]]


def test_equivariant_layer_is_its_equation():
    layer = EquivariantLinear(2, 3, "sum").double()
    x = torch.randn(1, 4, 2).double()
    wanted = x @ layer.own.weight.T + layer.own.bias + x.sum(1, keepdim=True) @ layer.all.weight.T
    torch.testing.assert_close(layer(x), wanted)


def test_sums_of_digits_reach_beyond_the_sizes_seen():
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 10, size=(m, 1)).astype(np.float32) for m in rng.integers(1, 8, size=400)]
    model = DeepSetsRegressor(random_state=0).fit(X, [x.sum() for x in X])
    large = [rng.integers(0, 10, size=(12, 1)).astype(np.float32) for _ in range(100)]
    assert model.score(X, [x.sum() for x in X]) > 0.9
    assert model.score(large, [x.sum() for x in large]) > 0.5
    assert model.predict(X).dtype == np.float32


def test_empty_sets_and_company():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(m, 2)) for m in rng.integers(0, 5, size=40)]
    y = [len(x) > 1 for x in X]
    model = DeepSetsClassifier(training=Training(3), random_state=0).fit(X, y)
    alone = np.concatenate([model.predict_proba([x]) for x in X])
    np.testing.assert_allclose(model.predict_proba(X), alone, atol=1e-10)
    turned = model.predict_proba([x[::-1] for x in X])
    np.testing.assert_allclose(turned, alone, atol=1e-10)


# --- PointNet ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [False, True])
def test_pointnet_order_padding_and_gradients(segment):
    torch.manual_seed(0)
    net = PointNetwork(3, 2, width=4, segment=segment, dropout=0.0).double()
    for turn in (
        net.turn,
        net.turn_features,
    ):  # away from the identity, where the layers before have no gradient
        torch.nn.init.normal_(turn.matrix.weight, std=0.1)
    x, order = torch.randn(1, 9, 3).double(), torch.randperm(9)
    out, turned = net(x)[0], net(x[:, order])[0]
    torch.testing.assert_close(turned, out[:, order] if segment else out)
    padded = torch.cat([x, torch.full((1, 4, 3), 1e3).double()], 1)
    found = net(padded, torch.tensor([9]))[0]
    torch.testing.assert_close(found[:, :9] if segment else found, out)
    logits, penalty = net(x)
    (logits.square().sum() + penalty.sum()).backward()
    assert all((p.grad != 0).any() for p in net.parameters())


def test_a_turn_undoes_a_rotation():
    torch.manual_seed(0)
    net = PointNetwork(3, 2, width=4, dropout=0.0).double()
    R = torch.linalg.qr(torch.randn(3, 3).double())[0]
    x = torch.randn(2, 9, 3).double()
    out, penalty = net(x)
    assert (penalty == 0).all()  # turns begin as the identity
    net.turn.forward = lambda cloud, lengths=None: R.T.expand(len(cloud), 3, 3)
    torch.testing.assert_close(net(x @ R)[0], out)


def test_pointnet_learns_shapes_and_parts():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(15, 30), 3)) for _ in range(120)]
    y = np.arange(120) % 2
    X = [x * [1, 1, 0.1] if c else x for x, c in zip(X, y)]  # a plate, or a ball
    plan = Training(25, learning_rate=3e-3, batch_size=16)
    model = PointNet(8, training=plan, random_state=0).fit(X[:80], y[:80])
    assert model.score(X[80:], y[80:]) > 0.8
    np.testing.assert_allclose(model.predict_proba([5 * x + 2 for x in X]), model.predict_proba(X), atol=1e-8)
    parts = [np.where(x[:, 0] > x[:, 0].mean(), "right", "left") for x in X]
    tagger = PointNetSegmenter(8, training=plan, random_state=0).fit(X[:80], parts[:80])
    assert tagger.score(X[80:], parts[80:]) > 0.8


# --- every set network ------------------------------------------------------------------------------------

NETS = {
    "sum": lambda: DeepSets(3, 2, (8, 8)),
    "mean": lambda: DeepSets(3, 2, (8,), pooling="mean"),
    "max": lambda: DeepSets(3, 2, (8,), pooling="max"),
    "equivariant": lambda: DeepSets(3, 2, (8,), pooling="max", equivariant=True),
    "pointnet": lambda: PointNetwork(3, 2, width=4),
    "pointnet, parts": lambda: PointNetwork(3, 2, width=4, segment=True),
}


def padded(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4, 6, 3, generator=g), torch.tensor([6, 1, 3, 4])


def first(out):
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("name", NETS)
def test_set_networks_in_other_precisions(name):
    torch.manual_seed(0)
    x, sizes = padded()
    net = NETS[name]().eval()
    expected = first(net(x, sizes))
    torch.testing.assert_close(first(net.double()(x.double(), sizes)).float(), expected, atol=1e-5, rtol=1e-5)
    half = first(net.bfloat16()(x.bfloat16(), sizes))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("name", ["sum", "equivariant", "pointnet", "pointnet, parts"])
@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_set_networks_compiled_exported_and_in_onnx_agree(name, tmp_path):
    torch.manual_seed(0)
    inputs = padded()
    net = NETS[name]().eval()
    with torch.no_grad():
        expected = first(net(*inputs))
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        torch.testing.assert_close(first(compiled(*inputs)), expected)
        # The number of sets and the size of the largest stay free.
        sets, size = torch.export.Dim("sets", min=2), torch.export.Dim("size", min=2)
        shapes = ({0: sets, 1: size}, {0: sets})
        program = torch.export.export(net, inputs, dynamic_shapes=shapes)
        torch.testing.assert_close(first(program.module()(*inputs)), expected, atol=1e-5, rtol=1e-5)
        path = tmp_path / "net.onnx"
        torch.onnx.export(program, (), path, verbose=False)
        larger = (torch.cat([inputs[0]] * 2, 1)[:3], torch.tensor([12, 5, 1]))
        wanted = first(net(*larger))
    session = onnxruntime.InferenceSession(path)
    for data, result in ((inputs, expected), (larger, wanted)):
        named = {slot.name: t.numpy() for slot, t in zip(session.get_inputs(), data, strict=True)}
        found = torch.from_numpy(session.run(None, named)[0])
        torch.testing.assert_close(found, result, atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # a compiler is called many times
@pytest.mark.parametrize("name", NETS)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # of the compiler, about its own parts
def test_inductor_gives_the_same(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    net, inputs = NETS[name]().eval(), padded()
    with torch.no_grad():
        torch.testing.assert_close(
            first(torch.compile(net)(*inputs)), first(net(*inputs)), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("model", [
    DeepSetsClassifier(random_state=0, training=Training(300, batch_size=24)),
    DeepSetsRegressor(random_state=0, training=Training(300, batch_size=24)),
    PointNet(8, dropout=0.0, random_state=0, training=Training(200, batch_size=24, learning_rate=3e-3)),
], ids=lambda m: type(m).__name__)  # fmt: skip
def test_one_batch_of_sets_can_be_learned_by_heart(model):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(m, 3)) for m in rng.integers(3, 9, size=24)]
    y = rng.permutation(np.arange(24) % 2)
    assert model.fit(X, y).score(X, y) > 0.95


def test_clouds_do_not_depend_on_their_company_or_order():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(m, 3)) for m in rng.integers(1, 30, size=20)]
    y = [(x[:, 0] > x[:, 0].mean()).astype(int) for x in X]
    y[0][:] = 1
    model = PointNetSegmenter(4, training=Training(2), random_state=0).fit(X, y)
    together = model.predict_proba(X)
    for x, found in zip(X, together):
        assert found.shape == (len(x), 2)
        order = rng.permutation(len(x))
        np.testing.assert_allclose(model.predict_proba([x[order]])[0], found[order], atol=1e-9)


@pytest.mark.parametrize(
    ("model", "X", "y", "message"),
    [
        (
            DeepSetsClassifier(),
            [np.zeros((2, 3)), np.zeros((2, 2))],
            [0, 1],
            "must have dimension 3; got 2 in set 1. Give every element the same features",
        ),
        (DeepSetsClassifier(()), [np.zeros((2, 3))] * 2, [0, 1], "hidden_layer_sizes must be positive"),
        (PointNet(), [np.zeros((0, 3)), np.zeros((2, 3))], [0, 1], "1 or more elements; got 0 in set 0"),
        (PointNetSegmenter(), [np.zeros((2, 3))], [[0, 1, 1]], "cloud 0 has 2 points"),
        (PointNetSegmenter(), [np.zeros((2, 3))], None, "one list of labels per cloud"),
        (PointNetSegmenter(), [np.zeros((2, 3))], [[1, 1]], "at least two classes"),
    ],
)
def test_sets_bad_input(model, X, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y)


def test_shapes_anywhere_and_of_any_size_are_told_apart():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = [rng.normal(size=(20, 3)) * ([1, 1, 1] if k else [1, 1, 0]) for k in y]  # flat or not
    X = [x * rng.uniform(0.2, 5) + 5 * rng.normal(size=3) for x in X]
    model = DeepSetsClassifier(
        (16, 16), pooling="mean", training=Training(40, learning_rate=0.01), random_state=0
    )
    assert model.fit(X[:80], y[:80]).score(X[80:], y[80:]) > 0.9
    x = torch.as_tensor(np.stack(X[:2]))
    moved = relative(3 * x + 7, None)
    assert torch.allclose(relative(x, None), moved) and torch.isfinite(relative(x[:, :1], None)).all()
    padded = torch.cat([x, torch.full((2, 4, 3), 9.0)], 1)
    assert torch.allclose(relative(padded, torch.tensor([20, 20]))[:, :20], relative(x, None))


def clouds(n=120, moved=True):
    """Noisy points on a ball or in a box, anywhere and of any size."""
    rng = np.random.default_rng(0)
    y, X = np.arange(n) % 2, []
    for kind in y:
        x = rng.normal(size=(30, 3))
        x = x / np.linalg.norm(x, axis=1, keepdims=True) if kind else rng.uniform(-0.9, 0.9, (30, 3))
        X.append(x * rng.uniform(0.2, 5) + 20 * rng.normal(size=3) if moved else x)
    return X, y


def test_place_and_size_are_left_out_where_they_are_noise(tmp_path):
    X, y = clouds()
    rng = np.random.default_rng(0)
    assert what_to_see(X, y) == "relative"
    assert what_to_see(clouds(moved=False)[0], y) == "both"  # nothing is moved: as they are is as good
    assert what_to_see([x + 30 * k for x, k in zip(X, y)], y) == "both"  # where they lie says what they are
    assert what_to_see(X, np.array([x.mean() for x in X])) == "both"
    assert what_to_see(X, rng.normal(size=len(X))) == "relative"
    assert what_to_see(X, np.eye(2)[y]) == "relative"  # shares of classes
    assert what_to_see(X[:10], y[:10]) == what_to_see([x[:1] for x in X], y) == "both"  # too few to ask
    model = DeepSetsClassifier((16,), training=Training(3), random_state=0).fit(X, y)
    far = [100 * x + 1000 for x in X]
    np.testing.assert_allclose(model.predict_proba(far), model.predict_proba(X), atol=1e-6)
    again = corollary.load(model.save(tmp_path / "model.safetensors"))
    assert again.seen_ == "relative" and again.mean_size_ == 30
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(("flag", "seen"), [(True, "both"), (False, "absolute"), ("only", "relative")])
def test_how_elements_are_seen_can_be_said(flag, seen):
    X, y = clouds(40)
    model = DeepSetsClassifier((8,), relative=flag, training=Training(1), random_state=0).fit(X, y)
    assert model.seen_ == seen
    assert model.module_.net.phi[0].in_features == (6 if seen == "both" else 3)


def test_moved_clouds_are_told_apart_by_default():
    """Guessing would be right for half of them; as they are, elements say nothing."""
    X, y = clouds(240)
    assert DeepSetsClassifier(random_state=0).fit(X[:160], y[:160]).score(X[160:], y[160:]) > 0.9


def test_sums_are_divided_by_the_usual_size():
    torch.manual_seed(0)
    net = DeepSets(3, 2, (8,), size=5.0)
    plain = DeepSets(3, 2, (8,))
    plain.load_state_dict(net.state_dict())
    with torch.no_grad():
        plain.rho[0].weight /= 5.0
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(net(x), plain(x))
