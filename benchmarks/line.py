"""What one benchmark line says: two ways to answer one question, and the goal between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Step = Callable[[], Any]


@dataclass(frozen=True)
class Speedup:
    """The peer takes at least `at_least` times as long as we do; below 1, we may be that much slower."""

    at_least: float

    def met(self, ours: float, peer: float) -> bool:
        return peer >= self.at_least * ours

    def __str__(self) -> str:
        return f">= {self.at_least:.3g}x"


@dataclass(frozen=True)
class Extra:
    """We take at most `at_most` seconds more than the peer (what comes on top of a start-up)."""

    at_most: float

    def met(self, ours: float, peer: float) -> bool:
        return ours - peer <= self.at_most

    def __str__(self) -> str:
        return f"<= +{self.at_most:g} s"


@dataclass(frozen=True)
class Within:
    """We take at most `at_most` seconds, whatever the peer takes."""

    at_most: float

    def met(self, ours: float, peer: float) -> bool:
        return ours <= self.at_most

    def __str__(self) -> str:
        return f"<= {self.at_most:g} s"


Goal = Speedup | Extra | Within


def both(goal: Goal) -> dict[int, Goal]:
    """The same goal on one thread and on two."""
    return {1: goal, 2: goal}


@dataclass(frozen=True, kw_only=True)
class Line:
    """Ours against a peer.

    Attributes:
        name: the question, with its shape: `gumbel_max (64, 50000)`.
        ours: prepares the inputs and returns the step that is timed. What it imports may be missing:
            the line is then "not available".
        peer: the same for the peer.
        peer_name: how the peer is written, `F.gumbel_softmax`.
        package: the distribution that holds the peer, whose version is reported; None for our own code.
        check: gets what the two steps return and asserts that they answer the same question.
        goals: number of threads -> goal; a number without a goal is only reported.
        threads: numbers of torch threads to run with.
        part: the share of the work that the peer does, when it is a loop over independent items that
            takes minutes; its time is divided by it.
        unit: how times are shown (in the JSON they are seconds; MB are MB).
        clock: what is timed; the wall clock unless it would mostly show what else the machine does.
    """

    name: str
    ours: Callable[[], Step]
    peer: Callable[[], Step]
    peer_name: str
    package: str | None
    check: Callable[[Any, Any], None]
    goals: Mapping[int, Goal] = field(default_factory=dict)
    threads: tuple[int, ...] = (1, 2)
    part: float = 1.0
    unit: Literal["us", "ms", "s", "cpu s", "MB"] = "ms"
    clock: Callable[[], float] = time.perf_counter
