r"""Exact in one variable at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator, is_gibbs
from argrad.estimators.exact import as_gibbs
from argrad.gibbs import Gibbs
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot


@dataclass(frozen=True)
class LocalExpectation(Estimator):
    r"""Sum over the values of each variable while the others keep one sample (local expectation gradients).

    $$ \nabla_{\theta_i} \mathbb{E} f = \mathbb{E}_{z_{-i}} \sum_{v} \nabla p_i(v)\, f(z_i = v, z_{-i}) $$
    Unbiased with very small variance, at (variables x values) evaluations of `f` for each sample. The
    variables are those joined by `q.independent`, and single bits.

    Args:
        num_samples: independent samples of the others, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(3, 4, requires_grad=True)  # three categoricals, one cost
        >>> q = ag.Gibbs(ag.OneHot(), scores).independent(1)
        >>> ag.LocalExpectation()(lambda z: z[..., 0].prod(-1), q).backward()
        >>> scores.grad.shape
        torch.Size([3, 4])

    References: [titsias2015].
    """

    num_samples: int = 1

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("LocalExpectation", "num_samples", self.num_samples, 1, None, "1 is enough.")

    @property
    def evaluations_of_f(self) -> None:
        """Variables times values."""
        return

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Gibbs laws that can be listed."""
        if is_gibbs(q) and q.structure.has_log_partition:
            return None
        return "its probabilities are not known. Unbiased here: `LeaveOneOut` on `Perturbed`."

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        z = law.sample((self.num_samples,), generator=generator)
        values, log_p = self._values(law)  # (K, *part), (K, *batch, J): all values of one variable
        parts = z.reshape(self.num_samples, *law.batch_shape, log_p.shape[-1], *values.shape[1:])
        costs = self._swap_each(f, parts, values, z.shape)  # (S, K, J, *batch)
        p = log_p.exp().movedim(-1, 1)  # (K, J, *batch)
        mean = (p.detach() * costs).sum(1).mean(1)  # each variable gives an unbiased value
        gradient = ((p - p.detach()) * costs.detach()).sum((1, 2))
        return (mean + gradient).mean(0)

    def _values(self, law: Gibbs) -> tuple[Tensor, Tensor]:
        scores, mask, structure = law.scores, law.mask, law.structure
        if isinstance(structure, Bits):  # every bit is a variable of two classes
            scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
            log_p = OneHot().log_prob(
                torch.eye(2, dtype=scores.dtype, device=scores.device).view(2, *(1,) * scores.dim(), 2),
                torch.stack([torch.zeros_like(scores), scores], -1),
            )
            values = scores.new_tensor([0.0, 1.0])
        else:
            single = Gibbs(structure, scores, mask=mask)
            support = single.enumerate_support()
            log_p = single.log_prob(support)
            event = scores.shape[scores.dim() - structure.event_dims :]
            values = single.enumerate_support(expand=False).reshape(-1, *event)
        joined = log_p.shape[1 + len(law.batch_shape) :].numel()
        return values, log_p.reshape(len(values), *law.batch_shape, joined)

    def _swap_each(self, f: Cost, parts: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
        """Costs with variable j set to value k, `(S, K, J, *batch)`, in one evaluation of `f`."""
        samples, batch = parts.shape[0], parts.shape[1 : parts.dim() - values.dim()]
        joined, kinds = parts.shape[parts.dim() - values.dim()], len(values)
        part_dims = values.dim() - 1
        table = parts[:, None, None].expand(samples, kinds, joined, *parts.shape[1:])
        eye = torch.eye(joined, dtype=torch.bool, device=parts.device)
        eye = eye.reshape(1, 1, joined, *(1,) * len(batch), joined, *(1,) * part_dims)
        value = values.reshape(1, kinds, 1, *(1,) * len(batch), 1, *values.shape[1:])
        table = torch.where(eye, value, table)
        costs = f(table.reshape(samples * kinds * joined, *shape[1:]))
        return costs.reshape(samples, kinds, joined, *batch)
