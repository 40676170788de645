"""`report.html` of a recipe: the table, ours beside the published number, the claims, the curves."""

from __future__ import annotations

import math
from html import escape

from argrad.recipes import charts, machine, report
from argrad.recipes.bench.log import read_log
from argrad.recipes.bench.summary import CellResult, Summary


def render(summary: Summary) -> str:
    """The whole page."""
    recipe = summary.recipe
    facts = machine.facts()
    return report.page(
        eyebrow=f"argrad reproduce {recipe.name}",
        title=recipe.title,
        lead=recipe.about,
        finding=finding(summary),
        sections=[
            report.section(
                "Results",
                f"{recipe.unit}; {recipe.better} is better. Source: {recipe.source}.",
                table(summary),
            ),
            *([_claims(summary)] if summary.claims else []),
            *(recipe.figures(summary) if recipe.figures is not None else []),
            *_curves(summary),
        ],
        command=summary.command,
        facts={
            "Preset": summary.preset,
            "Seeds": ", ".join(map(str, summary.seeds)),
            "Options": ", ".join(f"{k} {v}" for k, v in summary.to_json()["config"].items()),
            "Machine": f"{facts['cpu']}, {facts['cores']} cores, {facts['os']}",
            "Versions": f"argrad {facts['argrad']}, torch {facts['torch']}, Python {facts['python']}",
            "Written": str(facts["date"]),
        },
    )


def finding(summary: Summary) -> str:
    """One sentence: what is as stated and what is not."""
    off = [c.cell.name for c in summary.cells if not c.in_band]
    wrong = [c.text for c in summary.claims if not c.holds]
    stated = sum(c.band is not None for c in summary.cells)
    if not off and not wrong:
        bands = f"all {stated} stated bands hold" if stated else "no bands are stated for these options"
        return f"{len(summary.cells)} cells trained; {bands}" + (
            f", and so do all {len(summary.claims)} claims." if summary.claims else "."
        )
    parts = [f"outside its band: {', '.join(off)}"] if off else []
    parts += [f"not borne out: {'; '.join(wrong)}"] if wrong else []
    return ("; ".join(parts) + ".").capitalize()


def table(summary: Summary) -> str:
    """Rows and columns as in the paper, turned so that estimators are rows when there are many."""
    rows, columns = summary.rows, summary.columns
    head = "".join(f'<th scope="col">{escape(r or summary.recipe.unit)}</th>' for r in rows)
    body = ""
    for column in columns:
        cells = "".join(
            f'<td data-label="{escape(row, quote=True)}">{_entry(summary, summary.find(row, column))}</td>'
            for row in rows
        )
        body += f'<tr><th scope="row">{escape(column)}</th>{cells}</tr>'
    return f'<div class="scroll"><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _entry(summary: Summary, result: CellResult | None) -> str:
    if result is None or math.isnan(result.mean()):
        return "–"
    text = number(result, summary.recipe.digits)
    best = _best(summary, result.cell.row)
    strong = f'<span class="best">{text}</span>' if result is best else text
    mark = "" if result.in_band else " ⚠"
    note = (
        f"<small>published {result.cell.published:g}</small>"
        if result.cell.published is not None
        else ""
    )
    return strong + mark + note


def _best(summary: Summary, row: str) -> CellResult | None:
    known = [c for c in summary.cells if c.cell.row == row and math.isfinite(c.mean())]
    pick = min if summary.recipe.better == "lower" else max
    return pick(known, key=lambda c: c.mean()) if len(known) > 1 else None


def number(result: CellResult, digits: int) -> str:
    """`101.3 ± 0.2`, or without the deviation for one seed."""
    text = f"{result.mean():.{digits}f}".replace("-", "−")
    return (
        text if math.isnan(result.deviation()) else f"{text} ± {result.deviation():.{max(digits, 1)}f}"
    )


def _claims(summary: Summary) -> str:
    items = "".join(
        f"<li>{'✓' if c.holds else '✗'} {escape(c.text)} <small>{escape(c.detail)}</small></li>"
        for c in summary.claims
    )
    return report.section(
        "What the papers say of it", "Checked on the numbers above.", f"<ul>{items}</ul>"
    )


def _curves(summary: Summary) -> list[str]:
    """The logged loss of the first seed, one chart a row of the table."""
    parts = []
    for row in summary.rows:
        lines = [
            s for c in summary.cells if c.cell.row == row and (s := _curve(c, len(summary.columns)))
        ]
        shown = lines[: charts.COLOURS]
        if shown:
            chart = charts.line_chart(
                [charts.Series(s.label, s.x, s.y, i) for i, s in enumerate(shown)],
                title=row or summary.recipe.unit,
                x_label="training step",
            )
            parts.append(charts.legend([s.label for s in shown]) + chart)
    text = "Mean of the training loss between two lines of the log, first seed."
    return [report.section("Training", text, *parts)] if parts else []


def _curve(result: CellResult, columns: int) -> charts.Series | None:
    if not result.jobs:
        return None
    lines = read_log(result.jobs[0].folder)
    values = [
        (x["step"], v) for x in lines if (v := _first_value(x)) is not None and x["phase"] == "train"
    ]
    if len(values) < 2:
        return None
    return charts.Series(result.cell.column, [x for x, _ in values], [y for _, y in values], 0)


def _first_value(line: dict) -> float | None:
    values = [v for k, v in line.items() if k not in ("phase", "step", "seconds") and v is not None]
    return values[0] if values else None
