r"""Samples without replacement: their weights, and estimates with them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from argrad._checks import fail
from argrad._types import Float, Generator
from argrad.sequences import weights as w
from argrad.sequences.plackett_luce import hindsight_gumbels
from argrad.sequences.result import Sequences, Values, check_log_prob, surrogate_of, values_of
from argrad.sequences.weights import KINDS, Advantages, Kind


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceSample(Sequences):
    r"""k different sequences a row, drawn without replacement, in the order of drawing.

    `sum(sample.weights() * f)` over k is an unbiased estimate of $\mathbb{E} f$. Kinds of weights:

    | kind | $w_s$ | |
    |---|---|---|
    | `"unordered"` | $p_s\, R(S, s)$ | unbiased, sum to 1, least variance of all here |
    | `"importance"` | $p_s / P(G_s > \kappa)$ | unbiased, sum to 1 on average only |
    | `"normalized"` | the same, divided by their sum | biased, O(1/k) |
    | `"hindsight"` | as importance, with $\kappa$ drawn anew given the order | unbiased |
    | `"sum_and_sample"` | $p_s$, the last one the rest of 1 | unbiased |

    Attributes:
        tokens: shape `(batch, k, length)`, the end of sequence included, padded behind it; without the prefix.
        length: number of tokens of each, `(batch, k)`.
        log_prob: $\phi_s = \log p_s$, `float64`, `(batch, k)`; `-inf` where not valid.
        perturbed: $G_s = \phi_s + \varepsilon_s$, falling, `(batch, k)`.
        kappa: the largest $G$ of all sequences that are not in the sample, `(batch,)`; `-inf` if none is left.
        finished: True if it ended by itself, False if it was cut at `max_len`; `(batch, k)`.
        valid: False where the model has fewer than k sequences; `(batch, k)`.

    Examples:
        >>> import torch, argrad as ag
        >>> table = torch.randn(4, 3)
        >>> def step(token, state):
        ...     state = state if token is None else token
        ...     return table[state], state
        >>> sample = ag.stochastic_beam_search(step, torch.tensor([3, 3]), 4, eos=0, max_len=6)
        >>> bool(torch.allclose(sample.weights().sum(-1), torch.ones(2).double()))
        True
        >>> sample.expectation(lambda s: s.length.double()).shape  # of the length
        torch.Size([2])

    References: [kool2019], [kool2020], [kool2019b], [shi2020], [liu2019].
    """

    perturbed: Float[Tensor, "batch k"]
    kappa: Float[Tensor, "batch"]

    def weights(
        self, kind: Kind = "unordered", *, generator: Generator = None
    ) -> Float[Tensor, "batch k"]:
        """Weights of the samples; exactly 0 where not valid. `"hindsight"` draws from `generator`."""
        _check_kind("SequenceSample.weights", kind)
        if kind == "unordered":
            return w.unordered(self.log_prob, self.valid)
        if kind == "sum_and_sample":
            return w.sum_and_sample(self.log_prob, self.valid)
        weights = w.importance(self.log_prob, self._threshold(kind, generator))
        return weights / weights.sum(-1, keepdim=True) if kind == "normalized" else weights

    def expectation(
        self, f: Values, kind: Kind = "unordered", *, generator: Generator = None
    ) -> Float[Tensor, "batch"]:
        """Estimate of the mean of `f`: values `(batch, k)`, or a function of this sample that gives them."""
        values = values_of("SequenceSample.expectation", "f", f, self)
        return (self.weights(kind, generator=generator) * values).sum(-1)

    def entropy(
        self, kind: Kind = "unordered", *, generator: Generator = None
    ) -> Float[Tensor, "batch"]:
        r"""Estimate of the entropy $-\mathbb{E} \log p$, in nats."""
        return self.expectation(-self.log_prob, kind, generator=generator)

    def surrogate(
        self,
        reward: Values,
        log_prob_with_grad: Float[Tensor, "batch k"],
        *,
        kind: Kind = "unordered",
        baseline: bool | Tensor = True,
        generator: Generator = None,
    ) -> Float[Tensor, "batch"]:
        r"""Estimate of the mean reward whose gradient estimates the gradient of the mean reward.

        $$ \nabla\, \mathbb{E} f \approx \sum_{s \in S} w_s \big(f_s - b_s\big) \nabla \log p_s + w_s \nabla f_s $$
        Unbiased for every kind but `"normalized"`. The built-in baseline $b_s$ is made of the other
        samples; that of `"unordered"` gives the least variance. To make the reward large, minimise
        `-sample.surrogate(...).mean()`.

        Args:
            reward: values `(batch, k)`, or a function of this sample; may itself need a gradient.
            log_prob_with_grad: the same log-probabilities computed again with a gradient, `(batch, k)`: by
                `sequence_log_prob`, or `integrations.huggingface.score`.
            kind: of weights.
            baseline: True for the kind's own (`"sum_and_sample"` has none), False for none, or a tensor
                `(batch,)` that does not depend on the sample (a moving average).
            generator: for `"hindsight"`.

        Returns:
            Shape `(batch,)`.
        """
        call = "SequenceSample.surrogate"
        _check_kind(call, kind)
        values = values_of(call, "reward", reward, self)
        check_log_prob(call, log_prob_with_grad, self)
        if isinstance(baseline, Tensor):
            plain = self.weights(kind, generator=generator)
            weights, advantage = plain, values.detach() - baseline.detach()[..., None]
        else:
            weights, advantage = self._advantages(values.detach().double(), kind, baseline, generator)
        return surrogate_of(weights, advantage, values, log_prob_with_grad, self.valid)

    def _advantages(
        self, values: Tensor, kind: Kind, baseline: bool, generator: Generator
    ) -> Advantages:
        alone = values.shape[-1] == 1  # nobody else to make a baseline of
        if not baseline or alone or kind == "sum_and_sample":
            return Advantages(self.weights(kind, generator=generator), values)
        if kind == "unordered":
            return w.unordered_advantages(self.log_prob, self.valid, values)
        if kind == "normalized":
            return w.centred(self.weights(kind), values)
        return w.importance_advantages(self.log_prob, self._threshold(kind, generator), values)

    def _threshold(self, kind: Kind, generator: Generator) -> Tensor:
        return (
            hindsight_gumbels(self.log_prob, generator=generator)[1]
            if kind == "hindsight"
            else self.kappa
        )


def _check_kind(call: str, kind: object) -> None:
    if kind not in KINDS:
        raise fail(call, "kind", f"must be one of {', '.join(KINDS)}", kind, "")
