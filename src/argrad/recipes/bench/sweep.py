"""`argrad sweep NAME --option A,B --seeds N`: a recipe over a grid of its options, merged into one table."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argrad._errors import InputError
from argrad.recipes import machine, report
from argrad.recipes.bench.jobs import Job, plan
from argrad.recipes.bench.options import changed, check
from argrad.recipes.bench.recipe import Cell, Preset, Recipe
from argrad.recipes.bench.reproduce import check_needs
from argrad.recipes.bench.trials import run_here, run_on_ray
from argrad.recipes.bench.values import as_text
from argrad.recipes.files import make_folder, write_json, write_text
from argrad.recipes.files import sweep as tidy
from argrad.recipes.live import Line, Table, progress
from argrad.recipes.locks import alone


@dataclass(frozen=True)
class Setting:
    """One line of the merged table: a cell under one choice of the options that vary."""

    choice: Mapping[str, Any]
    cell: Cell
    jobs: Sequence[Job]

    @property
    def name(self) -> str:
        """As a person reads it."""
        words = [f"{name} {as_text(value)}" for name, value in self.choice.items()]
        return ", ".join([self.cell.name, *words])

    def values(self, metric: str) -> list[float]:
        """A number for each seed that is done."""
        found = (job.result for job in self.jobs)
        numbers = (None if r is None else r["metrics"].get(metric) for r in found)
        return [float(x) for x in numbers if x is not None]


def sweep(
    recipe: Recipe,
    base: Any,
    grid: Mapping[str, Sequence[Any]],
    *,
    preset: Preset = "default",
    seeds: Sequence[int] = (0,),
    out: Path = Path("runs"),
    workers: int | None = None,
    ray: str | None = None,
    quiet: bool = False,
    command: str = "",
) -> list[Setting]:
    """Run all trials that are not done, and write `sweep.json` and `sweep.html`.

    Args:
        recipe: what to train.
        base: its configuration; each choice from `grid` changes some options.
        grid: options that vary, with their values.
        preset: of which `base` is.
        seeds: each setting is trained once for each.
        out: trials are in `out/NAME/cells`, as those of `argrad reproduce`, which are not run again.
        workers: processes at a time; None for as many as there are cores.
        ray: "local" or "auto" (the cluster that is there) instead of processes of this machine.
        quiet: show nothing.
        command: for the report.
    """
    check_needs(recipe)
    folder = make_folder(Path(out) / recipe.name)
    settings = plan_settings(recipe, base, grid, seeds, folder)
    jobs = [job for setting in settings for job in setting.jobs]
    busy = f"another process is running this recipe in {folder}. Wait for it, or choose another --out."
    with alone(folder, busy):
        tidy(folder)
        _run(recipe, settings, jobs, workers or os.cpu_count() or 1, ray, quiet)
        write_json(folder / "sweep.json", as_json(recipe, settings, preset, seeds, command))
        write_text(folder / "sweep.html", page(recipe, settings, seeds, command))
    return settings


def plan_settings(
    recipe: Recipe, base: Any, grid: Mapping[str, Sequence[Any]], seeds: Sequence[int], out: Path
) -> list[Setting]:
    """Every choice from the grid, every cell of the recipe under it."""
    settings = []
    for values in itertools.product(*grid.values()):
        choice = dict(zip(grid, values, strict=True))
        config = changed(base, choice)
        check(config)
        jobs = plan(recipe, config, seeds, out)
        for cell in recipe.cells(config):
            settings.append(Setting(choice, cell, [j for j in jobs if j.cell == cell]))
    if not settings:
        raise InputError(f"these options select no cell of {recipe.name!r}.")
    return settings


def _run(
    recipe: Recipe,
    settings: Sequence[Setting],
    jobs: Sequence[Job],
    workers: int,
    ray: str | None,
    quiet: bool,
) -> None:
    done = sum(job.result is not None for job in jobs)
    headers = ("setting", "seeds done", recipe.metric)
    lower = recipe.better == "lower"
    table = Table(
        f"argrad sweep {recipe.name}: {len(jobs)} trials", headers, main=1, lower_is_better=lower
    )
    steps = run_here(jobs, workers) if ray is None else run_on_ray(jobs, ray, workers)
    with progress(table, quiet=quiet) as show:
        if done:
            show.say(f"{done} of {len(jobs)} are done already.")
        for _ in steps:
            lines = [_line(setting, recipe.metric) for setting in settings]
            show.update(lines, sum(job.result is not None for job in jobs), len(jobs))
        show.finish([_line(setting, recipe.metric) for setting in settings])


def _line(setting: Setting, metric: str) -> Line:
    values = setting.values(metric)
    mean = statistics.fmean(values) if values else math.nan
    return Line(setting.name, (f"{len(values)} of {len(setting.jobs)}", mean))


# ---- merging ---------------------------------------------------------------------------------------


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    r"""Student's confidence interval of the mean, $\bar x \pm t_{n-1} s/\sqrt n$; NaN for a single value."""
    if len(values) < 2:
        return math.nan, math.nan
    from scipy import stats

    half = (
        float(stats.t.ppf(0.5 + level / 2, len(values) - 1))
        * statistics.stdev(values)
        / len(values) ** 0.5
    )
    mean = statistics.fmean(values)
    return mean - half, mean + half


def as_json(
    recipe: Recipe, settings: Sequence[Setting], preset: Preset, seeds: Sequence[int], command: str
) -> dict[str, Any]:
    """One table of everything."""
    lines = []
    for setting in settings:
        values = setting.values(recipe.metric)
        low, high = interval(values)
        lines.append(
            {
                "row": setting.cell.row,
                "column": setting.cell.column,
                "options": {name: _plain(value) for name, value in setting.choice.items()},
                "mean": statistics.fmean(values) if values else math.nan,
                "low": low,
                "high": high,
                "values": values,
                "seeds": [job.seed for job in setting.jobs if job.result is not None],
                "folders": [job.folder.name for job in setting.jobs],
            }
        )
    return {
        "recipe": recipe.name,
        "metric": recipe.metric,
        "better": recipe.better,
        "preset": preset,
        "command": command,
        "seeds": list(seeds),
        "trials": sum(len(s.jobs) for s in settings),
        "confidence": 0.95,
        "settings": lines,
        "machine": machine.facts(),
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def page(recipe: Recipe, settings: Sequence[Setting], seeds: Sequence[int], command: str) -> str:
    """The same to look at."""
    rows = []
    for i, setting in enumerate(settings):
        values = setting.values(recipe.metric)
        mean = statistics.fmean(values) if values else math.nan
        rows.append(report.Row(setting.name, f"{len(values)} seeds", i, (mean, *interval(values))))
    headers = ("Setting", recipe.metric, "95 % from", "to")
    best = (0,) if recipe.better == "lower" else ()
    known = [(row.values[0], row.name) for row in rows if math.isfinite(row.values[0])]
    pick = (min if recipe.better == "lower" else max)(known, default=(math.nan, "none"))
    text = "Mean over the seeds, with Student's confidence interval; intervals that overlap do not tell settings apart."
    return report.page(
        eyebrow=f"argrad sweep {recipe.name}",
        title=recipe.title,
        lead=recipe.about,
        finding=f"{len(settings)} settings, {len(seeds)} seeds each; the best mean is that of {pick[1]}.",
        sections=[report.section(f"{recipe.unit}", text, report.table(headers, rows, best=best))],
        command=command,
        facts={**machine.described(), "Written": str(machine.facts()["date"])},
    )
