r"""Ordered samples without replacement: their probability, and the Gumbels they may have come from."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad import random
from argrad._checks import check_log_probs
from argrad._numerics import log1mexp, logsumexp
from argrad._types import Float, Generator


def plackett_luce_log_prob(log_p: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    r"""Log-probability of drawing items in this order, without replacement.

    $$ \log P(i_1, \dots, i_k) = \sum_{j=1}^{k} \log \frac{p_{i_j}}{1 - \sum_{l<j} p_{i_l}} $$

    Args:
        log_p: log-probabilities $\log p_{i_j}$ of the items under the full distribution, in the order of
            drawing, shape `(*batch, k)`.

    Returns:
        Shape `(*batch,)`; differentiable.

    Examples:
        >>> import torch, argrad as ag
        >>> p = torch.tensor([0.5, 0.3])
        >>> ag.plackett_luce_log_prob(p.log()).exp()  # 0.5 * 0.3 / 0.5
        tensor(0.3000)

    References: [plackett1975], [luce1959].
    """
    check_log_probs("plackett_luce_log_prob", log_p, drawn=True)
    phi = log_p.double()
    # what is left is at least what is still to come, also where rounding says that nothing is
    coming = phi.flip(-1).logcumsumexp(-1).flip(-1)
    left = torch.maximum(log_remaining(phi)[..., :-1], coming)
    return (phi - left).sum(-1).to(log_p.dtype)


def hindsight_gumbels(
    log_p: Float[Tensor, "*batch k"], *, generator: Generator = None
) -> tuple[Float[Tensor, "*batch k"], Float[Tensor, "*batch"]]:
    r"""Draw the Gumbels $G_1 > \dots > G_k > \kappa$ that an ordered sample may have come from.

    The largest of all perturbed log-probabilities is Gumbel(0), independently of who has it; the
    next is the largest of what is left, given that it is below:
    $$ G_1 \sim \mathrm{Gumbel}(0), \quad
       G_{j+1} = -\log(e^{-G_j} + e^{-G'}), \quad
       G' \sim \mathrm{Gumbel}\Big(\log\big(1 - \textstyle\sum_{l \le j} p_{i_l}\big)\Big) $$
    So samples without replacement from anywhere (`UniqueSampler`, another library, a log file) get importance
    weights: they need only their probabilities, in the order of drawing.

    Args:
        log_p: log-probabilities of the items in the order of drawing, shape `(*batch, k)`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        `(perturbed, kappa)`, shapes `(*batch, k)` and `(*batch,)`; $\kappa$ is `-inf` when the items are
        all there are.

    Examples:
        >>> import torch, argrad as ag
        >>> perturbed, kappa = ag.hindsight_gumbels(torch.tensor([0.5, 0.3]).log())
        >>> bool(perturbed[0] > perturbed[1] > kappa)
        True

    References: [shi2020].
    """
    check_log_probs("hindsight_gumbels", log_p)
    phi = log_p.detach().double()
    location = log_remaining(phi)  # (*batch, k + 1)
    noise = random.gumbel(location.shape, dtype=phi.dtype, device=phi.device, generator=generator)
    # -log sum exp(-G') over the first j: each is the minimum, softly, of all before it
    perturbed = -torch.logcumsumexp(-(location + noise), -1)
    perturbed = perturbed.masked_fill(location == -math.inf, -math.inf)
    return perturbed[..., :-1].to(log_p.dtype), perturbed[..., -1].to(log_p.dtype)


def log_remaining(phi: Tensor) -> Tensor:
    r"""$\log(1 - \sum_{l<j} p_l)$ for $j = 1, \dots, k + 1$; `-inf` where nothing is left."""
    mass = torch.stack([logsumexp(phi[..., : j + 1]) for j in range(phi.shape[-1])], -1)
    left = log1mexp(mass.clamp(max=0.0))
    return torch.cat([torch.zeros_like(left[..., :1]), left], -1)
