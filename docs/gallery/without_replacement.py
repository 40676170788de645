"""Different items tell more.

An expectation over 100 items, estimated from k of them. Drawing *without* replacement (`gumbel_topk`)
and weighting by the threshold kappa is unbiased, and once a few items hold most of the probability it
beats independent draws by far, because no evaluation is spent twice ([equation
6](../gumbel.md#several-items-no-two-the-same)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
logits = 2.5 * torch.randn(100, generator=g)
f = torch.randn(100, generator=g)
p = logits.softmax(-1)
exact = (p * f).sum()
many, ks = 4000, [2, 4, 8, 16, 32, 64]
errors = {"independent draws": [], "without replacement": []}
for k in ks:
    drawn = torch.multinomial(p, many * k, replacement=True, generator=g).view(many, k)
    errors["independent draws"].append(f[drawn].mean(-1))
    top = ag.gumbel_topk(logits.expand(many, 100), k, generator=g)
    weight = top.log_prob - torch.log(-torch.expm1(-torch.exp(top.log_prob - top.kappa[:, None])))
    errors["without replacement"].append((weight.exp() * f[top.indices]).sum(-1))

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for colour, (name, estimates) in zip(COLORS, errors.items(), strict=False):
    error = [(x - exact).square().mean().sqrt() for x in estimates]
    ax.loglog(ks, error, "o-", color=colour, label=name)
ax.set(xlabel="evaluations of f", ylabel="root mean squared error", xticks=ks, xticklabels=ks)
ax.minorticks_off()
ax.legend()
plt.show()
