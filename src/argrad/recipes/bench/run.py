"""One training run that can be killed at any moment and goes on where it was."""

from __future__ import annotations

import contextlib
import io
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from argrad.recipes.bench.log import Log
from argrad.recipes.files import StorageError, write_bytes

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
        self.seconds = 0.0  # spent in training steps, over all phases and all attempts
        self._save_seconds, self._log_every, self._report = save_seconds, log_every, report
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def generator(self, stream: int = 0) -> torch.Generator:
        """A generator of this run's seed; different streams for data order, noise and evaluation."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + stream)

    def log(self, **values: Tensor | float) -> None:
        """Add to the means of the next line; tensors are not read before that."""
        for name, value in values.items():
            value = torch.as_tensor(value).detach()
            self._sums[name] = self._sums.get(name, torch.zeros((), dtype=torch.float64)) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def steps(self, total: int, *, phase: str = "train", **parts: Any) -> Iterator[int]:
        """The numbers of the steps still to do, from 0 to `total - 1`, restoring `parts` first."""
        path = self.folder / f"{phase}.pt"
        done, spent = self._restore(path, parts)
        before = self.seconds
        log = Log(self.folder, done, phase)
        started = saved = time.perf_counter()
        self.seconds = before + spent
        try:
            with _interrupts_between_steps() as interrupted:
                for step in range(done, total):
                    yield step
                    done = step + 1
                    self.seconds = before + spent + time.perf_counter() - started
                    if done % self._log_every == 0 or done == total:
                        self._write_line(log, phase, done, total)
                    late = time.perf_counter() - saved > self._save_seconds
                    if late or interrupted or done == total:
                        self._save(path, parts, done, self.seconds - before)
                        saved = time.perf_counter()
                    if interrupted:
                        raise KeyboardInterrupt
        finally:
            log.close()
            self._sums, self._counts = {}, {}

    # ---- the log ---------------------------------------------------------------------------------

    def _write_line(self, log: Log, phase: str, step: int, total: int) -> None:
        means = {name: float(total_) / self._counts[name] for name, total_ in self._sums.items()}
        self._sums, self._counts = {}, {}
        log.write(step, {**means, "seconds": round(self.seconds, 2)})
        if self._report is not None:
            self._report(phase, step, total, next(iter(means.values()), float("nan")))

    # ---- checkpoints -----------------------------------------------------------------------------

    def _save(self, path: Path, parts: dict[str, Any], step: int, seconds: float) -> None:
        state = {
            "step": step,
            "seconds": seconds,
            "torch": torch.get_rng_state(),
            "log": {name: (self._sums[name], self._counts[name]) for name in self._sums},
            "parts": {name: _state_of(part) for name, part in parts.items()},
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_bytes(path, buffer.getvalue())

    def _restore(self, path: Path, parts: dict[str, Any]) -> tuple[int, float]:
        if not path.exists():
            return 0, 0.0
        try:
            state = torch.load(path, weights_only=True)  # never runs code from the file
            if set(state["parts"]) != set(parts):
                raise KeyError(f"it holds {sorted(state['parts'])}, the recipe has {sorted(parts)}")
            for name, part in parts.items():
                _restore_part(part, state["parts"][name])
        except (OSError, RuntimeError, KeyError, ValueError, pickle.UnpicklingError, EOFError) as error:
            raise StorageError(
                f"cannot go on from {path}: {error}. Delete the folder {path.parent} to train this cell anew."
            ) from None
        torch.set_rng_state(state["torch"])
        self._sums = {name: value[0] for name, value in state["log"].items()}
        self._counts = {name: value[1] for name, value in state["log"].items()}
        return state["step"], state["seconds"]


def _state_of(part: Any) -> Any:
    return part.get_state() if isinstance(part, torch.Generator) else part.state_dict()


def _restore_part(part: Any, state: Any) -> None:
    if isinstance(part, torch.Generator):
        part.set_state(state)
    else:
        part.load_state_dict(state)


@contextlib.contextmanager
def _interrupts_between_steps() -> Iterator[list[bool]]:
    """Ctrl-C makes the list non-empty instead of tearing a step apart; a second one interrupts at once."""
    interrupted: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # only the main thread may receive signals
        return
    before = signal.getsignal(signal.SIGINT)

    def wait(*_: Any) -> None:
        interrupted.append(True)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, wait)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with `count` torch threads: sums then do not depend on how many cores the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
