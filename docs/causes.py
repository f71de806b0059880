"""The pages of ``corollary.diagnose``: one per cause, from the table of rules, each with an example that can be run."""

from __future__ import annotations

from corollary.diagnose.rules import FAMILIES, RULES, Rule
from corollary.formulas import Formula

__all__ = ["EXAMPLES", "PREAMBLE", "cause_pages", "program"]

PREAMBLE = """\
import torch
from torch import nn
from torch.nn import functional as F

import corollary

torch.manual_seed(0)
X = torch.randn(600, 8)
y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).long()  # two classes
t = X[:, :1] + X[:, 1:2] * X[:, 2:3]  # a number


def net(*sizes, act=nn.ReLU):
    parts = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*parts[:-1])


def fit(model, X, y, loss=F.cross_entropy, epochs=15, batch=32, make=torch.optim.Adam, lr=3e-3, **settings):
    optimizer = make([p for p in model.parameters() if p.requires_grad], lr=lr, **settings)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(batch):
            optimizer.zero_grad()
            loss(model(X[rows]), y[rows]).backward()
            optimizer.step()
    model.eval()
    return optimizer
"""

END = 'report = corollary.diagnose(model, (X[:400], y[:400]), (X[400:], y[400:]), loss="cross_entropy")'
KNOWN = END.replace("diagnose(", "diagnose(\n    ")[:-1] + ", optimizer=optimizer, batch_size=32\n)"


EXAMPLES: dict[str, str] = {
    "not-finite-data": f"X[7, 2] = float(\"nan\")\nmodel = net(8, 16, 2)\n{END}",
    "overflow": f"""\
class Exponential(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(8, 16, 2)

    def forward(self, x):
        e = torch.exp(300 * self.body(x))  # infinite from 89 on
        return torch.log(e / e.sum(1, keepdim=True))


model = Exponential()
{END.replace("cross_entropy", "nll")}""",
    "unscaled-inputs": f"X[:, 3] *= 1000\nmodel = net(8, 16, 2)\nfit(model, X[:400], y[:400])\n{END}",
    "unscaled-targets": """\
y = 300_000 + 90_000 * t
model = net(8, 32, 1)
fit(model, X[:400], y[:400], F.mse_loss)
report = corollary.diagnose(model, (X[:400], y[:400]), (X[400:], y[400:]), loss="mse")""",
    "constant-features": f"X[:, 3:6] = 1.5\nmodel = net(8, 16, 2)\nfit(model, X[:400], y[:400])\n{END}",
    "duplicate-features": f"X[:, 5:] = X[:, :3]\nmodel = net(8, 16, 2)\nfit(model, X[:400], y[:400])\n{END}",
    "train-test-overlap": f"""\
X[400:500], y[400:500] = X[:100], y[:100]
model = net(8, 16, 2)
fit(model, X[:400], y[:400])
{END}""",
    "distribution-shift": f"X[400:, :4] += 2\nmodel = net(8, 16, 2)\nfit(model, X[:400], y[:400])\n{END}",
    "target-leak": f"""\
X[:, 7] = 2.0 * y - 1 + 0.05 * torch.randn(600)
model = net(8, 16, 2)
fit(model, X[:400], y[:400])
{END}""",
    "misaligned-labels": f"y = (X[:, 0] > 0).long().roll(1)\nmodel = net(8, 16, 2)\nfit(model, X[:400], y[:400])\n{END}",
    "no-signal": f"y = torch.randint(0, 2, (600,))\nmodel = net(8, 16, 2)\nfit(model, X[:400], y[:400], epochs=6)\n{END}",
    "label-noise": f"""\
y = (X[:, 0] + X[:, 1] > 0).long()
wrong = torch.rand(400) < 0.3
y[:400] = torch.where(wrong, 1 - y[:400], y[:400])
model = net(8, 16, 2)
fit(model, X[:400], y[:400])
{END}""",
    "class-imbalance": """\
y = (X[:, 0] + X[:, 1] + 0.7 * torch.randn(600) > 2.6).long()  # one in twenty
model = net(8, 4, 2)
fit(model, X[:400], y[:400], epochs=6)
report = corollary.diagnose(model, (X[:400], y[:400]), (X[400:], y[400:]), loss="cross_entropy")""",
    "double-softmax": f"""\
model = nn.Sequential(*net(8, 16, 2), nn.Softmax(1))
fit(model, X[:400], y[:400])
{END}""",
    "wrong-loss": """\
model = net(8, 16, 1)
loss = lambda output, target: ((output - target) ** 2).mean()  # (n, 1) minus (n,) is a table
fit(model, X[:400], t[:400, 0], loss)
report = corollary.diagnose(model, (X[:400], t[:400, 0]), (X[400:], t[400:, 0]), loss=loss)""",
    "output-range": """\
model = nn.Sequential(*net(8, 32, 1), nn.ReLU())  # half of the targets are negative
fit(model, X[:400], t[:400], F.mse_loss)
report = corollary.diagnose(model, (X[:400], t[:400]), (X[400:], t[400:]), loss="mse")""",
    "stochastic-evaluation": f"""\
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 2))
fit(model, X[:400], y[:400])
model.train()  # eval() was forgotten
{END}""",
    "detached-parameters": f"""\
class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = net(8, 6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)).detach())


model = Cut()
fit(model, X[:400], y[:400])
{END}""",
    "frozen-parameters": f"""\
model = net(8, 6, 6, 2)
for p in model[:-1].parameters():
    p.requires_grad_(False)  # but nothing was loaded into them
fit(model, X[:400], y[:400])
{END}""",
    "gradients-not-cleared": """\
class Step:
    model = None

    def __call__(self, model, batch):
        if model is not self.model:
            self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), 0.1)
        F.cross_entropy(model(batch[0]), batch[1]).backward()  # no zero_grad before it
        self.optimizer.step()


model, step = net(8, 16, 2), Step()
for rows in torch.randperm(400).split(32):
    step(model, (X[rows], y[rows]))
report = corollary.diagnose(model, (X[:400], y[:400]), loss="cross_entropy", step=step)""",
    "symmetric-initialisation": f"""\
model = net(8, 16, 2)
for p in model.parameters():
    nn.init.constant_(p, 0.1)
fit(model, X[:400], y[:400])
{END}""",
    "saturated-units": f"""\
model = net(8, 32, 32, 2, act=nn.Tanh)
for p in model[:-1].parameters():
    nn.init.normal_(p, 0, 5)
fit(model, X[:400], y[:400])
{END}""",
    "dead-units": f"""\
model = net(8, 32, 32, 2)
nn.init.constant_(model[0].bias, -4)
fit(model, X[:400], y[:400])
{END}""",
    "exploding-gradient": f"""\
model = net(8, *[32] * 12, 2)
for layer in model[::2]:
    nn.init.normal_(layer.weight, 0, 0.8)  # each layer stretches
initial = {{k: v.clone() for k, v in model.state_dict().items()}}
fit(model, X[:400], y[:400], lr=1e-3, make=torch.optim.SGD)
{KNOWN.replace("optimizer=optimizer, batch_size=32", "initial=initial")}""",
    "vanishing-gradient": f"""\
model = net(8, *[32] * 10, 2, act=nn.Sigmoid)
fit(model, X[:400], y[:400], epochs=5)
{END}""",
    "oversmoothing": """\
class Averages(nn.Module):
    def __init__(self, hops):
        super().__init__()
        self.hops, self.head = hops, net(8, 16, 3)

    def forward(self, x, adjacency):
        for _ in range(self.hops):
            x = adjacency @ x
        return self.head(x)


group = torch.randint(0, 3, (150,))
edge = torch.rand(150, 150) < torch.where(group[:, None] == group, 0.15, 0.03)
A = ((edge | edge.T).float() + torch.eye(150)).clamp(max=1)
A = A / A.sum(1, keepdim=True)
nodes = torch.randn(150, 8) + F.one_hot(group, 8)
seen = torch.arange(150) < 90
known, hidden = torch.where(seen, group, -100), torch.where(seen, -100, group)
model = Averages(20)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(60):
    optimizer.zero_grad()
    F.cross_entropy(model(nodes, A), known).backward()
    optimizer.step()
report = corollary.diagnose(model, ((nodes, A), known), ((nodes, A), hidden), loss="cross_entropy")""",
    "receptive-field-too-small": f"""\
class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter, self.head = nn.Conv1d(1, 16, 3), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(torch.relu(self.filter(x.unsqueeze(1))[:, :, -1]))


X = torch.randn(600, 20)
y = (X[:, 2:8].sum(1) > 0).long()  # ten steps and more before what the model sees
model = Last()
fit(model, X[:400], y[:400])
{END}""",
    "bottleneck": f"""\
y = torch.randint(0, 6, (600,))
X = 0.5 * torch.randn(600, 8) + 1.2 * torch.randn(6, 8)[y]
model = net(8, 64, 1, 64, 6, act=nn.Tanh)
fit(model, X[:400], y[:400], epochs=25)
{END}""",
    "batch-too-small": """\
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
y = (X[:, 0] + X[:, 1] > 0).long()
optimizer = fit(model, X[:400], y[:400], epochs=3, batch=2, make=torch.optim.SGD, lr=0.1)
report = corollary.diagnose(
    model, (X[:400], y[:400]), (X[400:], y[400:]), loss="cross_entropy", optimizer=optimizer, batch_size=2
)""",
    "learning-rate-too-large": f"model = net(8, 32, 32, 2)\noptimizer = fit(model, X[:400], y[:400], lr=0.5)\n{KNOWN}",
    "learning-rate-too-small": f"model = net(8, 32, 32, 2)\noptimizer = fit(model, X[:400], y[:400], lr=1e-6)\n{KNOWN}",
    "weight-decay-too-large": f"""\
model = net(8, 32, 2)
optimizer = fit(model, X[:400], y[:400], weight_decay=0.5)
{KNOWN}""",
    "dropout-too-large": f"""\
model = nn.Sequential(
    nn.Linear(8, 32),
    nn.ReLU(),
    nn.Dropout(0.95),
    nn.Linear(32, 32),
    nn.ReLU(),
    nn.Dropout(0.95),
    nn.Linear(32, 2),
)
optimizer = fit(model, X[:400], y[:400])
{KNOWN}""",
    "capacity-too-small": f"""\
X = 2 * torch.rand(600, 2) - 1
y = (X.square().sum(1) > 0.6).long()  # inside a circle or outside
model = nn.Linear(2, 2)
fit(model, X[:400], y[:400], lr=1e-2)
{END}""",
    "overfit": """\
y = (X[:, 0] + X[:, 1] + torch.randn(600) > 0).long()
X, y = X[200:], y[200:]
model = net(8, 256, 256, 2)
optimizer = fit(model, X[:80], y[:80], epochs=150)
report = corollary.diagnose(model, (X[:80], y[:80]), (X[80:], y[80:]), loss="cross_entropy")""",
    "posterior-collapse": """\
class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = net(8, 32, 8), net(4, 32, 8)

    def encode(self, x):
        return self.into(x).chunk(2, 1)

    def forward(self, x):
        mean, log_variance = self.encode(x)
        z = mean + (log_variance / 2).exp() * torch.randn_like(mean) * self.training
        return self.out(z), mean, log_variance

    def sample(self, n):
        return self.out(torch.randn(n, 4))


def loss(output, x, beta=50):
    drawn, mean, log_variance = output
    kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
    return ((drawn - x) ** 2).sum(1).mean() + beta * kl.mean()


X = torch.randn(600, 3) @ torch.randn(3, 8)
model = Coder()
fit(model, X, X, loss)
report = corollary.diagnose(model, X, loss=loss)""",
    "mode-collapse": """\
class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(4, 16, 2)

    def forward(self, z):
        return self.body(z)

    def sample(self, n):
        return torch.tensor([2.0, 0.0]) + 0.1 * self.body(torch.randn(n, 4))  # one place


angle = torch.randint(0, 8, (600,)) * torch.pi / 4
X = 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(600, 2)
model = Sampler()
report = corollary.diagnose(model, X)""",
    "miscalibrated": f"""\
class Sharp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(8, 16, 2)

    def forward(self, x):
        return self.body(x) if self.training else 30 * self.body(x)


y = (X[:, 0] + X[:, 1] + 0.7 * torch.randn(600) > 0).long()  # classes overlap
model = Sharp()
fit(model, X[:400], y[:400], epochs=4)
{END}""",
    "adversarially-fragile": f"""\
y = torch.arange(600) % 2
X = torch.randn(600, 300) + 0.15 * (2 * y[:, None] - 1)  # every column knows a little
X[:, 0] = 2.5 * (2 * y - 1) * torch.where(torch.rand(600) < 0.92, 1, -1)
model = net(300, 32, 2)
fit(model, X[:400], y[:400], lr=1e-3, epochs=8)
{END}""",
}  # fmt: skip


def program(cause: str) -> str:
    """Return a whole program that ends with a report whose first finding is the cause."""
    return f"{PREAMBLE}\n\n{EXAMPLES[cause]}\nprint(report.findings[0])\n"


def cause_pages(formulas: list[Formula]) -> dict[str, str]:
    """Return the page of every cause and their index, by name below ``docs``."""
    by_id = {f.id: f for f in formulas}
    found = {f"diagnose/{cause}.md": _page(cause, rule, by_id[rule.formula]) for cause, rule in RULES.items()}
    found["diagnose/index.md"] = _index()
    return found


def _index() -> str:
    lines = [
        "# What is wrong with my training?",
        "",
        "`corollary.diagnose(model, data, validation)` names the most probable cause first. The causes, upstream first:",
        "the first that is found usually explains those below it. Generated from the table of rules by `make docs`.",
        "",
    ]
    for family in FAMILIES:
        lines += [f"## {family}", "", "| cause | how it looks |", "|---|---|"]
        lines += [f"| [{c}]({c}.md) | {r.looks} |" for c, r in RULES.items() if r.family == family]
        lines.append("")
    return "\n".join(lines)


def _page(cause: str, rule: Rule, formula: Formula) -> str:
    code = ["```python", *rule.code.splitlines(), "```", ""] if rule.code else []
    lines = [
        f"# {cause}", "", f"A fault of the {rule.family} ([all causes](index.md)); severity *{rule.severity}*.", "",
        "## How it looks", "", rule.looks, "",
        "## Why it happens", "", formula.statement, "", f"$${formula.latex}$$", "",
        f"Formula [`{formula.id}`](../formulary.md#{formula.id}).", "",
        "## How it is measured", "", f"{rule.measured[:1].upper()}{rule.measured[1:]}. It fires {rule.fires}.", "",
        "## How it is repaired", "", rule.advice, "", *code,
        "## An example that can be run", "", "```python", *program(cause).rstrip().splitlines(), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)
