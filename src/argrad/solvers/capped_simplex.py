r"""Soft choice of k items: the arg max over $\{0 \le z \le 1, \sum_i z_i = k\}$ of $\langle w, z \rangle - f(z)$.

| function | $f$ | solution |
|---|---|---|
| `capped_euclidean` | $\frac12 \|z\|^2$ | $w - \nu$ cut to [0, 1] |
| `capped_tsallis` | $\sum_i (z_i^\alpha - z_i) / \alpha (\alpha - 1)$ | between its neighbours |
| `capped_entropy` | $\sum_i z_i \log z_i$ | $\min(1, e^{w - 1 - \nu})$ |
| `capped_binary_entropy` | $\sum_i z_i \log z_i + (1 - z_i) \log(1 - z_i)$ | $\sigma(w - \nu)$ |

The multiplier $\nu$ makes the sum k; with `at_most=True` the constraint is $\sum_i z_i \le k$, and so
$\nu \ge 0$. Temperature is the caller's: scores divided by $\tau$ solve the problem with $\tau f$.
`k` is an int or an integer tensor that broadcasts over the batch, from 0 to the number of allowed items
(any number with `at_most`). A score of `-inf` is forbidden: exactly 0, gradient exactly 0. Results sum
to k to rounding at any scale of the scores, in float32 too, and gradients are analytic, O(n). The
functions named `*_unrolled` are differentiated through the last steps of the solver instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from argrad._checks import check_alpha, check_event, check_floating, check_size
from argrad._numerics import widen
from argrad._types import Float, Int
from argrad.solvers.deformed import deformed_exp
from argrad.solvers.fermi import fermi, fermi_unrolled
from argrad.solvers.order import Size
from argrad.solvers.tsallis import Order, tsallis, tsallis_unrolled

Scores = Float[Tensor, "*batch n"]
K = int | Int[Tensor, "..."]


def capped_euclidean(scores: Scores, k: K, *, at_most: bool = False) -> Scores:
    r"""The nearest point with entries in [0, 1] that sum to k: a soft top-k with exact zeros and ones.

    $$ z = \arg\max_{0 \le z \le 1,\; \sum_i z_i = k} \langle w, z \rangle - \tfrac12 \|z\|^2
         = \mathrm{clip}(w - \nu, 0, 1) $$

    Args:
        scores: $w$, shape `(*batch, n)`; `-inf` is never chosen.
        k: how many items; an int, or an integer tensor that broadcasts over the batch.
        at_most: let the sum be less than k where that is better.

    Returns:
        $z$, the shape and dtype of `scores`.

    Examples:
        >>> import torch
        >>> scores = torch.tensor([2.0, 0.5, 0.25, -1.0])
        >>> capped_euclidean(scores, 2)
        tensor([1.0000, 0.6250, 0.3750, 0.0000])
        >>> capped_euclidean(scores, 3, at_most=True)
        tensor([1.0000, 0.5000, 0.2500, 0.0000])

    References: [paulus2020], [wang2015].
    """
    return _capped("capped_euclidean", tsallis, scores, k, at_most, 1.0, offset=1.0)


def capped_euclidean_unrolled(scores: Scores, k: K, *, at_most: bool = False) -> Scores:
    """`capped_euclidean`, differentiated through the last steps of its solver."""
    name = "capped_euclidean_unrolled"
    return _capped(name, tsallis_unrolled, scores, k, at_most, 1.0, offset=1.0)


def capped_entropy(scores: Scores, k: K, *, at_most: bool = False) -> Scores:
    r"""A softmax that sums to k, in which no item can exceed 1 ("categorical entropy" top-k).

    $$ z = \arg\max_{0 \le z \le 1,\; \sum_i z_i = k} \langle w, z \rangle - \sum_i z_i \log z_i
         = \min(1, e^{w - 1 - \nu}) $$

    Args:
        scores: $w$, shape `(*batch, n)`; `-inf` is never chosen.
        k: how many items; an int, or an integer tensor that broadcasts over the batch.
        at_most: let the sum be less than k where that is better.

    Returns:
        $z$, the shape and dtype of `scores`.

    Examples:
        >>> import torch
        >>> capped_entropy(torch.tensor([3.0, 0.0, 0.0, -1.0]), 2)
        tensor([1.0000, 0.4223, 0.4223, 0.1554])

    References: [paulus2020].
    """
    return _capped("capped_entropy", tsallis, scores, k, at_most, 0.0, offset=1.0)


def capped_entropy_unrolled(scores: Scores, k: K, *, at_most: bool = False) -> Scores:
    """`capped_entropy`, differentiated through the last steps of its solver."""
    return _capped("capped_entropy_unrolled", tsallis_unrolled, scores, k, at_most, 0.0, offset=1.0)


def capped_tsallis(
    scores: Scores, k: K, alpha: float | Float[Tensor, "..."] = 1.5, *, at_most: bool = False
) -> Scores:
    r"""Between `capped_entropy` ($\alpha = 1$) and `capped_euclidean` ($\alpha = 2$), and beyond.

    $$ z = \arg\max_{0 \le z \le 1,\; \sum_i z_i = k} \langle w, z \rangle
           - \frac{1}{\alpha(\alpha - 1)} \sum_i (z_i^\alpha - z_i) $$
    The linear term is constant where the sum is k. With `at_most` it counts: $\alpha = 2$ then equals
    `capped_euclidean` of scores that are greater by 1/2.

    Args:
        scores: $w$, shape `(*batch, n)`; `-inf` is never chosen.
        k: how many items; an int, or an integer tensor that broadcasts over the batch.
        alpha: $\alpha \ge 1$; a float, or a tensor that broadcasts over the batch and may be trained.
        at_most: let the sum be less than k where that is better.

    Returns:
        $z$, the shape and dtype of `scores`.

    Examples:
        >>> import torch
        >>> capped_tsallis(torch.tensor([3.0, 0.0, 0.0, -1.0]), 2, alpha=1.5)
        tensor([1.0000, 0.4812, 0.4812, 0.0375])

    References: [peters2019], [blondel2020].
    """
    return _tsallis("capped_tsallis", tsallis, scores, k, alpha, at_most)


def capped_tsallis_unrolled(
    scores: Scores, k: K, alpha: float | Float[Tensor, "..."] = 1.5, *, at_most: bool = False
) -> Scores:
    """`capped_tsallis`, differentiated through the last steps of its solver."""
    return _tsallis("capped_tsallis_unrolled", tsallis_unrolled, scores, k, alpha, at_most)


def capped_binary_entropy(scores: Scores, k: K, *, at_most: bool = False) -> Scores:
    r"""Sigmoids with one shared threshold, chosen such that they sum to k.

    $$ z = \arg\max_{\sum_i z_i = k} \langle w, z \rangle - \sum_i z_i \log z_i + (1 - z_i) \log(1 - z_i)
         = \sigma(w - \nu) $$

    Args:
        scores: $w$, shape `(*batch, n)`; `-inf` is never chosen.
        k: how many items; an int, or an integer tensor that broadcasts over the batch.
        at_most: let the sum be less than k where that is better.

    Returns:
        $z$, the shape and dtype of `scores`.

    Examples:
        >>> import torch
        >>> capped_binary_entropy(torch.tensor([3.0, 0.0, 0.0, -3.0]), 2)
        tensor([0.9526, 0.5000, 0.5000, 0.0474])

    References: [paulus2020], [amos2019].
    """
    return _fermi("capped_binary_entropy", fermi, scores, k, at_most)


def capped_binary_entropy_unrolled(scores: Scores, k: K, *, at_most: bool = False) -> Scores:
    """`capped_binary_entropy`, differentiated through the last steps of its solver."""
    return _fermi("capped_binary_entropy_unrolled", fermi_unrolled, scores, k, at_most)


# ---- from arguments to problems ------------------------------------------------------------------


def _clean(call: str, scores: Tensor, k: object, at_most: bool) -> tuple[Tensor, Size]:
    check_floating(call, "scores", scores)
    check_event(call, "scores", scores, 1)
    return widen(scores), check_size(call, k, scores, at_most)


def _tsallis(
    call: str, solver: Callable[..., Tensor], scores: Tensor, k: object, alpha: object, at_most: bool
) -> Tensor:
    check_floating(call, "scores", scores)
    alpha = check_alpha(call, alpha, widen(scores))
    if isinstance(alpha, Tensor):
        alpha = alpha.expand(*scores.shape[:-1], 1)
    return _capped(call, solver, scores, k, at_most, alpha - 1.0, offset=1.0 / alpha)


def _capped(
    call: str,
    solver: Callable[..., Tensor],
    scores: Tensor,
    k: object,
    at_most: bool,
    a: Order,
    offset: Order,
) -> Tensor:
    x, size = _clean(call, scores, k, at_most)
    if not at_most:
        return solver(call, x, size, a).to(scores.dtype)
    loose, _ = deformed_exp((x - offset).clamp(max=100.0), x.new_zeros(()), a)  # nu = 0
    return _tighten(loose, size, lambda size: solver(call, x, size, a), x).to(scores.dtype)


def _fermi(
    call: str, solver: Callable[..., Tensor], scores: Tensor, k: object, at_most: bool
) -> Tensor:
    x, size = _clean(call, scores, k, at_most)
    if not at_most:
        return solver(call, x, size).to(scores.dtype)
    return _tighten(x.sigmoid(), size, lambda size: solver(call, x, size), x).to(scores.dtype)


def _tighten(loose: Tensor, k: Size, solve: Callable[[Size], Tensor], scores: Tensor) -> Tensor:
    """The unconstrained solution where it sums to at most k, elsewhere the one that sums to k."""
    allowed = (scores > -math.inf).sum(-1, keepdim=True)
    fits = loose.detach().sum(-1, keepdim=True) <= k
    return torch.where(fits, loose, solve(torch.clamp(allowed, max=k)))
