"""`argrad reproduce NAME`: plan, train what is missing, write `results.json` and `report.html`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argrad._errors import ArgradError, InputError
from argrad.recipes.bench import ranks
from argrad.recipes.bench.jobs import Job, follow, plan, train
from argrad.recipes.bench.options import check, differing_flags
from argrad.recipes.bench.page import finding, render
from argrad.recipes.bench.recipe import Preset, Recipe
from argrad.recipes.bench.summary import Summary, summarise
from argrad.recipes.bench.workers import State, run_all
from argrad.recipes.files import explained, make_folder, sweep, write_json, write_text
from argrad.recipes.live import Line, Progress, Table, progress
from argrad.recipes.locks import alone


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
    check(config)
    check_needs(recipe)
    ranks.start()
    folder = make_folder(Path(out) / recipe.name)
    jobs = plan(recipe, config, seeds, folder, ranks.world())
    if not jobs:
        raise InputError(f"these options select no cell of {recipe.name!r}.")
    if ranks.rank() > 0:
        return _follow(recipe, preset, config, seeds, jobs)
    busy = f"another process is running this recipe in {folder}. Wait for it, or choose another --out."
    with alone(folder, busy):
        sweep(folder)
        if fresh:
            _forget(jobs)
        one = ranks.world() > 1 or preset == "smoke"  # a process starts slower than a smoke cell runs
        show = _train(recipe, jobs, 1 if one and not workers else workers or os.cpu_count() or 1, quiet)
        summary = summarise(recipe, preset, config, command(recipe, config, preset, seeds), jobs)
        write_json(folder / "results.json", summary.to_json())
        write_text(folder / "report.html", render(summary))
        ranks.wait_for_all()
    show.say(f"{finding(summary)}\nReport: {folder / 'report.html'}")
    return summary


def command(recipe: Recipe, config: Any, preset: Preset, seeds: Sequence[int]) -> str:
    """The command that makes these numbers."""
    start = f"torchrun --nproc-per-node {ranks.world()} -m " if ranks.world() > 1 else ""
    words = [f"{start}argrad reproduce", recipe.file or recipe.name]
    words += [] if preset == "default" else [f"--{preset}"]
    words += [] if len(seeds) == 1 else [f"--seeds {len(seeds)}"]
    words += [] if seeds[0] == 0 else [f"--first-seed {seeds[0]}"]
    return " ".join(words + differing_flags(config, recipe.preset(preset)))


def check_needs(recipe: Recipe) -> None:
    """A sentence for every package that is missing."""
    import importlib.util

    for module, package in recipe.needs.items():
        if importlib.util.find_spec(module) is None:
            raise ArgradError(
                f'{recipe.name} needs {package}, which is not installed. Run: pip install "argrad[recipes]"'
            )


def _follow(
    recipe: Recipe, preset: Preset, config: Any, seeds: Sequence[int], jobs: Sequence[Job]
) -> Summary:
    """What a rank beside rank 0 does: train what rank 0 says is missing."""
    for job in _missing(jobs):
        follow(job)
        ranks.wait_for_all()
    ranks.wait_for_all()  # for the report
    return summarise(recipe, preset, config, command(recipe, config, preset, seeds), jobs)


def _missing(jobs: Sequence[Job]) -> list[Job]:
    """Those that are not done, in the eyes of rank 0."""
    undone = ranks.any_of(*(ranks.rank() == 0 and job.result is None for job in jobs))
    return [job for job, todo in zip(jobs, undone, strict=True) if todo]


def _forget(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.folder.exists():
            with explained(job.folder, "remove", "Remove it yourself, or choose another --out."):
                shutil.rmtree(job.folder)


# ---- training, in sight ----------------------------------------------------------------------------


def _train(recipe: Recipe, jobs: Sequence[Job], workers: int, quiet: bool) -> Progress:
    """Train what is not done yet and return what shows it, for the last sentence."""
    table = Table(
        f"argrad reproduce {recipe.name}: {recipe.title}",
        ("cell", "step", "logged", recipe.metric, "seconds"),
        main=2,
        lower_is_better=recipe.better == "lower",
    )
    states = [State(job) for job in jobs]
    missing = {job.folder for job in _missing(jobs)}
    todo = [s for s in states if s.job.folder in missing]
    with progress(table, quiet=quiet) as show:
        if len(todo) < len(states):
            show.say(f"{len(states) - len(todo)} of {len(states)} are done already.")
        if workers == 1 or len(todo) == 1 or ranks.world() > 1:
            _train_here(todo, states, show)
        else:
            for _ in run_all(states, workers):
                _show(states, show)
        show.finish([_line(s) for s in states])
    return show


def _train_here(todo: Sequence[State], states: Sequence[State], show: Progress) -> None:
    for state in todo:

        def report(phase: str, step: int, total: int, value: float, state: State = state) -> None:
            state.update(phase, step, total, value)
            _show(states, show)

        state.running = True
        state.result = train(state.job, report)
        ranks.wait_for_all()
        state.running = False
        _show(states, show)


def _show(states: Sequence[State], show: Progress) -> None:
    show.update([_line(s) for s in states], sum(s.share for s in states), len(states))


def _line(state: State) -> Line:
    result = state.result or {}
    metric = result.get("metrics", {}).get(state.job.recipe.metric)
    step = f"{state.step:,} of {state.total:,}" if state.total else "–"
    values = (
        "done" if state.result is not None else step,
        state.value,
        float("nan") if metric is None else metric,
        result.get("seconds", float("nan")),
    )
    return Line(state.job.name, values, state.running)
