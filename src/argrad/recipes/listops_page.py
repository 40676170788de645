"""The report of `listops`: a few expressions with the arcs that each column has found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor

from argrad.recipes.bench import Summary
from argrad.recipes.data.listops import TOKENS, ListOps
from argrad.recipes.files import read_json, write_json
from argrad.recipes.report import Row, section, table

FILE, SHOWN = "trees.json", 3
_STEP, _LEVEL = 34, 9  # distance of two tokens; how much higher an arc is for each token it spans


def keep(folder: Path, test: ListOps, found: Tensor) -> None:
    """Some test expressions of the middle depth, with their true arcs and those found."""
    middle = int(test.depth.median())
    chosen = (test.depth == middle).nonzero().flatten()[:SHOWN].tolist()
    write_json(folder / FILE, {"trees": [_said(test, found, i) for i in chosen]})


def _said(test: ListOps, found: Tensor, i: int) -> dict[str, Any]:
    length = int((test.tokens[i] > 0).sum())
    words = [TOKENS[t] for t in test.tokens[i, :length].tolist()]
    true, z = (m[i, :length, :length].nonzero().tolist() for m in (test.trees, found))
    return {"words": words, "value": int(test.value[i]), "true": true, "found": z}


def figures(summary: Summary) -> Sequence[str]:
    """The trees, and all numbers."""
    text = (
        "Test expressions, and who belongs to whom as a hard sample has it: an arc goes from an operator, above "
        "its left or right end, to what it encloses. Blue: right; orange: wrong."
    )
    parts = [f"<h3>{escape(name)}</h3>{body}" for name, body in _columns(summary)]
    shown = [section("Trees that were found", text, _STYLE, *parts)] if parts else []
    names = list(dict.fromkeys(n for c in summary.cells for n in c.metrics))
    rows = [Row(c.cell.column, "", i, [c.mean(n) for n in names]) for i, c in enumerate(summary.cells)]
    return [
        *shown,
        *([section("All numbers", "In percent.", table(["", *names], rows))] if names else []),
    ]


_STYLE = (
    "<style>.arcs{width:100%;height:auto;max-width:46rem}.arcs path{fill:none;stroke-width:1.6}.arcs "
    ".right{stroke:var(--c0)}.arcs .wrong{stroke:var(--c1)}.arcs text{fill:var(--ink);font-size:12px}</style>"
)


def _columns(summary: Summary) -> Iterator[tuple[str, str]]:
    for result in summary.cells:
        said = read_json(result.jobs[0].folder / FILE) if result.jobs else None
        if said is not None:
            yield result.cell.column, "".join(_arcs(tree) for tree in said["trees"])


def _arcs(said: dict[str, Any]) -> str:
    words, true = said["words"], {tuple(arc) for arc in said["true"]}
    height = _LEVEL * len(words) + 30
    base = height - 18
    paths = "".join(
        _path(h, c, base, "right" if (h, c) in true or (c, h) in true else "wrong")
        for h, c in said["found"]
    )
    texts = "".join(
        f'<text x="{_STEP * (i + 0.5):g}" y="{height - 4}" text-anchor="middle">{escape(w)}</text>'
        for i, w in enumerate(words)
    )
    label = escape(f"{' '.join(words)} = {said['value']}", quote=True)
    width = _STEP * len(words)
    return f'<svg class="arcs" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{paths}{texts}</svg>'


def _path(head: int, child: int, base: int, kind: str) -> str:
    a, b = (_STEP * (i + 0.5) for i in (head, child))
    top = base - 2 * _LEVEL * abs(head - child) ** 0.8
    return f'<path class="{kind}" d="M{a:g} {base}C{a:g} {top:.0f} {b:g} {top:.0f} {b:g} {base}"/>'
