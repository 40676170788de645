"""A solver of your own.

The cheapest way through a grid, by dynamic programming in ten lines. `Oracle` makes it a structure:
perturb the costs, solve again, and the mean of a few hundred ways says which cells matter and has a
gradient for every cost ([Oracle](../structures/oracle.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag


def cheapest_way(scores):  # (*batch, 10, 14) -> a 0/1 map of the best way from left to right
    total, moves = scores[..., 0], []
    for column in range(1, scores.shape[-1]):
        padded = torch.nn.functional.pad(total, (1, 1), value=-1e9)
        best, move = padded.unfold(-1, 3, 1).max(-1)  # from above, straight, from below
        moves.append(move - 1)
        total = best + scores[..., column]
    row, way = total.argmax(-1, keepdim=True), torch.zeros_like(scores)
    for column in reversed(range(scores.shape[-1])):
        way[..., column].scatter_(-1, row, 1.0)
        if column:
            row = row + moves[column - 1].gather(-1, row)
    return way


g = torch.Generator().manual_seed(3)
hills = torch.nn.functional.interpolate(torch.randn(1, 1, 4, 5, generator=g), (10, 14), mode="bicubic")[
    0, 0
]
q = ag.Perturbed(ag.Oracle(cheapest_way, event_dims=2), -1.5 * hills, noise=ag.Normal())
way = cheapest_way(-1.5 * hills)  # (10, 14)
mean = q.sample((400,), generator=g).mean(0)  # (10, 14)

figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.5), layout="constrained")
shown = {
    "costs": (hills, "Greys"),
    "cheapest way": (way, "Blues"),
    "mean of 400 perturbed": (mean, "Blues"),
}
for ax, (title, (picture, colours)) in zip(axes, shown.items(), strict=True):
    ax.imshow(picture, cmap=colours)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
