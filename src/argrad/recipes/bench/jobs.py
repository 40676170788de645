"""A job is one cell with one seed, in a folder of its own.

The folder's name has a hash of everything that decides the job's numbers, so another configuration gets another
folder and nothing is overwritten. `job.json` is what to do, `result.json` says that it is done.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from argrad._errors import InputError
from argrad.recipes.bench.options import as_dict, from_dict
from argrad.recipes.bench.recipe import Cell, Recipe
from argrad.recipes.files import StorageError, explained, read_json, sweep, write_json
from argrad.recipes.locks import alone

_PATIENCE = 20.0  # seconds for a worker whose parent was killed to notice it


@dataclass(frozen=True)
class Job:
    """One cell, one seed, one folder."""

    recipe: Recipe
    config: Any
    cell: Cell
    seed: int
    folder: Path
    processes: int = 1

    @property
    def name(self) -> str:
        """As a person reads it."""
        return self.cell.name + (f" (seed {self.seed})" if self.seed else "")

    @property
    def result(self) -> dict[str, Any] | None:
        """What it found, if it is done."""
        path = self.folder / "result.json"
        found = read_json(path)
        if found is not None and not (isinstance(found, dict) and {"metrics", "seconds"} <= set(found)):
            raise StorageError(
                f"{path} is not a result of ours. Delete it, and its cell is trained anew."
            )
        return found

    def describe(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        return {
            "recipe": self.recipe.name,
            "row": self.cell.row,
            "column": self.cell.column,
            "settings": dict(self.cell.settings),
            "seed": self.seed,
            **({"processes": self.processes} if self.processes > 1 else {}),
            "config": as_dict(self.config, selection=False),
        }


def plan(recipe: Recipe, config: Any, seeds: Sequence[int], out: Path, processes: int = 1) -> list[Job]:
    """All jobs of a table; the seeds of a cell one after the other, so that an early look shows all cells."""
    cells = recipe.cells(config)
    return [make_job(recipe, config, cell, seed, out, processes) for seed in seeds for cell in cells]


def make_job(recipe: Recipe, config: Any, cell: Cell, seed: int, out: Path, processes: int = 1) -> Job:
    """One of them, with its folder."""
    job = Job(recipe, config, cell, seed, out, processes)
    text = json.dumps(job.describe(), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", cell.name.lower()).strip("-")[:80]
    return replace(job, folder=out / "cells" / f"{name}.seed{seed}.{digest}")


def follow(job: Job) -> None:
    """Do the part of one job that a rank beside rank 0 has: the training, without a word."""
    job.folder.mkdir(parents=True, exist_ok=True)
    _train(job, None)


def train(job: Job, report: Callable[[str, int, int, float], None] | None = None) -> dict[str, Any]:
    """Do one job here, or go on with it; returns its result."""
    if (result := job.result) is not None:
        return result
    write_down(job)
    busy = (
        f"another process is training the cell in {job.folder}. Wait for it, or choose another --out."
    )
    with alone(job.folder, busy, patience=_PATIENCE):
        sweep(job.folder)
        metrics, seconds = _train(job, report)
        from argrad.recipes import machine

        result = job.describe() | {
            "metrics": metrics,
            "seconds": round(seconds, 1),
            "machine": machine.facts(),
        }
        write_json(job.folder / "result.json", result)
    return result


def _train(job: Job, report: Callable[..., None] | None) -> tuple[dict[str, float], float]:
    """Its numbers, and the seconds spent in training steps; torch's generator is left as it was."""
    import torch

    from argrad.recipes.bench.run import Run, threads

    run = Run(job.folder, job.seed, log_every=_log_every(job.config), report=report)
    with threads(1), torch.random.fork_rng(devices=[]), run.interrupts_between_steps():
        torch.manual_seed(job.seed)
        found = job.recipe.train(job.config, job.cell, run)
    metrics = {name: float(value) for name, value in found.items()}
    if job.recipe.metric not in metrics:
        raise InputError(
            f"`train` of the recipe {job.recipe.name!r} must return {job.recipe.metric!r}, which the table shows; "
            f"got {', '.join(metrics) or 'nothing'}."
        )
    return metrics, run.seconds


def _log_every(config: Any) -> int:
    steps = getattr(config, "steps", None) or 10_000
    return max(1, min(200, steps // 50))


# ---- for a worker ----------------------------------------------------------------------------------


def write_down(job: Job) -> None:
    """Put `job.json` into its folder, which is made if it is missing."""
    with explained(job.folder, "make"):
        job.folder.mkdir(parents=True, exist_ok=True)
    said = job.describe() | {"config": as_dict(job.config), "file": job.recipe.file}
    write_json(job.folder / "job.json", said)


def load(folder: Path) -> Job:
    """The job that `job.json` in this folder describes."""
    from argrad.recipes import find

    said = read_json(folder / "job.json")
    recipe = find(said.get("file") or said["recipe"])
    config = from_dict(type(recipe.config), said["config"])
    same = (said["row"], said["column"])
    cell = next(c for c in recipe.cells(config) if (c.row, c.column) == same)
    return Job(recipe, config, cell, said["seed"], folder, said.get("processes", 1))
