r"""The entropy of a softmax, value and slope in one pass over short rows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from argrad._checks import is_transformed
from argrad._kernels.threads import run_rows
from argrad._types import Float
from argrad.solvers._row_kernels import _kernels, _rows

SHORT = 32  # a longer row fills the vector lanes by itself
_FLOOR = -1000.0  # exp of it is 0 in every dtype, and 0 times it is 0


def softmax_entropy(scores: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    r"""$H(p) = A(\theta) - \langle p, \theta\rangle$ with $p = \mathrm{softmax}(\theta)$.

    $$ \frac{\partial H}{\partial\theta_i} = -p_i \, (\theta_i - \langle p, \theta\rangle) $$
    Scores of -inf are forbidden items: they add nothing and get slope 0. On the CPU, rows shorter than 32 take a
    kernel that returns value and slope together. O(n).

    Args:
        scores: $\theta$, shape `(*batch, n)`; each row with at least one finite score.

    Returns:
        Shape `(*batch,)`, never negative.

    Examples:
        >>> import torch
        >>> from argrad.solvers.entropy import softmax_entropy
        >>> softmax_entropy(torch.zeros(2, 4))  # log 4
        tensor([1.3863, 1.3863])
    """
    small = (
        scores.shape[-1] < SHORT
        and scores.dtype in (torch.float32, torch.float64)
        and scores.numel() > 0
    )
    if small and scores.device.type == "cpu" and not is_transformed():
        if torch.is_grad_enabled() and scores.requires_grad:
            return _Entropy.apply(scores)  # pyright: ignore[reportReturnType]
        return _by_kernel(scores)[0]
    # from the top down, else large scores cancel; no mask, which inductor would not vectorise
    below = (scores - scores.detach().amax(-1, keepdim=True)).clamp(min=_FLOOR)
    weight = below.exp()
    total = weight.sum(-1)
    return (total.log() - (weight * below).sum(-1) / total).clamp(min=0)


def _mean(scores: Tensor) -> Tensor:
    return (scores.softmax(-1) * scores.masked_fill(scores == -math.inf, 0.0)).sum(-1)


def _by_kernel(scores: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.empty(scores.shape[:-1], dtype=scores.dtype, device="cpu")
    slope = torch.empty_like(scores, memory_format=torch.contiguous_format)
    flat = _rows(scores)
    kernel, work = (
        _kernels("short_rows").entropy,
        4 * flat.size,
    )  # each takes as long as four plain numbers
    run_rows(kernel, len(flat), work, flat, value.view(-1).numpy(), _rows(slope))
    return value, slope


class _Entropy(torch.autograd.Function):
    """Never reached inside a transform, so it needs no vmap rule."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        value, slope = _by_kernel(scores)
        ctx.save_for_backward(scores, slope)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        scores, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants the second derivative
            finite = scores.masked_fill(scores == -math.inf, 0.0)
            slope = scores.softmax(-1) * (_mean(scores)[..., None] - finite)
        return slope * grads[0][..., None]
