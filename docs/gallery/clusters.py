"""Codes that nobody gave.

An encoder sees a point and chooses one of six codes, at random and hard; a decoder sees nothing but the
code. Both are trained by plain backpropagation through `gumbel_softmax(hard=True)`. The codes share out
the plane, and the decoder's six answers (crosses) sit in the middle of them.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

torch.manual_seed(1)
angle = torch.rand(600) * 2 * torch.pi
x = torch.stack([angle.cos(), angle.sin()], -1) * (1 + 0.12 * torch.randn(600, 1))  # a noisy ring

encoder = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 6))
decoder = torch.nn.Linear(6, 2, bias=False)
choose = ag.nn.GumbelSoftmax(ag.schedules.Linear(1.5, 0.3, steps=160), hard=True)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.03)
for _ in range(200):
    loss = (decoder(choose(encoder(x))) - x).square().sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    choose.step()

code = encoder(x).argmax(-1)  # (600)
centres = decoder.weight.T.detach()  # (6, 2)
figure, ax = plt.subplots(figsize=(3.6, 3.6), layout="constrained")
ax.scatter(*x.T, c=[COLORS[i] for i in code], s=8)
ax.plot(*centres.T, "x", color="#333333", markersize=10, markeredgewidth=2)
ax.set(aspect="equal", xticks=[], yticks=[], title="six codes for a ring")
ax.spines[:].set_visible(False)
plt.show()
