r"""Derivatives over transport polytopes: the weighted projection onto matrices with zero marginals.

Both relaxations of a matching have the form $P = \phi(w - \alpha 1^\top - 1 \beta^\top)$ with the
multipliers fixed by row and column sums. So their Jacobian is the same map with other weights $Q$
($Q = P$ for the entropic one, $Q = [P > 0]$ for the Euclidean one):

$$ T_Q(G) = Q \circ (G - x 1^\top - 1 y^\top), \qquad
   T_Q(G)\, 1 = 0, \quad T_Q(G)^\top 1 = 0 \tag{1} $$

It is symmetric, so that it serves backward and forward mode alike. Eliminating $x$ leaves one linear
system of the size of the shorter side: no trace of the iterations that found $P$.
"""

from __future__ import annotations

import torch
from torch import Tensor

from argrad._types import Float

# Pairs joined by less mass than this times eps are treated as unconnected: what they carry is below
# rounding, and a permutation matrix (n unconnected pairs) would make the system singular.
_RIDGE = 64.0


def tangent(
    weights: Float[Tensor, "*batch n m"],
    direction: Float[Tensor, "*batch n m"],
    free_rows: Float[Tensor, "*batch n"] | None = None,
    free_columns: Float[Tensor, "*batch m"] | None = None,
) -> Float[Tensor, "*batch n m"]:
    r"""$T_Q(G)$ of Eq. (1), computed in float64; differentiable in both arguments, any number of times.

    Args:
        weights: $Q \ge 0$.
        direction: $G$.
        free_rows: 1 where the row's sum is held (its $x_i$ is free), 0 where it is slack ($x_i = 0$).
        free_columns: the same for columns.

    Returns:
        $T_Q(G)$, in the dtype of `direction`.

    Examples:
        >>> import torch
        >>> P = torch.full((3, 3), 1 / 3)
        >>> t = tangent(P, torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))
        >>> bool(t.sum(0).abs().max() < 1e-6), bool(t.sum(1).abs().max() < 1e-6)
        (True, True)

    References: [luise2018], [eisenberger2022].
    """
    Q, G = weights.double(), direction.double()
    R = Q * G
    x, y = potentials(Q, R.sum(-1), R.sum(-2), free_rows, free_columns)
    return (Q * (G - x[..., :, None] - y[..., None, :])).to(direction.dtype)


def potentials(
    weights: Float[Tensor, "*batch n m"],
    row_sums: Float[Tensor, "*batch n"],
    column_sums: Float[Tensor, "*batch m"],
    free_rows: Float[Tensor, "*batch n"] | None = None,
    free_columns: Float[Tensor, "*batch m"] | None = None,
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch m"]]:
    r"""$x, y$ such that $Q \circ (x 1^\top + 1 y^\top)$ has the given row and column sums.

    Rows and columns that are not free get 0, and their sums are not held.
    """
    if weights.shape[-1] > weights.shape[-2]:  # eliminate the longer side
        y, x = potentials(weights.mT, column_sums, row_sums, free_columns, free_rows)
        return x, y
    Q = weights
    mass = Q.sum(-1)
    some = mass >= torch.finfo(mass.dtype).tiny  # the reciprocal of a denormal is infinite
    inverse = torch.where(some, 1.0, 0.0) / torch.where(some, mass, 1.0)
    if free_rows is not None:
        inverse = inverse * free_rows
    S, b = _schur(Q, inverse, row_sums, column_sums)
    if free_columns is not None:
        S = S * (free_columns[..., :, None] * free_columns[..., None, :])
        S = S + torch.diag_embed(1.0 - free_columns).to(S.dtype)
        b = b * free_columns
    y = torch.linalg.solve_ex(S, b[..., None])[0][..., 0]
    return inverse * (row_sums - (Q @ y[..., None])[..., 0]), y


def _schur(Q: Tensor, inverse: Tensor, row_sums: Tensor, column_sums: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\mathrm{diag}(Q^\top 1) - Q^\top D Q$ with a ridge, and its right-hand side; $D$ = `inverse`."""
    scaled = inverse[..., None] * Q
    mass = Q.sum(-2)
    floor = _RIDGE * torch.finfo(Q.dtype).eps * mass.detach().amax(-1, keepdim=True)
    ridge = torch.where(floor > 0, floor, 1.0)
    S = torch.diag_embed(mass + ridge) - Q.mT @ scaled
    return S, column_sums - (scaled.mT @ row_sums[..., None])[..., 0]
