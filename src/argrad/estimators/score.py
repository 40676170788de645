r"""Samples with their score, $\nabla \log p(z)$: what all score-function estimators share.

A surrogate needs the *gradient* of log-probabilities, never their values. For an exponential family that
gradient is $z - \mathbb{E} z$ (forbidden parts are 0 in both), so that no log-partition is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from argrad._checks import is_transformed
from argrad._types import Generator
from argrad.gibbs import Gibbs
from argrad.perturbed import Perturbed
from argrad.structured import StructuredDistribution
from argrad.structures.base import Structure


class Scored(NamedTuple):
    """Samples `z`, `(S, *batch, *event)`, and where their score comes from: a Gibbs law, or a log-probability."""

    z: Tensor
    law: Gibbs | None
    log_prob: Tensor | None

    def add_score(self, value: Tensor, weights: Tensor) -> Tensor:
        r"""`value`, `(*batch,)`, with $\sum_s w_s \nabla\log p(z_s)$ added to its gradient; $w$ is `(S, *batch)`."""
        if self.law is not None:
            return add_score(value, self.law, self.z, weights)
        assert self.log_prob is not None
        change = self.log_prob - self.log_prob.detach()
        return value + (weights.detach() * change).sum(0)


def draw_scored(q: StructuredDistribution, count: int, generator: Generator) -> Scored:
    """`count` samples with their score.

    Where only the steps of the algorithm behind a sample have a probability (`Perturbed.trace`), it is
    theirs: the score function of the trace is unbiased too.
    """
    if isinstance(q, Gibbs):
        return Scored(q.sample((count,), generator=generator), q, None)
    assert isinstance(q, Perturbed)
    trace = q.trace((count,), generator=generator)
    return Scored(trace.hard, None, trace.log_prob)


def add_score(value: Tensor, law: Gibbs, z: Tensor, weights: Tensor) -> Tensor:
    """As `Scored.add_score`, for vertices `z` of a Gibbs law."""
    scores, weights = law._cleaned, weights.detach()
    if is_transformed():
        log_prob = law._log_prob(z)
        return value + (weights * (log_prob - log_prob.detach())).sum(0)
    if not (scores.requires_grad and torch.is_grad_enabled()):
        return value
    return _AddScore.apply(value, scores, z, weights, law.structure)  # type: ignore[return-value]


def score_refusal(q: StructuredDistribution) -> str | None:
    """Why a score-function estimator cannot work with `q`."""
    if isinstance(q, Gibbs) and not q.structure.has_log_partition:
        return (
            "its Gibbs law has no computable log-probability. Works here: `Perturbed` with the same scores, "
            "whose noise (or trace) has one."
        )
    return None


class _AddScore(torch.autograd.Function):
    r"""The identity for `value`; the scores get $\sum_s w_s (z_s - \mathbb{E} z)$ times its gradient.

    One node of the graph instead of a dozen. Never reached inside a transform, so it needs no vmap rule
    and no `setup_context`, whose argument binding would cost more than the rest.
    """

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, scores: Tensor, z: Tensor, weights: Tensor, structure: Structure
    ) -> Tensor:
        ctx.save_for_backward(scores, z, weights)
        ctx.structure = structure
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scores, z, weights = ctx.saved_tensors
        gap = z - ctx.structure._marginals(scores)  # in the dtype of `scores`, at least float32
        weights = (weights * grads[0]).reshape(weights.shape + (1,) * (z.dim() - weights.dim()))
        total = (weights * gap).sum(0).to(scores.dtype)
        weight = ctx.structure.inner_weight
        return grads[0], total if weight == 1 else total * weight, None, None, None
