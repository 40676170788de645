r"""Tsallis-regularised choice of k items: the one problem behind sparsemax, entmax and three soft top-k.

$$ z = \arg\max_{0 \le z \le 1,\; \sum_i z_i = k} \; \langle w, z \rangle
       - \frac{1}{\alpha (\alpha - 1)} \sum_i (z_i^\alpha - z_i)
     = \min(1, \exp_a(w - \theta)), \quad a = \alpha - 1 \tag{1} $$
$a = 0$ is the entropy, $a = 1$ the Euclidean norm; $k = 1$ is the simplex, where the cap holds by itself.
The threshold $\theta$ is the only unknown. Seen from the k-th largest score $p$ it lies in
$$ 0 \le t = \theta - p \le -\log_a\!\tfrac{1}{n - k + 1} = \frac{1 - (n-k+1)^{-a}}{a} \le \log n \tag{2} $$
so that neither the scale of the scores nor their offset costs digits. With
$s_i = z_i^{1-a}\,[0 < z_i < 1]$ the Jacobian is symmetric and costs O(n):
$$ J g = s \circ (g - q), \qquad q = \frac{\langle s, g \rangle}{\sum_i s_i} \tag{3} $$
"""

from __future__ import annotations

import functools
import importlib
import math
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argrad._checks import bad_values, check_allowed, check_scores, is_transformed
from argrad._kernels.threads import run_rows
from argrad._types import Float
from argrad.solvers.deformed import deformed_exp, slope_from_value, value_by_a
from argrad.solvers.order import Size, kth_largest
from argrad.solvers.root import root

Order = float | Tensor  # a = alpha - 1: a float, or a tensor of shape (*batch, 1)


def tsallis(call: str, scores: Float[Tensor, "*batch n"], k: Size, a: Order) -> Tensor:
    """Eq. (1) with the backward of Eq. (3); `call` is who to name in an error."""
    if not _use_kernel(scores, a):
        check_scores(call, "scores", scores)
        check_allowed(call, k, scores)
    return _Tsallis.apply(scores, a, k, call)  # type: ignore[return-value]


def tsallis_unrolled(call: str, scores: Float[Tensor, "*batch n"], k: Size, a: Order) -> Tensor:
    """Eq. (1), differentiated through its last two Newton steps (right up to the third derivative)."""
    check_scores(call, "scores", scores)
    check_allowed(call, k, scores)
    fixed = a.detach() if isinstance(a, Tensor) else a
    origin = kth_largest(scores.detach(), k)
    t = _threshold(scores.detach() - origin, k, fixed)
    x = scores - origin
    for _ in range(2):
        _, _, total, slope, rest = _totals(x, t, k, a)
        t = t + torch.where(slope > 0, total - rest, 0.0) / torch.where(slope > 0, slope, 1.0)
    return _reject(deformed_exp(_below(x - t), a)[0], scores, k)


# ---- forward -------------------------------------------------------------------------------------


def _below(v: Tensor) -> Tensor:
    """v cut to [-1e30, 0]: the cap, and no infinity that a = 0 could turn into NaN."""
    return v.clamp(-1e30, 0.0)


def _totals(x: Tensor, t: Tensor, k: Size, a: Order) -> tuple[Tensor, ...]:
    """z; its slopes s, where free; their sums over the free items; and what those must sum to."""
    v = x - t
    capped = v > 0
    z, s = deformed_exp(_below(v), a)
    s = torch.where(capped, 0.0, s)
    total = torch.where(capped, 0.0, z).sum(-1, keepdim=True)
    rest = k - capped.sum(-1, keepdim=True)
    return z, s, total, s.sum(-1, keepdim=True), rest.to(x.dtype)


def _residual(x: Tensor, t: Tensor, k: Size, a: Order) -> tuple[Tensor, Tensor]:
    r"""Sum of z minus k (0 within rounding), and a Newton step on $(\sum z)^a$.

    In $\sum z$ itself Newton is slow where $\exp_a$ is strongly curved; the power makes the function
    convex for a <= 1, and linear for one item, or for a = 0 (where it means the logarithm).
    """
    _, _, total, slope, rest = _totals(x, t, k, a)
    value = total - rest
    noise = 2 * torch.finfo(x.dtype).eps * (total + rest.abs())
    log_ratio = torch.log(total / rest)  # NaN if more than k items are capped
    straight = total * _minus_log_a(log_ratio, a)
    step = torch.where(rest > 0, straight, value) / slope
    return torch.where(value.abs() <= noise, 0.0, value), step


def _minus_log_a(u: Tensor, a: Order) -> Tensor:
    r"""$(1 - e^{-a u})/a$, and $u$ at $a = 0$."""
    if not isinstance(a, Tensor):
        return u if a == 0.0 else -torch.expm1(-a * u) / a
    return torch.where(a == 0, u, -torch.expm1(-a * u) / torch.where(a == 0, 1.0, a))


def _threshold(x: Tensor, k: Size, a: Order) -> Tensor:
    """t of Eq. (2), for scores seen from the k-th largest."""
    low = torch.zeros_like(x[..., :1])
    spare = torch.as_tensor(x.shape[-1] - k + 1, device=x.device).clamp(min=1).to(x.dtype)
    high = _minus_log_a(spare.log(), a).expand(low.shape)
    return root(lambda t: _residual(x, t, k, a), low, high)


def solve(scores: Tensor, k: Size, a: Order) -> Tensor:
    """Eq. (1) in plain torch; no gradient."""
    x = scores - kth_largest(scores, k)
    t = _threshold(x, k, a)
    z, s, _, _, _ = _totals(x, t, k, a)
    full = x >= t
    # An item that is free never rounds to 1: `z < 1` is how the backward pass knows that it can move.
    below_one = 1.0 - 0.5 * torch.finfo(z.dtype).eps
    z = torch.where(full, 1.0, z.clamp(max=below_one))
    s = torch.where(full, 0.0, s)
    slope = s.sum(-1, keepdim=True)
    miss = (k - z.sum(-1, keepdim=True)) / torch.where(slope > 0, slope, 1.0)
    z = torch.where(full, z, (z + s * miss).clamp(0.0, below_one))
    return _reject(z, scores, k)


def _reject(z: Tensor, scores: Tensor, k: Size) -> Tensor:
    """0 where k is 0; NaN where k is impossible, which could not be read and refused before."""
    if not isinstance(k, Tensor):
        return torch.zeros_like(z) if k == 0 else z
    possible = (k >= 0) & (k <= (scores > -math.inf).sum(-1, keepdim=True))
    return torch.where(k == 0, 0.0, torch.where(possible, z, math.nan))


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
    return z > 0 if not isinstance(k, Tensor) and k == 1 else (z > 0) & (z < 1)


class _Tsallis(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, a: Order, k: Size, call: str) -> Tensor:
        return _solve_kernel(call, scores, k, a) if _use_kernel(scores, a) else solve(scores, k, a)

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
        if _use_kernel(z, a) and not torch.is_grad_enabled():
            return _pull_back_kernel(z, g, k, a), None, None, None
        grad, centred = pull_back(z, g, k, a)
        by_a = None
        if ctx.needs_input_grad[1]:
            by_a = (value_by_a(z, _free(z, k), a) * centred).sum(-1, keepdim=True)
        return grad, by_a, None, None

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


# ---- the CPU kernel: a = 1 and a = 1/2 -----------------------------------------------------------


def _use_kernel(scores: Tensor, a: Order) -> bool:
    return not isinstance(a, Tensor) and a in (0.5, 1.0) and scores.is_cpu and not is_transformed()


@functools.cache
def _kernels() -> ModuleType:
    """The compiled kernels, imported (with numba) on first use."""
    return importlib.import_module("argrad._kernels.tsallis")


def _rows(x: Tensor) -> np.ndarray:
    x = x.detach()
    return (x if x.dim() == 2 and x.is_contiguous() else x.reshape(-1, x.shape[-1]).contiguous()).numpy()


def _solve_kernel(call: str, scores: Tensor, k: Size, a: Order) -> Tensor:
    out = torch.empty(scores.shape, dtype=scores.dtype)
    if out.numel() == 0:
        return out
    sizes = k.expand(*scores.shape[:-1], 1).reshape(-1).numpy() if isinstance(k, Tensor) else np.array((k,))
    flat = _rows(scores)
    kernels = _kernels()
    status = run_rows(kernels.solve, len(flat), flat.size, flat, sizes, round(1 / a), _rows(out))
    if status & kernels.BAD:
        raise bad_values(call, "scores", scores)
    if status:
        check_allowed(call, k, scores)
    return out


def _pull_back_kernel(z: Tensor, g: Tensor, k: Size, a: Order) -> Tensor:
    out = torch.empty(z.shape, dtype=z.dtype)
    if out.numel() == 0:
        return out
    top = math.inf if not isinstance(k, Tensor) and k == 1 else 1.0
    rows = (_rows(z), _rows(g))
    run_rows(_kernels().pull_back, len(rows[0]), z.numel(), *rows, round(1 / a), top, _rows(out))
    return out
