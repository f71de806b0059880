"""Faults of a descent whose settings are known: one is changed at a time, and the weights and the history speak too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.report import Finding
from corollary.diagnose.trials import GOOD, Room, Trials, dropout_rate, say
from corollary.diagnose.weights import State

__all__ = ["abnormal", "with_settings"]

ODD = 0.5  # decades (or their like) beyond the usual from which a setting is a suspect by itself
WITHIN = -0.5  # decades: so far from too small that a rate is usual without doubt
MUCH = 0.2  # of the loss of a constant answer: what is left is more than little beside what was learned
# standard errors: of k rows that differ, all for one of two models, the difference is k +- sqrt(k)
CLEAR = 3.0
LITTLE = 0.03  # the same: no more than noise of the last steps leaves
LARGE, SMALL, DECAY = "learning-rate-too-large", "learning-rate-too-small", "weight-decay-too-large"
DROPOUT, BATCH = "dropout-too-large", "batch-too-small"
USUAL = {  # the largest and the least rate that are usual, where they are not Adam's
    "adadelta": (3.0, 3e-2), "adagrad": (0.2, 1e-3), "lbfgs": (2.0, 1e-2), "adafactor": (5e-2, 1e-4), "rprop": (0.1, 1e-4),
    "muon": (0.1, 1e-4),
}  # fmt: skip


def abnormal(exam: Exam) -> dict[str, float]:
    """Return how many decades a setting lies beyond the usual, where it is known."""
    s = exam.subject.settings
    found: dict[str, float] = {}
    if s.learning_rate:
        plain = s.optimizer is None or s.optimizer in ("sgd", "asgd")
        lasting = (1 - s.momentum) ** 0.7  # momentum adds steps up
        high, low = (0.5 * lasting, 5e-3 * lasting) if plain else USUAL.get(s.optimizer, (1e-2, 1e-4))
        found[LARGE] = math.log10(s.learning_rate / high)
        found[SMALL] = math.log10(low / s.learning_rate)
    if s.weight_decay:
        usual = 0.3 if s.decoupled else 1e-2
        found[DECAY] = math.log10(s.weight_decay / usual)
    if s.batch_size:
        found[BATCH] = math.log2(8 / s.batch_size) / 2
    p = dropout_rate(exam)
    if p:
        found[DROPOUT] = (p - 0.5) * 4
    return found


def oscillation(losses: np.ndarray) -> tuple[float, float]:
    """Return how much a loss goes up on its way, over its level, and its end over its least value."""
    losses = losses[np.isfinite(losses)]
    if len(losses) < 4:
        return 0.0, 1.0
    half = losses[len(losses) // 2 :]
    ups = np.clip(np.diff(half), 0, None).mean() / max(1e-12, np.abs(half).mean())
    return float(ups), float(losses[-1] / max(1e-12, losses.min()))


@dataclass
class Evidence:
    """What the settings, the runs, the weights and the history say of a descent."""

    room: Room
    state: State
    odd: dict[str, float]  # decades beyond the usual, by cause
    control: Result
    runs: dict[str, Result]  # with one setting changed, by cause
    gains: dict[str, float]
    ups: float
    rise: float
    fine: bool
    shrunk: float  # size of the weights over that of the initial ones
    rows: float  # that were asked for their class; infinitely many where answers are numbers

    def strange(self, cause: str) -> float:
        """How many decades its setting lies beyond the usual, as far as that is known."""
        return self.odd.get(cause, 0.0)

    def gained(self, cause: str) -> float:
        """The fall of the loss with its setting changed, as a share of that of a constant answer."""
        return (self.room.loss - self.runs[cause].loss) / max(self.room.scale, 1e-12)

    def helps(self, cause: str) -> bool:
        """Whether a model that does not do what it should gains a little by the change."""
        return not self.fine and self.gains[cause] > 0.05

    def surely(self, cause: str) -> bool:
        """Whether more answers are right with its setting changed, by more rows than chance makes differ; of classes only."""
        run = self.runs[cause]
        known = math.isfinite(run.valid_score) and math.isfinite(self.room.valid_score)
        gain = run.valid_score - self.room.valid_score if known else run.score - self.room.score
        return not gain * self.rows < CLEAR**2

    def harms(self, cause: str) -> bool:
        """Whether new rows are answered worse with its setting changed: what holds a model back there is of use."""
        return self.runs[cause].valid_loss > self.control.valid_loss

    @property
    def decays(self) -> bool:
        """Whether less decay helps such a model, or its weights have collapsed."""
        return not self.fine and (self.gains[DECAY] > 0.05 or self.state.ratio < 0.3)

    @property
    def stuck(self) -> bool:
        """Whether little was learned."""
        return self.room.loss > 0.5 * self.room.scale

    @property
    def wild(self) -> bool:
        """Whether the loss swings or has risen."""
        return self.rise > 1.5 or self.ups > 0.08

    @property
    def alone(self) -> float:
        """The share of the way to where the changes lead, that it goes as soon as it goes on as it is."""
        least = min(r.loss for r in self.runs.values() if math.isfinite(r.loss))
        return (self.room.loss - self.control.loss) / max(self.room.loss - least, 1e-12)

    @property
    def arrives(self) -> bool:
        """Whether it gets where the changes lead as soon as it goes on as it is."""
        return self.alone > 0.5


Test = Callable[[Evidence, float], bool]

# What speaks for or against a cause beside its run, in this order: cause, when, and the vote from then on.
ARGUMENTS: tuple[tuple[str, Test, Callable[[Evidence, float], float]], ...] = (
    # the weights have travelled; or they have hardly moved, and little was learned
    (SMALL, lambda e, v: e.state.moved > 0.5 and e.strange(SMALL) < ODD, lambda e, v: min(v, 0.0)),
    (SMALL, lambda e, v: e.state.moved < 0.1 and e.stuck and e.gains[SMALL] > 0.05, lambda e, v: max(v, 1.0)),
    (SMALL, lambda e, v: e.state.moved < 0.01 and e.stuck and e.strange(SMALL) > 0.9, lambda e, v: max(v, 1.0)),
    # nothing need be changed
    (SMALL, lambda e, v: e.arrives and e.strange(SMALL) < ODD, lambda e, v: min(v, 0.0)),
    (DROPOUT, lambda e, v: e.arrives and e.strange(DROPOUT) < ODD, lambda e, v: min(v, 0.0)),
    (BATCH, lambda e, v: e.arrives and e.strange(BATCH) < ODD, lambda e, v: min(v, 0.0)),
    (DECAY, lambda e, v: e.arrives and e.fine, lambda e, v: min(v, 0.0)),
    # the history swings, or the rate is unusual
    (LARGE, lambda e, v: e.wild and e.helps(LARGE) and e.strange(LARGE) > -1, lambda e, v: max(v, 0.3) + 0.5),
    (LARGE, lambda e, v: e.helps(LARGE) and e.strange(LARGE) > 0.3, lambda e, v: max(v, 0.2 + e.strange(LARGE))),
    (LARGE, lambda e, v: e.wild and not e.fine and e.strange(LARGE) > 0.3, lambda e, v: max(v, e.strange(LARGE))),
    (LARGE, lambda e, v: not e.wild and e.strange(LARGE) < -1, lambda e, v: v - 0.5),
    # the weights have shrunk, or the decay is unusual
    (DECAY, lambda e, v: v > 0 and e.shrunk < 0.7, lambda e, v: v + 0.5),
    (DECAY, lambda e, v: e.decays and e.strange(DECAY) > 0.3, lambda e, v: max(v, 0.5 + e.strange(DECAY))),
    # the model does what it should, with usual settings
    (SMALL, lambda e, v: e.fine and e.strange(SMALL) < ODD, lambda e, v: v - 0.6 if e.gained(SMALL) > MUCH else -1),
    (LARGE, lambda e, v: e.fine and e.strange(LARGE) < ODD, lambda e, v: v - 0.6 if e.gained(LARGE) > MUCH else -1),
    (DECAY, lambda e, v: e.fine and e.strange(DECAY) < ODD, lambda e, v: v - 0.6 if e.gained(DECAY) > MUCH else -1),
    (DROPOUT, lambda e, v: e.fine and e.strange(DROPOUT) < 0.1, lambda e, v: -1),
    # what a usual rate leaves is next to nothing
    (LARGE, lambda e, v: e.strange(LARGE) < ODD and e.gained(LARGE) < LITTLE, lambda e, v: -1),
    # decay and dropout are there for new rows
    (DECAY, lambda e, v: e.harms(DECAY), lambda e, v: -1),
    (DROPOUT, lambda e, v: e.harms(DROPOUT), lambda e, v: -1),
    # small batches are noisy by nature: of a model that does what it should they leave some of the loss, but no wrong answers
    (BATCH, lambda e, v: e.fine and (e.gained(BATCH) < LITTLE or not e.surely(BATCH)), lambda e, v: -1),
    # and where it is noise that holds it back, going on leads nowhere; a run with larger batches has seen more rows
    (BATCH, lambda e, v: e.fine and e.alone > 0.4, lambda e, v: -1),
)  # fmt: skip


def with_settings(exam: Exam, trials: Trials, room: Room, state: State) -> None:
    """Change one setting at a time, compare with the control, and say what most speaks for."""
    e = _gathered(exam, trials, room, state)
    votes = {cause: _vote(e, cause) for cause in e.runs}
    for cause, when, then in ARGUMENTS:
        if cause in votes and when(e, votes[cause]):
            votes[cause] = then(e, votes[cause])
    exam.facts["votes"] = votes
    _stopped_soon(exam, e)
    best, *others = sorted(votes, key=lambda c: -votes[c])
    if votes[best] <= 0.25:
        return
    say(exam, best, votes[best], room, e.runs[best], e.control)
    if room.matters(e.runs[best], 0.25) and _closes(room, e.runs[best], trials) > 0.6:
        _demote(exam)
        if best in (DROPOUT, DECAY) and "vanishing-gradient" in exam.sure:
            exam.sure["vanishing-gradient"] = 0.5  # the gradient suffices as soon as that is gone
    if best == DECAY and e.strange(DROPOUT) > ODD:
        _dropout_too(exam, trials, room)
    if others and votes[others[0]] > 0.8 and e.strange(others[0]) > ODD:
        say(exam, others[0], votes[others[0]], room, e.runs[others[0]], e.control, sure=0.6)


def _stopped_soon(exam: Exam, e: Evidence) -> None:
    """Note that nothing but more steps is needed: at its own, usual rate the model comes to do what simple models can."""
    control, base = e.control, exam.baselines
    if e.fine or base is None or not base.held or e.strange(SMALL) > WITHIN or e.strange(LARGE) > 0:
        return
    score, theirs = (
        (control.valid_score, base.valid_score)
        if math.isfinite(base.valid_score)
        else (control.score, base.score)
    )
    done = e.arrives and e.room.matters(control, 0.5) and score > theirs - LITTLE
    if done and set(exam.findings) == set():
        said = (
            f"training stopped soon: after {control.steps} more steps as it is, the loss falls from {e.room.loss:.3g} "
            f"to {control.loss:.3g}"
        )
        exam.facts["stopped soon"] = said
        exam.notes.append(Finding("stopped-soon", "info", said=said))


def _gathered(exam: Exam, trials: Trials, room: Room, state: State) -> Evidence:
    """Make the runs."""
    s = exam.subject
    rate = s.settings.learning_rate or GOOD
    control = trials.run("control")
    least = min(r.loss for r in trials.lab.runs.values() if math.isfinite(r.loss))
    runs = {LARGE: _scan(trials, "/", rate, least), SMALL: _scan(trials, "*", rate, least)}
    if s.settings.weight_decay:
        runs[DECAY] = trials.run("no decay", weight_decay=0.0)
    if dropout_rate(exam) > 0:
        runs[DROPOUT] = trials.run("no dropout", dropout=0.0)
    if s.settings.batch_size is not None and s.settings.batch_size <= 8:
        runs[BATCH] = trials.run("batch * 16", batch_size=min(16 * trials.usual["batch_size"], 64))
    gains = {cause: _gain(room, control, r) for cause, r in runs.items()}
    ups, rise = oscillation(s.history.get("loss", np.zeros(0)))
    shrunk = exam.facts.get("weights over initial", [1.0])[0]
    asked = float((trials.lab.held or trials.lab.watched).n) if s.task in ("classes", "binary") else math.inf
    e = Evidence(room, state, abnormal(exam), control, runs, gains, ups, rise, room.well(exam), shrunk, asked)
    if (e.strange(LARGE) > 0 or e.wild) and not e.fine and gains[LARGE] < 0.1:
        gains[LARGE] = max(gains[LARGE], _gain_from_start(exam, trials, rate, runs))
    exam.facts["history"], exam.facts["gains"], exam.facts["odd settings"] = [ups, rise], gains, e.odd
    return e


def _gain(room: Room, control: Result, run: Result) -> float:
    """Return the gain of a change: the logarithm of the losses' ratio, where losses below a floor are as good as each other."""
    constant = room.constant if math.isfinite(room.constant) else 0.0
    floor = max(1e-3 * abs(room.loss), 1e-2 * constant, 1e-12)
    a = control.loss if math.isfinite(control.loss) else 10 * max(room.loss, constant)
    b = run.loss if math.isfinite(run.loss) else 10 * a
    return math.log((a + floor) / (b + floor)) if a > 0 and b > 0 else (a - b) / (abs(a) + floor)


def _vote(e: Evidence, cause: str) -> float:
    """Return how much speaks for a cause by its run and its setting."""
    gain, strange = e.gains[cause], e.odd.get(cause, -1.0)
    helped = e.room.matters(e.runs[cause], 0.25)
    if cause == LARGE and strange <= 0:  # a usual rate is to blame for more than a little only
        helped = helped and e.gained(cause) > 0.15
    fires = (helped and gain > 0.12) or (strange > 0.9 and gain > 0.05)
    return gain + 0.8 * max(strange, -0.5) if fires else -1.0


def _dropout_too(exam: Exam, trials: Trials, room: Room) -> None:
    """Whether dropout hinders as well: from weights that decay has shrunk no run tells, so both begin anew without it."""
    start = "initial" if exam.subject.initial is not None else "new"
    kept = trials.run("anew without decay", start, weight_decay=0.0)
    none = trials.run("anew without decay and dropout", start, weight_decay=0.0, dropout=0.0)
    if math.isfinite(kept.loss) and none.loss < 0.7 * kept.loss:
        say(exam, DROPOUT, 1.0, room, none, kept)


def _scan(trials: Trials, way: str, rate: float, least: float) -> Result:
    """Return the best of runs at a tenth (or ten times) the rate and further on, as long as that helps and more is possible."""
    best = trials.run("control")
    for power in (10, 100, 1000, 10000):
        r = trials.run(f"rate {way} {power}", rate=rate / power if way == "/" else rate * power)
        better = math.isfinite(r.loss) and not r.loss >= best.loss
        if power == 10 or better:
            best = r if better or power == 10 else best
        if not better or best.loss < least + 0.3 * abs(trials.lab.runs["control"].loss - least):
            break
    return best


def _gain_from_start(exam: Exam, trials: Trials, rate: float, runs: dict[str, Result]) -> float:
    """Return what a tenth of the rate gains from where training began: a rate may have led to where none helps any more."""
    start = "initial" if exam.subject.initial is not None else "new"
    control = trials.run("control from the start", start)
    less = trials.run("rate / 10 from the start", start, rate=rate / 10)
    if not math.isfinite(less.loss) or less.loss <= 0:
        return 0.0
    a = control.loss if math.isfinite(control.loss) else 10 * less.loss
    gain = math.log(max(a, 1e-12) / less.loss)
    if gain > 0.1:
        runs[LARGE] = less
    return gain


def _closes(room: Room, run: Result | None, trials: Trials) -> float:
    """Return which share of what can be gained, as far as is known, one changed setting gains."""
    control = trials.lab.runs.get("control")
    if run is None or control is None or not math.isfinite(run.loss):
        return 0.0
    least = min(r.loss for r in trials.lab.runs.values() if math.isfinite(r.loss))
    begin = control.loss if math.isfinite(control.loss) else room.loss
    return (begin - run.loss) / max(begin - least, 1e-12)


def _demote(exam: Exam) -> None:
    """Doubt faults of units that learn from where they are as soon as one setting is changed: they are its consequence."""
    for cause, began in (("dead-units", "dead at the start"), ("saturated-units", "saturated at the start")):
        if cause in exam.sure and not (exam.facts.get(began) or 0.0) > 0.3:
            exam.sure[cause] = min(exam.sure[cause], 0.5)
