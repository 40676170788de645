"""`report.html` of a recipe: the table, ours beside the published number, the claims, the curves."""

from __future__ import annotations

import math
import statistics
from html import escape

from argrad.recipes import charts, machine, report
from argrad.recipes.bench.log import first_value, read_log
from argrad.recipes.bench.options import as_dict
from argrad.recipes.bench.summary import CellResult, Summary


def render(summary: Summary) -> str:
    """The whole page."""
    recipe = summary.recipe
    return report.page(
        eyebrow=f"argrad reproduce {recipe.name}",
        title=recipe.title,
        lead=recipe.about,
        finding=finding(summary),
        sections=[
            _results(summary),
            *([_claims(summary)] if summary.claims else []),
            *(recipe.figures(summary) if recipe.figures is not None else []),
            *_curves(summary),
        ],
        command=summary.command,
        facts={
            "Preset": summary.preset,
            "Seeds": ", ".join(map(str, summary.seeds)),
            "Options": ", ".join(f"{k} {_shown(v)}" for k, v in as_dict(summary.config).items()),
            "Time": _time(summary),
            **machine.described(),
            "Written": str(machine.facts()["date"]),
        },
    )


def finding(summary: Summary) -> str:
    """One sentence: what is as stated and what is not."""
    broken = [c.cell.name for c in summary.cells if not math.isfinite(c.mean())]
    off = [c.cell.name for c in summary.cells if not c.in_band and c.cell.name not in broken]
    wrong = [c.text for c in summary.claims if not c.holds]
    stated = sum(c.band is not None for c in summary.cells)
    if not (broken or off or wrong):
        checked = [_count(stated, "stated band")] if stated else []
        checked += [_count(len(summary.claims), "claim")] if summary.claims else []
        verdict = (
            f"{' and '.join(checked)} hold" if checked else "no bands are stated for these options"
        )
        return f"{_count(len(summary.cells), 'cell')} trained; {verdict}."
    parts = [f"Not a number: {', '.join(broken)}."] if broken else []
    parts += [f"Outside its band: {'; '.join(off)}."] if off else []
    parts += [f"Not borne out: {'; '.join(wrong)}."] if wrong else []
    return " ".join(parts)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def number(result: CellResult, digits: int) -> str:
    """`101.3 ± 0.2`, or without the deviation for one seed."""
    text = _decimal(result.mean(), digits)
    if math.isnan(result.deviation()):
        return text
    return f"{text} ± {result.deviation():.{max(digits, 1)}f}"


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _shown(value: object) -> str:
    return " / ".join(map(str, value)) or "all" if isinstance(value, list) else str(value)


def _time(summary: Summary) -> str:
    known = [c.seconds for c in summary.cells if math.isfinite(c.seconds)]
    if not known:
        return "–"
    return f"{statistics.fmean(known):,.0f} s of training a cell and seed on average, one thread each"


# ---- the table -------------------------------------------------------------------------------------


def _results(summary: Summary) -> str:
    recipe = summary.recipe
    unit = recipe.unit[:1].upper() + recipe.unit[1:]
    text = f"{unit}; {recipe.better} is better. Source: {recipe.source}."
    if len(summary.seeds) > 1:
        text += f" Mean and deviation over {len(summary.seeds)} seeds."
    if any(not c.in_band for c in summary.cells):
        text += " ⚠ marks a number outside its stated band."
    return report.section("Results", text, f'<div class="card">{table(summary)}</div>')


def table(summary: Summary) -> str:
    """The paper's columns as rows, for there may be many; the paper's rows beside each other."""
    rows = summary.rows
    head = "".join(f'<th scope="col">{escape(r or summary.recipe.metric)}</th>' for r in rows)
    body = ""
    for column in summary.columns:
        cells = "".join(
            f'<td data-label="{escape(row or summary.recipe.metric, quote=True)}">'
            f"{_entry(summary, summary.find(row, column))}</td>"
            for row in rows
        )
        body += f'<tr><th scope="row">{escape(column)}</th>{cells}</tr>'
    return (
        f'<div class="scroll"><table><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _entry(summary: Summary, result: CellResult | None) -> str:
    if result is None:
        return "–"
    digits, published = summary.recipe.digits, result.cell.published
    text = "–" if math.isnan(result.mean()) else number(result, digits)
    if result is _best(summary, result.cell.row):
        text = f'<span class="best">{text}</span>'
    mark = "" if result.in_band else "⚠ "
    note = "" if published is None else f"<small>published {_decimal(published, digits)}</small>"
    return mark + text + note


def _best(summary: Summary, row: str) -> CellResult | None:
    known = [c for c in summary.cells if c.cell.row == row and math.isfinite(c.mean())]
    pick = min if summary.recipe.better == "lower" else max
    return pick(known, key=lambda c: c.mean()) if len(known) > 1 else None


def _claims(summary: Summary) -> str:
    items = "".join(
        f'<li class="{"holds" if c.holds else "fails"}">{escape(c.text)}<small>{escape(c.detail)}</small></li>'
        for c in summary.claims
    )
    return report.section(
        "What the papers say of it", "Checked on the numbers above.", f'<ul class="claims">{items}</ul>'
    )


# ---- the curves ------------------------------------------------------------------------------------


def _curves(summary: Summary) -> list[str]:
    """The logged value of the first seed: a chart a row, as many columns at a time as there are colours."""
    curves = {(c.cell.row, c.cell.column): curve for c in summary.cells if (curve := _curve(c))}
    names = [c for c in summary.columns if any(column == c for _, column in curves)]
    parts = []
    for start in range(0, len(names), charts.COLOURS):
        group = names[start : start + charts.COLOURS]
        figures = [_chart(summary, row, group, curves) for row in summary.rows]
        parts.append(charts.legend(group) + report.pair(*filter(None, figures)))
    text = (
        "The first logged value, mean between two lines of the log, first seed. All charts of a row have one scale, "
        "which leaves out the steep beginning and what is far above the others."
    )
    return [report.section("Training", text, *parts)] if parts else []


Curve = list[tuple[int, float]]  # steps and values


def _chart(
    summary: Summary, row: str, group: list[str], curves: dict[tuple[str, str], Curve]
) -> str | None:
    series = [
        charts.Series(column, [x for x, _ in curve], [y for _, y in curve], i)
        for i, column in enumerate(group)
        if (curve := curves.get((row, column)))
    ]
    if not series:  # a row that needs no training
        return None
    scale = _scale([curve for (r, _), curve in curves.items() if r == row])
    title = row or summary.recipe.title
    return charts.line_chart(series, title=title, x_label="step", y_range=scale)


def _scale(curves: list[Curve]) -> tuple[float, float] | None:
    """From the lowest value to the highest, without the first tenth and without outliers above."""
    late = sorted(y for curve in curves for _, y in curve[len(curve) // 10 :])
    usual = late[0], late[int(0.9 * (len(late) - 1))]
    high = min(late[-1], usual[1] + (usual[1] - usual[0]))
    return (late[0], high) if late[0] < high else None


def _curve(result: CellResult) -> Curve | None:
    if not result.jobs:
        return None
    lines = [x for x in read_log(result.jobs[0].folder) if x["phase"] == "train"]
    values = [(x["step"], v) for x in lines if (v := first_value(x)) is not None]
    return values if len(values) > 1 else None
