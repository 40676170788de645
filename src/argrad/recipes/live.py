"""What a person sees while a recipe runs: a live table and a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from argrad.recipes.charts import fixed


@dataclass(frozen=True)
class Line:
    """A row of the table: a name and its numbers."""

    name: str
    values: Sequence[float]


class Progress:
    """Shows nothing (`--quiet`); what the others are instances of."""

    def __init__(self, title: str, headers: Sequence[str]) -> None:
        self.title, self.headers = title, headers

    def say(self, text: str) -> None:
        """One sentence."""

    def update(self, lines: Sequence[Line], done: int, total: int) -> None:
        """New numbers; `done` of `total` steps."""

    def finish(self, lines: Sequence[Line]) -> None:
        """The last numbers."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class PlainProgress(Progress):
    """A line at the start, at each tenth of the way, and the table at the end; for logs and pipes."""

    def __init__(self, title: str, headers: Sequence[str]) -> None:
        super().__init__(title, headers)
        self._tenths = 0
        self.say(title)

    def say(self, text: str) -> None:
        """Write the sentence at once."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def update(self, lines: Sequence[Line], done: int, total: int) -> None:
        """A short line when another tenth is done."""
        tenths = 10 * done // max(total, 1)
        if tenths > self._tenths:
            self._tenths = tenths
            known = [line for line in lines if math.isfinite(line.values[1])]
            text = f"{10 * tenths:4d} %"
            if known:
                low, high = (pick(known, key=lambda x: x.values[1]) for pick in (min, max))
                ends = (f"{fixed(line.values[1])} ({line.name})" for line in (low, high))
                text += f"  {self.headers[2]} from {' to '.join(ends)}"
            self.say(text)

    def finish(self, lines: Sequence[Line]) -> None:
        """The whole table."""
        cells = [list(self.headers), *([x.name, *map(fixed, x.values)] for x in lines)]
        widths = [max(len(row[c]) for row in cells) for c in range(len(self.headers))]
        for row in cells:
            name, *rest = row
            right = "  ".join(text.rjust(w) for text, w in zip(rest, widths[1:], strict=True))
            self.say(f"{name.ljust(widths[0])}  {right}")


class RichProgress(Progress):
    """A table that fills itself in, over a progress bar."""

    def __init__(self, title: str, headers: Sequence[str]) -> None:
        super().__init__(title, headers)
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        self._task = self._bar.add_task("warming up", total=None)
        self._lines: Sequence[Line] = ()
        self._live = Live(get_renderable=self._render, refresh_per_second=8)

    def say(self, text: str) -> None:
        """Above the table."""
        self._live.console.print(text, highlight=False, soft_wrap=True)

    def update(self, lines: Sequence[Line], done: int, total: int) -> None:
        """Redraw."""
        self._lines = lines
        self._bar.update(self._task, description="training", completed=done, total=total)

    def finish(self, lines: Sequence[Line]) -> None:
        """Leave the full table and a full bar."""
        self._lines = lines
        self._bar.update(self._task, description="done", completed=1, total=1)

    def __enter__(self) -> RichProgress:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def _render(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table

        table = Table(
            title=self.title,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        table.add_column(self.headers[0])
        for header in self.headers[1:]:
            table.add_column(header, justify="right", no_wrap=True)
        best = min((line.values[1] for line in self._lines), default=None)
        for line in self._lines:
            style = "bold green" if line.values[1] == best else ""
            table.add_row(line.name, *map(fixed, line.values), style=style)
        return Group(table, self._bar)


def progress(title: str, headers: Sequence[str], *, quiet: bool = False) -> Progress:
    """The right one for where the output goes; the second number of a line is the one that counts."""
    if quiet:
        return Progress(title, headers)
    if sys.stdout.isatty():
        try:
            return RichProgress(title, headers)
        except ImportError:
            pass
    return PlainProgress(title, headers)
