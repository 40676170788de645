r"""One of n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import all_finite, check_any_allowed
from argrad._numerics import logsumexp, one_hot
from argrad._types import Generator, Shape, Tau
from argrad.gumbel import gumbel_max
from argrad.regularizers import (
    BinaryEntropy,
    Entropy,
    Euclidean,
    ExponentialFamily,
    Regularizer,
    Tsallis,
)
from argrad.solvers.capped_simplex import capped_binary_entropy, capped_binary_entropy_unrolled
from argrad.solvers.entropy import softmax_entropy
from argrad.solvers.simplex import entmax, entmax_unrolled, sparsemax, sparsemax_unrolled
from argrad.structures.base import Relaxations, Solver, Solvers, Structure, divided, is_binary


@dataclass(frozen=True)
class OneHot(Structure):
    r"""One item of n: $Z = \{e_1, \dots, e_n\}$, whose hull is the simplex.

    | regularizer | soft point | cost |
    |---|---|---|
    | `Entropy` (default), `ExponentialFamily` | $\mathrm{softmax}(\theta/\tau)$ | O(n) |
    | `Euclidean` | sparsemax | O(n log n) |
    | `Tsallis(alpha)` | entmax | O(n log n) |
    | `BinaryEntropy` | $\sigma(\theta/\tau - \nu)$ that sums to 1 | O(n) a step |

    With Gumbel noise, perturb-and-argmax *is* the Gibbs law (Gumbel-max).

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([1.0, 3.0, 2.0])
        >>> ag.OneHot().argmax(scores)
        tensor([0., 1., 0.])
        >>> ag.OneHot().relax(scores, regularizer=ag.Euclidean())
        tensor([0., 1., 0.])

    References: [jang2017], [maddison2017], [martins2016], [peters2019].
    """

    event_dims: ClassVar[int] = 1
    default_regularizer: ClassVar[Regularizer] = Entropy()

    def _argmax(self, scores: Tensor) -> Tensor:
        return one_hot(scores.argmax(-1, keepdim=True), scores)

    def contains(self, z: Tensor) -> Tensor:
        """Zeros and a single one."""
        self._check_dims("contains", z)
        return is_binary(z, 1) & (z.sum(-1) == 1)

    def count(self, event_shape: Shape) -> int:
        """n."""
        return event_shape[-1]

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        return torch.eye(event_shape[-1], device="cpu")

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        if not all_finite(scores):  # the usual case, for the price of one sum
            check_any_allowed(call, scores)

    def _relaxations(self, tau: Tau) -> Relaxations:
        def both(implicit: Solver, unrolled: Solver) -> Solvers:
            return divided(implicit, tau), divided(unrolled, tau)

        def softmax(_: Regularizer) -> Solvers:
            return both(lambda x: x.softmax(-1), lambda x: x.softmax(-1))

        def tsallis(f: Tsallis) -> Solvers:
            return both(lambda x: entmax(x, f.alpha), lambda x: entmax_unrolled(x, f.alpha))

        return {
            Entropy: softmax,
            ExponentialFamily: softmax,
            Euclidean: lambda _: both(sparsemax, sparsemax_unrolled),
            Tsallis: tsallis,
            BinaryEntropy: lambda _: both(
                lambda x: capped_binary_entropy(x, 1), lambda x: capped_binary_entropy_unrolled(x, 1)
            ),
        }

    def _log_partition(self, scores: Tensor) -> Tensor:
        return logsumexp(scores)

    def _marginals(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def _entropy(self, scores: Tensor) -> Tensor:
        return softmax_entropy(scores)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        scores = scores.expand(sample_shape + scores.shape)
        index = gumbel_max(scores, generator=generator)
        return one_hot(index[..., None], scores)
