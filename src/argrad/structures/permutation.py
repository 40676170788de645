r"""Orders of n items."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_square_event
from argrad._types import Shape, Tau
from argrad.regularizers import Entropy, Euclidean, Regularizer
from argrad.solvers.alternating import matching_unrolled
from argrad.solvers.assignment import assignment
from argrad.solvers.birkhoff import birkhoff_projection
from argrad.solvers.sinkhorn import sinkhorn, sinkhorn_unrolled
from argrad.structures.base import Relaxations, Structure, divided, is_binary

_HARD = (
    "the sum over permutations is the permanent of exp(scores), which is #P-hard to compute. Use "
    "`Perturbed(Permutation(), scores)` to draw, `relax` for soft permutations (Sinkhorn), or "
    "`enumerate` for n up to 9."
)


@dataclass(frozen=True)
class Permutation(Structure):
    r"""An order of n items: permutation matrices, whose hull is the doubly stochastic matrices.

    $P_{ij} = 1$ puts item $j$ at place $i$, so that `P @ x` is `x` in the new order.

    | regularizer | soft point | cost |
    |---|---|---|
    | `Entropy` (default) | Sinkhorn, $P_{ij} = e^{\theta_{ij}/\tau - \alpha_i - \beta_j}$ | O(n³) a step |
    | `Euclidean` | projection onto the Birkhoff polytope | O(n³) a step |

    The arg max is an exact assignment. Rankings from a score *vector*: `argrad.softsort`, `neuralsort`.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
        >>> ag.Permutation().argmax(scores)
        tensor([[0., 1.],
                [1., 0.]])
        >>> ag.Permutation().relax(torch.zeros(2, 2))
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])

    References: [mena2018], [sinkhorn1967], [cuturi2013].
    """

    event_dims: ClassVar[int] = 2
    argmax_checks_values: ClassVar[bool] = True
    default_regularizer: ClassVar[Regularizer] = Entropy()
    reasons: ClassVar[Mapping[str, str]] = {"*": _HARD}

    def _check_event_shape(self, call: str, event_shape: torch.Size) -> None:
        check_square_event(call, event_shape, "Rectangular problems are `Matching`.")

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        """Checked by the solvers, which know whether a permutation is left."""

    def _argmax(self, scores: Tensor) -> Tensor:
        return assignment(scores)

    def contains(self, z: Tensor) -> Tensor:
        """One 1 in each row and column."""
        self._check_dims("contains", z)
        return is_binary(z, 2) & (z.sum(-1) == 1).all(-1) & (z.sum(-2) == 1).all(-1)

    def count(self, event_shape: Shape) -> int:
        """n!."""
        return math.factorial(event_shape[-1])

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        n = event_shape[-1]
        return torch.eye(n, device="cpu")[
            torch.tensor(list(itertools.permutations(range(n))), device="cpu")
        ]

    def _relaxations(self, tau: Tau) -> Relaxations:
        return {
            Entropy: lambda _: (divided(sinkhorn, tau), divided(sinkhorn_unrolled, tau)),
            Euclidean: lambda _: (
                divided(birkhoff_projection, tau),
                divided(partial(matching_unrolled, euclidean=True), tau),
            ),
        }
