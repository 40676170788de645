r"""Laws of positive numbers and of shares: exponential, Weibull, inverse gamma, Kumaraswamy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributions
from torch.autograd.function import once_differentiable

from argrad._numerics import log1mexp, widen
from argrad._types import Generator
from argrad.reparam.base import Reparameterized, from_logs, log_upper


class Exponential(Reparameterized, distributions.Exponential):
    r"""Exponential: $z = \frac{1}{\lambda}\log\frac{1}{\varepsilon}$, with $\varepsilon = P(Z > z)$.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.reparam.Exponential(2.0).transform(torch.tensor([1e-9, -1e-9]))  # both ends
        tensor([1.0708e+01, 2.5000e-10])
    """

    def transform(self, eps: Tensor) -> Tensor:
        r"""$-\log P(Z > z) / \lambda$."""
        return (-log_upper(self._check_noise(eps)) / widen(self.rate)).to(self.rate.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """Noise that `transform` maps to `z`."""
        upper = -widen(self.rate) * widen(z)
        return from_logs(log1mexp(upper), upper)


class Weibull(Reparameterized, distributions.Weibull):
    r"""Weibull: $z = \lambda\,(\log\frac{1}{\varepsilon})^{1/k}$, with $\varepsilon = P(Z > z)$.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Weibull(torch.tensor(1.0), torch.tensor(2.0))
        >>> law.transform(torch.tensor(1.0))  # the median, sqrt(log 2)
        tensor(0.8326)
    """

    def transform(self, eps: Tensor) -> Tensor:
        r"""$\lambda\,(-\log P(Z > z))^{1/k}$."""
        scale, k = self._widened(self.scale, self.concentration)
        return (scale * (-log_upper(self._check_noise(eps))) ** (1 / k)).to(self.scale.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """Noise that `transform` maps to `z`."""
        scale, k, z = self._widened(self.scale, self.concentration, z)
        upper = -((z / scale) ** k)
        return from_logs(log1mexp(upper), upper)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""$\log k - \log\lambda + (k - 1)\log(z / \lambda) - (z / \lambda)^k$; torch's own is NaN at infinity."""
        self._check_parameters()
        if self._validate_args:
            self._validate_sample(value)
        k, scale, z = self._widened(self.concentration, self.scale, value)
        inside = z < math.inf
        log_ratio = torch.where(inside, z, 1.0).log() - scale.log()
        bend = torch.where(k == 1, 0.0, (k - 1) * log_ratio)
        found = k.log() - scale.log() + bend - (k * log_ratio).exp()
        outside = torch.where(z.isnan(), z, -math.inf)
        return torch.where(inside, found, outside).to(self.scale.dtype)


class Kumaraswamy(Reparameterized, distributions.Kumaraswamy):
    r"""Kumaraswamy, nearly a beta law, with quantiles: $z = (1 - \varepsilon^{1/b})^{1/a}$, $\varepsilon = P(Z > z)$.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Kumaraswamy(torch.tensor(2.0), torch.tensor(3.0))
        >>> z = law.transform(torch.tensor([-0.5, 0.5]))
        >>> law.noise_of(z)
        tensor([-0.5000,  0.5000])

    References: [kumaraswamy1980], [nalisnick2017].
    """

    def transform(self, eps: Tensor) -> Tensor:
        r"""$(1 - P(Z > z)^{1/b})^{1/a}$."""
        a, b = self._widened(self.concentration1, self.concentration0)
        log_power = log1mexp(log_upper(self._check_noise(eps)) / b)
        dtype = self.concentration1.dtype
        least, most = torch.finfo(dtype).smallest_normal, 1 - torch.finfo(dtype).eps / 2
        return (
            torch.exp(log_power / a).to(dtype).clamp(least, most)
        )  # the density at 0 and 1 is infinite

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """Noise that `transform` maps to `z`."""
        a, b, z = self._widened(self.concentration1, self.concentration0, z)
        upper = b * log1mexp(a * z.log())
        return from_logs(log1mexp(upper), upper)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""$\log a + \log b + (a - 1)\log z + (b - 1)\log(1 - z^a)$; torch's own cancels at both ends."""
        self._check_parameters()
        if self._validate_args:
            self._validate_sample(value)
        a, b, z = self._widened(self.concentration1, self.concentration0, value)
        log_power = a * z.log()
        low = log_power < -math.log(2.0)
        # 1 - z^a is right by log1p where z^a is small, by expm1 where it is nearly 1
        log_rest = (b - 1) * torch.log1p(-torch.where(low, log_power, -1.0).exp())
        rest = -torch.expm1(torch.where(low, -1.0, log_power))
        bend = torch.where(low, log_rest, torch.xlogy(b - 1, rest))
        return (a.log() + b.log() + torch.xlogy(a - 1, z) + bend).to(self.concentration1.dtype)


class InverseGamma(Reparameterized, distributions.InverseGamma):
    r"""Inverse gamma: $z = \beta / g$ with $g \sim \mathrm{Gamma}(\alpha, 1)$, and $g$ the quantile of uniform noise.

    The noise has no parameter in it, the shape $\alpha$ included, whose gradient is that of the quantile,
    $\partial g / \partial\alpha = -\partial_\alpha F(g; \alpha) / p(g; \alpha)$. Once differentiable; quantiles are
    computed by scipy, on the CPU.

    Examples:
        >>> import torch, argrad as ag
        >>> shape = torch.tensor(3.0, requires_grad=True)
        >>> law = ag.reparam.InverseGamma(shape, 2.0)
        >>> z = law.rsample((4096,), kind="sobol", generator=torch.Generator().manual_seed(0))
        >>> grad = torch.autograd.grad(z.mean(), shape)[0]  # d/da [2 / (a - 1)] = -0.5
        >>> round(grad.item(), 2)
        -0.5

    References: [figurnov2018], [jankowiak2018].
    """

    @property
    def _like(self) -> Tensor:
        return self.concentration

    def transform(self, eps: Tensor) -> Tensor:
        r"""$\beta / F^{-1}(\varepsilon; \alpha)$."""
        eps = self._check_noise(eps)
        shape, rate = self._widened(self.concentration, self.rate)
        shape, eps = torch.broadcast_tensors(shape.double(), eps.double())
        g = _GammaQuantile.apply(shape, eps)
        assert isinstance(g, Tensor)
        return (rate / g).to(self.rate.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""$\alpha\log\beta - \log\Gamma(\alpha) - (\alpha + 1)\log z - \beta / z$; torch's own is NaN at both ends."""
        self._check_parameters()
        if self._validate_args:
            self._validate_sample(value)
        a, b, z = self._widened(self.concentration, self.rate, value)
        inside = (z > 0) & (z < math.inf)
        x = torch.where(inside, z, 1.0)
        found = torch.xlogy(a, b) - torch.lgamma(a) - (a + 1) * x.log() - b / x
        outside = torch.where(z.isnan(), z, -math.inf)
        return torch.where(inside, found, outside).to(self.concentration.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """Noise that `transform` maps to `z`."""
        g = widen(self.rate) / widen(z)
        lower = torch.special.gammaincc(widen(self.concentration), g)  # z is small where g is large
        upper = torch.special.gammainc(widen(self.concentration), g)
        return torch.where(upper < lower, 2 * upper, -2 * lower)


class _GammaQuantile(torch.autograd.Function):
    """Two-sided noise to Gamma(shape, 1), float64; the upper half of the noise is the lower half of the gamma."""

    @staticmethod
    def forward(shape: Tensor, eps: Tensor) -> Tensor:
        from scipy import special

        if shape.is_meta:
            return torch.empty_like(shape)
        a, e = shape.detach().cpu().numpy(), eps.detach().cpu().numpy()
        tail = abs(e) / 2
        g = np.where(e > 0, special.gammaincinv(a, tail), special.gammainccinv(a, tail))
        return torch.from_numpy(g).to(shape.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        shape, g = ctx.saved_tensors
        log_density = (shape - 1) * g.log() - g - torch.lgamma(shape)
        of_shape = torch._standard_gamma_grad(shape, g)  # type: ignore[attr-defined]
        return grad * of_shape, 0.5 * grad * torch.exp(-log_density)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], *tensors: Tensor) -> tuple[Any, int]:
        moved = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims, strict=True)
        ]
        return _GammaQuantile.apply(*moved), 0
