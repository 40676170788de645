r"""The multi-sample objective with leave-one-out baselines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._numerics import logsumexp
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator
from argrad.estimators.score import draw_scored, score_refusal
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class Vimco(Estimator):
    r"""$\mathbb{E} \log \frac1S \sum_s e^{f(z_s)}$, the importance-weighted bound, with its gradient.

    Here `f` returns log-weights and the value is the multi-sample objective, not the mean of `f`. Each
    sample's learning signal is the objective less the same objective with its own weight replaced by the
    geometric mean of the others.

    Args:
        num_samples: $S$, at least 2.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(4, 3, requires_grad=True)
        >>> bound = ag.Vimco(5)(lambda z: z[..., 0] - 1.0, ag.Gibbs(ag.OneHot(), scores))
        >>> (-bound).mean().backward()

    References: [mnih2016].
    """

    num_samples: int = 4

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("Vimco", "num_samples", self.num_samples, 2, None, "One must be left out.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Any law with a log-probability."""
        return score_refusal(q)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        drawn = draw_scored(q, self.num_samples, generator)
        log_weights = f(drawn.z)
        objective = logsumexp(log_weights, 0) - math.log(self.num_samples)
        signal = objective.detach() - self._without_each(log_weights.detach())
        return drawn.add_score(objective, signal)

    def _without_each(self, log_weights: Tensor) -> Tensor:
        """The objective with sample s replaced by the others' geometric mean, for each s."""
        count = self.num_samples
        geometric = (log_weights.sum(0) - log_weights) / (count - 1)
        eye = torch.eye(count, dtype=torch.bool, device=log_weights.device)
        eye = eye.reshape(count, count, *(1,) * (log_weights.dim() - 1))
        table = torch.where(eye, geometric[:, None], log_weights[None])  # (left out, sample, *batch)
        return logsumexp(table, 1) - math.log(count)
