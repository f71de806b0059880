"""Texts, signals and images of which every place has a class: what simple models, a reference net and the model itself tell."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.baselines import problem
from corollary.diagnose.exam import Exam
from corollary.diagnose.label_noise import _own_guesses
from corollary.diagnose.reading import prepared
from corollary.diagnose.reference_nets import PerPlace, net_gain
from corollary.diagnose.settings import Settings
from corollary.diagnose.words import PRIOR, Words, told

WORDS = 40


def exam_of(model, data, validation=None, loss="cross_entropy"):
    known = {"loss": loss, "history": None, "initial": None, "step": None}
    return Exam(prepared(model, data, validation, settings=Settings(), **known), 30.0)


def each_word(z, y):
    return F.cross_entropy(z.flatten(0, 1), y.flatten(), ignore_index=-100)


def groups():
    """Return which of two groups a word is of: its number does not tell."""
    return torch.arange(WORDS)[torch.randperm(WORDS, generator=torch.Generator().manual_seed(1))] % 2


def sentences(n, back, seed, wrong=0.0):
    """Return padded texts whose tags are the group of the word and that of a word some places before."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(1, WORDS, (n, 12), generator=rng)
    before = F.pad(groups()[x], (back, 0))[:, :12]
    y = 2 * groups()[x] + before
    drawn = torch.randint(0, 4, y.shape, generator=rng)
    y = torch.where(torch.rand(y.shape, generator=rng) < wrong, drawn, y)
    out = torch.arange(12) >= torch.randint(back + 4, 13, (n, 1), generator=rng)
    return x.masked_fill(out, 0), y.masked_fill(out, -100)


class Tagger(nn.Module):
    """Knows the tags, or as much of them as the word itself tells."""

    def __init__(self, back):
        super().__init__()
        self.table = nn.Embedding(WORDS, 1)
        self.table.weight.data[:, 0] = 2.0 * groups() - 1
        self.scores = nn.Linear(2, 4)
        self.scores.weight.data[:] = 3 * torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]])
        self.scores.bias.data.zero_()
        self.back = back

    def forward(self, x):
        h = self.table(x)
        before = F.pad(h, (0, 0, self.back, 0), value=-1.0)[:, : x.shape[1]] if self.back else 0 * h
        return self.scores(torch.cat([h, before], 2))


# --- frequencies ---------------------------------------------------------------------------------------------


def test_new_texts_get_the_shares_that_words_have_in_training():
    x, y = np.array([[1, 2], [1, 2], [1, 3], [2, 3]]), np.array([[0, 1], [0, 1], [1, 1], [0, -100]])
    train = Words(x, y, np.argwhere(y != -100), range(1))
    _, new = told(
        train, Words(np.array([[1, 9]]), np.zeros((1, 2), int), np.array([[0, 0], [0, 1]]), range(1))
    )
    counts = np.bincount([0, 1, 0, 1, 1, 1, 0], minlength=3)
    prior = (counts + 1) / (7 + 3)
    ones = (np.array([2, 1, 0]) + PRIOR * prior) / (3 + PRIOR)  # of the three places with word 1
    np.testing.assert_allclose(new[0], [*(ones - prior)[:2], 0], atol=1e-12)
    np.testing.assert_allclose(new[1], [0, 0, 1], atol=1e-12)  # no training text has word 9


def test_a_word_of_one_text_says_nothing_there():
    x = np.repeat(np.arange(1, 41)[:, None], 5, 1)
    y = np.repeat((np.arange(40) % 2)[:, None], 5, 1)
    table, _ = told(Words(x, y, np.argwhere(y >= 0), range(1)))
    np.testing.assert_allclose(table[:, :2], 0, atol=1e-12)


def test_the_word_that_decides_is_found_among_many():
    x, y = sentences(400, 5, 0)
    at = np.argwhere(y.numpy() != -100)
    table, _ = told(Words(x.numpy(), y.numpy(), at, range(-11, 12)))
    line = np.linalg.lstsq(np.c_[table, np.ones(len(table))], np.eye(4)[y.numpy()[tuple(at.T)]], rcond=None)[
        0
    ]
    said = (np.c_[table, np.ones(len(table))] @ line).argmax(1)
    assert (said == y.numpy()[tuple(at.T)]).mean() > 0.95


# --- what is said of taggers -----------------------------------------------------------------------------------


def test_a_tagger_that_is_right_gets_no_alarm():
    report = corollary.diagnose(Tagger(1), sentences(500, 1, 0), sentences(250, 1, 1), loss=each_word)
    assert report.measurements["valid score"] == 1
    assert report.measurements["baseline score"] > 0.95
    assert not report.alarms


@pytest.mark.parametrize("wrong", [0.0, 0.35])
def test_a_tagger_that_does_not_see_the_word_that_decides(wrong):
    train, valid = sentences(1200, 5, 0, wrong), sentences(500, 5, 1)
    found = {f.cause for f in corollary.diagnose(Tagger(0), train, valid, loss=each_word).alarms}
    assert "receptive-field-too-small" in found
    assert ("label-noise" in found) == bool(wrong)


# --- the model as a judge, and a net beside it -----------------------------------------------------------------


def marks(n, seed):
    """Return images of two values whose pixels are marked by themselves and by those five to the left, round the edge."""
    x = torch.randint(0, 2, (n, 1, 12, 12), generator=torch.Generator().manual_seed(seed)).float()
    return 2 * x - 1, (2 * x + x.roll(5, 3))[:, 0].long()


def test_errors_of_simple_models_on_masks_are_no_wrong_labels_where_the_model_is_right():
    model = nn.Conv2d(1, 4, (1, 11), padding=(0, 5), padding_mode="circular")
    model.weight.data.zero_()
    model.weight.data[:, 0, 0, 5] = 4 * torch.tensor([-1.0, -1, 1, 1])
    model.weight.data[:, 0, 0, 0] = 4 * torch.tensor([-1.0, 1, -1, 1])
    model.bias.data.zero_()
    report = corollary.diagnose(model, marks(120, 0), marks(80, 1), loss="cross_entropy")
    assert report.measurements["details"]["confident errors"][0] > 0.3
    assert not report.alarms


@pytest.mark.parametrize("last", [True, False])
def test_answers_are_read_at_the_places_of_simple_models(last):
    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(WORDS, 4)

        def forward(self, x):
            return self.table(x) if last else self.table(x).movedim(-1, 1)

    model, data, new = Scores(), sentences(60, 1, 0), sentences(40, 1, 1)
    loss = each_word if last else "cross_entropy"
    exam = exam_of(model, data, new, loss)
    v = exam.baselines.valid_problem
    words = new[0].numpy()[v.rows, v.places[:, 0]]
    expected = model.table.weight.detach().softmax(1).numpy()[words]
    np.testing.assert_allclose(_own_guesses(exam, v), expected, rtol=1e-5)


def test_marks_of_two_kinds_are_read_as_two_probabilities():
    torch.manual_seed(0)
    x, y = marks(40, 0)
    data = (x, (y > 1).float()[:, None])
    model = nn.Conv2d(1, 1, 3, padding=1)
    exam = exam_of(model, data, data, "bce_with_logits")
    v = exam.baselines.valid_problem
    with torch.no_grad():
        p = model(x).sigmoid().numpy()[v.rows, 0, v.places[:, 0], v.places[:, 1]]
    np.testing.assert_allclose(_own_guesses(exam, v), np.stack([1 - p, p], 1), rtol=1e-5)


def test_steps_of_signals_have_windows_wherever_channels_are():
    x = torch.randn(60, 3, 20)
    y = (x[:, 0] > 0).long()
    for model, given in ((nn.Conv1d(3, 2, 1), x), (nn.Linear(3, 2), x.movedim(1, 2))):
        loss = "cross_entropy" if given is x else each_word
        exam = exam_of(model, (given, y), loss=loss)
        found = problem(exam.subject.train, "classes", exam.reader)
        assert found.places is not None
        assert found.X.shape[1] == 3 * 9
        assert exam.baselines.score > 0.9


def test_a_net_with_an_answer_per_word_learns_what_words_tell_together_only():
    x, y = sentences(400, 1, 0)
    y = torch.where(y < 0, y, (y > 1).long() ^ (y % 2))
    model = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, 2))
    exam = exam_of(model, (x, y), loss=each_word)
    assert net_gain(exam) > 0.8
    assert exam.baselines.score < 1


def test_a_net_is_not_asked_for_the_word_that_it_is_shown():
    x = torch.randint(0, WORDS, (80, 10))
    model = nn.Sequential(nn.Embedding(WORDS, 4), nn.Linear(4, WORDS))
    assert np.isnan(net_gain(exam_of(model, (x, x), loss=each_word)))


def test_next_words_are_not_looked_at():
    torch.manual_seed(0)
    net = PerPlace(0, 5, 1, words=9, back=True)
    x = torch.randint(0, 9, (3, 30))
    other = x.clone()
    other[:, 20:] = (x[:, 20:] + 1) % 9
    same = (net(x) == net(other)).all(1)
    assert same[:, :20].all()
    assert not same[:, 20:].any()
    text = torch.randint(0, 9, (80, 13))
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    assert net_gain(exam_of(model, (text[:, :-1], text[:, 1:]), loss=each_word)) < 0.2
