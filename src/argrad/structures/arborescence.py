r"""Directed trees away from a root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count, check_square_event, fail
from argrad._types import Generator, Shape, Tau
from argrad.regularizers import ExponentialFamily
from argrad.solvers.arborescence import arborescence_argmax
from argrad.solvers.matrix_tree import arborescence_log_partition, arborescence_marginals
from argrad.solvers.tree_sampling import arborescence_sample
from argrad.structures.base import Relaxations, Structure, is_binary


@dataclass(frozen=True)
class Arborescence(Structure):
    r"""A head for every node but the root, without cycles: dependency trees.

    $A_{hc} = 1$ makes $h$ the head of child $c$; the diagonal is ignored. The relaxation is the
    exponential family: arc probabilities by the directed matrix-tree theorem (Tutte), O(n³); the
    arg max is Chu-Liu and Edmonds'.

    Args:
        root: number of the root node, or None when any node may be the root.
        single_root: the root has exactly one child.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 5.0], [0.0, 4.0, 0.0]])
        >>> ag.Arborescence(root=0).argmax(scores)
        tensor([[0., 1., 0.],
                [0., 0., 1.],
                [0., 0., 0.]])

    References: [tutte1948], [koo2007], [chu1965], [edmonds1967], [paulus2020].
    """

    root: int | None = 0
    single_root: bool = False

    event_dims: ClassVar[int] = 2
    argmax_checks_values: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "relax": "The arborescence polytope has exponentially many constraints. "
    }

    def __post_init__(self) -> None:
        if self.root is not None:
            check_count("Arborescence", "root", self.root, 0, None, "Or None for a free root.")
        elif self.single_root:
            advice = "A free root has no arcs of its own to count; name the root."
            raise fail("Arborescence", "single_root", "needs a fixed root", True, advice)

    def _check_event_shape(self, call: str, event_shape: torch.Size) -> None:
        check_square_event(call, event_shape, "Entry [h, c] is the arc from head h to child c.")
        if self.root is not None and self.root >= event_shape[-1]:
            rule = f"must be a node of the graph, 0 to {event_shape[-1] - 1}"
            raise fail("Arborescence", "root", rule, self.root, "")

    def _argmax(self, scores: Tensor) -> Tensor:
        return arborescence_argmax(scores, root=self.root, single_root=self.single_root)

    def contains(self, z: Tensor) -> Tensor:
        """One head for each child, none for the root, everything reached from it."""
        self._check_dims("contains", z)
        heads = z.sum(-2)
        right = is_binary(z, 2) & (z.diagonal(dim1=-2, dim2=-1) == 0).all(-1)
        right = right & (heads.sum(-1) == z.shape[-1] - 1) & (heads <= 1).all(-1)
        if self.root is None:
            return right & all_reached(z, heads.argmin(-1))
        right = right & (heads[..., self.root] == 0)
        if self.single_root and z.shape[-1] > 1:
            right = right & (z[..., self.root, :].sum(-1) == 1)
        return right & all_reached(z, self.root)

    def count(self, event_shape: Shape) -> int:
        """n^(n-2) for a fixed root, n^(n-1) for a free one, (n-1)^(n-2) with a single root arc."""
        n = event_shape[-1]
        if n <= 1:
            return n
        if self.root is None:
            return n ** (n - 1)
        return (n - 1) ** (n - 2) if self.single_root else n ** (n - 2)

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        n = event_shape[-1]
        roots = range(n) if self.root is None else (self.root,)
        trees = torch.cat([_all_rooted(n, root) for root in roots])
        if self.single_root and n > 1:
            trees = trees[trees[:, self.root].sum(-1) == 1]
        return trees

    def _noise_parts(self, per_part: Tensor) -> Tensor:
        n = per_part.shape[-1]
        keep = ~torch.eye(n, dtype=torch.bool, device=per_part.device)
        if self.root is not None:  # arcs into the root are never used
            keep = keep & (torch.arange(n, device=per_part.device) != self.root)
        return torch.where(keep, per_part, 0.0)

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        """Checked by the solvers, which know whether a tree is left."""

    def _relaxations(self, tau: Tau) -> Relaxations:
        return {ExponentialFamily: self._family(tau)}

    def _log_partition(self, scores: Tensor) -> Tensor:
        return arborescence_log_partition(scores, root=self.root, single_root=self.single_root)

    def _marginals(self, scores: Tensor) -> Tensor:
        return arborescence_marginals(scores, root=self.root, single_root=self.single_root)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        return arborescence_sample(
            scores, sample_shape, root=self.root, single_root=self.single_root, generator=generator
        )


def all_reached(z: Tensor, start: int | Tensor) -> Tensor:
    """Whether every node can be reached from `start` along the arcs of `z` `[head, child]`."""
    n = z.shape[-1]
    nodes = torch.arange(n, device=z.device)
    first = start[..., None] if isinstance(start, Tensor) else start
    reached = (nodes == first).expand(*z.shape[:-2], n)
    for _ in range(n - 1):
        reached = reached | ((z != 0) & reached[..., :, None]).any(-2)
    return reached.all(-1)


def _all_rooted(n: int, root: int) -> Tensor:
    """All arborescences on n nodes: every choice of heads, less those with a cycle."""
    children = [c for c in range(n) if c != root]
    if not children:
        return torch.zeros(1, 1, 1, device="cpu")
    heads = torch.cartesian_prod(
        *(torch.tensor([h for h in range(n) if h != c], device="cpu") for c in children)
    )
    heads = heads.reshape(-1, len(children))
    z = torch.zeros(len(heads), n, n, device="cpu")
    rows = torch.arange(len(heads), device="cpu")
    for column, child in enumerate(children):
        z[rows, heads[:, column], child] = 1.0
    return z[all_reached(z, root)]
