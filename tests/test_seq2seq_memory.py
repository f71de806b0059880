"""Texts from texts, and questions about facts."""

import itertools

import numpy as np
import pytest
import torch

from corollary import MemoryNetwork, Seq2Seq, Training
from corollary.sequences.memory import MemoryNet
from corollary.sequences.search import beam_search
from corollary.sequences.seq2seq import Seq2SeqNetwork
from corollary.sequences.words import BEGIN, END

torch.set_num_threads(1)


# --- search -----------------------------------------------------------------------------------------------


def table_model(seed=0, v=6):
    """A model whose next symbol depends on all before it, through a running hash."""
    table = torch.randn(97, v, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    table[:, :END] = -50

    def advance(symbols, state):
        state = (state * 7 + symbols) % 97
        return table[state].log_softmax(-1), state

    return advance, lambda state, rows: state[rows]


def log_prob(advance, codes):
    state, total, last = torch.zeros(1, dtype=torch.int64), 0.0, BEGIN
    for code in [*codes, END]:
        log_p, state = advance(torch.tensor([last]), state)
        total, last = total + float(log_p[0, code]), code
    return total


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all(seed):
    advance, select = table_model(seed)
    every = [c for n in range(4) for c in itertools.product(range(3, 6), repeat=n)]
    best = max(every, key=lambda codes: log_prob(advance, codes))
    start = torch.zeros(2, dtype=torch.int64)
    found, values = beam_search(advance, select, start, 2, beam_size=200, max_length=4, length_penalty=0.0)
    assert found == [list(best)] * 2
    assert values[0] == pytest.approx(log_prob(advance, best))


def test_a_beam_of_one_is_greedy():
    advance, select = table_model(1)
    state, said, last = torch.zeros(1, dtype=torch.int64), [], BEGIN
    while len(said) < 10:
        log_p, state = advance(torch.tensor([last]), state)
        log_p[:, :END] = -torch.inf
        last = int(log_p.argmax())
        if last == END:
            break
        said.append(last)
    found, _ = beam_search(advance, select, torch.zeros(1, dtype=torch.int64), 1, max_length=10)
    assert found == [said]


# --- Seq2Seq ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("attention", [True, False])
def test_no_padding_leaks_and_every_parameter_gets_a_gradient(cell, attention):
    torch.manual_seed(0)
    net = Seq2SeqNetwork(
        9, 8, cell, hidden_size=6, embedding_size=5, n_layers=2, attention=attention
    ).double()
    x, y = torch.randint(4, 9, (2, 6)), torch.randint(4, 8, (2, 5))
    lengths = torch.tensor([6, 3])
    x[1, 3:] = 0
    out = net(x, lengths, y)
    torch.testing.assert_close(out[1:], net(x[1:, :3], None, y[1:]))
    out.square().sum().backward()
    assert all((p.grad != 0).any() for p in net.parameters())


def test_decoding_step_by_step_equals_all_at_once():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, "lstm", hidden_size=6, embedding_size=5).double()
    x, y = torch.randint(4, 9, (2, 6)), torch.randint(4, 8, (2, 5))
    memory, state = net.encode(x, None)
    steps = []
    for t in range(5):
        logits, state = net.decode(y[:, t : t + 1], memory, state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), net(x, None, y))


def test_mixing_feeds_the_decoder_its_own_symbols():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, hidden_size=6, embedding_size=5, mixing=1.0).double()
    x, y = torch.randint(4, 9, (2, 6)), torch.randint(4, 8, (2, 5))
    mixed = net.train()(x, None, y)
    own = torch.cat([y[:, :1], mixed.argmax(-1)[:, :-1]], 1)
    torch.testing.assert_close(mixed, net.eval()(x, None, own))  # its own symbols, given as if true
    assert not torch.allclose(mixed, net(x, None, y))


def reversal(n=300, seed=0):
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("abcde"), size=rng.integers(2, 6))) for _ in range(n)]
    return texts, [text[::-1] for text in texts]


def test_reversal_is_learned_and_attention_runs_backwards():
    model = Seq2Seq(
        hidden_size=48, embedding_size=16, training=Training(30, learning_rate=0.01), random_state=0
    )
    model.fit(*reversal())
    X, y = reversal(60, seed=1)
    assert model.score(X, y) > 0.9
    weights = model.attention_weights(["abcd"], ["dcba"])[0]
    assert weights.shape == (5, 5)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    found = model.predict(X)
    assert found[:4] == [model.predict([x])[0] for x in X[:4]]
    # a wider beam cannot find less probable texts but by the search's own cuts
    wide = model.set_params(beam_size=4, length_penalty=0.0).predict(X)
    assert model.score_pairs(X, wide).sum() >= model.score_pairs(X, found).sum() - 1e-6


def test_words_as_units():
    X = ["the red cat", "the blue dog", "a red dog", "a blue cat"] * 6
    y = ["el gato rojo", "el perro azul", "un perro rojo", "un gato azul"] * 6
    model = Seq2Seq(
        unit="word", hidden_size=32, training=Training(60, learning_rate=0.01), random_state=0
    ).fit(X, y)
    assert model.predict(["The red cat", "a red dog"]) == ["el gato rojo", "un perro rojo"]


def test_seq2seq_bad_input():
    with pytest.raises(ValueError, match="one text for each of X"):
        Seq2Seq().fit(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="texts that X is to become; got None"):
        Seq2Seq().fit(["a", "b"], None)
    model = Seq2Seq(attention=False, hidden_size=4, training=Training(1), random_state=0).fit(["a"], ["b"])
    with pytest.raises(ValueError, match="needs attention=True"):
        model.attention_weights(["a"], ["b"])


# --- memory -----------------------------------------------------------------------------------------------

PEOPLE, PLACES, THINGS = ["ann", "bob", "cid"], ["hall", "kitchen", "garden"], ["ball", "book"]


def one_fact(n, rng):
    stories, answers = [], []
    for _ in range(n):
        places = dict.fromkeys(PEOPLE)
        lines = []
        for person in rng.permutation(PEOPLE):
            places[person] = rng.choice(PLACES)
            lines.append(f"{person} is in the {places[person]}")
        who = rng.choice(PEOPLE)
        stories.append("\n".join([*lines, f"where is {who}"]))
        answers.append(places[who])
    return stories, answers


def two_facts(n, rng):
    stories, answers = [], []
    for _ in range(n):
        where = {p: rng.choice(PLACES) for p in PEOPLE}
        lines = [f"{p} is in the {where[p]}" for p in PEOPLE]
        holder = rng.choice(PEOPLE, size=2, replace=False)
        lines += [f"{p} has the {t}" for p, t in zip(holder, THINGS)]
        i = rng.integers(2)
        stories.append("\n".join([*rng.permutation(lines), f"where is the {THINGS[i]}"]))
        answers.append(where[holder[i]])
    return stories, answers


def test_one_fact_needs_one_hop_and_attention_finds_it():
    rng = np.random.default_rng(0)
    model = MemoryNetwork(1, training=Training(40, learning_rate=0.01), random_state=0).fit(
        *one_fact(400, rng)
    )
    X, y = one_fact(100, rng)
    assert model.score(X, y) > 0.97
    weights = model.attention(X)
    found = [
        text.splitlines()[int(p[-1].argmax())].split()[0] == text.split()[-1] for text, p in zip(X, weights)
    ]
    assert np.mean(found) > 0.9
    np.testing.assert_allclose(weights[0].sum(1), 1, rtol=1e-5)


def test_two_facts_need_two_hops():
    rng = np.random.default_rng(0)
    train, test = two_facts(1000, rng), two_facts(200, rng)
    plan = Training(30, learning_rate=0.02, batch_size=64)
    two = MemoryNetwork(2, training=plan, random_state=0).fit(*train).score(*test)
    one = MemoryNetwork(1, training=plan, random_state=0).fit(*train).score(*test)
    assert two > 0.85 > one


def test_a_story_does_not_depend_on_its_company_and_may_have_no_facts():
    rng = np.random.default_rng(0)
    X, y = one_fact(30, rng)
    model = MemoryNetwork(2, training=Training(2), random_state=0).fit(X, y)
    mixed = [X[0], "where is ann", "ann is in the hall\n" * 9 + "where is bob now or then"]
    alone = np.concatenate([model.predict_proba([x]) for x in mixed])
    np.testing.assert_allclose(model.predict_proba(mixed), alone, atol=1e-6)
    with pytest.raises(TypeError, match="must end in a question"):
        model.predict([X[0], "  "])


def test_memory_gradients():
    torch.manual_seed(0)
    net = MemoryNet(9, 3, width=4, n_hops=2, n_facts=5).double()
    net(torch.randint(1, 9, (4, 5, 3)), torch.randint(1, 9, (4, 3))).square().sum().backward()
    assert all((p.grad != 0).any() for p in net.parameters())
    assert net.bfloat16()(
        torch.ones(1, 1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.int64)
    ).shape == (1, 3)
