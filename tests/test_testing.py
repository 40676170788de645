"""The statistics behind the tests: right ones pass, wrong ones do not, false alarms are as rare as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd.gradcheck import GradcheckError

import argrad as ag
from argrad import testing
from structure_cases import STRUCTURES, StructureCase


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


# ---- contract checks -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", STRUCTURES, ids=lambda c: c.name)
def test_our_structures_pass_their_own_check(case: StructureCase) -> None:
    testing.check_structure(case.structure, case.event)


class WrongArgmax(ag.Subset):
    def _argmax(self, scores: torch.Tensor) -> torch.Tensor:
        return super()._argmax(-scores)


class MissesOne(ag.Subset):
    def _enumerate(self, event_shape: torch.Size) -> torch.Tensor:
        return super()._enumerate(event_shape)[1:]


class ForgetsItems(ag.Subset):
    def _log_partition(self, scores: torch.Tensor) -> torch.Tensor:
        return super()._log_partition(scores) + 1e-6


class WrongLaw(ag.Subset):
    """Gumbel-top-k samples with conditional-Poisson probabilities, as found in published code."""

    def _sample(self, scores, sample_shape, generator):
        return ag.Perturbed(ag.Subset(self.k), 2 * scores).sample(sample_shape, generator=generator)


class GlobalDice(ag.Subset):
    def _sample(self, scores, sample_shape, generator):
        return super()._sample(scores, sample_shape, None)


class HalfGradient(ag.Bits):
    def _relaxations(self, tau):
        def solve(scores: torch.Tensor) -> torch.Tensor:
            soft = torch.sigmoid(scores / tau)
            return 0.5 * (soft + soft.detach())

        return {ag.BinaryEntropy: lambda _: (solve, None)}


@pytest.mark.parametrize(
    ("structure", "sentence"),
    [
        (WrongArgmax(2), "the score of the arg max"),
        (MissesOne(2), "5 listed"),
        (ForgetsItems(2), "log_partition is 1e-06 away"),
        (WrongLaw(2), "p = "),
        (GlobalDice(2), "the same seed gave other numbers"),
        (HalfGradient(), "Jacobian mismatch"),
    ],
)
def test_broken_structures_fail_their_check(structure: ag.Structure, sentence: str) -> None:
    with pytest.raises((AssertionError, GradcheckError), match=sentence):
        testing.check_structure(structure, (4,))


@pytest.mark.parametrize("estimator", [ag.Reinforce(2), ag.MuProp(), ag.ReinMax(), ag.DisArm()])
def test_our_estimators_pass_their_own_check(estimator: ag.Estimator) -> None:
    testing.check_estimator(estimator, replicates=5000)


class Shrunk(ag.LeaveOneOut):
    """Five per cent too short, as by a baseline that contains its own sample."""

    def _estimate(self, f, q, generator):
        value = super()._estimate(f, q, generator)
        return 0.05 * value.detach() + 0.95 * value


class Boasting(ag.StraightThrough):
    is_unbiased = True


class Wasteful(ag.LeaveOneOut):
    def _estimate(self, f, q, generator):
        f(q.mode[None])
        return super()._estimate(f, q, generator)


class Deaf(ag.LeaveOneOut):
    def _estimate(self, f, q, generator):
        return super()._estimate(f, q, None)


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (Shrunk(4), "biased gradient"),
        (Boasting(), r"biased gradient \(OneHot\(\), product cost"),
        (Wasteful(4), "5 evaluations of f, 4 claimed"),
        (Deaf(4), "the same seed gave other numbers"),
    ],
)
def test_broken_estimators_fail_their_check(estimator: ag.Estimator, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        testing.check_estimator(estimator, replicates=40_000)


def test_an_estimator_must_work_with_something() -> None:
    permutations = ag.Perturbed(ag.Permutation(), torch.zeros(3, 3))
    with pytest.raises(AssertionError, match="none of the laws"):
        testing.check_estimator(ag.ReinMax(), [permutations])
