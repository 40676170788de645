r"""Euclidean projection onto the doubly stochastic matrices."""

from __future__ import annotations

from torch import Tensor

from argrad._checks import check_square_event
from argrad._types import Float
from argrad.solvers.transport import check_matrix, transport


def birkhoff_projection(
    scores: Float[Tensor, "*batch n n"],
    *,
    tolerance: float | None = None,
    max_iterations: int = 500,
    on_failure: str = "warn",
) -> Float[Tensor, "*batch n n"]:
    r"""The doubly stochastic matrix nearest to `scores` in the Euclidean norm.

    $$ P^\star = \arg\max_{P \ge 0}\ \langle w, P\rangle - \tfrac12 \|P\|^2
       \quad\text{s.t.}\quad P 1 = 1,\ P^\top 1 = 1 \tag{1} $$
    $P^\star_{ij} = (w_{ij} - \alpha_i - \beta_j)_+$: sparse, and exactly a permutation once `scores / tau`
    is spread far enough. A semi-smooth Newton method on the dual. The derivative is the projection onto
    matrices with the support of $P^\star$ and zero row and column sums: piecewise constant, so that second
    derivatives are 0 almost everywhere.

    Args:
        scores: $w$, square; -inf forbids a pair (value and gradient exactly 0).
        tolerance: largest error allowed in a row or column sum; None means 1e-10 in float64, else 1e-6.
        max_iterations: of the dual method; 10 to 70 are usually needed.
        on_failure: `"warn"`, `"raise"` or `"ignore"`, when the tolerance is not met.

    Returns:
        $P^\star$.

    Examples:
        >>> import torch
        >>> birkhoff_projection(torch.tensor([[0.5, 0.0], [0.0, 0.0]]))
        tensor([[0.6250, 0.3750],
                [0.3750, 0.6250]])
        >>> birkhoff_projection(torch.tensor([[5.0, 0.0], [0.0, 0.0]]))
        tensor([[1., 0.],
                [0., 1.]])

    References: [blondel2018], [li2020].
    """
    check_matrix("birkhoff_projection", scores)
    check_square_event(
        "birkhoff_projection", scores.shape[-2:], "For unequal sides use `euclidean_matching`."
    )
    ones = scores.new_ones(scores.shape[-1])
    return transport(
        "birkhoff_projection",
        scores,
        ones,
        ones,
        euclidean=True,
        tolerance=tolerance,
        max_iterations=max_iterations,
        on_failure=on_failure,
    ).plan
