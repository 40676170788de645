"""The report of `simcse`: the document's twelve columns beside its own numbers, and which tokens a gate drops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from argrad.recipes.bench import CellResult, Summary
from argrad.recipes.files import read_json, write_json
from argrad.recipes.report import Row, section, table

UNTRAINED = "untrained"
FILE = "tokens.json"
COLUMNS = (
    *(
        "avg_sts",
        "avg_test",
        "avg_train_and_dev",
        "sickrelatedness",
        "sts12",
        "sts13",
        "sts14",
        "sts15",
        "sts16",
    ),
    *("stsbenchmark", "stsbenchmark_test", "stsbenchmark_train_and_dev"),
)
_MORE = ("stsbenchmark_dev", "kept", "avg_test_dedup", "stsbenchmark_test_dedup")
_SHOWN = (
    "A man is not playing the guitar.",
    "Two dogs are running through the snow near a house.",
    "The stock market fell sharply on Monday, officials said.",
    "It is said that the new bridge was opened in the spring of last year.",
)
# Spearman x 100 on avg_sts, avg_test, avg_train_and_dev, SICK-R, STS12 to 16, STS-B, its test part, its train and dev
PUBLISHED = {
    (
        "unsup-bert",
        "gate as published",
    ): "74.22 73.94 78.20 69.48 65.05 79.50 70.76 80.34 76.55 77.82 75.92 78.20",
    ("unsup-bert", "plain"): "74.99 74.73 78.22 70.77 64.28 81.68 72.26 80.25 77.84 77.85 76.00 78.22",
    (
        "unsup-roberta",
        "gate as published",
    ): "74.63 74.58 78.63 68.31 63.86 79.31 72.02 81.79 78.61 78.52 78.16 78.63",
    (
        "unsup-roberta",
        "plain",
    ): "76.02 76.04 79.55 69.48 65.97 81.24 73.39 81.92 80.60 79.54 79.69 79.55",
    (
        "sup-bert",
        "gate as published",
    ): "81.48 81.44 84.51 80.95 74.93 84.61 79.89 85.35 80.23 84.44 84.14 84.51",
    ("sup-bert", "plain"): "81.53 81.49 84.56 81.04 75.21 84.52 79.81 85.34 80.27 84.51 84.27 84.56",
    (
        "sup-roberta",
        "gate as published",
    ): "82.49 82.57 85.11 80.63 76.16 85.71 80.96 85.80 82.94 85.21 85.78 85.11",
    ("sup-roberta", "plain"): "82.13 82.24 84.97 80.25 75.86 84.75 80.33 85.36 83.21 85.11 85.91 84.97",
}


def published(row: str, column: str) -> list[float] | None:
    """The twelve numbers of the document's table."""
    text = PUBLISHED.get((row, column))
    return None if text is None else [float(x) for x in text.split()]


def keep(folder: Path, model: Any) -> None:
    """Some sentences, each token with its probability and whether it was kept."""
    if model.gate is not None:
        found = [
            {
                "tokens": list(e.tokens),
                "keep": [float(p) for p in e.keep_prob],
                "kept": [bool(k) for k in e.kept],
            }
            for e in model.explain(list(_SHOWN))
        ]
        write_json(folder / FILE, found)


def figures(summary: Summary) -> Sequence[str]:
    """All columns, then the tokens."""
    return [_table(summary), *_tokens(summary)]


def _table(summary: Summary) -> str:
    rows = [row for c in summary.cells for row in _rows(c)]
    text = (
        "Spearman x 100, mean over the seeds. dedup: without the pairs that are in STS-B train or dev as well; kept: "
        "share of the tokens of all sentences that the encoder was let to see. Published rows where there are any."
    )
    return section("All columns", text, table(["", *COLUMNS, *_MORE], rows))


def _rows(c: CellResult) -> Iterator[Row]:
    values = [c.mean(name) for name in (*COLUMNS, *_MORE)]
    yield Row(f"{c.cell.row}, {c.cell.column}", "ours", 0, values)
    numbers = published(c.cell.row, c.cell.column)
    if numbers is not None:
        missing = [float("nan")] * len(_MORE)
        yield Row(f"{c.cell.row}, {c.cell.column}", "published", 1, [*numbers, *missing])


def _tokens(summary: Summary) -> Iterator[str]:
    shown = [(c.cell.name, said) for c in summary.cells if (said := _kept(c)) is not None]
    if not shown:
        return
    text = "Tokens that the gate of the first seed keeps at test are marked; the others are never attended to."
    body = "".join(
        f"<dt>{escape(name)}</dt>" + "".join(f"<dd>{_words(sentence)}</dd>" for sentence in said)
        for name, said in shown
    )
    yield section("Which tokens go", text, f'{_STYLE}<dl class="card gate">{body}</dl>')


_STYLE = (
    "<style>.gate dt{font-weight:600;margin-top:.8rem}.gate dd{margin:0;line-height:1.9}"
    ".gate mark{background:var(--c1);color:var(--card);padding:.05em .25em;border-radius:4px}</style>"
)


def _kept(result: CellResult) -> list[dict[str, Any]] | None:
    return read_json(result.jobs[0].folder / FILE) if result.jobs else None


def _words(said: dict[str, Any]) -> str:
    return " ".join(
        f'<mark title="{p:.2f}">{escape(t)}</mark>' if kept else escape(t)
        for t, p, kept in zip(said["tokens"], said["keep"], said["kept"], strict=True)
    )
