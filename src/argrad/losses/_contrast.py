r"""The kernel of the contrastive losses: score a few classes of many, then tell the target from the rest.

Every loss here is one of two questions about scores $s_1, \dots, s_m$ of some candidate classes:

- *logistic*: is each of them data ($\sigma = +1$) or noise ($\sigma = -1$)?
  $-\sum_j \log \mathrm{sigmoid}(\sigma_j s_j)$;
- *ranking*: which one of them is data? $\log \sum_j e^{s_j} - s_1$.

What distinguishes the named losses is which candidates they take and what they subtract from the scores.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, logsigmoid

from argrad._checks import bad_values, can_read, check_floating, fail
from argrad._numerics import logsumexp, widen
from argrad._types import Bool, Float, Int
from argrad.class_noise.base import check_classes


class Scores(NamedTuple):
    """Scores of each item's target `(*batch)` and of its negatives `(*batch, m)`."""

    target: Float[Tensor, "*batch"]
    negative: Float[Tensor, "*batch m"]


def logistic(
    scores: Float[Tensor, "*shape m"],
    sign: Float[Tensor, "..."] | float,
    allowed: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*shape"]:
    r"""$-\sum_j \log \mathrm{sigmoid}(\sigma_j s_j)$ over the allowed candidates."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, 0.0)
    terms = -logsigmoid(sign * scores)
    return (terms if allowed is None else terms.masked_fill(~allowed, 0.0)).sum(-1)


def data_against_noise(scores: Scores, allowed: Tensor | None = None) -> Tensor:
    """`logistic` of one target and its negatives."""
    noise = logistic(scores.negative, -1.0, allowed)
    return noise - logsigmoid(scores.target)


def ranking(scores: Scores, allowed: Tensor | None = None) -> Tensor:
    r"""$\log(e^{s_1} + \sum_j e^{s_j}) - s_1$ over the allowed negatives."""
    negative = scores.negative
    if allowed is not None:
        negative = negative.masked_fill(~allowed, -math.inf)
    return logsumexp(torch.cat([scores.target[..., None], negative], -1)) - scores.target


def score_classes(
    hidden: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "n d"],
    bias: Float[Tensor, "n"] | None,
    target: Int[Tensor, "*batch"],
    negative: Int[Tensor, "..."],
    sparse: bool = False,
) -> Scores:
    r"""$s_i = w_i \cdot h + b_i$ for the target and the negatives, `(m,)` for all items or `(*batch, m)`.

    One lookup for both, so that a single gradient of the weights' size is made.
    """
    batch = target.shape
    index = torch.cat([target.reshape(-1), negative.reshape(-1)])
    rows = embedding(index, weight, sparse=sparse)
    x, size = hidden.reshape(-1, hidden.shape[-1]), target.numel()
    first = (x * rows[:size]).sum(-1)
    if negative.dim() == 1:
        rest = x @ rows[size:].T  # (size, m)
    else:
        rest = (rows[size:].reshape(size, negative.shape[-1], x.shape[-1]) @ x[..., None])[..., 0]
    if bias is not None:
        b = bias.index_select(0, index)
        first = first + b[:size]
        rest = rest + (b[size:] if negative.dim() == 1 else b[size:].reshape(rest.shape))
    return Scores(widen(first).reshape(batch), widen(rest).reshape(*batch, rest.shape[-1]))


def check_items(call: str, hidden: Tensor, target: Tensor, features: int, num_classes: int) -> None:
    """Features `(*batch, d)` and a class of each item, `(*batch)`."""
    check_floating(call, "hidden", hidden)
    if hidden.shape[-1:] != (features,):
        rule = f"must end in {features} features"
        raise fail(call, "hidden", rule, f"shape {tuple(hidden.shape)}", "As `in_features` says.")
    check_classes(call, "target", target, num_classes)
    if target.shape != hidden.shape[:-1]:
        rule = f"must have the batch shape of `hidden`, {tuple(hidden.shape[:-1])}"
        raise fail(call, "target", rule, f"shape {tuple(target.shape)}", "One class for each item.")


def check_loss(call: str, loss: Tensor, **parts: Tensor | None) -> Tensor:
    """The loss, unless it is NaN or infinite: then a sentence about the first part that is to blame."""
    if not loss.numel() or not can_read(loss) or bool(loss.detach().isfinite().all()):
        return loss
    for name, part in parts.items():
        if part is not None and not bool(part.isfinite().all()):
            raise bad_values(call, name, part.detach().abs())  # -inf is as bad as +inf here
    raise fail(call, "hidden", "must give finite scores", "an overflow", "Lower the learning rate.")
