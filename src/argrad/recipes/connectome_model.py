r"""Worms that share one wiring: the recordings, and how likely they are under a matching of names.

$$ Y_t = P W P^\top Y_{t-1} + \nu_t, \qquad \nu_t \sim N(0, I), \qquad
   -\log p(Y \mid P, W) = \tfrac12 \sum_t \| Y_t - B\, Y_{t-1} \|^2 + c, \quad B = P W P^\top $$

$P_{ij} = 1$ says that channel $i$ of a recording is neuron $j$. Time enters only through
$S_{00} = \sum_t Y_{t-1} Y_{t-1}^\top$, $S_{10} = \sum_t Y_t Y_{t-1}^\top$ and the power of $Y_t$, so that a step costs
the same however long the recording.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# ---- the world -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worms:
    """Recordings of several worms, and the truth about them.

    Attributes:
        adjacency: which weights may differ from 0, `(n, n)`, True at `[to, from]`.
        weights: the true $W$.
        names: the neuron of every channel, `(worms, n)`.
        known: whether it is given, `(worms, n)`.
        mask: which neuron a channel may be, `(worms, n, n)`.
        s00: $S_{00}$, `(worms, n, n)`.
        s10: $S_{10}$.
        power: $\\sum_t \\|Y_t\\|^2$, `(worms,)`.
        steps: of a recording.
    """

    adjacency: Tensor
    weights: Tensor
    names: Tensor
    known: Tensor
    mask: Tensor
    s00: Tensor
    s10: Tensor
    power: Tensor
    steps: int


def generated_wiring(n: int, inputs: float, generator: torch.Generator) -> Tensor:
    """A sparse directed graph on a line, most wires short, each neuron with about `inputs` of them."""
    place = torch.arange(n)
    distance = (place[:, None] - place).abs()
    chance = torch.exp(-distance / (n / 10)) + 0.1
    chance = chance.fill_diagonal_(0)
    chance = (inputs * chance / chance.sum(-1, keepdim=True)).clamp(max=1)
    return torch.rand(n, n, generator=generator) < chance


def draw_weights(adjacency: Tensor, radius: float, generator: torch.Generator) -> Tensor:
    """Normal weights on the wires, scaled to a spectral radius of at most `radius` < 1: activity stays bounded.

    Nor may the norm exceed twice that: a wiring almost without cycles would have weights without limit.
    """
    w = torch.randn(adjacency.shape, generator=generator, dtype=torch.float64) * adjacency
    size = max(torch.linalg.eigvals(w).abs().max(), torch.linalg.matrix_norm(w, 2) / 2)
    return w * (radius / size)


def record(
    adjacency: Tensor,
    weights: Tensor,
    *,
    worms: int,
    steps: int,
    known: float,
    reach: int,
    generator: torch.Generator,
) -> Worms:
    """Simulate worms, shuffle their channels, and forget most names.

    Args:
        adjacency: the wiring, neurons in the order of their places along the body.
        weights: $W$.
        worms: how many.
        steps: of each recording.
        known: share of the neurons whose names are given, others in each worm.
        reach: a channel's place is measured with an error of at most `reach` neurons; what is further is excluded.
        generator: of everything random.
    """
    n, g = len(weights), generator
    x = simulate(weights, worms, steps, g)  # (steps + 1, worms, n)
    names = torch.rand(worms, n, generator=g).argsort(-1)
    y = x.gather(-1, names.expand(len(x), -1, -1))
    is_known = torch.rand(worms, n, generator=g).argsort(-1) < round(known * n)
    before, after = y[:-1].permute(1, 2, 0), y[1:].permute(1, 2, 0)  # (worms, n, steps)
    return Worms(
        adjacency,
        weights,
        names,
        is_known,
        allowed(names, is_known, reach, g),
        before @ before.mT,
        after @ before.mT,
        after.square().sum((-2, -1)),
        steps,
    )


def simulate(weights: Tensor, worms: int, steps: int, generator: torch.Generator) -> Tensor:
    """Activity in the order of the neurons, `(steps + 1, worms, n)`, after a hundred steps to settle."""
    n = len(weights)
    noise = torch.randn(steps + 101, worms, n, generator=generator, dtype=torch.float64)
    x = [noise[0]]
    for nu in noise[1:]:
        x.append(x[-1] @ weights.mT + nu)
    return torch.stack(x[100:])


def allowed(names: Tensor, known: Tensor, reach: int, generator: torch.Generator) -> Tensor:
    """Names that a channel may have, `(worms, n, n)`: its own if known; else those near its measured place."""
    n = names.shape[-1]
    error = torch.randint(-reach, reach + 1, names.shape, generator=generator)
    near = ((names + error)[..., None] - torch.arange(n)).abs() <= reach
    own = names[..., None] == torch.arange(n)
    taken = (own & known[..., None]).any(-2, keepdim=True)  # names that are given to someone
    return torch.where(known[..., None], own, near & ~taken)


# ---- likelihood ----------------------------------------------------------------------------------------


def misfit(p: Tensor, weights: Tensor, worms: Worms) -> Tensor:
    r"""$\tfrac12 \sum_t \|Y_t - P W P^\top Y_{t-1}\|^2$ for matchings `(*samples, worms, n, n)`, soft or hard."""
    b = p @ weights @ p.mT
    s00, s10 = worms.s00.to(b.dtype), worms.s10.to(b.dtype)
    quadratic = ((b @ s00) * b).sum((-2, -1))
    return 0.5 * (worms.power.to(b.dtype) - 2 * (b * s10).sum((-2, -1)) + quadratic)


def in_order(s: Tensor, channels: Tensor) -> Tensor:
    """$P^T S P$ for hard matchings, `channels[m, j]` being the channel of neuron j: `(worms, n, n)`."""
    m = torch.arange(len(s))[:, None, None]
    return s[m, channels[:, :, None], channels[:, None]]


def posterior_of_weights(channels: Tensor, worms: Worms, ridge: float) -> tuple[Tensor, Tensor]:
    r"""Mean and Cholesky factor of the precision of $W$ given all names; rows are independent normals.

    $$ W_{i A_i} \mid P, Y \sim N\big(\Lambda_i^{-1} s_i,\ \Lambda_i^{-1}\big), \quad
       \Lambda_i = (S_{00})_{A_i A_i} + \lambda I, \quad s_i = (S_{10})_{i A_i} $$
    Weights off the wiring get precision 1 and mean 0, which keeps the rows of one size.

    Returns:
        `(n, n)` and `(n, n, n)`.
    """
    s00, s10 = (in_order(s, channels).sum(0) for s in (worms.s00, worms.s10))
    wires = worms.adjacency.double()
    precision = wires[:, :, None] * wires[:, None] * s00  # (neuron, from, from)
    precision = precision + torch.diag_embed(ridge * wires + (1 - wires))
    factor = torch.linalg.cholesky(precision)
    return torch.cholesky_solve((s10 * wires)[..., None], factor)[..., 0], factor


# ---- how good ------------------------------------------------------------------------------------------


def measures(p: Tensor, weights: Tensor, worms: Worms) -> dict[str, float]:
    """Shares of neurons that got their name, and the error of W relative to its size."""
    right = p.argmax(-1) == worms.names
    error = (weights.double() - worms.weights).norm() / worms.weights.norm()
    return {
        "identified": right[~worms.known].double().mean().item(),
        "identified with the known": right.double().mean().item(),
        "error of W": error.item(),
    }
