r"""Contract checks that anyone can run on their own parts, and the statistics behind them.

Statistical checks have a false-alarm rate `alpha` (default $10^{-6}$) and take samples that the caller
drew with a fixed seed, so that a failure is a bug and not bad luck.

Examples:
    >>> import argrad as ag
    >>> ag.testing.check_noise(ag.Gumbel())
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argrad._errors import UnsupportedError
from argrad.noise import Noise
from argrad.schedules import Schedule

ALPHA = 1e-6


def assert_frequencies(counts: Tensor, probs: Tensor, alpha: float = ALPHA) -> None:
    r"""Likelihood-ratio (G) test that `counts` over cells come from `probs`.

    $G = 2 \sum O \log(O/E)$ is nearly chi-square also in its far tail; Pearson's statistic, for cells
    that expect 5, raises a hundred times the false alarms at $10^{-6}$. The rarest cells are pooled
    until they expect 5. A count in a cell of probability 0 fails at once.
    """
    from scipy import stats

    counts, probs = counts.double().reshape(-1), probs.double().reshape(-1)
    assert counts.shape == probs.shape, f"{counts.numel()} counts for {probs.numel()} cells"
    impossible = counts[probs == 0]
    assert not bool((impossible > 0).any()), f"{int(impossible.sum())} draws of probability 0"
    observed, expected = _pool(counts, counts.sum() * probs / probs.sum())
    statistic = 2 * torch.special.xlogy(observed, observed / expected).sum().item()
    cells = len(observed)
    if cells < 2:
        return
    p = float(stats.chi2.sf(statistic, cells - 1))
    assert p > alpha, f"G = {statistic:.1f} over {cells} cells, p = {p:.2g}"


def _pool(counts: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Cells in rising order of expectation, the first of them joined until they expect 5."""
    expected, order = expected.sort()
    first = int(torch.searchsorted(expected.cumsum(0), 5.0).clamp(max=len(expected) - 1)) + 1

    def join(x: Tensor) -> Tensor:
        return torch.cat([x[:first].sum()[None], x[first:]])

    return join(counts[order]), join(expected)


def z_scores(samples: Tensor, exact: Tensor | float) -> Tensor:
    """(mean - exact) / standard error over the first dimension; 0 where both agree without spread."""
    samples = samples.double()
    mean = samples.mean(0)
    error = samples.std(0) / math.sqrt(len(samples))
    gap = mean - torch.as_tensor(exact, dtype=torch.float64)
    exactly = gap.isfinite() & (gap.abs() <= 1e-12 * (1 + mean.abs()))
    return torch.where(exactly, 0.0, gap / error)


def z_bound(count: int, alpha: float = ALPHA) -> float:
    """How large |z| may be over `count` coordinates (Bonferroni)."""
    from scipy import stats

    return float(stats.norm.isf(alpha / (2 * max(count, 1))))


def assert_mean(samples: Tensor, exact: Tensor | float, alpha: float = ALPHA) -> None:
    """The mean over the first dimension is `exact` in every coordinate, as far as the samples can tell."""
    z = z_scores(samples, exact)
    bound = z_bound(z.numel(), alpha)
    worst = z.abs().max().item() if z.numel() else 0.0
    assert worst < bound, f"largest |z| = {worst:.2f} over {z.numel()} coordinates, bound {bound:.2f}"


def assert_not_mean(samples: Tensor, exact: Tensor | float, alpha: float = ALPHA) -> None:
    """The opposite of `assert_mean`: a stated bias is there, and the samples suffice to see it."""
    z = z_scores(samples, exact)
    bound = z_bound(z.numel(), alpha)
    assert z.abs().max().item() > bound, f"no bias seen: largest |z| = {z.abs().max().item():.2f}"


def assert_cdf(samples: Tensor, cdf: Callable[..., object], alpha: float = ALPHA) -> None:
    """Kolmogorov-Smirnov test of a sample against a distribution function of numpy arrays."""
    from scipy import stats

    p = float(stats.kstest(samples.double().reshape(-1).numpy(), cdf).pvalue)
    assert p > alpha, f"Kolmogorov-Smirnov p = {p:.2g}"


def check_noise(noise: Noise, n: int = 20_000) -> None:
    """A noise draws what it says: shapes, dtypes, reproducibility, density, divergence."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = noise.sample((3, 4), dtype=dtype)
        assert x.shape == (3, 4), x.shape
        assert x.dtype == dtype, x.dtype
        assert bool(torch.isfinite(x).all())
    assert noise.sample((0, 4)).shape == (0, 4)
    _check_generator_contract(lambda generator: noise.sample((5, 7), generator=generator))
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


def _check_generator_contract(draw: Callable[[Any], Tensor]) -> None:
    """Same generator state, same numbers; the global generator is not touched when one is passed."""
    from argrad.random import CounterRNG

    before = torch.get_rng_state()
    first, again = (draw(torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(draw(CounterRNG(5)), draw(CounterRNG(5)))
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    one = torch.Generator().manual_seed(5)
    first, second = draw(one), draw(one)
    if bool((first != 0).any()):
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
