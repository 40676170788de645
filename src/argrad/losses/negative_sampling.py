r"""Negative sampling, the loss of word2vec: noise-contrastive estimation without its correction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from argrad._errors import UnsupportedError
from argrad._types import Float, Int
from argrad.class_noise.base import ClassNoise, Negatives
from argrad.losses._contrast import Scores, data_against_noise
from argrad.losses._sampled import SampledLoss


class NegativeSampling(SampledLoss):
    r"""Tell the target from $k$ noise classes, by the bare scores (SGNS, "NEG").

    $$ L = -\log \sigma(s_y) - \sum_{j=1}^{k} \log \sigma(-s_{w_j}), \quad w_j \sim q $$
    At the optimum $s_i = \log\big(p(i \mid h) / (k q_i)\big)$: for $q$ the unigram law, the pointwise
    mutual information less $\log k$. That makes good vectors and **not a density**: softmax of these
    scores is $p/q$, not $p$. (Add $\log(k q)$ to the scores, and they are those of `NCE`.)

    Args:
        in_features: d, the size of `hidden`.
        noise: $q$; word2vec's is `Unigram(counts)`.
        k: noise classes for each target.
        shared: one draw for the whole batch, or (False) one for each item as in word2vec.
        bias: whether classes have one; word2vec's do not.
        sparse: sparse gradients of `weight`.
        options: `device`, `dtype`.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.NegativeSampling(8, ag.Unigram(torch.tensor([50.0, 30.0, 15.0, 5.0])), k=5)
        >>> loss(torch.randn(32, 8), torch.randint(4, (32,))).shape
        torch.Size([32])

    References: [mikolov2013], [levy2014].
    """

    def __init__(
        self,
        in_features: int,
        noise: ClassNoise,
        k: int = 5,
        *,
        shared: bool = False,
        bias: bool = False,
        sparse: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(in_features, noise, k, shared=shared, bias=bias, sparse=sparse, **options)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Zeros, as in word2vec: every pair starts at probability 1/2."""
        self.weight.zero_()
        if self.bias is not None:
            self.bias.zero_()

    def _loss(self, scores: Scores, target: Tensor, draw: Negatives, hidden: Tensor) -> Tensor:
        self._log_expected_target(target, draw, scores.target)  # refuses classes that noise never draws
        return data_against_noise(scores, draw.allowed)

    def log_prob(
        self, hidden: Float[Tensor, "*batch d"], target: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Refused: the scores are not those of a density."""
        raise UnsupportedError(
            "`NegativeSampling` has no `log_prob`: its scores estimate log p - log(k q), not log p. "
            "Train `NCE` for a density, or add `math.log(k) + noise.log_prob(...)` to `scores(hidden)`."
        )
