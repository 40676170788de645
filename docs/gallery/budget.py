"""Which estimator, at which budget.

With few evaluations of the cost an update, a biased gradient with little noise is nearer to the truth;
with many, its bias is all that is left and an unbiased one overtakes it. The lines cross where they
cross for *this* cost: `diagnose` has the numbers for yours ([How to choose](../estimators/choose.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(1)
net = torch.randn(12, 8, generator=g).double()
q = ag.Gibbs(ag.OneHot(), torch.randn(3, 4, generator=g).double()).independent(1)
cost = lambda z: torch.tanh(z.flatten(-2) @ net).sum(-1)
ways = [ag.StraightThrough(), ag.ReinMax(), ag.Relaxed(0.5), ag.LeaveOneOut(4), ag.MuProp()]
report = ag.diagnose(cost, q, ways, replicates=4000, generator=g)
size = ag.Exact().evaluate(cost, q).scores_grad.norm().item()

budgets = torch.logspace(0.6, 4, 40)
figure, ax = plt.subplots(figsize=(6.5, 3.3), layout="constrained")
for colour, row in zip(COLORS, report.rows, strict=False):
    squared = (row.relative_bias * size) ** 2 if row.verdict == "biased" else 0.0
    error = (squared + row.variance * row.evaluations / budgets).sqrt() / size
    style = "--" if row.verdict == "biased" else "-"
    ax.loglog(budgets, error, style, color=colour, label=f"{row.name} ({row.verdict})", linewidth=2)
ax.set(xlabel="evaluations of the cost behind one update", ylabel="relative error")
ax.legend()
plt.show()
