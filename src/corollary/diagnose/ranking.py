"""Which cause comes first: the one furthest upstream that is sure, and what it explains below it."""

from __future__ import annotations

from corollary.diagnose.exam import Exam
from corollary.diagnose.report import Finding
from corollary.diagnose.rules import CAUSES, FAMILIES, RULES

__all__ = ["EXPLAINS", "ranked"]

ODD = 0.25  # decades beyond the usual from which a known setting counts as a fault of its own

DESCENTS = ("gradients-not-cleared", "learning-rate-too-large")  # that do not reach back to the start
ENDED = 0.5  # of a layer's activations that began at their ends

SHOWN = 3  # alarms among which a consequence may still be one: it may be the cause after all

# What a cause brings about by itself: such a finding comes after it, whatever its family.
EXPLAINS: dict[str, tuple[str, ...]] = {
    "not-finite-data": ("overflow", "learning-rate-too-large", "no-signal"),
    "overflow": ("learning-rate-too-large", "exploding-gradient", "dead-units"),
    "unscaled-inputs": (
        "saturated-units", "dead-units", "exploding-gradient", "learning-rate-too-large", "learning-rate-too-small",
        "batch-too-small", "adversarially-fragile", "capacity-too-small",
    ),
    "unscaled-targets": (
        "learning-rate-too-small", "learning-rate-too-large", "capacity-too-small", "output-range", "exploding-gradient",
        "dead-units",
    ),
    "no-signal": ("overfit", "miscalibrated", "label-noise", "capacity-too-small", "adversarially-fragile", "class-imbalance"),
    "misaligned-labels": ("overfit", "miscalibrated", "label-noise", "no-signal", "adversarially-fragile", "capacity-too-small"),
    "label-noise": ("overfit", "miscalibrated", "adversarially-fragile"),
    "target-leak": ("distribution-shift", "overfit", "miscalibrated", "adversarially-fragile"),
    "distribution-shift": ("overfit", "miscalibrated"),
    "class-imbalance": ("miscalibrated",),
    "double-softmax": (
        "miscalibrated", "learning-rate-too-small", "vanishing-gradient", "capacity-too-small", "class-imbalance", "output-range",
        "adversarially-fragile", "learning-rate-too-large", "dead-units", "saturated-units",
    ),
    "wrong-loss": (
        "output-range", "miscalibrated", "capacity-too-small", "learning-rate-too-large", "learning-rate-too-small",
        "unscaled-targets", "double-softmax", "class-imbalance", "dead-units", "overfit",
    ),
    "output-range": (
        "dead-units", "saturated-units", "capacity-too-small", "learning-rate-too-small", "miscalibrated", "vanishing-gradient",
        "learning-rate-too-large", "class-imbalance",
    ),
    "detached-parameters": ("frozen-parameters", "capacity-too-small", "learning-rate-too-small", "vanishing-gradient"),
    "frozen-parameters": ("learning-rate-too-small", "capacity-too-small", "bottleneck", "weight-decay-too-large"),
    "gradients-not-cleared": ("learning-rate-too-large", "dead-units", "exploding-gradient", "saturated-units"),
    "symmetric-initialisation": (
        "vanishing-gradient", "dead-units", "capacity-too-small", "learning-rate-too-small", "bottleneck", "saturated-units",
        "learning-rate-too-large", "weight-decay-too-large",
    ),
    "saturated-units": ("vanishing-gradient", "learning-rate-too-small", "capacity-too-small", "learning-rate-too-large"),
    "dead-units": ("vanishing-gradient", "learning-rate-too-small", "capacity-too-small", "bottleneck"),
    "exploding-gradient": ("learning-rate-too-large", "saturated-units", "dead-units", "capacity-too-small"),
    "vanishing-gradient": ("learning-rate-too-small", "capacity-too-small", "oversmoothing"),
    "oversmoothing": (
        "dead-units", "symmetric-initialisation", "vanishing-gradient", "learning-rate-too-small", "capacity-too-small",
        "bottleneck",
    ),
    "receptive-field-too-small": ("capacity-too-small", "overfit", "class-imbalance"),
    "bottleneck": ("capacity-too-small",),
    "batch-too-small": ("learning-rate-too-large",),
    "learning-rate-too-large": ("dead-units", "exploding-gradient", "capacity-too-small", "miscalibrated", "saturated-units"),
    "learning-rate-too-small": ("capacity-too-small", "miscalibrated", "class-imbalance"),
    "weight-decay-too-large": (
        "vanishing-gradient", "capacity-too-small", "learning-rate-too-small", "miscalibrated", "class-imbalance", "dead-units",
    ),
    "dropout-too-large": ("capacity-too-small", "miscalibrated", "dead-units"),
    "capacity-too-small": ("miscalibrated",),
    "posterior-collapse": ("dead-units", "mode-collapse"),
    "overfit": ("miscalibrated", "adversarially-fragile"),
}  # fmt: skip


def ranked(exam: Exam) -> list[Finding]:
    """Return the findings, most probable cause first; what another one explains comes after it as a note."""

    def key(cause: str) -> tuple[float, int]:
        sure = exam.sure[cause]
        # suspects come last
        doubt = 0.0 if sure >= 0.75 else 3.0 if sure >= 0.6 else 5.0 if sure >= 0.5 else 10.0
        return FAMILIES.index(RULES[cause].family) + doubt, CAUSES.index(cause)

    odd = exam.facts.get("odd settings", {})

    def own(cause: str, c: str) -> bool:
        """Whether a finding is a fault of its own: a setting far from the usual, or units that began dead or at their ends."""
        dead = cause == "unscaled-targets" and c == "dead-units" and exam.sure[c] >= 0.95
        ended = c == "saturated-units" and cause in DESCENTS
        ended = ended and (exam.facts.get("saturated at the start") or 0.0) > ENDED
        return dead or ended or odd.get(c, -1.0) > ODD

    order = sorted(exam.findings, key=key)
    first: list[Finding] = []
    explained: list[Finding] = []
    done: set[str] = set()
    for cause in order:
        finding = exam.findings[cause]
        if cause in done:
            explained.append(finding)
            continue
        below = [c for c in EXPLAINS.get(cause, ()) if c in exam.findings and c not in done]
        below = [c for c in below if c not in [f.cause for f in first] and not own(cause, c)]
        finding.explains = below
        for c in below:
            exam.findings[c].explained_by = cause
        done.update(below)
        first.append(finding)
    for finding in explained[max(0, SHOWN - len(first)) :]:  # beyond the first three a consequence is a note
        finding.severity = "info"
    return [*first, *explained, *exam.notes]
