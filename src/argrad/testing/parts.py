r"""Contract checks of noises and schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argrad._errors import UnsupportedError
from argrad.noise import Noise
from argrad.schedules import Schedule
from argrad.testing.statistics import ALPHA, assert_mean


def check_noise(noise: Noise, n: int = 20_000) -> None:
    """A noise draws what it says: shapes, dtypes, reproducibility, density, divergence."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = noise.sample((3, 4), dtype=dtype)
        assert x.shape == (3, 4), x.shape
        assert x.dtype == dtype, x.dtype
        assert bool(torch.isfinite(x).all())
    assert noise.sample((0, 4)).shape == (0, 4)
    check_generator_contract(lambda generator: noise.sample((5, 7), generator=generator))
    x = noise.sample((n,), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    try:
        density = noise.log_prob(x)
    except UnsupportedError:
        return
    assert density.shape == x.shape
    _check_density(noise, x)
    try:
        shift = torch.tensor([-1.3, 0.0, 0.01, 2.0], dtype=torch.float64)
        exact = noise.kl(shift)
    except UnsupportedError:
        return
    # KL(s + eps || eps) = E log p(eps) - log p(eps + s)
    assert_mean(noise.log_prob(x)[:, None] - noise.log_prob(x[:, None] + shift), exact)


def _check_density(noise: Noise, x: Tensor) -> None:
    """The log-density integrates to 1, and to the distribution function that the samples have."""
    grid = torch.linspace(-60.0, 60.0, 2_400_001, dtype=torch.float64)
    density = noise.log_prob(grid).exp()
    cdf = torch.cumulative_trapezoid(density, grid)
    assert abs(cdf[-1].item() - 1) < 1e-4, f"the density integrates to {cdf[-1].item():.6f}"
    index = torch.searchsorted(grid[1:], x).clamp(max=len(cdf) - 1)
    from scipy import stats

    assert float(stats.kstest(cdf[index].numpy(), "uniform").pvalue) > ALPHA


def check_generator_contract(draw: Callable[[Any], Tensor], *, varies: bool = True) -> None:
    """Same generator state, same numbers; the global generator is not touched when one is passed."""
    from argrad.random import CounterRNG

    before = torch.get_rng_state()
    first, again = (draw(torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, again), "the same seed gave other numbers: is `generator` passed on?"
    assert torch.equal(draw(CounterRNG(5)), draw(CounterRNG(5))), "a `CounterRNG` gave other numbers"
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    one = torch.Generator().manual_seed(5)
    first, second = draw(one), draw(one)
    if varies and bool((first != 0).any()):
        assert not torch.equal(first, second), "two draws from one generator are the same"
    torch.manual_seed(7)
    first = draw(None)
    torch.manual_seed(7)
    assert torch.equal(first, draw(None))
    torch.set_rng_state(before)


def check_schedule(schedule: Schedule, steps: int = 100_000) -> None:
    """A schedule gives a positive, finite temperature at every step, and the same one each time."""
    for step in (0, 1, 2, 10, 999, 1000, 1001, steps, 10 * steps):
        tau = float(schedule(step))
        assert 0 < tau < math.inf, f"tau = {tau} at step {step}"
        assert float(schedule(step)) == tau
