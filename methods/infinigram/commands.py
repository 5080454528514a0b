"""`harness infinigram build|count|prob|dist|documents|attribute|score|verify`: the index as a tool of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.common.errors import RequestError
from harness.plan.registry import command
from methods.infinigram.asking import Asked, opened_tokenizer, place_of, printed, quoted, times

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


@command("infinigram")
def infinigram() -> typer.Typer:
    """The sub-commands, ready to be mounted."""
    purpose = "Build indexes of text and ask them for n-grams of any length."
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=purpose)
    for one in (build, count, prob, dist, documents, attribute, score, verify):
        app.command()(one)
    return app


def build(
    text: Annotated[list[str], typer.Argument(
        help="Files of .txt, .md, .jsonl (.txt and .jsonl also with .gz) or .parquet, and folders of them, here or "
        "under HARNESS_DATA.",
        show_default=False,
    )],
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    tokenizer: Annotated[str, typer.Option(help="Hub id or folder of the tokenizer.")],
    field: Annotated[str, typer.Option(help="Field of JSON lines and Parquet that holds the text.")] = "text",
    shards: Annotated[int, typer.Option(help="Shards at least.")] = 1,
    memory_limit: Annotated[
        int | None, typer.Option(help="Bytes of memory to build in; by default half of what is free.")
    ] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Index texts and print the folder. Every answer names the file and line, or row, that it comes from.

    \b
    Examples:
      harness infinigram build notes letters/2021.txt --tokenizer openai-community/gpt2 --output indexes/notes
      harness infinigram build pages.jsonl.gz --field content --tokenizer ./tokenizer --output indexes/pages
    """
    from harness.common.files import data_roots, digest
    from harness.common.progress import Progress
    from methods.infinigram.build import build_index
    from methods.infinigram.reading import files_of, texts_of, tokenized

    texts = texts_of(files_of([_place(name, data_roots()) for name in text]), field)
    coder, progress = opened_tokenizer(tokenizer), Progress()
    vocabulary_size = max(coder.get_vocab().values()) + 1  # ids may have gaps
    folder = build_index(
        tokenized(texts, coder), output, vocabulary_size=vocabulary_size, shards=shards, memory_limit=memory_limit,
        tokenizer_hash=digest(sorted(coder.get_vocab().items())), tokenizer=coder.save_pretrained, progress=progress,
    )  # fmt: skip
    metadata = json.loads((folder / "metadata.json").read_text())
    facts = {"folder": str(folder), **{name: metadata[name] for name in ("documents", "tokens", "vocabulary_size")}}
    printed({**facts, "shards": len(metadata["shards"])}, as_json)


def _place(name: str, roots: Sequence[Path]) -> Path:
    """The file or folder of this name, here or under the data roots."""
    for place in (Path(name), *(root / name for root in roots)):
        if place.exists():
            return place
    raise RequestError(f"no file or folder {name}, here or under HARNESS_DATA")


def count(
    index: Index, text: Texts = None, ids: Queries = None, subtract: Subtract = None, as_json: AsJson = False
) -> None:
    """How often an n-gram occurs; of several, how many documents hold all of them.

    \b
    Examples:
      harness infinigram count indexes/wikitext-2 --text " natural language"
      harness infinigram count indexes/wikitext-2 --text " London|| Paris" --text " museum"
    """
    with Asked(index, subtract) as asked:
        cnf = asked.cnf(text, ids)
        if len(cnf) == len(cnf[0]) == 1:
            ngram = cnf[0][0]
            facts = {"ngram": asked.shown(ngram), "count": asked.engine.count(ngram)}
        else:
            facts = {"documents": asked.engine.count_cnf(cnf).documents}
        printed(facts | asked.elsewhere(text), as_json)


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
    with Asked(index, subtract) as asked:
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
        printed({**facts, "count": found.count, "context_count": found.context_count, "probability": value}, as_json)


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
    with Asked(index, subtract) as asked:
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
        printed({**facts, "following": following}, as_json)


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
    with Asked(index, subtract) as asked:
        cnf = asked.cnf(text, ids)
        found = [asked.found(one) for one in asked.engine.documents(cnf, None if every else limit, seed, window=window)]
        elsewhere = asked.elsewhere(text) if not found else {}
        lines = [
            line for number, one in enumerate(found, 1) for line in (f"{number}. {place_of(one)}", f"   {quoted(one)}")
        ]
        printed({"documents": found} | elsewhere, as_json, lines or ["no document holds this"])


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
    with Asked(index, subtract) as asked:
        query = asked.ids(text, ids)
        spans = [
            {"begin": span.begin, "end": span.end, "count": span.count,
             "text": asked.shown(query[span.begin : span.end]), "documents": [*map(asked.found, span.documents)]}
            for span in asked.engine.attribute(query, min_length, limit)
        ]  # fmt: skip
        lines = []
        for span in spans:
            lines.append(
                f"tokens {span['begin']} to {span['end'] - 1}, {times(span['count'])}: {json.dumps(span['text'])}"
            )
            lines += [f"   {place_of(one)}" for one in span["documents"]]
        printed({"spans": spans}, as_json, lines or ["no span occurs"])


def score(index: Index, text: Text_ = "", ids: Ids = "", subtract: Subtract = None, as_json: AsJson = False) -> None:
    """The probability of every token of a text after those before it.

    \b
    Example:
      harness infinigram score indexes/wikitext-2 --text "The Tower of London" --json
    """
    with Asked(index, subtract) as asked:
        query = asked.ids(text, ids)
        found = asked.engine.score(query)
        printed({"tokens": [
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
        printed({"folder": str(folder), "tokens": layout.read_metadata(folder)["tokens"], "intact": True}, as_json)
