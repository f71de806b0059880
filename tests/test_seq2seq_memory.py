"""Texts from texts, and questions about facts."""

import itertools

import numpy as np
import pytest
import torch

from corollary import MemoryNetwork, Seq2Seq, Training
from corollary.sequences import bleu
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


def log_prob(advance, codes, start=0):
    state, total, last = torch.tensor([start]), 0.0, BEGIN
    for code in [*codes, END]:
        log_p, state = advance(torch.tensor([last]), state)
        total, last = total + float(log_p[0, code]), code
    return total


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all(seed):
    advance, select = table_model(seed)
    every = [c for n in range(4) for c in itertools.product(range(3, 6), repeat=n)]  # 40 in all
    best = max(every, key=lambda codes: log_prob(advance, codes))
    start = torch.zeros(2, dtype=torch.int64)
    found, values = beam_search(advance, select, start, 2, beam_size=40, max_length=3, length_penalty=0.0)
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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_wider_beam_never_finds_less_than_greedy(seed, length_penalty):
    advance, select = table_model(seed)
    settings = {"max_length": 6, "length_penalty": length_penalty}
    start = torch.arange(5)

    def ranks(k):
        found, values = beam_search(advance, select, start, 5, beam_size=k, **settings)
        wanted = [log_prob(advance, codes, int(s)) for codes, s in zip(found, start)]
        np.testing.assert_allclose(
            values, wanted
        )  # the end symbol counts, also where there is no room for more
        assert max(map(len, found)) <= 6
        return np.array([v / (len(codes) + 1) ** length_penalty for v, codes in zip(values, found)])

    greedy = ranks(1)
    for k in (2, 3, 10):
        assert (ranks(k) >= greedy - 1e-12).all()


# --- Seq2Seq ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("attention", [True, False])
def test_no_padding_leaks_and_every_parameter_gets_a_gradient(cell, attention):
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, cell, width=6, embedding_dimension=5, n_layers=2, attention=attention).double()
    x, y = torch.randint(4, 9, (2, 6)), torch.randint(4, 8, (2, 5))
    lengths = torch.tensor([6, 3])
    x[1, 3:] = 0
    out = net(x, lengths, y)
    torch.testing.assert_close(out[1:], net(x[1:, :3], None, y[1:]))
    out.square().sum().backward()
    assert all((p.grad != 0).any() for p in net.parameters())


def test_logits_are_those_of_the_equations():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(500, 400, width=6, embedding_dimension=25).double()
    for table in (net.source, net.target):  # 10,000 draws or more: a standard deviation within five errors
        assert abs(float(table.weight.detach().std()) * 5 - 1) < 0.04
    x, y = torch.randint(4, 500, (2, 6)), torch.randint(4, 400, (2, 5))
    h, last = net.encoder.cell(net.source.weight[x] * 5)  # the root of 25
    z, _ = net.decoder(net.target.weight[y] * 5, torch.tanh(net.bridge(torch.cat([*last], 1)))[None])
    scores = torch.einsum("btd,de,bse->bts", z, net.address.weight, h) / 6**0.5
    u = torch.tanh(net.combine(torch.cat([z, scores.softmax(2) @ h], 2)))
    torch.testing.assert_close(net(x, None, y), u @ net.target.weight.T + net.bias)


def test_decoding_step_by_step_equals_all_at_once():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, "lstm", width=6, embedding_dimension=5).double()
    x, y = torch.randint(4, 9, (2, 6)), torch.randint(4, 8, (2, 5))
    memory, state = net.encode(x, None)
    steps = []
    for t in range(5):
        logits, state = net.decode(y[:, t : t + 1], memory, state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), net(x, None, y))


def test_teacher_forcing_gives_each_step_the_true_past_and_nothing_else():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, width=6, embedding_dimension=5).double().train()
    x, y = torch.randint(4, 9, (1, 6)), torch.tensor([[1, 4, 5, 6, 7]])
    other = torch.tensor([[1, 4, 7, 6, 7]])  # differs at step 2
    same = (net(x, None, y) == net(x, None, other)).all(-1)[0]
    assert same.tolist() == [True, True, False, False, False]


def test_mixing_grows_to_its_probability_and_is_saved():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, width=6, embedding_dimension=5, mixing=0.8, mixing_steps=4).double().train()
    x, y = torch.randint(4, 9, (2, 6)), torch.randint(4, 8, (2, 5))
    torch.testing.assert_close(net(x, None, y), net.eval()(x, None, y))  # the first batch is all true
    seen = []
    for _ in range(5):
        seen.append(float(net.mixing_probability()))
        net.train()(x, None, y)
    assert seen == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    twin = Seq2SeqNetwork(9, 8, width=6, embedding_dimension=5, mixing=0.8, mixing_steps=4)
    twin.load_state_dict(net.state_dict())
    assert int(twin.trained) == int(net.trained) == 6


def test_mixing_mixes_in_its_proportion():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, width=6, embedding_dimension=5, mixing=0.3)
    with torch.no_grad():
        net.bias[7] = 100.0  # its own symbol is 7, whatever it reads
    given = []
    net.target.register_forward_hook(lambda _, args, out: given.append(args[0]))
    net.train()(torch.full((400, 3), 4), None, torch.full((400, 6), 5))
    own = torch.cat(given[1:]) == 7
    assert abs(float(own.float().mean()) - 0.3) < 0.06  # 2000 draws: six standard errors


def test_the_estimator_schedules_the_mixing_over_its_fit():
    X, y = reversal(20)
    options = {"width": 4, "mixing": 0.5, "training": Training(3, batch_size=8), "random_state": 0}
    grown = Seq2Seq(**options).fit(X, y)
    assert grown.mixing_steps_ == int(grown.module_.trained) == 9  # three batches an epoch
    assert float(grown.module_.mixing_probability()) == 0.5
    assert Seq2Seq(mixing_schedule="constant", **options).fit(X, y).mixing_steps_ == 0


def test_mixing_feeds_the_decoder_its_own_symbols():
    torch.manual_seed(0)
    net = Seq2SeqNetwork(9, 8, width=6, embedding_dimension=5, mixing=1.0).double()
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
    plan = Training(40, learning_rate=0.01, batch_size=32, schedule="cosine")
    model = Seq2Seq(width=48, embedding_dimension=16, training=plan, random_state=0)
    model.fit(*reversal())
    X, y = reversal(60, seed=1)
    assert model.score(X, y) > 0.75  # eight seeds reach 0.96 to 1; guesses none
    weights = model.attention_weights(["abcd"], ["dcba"])[0]
    assert weights.shape == (5, 5)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    found = model.predict(X)
    wide = model.set_params(beam_size=4, length_penalty=0.0).predict(X)
    assert (model.score_pairs(X, wide) >= model.score_pairs(X, found) - 1e-4).all()


@pytest.fixture(scope="module")
def barely_trained():
    """Probabilities that leave the search something to do."""
    X, y = ["ab", "ba", "bb", "a"] * 4, ["ba", "ab", "bb", "a"] * 4
    settings = {"width": 8, "embedding_dimension": 4, "max_length": 3, "length_penalty": 0.0}
    return Seq2Seq(**settings, training=Training(2), random_state=0).fit(X, y)


def test_an_exhaustive_beam_finds_the_best_of_all_texts(barely_trained):
    symbols = ["a", "b", "\N{REPLACEMENT CHARACTER}"]  # the unknown symbol may be said too
    every = ["".join(parts) for n in range(4) for parts in itertools.product(symbols, repeat=n)]
    X = ["ab", "bba", "b"]
    best = [max(barely_trained.score_pairs([x] * len(every), every)) for x in X]
    found = barely_trained.set_params(beam_size=len(every)).predict(X)
    # float32 sums of a few terms, in batches of different shapes
    np.testing.assert_allclose(barely_trained.score_pairs(X, found), best, rtol=1e-4)


def test_pairs_and_weights_do_not_depend_on_the_company(barely_trained):
    X, y = ["ab", "bbabab", "b", "?"], ["b", "abab", "", "bba"]
    alone = [barely_trained.score_pairs([a], [b])[0] for a, b in zip(X, y)]
    np.testing.assert_allclose(barely_trained.score_pairs(X, y), alone, rtol=1e-4)
    weights = barely_trained.attention_weights(X, y)
    # at most three symbols are read and written, and the end
    assert [w.shape for w in weights] == [(2, 3), (4, 4), (1, 2), (4, 2)]
    for a, b, w in zip(X, y, weights):
        np.testing.assert_allclose(w, barely_trained.attention_weights([a], [b])[0], atol=1e-5)
        np.testing.assert_allclose(w.sum(1), 1, rtol=1e-5)
    found = barely_trained.predict(X)
    np.testing.assert_allclose(
        barely_trained.score_pairs(X, found),
        barely_trained.score_pairs(X, [barely_trained.predict([x])[0] for x in X]),
        rtol=1e-4,
    )


def test_words_as_units():
    X = ["the red cat", "the blue dog", "a red dog", "a blue cat"] * 6
    y = ["El gato rojo.", "El perro azul.", "un perro Rojo", "un gato azul"] * 6
    model = Seq2Seq(unit="word", width=32, training=Training(60, learning_rate=0.01), random_state=0).fit(
        X, y
    )
    assert model.predict(["The red cat", "a red dog"]) == ["El gato rojo.", "un perro Rojo"]


def test_seq2seq_bad_input():
    with pytest.raises(ValueError, match=r"one text for each of X \(2\); got 1. Leave out what has no"):
        Seq2Seq().fit(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="texts that X is to become; got None. Pass them"):
        Seq2Seq().fit(["a", "b"], None)
    with pytest.raises(TypeError, match="every document must be a string; got NoneType at 1. Use"):
        Seq2Seq().fit(["a", "b"], ["c", None])
    model = Seq2Seq(attention=False, width=4, training=Training(1), random_state=0).fit(["a"], ["b"])
    with pytest.raises(ValueError, match="needs attention=True"):
        model.attention_weights(["a"], ["b"])
    for question in (model.score, model.score_pairs):
        with pytest.raises(ValueError, match=r"one text for each of X \(2\); got 1"):
            question(["a", "a"], ["b"])


def test_bleu_by_hand():
    said, good = "the cat sat on it".split(), "the cat sat on the mat".split()
    wanted = np.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert bleu([said], [[good]]) == pytest.approx(wanted)
    assert bleu([good], [[said, good]]) == 1.0
    # counts of the corpus are summed; a word counts at most as often as in one reference
    assert bleu([["a", "a", "a"], ["b"]], [[["a", "a"]], [["b"]]], n=1) == pytest.approx(3 / 4)
    assert bleu([["a"]], [[["b"]]]) == 0.0
    with pytest.raises(ValueError, match="references for each of 2 sentences; got 1"):
        bleu([said, said], [[good]])


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


def test_only_the_latest_facts_are_remembered():
    model = MemoryNetwork(1, n_facts=2, training=Training(1), random_state=0)
    model.fit(["ann is in the hall\nwhere is ann", "bob is in the garden\nwhere is bob"], ["hall", "garden"])
    facts, question = model._tensors(["a b\nann is\nbob in the hall\nwhere is ann", "where is bob"])
    number = {word: i + 4 for i, word in enumerate(model.vocabulary_)}
    assert facts.shape == (2, 2, 4) and question.shape == (2, 4)
    assert facts[0, 0].tolist() == [number[w] for w in ("bob", "in", "the", "hall")]  # the latest first
    assert facts[0, 1].tolist() == [number["ann"], number["is"], 0, 0]
    assert question[0].tolist() == [number[w] for w in ("where", "is", "ann")] + [0]
    assert (facts[1] == 0).all()
