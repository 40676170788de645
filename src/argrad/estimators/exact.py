r"""The exact expectation, by enumeration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator, is_gibbs
from argrad.gibbs import Gibbs
from argrad.perturbed import Perturbed
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class Exact(Estimator):
    r"""$\sum_{z \in Z} p(z) f(z)$: every vertex is evaluated. No variance, no bias; the oracle of the tests.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(3, requires_grad=True)
        >>> q, weights = ag.Gibbs(ag.OneHot(), scores), torch.tensor([1.0, 2.0, 6.0])
        >>> value = ag.Exact()(lambda z: (z * weights).sum(-1), q)
        >>> round(value.item(), 4)
        3.0
        >>> value.backward(); scores.grad
        tensor([-0.6667, -0.3333,  1.0000])
    """

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Only laws whose vertices have known probabilities."""
        if not is_gibbs(q) or not q.structure.has_log_partition:
            return "its probabilities are not known. Unbiased here: `LeaveOneOut` on `Perturbed`."
        return None

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        z = law.enumerate_support()
        return (torch.exp(law._log_prob(z)) * f(z)).sum(0)


def as_gibbs(q: StructuredDistribution) -> Gibbs:
    """The Gibbs law of the same vertices (`q` is one already, or a `Perturbed` that is one in law)."""
    if isinstance(q, Gibbs):
        return q
    assert isinstance(q, Perturbed)
    return Gibbs(q.structure, q.scores / q.noise_scale, mask=q.mask).independent(q.joined)
