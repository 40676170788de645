"""A job is one cell with one seed, in a folder of its own; several run at once in processes.

The folder's name has a hash of everything that decides the job's numbers, so another configuration gets another
folder and nothing is overwritten. `job.json` is what to do, `result.json` says that it is done.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argrad._errors import ArgradError
from argrad.recipes.bench.log import read_log
from argrad.recipes.bench.options import as_dict, from_dict
from argrad.recipes.bench.recipe import Cell, Recipe
from argrad.recipes.files import explained, read_json, write_json
from argrad.recipes.locks import alone

POLL = 0.2  # seconds between two looks at the workers


@dataclass(frozen=True)
class Job:
    """One cell, one seed, one folder."""

    recipe: Recipe
    config: Any
    cell: Cell
    seed: int
    folder: Path

    @property
    def result(self) -> dict[str, Any] | None:
        """What it found, if it is done."""
        return read_json(self.folder / "result.json")

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        return {
            "recipe": self.recipe.name,
            "row": self.cell.row,
            "column": self.cell.column,
            "settings": dict(self.cell.settings),
            "seed": self.seed,
            "config": as_dict(self.config, selection=False),
        }


def plan(recipe: Recipe, config: Any, seeds: Sequence[int], out: Path) -> list[Job]:
    """All jobs of a table; the seeds of a cell one after the other, so that an early look shows all cells."""
    return [_job(recipe, config, cell, seed, out) for seed in seeds for cell in recipe.cells(config)]


def _job(recipe: Recipe, config: Any, cell: Cell, seed: int, out: Path) -> Job:
    job = Job(recipe, config, cell, seed, out)
    text = json.dumps(job.describe(), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", cell.name.lower()).strip("-")
    return Job(recipe, config, cell, seed, out / "cells" / f"{name}.seed{seed}.{digest}")


def train(job: Job, report: Callable[..., None] | None = None) -> dict[str, Any]:
    """Do one job here, or go on with it; returns its result."""
    if (result := job.result) is not None:
        return result
    from argrad.recipes import machine
    from argrad.recipes.bench.run import Run, threads

    with explained(job.folder, "make"):
        job.folder.mkdir(parents=True, exist_ok=True)
    write_json(job.folder / "job.json", job.describe() | {"config": as_dict(job.config)})
    run = Run(job.folder, job.seed, log_every=_log_every(job.config), report=report)
    import torch

    with alone(job.folder, "busy"), threads(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        metrics = {
            name: float(value) for name, value in job.recipe.train(job.config, job.cell, run).items()
        }
    result = job.describe() | {
        "metrics": metrics,
        "seconds": round(run.seconds, 1),
        "machine": machine.facts(),
    }
    write_json(job.folder / "result.json", result)
    return result


def _log_every(config: Any) -> int:
    steps = getattr(config, "steps", 10_000)
    return max(1, min(200, steps // 50))


# ---- several at once -----------------------------------------------------------------------------


@dataclass
class Progress:
    """How far a job is."""

    job: Job
    step: int = 0
    value: float = float("nan")
    process: subprocess.Popen | None = None


def run_all(jobs: Sequence[Job], workers: int) -> Iterator[list[Progress]]:
    """Do all jobs, `workers` at a time, yielding how far each is; stops them all when the caller stops."""
    every = [Progress(job) for job in jobs]
    waiting = [p for p in every if p.job.result is None]
    running: list[Progress] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(waiting.pop(0)))
            time.sleep(POLL)
            for progress in running:
                _look(progress)
            ended = [p for p in running if p.process is not None and p.process.poll() is not None]
            running = [p for p in running if p not in ended]
            for progress in ended:
                _end(progress)
            yield every
    finally:
        _stop(running)


def _start(progress: Progress) -> Progress:
    folder = progress.job.folder
    with explained(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(
            folder / "job.json", progress.job.describe() | {"config": as_dict(progress.job.config)}
        )
        with (folder / "stderr.txt").open("wb") as errors:
            progress.process = subprocess.Popen(
                [sys.executable, "-m", "argrad.recipes.bench.worker", str(folder)],
                stdin=subprocess.PIPE,  # closed when this process ends, however it ends: the worker then ends too
                stderr=errors,
                start_new_session=True,  # Ctrl-C reaches this process, which asks each worker once
            )
    return progress


def _look(progress: Progress) -> None:
    """The newest line of its log."""
    lines = read_log(progress.job.folder)
    if lines:
        *_, last = lines
        values = [v for k, v in last.items() if k not in ("phase", "step", "seconds") and v is not None]
        progress.step, progress.value = last["step"], values[0] if values else float("nan")


def _end(progress: Progress) -> None:
    if progress.job.result is not None:
        return
    text = (progress.job.folder / "stderr.txt").read_text(errors="replace").strip()
    reason = text.splitlines()[-1] if text else "it left no message"
    raise ArgradError(
        f"the cell '{progress.job.cell.name}', seed {progress.job.seed}, failed: {reason} "
        f"(all of it: {progress.job.folder / 'stderr.txt'}). Finished cells are kept; the same command goes on."
    )


def _stop(running: list[Progress]) -> None:
    """Ask the workers to save and end, and end those that do not."""
    for progress in running:
        if progress.process is not None and progress.process.poll() is None:
            progress.process.send_signal(signal.SIGINT)
    for progress in running:
        if progress.process is not None:
            try:
                progress.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                progress.process.kill()
                progress.process.wait()


def load(folder: Path) -> Job:
    """The job that `job.json` in this folder describes."""
    from argrad.recipes import find

    said = read_json(folder / "job.json")
    recipe = find(said["recipe"])
    config = from_dict(type(recipe.config), said["config"])
    same = (said["row"], said["column"])
    cell = next(c for c in recipe.cells(config) if (c.row, c.column) == same)
    return Job(recipe, config, cell, said["seed"], folder)
