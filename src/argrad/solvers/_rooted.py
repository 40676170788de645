r"""The one form in which every directed tree solver takes a graph: root row first, children as columns.

`scores[..., head, child]` of $n$ nodes become `arcs`, shape `(*batch, m + 1, m)`: head 0 is the root, head
$v + 1$ is child $v$, so the "diagonal" `arcs[..., v + 1, v]` is ignored. With a fixed root $m = n - 1$. With
a free root (`root=None`) the $n$ nodes are all children of a virtual root with scores 0, and a tree uses
exactly one arc of it: the same problem as `single_root=True`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from argrad._checks import (
    can_read,
    check_count,
    check_event,
    check_floating,
    check_scores,
    check_square,
    fail,
    no_tree_allowed,
)
from argrad._numerics import widen
from argrad._types import Float, Int


def check_tree_scores(call: str, scores: Tensor, values: bool = True) -> None:
    """Square floating matrices, without NaN and +inf if `values` are to be looked at."""
    check_floating(call, "scores", scores)
    check_event(call, "scores", scores, 2)
    check_square(call, "scores", scores)
    if values:
        check_scores(call, "scores", scores)


def check_root(call: str, scores: Tensor, root: int | None, single_root: bool) -> None:
    """A node number, or None without `single_root`."""
    if root is not None:
        check_count(call, "root", root, 0, scores.shape[-1] - 1, "Or `root=None` for any root.")
    elif single_root:
        advice = "Give the root's number, or drop `single_root`: a free root may have any number of children."
        raise fail(call, "root", "must be a node number with `single_root=True`", root, advice)


def split_root(scores: Float[Tensor, "*batch n n"], root: int | None) -> Float[Tensor, "*batch m1 m"]:
    """`arcs` of `scores`; differentiable."""
    if root is None:
        return functional.pad(scores, (0, 0, 1, 0))  # a row of zeros on top
    if root == 0:
        return scores[..., 1:]
    order = _root_first(scores, root)
    return scores.index_select(-2, order).index_select(-1, order[1:])


def join_root(arcs: Float[Tensor, "*batch m1 m"], root: int | None) -> Float[Tensor, "*batch n n"]:
    """The inverse: values of arcs back at `[head, child]`, 0 where there is no arc; differentiable."""
    if root is None:
        return arcs[..., 1:, :]
    full = functional.pad(arcs, (1, 0))
    if root == 0:
        return full
    back = torch.argsort(_root_first(arcs, root))
    return full.index_select(-2, back).index_select(-1, back)


def arcs_of_heads(
    call: str, heads: Int[Tensor, "*batch m"], dtype: torch.dtype
) -> Float[Tensor, "*batch m1 m"]:
    """1 at each child's head. Heads are -1 where there is no tree: a sentence, or NaN if unreadable."""
    if can_read(heads) and bool((heads < 0).any()):
        raise no_tree_allowed(call, (heads < 0).any(-1))
    numbers = torch.arange(heads.shape[-1] + 1, device=heads.device)
    arcs = (heads[..., None, :] == numbers[:, None]).to(dtype)
    return arcs if can_read(heads) else arcs.masked_fill(heads[..., None, :] < 0, math.nan)


def graphs_of(arcs: Float[Tensor, "*batch heads m"]) -> Float[Tensor, "b heads m"]:
    """One batch dimension, contiguous, without a gradient: what the kernels take."""
    return arcs.detach().reshape(arcs.shape[:-2].numel(), *arcs.shape[-2:]).contiguous()


def symmetric(scores: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """Scores of undirected edges, both ways, in the dtype for computing."""
    half = widen(scores) / 2  # before the sum, which could overflow
    return half + half.mT


def _root_first(like: Tensor, root: int) -> Tensor:
    """Node numbers with the root moved to the front."""
    n = like.shape[-2]
    node = torch.arange(n, device=like.device)
    return torch.where(node == 0, root, torch.where(node <= root, node - 1, node))
