"""`harness infinigram build|count|prob|dist|documents|attribute|score|verify`: the index as a tool of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from harness.common.errors import RequestError, reason, unknown
from harness.plan.registry import command

if TYPE_CHECKING:
    from methods.infinigram.answers import Document

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]
Index = Annotated[list[Path], typer.Argument(help="Folders that `build` wrote.", show_default=False)]
Text = Annotated[str, typer.Option("--text", help="The query, as text.")]
Ids = Annotated[str, typer.Option("--ids", help="The query, as token ids with commas between them.")]
Subtract = Annotated[list[Path] | None, typer.Option(help="Folder whose documents are taken away. Repeatable.")]
Kind = Literal["folder", "hub", "embedded"]
_TOKENIZER = "tokenizer"


@command("infinigram", summary="build and ask indexes of n-grams of any length")
def infinigram() -> typer.Typer:
    """The sub-commands, ready to be mounted."""
    purpose = "Build indexes of text and ask them for n-grams of any length."
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=purpose)
    for one in (build, count, prob, dist, documents, attribute, score, verify):
        app.command()(one)
    return app


def build(
    dataset: Annotated[str, typer.Argument(help="Text: a file or folder, here or under HARNESS_DATA, or a hub id.")],
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    tokenizer: Annotated[str, typer.Option(help="Hub id or folder of the tokenizer.")],
    source: Annotated[str, typer.Option(help=f"Where the text is: {', '.join(get_args(Kind))}.")] = "folder",
    split: Annotated[list[str] | None, typer.Option(help="Only this split. Repeatable.")] = None,
    shards: Annotated[int, typer.Option(help="Shards at least.")] = 1,
    memory_limit: Annotated[int | None, typer.Option(help="Bytes of memory that the build may take in all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Index a text and print the folder.

    \b
    Examples:
      harness infinigram build wikitext-2 --tokenizer openai-community/gpt2 --output indexes/wikitext-2
      harness infinigram build notes.jsonl --tokenizer ./tokenizer --output indexes/notes --shards 4
    """
    from harness.common.cache import Cache
    from harness.common.files import data_roots
    from harness.common.progress import Progress
    from harness.common.text import SPLITS, Split
    from harness.common.text.kinds import open_source
    from methods.infinigram.build import build_index

    if source not in get_args(Kind):
        raise unknown("source", source, get_args(Kind))
    for name in split or ():
        if name not in SPLITS:
            raise unknown("split", name, SPLITS)
    place, roots = Path(dataset).absolute(), data_roots()  # of a link, the name that was given
    if source == "folder" and place.exists():  # a path, wherever it is
        dataset, roots = place.name, (place.parent,)
    coder, text = _tokenizer(tokenizer), open_source(cast(Kind, source), dataset, roots, Cache())
    progress = Progress()

    def ids() -> Iterator[list[int]]:
        missing: RequestError | None = None
        found = False
        for part in cast(list[Split], split or list(SPLITS)):
            try:
                text.fingerprint(part)
                documents = text.documents(part)
            except RequestError as error:
                if split:
                    raise
                missing = error
                continue  # a data set without this split, or too small to have it
            for document in progress.track(documents, "tokenizing", unit="documents"):
                found = True
                yield coder(document, add_special_tokens=False)["input_ids"]
        if missing and not found:
            raise missing

    folder = build_index(
        ids(), output, vocabulary_size=len(coder), shards=shards, memory_limit=memory_limit,
        tokenizer_hash=_hash(coder), progress=progress,
    )  # fmt: skip
    coder.save_pretrained(folder / _TOKENIZER)
    metadata = json.loads((folder / "metadata.json").read_text())
    facts = {"folder": str(folder), **{name: metadata[name] for name in ("documents", "tokens", "vocabulary_size")}}
    _print({**facts, "shards": len(metadata["shards"])}, as_json)


def count(index: Index, text: Text = "", ids: Ids = "", subtract: Subtract = None, as_json: AsJson = False) -> None:
    """How often an n-gram occurs.

    \b
    Example:
      harness infinigram count indexes/wikitext-2 --text " natural language"
    """
    with _Asked(index, subtract) as asked:
        ngram = asked.ids(text, ids)
        _print({"ngram": asked.shown(ngram), "count": asked.engine.count(ngram)}, as_json)


def prob(
    index: Index, text: Text = "", ids: Ids = "",
    n: Annotated[int | None, typer.Option(min=1, help="Tokens of the n-gram; without it, as many as occur.")] = None,
    subtract: Subtract = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """The probability of the last token of the query after those before it.

    \b
    Example:
      harness infinigram prob indexes/wikitext-2 --text " natural language processing" --json
    """
    with _Asked(index, subtract) as asked:
        query = asked.ids(text, ids)
        if not query:
            raise RequestError("the query has no token; give --text or --ids")
        context, token = query[:-1], query[-1]
        facts: dict[str, Any] = {"context": asked.shown(context), "token": asked.shown([token])}
        if n is not None:
            context = context[len(context) - min(n - 1, len(context)) :]
            facts["context"] = asked.shown(context)
            found = asked.engine.ngram_prob(context, token)
        else:
            found = asked.engine.infinigram_prob(context, token)
            facts |= {"effective_n": found.n, "sparse": found.sparse}
        value = found.probability if found.context_count else None
        _print({**facts, "count": found.count, "context_count": found.context_count, "probability": value}, as_json)


def dist(
    index: Index, text: Text = "", ids: Ids = "", limit: Annotated[int, typer.Option(min=0, help="Tokens shown.")] = 10,
    subtract: Subtract = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """What follows the longest suffix of a context that occurs.

    \b
    Example:
      harness infinigram dist indexes/wikitext-2 --text " natural language"
    """
    with _Asked(index, subtract) as asked:
        found = asked.engine.infinigram_distribution(asked.ids(text, ids))
        best = sorted(
            zip(found.counts.tolist(), found.tokens.tolist(), strict=True), key=lambda pair: (-pair[0], pair[1])
        )
        total = int(found.counts.sum())
        following = [
            {"token": asked.shown([token]), "count": number, "probability": number / total}
            for number, token in best[:limit]
        ]
        facts = {"effective_n": found.n, "sparse": found.sparse, "context_count": total, "distinct": len(best)}
        _print({**facts, "following": following}, as_json)


def documents(
    index: Index, text: Text = "", ids: Ids = "",
    limit: Annotated[int, typer.Option(min=0, help="Documents shown.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Chooses among them.")] = 0, subtract: Subtract = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Documents, drawn at random, that hold an n-gram.

    \b
    Example:
      harness infinigram documents indexes/wikitext-2 --text " natural language"
    """
    with _Asked(index, subtract) as asked:
        found = asked.engine.documents(asked.ids(text, ids), limit, seed)
        _print({"documents": [*map(asked.found, found)]}, as_json)


def attribute(
    index: Index, text: Text = "", ids: Ids = "",
    min_length: Annotated[int, typer.Option(help="Tokens of a span at least.")] = 5,
    limit: Annotated[int, typer.Option(min=0, help="Documents shown of each span.")] = 1, subtract: Subtract = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """The longest spans of a text that occur verbatim, and documents that hold them.

    \b
    Example:
      harness infinigram attribute indexes/wikitext-2 --text "The Tower of London is a castle on the Thames ."
    """
    with _Asked(index, subtract) as asked:
        query = asked.ids(text, ids)
        _print({"spans": [
            {"begin": span.begin, "end": span.end, "count": span.count,
             "text": asked.shown(query[span.begin : span.end]), "documents": [*map(asked.found, span.documents)]}
            for span in asked.engine.attribute(query, min_length, limit)
        ]}, as_json)  # fmt: skip


def score(index: Index, text: Text = "", ids: Ids = "", subtract: Subtract = None, as_json: AsJson = False) -> None:
    """The probability of every token of a text after those before it.

    \b
    Example:
      harness infinigram score indexes/wikitext-2 --text "The Tower of London" --json
    """
    with _Asked(index, subtract) as asked:
        query = asked.ids(text, ids)
        found = asked.engine.score(query)
        _print({"tokens": [
            {"token": asked.shown([token]), "effective_n": int(found.n[at]), "count": int(found.counts[at]),
             "context_count": int(found.context_counts[at]), "probability": float(found.probabilities[at]),
             "sparse": bool(found.sparse[at])} for at, token in enumerate(query)
        ]}, as_json)  # fmt: skip


def verify(index: Index, as_json: AsJson = False) -> None:
    """Read indexes and compare them with their checksums; exit code 2 when one is damaged.

    \b
    Example:
      harness infinigram verify indexes/wikitext-2
    """
    from harness.common.progress import Progress
    from methods.infinigram import layout

    for folder in index:
        layout.verify(folder, Progress())
        _print({"folder": str(folder), "tokens": layout.read_metadata(folder)["tokens"], "intact": True}, as_json)


class _Asked:
    """An engine with the tokenizer of its first index."""

    def __init__(self, index: list[Path], subtract: list[Path] | None) -> None:
        from methods.infinigram.engine import open_index

        self.engine = open_index(index, subtract or ())
        place = index[0] / _TOKENIZER
        self._coder: Any = _tokenizer(str(place)) if place.is_dir() else None

    def __enter__(self) -> _Asked:
        return self

    def __exit__(self, *exception: object) -> None:
        self.engine.close()

    def ids(self, text: str, ids: str) -> list[int]:
        """The tokens of a query given as text or as ids."""
        if text and ids:
            raise RequestError("--text and --ids are two queries: give one")
        if not ids:
            if text and self._coder is None:
                raise RequestError("this index holds no tokenizer: give the query as --ids 1,2,3")
            found: list[int] = self._coder(text, add_special_tokens=False)["input_ids"] if text else []
            return found
        try:
            return [int(part) for part in ids.split(",")]
        except ValueError as error:
            raise RequestError(f"--ids {ids}: give token ids with commas between them") from error

    def found(self, document: Document) -> dict[str, Any]:
        """A document's facts for output."""
        return {
            "index": str(document.index), "shard": document.shard, "document": document.number,
            "tokens": document.length, "matches": document.matches, "metadata": document.metadata,
            "text": self.shown(document.tokens),
        }  # fmt: skip

    def shown(self, ids: list[int]) -> Any:
        """Tokens as text if there is a tokenizer."""
        return self._coder.decode(ids) if self._coder is not None else ids


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise RequestError(f"no tokenizer {name}: {reason(error)}; give a folder or a hub id") from error


def _hash(coder: Any) -> str:
    """A tokenizer's identity: the hash of its vocabulary."""
    from harness.common.files import digest

    return digest(sorted(coder.get_vocab().items()))


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for number, part in enumerate(value, 1):
                typer.echo(f"{name} {number}: " + ", ".join(f"{key} {_shown(one)}" for key, one in part.items()))
        else:
            typer.echo(f"{name:<16} {_shown(value)}")


def _shown(value: Any) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else json.dumps(value)
        if isinstance(value, str)
        else f"{value}"
    )
