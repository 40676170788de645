r"""Traces: the steps an algorithm took on perturbed scores, and their log-probability.

The probability of a perturbed arg max is the volume of a cone, but the *steps* of a greedy algorithm
are a chain of Gumbel-max choices, each a softmax over what could be taken next (recursive Gumbel-max
[struminsky2021]):
$$ \log p(\text{trace}) = \sum_t \theta_{e_t} - \log \sum_{e \text{ open at } t} e^{\theta_e} \tag{1} $$
$\mathbb{E}[f(z)\, \nabla \log p(\text{trace})]$ is the exact gradient. Where no such algorithm is known, the
noise itself is the trace: its density has a score as well, with more variance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from argrad._checks import no_tree_allowed
from argrad._errors import UnsupportedError
from argrad._kernels.threads import run_rows
from argrad._numerics import LOG_ZERO, logsumexp
from argrad.structures.arborescence import Arborescence


class Trace(NamedTuple):
    """A draw and the log-probability of how it came about.

    Attributes:
        hard: the vertex, shape `sample_shape + batch + event`.
        log_prob: of the trace, with gradient for the scores, shape `sample_shape + batch`.
        kind: `"vertex"`, `"top-k"`, `"kruskal"`, `"edmonds"` or `"noise"`.

    Examples:
        >>> import torch, argrad as ag
        >>> trace = ag.Perturbed(ag.Subset(2), torch.zeros(4, requires_grad=True)).trace((3,))
        >>> trace.kind, trace.log_prob.shape
        ('top-k', torch.Size([3]))
    """

    hard: Tensor
    log_prob: Tensor
    kind: str


def topk_log_prob(scores: Tensor, perturbed: Tensor, k: int | Tensor) -> Tensor:
    """Eq. (1) for drawing the k largest `perturbed` one after the other (Plackett-Luce).

    Args:
        scores: theta, shape `(*batch, n)`, `-inf` where forbidden; with gradient.
        perturbed: scores plus Gumbel noise, the same shape.
        k: how many, or a tensor `(*batch,)`.
    """
    order = perturbed.argsort(-1, descending=True)
    theta = scores.clamp(min=LOG_ZERO).gather(-1, order)
    left = theta.flip(-1).logcumsumexp(-1).flip(-1)  # log-sum-exp of what is not yet drawn
    rank = torch.arange(theta.shape[-1], device=theta.device)
    drawn = rank < (k[..., None] if isinstance(k, Tensor) else k)
    return torch.where(drawn, theta - left, 0.0).sum(-1)


def kruskal_log_prob(scores: Tensor, perturbed: Tensor) -> Tensor:
    """Eq. (1) for Kruskal's algorithm: take the best edge that joins two components, n - 1 times.

    Args:
        scores: edge scores theta, symmetric, shape `(*batch, n, n)`; with gradient.
        perturbed: scores plus Gumbel noise, symmetric.
    """
    n = scores.shape[-1]
    upper = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
    theta = scores.clamp(min=LOG_ZERO)
    component = torch.arange(n, device=scores.device).expand(*scores.shape[:-2], n)
    total = scores.new_zeros(scores.shape[:-2])
    for _ in range(n - 1):
        open_ = (component[..., :, None] != component[..., None, :]) & upper
        edge = perturbed.masked_fill(~open_, -math.inf).flatten(-2).argmax(-1, keepdim=True)
        weights = theta.masked_fill(~open_, -math.inf).flatten(-2)
        total = total + theta.flatten(-2).gather(-1, edge).squeeze(-1) - logsumexp(weights)
        kept, joined = (component.gather(-1, end) for end in (edge // n, edge % n))
        component = torch.where(component == joined, kept, component)
    return total


def edmonds_trace(scores: Tensor, perturbed: Tensor, structure: Arborescence) -> tuple[Tensor, Tensor]:
    r"""Eq. (1) for Chu-Liu and Edmonds' algorithm on exponential arc costs $-w$, and the tree it found.

    Each (super)node that the algorithm forms takes its cheapest arc from outside: a race of
    exponentials, because what is left of the losers' costs is exponential again.

    Args:
        scores: theta, the log-rates of the arcs `[head, child]`, shape `(*batch, n, n)`; with gradient.
        perturbed: $w = -E e^{-\theta}$, the same shape.
        structure: with a fixed root.

    Returns:
        The tree, and the log-probability of the choices, shape `(*batch,)`.
    """
    from argrad._kernels.edmonds_trace import trace

    root = structure.root
    if root is None or structure.single_root:
        raise UnsupportedError(
            f"`Perturbed.trace` of {structure!r} needs a fixed root with any children."
        )
    n, batch = scores.shape[-1], scores.shape[:-2]
    cost = (-perturbed.detach()).double().cpu().reshape(-1, n, n).clone()
    cost[:, range(n), range(n)] = math.inf
    sets = torch.zeros(len(cost), 2 * n, n, dtype=torch.bool, device="cpu")
    arcs = torch.zeros(len(cost), 2 * n, 2, dtype=torch.int64, device="cpu")
    trees = torch.zeros(len(cost), n, n, dtype=torch.float64, device="cpu")
    arrays = [t.numpy() for t in (sets, arcs, trees)]
    if len(cost) and run_rows(trace, len(cost), cost.numel(), cost.numpy(), root, *arrays):
        raise no_tree_allowed("Perturbed.trace", (trees.sum((-2, -1)) < n - 1).reshape(batch))
    tree, sets, arcs = (t.to(scores.device) for t in (trees.to(scores.dtype), sets, arcs))
    # arcs that compete in an event: from outside the group into it
    open_ = ~sets[..., :, None] & sets[..., None, :]  # (b, events, head, child)
    theta = scores.reshape(-1, 1, n, n).clamp(min=LOG_ZERO)
    total = logsumexp(theta.masked_fill(~open_, -math.inf).flatten(-2))
    taken = theta.flatten(-2).expand(-1, 2 * n, -1).gather(-1, (arcs[..., :1] * n + arcs[..., 1:]))
    log_prob = torch.where(sets.any(-1), taken.squeeze(-1) - total, 0.0).sum(-1)
    return tree.reshape(*batch, n, n), log_prob.reshape(batch)
