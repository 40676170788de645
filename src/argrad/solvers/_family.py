r"""What the exponential families solved here share: derivatives, the choice of path, one draw.

For $P(z) \propto e^{\langle \theta, z \rangle}$ over a finite set, with $A(\theta) = \log Z$ and marginals
$\mu = \nabla A = E z$, the backward of $A$ is $g \mu$ and that of $\mu$ is the Hessian of $A$ (the
covariance of $z$) times $g$. Eager code on the CPU takes both from compiled kernels. Everything else
(accelerators, `torch.compile`, `torch.func`, third derivatives) is plain torch, differentiable to any
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from argrad._checks import can_read, is_transformed, nothing_allowed
from argrad._numerics import widen


class Family(NamedTuple):
    """Its functions; each takes the scores, then what is said here, then the family's options."""

    log_partition: Callable[..., Tensor]  # torch
    infer: Callable[..., tuple[Tensor, Tensor]]  # torch: (log Z, marginals, finite if log Z is not)
    kernel_infer: Callable[..., tuple[Tensor, Tensor]]  # takes "with marginals"
    kernel_hessian_product: Callable[..., Tensor]  # takes the vector


def use_kernel(scores: Tensor) -> bool:
    """Eager on the CPU."""
    return scores.device.type == "cpu" and not is_transformed()


def log_partition(family: Family, scores: Tensor, *options: Any) -> Tensor:
    """log Z; -inf with gradient 0 where nothing is allowed."""
    x = widen(scores)
    if not use_kernel(x):
        log_z = family.log_partition(x, *options)
    elif torch.is_grad_enabled() and x.requires_grad:
        log_z, _ = _Inference.apply(x, family, *options)
    else:
        log_z, _ = family.kernel_infer(x, False, *options)
    return log_z.to(scores.dtype)


def marginals(call: str, advice: str, family: Family, scores: Tensor, *options: Any) -> Tensor:
    """The marginals; where nothing is allowed a sentence, or NaN if values cannot be read."""
    x = widen(scores)
    if use_kernel(x):
        log_z, mu = _Inference.apply(x, family, *options)
    else:
        log_z, mu = family.infer(x, *options)
    empty = log_z.detach() == -math.inf
    return refuse_empty(call, advice, empty, mu, mu.dim() - log_z.dim()).to(scores.dtype)


def refuse_empty(call: str, advice: str, empty: Tensor, x: Tensor, event_dims: int) -> Tensor:
    """`x`, unless a row is `empty`: then a sentence, or NaN there if values cannot be read."""
    if not can_read(empty):
        return torch.where(empty.reshape(empty.shape + (1,) * event_dims), math.nan, x)
    if bool(empty.any()):
        raise nothing_allowed(call, empty, advice)
    return x


# ---- derivatives ---------------------------------------------------------------------------------


class _Inference(torch.autograd.Function):
    """scores -> (log Z, marginals)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, family: Family, *options: Any) -> tuple[Tensor, Tensor]:
        if use_kernel(scores):
            return family.kernel_infer(scores, True, *options)
        return family.infer(scores, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        scores, ctx.family, *ctx.options = inputs
        ctx.save_for_backward(scores, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (scores, mu), (g_log_z, g_mu) = ctx.saved_tensors, grads
        grad = None
        if g_log_z is not None:
            grad = g_log_z.reshape(g_log_z.shape + (1,) * (mu.dim() - g_log_z.dim())) * mu
        if g_mu is not None:
            curved = _HessianProduct.apply(scores, g_mu, ctx.family, *ctx.options)
            grad = curved if grad is None else grad + curved
        return grad, None, *(None for _ in ctx.options)


class _HessianProduct(torch.autograd.Function):
    """(scores, v) -> Hessian of log Z times v. Its own derivative (of third order) is left to torch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, v: Tensor, family: Family, *options: Any) -> Tensor:
        if use_kernel(scores):
            return family.kernel_hessian_product(scores, v, *options)
        return _hessian_product_torch(family, options, scores, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        scores, v, ctx.family, *ctx.options = inputs
        ctx.save_for_backward(scores, v)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (scores, v), (g,) = ctx.saved_tensors, grads
        g_scores = g_v = None
        if ctx.needs_input_grad[0]:
            product = lambda x: _hessian_product_torch(ctx.family, ctx.options, x, v)  # noqa: E731
            g_scores = torch.func.vjp(product, scores)[1](g)[0]
        if ctx.needs_input_grad[1]:  # the Hessian is symmetric
            g_v = _HessianProduct.apply(scores, g, ctx.family, *ctx.options)
        return g_scores, g_v, None, *(None for _ in ctx.options)


def _hessian_product_torch(family: Family, options: Any, scores: Tensor, v: Tensor) -> Tensor:
    return torch.func.vjp(lambda x: family.infer(x, *options)[1], scores)[1](v)[0]


# ---- rows for kernels, draws ---------------------------------------------------------------------


def rows(x: Tensor, event_dims: int, dtype: torch.dtype | None = None) -> np.ndarray:
    """`(*batch, *event)` as a contiguous array `(rows, *event)`."""
    cut = x.dim() - event_dims
    flat = x.detach().to(dtype or x.dtype).reshape(math.prod(x.shape[:cut]), *x.shape[cut:])
    return flat.contiguous().numpy()


def draws(x: Tensor, count: int) -> Tensor:
    """`(*sample, *batch, n)` as `(samples, count, n)`, sharing memory."""
    return x.view(x.numel() // max(1, count * x.shape[-1]), count, x.shape[-1])


def run(kernel: Callable[..., int], x: np.ndarray, *args: Any, work: int = 64) -> None:
    """`kernel(start, stop, x, *args)` over the rows of `x`; `work` operations a number of `x`."""
    from argrad._kernels.threads import run_rows

    arrays = (a.numpy() if isinstance(a, Tensor) else a for a in args)
    if len(x):
        run_rows(kernel, len(x), x.size * work, x, *arrays)


def over_batch(k: int | Tensor, scores: Tensor) -> int | Tensor:
    """k as `check_size` returns it, with a tensor expanded to the shape of the batch."""
    return k if isinstance(k, int) else k.expand(*scores.shape[:-1], 1)[..., 0]


def sizes(k: int | Tensor, count: int) -> np.ndarray:
    """A k for each of `count` rows."""
    if isinstance(k, Tensor):
        return k.reshape(-1).to(torch.int64).contiguous().numpy()
    return np.full(count, k, np.int64)


def pick(weights: Tensor, uniform: Tensor) -> Tensor:
    """An index of the last dimension with probability proportional to `weights`; never one of weight 0."""
    total = torch.cumsum(weights, -1)
    target = uniform[..., None] * total[..., -1:]
    index = (total <= target).sum(-1)
    # target = total by rounding: the last index with a weight
    return torch.minimum(index, (total < total[..., -1:]).sum(-1))
