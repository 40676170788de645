r"""Zipf-like noise in closed form, for classes that are numbered by falling frequency."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad import random
from argrad._types import Float, Generator, Int, Shape
from argrad.class_noise.base import ClassNoise, check_classes, check_num_classes


class LogUniform(ClassNoise):
    r"""Noise that falls like $1/i$: the integer part of a log-uniform number.

    $$ q_i = \frac{\log(i + 2) - \log(i + 1)}{\log(n + 1)}, \quad i = 0, \dots, n - 1 $$
    For classes numbered from the most to the least frequent, as vocabularies often are; it needs no
    counts and no table. The default noise of TensorFlow's sampled losses.

    Args:
        num_classes: $n$.

    Examples:
        >>> import torch, argrad as ag
        >>> noise = ag.LogUniform(3)
        >>> noise.log_prob(torch.arange(3)).exp()
        tensor([0.5000, 0.2925, 0.2075], dtype=torch.float64)
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = check_num_classes("LogUniform", num_classes)

    def sample(
        self,
        shape: Shape,
        *,
        device: torch.device | str | None = None,
        generator: Generator = None,
    ) -> Int[Tensor, "..."]:
        """Independent draws, int64, of the given shape."""
        n = self.num_classes
        u = random.uniform(shape, dtype=torch.float64, device=device, generator=generator)
        return torch.expm1(u * math.log1p(n)).long().clamp(max=n - 1)  # (n + 1)^u may round up to n + 1

    def log_prob(self, index: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        r"""$\log q$ of each class, float64."""
        check_classes("LogUniform.log_prob", "index", index, self.num_classes)
        return torch.log1p(1 / (index.double() + 1)).log() - math.log(math.log1p(self.num_classes))

    def __repr__(self) -> str:
        return f"LogUniform({self.num_classes})"
