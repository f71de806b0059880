"""``corollary demo``: a tour of the library in two minutes, without a download; results in one ``index.html``."""

from __future__ import annotations

import hashlib
import html
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.cli.comparing import print_board
from corollary.cli.console import say
from corollary.cli.demo_data import DISHES, write_customers, write_tastes

__all__ = ["run_demo"]

DRAWING = 4  # times the limit of a fit that the diffusion model may learn

STYLE = """
body { max-width: 70rem } nav { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; margin: 1rem 0 }
nav a { color: #2563eb; text-decoration: none } section { border-top: 1px solid #e4e7eb; margin-top: 2.2rem }
.big { font-size: 2rem; font-weight: 650; color: #2563eb; margin: .2rem 0 } .row { display: flex; flex-wrap: wrap; gap: 1.6rem }
"""

Part = tuple[str, str]  # title, HTML


def run_demo(directory: Path, time_limit: float) -> Path:
    """Run every part, print what it shows, and write ``index.html``; return its path."""
    from corollary.reporting.pages import page

    directory.mkdir(parents=True, exist_ok=True)
    start, parts = time.monotonic(), []
    for title, body in _parts(directory, time_limit):
        parts.append((title, body))
        say(f"   ({time.monotonic() - start:.0f} s so far)\n")
        index = directory / "index.html"
        index.write_text(page("corollary", _whole(parts), STYLE), encoding="utf-8")
    say(f"Open {index} in a browser.")
    return index


def _whole(parts: list[Part]) -> str:
    links = "".join(
        f"<a href='#part{i}'>{i}. {html.escape(title)}</a>" for i, (title, _) in enumerate(parts, 1)
    )
    head = "<p class=soft>Made by <code>corollary demo</code> on this machine, without a download. "
    head += "The customers and the tastes are made up; the digits are real handwriting (UCI, by way of scikit-learn).</p>"
    body = "".join(
        f"<section id=part{i}><h2>{i}. {html.escape(title)}</h2>{text}</section>"
        for i, (title, text) in enumerate(parts, 1)
    )
    return f"{head}<nav>{links}</nav>{body}"


def _parts(directory: Path, limit: float) -> Iterator[Part]:
    path = write_customers(directory / "customers.csv")
    yield _read(path)
    board, part = _board(path, limit)
    yield part
    yield _wrong_cases(board, path)
    yield _resumed(directory)
    yield _dishes(write_tastes(directory / "tastes.csv"))
    yield _digits(limit)
    yield _slips()


# --- the table -------------------------------------------------------------------------------------------


def _read(path: Path) -> Part:
    from corollary import data
    from corollary.cli.console import table
    from corollary.cli.describe import COLUMN_FACTS, describe_columns
    from corollary.reporting.pages import table_html

    say(f"1. A table as people have them: {path}\n")
    rows = [list(row.values()) for row in describe_columns(data.load(path), None)]
    table(COLUMN_FACTS, rows)
    raw = "\n".join(path.read_text(encoding="utf-8").splitlines()[:4])
    text = "<p>Semicolons, decimal commas, day-first dates, <code>?</code> for gaps, an id, a constant, a copy of a "
    text += (
        "column. No flag was given; what is learned here is kept with the model and applied to new files.</p>"
    )
    return (
        "A messy table, read and explained",
        f"{text}<pre>{html.escape(raw)}</pre>{table_html(COLUMN_FACTS, rows)}",
    )


def _board(path: Path, limit: float) -> tuple[Any, Part]:
    from corollary import compare
    from corollary.reporting.pages import figure_tag

    say("2. Who will leave? Every system, scikit-learn's usual ones and a guess, on the same five splits.\n")
    systems = ["logistic", "perceptron", "mlp"]
    board = compare(path, target="gekündigt", systems=systems, time_limit=limit, total_time=4 * limit)
    print_board(board)
    return board, (
        "A leaderboard with its baseline",
        board.to_html() + figure_tag(board.plot(), "leaderboard"),
    )


def _wrong_cases(board: Any, path: Path) -> Part:
    from corollary import data
    from corollary.comparison.trials import fit, prepare
    from corollary.reporting.pages import section_html
    from corollary.reporting.predictions import cell, classified

    name = board.ranked[0]["system"]
    say(f"3. Where {name} goes wrong.\n")
    kept, held = next(data.splits(data.load(path, target="gekündigt"), 1, stratify=True))
    rival = board.rivals[name]
    model, train, reader = prepare(rival, "classification", kept, 0)
    fit(model, "classification", train, None)
    seen = reader(held)
    shown = replace(seen, X=np.asarray(seen.X), extra={})
    found = {heading: (text, figure) for heading, text, figure in classified(model, shown)}
    raw = held.X.iloc if hasattr(held.X, "iloc") else None
    worst, _ = found.get("Worst cases", (None, None))
    if worst is not None and raw is not None:  # as they stand in the file
        index = held.X.index
        rows = [(int(index[row[0]]) + 1, *row[1:4], *map(cell, raw[row[0]])) for row in list(worst.rows)[:8]]
        found["Worst cases"] = (
            worst._replace(
                text="Those in which the true class got the least probability.",
                headings=(*worst.headings[:4], *held.X.columns),
                rows=rows,
            ),
            None,
        )
        for row in rows[:3]:
            say(f"   {row[1]}, said {row[2]} (probability of the truth {row[3]}): {', '.join(row[4:])}")
    wanted = ("By class", "Worst cases", "Probabilities", "Importances")
    body = "".join(section_html(h, *found[h]).replace("h2>", "h3>") for h in wanted if h in found)
    return f"What {name} gets wrong", body


# --- resume ----------------------------------------------------------------------------------------------

CHILD = """
from corollary import MLPClassifier, Run, Training, data
from corollary.data.convert import as_input
digits = as_input(data.load("digits"), "table", "demo")
with Run({directory!r}, checkpoint_every={every}, resume={resume}, progress=False):
    MLPClassifier((64,), training=Training(epochs=10), random_state=0).fit(digits.X, digits.y)
"""


def _resumed(directory: Path) -> Part:
    say("4. A fit is killed (SIGKILL) and resumed; another one is left alone.\n")
    whole, killed = directory / "whole", directory / "killed"
    for folder in (whole, killed):
        _remove(folder)
    alone = _child(whole, False, 10.0)
    process, deadline = _child(killed, False, 0.0), time.monotonic() + 60
    while process.poll() is None and not _written(killed) and time.monotonic() < deadline:
        time.sleep(0.005)
    cut = process.poll() is None
    if cut:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _child(killed, True, 10.0).wait()
    alone.wait()
    sums = [_checksum(folder / "model.safetensors") for folder in (whole, killed)]
    same = "the same bits" if sums[0] == sums[1] else "NOT the same bits"
    how = "was killed in the middle (SIGKILL) and" if cut else "was done before it could be killed, and"
    say(f"   left alone  {sums[0]}\n   resumed     {sums[1]}: {same}")
    text = f"<p class=big>{same}</p><p>Two fits of one network, 10 epochs each. One process was left alone; the other "
    text += f"{how} resumed from its last checkpoint. SHA-256 of their weights:</p>"
    return (
        "A fit killed and resumed",
        f"{text}<pre>left alone          {sums[0]}\nkilled and resumed  {sums[1]}</pre>",
    )


def _child(directory: Path, resume: bool, every: float) -> subprocess.Popen[bytes]:
    """Start a fit in a process of its own, on one thread: they run beside each other."""
    code = CHILD.format(directory=str(directory), resume=resume, every=every)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdin=subprocess.DEVNULL, env=environment
    )


def _written(directory: Path) -> bool:
    """Whether a second checkpoint is there: the one before it is kept beside the newest."""
    return any(True for _ in directory.rglob("previous.safetensors"))


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _checksum(path: Path) -> str:
    """Return a hash of a model's weights, by name."""
    from corollary import load

    weights = load(path).module_.state_dict()
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode() + weights[name].numpy().tobytes())
    return total.hexdigest()


# --- ratings ---------------------------------------------------------------------------------------------


def _dishes(path: Path) -> Part:
    from corollary import ALS, compare, data
    from corollary.cli.console import table
    from corollary.reporting.pages import table_html

    say("5. Ratings become recommendations with names.\n")
    tastes = data.load(path)
    people, dishes = (np.asarray(tastes.extra[key]) for key in ("users", "items"))
    board = compare(tastes, systems=["als", "baseline"], metric="NDCG@10")
    model = ALS(4, random_state=0).fit(tastes.X)
    users = np.arange(0, len(people), len(people) // 6)[:6]
    items, scores = model.recommend(users, 4, seen=tastes.X[users])
    kitchen = {dish: name for name, names in DISHES.items() for dish in names}
    rows = []
    for user, best, values in zip(users, items, scores):
        row = tastes.X[user].toarray().ravel()
        liked = ", ".join(f"{dishes[i]} ({row[i]:.0f})" for i in np.argsort(-row)[:3])
        said = [f"{dishes[i]} ({kitchen[str(dishes[i])]}, {v:.1f})" for i, v in zip(best, values)]
        rows.append((people[user], liked, *said))
    headings = ("who", "liked most", "try first", "then", "then", "then")
    table(headings, rows)
    say(board.verdict)
    text = f"<p>{len(people)} people, {len(dishes)} dishes, {tastes.X.nnz} ratings.</p>"
    return "Ratings turned into recommendations", text + table_html(headings, rows) + board.to_html()


# --- digits ----------------------------------------------------------------------------------------------


def _digits(limit: float) -> Part:
    from corollary import compare, plot
    from corollary.reporting.pages import figure_tag

    say("6. Densities of real digits, in bits per pixel; then a diffusion model draws some.\n")
    systems = ["pca", "factor-analysis", "gaussian-mixture", "vae"]
    board = compare(
        "digits", task="density", systems=systems, splits=3, time_limit=limit, total_time=3 * limit
    )
    print_board(board)
    text = board.to_html() + figure_tag(board.plot(), "densities of digits")
    drawn, seconds = _drawn(DRAWING * limit)
    say(f"   DDPM learned to draw for {seconds:.0f} s.")
    text += f"<h3>Drawn by DDPM after {seconds:.0f} s of training, asked for 0 to 9</h3>"
    return "Real digits: densities and draws", text + figure_tag(plot.image_grid(drawn), "samples")


def _drawn(seconds: float) -> tuple[np.ndarray, float]:
    """Return six drawings of each digit, row by row, and how long a diffusion model learned to make them."""
    from corollary import DDPM, Run, Training, data

    digits = data.load("digits")
    model = DDPM(conditional=True, guidance=0.5, training=Training(epochs=1000), random_state=0)
    with Run(time_limit=seconds, progress=False), warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.FitStopped)
        model.fit(digits.X, digits.y)
    drawn = model.sample(60, np.tile(np.arange(10), 6))
    return np.clip(drawn.reshape(-1, 8, 8), 0, 1), model.history_[-1]["seconds"]


# --- formulas --------------------------------------------------------------------------------------------


def _slips() -> Part:
    from corollary import formulas
    from corollary.reporting.pages import table_html

    say("7. Every formula is run, right and wrong: the wrong forms must all be caught.\n")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the checks are many and small
    rows, caught, total = [], 0, 0
    try:
        for topic, title in formulas.TOPICS.items():
            slips = [outcome for formula in formulas.find(topic) for outcome in formula.check_wrong(0)]
            found = sum(not outcome.holds for outcome in slips)
            rows.append((title, len(formulas.find(topic)), f"{found} of {len(slips)}"))
            caught, total = caught + found, total + len(slips)
    finally:
        torch.set_num_threads(threads)
    say(f"   {caught} of {total} slips caught")
    text = f"<p class=big>{caught} of {total} slips caught</p><p>Each formula of the notes is a check with a plausible slip "
    text += "beside it; <code>corollary check --wrong</code> runs the slips, and each must fail.</p>"
    return "Every slip is caught", text + table_html(("topic", "formulas", "slips caught"), rows)
