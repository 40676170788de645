r"""REINFORCE with the other samples as baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator
from argrad.estimators.score import draw_scored, score_refusal
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class LeaveOneOut(Estimator):
    r"""REINFORCE whose baseline for a sample is the mean cost of the others (RLOO).

    $$ \nabla \mathbb{E} f \approx \frac1S \sum_s \Big(f(z_s) - \frac{1}{S-1} \sum_{r \ne s} f(z_r)\Big)
       \nabla \log p(z_s) $$
    Unbiased for any cost, also a black box; the default where nothing better is known.

    Args:
        num_samples: $S$, at least 2.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(4, 5, requires_grad=True)
        >>> est = ag.LeaveOneOut(num_samples=4)
        >>> loss = est(lambda z: (z[..., 0] - 0.3) ** 2, ag.Gibbs(ag.OneHot(), scores)).mean()
        >>> loss.backward()

    References: [kool2019b], [mnih2016].
    """

    num_samples: int = 4

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("LeaveOneOut", "num_samples", self.num_samples, 2, None, "One must be left out.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Any law with a log-probability."""
        return score_refusal(q)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        drawn = draw_scored(q, self.num_samples, generator)
        cost = f(drawn.z)
        mean = cost.mean(0)
        # (f_s - mean of the others) / S = (f_s - mean of all) / (S - 1)
        return drawn.add_score(mean, (cost - mean).detach() / (self.num_samples - 1))
