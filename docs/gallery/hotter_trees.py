"""A temperature for trees.

Calibration is not only for classes. Trees were drawn from scores divided by 2; from the scores and the
trees alone `calibrate_structure` finds that 2 by solving one moment equation,
$\\mathbb{E}_\\lambda\\langle\\theta, z\\rangle = $ the observed mean. The curve is its residual, the
line its root.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
scores = 2 * torch.randn(300, 6, 6, generator=g)
scores = scores + scores.mT
tree = ag.SpanningTree()
observed = tree.sample(scores / 2.0, generator=g)  # (300, 6, 6)
found = ag.calibrate_structure(tree, scores, observed)
1.8 < float(found.temperature) < 2.2  # -> True

temperatures = torch.linspace(0.7, 5, 30)
inner = lambda z: (scores * z).sum((-2, -1)).mean() / 2  # an edge stands twice in the matrix
residual = [inner(tree.marginals(scores / t)) - inner(observed) for t in temperatures]

figure, ax = plt.subplots(figsize=(6, 2.9), layout="constrained")
ax.plot(temperatures, residual, color=COLORS[0], linewidth=2, label="expected minus observed score")
ax.axhline(0, color="#333333", linewidth=0.8)
ax.axvline(
    float(found.temperature), color=COLORS[1], label=f"found: T = {float(found.temperature):.2f}"
)
ax.set(xlabel="temperature")
ax.legend()
plt.show()
