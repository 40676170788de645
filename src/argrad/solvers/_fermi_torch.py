r"""Sigmoids that sum to k in plain torch: any device, traced or not.

The twin of `_kernels/fermi.py`; symbols as in `fermi.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from argrad.solvers.order import Size, gap
from argrad.solvers.root import root

# From here on a sigmoid is an exponential to the last digit of float64, and t does not depend on d.
_WIDE = 40.0


class View(NamedTuple):
    """Scores seen from the gap between the best k items and the others."""

    y: Tensor  # p - w or w - r: minus the distance from the gap, <= 0
    best: Tensor  # w >= p
    surplus: Tensor  # how many more than k those are; above 0 only if p = r
    d: Tensor  # half the gap

    @property
    def weight(self) -> Tensor:
        """The odds at t = 0, of being left out (best items) or let in (others)."""
        return torch.exp(self.y - self.d.clamp(max=_WIDE))

    @staticmethod
    def of(scores: Tensor, k: Size) -> View:
        p, r = gap(scores, k)
        r = torch.where(r > -math.inf, r, p)  # all that is allowed is chosen: no gap to look at
        best = scores >= p
        y = torch.where(best, p - scores, scores - r)
        surplus = (best.sum(-1, keepdim=True) - k).clamp(min=0)
        return View(y, best, surplus.to(y.dtype), 0.5 * (p - r))

    def with_scores(self, scores: Tensor) -> View:
        """The same view, differentiable in the scores."""
        forbidden = scores == -math.inf
        change = torch.where(forbidden, 0.0, scores) - torch.where(forbidden, 0.0, scores).detach()
        return self._replace(y=self.y + torch.where(self.best, -change, change))

    def centred(self, t: Tensor) -> Tensor:
        """w - nu, from the distances, so that no digits are lost."""
        return torch.where(self.best, (self.d - t) - self.y, self.y - (self.d + t))

    def residual(self, t: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """R - L and the Newton step on log R - log L, Eq. (2)."""
        rise = torch.exp(t)
        odds = weight * torch.where(self.best, rise, 1.0 / rise)
        share = odds / (1.0 + odds)
        s = share / (1.0 + odds)
        lack, hold = _split(share, self.best)
        lack_slope, hold_slope = _split(s, self.best)
        hold = hold + self.surplus
        # 0 means that there are no such items, and that all is decided
        hold, lack = (torch.where(x > 0, x, 1.0) for x in (hold, lack))
        step = torch.log(hold / lack) / (hold_slope / hold + lack_slope / lack)
        value = hold - lack
        noise = 2 * torch.finfo(value.dtype).eps * (hold + lack)
        return torch.where(value.abs() <= noise, 0.0, value), step


def _split(x: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the best items and over the others."""
    others = torch.where(best, 0.0, x)
    return torch.where(best, x, 0.0).sum(-1, keepdim=True), others.sum(-1, keepdim=True)


def bracket(view: View, k: Size) -> tuple[Tensor, Tensor]:
    """Eq. (2) with some room: a root at an end must not make Newton's step look wrong."""
    n = view.y.shape[-1]
    size = torch.as_tensor(k, device=view.d.device).clamp(1, max(n - 1, 1)).to(view.d.dtype)
    low, high = -1.0 - size.log(), 1.0 + (n - size).clamp(min=1).log()
    return low.expand(view.d.shape), high.expand(view.d.shape)


def solve(scores: Tensor, k: Size) -> tuple[Tensor, Tensor]:
    """Eq. (1) and 1 - z, each to its own relative accuracy; no gradient."""
    view = View.of(scores, k)
    weight = view.weight
    u = view.centred(root(lambda t: view.residual(t, weight), *bracket(view, k)))
    z, rest = u.sigmoid(), (-u).sigmoid()
    s = z * rest
    slope = s.sum(-1, keepdim=True)
    lack, hold = _split(torch.where(view.best, rest, z), view.best)
    miss = lack - hold - view.surplus  # k minus the sum of z, without their cancellation
    shift = s * (miss / torch.where(slope > 0, slope, 1.0))
    z = answer_or_nan((z + shift).clamp(0.0, 1.0), scores, k)
    return z, answer_or_nan((rest - shift).clamp(0.0, 1.0), scores, k, complement=True)


def answer_or_nan(z: Tensor, scores: Tensor, k: Size, complement: bool = False) -> Tensor:
    """All 0 where k is 0, all allowed items 1 where k is their number; NaN where that is impossible."""
    allowed = scores > -math.inf
    count = allowed.sum(-1, keepdim=True)
    k = torch.as_tensor(k, device=z.device)
    full = (allowed ^ complement).to(z.dtype)
    z = torch.where(k == count, full, z)
    z = torch.where(k == 0, float(complement), z)
    fine = (scores.amax(-1, keepdim=True) < math.inf) & (k >= 0) & (k <= count)
    return torch.where(fine, z, math.nan)
