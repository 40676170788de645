r"""Estimators that are a differentiable sampler: draw once, then plain backpropagation."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from argrad._types import Generator, Shape
from argrad.estimators.base import Cost, Estimator, no_gradient
from argrad.structured import StructuredDistribution


class PathEstimator(Estimator):
    """Must define `rsample`; the estimate is the mean of `f` over it.

    `est.rsample(q)` is also for direct use, wherever `F.gumbel_softmax` would stand.
    """

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True
    num_samples: int

    @abstractmethod
    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Samples, shape `sample_shape + batch + event`, with this estimator's gradient."""

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        z = self.rsample(q, (self.num_samples,), generator=generator)
        cost = f(z)
        if torch.is_grad_enabled() and z.requires_grad and not cost.requires_grad:
            raise no_gradient(type(self).__name__)
        return cost.mean(0)
