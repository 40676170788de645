r"""The deformed exponential, which solves Tsallis-regularised choices as the exponential solves softmax.

$$ \exp_a(v) = (1 + a v)_+^{1/a}, \qquad \exp_0(v) = e^v, \qquad a = \alpha - 1 \tag{1} $$
$$ \frac{d}{dv} \exp_a(v) = \exp_a(v)^{1 - a} \tag{2} $$
$a = 1$ is a ramp, $a = 1/2$ a half parabola. Everything here is differentiable in $v$ and in a tensor
$a$, at $a = 0$ too, where $\log(1 + a v)/a$ and its derivatives are taken from series.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._types import Float


def deformed_exp(
    v: Float[Tensor, "*shape"], a: float | Tensor
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    r"""$z = \exp_a(v)$ and its slope $z^{1-a}$, for $v \le 0$; both exactly 0 where $1 + a v \le 0$.

    Args:
        v: finite, at most 0.
        a: $\alpha - 1 \ge 0$; a tensor broadcasts against `v`.

    Examples:
        >>> import torch
        >>> v = torch.tensor([-3.0, -0.5, 0.0])
        >>> deformed_exp(v, 1.0)
        (tensor([0.0000, 0.5000, 1.0000]), tensor([0., 1., 1.]))
        >>> deformed_exp(v, 0.0)[0]
        tensor([0.0498, 0.6065, 1.0000])

    References: [tsallis1988], [blondel2020].
    """
    if isinstance(a, Tensor):
        return _general(v, a)
    if a == 0.0:
        z = v.exp()
        return z, z
    if a == 1.0:
        z = (1.0 + v).clamp(min=0.0)
        return z, (z > 0).to(v.dtype)
    if a == 0.5:
        b = (1.0 + 0.5 * v).clamp(min=0.0)
        return b * b, b
    return _general(v, a)


def _general(v: Tensor, a: float | Tensor) -> tuple[Tensor, Tensor]:
    live = 1.0 + a * v > 0
    v = torch.where(live, v, 0.0)
    y = a * v
    if isinstance(a, Tensor):
        log_z = v * _log1p_ratio(y)
        log_slope = log_z - y * _log1p_ratio(y)
    else:
        log_z = torch.log1p(y) / a
        log_slope = log_z - torch.log1p(y)
    return torch.where(live, log_z.exp(), 0.0), torch.where(live, log_slope.exp(), 0.0)


def slope_from_value(z: Tensor, live: Tensor, a: float | Tensor) -> Tensor:
    r"""Eq. (2) from $z$ itself, 0 where not `live`."""
    if not isinstance(a, Tensor):
        if a == 1.0:
            return live.to(z.dtype)
        if a == 0.0:
            return torch.where(live, z, 0.0)
        if a == 0.5:
            return torch.where(live, torch.where(live, z, 1.0).sqrt(), 0.0)
    slope = torch.where(live, z, 1.0) ** (1.0 - a)
    return torch.where(live, slope.clamp(max=_bound(z)), 0.0)


def _bound(z: Tensor) -> float:
    """For a > 1 derivatives are infinite at z = 0; below this bound sums of their products are finite."""
    return 1e-4 * math.sqrt(torch.finfo(z.dtype).max)


def value_by_a(z: Tensor, live: Tensor, a: float | Tensor) -> Tensor:
    r"""$\partial \exp_a(v) / \partial a$ at fixed $v$, from $z$; 0 where not `live`.

    $$ \frac{\partial z}{\partial a} = -z\, \frac{e^{-t} - 1 + t}{a^2}, \quad t = a \log z $$
    """
    z = torch.where(live, z, 1.0)
    log_z = z.log()
    change = -z * log_z * log_z * _expm1_remainder(a * log_z)
    return torch.where(live, change.clamp(min=-_bound(z)), 0.0)


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    total = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


_LOG1P = [(-1.0) ** j / (j + 1) for j in range(12)]
_REMAINDER = [(-1.0) ** j / math.factorial(j + 2) for j in range(12)]


def _log1p_ratio(y: Tensor) -> Tensor:
    r"""$\log(1 + y)/y$, smooth at 0; the series leaves $0.03^{12} < 10^{-18}$."""
    near = y.abs() < 0.03
    far = torch.where(near, -0.5, y)
    return torch.where(near, _series(torch.where(near, y, 0.0), _LOG1P), torch.log1p(far) / far)


def _expm1_remainder(t: Tensor) -> Tensor:
    r"""$(e^{-t} - 1 + t)/t^2$, smooth at 0; the series leaves $0.3^{12}/14! < 10^{-17}$."""
    near = t.abs() < 0.3
    far = torch.where(near, 1.0, t)
    direct = (torch.expm1(-far) + far) / (far * far)
    return torch.where(near, _series(torch.where(near, t, 0.0), _REMAINDER), direct)
