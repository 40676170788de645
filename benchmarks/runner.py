"""Time ours and the peer in turns (a b a b ...), so that a busy machine slows both alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Literal

import torch

from benchmarks.elsewhere import Elsewhere
from benchmarks.line import Line, Step

SHORTEST = 0.02  # seconds; a shorter measurement is repeated in an inner loop until it lasts this long
REPEATS = 15
BUDGET = 20.0  # seconds; a slow pair stops here, but not before ...
FEWEST = 3  # ... this many repeats

Status = Literal["pass", "FAIL", "no goal", "not available", "ERROR"]


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the best of `repeats` measurements of `loops` calls each, and their median."""

    best: float
    median: float
    loops: int
    repeats: int


@dataclass(frozen=True)
class Result:
    """One line on one number of threads. `speedup` is peer time over our time, by the best times."""

    name: str
    threads: int
    unit: str
    peer_name: str
    package: str | None
    version: str | None
    goal: str | None
    status: Status
    reason: str = ""
    ours: Timing | None = None
    peer: Timing | None = None
    speedup: float | None = None
    speedup_of_medians: float | None = None

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def run_lines(lines: Iterable[Line], threads: Iterable[int] | None, repeats: int) -> Iterator[Result]:
    """Run each line on each of its numbers of threads (or on `threads`, where the line has them)."""
    before = torch.get_num_threads()
    try:
        for line in lines:
            for count in line.threads if threads is None else sorted(set(threads) & set(line.threads)):
                torch.set_num_threads(count)
                yield run_line(line, count, repeats)
    finally:
        torch.set_num_threads(before)


def run_line(line: Line, threads: int, repeats: int = REPEATS) -> Result:
    """Check that both answer the same, then time both. A line that fails says why and stops nothing."""
    goal = line.goals.get(threads)
    about = (line.name, threads, line.unit, line.peer_name, line.package, _version(line.package))
    about = (*about, None if goal is None else str(goal))
    try:
        ours, peer = line.ours(), line.peer()
    except ImportError as error:
        return Result(*about, "not available", str(error))
    try:
        torch.manual_seed(0)
        line.check(ours(), peer())
        a, b = measure(ours, peer, repeats, line.clock)
        b = replace(b, best=b.best / line.part, median=b.median / line.part)
    except Exception as error:  # whatever one line does, the others still run
        return Result(*about, "ERROR", f"{type(error).__name__}: {error}")
    if goal is None:
        status: Status = "no goal"
    else:
        status = "pass" if goal.met(a.best, b.best) else "FAIL"
    return Result(*about, status, "", a, b, b.best / a.best, b.median / a.median)


def measure(
    ours: Step, peer: Step, repeats: int = REPEATS, clock: Callable[[], float] = time.perf_counter
) -> tuple[Timing, Timing]:
    """Time two steps in turns."""
    steps = (ours, peer)
    loops = [_enough_loops(step, clock) for step in steps]
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        start = clock()
        for i in range(repeats):
            if i >= FEWEST and clock() - start > BUDGET:
                break
            for step, count, seconds in zip(steps, loops, times, strict=True):
                seconds.append(_seconds(step, count, clock) / count)
    finally:
        gc.enable()
    a, b = (
        Timing(min(seconds), statistics.median(seconds), count, len(seconds))
        for seconds, count in zip(times, loops, strict=True)
    )
    return a, b


def _enough_loops(step: Step, clock: Callable[[], float]) -> int:
    loops = 1
    while (seconds := _seconds(step, loops, clock)) < SHORTEST:
        # A first call can be slow for its own reasons, so grow towards the aim and look again.
        loops = max(2 * loops, math.ceil(loops * SHORTEST / seconds)) if seconds > 0 else 10 * loops
    return loops


def _seconds(step: Step, loops: int, clock: Callable[[], float]) -> float:
    if isinstance(step, Elsewhere):
        return step.seconds(loops)
    start = clock()
    for _ in range(loops):
        step()
    return clock() - start


def _version(package: str | None) -> str | None:
    if package is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
