"""The command line: `harness list | run | reproduce | table | report | keep | compare | regressions | dashboard |
sync | doctor | datastore ...` (also `python -m harness`).

Exit codes: 0 done; 1 a cell failed, `--require claims` and a claim does not hold, or a comparison found something
worse; 2 the request cannot be carried out as given; 3 environment error; 130 interrupted, rows kept. Errors are one
line; a traceback only with `--debug`.
Families of sub-commands (`datastore`) come from the registry.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.common.errors import HarnessError, RequestError, place, unknown
from harness.options import AsJson, Options, Results, Scale, Tracking, with_options
from harness.plan.registry import PACKAGES, Kind, Registry

PROGRAM: dict[str, Any] = {
    "name": "harness", "no_args_is_help": True, "pretty_exceptions_enable": False,
    "rich_markup_mode": None, "help": "A bench for methods that shortcut the costly step of language-model inference.",
}  # fmt: skip
app = typer.Typer(**PROGRAM)

INTERRUPTED = 130
LISTS = ("methods", "tasks", "analyses", "recipes", "pairs")


def _names_of(kind: Kind) -> Callable[[], list[str]]:
    """What a shell completes an argument with."""
    return lambda: Registry().names(kind)


def _recipe_names() -> list[str]:
    from harness.plan.recipe import files

    return sorted(files(Registry()))


MethodName = Annotated[str, typer.Argument(metavar="METHOD", autocompletion=_names_of("method"))]
TaskName = Annotated[str, typer.Argument(metavar="TASK", autocompletion=_names_of("task"))]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", autocompletion=_recipe_names)]
Format = Annotated[str, typer.Option("--format", help="text, md, github (a step summary) or json.")]


@app.command("list")
def list_names(
    what: Annotated[str, typer.Argument(help=", ".join(LISTS), autocompletion=lambda: list(LISTS))],
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Show what is registered.

    \b
    Examples:
      harness list methods
      harness list pairs     # which method runs on which task, and why not
      harness list recipes   # and of which scales rows are stored
    """
    if what not in LISTS:
        raise unknown("list", what, LISTS)
    from harness import listing

    found = listing.listed(what, Registry(), results)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(listing.lines(found)) if found else f"no {what} are registered")


@app.command()
@with_options
def run(method: MethodName, task: TaskName, options: Options) -> None:
    """Measure one method on one task against the method's exact baseline.

    \b
    Examples:
      harness run knnlm wikitext-perplexity --set method.k=64
      harness run l2s ptb-next-word --set method.budget=150 --set timing.threads=1
      harness run iad conll-gec --dry-run
    """
    from harness import session

    raise typer.Exit(session.run(method, task, options, Registry()))


@app.command()
@with_options
def reproduce(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE...",
            help="Recipes; none: a headline recipe of each paper; all: every one.",
            autocompletion=lambda: ["all", *_recipe_names()],
        ),
    ] = None,
    require: Annotated[str | None, typer.Option(help="`claims`: exit 1 when a claim does not hold.")] = None,
    *,
    options: Options,
) -> None:
    """Reproduce tables of papers: run recipes, print measured next to published, judge the papers' claims.

    \b
    Examples:
      harness reproduce                                      # a headline recipe of each paper
      harness reproduce knnlm-wikitext --scale small
      harness reproduce l2s-table1 --set task.timed=100 --dry-run
      harness reproduce my-recipe.yaml --require claims
      harness reproduce all --scale small --wait             # takes days; start it again to continue
    """
    from harness import session

    if require not in (None, "claims"):
        raise RequestError(f"--require {require!r} is not known: `claims` is the only requirement")
    raise typer.Exit(session.reproduce(recipes or [], options, Registry(), require_claims=require == "claims"))


@app.command()
def keep(recipe: RecipeName, scale: Scale = "small", results: Results = Path("results")) -> None:
    """Copy a run made from a clean tree with enough samples to results/measured, which is committed.

    \b
    Example:
      harness keep knnlm-wikitext --scale small
    """
    from harness import session
    from harness.plan import expansion
    from harness.plan import recipe as recipes
    from harness.publish import keep as keeping

    registry = Registry()
    found = recipes.load(recipe, registry)
    at = session.checked_scale(scale)
    cells = expansion.expand(found, at, registry)
    print(f"kept in {keeping.keep(found, at, results / 'runs', results / 'measured', cells)}")


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="A run's folder or its rows.jsonl.")],
    after: Annotated[Path, typer.Argument(help="Another one.")],
    format_: Format = "text",
) -> None:
    """Compare two stored runs cell by cell; nothing runs. Exit code 1 where something got worse.

    \b
    Examples:
      harness compare results/measured/iad-table1 results/runs/iad-table1
      harness compare old/rows.jsonl new/rows.jsonl --format github >> $GITHUB_STEP_SUMMARY
    """
    from harness.show import compare as comparing

    if format_ not in comparing.FORMATS:
        raise unknown("format", format_, comparing.FORMATS, "--format")
    found = comparing.compare(before, after)
    print(comparing.FORMATS[format_](found))
    raise typer.Exit(int(comparing.is_worse(found)))


@app.command()
def table(
    recipe: RecipeName,
    scale: Scale = "mini",
    format_: Annotated[str, typer.Option("--format", help="text, md, csv or latex.")] = "text",
    results: Results = Path("results"),
) -> None:
    """Print the table of what is stored of a recipe, committed rows included; nothing runs.

    \b
    Examples:
      harness table l2s-table1 --scale small
      harness table iad-table1 --scale small --format latex > table.tex
    """
    from harness import session
    from harness.show import claims, frame, markup, stored, tables, terminal

    written = {"md": markup.markdown, "csv": markup.as_csv, "latex": markup.as_latex}
    if format_ not in (known := ("text", *written)):
        raise unknown("format", format_, known, "--format")
    registry = Registry()
    found = stored.of(recipe, session.checked_scale(scale), results, registry)
    made = tables.build(found, frame.of_all([found], registry), claims.verdicts(found))
    if format_ == "text":
        terminal.show(made, session.console_for_people())
    else:
        print(written[format_](made))


@app.command()
def report(results: Results = Path("results")) -> None:
    """Write one page over everything that is stored, report.html (and report.md), and print its path."""
    from harness import session

    session.report(results, Registry())


@app.command()
def regressions(
    against: Annotated[str, typer.Option(help="A revision: a commit, branch or tag.")],
    pairs: Annotated[list[str] | None, typer.Option("--pair", metavar="METHOD:TASK", help="Repeatable.")] = None,
    rounds: Annotated[int, typer.Option(help="Processes of each side.")] = 9,
    format_: Format = "text",
) -> None:
    """Run a revision and the working tree in turns and compare them; exit code 1 where something is slower or worse,
    or cannot be compared.

    \b
    Examples:
      harness regressions --against main
      harness regressions --against HEAD~3 --pair l2s:ptb-next-word --rounds 15
    """
    from harness import regressions as checks
    from harness.show import compare as comparing

    if format_ not in comparing.FORMATS:
        raise unknown("format", format_, comparing.FORMATS, "--format")
    found = checks.run(against, checks.pairs(pairs or [], Registry()), rounds)
    print(comparing.FORMATS[format_](found))
    raise typer.Exit(int(comparing.is_worse(found, strict=True)))


@app.command()
def sync(results: Results = Path("results"), tracking: Tracking = None) -> None:
    """Send the rows of `<results>/runs` that MLflow does not have, as after a run whose server was away."""
    from harness.tracking.mlflow import open_tracker, send_missing

    tracker = open_tracker(tracking, results / "runs").answering()
    print(f"{send_missing(results / 'runs', tracker)} rows sent to {tracker.uri}")


@app.command()
def dashboard(
    results: Results = Path("results"),
    tracking: Tracking = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5500,
) -> None:
    """Start MLflow's pages, where no server runs, and print, for every recipe, the link that compares its methods. Ends
    with Ctrl-C.

    \b
    Example:
      harness dashboard --port 5600
    """
    from harness.tracking import dashboard as pages
    from harness.tracking.mlflow import open_tracker

    tracker = open_tracker(tracking, results / "runs").answering()
    running = tracker.uri.startswith("http")
    base = tracker.uri.rstrip("/") if running else f"http://{pages.HOST}:{port}"
    print("\n".join(pages.links(tracker.client, base)), flush=True)
    if not running:
        print("MLflow's server starts and answers in some seconds; Ctrl-C ends it.", flush=True)
        pages.serve(tracker.store, (results / "runs" / "mlartifacts").absolute(), port)


@app.command()
def doctor(results: Results = Path("results"), as_json: AsJson = False) -> None:
    """Say what this machine offers: devices, threads, data found, caches, versions, and what their absence means."""
    from harness import doctor as checking

    checks = checking.report(results)
    checking.show(checks, as_json)
    raise typer.Exit(3 if any(check.state == "problem" for check in checks) else 0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console that is not UTF-8 gets `?` for what it lacks
        sys.stdout.reconfigure(errors="replace" if sys.stdout.isatty() else "backslashreplace")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends like an interrupt: steps are stopped
    if not debug:
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    given = [a for a in given if a != "--debug"]
    try:
        code = _with_families(debug)(given, standalone_mode=False)
        if code == INTERRUPTED:  # the option parser turns an interrupt into this code
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except HarnessError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        told = "rows already written are kept; the same command goes on from there"
        if given[:1] == ["regressions"]:
            told = "regressions keeps nothing; start it again, fewer --rounds are quicker"
        print(f"interrupted: {told}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `harness list ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        show = getattr(error, "show", None)  # a usage error of the option parser
        if show is not None:
            show()
            sys.exit(2)
        print(f"error: {type(error).__name__}: {error} (a fault of the harness; --debug shows where)", file=sys.stderr)
        sys.exit(1)


def _with_families(debug: bool) -> typer.Typer:
    """The application with the registry's families of sub-commands. A plug-in's family with an error is left out, with
    a warning; with `debug` it raises, as a built-in one does."""
    registry = Registry()
    full = typer.Typer(**PROGRAM)
    full.registered_commands = list(app.registered_commands)
    for name in registry.names("command"):
        try:
            full.add_typer(registry.resolve("command", name)(), name=name)
        except Exception as error:
            package = registry.entry("command", name).target.partition(".")[0]
            if debug or package in PACKAGES:
                raise
            warnings.warn(f"command {name!r} left out: {error} ({place(error, [package])})", stacklevel=2)
    return full
