"""Inputs and steps that several topics share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.line import Step


def normal(shape: tuple[int, ...], seed: int = 1) -> Tensor:
    """Standard normal numbers; the same ones at each call, so that a check can make its inputs anew."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def upstream(shape: tuple[int, ...]) -> Tensor:
    """The gradient that comes from above in `forward_backward`."""
    return normal(shape, seed=2)


def forward_backward(function: Callable[[Tensor], Tensor], scores: Tensor) -> Step:
    """One call of `function` and one backward pass; the step returns the value and the gradient."""
    scores = scores.clone().requires_grad_()
    weight = upstream(tuple(scores.shape))

    def step() -> tuple[Tensor, Tensor]:
        y = function(scores)
        return y.detach(), torch.autograd.grad(y, scores, weight)[0]

    return step
