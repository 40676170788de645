"""The trials of a sweep, each in a process that may die: on this machine, or as Ray tasks.

A trial is a job (`jobs.py`): its folder has a checkpoint while it runs and `result.json` when it is done, written once.
So whatever is killed, the driver, a worker or a whole node of Ray, the trial goes on from its checkpoint, and one that
is done is never run again.
"""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from argrad._errors import ArgradError
from argrad.recipes.bench.jobs import Job, write_down
from argrad.recipes.bench.workers import POLL, REFUSED, close, stop

ATTEMPTS = 3  # of a trial that fails or is killed


def run_here(jobs: Sequence[Job], workers: int) -> Iterator[None]:
    """Run the trials in processes of this machine, `workers` at a time; yields at each look at them."""
    waiting = [(job, 1) for job in jobs if job.result is None]
    running: list[tuple[Job, int, subprocess.Popen]] = []
    failures: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job, attempt = waiting.pop(0)
                write_down(job)
                running.append((job, attempt, _start(job.folder)))
            time.sleep(POLL)
            for entry in list(running):
                job, attempt, process = entry
                if process.poll() is None:
                    continue
                running.remove(entry)
                close(process)
                failure = _failure(job, process.returncode)
                if failure and attempt < ATTEMPTS:
                    waiting.append((job, attempt + 1))
                elif failure:
                    failures.append(failure)
            yield
    finally:
        stop([process for _, _, process in running])
    _raise(failures)


def run_on_ray(jobs: Sequence[Job], address: str, workers: int) -> Iterator[None]:
    """Run the trials as Ray tasks, which Ray itself starts again when their worker dies.

    Args:
        jobs: the trials; their folders must be on a file system that all nodes share.
        address: "local" starts Ray on this machine, "auto" finds the cluster that is there.
        workers: processes of a local Ray.
    """
    if importlib.util.find_spec("ray") is None:
        raise ArgradError('--ray needs Ray, which is not installed. Run: pip install "argrad[scale]"')
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

    todo = {job.folder: job for job in jobs if job.result is None}
    for job in todo.values():
        write_down(job)
    options: dict[str, Any] = {"address": address}
    if address == "local":
        options = {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False}
    ray.init(**options, logging_level=logging.ERROR)
    try:
        task = ray.remote(max_retries=ATTEMPTS - 1, retry_exceptions=True)(do_in_process)
        waiting = {task.remote(str(folder)): folder for folder in todo}
        failures: list[str] = []
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=POLL)
            for reference in done:
                folder = waiting.pop(reference)
                try:
                    ray.get(reference)
                except RayError as error:
                    failures.append(
                        f"The trial '{todo[folder].name}' failed: {_last_line(str(error))}."
                    )
            yield
    finally:
        ray.shutdown()
    _raise(failures)


def do_in_process(folder: str) -> None:
    """One trial in a process that ends with this one; raises when it left no result."""
    process = _start(Path(folder))
    process.wait()
    close(process)
    if not (Path(folder) / "result.json").exists():
        text = (Path(folder) / "stderr.txt").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(_last_line(text) or f"it ended with exit code {process.returncode}")


# ---- shared parts ----------------------------------------------------------------------------------


def _start(folder: Path) -> subprocess.Popen:
    with (folder / "stderr.txt").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "argrad.recipes.bench.worker", str(folder)],
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends: the worker then ends too
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def _failure(job: Job, code: int) -> str:
    """Why there is no result; a sentence about data or disk, the same for all trials, is raised at once."""
    if job.result is not None:
        return ""
    path = job.folder / "stderr.txt"
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if code == REFUSED and text:
        raise ArgradError(text)
    reason = f"it was ended by signal {-code}" if code < 0 else _last_line(text) or "it left no message"
    return f"The trial '{job.name}' failed {ATTEMPTS} times: {reason.rstrip('.')}. More is in {path}."


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _raise(failures: Sequence[str]) -> None:
    if failures:
        raise ArgradError(f"{' '.join(failures)} All other trials are done; the same command goes on.")
