"""Peers that are a few lines rather than one call: the loop or formula a person writes without argrad."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.line import Step


def scipy_trees(scores: Tensor) -> Step:
    """Maximum spanning trees one by one. The costs are made beforehand: positive, since 0 means no edge."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    costs = np.triu((scores.max() + 1 - scores).numpy(), 1)
    return lambda: [minimum_spanning_tree(cost) for cost in costs]


def networkx_arborescences(scores: Tensor) -> Step:
    """Maximum arborescences from node 0 one by one, the graphs made beforehand."""
    import networkx as nx

    n = scores.shape[-1]
    graphs = []
    for item in scores.tolist():
        arcs = [(i, j, item[i][j]) for i in range(n) for j in range(1, n) if i != j]
        graphs.append(nx.DiGraph())
        graphs[-1].add_weighted_edges_from(arcs)
    return lambda: [nx.maximum_spanning_arborescence(graph) for graph in graphs]


def scipy_assignments(scores: Tensor) -> Step:
    """Best permutations one by one; for each item the column of each row."""
    from scipy.optimize import linear_sum_assignment

    items = list(scores.numpy())
    return lambda: torch.from_numpy(
        np.stack([linear_sum_assignment(x, maximize=True)[1] for x in items])
    )


def scipy_matrices(calls: Tensor) -> Step:
    """One call for each batch of matrices, tensor in, 0/1 tensor out, a loop of scipy inside."""
    from scipy.optimize import linear_sum_assignment

    def permutations(scores: Tensor) -> Tensor:
        chosen = np.zeros(scores.shape, np.float32)
        for z, x in zip(chosen, scores.numpy(), strict=True):
            z[linear_sum_assignment(x, maximize=True)] = 1
        return torch.from_numpy(chosen)

    inputs = list(calls)
    return lambda: [permutations(x) for x in inputs]


def scipy_columns(calls: Tensor) -> Step:
    """`scipy_assignments` of one batch after the other: a tensor of columns for each."""
    steps = [scipy_assignments(scores) for scores in calls]
    return lambda: [step() for step in steps]


def scipy_indices(calls: Tensor) -> Step:
    """The bare loop: arrays in, scipy's arrays of indices out, nothing collected into a tensor."""
    from scipy.optimize import linear_sum_assignment

    inputs = [list(scores.numpy()) for scores in calls]
    return lambda: [[linear_sum_assignment(x, maximize=True) for x in items] for items in inputs]


def pot_plans(scores: Tensor, tau: float) -> Step:
    """Sinkhorn plans, each row and column of sum 1, by POT's batched solver."""
    from ot import solve_batch  # codespell:ignore ot

    ones = torch.ones(scores.shape[:-1])
    options = {"a": ones, "b": ones, "tol": 1e-5, "max_iter": 10_000, "grad": "detach"}
    return lambda: solve_batch(-scores, reg=tau, **options)


def torch_struct_chains() -> Callable[[Tensor], Tensor]:
    """Marginals of linear chains by torch-struct, which writes the next tag before the tag."""
    from torch_struct import LinearChainCRF

    return lambda scores: LinearChainCRF(scores.mT).marginals.mT


def torch_struct_trees() -> Callable[[Tensor], Tensor]:
    """Marginals of trees from node 0, whose arcs torch-struct wants on the diagonal of the other nodes."""
    from torch_struct import NonProjectiveDependencyCRF

    def marginals(scores: Tensor) -> Tensor:
        arcs = scores[..., 1:, 1:].clone()
        arcs.diagonal(dim1=-2, dim2=-1).copy_(scores[..., 0, 1:])
        mu = NonProjectiveDependencyCRF(arcs, multiroot=True).marginals
        root = mu.diagonal(dim1=-2, dim2=-1)
        inner = torch.cat([root[..., None, :], mu - torch.diag_embed(root)], -2)
        return torch.nn.functional.pad(inner, (1, 0))

    return marginals


def inverse_tree_marginals(scores: Tensor) -> Tensor:
    r"""$\mu_{ij} = w_{ij} (M_{ii} + M_{jj} - 2 M_{ij})$ with $M$ the inverse of the Laplacian less node 0."""
    w = ((scores + scores.mT) / 2).exp() * (1 - torch.eye(scores.shape[-1]))
    laplacian = torch.diag_embed(w.sum(-1)) - w
    M = torch.nn.functional.pad(torch.linalg.inv(laplacian[..., 1:, 1:]), (1, 0, 1, 0))
    d = M.diagonal(dim1=-2, dim2=-1)
    return w * (d[..., :, None] + d[..., None, :] - 2 * M)


def sequential_subsets(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Log-partition of k-subsets by the dynamic program over items, and marginals as its gradient."""
    scores = scores.detach().requires_grad_()
    # Finite in place of -inf, whose logaddexp has no gradient.
    table = torch.full((*scores.shape[:-1], k + 1), -1e30)
    table[..., 0] = 0.0
    for x in scores.unbind(-1):
        taken = torch.logaddexp(table[..., 1:], table[..., :-1] + x[..., None])
        table = torch.cat([table[..., :1], taken], -1)
    log_z = table[..., k]
    return log_z.detach(), torch.autograd.grad(log_z.sum(), scores)[0]
