"""Rows that learn nothing.

At a low temperature most rows of a batch have a gradient of exactly 0 in float32, because every product
of two coordinates underflows; the rest have a huge one. `GradientMonitor` counts starved rows while you
train. Here the temperature falls on random rows: between 0.1 and 0.01 the gradient turns from something
into a lottery ([Debugging](../debugging.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
logits = torch.randn(2000, 10, generator=g)
target = torch.randn(10, generator=g)
taus = torch.logspace(0, -3.3, 18)
starved, largest = [], []
for tau in taus.tolist():
    monitor = ag.GradientMonitor()
    leaf = logits.clone().requires_grad_()
    z = ag.gumbel_softmax(monitor.watch("z", leaf, tau=tau), tau, generator=g)
    (z * target).sum().backward()
    starved.append(monitor.report()["z"]["starved"])
    largest.append(leaf.grad.norm(dim=-1).max())

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.semilogx(taus, starved, "o-", color=COLORS[1], markersize=4)
left.set(xlabel="temperature", title="share of starved rows", ylim=(0, 1))
right.loglog(taus, largest, "o-", color=COLORS[0], markersize=4)
right.set(xlabel="temperature", title="largest gradient of a row")
for ax in (left, right):
    ax.invert_xaxis()
plt.show()
