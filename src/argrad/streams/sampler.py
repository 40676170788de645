r"""A `torch.utils.data.Sampler` with weights for data sets of any size.

`torch.multinomial`, and with it `WeightedRandomSampler`, ends at $2^{24}$ items. Here the weights are read in
pieces: without replacement by `GumbelTopKStream`, with replacement by sorted uniforms that meet the running sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from argrad._checks import check_count, check_floating, fail, refuse_meta
from argrad._errors import InputError
from argrad.random import CounterRNG
from argrad.streams.top_k import PIECE, GumbelTopKStream

CALL = "WeightedStreamSampler"
Batch = tuple[Any, Any]  # ids (or the first of them) and weights


class WeightedStreamSampler(Sampler[int]):
    r"""Yield indices with probabilities proportional to weights, for data sets and streams of any size.

    $$ P(i_1) = \frac{w_{i_1}}{\sum_i w_i}, \quad P(i_2 \mid i_1) = \frac{w_{i_2}}{\sum_{i \ne i_1} w_i}, \ \dots $$
    without replacement, and $P(i_j) = w_{i_j} / \sum_i w_i$ independently with replacement. Memory is that of the
    sample, O(`num_samples`); weights are read once an epoch (twice with replacement).

    Each pass over the sampler is a new epoch with new noise; `set_epoch` goes to a given one. Processes that share
    the seed agree on the sample, and each yields its part of it.

    Args:
        weights: $w \ge 0$ of items 0, 1, ..., as a tensor, an array or a memory map; or a function without
            arguments that returns an iterator over `(ids, weights)` batches, as `GumbelTopKStream.update` takes
            them (`ids` may be the first of consecutive ones).
        num_samples: how many indices an epoch has, over all replicas.
        replacement: whether an index may come several times.
        seed: any integer.
        num_replicas: how many processes share an epoch; divides `num_samples`.
        rank: which of them this is.

    Examples:
        >>> import torch, argrad as ag
        >>> data = torch.arange(100.0)
        >>> sampler = ag.WeightedStreamSampler(data, num_samples=20, seed=0)  # item 99 comes most, 0 never
        >>> loader = torch.utils.data.DataLoader(data, batch_size=10, sampler=sampler)
        >>> [len(batch) for batch in loader], 0 in set(sampler)
        ([10, 10], False)

    References: [efraimidis2006].
    """

    def __init__(
        self,
        weights: Tensor | np.ndarray | Callable[[], Iterable[Batch]],
        num_samples: int,
        *,
        replacement: bool = False,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        self._batches = weights if callable(weights) else _pieces(weights)
        self.num_samples = check_count(CALL, "num_samples", num_samples, 1, None, "Draw at least one.")
        self.num_replicas = check_count(
            CALL, "num_replicas", num_replicas, 1, None, "One is one process."
        )
        self.rank = check_count(CALL, "rank", rank, 0, num_replicas - 1, "Ranks count from 0.")
        if num_samples % num_replicas:
            rule = f"must be a multiple of the {num_replicas} replicas"
            advice = "Otherwise some would have a batch more than others, and wait for ever."
            raise fail(CALL, "num_samples", rule, num_samples, advice)
        self.replacement = replacement
        self.seed = CounterRNG(seed).seed
        self.epoch = 0

    def __len__(self) -> int:
        return self.num_samples // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = self.draw()[self.rank :: self.num_replicas]
        self.epoch += 1
        for part in indices.split(1 << 16):  # a list of all would take five times the memory
            yield from part.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`, as after a restart; passes count up by themselves."""
        self.epoch = check_count(f"{CALL}.set_epoch", "epoch", epoch, 0, None, "Epochs count from 0.")

    def draw(self) -> Tensor:
        """All indices of this epoch, `int64`, shape `(num_samples,)`; the epoch stays the same."""
        rng = CounterRNG(self.seed).fold(self.epoch)
        return self._with_replacement(rng) if self.replacement else self._without(rng)

    def _without(self, rng: CounterRNG) -> Tensor:
        stream = GumbelTopKStream(self.num_samples, rng.seed)
        for ids, weights in self._batches():
            stream.update(ids, weights=weights)
        top = stream.result()
        found = int(top.valid.sum())
        if found < self.num_samples:
            raise InputError(
                f"`{CALL}(num_samples=...)` must not exceed the number of items with a positive weight when there "
                f"is no replacement; got {self.num_samples} for {found} such items. Lower it, or pass "
                "`replacement=True`."
            )
        return top.indices

    def _with_replacement(self, rng: CounterRNG) -> Tensor:
        """Uniforms on (0, sum of weights), each at the item whose interval it falls into."""
        total = 0.0
        for _, weights in self._batches():
            total = _running_sum(weights, total)[1]
        if not total > 0:
            raise InputError(f"`{CALL}(weights=...)` must hold a positive weight; all of them are 0.")
        u = rng.uniform(1, self.num_samples, dtype=torch.float64)[0].numpy() * total
        u = np.minimum(u, np.nextafter(total, 0.0))  # the product may round up to the sum itself
        order = np.argsort(u, kind="stable")
        u, found = u[order], np.empty(self.num_samples, np.int64)
        start, below = 0, 0.0
        for ids, weights in self._batches():
            sums, below = _running_sum(weights, below)
            stop = int(np.searchsorted(u, below))
            place = np.searchsorted(sums, u[start:stop], side="right")
            found[order[start:stop]] = _id_of(ids, place)
            start = stop
        if start < self.num_samples:
            raise InputError(
                f"`{CALL}(weights=...)` must give the same weights each time; the second time had less."
            )
        return torch.from_numpy(found)


def _pieces(weights: object) -> Callable[[], Iterator[Batch]]:
    """An array as batches of consecutive items."""
    if isinstance(weights, np.ndarray):
        check_floating(CALL, "weights", torch.from_numpy(np.zeros(0, weights.dtype)))
    else:
        check_floating(CALL, "weights", weights)
        refuse_meta(CALL, "weights", weights)  # pyright: ignore[reportArgumentType]
    assert isinstance(weights, Tensor | np.ndarray)
    if weights.ndim != 1:
        rule, got = "must have one dimension", f"shape {tuple(weights.shape)}"
        raise fail(CALL, "weights", rule, got, "One weight an item.")
    size = len(weights)
    return lambda: ((a, weights[a : a + PIECE]) for a in range(0, size, PIECE))


def _running_sum(weights: Any, below: float) -> tuple[np.ndarray, float]:
    """Sums of the weights up to each item, on top of `below`, in float64."""
    array = (
        weights.detach().cpu().double().numpy()
        if isinstance(weights, Tensor)
        else np.asarray(weights, float)
    )
    array = array.reshape(-1)
    if array.size == 0:
        return array, below
    if not (array.min() >= 0 and array.max() < math.inf):
        bad = array[~((array >= 0) & (array < math.inf))]
        got = f"{len(bad)} others, the first is {bad[0]}"
        raise fail(
            CALL, "weights", "must be finite and not negative", got, "A weight of 0 means never."
        )
    sums = np.cumsum(array) + below
    return sums, float(sums[-1])


def _id_of(ids: Any, place: np.ndarray) -> np.ndarray:
    return place + ids if isinstance(ids, int) else np.asarray(ids).reshape(-1)[place]
