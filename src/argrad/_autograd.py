r"""Straight-through, in one place."""

from __future__ import annotations

from torch import Tensor

from argrad._types import Float


def straight_through(
    hard: Float[Tensor, "*shape"], soft: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    r"""The value of `hard`, bit for bit, with the gradient of `soft`.

    $$ z = \mathrm{hard} + (\mathrm{soft} - \mathrm{stopgrad}(\mathrm{soft})) $$
    The bracket is exactly 0 for any finite `soft`, so nothing is rounded; the more common order
    `hard + soft - soft.detach()` is off by an ulp in a quarter of all entries.
    """
    return hard.detach() + (soft - soft.detach())
