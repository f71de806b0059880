"""GPT against transformers' GPT-2, and what generation and perplexity must satisfy."""

from __future__ import annotations

import copy
import json
import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone

import corollary
from corollary import GPT, Run, Training, data
from corollary.data.texts import one_text
from corollary.errors import CorollaryWarning
from corollary.language import decoder
from corollary.language.decoder import SIZES, Cache, Decoder, filtered, generate
from corollary.language.gpt import WindowBatches
from corollary.language.tokens import BytePairTokenizer, CharacterTokenizer, restore

torch.set_num_threads(1)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.generation import logits_process as warpers

V = 61
PLAIN = {"vocab_size": V, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
         "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
CONFIGS = [
    PLAIN,
    {**PLAIN, "n_inner": 48, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    {
        **PLAIN,
        "tie_word_embeddings": False,
        "scale_attn_by_inverse_layer_idx": True,
        "activation_function": "relu",
    },
    {
        **PLAIN,
        "n_embd": 36,
        "n_layer": 3,
        "n_head": 3,
        "scale_attn_weights": False,
        "activation_function": "silu",
    },
]


def theirs(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(**config)).eval()
        for p in model.parameters():  # large enough weights that mistakes show
            torch.nn.init.normal_(p, std=0.3 if p.ndim > 1 else 0.1)
    return model


def tokens(b=3, t=20, seed=0):
    return torch.randint(0, V, (b, t), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("config", CONFIGS, ids=["plain", "inner", "untied", "unscaled"])
def test_logits_and_gradients_equal_those_of_transformers(config):
    peer = theirs(config)
    ours = GPT.from_transformers(peer).module_
    # The same float32 sums in another order.
    torch.testing.assert_close(ours(tokens()), peer(tokens()).logits, atol=1e-5, rtol=1e-5)
    F.cross_entropy(ours(tokens())[:, :-1].flatten(0, 1), tokens()[:, 1:].flatten()).backward()
    peer(tokens(), labels=tokens()).loss.backward()
    pairs = [
        (ours.tokens.weight, peer.transformer.wte.weight),
        (ours.places.weight, peer.transformer.wpe.weight),
    ]
    for a, b in zip(ours.blocks, peer.transformer.h):
        pairs += [(a.norm1.weight, b.ln_1.weight), (a.qkv.bias, b.attn.c_attn.bias)]
        for mine, other in ((a.qkv, b.attn.c_attn), (a.mix, b.attn.c_proj), (a.expand, b.mlp.c_fc)):
            torch.testing.assert_close(mine.weight.grad, other.weight.grad.T, atol=1e-5, rtol=1e-4)
    for mine, other in pairs:
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("how", [
    {"temperature": 0}, {}, {"temperature": 0.7, "top_k": 9}, {"temperature": 1.3, "top_p": 0.8},
    {"top_k": 20, "top_p": 0.6},
], ids=str)  # fmt: skip
def test_cached_generation_gives_the_tokens_of_transformers(how, compiled, monkeypatch):
    monkeypatch.setattr(decoder, "COMPILED_WIDTH", 512 if compiled else 0)
    peer = theirs(PLAIN)
    module = GPT.from_transformers(peer).module_
    prompt = tokens(1, 7)
    options = {"do_sample": how.get("temperature") != 0, "top_k": 0, **how}
    if not options["do_sample"]:
        options = {"do_sample": False}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = peer.generate(
            prompt,
            max_new_tokens=50,
            pad_token_id=0,
            eos_token_id=None,
            attention_mask=torch.ones_like(prompt),
            **options,
        )
    got = generate(module, prompt.tolist(), 50, generator=torch.Generator().manual_seed(5), **how)
    assert got[0] == expected[0, 7:].tolist()


@pytest.mark.parametrize(
    "how", [(0.5, None, None), (1.0, 5, None), (1.0, None, 0.7), (2.0, 12, 0.4), (1.0, 500, 1.0)]
)
def test_what_may_be_drawn_is_what_transformers_allows(how):
    logits = torch.randn(20, V, generator=torch.Generator().manual_seed(0)) * 3
    expected, (temperature, top_k, top_p) = logits, how
    if temperature != 1:
        expected = warpers.TemperatureLogitsWarper(temperature)(None, expected)
    if top_k:
        expected = warpers.TopKLogitsWarper(top_k)(None, expected)
    if top_p and top_p < 1:
        expected = warpers.TopPLogitsWarper(top_p)(None, expected)
    torch.testing.assert_close(filtered(logits, *how).softmax(-1), expected.softmax(-1))


@pytest.mark.parametrize("compiled", [True, False])
def test_prompts_of_different_lengths_do_not_disturb_each_other(compiled, monkeypatch):
    monkeypatch.setattr(decoder, "COMPILED_WIDTH", 512 if compiled else 0)
    module = GPT.from_transformers(theirs(PLAIN)).module_
    prompts = [tokens(1, n, seed=n)[0].tolist() for n in (3, 17, 1, 9)]
    for n in (30, 150):  # within the context of 64, and far beyond it
        together = generate(module, prompts, n, temperature=0)
        assert together == [generate(module, [prompt], n, temperature=0)[0] for prompt in prompts]


def test_a_full_row_forgets_its_older_half():
    module = GPT.from_transformers(theirs(PLAIN)).module_
    (made,) = generate(module, tokens(1, 60).tolist(), 40, temperature=0)
    seen, wanted = tokens(1, 60)[0].tolist(), []
    for _ in range(40):
        wanted.append(int(module(torch.tensor([seen]))[0, -1].argmax()))
        seen = [*(seen if len(seen) < 64 else seen[-31:]), wanted[-1]]
    assert made == wanted


def test_the_cache_gives_the_logits_of_the_whole():
    module = GPT.from_transformers(theirs(PLAIN)).module_
    x = tokens(2, 12)
    cache = Cache(module, 2, 12)
    with torch.no_grad():
        torch.testing.assert_close(
            module.prefill(x[:, :5], torch.tensor([5, 5]), cache), module(x)[:, 4], atol=1e-5, rtol=1e-5
        )
        for t in range(5, 12):
            logits = module.advance(x[:, t], torch.tensor([t, t]), cache)
            torch.testing.assert_close(logits, module(x)[:, t], atol=1e-5, rtol=1e-5)


def test_a_token_sees_only_those_before_it():
    module = GPT.from_transformers(theirs(PLAIN)).module_
    x, y = tokens(1, 12), tokens(1, 12)
    y[:, 8:] = (y[:, 8:] + 1) % V
    assert torch.equal(module(x)[:, :8], module(y)[:, :8])
    assert not torch.allclose(module(x)[:, 8], module(y)[:, 8])


@pytest.mark.parametrize("size, count", [
    ("124M", 124_439_808), ("355M", 354_823_168), ("774M", 774_030_080), ("1558M", 1_557_611_200),
])  # fmt: skip
def test_published_sizes_have_the_published_counts(size, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in Decoder(**SIZES[size]).parameters()) == count


def test_a_directory_on_disk_is_read(tmp_path):
    peer = theirs(CONFIGS[2])
    peer.save_pretrained(tmp_path)
    model = GPT.from_transformers(tmp_path)
    torch.testing.assert_close(model.module_(tokens()), peer(tokens()).logits, atol=1e-5, rtol=1e-5)
    assert model.tokenizer_ is None
    with pytest.raises(ValueError, match="texts need a tokenizer; got a model without one"):
        model.generate("a")
    with pytest.raises(ValueError, match="texts need a tokenizer; got a model without one"):
        model.perplexity(["a"])
    model.ends_ = []  # else it may end at once: the checkpoint's end token is one of its few
    assert len(model.generate([[1, 2]], max_new_tokens=5)[0]) == 7
    BytePairTokenizer.train(["a b a b"], 257).inner.save(str(tmp_path / "tokenizer.json"))
    small = theirs({**PLAIN, "vocab_size": 257})
    small.save_pretrained(tmp_path)
    model = GPT.from_transformers(tmp_path)
    assert model.generate("a b", max_new_tokens=3).startswith("a b")
    again = corollary.load(model.save(tmp_path / "ours.safetensors"))
    assert again.generate("a b", temperature=0) == model.generate("a b", temperature=0)


def test_what_is_no_gpt2_is_refused(tmp_path):
    with pytest.raises(TypeError, match="source must be a transformers model or a directory; got int"):
        GPT.from_transformers(3)
    with pytest.raises(ValueError, match="must hold config.json and .*; got no such directory"):
        GPT.from_transformers(tmp_path / "none")
    theirs(PLAIN).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, words in (
        ({"model_type": "bert"}, "of type 'gpt2'; got 'bert'"),
        ({"activation_function": "prelu"}, "no activation named .prelu."),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=words):
            GPT.from_transformers(tmp_path)


# --- fitting ---------------------------------------------------------------------------------------------

TEXTS = ["the cat sat on the mat. " * 8, "a dog ran in the fog. " * 8, "x"]
SMALL = {"n_layers": 1, "n_heads": 2, "width": 32, "max_length": 24, "random_state": 0}


def small(epochs=40, **params):
    return GPT(**{**SMALL, **params}, training=Training(epochs=epochs, batch_size=4, learning_rate=5e-3))


@pytest.fixture(scope="module")
def fitted():
    return small(80).fit(TEXTS)


def test_it_learns_its_texts(fitted):
    assert fitted.perplexity(TEXTS) < 2.5
    assert fitted.generate("the cat s", max_new_tokens=10, temperature=0) == "the cat sat on the "
    assert fitted.history_[-1]["loss"] < 0.3 * fitted.history_[0]["loss"]


def test_perplexity_is_the_strided_definition(fitted):
    text = TEXTS[0]
    x = torch.tensor([0, *fitted.tokenizer_.encode(text), 0])
    for stride in (1, 5, 12, 24):
        logs, done = [], 0
        for end in [*range(24, len(x) - 1, stride), len(x) - 1]:
            begin = max(0, end - 24)
            logits = fitted.module_(x[None, begin:end]).double().log_softmax(-1)[0]
            at = logits.gather(1, x[begin + 1 : end + 1, None])[:, 0]
            logs += at[len(at) - (end - done) :].tolist()
            done = end
        assert len(logs) == len(text) + 1
        assert fitted.perplexity([text], stride=stride) == pytest.approx(math.exp(-np.mean(logs)), rel=1e-5)


def test_perplexity_counts_tokens_not_texts(fitted):
    log_prob = fitted.score_samples(TEXTS).sum()
    n = sum(map(len, TEXTS)) + len(TEXTS)
    assert fitted.perplexity(TEXTS) == pytest.approx(math.exp(-log_prob / n))
    assert fitted.score(TEXTS) == pytest.approx(log_prob / 3)


def test_the_probabilities_of_all_short_texts_sum_to_less_than_one(fitted):
    letters = [chr(c) for c in fitted.tokenizer_.codes]
    total = np.exp(fitted.score_samples(letters)).sum()
    pairs = np.exp(fitted.score_samples([a + b for a in letters for b in letters])).sum()
    assert 0 < total + pairs < 1


def test_texts_longer_than_the_context_are_continued(fitted):
    out = fitted.generate(["the cat", "a"], max_new_tokens=100)
    assert all(isinstance(text, str) for text in out) and out[0].startswith("the cat")
    module = Decoder(11, 8, 16, 2, 2).eval()
    assert [len(row) for row in generate(module, [[1, 2, 3], [4]], 40)] == [40, 40]


def test_sampling_is_repeatable_and_leaves_the_global_state_alone(fitted):
    before = torch.get_rng_state()
    assert fitted.generate("a", max_new_tokens=20) == fitted.generate("a", max_new_tokens=20)
    assert fitted.sample(3) == fitted.sample(3) and len(set(fitted.sample(3))) > 1
    assert torch.equal(before, torch.get_rng_state())


def test_saved_and_loaded_it_is_the_same(fitted, tmp_path):
    again = corollary.load(fitted.save(tmp_path / "gpt.safetensors"))
    assert np.array_equal(again.score_samples(TEXTS), fitted.score_samples(TEXTS))
    assert again.generate("a dog", temperature=0) == fitted.generate("a dog", temperature=0)


def test_a_resumed_fit_equals_an_uninterrupted_one(tmp_path):
    whole = small(6, dropout=0.1).fit(TEXTS)
    with Run(tmp_path, progress=False):
        small(2, dropout=0.1).fit(TEXTS)
    with Run(tmp_path, resume=True, progress=False):
        rest = small(6, dropout=0.1).fit(TEXTS)
    assert np.array_equal(rest.score_samples(TEXTS), whole.score_samples(TEXTS))


def test_byte_pairs_encode_what_they_have_never_seen(tmp_path):
    model = small(3, tokenizer="bytepair", vocabulary_size=280, dropout=0.1).fit(TEXTS)
    assert np.isfinite(model.perplexity(["Ünseen → 文字"]))
    again = corollary.load(model.save(tmp_path / "gpt.safetensors"))
    assert again.perplexity(["mat"]) == model.perplexity(["mat"])
    model.tokenizer_.inner.save(str(tmp_path / "tokenizer.json"))
    third = small(3, tokenizer=str(tmp_path), dropout=0.1).fit(TEXTS)
    assert third.perplexity(["mat"]) == model.perplexity(["mat"])


def test_early_stopping_holds_windows_out():
    training = Training(epochs=5, batch_size=4, early_stopping=True, validation_fraction=0.2)
    assert "validation_loss" in GPT(**SMALL, training=training).fit(TEXTS).history_[0]


def test_one_short_text_is_enough():
    assert small(2).fit(["hi"]).perplexity(["hi"]) > 1


def test_windows_cover_every_token_and_move_between_epochs():
    batches = WindowBatches(torch.arange(100), 11)
    seen = torch.cat([batch.inputs[0] for batch in batches.epoch(None, 3)])
    assert set(seen.flatten().tolist()) == set(range(100)) and len(batches) == 10
    orders = [torch.randperm(10, generator=torch.Generator().manual_seed(s)) for s in (1, 2)]
    first, again, other = (
        [b.inputs[0] for b in batches.epoch(o, 4)] for o in (orders[0], orders[0], orders[1])
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert set(torch.cat(first)[:, 0].tolist()) != set(torch.cat(other)[:, 0].tolist())
    rest = [b.inputs[0] for b in batches.epoch(orders[0], 4, 1)]
    assert torch.equal(rest[0], first[1])


def test_half_precision_generates_with_torch_kernels():
    module = copy.deepcopy(Decoder(11, 8, 16, 2, 2)).bfloat16().eval()
    assert len(generate(module, [[1, 2]], 3, temperature=0)[0]) == 3


def test_fine_tuning_goes_on_from_the_weights(fitted, tmp_path):
    new = ["the fog ran on the cat. " * 8]
    before = fitted.perplexity(new)
    still = fitted.fine_tune(new, training=Training(1, learning_rate=1e-9))
    assert still.perplexity(new) == pytest.approx(before, rel=1e-3) and still is not fitted
    tuned = fitted.fine_tune(new)
    assert tuned.perplexity(new) < 0.8 * before and fitted.perplexity(new) == before
    assert tuned.tokenizer_ is fitted.tokenizer_
    again = corollary.load(tuned.save(tmp_path / "tuned.safetensors"))
    assert again.perplexity(new) == tuned.perplexity(new)
    assert clone(tuned).fit(new).perplexity(new) == tuned.perplexity(new)  # from the same weights once more
    assert again.fit(new).perplexity(new) < tuned.perplexity(
        new
    )  # a file holds one set of weights: from those on
    sizes = [(tmp_path / "tuned.safetensors").stat().st_size, fitted.save(tmp_path / "first").stat().st_size]
    assert sizes[0] < 1.1 * sizes[1]
    with pytest.warns(CorollaryWarning, match="got 'b', 'z', first at position 0"):
        fitted.fine_tune(["zebra"], training=Training(1))


def test_fine_tuning_of_a_gpt2(tmp_path):
    BytePairTokenizer.train(TEXTS, 270).inner.save(str(tmp_path / "tokenizer.json"))
    model = GPT.from_transformers(theirs({**PLAIN, "vocab_size": 270}), tokenizer=tmp_path)
    tuned = model.fine_tune(TEXTS, training=Training(5, learning_rate=5e-3))
    assert tuned.perplexity(TEXTS) < 0.8 * model.perplexity(TEXTS)
    assert tuned.generate("the", max_new_tokens=3).startswith("the")
    with pytest.raises(ValueError, match="texts need a tokenizer"):
        GPT.from_transformers(theirs(PLAIN)).fine_tune(TEXTS)


@pytest.mark.parametrize("call, error, words", [
    (lambda m: m.generate("a" * 40), ValueError, "must fit into max_length=24 tokens; got 41. Shorten it"),
    (lambda m: m.perplexity([""] * 2), ValueError, "some document must have words; got 2 empty ones"),
    (lambda m: m.generate([[]]), ValueError, "must hold at least one; got none"),
    (lambda m: m.generate([[99]]), ValueError, "tokens must lie between 0 and"),
    (lambda m: m.generate([]), ValueError, "at least one prompt; got an empty list"),
    (lambda m: m.generate(None), TypeError, "a string or a list of prompts; got NoneType"),
    (lambda m: m.generate(b"a"), TypeError, "a string or a list of prompts; got bytes"),
    (lambda m: m.generate([["a"]]), TypeError, r"a string or a list of integers; got \['a'\]"),
    (lambda m: m.generate([[1.5]]), TypeError, r"a string or a list of integers; got \[1.5\]"),
    (lambda m: m.generate("a", temperature="hot"), ValueError, "must be a number that is not negative; got 'hot'"),
    (lambda m: m.generate("a", top_p="x"), ValueError, r"top_p must lie in \(0, 1\]; got 'x'"),
    (lambda m: m.generate("a", temperature=-1), ValueError, "temperature must be a number that is not negative; got -1"),
    (lambda m: m.generate("a", top_k=0), ValueError, "top_k must be an integer of at least 1; got 0"),
    (lambda m: m.generate("a", top_p=0), ValueError, r"top_p must lie in \(0, 1\]; got 0"),
    (lambda m: m.generate("a", max_new_tokens=0), ValueError, "max_new_tokens must be an integer of at least 1"),
    (lambda m: m.perplexity(["a"], stride=0), ValueError, "stride must be an integer of at least 1; got 0"),
    (lambda m: m.perplexity(["a"], stride=25), ValueError, "stride must not exceed max_length=24 tokens; got 25"),
    (lambda m: m.perplexity([]), ValueError, "X must hold at least one of the strings"),
])  # fmt: skip
def test_bad_calls_are_named(call, error, words, fitted):
    with pytest.raises(error, match=words):
        call(fitted)


@pytest.mark.parametrize("params, words", [
    ({"n_heads": 3}, "width must be a multiple of n_heads=3; got 32"),
    ({"max_length": 1}, "max_length"),
    ({"tokenizer": "words"}, "'words' must be a tokenizer.json"),
    ({"tokenizer": "bytepair", "vocabulary_size": 100}, "room for 256 bytes and an end token; got 100"),
])  # fmt: skip
def test_bad_parameters_are_named(params, words):
    with pytest.raises(ValueError, match=words):
        small(1, **params).fit(TEXTS)


def test_a_character_never_seen_is_one_unknown_token():
    model = small(1).fit(TEXTS)
    with pytest.warns(CorollaryWarning, match="got 'é', first at position 1. They count as one unknown"):
        assert np.isfinite(model.score_samples([TEXTS[0][0] + "é"])).all()
    tokenizer = CharacterTokenizer("ab")
    assert tokenizer.decode([1, tokenizer.unknown, 2, tokenizer.end]) == "a\ufffdb"


def test_one_file_is_one_text_with_its_line_ends(tmp_path):
    lines = "".join(f"ROMEO:\r\nline {i}\r\n\r\n" for i in range(40))
    (tmp_path / "play.txt").write_bytes(lines.encode())
    found = data.load(tmp_path / "play.txt")
    model = small(1).fit(found)
    assert ord("\n") in model.tokenizer_.codes and len(found) == 80  # others still read it by lines
    assert model.generate("ROMEO:\n", max_new_tokens=2).startswith("ROMEO:\n")
    kept, held = data.split(one_text(found), 0.25)
    assert kept.X[0] + held.X[0] == lines.replace("\r\n", "\n") and held.X[0].endswith("line 39\n\n")
    pieces = [part for _, part in data.splits(one_text(found), 4, 0.25)]
    assert "".join(part.X[0] for part in reversed(pieces)) == kept.X[0] + held.X[0]
    again = data.load(tmp_path / "play.txt", reading=model.reading_)
    assert again.X == one_text(found).X


def test_tokenizers_come_back_as_they_were(tmp_path):
    text = "naïve 文字\n"
    for tokenizer in (CharacterTokenizer.train([text]), BytePairTokenizer.train([text], 260)):
        again = restore(tokenizer.dump())
        assert again.size == tokenizer.size and again.end == tokenizer.end
        assert again.decode(tokenizer.encode(text)) == text
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="must be a tokenizers file"):
        BytePairTokenizer.read(tmp_path)
    files = BytePairTokenizer.train([text * 9], 300)
    files.inner.model.save(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    assert BytePairTokenizer.read(tmp_path).decode(files.encode(text)) == text
    import tokenizers

    with pytest.raises(ValueError, match="must have a special token"):
        BytePairTokenizer(tokenizers.Tokenizer(tokenizers.models.BPE()))
