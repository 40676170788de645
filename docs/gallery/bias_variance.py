"""Bias and spread of ten estimators.

Three categoricals and a small network as the cost. Each bar goes from the bias of an estimator to its
whole error; a hollow diamond is a bias that cannot be told from 0. One call measures this on *your*
cost ([How to choose](../estimators/choose.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

g = torch.Generator().manual_seed(0)
net = torch.randn(12, 8, generator=g)
q = ag.Gibbs(ag.OneHot(), torch.randn(3, 4, generator=g)).independent(1)  # three variables, one cost
cost = lambda z: 3 + torch.tanh(z.flatten(-2) @ net).sum(-1)
estimators = [
    *(ag.Reinforce(), ag.LeaveOneOut(4), ag.UnorderedSet(4), ag.MuProp(), ag.Rebar()),
    *(ag.StraightThrough(), ag.ReinMax(), ag.GumbelST(0.5), ag.GumbelRao(0.5), ag.Relaxed(0.5)),
]
report = ag.diagnose(cost, q, estimators, replicates=800, generator=g)
report.rows[0].verdict, report.rows[-1].verdict  # -> ('unbiased', 'biased')

figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
ag.plot.bias_variance(report, ax=ax)
plt.show()
