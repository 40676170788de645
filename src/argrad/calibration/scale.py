r"""The one number of temperature scaling: the root of a rising function of $\lambda = 1/T$.

$$ g(\lambda) = \sum_i w_i \big(\mathbb{E}_\lambda\langle\theta_i, z\rangle
   - \langle\theta_i, z_i\rangle\big) = 0, \qquad
   h(\lambda) = g'(\lambda) = \sum_i w_i \mathrm{Var}_\lambda\langle\theta_i, z\rangle \ge 0 \tag{1} $$
$g$ is the derivative of the mean negative log-likelihood, which is convex in $\lambda$ (not in $T$). So there
are four cases and no others: $g$ has one root; $g \ge 0$ at 0, where $T = \infty$ is best; $g < 0$ up to
infinity, where $T = 0$ is; or $g$ is 0 everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from argrad._checks import all_finite, can_read, fail, is_transformed
from argrad._types import Float, Int
from argrad.solvers.root import root

Moments = Callable[[Tensor], tuple[Tensor, Tensor]]

_GROW = 8.0  # how much wider a bracket gets at a time
_MOST = 300  # times; 8^300 is far beyond the range of float64
_BLIND = (1e-6, 1e12)  # the bracket around the first guess where values cannot be read


class Status(IntEnum):
    """What a fit found; `sentence` says it in words.

    Examples:
        >>> import argrad as ag
        >>> ag.calibration.Status.ZERO.sentence
        'T = 0: every label is the arg max of its scores, so the likelihood rises as T falls.'
    """

    OK = 0
    ZERO = 1
    INFINITE = 2
    ANY = 3
    UNBOUNDED = 4

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.OK: "The optimum is finite and was found.",
    Status.ZERO: "T = 0: every label is the arg max of its scores, so the likelihood rises as T falls.",
    Status.INFINITE: "T = infinity: labels score no higher than a uniform choice, so ignoring the scores is best.",
    Status.ANY: "Any T: the scores of each row are all equal, so the temperature changes nothing. T = 1 is kept.",
    Status.UNBOUNDED: "No finite optimum: some direction of the parameters separates the labels. Use `ridge`.",
}


@dataclass(frozen=True)
class Temperature:
    r"""A fitted temperature, or a batch of them.

    Attributes:
        temperature: $T$, shape `(*batch)`; differentiable for the scores, first and second derivatives exact.
        inverse: $\lambda = 1/T$, what is solved for; 0 where $T$ is infinite.
        status: a `Status` code for each, as int64.
        standard_error: of $T$, from the curvature; NaN where the optimum is not finite.
        residual: what is left of equation (1), in units of the scores' standard deviation.

    Examples:
        >>> import torch, argrad as ag
        >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> fit = ag.calibration.fit_temperature(logits, torch.tensor([0, 0, 0, 1]))
        >>> round(fit.temperature.item(), 4), round((logits / fit.temperature).softmax(-1)[0, 0].item(), 4)
        (1.8205, 0.75)
    """

    temperature: Float[Tensor, "*batch"]
    inverse: Float[Tensor, "*batch"]
    status: Int[Tensor, "*batch"]
    standard_error: Float[Tensor, "*batch"]
    residual: Float[Tensor, "*batch"]


def solve_scale(
    call: str, moments: Moments, perfect: Tensor, count: Tensor, dtype: torch.dtype
) -> Temperature:
    """Solve (1) for each problem of a batch.

    Args:
        call: whose sentence says that the scores are too large.
        moments: $\\lambda \\mapsto (g, h)$, in float64; differentiable for the scores.
        perfect: where every observation is the best choice, so that $g < 0$ up to infinity.
        count: how many observations there are (for the standard error).
        dtype: of the result.
    """
    with torch.no_grad():
        g_0, h_0 = moments(torch.zeros_like(count))
        if can_read(h_0) and not all_finite(h_0):
            advice = "Divide them; the temperature is divided as well."
            raise fail(call, "scores", "must have a variance within float64", "larger ones", advice)
        flat = h_0 <= 0
        status = torch.where(perfect, Status.ZERO, Status.OK)
        status = torch.where(g_0 >= 0, Status.INFINITE, status)
        status = torch.where(flat, Status.ANY, status)
        found = status == Status.OK
        guess = torch.where(found, -g_0 / torch.where(flat, 1.0, h_0), 1.0)
        inverse = _solve(moments, guess, found)
    g, h = moments(inverse)
    if g.requires_grad or is_transformed():
        inverse = _differentiable(moments, inverse, torch.where(found, h.detach(), 1.0), found)
    g, h = g.detach(), h.detach()
    ends = torch.where(status == Status.ZERO, math.inf, torch.where(status == Status.ANY, 1.0, 0.0))
    inverse = torch.where(found, inverse, ends)
    # inside the `where`, so that 1/0 has no gradient
    temperature = torch.where(found, 1 / torch.where(found, inverse, 1.0), 1 / ends)
    error = torch.where(found, temperature.detach() ** 2 / (count * h).sqrt(), math.nan)
    residual = torch.where(found, g.abs() / torch.where(flat, 1.0, h_0).sqrt(), 0.0)
    return Temperature(
        temperature.to(dtype), inverse.to(dtype), status, error.to(dtype), residual.to(dtype)
    )


def _solve(moments: Moments, guess: Tensor, found: Tensor) -> Tensor:
    """Newton's steps in $\\lambda$, kept in a bracket of $\\log \\lambda$."""

    def residual(log_inverse: Tensor) -> tuple[Tensor, Tensor]:
        inverse = log_inverse.exp()
        g, h = moments(inverse)
        step = torch.log1p(-g / (h * inverse))  # log(lambda - g/h) - log(lambda); NaN: refused
        return torch.where(found, -g, 0.0), torch.where(found, step, 0.0)

    low, high = _bracket(moments, guess, found)
    return root(residual, low.log(), high.log()).exp()


def _bracket(moments: Moments, guess: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Two numbers with $g \\le 0 \\le g$, as near to the guess as factors of 8 allow."""
    if not can_read(guess):
        return guess * _BLIND[0], guess * _BLIND[1]
    low = high = guess
    for _ in range(_MOST):
        above = found & (moments(low)[0] > 0)
        if not bool(above.any()):
            break
        high, low = torch.where(above, low, high), torch.where(above, low / _GROW, low)
    for _ in range(_MOST):
        below = found & (moments(high)[0] < 0)
        if not bool(below.any()):
            break
        low, high = torch.where(below, high, low), torch.where(below, high * _GROW, high)
    return low, high


def _differentiable(moments: Moments, inverse: Tensor, slope: Tensor, found: Tensor) -> Tensor:
    r"""The same number with its derivatives for the scores.

    A step $\lambda - g(\lambda, \theta)/h_0$ with constant $\lambda$ and $h_0$ moves nothing and has the
    derivative $-g_\theta/h$ of the implicit function; a second step, from that $\lambda(\theta)$, has its
    second derivative as well.
    """
    safe = torch.where(found, inverse, 1.0)
    for _ in range(2):
        g, _ = moments(safe)
        safe = safe - torch.where(found, g, 0.0) / slope
    return safe
