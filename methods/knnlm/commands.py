"""`harness datastore build|info|verify`: the datastore as a tool of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from harness.common.errors import MachineError, RequestError, unknown
from harness.contracts import KeyKind
from harness.contracts.tasks import SCALES, Scale
from harness.plan.registry import Registry, command, construct

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]
SEED = 1  # the default of recipes, so that a run finds the datastore built here
Folder = Annotated[Path, typer.Argument(help="The folder that `build` printed.", show_default=False)]


@command("datastore")
def datastore() -> typer.Typer:
    """The sub-commands, ready to be mounted."""
    purpose = "Build, describe and check the datastores that kNN-LM and related methods search."
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=purpose)
    for one in (build, info, verify):
        app.command()(one)
    return app


def build(
    task: Annotated[str, typer.Option(help="A token-scoring task; its model encodes its reference text.")] = (
        "wikitext-perplexity"
    ),
    scale: Annotated[str, typer.Option(help="mini, small or paper.")] = "mini",
    key: Annotated[str, typer.Option(help=f"What is stored: {', '.join(get_args(KeyKind))}.")] = "last_ffn_input",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Chooses the task's text; recipes use 1.")] = SEED,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override task.NAME. Repeatable.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder to write instead of the cache.")] = None,
) -> None:
    """Build the datastore of a task's reference text and print its folder.

    Text and model are the task's. An interrupted build goes on where it stopped when the same command is given again.
    Without --output the datastore is in the cache, where a run of the same task at the same scale, seed and task
    parameters finds it.

    \b
    Examples:
      harness datastore build --scale mini
      harness datastore build --scale small --set task.model=gpt2 --output stores/gpt2
    """
    from harness.common.cache import Cache, CellArtifacts, salt
    from harness.common.progress import Progress
    from harness.measure import environment
    from methods.knnlm.builder import build_datastore, datastore_artifact
    from methods.knnlm.datastore import datastore_key

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if key not in get_args(KeyKind):
        raise unknown("key", key, get_args(KeyKind))
    kind, progress = cast(KeyKind, key), Progress()
    setting = _setting(task, scale, device, seed, settings or [], progress)
    if output is None:  # where the cells of a run look for it
        artifacts = CellArtifacts(Cache(), salt=salt(device, environment.libraries(), setting.model))
        folder = datastore_artifact(artifacts, setting.model, setting.reference, kind, progress)
    else:

        def fill(folder: Path) -> None:
            build_datastore(folder, setting.model, setting.reference, kind, progress=progress)

        folder = _build_at(output, datastore_key(setting.model, setting.reference, kind), fill)
    _print(_described(folder), as_json=False)


def info(folder: Folder, as_json: AsJson = False) -> None:
    """Say what a datastore was built from and how large it is.

    \b
    Example:
      harness datastore info stores/gpt2 --json
    """
    _print(_described(folder), as_json)


def verify(folder: Folder) -> None:
    """Read all of a datastore and compare it with its checksums; exit code 2 when it is damaged.

    \b
    Example:
      harness datastore verify stores/gpt2
    """
    from harness.common.progress import Progress
    from methods.knnlm.datastore import Datastore

    store = Datastore.open(folder)
    store.verify(Progress())
    typer.echo(f"{folder}: {store.entries:,} entries, {store.bytes / 1e6:,.1f} MB, intact")


def _setting(task: str, scale: Scale, device: str, seed: int, settings: Sequence[str], progress: Any) -> Any:
    """The prepared setting of a token-scoring task."""
    from harness.contracts.tasks import Context
    from harness.plan.parameters import declared, group, parse_overrides, typed

    registry = Registry()
    entry = registry.entry("task", task)
    if entry.contract != "token-scoring" or "reference-text" not in entry.provides:
        raise RequestError(f"the task {task} has no reference text to build a datastore from")
    overrides = parse_overrides(settings)
    for path in overrides:
        if not path.startswith("task."):
            raise RequestError(f"--set {path}: a datastore depends on the task alone; give task.NAME=VALUE")
    defaults = registry.resolve("task", task).scale_defaults.get(scale, {})
    target, given = registry.resolve("task", task), group(overrides, "task")
    known = {name: text for name, text in given.items() if name in declared(target)}
    made = construct(target, {**defaults, **given, **typed(target, known)})
    return made.prepare(Context.here(scale, device, seed), progress)


def _build_at(output: Path, identity: Mapping[str, Any], fill: Any) -> Path:
    """Build under another name, then rename. If `output` exists, the same datastore is kept and anything else refused.
    Of two simultaneous builds of one output the second waits for the first, since both would write the same files."""
    from harness.common.cache import exclusive
    from methods.knnlm.datastore import Datastore

    partial, lock = (output.with_name(output.name + ending) for ending in (".partial", ".lock"))
    try:
        if not output.exists():
            with exclusive(lock):
                if not output.exists():
                    partial.mkdir(parents=True, exist_ok=True)
                    fill(partial)
                    partial.rename(output)
                lock.unlink(missing_ok=True)  # a process still waiting for it will find the output
        Datastore.open(output, identity)
        return output
    except OSError as error:
        reason = error.strerror or str(error)
        raise MachineError(f"cannot write {partial}: {reason}; free space or choose another --output") from error


def _described(folder: Path) -> dict[str, Any]:
    from methods.knnlm.datastore import Datastore

    store = Datastore.open(folder)
    facts = store.metadata
    return {
        "folder": str(folder),
        "entries": store.entries,
        "dimension": store.dimension,
        "streams": facts["streams"],
        "bytes": store.bytes,
        "vocabulary_size": facts["vocabulary_size"],
        "model_name": facts["model_name"],
        **facts["built_from"],
        "versions": facts.get("versions", "unknown"),
    }


def _print(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{part} {version}" for part, version in value.items())
        typer.echo(f"{name:<16} {f'{value:,}' if isinstance(value, int) else value}")
