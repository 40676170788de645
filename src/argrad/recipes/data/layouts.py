r"""Graphs that are being laid out: nodes that repel each other and are pulled together along the edges of a tree.

One iteration of Fruchterman and Reingold (1991), for nodes $x_i$ and the distance $k = 1/\sqrt n$ that edges aim at:
$$ f_i = \sum_j (x_i - x_j)\Big(\frac{k^2}{d_{ij}^2} - a_{ij}\frac{d_{ij}}{k}\Big), \qquad
   x_i \leftarrow x_i + t\,\frac{f_i}{\lVert f_i\rVert} \tag{1} $$
with $t$ a tenth of the extent, and then all nodes centred and scaled to $[-1, 1]$, as `networkx.spring_layout` with one
iteration does it. The frames are what a person sees; the tree is latent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import argrad as ag

_CLOSEST = 0.01  # distances and forces below it count as it


@dataclass(frozen=True)
class Layouts:
    """Frames `(count, frames, n, 2)` of positions in [-1, 1], and the trees `(count, n, n)` that made them."""

    frames: Tensor
    trees: Tensor


def layouts(count: int, n: int, frames: int, g: torch.Generator) -> Layouts:
    """Trees of the largest random weights (not uniform over trees), from normal positions; frame 0 is the second."""
    weights = torch.rand(count, n, n, generator=g).triu(1)
    trees = ag.SpanningTree().argmax(weights + weights.mT)
    x = torch.randn(count, n, 2, generator=g)
    seen = []
    for i in range(frames + 1):
        x = spring_step(x, trees)
        if i:
            seen.append(x)
    return Layouts(torch.stack(seen, 1), trees)


def spring_step(x: Tensor, edges: Tensor) -> Tensor:
    """Positions `(..., n, 2)` after one iteration, Eq. (1)."""
    k = x.shape[-2] ** -0.5
    extent = (x.amax(-2) - x.amin(-2)).amax(-1)[..., None, None]
    delta = x[..., :, None, :] - x[..., None, :, :]
    distance = delta.norm(dim=-1).clamp(min=_CLOSEST)
    force = (delta * (k**2 / distance**2 - edges * distance / k)[..., None]).sum(-2)
    moved = x + 0.1 * extent * force / force.norm(dim=-1, keepdim=True).clamp(min=_CLOSEST)
    moved = moved - moved.mean(-2, keepdim=True)
    return moved / moved.abs().amax((-2, -1), keepdim=True)
