"""Several jobs at once, each in a process of its own that ends when this one does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from argrad._errors import ArgradError
from argrad.recipes.bench.jobs import Job, write_down
from argrad.recipes.bench.log import first_value, last_line
from argrad.recipes.files import explained

POLL = 0.2  # seconds between two looks at the workers
_SAVING = 30.0  # seconds that a worker has for its last step and checkpoint
REFUSED = 2  # exit code of a worker that has no data or no disk


@dataclass
class State:
    """How far a job is."""

    job: Job
    step: int = 0
    total: int = 0
    value: float = float("nan")
    running: bool = False
    result: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.result = self.job.result

    @property
    def share(self) -> float:
        """From 0 to 1, which it reaches when it has been evaluated as well."""
        if self.result is not None:
            return 1.0
        return 0.99 * self.step / self.total if self.total else 0.0

    def update(self, phase: str, step: int, total: int, value: float) -> None:
        """A line was logged."""
        self.step, self.total, self.value = step, total, value


def run_all(states: Sequence[State], workers: int) -> Iterator[None]:
    """Do all jobs, `workers` at a time, updating `states` between yields; stops them when the caller stops.

    A cell that fails does not keep the others from being trained; a sentence about data or storage, which would be
    the same for all, ends everything.
    """
    waiting = [s for s in states if s.result is None]
    running: list[tuple[State, subprocess.Popen]] = []
    failures: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(waiting.pop(0)))
            time.sleep(POLL)
            for pair in list(running):
                _look(pair[0])
                if pair[1].poll() is not None:
                    running.remove(pair)
                    failures += _end(*pair)
            yield
    finally:
        stop([process for _, process in running])
    if failures:
        raise ArgradError(f"{' '.join(failures)} All other cells are done; the same command goes on.")


def _start(state: State) -> tuple[State, subprocess.Popen]:
    folder = state.job.folder
    write_down(state.job)
    with explained(folder, "write"), (folder / "stderr.txt").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "argrad.recipes.bench.worker", str(folder)],
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends: the worker then ends too
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches this process, which asks each worker once
        )
    state.running = True
    return state, process


def _look(state: State) -> None:
    """The newest line of its log."""
    line = last_line(state.job.folder)
    if line is not None:
        value = first_value(line)
        total = line.get("of", 0)
        state.update(line["phase"], line["step"], total, float("nan") if value is None else value)


def _end(state: State, process: subprocess.Popen) -> list[str]:
    """Sentences about what went wrong; one that concerns all cells is raised."""
    close(process)
    state.running, state.result = False, state.job.result
    if state.result is not None:
        return []
    job, code = state.job, process.returncode
    path = job.folder / "stderr.txt"
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if code == REFUSED and text:
        raise ArgradError(text)
    reason = (text.splitlines() or ["it left no message"])[-1]
    if code < 0:
        reason = (
            f"it was ended by {signal.Signals(-code).name} (the system does that when memory runs out)"
        )
    return [f"The cell '{job.name}' failed: {reason.rstrip('.')}. More is in {path}."]


def stop(processes: Sequence[subprocess.Popen]) -> None:
    """Ask the workers to save and end, and end those that do not."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + _SAVING
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        close(process)


def close(process: subprocess.Popen) -> None:
    """Let go of the pipe that keeps it alive."""
    if process.stdin is not None:
        process.stdin.close()
