r"""The deformed exponential, which solves Tsallis-regularised choices as the exponential solves softmax.

$$ \exp_a(v) = (1 + a v)_+^{1/a}, \qquad \exp_0(v) = e^v, \qquad a = \alpha - 1 \tag{1} $$
$$ \frac{d}{dv} \exp_a(v) = \exp_a(v)^{1 - a} \tag{2} $$
$a = 1$ is a ramp, $a = 1/2$ a half parabola. Where its argument falls by a threshold $t$, we keep
$u = -\log \exp_a(-t)$ instead, the height of the curve at $x = 0$:
$$ \exp_a(x - t) = \rho \exp_a(x \rho^{-a}), \qquad \rho = \exp_a(-t) = e^{-u} \tag{3} $$
The right side keeps relative accuracy where $1 - a t$ would cancel, and is the same formula at
$a = 0$. Everything here is differentiable in $x$, $u$ and a tensor $a$, at $a = 0$ too, where
$\log(1 + y)/a$ and its derivatives come from series.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._types import Float


def deformed_exp(
    x: Float[Tensor, "*shape"], u: Tensor, a: float | Tensor
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    r"""Eq. (3), cut at 1, and its slope $z^{1-a}$ by Eq. (2); both exactly 0 outside the support.

    Args:
        x: at most 100 (any number that reaches the cap is as good as a greater one); `-inf` gives 0.
        u: $u \ge 0$, broadcasts against `x`.
        a: $\alpha - 1 \ge 0$; a tensor broadcasts against `x`.

    Examples:
        >>> import torch
        >>> x = torch.tensor([-3.0, -0.5, 0.0])
        >>> deformed_exp(x, torch.tensor(0.0), 1.0)
        (tensor([0.0000, 0.5000, 1.0000]), tensor([0., 1., 1.]))
        >>> deformed_exp(x, torch.tensor(0.0), 0.0)[0]
        tensor([0.0498, 0.6065, 1.0000])

    References: [tsallis1988], [blondel2020].
    """
    if isinstance(a, Tensor):
        return _general(x, u, a)
    if a == 0.0:
        z = (x - u).clamp(max=0.0).exp()
        return z, z
    if a == 1.0:
        z = (x + torch.exp(-u)).clamp(0.0, 1.0)
        return z, (z > 0).to(x.dtype)
    if a == 0.5:
        b = (0.5 * x + torch.exp(-0.5 * u)).clamp(0.0, 1.0)
        return b * b, b
    return _general(x, u, a)


def _general(x: Tensor, u: Tensor, a: float | Tensor) -> tuple[Tensor, Tensor]:
    lift = torch.exp(a * u)  # rho^-a
    live = (x > -math.inf) & (x * lift * a > -1)
    x = torch.where(live, x, 0.0) * lift
    y = a * x
    log_b = torch.log1p(y)
    log_z = (x * _log1p_ratio(y) if isinstance(a, Tensor) else log_b / a) - u
    log_z = log_z.clamp(max=0.0)
    return torch.where(live, log_z.exp(), 0.0), torch.where(live, ((1.0 - a) * log_z).exp(), 0.0)


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
