r"""The contract of a gradient estimator, checked against exact gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from argrad._types import Generator
from argrad.estimators.base import Estimator
from argrad.estimators.exact import Exact
from argrad.gibbs import Gibbs
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot
from argrad.structures.subset import Subset
from argrad.testing.parts import check_generator_contract
from argrad.testing.statistics import assert_mean, z_bound, z_scores


def check_estimator(
    estimator: Estimator,
    laws: Sequence[StructuredDistribution] | None = None,
    *,
    replicates: int = 20_000,
) -> None:
    r"""An estimator keeps the contract: shapes, generators, evaluations, black boxes; unbiased if it says so.

    The mean gradient of `replicates` estimates is compared with the exact one, for a linear and for a product
    cost, at a false-alarm rate of $10^{-6}$. That is enough to see a gradient that is 5 % too short.

    Args:
        estimator: what you wrote.
        laws: `Gibbs` laws small enough to enumerate, without batch dimensions; default a categorical, three
            bits and a subset, as far as it works with them.
        replicates: estimates of each.

    Examples:
        >>> import argrad as ag
        >>> ag.testing.check_estimator(ag.LeaveOneOut(2), replicates=2000)
    """
    laws = _default_laws() if laws is None else laws
    possible = [q for q in laws if estimator.works_with(q)]
    assert possible, "it works with none of the laws"
    for q in possible:
        for name, cost in _costs(q).items():
            _check_contract(estimator, q, cost)
            if estimator.is_unbiased:
                _check_mean(estimator, q, cost, replicates, f"{q.structure!r}, {name} cost")


def _default_laws() -> list[StructuredDistribution]:
    g = torch.Generator().manual_seed(0)
    kinds = ((OneHot(), 4), (Bits(), 3), (Subset(2), 4))
    return [Gibbs(s, torch.randn(n, dtype=torch.float64, generator=g)) for s, n in kinds]


def _costs(q: StructuredDistribution) -> dict[str, Callable[[Tensor], Tensor]]:
    """Two costs of an event: one that every straight-through rule gets right, and one that none does."""
    g = torch.Generator().manual_seed(1)
    weights = torch.randn(2, *q.event_shape, dtype=torch.float64, generator=g)
    dims = tuple(range(-len(q.event_shape), 0))
    return {
        "linear": lambda z: 1.0 + (weights[0] * z).sum(dims),
        "product": lambda z: torch.exp(0.7 * (weights[0] * z).sum(dims)) * (weights[1] * z).sum(dims),
    }


def _check_contract(
    estimator: Estimator, q: StructuredDistribution, cost: Callable[[Tensor], Tensor]
) -> None:
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)  # a parameter inside f
    scores = q.scores.detach().expand(2, 3, *q.scores.shape).clone().requires_grad_()
    law = q.with_scores(scores)
    value = estimator(lambda z: scale * cost(z), law)
    assert value.shape == (2, 3), f"the estimate has shape {tuple(value.shape)}, the batch (2, 3)"
    grads = torch.autograd.grad(value.sum(), [scores, scale])
    assert all(bool(g.isfinite().all()) for g in grads), "a gradient is not finite"
    assert bool(grads[1] != 0), "no gradient reaches a parameter inside f"

    def draw(generator: Generator) -> Tensor:
        fresh = copy.deepcopy(estimator)  # running averages would move
        return fresh.evaluate(cost, law, generator=generator).scores_grad

    check_generator_contract(draw, varies=False)  # the gradient of a sample may be the same for all
    seen = estimator.evaluate(cost, law)
    if estimator.evaluations_of_f is not None:
        claimed = estimator.evaluations_of_f
        assert seen.evaluations == claimed, f"{seen.evaluations} evaluations of f, {claimed} claimed"
    if not estimator.needs_differentiable_f:
        estimator(lambda z: cost(z).detach(), law)


def _check_mean(
    estimator: Estimator,
    q: StructuredDistribution,
    cost: Callable[[Tensor], Tensor],
    replicates: int,
    where: str,
) -> None:
    many = q.with_scores(q.scores.detach().expand(replicates, *q.scores.shape))
    seen = estimator.evaluate(cost, many, generator=torch.Generator().manual_seed(2))
    exact = Exact().evaluate(cost, q)
    z = z_scores(seen.scores_grad, exact.scores_grad).abs().max().item()
    bound = z_bound(exact.scores_grad.numel())
    assert z < bound, f"biased gradient ({where}): largest |z| = {z:.1f}, bound {bound:.1f}"
    assert_mean(seen.value, exact.value)
