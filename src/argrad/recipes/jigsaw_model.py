r"""Pieces of pictures: cutting, the network that scores their places, and how good a solution is.

A permutation matrix has `P[place, piece] = 1`, so that `P @ pieces` is the solved puzzle.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# ---- cutting -------------------------------------------------------------------------------------------


def cut(images: Tensor, parts: int) -> Tensor:
    """Images `(batch, side, side)` in `parts` x `parts` pieces: `(batch, parts**2, size, size)`.

    A side that is not a multiple of `parts` loses its margins, the last row and column first.
    """
    size = images.shape[-1] // parts
    first = (images.shape[-1] - parts * size) // 2
    kept = images[..., first : first + parts * size, first : first + parts * size]
    tiles = kept.unflatten(-1, (parts, size)).unflatten(-3, (parts, size))  # (batch, row, y, column, x)
    return tiles.transpose(-3, -2).flatten(-4, -3)


def join(pieces: Tensor) -> Tensor:
    """The inverse: `(*batch, parts**2, size, size)` to `(*batch, side, side)`."""
    parts = round(pieces.shape[-3] ** 0.5)
    rows = pieces.unflatten(-3, (parts, parts)).transpose(-3, -2)
    return rows.flatten(-4, -3).flatten(-2, -1)


def arrange(p: Tensor, pieces: Tensor) -> Tensor:
    """P applied to pieces `(*batch, n, size, size)`; a soft P mixes them."""
    return (p @ pieces.flatten(-2)).unflatten(-1, pieces.shape[-2:])


def scramble(pieces: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The pieces of each picture in a random order, and which one is where: `(batch, n)`."""
    order = torch.rand(pieces.shape[:2], generator=generator).argsort(-1)
    return pieces[torch.arange(len(pieces))[:, None], order], order


# ---- the network ---------------------------------------------------------------------------------------


class Solver(nn.Module):
    """Scores for every place of every piece; the pieces may look at each other, in no order.

    Args:
        parts: pieces along an edge.
        size: pixels along the edge of a piece.
        channels: of the convolution.
        width: of a piece's description.
        layers: rounds in which the pieces attend to each other; 0 is the network of the paper.
    """

    def __init__(self, parts: int, size: int, channels: int, width: int, layers: int) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, channels, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(channels * ((size + 1) // 2) ** 2, width),
            nn.ReLU(),
        )
        self.meet = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.place = nn.Linear(width, parts**2)

    def forward(self, pieces: Tensor) -> Tensor:
        """Pieces `(batch, n, size, size)` to scores `(batch, place, piece)`."""
        seen = self.look(pieces.flatten(0, 1)[:, None]).unflatten(0, pieces.shape[:2])
        for layer in self.meet:
            seen = layer(seen)
        return self.place(seen).mT


# ---- measures ------------------------------------------------------------------------------------------


def measures(solved: Tensor, pieces: Tensor, placed: Tensor) -> dict[str, Tensor]:
    """How good solutions are, `(batch,)` each; identical pieces may change places.

    Args:
        solved: the pieces as they were put, `(batch, n, size, size)`.
        pieces: as they belong.
        placed: the number of the piece at each place, `(batch, n)`.
    """
    wrong = (solved != pieces).flatten(-2).any(-1)  # by pixels
    gap = (solved - pieces).flatten(1)
    return {
        "any wrong": wrong.any(-1).float(),
        "wrong": wrong.float().mean(-1),
        "l1": gap.abs().mean(-1),
        "l2": gap.square().mean(-1),
        "Kendall tau": kendall_tau(relabelled(placed, pieces)),
    }


def relabelled(placed: Tensor, pieces: Tensor) -> Tensor:
    """Numbers of the pieces at each place, where identical pieces are numbered anew in rising order.

    This is the numbering with the fewest inversions: exchanging two equal pieces that are out of order removes at
    least one.
    """
    flat = pieces.flatten(-2)
    same = (flat[:, :, None] == flat[:, None]).all(-1)  # (batch, n, n)
    group = same.int().argmax(-1)  # the first piece that looks like this one
    places = group.gather(-1, placed).argsort(dim=-1, stable=True)  # by group, then by place
    return torch.empty_like(placed).scatter_(-1, places, group.argsort(dim=-1, stable=True))


def kendall_tau(order: Tensor) -> Tensor:
    r"""$1 - 4\,\mathrm{inversions} / (n (n - 1))$ of permutations `(*batch, n)` against the rising order."""
    n = order.shape[-1]
    inverted = (order[..., :, None] > order[..., None, :]).triu(1).sum((-2, -1))
    return 1 - 4 * inverted / (n * (n - 1))
