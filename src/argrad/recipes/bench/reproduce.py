"""`argrad reproduce NAME`: plan, train what is missing, write `results.json` and `report.html`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argrad._errors import ArgradError, InputError
from argrad.recipes.bench import jobs as jobs_
from argrad.recipes.bench.options import differing_flags
from argrad.recipes.bench.page import finding, render
from argrad.recipes.bench.recipe import Preset, Recipe
from argrad.recipes.bench.summary import Summary, summarise
from argrad.recipes.files import make_folder, write_json, write_text
from argrad.recipes.live import Line, progress


def reproduce(
    recipe: Recipe,
    config: Any,
    *,
    preset: Preset = "default",
    seeds: Sequence[int] = (0,),
    out: Path = Path("runs"),
    workers: int | None = None,
    fresh: bool = False,
    quiet: bool = False,
) -> Summary:
    """Run a recipe, or go on with it; finished cells are not trained again.

    Args:
        recipe: what to run.
        config: how; `recipe.preset(preset)` with options changed.
        preset: which preset `config` came from; its bands are checked if nothing was changed.
        seeds: each cell is trained once for each.
        out: results go to `out/NAME`.
        workers: processes, each on one thread; None for as many as there are cores. 1 trains here.
        fresh: forget finished cells and checkpoints of this configuration first.
        quiet: show nothing.
    """
    check_needs(recipe)
    folder = make_folder(Path(out) / recipe.name)
    jobs = jobs_.plan(recipe, config, seeds, folder)
    if not jobs:
        raise InputError(f"these options select no cell of {recipe.name!r}.")
    if fresh:
        for job in jobs:
            shutil.rmtree(job.folder, ignore_errors=True)
    here = (
        1 if preset == "smoke" else os.cpu_count() or 1
    )  # starting a process takes longer than a smoke cell
    _train(recipe, config, jobs, workers or here, quiet)
    summary = summarise(recipe, preset, config, command(recipe, config, preset, seeds), jobs)
    write_json(folder / "results.json", summary.to_json())
    write_text(folder / "report.html", render(summary))
    if not quiet:
        with progress("", (), quiet=False) as show:
            show.say(f"{finding(summary)}\nReport: {folder / 'report.html'}")
    return summary


def command(recipe: Recipe, config: Any, preset: Preset, seeds: Sequence[int]) -> str:
    """The command that makes these numbers."""
    words = ["argrad reproduce", recipe.name]
    words += [] if preset == "default" else [f"--{preset}"]
    words += [] if len(seeds) == 1 else [f"--seeds {len(seeds)}"]
    return " ".join([*words, differing_flags(config, recipe.preset(preset))]).strip()


def check_needs(recipe: Recipe) -> None:
    """A sentence for every package that is missing."""
    import importlib.util

    for module, package in recipe.needs.items():
        if importlib.util.find_spec(module) is None:
            raise ArgradError(
                f'{recipe.name} needs {package}, which is not installed. Run: pip install "argrad[recipes]"'
            )


def _train(recipe: Recipe, config: Any, jobs: Sequence[jobs_.Job], workers: int, quiet: bool) -> None:
    headers = ("cell", "logged", recipe.metric, "seconds")
    title = f"argrad reproduce {recipe.name}: {recipe.title}"
    total = getattr(config, "steps", 1) * len(jobs)
    with progress(title, headers, quiet=quiet) as show:
        todo = [job for job in jobs if job.result is None]
        if len(todo) < len(jobs):
            show.say(f"{len(jobs) - len(todo)} of {len(jobs)} are done already.")
        states = [jobs_.Progress(job) for job in jobs]
        if workers == 1 or len(todo) == 1:
            for state in states:
                jobs_.train(state.job, report=_updater(state, states, show, total))
        else:
            for states in jobs_.run_all(jobs, workers):
                show.update(_lines(states), _done(states), total)
        show.finish(_lines(states))


def _updater(state: jobs_.Progress, states: list[jobs_.Progress], show: Any, total: int) -> Any:
    def update(phase: str, step: int, _: int, value: float) -> None:
        state.step, state.value = step, value
        show.update(_lines(states), _done(states), total)

    return update


def _done(states: Sequence[jobs_.Progress]) -> int:
    return sum(s.step if s.job.result is None else getattr(s.job.config, "steps", 1) for s in states)


def _lines(states: Sequence[jobs_.Progress]) -> list[Line]:
    lines = []
    for state in states:
        result = state.job.result or {}
        metric = result.get("metrics", {}).get(state.job.recipe.metric)
        name = state.job.cell.name + (f" (seed {state.job.seed})" if state.job.seed else "")
        values = (
            state.value,
            float("nan") if metric is None else metric,
            result.get("seconds", float("nan")),
        )
        lines.append(Line(name, values))
    return lines
