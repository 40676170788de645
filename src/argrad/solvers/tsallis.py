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
from argrad.solvers._row_kernels import in_front, pull_rows, solve_rows
from argrad.solvers._tsallis_torch import Order, answer_or_nan, centred, newton_step, solve
from argrad.solvers.deformed import deformed_exp, slope_from_value, value_by_a
from argrad.solvers.order import Size, kth_largest


def tsallis(call: str, scores: Float[Tensor, "*batch n"], k: Size, a: Order) -> Tensor:
    """Eq. (1) with the backward of Eq. (3); `call` is who to name in an error."""
    function = _Tsallis if torch.compiler.is_compiling() else _TsallisBothWays
    return function.apply(scores, a, k, call)  # type: ignore[return-value]


def tsallis_unrolled(call: str, scores: Float[Tensor, "*batch n"], k: Size, a: Order) -> Tensor:
    """Eq. (1), differentiated through its last two Newton steps (right up to the third derivative)."""
    fixed = a.detach() if isinstance(a, Tensor) else a
    rho = kth_largest(_forward(call, scores.detach(), k, fixed), k)  # Eq. (2)
    u = -torch.log(torch.where(rho > 0, rho, 1.0))
    x = centred(scores, k)
    for _ in range(2):
        u = u + newton_step(x, u, k, a)
    return answer_or_nan(deformed_exp(x, u, a)[0], scores, k, a)


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


# ---- backward ------------------------------------------------------------------------------------


def pull_back(z: Tensor, g: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor]:
    """Eq. (3), and g - q; differentiable in all of them."""
    s = slope_from_value(z, _free(z, k), a)
    mass = s.sum(-1, keepdim=True)
    g = torch.where(s > 0, g, 0.0)
    relative = g - (s * g).sum(-1, keepdim=True) / torch.where(mass > 0, mass, 1.0)
    return s * relative, relative


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
        grad, relative = pull_back(z, g, k, a)
        by_a = None
        if ctx.needs_input_grad[1]:
            by_a = (value_by_a(z, _free(z, k), a) * relative).sum(-1, keepdim=True)
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
    out = torch.empty(scores.shape, dtype=scores.dtype, device="cpu")
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
    out = torch.empty(z.shape, dtype=z.dtype, device="cpu")
    top = math.inf if isinstance(k, int) and k == 1 else 1.0
    pull_rows("tsallis", z, g, power, top, out)
    return out
