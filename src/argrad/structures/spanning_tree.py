r"""Undirected trees that span n nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_square_event
from argrad._types import Generator, Shape, Tau
from argrad.noise import Noise
from argrad.regularizers import ExponentialFamily
from argrad.solvers.matrix_tree import spanning_tree_log_partition, spanning_tree_marginals
from argrad.solvers.spanning_tree import spanning_tree_argmax
from argrad.solvers.tree_sampling import spanning_tree_sample
from argrad.structures.arborescence import Arborescence, all_reached
from argrad.structures.base import Relaxations, Structure, is_binary


@dataclass(frozen=True)
class SpanningTree(Structure):
    r"""n - 1 edges that connect n nodes: symmetric 0/1 matrices.

    An edge $\{i, j\}$ scores $(\theta_{ij} + \theta_{ji})/2$, so a symmetric matrix scores each edge once;
    $z$ and marginals are symmetric and the diagonal is ignored. The relaxation is the exponential
    family: edge probabilities by Kirchhoff's matrix-tree theorem, without subtractions, right in
    float32 at any temperature; O(n³).

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([[0.0, 3.0, 1.0], [3.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
        >>> ag.SpanningTree().argmax(scores)
        tensor([[0., 1., 0.],
                [1., 0., 1.],
                [0., 1., 0.]])
        >>> ag.SpanningTree().marginals(torch.zeros(3, 3))[0, 1]
        tensor(0.6667)

    References: [kirchhoff1847], [paulus2020], [prim1957].
    """

    event_dims: ClassVar[int] = 2
    argmax_checks_values: ClassVar[bool] = True
    inner_weight: ClassVar[float] = 0.5
    reasons: ClassVar[Mapping[str, str]] = {
        "relax": "The tree polytope has exponentially many constraints. "
    }

    def _check_event_shape(self, call: str, event_shape: torch.Size) -> None:
        check_square_event(call, event_shape, "Entry [i, j] is the edge between nodes i and j.")

    def _argmax(self, scores: Tensor) -> Tensor:
        return spanning_tree_argmax(scores)

    def contains(self, z: Tensor) -> Tensor:
        """Symmetric, n - 1 edges, connected."""
        self._check_dims("contains", z)
        n = z.shape[-1]
        symmetric = (z == z.mT).flatten(-2).all(-1) & (z.diagonal(dim1=-2, dim2=-1) == 0).all(-1)
        return is_binary(z, 2) & symmetric & (z.sum((-2, -1)) == 2 * (n - 1)) & all_reached(z, 0)

    def count(self, event_shape: Shape) -> int:
        """n^(n-2) (Cayley)."""
        n = event_shape[-1]
        return n if n <= 1 else n ** (n - 2)

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        z = Arborescence(root=0)._enumerate(
            event_shape
        )  # each tree once, its edges directed away from 0
        return z + z.mT

    def draw_noise(self, noise: Noise, scores: Tensor, generator: Generator = None) -> Tensor:
        """One draw an edge, symmetric, 0 on the diagonal."""
        upper = noise.like(scores, generator).triu(1)
        return upper + upper.mT

    def _noise_parts(self, per_part: Tensor) -> Tensor:
        return per_part.triu(1)

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        """Checked by the solvers, which know whether a tree is left."""

    def _relaxations(self, tau: Tau) -> Relaxations:
        return {ExponentialFamily: self._family(tau)}

    def _log_partition(self, scores: Tensor) -> Tensor:
        return spanning_tree_log_partition(scores)

    def _marginals(self, scores: Tensor) -> Tensor:
        return spanning_tree_marginals(scores)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        return spanning_tree_sample(scores, sample_shape, generator=generator)
