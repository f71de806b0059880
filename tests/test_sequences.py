"""Sequences of any length: networks, estimators, batches of like lengths."""

import numpy as np
import pytest
import torch
from torch import nn

import corollary
from corollary import SequenceClassifier, SequenceForecaster, SequenceTagger, Training
from corollary.engine.batches import epoch_order
from corollary.engine.ragged import Ragged, RaggedBatches, bucketed, padding_mask
from corollary.sequences.network import (
    CELLS,
    RECURRENT,
    SequenceEncoder,
    SequenceNetwork,
    pool,
    reverse_padded,
)
from corollary.theory.recurrence import gradient_flow, state_jacobians, vanishing_bound

torch.set_num_threads(1)


def ragged(lengths, width=3, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(t, width)).astype(np.float32) for t in lengths]


# --- ragged data ------------------------------------------------------------------------------------------


def test_padding_puts_every_step_in_its_place_and_zeros_elsewhere():
    parts = ragged([4, 1, 3])
    x, lengths = Ragged.of(parts).padded(torch.tensor([2, 0]))
    assert x.shape == (2, 4, 3) and lengths.tolist() == [3, 4]
    np.testing.assert_array_equal(x[0, :3], parts[2])
    np.testing.assert_array_equal(x[1], parts[0])
    assert (x[0, 3] == 0).all()


def test_taking_some_sequences():
    parts = ragged([4, 1, 0, 3])
    some = Ragged.of(parts).take(torch.tensor([3, 2, 1]))
    assert some.lengths.tolist() == [3, 0, 1]
    np.testing.assert_array_equal(some.flat, np.concatenate([parts[3], parts[1]]))


def test_buckets_hold_every_row_once_and_pad_little():
    lengths = torch.randint(1, 200, (1000,), generator=torch.Generator().manual_seed(0))
    order = epoch_order(0, 0, 1000)
    batches = bucketed(lengths, order, 32)
    assert torch.cat(batches).sort().values.tolist() == list(range(1000))
    assert len(batches) == RaggedBatches(Ragged(torch.zeros(int(lengths.sum())), lengths)).count(32)

    def padded(chosen):
        return sum(int(lengths[rows].max()) * len(rows) for rows in chosen)

    assert padded(batches) < 1.06 * int(lengths.sum()) < 1.5 * int(lengths.sum()) < padded(order.split(32))
    assert [b.tolist() for b in bucketed(lengths, order, 32)] == [b.tolist() for b in batches]
    assert [b.tolist() for b in bucketed(lengths, epoch_order(0, 1, 1000), 32)] != [
        b.tolist() for b in batches
    ]


def test_an_epoch_can_start_in_the_middle():
    data = RaggedBatches(Ragged.of(ragged(range(1, 30))), torch.arange(29))
    order = epoch_order(0, 0, 29)
    whole = [batch.target.tolist() for batch in data.epoch(order, 4)]
    assert [batch.target.tolist() for batch in data.epoch(order, 4, 3)] == whole[3:]


# --- networks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_cells_are_torchs(cell):
    torch.manual_seed(0)
    net = SequenceEncoder(3, 5, cell, 2, bidirectional=True)
    twin = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell](
        3, 5, 2, bidirectional=True, batch_first=True
    )
    twin.load_state_dict(net.cell.state_dict())
    x = torch.randn(2, 7, 3)
    torch.testing.assert_close(net(x), twin(x)[0])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("pooling", ["last", "mean", "max", None])
def test_no_padding_leaks(cell, bidirectional, pooling):
    torch.manual_seed(0)
    net = SequenceNetwork(
        3, 2, cell, width=6, n_layers=2, bidirectional=bidirectional, pooling=pooling
    ).double()
    x, lengths = Ragged.of(ragged([7, 2, 5, 1]), torch.float64).padded(torch.arange(4))
    together = net(x, lengths)
    spoiled = x.masked_fill(~padding_mask(lengths, 7)[..., None], 1e3)
    for i, t in enumerate(lengths.tolist()):
        alone = net(x[i : i + 1, :t])[0]
        found, other = together[i], net(spoiled, lengths)[i]
        if pooling is None:
            found, other = found[:t], other[:t]
        torch.testing.assert_close(found, alone)
        torch.testing.assert_close(other, alone)


@pytest.mark.parametrize("cell", CELLS)
def test_one_direction_never_looks_ahead(cell):
    torch.manual_seed(0)
    net = SequenceEncoder(3, 4, cell, 2).eval()
    x = torch.randn(1, 9, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(net(x)[0, 4].sum(), x)
    assert (grad[0, 5:] == 0).all()
    assert (grad[0, 4] != 0).any() and (grad[0, 3] != 0).any()


@pytest.mark.parametrize("cell", CELLS)
def test_no_gradient_leaks_from_the_padding(cell):
    torch.manual_seed(0)
    net = SequenceNetwork(3, 2, cell, width=6, n_layers=2, bidirectional=True).double()
    x, lengths = Ragged.of(ragged([7, 2, 5]), torch.float64).padded(torch.arange(3))
    (grad,) = torch.autograd.grad(net(x.requires_grad_(), lengths).square().sum(), x)
    inside = padding_mask(lengths, 7)
    assert (grad[~inside] == 0).all() and (grad[inside] != 0).any(-1).all()


@pytest.mark.parametrize("cell", RECURRENT)
def test_truncation_cuts_gradients_and_not_states(cell):
    torch.manual_seed(0)
    net = SequenceEncoder(2, 4, cell, 2, truncation=3)
    x = torch.randn(1, 8, 2, requires_grad=True)
    torch.testing.assert_close(net.train()(x), net.eval()(x))
    (cut,) = torch.autograd.grad(net.train()(x)[0, 5].sum(), x)
    (full,) = torch.autograd.grad(net.eval()(x)[0, 5].sum(), x)
    assert (cut[0, :3] == 0).all() and (full[0, :3] != 0).any()
    torch.testing.assert_close(cut[0, 3:], full[0, 3:])


@pytest.mark.parametrize("cell", RECURRENT)
def test_truncation_is_an_option_of_the_estimator(cell):
    X, y = [np.arange(8), np.arange(8)[::-1]] * 4, [0, 1] * 4
    model = SequenceClassifier(cell, width=6, truncation=3, training=Training(1), random_state=0)
    net = model.fit(X, y).module_.train()
    net(torch.arange(8)[None]).sum().backward()  # code t stands at step t; cuts are before 3 and 6
    reached = (net.inputs.weight.grad != 0).any(1)
    assert reached.tolist() == [False] * 6 + [True] * 2
    whole = SequenceNetwork(8, 2, cell, width=6, embedding_dimension=32)
    whole.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(torch.arange(8)[None]), whole(torch.arange(8)[None]))  # states go on


def test_truncated_training_learns_what_lies_after_the_cut():
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 4, size=rng.integers(2, 9)) for _ in range(48)]
    y = [int(x[-1] % 2) for x in X]
    model = SequenceClassifier("gru", width=16, truncation=3, training=MARKED, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.95


def test_reversal_and_pooling_by_hand():
    x = torch.arange(8.0).reshape(2, 4, 1)
    lengths = torch.tensor([4, 2])
    assert reverse_padded(x, lengths)[..., 0].tolist() == [[3, 2, 1, 0], [5, 4, 6, 7]]
    assert reverse_padded(x, None)[..., 0].tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]
    assert pool(x, lengths, "mean")[:, 0].tolist() == [1.5, 4.5]
    assert pool(x, lengths, "max")[:, 0].tolist() == [3, 5]
    assert pool(torch.cat([x, x], 2), lengths, "last", backward=1).tolist() == [[3, 0], [5, 4]]


# --- estimators -------------------------------------------------------------------------------------------

MARKED = Training(epochs=40, learning_rate=0.01, batch_size=16)


def first_decides(n=64, seed=0):
    """Only the first code tells the class; the last state must remember it."""
    rng = np.random.default_rng(seed)
    X = [rng.integers(0, 6, size=rng.integers(2, 9)) for _ in range(n)]
    return X, np.array(["even", "odd"])[[x[0] % 2 for x in X]]


@pytest.mark.parametrize("cell", CELLS)
def test_one_batch_can_be_overfitted(cell):
    X, y = first_decides(16)
    model = SequenceClassifier(
        cell, width=16, n_layers=2, training=Training(80, learning_rate=0.01), random_state=0
    )
    assert model.fit(X, y).score(X, y) == 1.0


def test_ids_of_the_catalog_lead_to_the_real_thing():
    both, deep = corollary.create("birnn"), corollary.create("deep-rnn", n_layers=4)
    assert (both.cell, both.bidirectional, both.n_layers) == ("rnn", True, None)
    assert (deep.cell, deep.bidirectional, deep.n_layers) == ("rnn", False, 4)
    X, y = first_decides(12)
    deep = corollary.create("deep-rnn", width=5, training=Training(1), random_state=0).fit(X, y)
    assert deep.module_.encoder.cell.num_layers == 3
    assert both.set_params(training=Training(1)).fit(X, y).module_.encoder.cell.bidirectional


def test_classes_of_new_sequences():
    model = SequenceClassifier("gru", width=24, training=MARKED, random_state=0).fit(*first_decides(200))
    assert model.score(*first_decides(100, seed=1)) > 0.95
    assert model.predict_proba(first_decides(5)[0]).sum(1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("cell", ["gru", "lru"])
def test_predictions_do_not_depend_on_the_company(cell):
    X, y = first_decides()
    model = SequenceClassifier(cell, bidirectional=True, training=Training(2), random_state=0).fit(X, y)
    together = model.predict_proba(X)
    alone = np.concatenate([model.predict_proba([x]) for x in X])
    np.testing.assert_allclose(together, alone, atol=1e-6)  # float32 sums in another order


def test_float64_vectors_stay_float64_and_scale_does_not_matter():
    X = [x.astype(np.float64) for x in ragged([3, 5, 4, 6] * 5)]
    y = [int(x[0, 0] > 0) for x in X]
    model = SequenceClassifier(width=4, training=Training(2), random_state=0).fit(X, y)
    assert model.predict_proba(X).dtype == np.float64
    scaled = SequenceClassifier(width=4, training=Training(2), random_state=0).fit(
        [1000 * x + 5 for x in X], y
    )
    np.testing.assert_allclose(
        scaled.predict_proba([1000 * x + 5 for x in X]), model.predict_proba(X), atol=1e-9
    )


def test_early_stopping_holds_out_sequences():
    training = Training(50, early_stopping=True, patience=2, validation_fraction=0.25)
    model = SequenceClassifier(width=4, training=training, random_state=0).fit(*first_decides())
    assert "validation_loss" in model.history_[0] and len(model.history_) <= 50


def test_unknown_characters_are_unknown():
    model = SequenceClassifier(width=4, training=Training(1), random_state=0).fit(["ab", "ba"], [0, 1])
    assert model.alphabet_ == "ab"
    np.testing.assert_array_equal(model.predict_proba(["?b"]), model.predict_proba(["!b"]))


def test_words_as_steps(tmp_path):
    """What a word is decides its tag; the same words in one string would be read letter by letter."""
    words = ["red", "green", "one", "two", "three"]
    rng = np.random.default_rng(0)
    X = [[words[i] for i in rng.integers(0, 5, size=rng.integers(1, 6))] for _ in range(60)]
    y = [["colour" if word in words[:2] else "number" for word in text] for text in X]
    model = SequenceTagger(width=8, training=Training(20, learning_rate=0.02), random_state=0).fit(X, y)
    assert model.kind_ == "token" and model.alphabet_ == sorted(words)
    assert model.score(X, y) > 0.9
    assert [len(tags) for tags in model.predict([["red", "blue"], ["two"]])] == [2, 1]  # one is unknown
    again = corollary.load(model.save(tmp_path / "model"))
    for ours, theirs in zip(again.predict_proba(X), model.predict_proba(X)):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="of lists of words, as in fit; got strings"):
        model.predict(["red green"])


def test_weights_of_samples_and_classes():
    X, y = first_decides(40)
    a, b = np.unique(y)
    keep = np.arange(40) < 20
    make = lambda **options: SequenceClassifier(
        width=4, training=Training(2, batch_size=4), random_state=0, **options
    )
    weight = np.where(keep, 1.0, 0.0)  # some batches weigh nothing at all
    ignoring = make().fit(X, np.where(keep, y, a), sample_weight=weight)
    also = make().fit(X, np.where(keep, y, b), sample_weight=weight)
    np.testing.assert_array_equal(ignoring.predict_proba(X), also.predict_proba(X))
    assert np.isfinite(ignoring.predict_proba(X)).all()
    one, two = (make().fit(X, y, sample_weight=np.full(40, w)).predict_proba(X) for w in (1.0, 2.0))
    np.testing.assert_array_equal(one, two)
    heavy = make(class_weight={a: 100.0, b: 1.0}).fit(X, y).predict_proba(X)[:, 0].mean()
    light = make(class_weight={a: 1.0, b: 100.0}).fit(X, y).predict_proba(X)[:, 0].mean()
    assert heavy > light


def test_tags_need_both_sides():
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 4, size=rng.integers(2, 8)) for _ in range(100)]
    y = [["same" if b == x[-1] else "other" for b in x] for x in X]  # the last code decides every tag
    both = SequenceTagger(width=24, training=MARKED, random_state=0).fit(X, y)
    ahead = SequenceTagger(width=24, bidirectional=False, training=MARKED, random_state=0).fit(X, y)
    assert both.score(X, y) > 0.97 > ahead.score(X, y)
    assert [len(p) for p in both.predict(X)] == [len(x) for x in X]
    assert all(p.shape == (len(x), 2) for p, x in zip(both.predict_proba(X), X))


@pytest.mark.parametrize("cell", RECURRENT)
def test_forecasts_from_the_state_are_those_of_reading_again(cell):
    X = [x.astype(np.float64) for x in ragged([9, 4, 7, 2], width=2)]
    model = SequenceForecaster(cell, horizon=6, width=5, n_layers=2, training=Training(2), random_state=0)
    model.fit(X)
    model.network_share_ = np.ones(2)
    found = model.predict(X)
    model._stepped = model._reread
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9, atol=1e-12)  # float64, other batches


def test_forecasts_follow_a_rule_and_ends_do_not_depend_on_the_company():
    rng = np.random.default_rng(0)
    series = [np.sin(0.4 * np.arange(rng.integers(30, 60)) + p) for p in rng.uniform(0, 6, 40)]
    model = SequenceForecaster(
        horizon=5, width=24, training=Training(40, learning_rate=0.01, batch_size=16), random_state=0
    )
    model.fit([s[:-5] for s in series])
    found = model.predict([s[:-5] for s in series])
    assert found.shape == (40, 5, 1)
    assert np.abs(found[..., 0] - [s[-5:] for s in series]).mean() < 0.1
    np.testing.assert_allclose(found[3], model.predict([series[3][:-5]])[0], atol=1e-5)
    assert model.score([s[:-5] for s in series]) > 0.97  # the first steps of a series show little of it


@pytest.mark.parametrize(
    ("model", "X", "y", "message"),
    [
        (
            SequenceClassifier(),
            [[1, 2], []],
            [0, 1],
            "length 1 or more; got length 0 for sequence 1. Leave it",
        ),
        (SequenceClassifier(), ["ab", ""], [0, 1], "length 1 or more; got length 0 for sequence 1. Leave it"),
        (SequenceClassifier(), [], [], "at least one of the sequences; got an empty list"),
        (
            SequenceClassifier(),
            [[1, 2], [[1.0, 2.0]]],
            [0, 1],
            "all of integers or all of vectors.*Pass floats",
        ),
        (
            SequenceClassifier(),
            [[[1.0, 2.0]], [[1.0]]],
            [0, 1],
            "dimension 2; got 1 in sequence 1. Give every",
        ),
        (SequenceClassifier(), [[-1, 2], [1]], [0, 1], "codes from 0 .*minimum -1. Pass floats"),
        (SequenceClassifier(), [[1.0, np.nan], [1.0]], [0, 1], "sequence 0 must be finite; got NaN"),
        (SequenceClassifier(), [[1, 2]], [0, 1], r"one entry per sample \(1\); got 2. Drop"),
        (SequenceClassifier(), [[1], [2]], [0], r"one entry per sample \(2\); got 1. Leave out"),
        (SequenceClassifier(), [[1], [2]], None, "requires y"),
        (SequenceClassifier(), [[1], [2], [3]], ["a", None, "b"], "each of 3; got 1 missing, the first at 1"),
        (SequenceClassifier(), [[1], [2], [3]], [0, np.nan, 1], "y must be finite; got NaN"),
        (SequenceClassifier(), [[1], [2]], [1, 1], "at least two classes"),
        (SequenceClassifier("lru", truncation=3), [[1], [2]], [0, 1], "truncation needs a recurrent cell"),
        (SequenceClassifier(truncation=3, bidirectional=True), [[1], [2]], [0, 1], "bidirectional=True"),
        (
            SequenceTagger(),
            [[1, 2], [3]],
            [[0, 1]],
            r"one list of labels per sequence \(2\); got 1. Leave out",
        ),
        (
            SequenceTagger(),
            [[1, 2], [3]],
            [[0, 1], [0, 0]],
            r"sequence 1 has 1 steps.*shape \(2,\). Give the",
        ),
        (SequenceTagger(), [[1, 2], [3]], [["a", None], ["b"]], "each of 3; got 1 missing, the first at 1"),
        (SequenceTagger(), [[1, 2], [3]], [[1, 1], [1]], "at least two classes"),
        (
            SequenceTagger(),
            [[1, 2], [3]],
            None,
            r"one list of labels per sequence \(2\); got NoneType",
        ),
        (SequenceForecaster(), [[1, 2], [3]], None, "real numbers"),
        (SequenceForecaster(), [[1.0, 2.0], [3.0]], None, "2 steps or more"),
    ],
)
def test_bad_input_is_named(model, X, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y)


def test_bad_questions_are_named():
    model = SequenceClassifier(width=4, training=Training(1), random_state=0).fit([[0, 1], [2, 3]], [0, 1])
    with pytest.raises(
        ValueError, match="below the vocabulary size 4; got 9 in sequence 1. Fit on data with"
    ):
        model.predict([[1], [9]])
    with pytest.raises(ValueError, match="length 1 or more; got length 0 for sequence 1"):
        model.predict([[1], []])
    with pytest.raises(ValueError, match="of integers, as in fit; got strings"):
        model.predict(["ab"])
    series = SequenceForecaster(width=4, training=Training(1), random_state=0).fit([[0.0, 1.0, 2.0]])
    with pytest.raises(ValueError, match="score needs at least two"):
        series.score([[1.0]])
    with pytest.raises(ValueError, match="dimension 1; got 2 in sequence 0. Give every step the same"):
        series.predict([[[1.0, 2.0]]])


# --- gradients through time -------------------------------------------------------------------------------


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_the_measured_gradient_is_autograds_and_keeps_the_bound(nonlinearity):
    torch.manual_seed(0)
    cell = nn.RNN(2, 6, nonlinearity=nonlinearity).double()
    x = torch.randn(12, 2).double()
    flow = gradient_flow(cell, x)
    assert (flow.measured <= flow.bound * (1 + 1e-9)).all()

    start = cell(x[:4])[1].detach()
    jacobian = torch.autograd.functional.jacobian(lambda h: cell(x[4:], h)[1][0], start[0][None])[:, 0]
    assert flow.measured[7] == pytest.approx(float(torch.linalg.matrix_norm(jacobian, 2)), rel=1e-9)
    assert len(state_jacobians(cell, x)) == 12


def test_large_weights_need_not_explode():
    cell = nn.RNN(1, 2, bias=False, nonlinearity="relu").double()
    with torch.no_grad():
        cell.weight_hh_l0.copy_(torch.tensor([[0.0, 5.0], [0.0, 0.0]]))
    flow = gradient_flow(cell, torch.ones(5, 1))
    assert flow.spectral_norm == 5 and flow.spectral_radius == 0
    assert flow.bound[-1] > 100 and flow.measured[-1] == 0
    assert vanishing_bound(np.eye(2), 3, 0.25).tolist() == [0.25, 0.25**2, 0.25**3]
    assert gradient_flow(nn.RNN(1, 2), np.zeros((4, 1))).rate < 1.5


def test_what_gradient_flow_refuses():
    with pytest.raises(TypeError, match="one layer and one direction"):
        gradient_flow(nn.LSTM(2, 3), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="T of at least 2"):
        gradient_flow(nn.RNN(2, 3), torch.zeros(1, 2))


def test_temporal_convolutions_see_the_whole_series_by_default():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 60, 1)) * 0.1
    X[np.arange(90), 5 + y] += 4.0  # told by a mark near the beginning, 50 steps before the end
    model = SequenceClassifier("tcn", width=16, random_state=0).fit([*X], y)
    assert model.n_layers_ == 4 and model.module_.encoder.cell.receptive_field >= 60
    assert model.score([*X], y) > 0.95
    assert model.fine_tune([*X[:, :20]], y, training=Training(1)).n_layers_ == 4  # the weights decide
    blind = SequenceClassifier("tcn", width=16, n_layers=1, training=Training(2), random_state=0).fit([*X], y)
    assert blind.n_layers_ == 1 and SequenceForecaster(training=Training(1)).fit([*X]).n_layers_ == 2


def test_one_series_alone_is_a_list_of_one():
    pd = pytest.importorskip("pandas")
    wave = np.sin(np.arange(60.0))
    model = SequenceForecaster(width=4, horizon=2, training=Training(1), random_state=0).fit(pd.Series(wave))
    assert model.predict(wave).shape == (1, 2, 1)
    np.testing.assert_array_equal(model.predict(wave), model.predict([wave]))
    with pytest.raises(
        ValueError, match="a table of shape .*; got an array with dim 3, shape .*For images use"
    ):
        corollary.PCA(1).fit(np.zeros((5, 4, 4)))


def test_few_sequences_are_read_more_often():
    """600 updates or so, in batches that are small where there is little to learn from."""
    plans = {n: SequenceClassifier()._plan(n) for n in (50, 270, 3000)}
    assert [(plan.batch_size, plan.epochs) for plan in plans.values()] == [(8, 86), (16, 36), (32, 30)]
    assert SequenceClassifier(training=Training(epochs=3))._plan(50).epochs == 3


def test_the_mean_beside_the_last_state():
    for cell, pooling in (("gru", "last"), ("lru", "last"), ("tcn", "both")):
        assert SequenceClassifier(cell)._pooled() == pooling
    assert SequenceClassifier("tcn", pooling="max")._pooled() == "max"
    h, lengths = torch.randn(3, 5, 4), torch.tensor([5, 2, 1])
    wanted = torch.stack([torch.cat([x[n - 1], x[:n].mean(0)]) for x, n in zip(h, lengths)])
    torch.testing.assert_close(pool(h, lengths, "both"), wanted)
    torch.testing.assert_close(pool(h, None, "both")[0], wanted[0])
