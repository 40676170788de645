r"""Maximum spanning trees by Prim's algorithm.

From node 0, $n - 1$ times: the best edge that leaves the tree joins it. On the CPU a kernel grows the trees
of a batch one by one; elsewhere, and under `torch.compile` and `torch.func`, all of them grow in step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import bad_values, is_transformed, no_tree_allowed
from argrad._kernels.threads import run_rows
from argrad._numerics import widen
from argrad._types import Float, Int
from argrad.solvers._rooted import arcs_of_heads, check_tree_scores, graphs_of, join_root, symmetric


def spanning_tree_argmax(scores: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""The spanning tree of the largest score, exactly, one for each graph of the batch.

    $$ \arg\max_T \sum_{\{i, j\} \in T} (\theta_{ij} + \theta_{ji})/2 $$
    Of edges with equal scores the tree grown from node 0 takes that to the first node (the lowest number)
    and, of several to that node, the one from the first; so the answer does not depend on device, dtype or
    batch. O(n^2); no gradient.

    Args:
        scores: $\theta$, need not be symmetric; the diagonal is ignored, `-inf` forbids an edge.

    Returns:
        0/1, symmetric, the shape and dtype of `scores`.

    Examples:
        >>> import torch
        >>> scores = torch.tensor([[0.0, 3.0, 1.0], [3.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
        >>> spanning_tree_argmax(scores).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]

    References: [prim1957].
    """
    call = "spanning_tree_argmax"
    on_cpu = isinstance(scores, Tensor) and scores.device.type == "cpu" and not is_transformed()
    check_tree_scores(call, scores, values=not on_cpu)
    if on_cpu:
        return _prim_kernel(call, widen(scores)).to(scores.dtype)
    tree = join_root(arcs_of_heads(call, _prim(symmetric(scores.detach())), scores.dtype), 0)
    return tree + tree.mT


def _prim_kernel(call: str, scores: Tensor) -> Tensor:
    from argrad._kernels.spanning_tree import BAD, MOST_NODES, prim, prim_32

    graphs = graphs_of(scores)
    trees = torch.empty_like(graphs)
    packed = graphs.dtype == torch.float32 and graphs.shape[-1] <= MOST_NODES
    kernel = prim_32 if packed else prim
    status = run_rows(kernel, len(graphs), 4 * graphs.numel(), graphs.numpy(), trees.numpy())
    if status & BAD:
        raise bad_values(call, "scores", scores)
    if status:
        raise no_tree_allowed(call, trees[:, 0, 0].isnan())
    return trees.reshape(scores.shape)


def _prim(edges: Tensor) -> Int[Tensor, "*batch m"]:
    """The node that joins each of nodes 1, ..., n - 1 to the tree; all -1 if one cannot be reached."""
    numbers = torch.arange(edges.shape[-1], device=edges.device)
    new = torch.zeros_like(edges[..., 0, :1], dtype=torch.int64)
    best = torch.full_like(edges[..., 0, :], -math.inf)
    heads, done = torch.full_like(best, -1, dtype=torch.int64), torch.zeros_like(best, dtype=torch.bool)
    for _ in range(edges.shape[-1]):
        done = done | (numbers == new)
        row = torch.take_along_dim(edges, new[..., None], -2).squeeze(-2)
        better = ((row > best) | ((row == best) & (new < heads))) & ~done
        best, heads = torch.where(better, row, best), torch.where(better, new, heads)
        new = best.masked_fill(done, -math.inf).argmax(-1, keepdim=True)
    heads = heads[..., 1:]
    return heads.masked_fill((heads < 0).any(-1, keepdim=True), -1)
