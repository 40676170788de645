r"""Exact random trees, $P(T) \propto \exp \sum_{(i, j) \in T} \theta_{ij}$, by undoing a star-mesh elimination.

Wilson's algorithm [wilson1996] walks until it meets the tree, exponentially long when scores are peaked.
Here a graph is eliminated once, in $O(n^3)$, and each sample puts the nodes back one by one, drawing which
arcs go through the new node and which head it has: $O(n^2)$ a tree on average, at any scale of the scores.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from argrad._checks import is_transformed, no_tree_allowed
from argrad._kernels.threads import run_rows
from argrad._numerics import widen
from argrad._types import Float, Generator, Shape
from argrad.random import CounterRNG, check_generator, draw_key
from argrad.solvers import _star_mesh_torch as star_mesh
from argrad.solvers._rooted import (
    arcs_of_heads,
    check_root,
    check_tree_scores,
    graphs_of,
    join_root,
    split_root,
    symmetric,
)


def arborescence_sample(
    scores: Float[Tensor, "*batch n n"],
    sample_shape: Shape = (),
    *,
    root: int | None = 0,
    single_root: bool = False,
    generator: Generator = None,
) -> Float[Tensor, "*sample n n"]:
    r"""Draw spanning arborescences from $P(T) \propto \exp \sum_{(i, j) \in T} \theta_{ij}$, exactly.

    Args:
        scores: $\theta$, entry `[head, child]` for each arc; the diagonal is ignored, `-inf` forbids.
        sample_shape: trees to draw for each graph.
        root: the root's number; None for any root.
        single_root: the root has exactly one child (dependency parsing); needs a fixed root.
        generator: `torch.Generator`, `CounterRNG` (a tree is a row), or None for torch's global one.

    Returns:
        0/1, shape `(*sample_shape, *batch, n, n)`, dtype of `scores`.

    Examples:
        >>> import torch
        >>> g = torch.Generator().manual_seed(0)
        >>> z = arborescence_sample(torch.zeros(5, 5), (1000,), generator=g)
        >>> z.shape, z.sum(-2)[0].tolist()  # one head each, none for the root
        (torch.Size([1000, 5, 5]), [0.0, 1.0, 1.0, 1.0, 1.0])

    References: [wilson1996], [colbourn1996].
    """
    call = "arborescence_sample"
    check_tree_scores(call, scores)
    check_root(call, scores, root, single_root)
    if single_root and scores.shape[-1] == 1:
        raise no_tree_allowed(call, torch.ones(1, device="cpu"))
    arcs = split_root(widen(scores.detach()), root)
    z = _sample(call, arcs, single_root or root is None, sample_shape, scores.dtype, generator)
    return join_root(z, root)


def spanning_tree_sample(
    scores: Float[Tensor, "*batch n n"], sample_shape: Shape = (), *, generator: Generator = None
) -> Float[Tensor, "*sample n n"]:
    r"""Draw undirected spanning trees from $P(T) \propto \exp \sum_{\{i, j\} \in T} (\theta_{ij} + \theta_{ji})/2$.

    Args:
        scores: $\theta$, need not be symmetric; the diagonal is ignored, `-inf` forbids an edge.
        sample_shape: as `arborescence_sample`.
        generator: as there.

    Returns:
        0/1, symmetric, shape `(*sample_shape, *batch, n, n)`, dtype of `scores`.

    Examples:
        >>> import torch
        >>> g = torch.Generator().manual_seed(0)
        >>> spanning_tree_sample(torch.zeros(3, 5, 5), generator=g).sum((-2, -1)).tolist()
        [8.0, 8.0, 8.0]
    """
    call = "spanning_tree_sample"
    check_tree_scores(call, scores)
    arcs = split_root(symmetric(scores.detach()), 0)
    z = join_root(_sample(call, arcs, False, sample_shape, scores.dtype, generator), 0)
    return z + z.mT


def _sample(
    call: str, arcs: Tensor, single: bool, sample_shape: Shape, dtype: torch.dtype, generator: Generator
) -> Tensor:
    """1 at the arcs of a random tree, `(*sample_shape, *batch, m + 1, m)`."""
    check_generator(call, generator)
    if arcs.is_meta:
        return arcs.new_empty((*sample_shape, *arcs.shape), dtype=dtype)
    words = _words(generator)
    count = math.prod(sample_shape)
    draw = _draw_heads if is_transformed() else _draw_heads_kernel
    heads = draw(arcs.cpu(), words, count, single)
    heads = heads.reshape(*sample_shape, *arcs.shape[:-2], arcs.shape[-1])
    return arcs_of_heads(call, heads, dtype).to(arcs.device)


def _words(generator: Generator) -> Tensor:
    """Two key words, first row and first column."""
    if isinstance(generator, CounterRNG):
        return generator.words
    key = draw_key(generator).cpu()
    return torch.cat([key, torch.zeros_like(key)])


# ---- the kernel, and the operator that hides it from transforms ----------------------------------


def _draw_heads_kernel(arcs: Tensor, words: Tensor, count: int, single: bool) -> Tensor:
    """The head of each child, `(count, *batch, m)`, numbered as rows of `arcs`; -1 without a tree."""
    from argrad._kernels.tree_sampling import sample

    graphs = graphs_of(arcs)
    heads = torch.empty((count * len(graphs), graphs.shape[-1]), dtype=torch.int64, device="cpu")
    if heads.numel():
        tables = [x.numpy() for x in _tables(graphs, single)]
        work = heads.numel() * graphs.shape[-1]
        run_rows(sample, len(heads), work, *tables, words.numpy().view(np.uint64), heads.numpy())
    return heads.reshape(count, *arcs.shape[:-2], arcs.shape[-1])


def _tables(graphs: Tensor, single: bool) -> tuple[Tensor, ...]:
    """Weights, shares p and rows b of the elimination, which nodes row 1 alone reaches, and the scale."""
    from argrad._kernels.tree_sampling import LOG, factor

    size, m = len(graphs), graphs.shape[-1]
    direct, tables = torch.empty(2, size, m + 2, m, dtype=torch.float64, device="cpu")
    small, kind = (
        torch.empty(size, m, dtype=torch.bool, device="cpu"),
        torch.empty(size, dtype=torch.int8, device="cpu"),
    )
    arrays = [x.numpy() for x in (direct, tables, small, kind)]
    run_rows(factor, size, graphs.numel() * m, graphs.numpy(), single, *arrays)
    again = kind == LOG
    if again.any():
        log_tables = star_mesh.tables(graphs[again].double(), single)
        direct[again], tables[again], small[again], kind[again] = log_tables
    return direct, tables, small, kind


@torch.library.custom_op(
    "argrad::draw_tree_heads",
    mutates_args=(),
    schema="(Tensor arcs, Tensor words, SymInt count, bool single) -> Tensor",
)
def _draw_heads(arcs: Tensor, words: Tensor, count: int, single: bool) -> Tensor:
    return _draw_heads_kernel(arcs, words, count, single)


@_draw_heads.register_fake
def _(arcs: Tensor, words: Tensor, count: int, single: bool) -> Tensor:
    return arcs.new_empty((count, *arcs.shape[:-2], arcs.shape[-1]), dtype=torch.int64)


@_draw_heads.register_vmap
def _(info, in_dims, arcs: Tensor, words: Tensor, count: int, single: bool):
    """One call an instance: each draws what it would draw alone."""
    arcs, words = (
        x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
        for x, d in zip((arcs, words), in_dims[:2], strict=True)
    )
    drawn = [_draw_heads(a, w.contiguous(), count, single) for a, w in zip(arcs, words, strict=True)]
    return torch.stack(drawn), 0
