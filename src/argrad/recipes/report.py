"""One self-contained HTML report: the page, its sections and tables.

Every function returns HTML as text; figures come from `charts.py` and `pictures.py`. `page` joins them
with `report.css` into one file without external resources, for light and dark, desk and phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from argrad.recipes.charts import fixed, swatch


def section(title: str, text: str, *parts: str) -> str:
    """A heading, a paragraph of plain text, and figures."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{''.join(parts)}</section>"


def pair(*figures: str) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(figures)}</div>'


def page(
    *,
    eyebrow: str,
    title: str,
    lead: str,
    finding: str,
    sections: Sequence[str],
    command: str,
    facts: dict[str, str],
) -> str:
    """The whole document."""
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
<header>
<p class="eyebrow">{escape(eyebrow)}</p>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
<p class="finding">{escape(finding)}</p>
</header>
{"".join(sections)}
<footer>
<pre><code>{escape(command)}</code></pre>
<dl>{rows}</dl>
</footer>
</main>
</body>
</html>
"""


@dataclass(frozen=True)
class Row:
    """A table row: a name with its colour and note, then numbers."""

    name: str
    note: str
    colour: int
    values: Sequence[float]


def table(headers: Sequence[str], rows: Sequence[Row], *, best: Sequence[int] = ()) -> str:
    """A table of numbers; in the columns `best` the smallest value is marked."""
    lowest = {
        c: min((r.values[c] for r in rows if math.isfinite(r.values[c])), default=None) for c in best
    }
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in headers)
    body = "".join(_table_row(row, headers, lowest) for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _table_row(row: Row, headers: Sequence[str], lowest: dict[int, float | None]) -> str:
    name = f"{swatch(row.colour)}{escape(row.name)}<small>{escape(row.note)}</small>"
    cells = ""
    for column, (header, value) in enumerate(zip(headers[1:], row.values, strict=True)):
        text = fixed(value).replace("-", "−")
        if value == lowest.get(column):
            text = f'<span class="best">{text}</span>'
        # a phone shows the header inside the cell
        cells += f'<td data-label="{escape(header, quote=True)}">{text}</td>'
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'
