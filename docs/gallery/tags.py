"""Tags along a line.

A chain: three tags at twelve places, and tags like to stay as they are. The best path (Viterbi, line)
is one answer; the marginals (shades) say where it is unsure. Both come from one object, as do exact
samples and log-probabilities ([Chain](../structures/chain.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(11)
emission = 1.5 * torch.randn(12, 3, generator=g)  # scores of a tag at a place
stay = 1.2 * torch.eye(3)  # scores of a tag after another
scores = stay + emission[1:, None, :]  # (11, 3, 3): [place, tag here, tag next]
scores[0] += emission[0][:, None]

chain = ag.Chain()
pairs = chain.marginals(scores)  # (11, 3, 3)
tags = torch.cat([pairs[:1].sum(-1), pairs.sum(-2)])  # (12, 3): probability of each tag
best = chain.argmax(scores)
path = torch.cat([best[:1].sum(-1), best.sum(-2)]).argmax(-1)  # (12)

figure, ax = plt.subplots(figsize=(8, 2.2), layout="constrained")
ax.imshow(tags.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.plot(range(12), path, "o-", color=COLORS[1], label="best path")
ax.set(yticks=range(3), yticklabels=["A", "B", "C"], xlabel="place", xticks=range(12))
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
plt.show()
