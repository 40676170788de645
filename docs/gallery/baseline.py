"""What a baseline is worth.

The variance of the score-function gradient against a constant baseline b is a parabola. Its bottom is
near the mean cost, and far from 0 when the cost is not centred: here a hundred times lower. Any b
leaves the mean gradient alone, as long as it does not look at its own sample
([baselines](../estimators/score.md#baselines)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
scores = torch.randn(6, generator=g).double()
costs = 5 + torch.randn(6, generator=g).double()
f = lambda z: (z * costs).sum(-1)
q = ag.Gibbs(ag.OneHot(), scores)
many = q.with_scores(scores.expand(4000, 6))
exact = ag.Exact().evaluate(f, q).scores_grad

baselines = torch.linspace(0, 9, 19)
variance, mean_error = [], []
for b in baselines:
    grad = ag.Reinforce(baseline=float(b)).evaluate(f, many, generator=g).scores_grad  # (4000, 6)
    variance.append(grad.var(0).sum())
    mean_error.append((grad.mean(0) - exact).norm())

figure, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
ax.plot(baselines, variance, "o-", color=COLORS[0], label="variance of one estimate")
ax.plot(baselines, mean_error, "s-", color=COLORS[1], label="error of the mean of 4000", markersize=4)
mean_cost = (q.mean * costs).sum()
ax.axvline(mean_cost, color="#333333", linestyle=":", label="mean cost")
ax.set(xlabel="baseline b", ylim=(0, None))
ax.legend()
plt.show()
