r"""Outliers without a generator: points in a shell around the training data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad import random
from argrad._checks import check_count, check_finite, check_floating, check_positive, fail, refuse_meta
from argrad._errors import ConvergenceError
from argrad._numerics import widen
from argrad._types import Float, Generator

_ROUNDS = 200  # of drawing anew what came out too near
_CHUNK = 2**22  # distances at a time


class Shell:
    r"""A generator of near outliers: what is close to the data, but no closer than the data are to themselves.

    $$ x = x_i + r\,u, \qquad u \text{ on the unit sphere}, \qquad
       \log r \sim U(\log a\rho, \log b\rho), \qquad \min_j \|x - x_j\| \ge a\rho $$
    $\rho$ is the distance to the nearest other example that 95 % of the examples have, so that the shell begins where
    the data end; $r$ is spread evenly over orders of magnitude, so that both the border and the far field are seen.
    Points nearer than $a\rho$ to any example are drawn again.

    Args:
        data: training inputs, `(n, *event)`.
        inner: $a$.
        outer: $b$.

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(0)
        >>> shell = ag.openset.Shell(torch.randn(500, 2, generator=g))
        >>> x = shell.sample(100, generator=g)
        >>> x.shape, bool((torch.cdist(x, shell.data).amin(-1) >= shell.radius).all())
        (torch.Size([100, 2]), True)

    References: [vernekar2019].
    """

    def __init__(
        self, data: Float[Tensor, "n ..."], *, inner: float = 1.0, outer: float = 100.0
    ) -> None:
        check_floating("Shell", "data", data)
        if data.dim() < 2 or len(data) < 2 or data[0].numel() == 0:
            rule = "must hold at least two examples of shape `(n, *event)`"
            raise fail("Shell", "data", rule, f"shape {tuple(data.shape)}", "")
        refuse_meta("Shell", "data", data)
        check_finite("Shell", "data", data)
        check_positive("Shell", "inner", inner)
        if not 0 < inner < outer < math.inf:
            advice = "Both are in units of the data's own spacing."
            raise fail(
                "Shell", "inner, outer", "must satisfy 0 < inner < outer", (inner, outer), advice
            )
        self.data = data.detach()
        self.inner, self.outer = float(inner), float(outer)
        self._flat = widen(self.data.flatten(1))
        nearest = self._nearest(self._flat, skip_itself=True)
        self.radius = float(nearest.quantile(0.95))
        if self.radius == 0:
            raise fail("Shell", "data", "must not consist of copies of the same examples", data, "")

    def __repr__(self) -> str:
        return f"Shell({len(self.data)} examples, inner={self.inner:g}, outer={self.outer:g}, radius={self.radius:.4g})"

    def sample(self, n: int, *, generator: Generator = None) -> Float[Tensor, "n ..."]:
        """As many outliers, with the shape and dtype of the data."""
        check_count("Shell.sample", "n", n, 0, None, "It is the number of outliers.")
        random.check_generator("Shell.sample", generator)
        kept, missing = [self._flat[:0]], n
        for source in random.split(generator, _ROUNDS):
            if missing == 0:
                break
            x = self._propose(missing, source)
            kept.append(x[self._nearest(x) >= self.inner * self.radius])
            missing -= len(kept[-1])
        if missing:
            raise ConvergenceError(
                f"`Shell.sample` found only {n - missing} of {n} points outside of the data. Raise `outer`."
            )
        return torch.cat(kept).reshape(n, *self.data.shape[1:]).to(self.data.dtype)

    def _propose(self, n: int, generator: Generator) -> Tensor:
        options = {"dtype": self._flat.dtype, "device": self._flat.device}
        which, far, where = random.split(generator, 3)
        index = (
            (random.uniform((n,), generator=which) * len(self.data))
            .long()
            .clamp(max=len(self.data) - 1)
        )
        u = random.normal((n, self._flat.shape[1]), generator=where, **options)
        u = u / u.norm(dim=-1, keepdim=True)
        order = random.uniform((n, 1), generator=far, **options)
        r = self.inner * self.radius * (self.outer / self.inner) ** order
        return self._flat[index.to(self._flat.device)] + r * u

    def _nearest(self, x: Tensor, skip_itself: bool = False) -> Tensor:
        """The distance of each to the nearest example (other than itself, for the examples)."""
        size = max(1, _CHUNK // len(self._flat))
        found = []
        for start in range(0, len(x), size):
            distance = torch.cdist(x[start : start + size], self._flat)
            if skip_itself:
                distance.diagonal(start).fill_(math.inf)
            found.append(distance.amin(-1))
        return torch.cat(found) if found else x.new_zeros(0)
