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
    """A row of the table: a name, and numbers or texts; `running` ones stay in sight when there are many."""

    name: str
    values: Sequence[float | str]
    running: bool = False

    def texts(self) -> list[str]:
        """What the cells of the row say; a number that is not there is a dash."""
        return [self.name, *(v if isinstance(v, str) else fixed(v) for v in self.values)]


@dataclass(frozen=True)
class Table:
    """What is shown: a title, the headers, and which of a line's values counts."""

    title: str
    headers: Sequence[str]
    main: int = 1  # a number in every line
    lower_is_better: bool = True

    def number(self, line: Line) -> float:
        """The value that counts."""
        return float(line.values[self.main])

    def known(self, lines: Sequence[Line]) -> list[Line]:
        """The lines that have this value, the best one first."""
        known = [line for line in lines if math.isfinite(self.number(line))]
        return sorted(known, key=self.number, reverse=not self.lower_is_better)


class Progress:
    """Shows nothing (`--quiet`); what the others are instances of."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def say(self, text: str) -> None:
        """One sentence."""

    def update(self, lines: Sequence[Line], done: float, total: float) -> None:
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

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._tenths = 0
        self.say(table.title)

    def say(self, text: str) -> None:
        """Write the sentence at once."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def update(self, lines: Sequence[Line], done: float, total: float) -> None:
        """A short line when another tenth is done."""
        tenths = int(10 * done / max(total, 1) + 1e-9)
        if tenths > self._tenths:
            self._tenths = tenths
            text = f"{10 * tenths:4d} %"
            known = self.table.known(lines)
            if known:
                ends = (f"{fixed(self.table.number(x))} ({x.name})" for x in (known[0], known[-1]))
                text += f"  {self.table.headers[self.table.main + 1]} from {' to '.join(ends)}"
            self.say(text)

    def finish(self, lines: Sequence[Line]) -> None:
        """The whole table."""
        cells = [list(self.table.headers), *(line.texts() for line in lines)]
        widths = [max(len(row[c]) for row in cells) for c in range(len(self.table.headers))]
        for row in cells:
            name, *rest = row
            right = "  ".join(text.rjust(w) for text, w in zip(rest, widths[1:], strict=True))
            self.say(f"{name.ljust(widths[0])}  {right}")


class RichProgress(Progress):
    """A table that fills itself in, over a progress bar."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        from rich import get_console
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[left]}"),
        )
        self._task = self._bar.add_task("warming up", total=None, left="")
        self._lines: Sequence[Line] = ()
        self._all = False
        self._console = get_console()
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=8)

    def say(self, text: str) -> None:
        """Above the table."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, lines: Sequence[Line], done: float, total: float) -> None:
        """Redraw."""
        self._lines = lines
        self._bar.update(self._task, description="training", completed=done, total=total, left="left")

    def finish(self, lines: Sequence[Line]) -> None:
        """Leave the full table and a full bar."""
        self._lines, self._all = lines, True
        self._bar.update(self._task, description="done", completed=1, total=1, left="")

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
        from rich.text import Text

        room = len(self._lines) if self._all else max(self._console.height - 8, 3)
        shown = in_sight(self._lines, room)
        table = Table(
            title=Text(self.table.title),
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        for header in self.table.headers:
            first = header == self.table.headers[0]
            table.add_column(Text(header), justify="left" if first else "right", no_wrap=True)
        best = self.table.known(self._lines)[:1]
        for line in shown:
            style = "bold green" if line in best else ""
            table.add_row(*map(Text, line.texts()), style=style)
        if len(shown) < len(self._lines):
            table.caption, table.caption_justify = f"and {len(self._lines) - len(shown)} more", "left"
        return Group(table, self._bar)


def in_sight(lines: Sequence[Line], room: int) -> list[Line]:
    """As many lines as there is room for, in order: from a little before the first running one on."""
    running = [i for i, line in enumerate(lines) if line.running]
    first = max(0, min((running or [0])[0] - room // 2, len(lines) - room))
    return list(lines[first : first + room])


def progress(table: Table, *, quiet: bool = False) -> Progress:
    """The right one for where the output goes."""
    if quiet:
        return Progress(table)
    if sys.stdout.isatty():
        try:
            return RichProgress(table)
        except ImportError:
            pass
    return PlainProgress(table)
