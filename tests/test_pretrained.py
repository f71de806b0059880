"""Language models from directories as people have them on disk, against transformers."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import corollary
from corollary import BERT, GPT
from corollary.language import BytePairTokenizer, WordPieces
from corollary.language.checkpoints import BERT_DEFAULTS, GPT2_DEFAULTS

torch.set_num_threads(1)
transformers = pytest.importorskip("transformers")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "sun",
    "Sun",
    "##ny",
    "sea",
    "caf",
    "##e",
    "##é",
]
BERTS = (
    "BertModel",
    "BertForMaskedLM",
    "BertForPreTraining",
    "BertForNextSentencePrediction",
    "BertForTokenClassification",
)
GPTS = ("GPT2Model", "GPT2LMHeadModel", "GPT2DoubleHeadsModel")
TOKENS = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(0))


def theirs(kind, **more):
    sizes = (
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24}
        if kind.startswith("GPT2")
        else {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
              "max_position_embeddings": 24}
    )  # fmt: skip
    config = transformers.GPT2Config if kind.startswith("GPT2") else transformers.BertConfig
    torch.manual_seed(0)
    peer = getattr(transformers, kind)(
        config(**{"vocab_size": 300, **sizes, "pad_token_id": 0, **more})
    ).eval()
    for p in peer.parameters():  # biases and norms too
        torch.nn.init.normal_(p, std=0.2)
    return peer


def pairs(ours, peer):
    """Yield what both make of the tokens: the last states, and the logits of tokens where there are some."""
    with torch.no_grad():
        out = peer(TOKENS, output_hidden_states=True)
        if isinstance(ours, GPT):
            if not isinstance(peer, transformers.GPT2Model):
                yield ours.module_(TOKENS), out.logits
            else:
                yield ours.module_(TOKENS), out.last_hidden_state @ peer.wte.weight.T
            return
        h = ours.module_(TOKENS)
        yield h, out.hidden_states[-1]
        logits = out.get("prediction_logits", out.logits if ours.guesses_ and "logits" in out else None)
        if logits is not None:
            yield ours.module_.guesses(h), logits


def check(ours, peer):
    for a, b in pairs(ours, peer):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def loader(kind):
    return GPT if kind.startswith("GPT2") else BERT


@pytest.mark.parametrize("kind", [*BERTS, *GPTS])
@pytest.mark.parametrize("layout", ["whole", "shards", "bin", "bin-shards"])
def test_every_layout(kind, layout, tmp_path):
    peer = theirs(kind)
    if layout in ("whole", "shards"):
        peer.save_pretrained(tmp_path, max_shard_size="1GB" if layout == "whole" else "5KB")
        assert (tmp_path / "model.safetensors.index.json").is_file() == (layout == "shards")
    else:
        weights, files = peer.state_dict(), {"pytorch_model.bin": None}
        if layout == "bin-shards":
            names = [*weights]
            files = {"pytorch_model-1.bin": names[::2], "pytorch_model-2.bin": names[1::2]}
            index = {"weight_map": {name: file for file, part in files.items() for name in part}}
            (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        for file, part in files.items():
            torch.save({name: weights[name] for name in part or weights}, tmp_path / file)
        peer.config.save_pretrained(tmp_path)
    check(loader(kind).from_transformers(tmp_path), peer)


def test_names_of_the_first_files(tmp_path):
    """Norms were called gamma and beta, configurations named no type, and some had a prefix."""
    peer = theirs("BertForPreTraining")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): w
        for name, w in peer.state_dict().items()
    }
    assert sum(name.endswith((".gamma", ".beta")) for name in old) == 12
    old.pop("cls.predictions.decoder.weight")  # tied, and left out
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    torch.save(old, tmp_path / "pytorch_model.bin")
    config = peer.config.to_dict()
    config.pop("model_type")
    (tmp_path / "config.json").write_text(json.dumps(config))
    check(BERT.from_transformers(tmp_path), peer)

    peer = theirs("GPT2LMHeadModel")
    old = {
        name.removeprefix("transformer."): w
        for name, w in peer.state_dict().items()
        if name != "lm_head.weight"
    }
    for i in range(2):
        old[f"h.{i}.attn.bias"] = torch.ones(1, 1, 24, 24, dtype=torch.bool).tril()
        old[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    torch.save(old, tmp_path / "pytorch_model.bin")
    sizes = {"vocab_size": 300, "n_positions": 24, "n_ctx": 24, "n_embd": 16, "n_layer": 2, "n_head": 2}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    check(GPT.from_transformers(tmp_path), peer)


def test_what_a_configuration_may_leave_out():
    for ours, config in (
        (BERT_DEFAULTS, transformers.BertConfig()),
        (GPT2_DEFAULTS, transformers.GPT2Config()),
    ):
        usual = config.to_dict()
        assert {name: usual[name] for name in ours} == ours


def test_an_output_matrix_of_its_own(tmp_path):
    peer = theirs("GPT2LMHeadModel", tie_word_embeddings=False)
    peer.save_pretrained(tmp_path)
    check(GPT.from_transformers(tmp_path), peer)
    with pytest.raises(
        ValueError, match="output matrix must be the embedding, as published; got another one"
    ):
        BERT.from_transformers(theirs("BertForMaskedLM", tie_word_embeddings=False))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_kept_and_saved(dtype, tmp_path):
    theirs("BertModel").to(dtype).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    model = BERT.from_transformers(tmp_path)
    assert model.module_.tokens.weight.dtype == dtype
    again = corollary.load(model.save(tmp_path / "ours.safetensors"))
    assert again.module_.tokens.weight.dtype == dtype
    found = model.transform(["the sun", "sea"])
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(again.transform(["the sun", "sea"]), found)


# --- tokenizers beside the weights ------------------------------------------------------------------------


def test_word_pieces_are_theirs(tmp_path):
    """A cased tokenizer, from each of the files it may be in, and from memory."""
    peer = theirs("BertModel")
    fast = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}, do_lower_case=False)
    peer.save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    models = [BERT.from_transformers(tmp_path), BERT.from_transformers(peer, tokenizer=fast)]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    models.append(BERT.from_transformers(tmp_path))
    texts = ["the Sunny sea", "café sun Sea", "[MASK] the"]
    for model in models:
        for text in texts:
            assert model.tokenizer_.encode(text) == fast(text, add_special_tokens=False)["input_ids"]
    (
        tmp_path / "tokenizer_config.json"
    ).unlink()  # without a word about capitals, as published: none, no accents
    assert BERT.from_transformers(tmp_path).tokenizer_.encode("Sunny café") == [6, 8, 10, 11]


def test_byte_pairs_are_theirs(tmp_path):
    inner = BytePairTokenizer.train(["the cat sat on the mat"] * 3, 280).inner
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")
    peer = theirs("GPT2LMHeadModel")
    peer.save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    models = [GPT.from_transformers(tmp_path), GPT.from_transformers(peer, tokenizer=fast)]
    (tmp_path / "tokenizer.json").unlink()
    inner.model.save(str(tmp_path))
    assert (tmp_path / "vocab.json").is_file() and (tmp_path / "merges.txt").is_file()
    models.append(GPT.from_transformers(tmp_path))
    for model in models:
        assert model.tokenizer_.encode("the naïve mat").tolist() == fast("the naïve mat")["input_ids"]
        assert model.tokenizer_.end == fast.eos_token_id
        assert model.generate("the", temperature=0, max_new_tokens=4) == models[0].generate(
            "the", temperature=0, max_new_tokens=4
        )


def test_a_closing_token_of_another_name(tmp_path):
    inner = BytePairTokenizer.train(["the cat"], 270).inner
    inner.add_special_tokens(["</s>", "<mask>"])
    inner.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "</s>"}}')
    read = BytePairTokenizer.read(tmp_path)
    assert read.end == inner.token_to_id("</s>")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": null}')
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<mask>"}')
    assert BytePairTokenizer.read(tmp_path).end == inner.token_to_id("<mask>")
    model = GPT.from_transformers(theirs("GPT2LMHeadModel"), tokenizer=tmp_path)
    again = corollary.load(model.save(tmp_path / "ours.safetensors"))
    assert again.tokenizer_.end == inner.token_to_id("<mask>")


def test_padding_and_truncation_of_a_file_are_left_out(tmp_path):
    """Files often bring both; they would silently change what is read."""
    words = WordPieces.train(["the sun the sea"] * 3, 40).inner
    pairs_ = BytePairTokenizer.train(["the cat"], 260).inner
    for inner, kind in ((words, WordPieces), (pairs_, BytePairTokenizer)):
        wanted = list(kind(inner).encode("the sea the sun"))
        inner.enable_padding(length=30)
        inner.enable_truncation(2)
        inner.save(str(tmp_path / "tokenizer.json"))
        assert list(kind.read(tmp_path).encode("the sea the sun")) == wanted and len(wanted) > 2


# --- what is wrong ----------------------------------------------------------------------------------------


def test_bad_directories_are_named(tmp_path):
    theirs("GPT2LMHeadModel").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, words in (
        ({"n_layer": 3}, r"those of the configuration; got \['blocks.2.* missing"),
        ({"n_layer": 1}, r"\['blocks.1.* unknown"),
        ({"n_positions": 30}, r"places.weight of shape \(24, 16\) instead of \(30, 16\)"),
        ({"n_head": 3}, "multiple of n_heads=3; got 16"),
        ({"add_cross_attention": True}, "add_cross_attention of the configuration must be False; got True"),
        ({"activation_function": "xielu"}, "no activation named 'xielu'"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=words):
            GPT.from_transformers(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json' must hold an object as JSON; got .* Copy it again"):
        GPT.from_transformers(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.example\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match="a file of weights and nothing else; got .* pointer of Git LFS"):
        GPT.from_transformers(tmp_path)
    with pytest.raises(
        ValueError, match="'gpt2' must hold config.json .*no such directory.*nothing is downloaded"
    ):
        GPT.from_transformers("gpt2")
    shutil.rmtree(tmp_path)
    theirs("BertModel").save_pretrained(tmp_path, max_shard_size="5KB")
    next(iter(sorted(tmp_path.glob("*.safetensors")))).unlink()
    with pytest.raises(ValueError, match="must hold model-00001-of-.*, which its index lists"):
        BERT.from_transformers(tmp_path)


def test_bad_berts_are_named(tmp_path):
    for change in ({"is_decoder": True}, {"position_embedding_type": "relative_key"}):
        peer = theirs("BertModel")
        peer.config.update(change)
        with pytest.raises(ValueError, match=f"{next(iter(change))} of the configuration must be"):
            BERT.from_transformers(peer)
    peer = theirs("BertModel")
    peer.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    gone = next(name for name in weights if "word_embeddings" in name)
    save_file({name: w for name, w in weights.items() if name != gone}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"got \['tokens.weight'\] missing"):  # never new ones in silence
        BERT.from_transformers(tmp_path)
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    with pytest.raises(ValueError, match="must have the head for masked tokens; got weights without it"):
        BERT.from_transformers(tmp_path).fill(["the [MASK]"])
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, *(f"w{i}" for i in range(300))]))
    with pytest.raises(ValueError, match="at most the 300 tokens of the model; got 313"):
        BERT.from_transformers(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer.json must be a tokenizers file"):
        BERT.from_transformers(tmp_path)
