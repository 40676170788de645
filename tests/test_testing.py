"""The statistics behind the tests: right ones pass, wrong ones do not, false alarms are as rare as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import argrad as ag
from argrad import testing


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def multinomial(probs: torch.Tensor, n: int) -> torch.Tensor:
    drawn = torch.multinomial(probs, n, replacement=True, generator=generator())
    return torch.bincount(drawn, minlength=len(probs))


def test_frequencies() -> None:
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    counts = multinomial(probs, 20_000)
    testing.assert_frequencies(counts, probs)
    with pytest.raises(AssertionError, match="p = "):
        testing.assert_frequencies(counts, torch.tensor([0.53, 0.27, 0.15, 0.05]))
    with pytest.raises(AssertionError, match="3 draws of probability 0"):
        testing.assert_frequencies(torch.tensor([10, 3]), torch.tensor([1.0, 0.0]))
    with pytest.raises(AssertionError, match="2 counts for 3 cells"):
        testing.assert_frequencies(torch.tensor([10, 3]), torch.ones(3))
    testing.assert_frequencies(torch.tensor([7]), torch.tensor([1.0]))


@pytest.mark.parametrize(("n", "p"), [(1000, 1e-5), (1000, 5e-3), (1000, 0.1), (10_000, 2e-3)])
def test_false_alarms_of_frequencies(n: int, p: float) -> None:
    """Exactly, for two cells: the probability of all counts that fail is within a factor 10 of alpha."""
    alarm = 0.0
    for k in range(n + 1):
        weight = stats.binom.pmf(k, n, p)
        if weight < 1e-12:
            continue
        try:
            testing.assert_frequencies(torch.tensor([n - k, k]), torch.tensor([1 - p, p]).double())
        except AssertionError:
            alarm += weight
    assert alarm < 1e-5


def test_rare_cells_are_pooled_until_they_count() -> None:
    """One draw of an event that was expected 0.02 times is no proof of anything."""
    probs = torch.tensor([0.5, 0.5 - 2e-6, 1e-6, 1e-6]).double()
    testing.assert_frequencies(torch.tensor([5000, 4999, 1, 0]), probs)
    with pytest.raises(AssertionError):
        testing.assert_frequencies(
            torch.tensor([5000, 4960, 40, 0]), torch.tensor([0.5, 0.4995, 5e-4, 0.0]).double()
        )


def test_means() -> None:
    x = torch.randn(10_000, 3, generator=generator())
    testing.assert_mean(x, 0.0)
    testing.assert_mean(x + torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
    testing.assert_not_mean(x + 0.2, 0.0)
    with pytest.raises(AssertionError, match=r"largest \|z\|"):
        testing.assert_mean(x + torch.tensor([0.0, 0.0, 0.1]), 0.0)
    with pytest.raises(AssertionError, match="no bias seen"):
        testing.assert_not_mean(x, 0.0)
    testing.assert_mean(torch.full((10, 2), 3.0), 3.0)  # no spread, no error
    for bad in (math.nan, math.inf):
        with pytest.raises(AssertionError):
            testing.assert_mean(torch.full((10, 2), bad), 0.0)
    with pytest.raises(AssertionError):
        testing.assert_mean(torch.full((10, 2), 3.0), 3.1)


def test_bounds_grow_with_the_number_of_coordinates() -> None:
    assert testing.z_bound(1) == pytest.approx(4.8916, abs=1e-3)
    assert testing.z_bound(100) > testing.z_bound(1)
    assert testing.z_bound(1, alpha=0.05) == pytest.approx(1.96, abs=1e-2)


def test_distribution_functions() -> None:
    x = torch.randn(20_000, generator=generator())
    testing.assert_cdf(x, stats.norm.cdf)
    for wrong in (x + 0.1, x * 1.1, torch.full((100,), math.nan)):
        with pytest.raises(AssertionError, match="Kolmogorov"):
            testing.assert_cdf(wrong, stats.norm.cdf)


def test_schedules() -> None:
    class Dying(ag.schedules.Schedule):
        def __call__(self, step: int) -> float:
            return 1.0 - step / 1000

    class Drifting(ag.schedules.Schedule):
        calls = 0.0

        def __call__(self, step: int) -> float:
            self.calls += 1
            return self.calls

    testing.check_schedule(ag.schedules.Constant(1.0))
    for wrong in (Dying(), Drifting()):
        with pytest.raises(AssertionError):
            testing.check_schedule(wrong)


def test_pearson_would_alarm_too_often() -> None:
    """Why `assert_frequencies` uses likelihood ratios: 5 expected, 16 seen."""
    pearson = stats.chi2.sf((16 - 5) ** 2 / 5 + (16 - 5) ** 2 / 995, 1)
    exact = stats.binom.sf(15, 1000, 0.005)
    assert pearson < 1e-6 < 30 * pearson < exact
    testing.assert_frequencies(torch.tensor([984, 16]), torch.tensor([0.995, 0.005]).double())
    assert np.isfinite(exact)
