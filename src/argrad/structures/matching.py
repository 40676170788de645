r"""Pairs between two sets."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._types import Shape, Tau
from argrad.regularizers import Entropy, Euclidean, Regularizer
from argrad.solvers.alternating import matching_unrolled
from argrad.solvers.assignment import assignment
from argrad.solvers.matching import entropic_matching, euclidean_matching
from argrad.structures.base import Relaxations, Solvers, Structure, divided, is_binary


@dataclass(frozen=True)
class Matching(Structure):
    r"""Pairs between n places and m items, each used at most once: $z \in \{0,1\}^{n \times m}$.

    A full matching has $\min(n, m)$ pairs. With `partial=True` any number of pairs is allowed, so that
    a pair with a negative score stays out. `Entropy` (default) and `Euclidean` relaxations.

    Args:
        partial: allow unmatched places and items on both sides.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Matching().argmax(torch.tensor([[0.0, 2.0, 1.0], [0.0, 3.0, 0.0]]))
        tensor([[0., 0., 1.],
                [0., 1., 0.]])
        >>> ag.Matching(partial=True).argmax(torch.tensor([[-1.0, 2.0], [-1.0, 1.0]]))
        tensor([[0., 1.],
                [0., 0.]])

    References: [jonker1987], [cuturi2013].
    """

    partial: bool = False

    event_dims: ClassVar[int] = 2
    argmax_checks_values: ClassVar[bool] = True
    default_regularizer: ClassVar[Regularizer] = Entropy()
    reasons: ClassVar[Mapping[str, str]] = {
        "*": "the sum over matchings is #P-hard to compute. Use `Perturbed(Matching(), scores)` to draw, "
        "`relax` for soft matchings, or `enumerate` for small sets."
    }

    def _argmax(self, scores: Tensor) -> Tensor:
        return assignment(scores, partial=self.partial)

    def contains(self, z: Tensor) -> Tensor:
        """At most one 1 in each row and column, and as many as can be unless partial."""
        self._check_dims("contains", z)
        right = is_binary(z, 2) & (z.sum(-1) <= 1).all(-1) & (z.sum(-2) <= 1).all(-1)
        return right if self.partial else right & (z.sum((-2, -1)) == min(z.shape[-2:]))

    def count(self, event_shape: Shape) -> int:
        """The number of ways to pair up."""
        n, m = event_shape[-2:]
        sizes = range(min(n, m) + 1) if self.partial else (min(n, m),)
        return sum(math.comb(n, k) * math.comb(m, k) * math.factorial(k) for k in sizes)

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        n, m = event_shape
        sizes = range(min(n, m) + 1) if self.partial else (min(n, m),)
        found = []
        for size in sizes:
            for rows in itertools.combinations(range(n), size):
                for columns in itertools.permutations(range(m), size):
                    z = torch.zeros(n, m, device="cpu")
                    z[list(rows), list(columns)] = 1.0
                    found.append(z)
        return torch.stack(found)

    def _relaxations(self, tau: Tau) -> Relaxations:
        def of(solve: Callable[..., Tensor], euclidean: bool) -> Callable[..., Solvers]:
            exact = functools.partial(solve, partial=self.partial)
            steps = functools.partial(matching_unrolled, partial=self.partial, euclidean=euclidean)
            return lambda _: (divided(exact, tau), divided(steps, tau))

        return {Entropy: of(entropic_matching, False), Euclidean: of(euclidean_matching, True)}
