r"""Tsallis-regularised choice of k items in plain torch: any device, traced or not.

The twin of `_kernels/tsallis.py` and `_kernels/deformed.py`; symbols as in `tsallis.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad.solvers.deformed import deformed_exp
from argrad.solvers.order import Size, kth_largest
from argrad.solvers.root import root

Order = float | Tensor  # a = alpha - 1: a float, or a tensor of shape (*batch, 1)


def centred(scores: Tensor, k: Size) -> Tensor:
    """Scores seen from the k-th largest; cut where the cap is certain, since u <= log n < 100."""
    return (scores - kth_largest(scores.detach(), k)).clamp(max=100.0)


def _totals(x: Tensor, u: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of z and of its slopes over the free items, and what the former must be."""
    z, s = deformed_exp(x, u, a)
    free = (z < 1) | (x <= 0)  # the k-th item and those below it reach 1 at u = 0, but not the cap
    total = torch.where(free, z, 0.0).sum(-1, keepdim=True)
    slope = torch.where(free, s, 0.0).sum(-1, keepdim=True)
    return total, slope, (k - (~free).sum(-1, keepdim=True)).to(x.dtype)


def _residual(x: Tensor, u: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor]:
    r"""Sum of z minus k (0 within rounding), and a Newton step on $(\sum z)^a$.

    In $\sum z$ itself Newton is slow where $\exp_a$ is strongly curved; the power makes the function
    convex for a <= 1, and linear for one item, or for a = 0 (where it means the logarithm).
    """
    total, slope, rest = _totals(x, u, k, a)
    value = total - rest
    noise = 2 * torch.finfo(x.dtype).eps * (total + rest.abs())
    straight = total * _minus_log_a(torch.log(total / rest), a)  # NaN if more than k items are capped
    step = torch.where(rest > 0, straight, value) / slope
    return torch.where(value.abs() <= noise, 0.0, value), _in_u(step, u, a)


def newton_step(x: Tensor, u: Tensor, k: Size, a: Order) -> Tensor:
    """The plain Newton step, 0 where nothing is free; differentiable."""
    total, slope, rest = _totals(x, u, k, a)
    free = slope > 0
    rise = slope * torch.exp(-a * u)  # -d total / du
    return torch.where(free, total - rest, 0.0) / torch.where(free, rise, 1.0)


def _in_u(step: Tensor, u: Tensor, a: Order) -> Tensor:
    r"""A step of $t$ as a step of $u = -\log(1 - a t)/a$; NaN beyond the end."""
    if not isinstance(a, Tensor):
        return step if a == 0.0 else -torch.log1p(-a * step * torch.exp(a * u)) / a
    bent = -torch.log1p(-a * step * torch.exp(a * u)) / torch.where(a == 0, 1.0, a)
    return torch.where(a == 0, step, bent)


def _minus_log_a(v: Tensor, a: Order) -> Tensor:
    r"""$(1 - e^{-a v})/a$, and $v$ at $a = 0$."""
    if not isinstance(a, Tensor):
        return v if a == 0.0 else -torch.expm1(-a * v) / a
    return torch.where(a == 0, v, -torch.expm1(-a * v) / torch.where(a == 0, 1.0, a))


def _threshold(x: Tensor, k: Size, a: Order) -> Tensor:
    """u of Eq. (2)."""
    low = torch.zeros_like(x[..., :1])
    spare = torch.as_tensor(x.shape[-1] - k + 1, device=x.device).clamp(min=1).to(x.dtype)
    high = (1.0 + spare.log()).expand(low.shape)  # room for steps to a root at the end
    return root(lambda u: _residual(x, u, k, a), low, high, _blind_steps(a))


def _blind_steps(a: Order) -> tuple[int, int]:
    """Newton needs 14 at most for a <= 1; beyond, slopes are infinite and half of the steps bisect."""
    if isinstance(a, Tensor):
        return 28, 36
    return (18, 24) if a <= 1 else (48, 80)


def solve(scores: Tensor, k: Size, a: Order) -> Tensor:
    """Eq. (1) in plain torch, its sum corrected to k by one last step in z itself; no gradient."""
    x = centred(scores, k)
    u = _threshold(x, k, a)
    z, s = deformed_exp(x, u, a)
    free = (z < 1) | ((x <= 0) & (u > 0))
    s = torch.where(free, s, 0.0)
    slope = s.sum(-1, keepdim=True)
    rest = k - (~free).sum(-1, keepdim=True)  # exact, where k minus the sum of all z would not be
    miss = (rest - torch.where(free, z, 0.0).sum(-1, keepdim=True)) / torch.where(slope > 0, slope, 1.0)
    # A free item never becomes 1: `z < 1` is how the backward pass knows that it can move.
    below_one = 1.0 - 0.5 * torch.finfo(z.dtype).eps
    z = torch.where(free, (z + s * miss).clamp(0.0, below_one), z)
    return answer_or_nan(z, scores, k, a)


def answer_or_nan(z: Tensor, scores: Tensor, k: Size, a: Order) -> Tensor:
    """0 where k is 0; NaN where scores, k or a are impossible but could not be read and refused before."""
    if isinstance(k, int) and k == 0:
        return torch.zeros_like(z)
    fine = scores.amax(-1, keepdim=True) < math.inf
    if isinstance(a, Tensor):
        fine = fine & (a >= 0)
    fine = fine & (k >= 0) & (k <= (scores > -math.inf).sum(-1, keepdim=True))
    z = torch.where(fine, z, math.nan)
    return torch.where(k == 0, 0.0, z) if isinstance(k, Tensor) else z
