r"""k of n items on a line, with scores for neighbours chosen together ("correlated top-k").

The event is a vector of length $2n - 1$: unary parts $z_i$ with $\sum_i z_i = k$, then pairwise parts
$z_{n+i} = z_i z_{i+1}$. A dynamic program over (item, number chosen so far, previous bit), run item by item
on the CPU and as a tree of depth $O(\log n)$ elsewhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad import random
from argrad._checks import (
    can_read,
    check_event,
    check_floating,
    check_scores,
    check_size,
    fail,
    nothing_allowed,
)
from argrad._numerics import widen
from argrad._types import Float, Generator, Int, Shape
from argrad.solvers import _chain_subset_torch as plain
from argrad.solvers import _family as family

_ADVICE = "Allow some choice of k items, or lower k"


def chain_subset_log_partition(
    scores: Float[Tensor, "*batch m"], k: int | Int[Tensor, "*rows"]
) -> Float[Tensor, "*batch"]:
    r"""Log of the sum over all ways to choose k of n items.

    $$ A(\theta) = \log \sum_{z \in \{0,1\}^n, \sum z_i = k}
       \exp\Big( \sum_{i=1}^n \theta_i z_i + \sum_{i=1}^{n-1} \theta_{n+i} z_i z_{i+1} \Big) \tag{1} $$
    Differentiable any number of times. O(n k).

    Args:
        scores: $\theta$, n unary scores, then n - 1 pairwise ones; `-inf` forbids an item or, as a
            pairwise score, choosing both neighbours.
        k: how many; a tensor has one for each row.

    Returns:
        $A$; `-inf`, with gradient 0, where no choice is allowed.

    Examples:
        >>> import torch
        >>> never_neighbours = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf, -torch.inf, -torch.inf])
        >>> count = chain_subset_log_partition(never_neighbours, 2).exp()  # 1 and 3, 1 and 4, 2 and 4
        >>> round(count.item(), 4)
        3.0

    References: [paulus2020].
    """
    k = _check("chain_subset_log_partition", scores, k)
    return family.log_partition(_CHAIN_SUBSETS, scores, k)


def chain_subset_marginals(
    scores: Float[Tensor, "*batch m"], k: int | Int[Tensor, "*rows"]
) -> Float[Tensor, "*batch m"]:
    r"""Probabilities of items and of neighbours together, $\mu = \nabla A(\theta) = E z$.

    Args:
        scores: $\theta$, as in `chain_subset_log_partition`.
        k: how many; a tensor has one for each row.

    Returns:
        $\mu$; its first n entries sum to k. Differentiable any number of times.

    Examples:
        >>> import torch
        >>> chain_subset_marginals(torch.zeros(5), 2)
        tensor([0.6667, 0.6667, 0.6667, 0.3333, 0.3333])

    References: [paulus2020].
    """
    k = _check("chain_subset_marginals", scores, k)
    return family.marginals("chain_subset_marginals", _ADVICE, _CHAIN_SUBSETS, scores, k)


def chain_subset_argmax(
    scores: Float[Tensor, "*batch m"], k: int | Int[Tensor, "*rows"]
) -> Float[Tensor, "*batch m"]:
    """The best k items with their pairs, as zeros and ones. No gradient; the earliest items on ties.

    Examples:
        >>> import torch
        >>> chain_subset_argmax(torch.tensor([1.0, 0.0, 0.9, 2.0, 0.0]), 2)
        tensor([1., 1., 0., 1., 0.])

    References: [paulus2020].
    """
    k = _check("chain_subset_argmax", scores, k)
    x = widen(scores.detach())
    if family.use_kernel(x):
        check_feasible("chain_subset_argmax", x, k)
        return _event(_run_argmax(x, k), scores)
    bits, best = plain.argmax(x, k)
    z = _event(bits, scores)
    return family.refuse_empty("chain_subset_argmax", _ADVICE, best == -math.inf, z, 1)


def chain_subset_sample(
    scores: Float[Tensor, "*batch m"],
    k: int | Int[Tensor, "*rows"],
    sample_shape: Shape = (),
    *,
    generator: Generator = None,
) -> Float[Tensor, "*sample_batch m"]:
    r"""Draw choices with probability $e^{\langle \theta, z \rangle - A(\theta)}$, exactly.

    The law is the same everywhere; which uniform decides what is not the same on the CPU and elsewhere.

    Args:
        scores: $\theta$, as in `chain_subset_log_partition`.
        k: how many; a tensor has one for each row.
        sample_shape: how many draws.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator; one uniform an item.

    Returns:
        Zeros and ones, shape `(*sample_shape, *batch, 2 n - 1)`.

    Examples:
        >>> import torch
        >>> z = chain_subset_sample(torch.zeros(7), 2, (50,), generator=torch.Generator().manual_seed(0))
        >>> bool((z[:, :4].sum(-1) == 2).all()), bool((z[:, 4:] == z[:, :3] * z[:, 1:4]).all())
        (True, True)

    References: [paulus2020].
    """
    k = _check("chain_subset_sample", scores, k)
    x = widen(scores.detach())
    kernel = family.use_kernel(x)
    shape = (*sample_shape, *x.shape[:-1], (x.shape[-1] + 1) // 2)
    dtype = torch.float64 if kernel else x.dtype
    uniform = random.uniform(shape, dtype=dtype, device=x.device, generator=generator)
    if kernel:
        check_feasible("chain_subset_sample", x, k)
        return _event(_run_sample(x, k, uniform), scores)
    bits, log_z = plain.sample(x, k, uniform)
    z = _event(bits, scores)
    return family.refuse_empty("chain_subset_sample", _ADVICE, log_z == -math.inf, z, 1)


def check_feasible(call: str, scores: Float[Tensor, "*batch m"], k: int | Int[Tensor, "*rows"]) -> None:
    """A sentence if a row allows no choice of k items, where values can be read."""
    k = _check(call, scores, k)
    if not can_read(scores) or scores.numel() == 0:
        return
    n = (scores.shape[-1] + 1) // 2
    if isinstance(k, int) and k <= n and scores.detach().amin() > -math.inf:
        return
    empty = family.log_partition(_CHAIN_SUBSETS, scores.detach(), k) == -math.inf
    if bool(empty.any()):
        raise nothing_allowed(call, empty, _ADVICE)


def _check(call: str, scores: Tensor, k: int | Tensor) -> int | Tensor:
    check_floating(call, "scores", scores)
    check_event(call, "scores", scores, 1)
    if scores.shape[-1] % 2 == 0:
        advice = "n unary scores, then n - 1 pairwise ones: `torch.cat([unary, pairwise], -1)`."
        raise fail(call, "scores", "must have an odd length 2n - 1", f"{scores.shape[-1]}", advice)
    check_scores(call, "scores", scores)
    unary = scores[..., : (scores.shape[-1] + 1) // 2]
    return family.over_batch(check_size(call, k, unary), unary)


def _event(bits: Tensor, scores: Tensor) -> Tensor:
    """Bits and their products, in the dtype of the scores."""
    z = bits[..., : (scores.shape[-1] + 1) // 2].to(scores.dtype)
    return torch.cat([z, z[..., 1:] * z[..., :-1]], -1)


# ---- CPU kernels ---------------------------------------------------------------------------------


def _run_infer(scores: Tensor, with_marginals: bool, k: int | Tensor) -> tuple[Tensor, Tensor]:
    from argrad._kernels import chain_subset as kernels

    x = family.rows(scores, 1, torch.float64)
    log_z = torch.empty(len(x), dtype=torch.float64, device="cpu")
    mu = torch.empty(len(x), x.shape[1] if with_marginals else 0, dtype=torch.float64, device="cpu")
    family.run(kernels.infer, x, family.sizes(k, len(x)), log_z, mu)
    log_z = log_z.to(scores.dtype).reshape(scores.shape[:-1])
    return log_z, mu.to(scores.dtype).reshape(scores.shape) if with_marginals else mu


def _run_hessian_product(scores: Tensor, v: Tensor, k: int | Tensor) -> Tensor:
    from argrad._kernels import chain_subset as kernels

    x, out = (
        family.rows(scores, 1, torch.float64),
        torch.empty(scores.shape, dtype=torch.float64, device="cpu"),
    )
    direction = family.rows(v, 1, torch.float64)
    family.run(kernels.hessian_product, x, family.sizes(k, len(x)), direction, out.view(x.shape))
    return out.to(scores.dtype)


def _run_argmax(scores: Tensor, k: int | Tensor) -> Tensor:
    from argrad._kernels import chain_subset as kernels

    x = family.rows(scores, 1, torch.float64)
    bits = torch.zeros(len(x), (x.shape[1] + 1) // 2, device="cpu")
    family.run(kernels.argmax, x, family.sizes(k, len(x)), bits)
    return bits.reshape(*scores.shape[:-1], bits.shape[-1])


def _run_sample(scores: Tensor, k: int | Tensor, uniform: Tensor) -> Tensor:
    from argrad._kernels import chain_subset as kernels

    x, bits = family.rows(scores, 1, torch.float64), torch.zeros(uniform.shape, device="cpu")
    draws, out = family.draws(uniform, len(x)), family.draws(bits, len(x))
    family.run(kernels.sample, x, family.sizes(k, len(x)), draws, out)
    return bits


_CHAIN_SUBSETS = family.Family(plain.log_partition, plain.infer, _run_infer, _run_hessian_product)
