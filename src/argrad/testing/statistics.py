r"""Statistical assertions with a false-alarm rate `alpha`, by default one in a million."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

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
