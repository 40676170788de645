"""What the regularizer does.

One of three scores rises, the others stay. The arg max jumps. Softmax (entropy) bends and never reaches
0 or 1; sparsemax (Euclidean) is straight and does; Tsallis with 1.5 lies between. All solve $\\max_z
\\langle \\theta, z\\rangle - \\tau f(z)$, with another $f$
([Structures](../structures/index.md#regularizers)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

x = torch.linspace(-3, 3, 241)
scores = torch.stack([x, torch.zeros(241), torch.full((241,), -0.5)], -1)  # (241, 3)
ways = {"Entropy": ag.Entropy(), "Tsallis(1.5)": ag.Tsallis(1.5), "Euclidean": ag.Euclidean()}

figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", sharey=True)
for ax, (name, regularizer) in zip(axes, ways.items(), strict=True):
    z = ag.OneHot().relax(scores, tau=1.0, regularizer=regularizer)  # (241, 3)
    for i in range(3):
        ax.plot(x, z[:, i], color=COLORS[i], linewidth=2, label=f"item {i}")
    ax.plot(x, ag.OneHot().argmax(scores)[:, 0], ":", color="#333333", label="arg max, item 0")
    ax.set(title=name, xlabel="score of item 0")
axes[0].set_ylabel("z")
axes[0].legend()
plt.show()
