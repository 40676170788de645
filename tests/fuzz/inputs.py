"""Inputs that nobody would choose: every dtype, layout, size, value and option, from one source of chance.

The source is a `random.Random`: a seed's in the fuzz command, hypothesis' in the tests (which then shrinks it).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

import argrad as ag

T = TypeVar("T")
INF, NAN = math.inf, math.nan
FLOATS = [torch.float32] * 5 + [torch.float64] * 2 + [torch.float16, torch.bfloat16]
OTHERS = [torch.int64, torch.bool, torch.complex64, torch.int8]
BATCHES = [(), (2,), (3,), (1, 2), (0,), (2, 0), (2, 1, 2)]


class Draw:
    """One call's inputs.

    Args:
        source: of chance.
        device: of every tensor; the numbers are the same on all.
        plain: contiguous tensors instead of odd strides, the numbers being the same.
    """

    def __init__(self, source: random.Random, *, device: str = "cpu", plain: bool = False) -> None:
        self.source, self.device, self.plain = source, device, plain
        self.leaves: list[Tensor] = []
        self.made: list[Tensor] = []  # as drawn, on the CPU

    # ---- choices -----------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.source.random() < p

    def choice(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.source.randrange(len(options))]

    def among(self, good: Sequence[Any], bad: Sequence[Any], p: float = 0.06) -> Any:
        """Usually a good one."""
        return self.choice(bad if self.chance(p) else good)

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""
        return self.source.randrange(low, high + 1)

    # ---- shapes and numbers ------------------------------------------------------------------------

    def batch(self) -> tuple[int, ...]:
        """Leading dimensions, empty ones among them."""
        return self.choice(BATCHES)

    def size(self, low: int = 1, high: int = 5) -> int:
        """Of an event; rarely 0."""
        return 0 if self.chance(0.02) else self.integer(low, high)

    def count(self, n: int) -> Any:
        """A k for n items, rarely an impossible one."""
        return self.among(range(1, max(n, 1) + 1), [0, -1, n + 1, 2.5, True, "two", None, 2**70])

    def samples(self) -> Any:
        """A `sample_shape`."""
        return self.among([(), (2,), (1, 2), (0,)], [(-1,), 2.5, "no", None])

    def tau(self, batch: tuple[int, ...] = ()) -> Any:
        """A temperature: usual, extreme, wrong, or one a row."""
        if self.chance(0.1):
            return self.tensor(batch, values=lambda shape, g: torch.rand(shape, generator=g) + 0.1)
        good = [1.0, 0.5, 0.1, 2, 1e-3, 30.0, 1e4]
        return self.among(good, [0.0, -1.0, NAN, INF, 1e-45, 1e300, "hot", None, True, 1j], 0.1)

    def number(self) -> Any:
        """A positive option such as a scale."""
        return self.among([1.0, 0.5, 2, 1e-3, 100.0], [0.0, -1.0, NAN, INF, "x", None], 0.06)

    def generator(self) -> Any:
        """Every kind; the global one is seeded by the judge."""
        seed = self.integer(0, 2**62)
        return self.among(
            [ag.CounterRNG(seed), torch.Generator().manual_seed(seed), None], [7, "seed"], 0.02
        )

    # ---- tensors -----------------------------------------------------------------------------------

    def scores(self, shape: Sequence[int], *, hostile: float = 0.25, dtype: Any = None) -> Tensor:
        """Real numbers, often awkward, seldom impossible; most can be differentiated."""
        values = self.choice(AWKWARD) if self.chance(hostile) else self.choice(USUAL)
        x = self.tensor(shape, values=values, dtype=dtype)
        if x.is_floating_point() and self.chance(0.6):
            x = x.detach().requires_grad_()
            self.leaves.append(x)
        return x

    def tensor(
        self,
        shape: Sequence[int],
        *,
        values: Callable[[tuple[int, ...], torch.Generator], Tensor],
        dtype: Any = None,
    ) -> Tensor:
        """Numbers of some dtype in some layout."""
        if dtype is None:
            dtype = self.among(FLOATS, OTHERS, 0.03)
        g = torch.Generator().manual_seed(self.source.getrandbits(32))
        x = values(tuple(shape), g).to(dtype)
        layout = self.choice(LAYOUTS)
        if self.chance(0.4) and not self.plain:
            x = layout(x)
        self.made.append(x)
        return x.to(self.device)

    def mask(self, shape: Sequence[int]) -> Tensor | None:
        """None, or what allows most items; of the event, the batch and event, or a wrong shape."""
        if self.chance(0.6):
            return None
        p = self.choice([0.5, 0.8, 0.9, 1.0, 0.0])
        kind = self.integer(0, 20)
        wanted = tuple(shape)[-self.integer(1, max(len(shape), 1)) :] if kind < 8 else tuple(shape)
        if kind == 20:
            wanted = (*wanted, 7)
        dtype = torch.float32 if kind == 19 else torch.bool
        return self.tensor(wanted, values=lambda s, g: torch.rand(s, generator=g) < p, dtype=dtype)

    def labels(self, shape: Sequence[int], n: int) -> Tensor:
        """Indices below n, rarely others."""
        high = n if not self.chance(0.04) else n + 2
        low = 0 if not self.chance(0.03) else -2
        dtype = self.among([torch.int64], [torch.int32, torch.float32, torch.bool])
        return self.tensor(
            shape,
            values=lambda s, g: torch.randint(low, max(high, low + 1), s, generator=g),
            dtype=dtype,
        )


# ---- values ----------------------------------------------------------------------------------------


def _scaled(scale: float) -> Callable[[tuple[int, ...], torch.Generator], Tensor]:
    return lambda shape, g: torch.randn(shape, generator=g, dtype=torch.float64) * scale


def _with(value: float, p: float = 0.3) -> Callable[[tuple[int, ...], torch.Generator], Tensor]:
    def values(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
        x = torch.randn(shape, generator=g, dtype=torch.float64)
        return x.masked_fill(torch.rand(shape, generator=g) < p, value)

    return values


def _all(value: float) -> Callable[[tuple[int, ...], torch.Generator], Tensor]:
    return lambda shape, g: torch.full(shape, value, dtype=torch.float64)


USUAL = [_scaled(1.0), _scaled(1.0), _scaled(5.0)]
AWKWARD = [
    _scaled(100.0),
    _scaled(1e4),
    _scaled(3e4),  # finite in half precision
    _scaled(1e30),
    _scaled(1e-40),
    _scaled(1e300),  # infinite in float32
    _with(-INF),
    _with(-INF, 0.8),
    _with(INF),
    _with(NAN),
    _with(1e38),
    _with(-1e38),
    _with(-1e30),
    _all(0.0),
    _all(-0.0),
    _all(-INF),
    _all(1e37),
    lambda shape, g: torch.randint(-1, 2, shape, generator=g).double(),  # ties
]


# ---- layouts ---------------------------------------------------------------------------------------


def _transposed(x: Tensor) -> Tensor:
    return x if x.dim() < 2 else x.transpose(-1, -2).contiguous().transpose(-1, -2)


def _spaced(x: Tensor) -> Tensor:
    wide = x.new_zeros(*x.shape, 2)
    wide[..., 0] = x
    return wide[..., 0]


def _offset(x: Tensor) -> Tensor:
    longer = torch.cat([x.new_zeros(3), x.reshape(-1)])
    return longer[3:].view(x.shape)


def _expanded(x: Tensor) -> Tensor:
    """Rows that are one row in memory; other numbers than the plain tensor unless all rows are alike."""
    alike = x.dim() > 1 and x.shape[0] > 1 and torch.equal(x, x[:1].expand_as(x))
    return x[:1].clone().expand_as(x) if alike else x


def _batch_last(x: Tensor) -> Tensor:
    return x if x.dim() < 2 else x.movedim(0, -1).contiguous().movedim(-1, 0)


LAYOUTS = [_transposed, _spaced, _offset, _expanded, _batch_last]
