"""The encoder-decoder transformer against torch, BERT against transformers."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import corollary
from corollary import BERT, BERTClassifier, Training, Transformer
from corollary.language.bert_heads import HeadedNetwork
from corollary.language.encoder import SIZES, BertNetwork
from corollary.language.pretraining import mask_tokens, sentence_pairs
from corollary.language.subwords import WordPieces
from corollary.language.transformer import Said, TransformerNetwork, sinusoids
from corollary.sequences.search import beam_search

torch.set_num_threads(1)
transformers = pytest.importorskip("transformers")


# --- Transformer ------------------------------------------------------------------------------------------


def test_places_turn_with_a_shift():
    p = sinusoids(50, 8).numpy()
    shift = np.linalg.lstsq(p[:-7], p[7:], rcond=None)[0]
    np.testing.assert_allclose(p[:-7] @ shift, p[7:], atol=1e-10)
    np.testing.assert_allclose(shift @ shift.T, np.eye(8), atol=1e-8)  # a rotation
    assert sinusoids(3, 5).shape == (3, 5)


SHAPES = [(16, 2, 1, 32), (24, 4, 2, 48), (32, 8, 3, 20)]


def network(**sizes):
    torch.manual_seed(0)
    net = TransformerNetwork(11, 9, **sizes, dropout=0.0)
    for p in net.parameters():  # large enough weights that mistakes show
        nn.init.normal_(p, std=0.3)
    return net


@pytest.mark.parametrize("sizes", SHAPES)
def test_the_core_is_torchs_transformer(sizes):
    d, heads, layers, inner = sizes
    net = network(width=d, n_heads=heads, n_layers=layers, inner_width=inner)
    twin = nn.Transformer(d, heads, layers, layers, inner, 0.0, batch_first=True)
    twin.load_state_dict(net.core.state_dict())
    x, y = torch.randint(4, 11, (3, 7)), torch.randint(4, 9, (3, 5))
    lengths = torch.tensor([7, 3, 5])
    hidden = torch.arange(7) >= lengths[:, None]
    out = net(x, lengths, y)
    embedded = net._embed(net.source, x), net._embed(net.target, y)
    masks = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    later = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.bool)
    wanted = net.head(twin(*embedded, tgt_mask=later, **masks))
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)

    out.square().mean().backward()
    found = {name: p.grad.clone() for name, p in net.core.named_parameters()}
    wanted.square().mean().backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-5)


def uncached(net, x, lengths, **how):
    """Beam search that reads everything said anew at every step."""

    def advance(symbols, kept):
        said = torch.cat([kept[0], symbols[:, None]], 1)
        return net.decode(said, *kept[1:])[:, -1].log_softmax(-1), (said, *kept[1:])

    def select(kept, rows):
        return tuple(part if part is None else part[rows] for part in kept)

    start = (x.new_empty(len(x), 0), *net.encode(x, lengths))
    return beam_search(advance, select, start, len(x), **how)


@pytest.mark.parametrize("lengths", [None, torch.tensor([7, 3, 5])], ids=["full", "ragged"])
@pytest.mark.parametrize("sizes", SHAPES)
def test_cached_decoding_gives_the_logits_and_the_symbols_of_the_whole(sizes, lengths):
    d, heads, layers, inner = sizes
    net = network(width=d, n_heads=heads, n_layers=layers, inner_width=inner).double().eval()
    x, y = torch.randint(4, 11, (3, 7)), torch.randint(4, 9, (3, 12))
    with torch.no_grad():
        memory = net.encode(x, lengths)
        whole, said = net.decode(y, *memory), net.begin(*memory)
        for t in range(12):
            logits, said = net.advance(y[:, t], said)
            torch.testing.assert_close(logits, whole[:, t])
        assert said.length == 12

        def advance(symbols, said):
            logits, said = net.advance(symbols, said)
            return logits.log_softmax(-1), said

        for k in (1, 3):
            how = {"beam_size": k, "max_length": 20}
            found = beam_search(advance, Said.take, net.begin(*memory), 3, **how)
            wanted = uncached(net, x, lengths, **how)
            assert found[0] == wanted[0] and found[1] == pytest.approx(wanted[1])


def test_no_padding_leaks_no_future_leaks_every_gradient():
    torch.manual_seed(0)
    net = TransformerNetwork(11, 9, width=16, n_heads=2, n_layers=2, inner_width=32, dropout=0.0).double()
    x, y = torch.randint(4, 11, (2, 6)), torch.randint(4, 9, (2, 5))
    x[1, 3:] = 0
    out = net(x, torch.tensor([6, 3]), y)
    torch.testing.assert_close(out[1:], net(x[1:, :3], None, y[1:]))
    other = y.clone()
    other[:, 3:] = 4
    torch.testing.assert_close(net(x, torch.tensor([6, 3]), other)[:, :3], out[:, :3])
    out.square().sum().backward()
    assert all((p.grad != 0).any() for p in net.parameters())


def reversal(seed=0):
    rng = np.random.default_rng(0)
    X = ["".join(rng.choice(list("abcd"), size=rng.integers(2, 5))) for _ in range(300)]
    y = [x[::-1] for x in X]
    plan = Training(40, learning_rate=3e-3, batch_size=50, schedule="cosine")
    sizes = {"width": 48, "n_heads": 4, "inner_width": 96, "dropout": 0.0}
    return X, y, Transformer(1, **sizes, training=plan, random_state=seed).fit(X, y)


def test_transformer_learns_reversal():
    X, y, model = reversal()
    assert model.history_[-1]["loss"] < 0.5 * model.history_[0]["loss"]
    assert model.predict(X[:3]) == [model.predict([x])[0] for x in X[:3]]
    assert model.score_pairs(X, y).mean() > model.score_pairs(X, y[1:] + y[:1]).mean() + 1
    greedy = model.score_pairs(X[:20], model.predict(X[:20])).mean()
    beam = model.set_params(beam_size=3).predict(X[:20])
    assert model.score_pairs(X[:20], beam).mean() > greedy - 1


def test_transformer_bad_input():
    X, y = ["ab", "ba"], ["ba", "ab"]
    with pytest.raises(ValueError, match="multiple of n_heads=3; got 16"):
        Transformer(width=16, n_heads=3).fit(X, y)
    with pytest.raises(ValueError, match="one text for each of X \\(2\\); got 1"):
        Transformer().fit(X, y[:1])
    with pytest.raises(ValueError, match="the texts that X is to become; got None"):
        Transformer().fit(X, None)
    with pytest.raises(TypeError, match="every document must be a string; got NoneType at 1"):
        Transformer().fit(X, ["ba", None])
    model = Transformer(**Transformer._test_params(), random_state=0).fit(X, y)
    assert len(model.predict(["", "a\N{SNOWMAN}b", "a" * 300])) == 3  # empty, unknown, longer than max_length


# --- BERT against transformers ----------------------------------------------------------------------------

CONFIGS = [
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    {
        "hidden_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 40,
        "hidden_act": "relu",
    },
    {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 96,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-6,
        "type_vocab_size": 3,
    },
]


def theirs(index, kind="BertForPreTraining"):
    torch.manual_seed(index)
    config = transformers.BertConfig(vocab_size=120, max_position_embeddings=40, **CONFIGS[index])
    return getattr(transformers, kind)(config).eval()


@pytest.mark.parametrize("index", range(3))
def test_outputs_and_gradients_are_theirs(index):
    peer = theirs(index)
    ours = BERT.from_transformers(peer).module_
    tokens, types = torch.randint(0, 120, (3, 11)), torch.randint(0, 2, (3, 11))
    lengths = torch.tensor([11, 8, 4])
    mask = (torch.arange(11) < lengths[:, None]).long()
    out = peer(tokens, attention_mask=mask, token_type_ids=types, output_hidden_states=True)
    inside = mask.bool()
    h = ours(tokens, lengths, types)
    torch.testing.assert_close(h[inside], out.hidden_states[-1][inside], rtol=1e-5, atol=1e-5)
    guesses, follows = ours(tokens, lengths, types, inside)
    torch.testing.assert_close(guesses, out.prediction_logits[inside], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(follows, out.seq_relationship_logits, rtol=1e-5, atol=1e-5)

    (guesses.square().mean() + follows.square().sum()).backward()
    (out.prediction_logits[inside].square().mean() + out.seq_relationship_logits.square().sum()).backward()
    pairs = [
        (ours.tokens.weight, peer.bert.embeddings.word_embeddings.weight),
        (ours.pooler.weight, peer.bert.pooler.dense.weight),
        (ours.blocks[0].expand.weight, peer.bert.encoder.layer[0].intermediate.dense.weight),
        (ours.guess.weight, peer.cls.predictions.transform.dense.weight),
    ]
    for a, b in pairs:
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    attention = peer.bert.encoder.layer[0].attention.self
    joined = torch.cat([attention.query.weight.grad, attention.key.weight.grad, attention.value.weight.grad])
    torch.testing.assert_close(ours.blocks[0].qkv.weight.grad, joined, rtol=1e-4, atol=1e-5)


def test_the_head_for_pairs_is_theirs():
    peer = theirs(0, "BertForSequenceClassification")
    net = HeadedNetwork(BERT.from_transformers(peer).module_, 2, 0.1, part=3).eval()
    net.head.load_state_dict(peer.classifier.state_dict())
    tokens = torch.tensor([[2, 50, 51, 3, 60, 61, 62, 3], [2, 70, 71, 72, 3, 0, 0, 0]])
    types = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0] * 8])
    lengths, mask = torch.tensor([8, 5]), torch.arange(8) < torch.tensor([[8], [5]])
    wanted = peer(tokens, attention_mask=mask.long(), token_type_ids=types).logits
    torch.testing.assert_close(net(tokens, lengths), wanted, rtol=1e-5, atol=1e-5)


def test_a_directory_loads_and_a_model_without_heads_too(tmp_path):
    peer = theirs(0, "BertModel")
    peer.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sun", "##ny", "sea"])
    )
    model = BERT.from_transformers(str(tmp_path))
    tokens = torch.randint(0, 120, (2, 6))
    torch.testing.assert_close(model.module_(tokens), peer(tokens).last_hidden_state, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        model.module_.pooled(model.module_(tokens)), peer(tokens).pooler_output, rtol=1e-5, atol=1e-5
    )
    assert model.tokenizer_.encode("Sunny sea") == [5, 6, 7]
    framed = peer(torch.tensor([[2, 5, 6, 7, 3]])).last_hidden_state.mean(1).detach()
    np.testing.assert_allclose(model.transform(["sunny sea"]), framed, atol=1e-5)


def test_what_from_transformers_refuses(tmp_path):
    with pytest.raises(TypeError, match="a transformers model or a directory"):
        BERT.from_transformers(3)
    with pytest.raises(ValueError, match="must hold config.json and model.safetensors"):
        BERT.from_transformers(tmp_path)
    gpt = transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=10))
    with pytest.raises(ValueError, match="of type 'bert'; got 'gpt2'"):
        BERT.from_transformers(gpt)
    with pytest.raises(ValueError, match="texts need a tokenizer"):
        BERT.from_transformers(theirs(0)).transform(["a"])
    with pytest.raises(ValueError, match="must hold tokenizer.json or vocab.txt"):
        WordPieces.read(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nsun")
    with pytest.raises(ValueError, match=r"one without \[MASK\]"):
        WordPieces.read(tmp_path)


@pytest.mark.parametrize(("size", "count"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_counts(size, count):
    with torch.device("meta"):
        net = BertNetwork(**SIZES[size])
        peer = transformers.BertModel(
            transformers.BertConfig(
                hidden_size=SIZES[size]["width"],
                num_hidden_layers=SIZES[size]["n_layers"],
                num_attention_heads=SIZES[size]["n_heads"],
                intermediate_size=SIZES[size]["inner_width"],
            )
        )
    heads = sum(p.numel() for name, p in net.named_parameters() if name.startswith(("guess", "follows")))
    assert sum(p.numel() for p in net.parameters()) - heads == count
    assert sum(p.numel() for p in peer.parameters()) == count


# --- its own training -------------------------------------------------------------------------------------


def test_masking_is_80_10_10():
    torch.manual_seed(0)
    tokens = torch.randint(5, 1000, (400, 100))
    special = torch.zeros_like(tokens, dtype=torch.bool)
    special[:, 0] = True
    hidden, chosen = mask_tokens(tokens, special, 4, 1000)
    n = int(chosen.sum())
    assert not chosen[:, 0].any()
    assert n / (400 * 99) == pytest.approx(0.15, abs=3 * np.sqrt(0.15 * 0.85 / 39600))
    shares = [(hidden == 4)[chosen].float().mean(), (hidden == tokens)[chosen].float().mean()]
    for share, wanted in zip(shares, (0.8, 0.1)):
        assert float(share) == pytest.approx(wanted, abs=4 * np.sqrt(wanted * (1 - wanted) / n))
    assert torch.equal(hidden[~chosen], tokens[~chosen])


def test_something_is_always_chosen_but_never_the_special():
    torch.manual_seed(0)
    special = torch.tensor([[True, False, True], [True, True, True]])
    for _ in range(20):
        _, chosen = mask_tokens(torch.tensor([[1, 7, 2], [1, 2, 0]]), special, 4, 10, share=1e-6)
        assert chosen.tolist() == [[False, True, False], [False, False, False]]


def test_sentence_pairs_are_framed_and_half_follow():
    tokenizer = WordPieces.train(["a b c d e f g h"], 30)
    documents = [[[10 * d + s] * 4 for s in range(6)] for d in range(1, 60)]
    rows, types, follows = sentence_pairs(documents, tokenizer, 16, np.random.default_rng(0))
    assert 0.4 < follows.mean() < 0.6
    for row, kind, true in zip(rows, types, follows):
        assert len(row) == len(kind) <= 16
        a, b = row[kind == 0], row[kind == 1]
        assert a[0] == tokenizer.open and a[-1] == b[-1] == tokenizer.part
        assert (b[0] == a[1] + 1) if true else (b[0] // 10 != a[1] // 10)  # the next, or another document's


WORDS = ["sun", "sea", "ice", "rose"]
PAIRS = [f"{w} {w} {w} {w}. [SEP] {w} {w} {w} {w}." for w in WORDS]


def pretrained(seed=0):
    texts = [pair.replace(" [SEP]", "") for pair in PAIRS] * 10
    plan = Training(50, learning_rate=5e-3, batch_size=10)
    return BERT(1, width=32, n_heads=2, dropout=0.0, training=plan, random_state=seed).fit(texts)


@pytest.fixture(scope="module")
def bert():
    return pretrained()


def test_bert_learns_what_fits(bert):
    first, last = bert.history_[0], bert.history_[-1]
    assert last["guessing"] < 0.5 * first["guessing"] and np.isfinite(last["following"])
    gaps = [pair.replace(word, "[MASK]", 1) for pair, word in zip(PAIRS, WORDS)]
    assert np.mean([a == b for a, b in zip(bert.fill(gaps), PAIRS)]) > 0.7  # by chance one in four
    gaps = ["The Sun\tis  big, [MASK]", "sun [MASK] [MASK]"]
    together = bert.fill(gaps)
    assert together[0].startswith("The Sun\tis  big, ") and "[MASK]" not in together[1]  # else as it was
    assert together == [bert.fill([gap])[0] for gap in gaps]


def fine_tuned(bert, seed=0):
    plan = Training(30, learning_rate=3e-3, batch_size=8)
    return bert.fine_tune(WORDS * 6, ["a", "b"] * 12, training=plan, random_state=seed)


def test_bert_fine_tunes(bert, tmp_path):
    tuned = fine_tuned(bert)
    assert isinstance(tuned, BERTClassifier)
    assert tuned.score(WORDS, ["a", "b"] * 2) == 1.0
    frozen = [p for p in tuned.module_.parameters() if not p.requires_grad]
    assert len(frozen) == 7  # the heads of pre-training
    again = corollary.load(tuned.save(tmp_path / "tuned.safetensors"))
    np.testing.assert_array_equal(again.predict_proba(WORDS), tuned.predict_proba(WORDS))
    copied = clone(tuned)
    with pytest.raises(NotFittedError):
        copied.predict(WORDS)
    copied.fit(WORDS * 6, ["a", "b"] * 12)
    np.testing.assert_array_equal(copied.predict_proba(WORDS), tuned.predict_proba(WORDS))


def test_bert_bad_input(bert):
    assert bert.tokenizer_.encode("\N{SNOWMAN} sun")[0] == bert.tokenizer_.unknown
    assert np.isfinite(bert.transform(["\N{SNOWMAN}", "", "sun " * 500])).all()  # unknown, empty, cut
    with pytest.raises(ValueError, match="fit into max_length=128 tokens.*; got 501 in text 1. Cut it"):
        bert.fill(["sun", "sun " * 500 + "[MASK]"])
    with pytest.raises(ValueError, match="a label for each of 2; got 1 missing, the first at 1"):
        bert.fine_tune(["sun", "sea"], ["a", None])
    with pytest.raises(ValueError, match="requires y"):
        BERTClassifier().fit(["sun", "sea"], None)
    with pytest.raises(ValueError, match=r"one entry per sample \(2\); got 1"):
        BERTClassifier().fit(["sun", "sea"], ["a"])
    with pytest.raises(ValueError, match="some document must have words; got 2 empty ones"):
        bert.transform(["", " "])


def test_bert_company_types_and_gradients():
    torch.manual_seed(0)
    net = BertNetwork(50, 12, width=8, n_heads=2, n_layers=2, inner_width=16, dropout=0.0).double()
    tokens = torch.randint(0, 50, (2, 9))
    chosen = torch.zeros(2, 9, dtype=torch.bool)
    chosen[:, 2] = True
    guesses, follows = net(tokens, torch.tensor([9, 5]), torch.zeros_like(tokens), chosen)
    alone, _ = net(tokens[1:, :5], None, None, chosen[1:, :5])
    torch.testing.assert_close(guesses[1:], alone)
    (guesses.square().sum() + follows.square().sum()).backward()
    assert all((p.grad != 0).any() for p in net.parameters())
    assert net.bfloat16()(tokens).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="multiple of n_heads=3"):
        BertNetwork(50, width=8, n_heads=3)
    with pytest.raises(ValueError, match="no activation named .sign."):
        BertNetwork(50, width=8, n_heads=2, activation="sign")
