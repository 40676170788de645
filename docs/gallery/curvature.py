"""When straight-through is right.

The cost is $(1 - c)\\,\\langle w, z\\rangle + c\\,\\cos\\langle v, z\\rangle$: linear at c = 0, bent at
c = 1. Straight-through is exact for the linear one and gets worse with the bend. ReinMax follows second
derivatives and stays close for longer. Leave-one-out does not care, and pays in variance.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(2)
w, v = torch.randn(2, 12, generator=g).double()
q = ag.Gibbs(ag.OneHot(), torch.randn(3, 4, generator=g).double()).independent(1)
ways = {
    "StraightThrough": ag.StraightThrough(),
    "ReinMax": ag.ReinMax(),
    "LeaveOneOut(4)": ag.LeaveOneOut(4),
}
bends = torch.linspace(0, 1, 9)
bias = {name: [] for name in ways}
for c in bends:
    flat = lambda z, c=c: (1 - c) * (z.flatten(-2) @ w) + c * torch.cos(z.flatten(-2) @ v)
    for row in ag.diagnose(flat, q, ways, replicates=2000, generator=g).rows:
        bias[row.name].append(row.relative_bias)

figure, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
for colour, (name, values) in zip(COLORS, bias.items(), strict=False):
    ax.plot(bends, values, "o-", color=colour, label=name)
ax.set(xlabel="bend of the cost, c", ylabel="relative bias of the gradient", ylim=(0, None))
ax.legend()
plt.show()
