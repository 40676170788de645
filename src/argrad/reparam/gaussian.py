r"""Gaussians: from normal noise, from two uniforms, with a Cholesky factor; and their exponential."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, distributions

from argrad import random
from argrad._numerics import widen
from argrad._types import Generator, Shape
from argrad.reparam.base import Reparameterized, TwoUniforms


class _NormalNoise(Reparameterized):
    """Noise that is standard normal itself."""

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return random.normal(shape, **options)

    def _of_uniform(self, u: Tensor) -> Tensor:
        # from the nearer end, where floats are dense
        return torch.where(u < 0.5, torch.special.ndtri(u), -torch.special.ndtri(1 - u))


class Normal(_NormalNoise, distributions.Normal):
    r"""Gaussian: $z = \mu + \sigma\varepsilon$, $\varepsilon \sim N(0, 1)$.

    Examples:
        >>> import torch, argrad as ag
        >>> mean = torch.tensor(3.0, requires_grad=True)
        >>> z = ag.reparam.Normal(mean, 1.0).rsample((1000,), kind="antithetic")
        >>> grad = torch.autograd.grad((z**2).mean(), mean)[0]  # 2 mu, with no variance left
        >>> round(grad.item(), 4)
        6.0
    """

    def transform(self, eps: Tensor) -> Tensor:
        r"""$\mu + \sigma\varepsilon$."""
        loc, scale = self._widened(self.loc, self.scale)
        return (loc + scale * self._check_noise(eps)).to(self.loc.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        r"""$(z - \mu)/\sigma$."""
        loc, scale, z = self._widened(self.loc, self.scale, z)
        return (z - loc) / scale


class BoxMuller(TwoUniforms, distributions.Normal):
    r"""Gaussian from two uniforms: $z = \mu + \sigma \sqrt{2 \log(1/\varepsilon_1)}\, \cos(2\pi\varepsilon_2)$.

    `noise_of` draws from the conditional law: the other coordinate, with the sine, is independent of this one.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.BoxMuller(0.0, 1.0)
        >>> law.noise((5,)).shape, law.transform(torch.tensor([0.5, 0.0]))
        (torch.Size([5, 2]), tensor(1.1774))

    References: [box1958].
    """

    def _mirror(self, eps: Tensor) -> Tensor:
        radius, turn = eps.unbind(-1)
        return torch.stack([radius, torch.where(turn < 0.5, turn + 0.5, turn - 0.5)], -1)  # z -> -z

    def transform(self, eps: Tensor) -> Tensor:
        r"""$\mu + \sigma r \cos\phi$."""
        loc, scale = self._widened(self.loc, self.scale)
        radius, turn = self._check_noise(eps).unbind(-1)
        x = torch.sqrt(-2 * radius.log()) * torch.cos(2 * math.pi * turn)
        return (loc + scale * x).to(self.loc.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        """Two uniforms, given their Gaussian."""
        loc, scale, z = self._widened(self.loc, self.scale, z)
        x = (z - loc) / scale
        y = random.normal(x.shape, dtype=x.dtype, device=x.device, generator=generator)
        turn = torch.atan2(y, x) / (2 * math.pi)
        turn = torch.where(turn < 0, turn + 1, turn)
        return torch.stack([torch.exp(-0.5 * (x**2 + y**2)), turn], -1)


class MultivariateNormal(_NormalNoise, distributions.MultivariateNormal):
    r"""Gaussian vectors: $z = \mu + L\varepsilon$, $\Sigma = L L^\top$ (Cholesky), $\varepsilon \sim N(0, I)$.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.MultivariateNormal(torch.zeros(2), torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
        >>> z = law.transform(torch.tensor([1.0, 1.0]))
        >>> z, law.noise_of(z)
        (tensor([2., 2.]), tensor([1., 1.]))
    """

    def transform(self, eps: Tensor) -> Tensor:
        r"""$\mu + L\varepsilon$."""
        loc, factor = self._widened(self.loc, self._unbroadcasted_scale_tril)
        z = loc + (factor @ self._check_noise(eps)[..., None])[..., 0]
        return z.to(self.loc.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        r"""$L^{-1}(z - \mu)$, by substitution."""
        loc, factor, z = self._widened(self.loc, self._unbroadcasted_scale_tril, z)
        return torch.linalg.solve_triangular(factor, (z - loc)[..., None], upper=False)[..., 0]


class LogNormal(_NormalNoise, distributions.LogNormal):
    r"""Log-normal: $z = e^{\mu + \sigma\varepsilon}$, $\varepsilon \sim N(0, 1)$: no parameter is left in the noise.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.reparam.LogNormal(0.0, 2.0).transform(torch.tensor([0.0, 1.0]))
        tensor([1.0000, 7.3891])
    """

    @property
    def _like(self) -> Tensor:
        return self.loc

    def transform(self, eps: Tensor) -> Tensor:
        r"""$e^{\mu + \sigma\varepsilon}$."""
        loc, scale = self._widened(self.loc, self.scale)
        return torch.exp(loc + scale * self._check_noise(eps)).to(self.loc.dtype)

    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        r"""$(\log z - \mu)/\sigma$."""
        loc, scale = self._widened(self.loc, self.scale)
        return (widen(z).log() - loc) / scale
