r"""Maximum spanning arborescences (directed trees) by the algorithm of Chu, Liu and Edmonds.

A compiled kernel in $O(n^2)$ a graph. Under `torch.compile` and `torch.func` it runs behind a custom operator,
and for tensors on other devices on a copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from argrad._checks import is_transformed, no_tree_allowed
from argrad._kernels.threads import run_rows
from argrad._numerics import widen
from argrad._types import Float
from argrad.solvers._rooted import (
    arcs_of_heads,
    check_root,
    check_tree_scores,
    graphs_of,
    join_root,
    split_root,
)


def arborescence_argmax(
    scores: Float[Tensor, "*batch n n"], root: int | None = 0, single_root: bool = False
) -> Float[Tensor, "*batch n n"]:
    r"""The arborescence of the largest score, exactly, one for each graph of the batch.

    $$ \arg\max_T \sum_{(i, j) \in T} \theta_{ij} $$
    over directed trees in which every node but the root has one head. Ties are broken by the nodes'
    order alone, so the answer does not depend on device or batch. O(n^2); no gradient.

    Args:
        scores: $\theta$, entry `[head, child]` for each arc; the diagonal is ignored, `-inf` forbids.
        root: the root's number; None for the best over all roots (the node whose column is 0).
        single_root: the root has exactly one child (dependency parsing); needs a fixed root.

    Returns:
        0/1, the shape and dtype of `scores`.

    Examples:
        >>> import torch
        >>> scores = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 5.0], [0.0, 9.0, 0.0]])
        >>> arborescence_argmax(scores).tolist()  # the cycle 1 <-> 2 (14) is not a tree
        [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]

    References: [chu1965], [edmonds1967], [tarjan1977].
    """
    call = "arborescence_argmax"
    check_tree_scores(call, scores)
    check_root(call, scores, root, single_root)
    if single_root and scores.shape[-1] == 1:
        raise no_tree_allowed(call, torch.ones(1, device="cpu"))
    if scores.is_meta:
        return torch.empty_like(scores)
    arcs = split_root(widen(scores.detach()), root).cpu()
    single = single_root or root is None
    heads = _edmonds(arcs, single) if is_transformed() else _edmonds_kernel(arcs, single)
    return join_root(arcs_of_heads(call, heads, scores.dtype).to(scores.device), root)


def _edmonds_kernel(arcs: Tensor, single: bool) -> Tensor:
    from argrad._kernels.arborescence import edmonds

    graphs = graphs_of(arcs)
    heads = torch.empty(graphs.shape[::2], dtype=torch.int64, device="cpu")
    run_rows(edmonds, len(graphs), graphs.numel(), graphs.numpy(), single, heads.numpy())
    return heads.reshape(*arcs.shape[:-2], arcs.shape[-1])


@torch.library.custom_op(
    "argrad::edmonds", mutates_args=(), schema="(Tensor arcs, bool single) -> Tensor"
)
def _edmonds(arcs: Tensor, single: bool) -> Tensor:
    """The head of each child, `(*batch, m)`; -1 where there is no arborescence."""
    return _edmonds_kernel(arcs, single)


@_edmonds.register_fake
def _(arcs: Tensor, single: bool) -> Tensor:
    return arcs.new_empty((*arcs.shape[:-2], arcs.shape[-1]), dtype=torch.int64)


@_edmonds.register_vmap
def _(info, in_dims, arcs: Tensor, single: bool):
    return _edmonds(arcs.movedim(in_dims[0], 0), single), 0
