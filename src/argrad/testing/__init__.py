r"""Contract checks that anyone can run on their own parts, and the statistics behind them.

Statistical checks have a false-alarm rate `alpha` (default $10^{-6}$) and take samples that the caller
drew with a fixed seed, so that a failure is a bug and not bad luck.

Examples:
    >>> import argrad as ag
    >>> ag.testing.check_noise(ag.Gumbel())
    >>> ag.testing.check_structure(ag.Subset(2), (4,))
"""

from __future__ import annotations

from argrad.testing.estimators import check_estimator
from argrad.testing.parts import check_noise, check_schedule
from argrad.testing.statistics import ALPHA as ALPHA
from argrad.testing.statistics import (
    assert_cdf,
    assert_frequencies,
    assert_mean,
    assert_not_mean,
    z_bound,
    z_scores,
)
from argrad.testing.structures import check_structure

__all__ = [
    "assert_cdf",
    "assert_frequencies",
    "assert_mean",
    "assert_not_mean",
    "check_estimator",
    "check_noise",
    "check_schedule",
    "check_structure",
    "z_bound",
    "z_scores",
]
