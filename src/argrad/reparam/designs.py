r"""Points in the unit cube that are each uniform, but not independent of each other."""

from __future__ import annotations

import torch
from torch import Tensor

from argrad import random
from argrad._checks import fail
from argrad._types import Generator

KINDS = ("iid", "antithetic", "sobol", "stratified")
_SOBOL_BITS = 30  # of `torch.quasirandom.SobolEngine`


def stratified(n: int, dims: int, generator: Generator) -> Tensor:
    """A Latin hypercube, `(n, dims)` in float64: along every axis, one point in each of n equal cells [mckay1979]."""
    first, second = random.split(generator, 2)
    cell = random.uniform((dims, n), dtype=torch.float64, generator=first).argsort(-1)
    place = random.uniform((dims, n), dtype=torch.float64, generator=second)
    return ((cell + place) / n).mT


def sobol(n: int, dims: int, generator: Generator) -> Tensor:
    """A scrambled Sobol sequence, `(n, dims)` in float64; each point by itself is exactly uniform [owen1998].

    Torch's points are multiples of $2^{-30}$, 0 among them; each is moved to a random place of its cell,
    so that no quantile is infinite and the tails are whole.
    """
    most = torch.quasirandom.SobolEngine.MAXDIM
    if dims > most:
        advice = 'Use kind="stratified", which knows no such limit.'
        rule = f'can be "sobol" up to {most} numbers a sample'
        raise fail("noise", "kind", rule, f"{dims} numbers a sample", advice)
    if n * dims == 0:
        return torch.empty(n, dims, dtype=torch.float64)
    first, second = random.split(generator, 2)
    seed = int(random.words(first)[0][0]) % (1 << 63)
    engine = torch.quasirandom.SobolEngine(dims, scramble=True, seed=seed)
    origin = engine.quasi.double() * 2.0**-_SOBOL_BITS  # torch rounds its first point to float32
    points = torch.cat([origin[None], engine.draw(n, dtype=torch.float64)[1:]])
    jitter = random.uniform((n, dims), dtype=torch.float64, generator=second)
    return points + jitter * 2.0**-_SOBOL_BITS
