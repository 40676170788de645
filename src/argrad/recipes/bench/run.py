"""One training run that can be killed at any moment and goes on where it was."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from argrad.random import CounterRNG
from argrad.recipes.bench import checkpoint, ranks
from argrad.recipes.bench.log import Log, NoLog

_BETWEEN_RANKS = 2_000_000_000_000_011  # more than all streams of all seeds take
Report = Callable[[str, int, int, float], None]  # phase, step, total, newest value


class Run:
    """What a recipe's `train` gets: the loop, the log and a seed.

        model, optimizer, noise = ...
        for step in run.steps(config.steps, model=model, optimizer=optimizer, noise=noise):
            loss = ...
            run.log(loss=loss)

    Everything that changes from step to step is named in `steps`: anything with `state_dict` and
    `load_state_dict`, or a `torch.Generator`. Torch's own generator is kept as well. With these a run that
    was killed continues to the same numbers, bit for bit, on the same machine and number of threads.

    Args:
        folder: where log and checkpoints are.
        seed: of this run.
        save_seconds: time between two checkpoints.
        log_every: steps between two lines of the log.
        report: called with phase, step, total and the newest logged value.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        save_seconds: float = 20.0,
        log_every: int = 100,
        report: Report | None = None,
    ) -> None:
        self.folder, self.seed = folder, seed
        self.save_seconds, self.log_every = save_seconds, log_every
        self.seconds = 0.0  # spent in training steps, over all phases and all attempts
        self._report = report
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._stepping = self._interrupted = False

    def generator(self, stream: int = 0) -> torch.Generator:
        """A generator of this run's seed; different streams for data order, noise and evaluation."""
        other = _BETWEEN_RANKS * ranks.rank()
        return torch.Generator().manual_seed(1_000_003 * self.seed + stream + other)

    def counter(self, step: int, stream: int = 0, *, rows: int = 0) -> CounterRNG:
        """Noise of this run's seed for one step, that does not depend on how many processes share the batch.

        Args:
            step: its number.
            stream: as in `generator`.
            rows: rows of noise that the whole batch takes; each process begins behind those before it.
        """
        return CounterRNG(self.seed).fold(stream, step).shift(rows=ranks.share(rows).start)

    def share(self, batch: int) -> int:
        """How many items of a batch this process takes: all, unless `torchrun` has started others."""
        own = ranks.share(batch)
        return own.stop - own.start

    def log(self, **values: Tensor | float) -> None:
        """Add to the means of the next line; tensors are not read before that."""
        for name, value in values.items():
            value = torch.as_tensor(value).detach()
            self._sums[name] = self._sums.get(name, torch.zeros((), dtype=torch.float64)) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def steps(self, total: int, *, phase: str = "train", **parts: Any) -> Iterator[int]:
        """The numbers of the steps still to do, from 0 to `total - 1`, restoring `parts` first.

        A recipe that trains in several phases calls this once for each, under different names.
        """
        path = self.folder / f"{phase}.pt"
        done, spent = self._restore(path, parts)
        if done == 0:
            self._begin_alike(list(parts.values()))
        log = (Log if ranks.rank() == 0 else NoLog)(self.folder, phase, done, total)
        before, started = self.seconds, time.perf_counter() - spent
        self.seconds, saved, self._stepping = before + spent, time.perf_counter(), True
        try:
            with ranks.averaged(list(parts.values())):
                for step in range(done, total):
                    yield step
                    done = step + 1
                    self.seconds = before + time.perf_counter() - started
                    if done % self.log_every == 0 or done == total:
                        self._write_line(log, phase, done, total)
                    late = time.perf_counter() - saved > self.save_seconds
                    late, interrupted = ranks.any_of(late, self._interrupted)
                    if late or interrupted or done == total:
                        self._save(path, parts, done, self.seconds - before)
                        saved = time.perf_counter()
                    if interrupted:
                        raise KeyboardInterrupt
        finally:
            self._stepping = False
            self._sums, self._counts = {}, {}
            log.close()

    def _begin_alike(self, parts: list[Any]) -> None:
        """The same parameters on all ranks; torch's own generator is another one on each from here on."""
        if ranks.world() > 1:
            ranks.begin_alike(parts)
        if ranks.rank() > 0:
            torch.manual_seed(1_000_003 * self.seed + _BETWEEN_RANKS * ranks.rank())

    @contextlib.contextmanager
    def interrupts_between_steps(self) -> Iterator[None]:
        """Let Ctrl-C finish and save the step that it meets instead of tearing it apart; a second one is at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may receive signals
            return

        def wait(*_: Any) -> None:
            if self._interrupted or not self._stepping:
                raise KeyboardInterrupt
            self._interrupted = True

        before = signal.signal(signal.SIGINT, wait)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _write_line(self, log: Log, phase: str, step: int, total: int) -> None:
        sums = ranks.summed([float(sum_) for sum_ in self._sums.values()])
        counts = (count * ranks.world() for count in self._counts.values())
        means = {name: a / n for name, a, n in zip(self._sums, sums, counts, strict=True)}
        self._sums, self._counts = {}, {}
        log.write(step, means, self.seconds)
        if self._report is not None:
            self._report(phase, step, total, next(iter(means.values()), float("nan")))

    def _save(self, path: Path, parts: dict[str, Any], step: int, seconds: float) -> None:
        line = {name: (self._sums[name], self._counts[name]) for name in self._sums}
        checkpoint.save(path, parts, {"step": step, "seconds": seconds, "log": line})

    def _restore(self, path: Path, parts: dict[str, Any]) -> tuple[int, float]:
        said = checkpoint.restore(path, parts)
        if said is None:
            return 0, 0.0
        self._sums = {name: sum_ for name, (sum_, _) in said["log"].items()}
        self._counts = {name: count for name, (_, count) in said["log"].items()}
        return said["step"], said["seconds"]


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with `count` torch threads: sums then do not depend on how many cores the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
