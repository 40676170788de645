r"""Gumbel-max, Gumbel-softmax, Gumbel-top-k: one choice from logits, hard or relaxed, and k of them.

With $G_i = \theta_i + \varepsilon_i$ and $\varepsilon_i \sim \mathrm{Gumbel}(0, 1)$ independent:
the largest $G_i$ is at $i$ with probability $\mathrm{softmax}(\theta)_i$ (Gumbel-max), its value is
independent of its place, and the order of the $k$ largest is that of drawing without replacement
(Plackett-Luce). On the CPU each function here is one pass of a compiled kernel over the logits.
"""

from __future__ import annotations

import functools
import importlib
import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from argrad import random
from argrad._autograd import straight_through
from argrad._checks import (
    bad_values,
    check_any_allowed,
    check_count,
    check_dim,
    check_event,
    check_floating,
    check_mask,
    check_scores,
    check_tau,
    is_transformed,
    nothing_allowed,
    too_few_allowed,
)
from argrad._kernels.threads import run_rows
from argrad._numerics import masked_scores, one_hot, widen
from argrad._types import Bool, Float, Generator, Int, Tau


class TopK(NamedTuple):
    r"""What `gumbel_topk` drew: $k$ items in the order of drawing, the first one first.

    Attributes:
        indices: the items, `int64`, shape `(*batch, k)`.
        log_prob: $\phi_i = \log \mathrm{softmax}(\theta)_i$ of each item, shape `(*batch, k)`;
            differentiable.
        perturbed: $\phi_i + \varepsilon_i$, falling, shape `(*batch, k)`; differentiable.
        kappa: the largest perturbed log-probability that was *not* drawn, shape `(*batch,)`; `-inf`
            when everything was. An item is in the sample with probability
            $1 - \exp(-\exp(\phi_i - \kappa))$ given $\kappa$, which makes unbiased weights.
        valid: False where there was no item left to draw (only where values cannot be checked).

    Examples:
        >>> import torch, argrad as ag
        >>> logits = torch.randn(2, 10, requires_grad=True)
        >>> indices, log_prob, perturbed, kappa, valid = ag.gumbel_topk(logits, 3)
        >>> weight = log_prob.exp() / -torch.expm1(-torch.exp(log_prob - kappa[:, None]))
        >>> weight.shape  # the sum of weight * f(indices) is an unbiased estimate of E f
        torch.Size([2, 3])
    """

    indices: Int[Tensor, "*batch k"]
    log_prob: Float[Tensor, "*batch k"]
    perturbed: Float[Tensor, "*batch k"]
    kappa: Float[Tensor, "*batch"]
    valid: Bool[Tensor, "*batch k"]


def gumbel_softmax(
    logits: Float[Tensor, "*shape"],
    tau: Tau = 1.0,
    hard: bool = False,
    dim: int = -1,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*shape"]:
    r"""Draw a relaxed one-hot sample (Gumbel-softmax, also called Concrete).

    $$ y_i = \frac{\exp((\theta_i + \varepsilon_i)/\tau)}{\sum_j \exp((\theta_j + \varepsilon_j)/\tau)},
       \quad \varepsilon_i \sim \mathrm{Gumbel}(0, 1) \tag{1} $$
    $\arg\max y$ has exactly the law $\mathrm{softmax}(\theta)$ at every $\tau$; $y$ tends to a one-hot
    vector as $\tau \to 0$. As a gradient estimator it is biased for every $\tau > 0$. O(n).
    A drop-in for `torch.nn.functional.gumbel_softmax`.

    Args:
        logits: $\theta$, log-probabilities up to a constant, any shape; `-inf` is never chosen.
        tau: temperature $\tau > 0$; a tensor gives each row of the batch its own (and may be trained).
        hard: return the one-hot arg max with the gradient of $y$ (straight-through).
        dim: the dimension that holds the items.
        mask: True = allowed, broadcastable to `logits`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        The shape and dtype of `logits`; sums to 1 along `dim`; exactly 0 where forbidden.

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(0)
        >>> logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
        >>> z = ag.gumbel_softmax(logits, tau=0.5, hard=True, generator=g)
        >>> z.shape, z.sum().item(), z.max().item()
        (torch.Size([1, 3]), 1.0, 1.0)
        >>> (z * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
        >>> logits.grad.shape
        torch.Size([1, 3])

    See Also: `gumbel_max` (the hard sample alone), `RelaxedOneHot` (the density).
    References: [jang2017], [maddison2017].
    """
    call = "gumbel_softmax"
    scores, dim = items_last(call, logits, dim, mask, generator)
    if isinstance(tau, Tensor) and tau.dim() == logits.dim():
        tau = tau.movedim(dim, -1)  # what `keepdim=True` gives
    tau = check_tau(call, tau, scores.shape[:-1], any_positive=True)  # the maximum is subtracted first
    if _use_kernel(scores) and not (isinstance(tau, Tensor) and tau.requires_grad):
        soft = _SoftmaxKernel.apply(scores, tau, generator)
    else:
        soft = _softmax(scores, tau, generator)
    if hard:
        index = soft.detach().argmax(-1, keepdim=True)
        soft = straight_through(one_hot(index, soft), soft)
    if soft.dtype != logits.dtype:
        soft = soft.to(logits.dtype)
    return soft if dim == logits.dim() - 1 else soft.movedim(-1, dim)


def gumbel_max(
    logits: Float[Tensor, "*shape"],
    *,
    dim: int = -1,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Int[Tensor, "..."]:
    r"""Draw one item with probability $\mathrm{softmax}(\theta)$.

    $$ i = \arg\max_j \; \theta_j + \varepsilon_j, \quad \varepsilon_j \sim \mathrm{Gumbel}(0, 1) $$
    The law is exact, tails included. Since only the item is asked for, not its noise, the CPU uses one
    uniform and the inverse distribution function, which has the same law; with a `CounterRNG` the
    race itself is run, so that any chunk or shard of the items agrees on the winner.

    Args:
        logits: $\theta$, any shape; `-inf` is never chosen.
        dim: the dimension that holds the items.
        mask: True = allowed, broadcastable to `logits`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        Indices, `int64`, the shape of `logits` without `dim`.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.gumbel_max(torch.tensor([[0.0, 100.0], [100.0, 0.0]]))
        tensor([1, 0])

    References: [gumbel1954], [maddison2014].
    """
    scores, _ = items_last("gumbel_max", logits, dim, mask, generator)
    scores = scores.detach()
    if not _use_kernel(scores):
        return _perturb("gumbel_max", scores, generator)[0].argmax(-1)
    if isinstance(generator, random.CounterRNG):
        return _topk_kernel("gumbel_max", scores, 1, generator)[0].squeeze(-1)
    out = torch.empty(scores.shape[:-1].numel(), dtype=torch.int64, device="cpu")
    _run("draw_one", "gumbel_max", scores, generator, out.numpy())
    return out.view(scores.shape[:-1])


def gumbel_topk(
    logits: Float[Tensor, "*shape"],
    k: int,
    *,
    dim: int = -1,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> TopK:
    r"""Draw `k` different items, one after the other, without replacement (Gumbel-top-k).

    The `k` largest $\phi_i + \varepsilon_i$ in falling order are an ordered sample from the
    Plackett-Luce law: first $i_1 \sim \mathrm{softmax}(\theta)$, then $i_2$ from what is left, and
    so on:
    $$ P(i_1, \dots, i_k) = \prod_{j=1}^{k} \frac{p_{i_j}}{1 - \sum_{l<j} p_{i_l}} $$
    Exact; O(n + k log n log k) on the CPU.

    Args:
        logits: $\theta$, any shape; `-inf` is never drawn.
        k: how many, from 1 to the number of allowed items.
        dim: the dimension that holds the items.
        mask: True = allowed, broadcastable to `logits`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        A `TopK`: indices, log_prob, perturbed (with `k` in place of `dim`), kappa, valid.

    Examples:
        >>> import torch, argrad as ag
        >>> top = ag.gumbel_topk(torch.zeros(5), 3, generator=torch.Generator().manual_seed(0))
        >>> len(set(top.indices.tolist())), bool(top.perturbed[-1] > top.kappa)
        (3, True)

    References: [vieira2014], [kool2019], [efraimidis2006].
    """
    call = "gumbel_topk"
    scores, dim = items_last(call, logits, dim, mask, generator)
    n = scores.shape[-1]
    k = check_count(call, "k", k, 1, n, f"There are {n} items to draw from along `dim`.")
    keep = min(k + 1, n)
    if _use_kernel(scores):
        ids, values, log_p = _topk_kernel(call, scores, keep, generator)
        if scores.requires_grad:
            log_p = scores.log_softmax(-1).gather(-1, ids.clamp(min=0))
    else:
        noisy, _ = _perturb(call, scores.detach(), generator)
        values, ids = noisy.topk(keep, -1)
        log_all = scores.log_softmax(-1)
        log_p = log_all.gather(-1, ids)
        # `noisy` is relative to the largest score, whose log-probability is the largest
        values = values + log_all.detach().amax(-1, keepdim=True)
    top = _as_topk(k, ids, values, log_p)
    if not is_transformed() and scores.device.type == "cpu" and not bool(top.valid.all()):
        raise too_few_allowed(call, k, top.valid)
    log_prob, perturbed, kappa = (t.to(logits.dtype) for t in top[1:4])
    indices, valid = top.indices, top.valid
    if dim != logits.dim() - 1:
        moved = (t.movedim(-1, dim) for t in (indices, log_prob, perturbed, valid))
        indices, log_prob, perturbed, valid = moved
    return TopK(indices, log_prob, perturbed, kappa, valid)


# ---- shared parts --------------------------------------------------------------------------------


def items_last(
    call: str, logits: Tensor, dim: int, mask: Tensor | None, generator: Generator
) -> tuple[Tensor, int]:
    """Checked, masked logits in at least float32 with the items last; and `dim` as non-negative."""
    check_floating(call, "logits", logits)
    if logits.dim() == 0:
        check_event(call, "logits", logits)
    random.check_generator(call, generator)
    dim = check_dim(call, dim, logits.dim())
    if mask is not None:
        check_mask(call, mask, logits.shape)
        logits = masked_scores(logits, mask)
    if dim != logits.dim() - 1:
        logits = logits.movedim(dim, -1)
    check_event(call, "logits", logits)
    return widen(logits), dim


def _use_kernel(scores: Tensor) -> bool:
    return scores.is_cpu and scores.dtype in _KERNEL_DTYPES and not is_transformed()


_KERNEL_DTYPES = (torch.float32, torch.float64)


def _perturb(call: str, scores: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """`scores - max + Gumbel` (the noise keeps its digits), in which `-inf` stays; and where that is."""
    check_scores(call, "logits", scores)
    check_any_allowed(call, scores)
    noise = random.gumbel(scores.shape, dtype=scores.dtype, device=scores.device, generator=generator)
    # without masks, which inductor would not vectorise
    return scores - scores.detach().amax(-1, keepdim=True) + noise, scores == -math.inf


def _softmax(scores: Tensor, tau: Tau, generator: Generator) -> Tensor:
    """Eq. (1) in plain torch: other devices, `torch.compile`, `torch.func`, trained temperatures."""
    perturbed, closed = _perturb("gumbel_softmax", scores, generator)
    # from the top down, as the largest would overflow at the smallest temperatures
    below = perturbed - perturbed.detach().amax(-1, keepdim=True)
    if not isinstance(tau, Tensor):
        return (below / _invertible(tau, scores.dtype)).softmax(-1)
    # `-inf / tau` has a NaN derivative for tau, so that forbidden items are put back after the division
    x = below.masked_fill(closed, 0.0) / _invertible(tau, scores.dtype)
    return x.masked_fill(closed, -math.inf).softmax(-1)


def _invertible(tau: Tau, dtype: torch.dtype) -> Tau:
    """The nearest temperature whose inverse in `dtype` is finite and not 0; a tensor in that dtype."""
    least, most = _TINY[dtype], 1 / _TINY[dtype]
    return tau.to(dtype).clamp(least, most) if isinstance(tau, Tensor) else min(max(tau, least), most)


_TINY = {dtype: torch.finfo(dtype).smallest_normal for dtype in (torch.float32, torch.float64)}


_SHORT = 32  # a longer row fills the vector lanes by itself
_MANY = 2048  # numbers; calling a kernel costs more than torch's own backward takes for fewer


@functools.cache
def _short_rows() -> ModuleType:
    """Kernels for rows shorter than that."""
    return importlib.import_module("argrad._kernels.short_rows")


@functools.cache
def _kernels() -> ModuleType:
    """The compiled kernels, imported (with numba) on first use."""
    return importlib.import_module("argrad._kernels.choose")


def _run(kernel: str, call: str, scores: Tensor, generator: Generator, *buffers: np.ndarray) -> None:
    """Run a kernel of `_kernels/choose.py` over all rows, and turn its status into a sentence."""
    if scores.numel() == 0:
        return
    kernels = _kernels()
    scores = scores.detach()
    # contiguous: a strided row would neither vectorise nor share the compiled code
    flat = (scores if scores.dim() == 2 else scores.reshape(-1, scores.shape[-1])).contiguous().numpy()
    words = random.words(generator)
    function = getattr(kernels, kernel)
    if kernel == "gumbel_softmax" and flat.shape[1] < _SHORT:  # so that a batch equals a loop
        function = _short_rows().gumbel_softmax
    work = 4 * flat.size  # a number with noise takes as long as four without
    status = run_rows(function, len(flat), work, flat, *buffers, *words)
    if status & kernels.BAD:
        raise bad_values(call, "logits", scores)
    if status & kernels.EMPTY:
        raise nothing_allowed(call, scores.amax(-1) == -math.inf)


def _topk_kernel(
    call: str, scores: Tensor, keep: int, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Items, perturbed and plain log-probabilities, falling; `-1` and `-inf` where nothing is left."""
    batch = scores.shape[:-1]
    ids = torch.empty((batch.numel(), keep), dtype=torch.int64, device="cpu")
    values = torch.empty(ids.shape, dtype=scores.dtype, device="cpu")
    log_p = torch.empty_like(values)
    _run("gumbel_topk", call, scores, generator, values.numpy(), ids.numpy(), log_p.numpy())
    return ids.view(*batch, keep), values.view(*batch, keep), log_p.view(*batch, keep)


def _as_topk(k: int, ids: Tensor, values: Tensor, log_p: Tensor) -> TopK:
    """Separate the k drawn from the one after them, whose value is the threshold."""
    drawn = values[..., :k]
    valid = drawn > -math.inf
    kappa = values[..., k] if values.shape[-1] > k else torch.full_like(values[..., 0], -math.inf)
    log_prob = log_p[..., :k].masked_fill(~valid, -math.inf)
    # the gradient of log_prob; 0 for log_prob where invalid, as -inf - -inf is NaN
    perturbed = straight_through(drawn, log_prob.masked_fill(~valid, 0.0))
    return TopK(ids[..., :k].clamp(min=0), log_prob, perturbed, kappa, valid)


# torch's own fused softmax backward: differentiable again, and one pass instead of three
_softmax_backward = getattr(torch, "_softmax_backward_data")  # noqa: B009


class _SoftmaxKernel(torch.autograd.Function):
    """Eq. (1) by the CPU kernel.

    Never reached inside a transform, so it needs no vmap rule and no `setup_context`, whose argument
    binding would double the time of a small call.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, tau: Tau, generator: Generator) -> Tensor:
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        flat = (out if out.dim() == 2 else out.view(-1, out.shape[-1])).numpy()
        tau = _invertible(tau, scores.dtype)
        if isinstance(tau, Tensor):
            scale = tau.reciprocal().expand(*scores.shape[:-1], 1).reshape(-1).numpy()
            ctx.save_for_backward(out, tau)
        else:
            scale = np.array((1.0 / tau,), flat.dtype)
            ctx.save_for_backward(out)
        _run("gumbel_softmax", "gumbel_softmax", scores, generator, scale, flat)
        ctx.tau = None if isinstance(tau, Tensor) else tau
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        soft = ctx.saved_tensors[0]
        tau = ctx.tau
        short = soft.shape[-1] < _SHORT and soft.numel() >= _MANY
        if tau is not None and short and _has_numbers(grads[0]):
            return _short_backward(grads[0], soft, tau), None, None
        # dy_i / dx_j = y_i (1[i = j] - y_j), x = (theta + eps) / tau
        grad = _softmax_backward(grads[0], soft, -1, soft.dtype)
        if tau is None:
            return grad / ctx.saved_tensors[1], None, None
        if tau == 1.0:
            return grad, None, None
        return (grad / tau if torch.is_grad_enabled() else grad.div_(tau)), None, None


def _has_numbers(grad: Tensor) -> bool:
    """Whether the gradient can be read: no second derivative, no transform, no batch of gradients."""
    batched = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]
    return not (torch.is_grad_enabled() or is_transformed() or batched(grad))


def _short_backward(grad: Tensor, soft: Tensor, tau: float) -> Tensor:
    """dy_i / dx_j as above, by a kernel: torch's own takes eight times as long for rows of ten."""
    out = torch.empty_like(soft)
    n = soft.shape[-1]
    flat_grad, flat, flat_out = (t.reshape(-1, n).numpy() for t in (grad.contiguous(), soft, out))
    scale = np.array((1.0 / tau,), flat.dtype)
    run_rows(_short_rows().softmax_backward, len(flat), flat.size, flat_grad, flat, scale, flat_out)
    return out
