r"""Noise with its whole tail, from a `torch.Generator` or from counters.

Gumbel-max needs the far tail: an item of probability $p$ wins through an exponential below about $p$.
`-log(-log(torch.rand(...)))` in float32 stops at 16.6, so that $p = 10^{-8}$ is drawn 65 times too
rarely, and CUDA's and inductor's `exponential_` end at $2^{-24}$. Here 62 random bits are mapped next
to 0, where floating point is dense, so that float32 noise has the tails of float64.

One call takes two words from the generator; everything else is a hash of (words, row, column). So a
call costs the generator the same whatever its size, and the CPU kernel (numba), eager torch on other
devices, and compiled code all compute the same function. bfloat16 and float16 noise is drawn in
float32 and rounded.
"""

from __future__ import annotations

import math
import numbers
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from argrad._checks import check_shape, is_transformed
from argrad._errors import InputTypeError
from argrad._kernels.threads import run_rows
from argrad._numerics import compute_dtype
from argrad._types import Generator, Shape

__all__ = ["CounterRNG", "exponential", "gumbel", "logistic", "normal", "uniform"]

_MASK = (1 << 64) - 1
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_ROW_2 = 0xD1342543DE82EF95
_SECOND = 0x5851F42D4C957F2D


@dataclass(frozen=True)
class CounterRNG:
    r"""Stateless noise: a number depends on (seed, row, column) alone.

    Any chunking, sharding, batch order or thread count gives the same draw, and two processes that
    agree on the seed agree on the noise. The price: the same object gives the same numbers each time
    it is used, so make a new one for each step with `fold`.

    Args:
        seed: any integer.
        row: number of the first row; a chunk that starts at row 1000 passes `rng.shift(rows=1000)`.
        column: number of the first column, likewise.

    Examples:
        >>> import torch, argrad as ag
        >>> rng = ag.CounterRNG(0)
        >>> whole = rng.gumbel(4, 6)
        >>> part = rng.shift(rows=2, columns=3).gumbel(2, 3)
        >>> bool((whole[2:, 3:] == part).all())
        True
        >>> rng.fold(1) == rng.fold(2)
        False

    References: [salmon2011], [steele2014].
    """

    seed: int
    row: int = 0
    column: int = 0
    # Two key words, row, column and seed modulo 2^64, in a tensor: compiled code takes it as an input
    # and makes others from it, so that a new seed (or chunk) needs no new graph.
    words: Tensor = field(default=None, kw_only=True, repr=False, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.words is not None:
            return
        for name in ("seed", "row", "column"):
            object.__setattr__(self, name, _integer("CounterRNG", name, getattr(self, name)))
        key = _splitmix_int(self.seed + _GOLDEN), _splitmix_int(self.seed + 2 * _GOLDEN)
        words = [_signed(x & _MASK) for x in (*key, self.row, self.column, self.seed)]
        object.__setattr__(self, "words", torch.tensor(words, dtype=torch.int64, device="cpu"))

    def shift(self, rows: int = 0, columns: int = 0) -> CounterRNG:
        """The same noise, seen from `rows` further down and `columns` further right."""
        if torch.compiler.is_compiling():
            return CounterRNG(0, words=_shifted(self.words, rows, columns))
        return CounterRNG(self.seed, self.row + rows, self.column + columns)

    def fold(self, *ids: int) -> CounterRNG:
        """An independent stream for each tuple of integers (step, epoch, rank, ...)."""
        if torch.compiler.is_compiling():
            return CounterRNG(0, words=_folded(self.words, ids))
        seed = self.seed & _MASK
        for i in ids:
            i = _integer("CounterRNG.fold", "ids", i)
            seed = _splitmix_int((seed ^ _splitmix_int(i + _GOLDEN)) + _GOLDEN)
        return CounterRNG(seed, self.row, self.column)

    def gumbel(self, rows: int, columns: int, **options: object) -> Tensor:
        """Gumbel(0, 1) for rows `row ... row + rows - 1` and as many columns; options: dtype, device."""
        return gumbel((rows, columns), generator=self, **options)  # type: ignore[arg-type]

    def exponential(self, rows: int, columns: int, **options: object) -> Tensor:
        """Exp(1), as `gumbel`."""
        return exponential((rows, columns), generator=self, **options)  # type: ignore[arg-type]

    def uniform(self, rows: int, columns: int, **options: object) -> Tensor:
        """Uniform(0, 1), as `gumbel`."""
        return uniform((rows, columns), generator=self, **options)  # type: ignore[arg-type]


def gumbel(
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: Generator = None,
) -> Tensor:
    r"""Gumbel(0, 1) noise, $-\log E$ with $E \sim \mathrm{Exp}(1)$, right in both tails.

    Args:
        shape: shape of the result; the last dimension is a row's columns (for `CounterRNG`).
        dtype: default `torch.get_default_dtype()`.
        device: default the CPU.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Examples:
        >>> import torch, argrad as ag
        >>> g = ag.random.gumbel((1000, 100), generator=torch.Generator().manual_seed(0))
        >>> bool((g.mean() - 0.5772).abs() < 0.02)
        True

    References: [gumbel1954].
    """
    return _draw("gumbel", shape, dtype, device, generator)


def exponential(
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: Generator = None,
) -> Tensor:
    """Exp(1) noise with the density of floats near 0: P(E < x) = x down to 1e-18. As `gumbel`."""
    return _draw("exponential", shape, dtype, device, generator)


def logistic(
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: Generator = None,
) -> Tensor:
    """Logistic(0, 1) noise, the difference of two Gumbels in law, both tails to +-43. As `gumbel`."""
    return _draw("logistic", shape, dtype, device, generator)


def uniform(
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: Generator = None,
) -> Tensor:
    """Uniform on the open interval (0, 1), dense near 0; never 0, never 1. As `gumbel`."""
    return _draw("uniform", shape, dtype, device, generator)


def normal(
    shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: Generator = None,
) -> Tensor:
    """Normal(0, 1) noise that reaches 9 standard deviations in float32. As `gumbel`."""
    return _draw("normal", shape, dtype, device, generator)


def check_generator(call: str, generator: object) -> None:
    """None, a `torch.Generator`, or a `CounterRNG`; anything else gets a sentence."""
    if generator is not None and not isinstance(generator, (torch.Generator, CounterRNG)):
        raise InputTypeError(
            f"`{call}(generator=...)` must be a `torch.Generator`, an `argrad.CounterRNG` or None; "
            f"got {type(generator).__name__}. "
            "Write `generator=torch.Generator().manual_seed(0)` for a seed."
        )


def _integer(call: str, name: str, value: object) -> int:
    """A Python int, of any size; numpy's are accepted, True and False are not."""
    if not isinstance(value, (int, torch.SymInt, numbers.Integral)) or isinstance(value, bool):
        raise InputTypeError(
            f"`{call}({name}=...)` must be an integer; got {type(value).__name__}. Write `int(...)`."
        )
    return operator.index(value)  # under `torch.compile`, makes a number that varies a constant


def split(generator: Generator, count: int) -> tuple[Generator, ...]:
    """`count` independent sources from one: folds of a `CounterRNG`, which would otherwise repeat itself.

    Other generators move on by themselves and are handed back as they are.
    """
    if isinstance(generator, CounterRNG):
        return tuple(generator.fold(i) for i in range(count))
    return (generator,) * count


# ---- keys ----------------------------------------------------------------------------------------


def _splitmix_int(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def draw_key(generator: torch.Generator | None) -> Tensor:
    """Two 64-bit words from a torch generator."""
    device = "cpu" if generator is None else generator.device
    # out of place: vmap(randomness="different") gives each instance its own words
    return torch.randint(_LOW, _HIGH, (2,), generator=generator, device=device)


class _KeyBuffer(threading.local):
    """Where a thread draws its two words (a fresh tensor for each call would cost more than the draw)."""

    def __init__(self) -> None:
        self.tensor = torch.empty(2, dtype=torch.int64, device="cpu")
        self.array = self.tensor.numpy().view(np.uint64)


_buffer = _KeyBuffer()
_ZERO = np.uint64(0)


def words(generator: Generator) -> tuple[np.ndarray, np.uint64, np.uint64]:
    """A fresh key (valid until this thread draws again), first row and column, for the CPU kernels."""
    if isinstance(generator, CounterRNG):
        array = generator.words.numpy().view(np.uint64)
        return array, array[2], array[3]
    if generator is None or generator.device.type == "cpu":
        _buffer.tensor.random_(_LOW, _HIGH, generator=generator)  # the words that `draw_key` takes
    else:
        _buffer.tensor.copy_(draw_key(generator))
    return _buffer.array, _ZERO, _ZERO


def _shifted(words: Tensor, rows: int, columns: int) -> Tensor:
    """`CounterRNG.shift` in compiled code."""
    key_1, key_2, row, column, seed = words.unbind()
    return torch.stack([key_1, key_2, row + rows, column + columns, seed])


def _folded(words: Tensor, ids: tuple[int, ...]) -> Tensor:
    """`CounterRNG.fold` in compiled code."""
    for i in ids:
        words = _fold(words, torch.full((), i, dtype=torch.int64, device="cpu"))
    return words


def _fold(words: Tensor, ids: Tensor) -> Tensor:
    """The words of `fold(i)` for each of `ids`, which broadcast against words `(..., 5)` less their last."""
    _, _, row, column, seed = words.unbind(-1)
    seed = _splitmix(_plus(seed ^ _splitmix(_plus(ids, _GOLDEN)), _GOLDEN))
    key_1 = _splitmix(_plus(seed, _GOLDEN))
    key_2 = _splitmix(_plus(seed, 2 * _GOLDEN & _MASK))
    return torch.stack([key_1, key_2, row.expand_as(seed), column.expand_as(seed), seed], -1)


def split_words(generator: Generator, *counts: int) -> Tensor:
    """`split`, again for each dimension of `counts`, as one tensor `(*counts, 5)` for `draw_from`."""
    if not isinstance(generator, CounterRNG):
        device = "cpu" if generator is None else generator.device
        keys = torch.randint(_LOW, _HIGH, (*counts, 2), generator=generator, device=device)
        return torch.nn.functional.pad(keys, (0, 3))
    words = generator.words
    for count in counts:
        words = _fold(words[..., None, :], torch.arange(count, device=words.device))
    return words


def draw_from(
    kind: str, words: Tensor, shape: Shape, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """Draws from many sources at once, `(*counts, *shape)`: traced code is as long as for a single one."""
    device = torch.device(device)
    sources = words.to(device)[..., None, None, :].unbind(-1)  # (*counts, 1, 1) each
    return _from_words(kind, sources, tuple(shape), dtype, device).reshape(*words.shape[:-1], *shape)


# ---- drawing -------------------------------------------------------------------------------------


def _draw(
    kind: str,
    shape: Shape,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
    generator: Generator,
) -> Tensor:
    check_generator(kind, generator)
    shape = check_shape(kind, "shape", shape)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputTypeError(
            f"`{kind}(dtype=...)` must be floating point; got {dtype}. Draw floats and convert them."
        )
    device = torch.device("cpu" if device is None else device)
    work = compute_dtype(dtype)
    if device.type == "cpu" and work in (torch.float32, torch.float64) and not is_transformed():
        out = _draw_kernel(kind, tuple(shape), work, generator)
    else:
        out = _draw_torch(kind, tuple(shape), work, device, generator)
    return out if dtype == work else _round(kind, out, dtype)


def _round(kind: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """To half precision; what is inside (0, 1) or above 0 stays there."""
    info = torch.finfo(dtype)
    if kind == "uniform":
        x = x.clamp(max=1.0 - info.eps / 2)
    if kind in ("uniform", "exponential"):
        x = x.clamp(min=info.smallest_normal)
    return x.to(dtype)


def _draw_kernel(kind: str, shape: tuple[int, ...], dtype: torch.dtype, generator: Generator) -> Tensor:
    from argrad._kernels import fill

    out = torch.empty(shape, dtype=dtype, device="cpu")  # whatever torch's default device is
    if out.numel() == 0:
        return out
    columns = shape[-1] if shape else 1
    flat = out.view(-1, columns).numpy()
    run_rows(getattr(fill, kind), len(flat), flat.size, flat, *words(generator))
    return out


def _draw_torch(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, generator: Generator
) -> Tensor:
    if not isinstance(generator, CounterRNG):
        words = (*draw_key(generator).to(device).unbind(), 0, 0, 0)
    elif torch.compiler.is_compiling():
        words = generator.words.unbind()
    else:
        words = generator.words.tolist()
    return _from_words(kind, words, shape, dtype, device).reshape(shape)


def _from_words(
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
    k1 = _splitmix(_times(row ^ key_1, _GOLDEN))
    k2 = _splitmix(_times(row ^ key_2, _ROW_2))
    bits = _word(k1, k2, column)
    if kind == "normal":
        second = _word(k1 ^ _signed(_SECOND), k2, column)
        return _normal(bits, second, dtype)
    return _OF_WORD[kind](bits, dtype)


# The same arithmetic as `_kernels/bits.py`, on int64 tensors (whose products wrap around).


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


def _times(x: Tensor, factor: int) -> Tensor:
    """A product modulo 2^64.

    Inductor writes C++, where a signed overflow is undefined and the compiler really uses that (wrong
    noise when all numbers are constants or loop counters); unsigned products are defined.
    """
    if torch.compiler.is_compiling() and x.device.type == "cpu":
        other = torch.full((), _signed(factor), dtype=torch.int64, device="cpu").view(torch.uint64)
        return (x.view(torch.uint64) * other).view(torch.int64)
    return x * _signed(factor)


def _plus(x: Tensor, term: int) -> Tensor:
    """A sum modulo 2^64, by halves for the same reason (torch does not add unsigned numbers)."""
    half = (1 << 32) - 1
    low = (x & half) + (term & half)
    high = (_shift_right(x, 32) + (term >> 32) + (low >> 32)) & half
    return (high << 32) | (low & half)


def _shift_right(x: Tensor, n: int) -> Tensor:
    """Logical (not arithmetic) shift."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def _splitmix(x: Tensor) -> Tensor:
    x = _times(x ^ _shift_right(x, 30), _MIX_1)
    x = _times(x ^ _shift_right(x, 27), _MIX_2)
    return x ^ _shift_right(x, 31)


def _word(k1: Tensor, k2: Tensor, column: Tensor) -> Tensor:
    x = _times(column ^ k1, _GOLDEN)
    x = _times(x ^ _shift_right(x, 30), _MIX_1) ^ k2
    x = _times(x ^ _shift_right(x, 27), _MIX_2)
    return x ^ _shift_right(x, 31)


def _unit(z: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """The upper 62 bits as a number in (0, scale]: high and low words apart, so small ones are exact."""
    high = _shift_right(z, 33).to(dtype) * (scale * 2.0**-31)
    low = (_shift_right(z, 2) & 0x7FFFFFFF).to(dtype) + 0.5
    return high + low * (scale * 2.0**-62)


def _exponential(z: Tensor, dtype: torch.dtype) -> Tensor:
    w = _unit(z, dtype, 0.5)
    return -torch.where((z & 1) == 1, torch.log1p(-w), torch.log(w))


def _gumbel(z: Tensor, dtype: torch.dtype) -> Tensor:
    return -torch.log(_exponential(z, dtype))


def _logistic(z: Tensor, dtype: torch.dtype) -> Tensor:
    w = _unit(z, dtype, 0.5)
    value = torch.log1p(-w) - torch.log(w)
    return torch.where((z & 1) == 1, -value, value)


def _uniform(z: Tensor, dtype: torch.dtype) -> Tensor:
    return _unit(z, dtype, 1.0).clamp(max=1.0 - (2.0**-24 if dtype == torch.float32 else 2.0**-53))


def _normal(z: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.sqrt(2.0 * _exponential(z, dtype)) * torch.cos(2.0 * math.pi * _uniform(second, dtype))


_OF_WORD: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "gumbel": _gumbel,
    "exponential": _exponential,
    "logistic": _logistic,
    "uniform": _uniform,
}
