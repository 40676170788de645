"""The report of `l2x`: a review with the words that each relaxation has chosen, and all numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from argrad.recipes.bench import CellResult, Summary
from argrad.recipes.data.rationales import Rationales
from argrad.recipes.files import read_json, write_json
from argrad.recipes.l2x_model import Explainer
from argrad.recipes.report import section

FILE = "review.json"


@torch.no_grad()
def keep(folder: Path, model: Explainer, found: Rationales, k: int) -> None:
    """The first test review: its words, which of them are the rationale, and which were chosen."""
    tokens = found.test.tokens[:1]
    length = int((tokens > 0).sum())
    said = {
        "words": [found.words[i] for i in tokens[0, :length].tolist()],
        "rationale": found.test.rationale[0, :length].tolist(),
        "chosen": model.chosen(tokens, k)[0, :length].bool().tolist(),
        "score": float(found.test.score[0]),
    }
    write_json(folder / FILE, said)


def figures(summary: Summary) -> Sequence[str]:
    """One review a row of the table, once for each relaxation."""
    return [part for row in summary.rows for part in _row(summary, row)]


def _row(summary: Summary, row: str) -> Iterator[str]:
    cells = [c for c in summary.cells if c.cell.row == row]
    shown = [(c.cell.column, said) for c in cells if (said := _kept(c)) is not None]
    if not shown:
        return
    text = (
        "A test review; the sentence that decides its score is underlined, the words that were chosen are marked. "
        f"Score: {shown[0][1]['score']:.2f}."
    )
    body = "".join(f"<dt>{escape(name)}</dt><dd>{_words(said)}</dd>" for name, said in shown)
    yield section(row, text, f'{_STYLE}<dl class="card review">{body}</dl>')


_STYLE = (
    "<style>.review dt{font-weight:600;margin-top:.8rem}.review dd{margin:0;line-height:1.9}"
    ".review u{text-decoration-color:var(--c0);text-underline-offset:.25em}"
    ".review mark{background:var(--c1);color:var(--card);padding:.05em .25em;border-radius:4px}</style>"
)


def _kept(result: CellResult) -> dict[str, Any] | None:
    path = result.jobs[0].folder / FILE if result.jobs else None
    return read_json(path) if path is not None else None


def _words(said: dict[str, Any]) -> str:
    parts = []
    for word, inside, chosen in zip(said["words"], said["rationale"], said["chosen"], strict=True):
        text = f"<mark>{escape(word)}</mark>" if chosen else escape(word)
        parts.append(f"<u>{text}</u>" if inside else text)
    return " ".join(parts)
