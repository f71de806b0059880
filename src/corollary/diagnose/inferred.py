"""Faults of a descent whose settings are not known: the weights tell of them, and what a good descent gains."""

from __future__ import annotations

import math

from corollary.diagnose.exam import Exam
from corollary.diagnose.trials import Room, Trials, dropout_rate, say
from corollary.diagnose.weights import State

__all__ = ["without_settings"]


def without_settings(exam: Exam, trials: Trials, room: Room, state: State) -> None:
    """Infer the settings from the weights, the dropout that is there, and what a good descent gains."""
    good = trials.lab.runs["good"]
    fine = room.well(exam)
    constant = room.constant if math.isfinite(room.constant) else abs(room.loss)
    helped = room.matters(good, 0.3)
    p = dropout_rate(exam)
    exam.facts["helped"] = helped
    if p >= 0.6 and not fine:
        with_it = trials.good("good, dropout kept", dropout=None) if p < 0.9 else None
        if with_it is None or good.loss < 0.8 * with_it.loss:
            say(exam, "dropout-too-large", 1.0, 0.0, room, good, with_it)
            return
    new = None
    if not helped and not fine:
        new = trials.good("new", "new", steps=int(1.5 * trials.steps))
        exam.facts["new"] = [new.loss, new.score, new.valid_loss, new.valid_score]
    better_new = new is not None and room.matters(new, 0.25)
    if not helped and not better_new:
        return
    ratio, beyond = state.ratio, state.beyond
    votes = {"learning-rate-too-small": 0.0, "learning-rate-too-large": 0.0, "weight-decay-too-large": 0.0}
    if ratio == ratio:
        if ratio < 0.7 and beyond < 0.02:
            votes["weight-decay-too-large"] += 1.0 + (0.7 - ratio)
        if beyond < 0.03 and 0.8 < ratio < 1.15:
            votes["learning-rate-too-small"] += 1.0
        elif beyond < 0.1 and 0.8 < ratio < 1.3:
            votes["learning-rate-too-small"] += 0.4
        if ratio > 2.0 or state.largest > 4:
            votes["learning-rate-too-large"] += 1.0
        elif beyond > 0.2:
            votes["learning-rate-too-large"] += 0.4
    if state.decayed == state.decayed and state.decayed > 0.6:
        votes["weight-decay-too-large"] += 0.6
    if better_new and not helped:
        votes["learning-rate-too-large"] += 0.5
    if room.loss > 1.05 * constant:
        votes["learning-rate-too-large"] += 0.5
    exam.facts["votes"] = votes
    best = max(votes, key=lambda c: votes[c])
    run = good if helped else new
    little = run is None or not room.loss - run.loss > 0.15 * constant  # is left beside what was learned
    if votes[best] >= 0.5 and not (fine and (not helped or little)):
        say(exam, best, votes[best], 0.0, room, run, None, sure=0.75)
        if best == "weight-decay-too-large" and state.decayed > 0.6 and "vanishing-gradient" in exam.sure:
            exam.sure["vanishing-gradient"] = (
                0.5  # the loss pulls against a decay that has shrunk the weights
            )
