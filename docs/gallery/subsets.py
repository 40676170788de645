"""Three of eight, seven ways.

The same scores and seven published relaxations of "choose three of eight". Those in blue stay inside
the hull (entries from 0 to 1, sum 3). L2X sums to less than 3, successive softmax lets an entry exceed
1: orange marks what leaves the hull ([Subset](../structures/subset.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

scores = torch.tensor([2.5, 1.8, 1.5, 0.6, 0.3, -0.2, -1.0, -2.0])
k, tau = 3, 0.6
ways = {}
for kind in (ag.ExponentialFamily, ag.BinaryEntropy, ag.Entropy, ag.Euclidean, ag.SuccessiveSoftmax):
    ways[kind.__name__] = ag.Subset(k).relax(scores, tau, regularizer=kind())
pairs = torch.cat([scores, torch.full((7,), 0.8)])  # neighbours like each other
ways["ChainSubset"] = ag.ChainSubset(k).relax(pairs, tau)[:8]
ways["L2X (one draw)"] = ag.presets.l2x(scores, k, tau, generator=ag.CounterRNG(4))

figure, axes = plt.subplots(1, 7, figsize=(11, 2.5), layout="constrained", sharey=True)
for ax, (name, z) in zip(axes, ways.items(), strict=True):
    inside = z.max() <= 1.0001 and abs(float(z.sum()) - k) < 1e-3
    ax.bar(range(8), z, color=COLORS[0] if inside else COLORS[4])
    ax.axhline(1, color="#333333", linewidth=0.6, linestyle=":")
    ax.set_title(f"{name}\nsum {z.sum():.2f}", fontsize=8)
    ax.set(xticks=[])
plt.show()
