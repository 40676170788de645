"""One bit, and a bias that never goes away.

Minimise $\\mathbb{E}(b - t)^2$ over one coin b, with t = 0.49: the right answer is *always 0*, by a
hair. A relaxed gradient at temperature 1 sees a smooth parabola with its bottom in the middle, and
stays there however long it trains. Unbiased estimators find the answer; how fast is a matter of their
variance. (The problem is from the REBAR paper.)
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

g = torch.Generator().manual_seed(0)
ways = {
    "Exact": ag.Exact(),
    "LeaveOneOut(4)": ag.LeaveOneOut(4),
    "Reinforce(4)": ag.Reinforce(4),
    "Relaxed(1.0)": ag.Relaxed(1.0),
}
figure, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for colour, (name, way) in zip(COLORS, ways.items(), strict=False):
    scores = torch.zeros(256, 1, requires_grad=True)  # 256 runs at once
    optimizer = torch.optim.SGD([scores], lr=4.0)
    course = []
    for _ in range(120):
        loss = way(lambda b: ((b - 0.49) ** 2).sum(-1), ag.Gibbs(ag.Bits(), scores), generator=g).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        course.append(scores.detach().sigmoid().mean())
    style = {"linestyle": ":", "zorder": 3} if name == "Exact" else {}
    ax.plot(course, color=colour, label=name, linewidth=2.5, **style)
ax.set(xlabel="step", ylabel="P(b = 1), mean of 256 runs", ylim=(0, 0.7))
ax.legend()
plt.show()
