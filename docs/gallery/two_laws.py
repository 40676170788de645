"""Two laws for the same scores.

The 16 trees on four nodes. `Gibbs` gives each the probability that its score says; perturbing the edges
and taking the best tree (`Perturbed`) gives another one. They agree for one-hot choices and for bits,
and for nothing else: a `log_prob` of one is wrong for the other ([Two laws](../laws.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
scores = 1.5 * torch.randn(4, 4, generator=g)
scores = (scores + scores.mT) / 2
trees = ag.SpanningTree().enumerate((4, 4))  # (16, 4, 4)
gibbs = ag.Gibbs(ag.SpanningTree(), scores).log_prob(trees).exp()  # (16)

z = ag.Perturbed(ag.SpanningTree(), scores).sample((40_000,), generator=g)
perturbed = (
    (z.flatten(1) @ trees.flatten(1).T == 6).float().mean(0)
)  # (16): trees share all six entries

order = gibbs.argsort(descending=True)
x = torch.arange(16)
figure, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
ax.bar(x - 0.2, gibbs[order], 0.4, color=COLORS[0], label="Gibbs (exact)")
ax.bar(x + 0.2, perturbed[order], 0.4, color=COLORS[4], label="Perturbed (40 000 samples)")
ax.set(xlabel="tree, by its score", ylabel="probability", xticks=[])
ax.legend()
plt.show()
