"""Gumbels with a given maximum.

Stochastic beam search and control variates need Gumbel noise *on condition that* its maximum is T. The
textbook map $-\\log(e^{-T} - e^{-Z} + e^{-G})$ is fine on paper; in float32 its exponentials overflow
once log-probabilities fall below -88, which for a language model is a sentence. The same map in another
form never fails ([how](../gumbel.md#gumbels-under-a-condition)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

levels = torch.arange(-160.0, 1.0, 8.0)
logits = levels[:, None] + torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
wanted = levels + 5  # the maximum that we ask for


def textbook(logits, maximum, noise):
    gumbel = logits + noise
    z = gumbel.amax(-1, keepdim=True)
    return -torch.log(torch.exp(-maximum[:, None]) - torch.exp(-z) + torch.exp(-gumbel))


noise = ag.random.gumbel(logits.shape, generator=torch.Generator().manual_seed(1))
usable = textbook(logits, wanted, noise).isfinite().float().mean(-1)
ours = ag.gumbel_given_max(logits, wanted, generator=torch.Generator().manual_seed(1))  # (21, 1000)
torch.equal(ours.amax(-1), wanted)  # -> True

figure, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
ax.plot(
    levels, ours.isfinite().float().mean(-1), color=COLORS[0], label="gumbel_given_max", linewidth=2
)
ax.plot(levels, usable, "--", color=COLORS[1], label="textbook form, float32", linewidth=2)
ax.set(xlabel="log-probability of an item", ylabel="share of usable numbers", ylim=(-0.05, 1.1))
ax.legend(loc="center right")
plt.show()
