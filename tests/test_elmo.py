"""Words in context against a hand-built reference."""

import numpy as np
import pytest
import torch

from corollary import ELMo, Training
from corollary.language.elmo import PLACES, ELMoNetwork, LayerMix

torch.set_num_threads(1)


def network(**options):
    torch.manual_seed(0)
    return ELMoNetwork(20, 15, width=6, n_layers=2, dropout=0.0, **options).double()


def test_layers_by_hand():
    net = network()
    c = torch.randint(1, 20, (1, 5, PLACES))
    x = torch.stack([net.words(c[:, k : k + 1])[0, 0] for k in range(5)])[
        None
    ]  # a word knows only its letters
    a1 = net.ahead[0](x)[0]
    a2 = net.ahead[1](a1)[0] + a1
    b1 = net.back[0](x.flip(1))[0]
    b2 = net.back[1](b1)[0] + b1
    wanted = [torch.cat([x, x], 2), torch.cat([a1, b1.flip(1)], 2), torch.cat([a2, b2.flip(1)], 2)]
    layers = net.layers(c, None)
    torch.testing.assert_close(layers, torch.stack(wanted))
    with torch.no_grad():
        net.mix.w.copy_(torch.tensor([0.0, 1.0, 2.0]))
        net.mix.gamma.fill_(3.0)
    s = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    torch.testing.assert_close(net.embed(c), 3.0 * sum(float(a) * h for a, h in zip(s, wanted)))


def test_the_two_models_never_see_the_word_they_say():
    net = network()
    c = torch.randint(1, 20, (1, 6, PLACES))
    other = c.clone()
    other[0, 3] = torch.randint(1, 20, (PLACES,))
    (ahead, back, _), (ahead2, back2, _) = net(c), net(other)
    torch.testing.assert_close(ahead[0, :3], ahead2[0, :3])  # the state before word 3 says it
    torch.testing.assert_close(
        back[0, 4:], back2[0, 4:]
    )  # and so does the state after it, from the other side
    assert not torch.allclose(ahead[0, 3:], ahead2[0, 3:]) and not torch.allclose(back[0, :4], back2[0, :4])


def test_no_padding_leaks_and_every_gradient():
    net = network(n_out=2)
    c = torch.randint(1, 20, (2, 6, PLACES))
    lengths = torch.tensor([6, 3])
    torch.testing.assert_close(net.embed(c, lengths)[1, :3], net.embed(c[1:, :3])[0])
    torch.testing.assert_close(net(c, lengths)[2][1:], net(c[1:, :3])[2])
    ahead, back, task = net(c, lengths)
    (ahead.square().sum() + back.square().sum() + task.square().sum()).backward()
    assert all((p.grad != 0).any() for p in net.parameters())
    assert net.bfloat16()(c)[0].dtype == torch.bfloat16
    assert LayerMix(2)(torch.ones(2, 1, 1, 1)).item() == 1


def test_context_changes_a_word_and_new_words_have_vectors():
    texts = ["the river bank is wet", "the money bank is rich"] * 10
    model = ELMo(12, training=Training(5, learning_rate=0.01), random_state=0).fit(texts)
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]
    wet, rich = model.embed(["river bank", "money bank"])
    assert wet.shape == (2, 24) and not np.allclose(wet[1], rich[1], atol=1e-4)
    assert np.isfinite(model.transform(["zebra"])).all()
    np.testing.assert_allclose(model.layer_weights_, 1 / 3, atol=1e-6)
    np.testing.assert_allclose(model.transform(["river bank"])[0], wet.mean(0), atol=1e-5)


def test_labels_teach_the_mixture():
    texts = ["warm sun", "cold snow", "blue sea", "white ice"] * 10
    model = ELMo(12, training=Training(15, learning_rate=0.02), random_state=0).fit(texts, ["s", "w"] * 20)
    assert model.layer_weights_.sum() == pytest.approx(1) and model.layer_weights_.std() > 1e-3
    assert model.history_[-1]["task"] < 0.2
    assert not hasattr(model.fit(texts), "classes_")


def test_elmo_bad_input():
    with pytest.raises(ValueError, match="every text must have words; got none in text 1"):
        ELMo().fit(["a b", "  "])
    with pytest.raises(ValueError, match=r"one entry per sample \(2\); got 1"):
        ELMo().fit(["a b", "c"], [1])
    with pytest.raises(ValueError, match="a label for each of 2; got 1 missing, the first at 1"):
        ELMo().fit(["a b", "c"], ["x", None])
