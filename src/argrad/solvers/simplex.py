r"""Soft choice of one item: the arg max over the simplex of $\langle w, z \rangle - f(z)$.

Temperature is the caller's: `sparsemax(scores / tau)` solves the problem with $\tau f$. A score of
`-inf` is forbidden: exactly 0, with gradient exactly 0. The functions named `*_unrolled` have the
same values and are differentiated through the last steps of the solver instead of analytically.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from argrad._checks import (
    check_alpha,
    check_any_allowed,
    check_event,
    check_floating,
    check_scores,
)
from argrad._numerics import widen
from argrad._types import Float
from argrad.solvers.tsallis import Order, tsallis, tsallis_unrolled


def sparsemax(scores: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    r"""The point of the simplex nearest to the scores: a softmax with exact zeros.

    $$ z = \arg\max_{z \ge 0,\; \sum_i z_i = 1} \langle w, z \rangle - \tfrac12 \|z\|^2
         = (w - \theta)_+ $$
    Exact to rounding at any scale of the scores; O(n) a pass, about five passes. The gradient is
    analytic, $J g = s \circ (g - \langle s, g \rangle / \sum_i s_i)$ with $s = [z > 0]$.

    Args:
        scores: $w$, shape `(*batch, n)`; `-inf` is never chosen.

    Returns:
        $z$, the shape and dtype of `scores`; sums to 1.

    Examples:
        >>> import torch
        >>> sparsemax(torch.tensor([1.0, 0.8, -1.0]))
        tensor([0.6000, 0.4000, 0.0000])

    References: [martins2016], [condat2016].
    """
    x, _ = _clean("sparsemax", scores)
    return tsallis("sparsemax", x, 1, 1.0).to(scores.dtype)


def sparsemax_unrolled(scores: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """`sparsemax`, differentiated through the last steps of its solver."""
    x, _ = _clean("sparsemax_unrolled", scores)
    return tsallis_unrolled("sparsemax_unrolled", x, 1, 1.0).to(scores.dtype)


def entmax(
    scores: Float[Tensor, "*batch n"], alpha: float | Float[Tensor, "..."] = 1.5
) -> Float[Tensor, "*batch n"]:
    r"""From softmax ($\alpha = 1$) to sparsemax ($\alpha = 2$) and beyond.

    $$ z = \arg\max_{z \ge 0,\; \sum_i z_i = 1} \langle w, z \rangle
           - \frac{1}{\alpha(\alpha - 1)} \sum_i (z_i^\alpha - z_i)
         = \big(1 + (\alpha - 1)(w - \theta)\big)_+^{1/(\alpha - 1)} $$
    Exact to rounding for every $\alpha$, near 1 too, where the power is evaluated as a deformed
    exponential. O(n) a pass, about five passes. The gradient is analytic:
    $J g = s \circ (g - \langle s, g \rangle / \sum_i s_i)$ with $s_i = z_i^{2 - \alpha}$ on the support.

    Args:
        scores: $w$, shape `(*batch, n)`; `-inf` is never chosen.
        alpha: $\alpha \ge 1$; a float, or a tensor that broadcasts over the batch and may be trained.

    Returns:
        $z$, the shape and dtype of `scores`; sums to 1.

    Examples:
        >>> import torch
        >>> scores = torch.tensor([1.0, 0.8, -2.0])
        >>> entmax(scores, 1.5)
        tensor([0.5705, 0.4295, 0.0000])
        >>> alpha = torch.tensor(1.2, requires_grad=True)
        >>> entmax(scores, alpha)[0].backward()
        >>> alpha.grad.item() > 0
        True

    References: [peters2019], [correia2019].
    """
    x, a = _clean("entmax", scores, alpha)
    return _entmax("entmax", tsallis, x, a).to(scores.dtype)


def entmax_unrolled(
    scores: Float[Tensor, "*batch n"], alpha: float | Float[Tensor, "..."] = 1.5
) -> Float[Tensor, "*batch n"]:
    """`entmax`, differentiated through the last steps of its solver."""
    x, a = _clean("entmax_unrolled", scores, alpha)
    return _entmax("entmax_unrolled", tsallis_unrolled, x, a).to(scores.dtype)


def _entmax(call: str, solver: Callable[..., Tensor], scores: Tensor, a: Order) -> Tensor:
    if isinstance(a, Tensor) or a > 0:
        return solver(call, scores, 1, a)
    check_scores(call, "scores", scores)
    check_any_allowed(call, scores)
    return scores.softmax(-1)


def _clean(call: str, scores: Tensor, alpha: float | Tensor = 2.0) -> tuple[Tensor, Order]:
    """Scores to compute with, and alpha - 1 in a shape that `tsallis` takes."""
    check_floating(call, "scores", scores)
    check_event(call, "scores", scores, 1)
    x = widen(scores)
    a = check_alpha(call, alpha, x)
    return x, a.expand(*x.shape[:-1], 1) - 1.0 if isinstance(a, Tensor) else a - 1.0
