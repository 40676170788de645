r"""k of n."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count, fail
from argrad._errors import InputError, InputTypeError
from argrad._types import Generator, Shape, Tau
from argrad.regularizers import (
    BinaryEntropy,
    Entropy,
    Euclidean,
    ExponentialFamily,
    Regularizer,
    SuccessiveSoftmax,
    Tsallis,
)
from argrad.solvers import capped_simplex as capped
from argrad.solvers.subset import subset_log_partition, subset_marginals, subset_sample
from argrad.structures.base import Relaxations, Solvers, Structure, divided, is_binary


@dataclass(frozen=True, eq=False)
class Subset(Structure):
    r"""k items of n: $Z = \{z \in \{0,1\}^n : \sum_i z_i = k\}$ (or $\le k$ with `at_most`).

    | regularizer | soft point | cost |
    |---|---|---|
    | `ExponentialFamily` (default) | inclusion probabilities of the Gibbs law | O(n k) |
    | `BinaryEntropy` | $\sigma(\theta/\tau - \nu)$ | O(n) a step |
    | `Entropy` | $\min(1, e^{\theta/\tau - \nu})$ | O(n log n) |
    | `Euclidean` | $\theta/\tau - \nu$ cut to [0, 1] | O(n log n) |
    | `Tsallis(alpha)` | in between | O(n) a step |
    | `SuccessiveSoftmax` | k damped softmaxes (not in the hull) | O(n k) |

    L2X, the maximum of k Concretes, needs k noises an item: `argrad.presets.l2x`; the correlated
    relaxation is `ChainSubset`.

    Args:
        k: how many; an int, or an integer tensor that broadcasts over the batch (a k for each row).
        at_most: also smaller sets; items with negative scores then stay out.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([1.0, 3.0, 2.0, 0.0])
        >>> ag.Subset(2).argmax(scores)
        tensor([0., 1., 1., 0.])
        >>> ag.Subset(2).marginals(torch.zeros(4))
        tensor([0.5000, 0.5000, 0.5000, 0.5000])

    References: [paulus2020], [xie2019], [ahmed2023].
    """

    k: int | Tensor
    at_most: bool = False

    event_dims: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.k, Tensor):
            check_count("Subset", "k", self.k, 0, None, "It is the number of items to choose.")
        elif self.k.is_floating_point() or self.k.dtype == torch.bool:
            raise InputTypeError(f"`Subset(k=...)` must be an integer tensor; got {self.k.dtype}.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subset):
            return NotImplemented
        same = self.k is other.k or (isinstance(self.k, int) and self.k == other.k)
        return same and self.at_most == other.at_most

    def __hash__(self) -> int:
        return hash((Subset, self.k if isinstance(self.k, int) else id(self.k), self.at_most))

    def _argmax(self, scores: Tensor) -> Tensor:
        order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
        rank = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
        chosen = (rank < self._column(scores)).to(scores.dtype)
        z = torch.zeros_like(scores).scatter(-1, order, chosen)
        return torch.where(scores > 0, z, 0.0) if self.at_most else z

    def contains(self, z: Tensor) -> Tensor:
        """Zeros and ones with the right sum."""
        self._check_dims("contains", z)
        total = z.sum(-1)
        return is_binary(z, 1) & ((total <= self.k) if self.at_most else (total == self.k))

    def count(self, event_shape: Shape) -> int:
        """n over k (summed up to k with `at_most`)."""
        k = self._int("count")
        return sum(math.comb(event_shape[-1], j) for j in (range(k + 1) if self.at_most else (k,)))

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        n, k = event_shape[-1], self._int("enumerate")
        sizes = range(k + 1) if self.at_most else (k,)
        sets = [c for size in sizes for c in itertools.combinations(range(n), size)]
        z = torch.zeros(len(sets), n, device="cpu")
        for row, items in zip(z, sets, strict=True):
            row[list(items)] = 1.0
        return z

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        if self.at_most:
            return
        allowed = (scores > -math.inf).sum(-1)
        short = allowed < self.k
        if bool(short.any()):
            row = int(short.reshape(-1).nonzero()[0])
            k = self.k if isinstance(self.k, int) else int(self.k.expand(short.shape).reshape(-1)[row])
            raise InputError(
                f"`{call}`: `Subset(k=...)` must not exceed the number of allowed items; got k={k}, but "
                f"row {row} allows {int(allowed.reshape(-1)[row])}. Lower k, or allow more items."
            )

    def _relaxations(self, tau: Tau) -> Relaxations:
        def both(name: str, *extra: float) -> Solvers:
            run = [getattr(capped, name), getattr(capped, f"{name}_unrolled")]
            implicit, unrolled = (
                divided(lambda x, f=f: f(x, self.k, *extra, at_most=self.at_most), tau) for f in run
            )
            return implicit, unrolled

        def successive(_: Regularizer) -> Solvers:
            return lambda x: self._successive(x, tau), lambda x: self._successive(x, tau)

        return {
            ExponentialFamily: self._family(tau),
            BinaryEntropy: lambda _: both("capped_binary_entropy"),
            Entropy: lambda _: both("capped_entropy"),
            Euclidean: lambda _: both("capped_euclidean"),
            Tsallis: lambda f: both("capped_tsallis", f.alpha),
            SuccessiveSoftmax: successive,
        }

    def _successive(self, scores: Tensor, tau: Tau) -> Tensor:
        if self.at_most or isinstance(self.k, Tensor):
            raise fail("Subset.relax", "regularizer", "needs an int k and exactly k items", self, "")
        total = torch.zeros_like(scores)
        for _ in range(self.k):
            step = divided(lambda x: x.softmax(-1), tau)(scores)
            total = total + step
            # an item with p = 1 is damped by the largest finite amount
            scores = scores + torch.log1p(-step.clamp(max=1 - torch.finfo(step.dtype).eps))
        return total

    def _log_partition(self, scores: Tensor) -> Tensor:
        return subset_log_partition(scores, self.k, at_most=self.at_most)

    def _marginals(self, scores: Tensor) -> Tensor:
        return subset_marginals(scores, self.k, at_most=self.at_most)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        return subset_sample(scores, self.k, sample_shape, at_most=self.at_most, generator=generator)

    def _column(self, scores: Tensor) -> int | Tensor:
        """k as something that broadcasts against `(*batch, n)`."""
        return self.k[..., None].to(scores.device) if isinstance(self.k, Tensor) else self.k

    def _int(self, call: str) -> int:
        if isinstance(self.k, int):
            return self.k
        raise InputError(f"`Subset.{call}` needs one k for all rows; got a tensor of k.")
