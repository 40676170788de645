r"""Relaxed matchings of two sides that may differ in size, or stay partly unmatched.

The exact problems, with inequality multipliers clamped at 0 rather than slack entries added (slack
entries would bring their own entropy, and with it another answer).
"""

from __future__ import annotations

from torch import Tensor

from argrad._types import Float
from argrad.solvers.transport import Transport, check_matrix, transport


def entropic_matching(
    scores: Float[Tensor, "*batch n m"],
    *,
    partial: bool = False,
    tolerance: float | None = None,
    max_iterations: int = 500,
    on_failure: str = "warn",
) -> Float[Tensor, "*batch n m"]:
    r"""The entropic relaxation of a matching.

    $$ P^\star = \arg\max_{P \ge 0}\ \langle w, P\rangle - \sum_{ij} P_{ij} \log P_{ij}
       \quad\text{s.t.}\quad P 1 \le 1,\ P^\top 1 \le 1 \tag{1} $$
    with equality on the shorter side (on both if $n = m$: then this is `sinkhorn`), or on neither if
    `partial`. The optimum is $P_{ij} = \exp(w_{ij} - 1 - \alpha_i - \beta_j)$ with $\alpha_i \ge 0$, and
    $\alpha_i = 0$ where the row is slack; likewise $\beta_j$; a side held at equality has multipliers of
    any sign. Nothing but the $nm$ entries enters the entropy. For a temperature pass `scores / tau`:
    $\tau \to 0$ gives `assignment`, with `partial` the one that leaves pairs of negative score unmatched.

    Args:
        scores: $w$; -inf forbids a pair.
        partial: no side is held at equality.
        tolerance: largest error allowed in a row or column sum (for inequalities: in complementary
            slackness); None means 1e-10 in float64, else 1e-6.
        max_iterations: of the dual method; 10 to 100 are usually needed.
        on_failure: `"warn"`, `"raise"` or `"ignore"`, when the tolerance is not met.

    Returns:
        $P^\star$, differentiable any number of times (almost everywhere: where an inequality starts to
        bind, the derivative jumps).

    Examples:
        >>> import torch
        >>> P = entropic_matching(torch.tensor([[2.0, 1.0, 0.0], [2.0, 0.0, -1.0]]))
        >>> P.sum(-1)
        tensor([1., 1.])
        >>> bool((P.sum(-2) < 1 + 1e-6).all())
        True

    References: [cuturi2013], [benamou2015].
    """
    return matching_report(
        scores,
        partial=partial,
        tolerance=tolerance,
        max_iterations=max_iterations,
        on_failure=on_failure,
    ).plan


def euclidean_matching(
    scores: Float[Tensor, "*batch n m"],
    *,
    partial: bool = False,
    tolerance: float | None = None,
    max_iterations: int = 500,
    on_failure: str = "warn",
) -> Float[Tensor, "*batch n m"]:
    r"""The Euclidean relaxation of a matching: sparse, and exactly a matching for small $\tau$.

    $$ P^\star = \arg\max_{P \ge 0}\ \langle w, P\rangle - \tfrac12 \|P\|^2
       \quad\text{s.t.}\quad P 1 \le 1,\ P^\top 1 \le 1 \tag{2} $$
    with equality as in `entropic_matching`; $P_{ij} = (w_{ij} - \alpha_i - \beta_j)_+$.

    Args: as `entropic_matching`.

    Returns:
        $P^\star$, differentiable almost everywhere.

    Examples:
        >>> import torch
        >>> euclidean_matching(torch.tensor([[0.25, -1.0], [-1.0, -2.0]]), partial=True)
        tensor([[0.2500, 0.0000],
                [0.0000, 0.0000]])

    References: [blondel2018].
    """
    return matching_report(
        scores,
        partial=partial,
        euclidean=True,
        tolerance=tolerance,
        max_iterations=max_iterations,
        on_failure=on_failure,
    ).plan


def matching_report(
    scores: Float[Tensor, "*batch n m"],
    *,
    partial: bool = False,
    euclidean: bool = False,
    tolerance: float | None = None,
    max_iterations: int = 500,
    on_failure: str = "warn",
) -> Transport:
    r"""Either relaxation with its multipliers, residual and iterations.

    Args: as `entropic_matching`; `euclidean` chooses Eq. (2).

    Returns:
        `Transport(plan, row_potentials, column_potentials, residual, iterations)`, the potentials being
        $\alpha$ and $\beta$ (if both sides are held at equality, those of `sinkhorn_report`, without the 1).

    Examples:
        >>> import torch
        >>> found = matching_report(torch.tensor([[3.0, -5.0]]), partial=True)
        >>> found.row_potentials > 0, found.column_potentials
        (tensor([True]), tensor([0., 0.]))
    """
    call = "euclidean_matching" if euclidean else "entropic_matching"
    check_matrix(call, scores)
    n, m = scores.shape[-2:]
    return transport(
        call,
        scores,
        scores.new_ones(n),
        scores.new_ones(m),
        rows_at_most=partial or n > m,
        columns_at_most=partial or m > n,
        euclidean=euclidean,
        tolerance=tolerance,
        max_iterations=max_iterations,
        on_failure=on_failure,
    )
