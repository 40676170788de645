"""No draw is wasted.

How much of a model's probability have k draws seen? Independent samples of a peaked model repeat
themselves; samples without replacement cannot. The model spells words of three letters, more or less
sharply. On a flat model the two are the same, and then sampling without replacement buys nothing ([When
it pays](../sequences/when.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

k, tries = 40, 400
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", sharey=True)
for ax, sharpness in zip(axes, (5.0, 3.0, 1.0), strict=True):
    g = torch.Generator().manual_seed(0)
    letter = sharpness * torch.randn(3, 9, generator=g)
    words = (
        (letter[0][:, None, None] + letter[1][:, None] + letter[2]).flatten().log_softmax(-1)
    )  # 729 words
    p = words.exp()
    drawn = torch.multinomial(p, tries * k, replacement=True, generator=g).view(tries, k)
    first = torch.stack([(drawn[:, :i] != drawn[:, i, None]).all(-1) for i in range(k)], -1)
    seen = (p[drawn] * first).cumsum(-1).mean(0)
    unique = ag.gumbel_topk(words.expand(tries, 729), k, generator=g).log_prob.exp().cumsum(-1).mean(0)
    ax.plot(range(1, k + 1), unique, color=COLORS[0], label="without replacement", linewidth=2)
    ax.plot(range(1, k + 1), seen, "--", color=COLORS[1], label="independent", linewidth=2)
    ax.set(xlabel="draws", title=f"sharpness {sharpness:g}", ylim=(0, 1))
axes[0].set_ylabel("probability seen so far")
axes[0].legend(loc="lower right")
plt.show()
