"""The board: every metric with its spread, baselines marked, ties said, and the best model to take away."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.comparison.rivals import Rival
from corollary.comparison.statistics import differ, interval
from corollary.comparison.trials import Trial
from corollary.data.dataset import Dataset

__all__ = ["INTERRUPTED", "Leaderboard", "board_of"]

WIDE = "body { max-width: 80rem }"  # a column per metric
INTERRUPTED = "Interrupted: the board shows what was done by then."


@dataclass(frozen=True)
class Leaderboard:
    """The result of a comparison: rows, best first.

    Attributes
    ----------
    task, metric, why : str
        What was asked, the metric that ranks, and the reason for it.
    larger_is_better : bool
        Whether that holds for ``metric``.
    rows : list of dict
        For each system: ``system``, ``name``, ``group`` ("corollary", "scikit-learn", "yours" or "baseline"),
        ``score`` (mean of ``metric``), ``width`` (half of its 95 % interval), ``deviation`` (of the splits), ``scores``
        (mean of every metric), ``splits`` (scores of every split), ``tied`` (not told apart from the first), ``seconds``
        for a fit, ``note`` and ``error``.
    notes : list of str
        What was done to the data, and what was not finished.
    rivals : dict
        Who took part, by name.
    samples : dict
        Ten images drawn by each generator, by name, where generators were compared on images.
    """

    task: str
    metric: str
    data: str
    rows: list[dict[str, Any]]
    why: str = ""
    larger_is_better: bool = True
    directions: dict[str, bool] = field(default_factory=dict)
    n_splits: int = 1
    notes: list[str] = field(default_factory=list)
    rivals: dict[str, Rival] = field(default_factory=dict, repr=False, compare=False)
    _again: Any = field(default=None, repr=False, compare=False)
    samples: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    # --- what it says ------------------------------------------------------------------------------------

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The rows that have a score."""
        return [row for row in self.rows if row["score"] is not None]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the comparison before all was tried."""
        return INTERRUPTED in self.notes

    @property
    def baseline(self) -> dict[str, Any] | None:
        """The best baseline."""
        return next((row for row in self.ranked if row["group"] == "baseline"), None)

    @property
    def winner(self) -> dict[str, Any] | None:
        """The first row, if it is no baseline and is told apart from the best one; otherwise there is none."""
        first = self.ranked[0] if self.ranked else None
        if first is None or first["group"] == "baseline":
            return None
        if (
            self.baseline is not None
            and (self.baseline["tied"] or self.n_splits < 2)
            and not self._clear(first)
        ):
            return None
        return first

    def _clear(self, first: dict[str, Any]) -> bool:
        """Whether one split alone shows a lead: there is no interval then, and any lead counts."""
        return self.n_splits < 2 and first["score"] != self.baseline["score"]  # type: ignore[index]

    @property
    def verdict(self) -> str:
        """One sentence: who leads, by how much, and who cannot be told apart."""
        if not self.ranked:
            return "No system has a score."
        first, base = self.ranked[0], self.baseline
        if self.winner is None:
            lead = f"; {first['system']} is first with {_shown(first)}" if first is not base else ""
            said = f"No system is told apart from the baseline ({base['name']}: {_shown(base)}){lead}."  # type: ignore[index]
            return said
        text = f"{first['system']} leads with {self.metric} {_shown(first)}"
        if base is not None:
            text += f", against {_shown(base)} of the best baseline ({base['name']})"
        tied = [row["system"] for row in self.ranked[1:] if row["tied"]]
        if self.n_splits < 2:
            return text + ". One split tells nothing about chance."
        return text + (f". Not told apart from it: {', '.join(tied)}." if tied else ", ahead of all others.")

    def __repr__(self) -> str:
        lines = [f"{self.task} on {self.data}: {self.metric}" + (f" ({self.why})" if self.why else "")]
        width = max([len(row["system"]) for row in self.rows], default=0)
        for row in self.rows:
            mark = {"baseline": "baseline", "scikit-learn": "scikit-learn", "yours": "yours"}.get(
                row["group"], ""
            )
            said = (
                row["error"] if row["score"] is None else f"{_shown(row):>17}{' =' if row['tied'] else '  '}"
            )
            lines.append(f"  {row['system']:{width}}  {said}  {row['seconds']:7.1f} s  {mark}")
        return "\n".join([*lines, self.verdict, *self.notes])

    # --- as frame, page, picture -------------------------------------------------------------------------

    @property
    def frame(self) -> Any:
        """The board as a pandas DataFrame, one row per system and two columns (mean, deviation) per metric."""
        import pandas as pd

        table = []
        for place, row in enumerate(self.rows, 1):
            found = {"place": place if row["score"] is not None else None}
            found |= {key: row[key] for key in ("system", "name", "group", "tied")}
            for metric in self.directions or {self.metric: True}:
                found[metric] = row["scores"].get(metric)
                found[f"{metric} ±"] = row["deviations"].get(metric)
            table.append({**found, "seconds": row["seconds"], "splits": row["n"], "error": row["error"]})
        return pd.DataFrame(table)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the board as an HTML table with its verdict; with a path, write it as a page with the plot below it."""
        from corollary.reporting import figure_tag, page

        head = f"<p><b>{html.escape(self.verdict)}</b></p><p class=soft>Ranked by {html.escape(self.metric)}"
        head += f": {html.escape(self.why)}." if self.why else "."
        over = f"Mean ± half of the 95 % interval over {self.n_splits} splits; = is not told apart from the first."
        head += f" {over if self.n_splits > 1 else 'On one split.'}</p>"
        notes = "".join(f"<p class=soft>{html.escape(note)}</p>" for note in self.notes)
        text = head + self._table() + self._strips() + notes
        if path is not None:
            plot = figure_tag(self.plot(), "the means with their intervals") if self.ranked else ""
            Path(path).write_text(page(f"{self.task} on {self.data}", text + plot, WIDE), encoding="utf-8")
        return text

    def _strips(self) -> str:
        """Return a strip of samples of every generator, best first."""
        from corollary.plot import image_grid
        from corollary.reporting.pages import figure_tag

        names = [row["system"] for row in self.ranked if row["system"] in self.samples]
        return "".join(
            f"<p>{html.escape(name)}</p>{figure_tag(image_grid(self.samples[name]), f'samples of {name}')}"
            for name in names
        )

    def _table(self) -> str:
        metrics = list(self.directions) or [self.metric]
        metrics = [self.metric, *(m for m in metrics if m != self.metric)]
        cells = "".join(
            f"<th>{html.escape(m)} {'↑' if self.directions.get(m, True) else '↓'}</th>" for m in metrics
        )
        lines = [f"<tr><th></th><th>system</th><th></th>{cells}<th>seconds</th></tr>"]
        for place, row in enumerate(self.rows, 1):
            mark = "" if row["score"] is None else "=" if row["tied"] and place > 1 else str(place)
            label = "" if row["group"] == "corollary" else html.escape(row["group"])
            if row["score"] is None:
                body = f"<td colspan={len(metrics)} class=soft>{html.escape(row['error'])}</td>"
            else:
                body = "".join(f"<td>{_cell(row, m)}</td>" for m in metrics)
            kind = " class=base" if row["group"] == "baseline" else ""
            name = f"<td title='{html.escape(row['name'], quote=True)}'>{html.escape(row['system'])}</td>"
            lines.append(
                f"<tr{kind}><td>{mark}</td>{name}<td class=soft>{label}</td>{body}<td>{row['seconds']:.1f}</td></tr>"
            )
        return f"<div class=wide><table class=board>{''.join(lines)}</table></div>"

    def plot(self) -> Any:
        """Return the means with their intervals, and a line at the best baseline."""
        from corollary.plot import leaderboard

        first = self.winner["system"] if self.winner else None
        return leaderboard(self.rows, self.metric, larger_is_better=self.larger_is_better, winner=first)

    # --- models ------------------------------------------------------------------------------------------

    @cached_property
    def best(self) -> Any:
        """The first system of the board, fitted anew to all the data (see :meth:`fit`)."""
        if not self.ranked:
            raise errors.value("Leaderboard", "some system must have a score", "none")
        return self.fit(self.ranked[0]["system"])

    def fit(self, system: str) -> Any:
        """Return a system of the board, fitted to all the data; it takes data as they were given to ``compare``.

        The result has the model's own methods, ``model`` (the estimator itself) and ``save(directory)``.
        """
        known = [row["system"] for row in self.rows]
        if system not in known:
            raise errors.unknown("Leaderboard", "system", system, known)
        return self._again(system)


def _shown(row: dict[str, Any]) -> str:
    return f"{row['score']:.4g}" + (f" ± {row['width']:.2g}" if np.isfinite(row["width"]) else "")


def _cell(row: dict[str, Any], metric: str) -> str:
    if metric not in row["scores"]:
        return ""
    width = row["widths"].get(metric, np.nan)
    return f"{row['scores'][metric]:.4g}" + (
        f" <span class=soft>± {width:.1g}</span>" if np.isfinite(width) else ""
    )


# --- from trials -----------------------------------------------------------------------------------------


def board_of(
    trials: list[Trial],
    rivals: list[Rival],
    dataset: Dataset,
    task: str,
    metric: tuple[str, str],
    directions: dict[str, bool],
    ratio: float,
    notes: list[str],
    again: Any = None,
) -> Leaderboard:
    """Return the board of what was tried so far."""
    name, why = metric
    larger = directions[name]
    trials = on_the_same_parts(trials, name)
    rows = [_row(rival, [t for t in trials if t.rival == rival.id], name, ratio) for rival in rivals]
    sign = -1 if larger else 1
    rows.sort(key=lambda r: (r["score"] is None, sign * (r["score"] or 0.0), r["group"] != "baseline"))
    first = rows[0] if rows and rows[0]["score"] is not None else None
    lost = False  # below a baseline that is told apart: a wild spread makes no tie
    for row in rows:
        row["tied"] = (
            first is not None
            and row["score"] is not None
            and not lost
            and not _behind(first, row, name, ratio)
        )
        lost = lost or (row["group"] == "baseline" and row["score"] is not None and not row["tied"])
    n = max([row["n"] for row in rows], default=0)
    if stopped := ", ".join(row["system"] for row in rows if row["note"]):
        notes = [*notes, f"Stopped by the time limit and measured as they stood then: {stopped}."]
    by_id = {rival.id: rival for rival in rivals}
    drawn = {trial.rival: trial.drawn for trial in trials if trial.drawn is not None}
    return Leaderboard(task, name, dataset.name, rows, why, larger, directions, n, notes, by_id, again, drawn)


def on_the_same_parts(trials: list[Trial], metric: str) -> list[Trial]:
    """Leave out a round that the time ended, and say of who failed in some part that it has no mean.

    Parts differ in difficulty, so means are compared only if they are over the same ones.
    """
    good: dict[str, set[int]] = {}
    for trial in trials:
        good.setdefault(trial.rival, set()).update([trial.part] if metric in trial.scores else [])
    failed = {trial.rival for trial in trials if trial.error}
    whole = [parts for rival, parts in good.items() if rival not in failed]
    shared = set.intersection(*whole) if whole else set()
    if not shared:
        return trials
    kept = []
    for trial in (trial for trial in trials if trial.part in shared or trial.error):
        some = good[trial.rival] & shared
        if trial.rival in failed and some != shared:
            if not trial.error:
                continue
            done = f" in part {trial.part + 1}, after {len(some)} with a score" if some else ""
            trial = replace(trial, error=trial.error + done)
        kept.append(trial)
    return kept


def _behind(first: dict[str, Any], row: dict[str, Any], metric: str, ratio: float) -> bool:
    """Whether a row is told apart from the first, on the splits that both have."""
    a, b = first["splits"].get(metric, {}), row["splits"].get(metric, {})
    both = sorted(set(a) & set(b))
    if len(both) < 2:
        return first["score"] != row["score"]
    return differ([a[i] for i in both], [b[i] for i in both], ratio)


def _unmeasured(trials: list[Trial], metric: str) -> str:
    """Return why a system without an error has no score."""
    return f"{metric} cannot be measured on what is held out" if trials else "not tried"


def _row(rival: Rival, trials: list[Trial], metric: str, ratio: float) -> dict[str, Any]:
    good = [trial for trial in trials if metric in trial.scores]
    names = list(dict.fromkeys(name for trial in good for name in trial.scores))
    splits = {m: {t.part: t.scores[m] for t in good if m in t.scores} for m in names}
    spread = {m: interval([*splits[m].values()], ratio) for m in names}
    bad = next((trial.error for trial in trials if trial.error), _unmeasured(trials, metric))
    row: dict[str, Any] = {"system": rival.id, "name": rival.name, "group": rival.group}
    row["scores"] = {m: float(np.mean([*splits[m].values()])) for m in names}
    row["widths"] = {m: spread[m][0] for m in names}
    row["deviations"] = {m: spread[m][1] for m in names}
    row["splits"] = splits
    row["score"] = row["scores"].get(metric)
    row["width"], row["deviation"] = spread.get(metric, (float("nan"), float("nan")))
    row["n"] = len(good)
    row["seconds"] = round(float(np.mean([t.seconds for t in (good or trials)] or [0.0])), 3)
    row["note"] = "stopped by the time limit" if any(t.stopped for t in good) else ""
    row["error"] = "" if good else bad
    return row
