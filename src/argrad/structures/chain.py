r"""Tags along a line."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_event, check_floating, fail, fits
from argrad._types import Float, Generator, Int, Shape, Tau
from argrad.regularizers import ExponentialFamily
from argrad.solvers import chain as solver
from argrad.structures.base import Relaxations, Structure, is_binary


@dataclass(frozen=True)
class Chain(Structure):
    r"""A tag for each of L places, scored by neighbours (a linear-chain CRF).

    The event has shape `(L - 1, C, C)`: $z_{t,i,j} = 1$ if place $t$ has tag $i$ and place $t+1$ tag $j$.
    Scores of single places go in with `Chain.scores(unary, pairwise)`. Forward-backward and Viterbi,
    O(L C²).

    Examples:
        >>> import torch, argrad as ag
        >>> scores = ag.Chain.scores(torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.5]]))
        >>> ag.Chain.tags(ag.Chain().argmax(scores))
        tensor([1, 0, 1])

    References: [rabiner1989], [lafferty2001].
    """

    event_dims: ClassVar[int] = 3
    reasons: ClassVar[Mapping[str, str]] = {
        "relax": "Sparse relaxations of chains (SparseMAP) need an active-set solver. "
    }

    @staticmethod
    def scores(
        unary: Float[Tensor, "*batch L C"], pairwise: Float[Tensor, "*batch M C C"] | None = None
    ) -> Float[Tensor, "*batch M C C"]:
        """Scores of one event from scores of tags and (optionally) of neighbouring pairs.

        Each unary score is added once: places 0 ... L-2 with the pair to their right, the last with
        the pair to its left.
        """
        check_floating("Chain.scores", "unary", unary)
        check_event("Chain.scores", "unary", unary, 2)
        *batch, length, classes = unary.shape
        if length < 2:
            advice = "A chain of one place is a choice: use `OneHot`."
            raise fail("Chain.scores", "unary", "must have at least two places", length, advice)
        pairs = (*batch, length - 1, classes, classes)
        if pairwise is not None and not fits(pairwise.shape, pairs):
            got, advice = f"shape {tuple(pairwise.shape)}", "One matrix a pair of neighbours."
            raise fail("Chain.scores", "pairwise", f"must broadcast to shape {pairs}", got, advice)
        scores = unary[..., :-1, :, None] + torch.zeros_like(unary[..., 1:, None, :])
        last = torch.zeros_like(scores)
        last[..., -1, :, :] = 1.0
        scores = scores + last * unary[..., 1:, None, :]
        return scores if pairwise is None else scores + pairwise

    @staticmethod
    def tags(z: Float[Tensor, "*batch M C C"]) -> Int[Tensor, "*batch L"]:
        """The tag of each place of a vertex."""
        left = z.sum(-1).argmax(-1)
        last = z[..., -1, :, :].sum(-2).argmax(-1)
        return torch.cat([left, last[..., None]], -1)

    def _check_event_shape(self, call: str, event_shape: torch.Size) -> None:
        if event_shape[-1] != event_shape[-2]:
            advice = "`Chain.scores(unary, pairwise)` makes them."
            raise fail(
                call, "scores", "must have shape (..., L - 1, C, C)", f"{tuple(event_shape)}", advice
            )

    def _argmax(self, scores: Tensor) -> Tensor:
        return solver.chain_argmax(scores)

    def contains(self, z: Tensor) -> Tensor:
        """One pair a step, and neighbouring pairs that agree on the tag between them."""
        self._check_dims("contains", z)
        one = (z.flatten(-2).sum(-1) == 1).all(-1)
        agree = (z[..., :-1, :, :].sum(-2) == z[..., 1:, :, :].sum(-1)).flatten(-2).all(-1)
        return is_binary(z, 3) & one & agree

    def count(self, event_shape: Shape) -> int:
        """C^L."""
        return event_shape[-1] ** (event_shape[-3] + 1)

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        length, tags = event_shape[0] + 1, event_shape[-1]
        all_tags = torch.tensor(list(itertools.product(range(tags), repeat=length)), device="cpu")
        one_hot = torch.nn.functional.one_hot(all_tags, tags).float()
        return one_hot[:, :-1, :, None] * one_hot[:, 1:, None, :]

    def _check_allowed(self, call: str, scores: Tensor) -> None:
        solver.check_feasible(call, scores)

    def _relaxations(self, tau: Tau) -> Relaxations:
        return {ExponentialFamily: self._family(tau)}

    def _log_partition(self, scores: Tensor) -> Tensor:
        return solver.chain_log_partition(scores)

    def _marginals(self, scores: Tensor) -> Tensor:
        return solver.chain_marginals(scores)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        return solver.chain_sample(scores, sample_shape, generator=generator)
