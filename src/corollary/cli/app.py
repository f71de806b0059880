"""The commands of the command line, one function each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from corollary import __version__, catalog, errors
from corollary.cli.console import say, show_json, table

__all__ = ["app"]

app = typer.Typer(
    help="Fit, compare, sample, save and resume every system of a deep-learning course, on your own data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Source = Annotated[str, typer.Option("--data", help="A file, a folder, or the name of a data set.")]
Kind = Annotated[str | None, typer.Option(help="What the data are, if the file does not tell.")]
Target = Annotated[str | None, typer.Option(help="The column to predict.")]
ColumnKinds = Annotated[
    list[str] | None, typer.Option("--column", help="name=kind: number, category, date, text, id or ignore.")
]
Seed = Annotated[int, typer.Option(help="Decides all randomness.")]
Limit = Annotated[float | None, typer.Option("--time-limit", help="Seconds for each fit.")]


def _version(wanted: bool) -> None:
    if wanted:
        say(f"corollary {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


@app.command("list")
def list_systems(
    input: Annotated[
        str | None, typer.Option(help="table, image, sequence, set, graph, text or ratings.")
    ] = None,
    role: Annotated[str | None, typer.Option(help="classifier, density, generator, completer …")] = None,
    chapter: Annotated[str | None, typer.Option(help="linear, mixtures, graphs …")] = None,
    as_json: AsJson = False,
) -> None:
    """List the systems of the catalog."""
    everything = catalog.entries()
    for what, name, known in (
        ("input", input, {e.input for e in everything}),
        ("role", role, {r for e in everything for r in e.roles}),
        ("chapter", chapter, {e.chapter for e in everything}),
    ):
        if name is not None and name not in known:
            raise errors.unknown("list", what, name, known)
    found = catalog.entries(input=input, role=role, chapter=chapter)
    if as_json:
        show_json([entry.as_dict() for entry in found])
        return
    rows = [(e.id, e.name, e.chapter, e.input, ", ".join(e.roles) or e.kind, e.title) for e in found]
    table(("id", "name", "chapter", "input", "roles", "title"), rows)


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name or an id.")], as_json: AsJson = False) -> None:
    """Show one system: what it does, its parameters, the formulas behind it."""
    from corollary.cli.describe import describe

    description = describe(catalog.find(name))
    if as_json:
        show_json(description)
        return
    say(f"{description['name']} ({description['id']}): {description['title']}\n")
    say(description["doc"])
    if description["formulas"]:
        say("\nFormulas\n--------")
        table(("id", "statement"), [(f["id"], f["statement"]) for f in description["formulas"]])


@app.command("data")
def data_sets(
    name: Annotated[
        str | None, typer.Argument(help="A data set, a file or a folder; all names if left out.")
    ] = None,
    kind: Kind = None,
    target: Target = None,
    columns: ColumnKinds = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that can be had by name, or say what a source holds."""
    from corollary import data

    if name is None:
        from corollary.data.registry import ENTRIES

        headings = ("name", "kind", "title", "licence", "source")
        rows = [{key: getattr(ENTRIES[each], key) for key in headings} for each in data.names()]
        if as_json:
            show_json(rows)
        else:
            table(headings[:-1], [[row[key] for key in headings[:-1]] for row in rows])
        return
    from corollary.cli.describe import COLUMN_FACTS, describe_columns, shortened
    from corollary.cli.fitting import parse_columns

    found = data.load(name, kind, target, columns=parse_columns(columns or []))
    facts: dict[str, Any] = {"name": found.name, "kind": found.kind, "holds": repr(found)}
    facts |= {"licence": found.licence, "source": found.source}
    rows = describe_columns(found, target)
    if as_json:
        show_json({**facts, "columns": rows} if rows else facts)
        return
    table(("", ""), [(key, value) for key, value in facts.items() if value])
    if rows:
        say("")
        table(COLUMN_FACTS, [list(row.values()) for row in shortened(rows)])
        say("\nTo read a column otherwise: --column NAME=number, category, date, text, id or ignore.")


@app.command()
def fit(
    name: Annotated[str, typer.Argument(help="A name or an id from `corollary list`.")],
    source: Source,
    kind: Kind = None,
    target: Target = None,
    columns: ColumnKinds = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value; training.epochs=20.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Where it all goes; by default below runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    seed: Seed = 0,
    test: Annotated[
        float, typer.Option(help="The share of the data held out to measure with; 0 for none.")
    ] = 0.2,
    time_limit: Limit = None,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 10.0,
    processes: Annotated[int, typer.Option(help="How many processes share the work.")] = 1,
    strategy: Annotated[
        str, typer.Option(help="ddp, or fsdp: each process keeps a share of the optimiser.")
    ] = "ddp",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Fit a system to data; leave the model, its history and a report in a run directory."""
    from corollary.cli.fitting import fit_system

    result = fit_system(
        catalog.find(name),
        source,
        kind=kind,
        target=target,
        settings=settings or [],
        directory=run,
        resume=resume,
        seed=seed,
        test=test,
        run_options={
            "time_limit": time_limit,
            "checkpoint_every": checkpoint_every,
            "processes": processes,
            "strategy": strategy,
            "device": device,
        },
        columns=columns,
    )
    if as_json:
        show_json(result)
    else:
        table(("", ""), [(key, f"{v:.5g}" if isinstance(v, float) else v) for key, v in result.items()])
    sys.exit({"Ctrl-C": 130, "SIGTERM": 143}.get(result.get("stopped", ""), 0))


@app.command()
def compute(
    name: Annotated[str, typer.Argument(help="A function's name or id from `corollary list`.")],
    source: Annotated[
        str | None, typer.Option("--data", help="What its first argument is read from.")
    ] = None,
    kind: Kind = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value; t=[0,1,2].")] = None,
) -> None:
    """Call a function of the catalog, such as scalar-factorisation, and print its result as JSON."""
    from corollary.cli.computing import compute_with

    show_json(compute_with(catalog.find(name), source, kind, settings or []))


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run directory, or a model file.")],
    source: Source,
    out: Annotated[
        Path, typer.Option(help="A .csv, .json, .npy, .npz or .txt file; for masks also a .png or a folder.")
    ],
    kind: Kind = None,
    target: Target = None,
    columns: ColumnKinds = None,
    trust: Annotated[
        list[str] | None, typer.Option(help="A type that a scikit-learn model of your own may hold.")
    ] = None,
) -> None:
    """Give new data to a fitted model: predictions, codes, recalled patterns or continuations."""
    from corollary.cli.using import predict_with

    say(predict_with(run, source, out, kind, target, columns, trust))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run directory, or a model file.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="The ONNX file to write.")],
) -> None:
    """Write a fitted network as an ONNX graph that other runtimes read."""
    from corollary.cli.using import export_to

    say(export_to(run, onnx))


@app.command()
def sample(
    run: Annotated[Path, typer.Argument(help="A run directory, or a model file.")],
    out: Annotated[Path, typer.Option(help="A .csv, .json, .npy, .npz, .txt or, for images, .png file.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 16,
    seed: Annotated[int | None, typer.Option(help="Other draws than the model's own seed gives.")] = None,
    label: Annotated[str | None, typer.Option(help="Of which label, from a conditional model.")] = None,
) -> None:
    """Draw new samples from a fitted generator or language model."""
    from corollary.cli.using import sample_from

    say(sample_from(run, n, out, seed, label))


@app.command()
def attack(
    run: Annotated[Path, typer.Argument(help="A run directory, or a model file, of a classifier.")],
    source: Source,
    eps: Annotated[str, typer.Option(help="Radii, separated by commas.")] = "0.01,0.03,0.1,0.3",
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = "linf",
    method: Annotated[str, typer.Option("--attack", help="pgd, fgsm or deepfool.")] = "pgd",
    steps: Annotated[int, typer.Option(help="Gradient steps of pgd and deepfool.")] = 40,
    restarts: Annotated[int, typer.Option(help="Random starts of pgd.")] = 1,
    bounds: Annotated[
        str, typer.Option(help="low,high of every input; none; auto is 0,1 for images and none for tables.")
    ] = "auto",
    n: Annotated[int | None, typer.Option("-n", help="Attack so many samples, the first.")] = None,
    kind: Kind = None,
    target: Target = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where the curve goes: .png, .csv, .json, .npy, .npz or .txt.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the accuracy of a fitted classifier under attack, over the radius."""
    from corollary.cli.attacking import attack_run

    options = {"norm": norm, "attack": method, "steps": steps, "restarts": restarts, "random_state": seed}
    rows = attack_run(run, source, kind, target, eps, bounds, n, out, options)
    if as_json:
        show_json(rows)
    else:
        table(
            ("eps", "accuracy", "low", "high"), [[f"{value:.4g}" for value in row.values()] for row in rows]
        )
        if out is not None:
            say(f"The curve is in {out}")


@app.command()
def diagnose(
    run: Annotated[Path, typer.Argument(help="A run directory, or a model file.")],
    source: Source,
    validation: Annotated[str | None, typer.Option(help="Data that the fit did not see.")] = None,
    kind: Kind = None,
    target: Target = None,
    columns: ColumnKinds = None,
    html: Annotated[Path | None, typer.Option(help="The page to write.")] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for the measurements.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a training and what to change; the exit code is 1 if something is an error."""
    from corollary.cli.diagnosing import diagnose_run
    from corollary.io import check_directory

    if html is not None:
        check_directory(html)  # before the work
    report = diagnose_run(run, source, validation, kind, target, columns, time_limit)
    if html is not None:
        report.to_html(html)
    if as_json:
        show_json(report.to_dict())
    else:
        say(str(report))
        if html is not None:
            say(f"The page is {html}")
    raise typer.Exit(int(any(finding.severity == "error" for finding in report.findings)))


@app.command()
def compare(
    source: Source,
    kind: Kind = None,
    target: Target = None,
    columns: ColumnKinds = None,
    task: Annotated[
        str | None, typer.Option(help="classification, regression, density, completion …")
    ] = None,
    systems: Annotated[str | None, typer.Option(help="Names or ids, separated by commas.")] = None,
    metric: Annotated[str | None, typer.Option(help="What ranks; by default what fits the data.")] = None,
    splits: Annotated[int, typer.Option(help="How many train and test parts.")] = 5,
    test: Annotated[float, typer.Option(help="The share of the data held out each time.")] = 0.2,
    groups: Annotated[
        str | None,
        typer.Option(help="A column: rows of one value stay on one side; 'none' for no such column."),
    ] = "auto",
    search: Annotated[
        int, typer.Option(help="Settings to try for each system, inside each training part.")
    ] = 0,
    seed: Seed = 0,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for each fit.")] = 60.0,
    total_time: Annotated[
        float | None, typer.Option("--total-time", help="Seconds for the whole board.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Where the board goes, .html or .png; by default below runs/.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit every system that can do the task to the same splits, beside baselines, and rank them."""
    from corollary.cli.comparing import leaderboard

    chosen = [part.strip() for part in systems.split(",") if part.strip()] if systems else None
    from corollary.cli.fitting import parse_columns

    options: dict[str, Any] = {
        "columns": parse_columns(columns or []),
        "task": task,
        "systems": chosen,
        "metric": metric,
        "splits": splits,
        "test": test,
        "groups": None if groups == "none" else groups,
        "search": search,
        "seed": seed,
        "time_limit": time_limit,
        "total_time": total_time,
        "n_jobs": jobs,
    }
    board = leaderboard(source, kind, target, out, as_json, options)
    sys.exit(130 if board.interrupted else 0)


@app.command()
def runs(
    directory: Annotated[Path, typer.Argument(help="Where the runs are.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs below a directory."""
    from corollary.cli.using import list_runs

    rows = list_runs(directory)
    if as_json:
        show_json(rows)
    else:
        headings = ("run", "model", "data", "steps", "seconds", "last", "state")
        table(headings, [[row[h] for h in headings] for row in rows])


@app.command()
def demo(
    run: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("runs/demo"),
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for each fit.")] = 12.0,
) -> None:
    """Show it all in two minutes: a messy table, a leaderboard, its errors, resume, recommendations, formulas."""
    from corollary.cli.demo import run_demo

    run_demo(run, time_limit)


@app.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Topics or formula ids; all if left out.")] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="Run the wrong forms; every one must fail.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Check the formulas of the notes: every one must hold."""
    from corollary.cli.formulary import check_formulas

    raise typer.Exit(check_formulas(names or [], wrong, seed, as_json))


@app.command()
def formula(
    names: Annotated[list[str], typer.Argument(help="A formula's id (or several), or a topic.")],
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show a formula: statement, source of its right and wrong forms, the numbers of one instance; or list a topic."""
    from corollary.cli.formulary import show_formulas

    show_formulas(names, seed, as_json)
