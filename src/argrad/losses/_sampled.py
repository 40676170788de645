"""What the losses with a table of classes share: its parameters, the draw of negatives, the checks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from argrad._checks import check_count
from argrad._errors import InputTypeError
from argrad._types import Float, Generator, Int
from argrad.class_noise.base import ClassNoise, Negatives, check_seen
from argrad.losses._contrast import Scores, check_items, check_loss, score_classes
from argrad.losses._large_softmax import linear_log_partition


class SampledLoss(nn.Module, ABC):
    """A table of class vectors, compared with a few noise classes a step.

    Must define: `_loss`.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        noise: ClassNoise,
        k: int,
        *,
        shared: bool,
        bias: bool,
        sparse: bool,
        **options: Any,
    ) -> None:
        super().__init__()
        call = type(self).__name__
        self.in_features = check_count(
            call, "in_features", in_features, 1, None, "The size of `hidden`."
        )
        if not isinstance(noise, ClassNoise):
            raise InputTypeError(
                f"`{call}(noise=...)` must be a `ClassNoise`; got {type(noise).__name__}. "
                "Write `Unigram(counts)`, `AliasTable(weights)`, `LogUniform(n)` or `InBatch(n)`."
            )
        advice = "It is the number of noise classes for each target; 5 to 25 are usual."
        self.k = check_count(call, "k", k, 1, None, advice)
        self.noise, self.shared, self.sparse = noise, shared, sparse
        self.num_classes = n = noise.num_classes
        self.weight = nn.Parameter(torch.empty(n, self.in_features, **options))
        self.bias = nn.Parameter(torch.empty(n, **options)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Small uniform weights, and $\log q$ as bias: the scores start at the law of the noise.

        From a bias of 0 the sum of $e^{s}$ starts at n, not at 1, and noise-contrastive estimation needs
        very long to get down from there.
        """
        bound = 1 / math.sqrt(self.in_features)
        self.weight.uniform_(-bound, bound)
        if self.bias is not None:
            log_q = self.noise.log_prob(torch.arange(self.num_classes, device="cpu"))
            smallest = log_q.masked_fill(log_q == -math.inf, 0.0).min()
            self.bias.copy_(log_q.clamp(min=float(smallest)))  # also of a class that is never drawn

    @abstractmethod
    def _loss(self, scores: Scores, target: Tensor, draw: Negatives, hidden: Tensor) -> Tensor:
        """The loss of each item, from uncorrected scores."""

    def forward(
        self,
        hidden: Float[Tensor, "*batch d"],
        target: Int[Tensor, "*batch"],
        *,
        generator: Generator = None,
    ) -> Float[Tensor, "*batch"]:
        """The loss of each item: take its mean (or sum) for training."""
        self._check(type(self).__name__, hidden, target)
        draw = self.noise.negatives(target, self.k, shared=self.shared, generator=generator)
        scores = self._score(hidden, target, draw.index)
        loss = self._loss(scores, target, draw, hidden)
        check_loss(type(self).__name__, loss, hidden=hidden, weight=self.weight, bias=self.bias)
        return loss.to(hidden.dtype)

    def scores(self, hidden: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch n"]:
        r"""$w_i \cdot h + b_i$ of every class: a matrix of `(items, classes)`."""
        return nn.functional.linear(hidden, self.weight, self.bias)

    def log_partition(self, hidden: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        r"""$\log \sum_i e^{s_i}$ over all classes, in pieces: slow, for looking."""
        return linear_log_partition(hidden, self.weight, self.bias)

    def _score(self, hidden: Tensor, target: Tensor, negative: Tensor) -> Scores:
        return score_classes(hidden, self.weight, self.bias, target, negative, self.sparse)

    def _log_expected(self, index: Tensor, draw: Negatives, like: Tensor) -> Tensor:
        r"""$\log(k q_i)$: how often a class is expected among the draws."""
        return (self.noise.log_prob(index) + math.log(draw.count)).to(like.dtype)

    def _log_expected_target(self, target: Tensor, draw: Negatives, like: Tensor) -> Tensor:
        expected = self._log_expected(target, draw, like)
        check_seen(type(self).__name__, target, expected)
        return expected

    def _check(self, call: str, hidden: Tensor, target: Tensor) -> None:
        check_items(call, hidden, target, self.in_features, self.num_classes)

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        return f"{self.in_features}, {self.noise!r}, k={self.k}, shared={self.shared}"
