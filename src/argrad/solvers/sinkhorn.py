r"""Sinkhorn: the entropic relaxation of a permutation, to a tolerance, with an implicit derivative.

Twenty fixed iterations, the usual choice, are not doubly stochastic below $\tau \approx 0.3$: at
$\tau = 0.01$ their row sums are off by 3. Here the dual is solved by annealing and Newton's method, so
that small temperatures cost no more than large ones, and the backward pass is one linear system.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import (
    can_read,
    check_any_allowed,
    check_count,
    check_floating,
    check_scores,
    check_square_event,
    describe,
    fail,
)
from argrad._numerics import logsumexp, widen
from argrad._types import Float
from argrad.solvers.transport import Transport, check_matrix, transport

_UNEQUAL = "For unequal sides use `entropic_matching`, or `sinkhorn` with both marginals."


def sinkhorn(
    scores: Float[Tensor, "*batch n m"],
    *,
    tolerance: float | None = None,
    max_iterations: int = 500,
    row_marginals: Float[Tensor, "*batch n"] | None = None,
    column_marginals: Float[Tensor, "*batch m"] | None = None,
    on_failure: str = "warn",
) -> Float[Tensor, "*batch n m"]:
    r"""The doubly stochastic matrix nearest to `scores` in the entropic sense.

    $$ P^\star = \arg\max_{P \ge 0}\ \langle w, P\rangle - \sum_{ij} P_{ij} \log P_{ij}
       \quad\text{s.t.}\quad P 1 = r,\ P^\top 1 = c \tag{1} $$
    $P^\star_{ij} = \exp(w_{ij} - \alpha_i - \beta_j)$. For a temperature pass `scores / tau`: $\tau \to 0$
    gives the best assignment, $\tau \to \infty$ gives $r c^\top / \sum r$ ($1/n$ for permutations). Entry
    $(i, j)$ is the weight of item $j$ at place $i$.

    Args:
        scores: $w$; -inf forbids a pair (value and gradient exactly 0).
        tolerance: largest error allowed in a row or column sum; None means 1e-10 in float64, else 1e-6.
        max_iterations: of the dual method; 10 to 50 are usually needed at any temperature.
        row_marginals: $r \ge 0$; None means 1 (then `scores` must be square). Differentiable.
        column_marginals: $c \ge 0$ with the same total as $r$; give both or neither. Differentiable.
        on_failure: `"warn"` (a `ConvergenceWarning` with the residual), `"raise"` (`ConvergenceError`)
            or `"ignore"`, when the tolerance is not met.

    Returns:
        $P^\star$, differentiable any number of times.

    Examples:
        >>> import torch
        >>> w = torch.tensor([[2.0, 1.0], [0.0, 1.5]])
        >>> sinkhorn(w)
        tensor([[0.7773, 0.2227],
                [0.2227, 0.7773]])
        >>> sinkhorn(w / 0.01).round()
        tensor([[1., 0.],
                [0., 1.]])

    References: [sinkhorn1967], [cuturi2013], [mena2018].
    """
    return sinkhorn_report(
        scores,
        tolerance=tolerance,
        max_iterations=max_iterations,
        row_marginals=row_marginals,
        column_marginals=column_marginals,
        on_failure=on_failure,
    ).plan


def sinkhorn_report(
    scores: Float[Tensor, "*batch n m"],
    *,
    tolerance: float | None = None,
    max_iterations: int = 500,
    row_marginals: Float[Tensor, "*batch n"] | None = None,
    column_marginals: Float[Tensor, "*batch m"] | None = None,
    on_failure: str = "warn",
) -> Transport:
    r"""`sinkhorn` with its potentials, residual and iterations.

    Args: as `sinkhorn`.

    Returns:
        `Transport(plan, row_potentials, column_potentials, residual, iterations)`; the potentials are
        $\alpha$ and $\beta$, unique up to a constant that moves from one to the other.

    Examples:
        >>> import torch
        >>> found = sinkhorn_report(torch.eye(3) / 0.05)
        >>> bool(found.residual < 1e-6)
        True
    """
    check_matrix("sinkhorn", scores)
    rows, columns = _marginals(scores, row_marginals, column_marginals)
    return transport(
        "sinkhorn",
        scores,
        rows,
        columns,
        tolerance=tolerance,
        max_iterations=max_iterations,
        on_failure=on_failure,
    )


def sinkhorn_unrolled(
    scores: Float[Tensor, "*batch n n"], iterations: int = 20
) -> Float[Tensor, "*batch n n"]:
    r"""A fixed number of Sinkhorn iterations, differentiated through the loop.

    Rows, then columns, are normalised `iterations` times in the log domain, so that the columns sum to 1
    and the rows nearly do. This is the published Gumbel-Sinkhorn; `sinkhorn` is what it approximates.
    Memory grows with `iterations`.

    Args:
        scores: $w$, square; -inf forbids a pair.
        iterations: at least 1.

    Returns:
        An approximation of `sinkhorn(scores)`.

    Examples:
        >>> import torch
        >>> sinkhorn_unrolled(torch.tensor([[2.0, 1.0], [0.0, 1.5]])).sum(0)
        tensor([1., 1.])

    References: [adams2011], [mena2018].
    """
    check_matrix("sinkhorn_unrolled", scores)
    check_square_event("sinkhorn_unrolled", scores.shape[-2:], _UNEQUAL)
    check_scores("sinkhorn_unrolled", "scores", scores)
    check_any_allowed("sinkhorn_unrolled", scores)
    check_any_allowed("sinkhorn_unrolled", scores.mT)
    check_count("sinkhorn_unrolled", "iterations", iterations, 1, None, "20 is the usual number.")
    x = widen(scores)
    for _ in range(iterations):
        x = x - logsumexp(x, -1, keepdim=True)
        x = x - logsumexp(x, -2, keepdim=True)
    return x.exp().to(scores.dtype)


def _marginals(scores: Tensor, rows: Tensor | None, columns: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both marginals, ones by default."""
    n, m = scores.shape[-2:]
    if rows is None and columns is None:
        check_square_event("sinkhorn", scores.shape[-2:], _UNEQUAL)
        return scores.new_ones(n), scores.new_ones(m)
    rows, columns = _check_marginal("row", rows, n), _check_marginal("column", columns, m)
    if can_read(rows, columns):
        totals = rows.detach().double().sum(-1), columns.detach().double().sum(-1)
        if not torch.allclose(*totals, rtol=torch.finfo(rows.dtype).eps ** 0.5):
            raise fail(
                "sinkhorn",
                "column_marginals",
                "must have the same total as `row_marginals`",
                totals[1],
                f"The rows' total is {describe(totals[0])}; rescale one of them.",
            )
    return rows, columns


def _check_marginal(side: str, value: Tensor | None, size: int) -> Tensor:
    """Finite, not negative, of the right size."""
    name = f"{side}_marginals"
    advice = "Give both marginals or neither; without them all sums are 1."
    if value is None:
        raise fail("sinkhorn", name, "must be given with the other marginal", None, advice)
    check_floating("sinkhorn", name, value)
    if value.dim() == 0 or value.shape[-1] != size:
        rule = f"must have {size} entries in its last dimension"
        raise fail("sinkhorn", name, rule, f"shape {tuple(value.shape)}", advice)
    if can_read(value) and not bool(((value >= 0) & (value < math.inf)).all()):
        raise fail("sinkhorn", name, "must be finite and not negative", value, advice)
    return value
