"""With the same luck, what else?

Item 0 was chosen. Had the scores been different, what would have been chosen *then*? The noise behind a
choice can be drawn as it must have been (`gumbel_posterior`) and used again. The first choice is kept
more often than fresh noise would choose it: luck that was good for an item stays good.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
old = torch.tensor([0.5, 0.4, 0.0, -0.5])
new = torch.tensor([0.0, 1.2, 0.0, 0.6])  # another policy
seen = torch.zeros(50_000, dtype=torch.long)  # item 0 was observed

luck = ag.gumbel_posterior(old.expand(50_000, 4), seen, generator=g) - old  # (50000, 4)
instead = (new + luck).argmax(-1)  # (50000)
share = instead.bincount(minlength=4) / 50_000

x = torch.arange(4)
figure, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
ax.bar(x - 0.2, share, 0.38, color=COLORS[0], label="with the luck that led to item 0")
ax.bar(x + 0.2, new.softmax(-1), 0.38, color=COLORS[4], label="with fresh luck")
ax.set(xticks=x, xlabel="what the new scores choose", ylabel="probability")
ax.legend()
plt.show()
