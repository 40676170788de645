r"""Sets of $k$ of $n$ items, in plain torch: a balanced tree of Poisson-binomial distributions.

For any tilt $c$ and independent items chosen with $p_i = \sigma(\theta_i - c)$, $S$ of them in all,

$$ \sum_{|z| = k} e^{\langle \theta, z \rangle} = e^{ck} \prod_i (1 + e^{\theta_i - c}) \; P(S = k) \tag{1} $$

With $E S = k$ the last factor is the mode of $S$, of order $1/\sqrt n$, and everything needed for it is a
probability made of sums of positive products: float32 is accurate to rounding at any scale of the scores,
without a logarithm on the way. $c$ is a constant to autograd, since (1) holds whatever it is.

Node $i$ of level $l$ has the distribution of the count among items $i 2^l$ to $(i + 1) 2^l - 1$, cut at $k$.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from argrad.solvers._convolution import convolve, correlate
from argrad.solvers._family import pick

# From its start between two order statistics, Newton's method is within a third of a standard
# deviation after 6 steps for normal, Cauchy, two-valued and shifted scores of scale 0 to 1e4.
NEWTON_STEPS = 8


def tilt(scores: Tensor, k: int | Tensor, at_most: bool = False) -> Tensor:
    """c, shape `(*batch, 1)`: items chosen with probability sigmoid(scores - c) are k on average.

    k = 0 and k = n, where c is infinite, aim half an item off: P(S = k) is at least 1/2 there.
    """
    x = scores.detach()
    allowed = x > -math.inf
    n = allowed.sum(-1, keepdim=True).clamp(min=1)
    size = k[..., None] if isinstance(k, Tensor) else torch.full_like(n, k)
    target = torch.minimum(size.to(x.dtype).clamp(min=0.5), n - 0.5)
    odds = torch.log(target / (n - target))
    order = x.masked_fill(~allowed.any(-1, keepdim=True), 0.0).sort(-1, descending=True).values
    low, high = order.gather(-1, n - 1) - odds, order[..., :1] - odds
    last = torch.minimum(size, n) - 1
    c = order.gather(-1, last.clamp(min=0)) + order.gather(-1, torch.minimum(size, n - 1).clamp(min=0))
    c = c / 2
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(x - c)
        mean, variance = p.sum(-1, keepdim=True), (p * (1 - p)).sum(-1, keepdim=True)
        low, high = torch.where(mean > target, c, low), torch.where(mean > target, high, c)
        slope = variance * n / (mean * (n - mean))
        step = c + (torch.log(mean / (n - mean)) - odds) / slope
        step = torch.where((low < step) & (step < high), step, (low + high) / 2)
        c = torch.where((mean - target) ** 2 <= (0.01 * variance).clamp(min=1e-4), c, step)
    # at most k: only down to k, so that all weights at the root are at most 1
    return torch.where(size < n, c, 0.0).clamp(min=0.0) if at_most else c


def grow(x: Tensor, most: int) -> list[Tensor]:
    """Levels `(*batch, nodes, counts)` from the items to the root, for log odds `x`."""
    n = x.shape[-1]
    levels = max(n - 1, 0).bit_length()
    x = functional.pad(x, (0, (1 << levels) - n), value=-math.inf)
    tree = [torch.stack([torch.sigmoid(-x), torch.sigmoid(x)], -1)]
    for _ in range(levels):
        a, b = tree[-1][..., 0::2, :], tree[-1][..., 1::2, :]
        tree.append(convolve(a, b, min(2 * a.shape[-1] - 1, max(most, 1) + 1)))
    return tree


def _root_weights(size: int, k: int | Tensor, c: Tensor, at_most: bool) -> Tensor:
    """Weight of each count at the root: 1 at k alone, or exp(c (count - k)) up to k."""
    column = k[..., None] if isinstance(k, Tensor) else k
    missing = column - torch.arange(size, device=c.device)
    if at_most:
        return torch.where(missing >= 0, torch.exp(-c * missing.clamp(min=0)), 0.0)
    return (missing == 0).to(c.dtype).expand(*c.shape[:-1], size)


def _plant(scores: Tensor, k: int | Tensor, at_most: bool) -> tuple[Tensor, list[Tensor], Tensor]:
    """Tilt, tree, weights at the root."""
    c = tilt(scores, k, at_most)
    tree = grow(scores - c, scores.shape[-1] if isinstance(k, Tensor) else k)
    return c, tree, _root_weights(tree[-1].shape[-1], k, c, at_most)


def log_partition(scores: Tensor, k: int | Tensor, at_most: bool) -> Tensor:
    """Eq. (1); -inf with gradient 0 where fewer than k items are allowed."""
    scores, before = _centred(scores, k, at_most)
    c, tree, weights = _plant(scores, k, at_most)
    return before + _log_partition(scores, k, at_most, c, (weights * tree[-1][..., 0, :]).sum(-1))


def _centred(scores: Tensor, k: int | Tensor, at_most: bool) -> tuple[Tensor, Tensor | float]:
    """Scores less the k-th largest, and what that takes from log Z: beside 1e38 no tilt could tell two sets apart."""
    if at_most:  # where a constant changes the law
        return scores, 0.0
    x = scores.detach()
    last = (x > -math.inf).sum(-1, keepdim=True) - 1
    place = (k[..., None] if isinstance(k, Tensor) else torch.full_like(last, k)) - 1
    at = torch.minimum(place, last).clamp(min=0)
    middle = x.sort(-1, descending=True).values.gather(-1, at)
    middle = torch.where(middle > -math.inf, middle, 0.0)
    return scores - middle, middle[..., 0] * k


def _log_partition(scores: Tensor, k: int | Tensor, at_most: bool, c: Tensor, chance: Tensor) -> Tensor:
    none = (chance == 0) if at_most else ((scores > -math.inf).sum(-1) < k)
    # softplus(x) = x from 40 on (torch's default, 20, loses 1e-9)
    constant = c[..., 0] * k + functional.softplus(scores - c, threshold=40.0).sum(-1)
    return (constant + torch.log(torch.where(none, 1.0, chance))).masked_fill(none, -math.inf)


def infer(scores: Tensor, k: int | Tensor, at_most: bool) -> tuple[Tensor, Tensor]:
    """log Z, and p_i P(the others count k - 1) / P(all count k), whose second factor is passed down the tree."""
    scores, before = _centred(scores, k, at_most)
    c, tree, weights = _plant(scores, k, at_most)
    outer = weights[..., None, :]
    chance = (outer * tree[-1]).sum(-1)
    for level in reversed(tree[:-1]):
        a, b = level[..., 0::2, :], level[..., 1::2, :]
        sides = [correlate(outer, b, b.shape[-1]), correlate(outer, a, a.shape[-1])]
        outer = torch.stack(sides, -2).flatten(-3, -2)
    chosen = (tree[0] * outer)[..., : scores.shape[-1], 1]
    log_z = before + _log_partition(scores, k, at_most, c, chance[..., 0])
    return log_z, chosen / torch.where(chance > 0, chance, 1.0)


def sample(scores: Tensor, k: int | Tensor, at_most: bool, uniform: Tensor) -> Tensor:
    """Sets `(*sample, *batch, n)`: the count of a node is split between its children, from the root down.

    The split uses the uniform in the column of the right child's first item; column 0 is the root's.
    """
    scores, _ = _centred(scores, k, at_most)
    _, tree, weights = _plant(scores, k, at_most)
    n = scores.shape[-1]
    count = pick(weights * tree[-1][..., 0, :], uniform[..., 0])[..., None]
    uniform = functional.pad(uniform, (0, tree[0].shape[-2] - n))
    for level in reversed(tree[:-1]):
        a, b = level[..., 0::2, :], level[..., 1::2, :]
        half = tree[0].shape[-2] // level.shape[-2]
        rest = count[..., None] - torch.arange(a.shape[-1], device=a.device)
        possible = (rest >= 0) & (rest < b.shape[-1])
        right = torch.take_along_dim(b.expand(rest.shape), rest.clamp(0, b.shape[-1] - 1), -1)
        left = pick(a * right * possible, uniform[..., half :: 2 * half])
        count = torch.stack([left, count - left], -1).flatten(-2)
    return count[..., :n].to(scores.dtype)
