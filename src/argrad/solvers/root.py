r"""Roots of many decreasing functions of one variable at once: Newton inside a bracket."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from argrad._checks import can_read
from argrad._types import Float

Residual = Callable[[Tensor], tuple[Tensor, Tensor]]

# Steps taken where values cannot be read (an accelerator, `torch.compile`, `torch.func`). Elsewhere
# the loop ends when every row has; on the problems of this library that is after 3 to 12 steps.
_BLIND_STEPS = {torch.float32: 24, torch.float64: 32}
_MAX_STEPS = 200


def root(
    residual: Residual, low: Float[Tensor, "*shape"], high: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    r"""$t$ with $F(t) = 0$ for decreasing $F$, $F(\mathrm{low}) \ge 0 \ge F(\mathrm{high})$, row by row.

    Starts at `low`. A proposed step is taken if it stays in the bracket and is at most half of the
    step before last, otherwise the bracket is halved; so two steps gain at least one bit, and Newton
    proposals double the number of right digits. A row is done when $F = 0$ or a step no longer moves
    $t$.

    Args:
        residual: $t \mapsto (F(t), \mathrm{step})$, the Newton step or a better one; a step that is
            NaN or infinite counts as refused.
        low: where $F \ge 0$.
        high: where $F \le 0$.

    Returns:
        $t$, accurate to rounding; without gradient.

    Examples:
        >>> import torch
        >>> square = torch.tensor([2.0, 9.0])
        >>> root(lambda t: (square - t * t, (square - t * t) / (2 * t)), torch.ones(2), square)
        tensor([1.4142, 3.0000])
    """
    tiny = 2 * torch.finfo(low.dtype).eps
    blind = not can_read(low)
    t, before = low, high - low
    last = before
    for _ in range(_BLIND_STEPS[low.dtype] if blind else _MAX_STEPS):
        value, step = residual(t)
        low, high = torch.where(value >= 0, t, low), torch.where(value <= 0, t, high)
        target, size = t + step, step.abs()
        still = (value == 0) | (size <= tiny * t.abs())
        taken = (target >= low) & (target <= high) & (2 * size <= before)
        new = torch.where(taken, target, 0.5 * (low + high))
        new = torch.where(still, torch.where(value == 0, t, target), new)
        before, last, t = last, (new - t).abs(), new
        if not blind and bool(still.all()):
            break
    return t
