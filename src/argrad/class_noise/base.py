"""What a law over the classes 0 ... n-1 must offer: draws, log-probabilities, negatives for a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from argrad._checks import can_read, check_count, describe, fail
from argrad._errors import InputTypeError
from argrad._types import Bool, Float, Generator, Int, Shape

COUNT_ADVICE = "It is the number of classes; they are numbered from 0."


@dataclass(frozen=True)
class Negatives:
    r"""Noise classes for a batch of targets.

    Attributes:
        index: classes, `(m,)` for the whole batch or `(*batch, m)`.
        count: how many of them an item is compared with: $k$ in $\log(k q)$.
        allowed: bool `(*batch, m)`, False where an item must not be compared; None allows all.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.LogUniform(10).negatives(torch.tensor([3, 5]), k=4).index.shape
        torch.Size([4])
    """

    index: Int[Tensor, "..."]
    count: int
    allowed: Bool[Tensor, "..."] | None = None


class ClassNoise(ABC):
    r"""A law $q$ over the classes $0, \dots, n - 1$.

    Must define: `num_classes`, `sample`, `log_prob`. May define: `negatives`.

    Examples:
        >>> import math, torch, argrad as ag
        >>> class Uniform(ag.ClassNoise):
        ...     num_classes = 5
        ...     def sample(self, shape, *, device=None, generator=None):
        ...         return (5 * ag.random.uniform(shape, device=device, generator=generator)).long()
        ...     def log_prob(self, index):
        ...         return torch.full(index.shape, -math.log(5.0), dtype=torch.float64)
        >>> ag.NCE(3, Uniform(), k=10)(torch.zeros(4, 3), torch.tensor([0, 1, 2, 4])).shape
        torch.Size([4])
    """

    num_classes: int

    @abstractmethod
    def sample(
        self,
        shape: Shape,
        *,
        device: torch.device | str | None = None,
        generator: Generator = None,
    ) -> Int[Tensor, "..."]:
        """Independent draws, int64, of the given shape."""

    @abstractmethod
    def log_prob(self, index: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        r"""$\log q$ of each class, float64; `-inf` where it is never drawn."""

    def negatives(
        self,
        target: Int[Tensor, "*batch"],
        k: int,
        *,
        shared: bool = True,
        generator: Generator = None,
    ) -> Negatives:
        """`k` draws for the whole batch (`shared`) or for each item of it."""
        if not isinstance(target, Tensor):
            check_classes("negatives", "target", target, self.num_classes)
        k = check_count("negatives", "k", k, 1, 2**31, "It is the number of draws an item.")
        shape = (k,) if shared else (*target.shape, k)
        return Negatives(self.sample(shape, device=target.device, generator=generator), k)


def check_classes(call: str, name: str, index: object, num_classes: int) -> None:
    """An integer tensor of classes from 0 to n - 1."""
    if not isinstance(index, Tensor):
        raise InputTypeError(
            f"`{call}({name}=...)` must be a tensor; got {type(index).__name__}. "
            "Wrap it in `torch.as_tensor(...)`."
        )
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise InputTypeError(
            f"`{call}({name}=...)` must hold class numbers (integers); got {describe(index)}. "
            "Call `.long()`, or `.argmax(-1)` if these are one-hot."
        )
    if not index.numel() or not can_read(index):
        return
    low, high = torch.aminmax(index.detach())
    if low < 0 or high >= num_classes:
        rule = f"must hold classes from 0 to {num_classes - 1}"
        advice = "Drop padding and unknown items before the loss, or count them as classes."
        raise fail(call, name, rule, index, advice)


def check_num_classes(call: str, value: object) -> int:
    """At least one class, and no more than the tables can number."""
    return check_count(call, "num_classes", value, 1, 2**31 - 1, COUNT_ADVICE)


def check_seen(call: str, target: Tensor, log_q: Tensor) -> None:
    """The noise can draw every class that occurs as a target."""
    if not log_q.numel() or not can_read(target, log_q):
        return
    never = log_q == -torch.inf
    if bool(never.any()):
        classes = target[never].unique()
        shown = ", ".join(str(int(c)) for c in classes[:3]) + (", ..." if len(classes) > 3 else "")
        raise fail(
            call,
            "noise",
            "must be able to draw every class that is a target",
            f"probability 0 for {len(classes)} of them ({shown})",
            "Add a count to each class: `Unigram(counts + 1)`.",
        )
