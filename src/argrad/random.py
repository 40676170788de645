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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argrad import _counter
from argrad._checks import check_shape, is_transformed
from argrad._counter import GOLDEN, MASK
from argrad._errors import InputTypeError
from argrad._hash import noise_of, plus, splitmix
from argrad._kernels.threads import run_rows
from argrad._numerics import compute_dtype
from argrad._types import Generator, Shape

__all__ = ["CounterRNG", "exponential", "gumbel", "logistic", "normal", "uniform"]

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


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
        words = _counter.key_words(self.seed, self.row, self.column)
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
        seed = self.seed & MASK
        for i in ids:
            i = _integer("CounterRNG.fold", "ids", i)
            seed = _counter.splitmix((seed ^ _counter.splitmix(i + GOLDEN)) + GOLDEN)
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
    seed = splitmix(plus(seed ^ splitmix(plus(ids, GOLDEN)), GOLDEN))
    key_1 = splitmix(plus(seed, GOLDEN))
    key_2 = splitmix(plus(seed, 2 * GOLDEN & MASK))
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
    return noise_of(kind, sources, tuple(shape), dtype, device).reshape(*words.shape[:-1], *shape)


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
    has_kernel = device.type == "cpu" and work in (torch.float32, torch.float64)
    if has_kernel and not is_transformed():
        out = _draw_kernel(kind, tuple(shape), work, words(generator))
    elif has_kernel and torch.compiler.is_compiling() and math.prod(shape) >= _MANY:
        key = generator.words[:4] if isinstance(generator, CounterRNG) else draw_key(generator)
        out = _operator(key, kind, list(shape), work)
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


_MANY = 1024  # numbers; fewer are made faster by inductor's own code than by a call of the operator


def _draw_kernel(
    kind: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    words: tuple[np.ndarray, np.uint64, np.uint64],
) -> Tensor:
    from argrad._kernels import fill

    out = torch.empty(shape, dtype=dtype, device="cpu")  # whatever torch's default device is
    if out.numel() == 0:
        return out
    columns = shape[-1] if shape else 1
    flat = out.view(-1, columns).numpy()
    run_rows(getattr(fill, kind), len(flat), flat.size, flat, *words)
    return out


@torch.library.custom_op(
    "argrad::noise",
    mutates_args=(),
    schema="(Tensor words, str kind, SymInt[] shape, ScalarType dtype) -> Tensor",  # torch 2.6 infers no list[int]
)
def _operator(words: Tensor, kind: str, shape: list[int], dtype: torch.dtype) -> Tensor:
    """The kernels as a function of their key, for compiled code: inductor's own takes ten times as long."""
    key = words.numpy().view(np.uint64)
    row, column = (key[2], key[3]) if len(key) > 2 else (_ZERO, _ZERO)
    return _draw_kernel(kind, shape, dtype, (key, row, column))


@_operator.register_fake
def _(words: Tensor, kind: str, shape: list[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")


@_operator.register_vmap
def _(
    info: Any,
    in_dims: tuple[int | None, ...],
    words: Tensor,
    kind: str,
    shape: list[int],
    dtype: torch.dtype,
) -> tuple[Tensor, int]:
    """Words of each instance, made by torch operations."""
    assert in_dims[0] is not None  # nothing else is a tensor
    words = words.movedim(in_dims[0], 0)
    words = torch.nn.functional.pad(words, (0, 5 - words.shape[-1]))
    return draw_from(kind, words, shape, dtype, "cpu"), 0


def _draw_torch(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, generator: Generator
) -> Tensor:
    if not isinstance(generator, CounterRNG):
        words = (*draw_key(generator).to(device).unbind(), 0, 0, 0)
    elif torch.compiler.is_compiling():
        words = generator.words.unbind()
    else:
        words = generator.words.tolist()
    return noise_of(kind, words, shape, dtype, device).reshape(shape)
