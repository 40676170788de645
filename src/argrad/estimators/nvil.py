r"""REINFORCE with a learned baseline."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from argrad._checks import check_count
from argrad._errors import InputError
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator
from argrad.estimators.score import draw_scored, score_refusal
from argrad.structured import StructuredDistribution


class Nvil(nn.Module, Estimator):
    r"""REINFORCE less a running mean and a network's guess of the cost from the scores.

    The network sees the scores of `q` (detached): what the model knows before it chooses. It is trained
    to the squared error by the same backward pass: a term of value 0 whose gradient reaches nothing but
    the network, so data-parallel training and gradient accumulation stay in step.

    Args:
        baseline: module from `(*batch, event size)` to `(*batch,)` or `(*batch, 1)`; None for the running
            mean alone.
        num_samples: independent samples, averaged.
        decay: of the running mean and variance.
        normalize: divide the learning signal by its running standard deviation where that is above 1;
            the gradient is then rescaled, no longer unbiased in size.

    Examples:
        >>> import torch, argrad as ag
        >>> est = ag.Nvil(torch.nn.Linear(3, 1))
        >>> est(lambda z: z[..., 0], ag.Gibbs(ag.OneHot(), torch.zeros(2, 3, requires_grad=True))).sum().backward()
        >>> est.baseline.weight.grad is not None
        True

    References: [mnih2014].
    """

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False
    mean: Tensor
    variance: Tensor

    def __init__(
        self,
        baseline: nn.Module | None = None,
        *,
        num_samples: int = 1,
        decay: float = 0.9,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        check_count("Nvil", "num_samples", num_samples, 1, None, "1 is enough.")
        self.baseline, self.num_samples = baseline, num_samples
        self.decay, self.normalize = decay, normalize
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.ones(()))

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Any law with a log-probability."""
        return score_refusal(q)

    def forward(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """As every estimator: the estimate, shape of the batch."""
        return self.estimate(f, q, generator=generator)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        drawn = draw_scored(q, self.num_samples, generator)
        cost = f(drawn.z)
        signal = cost.detach() - self.mean.to(cost)
        guess = self._guess(q)
        advantage = signal if guess is None else signal - guess.detach()
        scale = torch.sqrt(self.variance).clamp(min=1.0).to(cost) if self.normalize else 1.0
        result = drawn.add_score(cost.mean(0), advantage / (scale * self.num_samples))
        if guess is not None:
            error = ((signal - guess) ** 2).mean(0)
            result = result + error - error.detach()
        if self.training:
            self._update(cost.detach(), advantage)
        return result

    def _guess(self, q: StructuredDistribution) -> Tensor | None:
        if self.baseline is None:
            return None
        scores = q.scores.detach()
        features = torch.where(torch.isfinite(scores), scores, 0.0).reshape(
            *q.batch_shape, q.event_shape.numel()
        )
        guess = self.baseline(features)
        if guess.shape == (*q.batch_shape, 1):
            guess = guess.squeeze(-1)
        if guess.shape != q.batch_shape:
            raise InputError(
                f"`Nvil(baseline=...)` must map features {tuple(features.shape)} to one number an item, "
                f"{tuple(q.batch_shape)}; got {tuple(guess.shape)}."
            )
        return guess

    def _update(self, cost: Tensor, advantage: Tensor) -> None:
        rest = 1 - self.decay
        self.mean.mul_(self.decay).add_(cost.mean().to(self.mean), alpha=rest)
        self.variance.mul_(self.decay).add_(advantage.pow(2).mean().to(self.variance), alpha=rest)
