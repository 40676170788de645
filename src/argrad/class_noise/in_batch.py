r"""Noise that costs no draw: the targets of the other items of the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from argrad._checks import fail
from argrad._errors import UnsupportedError
from argrad._numerics import rows_of
from argrad._types import Float, Generator, Int, Shape
from argrad.class_noise.alias_table import check_weights, log_probs
from argrad.class_noise.base import ClassNoise, Negatives, check_classes, check_num_classes


class InBatch(ClassNoise):
    r"""The negatives of an item are the targets of the other items of its batch.

    Nothing is drawn, and every embedding is used for all items: $k$ is the batch size less 1. Targets of
    a shuffled data set come from its class frequencies, and it is these that `weights` must give for
    $\log q$ to be right; without them all classes count as equally frequent.

    Args:
        num_classes: $n$.
        weights: class frequencies (counts will do), length n.

    Examples:
        >>> import torch, argrad as ag
        >>> noise = ag.InBatch(10)
        >>> draw = noise.negatives(torch.tensor([3, 5, 3]), k=0)
        >>> draw.index, draw.count
        (tensor([3, 5, 3]), 2)
        >>> draw.allowed[0]
        tensor([False,  True,  True])

    References: [yi2019].
    """

    def __init__(
        self,
        num_classes: int,
        weights: Tensor | np.ndarray | Sequence[float] | None = None,
    ) -> None:
        self.num_classes = n = check_num_classes("InBatch", num_classes)
        self._log_q = None
        if weights is not None:
            w = check_weights("InBatch", weights)
            if len(w) != n:
                raise fail("InBatch", "weights", f"must have {n} entries", f"{len(w)}", "One a class.")
            self._log_q = log_probs(w, float(w.sum()))

    def sample(
        self,
        shape: Shape,
        *,
        device: torch.device | str | None = None,
        generator: Generator = None,
    ) -> Int[Tensor, "..."]:
        """Refused: there is no batch to take classes from."""
        raise UnsupportedError(
            "`InBatch` cannot draw by itself: its classes are the targets of a batch. "
            "Use `AliasTable` or `Unigram` to draw."
        )

    def log_prob(self, index: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        r"""$\log q$ of each class, float64."""
        check_classes("InBatch.log_prob", "index", index, self.num_classes)
        if self._log_q is None:
            n = self.num_classes
            return torch.full(index.shape, -math.log(n), dtype=torch.float64, device=index.device)
        return rows_of(self._log_q.to(index.device), index)

    def negatives(
        self,
        target: Int[Tensor, "*batch"],
        k: int,
        *,
        shared: bool = True,
        generator: Generator = None,
    ) -> Negatives:
        """All targets, each item's own one forbidden; `k`, `shared` and `generator` are not used."""
        index = target.reshape(-1)
        size = len(index)
        if size == 1:
            advice = "One item has no others to compare with; use larger batches or another noise."
            raise fail("InBatch.negatives", "target", "must hold at least two items", "one", advice)
        own = torch.eye(size, dtype=torch.bool, device=target.device)
        return Negatives(index, max(size - 1, 1), (~own).reshape(*target.shape, size))

    def __repr__(self) -> str:
        return f"InBatch({self.num_classes})"
