r"""Samples with replacement: equal weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from argrad._types import Float
from argrad.sequences.result import Sequences, Values, check_log_prob, surrogate_of, values_of


@dataclass(frozen=True, eq=False, kw_only=True)
class RepeatedSample(Sequences):
    """n sequences a row with equal weights, some of them perhaps the same.

    Attributes:
        tokens: shape `(batch, n, length)`, the end of sequence included, padded behind it; without the prefix.
        length: number of tokens of each, `(batch, n)`.
        log_prob: log-probability of each, `float64`, `(batch, n)`.
        finished: True if it ended by itself, False if it was cut at `max_len`; `(batch, n)`.
        valid: True everywhere.
        independent: False for samples that were spread on purpose (`arithmetic_sample`).

    Examples:
        >>> import torch, argrad as ag
        >>> def step(token, state):
        ...     return torch.zeros(1 if token is None else len(token), 3), None
        >>> ag.ancestral_sample(step, None, 5, eos=0, max_len=4).entropy().shape
        torch.Size([1])

    References: [kool2019b].
    """

    independent: bool

    def weights(self) -> Float[Tensor, "batch n"]:
        """1 / n each."""
        return torch.full_like(self.log_prob, 1.0 / self.log_prob.shape[-1])

    def expectation(self, f: Values) -> Float[Tensor, "batch"]:
        """Estimate of the mean of `f`: values `(batch, n)`, or a function of this sample that gives them."""
        return (self.weights() * values_of("RepeatedSample.expectation", "f", f, self)).sum(-1)

    def entropy(self) -> Float[Tensor, "batch"]:
        r"""Estimate of the entropy $-\mathbb{E} \log p$, in nats."""
        return self.expectation(-self.log_prob)

    def surrogate(
        self,
        reward: Values,
        log_prob_with_grad: Float[Tensor, "batch n"],
        *,
        baseline: bool | Tensor = True,
    ) -> Float[Tensor, "batch"]:
        """As `SequenceSample.surrogate`; the built-in baseline of a sample is the mean of the others.

        Samples that are not independent have no built-in baseline: theirs would not be free of bias.
        """
        call = "RepeatedSample.surrogate"
        values = values_of(call, "reward", reward, self)
        check_log_prob(call, log_prob_with_grad, self)
        advantage, n = values.detach().double(), values.shape[-1]
        if isinstance(baseline, Tensor):
            advantage = advantage - baseline.detach()[..., None]
        elif baseline and self.independent and n > 1:
            advantage = (advantage - advantage.mean(-1, keepdim=True)) * (n / (n - 1))
        return surrogate_of(self.weights(), advantage, values, log_prob_with_grad, self.valid)
