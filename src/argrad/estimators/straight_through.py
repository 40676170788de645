r"""The straight-through estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from argrad._autograd import straight_through
from argrad._checks import check_count
from argrad._types import Generator, Shape
from argrad.estimators.base import is_gibbs
from argrad.estimators.exact import as_gibbs
from argrad.estimators.path import PathEstimator
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class StraightThrough(PathEstimator):
    r"""A hard sample with the gradient of its mean, $\partial z \approx \partial\, \mathbb{E} z$.

    Exact for linear costs, biased otherwise. With slope annealing (a steeper sigmoid or softmax each
    step) it is "annealed ST": pass scores times the slope.

    Args:
        num_samples: independent samples, averaged.
        tau: the gradient is that of the marginals of `scores / tau`.

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.StraightThrough().rsample(ag.Gibbs(ag.OneHot(), torch.zeros(2, 3, requires_grad=True)))
        >>> z.sum(-1), z.requires_grad
        (tensor([1., 1.], grad_fn=<SumBackward1>), True)

    References: [bengio2013].
    """

    num_samples: int = 1
    tau: float = 1.0

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("StraightThrough", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Laws with marginals."""
        if is_gibbs(q) and q.structure.has_log_partition:
            return None
        return "its marginals are not known. Works here: `Relaxed(hard=True)`, `Imle`, `PerturbedOptimizer`."

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Vertices with the gradient of the marginals."""
        law = as_gibbs(q)
        hard = law.sample(sample_shape, generator=generator)
        soft = law.mean if self.tau == 1 else law.with_scores(law.scores / self.tau).mean
        return straight_through(hard, soft.expand(hard.shape))
