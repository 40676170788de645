"""Line charts as inline SVG, coloured by `report.css`.

A colour is a number: entry `i` of a colour-blind-safe palette (after Okabe and Ito, darkened or lightened
for contrast), the same in every figure of a report, in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = 8
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 290, 50, 12, 10, 44  # of a chart, in its own units


@dataclass(frozen=True)
class Series:
    """One line of a chart; points that are not finite are left out."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    note: str = "",
    x_label: str,
    y_range: tuple[float, float] | None = None,
    log_y: bool = False,
) -> str:
    """An SVG line chart with its caption; `y_range` lets several charts share one scale."""
    lines = [_finite(s, log_y) for s in series]
    xs = [x for line in lines for x, _ in line]
    ys = [y for line in lines for _, y in line]
    if not xs:
        return f"<figure class='card'>{_caption(title, note)}<p>No finite values to draw.</p></figure>"
    x_low, x_high = min(0.0, min(xs)), max(xs)
    y_low, y_high = y_range or (min(ys), max(ys))
    ticks = log_ticks(y_low, y_high) if log_y else nice_ticks(y_low, y_high)
    low, high = (min(ticks[0], y_low), max(ticks[-1], y_high)) if log_y else (ticks[0], ticks[-1])
    x = _Scale(x_low, x_high, _LEFT, _WIDTH - _RIGHT)
    y = _Scale(low, high, _HEIGHT - _BOTTOM, _TOP, log=log_y)
    body = _grid(x, y, [t for t in nice_ticks(x_low, x_high, 5) if t <= x_high], ticks, x_label)
    body += "".join(_line(s, line, x, y) for s, line in zip(series, lines, strict=True))
    label = escape(f"{title}: " + ", ".join(s.label for s in series), quote=True)
    svg = f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{body}</svg>'
    return f'<figure class="card">{_caption(title, note)}{svg}</figure>'


def legend(labels: Sequence[str]) -> str:
    """Names beside their colours, for all charts that follow."""
    items = "".join(f"<li>{swatch(i)}{escape(label)}</li>" for i, label in enumerate(labels))
    return f'<ul class="legend">{items}</ul>'


def swatch(colour: int) -> str:
    """A short piece of the line that a series has in the charts."""
    line = f'<path class="line {_class(colour)}"{_dash(colour)} d="M2 5H22"/>'
    return f'<svg class="swatch" viewBox="0 0 24 10" aria-hidden="true">{line}</svg>'


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start), 1)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that enclose `[low, high]`.

    >>> nice_ticks(13.2, 27.9)
    [10.0, 15.0, 20.0, 25.0, 30.0]
    """
    size = max(abs(low), abs(high))
    span = max(high - low, 1e-9 * size) if size > 1e-300 else 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = power * next(m for m in (1, 2, 2.5, 5, 10) if m * power * count >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [
        float(f"{i * step:.12g}") for i in range(first, max(last, first + 1) + 1)
    ]  # 0.3, not 0.1 * 3


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten in `[low, high]`, with 2 and 5 between them if they are few.

    >>> log_ticks(0.02, 3.0)
    [0.01, 0.1, 1.0, 10.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = [10.0**e for e in range(first, max(last, first + 1) + 1)]
    if len(decades) > 2:
        return decades
    fine = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
    inside = [t for t in fine if low / 2.5 < t < high * 2.5]
    return inside if len(inside) > 1 else decades


def _grid(x: _Scale, y: _Scale, x_ticks: list[float], y_ticks: list[float], x_label: str) -> str:
    left, right, bottom = _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for t in y_ticks:
        parts.append(f'<path class="grid" d="M{left} {y(t)}H{right}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(t) + 4.5}" text-anchor="end">{number(t)}</text>')
    parts.append(f'<path class="axis" d="M{left} {bottom}H{right}"/>')
    for t in x_ticks:
        parts.append(f'<text x="{x(t)}" y="{bottom + 18}" text-anchor="middle">{number(t)}</text>')
    middle = (left + right) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(parts)


def _line(series: Series, points: list[tuple[float, float]], x: _Scale, y: _Scale) -> str:
    if not points:
        return ""
    path = "M" + "L".join(f"{x(a)} {y(b)}" for a, b in points)
    end = points[-1]
    title = f"<title>{escape(series.label)}: {number(end[1])} at {number(end[0])}</title>"
    dot = f'<circle class="dot" cx="{x(end[0])}" cy="{y(end[1])}" r="4"/>'
    return f'<g class="{_class(series.colour)}">{title}<path class="line"{_dash(series.colour)} d="{path}"/>{dot}</g>'


def _finite(series: Series, positive: bool) -> list[tuple[float, float]]:
    pairs = zip(series.x, series.y, strict=True)
    return [
        (a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b) and (b > 0 or not positive)
    ]


def _class(colour: int) -> str:
    return f"c{colour % COLOURS}"


def _dash(colour: int) -> str:
    """Solid for the first half of the palette, dashed for the second, dotted when it repeats."""
    if colour >= COLOURS:
        return ' stroke-dasharray="1 5"'
    return ' stroke-dasharray="7 4"' if colour >= COLOURS // 2 else ""


def number(value: float, digits: int = 4) -> str:
    """A short decimal.

    >>> number(20.0), number(18.1234), number(0.00012), number(12345.6), number(float("nan"))
    ('20', '18.12', '1.2e-4', '12,346', '–')
    """
    if not math.isfinite(value):
        return "–"
    if value and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed(value: float) -> str:
    """A number for a column: two decimals, fewer where it is large.

    >>> fixed(20.0), fixed(123.456), fixed(12345.6), fixed(0.0012), fixed(float("nan"))
    ('20.00', '123.5', '12,346', '1.2e-3', '–')
    """
    if not math.isfinite(value):
        return "–"
    if 0 < abs(value) < 0.005:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.{2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0}f}"


def _caption(title: str, note: str) -> str:
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<figcaption>{escape(title)}{small}</figcaption>"
