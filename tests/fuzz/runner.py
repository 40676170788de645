"""The calls, their numbers, and processes that may die making them."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from fuzz.judge import GOOD, judge
from fuzz.targets import RARE, TARGETS, TORCH_SPEAKS
from fuzz.traps import TRAPS

LAYOUT, META = (
    5,
    1003,
)  # each of so many calls is made again, with other strides or on no device (which is slow)
POLL = 0.2  # seconds between two looks at the workers
ROUNDS = 50  # in one of which the slow functions take part


def cycle(traps: bool = False) -> list[str]:
    """The targets in the order of calls."""
    if traps:
        return list(TRAPS)
    usual = [name for name in TARGETS if name not in RARE]
    return [*RARE, *usual * ROUNDS]


def make_call(names: Sequence[str], seed: int, number: int) -> tuple[str, str, str]:
    """Target, verdict and text of one call."""
    name = names[number % len(names)]
    also = (ValueError,) if name in TORCH_SPEAKS else ()
    twin = "meta" if number % META == 0 else "layout" if number % LAYOUT == 0 else ""
    found = judge((TARGETS | TRAPS)[name], random.Random(f"{seed}/{number}"), twin=twin, also=also)
    return name, found.verdict.value, found.text


# ---- workers ---------------------------------------------------------------------------------------


def work(pipe: Connection, at: Any, seed: int, numbers: range, traps: bool) -> None:
    """Make the calls; `at` says which one, and the pipe gets verdicts in portions and every failure at once."""
    import torch

    torch.set_num_threads(1)
    names, good = cycle(traps), set(GOOD)
    counts: Counter[str] = Counter()
    for number in numbers:
        at.value = number
        name, verdict, text = make_call(names, seed, number)
        counts[verdict] += 1
        if verdict not in good:
            pipe.send(("failure", number, name, verdict, text))
        if number % 100 < numbers.step:
            pipe.send(("counts", dict(counts)))
            counts.clear()
    pipe.send(("counts", dict(counts)))
    pipe.send(("done",))


class Worker:
    """A process with a part of the calls, started again behind a call that killed it."""

    def __init__(self, seed: int, numbers: range, timeout: float, traps: bool = False) -> None:
        self.seed, self.numbers, self.timeout, self.traps = seed, numbers, timeout, traps
        self.done = False
        self._start(numbers)

    def _start(self, numbers: range) -> None:
        context = multiprocessing.get_context("spawn")
        self._at = context.Value("q", -1, lock=False)
        self._pipe, other = context.Pipe(duplex=False)
        self._process = context.Process(
            target=work, args=(other, self._at, self.seed, numbers, self.traps), daemon=True
        )
        self._process.start()
        other.close()
        self._last, self._since = -1, time.monotonic()

    def poll(self) -> list[tuple]:
        """What happened since the last look."""
        found = []
        try:
            while self._pipe.poll():
                found.append(self._pipe.recv())
        except EOFError:
            pass
        if found and found[-1] == ("done",):
            self.done = True
            self._process.join()
            return found[:-1]
        number = self._at.value
        if number != self._last:
            self._last, self._since = number, time.monotonic()
        allowed = self.timeout if number >= 0 else 120.0  # torch is being loaded
        if not self._process.is_alive():
            found.append(("failure", number, "", "crash", f"exit code {self._process.exitcode}"))
        elif time.monotonic() - self._since > allowed:
            self._process.kill()
            found.append(("failure", number, "", "hang", f"more than {allowed:g} seconds"))
        else:
            return found
        self._process.join()
        if number < 0:
            raise RuntimeError("a worker cannot start")
        self._start(range(number + self.numbers.step, self.numbers.stop, self.numbers.step))
        return found


# ---- the command -----------------------------------------------------------------------------------


def fuzz(
    calls: int,
    seed: int,
    *,
    first: int = 0,
    workers: int = 1,
    timeout: float = 60.0,
    traps: bool = False,
    say: Any = print,
) -> dict[str, Any]:
    """Make the calls and count the verdicts; `say` gets a line for every failure."""
    began = time.monotonic()
    crew = [
        Worker(seed, range(first + w, first + calls, workers), timeout, traps) for w in range(workers)
    ]
    counts: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    told = began
    while crew:
        time.sleep(POLL)
        for worker in list(crew):
            for kind, *rest in worker.poll():
                if kind == "counts":
                    counts.update(rest[0])
                    continue
                number, name, verdict, text = rest
                name = name or cycle(traps)[number % len(cycle(traps))]
                if verdict in ("crash", "hang"):
                    counts[verdict] += 1
                failures.append({"number": number, "target": name, "verdict": verdict, "text": text})
                again = f"python -m tests.fuzz --seed {seed} --first {number} --calls 1"
                say(f"{verdict}: {name}: {text[:500]}\n    again: {again}")
            if worker.done:
                crew.remove(worker)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            say(f"{sum(counts.values()):,} of {calls:,}: {dict(counts)}")
    return {
        "calls": calls,
        "seed": seed,
        "first": first,
        "seconds": round(time.monotonic() - began, 1),
        "targets": len(set(cycle(traps))),
        "verdicts": dict(counts),
        "failures": failures,
    }
