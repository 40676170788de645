"""Counter-based noise by torch operations: `_kernels/bits.py` on int64 tensors, whose products wrap around.

Other devices and compiled code use it; `argrad.random` has the interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from argrad._counter import GOLDEN, MIX_1, MIX_2, ROW_2, signed

_SECOND = 0x5851F42D4C957F2D


def noise_of(
    kind: str,
    words: Sequence[Tensor | int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Rows and columns of noise: key, first row, first column, seed; each a number or `(..., 1, 1)`."""
    key_1, key_2, first_row, first_column, _ = words
    columns = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    row = torch.arange(rows, device=device)[:, None] + first_row
    column = torch.arange(columns, device=device) + first_column
    # xor before the product: inductor folds `arange * constant` into loop counters, which overflow
    k1 = splitmix(times(row ^ key_1, GOLDEN))
    k2 = splitmix(times(row ^ key_2, ROW_2))
    bits = word(k1, k2, column)
    if kind == "normal":
        second = word(k1 ^ signed(_SECOND), k2, column)
        return _normal(bits, second, dtype)
    return _OF_WORD[kind](bits, dtype)


def times(x: Tensor, factor: int) -> Tensor:
    """A product modulo 2^64.

    Inductor writes C++, where a signed overflow is undefined and the compiler really uses that (wrong
    noise when all numbers are constants or loop counters); unsigned products are defined.
    """
    if torch.compiler.is_compiling() and x.device.type == "cpu":
        other = torch.full((), signed(factor), dtype=torch.int64, device="cpu").view(torch.uint64)
        return (x.view(torch.uint64) * other).view(torch.int64)
    return x * signed(factor)


def plus(x: Tensor, term: int) -> Tensor:
    """A sum modulo 2^64, by halves for the same reason (torch does not add unsigned numbers)."""
    half = (1 << 32) - 1
    low = (x & half) + (term & half)
    high = (_shift_right(x, 32) + (term >> 32) + (low >> 32)) & half
    return (high << 32) | (low & half)


def _shift_right(x: Tensor, n: int) -> Tensor:
    """Logical (not arithmetic) shift."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def splitmix(x: Tensor) -> Tensor:
    x = times(x ^ _shift_right(x, 30), MIX_1)
    x = times(x ^ _shift_right(x, 27), MIX_2)
    return x ^ _shift_right(x, 31)


def word(k1: Tensor, k2: Tensor, column: Tensor) -> Tensor:
    x = times(column ^ k1, GOLDEN)
    x = times(x ^ _shift_right(x, 30), MIX_1) ^ k2
    x = times(x ^ _shift_right(x, 27), MIX_2)
    return x ^ _shift_right(x, 31)


def _unit(z: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """The upper 62 bits as a number in (0, scale]: high and low words apart, so small ones are exact."""
    high = _shift_right(z, 33).to(dtype) * (scale * 2.0**-31)
    low = (_shift_right(z, 2) & 0x7FFFFFFF).to(dtype) + 0.5
    return high + low * (scale * 2.0**-62)


def exponential(z: Tensor, dtype: torch.dtype) -> Tensor:
    w = _unit(z, dtype, 0.5)
    return -torch.where((z & 1) == 1, torch.log1p(-w), torch.log(w))


def gumbel(z: Tensor, dtype: torch.dtype) -> Tensor:
    return -torch.log(exponential(z, dtype))


def _logistic(z: Tensor, dtype: torch.dtype) -> Tensor:
    w = _unit(z, dtype, 0.5)
    value = torch.log1p(-w) - torch.log(w)
    return torch.where((z & 1) == 1, -value, value)


def uniform(z: Tensor, dtype: torch.dtype) -> Tensor:
    return _unit(z, dtype, 1.0).clamp(max=1.0 - (2.0**-24 if dtype == torch.float32 else 2.0**-53))


def _normal(z: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.sqrt(2.0 * exponential(z, dtype)) * torch.cos(2.0 * math.pi * uniform(second, dtype))


_OF_WORD: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "gumbel": gumbel,
    "exponential": exponential,
    "logistic": _logistic,
    "uniform": uniform,
}
