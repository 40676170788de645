r"""Pressure to drop tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from argrad._checks import fail
from argrad.integrations.sentences.gate import check_choice

KINDS = ("hinge", "lagrangian")


class Budget(nn.Module):
    r"""A penalty for keeping more than a fraction of the tokens.

    Without it nothing in a contrastive loss rewards dropping a token, and a gate that starts by keeping keeps
    all of them. With the expected kept fraction $\kappa$ and the target $b$:

    $$ \text{hinge:}\ \ w \max(0, \kappa - b) \qquad
       \text{lagrangian:}\ \ \lambda\, (\kappa - b), \quad
       \lambda \leftarrow \max(0, \lambda + w\, (\kappa - b)) \tag{1} $$
    The multiplier of the second is renewed by every call in training mode (so call it once an optimiser
    step) and is part of `state_dict`; it finds the weight that the hinge has to be told.

    Args:
        target: $b$, in (0, 1].
        weight: $w$, the weight of the hinge or the step of the multiplier.
        kind: `"hinge"` or `"lagrangian"`.

    Examples:
        >>> import torch
        >>> from argrad.integrations.sentences import Budget
        >>> Budget(0.6, weight=2.0)(torch.tensor(0.85))
        tensor(0.5000)
        >>> budget = Budget(0.6, weight=0.5, kind="lagrangian")
        >>> [round(budget(torch.tensor(0.8)).item(), 3) for _ in range(3)]
        [0.02, 0.04, 0.06]
    """

    multiplier: Tensor

    def __init__(
        self, target: float, weight: float = 2.0, kind: Literal["hinge", "lagrangian"] = "hinge"
    ) -> None:
        super().__init__()
        if not 0 < target <= 1:
            advice = "It is the fraction of tokens to keep; 1 asks for nothing."
            raise fail("Budget", "target", "must be in (0, 1]", target, advice)
        if not weight >= 0:
            raise fail("Budget", "weight", "must not be negative", weight, "The prototype used 2.")
        check_choice("Budget", "kind", kind, KINDS)
        self.target, self.weight, self.kind = target, weight, kind
        self.register_buffer("multiplier", torch.zeros(()))

    def forward(self, kept: Tensor) -> Tensor:
        """The penalty of Eq. (1) for an expected kept fraction, to be added to the loss."""
        excess = kept - self.target
        if self.kind == "hinge":
            return self.weight * excess.clamp_min(0.0)
        if self.training:
            self.multiplier.add_(self.weight * excess.detach()).clamp_(min=0.0)
        return self.multiplier.clone() * excess

    def extra_repr(self) -> str:
        """Settings."""
        return f"target={self.target}, weight={self.weight}, kind={self.kind!r}"
