"""From mixture to permutation.

A random permutation of six items from the same noise at four temperatures: a doubly stochastic matrix
that hardens into a permutation matrix. The last is the exact assignment. Each is solved to a tolerance;
a fixed twenty rounds of Sinkhorn would not be doubly stochastic at the lower temperatures
([Permutation](../structures/permutation.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

scores = torch.zeros(6, 6)
q = ag.Perturbed(ag.Permutation(), scores)
noise = ag.CounterRNG(5)

figure, axes = plt.subplots(1, 5, figsize=(9.5, 2.2), layout="constrained")
for ax, tau in zip(axes, (2.0, 0.7, 0.3, 0.1), strict=False):
    soft = q.rsample(tau=tau, generator=noise)  # (6, 6)
    off = max((soft.sum(0) - 1).abs().max(), (soft.sum(1) - 1).abs().max())
    assert off < 1e-3
    ag.plot.permutation_matrix(soft, title=f"τ = {tau:g}", ax=ax)
ag.plot.permutation_matrix(q.sample(generator=noise), title="arg max", ax=axes[-1])
plt.show()
