r"""Sets of $k$ of $n$ items with probability $\propto e^{\langle \theta, z \rangle}$ (conditional Poisson sampling).

By divide and conquer: the distribution of the number of items chosen, for each node of a balanced tree
over the items, from convolutions of its children's; then back from the root for marginals and draws.
`_subset_torch.py` says why no logarithm is needed on the way and what makes it accurate.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad import random
from argrad._checks import check_event, check_floating, check_scores, check_size
from argrad._numerics import widen
from argrad._types import Float, Generator, Int, Shape
from argrad.solvers import _family as family
from argrad.solvers import _subset_torch as plain

_ADVICE = "Allow at least k items a row, or lower k"


def subset_log_partition(
    scores: Float[Tensor, "*batch n"], k: int | Int[Tensor, "*rows"], *, at_most: bool = False
) -> Float[Tensor, "*batch"]:
    r"""Log of the $k$-th elementary symmetric polynomial of $e^{\theta}$.

    $$ A(\theta) = \log \sum_{z \in \{0,1\}^n,\; \sum_i z_i = k} e^{\langle \theta, z \rangle} \tag{1} $$
    Differentiable any number of times. O(n k) work, depth O(log n).

    Args:
        scores: $\theta$, `-inf` for items that must not be chosen.
        k: size of the sets; a tensor has one for each row.
        at_most: sum over sets of size up to k.

    Returns:
        $A$; `-inf`, with gradient 0, where fewer than k items are allowed.

    Examples:
        >>> import torch
        >>> round(subset_log_partition(torch.zeros(5), 2).exp().item(), 4)  # 5 over 2
        10.0

    References: [chen1994], [ahmed2023].
    """
    k = _check("subset_log_partition", scores, k, at_most)
    return family.log_partition(_SUBSETS, scores, k, at_most)


def subset_marginals(
    scores: Float[Tensor, "*batch n"], k: int | Int[Tensor, "*rows"], *, at_most: bool = False
) -> Float[Tensor, "*batch n"]:
    r"""Inclusion probabilities $\mu = \nabla A(\theta) = E z$ of Eq. (1) in `subset_log_partition`.

    Differentiable any number of times. float32 results are right to about 1e-7 on the CPU (computed in
    float64) and 1e-6 elsewhere, for scores of any scale.

    Args:
        scores: $\theta$, `-inf` for items that must not be chosen.
        k: size of the sets; a tensor has one for each row.
        at_most: sets of size up to k.

    Returns:
        $\mu$, which sums to k (to less with `at_most`).

    Examples:
        >>> import torch
        >>> subset_marginals(torch.tensor([0.0, 0.0, -torch.inf, 30.0]), 2)
        tensor([0.5000, 0.5000, 0.0000, 1.0000])

    References: [chen1994], [paulus2020].
    """
    k = _check("subset_marginals", scores, k, at_most)
    return family.marginals("subset_marginals", _ADVICE, _SUBSETS, scores, k, at_most)


def subset_sample(
    scores: Float[Tensor, "*batch n"],
    k: int | Int[Tensor, "*rows"],
    sample_shape: Shape = (),
    *,
    at_most: bool = False,
    generator: Generator = None,
) -> Float[Tensor, "*sample_batch n"]:
    r"""Draw sets with probability $e^{\langle \theta, z \rangle - A(\theta)}$, exactly.

    Each node of the tree splits its count between its children by their exact conditional law. One
    uniform an item; given the uniforms, all devices draw the same sets (up to rounding).

    Args:
        scores: $\theta$, `-inf` for items that must not be chosen.
        k: size of the sets; a tensor has one for each row.
        sample_shape: how many draws.
        at_most: sets of size up to k.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        Zeros and ones, shape `(*sample_shape, *batch, n)`.

    Examples:
        >>> import torch
        >>> z = subset_sample(torch.zeros(6), 2, (1000,), generator=torch.Generator().manual_seed(0))
        >>> bool((z.sum(-1) == 2).all()), bool((z.mean(0) - 1 / 3).abs().max() < 0.05)
        (True, True)

    References: [chen1997].
    """
    k = _check("subset_sample", scores, k, at_most)
    x = widen(scores.detach())
    shape = (*sample_shape, *x.shape)
    kernel = family.use_kernel(x)
    dtype = torch.float64 if kernel else x.dtype
    uniform = random.uniform(shape, dtype=dtype, device=x.device, generator=generator)
    empty = (x > -math.inf).sum(-1) < (0 if at_most else k)
    z = (_run_sample if kernel else plain.sample)(x, k, at_most, uniform)
    return family.refuse_empty("subset_sample", _ADVICE, empty, z, 1).to(scores.dtype)


def _check(call: str, scores: Tensor, k: int | Tensor, at_most: bool) -> int | Tensor:
    check_floating(call, "scores", scores)
    check_event(call, "scores", scores, 1)
    check_scores(call, "scores", scores)
    return family.over_batch(check_size(call, k, scores, at_most), scores)


# ---- CPU kernels ---------------------------------------------------------------------------------


def _run_infer(
    scores: Tensor, with_marginals: bool, k: int | Tensor, at_most: bool
) -> tuple[Tensor, Tensor]:
    from argrad._kernels import subset as kernels

    x = family.rows(scores, 1, torch.float64)
    log_z = torch.empty(len(x), dtype=torch.float64, device="cpu")
    mu = torch.empty(len(x), x.shape[1] if with_marginals else 0, dtype=torch.float64, device="cpu")
    family.run(kernels.infer, x, family.sizes(k, len(x)), at_most, log_z, mu)
    log_z = log_z.to(scores.dtype).reshape(scores.shape[:-1])
    return log_z, mu.to(scores.dtype).reshape(scores.shape) if with_marginals else mu


def _run_hessian_product(scores: Tensor, v: Tensor, k: int | Tensor, at_most: bool) -> Tensor:
    from argrad._kernels import subset as kernels

    x, out = (
        family.rows(scores, 1, torch.float64),
        torch.empty(scores.shape, dtype=torch.float64, device="cpu"),
    )
    family.run(
        kernels.hessian_product,
        x,
        family.sizes(k, len(x)),
        at_most,
        family.rows(v, 1, torch.float64),
        out.reshape(x.shape),
    )
    return out.to(scores.dtype)


def _run_sample(scores: Tensor, k: int | Tensor, at_most: bool, uniform: Tensor) -> Tensor:
    from argrad._kernels import subset as kernels

    x, out = family.rows(scores, 1, torch.float64), torch.empty_like(uniform)
    uniform, sets = family.draws(uniform, len(x)), family.draws(out, len(x))
    family.run(kernels.sample, x, family.sizes(k, len(x)), at_most, uniform, sets)
    return out


_SUBSETS = family.Family(plain.log_partition, plain.infer, _run_infer, _run_hessian_product)
