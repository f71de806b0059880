"""BERT's heads against transformers, on tiny tasks, on long texts and on bad input."""

import csv
import json
import sys

import numpy as np
import pytest
import torch

import corollary
from corollary import BERT, BERTAnswerer, BERTClassifier, BERTRegressor, BERTTagger, Training
from corollary.cli import main
from corollary.engine.batches import Batch
from corollary.engine.objective import Supervised
from corollary.language.bert_answerer import best_span, span_logits
from corollary.language.bert_tagger import windows
from corollary.language.checkpoints import bert_weights
from corollary.language.encoder import sentence_types
from corollary.losses import CrossEntropy, cross_entropy

torch.set_num_threads(1)
transformers = pytest.importorskip("transformers")

CONFIGS = [
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40, "hidden_act": "relu"},
    {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 96, "layer_norm_eps": 1e-6},
]  # fmt: skip
HEADS = {
    "classes": (BERTClassifier, "BertForSequenceClassification", {"num_labels": 3}),
    "number": (BERTRegressor, "BertForSequenceClassification", {"num_labels": 1}),
    "numbers": (
        BERTRegressor,
        "BertForSequenceClassification",
        {"num_labels": 2, "problem_type": "regression"},
    ),
    "words": (BERTTagger, "BertForTokenClassification", {"num_labels": 5}),
    "answers": (BERTAnswerer, "BertForQuestionAnswering", {}),
}
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "sun",
    "##ny",
    "sea",
    "is",
    "warm",
    "who",
    ".",
    "e",
]
PART = 3


def theirs(name, index=0, **more):
    torch.manual_seed(index)
    kind, options = HEADS[name][1:]
    config = transformers.BertConfig(
        vocab_size=120, max_position_embeddings=40, **CONFIGS[index], **options, **more
    )
    peer = getattr(transformers, kind)(config).eval()
    for p in peer.parameters():  # biases too
        torch.nn.init.normal_(p, std=0.1)
    return peer


def logits_of(out):
    return out.logits if hasattr(out, "logits") else torch.stack([out.start_logits, out.end_logits], -1)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("name", HEADS)
def test_outputs_and_gradients_are_theirs(name, index):
    peer = theirs(name, index)
    ours = HEADS[name][0].from_transformers(peer).module_
    ours.part = PART
    tokens = torch.randint(4, 120, (3, 11), generator=torch.Generator().manual_seed(index))
    tokens[:, 5] = PART
    lengths = torch.tensor([11, 8, 6])
    mask = torch.arange(11) < lengths[:, None]
    out = logits_of(
        peer(tokens, attention_mask=mask.long(), token_type_ids=sentence_types(tokens, PART).clamp_max(1))
    )
    found, wanted = ours(tokens, lengths), out
    if found.ndim == 3:
        found, wanted = found[mask], wanted[mask]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

    found.square().mean().backward()
    wanted.square().mean().backward()
    gradients = {n: p.grad for n, p in peer.named_parameters() if p.grad is not None}
    expected = bert_weights(gradients, len(ours.bert.blocks))
    head = "qa_outputs" if name == "answers" else "classifier"
    assert len(expected) > 10
    for part, gradient in expected.items():
        torch.testing.assert_close(ours.bert.get_parameter(part).grad, gradient, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.head.weight.grad, gradients[f"{head}.weight"], rtol=1e-4, atol=1e-5)
    trained = {n.removeprefix("bert.") for n, p in ours.named_parameters() if p.grad is not None}
    assert trained == {*expected, "head.weight", "head.bias"}  # nothing else moves


def test_losses_are_theirs():
    tokens, lengths = torch.randint(4, 120, (3, 9)), torch.full((3,), 9)
    peer = theirs("words")
    labels = torch.randint(0, 5, (3, 9))
    labels[:, ::2] = -100  # what transformers leaves out
    ours = BERTTagger.from_transformers(peer).module_
    batch = Batch((tokens, lengths), labels.clamp_min(0), (labels >= 0).float(), 3)
    found = Supervised(CrossEntropy(5, -1))(ours, batch)
    torch.testing.assert_close(found, peer(tokens, labels=labels).loss, rtol=1e-5, atol=1e-5)
    peer = theirs("answers")
    ours = BERTAnswerer.from_transformers(peer).module_
    spans = torch.tensor([[0, 0], [2, 5], [8, 8]])
    inputs = (tokens, lengths, torch.ones(3, 9, dtype=torch.bool), lengths)
    found = Supervised(cross_entropy, forward=span_logits)(ours, Batch(inputs, spans, None, 3))
    wanted = peer(tokens, start_positions=spans[:, 0], end_positions=spans[:, 1]).loss
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def directory(name, path, **more):
    peer = theirs(name, **more)
    peer.save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(WORDS))
    return peer


def test_texts_through_a_directory_give_what_they_give(tmp_path):
    peer = directory("classes", tmp_path, id2label={0: "x", 1: "z", 2: "y"})
    model = BERTClassifier.from_transformers(tmp_path)
    logits = peer(torch.tensor([[2, 6, 7, 8, 3]])).logits
    np.testing.assert_allclose(model.predict_proba(["Sunny sea"]), logits.softmax(1).detach(), atol=1e-5)
    assert model.predict(["Sunny sea"]) == ["xzy"[int(logits.argmax())]]

    peer = directory("numbers", tmp_path)
    model = BERTRegressor.from_transformers(tmp_path)
    np.testing.assert_allclose(
        model.predict(["Sunny sea"]), peer(torch.tensor([[2, 6, 7, 8, 3]])).logits.detach(), atol=1e-5
    )

    peer = directory("words", tmp_path)
    model = BERTTagger.from_transformers(tmp_path)
    p = peer(torch.tensor([[2, 5, 6, 7, 8, 12, 3]])).logits.softmax(-1)[0, [1, 2, 4]].detach()
    np.testing.assert_allclose(model.predict_proba([["the", "Sunny", "sea."]])[0], p, atol=1e-5)

    peer = directory("answers", tmp_path)
    model = BERTAnswerer.from_transformers(tmp_path)
    tokens, types = torch.tensor([[2, 11, 3, 5, 6, 7, 8, 3]]), torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    allowed = torch.tensor([[True, False, False, True, True, True, True, False]])
    begin, end = best_span(logits_of(peer(tokens, token_type_ids=types)), allowed)[0].tolist()
    starts, ends = {3: 0, 4: 4, 5: 7, 6: 10}, {3: 3, 4: 7, 5: 9, 6: 13}
    wanted = "the Sunny Sea"[starts[begin] : ends[end]] if begin else ""
    assert model.predict([("who", "the Sunny Sea")]) == [wanted]


def test_a_loaded_head_is_saved_and_trained_on(tmp_path):
    directory("classes", tmp_path)
    model = BERTClassifier.from_transformers(tmp_path)
    again = corollary.load(model.save(tmp_path / "ours.safetensors"))
    np.testing.assert_array_equal(again.predict_proba(["the sea"]), model.predict_proba(["the sea"]))
    before = model.module_.bert.tokens.weight.clone()
    model.set_params(training=Training(1, learning_rate=1e-6), random_state=0).fit(["sun", "sea"], ["a", "b"])
    assert model.classes_.tolist() == ["a", "b"]
    torch.testing.assert_close(model.module_.bert.tokens.weight, before, rtol=0, atol=1e-4)  # from there on
    again.set_params(training=Training(1, learning_rate=1e-6), random_state=0).fit(["sun", "sea"], ["a", "b"])
    assert torch.equal(again.module_.bert.tokens.weight, model.module_.bert.tokens.weight)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match="must be a BertForTokenClassification; got BertForSequ.* Use BERTClass"
    ):
        BERTTagger.from_transformers(theirs("classes"))
    with pytest.raises(
        ValueError, match="no 'qa_outputs'. .*fine_tune.X, y, task=\"answering\". trains a new"
    ):
        BERTAnswerer.from_transformers(theirs("classes").bert)
    with pytest.raises(ValueError, match="one class of several; got one for regression. Use BERTRegressor"):
        BERTClassifier.from_transformers(theirs("number"))
    with pytest.raises(ValueError, match="got one for multi_label_classification"):
        BERTClassifier.from_transformers(theirs("classes", problem_type="multi_label_classification"))
    with pytest.raises(
        ValueError, match="one for regression; got one for classification. Use BERTClassifier"
    ):
        BERTRegressor.from_transformers(theirs("classes"))
    with pytest.raises(ValueError, match="must have 2 outputs, begin and end; got 3"):
        BERTAnswerer.from_transformers(theirs("answers", num_labels=3))
    with pytest.raises(ValueError, match="texts need a tokenizer"):
        BERTAnswerer.from_transformers(theirs("answers")).predict([("a", "b")])


# --- learning ---------------------------------------------------------------------------------------------

SMALL = {"n_layers": 1, "width": 32, "n_heads": 2, "dropout": 0.0, "max_length": 16, "random_state": 0}
FAST = Training(40, learning_rate=5e-3, batch_size=8)
NOUNS = ["sun", "sea", "ice", "rose"]


@pytest.fixture(scope="module")
def bert():
    return BERT(**SMALL, training=Training(2)).fit([f"the {a} saw a {b}. who?" for a in NOUNS for b in NOUNS])


def test_numbers_of_texts(bert):
    X = [f"the {a} saw a {b}" for a in NOUNS for b in NOUNS] * 2
    y = [10.0 * NOUNS.index(x.split()[1]) + 5 for x in X]
    model = bert.fine_tune(X, y, task="regression", training=FAST)
    assert isinstance(model, BERTRegressor) and model.score(X, y) > 0.8
    assert model.predict(X[:1]).shape == (1,)
    both = bert.fine_tune(X, np.column_stack([y, np.ones(len(y))]), task="regression", training=Training(1))
    assert both.predict(X[:3]).shape == (3, 2) and np.isfinite(both.predict(X)).all()


def tagged():
    X = [["the", a, "saw", "a", b] for a in NOUNS for b in NOUNS]
    return X, [["article", "noun", "verb", "article", "noun"]] * len(X)


def test_labels_of_words(bert):
    X, y = tagged()
    model = bert.fine_tune(X, y, task="tagging", training=FAST)
    assert isinstance(model, BERTTagger) and model.score(X, y) == 1.0
    assert model.predict(["the ice"])[0].tolist() == ["article", "noun"]
    company = [X[0], ["sea"] * 40, ["the", "\N{SNOWMAN}", "\u200b"], X[3][:2]]  # long, unknown, nothing left
    together = model.predict_proba(company)
    assert [len(p) for p in together] == [5, 40, 3, 2]
    for text, p in zip(company, together):
        np.testing.assert_allclose(model.predict_proba([text])[0], p, atol=1e-5)
    np.testing.assert_allclose(together[1].sum(1), 1, atol=1e-5)


def test_only_the_first_piece_of_a_word_is_labelled(bert):
    X, y = tagged()
    model = BERTTagger(**SMALL, vocabulary_size=30, training=Training(1)).fit(
        X, y
    )  # words are several pieces
    rows, places, counts = model._windows(X)
    pieces = model.tokenizer_.encode_words(X[1])
    assert max(map(len, pieces)) > 1 and sum(map(len, pieces)) <= 14 and counts == [1] * len(X)
    assert rows[1][places[1]].tolist() == [part[0] for part in pieces]
    assert rows[1].tolist() == [2, *sum(pieces, []), 3]


def test_windows_hold_whole_words():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes, room = rng.integers(1, 6, size=rng.integers(1, 30)), int(rng.integers(5, 9))
        cuts = windows(sizes, room)
        assert [i for a, b in cuts for i in range(a, b)] == [*range(len(sizes))]
        for (a, b), (_, c) in zip(cuts, [*cuts[1:], (0, 0)]):
            assert sizes[a:b].sum() <= room and (not c or sizes[a : b + 1].sum() > room)


def asked():
    pairs = [(a, b) for a in NOUNS for b in NOUNS if a != b]
    X = [("who saw?", f"the {a} saw a {b}.") for a, b in pairs] + [
        ("whom?", f"the {a} saw a {b}.") for a, b in pairs
    ]
    return X, [f"the {a}" for a, _ in pairs] + [f"a {b}" for _, b in pairs]


def test_answers_from_passages(bert):
    X, y = asked()
    model = bert.fine_tune(X, y, task="answering", training=FAST)
    assert isinstance(model, BERTAnswerer) and model.score(X, y) > 0.9
    found = model.predict(X)
    assert all(answer in passage for (_, passage), answer in zip(X, found))
    assert model.predict([f"{q} [SEP]{p}" for q, p in X[::5]]) == found[::5]
    assert [model.predict([x])[0] for x in X[::5]] == found[::5]


def test_answers_keep_capitals_and_accents_and_may_be_none(bert):
    passage = "Thé SUN, saw a  Sea!"
    X = [("who saw?", passage), ("whom?", passage), ("ice rose ice?", passage)] * 4
    y = ["Thé SUN", (12, 19), ""] * 4  # a blank before it does not count
    model = bert.fine_tune(X, y, task="answering", training=FAST)
    assert model.predict(X[:3]) == ["Thé SUN", "a  Sea", ""]
    assert model.score(X, y) == 1.0


def test_the_best_span_is_the_best_of_all():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(30, 8, 2, generator=generator)
    allowed = torch.rand(30, 8, generator=generator) < 0.6
    allowed[:, 0] = True
    for row, may, (s, e) in zip(logits, allowed, best_span(logits, allowed).tolist()):
        pairs = [(i, j) for i in range(8) for j in range(i, 8) if may[i] and may[j] and (i or not j)]
        assert (s, e) == max(pairs, key=lambda p: float(row[p[0], 0] + row[p[1], 1]))


# --- bad input --------------------------------------------------------------------------------------------

PAIR = [("who", "the sun saw")]
BAD = [
    ("tag", ["x"], ValueError, "no task named 'tag'. Closest: 'tagging'"),
    ("regression", (["sun", "sea"], ["a", "b"]), ValueError, "y must hold numbers; got 'a'. Use a classifier"),
    ("regression", (["sun", "sea"], [1.0, np.nan]), ValueError, "y must be finite"),
    ("tagging", ("sun", [["a"]]), TypeError, "each a list of words or a string; got str. Wrap"),
    ("tagging", ([["sun", 3]], [["a", "b"]]), TypeError, "got list at 0"),
    ("tagging", (["sun", ""], [["a"], []]), ValueError, "must have words; got none in text 1"),
    ("tagging", ([], []), ValueError, "got an empty list"),
    ("tagging", (["the sun"], [["a"]]), ValueError, r"text 0 has 2 words .* got labels of shape \(1,\)"),
    ("tagging", (["the sun"], None), TypeError, r"one list of labels per text \(1\); got NoneType"),
    ("tagging", (["the sun"], [["a", None]]), ValueError, "got 1 missing, the first at 1"),
    ("tagging", (["the sun"], [["a", "a"]]), ValueError, "at least two classes; got only 'a'"),
    ("answering", ("who [SEP] sun", ["sun"]), TypeError, "pairs .question, passage.*; got str. Wrap"),
    ("answering", ([("a", "b", "c")], ["b"]), TypeError, "got tuple at 0"),
    ("answering", (["who the sun"], ["sun"]), ValueError, 'none in pair 0. Leave it out, or put "\\[SEP\\]"'),
    ("answering", ([], []), ValueError, "got an empty list"),
    ("answering", (PAIR, None), TypeError, r"one answer per pair \(1\); got NoneType"),
    ("answering", (PAIR, ["a", "b"]), ValueError, r"one answer per pair \(1\); got 2"),
    ("answering", (PAIR, ["moon"]), ValueError, "answer 0 must stand in its passage; got 'moon'"),
    ("answering", (PAIR, [3]), TypeError, "a string or a pair .begin, end.; got 3"),
    ("answering", (PAIR, [(4, 99)]), ValueError, "within the 11 characters of its passage; got 4 to 99"),
    ("answering", ([("who", "the sun " * 9 + "ice")], ["ice"]), ValueError, "max_length=16 tokens .* Raise max_length"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "data", "error", "words"), BAD)
def test_bad_input_is_named(bert, task, data, error, words):
    X, y = data if len(data) == 2 else (data, data)
    with pytest.raises(error, match=words):
        bert.fine_tune(X, y, task=task, training=Training(1))


# --- from the command line --------------------------------------------------------------------------------

TABLES = {
    "bert-regressor": ([("warm sun", 1.5), ("cold ice", -1.0)], "RMSE"),
    "bert-tagger": ([("the sun", "article noun"), ("a warm sea", "article adjective noun")], "accuracy"),
    "bert-answerer": (
        [("who? [SEP] the sun saw", "the sun"), ("what? [SEP] a sea", "sea")],
        "exact",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_texts_on_the_command_line(name, tmp_path, monkeypatch, capsys):
    rows, metric = TABLES[name]
    monkeypatch.chdir(tmp_path)
    with open("texts.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "y"), *rows * 8])
    sizes = "n_layers=1 width=16 n_heads=2 training.epochs=2".split()
    options = [word for size in sizes for word in ("--set", size)]
    options += ["--kind", "text", "--target", "y", "--run", "r", "--json"]

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["corollary", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        return capsys.readouterr().out

    told = call("fit", name, "--data", "texts.csv", *options)
    assert isinstance(json.loads(told)[f"held-out {metric}"], float)
    call("predict", "r", "--data", "texts.csv", "--out", "p.csv")
    with open("p.csv", newline="") as file:
        found = list(csv.DictReader(file))
    parts = [len(text.split()) for text, _ in rows] if name == "bert-tagger" else [1, 1]
    assert len(found) == 8 * sum(parts) and "prediction" in found[0]


def test_the_same_texts_give_the_same_pieces():
    from corollary.language.subwords import WordPieces

    texts = ["the quick brown fox jumps over the lazy dog", "packs my box with five dozen liquor jugs 😀😀"]
    first, *others = (WordPieces.train(texts, 80) for _ in range(4))
    assert all(other.inner.get_vocab() == first.inner.get_vocab() for other in others)
    assert {"##o", "t", "[MASK]"} <= set(first.inner.get_vocab())
    assert all(first.unknown not in first.encode(text) for text in texts)
