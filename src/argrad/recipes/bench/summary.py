"""The table that a run fills: ours beside the published number, bands and claims."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from argrad.recipes import machine
from argrad.recipes.bench.jobs import Job
from argrad.recipes.bench.options import as_dict
from argrad.recipes.bench.recipe import Band, Cell, Claim, Preset, Recipe


@dataclass(frozen=True)
class CellResult:
    """What the seeds of one cell gave."""

    cell: Cell
    metrics: dict[str, list[float]]  # a number for each seed
    seconds: float  # of training a seed, on average
    main: str
    band: Band | None = None
    jobs: Sequence[Job] = field(default=(), repr=False)

    def mean(self, metric: str | None = None) -> float:
        """Over the seeds."""
        return statistics.fmean(self.metrics.get(metric or self.main, [math.nan]))

    def deviation(self, metric: str | None = None) -> float:
        """Between the seeds; NaN for a single one."""
        values = self.metrics.get(metric or self.main, [])
        return statistics.stdev(values) if len(values) > 1 else math.nan

    @property
    def in_band(self) -> bool:
        """Whether the mean is where it must be; true when nothing was stated, never true for NaN."""
        mean = self.mean()
        return math.isfinite(mean) and (self.band is None or self.band[0] <= mean <= self.band[1])


@dataclass(frozen=True)
class Summary:
    """All cells of one run of a recipe."""

    recipe: Recipe
    preset: Preset
    config: Any
    command: str
    seeds: Sequence[int]
    cells: list[CellResult]
    claims: list[Claim]

    def __getitem__(self, key: tuple[str, str]) -> CellResult:
        return self.find(*key) or CellResult(Cell(*key), {}, math.nan, self.recipe.metric)

    def find(self, row: str, column: str) -> CellResult | None:
        """The cell, if it was trained."""
        return next((c for c in self.cells if (c.cell.row, c.cell.column) == (row, column)), None)

    @property
    def rows(self) -> list[str]:
        """Names in order."""
        return list(dict.fromkeys(c.cell.row for c in self.cells))

    @property
    def columns(self) -> list[str]:
        """Names in order."""
        return list(dict.fromkeys(c.cell.column for c in self.cells))

    @property
    def passed(self) -> bool:
        """Every number in its band, every claim borne out."""
        return all(c.in_band for c in self.cells) and all(c.holds for c in self.claims)

    def to_json(self) -> dict[str, Any]:
        """Ready for `results.json`, from which the docs are made."""
        return {
            "recipe": self.recipe.name,
            "title": self.recipe.title,
            "source": self.recipe.source,
            "about": self.recipe.about,
            "metric": self.recipe.metric,
            "unit": self.recipe.unit,
            "better": self.recipe.better,
            "digits": self.recipe.digits,
            "preset": self.preset,
            "command": self.command,
            "config": as_dict(self.config),
            "seeds": list(self.seeds),
            "seconds": sum(c.seconds * len(self.seeds) for c in self.cells),  # in training steps
            "passed": self.passed,
            "machine": machine.facts(),
            "cells": [_cell_json(c) for c in self.cells],
            "claims": [vars(c) for c in self.claims],
        }


def summarise(
    recipe: Recipe, preset: Preset, config: Any, command: str, jobs: Sequence[Job]
) -> Summary:
    """Gather the results of finished jobs; bands hold only for the preset as it is."""
    stated = as_dict(config, selection=False) == as_dict(recipe.preset(preset), selection=False)
    cells = [
        _gather(
            recipe,
            cell,
            [j for j in jobs if j.cell == cell],
            recipe.band(preset, cell) if stated else None,
        )
        for cell in recipe.cells(config)
    ]
    seeds = sorted({job.seed for job in jobs})
    summary = Summary(recipe, preset, config, command, seeds, cells, [])
    if recipe.claims is not None and stated and preset != "smoke":
        summary.claims.extend(recipe.claims(summary))
    return summary


def _gather(recipe: Recipe, cell: Cell, jobs: Sequence[Job], band: Band | None) -> CellResult:
    results = [r for r in (job.result for job in jobs) if r is not None]
    names = list(dict.fromkeys(name for r in results for name in r["metrics"]))
    metrics = {n: [_number(r["metrics"].get(n)) for r in results] for n in names}
    seconds = statistics.fmean([r["seconds"] for r in results]) if results else math.nan
    return CellResult(cell, metrics, seconds, recipe.metric, band, jobs)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)  # JSON has no NaN


def _cell_json(c: CellResult) -> dict[str, Any]:
    return {
        "row": c.cell.row,
        "column": c.cell.column,
        "settings": dict(c.cell.settings),
        "published": c.cell.published,
        "mean": c.mean(),
        "deviation": c.deviation(),
        "band": c.band,
        "in_band": c.in_band,
        "seconds": c.seconds,
        "metrics": c.metrics,
    }
