r"""What all reparameterised laws share: noise in four kinds, and two-sided uniform noise.

A float is dense near 0 and coarse near 1: a float32 uniform cannot be nearer to 1 than $6 \cdot 10^{-8}$, and
a quantile function fed with it loses that much of one tail. So the noise of the laws below is uniform on
$(-1, 1)$ and counts from the ends: $\varepsilon > 0$ stands for the upper half with
$P(Z > z) = \varepsilon/2$, $\varepsilon < 0$ for the lower half with $P(Z < z) = -\varepsilon/2$.
Both tails are at 0, where floats are dense; the median is at $\pm 1$.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from argrad import random
from argrad._checks import check_finite, check_floating, check_shape, fail
from argrad._errors import InputTypeError
from argrad._numerics import compute_dtype, widen
from argrad._types import Float, Generator, Shape
from argrad.reparam.designs import KINDS, sobol, stratified


def two_sided(u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Two-sided noise of uniforms in (0, 1), such that the result of `transform` rises with `u`.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.reparam.two_sided(torch.tensor([0.1, 0.4, 0.6, 0.9]))
        tensor([-0.2000, -0.8000,  0.8000,  0.2000])
        >>> ag.reparam.Exponential(1.0).transform(ag.reparam.two_sided(torch.tensor(0.9)))  # log 10
        tensor(2.3026)
    """
    check_floating("two_sided", "u", u)
    return torch.where(u < 0.5, -2 * u, 2 * (1 - u))


def uniform_of(eps: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The uniform in (0, 1) of two-sided noise: the value of the distribution function.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.reparam.uniform_of(torch.tensor([-0.2, 0.2]))
        tensor([0.1000, 0.9000])
    """
    check_floating("uniform_of", "eps", eps)
    return torch.where(eps < 0, -eps / 2, 1 - eps / 2)


def log_lower(eps: Tensor) -> Tensor:
    r"""$\log P(Z < z)$ of two-sided noise, without cancellation in either tail."""
    below = eps < 0
    half = eps.abs() / 2
    return torch.where(below, torch.log(half), torch.log1p(-torch.where(below, 0.5, half)))


def log_upper(eps: Tensor) -> Tensor:
    r"""$\log P(Z > z)$ of two-sided noise, without cancellation in either tail."""
    return log_lower(-eps)


def from_logs(lower: Tensor, upper: Tensor) -> Tensor:
    """Two-sided noise with these logarithms of both tails; each need be right where it is the smaller one."""
    # rounding must not carry a logarithm of 1/2 beyond the median
    return torch.where(upper < lower, 2 * upper.exp(), -2 * lower.exp()).clamp(-1.0, 1.0)


class Reparameterized(Distribution, ABC):
    r"""A law that is a function of explicit noise.

    Must define: `transform`, `noise_of`. May define: the noise, if it is not two-sided uniform (`_draw`,
    `_of_uniform`, `_mirror`), and `noise_dims`, how many numbers make one.

    Examples:
        >>> import torch, argrad as ag
        >>> law = ag.reparam.Laplace(torch.tensor([0.0, 5.0]), 2.0)
        >>> eps = law.noise((1000,), kind="antithetic", generator=torch.Generator().manual_seed(0))
        >>> eps.shape, law.transform(eps).mean(0).round(decimals=4)  # pairs are symmetric: the mean is exact
        (torch.Size([1000, 2]), tensor([-0., 5.]))
        >>> isinstance(law, torch.distributions.Laplace)
        True

    References: [kingma2014], [mohamed2020].
    """

    # ==== must define =============================================================================

    @abstractmethod
    def transform(self, eps: Tensor) -> Tensor:
        r"""$z = g(\varepsilon, \theta)$, differentiable for the parameters (and the noise)."""

    @abstractmethod
    def noise_of(self, z: Tensor, *, generator: Generator = None) -> Tensor:
        r"""Noise that `transform` maps to `z`.

        Unique where $g$ is one-to-one. Where two numbers make one, it is drawn from the conditional law
        of the noise given $z$ (that is what `generator` is for), so that a $z$ of this law has noise of
        the law of `noise`.
        """

    # ==== may define ==============================================================================

    noise_dims: tuple[int, ...] = ()
    """What one number needs: `(2,)` if it is made of two uniforms."""

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        """Independent noise."""
        first, second = random.split(options.pop("generator"), 2)
        size = random.uniform(shape, generator=first, **options)
        sign = random.uniform(shape, generator=second, **options)
        return torch.where(sign < 0.5, -size, size)

    def _of_uniform(self, u: Tensor) -> Tensor:
        """Noise of float64 uniforms."""
        return two_sided(u)

    def _mirror(self, eps: Tensor) -> Tensor:
        """The other half of an antithetic pair."""
        return -eps

    # ==== do not touch ============================================================================

    @property
    def _like(self) -> Tensor:
        """A parameter, whose dtype and device the samples have."""
        return getattr(self, next(iter(self.arg_constraints)))

    def noise(
        self, sample_shape: Shape = (), *, kind: str = "iid", generator: Generator = None
    ) -> Tensor:
        r"""Noise for as many samples, shape `sample_shape + batch_shape + event_shape (+ noise_dims)`.

        Args:
            sample_shape: how many; the kinds below arrange all of them together.
            kind: `"iid"`; `"antithetic"`: the second half mirrors the first, sample by sample; `"stratified"`:
                along every coordinate one sample in each of n equal cells (a Latin hypercube); `"sobol"`: a
                scrambled Sobol sequence (take a power of 2). Each sample by itself has the same law in all.
            generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        """
        if kind not in KINDS:
            names = ", ".join(f'"{k}"' for k in KINDS)
            raise fail(f"{self._name}.noise", "kind", f"must be one of {names}", kind, "")
        random.check_generator(f"{self._name}.noise", generator)
        self._check_parameters()
        shape = check_shape(f"{self._name}.noise", "sample_shape", sample_shape)
        one = self.batch_shape + self.event_shape + torch.Size(self.noise_dims)
        options: dict[str, Any] = {
            "dtype": compute_dtype(self._like.dtype),
            "device": self._like.device,
        }
        n = shape.numel()
        if kind == "iid":
            return self._draw(shape + one, generator=generator, **options)
        if kind == "antithetic":
            if n % 2:
                advice = "Each sample needs its mirror image; ask for one more."
                raise fail(f"{self._name}.noise", "sample_shape", "must be an even number", n, advice)
            half = self._draw((n // 2, *one), generator=generator, **options)
            return torch.cat([half, self._mirror(half)]).reshape(shape + one)
        points = {"sobol": sobol, "stratified": stratified}[kind](n, one.numel(), generator)
        return self._of_uniform(points).to(**options).reshape(shape + one)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density."""
        self._check_parameters()
        return super().log_prob(value)

    def _check_parameters(self) -> None:
        """Torch lets an infinite location pass, whose density is NaN."""
        for name in self.arg_constraints:
            if not name.endswith(("_matrix", "_tril")):  # those are computed when asked for
                check_finite(self._name, name, getattr(self, name))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _widened(self, *values: Tensor) -> list[Tensor]:
        """Half precision is computed in float32."""
        return [widen(v) for v in values]

    def _check_noise(self, eps: object) -> Tensor:
        if not isinstance(eps, Tensor):
            raise InputTypeError(
                f"`{self._name}.transform(eps=...)` must be a tensor; got {type(eps).__name__}. "
                "`noise` draws one."
            )
        dims = len(self.noise_dims)
        if tuple(eps.shape[eps.dim() - dims :]) != self.noise_dims:
            rule = f"must end in {self.noise_dims}, the numbers that make one sample"
            raise fail(
                f"{self._name}.transform",
                "eps",
                rule,
                f"shape {tuple(eps.shape)}",
                "`noise` draws such.",
            )
        return widen(eps)

    def rsample(
        self, sample_shape: Shape = (), *, kind: str = "iid", generator: Generator = None
    ) -> Tensor:
        """`transform(noise(...))`: samples with a gradient for the parameters."""
        return self.transform(self.noise(sample_shape, kind=kind, generator=generator))

    @torch.no_grad()
    def sample(
        self, sample_shape: Shape = (), *, kind: str = "iid", generator: Generator = None
    ) -> Tensor:
        """Samples without a gradient."""
        return self.rsample(sample_shape, kind=kind, generator=generator)


class TwoUniforms(Reparameterized):
    """Noise of two independent uniforms on (0, 1) for each number."""

    noise_dims = (2,)

    def _draw(self, shape: Shape, **options: Any) -> Tensor:
        return random.uniform(shape, **options)

    def _of_uniform(self, u: Tensor) -> Tensor:
        return u


def sign_of(x: Tensor) -> Tensor:
    """1 or -1, never 0."""
    return torch.where(x < 0, -1.0, 1.0).to(x.dtype)
