"""A picture for every system's page: each is fitted for a few seconds on data of its kind, or drawn."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from corollary import catalog, plot
from results import _bayes, _generated
from results import _scenes_structured as structured
from results import _scenes_tables as tables
from results import _scenes_texts as texts
from results._bayes import BAYES
from results._drawings import DRAWINGS
from results._generated import GENERATED
from results._regularisers import REGULARISERS
from results._robustness import ROBUSTNESS
from results._theory import THEORY
from results.tables import at_least

SHARE = 1.0  # of the systems that must have a picture

# By id, else by input kind and role, the first that fits.
SCENES: dict[str, Callable[[catalog.Entry], Figure]] = {
    "bayesian-net": _bayes.bordered,
    "bayesian-net-regressor": _bayes.banded,
    "ddpm": _generated.moons,
    "deep-linear": tables.modes,
    "deep-sets-regressor": structured.spreads,
    "flows": _generated.moons,
    "gan": _generated.moons,
    "gin": structured.molecules,
    "low-rank": tables.low_rank,
    "memory-network": tables.stories,
    "mpnn": structured.links,
    "nand-machine": tables.nand,
    "nngp": _bayes.banded,
    "nngp-classifier": _bayes.bordered,
    "ntk": _bayes.banded,
    "ntk-classifier": _bayes.bordered,
    "pixelcnn": _generated.drawn_digits,
    "score": _generated.moons,
    "threshold-unit": tables.unit,
    "unet": structured.masks,
    "wavenet": structured.waves,
    "willshaw": tables.sparse_memories,
    "table memory": tables.memories,
    "table classifier": tables.classes,
    "table regressor": tables.numbers,
    "table topic-model": tables.topics,
    "table clusterer": tables.groups,
    "table transformer": tables.pixels,
    "table generator": tables.pixels,
    "ratings completer": tables.ratings,
    "text classifier": tables.newsgroups,
    "text regressor": texts.lengths,
    "text tagger": texts.capitals,
    "text answerer": texts.answers,
    "text translator": tables.reversals,
    "text language-model": tables.continued,
    "text transformer": tables.texts,
    "sequence classifier": structured.vowels,
    "sequence tagger": structured.boundaries,
    "sequence forecaster": structured.forecast,
    "image classifier": structured.images,
    "set classifier": structured.clouds,
    "set tagger": structured.parts,
    "graph classifier": structured.nodes,
}


def picture(entry: catalog.Entry) -> Figure:
    """Return the picture of a system."""
    for drawn in (BAYES, DRAWINGS, GENERATED, REGULARISERS, ROBUSTNESS, THEORY):
        if entry.id in drawn:
            return drawn[entry.id]()
    if entry.chapter == "embeddings":
        return tables.words(entry)
    for key in (entry.id, *(f"{entry.input} {role}" for role in entry.roles)):
        if key in SCENES:
            return SCENES[key](entry)
    raise KeyError(f"no picture fits {entry.id}")


def run(out: Path) -> dict[str, Any]:
    """Draw them all, or those that the variable GALLERY names; a system that cannot be shown is named."""
    folder = out.parent / "pictures"
    folder.mkdir(exist_ok=True)
    wanted = os.environ.get("GALLERY", "").split()
    entries = [entry for entry in catalog.entries() if not wanted or entry.id in wanted]
    missing = {}
    for entry in entries:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                plot.save(picture(entry), folder / f"{entry.id}.png")
            except (ValueError, TypeError, RuntimeError, AttributeError, KeyError, IndexError) as error:
                missing[entry.id] = f"{type(error).__name__}: {str(error)[:200]}"
    at_least(1 - len(missing) / len(entries), SHARE, f"the share of systems with a picture ({missing})")
    return {"pictures": len(entries) - len(missing)}
