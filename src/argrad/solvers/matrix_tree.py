r"""Sums over all spanning trees: log-partition and marginals by the matrix-tree theorem.

$$ Z = \sum_{T} \prod_{(i, j) \in T} e^{\theta_{ij}}, \qquad
   \mu_{ij} = P((i, j) \in T) = \frac{\partial \log Z}{\partial \theta_{ij}} $$
The textbook way, a determinant and an inverse of a Laplacian [koo2007], subtracts: in float32 it is wrong
by 1 from scores of about 20 on. Here nodes are eliminated one by one (star-mesh, the graph form of
Gaussian elimination as in [grassmann1985]), and weights are only added; float32 is right at any scale.
"""

from __future__ import annotations

from torch import Tensor

from argrad._numerics import widen
from argrad._types import Float
from argrad.solvers._rooted import check_root, check_tree_scores, join_root, split_root, symmetric
from argrad.solvers._tree_sums import log_partition, marginals


def arborescence_log_partition(
    scores: Float[Tensor, "*batch n n"], root: int | None = 0, single_root: bool = False
) -> Float[Tensor, "*batch"]:
    r"""$\log \sum_T \exp \sum_{(i, j) \in T} \theta_{ij}$ over the arborescences $T$ that span all nodes.

    Its gradient is `arborescence_marginals`, its Hessian their covariance. O(n^3).

    Args:
        scores: $\theta$, entry `[head, child]` for each arc; the diagonal is ignored, `-inf` forbids, as does
            what is 1e30 below the child's best.
        root: the root's number; None sums over all roots.
        single_root: the root has exactly one child (dependency parsing); needs a fixed root.

    Returns:
        Shape `(*batch,)`; `-inf` with gradient 0 where no arborescence is allowed.

    Examples:
        >>> import torch
        >>> count = arborescence_log_partition(torch.zeros(5, 5)).exp()  # Cayley: n^(n - 2)
        >>> round(count.item())
        125

    References: [tutte1984], [koo2007], [grassmann1985].
    """
    call = "arborescence_log_partition"
    check_tree_scores(call, scores)
    check_root(call, scores, root, single_root)
    log_z = log_partition(split_root(widen(scores), root), single_root or root is None)
    return log_z.to(scores.dtype)


def arborescence_marginals(
    scores: Float[Tensor, "*batch n n"], root: int | None = 0, single_root: bool = False
) -> Float[Tensor, "*batch n n"]:
    r"""$\mu_{ij} = P((i, j) \in T)$ under $P(T) \propto \exp \sum_{(i, j) \in T} \theta_{ij}$.

    Each column sums to 1 but the root's, which is 0 (with a free root: to the probability that the
    node is not the root). Differentiable twice; the backward pass is a product with the Hessian of
    $\log Z$, computed by the derivative of the elimination, as accurate as the marginals. O(n^3).

    Args:
        scores: as `arborescence_log_partition`.
        root: as there.
        single_root: as there.

    Returns:
        The shape of `scores`; exactly 0 on the diagonal and where forbidden.

    Examples:
        >>> import torch
        >>> mu = arborescence_marginals(100 * torch.eye(3).roll(1, -1))
        >>> mu.round(decimals=3).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    call = "arborescence_marginals"
    check_tree_scores(call, scores)
    check_root(call, scores, root, single_root)
    arcs = split_root(widen(scores), root)
    mu = marginals(call, arcs, single_root or root is None)
    return join_root(mu, root).to(scores.dtype)


def spanning_tree_log_partition(scores: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    r"""$\log \sum_T \exp \sum_{\{i, j\} \in T} \theta_{ij}$ over undirected spanning trees $T$.

    Edge $\{i, j\}$ scores $(\theta_{ij} + \theta_{ji})/2$, so the gradient is half of
    `spanning_tree_marginals` at $ij$ and half at $ji$. O(n^3).

    Args:
        scores: $\theta$, need not be symmetric; the diagonal is ignored, `-inf` forbids an edge.

    Returns:
        Shape `(*batch,)`; `-inf` with gradient 0 where no tree is allowed.

    Examples:
        >>> import torch
        >>> round(spanning_tree_log_partition(torch.zeros(4, 4)).exp().item())
        16

    References: [kirchhoff1847], [grassmann1985].
    """
    check_tree_scores("spanning_tree_log_partition", scores)
    return log_partition(split_root(symmetric(scores), 0), False).to(scores.dtype)


def spanning_tree_marginals(scores: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""$\mu_{ij} = \mu_{ji} = P(\{i, j\} \in T)$ for a random spanning tree, as `spanning_tree_log_partition`.

    Args:
        scores: as there.

    Returns:
        Symmetric, the shape of `scores`; sums to $2(n - 1)$; 0 on the diagonal and where forbidden.

    Examples:
        >>> import torch
        >>> spanning_tree_marginals(torch.zeros(4, 4))[0].tolist()
        [0.0, 0.5, 0.5, 0.5]
    """
    call = "spanning_tree_marginals"
    check_tree_scores(call, scores)
    mu = join_root(marginals(call, split_root(symmetric(scores), 0), False), 0)
    return (mu + mu.mT).to(scores.dtype)
