r"""k of n items on a line with scores for neighbours, in plain torch: a balanced tree.

Node $i$ of level $l$ has, for items $i 2^l$ to $(i+1) 2^l - 1$, the log-weight $x(a, b, t)$ of choosing t of them with
bits a and b at the two ends. Two neighbours L and R, with score w for choosing both ends that meet, merge to

$$ x(a, b, t) = \log \sum_{b', a', i} \exp\{ L(a, b', t - i) + w\, b' a' + R(a', b, i) \} \tag{1} $$

so that depth is $O(\log n)$. With maxima for sums the same tree gives the best choice. In logarithms: an
attraction of neighbours can make the count wanted rarer than any float, whatever the tilt. The tilt (a
constant off all unary scores) and each node's maximum are taken out, which keeps the digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from argrad._numerics import logsumexp
from argrad.solvers._family import pick
from argrad.solvers._subset_torch import tilt

Reduce = Callable[[Tensor, tuple[int, ...]], Tensor]


def _windows(x: Tensor, width: int) -> Tensor:
    """out[i, t] = x[i + t], shape `(*batch, width, size - width + 1)`.

    As `x.unfold(-1, width, 1).mT`, whose derivative has no batching rule: copies of x, one to a row,
    read with a row length of one more.
    """
    size = x.shape[-1]
    copies = x[..., None, :].expand(*x.shape[:-1], width + 1, size).flatten(-2)
    skewed = copies[..., : width * (size + 1)].unflatten(-1, (width, size + 1))
    return skewed[..., : size - width + 1]


def _pair_scores(w: Tensor) -> Tensor:
    """`(*batch, nodes, 2, 2)`: w where both bits are 1, otherwise 0."""
    zero = torch.zeros_like(w)
    return torch.stack([zero, zero, zero, w], -1).unflatten(-1, (2, 2))


def _merge(left: Tensor, right: Tensor, w: Tensor, size: int, reduce: Reduce) -> Tensor:
    """Eq. (1) for t < size; first over a', then over b' and i."""
    d = left.shape[-1]
    met = reduce(_pair_scores(w)[..., None, None] + right[..., None, :, :, :], (-3,))  # (b', b, i)
    slid = _windows(functional.pad(left, (d - 1, size - d), value=-math.inf), d)  # (a, b', i, t)
    both = slid[..., :, :, None, :, :] + met.flip(-1)[..., None, :, :, :, None]  # (a, b', b, i, t)
    return reduce(both, (-4, -2))


def _leaves(unary: Tensor) -> Tensor:
    """`(*batch, items, 2, 2, 2)`: bits at both ends and count are the same bit."""
    never = torch.full_like(unary, -math.inf)
    cells = [torch.zeros_like(unary), *[never] * 6, unary]
    return torch.stack(cells, -1).unflatten(-1, (2, 2, 2))


def _grow(scores: Tensor, most: int, reduce: Reduce) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Levels from the items to the root, the pair scores of each merge, and what was taken out in all."""
    n = (scores.shape[-1] + 1) // 2
    levels = (n - 1).bit_length()
    unary = functional.pad(scores[..., :n], (0, (1 << levels) - n), value=-math.inf)
    pairs = functional.pad(scores[..., n:], (0, (1 << levels) - n))
    tree, joints, total = [_leaves(unary)], [], torch.zeros_like(scores[..., 0])
    for level in range(levels):
        left, right = tree[-1][..., 0::2, :, :, :], tree[-1][..., 1::2, :, :, :]
        joints.append(pairs[..., (1 << level) - 1 :: 2 << level])
        x = _merge(left, right, joints[-1], min(2 * left.shape[-1] - 1, max(most, 1) + 1), reduce)
        peak = x.detach().amax((-3, -2, -1), keepdim=True)
        peak = peak.masked_fill(peak == -math.inf, 0.0)
        tree.append(x - peak)
        total = total + peak.sum((-4, -3, -2, -1))
    return tree, joints, total


def _plant(
    scores: Tensor, k: int | Tensor, reduce: Reduce
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """As `_grow`, tilted; and the root's four log-weights at count k, `(*batch, 2, 2)`, complete."""
    n = (scores.shape[-1] + 1) // 2
    c = tilt(scores[..., :n], k)
    tilted = torch.cat([scores[..., :n] - c, scores[..., n:]], -1)
    tree, joints, total = _grow(tilted, n if isinstance(k, Tensor) else k, reduce)
    root = tree[-1][..., 0, :, :, :]
    column = (k if isinstance(k, Tensor) else torch.full_like(c[..., 0], k, dtype=torch.int64))[
        ..., None
    ]
    inside = (column >= 0) & (column < root.shape[-1])
    index = column.clamp(0, root.shape[-1] - 1)[..., None, None].expand(*root.shape[:-1], 1)
    ends = root.gather(-1, index)[..., 0].masked_fill(~inside[..., None], -math.inf)
    return tree, joints, ends + (total + c[..., 0] * k)[..., None, None]


def log_partition(scores: Tensor, k: int | Tensor) -> Tensor:
    """log Z; -inf with gradient 0 where nothing is allowed."""
    return logsumexp(_plant(scores, k, logsumexp)[2], (-2, -1))


def infer(scores: Tensor, k: int | Tensor) -> tuple[Tensor, Tensor]:
    """log Z and its gradient, the marginals."""

    def total(x: Tensor) -> tuple[Tensor, Tensor]:
        log_z = log_partition(x, k)
        return log_z.masked_fill(log_z == -math.inf, 0.0).sum(), log_z

    mu, log_z = torch.func.grad(total, has_aux=True)(scores)
    return log_z, mu


def argmax(scores: Tensor, k: int | Tensor) -> tuple[Tensor, Tensor]:
    """The best bits and their score."""
    tree, joints, ends = _plant(scores, k, lambda x, dims: x.amax(dims))
    return _descend(tree, joints, ends, k, lambda x, _: x.argmax(-1), None), ends.amax((-2, -1))


def sample(scores: Tensor, k: int | Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Bits `(*sample, *batch, n)` and log Z."""
    tree, joints, ends = _plant(scores, k, logsumexp)

    def choose(x: Tensor, u: Tensor | None) -> Tensor:
        peak = x.amax(-1, keepdim=True)
        assert u is not None
        return pick(torch.exp(x - peak.masked_fill(peak == -math.inf, 0.0)), u)

    return _descend(tree, joints, ends, k, choose, uniform), logsumexp(ends, (-2, -1))


def _descend(
    tree: list[Tensor],
    joints: list[Tensor],
    ends: Tensor,
    k: int | Tensor,
    choose: Callable[[Tensor, Tensor | None], Tensor],
    uniform: Tensor | None,
) -> Tensor:
    """Bits, by choosing how each node's (a, b, count) splits between its children, from the root down.

    The choice uses the uniform in the column of the right child's first item; column 0 is the root's.
    Candidates come in an order that has the earliest items first, for ties.
    """
    items = tree[0].shape[-4]
    if uniform is not None:
        n = uniform.shape[-1]
        uniform = functional.pad(uniform, (0, items - n))
    else:
        n = items
    state = choose(ends.flip(-2).flatten(-2), None if uniform is None else uniform[..., 0])[..., None]
    a, b = 1 - state // 2, state % 2
    count = k[..., None].expand(state.shape) if isinstance(k, Tensor) else torch.full_like(state, k)
    for level, w in zip(reversed(tree[:-1]), reversed(joints), strict=True):
        half = items // level.shape[-4]
        u = None if uniform is None else uniform[..., half :: 2 * half]
        a, b, count = _split(level, w, a, b, count, lambda x, u=u: choose(x, u))
    return a[..., :n]


def _split(
    level: Tensor, w: Tensor, a: Tensor, b: Tensor, count: Tensor, choose: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """States of a level's nodes from those of their parents."""
    left, right = level[..., 0::2, :, :, :], level[..., 1::2, :, :, :]
    d = level.shape[-1]
    left = torch.where((a == 1)[..., None, None], left[..., 1, :, :], left[..., 0, :, :])  # (b', j)
    right = torch.where((b == 1)[..., None, None], right[..., 1, :], right[..., 0, :])  # (a', i)
    rest = count[..., None] - torch.arange(d, device=level.device)
    index = rest.clamp(0, d - 1)[..., None, :].expand(right.shape)
    possible = ((rest >= 0) & (rest < d))[..., None, :]
    right = right.gather(-1, index).masked_fill(~possible, -math.inf)  # (a', j)
    x = left[..., :, None, :] + right[..., None, :, :] + _pair_scores(w)[..., None]  # (b', a', j)
    index = choose(x.flip((-2, -1)).movedim(-1, -3).flatten(-3))
    j, end, start = d - 1 - index // 4, index // 2 % 2, 1 - index % 2
    join = lambda x, y: torch.stack([x, y], -1).flatten(-2)  # noqa: E731
    return join(a, start), join(end, b), join(j, count - j)
