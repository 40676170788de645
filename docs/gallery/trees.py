"""A random tree, from soft to hard.

Seven nodes, one draw of noise on their edges. Relaxed spanning trees are edge probabilities by the
matrix-tree theorem, at scores divided by the temperature; they always sum to six edges, and in the
limit they are the best tree ([SpanningTree](../structures/spanning_tree.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

scores = torch.randn(7, 7, generator=torch.Generator().manual_seed(1))
q = ag.Perturbed(ag.SpanningTree(), scores + scores.mT)
noise = ag.CounterRNG(0)

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
for ax, tau in zip(axes, (5.0, 1.0, 0.3), strict=False):
    soft = q.rsample(tau=tau, generator=noise)  # (7, 7)
    assert abs(float(soft.triu(1).sum()) - 6) < 1e-3  # six edges in all
    ag.plot.graph(soft, title=f"τ = {tau:g}", ax=ax)
ag.plot.graph(q.sample(generator=noise), title="arg max", color="#009E73", ax=axes[-1])
plt.show()
