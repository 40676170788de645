r"""Laws with a location and a scale: Laplace (two ways), Cauchy, logistic, Gumbel."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, distributions
from torch.distributions import constraints
from torch.distributions.constraints import Constraint
from torch.distributions.utils import broadcast_all
from torch.nn.functional import logsigmoid, softplus

from argrad import random
from argrad._numerics import log1mexp
from argrad._types import Generator, Shape
from argrad.reparam.base import (
    Reparameterized,
    TwoUniforms,
    from_logs,
    log_lower,
    log_upper,
    sign_of,
)


class _LocationScale(Reparameterized):
    r"""$z = \mu + s\, g(\varepsilon)$. Must define: `_standard` and its inverse, `_noise_of_standard`."""

    loc: Tensor
    scale: Tensor

    @abstractmethod
    def _standard(self, eps: Tensor) -> Tensor:
        """The function of the noise."""

    @abstractmethod
    def _noise_of_standard(self, x: Tensor, generator: Generator) -> Tensor:
        """Its inverse."""

    def transform(self, eps: Tensor) -> Tensor:
        r"""$z = \mu + s\, g(\varepsilon)$."""
        loc, scale = self._widened(self.loc, self.scale)
        return (loc + scale * self._standard(self._check_noise(eps))).to(self.loc.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """Noise that `transform` maps to `z`."""
        loc, scale, z = self._widened(self.loc, self.scale, z)
        return self._noise_of_standard((z - loc) / scale, generator)


class Laplace(_LocationScale, distributions.Laplace):
    r"""Laplace by its quantiles.

    $$ z = \mu - b\, \mathrm{sgn}(\varepsilon) \log|\varepsilon|, \quad \varepsilon \sim U(-1, 1) $$
    The usual $-b\,\mathrm{sgn}(e)\log(1 - 2|e|)$ with $e \sim U(-\frac12, \frac12)$, counted from the ends.
    (With $e \sim U(0, 1)$, as it is sometimes printed, half of the logarithms have a negative argument.)

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Laplace(1.0, 2.0)
        >>> z = law.transform(torch.tensor([0.5, -0.5]))
        >>> z, law.noise_of(z)
        (tensor([ 2.3863, -0.3863]), tensor([ 0.5000, -0.5000]))
    """

    def _standard(self, eps: Tensor) -> Tensor:
        return -sign_of(eps) * eps.abs().log()

    def _noise_of_standard(self, x: Tensor, generator: Generator) -> Tensor:
        return sign_of(x) * torch.exp(-x.abs())


class LogRatioLaplace(_LocationScale, TwoUniforms, distributions.Laplace):
    r"""Laplace as a ratio: $z = \mu + b \log(\varepsilon_1 / \varepsilon_2)$ with two uniforms on (0, 1).

    $-\log\varepsilon$ is exponential, and the difference of two exponentials is Laplace. `noise_of` draws from the
    conditional law: the smaller exponential is independent of the difference, and is Exp(2).

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.LogRatioLaplace(0.0, 1.0)
        >>> law.noise((4,)).shape, law.transform(torch.tensor([0.5, 0.25]))
        (torch.Size([4, 2]), tensor(0.6931))
    """

    def _mirror(self, eps: Tensor) -> Tensor:
        return eps.flip(-1)  # the ratio upside down

    def _standard(self, eps: Tensor) -> Tensor:
        return eps[..., 0].log() - eps[..., 1].log()

    def _noise_of_standard(self, x: Tensor, generator: Generator) -> Tensor:
        options = {"dtype": x.dtype, "device": x.device, "generator": generator}
        smaller = 0.5 * random.exponential(x.shape, **options)
        pair = torch.stack([smaller + (-x).clamp(min=0), smaller + x.clamp(min=0)], -1)
        return torch.exp(-pair)


class Cauchy(_LocationScale, distributions.Cauchy):
    r"""Cauchy by its quantiles.

    $$ z = \mu + \gamma \tan(\pi(u - \tfrac12)) = \mu + \gamma\,\mathrm{sgn}(\varepsilon)\cot(\pi|\varepsilon|/2) $$

    Examples:
        >>> import torch, argrad as ag
        >>> ag.reparam.Cauchy(0.0, 1.0).transform(torch.tensor([0.5, -0.5, 1e-6]))
        tensor([ 1.0000e+00, -1.0000e+00,  6.3662e+05])
    """

    def _standard(self, eps: Tensor) -> Tensor:
        return sign_of(eps) / torch.tan(0.5 * math.pi * eps.abs())

    def _noise_of_standard(self, x: Tensor, generator: Generator) -> Tensor:
        return sign_of(x) * torch.atan2(torch.ones_like(x), x.abs()) * (2 / math.pi)


class Logistic(_LocationScale):
    r"""Logistic: $z = \mu + s \log\frac{u}{1 - u}$, both logarithms exact in both tails.

    $$ p(z) = \frac{e^{-y}}{s\,(1 + e^{-y})^2}, \quad y = (z - \mu)/s $$
    Not in `torch.distributions`; KL divergences to `Logistic` and `Normal` are registered there.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Logistic(0.0, 1.0)
        >>> law.transform(torch.tensor(0.5)), law.log_prob(torch.tensor(0.0)).exp()
        (tensor(1.0986), tensor(0.2500))
    """

    has_rsample = True

    def __init__(
        self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """As in torch.distributions."""
        return {"loc": constraints.real, "scale": constraints.positive}

    @property
    def support(self) -> Constraint:
        """All numbers."""
        return constraints.real

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Logistic:
        """The same law, repeated."""
        shape = torch.Size(batch_shape)
        return Logistic(self.loc.expand(shape), self.scale.expand(shape), self._validate_args)

    def _standard(self, eps: Tensor) -> Tensor:
        return log_lower(eps) - log_upper(eps)

    def _noise_of_standard(self, x: Tensor, generator: Generator) -> Tensor:
        return from_logs(logsigmoid(x), logsigmoid(-x))

    def log_prob(self, value: Tensor) -> Tensor:
        r"""$-y - 2 \log(1 + e^{-y}) - \log s$."""
        if self._validate_args:
            self._validate_sample(value)
        y = ((value - self.loc) / self.scale).abs()
        return -y - 2 * softplus(-y) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The distribution function."""
        return torch.sigmoid((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles."""
        return self.loc + self.scale * torch.logit(value)

    @property
    def mean(self) -> Tensor:
        r"""$\mu$."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        r"""$\mu$."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        r"""$s^2 \pi^2 / 3$."""
        return self.scale**2 * (math.pi**2 / 3)

    def entropy(self) -> Tensor:
        r"""$\log s + 2$."""
        return self.scale.log() + 2


class Gumbel(_LocationScale, distributions.Gumbel):
    r"""Gumbel: $z = \mu - \beta \log(-\log u)$.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Gumbel(0.0, 1.0)
        >>> z = law.transform(torch.tensor([1e-30, -1e-30]))  # 1e-30/2 from either end, in float32
        >>> z, law.noise_of(z)
        (tensor([69.7707, -4.2452]), tensor([ 1.0000e-30, -1.0000e-30]))
    """

    def _standard(self, eps: Tensor) -> Tensor:
        return -torch.log(-log_lower(eps))

    def _noise_of_standard(self, x: Tensor, generator: Generator) -> Tensor:
        lower = -torch.exp(-x)
        return from_logs(lower, log1mexp(lower))
