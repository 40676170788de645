r"""Gamma variables from any generator, by a fixed number of rejection rounds.

Marsaglia and Tsang's method accepts with probability above 0.95; after 12 rounds fewer than one draw in
$10^{15}$ is left unaccepted (and keeps its last proposal). Each round has its own two sources, so that
all rounds can be drawn at once where values cannot be read (traced code would be hundreds of draws long),
and one after the other, until all are accepted, where they can.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from argrad import random
from argrad._checks import fail, is_transformed
from argrad._types import Float, Generator, Shape

_ROUNDS = 12
_SOURCES = 2 * _ROUNDS + 1  # a normal and a uniform number a round, and one for concentrations below 1


def gamma(
    concentration: float,
    shape: Shape,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    generator: Generator = None,
) -> Tensor:
    """Gamma(concentration, 1) draws, in float32 or float64.

    References: [marsaglia2000].
    """
    if not concentration > 0:
        raise fail("gamma", "concentration", "must be positive", concentration, "It is the shape.")
    if is_transformed():
        words = random.split_words(generator, _SOURCES)
        return _at_once(concentration, words, tuple(shape), dtype, device)
    return _one_by_one(concentration, tuple(shape), dtype, device, generator)


def gammas(
    concentration: float,
    count: int,
    shape: Shape,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    generator: Generator = None,
) -> Float[Tensor, "count ..."]:
    """`gamma` from each of `random.split(generator, count)`, stacked."""
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    if is_transformed():
        words = random.split_words(generator, count, _SOURCES)
        return _at_once(concentration, words, tuple(shape), **options)
    sources = random.split(generator, count)
    return torch.stack([gamma(concentration, shape, generator=source, **options) for source in sources])


def _propose(concentration: float, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """A candidate from a normal and a uniform number, and whether it is accepted."""
    a = concentration if concentration >= 1 else concentration + 1
    d = a - 1 / 3
    v = (1 + x / math.sqrt(9 * d)) ** 3
    positive = v > 0
    log_v = torch.log(torch.where(positive, v, 1.0))
    return d * v.clamp(min=0.0), positive & (torch.log(u) < 0.5 * x**2 + d - d * v + d * log_v)


def _one_by_one(
    concentration: float,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | str,
    generator: Generator,
) -> Tensor:
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    *sources, last = random.split(generator, _SOURCES)
    result = torch.zeros(shape, **options)
    done = torch.zeros_like(result, dtype=torch.bool)
    for first, second in zip(sources[::2], sources[1::2], strict=True):
        x, u = (
            f(shape, generator=g, **options)
            for f, g in ((random.normal, first), (random.uniform, second))
        )
        candidate, good = _propose(concentration, x, u)
        result = torch.where(done, result, candidate)
        done = done | good
        if done.device.type == "cpu" and bool(done.all()):  # after four rounds, as a rule
            break
    if concentration >= 1:
        return result
    u = random.uniform(shape, generator=last, **options)
    return result * u ** (1 / concentration)  # Gamma(a) = Gamma(a + 1) U^(1/a)


def _at_once(
    concentration: float,
    words: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | str,
) -> Tensor:
    """The same numbers from words `(*counts, _SOURCES, 5)`; shape `(*counts, *shape)`."""
    rounds, last = words[..., :-1, :], words[..., -1, :]
    x = random.draw_from("normal", rounds[..., ::2, :], shape, dtype, device)
    u = random.draw_from("uniform", rounds[..., 1::2, :], shape, dtype, device)
    dim = words.dim() - 2
    candidates, good = (t.unbind(dim) for t in _propose(concentration, x, u))
    result = candidates[-1]
    for candidate, accepted in zip(candidates[-2::-1], good[-2::-1], strict=True):
        result = torch.where(accepted, candidate, result)  # the first that is accepted
    if concentration >= 1:
        return result
    return result * random.draw_from("uniform", last, shape, dtype, device) ** (1 / concentration)
