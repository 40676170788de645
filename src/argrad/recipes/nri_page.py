"""The report of `nri-tree`: a strip of graphs as they are laid out, with the tree and the edges that were found."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np
from torch import Tensor

from argrad.recipes.bench import Summary
from argrad.recipes.data.layouts import Layouts
from argrad.recipes.files import write_bytes
from argrad.recipes.report import Row, section, table

FILE, SHOWN = "graphs.npz", 6


def keep(folder: Path, test: Layouts, found: Tensor) -> None:
    """The first test graphs: last frame, tree, edges found."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        frames=test.frames[:SHOWN].numpy(),
        trees=test.trees[:SHOWN].numpy(),
        found=found[:SHOWN].numpy(),
    )
    write_bytes(folder / FILE, buffer.getvalue())


def figures(summary: Summary) -> Sequence[str]:
    """For each T: the motion of one graph, and the same graphs with the edges of every law."""
    parts = []
    for row in summary.rows:
        cells = [c for c in summary.cells if c.cell.row == row]
        body = "".join(_strips(summary, row))
        if body:
            text = (
                "Above: a graph in motion, with its tree. Below: test graphs in their last frame. Blue: edges "
                "of the tree that were found; orange: edges found that are not there; grey: edges missed."
            )
            parts.append(
                section(f"{row}: graphs", text, f'{_STYLE}<div class="card graphs">{body}</div>')
            )
        names = list(dict.fromkeys(n for c in cells for n in c.metrics))
        rows = [Row(c.cell.column, "", i, [c.mean(n) for n in names]) for i, c in enumerate(cells)]
        if names:
            parts.append(section(f"{row}: all numbers", "", table([row, *names], rows)))
    return parts


_STYLE = (
    "<style>.graphs{display:grid;grid-template-columns:repeat(7,1fr);gap:.5rem;align-items:center}.graphs "
    "b{font-size:.8rem}.graphs svg{width:100%;height:auto;overflow:visible}.graphs "
    ".hit{stroke:var(--c0)}.graphs .extra{stroke:var(--c1)}.graphs .missed{stroke:var(--c6);opacity:.35}.graphs "
    "circle{fill:var(--ink)}</style>"
)


def _strips(summary: Summary, row: str) -> Iterator[str]:
    for i, result in enumerate(c for c in summary.cells if c.cell.row == row):
        path = result.jobs[0].folder / FILE if result.jobs else None
        if path is None or not path.is_file():
            continue
        with np.load(path) as kept:
            frames, trees, found = (kept[name] for name in ("frames", "trees", "found"))
        if i == 0:
            yield "<b>in motion</b>"
            times = np.linspace(0, frames.shape[1] - 1, SHOWN).round().astype(int)
            yield "".join(graph(frames[0, t], trees[0], trees[0]) for t in times)
        yield f"<b>{escape(result.cell.column)}</b>"
        shown = [graph(x[-1], t, z) for x, t, z in zip(frames, trees, found, strict=True)]
        yield "".join(shown) + "<span></span>" * (SHOWN - len(shown))


def graph(x: np.ndarray, tree: np.ndarray, found: np.ndarray) -> str:
    """One graph as SVG: `x` in [-1, 1], edges found in either direction."""
    found = np.maximum(found, found.T) > 0.5
    lines = ""
    for i in range(len(x)):
        for j in range(i):
            kind = {(1, 1): "hit", (0, 1): "extra", (1, 0): "missed"}.get(
                (int(tree[i, j]), int(found[i, j]))
            )
            if kind:
                ends = f'x1="{x[i, 0]:.2f}" y1="{x[i, 1]:.2f}" x2="{x[j, 0]:.2f}" y2="{x[j, 1]:.2f}"'
                lines += f'<line class="{kind}" {ends} stroke-width=".035"/>'
    dots = "".join(f'<circle cx="{a:.2f}" cy="{b:.2f}" r=".07"/>' for a, b in x)
    return f'<svg viewBox="-1.1 -1.1 2.2 2.2" role="img" aria-label="a graph">{lines}{dots}</svg>'
