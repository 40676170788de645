r"""REINFORCE with a running mean as baseline."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from argrad._checks import check_count, fail
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator
from argrad.estimators.score import draw_scored, score_refusal
from argrad.structured import StructuredDistribution


class MovingBaseline(nn.Module, Estimator):
    r"""REINFORCE less an exponential moving average of past costs.

    The average is read *before* it sees the current costs; updating it first, a common mistake, shrinks
    the gradient by the factor `decay`.

    Args:
        num_samples: independent samples, averaged.
        decay: of the average.

    Examples:
        >>> import torch, argrad as ag
        >>> est, scores = ag.MovingBaseline(), torch.zeros(3, requires_grad=True)
        >>> est(lambda z: 5 + z[..., 0], ag.Gibbs(ag.OneHot(), scores)).backward()
        >>> bool(est.mean > 4.9)
        True

    References: [williams1992].
    """

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False
    mean: Tensor
    seen: Tensor

    def __init__(self, num_samples: int = 1, *, decay: float = 0.95) -> None:
        super().__init__()
        check_count("MovingBaseline", "num_samples", num_samples, 1, None, "1 is enough.")
        if not 0 <= decay < 1:
            raise fail("MovingBaseline", "decay", "must be from 0 to below 1", decay, "0.95 is usual.")
        self.num_samples, self.decay = num_samples, decay
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer(
            "seen", torch.zeros(())
        )  # total weight so far: the first average is unbiased

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Any law with a log-probability."""
        return score_refusal(q)

    def forward(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """As every estimator: the estimate, shape of the batch."""
        return self.estimate(f, q, generator=generator)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        drawn = draw_scored(q, self.num_samples, generator)
        cost = f(drawn.z)
        weights = (cost.detach() - self.mean.to(cost)) / self.num_samples
        if self.training:
            self._update(cost.detach())
        return drawn.add_score(cost.mean(0), weights)

    def _update(self, cost: Tensor) -> None:
        weight = self.seen * self.decay + (1 - self.decay)
        step = (1 - self.decay) / weight
        self.mean.copy_(self.mean + step * (cost.mean().to(self.mean) - self.mean))
        self.seen.copy_(weight)
