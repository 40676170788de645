"""The best of all candidates so far, with the log-sum-exp of everything that was seen."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from argrad._kernels.threads import run_rows

_ROOM = 4096  # entries of a buffer beyond twice the sample: the kernel stops when a block might not fit


class Candidates(NamedTuple):
    """Items that may be in the sample."""

    keys: np.ndarray  # perturbed logits, float64
    ids: np.ndarray  # int64
    logits: np.ndarray  # float64

    @classmethod
    def room(cls, size: int) -> Candidates:
        """Arrays of this length, not yet filled."""
        return cls(np.empty(size), np.empty(size, np.int64), np.empty(size))

    def take(self, index: Any) -> Candidates:
        """A selection of them, copied."""
        return Candidates(*(np.array(a[index]) for a in self))

    def best(self, count: int) -> Candidates:
        """The first `count`: by falling key, equal ones by rising id; an id counts once, by its best key."""
        order = np.lexsort((self.ids, -self.keys))
        first = np.unique(self.ids[order], return_index=True)[1]
        first.sort()
        return self.take(order[first[:count]])


class Pool:
    """The `size` best candidates of the items added; a pool is added to by making a new one from a copy."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.threshold = -math.inf  # what the last of the best has, once there are enough
        self.log_sum = np.array([-math.inf, 0.0])  # (peak, total)
        self._best = Candidates.room(0)
        self._new: list[Candidates] = []

    def copy(self) -> Pool:
        """An independent pool with the same content."""
        other = Pool(self.size)
        other.threshold, other.log_sum = self.threshold, self.log_sum
        other._best, other._new = self._best, list(self._new)
        return other

    def best(self) -> Candidates:
        """The best in falling order."""
        if self._new:
            parts = [self._best, *self._new]
            self._best = Candidates(*map(np.concatenate, zip(*parts, strict=True))).best(self.size)
            self._new = []
            if len(self._best.keys) == self.size:
                self.threshold = float(self._best.keys[-1])
        return self._best

    def add(self, found: Candidates, log_sum: np.ndarray) -> None:
        """Enter candidates, and the (peak, total) of the items they come from."""
        if len(found.keys):
            self._new.append(found)
            if sum(len(part.keys) for part in self._new) > self.size + _ROOM:
                self.best()
        peak = max(self.log_sum[0], log_sum[0])
        if peak > -math.inf:
            totals = (s[1] * math.exp(s[0] - peak) for s in (self.log_sum, log_sum))
            self.log_sum = np.array([peak, sum(totals)])

    def race(self, logits: np.ndarray, ids: np.ndarray, first: int, key: np.ndarray) -> int:
        """Enter items from all threads; `ids` may be empty, then they are `first`, `first + 1`, ..."""
        parts: list[tuple[Candidates, np.ndarray]] = []
        args = (logits, ids, first, self.size, self.threshold, key, parts)
        status = run_rows(_scan, len(logits), len(logits), *args)
        for part in parts:
            self.add(*part)
        return status


def _scan(
    start: int,
    stop: int,
    logits: np.ndarray,
    ids: np.ndarray,
    first: int,
    size: int,
    threshold: float,
    key: np.ndarray,
    parts: list[tuple[Candidates, np.ndarray]],
) -> int:
    """Find the candidates of a range of items and append them to `parts`."""
    from argrad._kernels.race import BLOCK, scan

    buffer = Candidates.room(min(stop - start + BLOCK, 2 * size + _ROOM))
    log_sum, filled = np.array([-math.inf, 0.0]), 0
    while start < stop:
        start, filled, status = scan(
            start, stop, ids, first, logits, threshold, *buffer, filled, log_sum, key
        )
        if status:
            return status
        if start < stop:  # the buffer is full
            best = buffer.take(slice(filled)).best(size)
            filled = len(best.keys)
            for column, values in zip(buffer, best, strict=True):
                column[:filled] = values
            threshold = best.keys[-1] if filled == size else threshold
    parts.append((buffer.take(slice(filled)), log_sum))
    return 0
