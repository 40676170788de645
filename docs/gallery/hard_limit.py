"""Every structure hardens.

The distance from the relaxed point to the arg max, for one draw of scores, as the temperature falls by
five powers of ten: one-hots, subsets, permutations, trees and chains in float32, without a NaN on the
way.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

cases = {
    "OneHot": (ag.OneHot(), (8,)),
    "Subset(3)": (ag.Subset(3), (8,)),
    "Permutation": (ag.Permutation(), (5, 5)),
    "SpanningTree": (ag.SpanningTree(), (6, 6)),
    "Arborescence": (ag.Arborescence(root=0), (6, 6)),
    "Chain": (ag.Chain(), (6, 3, 3)),
}
taus = torch.logspace(1, -4, 16)

figure, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for colour, (name, (structure, shape)) in zip(COLORS, cases.items(), strict=False):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if name == "SpanningTree":
        scores = scores + scores.mT
    hard = structure.argmax(scores)
    gap = [(structure.relax(scores, float(tau)) - hard).abs().max() for tau in taus]
    assert all(bool(g.isfinite()) for g in gap)
    ax.semilogx(taus, gap, "o-", color=colour, label=name, markersize=3)
ax.invert_xaxis()
ax.set(xlabel="temperature", ylabel="largest distance from the arg max")
ax.legend()
plt.show()
