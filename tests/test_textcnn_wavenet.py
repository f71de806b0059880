"""Convolutions over words and over waves."""

import numpy as np
import pytest
import torch

from corollary import TextCNN, Training, WaveNet
from corollary.sequences import words
from corollary.sequences.textcnn import TextCNNNetwork
from corollary.sequences.wavenet import WaveNetwork, draw, mu_decode, mu_encode

torch.set_num_threads(1)


# --- words ------------------------------------------------------------------------------------------------


def test_words_there_and_back():
    texts = ["The sea, the sun!", "a sun"]
    units = words.vocabulary(texts, "word")
    assert units[:2] == ["sun", "the"] and len(units) == 6
    (codes, *_) = words.encode(texts, units, "word")
    assert words.decode(codes, units, "word") == "the sea, the sun!"
    assert words.vocabulary(texts, "word", min_count=2) == ["sun", "the"]
    letters = words.vocabulary(["ab b"], "character")
    assert words.decode(words.encode(["b a"], letters, "character")[0], letters, "character") == "b a"
    assert words.decode([words.UNKNOWN], units, "word") == "\ufffd"
    assert words.join(["¿", "dónde", "(", "hoy", ")", "?"], "word") == "¿dónde (hoy)?"


# --- TextCNN ----------------------------------------------------------------------------------------------


def brute_force(net, tokens):
    """Equation 1 for one text without padding."""
    x = net.words(torch.tensor(tokens, dtype=torch.int64))
    found = []
    for width, layer in zip(net.kernel_sizes, net.filters):
        rows = torch.cat([x, x.new_zeros(max(0, width - len(x)), x.shape[1])])
        scores = [
            (layer.weight * rows[i : i + width].T).sum((1, 2)) + layer.bias
            for i in range(len(rows) - width + 1)
        ]
        found.append(torch.stack(scores).relu().amax(0))
    return net.head(torch.cat(found))


@pytest.mark.parametrize("tokens", [[4, 5, 6, 7, 8, 9], [4, 5, 6], [7], []])
def test_text_cnn_is_its_equation_in_any_company(tokens):
    torch.manual_seed(0)
    net = TextCNNNetwork(12, 3, embedding_dimension=5, n_filters=4).double().eval()
    others = [[4] * 9, [10, 11]]
    lengths = torch.tensor([len(tokens), 9, 2])
    batch = torch.zeros(3, 9, dtype=torch.int64)
    for i, row in enumerate([tokens, *others]):
        batch[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
    torch.testing.assert_close(net(batch, lengths)[0], brute_force(net, tokens))


def test_text_cnn_gradients_types_and_export(tmp_path):
    torch.manual_seed(0)
    net = TextCNNNetwork(12, 3, embedding_dimension=5, n_filters=4, dropout=0.0)
    tokens = torch.randint(4, 12, (6, 7))
    net(tokens).square().sum().backward()
    assert all((p.grad != 0).any() for p in net.parameters())
    assert net.to(torch.bfloat16)(tokens).dtype == torch.bfloat16


def test_text_cnn_learns_phrases_not_words():
    rng = np.random.default_rng(0)
    filler = ["x", "y", "z", "u", "v"]
    texts, labels = [], []
    for i in range(200):
        pair = ["good", "bad"] if i % 2 else ["bad", "good"]
        before, after = (list(rng.choice(filler, size=rng.integers(0, 5))) for _ in range(2))
        texts.append(" ".join(before + pair + after))
        labels.append(i % 2)
    model = TextCNN((2,), n_filters=8, training=Training(30, learning_rate=0.01), random_state=0)
    model.fit(texts[:150], labels[:150])
    assert model.score(texts[150:], labels[150:]) > 0.95
    alone = np.concatenate([model.predict_proba([text]) for text in texts[:5]])
    np.testing.assert_allclose(model.predict_proba(texts)[:5], alone, atol=1e-6)


def test_text_cnn_bad_input():
    with pytest.raises(ValueError, match="kernel_sizes must be positive"):
        TextCNN((0,)).fit(["a", "b"], [0, 1])
    with pytest.raises(TypeError, match="every document must be a string"):
        TextCNN().fit(["a", 3], [0, 1])


# --- WaveNet ----------------------------------------------------------------------------------------------


def test_mu_law_there_and_back():
    codes = np.arange(256)
    np.testing.assert_array_equal(mu_encode(mu_decode(codes)), codes)
    x = np.linspace(-1, 1, 2001)
    gap = np.abs(mu_decode(mu_encode(x)) - x)
    assert gap.max() < 0.025 and gap[np.abs(x) < 0.01].max() < 2e-4  # finer where it is quiet


def network(**options):
    torch.manual_seed(0)
    return WaveNetwork(8, 6, 7, n_layers=3, n_cycles=2, **options).double().eval()


def test_wavenet_never_looks_ahead_and_sees_its_field():
    net = network()
    embedded = net.codes(torch.randint(0, 8, (1, 40))).detach().requires_grad_()
    net.codes.forward = lambda codes: embedded
    (grad,) = torch.autograd.grad(net(torch.zeros(1, 40, dtype=torch.int64))[0, 30].sum(), embedded)
    seen = grad[0].abs().sum(1).nonzero()[:, 0]
    assert seen.max() == 30 and seen.min() == 30 - net.receptive_field + 1
    assert net.receptive_field == 15


def test_cached_steps_equal_the_full_forward():
    net = network()
    codes = torch.randint(0, 8, (3, 50))
    full, memory = net(codes), net.start(3)
    steps = torch.stack([net.advance(codes[:, t], memory, t) for t in range(50)], 1)
    torch.testing.assert_close(steps, full, rtol=1e-10, atol=1e-12)


def test_greedy_generation_equals_growing_forwards():
    net = network()
    given = torch.randint(0, 8, (2, 5))
    seen = torch.nn.functional.pad(given, (1, 0), value=8)
    for _ in range(20):
        seen = torch.cat([seen, net(seen)[:, -1:].argmax(-1)], 1)
    assert torch.equal(draw(net, given, 20, temperature=0), seen[:, 6:])


def test_generation_is_linear_in_time():
    net, calls = network(), []
    advance = net.advance
    net.advance = lambda *args: calls.append(1) or advance(*args)
    draw(net, torch.zeros(1, 0, dtype=torch.int64), 60)
    assert len(calls) == 60
    assert sum(kept.shape[0] for kept in net.start(1)) == net.receptive_field - 1  # all the memory there is


def test_wavenet_learns_a_rhythm_and_its_probabilities_sum_to_one():
    X = [np.tile([0, 1, 2, 3], 6)[i : i + 16] for i in range(4)] * 4
    model = WaveNet(3, width=12, training=Training(60, learning_rate=0.01), random_state=0).fit(X)
    assert model.history_[-1]["loss"] < 0.15  # only the phase is to be guessed: ln(4) / 16 = 0.087
    made = model.generate([X[0]], 8, temperature=0)
    np.testing.assert_array_equal(made, [[0, 1, 2, 3, 0, 1, 2, 3]])
    every = [np.array([a, b]) for a in range(4) for b in range(4)]
    assert np.exp(model.score_samples(every)).sum() == pytest.approx(1, abs=1e-5)
    alone = np.concatenate([model.score_samples([x]) for x in (X[0], X[1][:3])])
    np.testing.assert_allclose(model.score_samples([X[0], X[1][:3]]), alone, rtol=1e-5)


def test_long_waves_are_cut():
    wave = np.sin(np.arange(50) * 0.2)
    model = WaveNet(2, levels=8, window=20, training=Training(1), random_state=0).fit([wave, wave])
    assert model.length_ == 50 and model.sample(3).shape == (3, 50)
    assert np.abs(model.sample(3)).max() <= 1


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (["abc"], "waves or integers; got strings"),
        ([np.array([0.0, 2.0])], r"must lie in \[-1, 1\]; got amplitude 2"),
        ([np.zeros((3, 2))], "one channel"),
        ([[]], "length 0"),
    ],
)
def test_wavenet_bad_input(X, message):
    with pytest.raises(ValueError, match=message):
        WaveNet().fit(X)


def test_wavenet_bad_questions():
    model = WaveNet(2, width=4, training=Training(1), random_state=0).fit([[0, 1, 2]])
    with pytest.raises(ValueError, match="temperature must not be negative"):
        model.generate([[0]], 3, temperature=-1)
    with pytest.raises(ValueError, match="below the vocabulary size 3"):
        model.generate([[5]], 3)
    with pytest.raises(ValueError, match="n_steps must be an integer"):
        model.generate([[1]], 0)
