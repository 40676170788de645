r"""Tags along a line with probability $\propto \exp \sum_t \theta_{t, y_t, y_{t+1}}$ (a linear-chain CRF).

One pass backwards makes every step a Markov transition, then marginals, draws and the best tags are a walk
forwards. Sequential in L: the parallel scan over L costs a factor C more work and was slower on the CPU from
C = 5 on (24 times at C = 20, L = 100), with the same accuracy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad import random
from argrad._checks import can_read, check_event, check_floating, check_scores, fail, nothing_allowed
from argrad._numerics import logsumexp, widen
from argrad._types import Float, Generator, Shape
from argrad.solvers import _family as family

_ADVICE = "Allow some way from the first place to the last"


def chain_log_partition(scores: Float[Tensor, "*batch M C C"]) -> Float[Tensor, "*batch"]:
    r"""Log of the sum over all $C^L$ tag sequences.

    $$ A(\theta) = \log \sum_{y \in \{1..C\}^L} \exp \sum_{t=1}^{L-1} \theta_{t, y_t, y_{t+1}} \tag{1} $$
    Differentiable any number of times. O(L C²).

    Args:
        scores: $\theta$ for $M = L - 1$ neighbouring pairs; `[t, i, j]` is for tag i at place t and j at
            t + 1, `-inf` forbids it.

    Returns:
        $A$; `-inf`, with gradient 0, where no sequence is allowed.

    Examples:
        >>> import torch
        >>> round(chain_log_partition(torch.zeros(2, 3, 3)).exp().item(), 3)  # 3 places, 3 tags
        27.0

    References: [rabiner1989], [lafferty2001].
    """
    _check("chain_log_partition", scores)
    return family.log_partition(_CHAINS, scores)


def chain_marginals(scores: Float[Tensor, "*batch M C C"]) -> Float[Tensor, "*batch M C C"]:
    r"""Probabilities of neighbouring tags, $\mu = \nabla A(\theta)$ of Eq. (1) in `chain_log_partition`.

    Args:
        scores: $\theta$, as there.

    Returns:
        $\mu_{t,i,j} = P(y_t = i, y_{t+1} = j)$. Differentiable any number of times.

    Examples:
        >>> import torch
        >>> chain_marginals(torch.zeros(4, 2, 2))[0]
        tensor([[0.2500, 0.2500],
                [0.2500, 0.2500]])

    References: [rabiner1989].
    """
    _check("chain_marginals", scores)
    return family.marginals("chain_marginals", _ADVICE, _CHAINS, scores)


def chain_argmax(scores: Float[Tensor, "*batch M C C"]) -> Float[Tensor, "*batch M C C"]:
    r"""The best tags (Viterbi), as the 0/1 array $z_{t,i,j} = [y_t = i, y_{t+1} = j]$.

    Of several best sequences the first in the order of the alphabet. No gradient.

    Examples:
        >>> import torch
        >>> z = chain_argmax(torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[9.0, 0.0], [0.0, 0.0]]]))
        >>> z.nonzero().tolist()
        [[0, 0, 0], [1, 0, 0]]

    References: [viterbi1967].
    """
    _check("chain_argmax", scores)
    x = widen(scores.detach())
    if family.use_kernel(x):
        check_feasible("chain_argmax", x)
        return _pairs(_run_argmax(x), scores)
    tags, best = _argmax(x)
    return family.refuse_empty("chain_argmax", _ADVICE, best == -math.inf, _pairs(tags, scores), 3)


def chain_sample(
    scores: Float[Tensor, "*batch M C C"], sample_shape: Shape = (), *, generator: Generator = None
) -> Float[Tensor, "*sample_batch M C C"]:
    r"""Draw tag sequences with probability $e^{\langle \theta, z \rangle - A(\theta)}$, exactly.

    Args:
        scores: $\theta$.
        sample_shape: how many draws.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator; one uniform a place.

    Returns:
        Zeros and ones, shape `(*sample_shape, *batch, L - 1, C, C)`.

    Examples:
        >>> import torch
        >>> z = chain_sample(torch.zeros(5, 2, 2), (100,), generator=torch.Generator().manual_seed(0))
        >>> z.shape, bool((z.sum((-1, -2)) == 1).all())
        (torch.Size([100, 5, 2, 2]), True)

    References: [rabiner1989].
    """
    _check("chain_sample", scores)
    x = widen(scores.detach())
    kernel = family.use_kernel(x)
    shape = (*sample_shape, *x.shape[:-3], x.shape[-3] + 1)
    dtype = torch.float64 if kernel else x.dtype
    uniform = random.uniform(shape, dtype=dtype, device=x.device, generator=generator)
    if kernel:
        check_feasible("chain_sample", x)
        return _pairs(_run_sample(x, uniform), scores)
    log_z, first, steps = _transitions(x)
    z = _pairs(_sample(first, steps, uniform), scores)
    return family.refuse_empty("chain_sample", _ADVICE, log_z == -math.inf, z, 3)


def check_feasible(call: str, scores: Float[Tensor, "*batch M C C"]) -> None:
    """A sentence if a row allows no sequence, where values can be read."""
    if not can_read(scores) or scores.numel() == 0 or scores.detach().amin() > -math.inf:
        return
    empty = family.log_partition(_CHAINS, scores.detach()) == -math.inf
    if bool(empty.any()):
        raise nothing_allowed(call, empty, _ADVICE)


def _check(call: str, scores: Tensor) -> None:
    check_floating(call, "scores", scores)
    check_event(call, "scores", scores, 3)
    if scores.shape[-1] != scores.shape[-2]:
        advice = "The last two dimensions are the tags of neighbouring places."
        raise fail(
            call, "scores", "must have shape (..., L - 1, C, C)", f"{tuple(scores.shape)}", advice
        )
    check_scores(call, "scores", scores)


def _pairs(tags: Tensor, scores: Tensor) -> Tensor:
    """The 0/1 array of tags `(*batch, L)`."""
    size = scores.shape[-1]
    index = (tags[..., :-1] * size + tags[..., 1:])[..., None]
    z = torch.zeros(*index.shape[:-1], size * size, dtype=scores.dtype, device=scores.device)
    return z.scatter(-1, index, 1.0).unflatten(-1, (size, size))


# ---- plain torch ---------------------------------------------------------------------------------


def _transitions(scores: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """log Z, the law of tag 0, and P(tag at t + 1 | tag at t) for each t."""
    after, total = torch.zeros_like(scores[..., 0, 0, :]), 0.0
    steps = []
    for x in reversed(scores.unbind(-3)):
        weight, p = _softmax(x + after[..., None, :])
        steps.append(p)
        # relative to the best continuation, so that digits do not depend on the length
        peak = weight.detach().amax(-1, keepdim=True)
        peak = peak.masked_fill(peak == -math.inf, 0.0)
        after, total = weight - peak, total + peak[..., 0]
    weight, first = _softmax(after)
    return weight + total, first, steps[::-1]


def _softmax(x: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the sum of exponentials, and the softmax, 0 where everything is -inf.

    Not exp(x - log-sum): that sums to 1 only as far as the log-sum has digits, and steps multiply.
    """
    total = logsumexp(x, -1, keepdim=True)
    none = total == -math.inf
    return total[..., 0], torch.softmax(x.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)


def _log_partition(scores: Tensor) -> Tensor:
    return _transitions(scores)[0]


def _infer(scores: Tensor) -> tuple[Tensor, Tensor]:
    log_z, now, steps = _transitions(scores)
    mu = []
    for p in steps:
        mu.append(now[..., None] * p)
        now = mu[-1].sum(-2)
    return log_z, torch.stack(mu, -3)


def _argmax(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Best tags `(*batch, L)` and their score."""
    after, choices = torch.zeros_like(scores[..., 0, 0, :]), []
    for x in reversed(scores.unbind(-3)):
        total = x + after[..., None, :]
        choices.append(total.argmax(-1))
        after = total.amax(-1)
    tags = [after.argmax(-1)]
    for choice in reversed(choices):
        tags.append(choice.gather(-1, tags[-1][..., None])[..., 0])
    return torch.stack(tags, -1), after.amax(-1)


def _sample(first: Tensor, steps: list[Tensor], uniform: Tensor) -> Tensor:
    """Tags `(*sample, *batch, L)`."""
    columns = uniform.unbind(-1)
    tags = [family.pick(first, columns[0])]
    for p, u in zip(steps, columns[1:], strict=True):
        index = tags[-1][..., None, None].expand(*tags[-1].shape, 1, p.shape[-1])
        row = p.expand(*tags[-1].shape, *p.shape[-2:]).gather(-2, index)[..., 0, :]
        tags.append(family.pick(row, u))
    return torch.stack(tags, -1)


# ---- CPU kernels ---------------------------------------------------------------------------------


def _run_infer(scores: Tensor, with_marginals: bool) -> tuple[Tensor, Tensor]:
    from argrad._kernels import chain as kernels

    x = family.rows(scores, 3)
    log_z = torch.empty(len(x), dtype=torch.float64, device="cpu")
    mu = torch.empty(
        len(x), x.shape[1] if with_marginals else 0, *x.shape[2:], dtype=scores.dtype, device="cpu"
    )
    family.run(kernels.infer, x, log_z, mu)
    log_z = log_z.to(scores.dtype).reshape(scores.shape[:-3])
    return log_z, mu.reshape(scores.shape) if with_marginals else mu


def _run_hessian_product(scores: Tensor, v: Tensor) -> Tensor:
    from argrad._kernels import chain as kernels

    x, out = family.rows(scores, 3), torch.empty(scores.shape, dtype=scores.dtype, device="cpu")
    family.run(kernels.hessian_product, x, family.rows(v, 3), out.view(x.shape))
    return out


def _run_argmax(scores: Tensor) -> Tensor:
    from argrad._kernels import chain as kernels

    x = family.rows(scores, 3)
    tags = torch.zeros(len(x), x.shape[1] + 1, dtype=torch.int64, device="cpu")
    family.run(kernels.argmax, x, tags)
    return tags.reshape(*scores.shape[:-3], x.shape[1] + 1)


def _run_sample(scores: Tensor, uniform: Tensor) -> Tensor:
    from argrad._kernels import chain as kernels

    x, tags = family.rows(scores, 3), torch.zeros(uniform.shape, dtype=torch.int64, device="cpu")
    family.run(kernels.sample, x, family.draws(uniform, len(x)), family.draws(tags, len(x)))
    return tags


_CHAINS = family.Family(_log_partition, _infer, _run_infer, _run_hessian_product)
