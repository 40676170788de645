r"""Any law over classes, by Walker's alias method: O(n) to build, O(1) a draw, exact at any size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from argrad import random
from argrad._checks import check_count, describe, fail, is_transformed
from argrad._errors import InputTypeError
from argrad._kernels.threads import run_rows
from argrad._numerics import rows_of
from argrad._types import Float, Generator, Int, Shape
from argrad.class_noise.base import ClassNoise, check_classes


class AliasTable(ClassNoise):
    r"""Draws from given weights, $q_i = w_i / \sum_j w_j$, in constant time.

    Each of $n$ cells of equal width holds one class and part of another, its alias. One uniform number
    picks the cell and decides between the two. Everything is float64: the uniform's 53 bits change a
    probability by $n\, 2^{-53}$ of itself, a class of weight 0 is never drawn, and there may be up to
    $2^{31}$ classes (`torch.multinomial` stops at $2^{24}$, and sums its weights in float32 before that).

    The same generator gives the same classes on every device, in compiled code, and on any number of
    threads. With a `CounterRNG` a class depends on (seed, row, column) alone.

    Args:
        weights: $w$, non-negative and not all 0; a tensor, an array or a list of length n.

    Examples:
        >>> import torch, argrad as ag
        >>> noise = ag.AliasTable([1.0, 0.0, 3.0])
        >>> noise.log_prob(torch.tensor([0, 1, 2])).exp()
        tensor([0.2500, 0.0000, 0.7500], dtype=torch.float64)
        >>> noise.sample((2, 5), generator=torch.Generator().manual_seed(0)).shape
        torch.Size([2, 5])

    References: [walker1977], [vose1991].
    """

    def __init__(self, weights: Tensor | np.ndarray | Sequence[float]) -> None:
        w = check_weights(type(self).__name__, weights)
        self._set(w)

    def _set(self, weights: np.ndarray) -> None:
        from argrad._kernels import alias

        total = float(weights.sum())
        self.num_classes = len(weights)
        table = np.empty((self.num_classes, 2))
        alias.build(weights, total, table)
        self._tables = {torch.device("cpu"): (torch.from_numpy(table), log_probs(weights, total))}

    def sample(
        self,
        shape: Shape,
        *,
        device: torch.device | str | None = None,
        generator: Generator = None,
    ) -> Int[Tensor, "..."]:
        """Independent draws, int64, of the given shape."""
        random.check_generator(type(self).__name__, generator)
        place = torch.device("cpu" if device is None else device)
        if place.type == "cpu" and not is_transformed():
            return self._sample_kernel(tuple(shape), generator)
        table, _ = self._on(place)
        n = self.num_classes
        x = n * random.uniform(shape, dtype=torch.float64, device=place, generator=generator)
        cell = x.long()
        keep, other = rows_of(table, cell).unbind(-1)
        return torch.where(x - cell < keep, cell, other.long())

    def _sample_kernel(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        from argrad._kernels import alias

        out = torch.empty(shape, dtype=torch.int64, device="cpu")
        columns = shape[-1] if shape else 1
        if out.numel():
            table, _ = self._on(out.device)
            args = (out.view(-1).numpy(), columns, table.numpy(), *random.words(generator))
            run_rows(alias.draw, out.numel(), 4 * out.numel(), *args)  # a draw costs several numbers
        return out

    def log_prob(self, index: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        r"""$\log q$ of each class, float64; `-inf` where the weight is 0."""
        check_classes(type(self).__name__ + ".log_prob", "index", index, self.num_classes)
        return rows_of(self._on(index.device)[1], index)

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Table and log-probabilities on a device; copied there once."""
        if device not in self._tables:
            table, log_q = self._tables[torch.device("cpu")]
            self._tables[device] = (table.to(device), log_q.to(device))
        return self._tables[device]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_classes} classes)"


class Unigram(AliasTable):
    r"""The noise of word2vec: counts raised to a power, $q_i \propto c_i^{\alpha}$.

    A power below 1 moves mass from frequent to rare classes. $\alpha = 1$ is the unigram law, the best
    choice for `NCE` with few samples; $\alpha = 0.75$ is what word2vec uses; $\alpha = 0$ is uniform
    over the classes that occur.

    Args:
        counts: $c$, how often each class occurs.
        power: $\alpha \ge 0$.

    Examples:
        >>> import torch, argrad as ag
        >>> noise = ag.Unigram(torch.tensor([16.0, 1.0, 0.0]), power=0.75)
        >>> noise.log_prob(torch.arange(3)).exp()
        tensor([0.8889, 0.1111, 0.0000], dtype=torch.float64)

    References: [mikolov2013].
    """

    def __init__(self, counts: Tensor | np.ndarray | Sequence[float], power: float = 0.75) -> None:
        c = check_weights("Unigram", counts, "counts")
        if not 0 <= power < math.inf:
            raise fail("Unigram", "power", "must be at least 0 and finite", power, "word2vec has 0.75.")
        self.power = float(power)
        self._set(np.where(c > 0, c**self.power, 0.0))

    def __repr__(self) -> str:
        return f"Unigram({self.num_classes} classes, power={self.power})"


def check_weights(call: str, weights: object, name: str = "weights") -> np.ndarray:
    """Weights as a float64 array whose maximum is 1, or a sentence."""
    try:
        w = torch.as_tensor(weights, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputTypeError(
            f"`{call}({name}=...)` must be a tensor, an array or a list of numbers; "
            f"got {type(weights).__name__}."
        ) from None
    advice = "One number for each class, in proportion to its probability."
    if w.dim() != 1 or not len(w):
        raise fail(call, name, "must be one-dimensional and not empty", describe(w), advice)
    check_count(call, name, len(w), 1, 2**31 - 1, "Tables number their classes with 31 bits.")
    low, high = (float(x) for x in torch.aminmax(w))
    if not (low >= 0 and 0 < high < math.inf):
        raise fail(call, name, "must be non-negative, finite and not all 0", w, advice)
    return w.numpy() / high  # so that no sum overflows


def log_probs(weights: np.ndarray, total: float) -> Tensor:
    """log(weights / total), `-inf` for 0."""
    with np.errstate(divide="ignore"):
        log_w = np.log(weights)
    log_w -= math.log(total)
    return torch.from_numpy(log_w)
