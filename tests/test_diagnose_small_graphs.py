"""``diagnose`` on many small graphs that were put together as one, as PyTorch Geometric's loaders do."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from corollary import diagnose
from corollary.diagnose.reading import read
from corollary.diagnose.samples import Samples

data = pytest.importorskip("torch_geometric.data")
loader = pytest.importorskip("torch_geometric.loader")


def graphs(n=240, seed=0):
    g = torch.Generator().manual_seed(seed)
    made = []
    for i in range(n):
        nodes = int(torch.randint(6, 12, (1,), generator=g))
        edge = torch.rand(nodes, nodes, generator=g) < 0.4
        edge = (edge | edge.T).fill_diagonal_(False)
        x = torch.randn(nodes, 3, generator=g)
        x[:, 0] += i % 2
        x[:, 2] = 1
        made.append(data.Data(x=x, edge_index=edge.nonzero().T.contiguous(), y=torch.tensor([i % 2])))
    return made


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.near, self.answer = nn.Linear(3, 16), nn.Linear(3, 16), nn.Linear(16, 2)

    def forward(self, x, edge_index, batch):
        near = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        h = (self.own(x) + 0.1 * self.near(near)).relu()
        return self.answer(h.new_zeros(int(batch.max()) + 1, 16).index_add(0, batch, h) / 8)


class OfObject(Sums):
    def forward(self, given):
        return super().forward(given.x, given.edge_index, given.batch)


def trained(kind, made):
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(30):
        for b in loader.DataLoader(made, 32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(Sums.forward(model, b.x, b.edge_index, b.batch), b.y).backward()
            optimizer.step()
    return model.eval(), optimizer


@pytest.mark.parametrize("kind", [Sums, OfObject])
def test_graphs_are_taken_in_batches_and_read_as_rows(kind):
    made = graphs()
    model, optimizer = trained(kind, made[:160])
    train, valid = (loader.DataLoader(part, 32) for part in (made[:160], made[160:]))
    report = diagnose(model, train, valid, loss="cross_entropy", optimizer=optimizer, batch_size=32)
    assert report.healthy
    assert not report.unmeasured
    assert report.measurements["baseline valid score"] > 0.8
    wrong = [g.clone() for g in made[:160]]
    for g, other in zip(wrong, torch.randperm(160, generator=torch.Generator().manual_seed(0)).tolist()):
        g.y = made[other].y
    found = diagnose(model, loader.DataLoader(wrong, 32), valid, loss="cross_entropy").alarms[0]
    assert found.cause == "misaligned-labels"


@pytest.mark.parametrize("kind", [Sums, OfObject])
def test_some_of_the_graphs_get_the_answers_that_they_get_among_all(kind):
    made = graphs(20)
    model = kind().eval()
    whole = data.Batch.from_data_list(made)
    forms = [read(whole, model).fitted(model)]
    if kind is Sums:
        forms.append(Samples.of((whole.x, whole.edge_index, whole.batch), whole.y))
    rows = torch.tensor([7, 3, 3, 19, 0])
    for samples in forms:
        assert samples.n == 20
        part = samples.take(rows)
        assert torch.equal(part.y, whole.y[rows])
        assert torch.allclose(part.call(model), samples.call(model)[rows], atol=1e-6)
        assert len(part.graphs.table(part.x)) == 5
    one = Samples.of((whole.x, whole.edge_index), torch.randint(0, 2, (len(whole.x),)))
    assert one.graphs is None and one.whole
