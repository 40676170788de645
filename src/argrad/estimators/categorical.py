r"""What path estimators for one-hots share; bits are one-hots of two classes."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_shape
from argrad._numerics import masked_scores, one_hot
from argrad._types import Float, Generator, Shape
from argrad.estimators.base import is_gibbs
from argrad.estimators.exact import as_gibbs
from argrad.estimators.path import PathEstimator
from argrad.gumbel import gumbel_max
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot


class CategoricalPath(PathEstimator):
    """Must define `_one_hot`: hard samples of softmax(scores) with the estimator's gradient."""

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    @abstractmethod
    def _one_hot(
        self, scores: Float[Tensor, "*shape n"], generator: Generator
    ) -> Float[Tensor, "*shape n"]:
        """One sample for each row; `-inf` scores are never chosen."""

    def refusal(self, q: StructuredDistribution) -> str | None:
        """One-hots and bits."""
        if isinstance(q.structure, (OneHot, Bits)) and is_gibbs(q):
            return None
        return (
            "it is defined for `OneHot` and `Bits` with their natural noise. Works here: `Relaxed`, `Imle`, "
            "`StraightThrough` (where marginals are known); unbiased: `LeaveOneOut`."
        )

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Vertices with this estimator's gradient."""
        law = as_gibbs(q)
        scores = masked_scores(law.scores, law.mask)
        shape = check_shape(f"{type(self).__name__}.rsample", "sample_shape", sample_shape)
        scores = scores.expand(shape + scores.shape)
        if isinstance(q.structure, OneHot):
            return self._one_hot(scores, generator)
        return self._one_hot(torch.stack([torch.zeros_like(scores), scores], -1), generator)[..., 1]


def draw_one_hot(scores: Tensor, generator: Generator) -> Tensor:
    """A hard sample of softmax(scores), without gradient."""
    index = gumbel_max(scores.detach(), generator=generator)
    return one_hot(index[..., None], scores)


def softmax_tangent(probs: Tensor, scores: Tensor) -> Tensor:
    r"""A function of `scores` whose Jacobian is $\mathrm{diag}(\pi) - \pi\pi^\top$ at `probs`."""
    pi = probs.detach()
    theta = scores.masked_fill(scores == -torch.inf, 0.0)
    return pi * (theta - (pi * theta).sum(-1, keepdim=True))
