r"""k of n along a line, with scores for neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count, fail
from argrad._errors import InputTypeError
from argrad._types import Generator, Shape, Tau
from argrad.regularizers import ExponentialFamily
from argrad.solvers import chain_subset as solver
from argrad.structures.base import Relaxations, Structure, is_binary
from argrad.structures.subset import Subset


@dataclass(frozen=True, eq=False)
class ChainSubset(Structure):
    r"""k items of a line of n, scoring neighbours that are chosen together ("correlated top-k").

    $$ Z = \{ z \in \{0,1\}^{2n-1} : \textstyle\sum_{i \le n} z_i = k,\;
       z_{n+i} = z_i z_{i+1} \text{ for } 1 \le i < n \} $$
    The event is a vector of length $2n - 1$: n unary parts, then n - 1 pairwise parts. The only
    relaxation that can be solved is the exponential family, by a dynamic program of O(n k).

    Args:
        k: how many; an int, or an integer tensor that broadcasts over the batch.

    Examples:
        >>> import torch, argrad as ag
        >>> unary, pairwise = torch.tensor([1.0, 0.0, 0.9]), torch.tensor([2.0, 0.0])
        >>> ag.ChainSubset(2).argmax(torch.cat([unary, pairwise]))
        tensor([1., 1., 0., 1., 0.])

    References: [paulus2020].
    """

    k: int | Tensor

    event_dims: ClassVar[int] = 1
    reasons: ClassVar[Mapping[str, str]] = {
        "relax": "The hull has no simple description beyond its marginals. "
    }

    def __post_init__(self) -> None:
        if not isinstance(self.k, Tensor):
            check_count("ChainSubset", "k", self.k, 0, None, "It is the number of items to choose.")
        elif self.k.is_floating_point() or self.k.dtype == torch.bool:
            raise InputTypeError(f"`ChainSubset(k=...)` must be an integer tensor; got {self.k.dtype}.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChainSubset) and Subset(self.k) == Subset(other.k)

    def __hash__(self) -> int:
        return hash((ChainSubset, Subset(self.k)))

    def _check_event_shape(self, call: str, event_shape: torch.Size) -> None:
        if event_shape[0] % 2 == 0:
            advice = "n unary scores, then n - 1 pairwise ones: `torch.cat([unary, pairwise], -1)`."
            raise fail(call, "scores", "must have an odd length 2n - 1", f"{event_shape[0]}", advice)
        n = (event_shape[0] + 1) // 2
        if isinstance(self.k, int) and self.k > n:
            raise fail("ChainSubset", "k", f"must not exceed the n = {n} items", self.k, "")

    def _argmax(self, scores: Tensor) -> Tensor:
        return solver.chain_subset_argmax(scores, self.k)

    def contains(self, z: Tensor) -> Tensor:
        """The right number of items, and pairwise parts that agree with them."""
        self._check_dims("contains", z)
        n = (z.shape[-1] + 1) // 2
        items, pairs = z[..., :n], z[..., n:]
        agree = (pairs == items[..., 1:] * items[..., :-1]).all(-1)
        return is_binary(z, 1) & (items.sum(-1) == self.k) & agree

    def count(self, event_shape: Shape) -> int:
        """n over k."""
        return Subset(self.k).count(((event_shape[-1] + 1) // 2,))

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        items = Subset(self.k)._enumerate(torch.Size(((event_shape[-1] + 1) // 2,)))
        return torch.cat([items, items[..., 1:] * items[..., :-1]], -1)

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        solver.check_feasible(call, scores, self.k)

    def _relaxations(self, tau: Tau) -> Relaxations:
        return {ExponentialFamily: self._family(tau)}

    def _log_partition(self, scores: Tensor) -> Tensor:
        return solver.chain_subset_log_partition(scores, self.k)

    def _marginals(self, scores: Tensor) -> Tensor:
        return solver.chain_subset_marginals(scores, self.k)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        return solver.chain_subset_sample(scores, self.k, sample_shape, generator=generator)
