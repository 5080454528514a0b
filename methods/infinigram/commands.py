"""`harness infinigram build|count|prob|dist|documents|attribute|score|verify`: the index as a tool of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from harness.common.errors import RequestError, reason, unknown
from harness.plan.registry import command

if TYPE_CHECKING:
    from methods.infinigram.answers import Document
    from methods.infinigram.reading import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]
Index = Annotated[list[Path], typer.Argument(help="Folders that `build` wrote.", show_default=False)]
Text_ = Annotated[str, typer.Option("--text", help="The query, as text.")]
Ids = Annotated[str, typer.Option("--ids", help="The query, as token ids with commas between them.")]
Texts = Annotated[
    list[str] | None,
    typer.Option(
        "--text", help="The query, as text. Repeatable: all of them. `||`: one or the other; as itself it needs --ids."
    ),
]
Queries = Annotated[list[str] | None, typer.Option("--ids", help="The same, as token ids with commas between them.")]
Subtract = Annotated[list[Path] | None, typer.Option(help="Folder whose documents are taken away. Repeatable.")]
Kind = Literal["folder", "hub", "embedded"]
OR = "||"
_PLACES = ("line", "row", "split", "document")  # of a document in its file


@command("infinigram", summary="build and ask indexes of n-grams of any length")
def infinigram() -> typer.Typer:
    """The sub-commands, ready to be mounted."""
    purpose = "Build indexes of text and ask them for n-grams of any length."
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=purpose)
    for one in (build, count, prob, dist, documents, attribute, score, verify):
        app.command()(one)
    return app


def build(
    text: Annotated[list[str], typer.Argument(
        help="Files and folders of .txt, .jsonl (both also .gz) or .parquet, here or under HARNESS_DATA; or hub ids.",
        show_default=False,
    )],
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    tokenizer: Annotated[str, typer.Option(help="Hub id or folder of the tokenizer.")],
    field: Annotated[str, typer.Option(help="Field of JSON lines and Parquet that holds the text.")] = "text",
    source: Annotated[str, typer.Option(help=f"Where the text is: {', '.join(get_args(Kind))}.")] = "folder",
    split: Annotated[list[str] | None, typer.Option(help="Only this split of a hub id. Repeatable.")] = None,
    shards: Annotated[int, typer.Option(help="Shards at least.")] = 1,
    memory_limit: Annotated[
        int | None, typer.Option(help="Bytes of memory for sorting; by default half of what is free.")
    ] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Index texts and print the folder. Every answer names the file and line, or row, that it comes from.

    \b
    Examples:
      harness infinigram build notes letters/2021.txt --tokenizer openai-community/gpt2 --output indexes/notes
      harness infinigram build pages.jsonl.gz --field content --tokenizer ./tokenizer --output indexes/pages
    """
    from harness.common.files import data_roots
    from harness.common.progress import Progress
    from methods.infinigram.build import build_index
    from methods.infinigram.reading import files_of, texts_of, tokenized

    if source not in get_args(Kind):
        raise unknown("source", source, get_args(Kind))
    if source == "folder":
        if split:
            raise RequestError("--split is for --source hub: name the files that you want")
        texts = texts_of(files_of([_place(name, data_roots()) for name in text]), field)
    else:
        texts = _data_sets(cast(Kind, source), text, split)
    coder, progress = _tokenizer(tokenizer), Progress()
    vocabulary_size = max(coder.get_vocab().values()) + 1  # ids may have gaps
    folder = build_index(
        tokenized(texts, coder), output, vocabulary_size=vocabulary_size, shards=shards, memory_limit=memory_limit,
        tokenizer_hash=_hash(coder), tokenizer=coder.save_pretrained, progress=progress,
    )  # fmt: skip
    metadata = json.loads((folder / "metadata.json").read_text())
    facts = {"folder": str(folder), **{name: metadata[name] for name in ("documents", "tokens", "vocabulary_size")}}
    _print({**facts, "shards": len(metadata["shards"])}, as_json)


def _place(name: str, roots: Sequence[Path]) -> Path:
    """The file or folder of this name, here or under the data roots."""
    for place in (Path(name), *(root / name for root in roots)):
        if place.exists():
            return place
    raise RequestError(
        f"no file or folder {name}, here or under HARNESS_DATA; a data set of the hub needs --source hub"
    )


def _data_sets(kind: Kind, names: Sequence[str], splits: Sequence[str] | None) -> Iterator[Text]:
    """The documents of data sets, of all splits that they have or of these."""
    from harness.common.cache import Cache
    from harness.common.text import SPLITS, Split
    from harness.common.text.kinds import open_source
    from methods.infinigram.reading import in_pieces

    for name in splits or ():
        if name not in SPLITS:
            raise unknown("split", name, SPLITS)
    for name in names:
        source = open_source(kind, name, (), Cache())
        found: dict[Split, Sequence[str]] = {}
        for part in cast(Sequence[Split], splits or SPLITS):
            try:
                found[part] = source.documents(part)
            except RequestError:  # a data set need not have all splits
                if splits or (part == SPLITS[-1] and not found):
                    raise
        for part, documents in found.items():
            for number, document in enumerate(documents):
                about = {"file": name, "split": part, "document": number}
                yield from in_pieces(document, about, f"{name}, {part}, document {number}")


def count(
    index: Index, text: Texts = None, ids: Queries = None, subtract: Subtract = None, as_json: AsJson = False
) -> None:
    """How often an n-gram occurs; of several, how many documents hold all of them.

    \b
    Examples:
      harness infinigram count indexes/wikitext-2 --text " natural language"
      harness infinigram count indexes/wikitext-2 --text " London|| Paris" --text " museum"
    """
    with _Asked(index, subtract) as asked:
        cnf = asked.cnf(text, ids)
        if len(cnf) == len(cnf[0]) == 1:
            ngram = cnf[0][0]
            facts = {"ngram": asked.shown(ngram), "count": asked.engine.count(ngram)}
        else:
            facts = {"documents": asked.engine.count_cnf(cnf).documents}
        _print(facts | asked.elsewhere(text), as_json)


def prob(
    index: Index, text: Text_ = "", ids: Ids = "",
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
    index: Index, text: Text_ = "", ids: Ids = "",
    limit: Annotated[int, typer.Option(min=1, help="Tokens shown.")] = 10, subtract: Subtract = None,
    as_json: AsJson = False,
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
    index: Index, text: Texts = None, ids: Queries = None,
    limit: Annotated[int, typer.Option(min=1, help="Documents shown.")] = 3,
    every: Annotated[bool, typer.Option("--all", help="Show all of them, in order.")] = False,
    window: Annotated[int, typer.Option(min=0, help="Tokens of text shown on each side.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Chooses among them.")] = 0, subtract: Subtract = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Documents, drawn at random, that hold an n-gram, or all of several, each with its file and line.

    \b
    Examples:
      harness infinigram documents indexes/notes --text "the Tower of London" --all
      harness infinigram documents indexes/notes --text " London|| Paris" --text " museum" --window 50
    """
    with _Asked(index, subtract) as asked:
        cnf = asked.cnf(text, ids)
        found = [asked.found(one) for one in asked.engine.documents(cnf, None if every else limit, seed, window=window)]
        elsewhere = asked.elsewhere(text) if not found else {}
        lines = [
            line for number, one in enumerate(found, 1) for line in (f"{number}. {_from(one)}", f"   {_quoted(one)}")
        ]
        _print({"documents": found} | elsewhere, as_json, lines or ["no document holds this"])


def attribute(
    index: Index, text: Text_ = "", ids: Ids = "",
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
        spans = [
            {"begin": span.begin, "end": span.end, "count": span.count,
             "text": asked.shown(query[span.begin : span.end]), "documents": [*map(asked.found, span.documents)]}
            for span in asked.engine.attribute(query, min_length, limit)
        ]  # fmt: skip
        lines = []
        for span in spans:
            lines.append(
                f"tokens {span['begin']} to {span['end'] - 1}, {_times(span['count'])}: {json.dumps(span['text'])}"
            )
            lines += [f"   {_from(one)}" for one in span["documents"]]
        _print({"spans": spans}, as_json, lines or ["no span occurs"])


def score(index: Index, text: Text_ = "", ids: Ids = "", subtract: Subtract = None, as_json: AsJson = False) -> None:
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
        from methods.infinigram.layout import TOKENIZER

        self.engine = open_index(index, subtract or ())
        place = index[0] / TOKENIZER
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
            found = [int(part) for part in ids.split(",")]
        except ValueError as error:
            raise RequestError(f"--ids {ids}: give token ids with commas between them") from error
        self.engine.checked(found)
        return found

    def cnf(self, texts: list[str] | None, ids: list[str] | None) -> list[list[list[int]]]:
        """Queries that must all be held, each with alternatives. Without any, the empty n-gram."""
        if texts and ids:
            raise RequestError("--text and --ids are two queries: give one")
        clauses = [[self.ids(one, "") for one in text.split(OR)] for text in texts or ()]
        clauses += [[self.ids("", one) for one in part.split(OR)] for part in ids or ()]
        if not all(all(clause) for clause in clauses):
            raise RequestError(
                f"a query, or one side of a {OR}, has no token, so every document would hold it: leave it out; a {OR} "
                "of the text itself is given by --ids"
            )
        return clauses or [[[]]]

    def elsewhere(self, texts: list[str] | None) -> dict[str, dict[str, int]]:
        """For texts that do not occur: how often they do with or without a blank before them and in another case."""
        found: dict[str, int] = {}
        for text in (one for several in texts or () for one in several.split(OR)):
            bare = text.strip()
            if not bare or self.engine.count(self.ids(text, "")):
                continue
            forms: dict[tuple[int, ...], str] = {}  # some have the same tokens
            for one in (bare, bare.lower(), bare[:1].upper() + bare[1:], bare.title(), bare.upper()):
                for form in (one, f" {one}"):
                    forms[tuple(self.ids(form, ""))] = form
            for ids, form in forms.items():
                if number := self.engine.count(ids):
                    found[form] = number
        return {"occurs_as": found} if found else {}

    def found(self, document: Document) -> dict[str, Any]:
        """A document's facts for output; `line` of its metadata is that of the match."""
        source = document.metadata
        if isinstance(source, dict) and "line" in source:
            source = {**source, "line": source["line"] + document.lines}
        return {
            "index": str(document.index), "shard": document.shard, "document": document.number, "source": source,
            "tokens": document.length, "matches": document.matches, "begin": document.window,
            "text": self.shown(document.tokens), "shown": len(document.tokens),
        }  # fmt: skip

    def shown(self, ids: list[int]) -> Any:
        """Tokens as text if there is a tokenizer."""
        return self._coder.decode(ids) if self._coder is not None else ids


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer.json is a plain Exception of the Rust library
        raise RequestError(f"no tokenizer {name}: {reason(error)}; give a folder or a hub id") from error


def _hash(coder: Any) -> str:
    """A tokenizer's identity: the hash of its vocabulary."""
    from harness.common.files import digest

    return digest(sorted(coder.get_vocab().items()))


def _from(one: dict[str, Any]) -> str:
    """Where a document comes from, in words."""
    source = one["source"]
    if not isinstance(source, dict) or "file" not in source:
        number = f"{one['index']}, shard {one['shard']}, document {one['document']}"
        return number if source is None else f"{number}: {json.dumps(source)}"
    place = ", ".join([source["file"], *(f"{name} {source[name]}" for name in _PLACES if name in source)])
    about = ", ".join(f"{name} {value}" for name, value in source.items() if name not in ("file", *_PLACES))
    return f"{place} ({about})" if about else place


def _quoted(one: dict[str, Any]) -> str:
    """The text shown of a document, on one line."""
    before, after = one["begin"] > 0, one["begin"] + one["shown"] < one["tokens"]
    text = " ".join(one["text"].split()) if isinstance(one["text"], str) else one["text"]
    return f"{'… ' * before}{text}{' …' * after}"


def _print(facts: dict[str, Any], as_json: bool, lines: Sequence[str] = ()) -> None:
    """Print facts as JSON or as lines; `lines` stand for the facts that are lists."""
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    for line in lines:
        typer.echo(line)
    for name, value in facts.items():
        if isinstance(value, dict):
            for key, number in value.items():
                typer.echo(f"{name.replace('_', ' ')} {json.dumps(key)}: {_times(number)}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            if not lines:
                for number, part in enumerate(value, 1):
                    typer.echo(f"{name} {number}: " + ", ".join(f"{key} {_shown(one)}" for key, one in part.items()))
        elif not lines:
            typer.echo(f"{name:<16} {_shown(value)}")


def _times(number: int) -> str:
    return f"{number:,} time{'s' * (number != 1)}"


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value) if isinstance(value, str) else f"{value}"
