r"""Elementary functions that keep their accuracy (and their gradients) at the ends of the range.

Every function here is one formula. `-inf` means "log of zero" and is a legal input; gradients at
such inputs are exactly 0, never NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import is_transformed

# Any finite number that stands for log 0 where -inf would poison a second derivative.
LOG_ZERO = -1e30


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype arithmetic is done in: float32 for half and bfloat16, otherwise unchanged."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widen(x: Tensor) -> Tensor:
    """`x` in its `compute_dtype`."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def log1mexp(x: Tensor) -> Tensor:
    r"""$\log(1 - e^{x})$ for $x \le 0$, accurate to a few ulp; `-inf` at 0.

    Switches between `log(-expm1(x))` and `log1p(-exp(x))` at $-\log 2$ [maechler2012]. Both branches
    see a safe argument, so that the gradient of the branch not taken cannot be NaN.
    """
    near_zero = x > -math.log(2.0)
    zero = x == 0
    safe_near = torch.where(near_zero & ~zero, x, -0.5)
    safe_far = torch.where(near_zero, -1.0, x)
    near = torch.log(-torch.expm1(safe_near))
    far = torch.log1p(-torch.exp(safe_far))
    return torch.where(near_zero, near.masked_fill(zero, -math.inf), far)


def logsumexp(x: Tensor, dim: int | tuple[int, ...] = -1, keepdim: bool = False) -> Tensor:
    r"""$\log \sum_i e^{x_i}$, with value `-inf` and gradient 0 (not NaN) where every $x_i$ is `-inf`.

    `torch.logsumexp` has the value but a NaN gradient there.
    """
    if isinstance(dim, tuple) and len(dim) == 0:
        return x
    peak = x.detach().amax(dim, keepdim=True)
    peak = peak.masked_fill(peak == -math.inf, 0.0)
    total = torch.exp(x - peak).sum(dim, keepdim=True)
    empty = total == 0
    result = torch.log(total.masked_fill(empty, 1.0)).masked_fill(empty, -math.inf) + peak
    return result if keepdim else result.squeeze(dim)


def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    r"""$\log(e^a + e^b)$ with finite first and second derivatives next to `LOG_ZERO` or `-inf`.

    `torch.logaddexp` has NaN second derivatives there; a `logsumexp` over the stacked pair has not.
    """
    return logsumexp(torch.stack(torch.broadcast_tensors(a, b)), 0)


def masked_scores(scores: Tensor, mask: Tensor | None, fill: float = -math.inf) -> Tensor:
    """Scores with every forbidden item at `fill`; gradients of forbidden items are exactly 0."""
    return scores if mask is None else scores.masked_fill(~mask, fill)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    r"""$x \log y$, and 0 with gradient 0 where $x = 0$ (also when $y = 0$)."""
    zero = x == 0
    return torch.where(zero, 0.0, x * torch.log(torch.where(zero, 1.0, y)))


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]`, which on the meta device fails for an index without dimensions."""
    flat = table.index_select(0, index.reshape(-1).to(torch.int64))
    return flat.reshape((*index.shape, *table.shape[1:]))


def one_hot(index: Tensor, like: Tensor) -> Tensor:
    """1 at `index` `(*batch, k)` of the last dimension and 0 elsewhere; shape and dtype of `like`."""
    zero = torch.zeros_like(like)
    # in place saves a copy, but vmap has no rule for it
    return zero.scatter(-1, index, 1) if is_transformed() else zero.scatter_(-1, index, 1)
