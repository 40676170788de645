r"""Roots of many decreasing functions of one variable at once: Newton inside a bracket."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from argrad._checks import can_read
from argrad._types import Float

Residual = Callable[[Tensor], tuple[Tensor, Tensor]]

_MAX_STEPS = 200  # more than twice the bits of float64, which is enough whatever the function


def root(
    residual: Residual,
    low: Float[Tensor, "*shape"],
    high: Float[Tensor, "*shape"],
    blind_steps: tuple[int, int] = (18, 24),
) -> Float[Tensor, "*shape"]:
    r"""$t$ with $F(t) = 0$ for decreasing $F$, $F(\mathrm{low}) \ge 0 \ge F(\mathrm{high})$, row by row.

    Starts at `low`. A proposed step is taken if it stays in the bracket and is at most half of the
    step before last, otherwise the bracket is halved; so two steps gain at least one bit, and Newton
    proposals double the number of right digits. A row is done when $F = 0$, when a step no longer
    moves $t$, or when the bracket has no number inside (then $F(t) \ge 0$).

    Args:
        residual: $t \mapsto (F(t), \mathrm{step})$, the Newton step or a better one; a step that is
            NaN or infinite counts as refused.
        low: where $F \ge 0$.
        high: where $F \le 0$.
        blind_steps: how many steps to take in float32 and float64 where values cannot be read (an
            accelerator, `torch.compile`, `torch.func`), so that no row can say that it is done.

    Returns:
        $t$, accurate to rounding of $1 + |t|$; without gradient.

    Examples:
        >>> import torch
        >>> square = torch.tensor([2.0, 9.0])
        >>> root(lambda t: (square - t * t, (square - t * t) / (2 * t)), torch.ones(2), square)
        tensor([1.4142, 3.0000])
    """
    tiny = torch.finfo(low.dtype).eps
    blind = not can_read(low)
    steps = blind_steps[low.dtype == torch.float64] if blind else _MAX_STEPS
    t, last, before = low, high - low, high - low
    for _ in range(steps):
        value, step = residual(t)
        low, high = torch.where(value >= 0, t, low), torch.where(value <= 0, t, high)
        target, size, middle = t + step, step.abs(), 0.5 * (low + high)
        ulp = tiny * (1.0 + t.abs())
        found = (value == 0) | (size <= ulp)
        closed = ~found & (high - low <= ulp)
        taken = (target >= low) & (target <= high) & (2 * size <= before)
        new = torch.where(closed, low, torch.where(taken, target, middle))
        new = torch.where(found, t, new)
        before, last, t = last, (new - t).abs(), new
        if not blind and bool((found | closed).all()):
            break
    return t
