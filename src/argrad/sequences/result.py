r"""What searches and samplers return: sequences with exact probabilities, and what their estimates share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from argrad._checks import check_floating, fail
from argrad._types import Bool, Float, Int

# Numbers `(batch, k)`, or a function of the sample that gives them.
Values: TypeAlias = Tensor | Callable[[Any], Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sequences:
    """k sequences for each row of a batch.

    Attributes:
        tokens: shape `(batch, k, length)`, the end of sequence included, padded behind it; without the prefix.
        length: number of tokens of each, the end of sequence included, `(batch, k)`.
        log_prob: log-probability of each under the model as it was asked (temperature, masks and
            processors included), `float64`, `(batch, k)`; `-inf` where not valid.
        finished: True if it ended by itself, False if it was cut at `max_len`; `(batch, k)`.
        valid: False where there was no further sequence to give; `(batch, k)`.

    Examples:
        >>> import torch, argrad as ag
        >>> table = torch.arange(12.0).view(4, 3)
        >>> def step(token, state):  # a bigram model: the state is the last token
        ...     state = state if token is None else token
        ...     return table[state], state
        >>> best = ag.beam_search(step, torch.tensor([3]), 2, eos=0, max_len=5)
        >>> best.tokens.shape, bool(best.log_prob[0, 0] >= best.log_prob[0, 1])
        (torch.Size([1, 2, 5]), True)
    """

    tokens: Int[Tensor, "batch k length"]
    length: Int[Tensor, "batch k"]
    log_prob: Float[Tensor, "batch k"]
    finished: Bool[Tensor, "batch k"]
    valid: Bool[Tensor, "batch k"]


def surrogate_of(
    weights: Tensor, advantage: Tensor, values: Tensor, log_prob: Tensor, valid: Tensor
) -> Tensor:
    """The value of the weighted mean, with the gradient of the score and of the values."""
    log_prob = log_prob.where(valid, 0.0)
    score = (advantage.detach() * (log_prob - log_prob.detach())).where(valid, 0.0)
    return (weights.detach() * (values + score)).sum(-1)


def check_log_prob(call: str, log_prob: Tensor, sample: Sequences) -> None:
    """One number a sequence, and attached to something that is trained."""
    check_floating(call, "log_prob_with_grad", log_prob)
    if log_prob.shape != sample.log_prob.shape:
        rule = f"must have the sample's shape {tuple(sample.log_prob.shape)}"
        raise fail(
            call, "log_prob_with_grad", rule, f"shape {tuple(log_prob.shape)}", "One a sequence."
        )
    if not log_prob.requires_grad:
        raise fail(
            call,
            "log_prob_with_grad",
            "must need a gradient",
            "a tensor without one",
            "Compute it again with the model in training: `sequence_log_prob` or "
            "`integrations.huggingface.score`.",
        )


def values_of(call: str, name: str, f: Values, sample: Sequences) -> Tensor:
    """One floating-point number a sequence, 0 where there is none."""
    values = f(sample) if callable(f) and not isinstance(f, Tensor) else f
    shape = sample.log_prob.shape
    if not isinstance(values, Tensor) or values.shape != shape:
        got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        rule = f"must give one number a sequence, shape {tuple(shape)}"
        raise fail(
            call, name, rule, got, "Give a tensor, or a function of the sample that returns one."
        )
    values = values if values.is_floating_point() else values.double()
    return values.where(sample.valid, 0.0)
