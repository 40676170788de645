r"""Tsallis-regularised choice of k items: the one problem behind sparsemax, entmax and three soft top-k.

$$ z = \arg\max_{0 \le z \le 1,\; \sum_i z_i = k} \; \langle w, z \rangle
       - \frac{1}{\alpha (\alpha - 1)} \sum_i (z_i^\alpha - z_i)
     = \min(1, \exp_a(w - \theta)), \quad a = \alpha - 1 \tag{1} $$
$a = 0$ is the entropy, $a = 1$ the Euclidean norm; $k = 1$ is the simplex, where the cap holds by itself.
The threshold $\theta$ is the only unknown. Seen from the k-th largest score $p$ it is given by the
value $\rho$ of that item:
$$ z_i = \min\big(1, \rho \exp_a((w_i - p) \rho^{-a})\big), \qquad
   0 \le u = -\log \rho \le \log(n - k + 1) \tag{2} $$
so that neither the scale of the scores nor their offset costs digits. With
$s_i = z_i^{1-a}\,[0 < z_i < 1]$ the Jacobian is symmetric and costs O(n):
$$ J g = s \circ (g - q), \qquad q = \frac{\langle s, g \rangle}{\sum_i s_i} \tag{3} $$
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argrad._checks import bad_alpha, check_allowed, check_scores, is_transformed
from argrad._types import Float
from argrad.solvers.deformed import deformed_exp, slope_from_value, value_by_a
from argrad.solvers.order import Size, kth_largest
from argrad.solvers.root import root
from argrad.solvers.row_kernels import in_front, pull_rows, solve_rows

Order = float | Tensor  # a = alpha - 1: a float, or a tensor of shape (*batch, 1)


def tsallis(call: str, scores: Float[Tensor, "*batch n"], k: Size, a: Order) -> Tensor:
    """Eq. (1) with the backward of Eq. (3); `call` is who to name in an error."""
    function = _Tsallis if torch.compiler.is_compiling() else _TsallisBothWays
    return function.apply(scores, a, k, call)  # type: ignore[return-value]


def tsallis_unrolled(call: str, scores: Float[Tensor, "*batch n"], k: Size, a: Order) -> Tensor:
    """Eq. (1), differentiated through its last two Newton steps (right up to the third derivative)."""
    fixed = a.detach() if isinstance(a, Tensor) else a
    rho = kth_largest(_forward(call, scores.detach(), k, fixed), k)  # Eq. (2)
    u = -torch.log(torch.where(rho > 0, rho, 1.0))
    x = _centred(scores, k)
    for _ in range(2):
        u = u + _newton(x, u, k, a)
    return _reject(deformed_exp(x, u, a)[0], scores, k, a)


# ---- forward -------------------------------------------------------------------------------------


def _forward(call: str, scores: Tensor, k: Size, a: Order) -> Tensor:
    """The kernel on the CPU, by way of an operator where tensors are traced; else plain torch."""
    if not scores.is_cpu:
        check_scores(call, "scores", scores)
        check_allowed(call, k, scores)
        return solve(scores, k, a)
    sizes = (None, k) if isinstance(k, int) else (k, 0)
    orders = (a, 0.0) if isinstance(a, Tensor) else (None, a)
    return (_operator if is_transformed() else _solve_kernel)(scores, *sizes, *orders, call)


def _centred(scores: Tensor, k: Size) -> Tensor:
    """Scores seen from the k-th largest; cut where the cap is certain, since u <= log n < 100."""
    return (scores - kth_largest(scores.detach(), k)).clamp(max=100.0)


def _totals(x: Tensor, u: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of z and of its slopes over the free items, and what the former must be."""
    z, s = deformed_exp(x, u, a)
    free = (z < 1) | (x <= 0)  # the k-th item and those below it reach 1 at u = 0, but not the cap
    total = torch.where(free, z, 0.0).sum(-1, keepdim=True)
    slope = torch.where(free, s, 0.0).sum(-1, keepdim=True)
    return total, slope, (k - (~free).sum(-1, keepdim=True)).to(x.dtype)


def _residual(x: Tensor, u: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor]:
    r"""Sum of z minus k (0 within rounding), and a Newton step on $(\sum z)^a$.

    In $\sum z$ itself Newton is slow where $\exp_a$ is strongly curved; the power makes the function
    convex for a <= 1, and linear for one item, or for a = 0 (where it means the logarithm).
    """
    total, slope, rest = _totals(x, u, k, a)
    value = total - rest
    noise = 2 * torch.finfo(x.dtype).eps * (total + rest.abs())
    straight = total * _minus_log_a(torch.log(total / rest), a)  # NaN if more than k items are capped
    step = torch.where(rest > 0, straight, value) / slope
    return torch.where(value.abs() <= noise, 0.0, value), _in_u(step, u, a)


def _newton(x: Tensor, u: Tensor, k: Size, a: Order) -> Tensor:
    """The plain Newton step, 0 where nothing is free; differentiable."""
    total, slope, rest = _totals(x, u, k, a)
    free = slope > 0
    rise = slope * torch.exp(-a * u)  # -d total / du
    return torch.where(free, total - rest, 0.0) / torch.where(free, rise, 1.0)


def _in_u(step: Tensor, u: Tensor, a: Order) -> Tensor:
    r"""A step of $t$ as a step of $u = -\log(1 - a t)/a$; NaN beyond the end."""
    if not isinstance(a, Tensor):
        return step if a == 0.0 else -torch.log1p(-a * step * torch.exp(a * u)) / a
    bent = -torch.log1p(-a * step * torch.exp(a * u)) / torch.where(a == 0, 1.0, a)
    return torch.where(a == 0, step, bent)


def _minus_log_a(v: Tensor, a: Order) -> Tensor:
    r"""$(1 - e^{-a v})/a$, and $v$ at $a = 0$."""
    if not isinstance(a, Tensor):
        return v if a == 0.0 else -torch.expm1(-a * v) / a
    return torch.where(a == 0, v, -torch.expm1(-a * v) / torch.where(a == 0, 1.0, a))


def _threshold(x: Tensor, k: Size, a: Order) -> Tensor:
    """u of Eq. (2)."""
    low = torch.zeros_like(x[..., :1])
    spare = torch.as_tensor(x.shape[-1] - k + 1, device=x.device).clamp(min=1).to(x.dtype)
    high = (1.0 + spare.log()).expand(low.shape)  # room for steps to a root at the end
    return root(lambda u: _residual(x, u, k, a), low, high, _blind_steps(a))


def _blind_steps(a: Order) -> tuple[int, int]:
    """Newton needs 14 at most for a <= 1; beyond, slopes are infinite and half of the steps bisect."""
    if isinstance(a, Tensor):
        return 28, 36
    return (18, 24) if a <= 1 else (48, 80)


def solve(scores: Tensor, k: Size, a: Order) -> Tensor:
    """Eq. (1) in plain torch, its sum corrected to k by one last step in z itself; no gradient."""
    x = _centred(scores, k)
    u = _threshold(x, k, a)
    z, s = deformed_exp(x, u, a)
    free = (z < 1) | ((x <= 0) & (u > 0))
    s = torch.where(free, s, 0.0)
    slope = s.sum(-1, keepdim=True)
    rest = k - (~free).sum(-1, keepdim=True)  # exact, where k minus the sum of all z would not be
    miss = (rest - torch.where(free, z, 0.0).sum(-1, keepdim=True)) / torch.where(slope > 0, slope, 1.0)
    # A free item never becomes 1: `z < 1` is how the backward pass knows that it can move.
    below_one = 1.0 - 0.5 * torch.finfo(z.dtype).eps
    z = torch.where(free, (z + s * miss).clamp(0.0, below_one), z)
    return _reject(z, scores, k, a)


def _reject(z: Tensor, scores: Tensor, k: Size, a: Order) -> Tensor:
    """0 where k is 0; NaN where scores, k or a are impossible but could not be read and refused before."""
    if isinstance(k, int) and k == 0:
        return torch.zeros_like(z)
    fine = scores.amax(-1, keepdim=True) < math.inf
    if isinstance(a, Tensor):
        fine = fine & (a >= 0)
    fine = fine & (k >= 0) & (k <= (scores > -math.inf).sum(-1, keepdim=True))
    z = torch.where(fine, z, math.nan)
    return torch.where(k == 0, 0.0, z) if isinstance(k, Tensor) else z


# ---- backward ------------------------------------------------------------------------------------


def pull_back(z: Tensor, g: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor]:
    """Eq. (3), and g - q; differentiable in all of them."""
    s = slope_from_value(z, _free(z, k), a)
    mass = s.sum(-1, keepdim=True)
    g = torch.where(s > 0, g, 0.0)
    centred = g - (s * g).sum(-1, keepdim=True) / torch.where(mass > 0, mass, 1.0)
    return s * centred, centred


def _free(z: Tensor, k: Size) -> Tensor:
    """Items that can move. On the simplex the cap binds no one, also where z rounds to 1."""
    return z > 0 if isinstance(k, int) and k == 1 else (z > 0) & (z < 1)


class _Tsallis(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, a: Order, k: Size, call: str) -> Tensor:
        return _forward(call, scores, k, a)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, a, k, _ = inputs
        tensors = [x if isinstance(x, Tensor) else None for x in (a, k)]
        ctx.save_for_backward(output, *tensors)
        ctx.save_for_forward(output, *tensors)
        ctx.numbers = a if tensors[0] is None else None, k if tensors[1] is None else None

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        z, a, k = _saved(ctx)
        (g,) = grads
        traced = torch.is_grad_enabled() or is_transformed()
        if isinstance(a, float) and a in _POWERS and z.is_cpu and not traced:
            return _pull_back_kernel(z, g, k, _POWERS[a]), None, None, None
        grad, centred = pull_back(z, g, k, a)
        by_a = None
        if ctx.needs_input_grad[1]:
            by_a = (value_by_a(z, _free(z, k), a) * centred).sum(-1, keepdim=True)
        return grad, by_a, None, None


class _TsallisBothWays(_Tsallis):
    """With forward mode too, which `torch.compile` cannot trace (it refuses the class, unused or not)."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        z, a, k = _saved(ctx)
        move, _ = pull_back(z, tangents[0], k, a)
        if tangents[1] is None:
            return move
        free = _free(z, k)
        change, s = value_by_a(z, free, a), slope_from_value(z, free, a)
        mass = s.sum(-1, keepdim=True)
        shift = change.sum(-1, keepdim=True) / torch.where(mass > 0, mass, 1.0)
        return move + tangents[1] * (change - s * shift)


def _saved(ctx: Any) -> tuple[Tensor, Order, Size]:
    z, a, k = ctx.saved_tensors
    return z, ctx.numbers[0] if a is None else a, ctx.numbers[1] if k is None else k


# ---- CPU kernels ---------------------------------------------------------------------------------

_POWERS = {0.0: 0, 0.5: 2, 1.0: 1}  # a -> 1/a, where the kernels have a case of their own


def _solve_kernel(
    scores: Tensor, k: Tensor | None, size: int, order: Tensor | None, a: float, call: str
) -> Tensor:
    """k of `(*batch, 1)` or `size` for all, a of `(*batch, 1)` or one float."""
    out = torch.empty(scores.shape, dtype=scores.dtype)
    if order is None and a in (0.5, 1.0):
        solve_rows("tsallis", call, scores, k, size, _POWERS[a], out)
    else:
        orders = np.array((a,)) if order is None else order.double().reshape(-1).numpy()
        if not (orders >= 0.0).all():
            raise bad_alpha(call, orders.min() + 1.0)
        solve_rows("deformed", call, scores, k, size, orders, out)
    return out


_operator = torch.library.custom_op("argrad::tsallis", _solve_kernel, mutates_args=())


@_operator.register_fake
def _(scores: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


@_operator.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    return _operator(*in_front(info.batch_size, in_dims, args)), 0


def _pull_back_kernel(z: Tensor, g: Tensor, k: Size, power: int) -> Tensor:
    out = torch.empty(z.shape, dtype=z.dtype)
    top = math.inf if isinstance(k, int) and k == 1 else 1.0
    pull_rows("tsallis", z, g, power, top, out)
    return out
