"""What must not be taken for a fault: rounding, repetition by chance, early stopping, windows that look ahead."""

import numpy as np
import pytest
import torch
from torch import nn

from corollary import diagnose
from corollary.diagnose.baselines import Baselines, Problem, problem, scaled
from corollary.diagnose.leak import _association, _surely
from corollary.diagnose.outcome import _turned
from corollary.diagnose.overlap import _by_chance
from corollary.diagnose.relation import _sliding
from corollary.diagnose.samples import Samples
from corollary.diagnose.tables import Reader, joined
from corollary.diagnose.widening import widened


def test_a_constant_column_in_single_precision_says_nothing():
    X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    X[:, 1] = np.float32(-0.8113)  # a border pixel after (x - mean) / std: its mean is off by rounding
    S = scaled(X)
    assert not S[:, 1].any()
    y = np.arange(300) % 3
    assert _association(S, Problem(S, y, True, np.arange(300)))[1] == 0


def test_all_right_of_few_rows_is_less_than_all_right_of_many():
    def sure(n, valid=None):
        p = Problem(np.zeros((n, 1)), np.arange(n) % 3, True, np.arange(n))
        base = Baselines(p, 1 / 3, held={"trees": 1.0})
        if valid is not None:
            base.valid_problem, base.valid = p, {"trees": valid}
        return _surely(base, base, with_valid=valid is not None)[0]

    assert sure(112) < 0.97 < sure(400)
    assert sure(400, valid=0.95) < 0.97


def tokens(rows):
    return Samples.of(torch.from_numpy(np.array(rows)), torch.zeros(len(rows), dtype=torch.long))


def test_windows_of_a_text_repeat_by_chance_and_long_rows_do_not():
    rng = np.random.default_rng(0)
    chain = [0]
    for _ in range(4000):  # a letter is followed by one of two
        chain.append(int((3 * chain[-1] + rng.integers(1, 3)) % 27))
    text = np.lib.stride_tricks.sliding_window_view(np.array(chain), 8)[::2]
    assert _by_chance(tokens(text), 0.2)
    noise = rng.integers(0, 27, (1000, 8))
    assert not _by_chance(tokens(np.concatenate([noise, noise])), 0.2)  # each copied once


def test_the_end_of_a_history_is_not_the_model_that_went_back():
    history = np.array([1.0, 0.6, 0.5, 0.8, 1.2])
    assert _turned(history, 0.5) == pytest.approx(1.0)
    assert _turned(history, 1.2) == pytest.approx(2.4)
    assert _turned(history, 12.0) == pytest.approx(2.4)  # another scale: what was written down counts


def test_the_next_word_is_not_in_the_window_before_it():
    text = torch.from_numpy(np.random.default_rng(0).integers(0, 20, (60, 31)))
    samples = Samples.of(text[:, :-1], text[:, 1:])
    p = problem(samples, "classes", Reader(samples))
    assert not (p.X == p.y[:, None]).mean(0).max() > 0.5


def test_windows_of_one_series_are_known_from_windows_of_many():
    series = np.random.default_rng(0).normal(size=500)
    windows = np.lib.stride_tricks.sliding_window_view(series, 24)
    assert _sliding(windows)
    assert _sliding(windows[::3, ::-1])
    assert not _sliding(windows[np.random.default_rng(1).permutation(len(windows))])


class Kept(nn.Module):
    def __init__(self, A):
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("A", A)

    def forward(self, x):
        return self.A @ self.layer(x)


@pytest.mark.parametrize("form", ["matrix", "edges"])
def test_a_graph_that_the_module_keeps_makes_its_nodes_one_sample(form):
    edges = torch.stack([torch.arange(40), torch.arange(40).roll(1)])
    A = torch.zeros(40, 40).index_put((edges[0], edges[1]), torch.tensor(1.0)) if form == "matrix" else edges
    samples = Samples.of(torch.randn(40, 5), torch.arange(40) % 3)
    assert samples.fitted(Kept(A)).whole
    assert not samples.fitted(Kept(torch.zeros(39, 39))).whole


def test_which_kinds_of_nodes_are_joined_is_counted():
    rng = np.random.default_rng(0)
    kind, A = rng.integers(0, 3, (50, 6)), rng.random((50, 6, 6)) < 0.4
    samples = Samples.of((torch.eye(3)[kind], torch.from_numpy(A).float()), torch.arange(50) % 2)
    table = joined(samples, np.arange(50))
    counted = ((kind[:, :, None] == 0) & (kind[:, None] == 1) & A).sum((1, 2))
    assert (table == counted[:, None]).all(0).any()


def test_windows_reach_as_far_as_is_asked():
    net = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1))
    widened(net, 30)
    assert net[0].kernel_size[0] >= 30
    assert net(torch.zeros(1, 1, 60)).shape == (1, 4, 60)


def test_few_rows_do_not_prove_that_there_is_no_signal():
    X = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    y = (X[:, :3].sum(1) > 0).long()
    model = nn.Linear(40, 2)
    report = diagnose(model, (X[:40], y[:40]), (X[40:], y[40:]), loss="cross_entropy")
    assert "no-signal" not in [f.cause for f in report.alarms]
