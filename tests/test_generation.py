"""Generation against transformers' own with the same weights: end tokens, penalties, beams, activations, heads."""

import numpy as np
import pytest
import torch

import corollary
from corollary import BERT, GPT
from corollary.nn.pretrained import ACTIVATIONS
from corollary.vision import ViT

torch.set_num_threads(1)
transformers = pytest.importorskip("transformers")

ROWS = [[5, 9, 2], [7, 1], [11, 12, 3, 4, 8, 2]]


def peer(kind="GPT2LMHeadModel", seed=0, **more):
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "vocab_size": 24, "pad_token_id": 0}
    torch.manual_seed(seed)
    config = transformers.GPT2Config(**{**sizes, "bos_token_id": 1, "eos_token_id": 3, **more})
    model = getattr(transformers, kind)(config).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.35)  # far from uniform, so that no two tokens tie
    return model


def theirs(model, row, **how):
    made = model.generate(torch.tensor([row]), max_new_tokens=12, do_sample=False, **how)[0].tolist()
    stop = model.generation_config.eos_token_id
    new = made[len(row) :]
    return [*row, *(new[: new.index(stop)] if stop in new else new)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"repetition_penalty": 1.7},
        {"repetition_penalty": 0.6},
        {"beam_size": 3},
        {"beam_size": 4, "length_penalty": 0.0},
        {"beam_size": 2, "length_penalty": 2.5, "repetition_penalty": 1.3},
        {"beam_size": 30, "length_penalty": -1.0},
    ],
    ids=str,
)
def test_says_what_transformers_says(how, seed):
    model = peer(seed=seed)
    ours = GPT.from_transformers(model)
    names = {"beam_size": "num_beams"}
    expected = [
        theirs(model, row, **{names.get(key, key): number for key, number in how.items()}) for row in ROWS
    ]
    assert ours.generate(ROWS, max_new_tokens=12, temperature=0, **how) == expected


@pytest.mark.parametrize("how", [{"beam_size": 3}, {"repetition_penalty": 1.4}], ids=str)
def test_the_plain_and_the_compiled_step_search_alike(how, monkeypatch):
    ours = GPT.from_transformers(peer())
    compiled = ours.generate(ROWS, max_new_tokens=12, temperature=0, **how)
    monkeypatch.setattr("corollary.language.decoder._compilable", lambda module: False)
    assert ours.generate(ROWS, max_new_tokens=12, temperature=0, **how) == compiled


def test_the_end_token_of_a_checkpoint_without_a_tokenizer(tmp_path):
    model = peer()
    free = model.generate(torch.tensor([[5, 9, 2]]), max_new_tokens=12, do_sample=False, eos_token_id=None)[
        0, 3:
    ]
    stops = next(
        token for token in free.tolist() if token != free[0]
    )  # the second kind of token that it says
    model.generation_config.eos_token_id = [stops, 3]  # which may list several
    model.save_pretrained(tmp_path)
    for source in (tmp_path, model):
        ours = GPT.from_transformers(source)
        assert ours.ends_ == [stops, 3]
        new = ours.generate([[5, 9, 2]], max_new_tokens=12, temperature=0)[0][3:]
        assert new and set(new) == {int(free[0])}
    (tmp_path / "generation_config.json").unlink()
    assert GPT.from_transformers(tmp_path).ends_ == [3]  # as config.json says
    path = GPT.from_transformers(model).save(tmp_path / "gpt.safetensors")
    assert corollary.load(path).generate([[5, 9, 2]], max_new_tokens=12, temperature=0) == ours.generate(
        [[5, 9, 2]], max_new_tokens=12, temperature=0
    )


@pytest.mark.parametrize(
    "kind", ["GPT2ForSequenceClassification", "GPT2ForTokenClassification", "GPT2ForQuestionAnswering"]
)
def test_a_head_that_is_no_language_model_is_refused(kind, tmp_path):
    model = peer(kind)
    with pytest.raises(ValueError, match="GPT: the checkpoint must be a language model; got a head named"):
        GPT.from_transformers(model)
    model.transformer.save_pretrained(tmp_path)  # as the message says
    assert GPT.from_transformers(tmp_path).n_tokens_ == 24


@pytest.mark.parametrize(
    "how, words",
    [
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 2, "top_k": 3}, "beam search draws nothing; got temperature=1.0, top_k=3"),
        (
            {"beam_size": 2, "max_new_tokens": 39},
            r"fit into max_length=40; got 3 \+ 39 tokens. Use max_new_tokens=37",
        ),
        ({"repetition_penalty": 0}, "repetition_penalty must be a positive number; got 0"),
        ({"length_penalty": "long"}, "length_penalty must be a positive number; got 'long'"),
    ],
)
def test_bad_settings_are_named(how, words):
    with pytest.raises((ValueError, TypeError), match=words):
        GPT.from_transformers(peer()).generate([[1, 2, 3]], **how)


# --- every activation, in random configurations ------------------------------------------------------------


def drawn(name):
    """Return random sizes for the configuration with this activation."""
    rng = np.random.default_rng(sum(map(ord, name)))
    heads = int(rng.integers(1, 4))
    return {
        "heads": heads, "width": heads * int(rng.integers(2, 6)), "layers": int(rng.integers(1, 4)),
        "inner": int(rng.integers(5, 40)), "eps": float(rng.choice([1e-12, 1e-5])),
    }  # fmt: skip


THEIRS = sorted(set(ACTIVATIONS) - {"gelu_tanh"})  # that one is our own name


@pytest.mark.parametrize("name", THEIRS)
def test_every_activation_in_bert_gpt_and_vit(name):
    s, tokens = drawn(name), torch.randint(0, 24, (2, 7), generator=torch.Generator().manual_seed(0))
    sizes = {"hidden_size": s["width"], "num_hidden_layers": s["layers"], "num_attention_heads": s["heads"],
             "intermediate_size": s["inner"], "layer_norm_eps": s["eps"], "hidden_act": name}  # fmt: skip
    torch.manual_seed(1)
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=24, max_position_embeddings=9, **sizes)
    )
    gpt = peer(
        n_embd=s["width"],
        n_layer=s["layers"],
        n_head=s["heads"],
        n_inner=s["inner"],
        activation_function=name,
    )
    vit = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **sizes)
    )
    for model in (bert.eval(), vit.eval()):
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.3)
    images = torch.rand(2, 3, 8, 8)
    ours = BERT.from_transformers(bert).module_
    with torch.no_grad():
        pairs = [
            (ours.guesses(ours(tokens)), bert(tokens).logits),
            (GPT.from_transformers(gpt).module_(tokens), gpt(tokens).logits),
            (ViT.from_transformers(vit)(images), vit(images).logits),
        ]
    for a, b in pairs:  # the same float32 operations, in another order
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_an_unknown_activation_names_the_closest():
    with pytest.raises(ValueError, match="GPT: no activation named 'prelu'. Closest: 'relu'"):
        (
            GPT.from_transformers(peer(activation_function="relu")),
            GPT.from_transformers(peer(activation_function="prelu")),
        )
