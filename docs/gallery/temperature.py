"""The price of a low temperature.

Lowering the temperature of a relaxed gradient removes bias and adds variance; the error of one update
is smallest in between, and averaging more samples moves the best temperature down. Where it is depends
on the cost, so measure it on yours ([Temperature](../temperature.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
w = torch.randn(10, generator=g).double()
q = ag.Gibbs(ag.OneHot(), torch.randn(10, generator=g).double())
cost = lambda z: torch.exp((z * w).sum(-1))
taus = [3.0, 2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12, 0.08]
report = ag.diagnose(cost, q, {f"{t:g}": ag.Relaxed(t) for t in taus}, replicates=6000, generator=g)
size = ag.Exact().evaluate(cost, q).scores_grad.norm()
bias = torch.tensor([row.relative_bias for row in report.rows])
shown = torch.where(bias > 0, bias, torch.nan)  # 0: cannot be told from none
spread = torch.tensor([row.variance for row in report.rows]).sqrt() / size

figure, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
ax.loglog(taus, shown, "D-", color=COLORS[1], label="bias", markersize=4)
ax.loglog(taus, spread, "o-", color=COLORS[0], label="spread of one estimate", markersize=4)
for n, style in ((1, "-"), (100, "--")):
    ax.loglog(
        taus, (bias**2 + spread**2 / n).sqrt(), style, color="#333333", label=f"error, mean of {n}"
    )
ax.invert_xaxis()
ax.set(xlabel="temperature", ylabel="relative to the exact gradient", xticks=[3, 1, 0.3, 0.1])
ax.set_xticklabels(["3", "1", "0.3", "0.1"])
ax.minorticks_off()
ax.legend(ncols=2)
plt.show()
