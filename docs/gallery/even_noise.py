"""Noise that is spread evenly.

A reparameterised expectation can choose its noise. Independent numbers leave an error that falls with
the root of n; antithetic pairs cancel what is odd, stratified and Sobol numbers fill the line evenly
and fall much faster. `reparam` takes the noise as an argument
([Reparameterisations](../softmax/reparam.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
law = ag.reparam.Gumbel(torch.zeros(200, dtype=torch.float64), torch.ones(200, dtype=torch.float64))
f = lambda x: torch.sin(x)
fine = torch.linspace(-6, 40, 400_001, dtype=torch.float64)
exact = torch.trapezoid(f(fine) * torch.exp(-fine - torch.exp(-fine)), fine)
sizes = [4, 8, 16, 32, 64, 128, 256]

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for colour, kind in zip(COLORS, ("iid", "antithetic", "stratified", "sobol"), strict=False):
    error = []
    for n in sizes:
        x = law.rsample((n,), kind=kind, generator=g)  # n points for each of 200 repetitions
        error.append((f(x).mean(0) - exact).square().mean().sqrt())
    ax.loglog(sizes, error, "o-", color=colour, label=kind)
ax.set(xlabel="points", ylabel="root mean squared error", xticks=sizes, xticklabels=sizes)
ax.minorticks_off()
ax.legend()
plt.show()
