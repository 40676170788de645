"""What a recipe says about itself: its cells, how one is trained, and what was published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from argrad.recipes.bench.run import Run
    from argrad.recipes.bench.summary import Summary

Preset = Literal["smoke", "default", "full"]
Band = tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """One number of the table: a row, a column, and what the paper has there.

    Attributes:
        row: for example the model.
        column: for example the estimator.
        published: the paper's number, if it has one.
        settings: what this cell alone trains with (its learning rate); part of its identity.
    """

    row: str
    column: str
    published: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As a person reads it."""
        return f"{self.row}, {self.column}" if self.row else self.column


@dataclass(frozen=True)
class Claim:
    """A sentence about several numbers, and whether this run bears it out."""

    text: str
    holds: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published experiment that one command runs.

    Attributes:
        name: as in `argrad reproduce NAME`.
        title: one line.
        about: a paragraph for the report: model, data, protocol, where it differs from the paper and why.
        source: the paper and its table.
        metric: key of the number that the table shows, among those that `train` returns.
        unit: what it is, for people: `-ELBO in nats`.
        better: whether smaller or larger is better.
        config: the default configuration, minutes on a small machine.
        smoke: under a minute, embedded data.
        full: the published protocol.
        cells: which cells a configuration has.
        train: trains one cell and returns its numbers.
        bands: for each preset, `(row, column)` patterns and the range in which the number must be.
        claims: sentences about the whole table; checked in the default and full presets.
        figures: HTML sections to show below the table.
        needs: modules that must be importable, with the package that brings each.
        digits: decimals shown.
        file: the Python file it came from, if it is not one of argrad's own; `argrad.recipes.find` fills it in.
    """

    name: str
    title: str
    about: str
    source: str
    metric: str
    unit: str
    config: Any
    smoke: Any
    full: Any
    cells: Callable[[Any], list[Cell]]
    train: Callable[[Any, Cell, Run], Mapping[str, float]]
    better: Literal["lower", "higher"] = "lower"
    bands: Mapping[Preset, Mapping[tuple[str, str], Band]] = field(default_factory=dict)
    claims: Callable[[Summary], Sequence[Claim]] | None = None
    figures: Callable[[Summary], Sequence[str]] | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    digits: int = 1
    file: str | None = None

    def preset(self, name: Preset) -> Any:
        """The configuration of a preset."""
        return {"smoke": self.smoke, "default": self.config, "full": self.full}[name]

    def band(self, preset: Preset, cell: Cell) -> Band | None:
        """The first band whose pattern fits the cell."""
        for (row, column), band in self.bands.get(preset, {}).items():
            if fnmatchcase(cell.row, row) and fnmatchcase(cell.column, column):
                return band
        return None
