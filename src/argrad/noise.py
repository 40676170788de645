r"""Noise to perturb scores with: one small frozen object a law.

Each knows how to draw itself (with full tails, from any generator), its log-density, and the
Kullback-Leibler divergence between itself at two locations, $\mathrm{KL}(\theta + \varepsilon \,\|\,
\varepsilon)$, which bounds the divergence of any choice made from the perturbed scores.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import check_count, check_finite, check_floating, check_no_nan, check_positive
from argrad._errors import UnsupportedError
from argrad._gamma import gammas
from argrad._numerics import compute_dtype
from argrad._types import Float, Generator, Shape


class Noise(ABC):
    """A law of independent additive noise.

    Must define: `_draw`. May define: `_log_prob`, `_kl`.

    Examples:
        >>> import torch, argrad as ag
        >>> class Cauchy(ag.Noise):
        ...     def _draw(self, shape, **options):
        ...         return (torch.pi * (ag.random.uniform(shape, **options) - 0.5)).tan()
        >>> Cauchy().sample((2, 3)).shape
        torch.Size([2, 3])
    """

    @abstractmethod
    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        """Independent draws; options are dtype, device and generator, as `argrad.random` takes them."""

    def sample(
        self,
        shape: Shape,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        generator: Generator = None,
    ) -> Tensor:
        """Independent draws of the given shape."""
        return self._draw(shape, dtype=dtype, device=device, generator=generator)

    def log_prob(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The log-density at `x`."""
        check_floating(type(self).__name__ + ".log_prob", "x", x)
        check_no_nan(type(self).__name__ + ".log_prob", "x", x)
        far = x.isinf()  # the density of every law is 0 there, and formulas are inf - inf
        return self._log_prob(x.masked_fill(far, 0.0)).masked_fill(far, -math.inf)

    def kl(self, shift: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        r"""$\mathrm{KL}(\mathrm{shift} + \varepsilon \,\|\, \varepsilon)$, elementwise."""
        check_floating(type(self).__name__ + ".kl", "shift", shift)
        check_finite(type(self).__name__ + ".kl", "shift", shift)
        return self._kl(shift)

    def _log_prob(self, x: Tensor) -> Tensor:
        raise UnsupportedError(
            f"`{self!r}` has no closed-form density. Use Gumbel, Normal or Logistic."
        )

    def _kl(self, shift: Tensor) -> Tensor:
        raise UnsupportedError(
            f"`{self!r}` has no closed-form KL between two locations. Use Gumbel, Normal or Logistic."
        )

    def perturb(
        self, scores: Tensor, draw: Tensor, scale: float = 1.0, *, event_dims: int = 1
    ) -> Tensor:
        """Scores with a draw of this noise on them: here their sum. The last `event_dims` are one object."""
        check_positive("perturb", "scale", scale)
        return scores + (draw if scale == 1 else scale * draw)

    def like(
        self, scores: Float[Tensor, "*shape"], generator: Generator = None
    ) -> Float[Tensor, "*shape"]:
        """Draws with the shape, dtype and device of `scores`."""
        return self.sample(scores.shape, dtype=scores.dtype, device=scores.device, generator=generator)


@dataclass(frozen=True)
class Gumbel(Noise):
    r"""Gumbel(0, 1): $p(x) = e^{-x - e^{-x}}$. Perturb-and-argmax over one-hots is then a softmax draw.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Gumbel().sample((2, 3)).shape
        torch.Size([2, 3])

    References: [gumbel1954].
    """

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return random.gumbel(shape, **options)

    def _log_prob(self, x: Tensor) -> Tensor:
        return -x - torch.exp(-x)

    def _kl(self, shift: Tensor) -> Tensor:
        r"""$s + e^{-s} - 1$."""
        return shift + torch.expm1(-shift)


@dataclass(frozen=True)
class Logistic(Noise):
    r"""Logistic(0, 1), the difference of two Gumbels: thresholding it at 0 is a sigmoid draw.

    Examples:
        >>> import torch, argrad as ag
        >>> round(ag.Logistic().log_prob(torch.tensor(0.0)).exp().item(), 6)
        0.25

    References: [maddison2017].
    """

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return random.logistic(shape, **options)

    def _log_prob(self, x: Tensor) -> Tensor:
        return -x + 2 * logsigmoid(x)

    def _kl(self, shift: Tensor) -> Tensor:
        r"""$s \coth(s/2) - 2$, with the series $s^2/6 - s^4/360 + \dots$ where it cancels."""
        small = shift.abs() < 0.3
        safe = torch.where(small, 1.0, shift)
        q = (
            torch.where(small, shift, 0.0) ** 2
        )  # the terms are 2 B_2n s^2n / (2n)!; the first left out is below 2e-11 of the sum
        series = q * (1 / 6 - q * (1 / 360 - q * (1 / 15120 - q / 604800)))
        return torch.where(small, series, safe / torch.tanh(safe / 2) - 2)


@dataclass(frozen=True)
class Normal(Noise):
    """Normal(0, 1).

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Normal().kl(torch.tensor([0.0, 2.0]))
        tensor([0., 2.])
    """

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return random.normal(shape, **options)

    def _log_prob(self, x: Tensor) -> Tensor:
        return -0.5 * x**2 - 0.5 * math.log(2 * math.pi)

    def _kl(self, shift: Tensor) -> Tensor:
        r"""$s^2/2$."""
        return 0.5 * shift**2


@dataclass(frozen=True)
class NegExponential(Noise):
    """The negative of Exp(1): bounded above by 0. Finds maxima among exponentials (a race).

    Examples:
        >>> import argrad as ag
        >>> bool((ag.NegExponential().sample((100,)) < 0).all())
        True

    References: [paulus2020].
    """

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return -random.exponential(shape, **options)

    def _log_prob(self, x: Tensor) -> Tensor:
        return torch.where(x <= 0, x, -math.inf)


@dataclass(frozen=True)
class ExponentialRace(Noise):
    r"""Not added but raced: $w_i = -E_i\, e^{-\theta_i/\sigma}$, the arrival times of exponentials.

    For choices that depend on the order alone (one-hots, top-k, spanning trees) the law is that of
    Gumbel noise, whose order is the same. For sums (arborescences) it is another law, and the one
    whose steps have a probability: `Perturbed(Arborescence(), scores, noise=ExponentialRace()).trace()`.
    Where times would overflow or vanish (in float32 if some $\theta_i/\sigma < -84$ or one is $> 63$) all those
    of an object are measured in another unit, which no choice depends on.

    Examples:
        >>> import torch, argrad as ag
        >>> race = ag.ExponentialRace()
        >>> scores = torch.zeros(4)
        >>> bool((race.perturb(scores, race.like(scores)) < 0).all())
        True

    References: [struminsky2021].
    """

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return random.exponential(shape, **options)

    def perturb(
        self, scores: Tensor, draw: Tensor, scale: float = 1.0, *, event_dims: int = 1
    ) -> Tensor:
        """Negative arrival times."""
        check_positive("perturb", "scale", scale)
        closed = scores == -math.inf
        x = -scores.masked_fill(closed, 0.0) / scale
        shift, limit = _into_range(x.detach(), closed, event_dims)
        return (-draw * torch.exp((x - shift).clamp(max=limit))).masked_fill(closed, -math.inf)


def _into_range(x: Tensor, closed: Tensor, event_dims: int) -> tuple[Tensor, float]:
    """What to subtract from an object's exponents so that exp can hold them, the shortest times first."""
    limit = math.log(torch.finfo(x.dtype).max / 64)  # room for the draw, at the other end as well
    if x.numel() == 0:
        return torch.zeros_like(x), limit
    dims = tuple(range(-event_dims, 0))
    longest = x.masked_fill(closed, -math.inf).amax(dims, keepdim=True)
    shortest = x.masked_fill(closed, math.inf).amin(dims, keepdim=True)
    shift = torch.minimum((longest - limit).clamp(min=0.0), shortest + 0.75 * limit)
    return shift.masked_fill(shift.isinf(), 0.0), limit


@dataclass(frozen=True)
class SumOfGamma(Noise):
    r"""A sum of Gamma variables whose sum over `k` chosen items is (nearly) Gumbel.

    $$ \varepsilon = \frac{1}{k}\Big(\sum_{i=1}^{s} \mathrm{Gamma}(1/k,\ \text{scale} = k/i) - \log s\Big) $$
    $k$ independent copies add up to $\sum_i \mathrm{Exp}(1)/i - \log s$, which tends to Gumbel(0, 1) as the
    number of terms $s$ grows: the natural noise for structures with exactly $k$ parts.

    Args:
        k: number of parts that a structure always has.
        terms: $s$.

    Examples:
        >>> import argrad as ag
        >>> ag.SumOfGamma(5).sample((2, 3)).shape
        torch.Size([2, 3])

    References: [niepert2021].
    """

    k: int
    terms: int = 10

    def __post_init__(self) -> None:
        check_count("SumOfGamma", "k", self.k, 1, None, "It is the number of parts of a structure.")
        check_count("SumOfGamma", "terms", self.terms, 1, None, "10 are enough.")

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        dtype = options["dtype"] or torch.get_default_dtype()
        work = {"dtype": compute_dtype(dtype), "device": options["device"] or "cpu"}
        parts = gammas(1 / self.k, self.terms, shape, generator=options["generator"], **work)
        scale = self.k / torch.arange(1, self.terms + 1, **work)
        total = (parts * scale.view(-1, *(1,) * len(shape))).sum(0)
        return ((total - math.log(self.terms)) / self.k).to(dtype)


@dataclass(frozen=True)
class NoNoise(Noise):
    """No noise at all: perturb-and-argmax becomes the arg max.

    Examples:
        >>> import argrad as ag
        >>> ag.NoNoise().sample((3,))
        tensor([0., 0., 0.])
    """

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return torch.zeros(tuple(shape), dtype=options["dtype"], device=options["device"] or "cpu")
