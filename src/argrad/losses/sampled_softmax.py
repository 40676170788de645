r"""Sampled softmax: cross-entropy with an estimated sum over classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from argrad._errors import InputError
from argrad._numerics import log1mexp
from argrad._types import Bool, Float, Generator, Int
from argrad.class_noise.base import ClassNoise, Negatives
from argrad.losses._contrast import Scores, check_loss, ranking
from argrad.losses._large_softmax import linear_log_prob, linear_sample
from argrad.losses._sampled import SampledLoss


class SampledSoftmax(SampledLoss):
    r"""Cross-entropy whose normaliser is estimated from the target and $k$ noise classes.

    $$ L = -s_y + \log \hat Z, \qquad
       \hat Z = e^{s_y} + \sum_{j:\, w_j \ne y} \frac{e^{s_{w_j}}}{k\, q_{w_j}}, \quad w_j \sim q $$
    $\hat Z$ is an unbiased estimate of $\sum_i e^{s_i}$ at every $k$, because draws that hit the target
    ("accidental hits") are masked: the target is there already. Its logarithm is not unbiased, but tends
    to $\log Z$ as $k$ grows, and so does the gradient to that of the softmax. The scores learn $\log p$ up
    to a constant for each context; to compare models, normalise.

    With `mask_hits=False` the target is one candidate among $k + 1$, all corrected alike,
    $s_i - \log q_i$: *ranking* NCE, whose optimum is $\log p$ up to a constant at **every** $k$ (see also
    `InfoNCE`).

    Args:
        in_features: d, the size of `hidden`.
        noise: $q$.
        k: noise classes for each target.
        mask_hits: mask draws that equal the target.
        unique: count a class that was drawn several times once, weighted by the probability
            $1 - (1 - q)^k$ that it is drawn at all: less variance where few classes carry most of $q$.
        shared: one draw for the whole batch, or one for each item.
        bias: whether classes have one; it starts at $\log q$.
        sparse: sparse gradients of `weight`.
        options: `device`, `dtype`.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.SampledSoftmax(8, ag.LogUniform(1000), k=64)
        >>> hidden, target = torch.randn(32, 8), torch.randint(1000, (32,))
        >>> loss(hidden, target).mean().backward()
        >>> loss.log_prob(hidden, target).shape                   # the exact one, over all classes
        torch.Size([32])

    References: [bengio2008], [jean2015], [ma2018].
    """

    def __init__(
        self,
        in_features: int,
        noise: ClassNoise,
        k: int = 100,
        *,
        mask_hits: bool = True,
        unique: bool = False,
        shared: bool = True,
        bias: bool = True,
        sparse: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(in_features, noise, k, shared=shared, bias=bias, sparse=sparse, **options)
        if unique and not mask_hits:
            raise InputError(
                "`SampledSoftmax(unique=True)` needs `mask_hits=True`: without the mask the target would "
                "have to be counted as often as it was drawn."
            )
        self.mask_hits, self.unique = mask_hits, unique

    def _loss(self, scores: Scores, target: Tensor, draw: Negatives, hidden: Tensor) -> Tensor:
        expected = self._log_expected_target(target, draw, scores.target)
        if not self.mask_hits:
            first = scores.target - expected
            rest = scores.negative - self._log_expected(draw.index, draw, scores.target)
            return ranking(Scores(first, rest), draw.allowed)
        allowed = draw.index != target[..., None]
        if draw.allowed is not None:
            allowed = allowed & draw.allowed
        if self.unique:
            allowed = allowed & first_occurrences(draw.index)
            weight = self._log_included(draw, scores.target)
        else:
            weight = self._log_expected(draw.index, draw, scores.target)
        return ranking(Scores(scores.target, scores.negative - weight), allowed)

    def _log_included(self, draw: Negatives, like: Tensor) -> Tensor:
        r"""$\log(1 - (1 - q_i)^k)$: the probability of being drawn at least once."""
        log_q = self.noise.log_prob(draw.index)
        return log1mexp(draw.count * log1mexp(log_q)).to(like.dtype)

    def log_prob(
        self, hidden: Float[Tensor, "*batch d"], target: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        r"""$\log \mathrm{softmax}(s)_y$ over all classes, without holding all scores."""
        self._check("SampledSoftmax.log_prob", hidden, target)
        log_p = linear_log_prob(hidden, self.weight, self.bias, target)
        return check_loss("SampledSoftmax.log_prob", log_p, hidden=hidden, weight=self.weight)

    def sample(
        self, hidden: Float[Tensor, "*batch d"], *, generator: Generator = None
    ) -> Int[Tensor, "*batch"]:
        """One class for each item from the normalised model, without holding all scores."""
        return linear_sample(hidden, self.weight, self.bias, generator)

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        return f"{super().extra_repr()}, mask_hits={self.mask_hits}, unique={self.unique}"


def first_occurrences(index: Int[Tensor, "*shape m"]) -> Bool[Tensor, "*shape m"]:
    """True where a row holds a class for the first time."""
    ordered, order = torch.sort(index, dim=-1, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return torch.zeros_like(new).scatter(-1, order, new)
